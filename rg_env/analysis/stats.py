"""Statistics of rollouts: scores, solve rate, pass@k, format, lengths, outcomes, trend.

Invariant: rates over rollouts count every rollout once, and rates over groups every group once; train and evaluation
never share a row, nor do two environments or two runs. Two evaluations of a run never share one either: unless rows are
by step, those of the eval phase are of the run's last evaluation. Every figure is a count or a mean of recorded values,
except for intervals and pass@k (see `estimates`). A statistic is one entry of `STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from rg_env.analysis.estimates import Bounded, moments, pass_at_k, tries_up_to, with_intervals
from rg_env.base.choices import SOLVED_AT, By, parse_by
from rg_env.base.errors import DumpError
from rg_env.dump.frames import GROUP, GROUP_SCHEMA, SCHEMA, UNIT, Batch, in_order
from rg_env.dump.reader import Dump
from rg_env.dump.schema import RG_DUMP, Outcome, Phase
from rg_env.rollouts.symptoms import read_steps
from rg_env.scoring.types import UNCOUNTED, Status, Violation

PERCENTILES = (10, 50, 90)
QUESTION = "question"
"""Column with a number for each question, which may stand in several groups."""
_QUESTION_ID = pl.when(pl.col("item") != "").then("item").when(pl.col("uid") != "").then("uid").otherwise("group_id")
_QUESTION_HASH = (pl.col("task").hash(2) + _QUESTION_ID.hash(3)).alias(QUESTION)
OTHER_CATEGORY = "other"
"""The category of tasks that reasoning-gym does not have."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A mean over rollouts or over groups, with a confidence interval.

    Attributes:
        value: of a rollout, from its columns, `solved` and `well_formed`; of a group if `per_group`, from its columns
            and `partial_credit_only`. Null where it is unknown or does not apply: left out.
        meaning: a few words for the documentation.
        bounded: whether values lie in [0, 1]; scores of other environments may not, which `by_keys` finds out.
        header: of its column in the table for a terminal, "" without one.
        rare: show that column only if some row rounds to at least 1%.
    """

    name: str
    value: pl.Expr
    meaning: str
    per_group: bool = False
    bounded: bool = True
    header: str = ""
    rare: bool = False


def _of_groups(name: str, value: pl.Expr, meaning: str, *, header: str = "") -> Statistic:
    return Statistic(name, value, meaning, per_group=True, header=header)


def _where_known(value: pl.Expr) -> pl.Expr:
    """Return a value that only groups of rg_dump have."""
    return pl.when(pl.col("environment") == RG_DUMP).then(value)


_CUT_OFF = pl.when((pl.col("environment") == RG_DUMP) | (pl.col("stop_reason") != "")).then("truncated")
"""Of another environment it is known where a stop reason is."""
_FAILURES = [status.value for status in Status if status.is_scorer_failure]
_OUTCOMES = [
    _of_groups(outcome.value, pl.col("outcome") == outcome.value, f"share of groups with the outcome {outcome}")
    for outcome in Outcome
]

# To add one, add an entry: it is then in `stats --json`, `--columns` and `statistics`, with its interval, and with a
# `header` in the table, too. Compute it a second time, in plain Python, in `_figures` of tests/analysis/recount.py; of
# the mean of a field that is not in [0, 1], only the field's name goes into `UNBOUNDED` there.
STATISTICS = (
    Statistic("mean_base_score", pl.col("base_score"), "the score (`base_score`)", header="score"),
    Statistic("mean_reward", pl.col("reward"), "the reward", bounded=False, header="reward"),
    Statistic("solve_rate", pl.col("solved"), "share of rollouts with a score of at least `solved_at`"),
    Statistic("format_rate", pl.col("well_formed"), "share without a violation", header="format"),
    Statistic("mean_response_tokens", pl.col("response_tokens"), "the length of responses", bounded=False),
    Statistic("truncated", _CUT_OFF, "share that hit the length limit", header="cut\noff", rare=True),
    Statistic("mean_score", pl.col("score"), "the score after the length penalty"),
    Statistic("mean_raw_score", pl.col("raw_score"), "the score of the bare answer, where one was scored"),
    Statistic("mean_tagged_score", pl.col("tagged_score"), "the score of the answer in its tags"),
    Statistic("mean_custom_reward", pl.col("custom_reward"), "what your reward function returned", bounded=False),
    Statistic("mean_published_score", pl.col("published_score"), "the publisher's score of imports", bounded=False),
    Statistic("solve_given_format", pl.col("solved").filter("well_formed"), "solve rate without violations"),
    Statistic(
        "penalized",
        _where_known(pl.col("score") < pl.col("base_score")),
        "share that the length penalty lowered",
    ),
    Statistic(
        "tagged_wins", pl.col("tagged_score") > pl.col("raw_score"), "share whose tagged score is above the raw one"
    ),
    Statistic(
        "scorer_failures",
        _where_known(pl.col("status").is_in(_FAILURES)),
        "share whose scorer failed: status timeout, crashed or error",
    ),
    Statistic("rejected", _where_known(pl.col("status") == Status.REJECTED.value), "share that the guard rejected"),
    *_OUTCOMES,
    _of_groups(
        "no_signal",
        pl.when(pl.col("phase") == Phase.TRAIN.value).then("no_signal"),
        "share of training groups whose rewards are all equal",
        header="no\nsignal",
    ),
    _of_groups(
        "partial_credit_only",
        pl.col("partial_credit_only"),
        "share of groups in which nothing is solved and some score is above 0",
    ),
)
"""The statistics, in the order of the columns."""

_RATES = {each.name for each in STATISTICS if not each.name.startswith("mean_")}


def is_rate(name: str) -> bool:
    """Return whether a column of `statistics` is a share of rollouts or of groups, or an end of its interval."""
    bare = name.removesuffix("_low").removesuffix("_high")
    return bare in _RATES or bare.startswith("solve_rate_") or is_pass_at_k(bare)


def is_pass_at_k(name: str) -> bool:
    """Return whether a column of `statistics` is pass@k itself, not an end of its interval or a number of groups."""
    return name.removeprefix("pass_at_").isdigit()


_OF_GROUP = ("run_id", "phase", "environment", "task", "complexity", "step", "outcome", "no_signal")
_TYPES: dict[str, pl.DataType] = dict.fromkeys(
    ("run_id", "phase", "environment", "task", "stop_reason"), pl.Categorical()
)
_TYPES |= {"outcome": pl.Enum(Outcome), "violation": pl.Enum(["", *Violation]), "status": pl.Enum(Status)}
_TO_MATCH = ("item", "group_id")
"""The columns that matching the questions of two sides needs in addition."""


@dataclass(frozen=True)
class Measured:
    """Rollouts and groups, read once for several tables.

    Attributes:
        groups: a row for each group with a counted rollout, in the order of reading: its columns, `GROUP`, `QUESTION`,
            `solved_at`, which is known of each, and `NAME:total` and `NAME:count` of each statistic.
        rollouts: the counted ones, with what no sum of a group tells: `GROUP`, `response_tokens`, `solved`,
            `violation`, `status`. Those of a group that is not in `groups` do not count.
        chosen: the statistics that were read for.
        whole: whether all groups are complete; otherwise pass@k and outcomes are unknown.
        left_out: number of rollouts without a response, or to a question that cannot be made again.
    """

    groups: pl.DataFrame
    rollouts: pl.DataFrame
    chosen: tuple[Statistic, ...] = STATISTICS
    whole: bool = True
    left_out: int = 0

    _counts: dict[tuple[Any, ...], pl.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def number_of_rollouts(self) -> int:
        """Number of counted rollouts."""
        return int(self.groups["solve_rate:count"].sum())

    def counts_by(self, keys: Sequence[str]) -> pl.DataFrame:
        """Return how many counted rollouts, `rollouts`, have the same keys (of groups, see `with_keys`), `solved`,
        `response_tokens`, `violation` and `status`; of several evaluations of a run, only the last, unless rows are by
        step.
        """
        is_last = "step" not in keys
        known = self._counts.get((is_last, *keys))
        if known is None:
            known = self._finer_counts(is_last, keys).group_by(*keys, *_OF_COUNTS).agg(pl.col("rollouts").sum())
            self._counts[is_last, *keys] = known
        return known

    def _finer_counts(self, is_last: bool, keys: Sequence[str]) -> pl.DataFrame:
        """Return counts by more keys, or of parts of the rollouts, both of which are few rows."""
        for (of_last, *finer), frame in self._counts.items():
            if of_last is is_last and set(keys) <= set(finer):
                return frame
        groups = _one_evaluation(with_keys(self.groups, keys), keys).select(GROUP, *keys)
        parts = []
        for rows in self.rollouts.iter_slices(_COUNTED_AT_ONCE):
            parts.append(rows.join(groups, on=GROUP).group_by(*keys, *_OF_COUNTS).agg(rollouts=pl.len()))
        return pl.concat(parts)


_COUNTED_AT_ONCE = 500_000
_OF_COUNTS = ("solved", "response_tokens", "violation", "status")


def measure(
    rollouts: Dump | pl.LazyFrame | pl.DataFrame,
    *,
    solved_at: float | None = None,
    to_match: bool = False,
    names: Collection[str] | None = None,
) -> Measured:
    """Read what statistics are computed from.

    Args:
        rollouts: a dump, or rows of whole groups as `Dump.scan` gives them, in any order.
        solved_at: a rollout is solved when its base score is at least this, in [0, 1], unless its group says otherwise;
            None: as `threshold` says.
        to_match: also read the columns that `compare` needs.
        names: of the statistics that are wanted, beside the solve rate; all by default. Fewer are faster.

    Raises:
        DumpError: no rollout can be counted.
        ConditionError: as `Dump.where`.
    """
    # Rows alone have no settings and no conditions, which only a dump can be asked for.
    dump = rollouts if isinstance(rollouts, Dump) else None
    reading = Reading(threshold(dump, solved_at), names, to_match)
    if isinstance(rollouts, Dump):
        return reading.measured(rollouts.read_batches(reading.columns, reading.part, _TYPES), rollouts)
    return reading.measured([reading.part(_batch(rollouts, reading.columns))], None)


class Reading:
    """Makes the sums of groups while they are read, so that no frame has every column of every rollout."""

    def __init__(self, solved_from: pl.Expr, names: Collection[str] | None, to_match: bool) -> None:
        self._solved_from = solved_from
        chosen = STATISTICS
        if names is not None:
            wanted = {*names, "solve_rate"}
            chosen = tuple(each for each in STATISTICS if each.name in wanted)
        self._chosen = chosen
        self._kept = list(_OF_GROUP)
        if to_match:
            self._kept += _TO_MATCH
        of_rollouts: list[str] = []
        for each in chosen:
            of_rollouts += each.value.meta.root_names()
        of_groups = dict.fromkeys(["environment", "solved_at", *of_rollouts])
        self._of_groups = [name for name in of_groups if name in GROUP_SCHEMA]
        needed = [*self._kept, *UNIT, "item", "uid", "group_id", "status", "violation", "base_score", "response_tokens"]
        needed += [*solved_from.meta.root_names(), *of_rollouts]
        self.columns = [name for name in dict.fromkeys(needed) if name in SCHEMA]
        """Those that are read."""

    def part(self, batch: Batch) -> Batch:
        """Return what `Measured` has of some groups: a row of every one, also with the `number` of rollouts, counted
        or not."""
        words = {name: _TYPES[name] for name in batch.groups.columns if name in _TYPES}
        groups = batch.groups.cast(pl.Schema(words)).with_columns(_QUESTION_HASH, solved_at=self._solved_from)
        places = batch.rollouts[GROUP]
        of_groups = [groups[name].gather(places) for name in self._of_groups]
        words = {name: _TYPES[name] for name in batch.rollouts.columns if name in _TYPES}
        rows = batch.rollouts.cast(pl.Schema(words)).with_columns(of_groups)
        is_counted = pl.col("status").is_in(UNCOUNTED).fill_null(False).not_()
        is_solved = pl.col("base_score") >= pl.col("solved_at")
        # An unknown score (null) is not a solved one.
        counted = rows.filter(is_counted).with_columns(
            well_formed=_where_known(pl.col("violation") == ""), solved=is_solved.fill_null(False)
        )
        numbers = rows.group_by(GROUP).agg(number=pl.len())
        kept = [name for name in (*self._kept, *UNIT) if name in groups.columns]
        groups = groups.select(list(dict.fromkeys([*kept, QUESTION, "solved_at"]))).with_row_index(GROUP)
        for sums in (numbers, _sums(counted, self._chosen)):
            groups = groups.join(sums, on=GROUP, how="left", maintain_order="left")
        return Batch(groups, counted.select(GROUP, *_OF_COUNTS))

    def measured(self, parts: Sequence[Batch], dump: Dump | None, repeated: Collection[int] | None = None) -> Measured:
        """Return what the parts have together. Errors as `measure`.

        Args:
            parts: all that `part` has returned.
            dump: which they are of.
            repeated: its runs that have several attempts, for `in_order`; None: those that the dump has read.
        """
        groups, counted = _joined(parts)
        if dump is not None:
            repeated = dump.repeated() if repeated is None else repeated
            groups = in_order(groups, repeated)
        number = int(groups["number"].sum())
        if not number:
            if dump is None:
                raise DumpError("there are no rollouts")
            if dump.conditions:
                dump.refuse_conditions()
            raise DumpError(_why_no_rollouts(dump))
        read = groups.height
        groups = groups.filter(pl.col("solve_rate:count") > 0)
        if groups.height < read or repeated:
            counted = counted.join(groups.select(GROUP), on=GROUP, how="semi")
        of_groups = []
        for each in self._chosen:
            if each.per_group:
                # A value of groups is its own sum of one.
                of_groups.append(each.value.cast(pl.Float64).fill_null(0).alias(f"{each.name}:total"))
                of_groups.append(each.value.is_not_null().alias(f"{each.name}:count"))
        groups = groups.with_columns(of_groups)
        if groups.is_empty():
            raise DumpError(f"nothing can be counted: every rollout is {' or '.join(UNCOUNTED)}")
        # An Enum sorts by the order of its categories: sorted by run, tables have the runs in the order of reading.
        run_order = pl.Enum(groups["run_id"].cast(pl.String).unique(maintain_order=True))
        groups = groups.with_columns(pl.col("run_id").cast(run_order))
        whole = dump is None or dump.whole_groups
        return Measured(groups, counted, self._chosen, whole, number - counted.height)


def _batch(rows: pl.LazyFrame | pl.DataFrame, columns: Sequence[str]) -> Batch:
    """Return rows of rollouts, in any order, as what is read of a dump."""
    group_hash = pl.col("run_id").hash(1) + pl.col("group_id").hash()  # two runs may have equal ids of groups
    found = rows.lazy().select(*columns, hash=group_hash).collect(engine="streaming")
    of_groups = [name for name in columns if name in GROUP_SCHEMA]
    groups = found.group_by("hash", maintain_order=True).agg(pl.col(of_groups).first()).with_row_index(GROUP)
    rollouts = found.join(groups.select("hash", GROUP), on="hash", maintain_order="left")
    return Batch(groups.select(of_groups), rollouts.drop("hash", *of_groups))


def _joined(parts: Sequence[Batch]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the groups and their rollouts, numbered through."""
    all_groups, all_rollouts, start = [], [], 0
    for part in parts:
        # Numbered within each part so far.
        number = (pl.col(GROUP) + start).cast(pl.UInt32)
        start += part.groups.height
        all_groups.append(part.groups.with_columns(number))
        all_rollouts.append(part.rollouts.with_columns(number))
    return pl.concat(all_groups), pl.concat(all_rollouts)


