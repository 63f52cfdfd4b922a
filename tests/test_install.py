"""What pyproject.toml tells uv about a GPU machine agrees with docs/gpu.md, and how an environment is made."""

import os
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.running import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGE = (ROOT / "docs" / "gpu.md").read_text()
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64"}


def test_the_gpu_extra_is_for_the_platform_that_skyrl_has_wheels_for():
    skyrl, router = map(Requirement, PROJECT["project"]["optional-dependencies"]["gpu"])
    assert (skyrl.name, skyrl.extras, str(skyrl.specifier)) == ("skyrl", {"fsdp"}, "==0.4.0")
    assert router.name == "vllm-router"
    for release, works in (("0.1.14", True), ("0.1.14.post1", True), ("0.1.15", False)):
        assert router.specifier.contains(release) == works
    for requirement in (skyrl, router):
        assert requirement.marker.evaluate(LINUX)
        assert not requirement.marker.evaluate({**LINUX, "platform_machine": "aarch64"})


def test_uv_takes_skyrl_from_its_tag_for_gpus_only():
    """Without the checkout's own sources, the wheels that are not on PyPI are not found."""
    source = PROJECT["tool"]["uv"]["sources"]["skyrl"]
    assert source == {"git": "https://github.com/NovaSky-AI/SkyRL", "tag": "skyrl-v0.4.0", "extra": "gpu"}
    assert PROJECT["tool"]["uv"]["conflicts"] == [[{"extra": "cpu"}, {"extra": "gpu"}]]


def test_the_page_names_the_command_and_the_versions():
    commands = re.findall(r"^ +(uv sync .*)$", PAGE, re.MULTILINE)
    assert commands == ["uv sync --extra gpu"]
    assert "skyrl-v0.4.0" in PAGE


@pytest.mark.parametrize("name", ["dev", "vllm", "verifiers"])
def test_an_environment_has_pinned_versions_and_no_addresses(name):
    pins = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    assert len(pins) > 100
    assert all(re.match(r"[\w.-]+==\S+( ;.*)?$", pin) for pin in pins)


@pytest.fixture
def machine(tmp_path):
    """Runs scripts/install.sh with commands that record how they are called; returns the calls of uv.

    Nothing is installed: whether the environments work is tested by the rest of the tests, which run in them.
    """
    called = tmp_path / "called"

    def install(pythons=(), uv_fails=False, **variables):
        tools = tmp_path / "bin"
        tools.mkdir()
        commands = {name: f'exec "{sys.executable}" "$@"' if works else "exit 127" for name, works in pythons}
        commands["uv"] = f'echo "$@" >>{called}; exit {int(uv_fails)}'
        for name, body in commands.items():
            (tools / name).write_text(f"#!/bin/sh\n{body}\n")
            (tools / name).chmod(0o755)
        for name in ("bash", "dirname", "cat"):
            (tools / name).symlink_to(f"/bin/{name}")
        environment = {"PATH": str(tools), "HOME": str(tmp_path), **variables}
        command = ["bash", ROOT / "scripts" / "install.sh", tmp_path / "environment", "dev"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done, called.read_text() if called.exists() else ""

    return install


def test_a_command_that_does_not_run_is_passed_over(machine):
    """As pyenv's are, for versions that are not selected. The one that runs here is that of an environment, from which
    uv makes no other: it gets the one below it.
    """
    done, calls = machine([("python3.12", False), ("python3.13", True)])
    assert done.returncode == 0, done.stderr
    assert f"--python {sys._base_executable} " in calls
    assert sys.prefix != sys.base_prefix and sys._base_executable != sys.executable
    assert "--index" not in calls


def test_without_any_python_uv_downloads_one(machine):
    done, calls = machine()
    assert done.returncode == 0, done.stderr
    assert "--python 3.12 " in calls


def test_a_python_that_cannot_be_downloaded_is_one_line(machine):
    done, _ = machine(uv_fails=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "PYTHON=/path/to/python3.12" in done.stderr


@pytest.mark.parametrize("python", ["/usr/bin/false", "no-such-python"])
def test_a_python_that_cannot_be_used_is_one_line(machine, python):
    done, calls = machine([("python3.12", True)], PYTHON=python)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"PYTHON={python}" in done.stderr
    assert not calls


def test_an_index_with_smaller_builds_of_torch(machine):
    _, calls = machine([("python3.12", True)], TORCH_INDEX=f"file://{os.sep}index")
    assert "--index file:///index --index-strategy unsafe-best-match" in calls
