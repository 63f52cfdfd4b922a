"""What is checked before a run starts.

Invariant: every mistake is one line that says what is wrong and how to fix it, and no check starts anything, downloads
a model (of a hub's, the tokenizer alone), or leaves a file or folder behind. Listed here is what SkyRL finds only after
the models are loaded, or never; what its `validate_cfg` refuses keeps SkyRL's words. The checks of `SINGLE` and
`TOGETHER` import neither torch nor Ray.
Not covered: whether a model fits into memory. `rg_env.skyrl.preparation` comes before them.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import socket
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from loguru import logger

from rg_env.base.errors import (
    ConfigError,
    RGEnvError,
    UnavailableError,
    did_you_mean,
    need,
    one_line,
    refuse,
    wrong_value,
)
from rg_env.base.hub import check_hub_model
from rg_env.configuration.config import PREFIX
from rg_env.configuration.setting_names import with_whole_names
from rg_env.configuration.settings import value_of
from rg_env.dump.files import try_folder
from rg_env.rollouts.rewards import load_reward, try_reward_function
from rg_env.rows.item_source import scales_of
from rg_env.rows.prompts import Prompts, format_warning
from rg_env.rows.templates import check_tags, load_tokenizer
from rg_env.skyrl.cpu.cpu_settings import cpu_threads, uses_server
from rg_env.skyrl.own_workers import has_flash_attn
from rg_env.skyrl.resumption import check_checkpoint, check_resumption
from rg_env.skyrl.run_folder import PATHS, check_run_name
from rg_env.tasks import Split, TaskMix
from rg_env.tasks.item import ENV_CLASS
from rg_env.tasks.questions import QuestionStream

NANO = "nano"
"""Accepted as a model path: the small policy that comes with rg_env."""
ENGINE = "generator.inference_engine"
ROLES = ("policy", "ref", "critic")
COMPARE_A_GROUP = ("grpo", "rloo", "maxrl")
"""SkyRL's advantage estimators for which the rewards of a group are relative to each other."""
MODELS = tuple(f"trainer.{role}.model.path" for role in ROLES)
NOT_BATCHED = "its responses would be scored one after another once the last one is there; set it to false"
SECONDS = 5.0
"""How long a server or a hub may take to answer."""

Mistakes = Iterator[tuple[str, str]]
"""Settings with wrong values, and what would be right."""
Check = Callable[[Any], Mistakes | None]
"""Takes a config; yields mistakes, or raises one as a ConfigError."""


def find_mistakes(
    cfg: Any, checks: Iterable[Check], tolerate: Callable[[UnavailableError], None] | None = None
) -> list[str]:
    """Return what the checks find wrong, one line each.

    Args:
        tolerate: called with what is not available on this machine, which is a mistake otherwise.
    """
    # Two checks may find the same mistake. A dict keeps each once, in order.
    mistakes: dict[str, None] = {}
    for check in checks:
        try:
            for setting, right in check(cfg) or ():
                mistakes[wrong_value(setting, value_of(cfg, setting), right)] = None
        except ConfigError as error:
            if tolerate is not None and isinstance(error, UnavailableError):
                tolerate(error)
            else:
                mistakes[str(error)] = None
    return list(mistakes)


# ---------------------------------------------------------------------------------------- values of SkyRL's settings
_AT_LEAST = {
    1: """epochs update_epochs_per_batch train_batch_size eval_batch_size critic_mini_batch_size max_prompt_length
        max_generate_length max_turns n_samples_per_prompt eval_n_samples_per_prompt num_engines
        sequence_parallel_size tensor_parallel_size pipeline_parallel_size data_parallel_size policy_num_nodes
        policy_num_gpus_per_node ref_num_nodes ref_num_gpus_per_node critic_num_nodes critic_num_gpus_per_node""",
    0: "lr weight_decay max_grad_norm num_warmup_steps kl_loss_coef seed temperature max_staleness_steps",
    -1: "eval_interval ckpt_interval hf_save_interval max_ckpts_to_keep top_k",
}
_CHOICES = {
    "strategy": "fsdp fsdp2 megatron",
    "kl_estimator_type": "k1 k2 k3 abs",
    "backend": "vllm",
    "scheduler": """linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt
        reduce_lr_on_plateau cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay greedy""",
    "trainer.logger": "wandb mlflow swanlab tensorboard console",
    "trainer.resume_mode": "none latest from_path",
    "trainer.algorithm.dynamic_sampling.type": "filter replace",
    "trainer.algorithm.kl_ctrl.type": "fixed adaptive",
}
_LIMITS: dict[str, Mapping[str, Any]] = {
    **{name: {"at_least": least} for least, names in _AT_LEAST.items() for name in names.split()},
    **{name: {"choices": texts.split()} for name, texts in _CHOICES.items()},
    **{name: {"filled": True} for name in ("ckpt_path", "export_path", "log_path")},
    **{name: {"above": 0, "at_most": 1} for name in ("top_p", "gpu_memory_utilization")},
    "min_p": {"at_least": 0, "at_most": 1},
}