def threshold(dump: Dump | None, solved_at: float | None) -> pl.Expr:
    """Return the base score from which a rollout is solved: its group's own, else `solved_at`, else that of the
    attempt's settings in the dump, else `SOLVED_AT`. Groups of rg_dump have one of their own only in an exported table:
    that of the settings, which `solved_at` replaces.
    """
    if solved_at is not None:
        is_ours = pl.col("environment").cast(pl.String) == RG_DUMP
        return pl.when(is_ours).then(pl.lit(solved_at)).otherwise(pl.coalesce("solved_at", pl.lit(solved_at)))
    if dump is None:
        return pl.coalesce("solved_at", pl.lit(SOLVED_AT))
    # Most attempts have the default; only the others are looked up, by a text that names the attempt and its run.
    others: dict[str, float] = {}
    for (run_id, attempt), settings in dump.settings.items():
        if settings.solved_at != SOLVED_AT:
            others[f"{attempt} {run_id}"] = settings.solved_at
    if not others:
        return pl.coalesce("solved_at", pl.lit(SOLVED_AT))
    name = pl.format("{} {}", "attempt", pl.col("run_id").cast(pl.String))
    of_attempt = name.replace_strict(others, default=SOLVED_AT, return_dtype=pl.Float64)
    return pl.coalesce("solved_at", of_attempt)


