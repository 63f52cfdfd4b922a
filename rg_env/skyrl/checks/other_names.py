"""What names are here that users know from the Atropos environment and from SkyRL when it was `skyrl_train`.

Only names that differ have an entry; one that only moved is found by its last part. A test compares the answers with
docs/coming-from.md.
"""

from __future__ import annotations

from collections.abc import Container

from rg_env.config import GONE, PREFIX

_ENGINE = "generator.inference_engine"
_NONE = "there is no such setting: "

OTHER_NAMES = {
    "seed": f"use {PREFIX}.seed or trainer.seed (the first draws the items, the second seeds the trainer)",
    "tokenizer_name": "use trainer.policy.model.path (the model's own tokenizer is used)",
    "model_name": "use trainer.policy.model.path",
    "group_size": "use generator.n_samples_per_prompt",
    "max_token_length": "use generator.sampling_params.max_generate_length (of the response, without the prompt)",
    "batch_size": "use trainer.train_batch_size (counts prompts, not responses)",
    "total_steps": "use trainer.max_training_steps",
    "steps_per_eval": "use trainer.eval_interval",
    "use_wandb": "use trainer.logger (set it to wandb)",
    "wandb_name": "use trainer.run_name (trainer.project_name names the project)",
    "num_rollouts_to_keep": "use trainer.num_logger_train_samples (the dump has all of them anyway)",
    "num_rollouts_per_group_for_logging": "use trainer.num_logger_train_samples (the dump has all of them anyway)",
    "max_eval_samples": f"use {PREFIX}.num_eval_samples_per_task (a number per task, not in total)",
    "eval_sample_seed": f"use {PREFIX}.eval_seed",
    "dataset": f"use {PREFIX}.tasks (items are generated, not downloaded)",
    "base_url": f"use {_ENGINE}.external_proxy_url (only with servers that you start yourself)",
    "num_max_requests_at_once": f"use {_ENGINE}.max_num_seqs",
    "num_inference_engines": f"use {_ENGINE}.num_engines",
    "remote_inference_engine_urls": f"use {_ENGINE}.external_server_urls (and external_proxy_url for the router)",
    "use_sample_packing": "use trainer.remove_microbatch_padding",
    "api_key": f"{_NONE}servers are asked without a key",
    "num_requests_for_eval": f"{_NONE}evaluation uses the same engines as training",
    "rollout_server_url": f"{_NONE}SkyRL needs no server between environment and trainer",
    "inference_weight": f"{_NONE}task weights are in the task mix",
    "min_batch_allocation": f"{_NONE}task weights are in the task mix",
    "eval_handling": f"{_NONE}SkyRL's synchronous loop stops training while it evaluates",
    "eval_limit_ratio": f"{_NONE}SkyRL's synchronous loop stops training while it evaluates",
    "async_engine": f"{_NONE}the engine is always asynchronous",
    "enable_http_endpoint": f"{_NONE}the engine always has an HTTP endpoint",
}
"""Last part of a name elsewhere → what to use, or why there is nothing like it."""


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
    if why := GONE.get(name.removeprefix(f"{PREFIX}.")):
        return f"{_NONE}{why}"
    if leaf in OTHER_NAMES:
        return OTHER_NAMES[leaf]
    engine = f"{_ENGINE}.{leaf.removeprefix('inference_engine_')}" if name.startswith("generator.") else ""
    moved = [new for new in (f"{PREFIX}.{name}", f"{PREFIX}.{leaf}", engine) if new in known]
    return f"use {moved[0]}" if moved else None