def limits_of(setting: str) -> Mapping[str, Any]:
    """Return the limits of one of SkyRL's settings, as `check_value` takes them; empty if only its type is checked."""
    return _LIMITS.get(setting) or _LIMITS.get(setting.rpartition(".")[2]) or {}


# ------------------------------------------------------------------------------ settings that are wrong by themselves
def check_folders(cfg: Any) -> Mistakes:
    for setting in PATHS:
        path = str(value_of(cfg, setting))
        try:
            if "://" not in path:
                try_folder(Path(path).expanduser())
        except OSError as error:
            yield setting, f"the folder cannot be written ({error.strerror}); choose another one"


def check_model_paths(cfg: Any) -> Mistakes:
    known = f"a hub model such as Qwen/Qwen2.5-1.5B-Instruct, or `{NANO}`"
    if not cfg.trainer.policy.model.path:
        yield MODELS[0], f"it is not set; name a model folder, {known}"
    for path, setting in models_of(cfg).items():
        folder = Path(path).expanduser()
        if folder.is_dir():
            if not (folder / "config.json").is_file():
                yield setting, f"the folder has no config.json{_newest_export(folder)}"
        # Not a folder, so it is a file, which is not a model, or it must look like a name on the hub.
        elif path != NANO and (folder.exists() or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)):
            yield setting, f"there is no such folder; name an existing one, {known}"


def _newest_export(folder: Path) -> str:
    """Name the model of the last step in a folder of exports."""
    steps = {}
    for config in folder.glob("global_step_*/*/config.json"):
        steps[config.parts[-3].removeprefix("global_step_").zfill(20)] = config.parent
    if not steps:
        return ", so it is not a model"
    return f"; did you mean {steps[max(steps)]}?"


def models_of(cfg: Any) -> dict[str, str]:
    """Return each model path with the setting that names it; SkyRL makes the policy the reference where none is
    named."""
    # Reversed, so that a path that several roles share is named by the policy's setting, the last to be put in.
    named: dict[str, str] = {}
    for setting in reversed(MODELS):
        path = value_of(cfg, setting)
        if path:
            named[path] = setting
    return named


def check_data_files(cfg: Any) -> Mistakes:
    for name in ("train_data", "val_data"):
        for source in getattr(cfg.data, name):
            if source.endswith((".parquet", ".json", ".jsonl")) and not Path(source).expanduser().is_file():
                yield f"data.{name}", f"there is no file {source!r}; `rg-env dataset --out {source}` makes one"


def check_tasks(cfg: Any) -> None:
    from rg_env.scoring.audit import left_out_of_mix

    files = TaskMix.parse(cfg.rg_dump.tasks).files
    splits = [Split.TRAIN]
    if cfg.trainer.eval_interval > 0 and not cfg.data.val_data:  # as `get_eval_dataset` decides
        splits.append(Split.EVAL)
    for task, file in files.items():
        for split in splits:
            QuestionStream(task, file, cfg.rg_dump.seed, split, files=files)
    # Both raise for what is wrong with a row, or with many.
    left_out_of_mix(cfg.rg_dump.tasks, cfg.rg_dump.scorer, cfg.rg_dump.format)


def check_reward(cfg: Any) -> Mistakes:
    if (function := load_reward(cfg.rg_dump)) is not None:
        try:
            try_reward_function(function)
        except RGEnvError as error:
            yield f"{PREFIX}.reward", f"fails on a made-up group: {error}"


def check_prompt(cfg: Any) -> None:
    # Made for its ConfigErrors alone.
    Prompts.of(cfg.rg_dump)


SINGLE = (check_run_name, check_folders, check_model_paths, check_data_files, check_tasks, check_reward, check_prompt)


