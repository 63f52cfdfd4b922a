"""How many cores a process may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from rg_env.runner import machine


def control_groups(folder: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    (folder / "cgroup").write_text(groups)
    for name, text in files.items():
        path = folder / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "cgroup", folder / "mount"


@pytest.mark.parametrize(
    ("groups", "files", "quotas"),
    [
        ("0::/\n", {"cpu.max": "250000 100000\n"}, [2.5]),
        ("0::/\n", {"cpu.max": "max 100000\n"}, []),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "400000 100000\n"}, [4.0]),
        ("0::/not/mounted\n", {"cpu.max": "50000 100000\n"}, [0.5]),
        (
            "3:cpuset:/\n2:cpu,cpuacct:/a\n",
            {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"},
            [3.0],
        ),
        ("2:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, []),
        ("2:memory:/\n", {}, []),
        ("", {}, []),
    ],
)
def test_quotas_of_control_groups(tmp_path: Path, groups: str, files: dict[str, str], quotas: list[float]) -> None:
    assert list(machine._quotas(*control_groups(tmp_path, groups, files))) == quotas


@pytest.mark.parametrize(("quotas", "cores"), [([], 6), ([2.5], 2), ([0.5], 1), ([64.0, 3.0], 3)])
def test_cores_are_limited_by_affinity_and_quota(
    monkeypatch: pytest.MonkeyPatch, quotas: list[float], cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(machine, "_quotas", lambda *_: quotas)
    assert machine.usable_cores() == cores


def test_no_control_groups_are_no_limit(tmp_path: Path) -> None:
    assert list(machine._quotas(tmp_path / "missing", tmp_path)) == []
