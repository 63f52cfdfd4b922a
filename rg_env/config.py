"""The settings under `environment.skyrl_gym.rg_dump.*`: names, defaults, ranges, in one place.

Importable without SkyRL; `rg_env.skyrl.config` hangs it into SkyRL's own config. Annotations stay real types here (no
`from __future__ import annotations`): SkyRL builds nested dataclasses from them.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from rg_env.errors import ConfigError

PREFIX = "environment.skyrl_gym.rg_dump"


@dataclass
class LengthPenaltyConfig:
    """Which rule shortens the score of long responses, in the train phase only. Lengths are response tokens."""

    kind: str = "atropos"
    """`atropos` | `dapo` | `kimi` | `none`; formulae and sources in `rg_env.scoring.length`."""
    max_length: int | None = None
    """Length at which the penalty is complete. None: `generator.sampling_params.max_generate_length`."""
    threshold: float = 0.75
    """atropos: share of `max_length` up to which nothing is taken away, in [0, 1)."""
    correct_at: float = 0.5
    """atropos: the penalty applies only to groups in which every score is at least this, in [0, 1]."""
    buffer: int | None = None
    """dapo: width of the soft zone before `max_length`, in tokens. None: a quarter of `max_length`."""
    weight: float = 1.0
    """dapo, kimi: factor on the additive penalty, at least 0."""


@dataclass
class ScorerConfig:
    """The pool of processes in which Reasoning Gym's scorers run."""

    workers: int = 2
    """How many answers are scored at once. Two take about 110 MB, shared with the process they are forked from."""
    timeout: float = 5.0
    """Seconds that one answer may take, raw and tagged together, from the moment a worker has it."""
    max_answer_chars: int = 8192
    """Longer answers are the violation `answer_too_long`."""
    normalize: bool = False
    """A second chance for right answers in a dress: without wrapping (code fence, `\\boxed{}`, `$`, bold, full stop),
    LaTeX fractions and signs, thousands separators. It can only raise a score, and is recorded as `normalized`."""