# ----------------------------------------------------------------------------------- settings that do not fit together
def check_rows(cfg: Any) -> Mistakes:
    """Rows, prompts and the length penalty. Warns of a format that no prompt asks for."""
    import skyrl_gym

    rg, files = cfg.rg_dump, cfg.data.train_data
    name, batch = cfg.environment.env_class, cfg.trainer.train_batch_size
    known = [ENV_CLASS]
    right = f"must be {ENV_CLASS}; others need rows of their own in data.train_data"
    if files or cfg.data.val_data:
        known = [ENV_CLASS, *skyrl_gym.registry]
        right = f"must be one of {', '.join(known)}"
    if name not in known:
        yield "environment.env_class", did_you_mean(name, known, right).removeprefix("; ")
    if rg.size < batch and not files:
        yield f"{PREFIX}.size", f"must be at least trainer.train_batch_size={batch}"
    if rg.complexity is not None and files:
        yield f"{PREFIX}.complexity", "has no effect with data.train_data"
    complete_at = rg.length_penalty.max_length or cfg.generator.sampling_params.max_generate_length
    if (rg.length_penalty.buffer or 0) > complete_at:
        right = f"must be at most the length at which the penalty is complete, {complete_at}"
        yield f"{PREFIX}.length_penalty.buffer", right
    if (warning := format_warning(rg)) and not files:
        logger.warning(warning)
    # Called for its ConfigErrors alone: a wrong complexity, or one without a task that has levels.
    scales_of(TaskMix.parse(rg.tasks), None if files else rg.complexity)


class _Rule(NamedTuple):
    """A combination of settings that trains on nothing, or dies in the first step.

    Attributes:
        setting: to change; `is_wrong` takes SkyRL's generator, algorithm and fully asynchronous settings.
    """

    setting: str
    is_wrong: Callable[[Any, Any, Any], object]
    right: str


_RULES = (
    _Rule(
        "generator.n_samples_per_prompt",
        lambda gen, alg, loop: alg.advantage_estimator in COMPARE_A_GROUP and gen.n_samples_per_prompt < 2,
        "{estimator} compares the responses of a group, so a group needs at least 2",
    ),
    _Rule(
        "generator.vision_language_generator",
        lambda gen, alg, loop: gen.vision_language_generator,
        "rg_env's generator has only texts; set it to false",
    ),
    _Rule(
        "generator.merge_stepwise_output",
        lambda gen, alg, loop: alg.dynamic_sampling.type and gen.merge_stepwise_output,
        "SkyRL cannot merge the rows of groups that dynamic sampling has changed; set it to false",
    ),
    _Rule(
        "trainer.algorithm.dynamic_sampling.type",
        lambda gen, alg, loop: alg.dynamic_sampling.type and gen.step_wise_trajectories and gen.max_turns > 1,
        "SkyRL selects single rows, and step-wise trajectories of several turns have several; set it to null",
    ),
    _Rule(
        "generator.chat_template.name_or_path",
        lambda gen, alg, loop: gen.chat_template.name_or_path and gen.sampling_params.logprobs is not None,
        "SkyRL has no logprobs with a template of its own; add chat_template.jinja to the model's folder",
    ),
    # rg_env's rewards are lists, one per token. For these SkyRL's trainer skips the filter; only its fully async
    # collector with `sample_full_batch` sums them before it looks.
    _Rule(
        "trainer.algorithm.zero_variance_filter",
        lambda gen, alg, loop: alg.zero_variance_filter and not loop.enabled,
        "it does nothing here, because SkyRL filters no rewards of tokens; set "
        "trainer.algorithm.dynamic_sampling.type=filter",
    ),
    _Rule(
        "trainer.algorithm.zero_variance_filter",
        lambda gen, alg, loop: alg.zero_variance_filter and loop.enabled and not loop.sample_full_batch,
        "it does nothing here, because SkyRL filters no rewards of tokens; set "
        "trainer.fully_async.sample_full_batch=true with it",
    ),
    _Rule(
        "trainer.fully_async.simulate_training",
        lambda gen, alg, loop: loop.simulate_training,
        "it is of SkyRL's simulator, which trains nothing; set it to false",
    ),
)