def _why_no_rollouts(dump: Dump) -> str:
    """Return the message for a dump without a rollout: the files, and the first corrupt line if there is one."""
    paths = ", ".join(dict.fromkeys(str(file.path) for file in dump.files_to_read())) or "these files"
    findings = dump.findings(texts=False)
    corrupt = [finding for finding in findings if finding.kind == "corrupt_line"]
    why = ""
    if corrupt:
        why = f"; the first of {findings.counts['corrupt_line']} corrupt lines: {corrupt[0]}"
    return f"no rollout in {paths}{why}"


def step_numbers(dump: Dump) -> dict[tuple[str, int], dict[str, float | None]]:
    """Return the trainer's own numbers of each step, such as loss, KL and gradient norm, by run id and step."""
    numbers = {}
    for run_id, steps in read_steps(dump).items():
        for step, metrics in steps.items():
            numbers[run_id, step] = dict(metrics)
    return numbers


def statistics(
    rollouts: Dump | pl.LazyFrame | pl.DataFrame | Measured,
    by: str = By.TASK,
    *,
    solved_at: float | None = None,
) -> pl.DataFrame:
    """Return one row for each run, phase, environment and value of `by`, runs in the order in which they were read.

    Args:
        rollouts: as for `measure`, or what it returned.
        by: a value of `By` or several separated by commas: `task`, `category`, `step`, `level` (task and tenth
            of the complexity), or `phase` or `environment`, which rows always have.
        solved_at: as for `measure`.

    Returns:
        `run_id`, `phase`, `environment` and the columns of `by`; then the following, those with * followed by their
        95% confidence interval (`…_low`, `…_high`; clustered by question, see `rg_env.analysis.estimates`). A row of
        the eval phase is of the run's last evaluation in its environment, unless rows are by step.

        - `groups`, `rollouts`: counts; `steps`: of all steps, or evaluations, that the trend below is taken from;
        - `evaluation_step`: the step of the evaluation that the row is of; null in training;
        - every entry of `STATISTICS`*, which says what it is;
        - `pass_at_K`*: the probability that one of K responses to a prompt is solved;
          K = 1, 2, 4, … and the largest group size, over the groups with at least K rollouts; null if fewer than nine
          tenths of the row's groups have that many. `pass_at_K_left_out`: the number of groups that have fewer;
        - `solve_rate_first`*, `solve_rate_last`*: over the first and the last quarter of the row's steps (at least one
          each), or over the first and the last evaluation; `solve_rate_change` between them; null if there are fewer
          than two steps;
        - `tokens_right_pP`, `tokens_wrong_pP`: percentiles 10, 50, 90 of the length of solved and unsolved rollouts
          (linear between two lengths).

        Unknown values are null: of other environments everything about violations, status, truncation and the length
        penalty; statistics of whole groups (shares of groups, pass@k) if only some rollouts of a group are counted.

    Raises:
        DumpError: `by` is invalid, or as `measure`.
    """
    keys = ["run_id", *key_columns(by)]
    measured = rollouts if isinstance(rollouts, Measured) else measure(rollouts, solved_at=solved_at)
    groups, names = by_keys(measured, keys)
    # `solved` is known of every counted rollout, so the count of the solve rate is that of the rollouts.
    count = pl.col("solve_rate:count").sum().cast(pl.Int64)
    is_evaluation = pl.col("phase") == Phase.EVAL.value
    evaluation_step = pl.col("step").filter(is_evaluation).max()
    table = groups.group_by(keys).agg(groups=pl.len(), rollouts=count, evaluation_step=evaluation_step)
    # The trend is of all evaluations, so of more groups than the other figures of an eval row.
    for figures in (_means(groups, keys, names), _trend(with_keys(measured.groups, keys), keys)):
        table = table.join(figures, on=keys, how="left", nulls_equal=True)
    # Percentiles are not sums of the groups' values: they need the lengths of all rollouts.
    lengths = measured.counts_by(keys)
    percentiles = []
    for word, solved in (("right", True), ("wrong", False)):
        of_side = _percentiles(lengths.filter(pl.col("solved") == solved), keys, f"tokens_{word}")
        percentiles += of_side.columns[len(keys) :]
        table = table.join(of_side, on=keys, how="left", nulls_equal=True)
    # The order of the columns: counts, each mean with its interval, the trend, the percentiles.
    order = ["groups", "rollouts", "steps", "evaluation_step"]
    for name in (*names, *_TREND):
        order += [name, f"{name}_low", f"{name}_high"]
        if is_pass_at_k(name):
            order.append(f"{name}_left_out")
    order.append("solve_rate_change")
    order += percentiles
    # Words are sorted as texts; the run, still an Enum, by the order of reading, and becomes a text after that.
    texts = dict.fromkeys((key for key in keys if key not in ("step", "run_id")), pl.String())
    table = table.select(*keys, *order).cast(pl.Schema(texts)).sort(keys)
    return table.cast({"run_id": pl.String()})


