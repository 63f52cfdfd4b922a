"""`rg-env doctor` finds what a run would fail on, and exits 1 exactly then."""

import json
import sys

import pytest
from typer.testing import CliRunner

from rg_env import doctor
from rg_env.choices import RunKind
from rg_env.cli import app
from rg_env.doctor import Level, examine


@pytest.fixture
def machine(monkeypatch):
    """Fakes the installed packages (name → version) and what commands print."""

    def have(packages, outputs=()):
        monkeypatch.setattr(doctor, "_version", packages.get)
        monkeypatch.setattr(doctor, "_output", lambda command, *_: dict(outputs).get(command, ""))
        monkeypatch.setattr(doctor, "_sandbox", lambda: ())

    return have


GPU = {
    "skyrl": "0.4.0",
    "torch": "2.13.0",
    "vllm": "0.30.0",
    "ray": "2.57.0",
    "flash-attn": "2.8.3",
    "vllm-router": "0.1.14",
}
H100 = {"nvidia-smi": "H100, 81559 MiB, 570.1\n", sys.executable: "12.8 1\n"}


def problems(kind, folder):
    return {finding.subject for finding in examine(kind, folder) if finding.level is Level.PROBLEM}


def test_this_machine_can_train_on_the_cpu(tmp_path):
    done = CliRunner().invoke(app, ["doctor", "cpu", "--dump-dir", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    findings = {finding["subject"]: finding for finding in json.loads(done.output)["findings"]}
    assert findings["packages"]["level"] == "ok"
    assert {"Python", "cores", "sandbox", "free disk", "dump folder"} <= set(findings)
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_machine(machine, tmp_path, monkeypatch):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so")
    machine(GPU, outputs=H100)
    assert problems(RunKind.GPU, tmp_path) == set()


@pytest.mark.parametrize(
    ("packages", "outputs", "expected"),
    [
        ({}, H100, "skyrl"),
        ({**GPU, "flash-attn": None}, H100, "flash-attn"),
        (GPU, {}, "GPUs"),
        (GPU, {**H100, sys.executable: "None 0\n"}, "CUDA"),
    ],
    ids=["nothing installed", "no flash-attn", "no GPU", "torch for the CPU"],
)
def test_what_a_gpu_run_would_fail_on(machine, tmp_path, packages, outputs, expected):
    machine(packages, outputs)
    assert expected in problems(RunKind.GPU, tmp_path)
    assert CliRunner().invoke(app, ["doctor", "gpu", "--dump-dir", str(tmp_path)]).exit_code == 1


def test_a_light_installation_reads_but_does_not_train(machine, tmp_path):
    light = {name.partition("==")[0]: "999" for name in ("loguru", "typer")}
    machine(light)
    assert doctor.installed_kind() is RunKind.READ
    assert {"skyrl", "torch"} <= problems(RunKind.CPU, tmp_path)
    assert "skyrl" not in problems(RunKind.READ, tmp_path)


def test_a_machine_without_sandbox_measures_is_warned_not_refused(tmp_path, monkeypatch):
    measures = {"no network": "seccomp is not available", "limits": ""}
    monkeypatch.setattr("rg_env.scoring.sandbox.sandbox.sandbox_report", lambda: measures)
    (found,) = (finding for finding in examine(RunKind.READ, tmp_path) if finding.subject == "sandbox")
    assert found.level is Level.WARNING
    assert "seccomp is not available" in found.text


def test_a_dump_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    assert "dump folder" in problems(RunKind.READ, tmp_path / "file" / "dumps")