def check_loop(cfg: Any) -> Mistakes:
    """Combinations that train on nothing, or die in the first step."""
    generator, algorithm, loop = cfg.generator, cfg.trainer.algorithm, cfg.trainer.fully_async
    for rule in _RULES:
        if rule.is_wrong(generator, algorithm, loop):
            yield rule.setting, rule.right.format(estimator=algorithm.advantage_estimator)
    if generator.batched and cfg.rg_dump.experiment_class is None:  # another experiment may have another generator
        yield "generator.batched", NOT_BATCHED
    for group in ("sampling_params", "eval_sampling_params"):
        params = getattr(generator, group)
        if params is not None and params.repetition_penalty != 1:
            right = f"SkyRL passes it to no engine; set generator.{group}.additional_kwargs.repetition_penalty"
            yield f"generator.{group}.repetition_penalty", right
    if loop.enabled:
        yield from _check_async_loop(cfg)
    # `check_cpu` allows only 1 on the CPU, and Megatron divides its workers otherwise.
    if cfg.rg_dump.device != "cpu" and cfg.trainer.strategy != "megatron":
        for role in ROLES:
            setting, workers = f"trainer.{role}.sequence_parallel_size", _workers_of(cfg, role)
            if workers % value_of(cfg, setting):
                yield setting, f"must divide the {workers} workers of trainer.placement.{role}_*"


def _check_async_loop(cfg: Any) -> Mistakes:
    """What SkyRL's fully asynchronous loop refuses only when the policy is loaded."""
    trainer = cfg.trainer
    batch, workers = trainer.policy_mini_batch_size, trainer.fully_async.num_parallel_generation_workers
    most = batch * (1 + trainer.fully_async.max_staleness_steps)
    if not batch <= workers <= most:
        right = (
            f"must be {batch} to {most}: at least trainer.policy_mini_batch_size, and at most that times 1 + "
            "trainer.fully_async.max_staleness_steps"
        )
        yield "trainer.fully_async.num_parallel_generation_workers", right
    if trainer.train_batch_size != batch:
        yield "trainer.train_batch_size", f"must be trainer.policy_mini_batch_size, {batch}, with trainer.fully_async"
    if trainer.placement.colocate_all:
        yield "trainer.placement.colocate_all", "must be false with trainer.fully_async"
    if trainer.algorithm.dynamic_sampling.type is not None:
        right = "must be null with trainer.fully_async; trainer.fully_async.sample_full_batch=true does the same"
        yield "trainer.algorithm.dynamic_sampling.type", right


def check_temperature(cfg: Any) -> Mistakes:
    """vLLM's logprobs of another temperature are compared with the trainer's."""
    engine, correction = cfg.generator.inference_engine, cfg.trainer.algorithm.off_policy_correction
    compared = _needs_rollout_logprobs(cfg) or correction.tis_ratio_type or correction.sequence_mask_metric
    # The CPU's own sampler returns the logprobs of the temperature that it sampled with.
    of_vllm = cfg.rg_dump.device != "cpu" or uses_server(engine)
    scaled = (engine.engine_init_kwargs or {}).get("logprobs_mode") == "processed_logprobs"
    if compared and of_vllm and not scaled and cfg.generator.sampling_params.temperature != 1:
        right = "vLLM returns the logprobs of temperature 1 at any temperature, and this loss or off-policy correction "
        right += "would compare them with the trainer's; set it to 1.0, or "
        right += f"{ENGINE}.engine_init_kwargs.logprobs_mode=processed_logprobs"
        yield "generator.sampling_params.temperature", right


def _needs_rollout_logprobs(cfg: Any) -> bool:
    # The losses that take the logprobs of the sampler for those of the old policy.
    loss, anchor = cfg.trainer.algorithm.policy_loss_type, cfg.trainer.algorithm.cispo.cispo_anchor
    return loss in ("rollout_is", "dppo") or (loss, anchor) == ("cispo", "rollout")


_OFF_ON_CPU = """trainer.bf16 trainer.flash_attn trainer.remove_microbatch_padding trainer.placement.colocate_all
    trainer.policy.torch_profiler_config.enable trainer.policy.record_memory trainer.policy.fsdp_config.cpu_offload
    trainer.ref.fsdp_config.cpu_offload trainer.critic.fsdp_config.cpu_offload
    generator.inference_engine.enable_pd generator.inference_engine.enable_return_routed_experts
    generator.inference_engine.enable_return_sample_support_set"""
