"""What names are here that users know from the Atropos environment and from SkyRL when it was `skyrl_train`.

Only names that differ have an entry; one that only moved is found by its last part. A test compares the answers with
docs/coming-from.md.
"""

from __future__ import annotations

from collections.abc import Container

from rg_env.config import GONE, PREFIX

_ENGINE = "generator.inference_engine"
_LOGGED = "trainer.num_logger_train_samples (the dump has all of them anyway)"
_WEIGHTS = "task weights are in the task mix"
_WAITS = "SkyRL's synchronous loop stops training while it evaluates"

OTHER_NAMES = {
    "seed": f"{PREFIX}.seed or trainer.seed (the first draws the items, the second seeds the trainer)",
    "tokenizer_name": "trainer.policy.model.path (the model's own tokenizer is used)",
    "model_name": "trainer.policy.model.path",
    "group_size": "generator.n_samples_per_prompt",
    "max_token_length": "generator.sampling_params.max_generate_length (of the response, without the prompt)",
    "batch_size": "trainer.train_batch_size (counts prompts, not responses)",
    "total_steps": "trainer.max_training_steps",
    "steps_per_eval": "trainer.eval_interval",
    "use_wandb": "trainer.logger (set it to wandb)",
    "wandb_name": "trainer.run_name (trainer.project_name names the project)",
    "num_rollouts_to_keep": _LOGGED,
    "num_rollouts_per_group_for_logging": _LOGGED,
    "max_eval_samples": f"{PREFIX}.num_eval_samples_per_task (a number per task, not in total)",
    "eval_sample_seed": f"{PREFIX}.eval_seed",
    "dataset": f"{PREFIX}.tasks (items are generated, not downloaded)",
    "base_url": f"{_ENGINE}.external_proxy_url (only with servers that you start yourself)",
    "num_max_requests_at_once": f"{_ENGINE}.max_num_seqs",
    "num_inference_engines": f"{_ENGINE}.num_engines",
    "remote_inference_engine_urls": f"{_ENGINE}.external_server_urls (and external_proxy_url for the router)",
    "use_sample_packing": "trainer.remove_microbatch_padding",
}
"""Last part of a name elsewhere → what to use."""
NOWHERE = {
    "api_key": "servers are asked without a key",
    "num_requests_for_eval": "evaluation uses the same engines as training",
    "rollout_server_url": "SkyRL needs no server between environment and trainer",
    "inference_weight": _WEIGHTS,
    "min_batch_allocation": _WEIGHTS,
    "eval_handling": _WAITS,
    "eval_limit_ratio": _WAITS,
    "async_engine": "the engine is always asynchronous",
    "enable_http_endpoint": "the engine always has an HTTP endpoint",
}
"""Last part of a name that has no counterpart → why."""


def other_name(typed: str, known: Container[str]) -> str | None:
    """What to use in place of a name; None if it is not known from elsewhere.

    Args:
        typed: a key, or an argument such as `--env.group_size=8`.
        known: the settings that there are.
    """
    name = typed.lstrip("-").partition("=")[0]
    leaf = name.rpartition(".")[2]
    if name.startswith("skyrl_train."):
        return "the module is now skyrl.train.entrypoints"
    if why := GONE.get(name.removeprefix(f"{PREFIX}.")) or NOWHERE.get(leaf):
        return f"there is no such setting: {why}"
    if leaf in OTHER_NAMES:
        return f"use {OTHER_NAMES[leaf]}"
    engine = f"{_ENGINE}.{leaf.removeprefix('inference_engine_')}" if name.startswith("generator.") else ""
    moved = [new for new in (f"{PREFIX}.{name}", f"{PREFIX}.{leaf}", engine) if new in known]
    return f"use {moved[0]}" if moved else None