def _percentiles(lengths: pl.DataFrame, keys: Sequence[str], name: str) -> pl.DataFrame:
    """Return the percentiles of the length of responses for each value of the keys, linear between two lengths.

    Args:
        lengths: `response_tokens` and how many `rollouts` have that many.
    """
    number = pl.col("rollouts").cast(pl.Int64)
    each = lengths.drop_nulls("response_tokens").group_by(*keys, "response_tokens").agg(number.sum())
    # In the order of their lengths, the rollouts before `end` are at most so long.
    end = pl.col("rollouts").cum_sum().over(keys)
    last = pl.col("rollouts").sum().over(keys) - 1
    each = each.sort("response_tokens").with_columns(end=end, last=last)
    tokens = pl.col("response_tokens").cast(pl.Float64)
    figures = []
    for p in PERCENTILES:
        place = pl.col("last") * p / 100
        low = tokens.filter(pl.col("end") > place.floor()).min()
        high = tokens.filter(pl.col("end") > place.ceil()).min()
        share = (place - place.floor()).first()
        figures.append((low + share * (high - low)).alias(f"{name}_p{p}"))
    return each.group_by(keys).agg(figures)


def counts(measured: Measured, by: str = By.PHASE) -> pl.DataFrame:
    """Count the rollouts with each violation and each status.

    Args:
        by: as for `statistics`. Of several evaluations, the same one counts as there.

    Returns:
        `run_id`, `phase`, `environment` and the columns of `by`; `kind` (`violation` or `status`), `value`, `rollouts`
        and `share` (of all rollouts with these keys). Violations of rg_dump's rollouts only, without "".
    """
    keys = ["run_id", *key_columns(by)]
    number = pl.col("rollouts").sum()
    rows = measured.counts_by(keys).with_columns(of=number.over(keys))
    kinds = pl.Enum(["violation", "status"])
    share = pl.col("rollouts") / pl.col("of")
    tables = []
    for kind in kinds.categories:
        value = pl.col(kind).cast(pl.String).alias("value")
        of_kind = rows.group_by(*keys, "of", value).agg(rollouts=number)
        tables.append(of_kind.with_columns(kind=pl.lit(kind, kinds), share=share))
    table = pl.concat(tables).filter(pl.col("value") != "")
    # The most frequent value of a kind comes first.
    order = [*keys, "kind", "share", "value"]
    table = table.sort(order, descending=[name == "share" for name in order])
    texts = dict.fromkeys((key for key in keys if key != "step"), pl.String())
    return table.select(*keys, "kind", "value", "rollouts", "share").cast(pl.Schema(texts))


