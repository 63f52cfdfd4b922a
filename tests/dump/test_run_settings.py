from __future__ import annotations

from rg_env.config import RGDumpConfig
from rg_env.dump.manifest import settings_in
from tests.dump.repair.damage import manifest


def test_what_is_absent_or_invalid_today_keeps_its_default():
    wire = manifest(solved_at=0.5, groups_per_file=-1, length_penalty={"kind": "no such kind"})
    del wire["settings"]["environment"]["skyrl_gym"]["rg_dump"]["seed"]
    settings = settings_in(wire)
    default = RGDumpConfig()
    assert settings.solved_at == 0.5
    assert settings.groups_per_file == default.groups_per_file
    assert settings.length_penalty == default.length_penalty
    assert settings_in({"attempt": 1}) is None