@dataclass
class RGDumpConfig:
    """Everything a run can set about tasks, format, scores and dumps."""

    # -- tasks and items
    tasks: Any = None
    """The task mix: None (the default mix), a list of names, `category:NAME` or patterns such as `*_sum`,
    or a mapping of those to a weight or to `{weight: 2.0, config: {option: value}}`."""
    size: int = 1_000_000
    """Rows in the training dataset; made when asked for, so that any length costs nothing."""
    seed: int = 42
    eval_seed: int = 123
    num_eval_samples_per_task: int = 5
    complexity_mode: str | None = None
    """None. (`random` and `curriculum` are refused until they are built.)"""
    curriculum_target_accuracy: float = 0.7

    # -- prompt
    system_prompt: str | None = "think_answer"
    """`think_answer` (ours), a name in reasoning_gym's SYSTEM_PROMPTS, any other text as it is, or None."""
    worked_examples: list[dict[str, Any]] = field(default_factory=list)
    """`{question, response}` pairs placed before the question; with `task`, before that task's questions only."""
    prefilled_think: bool = False
    """True for chat templates that open `<think>` in the prompt."""

    # -- scores and rewards
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    on_scorer_failure: str = "zero"
    """`zero`: timeout, crashed and error train as 0. `mask`: they are not trained on at all."""
    solved_at: float = 0.99
    format_bonus: float = 0.0
    """Added to the reward of every response without a violation."""
    binarize_at: float | None = None
    """If set, the reward is 1 where score >= binarize_at, else 0 (before bonus and additive penalties)."""
    length_penalty: LengthPenaltyConfig = field(default_factory=LengthPenaltyConfig)
    mask_too_long_completions: bool = False
    """Sets SkyRL's `generator.apply_overlong_filtering`: truncated responses are kept out of the loss."""

    # -- the record
    dump_dir: str = "dumps"
    dump_rollouts: bool = True
    dump_failed_rollouts: bool = True
    dump_other_rollouts: bool = False
    """Train groups that fit neither file."""
    dump_eval_rollouts: bool = False
    rollout_save_score_threshold: float = 0.7
    """A train group is a success when any base score is strictly greater."""
    groups_per_file: int = 100
    failed_groups_per_file: int = 50
    dump_ack_timeout: float = 2.0
    """Seconds that `generate()` waits for the operating system to have its groups."""
    dump_fsync: str = "none"
    """What of the record is forced to disk, to survive a power cut too: `none`; `batch`, all of it whenever a file is
    full; `group`, every group before `generate()` returns."""
    dump_compression: str = "none"
    """`none`, or `zstd`: finished files are compressed in the background."""

    # -- logging
    debug_logging: bool = False
    suppress_base_env_logs: bool = False

    # -- hardware
    device: str = "cuda"
    """`cuda`: SkyRL's own workers and vLLM. `cpu`: `rg_env.cpu`, the same trainer on this machine's cores."""

    def validate(self) -> None:
        """Check every value by itself.

        Raises:
            ConfigError: with one line naming the setting, its value and what would be right.
        """

        def need(ok: bool, name: str, value: object, right: str) -> None:
            if not ok:
                raise ConfigError(f"{PREFIX}.{name}={value!r}: {right}")

        def integer(name: str, value: object, low: int) -> None:
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
            need(ok, name, value, f"must be a whole number of at least {low}")

        def number(name: str, value: object, low: float, high: float = math.inf, open_low: bool = False) -> None:
            ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            ok = ok and (low < value if open_low else low <= value) and value <= high  # type: ignore[operator]
            bounds = f"above {low:g}" if open_low else f"at least {low:g}"
            need(ok, name, value, f"must be a number {bounds}" + ("" if high == math.inf else f" and at most {high:g}"))

        def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
            need(value in allowed, name, value, f"must be one of {', '.join(allowed)}")

        def boolean(name: str, value: object) -> None:
            need(isinstance(value, bool), name, value, "must be true or false")

        for name in (
            "dump_rollouts",
            "dump_failed_rollouts",
            "dump_other_rollouts",
            "dump_eval_rollouts",
            "debug_logging",
            "suppress_base_env_logs",
            "prefilled_think",
            "mask_too_long_completions",
        ):
            boolean(name, getattr(self, name))
        for name in ("size", "num_eval_samples_per_task", "groups_per_file", "failed_groups_per_file"):
            integer(name, getattr(self, name), 1)
        for name in ("seed", "eval_seed"):
            integer(name, getattr(self, name), 0)
        for name in ("rollout_save_score_threshold", "solved_at", "curriculum_target_accuracy"):
            number(name, getattr(self, name), 0.0, 1.0)
        if self.binarize_at is not None:
            number("binarize_at", self.binarize_at, 0.0, 1.0, open_low=True)
        number("format_bonus", self.format_bonus, 0.0)
        number("dump_ack_timeout", self.dump_ack_timeout, 0.0)
        one_of("on_scorer_failure", self.on_scorer_failure, ("zero", "mask"))
        one_of("dump_fsync", self.dump_fsync, ("none", "batch", "group"))
        one_of("dump_compression", self.dump_compression, ("none", "zstd"))
        one_of("device", self.device, ("cuda", "cpu"))
        need(
            self.complexity_mode is None,
            "complexity_mode",
            self.complexity_mode,
            "is not built yet; leave it out or set null",
        )

        integer("scorer.workers", self.scorer.workers, 1)
        number("scorer.timeout", self.scorer.timeout, 0.0, open_low=True)
        integer("scorer.max_answer_chars", self.scorer.max_answer_chars, 1)
        boolean("scorer.normalize", self.scorer.normalize)

        penalty = self.length_penalty
        one_of("length_penalty.kind", penalty.kind, ("atropos", "dapo", "kimi", "none"))
        if penalty.max_length is not None:
            integer("length_penalty.max_length", penalty.max_length, 1)
        if penalty.buffer is not None:
            integer("length_penalty.buffer", penalty.buffer, 1)
        number("length_penalty.threshold", penalty.threshold, 0.0)
        need(penalty.threshold < 1, "length_penalty.threshold", penalty.threshold, "must be below 1")
        number("length_penalty.correct_at", penalty.correct_at, 0.0, 1.0)
        number("length_penalty.weight", penalty.weight, 0.0)
