"""The settings under `environment.skyrl_gym.rg_dump.*`: names, defaults and limits, each declared once, in its field.

Importable without SkyRL; `rg_env.skyrl.train_config` adds them to SkyRL's own config. Annotations stay real types here
(no `from __future__ import annotations`): SkyRL builds nested dataclasses from them.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from rg_env.base.choices import SOLVED_AT, LengthPenalty, ResponseFormat
from rg_env.configuration.settings import check_fields, setting

PREFIX = "environment.skyrl_gym.rg_dump"


@dataclass
class ScorerConfig:
    """The pool of processes that run Reasoning Gym's scorers."""

    workers: int | str = setting("auto", choices=("auto",), at_least=1, free=True)
    """How many answers are scored in parallel. `auto`: half of the cores available to the process, at least 2 and at
    most 16. Two workers take about 110 MB."""
    timeout: float = setting(5.0, above=0)
    """CPU seconds per answer, raw and tagged form together; at most four times that in wall time."""
    max_answer_chars: int = setting(8192, at_least=1)
    """Longer answers are the violation `answer_too_long`. An item whose ground truth is longer than half of this allows
    twice the length of the ground truth."""
    normalize: bool = False
    """Score an imperfect answer a second time without the formatting around it (`\\boxed{}`, `$…$`, bold, code fence,
    final period, …) and thousands separators. Can only raise a score, and is recorded as `normalized`."""
    partial_credit: str = setting("calibrated", choices=("upstream", "calibrated", "none"))
    """How scores between 0 and 1 count. `upstream`: unchanged. `calibrated`: on tasks that reward a cheap policy, only
    beyond what that policy scores on the same item. `none`: as 0."""


@dataclass
class LengthPenaltyConfig:
    """The rule for training rollouts. Lengths are in response tokens."""

    kind: str = setting("atropos", choices=tuple(LengthPenalty))
    """The rule, one of the [length penalties](rewards.md#length-penalties)."""
    max_length: int | None = setting(None, at_least=1)
    """M, the limit. Null: `generator.sampling_params.max_generate_length`."""
    threshold: float = setting(0.75, at_least=0, below=1)
    """atropos: share of M up to which there is no penalty."""
    correct_at: float = setting(0.5, at_least=0, at_most=1)
    """atropos: the penalty applies only to groups in which every score is at least this."""
    buffer: int | None = setting(None, at_least=1)
    """dapo: width of the zone with a partial penalty before M, in tokens. Null: a quarter of M."""
    weight: float = setting(1.0, at_least=0)
    """dapo, kimi: factor of the term added to the reward."""


@dataclass
class RGDumpConfig:
    """Everything a run can set about tasks, format, scores and dumps."""

    # -- tasks and items
    tasks: Any = None
    """The task mix: null (every task without a known exploit), a list of names, `category:NAME` or patterns such as
    `*_sum`, or a mapping of those to a weight or to `{weight: 2.0, config: {option: value}}`."""
    size: int = setting(1_000_000, at_least=1, free=True)
    """Rows per epoch, generated lazily, so large values are free. Every epoch has new rows."""
    seed: int = setting(42, at_least=0)
    """Seed of the training items."""
    eval_seed: int = setting(123, at_least=0, free=True)
    """Seed of the fixed evaluation set."""
    num_eval_samples_per_task: int = setting(5, at_least=1, free=True)
    """Items per task in the fixed evaluation set."""
    complexity: float | str | None = setting(None, choices=("random",), at_least=0, at_most=1)
    """How hard items are, on each task's own scale from 0 to 1. Null: the task's default options. A number: all items
    have this complexity. `random`: drawn uniformly from [0, 1] for each item."""

    # -- prompt
    system_prompt: str | None = "think_answer"
    """`think_answer` (ours), a name in reasoning_gym's `SYSTEM_PROMPTS`, any other text verbatim, or null for none."""
    worked_examples: list[dict[str, Any]] = field(default_factory=list)
    """`{question, response}` pairs placed before the question; with `task`, before that task's questions only."""
    format: str = setting("strict", choices=tuple(ResponseFormat))
    """`strict`: one think block, then one answer block. `lenient`: an answer block is enough, as in Atropos."""
    prefilled_think: bool = False
    """True for chat templates that open `<think>` in the prompt."""

    # -- scores and rewards
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    on_scorer_failure: str = setting("zero", choices=("zero", "mask"))
    """`zero`: `crashed` and `error` train as 0. `mask`: they are kept out of the loss. An answer whose scorer got no
    CPU time is masked in either case."""
    solved_at: float = setting(SOLVED_AT, at_least=0, at_most=1)
    """Minimum base score for an answer to count as solved."""
    format_bonus: float = setting(0.0, at_least=0)
    """Added to the reward of every response without a violation."""
    train_unsolved: bool = True
    """False: groups without a solved response are excluded from the loss and resampled by dynamic sampling, even if
    their rewards differ. Rewards and records stay unchanged."""
    stop_on_canaries: bool = setting(False, free=True)
    """True: the run stops if the verifier misjudges more than a tenth of the canaries (known correct and wrong answers)
    of the last 20 steps. Otherwise it only warns."""
    length_penalty: LengthPenaltyConfig = field(default_factory=LengthPenaltyConfig)

    # -- the dump
    dump_dir: str = setting("dumps", filled=True, free=True)
    """The folder of the dump."""
    dump_rollouts: bool = setting(True, free=True)
    """Write the texts of successful train groups."""
    dump_failed_rollouts: bool = setting(True, free=True)
    """Write the texts of FAILED train groups: no base score is above 0."""
    dump_other_rollouts: bool = setting(True, free=True)
    """Write the texts of all other train groups."""
    dump_eval_rollouts: bool = setting(True, free=True)
    """Write the texts of evaluation groups."""
    rollout_save_score_threshold: float = setting(0.7, at_least=0, below=1, free=True)
    """A train group is successful if any base score is strictly greater: no score is greater than 1."""
    groups_per_file: int = setting(100, at_least=1, free=True)
    """Groups per file, of every kind."""
    dump_fsync: bool = setting(False, free=True)
    """Call fsync on every group before `generate()` returns, so that it also survives a power failure."""

    # -- logging
    debug_logging: bool = setting(False, free=True)
    """Write `rollouts-DATE-TIME.log` to the run's `logs` folder: each rollout's response, extracted and expected
    answer or violation, scores and reward."""
    suppress_base_env_logs: bool = setting(False, free=True)
    """Log only warnings and errors of SkyRL."""

    # -- your own code
    imports: list[str] = field(default_factory=list, metadata={"filled": True, "free": True})
    """Modules that are imported in every process of the run."""
    reward: str | None = setting(None, filled=True)
    """`module.function` or `module:function`: maps the rollouts of a group to one finite number each, used in place of
    the base score."""
    experiment_class: str | None = setting(None, filled=True)
    """`module.Class` or `module:Class`: a subclass of `rg_env.skyrl.experiment.RGExperiment`, which trains in its
    place."""

    # -- hardware
    device: str = setting("cuda", choices=("cuda", "cpu"), free=True)
    """`cuda`: SkyRL's own workers and vLLM. `cpu`: the same trainer on the cores of this machine."""

    def validate(self) -> None:
        """Check every value by itself.

        Raises:
            ConfigError: one line that names the setting, its value and what would be right.
        """
        check_fields(self, PREFIX)

    def as_nested(self) -> dict[str, Any]:
        """Return the settings under their full names, as a manifest has them."""
        nested: dict[str, Any] = dataclasses.asdict(self)
        for name in reversed(PREFIX.split(".")):
            nested = {name: nested}
        return nested
