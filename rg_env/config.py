"""The settings under `environment.skyrl_gym.rg_dump.*`: names, defaults and limits, each declared once, in its field.

Importable without SkyRL; `rg_env.skyrl.config` adds them to SkyRL's own config. Annotations stay real types here (no
`from __future__ import annotations`): SkyRL builds nested dataclasses from them.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rg_env.choices import ResponseFormat
from rg_env.errors import did_you_mean, need, need_number, refuse
from rg_env.scoring.length import LENGTH_PENALTIES

PREFIX = "environment.skyrl_gym.rg_dump"


def _setting(default: Any, **limits: Any) -> Any:
    """A field and its limits, as `check_value` takes them."""
    return field(default=default, metadata=limits)


@dataclass
class LengthPenaltyConfig:
    """The rule that lowers the score of long responses, in the train phase only. Lengths are in response tokens."""

    kind: str = _setting("atropos", choices=tuple(LENGTH_PENALTIES))
    """Formulas and sources are in `rg_env.scoring.length`."""
    max_length: int | None = _setting(None, at_least=1)
    """Length at which the penalty is complete. None: `generator.sampling_params.max_generate_length`."""
    threshold: float = _setting(0.75, at_least=0, below=1)
    """atropos: share of `max_length` up to which there is no penalty."""
    correct_at: float = _setting(0.5, at_least=0, at_most=1)
    """atropos: the penalty applies only to groups in which every score is at least this."""
    buffer: int | None = _setting(None, at_least=1)
    """dapo: width of the soft zone before `max_length`, in tokens. None: a quarter of `max_length`."""
    weight: float = _setting(1.0, at_least=0)
    """dapo, kimi: factor on the additive penalty."""


@dataclass
class ScorerConfig:
    """The pool of processes that run Reasoning Gym's scorers."""

    workers: int | str = _setting("auto", choices=("auto",), at_least=1)
    """How many answers are scored at once. `auto`: half of the cores, at least 2, at most 16. Two take about 110 MB,
    shared with the process they are forked from."""
    timeout: float = _setting(5.0, above=0)
    """CPU seconds for one answer, raw and tagged together; at most four times that in wall time."""
    max_answer_chars: int = _setting(8192, at_least=1)
    """Longer answers are the violation `answer_too_long`."""
    normalize: bool = False
    """Score an imperfect answer a second time without extra formatting (code fence, `\\boxed{}`, `$`, bold, full stop),
    LaTeX fractions and signs, thousands separators. Can only raise a score, and is recorded as `normalized`."""
    partial_credit: str = _setting("calibrated", choices=("upstream", "calibrated", "none"))
    """How scores between 0 and 1 count. `upstream`: unchanged. `calibrated`: on tasks that reward a cheap policy, only
    beyond what that policy scores on the same item (`rg_env.scoring.baselines`). `none`: as 0."""