_ON_CPU: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_OFF_ON_CPU.split(), (False,)),
    **{f"trainer.{role}.sequence_parallel_size": (1,) for role in ROLES},
    **{f"trainer.placement.{role}_num_gpus_per_node": (1,) for role in ROLES},
    "trainer.strategy": ("fsdp", "fsdp2"),
    "trainer.policy.model.lora.rank": (0,),
    f"{ENGINE}.model_dtype": ("float32", "bfloat16"),
    f"{ENGINE}.num_engines": (1,),
}
"""Setting → the values with which a CPU run works."""
_CPU_ADVICE = {
    "trainer.bf16": ", and trainer.policy.fsdp_config.mixed_precision.param_dtype=bf16 to compute in bfloat16",
    **{f"trainer.placement.{role}_num_gpus_per_node": f", and {role}_num_nodes to the workers" for role in ROLES},
}


def check_cpu(cfg: Any) -> Mistakes:
    """Find what a run on the CPU cannot have."""
    for setting, values in _ON_CPU.items():
        if value_of(cfg, setting) not in values:
            right = " or ".join(str(value).lower() for value in values)
            yield setting, f"cannot run on the CPU; set it to {right}{_CPU_ADVICE.get(setting, '')}"
    engine = cfg.generator.inference_engine
    if uses_server(engine) and not engine.external_proxy_url:
        right = "name the vLLM server, such as http://127.0.0.1:8000; SkyRL's router does not run on the CPU"
        yield f"{ENGINE}.external_proxy_url", right
    cpu_threads()  # raises for a number of threads that cannot be read


TOGETHER = (check_rows, check_loop, check_temperature, check_resumption, check_checkpoint)


# ----------------------------------------------------------------------------------------- what needs torch and SkyRL
def check_skyrl(cfg: Any) -> None:
    """SkyRL's own checks, which also complete the config: one line in its words, with the whole names of settings."""
    message = _refusal_of_skyrl(cfg)
    if "WANDB_API_KEY" in message:
        raise ConfigError(f"{message}: set it, run `wandb login`, or set WANDB_MODE=offline or trainer.logger=console")
    if message:
        raise ConfigError(with_whole_names(message))


def _refusal_of_skyrl(cfg: Any) -> str:
    """Say why SkyRL, or the first step, would refuse a run; "" if it accepts it."""
    from skyrl.train.utils import validate_cfg

    try:
        validate_cfg(cfg)
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        # Many of SkyRL's assertions have no message: then the line of its source is the only thing that says why.
        condition = (traceback.extract_tb(error.__traceback__)[-1].line or "").removeprefix("assert ")
        return one_line(str(error) or f"SkyRL requires {condition.replace('cfg.', '')}")
    responses = cfg.trainer.train_batch_size * cfg.generator.n_samples_per_prompt
    sizes = _data_parallel_sizes(cfg)
    shares = math.lcm(*sizes.values())
    if responses % shares:  # SkyRL would drop the last prompts of the batch, and stop at an assertion without a word
        roles = ", ".join(f"{role} {size}" for role, size in sizes.items())
        return f"the {responses} responses of a batch do not divide by {shares}, as the workers ({roles}) need"
    return ""


