"""docs/train.md lists exactly our metrics, and SwanLab gets the settings."""

import re
import sys
from types import SimpleNamespace

import pytest

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring.types import Status, Violation
from rg_env.skyrl.canaries import CanaryCounts
from rg_env.skyrl.env import RGDumpEnv
from rg_env.skyrl.experiment import RGExperiment
from rg_env.skyrl.train_config import load_run
from tests.running import ROOT
from tests.skyrl.generating import TASK, right, run, script_for


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """SkyRL's metrics of one `generate()` call."""
    folder = tmp_path_factory.mktemp("run")
    rows = ReasoningGymDataset(TASK, size=2)
    config = RGDumpConfig(dump_other_rollouts=True)
    with DumpWriter(folder, "run", 1) as writer:
        script = script_for(rows, right("{}"), right("wrong\x1b[2J | <b>"), "no tags", right("{}"))
        output, _ = run(rows, script, writer=writer, config=config)
    return output["rollout_metrics"]


def test_the_page_lists_every_metric(done):
    episode = {"task": "gcd", "base_score": 1.0, "solved": True, "violation": None, "status": "ok", "normalized": True}
    episodes = [
        episode,
        *({**episode, "violation": violation.value} for violation in Violation),
        *({**episode, "status": status.value} for status in Status),
    ]
    names = {f"environment/{name}" for name in RGDumpEnv.aggregate_metrics(episodes) if "/gcd/" not in name}
    names |= {name for name in done if name.startswith("rg_dump/")}
    names |= CanaryCounts(scored=1).metrics().keys()  # the trainer's, of a step
    names = {re.sub(r"(mean_(?:violation|status)_)\w+", r"\1NAME", name).replace("_gcd", "_TASK") for name in names}
    page = (ROOT / "docs" / "train.md").read_text()
    assert names == set(re.findall(r"^- `([\w/]+)`: ", page, re.MULTILINE))


def test_swanlab_gets_the_settings_as_a_dict(monkeypatch):
    """It refuses SkyRL's config object."""
    started = {}
    swanlab = SimpleNamespace(init=lambda **given: started.update(given), finish=lambda: None)
    monkeypatch.setitem(sys.modules, "swanlab", swanlab)
    cfg = load_run([str(ROOT / "configs" / "quickstart.yaml")]).cfg
    cfg.trainer.logger = "swanlab"
    RGExperiment.get_tracker(SimpleNamespace(cfg=cfg, writer=None))
    assert started["config"]["trainer"]["logger"] == "swanlab"
