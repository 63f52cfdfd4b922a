"""The names of metrics, which dashboards know."""

from __future__ import annotations

from tests.skyrl.metric_names import METRICS, metric_names
from tests.snapshots import FOLDER


def test_the_names_of_metrics_are_those_of_the_snapshot():
    """If the change is on purpose: `python -m tests.snapshots`."""
    assert metric_names() == (FOLDER / METRICS).read_text()
