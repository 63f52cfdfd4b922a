"""A dump on Ray Data. With a real local Ray: processes that read the files themselves."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from rg_env.analysis import statistics
from rg_env.analysis.stats import NEEDED
from rg_env.dump import open_run
from rg_env.dump.read.frames import SCHEMA
from tests.analysis.samples import write_ledger, write_texts
from tests.dump.records import group, violating

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def local_ray(tmp_path_factory):
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.timeout(200)
def test_the_figures_are_the_same_as_here(local_ray, tmp_path):
    members = [
        group(f"{task}-{k}", [1.0, 0.0, violating(2)] if k % 3 else [1.0, 1.0], step=k // 4, attempt=attempt, task=task)
        for attempt, steps in ((1, range(40)), (2, range(20, 60)))
        for k in steps
        for task in ("gcd", "lcm")
    ]
    write_ledger(tmp_path / "ours", members)
    write_texts(tmp_path / "theirs", [group(k, run_id="b") for k in range(5)], run_id="b")
    dump = open_run(tmp_path / "ours", tmp_path / "theirs")
    there = dump.to_ray()
    order = ["run_id", "attempt", "phase", "step", "uid", "task", "repetition"]
    here = dump.ledger_frame()
    rows = there.to_pandas()
    assert list(rows.columns) == list(SCHEMA)
    assert len(rows) == here.height
    local = here.to_pandas().sort_values(order, ignore_index=True)
    assert rows.sort_values(order)[order].to_numpy().tolist() == local[order].to_numpy().tolist()
    needed = there.select_columns(["group_id", *NEEDED])
    collected = pl.concat(map(pl.from_arrow, needed.iter_batches(batch_size=None, batch_format="pyarrow")))
    for by in ("task", "step"):
        assert_frame_equal(statistics(collected, by), statistics(dump.scan(), by))
    assert there.mean("base_score") == pytest.approx(here["base_score"].mean())
    some = dump.where(["task=gcd", "step<3"])
    assert some.to_ray().count() == some.ledger_frame().height > 0
    texts = dump.to_ray(texts=True).take_all()
    assert {row["conversation"][1]["role"] for row in texts} == {"assistant"}
