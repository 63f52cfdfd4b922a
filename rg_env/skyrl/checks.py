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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
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
from rg_env.configuration.settings import is_within, value_of
from rg_env.dump.files import try_folder
from rg_env.rollouts.rewards import load_reward, try_reward_function
from rg_env.rows.item_source import scales_of
from rg_env.rows.prompts import Prompts, format_warning
from rg_env.rows.templates import check_tags, load_tokenizer
from rg_env.skyrl import combinations
from rg_env.skyrl.combinations import ENGINE, ROLES, Mistakes, workers_of
from rg_env.skyrl.cpu.cpu_settings import cpu_threads, uses_server
from rg_env.skyrl.own_workers import has_flash_attn
from rg_env.skyrl.resumption import check_checkpoint, check_resumption
from rg_env.skyrl.run_folder import PATHS, check_run_name
from rg_env.tasks import Split, TaskMix
from rg_env.tasks.item import ENV_CLASS, Item
from rg_env.tasks.questions import QuestionStream

NANO = "nano"
"""Accepted as a model path: the small policy that comes with rg_env."""
MODELS = tuple(f"trainer.{role}.model.path" for role in ROLES)
SECONDS = 5.0
"""How long a server or a hub may take to answer."""

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
    # Of transformers' schedulers, those that need no more than SkyRL gives them.
    "scheduler": "linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt",
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
    **{f"{name}_tis_ratio_clip_high": {"above": 0} for name in ("token", "sequence")},
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
        if os.path.isdir(folder):
            if not (folder / "config.json").is_file():
                yield setting, f"the folder has no config.json{_newest_export(folder)}"
        # Not a folder, so it is a file, which is not a model, or it must look like a name on the hub.
        elif path != NANO and (os.path.exists(folder) or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)):
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
            path = Path(source).expanduser()
            if path.suffix not in (".parquet", ".json", ".jsonl"):  # a data set of the hub
                continue
            if not os.path.isfile(path):  # noqa: PTH113  # False, too, for a name that is too long
                yield f"data.{name}", f"there is no file {source!r}; `rg-env dataset --out {quote(source)}` makes one"
            elif fault := _fault_of_row(path, cfg.environment.env_class):
                yield f"data.{name}", f"the rows of {source!r} {fault}"


def _fault_of_row(path: Path, env_class: str) -> str:
    """Say why the first row of a file cannot be trained on; "" if it can. SkyRL finds out when all is loaded."""
    row = _first_row(path)
    if not isinstance(row, Mapping):  # SkyRL says what is wrong with such a file
        return ""
    if "prompt" not in row:
        return "have no `prompt`; `rg-env dataset` writes such files, and rg_dump.tasks takes questions with answers"
    if (row.get("env_class") or env_class) == ENV_CLASS:
        try:
            Item.from_extra_info(row.get("extra_info"))
        except ConfigError:
            return (
                f"have no item of {ENV_CLASS}: set environment.env_class to that which scores them, or make them "
                f"questions with {PREFIX}.tasks={{NAME: {{file: …}}}}"
            )
    return ""


def _first_row(path: Path) -> object:
    import polars as pl

    with suppress(OSError, ValueError, pl.exceptions.PolarsError):
        if path.suffix == ".parquet":
            rows = pl.scan_parquet(path).head(1).collect().to_dicts()
            return rows[0] if rows else None
        with path.open(encoding="utf-8") as lines:
            return json.loads(lines.readline())
    return None


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


_OF_TRAINING_ROWS = ("seed", "size")
_OF_EVALUATION_ROWS = ("eval_seed", "num_eval_samples_per_task")
_OF_ALL_ROWS = ("tasks", "system_prompt", "worked_examples")


def check_typed(cfg: Any, typed: Iterable[str]) -> Mistakes:
    """Find what was typed for this run, rather than in a recipe, and says nothing of rows in files."""
    data = cfg.data
    unused: dict[str, str] = {}
    if data.train_data and data.val_data:
        unused |= dict.fromkeys(_OF_ALL_ROWS, "data.train_data and data.val_data")
    if data.train_data:
        unused |= dict.fromkeys(_OF_TRAINING_ROWS, "data.train_data")
    if data.val_data:
        unused |= dict.fromkeys(_OF_EVALUATION_ROWS, "data.val_data")
    for name, files in unused.items():
        setting = f"{PREFIX}.{name}"
        if any(is_within(other, setting) for other in typed):
            yield setting, f"has no effect with {files}, whose rows are complete"


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


TOGETHER = (check_rows, *combinations.CHECKS, check_resumption, check_checkpoint)


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
    return {role: workers_of(cfg, role) // value_of(trainer, f"{role}.sequence_parallel_size") for role in roles}


def check_models(cfg: Any) -> None:
    policy = cfg.trainer.policy.model.path
    # Of a model of the hub, `check_hub_models` looks at the tokenizer.
    if os.path.isdir(policy):
        tokenizer = check_tokenizer(MODELS[0], Path(policy), cfg.generator.chat_template.name_or_path)
        _check_tags(cfg, tokenizer)
        _check_vision(cfg)


def _check_tags(cfg: Any, tokenizer: Any) -> None:
    """Refuse, or warn of, what the policy's template and tokenizer do to the tags. Rows of files have prompts of their
    own."""
    if cfg.data.train_data or cfg.environment.env_class != ENV_CLASS:
        return
    warnings = check_tags(MODELS[0], cfg.trainer.policy.model.path, tokenizer, cfg.rg_dump, template_options(cfg))[1]
    for warning in warnings:
        logger.warning(warning)


def _check_vision(cfg: Any) -> None:
    """Refuse a model with a vision part where SkyRL removes padding: it stops in the first training step."""
    from transformers import PretrainedConfig

    trainer, path = cfg.trainer, cfg.trainer.policy.model.path
    if not trainer.remove_microbatch_padding or trainer.strategy == "megatron" or trainer.policy.language_model_only:
        return
    values, _ = PretrainedConfig.get_config_dict(path)
    right = "the model has a vision part, for which SkyRL removes no padding; set trainer.remove_microbatch_padding="
    right += f"false, or language_model_only=true of trainer.policy, trainer.ref and {ENGINE}"
    need(not values.get("vision_config"), MODELS[0], path, right)


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


def check_hub_models(cfg: Any) -> None:
    """Refuse hub models whose configuration cannot be loaded. A cluster finds out by itself."""
    if os.environ.get("RAY_ADDRESS"):
        return
    for path, setting in models_of(cfg).items():
        if os.path.isdir(path):
            continue
        check_hub_model(setting, path)
        if setting == MODELS[0]:
            with suppress(OSError, ValueError):  # the run itself says what cannot be loaded
                _check_tags(cfg, load_tokenizer(path))
                _check_vision(cfg)


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