# -- keys


def key_columns(by: str) -> list[str]:
    """Return the columns that distinguish the rows of statistics grouped by this, always with phase and environment.

    Raises:
        DumpError: not values of `By` separated by commas.
    """
    try:
        chosen = parse_by(by)
    except ValueError as error:
        raise DumpError(f"statistics by {by!r}: {error}") from None
    return list(dict.fromkeys(["phase", "environment", *(column for word in chosen for column in word.columns)]))


def with_keys(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the derived columns among the keys to a frame of rollouts or groups: each is a function of a group."""
    if By.CATEGORY in keys:
        frame = frame.with_columns(category=_category(frame["task"]))
    if "complexity" in keys and frame.schema["complexity"].is_float():
        frame = frame.with_columns(complexity=_tenth(pl.col("complexity")))
    return frame


def _tenth(complexity: pl.Expr) -> pl.Expr:
    """Return the tenth of the scale: `0.0-0.1` to `0.9-1.0`. A boundary belongs to the upper one, except 1."""
    # Rounded first: 0.7 - 0.4 is 0.2999… in floating point, and belongs to the tenth that begins at 0.3.
    low = ((complexity * 10_000).round() / 1000).floor().clip(0, 9).cast(pl.Int64)
    return pl.format("0.{}-{}.{}", low, (low + 1) // 10, (low + 1) % 10)


def _category(tasks: pl.Series) -> pl.Series:
    """Return the category of each task, `OTHER_CATEGORY` for tasks of other environments."""
    from rg_env.tasks.registry import task_categories  # loads reasoning-gym

    names = tasks.cast(pl.String)
    return names.replace_strict(task_categories(), default=OTHER_CATEGORY, return_dtype=pl.String())


# -- groups


def by_keys(measured: Measured, keys: Sequence[str]) -> tuple[pl.DataFrame, Bounded]:
    """Return what a table by these keys is computed from; of several evaluations of a run, only the last, unless rows
    are by step.

    Args:
        keys: also `environment`, as `key_columns` gives it.

    Returns:
        groups with the keys, and the names of the means for which the groups have totals and counts: the statistics and
        pass@k. What needs whole groups has counts of 0 if only some rollouts of a group may be counted.
    """
    groups = _one_evaluation(with_keys(measured.groups, keys), keys)
    groups, tries = _with_tries(groups)
    if not measured.whole:
        # With counts of 0 the means become null, like any other mean of nothing.
        unknown = []
        for name in (*tries, *(each.name for each in measured.chosen if each.per_group)):
            unknown += [pl.lit(0.0).alias(f"{name}:{part}") for part in _SUMS]
        groups = groups.with_columns(unknown)
    names = {each.name: _is_bounded(each, groups) for each in measured.chosen}
    return groups, names | dict.fromkeys(tries, pl.lit(True))


def _is_bounded(statistic: Statistic, groups: pl.DataFrame) -> pl.Expr:
    """Return of each row whether the values of its environment lie in [0, 1]."""
    if not statistic.bounded:
        return pl.lit(False)
    total, count = pl.col(f"{statistic.name}:total"), pl.col(f"{statistic.name}:count")
    others = groups.filter(pl.col("environment") != RG_DUMP)
    outside = others.filter((total < 0) | (total > count))["environment"].cast(pl.String).unique()
    return ~pl.col("environment").cast(pl.String).is_in(outside.to_list())


def last_evaluations(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rollouts or groups without those of earlier evaluations of the same run and environment."""
    last = pl.col("step").max().over("run_id", "phase", "environment")
    # The step of an evaluation of a model is null, which equals nothing in an ordinary comparison.
    return frame.filter((pl.col("phase") != Phase.EVAL.value) | pl.col("step").eq_missing(last))


def evaluation_steps(measured: Measured) -> pl.DataFrame:
    """Return `run_id`, `environment` and `step` of the last evaluations, for runs that have any; a step may be null."""
    evaluated = measured.groups.filter(pl.col("phase") == Phase.EVAL.value)
    steps = evaluated.group_by("run_id", "environment").agg(pl.col("step").max()).sort("run_id", "environment")
    return steps.cast({"run_id": pl.String(), "environment": pl.String()})


def _one_evaluation(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Leave out what would put two evaluations of a run into one row."""
    if "step" in keys:
        return frame
    return last_evaluations(frame)


_SUMS = ("total", "count")


def _sums(rollouts: pl.DataFrame, chosen: Sequence[Statistic]) -> pl.DataFrame:
    """Return a row for each group of these rollouts with `partial_credit_only`, and the sum and the number of known
    values of each statistic of rollouts."""
    sums = []
    for each in chosen:
        if not each.per_group:
            sums += [each.value.sum().alias(f"{each.name}:total"), each.value.count().alias(f"{each.name}:count")]
    partial_credit_only = (~pl.col("solved").any() & (pl.col("base_score").max() > 0)).fill_null(False)
    return rollouts.group_by(GROUP).agg(*sums, partial_credit_only=partial_credit_only)


def _means(groups: pl.DataFrame, keys: Sequence[str], names: Bounded) -> pl.DataFrame:
    """Return a row for each value of the keys, with each mean and its interval.

    Args:
        groups: with totals and counts of the means.
    """
    table = _moments(groups, keys, names)
    # Every group has a response, and so a pass@1.
    every = pl.col("pass_at_1_values")
    for name in filter(is_pass_at_k, names):
        counted = pl.col(f"{name}_values")
        known = pl.when(are_enough(counted, every)).then(name)
        left_out = pl.when(every > 0).then(every - counted).cast(pl.Int64)
        table = table.with_columns(known.alias(name), left_out.alias(f"{name}_left_out"))
    return with_intervals(table, names)


def _moments(groups: pl.DataFrame, keys: Sequence[str], names: Iterable[str]) -> pl.DataFrame:
    """Return a row for each value of the keys, with the `moments` of each mean over the questions."""
    sums, of_rows = [], []
    for name in names:
        sums += [pl.col(f"{name}:{part}").sum() for part in _SUMS]
        of_rows += moments(name)
    # The same question in several groups is not several independent ones. Mostly each has one.
    questions = groups
    if groups[QUESTION].n_unique() < groups.height:
        questions = groups.group_by(*keys, QUESTION).agg(sums)
    return questions.group_by(keys).agg(of_rows)


def are_enough(counted: pl.Expr, every: pl.Expr) -> pl.Expr:
    """Return whether pass@k of the groups, or questions, that have k responses may stand for every one: of fewer than
    nine tenths it would be about others than the rest of the row.
    """
    return 10 * counted >= 9 * every


_TREND = ("solve_rate_first", "solve_rate_last")


def _trend(groups: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return for each value of the keys how many steps there are, the solve rate over the first and over the last
    quarter of them, and the change; of evaluations over the first and over the last one.
    """
    groups = groups.select(*keys, QUESTION, "solve_rate:total", "solve_rate:count", at="step")
    rank = pl.col("at").rank("dense").over(keys)  # 1 … number of distinct steps; null without a step
    last = rank.max().over(keys)
    is_evaluation = pl.col("phase") == Phase.EVAL.value
    quarter = pl.when(is_evaluation).then(1).otherwise((last // 4).clip(lower_bound=1))
    has_several = last >= 2  # a single step is not a trend
    groups = groups.with_columns(first=(rank <= quarter) & has_several, last=(rank > last - quarter) & has_several)
    sums = []
    for name in ("first", "last"):
        for part in _SUMS:
            of_quarter = pl.when(name).then(f"solve_rate:{part}").otherwise(0)
            sums.append(of_quarter.alias(f"solve_rate_{name}:{part}"))
    table = _moments(groups.with_columns(sums), keys, _TREND)
    table = with_intervals(table, dict.fromkeys(_TREND, pl.lit(True)))
    number = groups.group_by(keys).agg(steps=pl.col("at").drop_nulls().n_unique())
    change = pl.col("solve_rate_last") - pl.col("solve_rate_first")
    return table.join(number, on=keys, nulls_equal=True).with_columns(solve_rate_change=change)


def _with_tries(groups: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Add pass@k, counted in groups with at least k rollouts; also returns their names."""
    n, c = "solve_rate:count", "solve_rate:total"
    # pass@k depends on these two numbers alone, of which many groups have the same.
    pairs = groups.select(n, c).unique()
    largest = max(pairs[n].to_list(), default=0)
    names = []
    for k in tries_up_to(largest):
        values = []
        for tried, solved in pairs.select(n, c).rows():
            # Groups with fewer rollouts than k have no pass@k, and a count of 0 below.
            values.append(pass_at_k(tried, solved, k) if k <= tried else 0.0)
        name = f"pass_at_{k}"
        names.append(name)
        total = pl.Series(f"{name}:total", values, pl.Float64)
        pairs = pairs.with_columns(total, (pl.col(n) >= k).alias(f"{name}:count"))
    return groups.join(pairs, on=[n, c], how="left"), names
