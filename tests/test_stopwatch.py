from __future__ import annotations

import pytest

from rg_env import rewards
from rg_env.rewards import Stopwatch
from rg_env.skyrl.generator import _share_generation


@pytest.fixture
def clock(monkeypatch):
    """The machine's clocks: wall time and monotonic time."""
    now = {"time": 1_000.0, "monotonic": 50.0}
    for name in now:
        monkeypatch.setattr(rewards.time, name, lambda name=name: now[name])
    return now


def test_phases_are_measured_also_if_the_clock_is_set_back(clock):
    watch = Stopwatch()
    clock.update(time=900.0, monotonic=53.0)
    watch.responded()
    clock.update(monotonic=54.5)
    watch.scored()
    assert (watch.began, watch.ended, watch.generation, watch.scoring) == (1_000.0, 1_004.5, 3.0, 1.5)


def test_the_responses_of_a_batch_arrive_together(clock):
    """SkyRL scores them one after the other; the wait of the later ones is not generation."""
    watches = []
    for began in (0.0, 0.5):
        clock.update(time=1_000.0 + began, monotonic=50.0 + began)
        watches.append(Stopwatch())
    for called in (60.0, 61.0):
        clock["monotonic"] = called
        watches[called == 61.0].responded()
        clock["monotonic"] = called + 1.0
        watches[called == 61.0].scored()
    _share_generation(watches)
    assert [watch.generation for watch in watches] == [10.0, 9.5]
    assert [(watch.scoring, watch.ended) for watch in watches] == [(1.0, 1_011.0), (1.0, 1_012.0)]
