"""What to set where SkyRL refuses a run in words that name no setting.

Invariant: a value is suggested only if SkyRL accepts the whole run with it: SkyRL's own check is asked, value by value.
Not covered: two settings that have to change together; then they are named, without values.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rg_env.errors import did_you_mean
from rg_env.settings import set_value, value_of

Accepts = Callable[[Any], bool]
"""Whether SkyRL accepts a config."""

_ENGINE = "generator.inference_engine"
_PLACEMENT = "trainer.placement"
_POLICY_BATCH = ("trainer.train_batch_size", "trainer.policy_mini_batch_size")
_CRITIC_BATCH = ("trainer.train_batch_size", "trainer.critic_mini_batch_size")
_MICRO_BATCH = ("trainer.micro_train_batch_size_per_gpu",)
_SAMPLES = ("generator.n_samples_per_prompt",)


class Row(NamedTuple):
    """A message of SkyRL's.

    Attributes:
        message: how it can be recognized, a regular expression.
        settings: numbers of which one is to change; SkyRL is asked which value is the nearest.
        advice: what else can be set.
    """

    message: str
    settings: tuple[str, ...] = ()
    advice: str = ""


ROWS = (
    # batch sizes, before anything starts
    Row(r"policy_mini_batch_size_per_gpu \d+ should be .* micro_train_batch_size_per_gpu", _MICRO_BATCH),
    Row(r"critic_mini_batch_size_per_gpu \d+ should be .* micro_train_batch_size_per_gpu", _MICRO_BATCH),
    Row(r"policy_mini_batch_size", (*_POLICY_BATCH, *_SAMPLES)),
    Row(r"critic_mini_batch_size", (*_CRITIC_BATCH, *_SAMPLES)),
    Row(r"least common multiple of the data parallel sizes", ("trainer.train_batch_size", *_SAMPLES)),
    # This message is ours (`checks.py`): SkyRL would drop rows and stop later.
    Row(r"responses of a batch do not divide", ("trainer.train_batch_size", *_SAMPLES)),
    # GPUs
    Row(
        r"num_policy_gpus .*num_rollout_gpus",
        (f"{_ENGINE}.num_engines", f"{_ENGINE}.tensor_parallel_size", f"{_PLACEMENT}.policy_num_gpus_per_node"),
        f"the policy has policy_num_nodes × policy_num_gpus_per_node of {_PLACEMENT}, the rollouts have num_engines × "
        f"tensor, pipeline and data parallel size of {_ENGINE}",
    ),
    Row(
        r"policy_num_nodes .*ref_num_nodes", (f"{_PLACEMENT}.ref_num_nodes",), f"{_PLACEMENT}.colocate_policy_ref=false"
    ),
    Row(
        r"policy_num_gpus_per_node .*ref_num_gpus_per_node",
        (f"{_PLACEMENT}.ref_num_gpus_per_node",),
        f"{_PLACEMENT}.colocate_policy_ref=false",
    ),
    Row(
        r"num_policy_gpus and num_(ref|critic)_gpus",
        advice=f"give both roles the same {_PLACEMENT}.*_num_nodes and *_num_gpus_per_node",
    ),
    Row(
        r"placement group.*GPUs",
        advice=f"lower {_PLACEMENT}.*_num_gpus_per_node and {_ENGINE}.num_engines, or name a larger cluster in "
        "RAY_ADDRESS (docs/gpu.md)",
    ),
)
_CHOICE = re.compile(r"invalid (?P<setting>\w+): (?P<value>.*)\. Must be one of .*?(?P<choices>\[.*\])")
_NAMES_ELSEWHERE = {
    # PPO's clipped loss, as papers and verl call it: `ppo_policy_loss` of SkyRL 0.4.0 is registered as `regular`.
    ("policy_loss_type", "ppo"): "regular",
    ("policy_loss_type", "vanilla"): "regular",
}
"""(setting, value) → what SkyRL calls it, where another choice only looks similar."""
_TRIES = 200
"""How far a value is looked for, on each side."""


def suggestion(message: str, cfg: Any, accepts: Accepts | None = None) -> str:
    """Say what to set in answer to a message of SkyRL's; "" if the message says it itself.

    Args:
        accepts: None: it cannot be asked, because the run is under way.
    """
    if match := _CHOICE.search(message):
        if choice := _NAMES_ELSEWHERE.get((match["setting"], match["value"])):
            return f"SkyRL calls it {choice}"
        # SkyRL lists the choices itself, so only one that is near to what was typed is worth a word.
        choices = re.findall(r"[\w+-]+", match["choices"])
        return did_you_mean(match["value"], choices, "").removeprefix("; ")
    # The first row that matches: those with a narrower message stand above the wider ones.
    row = next((row for row in ROWS if re.search(row.message, message)), None)
    if row is None:
        return ""
    values = [] if accepts is None else list(_nearest_values(row, cfg, accepts))
    parts = []
    if values:
        parts.append(f"set {', or '.join(values)}")
    elif row.settings:
        parts.append(f"change {' or '.join(row.settings)}")
    if row.advice:
        parts.append(row.advice)
    return "; ".join(parts)


def _nearest_values(row: Row, cfg: Any, accepts: Accepts) -> Iterator[str]:
    """`setting=value` with the nearest values, below and above, with which SkyRL accepts the run."""
    for setting in row.settings:
        now = value_of(cfg, setting)
        # Outwards from the present value, so that the first accepted one is the nearest. All are at least 1.
        lower = range(now - 1, max(0, now - _TRIES), -1)
        higher = range(now + 1, now + _TRIES)
        below = _first_accepted(cfg, setting, lower, accepts)
        above = _first_accepted(cfg, setting, higher, accepts)
        values = [str(value) for value in (below, above) if value is not None]
        if values:
            yield f"{setting}={' or '.join(values)}"


def _first_accepted(cfg: Any, setting: str, values: range, accepts: Accepts) -> int | None:
    """Ask SkyRL about one value after another; None if it accepts none of them."""
    trial = copy.deepcopy(cfg)  # SkyRL's check writes into the config that it is given
    for value in values:
        set_value(trial, setting, value)
        if accepts(trial):
            return value
    return None