def _data_parallel_sizes(cfg: Any) -> dict[str, int]:
    """Into how many shares each model of a run divides a batch. Megatron's are checked by SkyRL."""
    algorithm, trainer = cfg.trainer.algorithm, cfg.trainer
    if trainer.strategy == "megatron":
        return {"policy": 1}
    roles = ["policy"]
    if algorithm.use_kl_loss or algorithm.use_kl_in_reward:
        roles.append("ref")
    if trainer.critic.model.path:
        roles.append("critic")
    return {role: _workers_of(cfg, role) // value_of(trainer, f"{role}.sequence_parallel_size") for role in roles}


def check_models(cfg: Any) -> None:
    policy = cfg.trainer.policy.model.path
    # Of a model of the hub, `check_hub_models` looks at the tokenizer.
    if Path(policy).is_dir():
        tokenizer = check_tokenizer(MODELS[0], Path(policy), cfg.generator.chat_template.name_or_path)
        _check_tags(cfg, tokenizer)


def _check_tags(cfg: Any, tokenizer: Any) -> None:
    """Refuse, or warn of, what the policy's template and tokenizer do to the tags. Rows of files have prompts of their
    own."""
    if cfg.data.train_data or cfg.environment.env_class != ENV_CLASS:
        return
    warnings = check_tags(MODELS[0], cfg.trainer.policy.model.path, tokenizer, cfg.rg_dump, template_options(cfg))[1]
    for warning in warnings:
        logger.warning(warning)


def template_options(cfg: Any) -> dict[str, Any]:
    """Return the arguments of `apply_chat_template` that a run's prompts are rendered with."""
    options = dict(cfg.generator.chat_template_kwargs)
    if cfg.generator.chat_template.name_or_path and cfg.generator.use_conversation_multi_turn:
        from skyrl.train.generators.utils import get_custom_chat_template

        options["chat_template"] = get_custom_chat_template(cfg.generator.chat_template)
    return options


def check_tokenizer(setting: str, folder: Path, other_template: str | None = None) -> Any:
    """Return the tokenizer; refuse one that cannot write a prompt, or ends an answer differently from its chat
    template.

    Args:
        other_template: the template that replaces the tokenizer's, as SkyRL's `generator.chat_template` names it.
    """
    from transformers import GenerationConfig

    answer, text = "An answer.", ""
    chat = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": answer}]
    try:
        tokenizer = load_tokenizer(str(folder))
        # With another template, `text` stays empty, and nothing is compared below.
        if not other_template:
            text = str(tokenizer.apply_chat_template(chat, tokenize=False))
    except Exception as error:  # a broken file, or a template, can raise anything
        reason = f"its tokenizer or chat template fails ({one_line(error, 200)})"
        refuse(setting, str(folder), f"{reason}; name an instruct model with all of its files")
    right = "the tokenizer has no eos token, so no answer would ever end; set eos_token in tokenizer_config.json"
    need(tokenizer.eos_token is not None, setting, str(folder), right)
    before, _, after = text.rpartition(answer)
    after = after.strip()
    # Engines stop at the tokens of generation_config.json, too: one id, or a list of them.
    end_ids: Any = None
    with suppress(OSError):  # there is no generation_config.json
        end_ids = GenerationConfig.from_pretrained(folder).eos_token_id
    if end_ids is None:
        end_ids = []
    elif not isinstance(end_ids, list):
        end_ids = [end_ids]
    ends = tokenizer.convert_ids_to_tokens(end_ids)
    # A template that rewrites answers, or ends them with nothing, leaves nothing to compare.
    if before and after and not after.startswith((tokenizer.eos_token, *ends)):
        used = next((token for token in tokenizer.all_special_tokens if after.startswith(token)), after.split()[0])
        right = f"the chat template ends an answer with {used!r}, but the tokenizer's eos is {tokenizer.eos_token!r}, "
        right += f"so generation would not stop; set eos_token to {used!r} in tokenizer_config.json"
        refuse(setting, str(folder), right)
    return tokenizer


# ------------------------------------------------------------------------------------------------ what a machine has
RAY_FOLDER = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray")
"""Where `ray start` leaves the address of the cluster."""


def check_gpus(cfg: Any) -> None:
    """Refuse a machine without a GPU, or without what SkyRL needs on one. How many GPUs are enough, Ray decides."""
    if cfg.rg_dump.device == "cpu":
        return
    if not _has_gpus():
        raise UnavailableError(
            f"{PREFIX}.device={cfg.rg_dump.device!r}: this machine has no GPU and RAY_ADDRESS names no cluster; "
            f"configs/cpu/ has the same algorithms for {PREFIX}.device=cpu"
        )
    if cfg.trainer.strategy == "fsdp" and not has_flash_attn():  # SkyRL would start the engines first
        names = ("trainer.flash_attn", "trainer.remove_microbatch_padding")
        if on := " ".join(f"{name}=false" for name in names if value_of(cfg, name)):
            raise UnavailableError(f"flash-attn is not installed: install it (docs/gpu.md), or set {on}")
    if not cfg.generator.inference_engine.external_proxy_url and (fault := fault_of_router()):
        raise UnavailableError(fault)


def _has_gpus() -> bool:
    """Whether there is a GPU here, or a cluster that may have some."""
    if os.environ.get("RAY_ADDRESS"):
        return True
    with suppress(OSError, ValueError):  # a Ray that `ray start` started on this machine, which SkyRL joins
        host, _, port = (RAY_FOLDER / "ray_current_cluster").read_text().strip().rpartition(":")
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    import torch

    return torch.cuda.is_available()


def fault_of_router() -> str:
    """Return why SkyRL 0.4.0 cannot use the installed vllm-router; empty if it can, or if none is installed."""
    try:
        found = version("vllm-router")
    except PackageNotFoundError:
        return ""
    from vllm_router.router_args import RouterArgs

    if hasattr(RouterArgs, "pd_disaggregation"):
        return ""
    return f"SkyRL 0.4.0 cannot start vllm-router {found}: install vllm-router 0.1.14"


def _workers_of(cfg: Any, role: str) -> int:
    nodes = value_of(cfg, f"trainer.placement.{role}_num_nodes")
    return int(nodes * value_of(cfg, f"trainer.placement.{role}_num_gpus_per_node"))


def check_hub_models(cfg: Any) -> None:
    """Refuse hub models whose configuration cannot be loaded. A cluster finds out by itself."""
    if os.environ.get("RAY_ADDRESS"):
        return
    for path, setting in models_of(cfg).items():
        if Path(path).is_dir():
            continue
        check_hub_model(setting, path)
        if setting == MODELS[0]:
            with suppress(OSError, ValueError):  # the run itself says what cannot be loaded
                _check_tags(cfg, load_tokenizer(path))


def check_servers(cfg: Any) -> Mistakes:
    """vLLM servers that cannot be used; SkyRL would retry for minutes. A CPU run needs more of them."""
    engine, policy = cfg.generator.inference_engine, cfg.trainer.policy
    model = engine.served_model_name or policy.model.path
    on_cpu = cfg.rg_dump.device == "cpu"
    needed = cfg.trainer.max_prompt_length + cfg.generator.sampling_params.max_generate_length
    urls = dict.fromkeys(engine.external_server_urls or [], f"{ENGINE}.external_server_urls")
    if engine.external_proxy_url:
        urls[engine.external_proxy_url] = f"{ENGINE}.external_proxy_url"
    for url, setting in urls.items():
        need(url.startswith(("http://", "https://")), setting, url, "must be an address such as http://127.0.0.1:8000")
        server = _probe(url, setting, with_routes=on_cpu)
        names = ", ".join(map(repr, server.models)) or "nothing"
        right = f"the server has {names}, not {model!r}; start it with that model, "
        right += f"or set {ENGINE}.served_model_name to the name that it has there"
        need(model in server.models, setting, url, right)
        room = server.models[model].get("max_model_len")
        right = f"the server has room for {room} tokens, but trainer.max_prompt_length and generator.sampling_params."
        right += f"max_generate_length add up to {needed}; start it with --max-model-len {needed}"
        need(not isinstance(room, int) or needed <= room, setting, url, right)
        for route, right in _ROUTES.items():
            need(server.routes is None or route in server.routes, setting, url, right)
    if urls and on_cpu:
        from transformers import AutoConfig

        is_tied = False
        with suppress(OSError, ValueError):  # `check_models` says so
            config = AutoConfig.from_pretrained(policy.model.path, **policy.model_config_kwargs)
            is_tied = config.get_text_config().tie_word_embeddings
        if is_tied:
            right = "its input and output embeddings are tied, and vLLM on a CPU keeps the old output embeddings when "
            right += f"it reloads weights; remove {ENGINE}.external_proxy_url and external_server_urls"
            yield MODELS[0], right


_ROUTES = {
    "/inference/v1/generate": "SkyRL samples from it, and the server lacks it; start it with --enable-scale-out",
    "/collective_rpc": "the server takes no new weights from a file; start it with VLLM_SERVER_DEV_MODE=1",
}
"""Routes that a run on the CPU needs of a server, and what to do if one is missing."""


class _Server(NamedTuple):
    """What a vLLM server says of itself: its models by name, and its routes as text, None if they were not asked."""

    models: dict[str, Any]
    routes: str | None


def _probe(url: str, setting: str, *, with_routes: bool) -> _Server:
    """Ask a server. Raises UnavailableError: none of vLLM answers there."""
    try:
        models = {str(served["id"]): served for served in _get(url, "v1/models")["data"]}
        routes = str(_get(url, "openapi.json")) if with_routes else None
    except (OSError, http.client.HTTPException, LookupError, TypeError, ValueError) as error:
        right = f"no vLLM server answers ({one_line(error)}); start one, for example with scripts/serve_vllm.sh"
        raise UnavailableError(wrong_value(setting, url, right)) from error
    return _Server(models, routes)


def _get(url: str, route: str) -> Any:
    with urllib.request.urlopen(f"{url.rstrip('/')}/{route}", timeout=SECONDS) as answer:
        return json.load(answer)


OF_SKYRL = (check_gpus, check_skyrl, check_models, check_hub_models, check_servers)
