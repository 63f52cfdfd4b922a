"""A request that failed is in the record, and in no outcome, no routing and no rate."""

import asyncio

import pytest

from rg_env.analysis import counts, statistics
from rg_env.analysis.stats import measure
from rg_env.analysis.tables import headline
from rg_env.base.errors import DumpError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter, FileKind, NotKept, Outcome, open_run, route
from rg_env.dump.group_text import Query
from rg_env.dump.validate import validate
from tests.dump.records import RUN_ID, group, rollout, unanswered

ALL = RGDumpConfig(dump_eval_rollouts=False)


def written(folder, groups):
    with DumpWriter(folder, RUN_ID, 1, ALL) as writer:
        asyncio.run(writer.write(groups))
    return open_run(folder)


def test_outcome_and_file_follow_from_the_responses_alone():
    assert group(0, [rollout(1.0), unanswered(1)]).outcome is Outcome.ALL_CORRECT
    failed = group(0, [rollout(0.0), unanswered(1)])
    assert (failed.outcome, route(failed, ALL)) == (Outcome.ALL_FAILED, (FileKind.FAILED, None))
    nothing = group(0, [unanswered(0), unanswered(1)])
    assert (nothing.outcome, route(nothing, ALL)) == (Outcome.MIXED, (None, NotKept.NO_RESPONSES))


def test_every_tool_leaves_it_out(tmp_path):
    groups = [group(0, [rollout(1.0), unanswered(1)]), group(1, [unanswered(0), unanswered(1)])]
    dump = written(tmp_path, groups)
    assert validate(tmp_path).good
    assert list(dump.groups()) == groups[:1]
    found = measure(dump)
    assert (found.rollouts.height, found.left_out) == (1, 3)
    assert "3 rollouts left out" in headline(found, dump)
    (row,) = statistics(found).iter_rows(named=True)
    assert (row["groups"], row["rollouts"], row["solve_rate"], row["format_rate"]) == (1, 1, 1.0, 1.0)
    assert row["pass_at_1"] == 1.0
    assert counts(found).select("value", "rollouts", "share").rows() == [("ok", 1, 1.0)]
    assert Query().rows(dump).select("best", "mean", "worst").row(0) == (1.0, 1.0, 1.0)


def test_nothing_but_failures_has_no_statistics(tmp_path):
    with pytest.raises(DumpError, match="every rollout is no_response or unscored"):
        statistics(written(tmp_path, [group(1, [unanswered(0), unanswered(1)])]).scan())