@dataclass
class RGDumpConfig:
    """Everything a run can set about tasks, format, scores and dumps."""

    # -- tasks and items
    tasks: Any = None
    """The task mix: None (the default mix), a list of names, `category:NAME` or patterns such as `*_sum`,
    or a mapping of those to a weight or to `{weight: 2.0, config: {option: value},
    levels: {attribute: [lowest, highest]}}`."""
    size: int = _setting(1_000_000, at_least=1)
    """Rows in the training dataset. Rows are made on demand, so any size costs nothing."""
    seed: int = _setting(42, at_least=0)
    eval_seed: int = _setting(123, at_least=0)
    num_eval_samples_per_task: int = _setting(5, at_least=1)
    items: int | None = _setting(None, at_least=1)
    """Train on the first N rows in every epoch, in a new order each time; needs `sampling=weighted` and no curriculum.
    None: every row is drawn anew, from one of 2³² seeds: of 100,000 rows of a task, about one repeats another."""

    # -- difficulty and sampling
    complexity_mode: str | None = _setting(None, choices=("random", "curriculum"))
    """How the complexity c in [0, 1] of an item is chosen. None: the task's default options. `random`: uniformly.
    `curriculum`: by a controller for each task, from the task's solve rate."""
    curriculum_target_accuracy: float = _setting(0.7, above=0, below=1)
    """curriculum: the solve rate toward which c is moved."""
    sampling: str = _setting("weighted", choices=("weighted", "stratified"))
    """How the task of a row is chosen. `weighted`: at random, by weight. `stratified`: each batch has the mix's shares,
    rounded up or down."""

    # -- prompt
    system_prompt: str | None = "think_answer"
    """`think_answer` (ours), a name in reasoning_gym's SYSTEM_PROMPTS, any other text verbatim, or None."""
    worked_examples: list[dict[str, Any]] = field(default_factory=list)
    """`{question, response}` pairs placed before the question; with `task`, before that task's questions only."""
    format: str = _setting("strict", choices=tuple(ResponseFormat))
    """`strict`: one think block, then one answer block. `lenient`: an answer block is enough, as in Atropos."""
    prefilled_think: bool = False
    """True for chat templates that open `<think>` in the prompt."""

    # -- scores and rewards
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    on_scorer_failure: str = _setting("zero", choices=("zero", "mask"))
    """`zero`: timeout, crashed and error train as 0. `mask`: they are not trained on at all. An answer whose scorer got
    no CPU time is masked in either case."""
    solved_at: float = _setting(0.99, at_least=0, at_most=1)
    format_bonus: float = _setting(0.0, at_least=0)
    """Added to the reward of every response without a violation."""
    length_penalty: LengthPenaltyConfig = field(default_factory=LengthPenaltyConfig)

    # -- the dump
    dump_dir: str = _setting("dumps", filled=True)
    dump_rollouts: bool = True
    dump_failed_rollouts: bool = True
    dump_other_rollouts: bool = True
    """Train groups that fit neither file."""
    dump_eval_rollouts: bool = True
    rollout_save_score_threshold: float = _setting(0.7, at_least=0, at_most=1)
    """A train group is a success when any base score is strictly greater."""
    groups_per_file: int = _setting(100, at_least=1)
    """Lines of a finished file."""
    dump_fsync: bool = False
    """Whether groups are forced to disk before `generate()` returns, so that they survive a power failure, too."""

    # -- logging
    debug_logging: bool = False
    suppress_base_env_logs: bool = False

    # -- your own code
    imports: list[str] = field(default_factory=list, metadata={"filled": True})
    """Modules that are imported in every process of the run."""
    reward: str | None = _setting(None, filled=True)
    """`module.function`: maps the verdicts of a group to one finite number each, used in place of the base score."""
    experiment_class: str | None = _setting(None, filled=True)
    """`module.Class`: a subclass of `rg_env.skyrl.experiment.RGExperiment` that trains."""

    # -- hardware
    device: str = _setting("cuda", choices=("cuda", "cpu"))
    """`cuda`: SkyRL's own workers and vLLM. `cpu`: `rg_env.cpu`, the same trainer on this machine's cores."""

    def validate(self) -> None:
        """Check every value by itself.

        Raises:
            ConfigError: one line that names the setting, its value and what would be right.
        """
        check_fields(self, PREFIX)

    def as_nested(self) -> dict[str, Any]:
        """The settings under their full names, as a manifest has them."""
        nested: dict[str, Any] = dataclasses.asdict(self)
        for name in reversed(PREFIX.split(".")):
            nested = {name: nested}
        return nested


def check_fields(config: Any, prefix: str) -> None:
    """Check every field of a config by its declared type and limits.

    Raises:
        ConfigError: as `RGDumpConfig.validate`; the setting's name begins with `prefix`.
    """
    for declared in dataclasses.fields(config):
        name, value = f"{prefix}.{declared.name}", getattr(config, declared.name)
        if dataclasses.is_dataclass(value):
            check_fields(value, name)
        else:
            check_value(name, value, declared.type, declared.metadata)


def check_value(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> None:
    """Check a value by its declared type and limits.

    Args:
        name: of the setting, for the message.
        kind: the type of a dataclass field: bool, int, float, str, Any, lists and mappings of them, and unions.
        limits: `choices` (of texts), `filled` (no empty text), or the bounds of `need_number`. They hold for the items
            of a list.

    Raises:
        ConfigError: one line that names the setting, its value and what would be right.
    """
    options = _members(kind)
    choices = limits.get("choices", ())
    bounds = {name: limit for name, limit in limits.items() if name != "choices"}
    if value is None:
        need({Any, type(None)} & options, name, value, "must have a value")
    elif choices and int in options and isinstance(value, str):
        need(value in choices, name, value, f"must be {' or '.join(choices)}, or a whole number")
    elif choices and not {int, list} & options:
        ok = isinstance(value, str) and value in choices
        hint = did_you_mean(value, choices, "") if isinstance(value, str) and len(choices) > 3 else ""
        need(ok, name, value, f"must be one of {', '.join(choices)}{hint}".removesuffix("; "))
    elif Any in options or (isinstance(value, bool) and bool in options):
        return
    elif {int, float} & options:
        need_number(name, value, whole=float not in options, **bounds)
    elif bool in options:
        refuse(name, value, "must be true or false")
    elif str in options:
        need(isinstance(value, str), name, value, "must be a text; put it in quotes")
        need(value.strip() or not limits.get("filled"), name, value, "must not be empty")
    elif found := next((option for option in options if typing.get_origin(option) is list), None):
        need(isinstance(value, (list, tuple)), name, value, f"must be a list; write [{value}]")
        for index, item in enumerate(value):
            check_value(f"{name}[{index}]", item, typing.get_args(found)[0], limits)
    else:
        need(isinstance(value, Mapping), name, value, "must be a mapping, such as {name: value}")


def _members(kind: Any) -> set[Any]:
    """The types of a union, or the one type."""
    is_union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    return set(typing.get_args(kind)) if is_union else {kind}
