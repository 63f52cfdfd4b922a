"""What pyproject.toml tells uv about a GPU machine agrees with docs/gpu.md."""

import re
import tomllib

from packaging.requirements import Requirement

from tests.e2e.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGE = (ROOT / "docs" / "gpu.md").read_text()
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64"}


def test_the_gpu_extra_is_for_the_python_that_skyrl_has_wheels_for():
    (text,) = PROJECT["project"]["optional-dependencies"]["gpu"]
    requirement = Requirement(text)
    assert (requirement.name, requirement.extras, str(requirement.specifier)) == ("skyrl", {"fsdp"}, "==0.3.0")
    assert requirement.marker.evaluate({**LINUX, "python_version": "3.12"})
    for other in ({"python_version": "3.11"}, {"python_version": "3.13"}, {"platform_machine": "aarch64"}):
        assert not requirement.marker.evaluate({**LINUX, "python_version": "3.12", **other})


def test_uv_takes_skyrl_from_its_tag_for_gpus_only():
    """Without the checkout's own sources, the wheels that are not on PyPI are not found."""
    source = PROJECT["tool"]["uv"]["sources"]["skyrl"]
    assert source == {"git": "https://github.com/NovaSky-AI/SkyRL", "tag": "skyrl-v0.3.0", "extra": "gpu"}
    assert PROJECT["tool"]["uv"]["conflicts"] == [[{"extra": "cpu"}, {"extra": "gpu"}]]
    (override,) = map(Requirement, PROJECT["tool"]["uv"]["override-dependencies"])
    assert override.name == "nixl-cu13"
    assert not override.marker.evaluate(LINUX)


def test_the_page_names_the_command_and_the_versions():
    commands = re.findall(r"^ +(uv sync .*)$", PAGE, re.MULTILINE)
    assert commands == ["uv sync --python 3.12 --extra gpu"]
    assert "skyrl-v0.3.0" in PAGE
