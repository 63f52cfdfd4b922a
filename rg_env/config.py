"""The settings under `environment.skyrl_gym.rg_dump.*`: names, defaults and limits, each declared once, in its field.

Importable without SkyRL; `rg_env.skyrl.config` adds them to SkyRL's own config. Annotations stay real types here (no
`from __future__ import annotations`): SkyRL builds nested dataclasses from them.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from rg_env.choices import ResponseFormat
from rg_env.scoring.length import LengthPenaltyConfig
from rg_env.scoring.types import ScorerConfig
from rg_env.settings import check_fields, setting

PREFIX = "environment.skyrl_gym.rg_dump"


@dataclass
class RGDumpConfig:
    """Everything a run can set about tasks, format, scores and dumps."""

    # -- tasks and items
    tasks: Any = None
    """The task mix: None (the default mix), a list of names, `category:NAME` or patterns such as `*_sum`,
    or a mapping of those to a weight or to `{weight: 2.0, config: {option: value}}`."""
    size: int = setting(1_000_000, at_least=1)
    """Rows in the training dataset. Rows are made on demand, so any size costs nothing."""
    seed: int = setting(42, at_least=0)
    eval_seed: int = setting(123, at_least=0)
    num_eval_samples_per_task: int = setting(5, at_least=1)
    complexity: float | str | None = setting(None, choices=("random",), at_least=0, at_most=1)
    """How hard items are, on each task's own scale from 0 to 1. None: the task's default options. A number: all items
    are that hard. `random`: each is as hard as a random number in [0, 1] says."""

    # -- prompt
    system_prompt: str | None = "think_answer"
    """`think_answer` (ours), a name in reasoning_gym's SYSTEM_PROMPTS, any other text verbatim, or None."""
    worked_examples: list[dict[str, Any]] = field(default_factory=list)
    """`{question, response}` pairs placed before the question; with `task`, before that task's questions only."""
    format: str = setting("strict", choices=tuple(ResponseFormat))
    """`strict`: one think block, then one answer block. `lenient`: an answer block is enough, as in Atropos."""
    prefilled_think: bool = False
    """True for chat templates that open `<think>` in the prompt."""

    # -- scores and rewards
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    on_scorer_failure: str = setting("zero", choices=("zero", "mask"))
    """`zero`: timeout, crashed and error train as 0. `mask`: they are not trained on at all. An answer whose scorer got
    no CPU time is masked in either case."""
    solved_at: float = setting(0.99, at_least=0, at_most=1)
    format_bonus: float = setting(0.0, at_least=0)
    """Added to the reward of every response without a violation."""
    length_penalty: LengthPenaltyConfig = field(default_factory=LengthPenaltyConfig)

    # -- the dump
    dump_dir: str = setting("dumps", filled=True)
    dump_rollouts: bool = True
    dump_failed_rollouts: bool = True
    dump_other_rollouts: bool = True
    """Train groups that fit neither file."""
    dump_eval_rollouts: bool = True
    rollout_save_score_threshold: float = setting(0.7, at_least=0, at_most=1)
    """A train group is a success when any base score is strictly greater."""
    groups_per_file: int = setting(100, at_least=1)
    """Lines of a finished file."""
    dump_fsync: bool = False
    """Whether groups are forced to disk before `generate()` returns, so that they survive a power failure, too."""

    # -- logging
    debug_logging: bool = False
    suppress_base_env_logs: bool = False

    # -- your own code
    imports: list[str] = field(default_factory=list, metadata={"filled": True})
    """Modules that are imported in every process of the run."""
    reward: str | None = setting(None, filled=True)
    """`module.function`: maps the rollouts of a group to one finite number each, used in place of the base score."""
    experiment_class: str | None = setting(None, filled=True)
    """`module.Class`: a subclass of `rg_env.skyrl.experiment.RGExperiment` that trains."""

    # -- hardware
    device: str = setting("cuda", choices=("cuda", "cpu"))
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
