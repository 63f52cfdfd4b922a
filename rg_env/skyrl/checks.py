"""What is checked before a run starts.

Invariant: a check passes or raises a `ConfigError` that says in one line what is wrong and how to fix it. None starts
anything, downloads a model, or leaves a file or folder behind. `check_quickly` imports neither torch nor Ray. Types come
from SkyRL's dataclasses and names from its registries; what SkyRL's `validate_cfg` refuses keeps SkyRL's words. Listed
here is what SkyRL finds only after the models are loaded, or never. Not covered: whether a model fits into memory.
"""  # noqa: E501

from __future__ import annotations

import functools
import http.client
import importlib.util
import json
import os
import re
import socket
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from loguru import logger

from rg_env.config import PREFIX
from rg_env.cpu.settings import SamplingParams, cpu_threads, uses_server
from rg_env.dataset import ENV_CLASS, scales_of
from rg_env.dump.files import try_folder
from rg_env.errors import ConfigError, UnavailableError, did_you_mean, need, one_line, refuse
from rg_env.prompts import check_worked_examples, format_warning, resolve_system_prompt
from rg_env.settings import check_value
from rg_env.tasks import TaskMix

NANO = "nano"
"""Accepted as a model path: the small policy that comes with rg_env."""
_ENGINE = "generator.inference_engine"
_ROLES = ("policy", "ref", "critic")
_MODELS = tuple(f"trainer.{role}.model.path" for role in _ROLES)
_FOLDERS = (f"{PREFIX}.dump_dir", "trainer.ckpt_path", "trainer.export_path", "trainer.log_path")
_LONGEST_REASON = 200


def check_quickly(cfg: Any) -> None:
    """The checks that need no heavy import. `cfg` is an `RGTrainConfig` that SkyRL has not completed yet."""
    cfg.rg_dump.validate()
    check_folders(cfg)
    check_model_paths(cfg)
    check_prompts_and_rows(cfg)
    check_loops(cfg)
    if cfg.rg_dump.device == "cpu":
        check_cpu(cfg)


def check_all(cfg: Any, *, tolerate: Callable[[UnavailableError], None] | None = None) -> None:
    """The remaining checks; those that ask other machines come last.

    Args:
        cfg: an `RGTrainConfig`. SkyRL's own checks also complete it.
        tolerate: called with what is not available here, which is otherwise raised.
    """
    check_registered(cfg)
    if cfg.rg_dump.device != "cpu":
        _available(tolerate, check_gpus, cfg)
    check_models(cfg)
    _ask_skyrl(cfg)
    _available(tolerate, check_hub_models, cfg)
    _available(tolerate, check_servers, cfg)


def _available(tolerate: Callable[[UnavailableError], None] | None, check: Callable[[Any], None], cfg: Any) -> None:
    try:
        check(cfg)
    except UnavailableError as error:
        if tolerate is None:
            raise
        tolerate(error)


def _ask_skyrl(cfg: Any) -> None:
    """SkyRL's own checks, their assertions as one line."""
    from skyrl.train.utils import validate_cfg

    if os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        os.environ.setdefault("WANDB_API_KEY", "none")  # SkyRL wants one although nothing is sent
    try:
        validate_cfg(cfg)
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1].line or ""
        condition = where.removeprefix("assert ").replace("cfg.", "")
        raise ConfigError(one_line(str(error) or f"SkyRL requires {condition}")) from error
    trainer, samples = cfg.trainer, cfg.generator.n_samples_per_prompt
    workers = trainer.placement.policy_num_nodes * trainer.placement.policy_num_gpus_per_node
    workers //= trainer.policy.sequence_parallel_size if trainer.strategy != "megatron" else workers
    responses = trainer.policy_mini_batch_size * samples
    need(
        responses % workers == 0,  # SkyRL rounds down
        "trainer.policy_mini_batch_size",
        trainer.policy_mini_batch_size,
        f"{responses} responses of a mini-batch do not divide by {workers} policy workers",
    )


# ---------------------------------------------------------------------------------------------------- single settings
_AT_LEAST = {
    1: """epochs max_training_steps update_epochs_per_batch train_batch_size eval_batch_size policy_mini_batch_size
        critic_mini_batch_size micro_train_batch_size_per_gpu micro_forward_batch_size_per_gpu max_prompt_length
        max_input_length max_generate_length max_turns n_samples_per_prompt eval_n_samples_per_prompt num_engines
        sequence_parallel_size tensor_parallel_size pipeline_parallel_size data_parallel_size policy_num_nodes
        policy_num_gpus_per_node ref_num_nodes ref_num_gpus_per_node critic_num_nodes critic_num_gpus_per_node""",
    0: "lr weight_decay max_grad_norm num_warmup_steps kl_loss_coef seed temperature max_staleness_steps num_workers",
    -1: "eval_interval ckpt_interval hf_save_interval max_ckpts_to_keep top_k",
}
_LIMITS: dict[str, Mapping[str, Any]] = {
    **{name: {"at_least": least} for least, names in _AT_LEAST.items() for name in names.split()},
    "ckpt_path": {"filled": True},
    "export_path": {"filled": True},
    "log_path": {"filled": True},
    "top_p": {"above": 0, "at_most": 1},
    "min_p": {"at_least": 0, "at_most": 1},
    "gpu_memory_utilization": {"above": 0, "at_most": 1},
    "strategy": {"choices": ("fsdp", "fsdp2", "megatron")},
    "kl_estimator_type": {"choices": ("k1", "k2", "k3", "abs")},
    "backend": {"choices": ("vllm",)},
    "trainer.algorithm.dynamic_sampling.type": {"choices": ("filter", "replace")},
    "trainer.algorithm.kl_ctrl.type": {"choices": ("fixed", "adaptive")},
}
"""Name of a setting of SkyRL, or its last part → its limits, as `check_value` takes them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as its dataclass declares it: type, limits, and whether it may have parts with any names."""

    kind: Any
    limits: Mapping[str, Any]
    free_form: bool


def limits_of(setting: str) -> Mapping[str, Any]:
    """The limits of one of SkyRL's settings; empty if only its type is checked."""
    return _LIMITS.get(setting) or _LIMITS.get(setting.rpartition(".")[2]) or {}


def value_of(cfg: Any, setting: str) -> Any:
    """The value of a dotted setting, such as `trainer.policy.model.path`; of an enumeration, its text."""
    value = functools.reduce(getattr, setting.split("."), cfg)
    return getattr(value, "value", value)


def require(cfg: Any, setting: str, ok: object, right: str) -> None:
    """Raise `setting=value: right` as a ConfigError unless `ok`."""
    need(ok, setting, value_of(cfg, setting), right)


def check_setting(key: str, value: Any, known: Mapping[str, Setting]) -> None:
    """Check that a setting exists, and its value by type and limits.

    Args:
        key: dotted; may be inside a free-form setting (`….tasks.chain_sum`), where anything is accepted.
        known: every setting of a run by its dotted name.

    Raises:
        ConfigError: one line. For an unknown setting, it names similar ones.
    """
    parts = key.split(".")
    parent = next((name for n in range(1, len(parts)) if (name := ".".join(parts[:n])) in known), None)
    if setting := known.get(key):
        check_value(key, value, setting.kind, setting.limits)
    elif parent:
        need(known[parent].free_form, key, value, f"unknown setting; {parent} has no parts")
    elif member := next((name for name in known if name.startswith(f"{key}.")), None):
        if value is not None:  # null leaves out an optional group; SkyRL checks which are
            raise ConfigError(f"{key} is a group of settings; set one of them, such as {member}")
    else:
        listed = f"docs/settings.md lists those of {PREFIX}, and skyrl/train/config/config.py all others"
        raise ConfigError(f"unknown setting {key!r}; {_similar(key, known) or listed}")


def _similar(key: str, known: Iterable[str]) -> str:
    """Asks for the settings whose last part is similar, if there are at most three."""
    by_leaf: dict[str, list[str]] = {}
    for name in known:
        by_leaf.setdefault(name.rpartition(".")[2], []).append(name)
    leaves = get_close_matches(key.rpartition(".")[2], by_leaf, n=1, cutoff=0.8)
    names = [name for leaf in leaves for name in by_leaf[leaf]]
    names = get_close_matches(key, names, n=1, cutoff=0.8) or names
    return f"did you mean {' or '.join(names)}?" if 0 < len(names) <= 3 else ""


def check_registered(cfg: Any) -> None:
    """Check the names in registries that SkyRL looks up late. Imports torch."""
    from skyrl.train.utils.tracking import Tracking
    from skyrl.train.utils.trainer_utils import ResumeMode
    from transformers.trainer_utils import SchedulerType

    schedulers = [kind.value for kind in SchedulerType]
    registered = {
        "trainer.logger": Tracking.supported_backends,
        "trainer.resume_mode": [mode.value for mode in ResumeMode],
        "trainer.policy.optimizer_config.scheduler": schedulers,
        "trainer.critic.optimizer_config.scheduler": schedulers,
    }
    for setting, names in registered.items():
        check_value(setting, value_of(cfg, setting), str | None, {"choices": names})
    tracker = cfg.trainer.logger
    installed = tracker == "console" or importlib.util.find_spec(tracker)
    require(cfg, "trainer.logger", installed, f"the package {tracker} is not installed; install it or use console")


# ---------------------------------------------------------------------------------------- folders, prompts and rows
def check_folders(cfg: Any) -> None:
    """Refuse a folder of the run that cannot be written, and leave nothing behind. Paths with `://` are not checked."""
    for setting in _FOLDERS:
        path = str(value_of(cfg, setting))
        try:
            if "://" not in path:
                try_folder(Path(path).expanduser())
        except OSError as error:
            refuse(setting, path, f"the folder cannot be written ({error.strerror}); choose another one")


def check_prompts_and_rows(cfg: Any) -> None:
    """Tasks, prompt, data files, and what of the groups is kept."""
    import skyrl_gym

    rg, data, batch = cfg.rg_dump, cfg.data, cfg.trainer.train_batch_size
    known = [ENV_CLASS, *skyrl_gym.registry] if data.train_data or data.val_data else [ENV_CLASS]
    right = f"must be {ENV_CLASS}; others need rows of their own in data.train_data"
    if len(known) > 1:
        right = f"must be one of {', '.join(known)}"
    name = cfg.environment.env_class
    require(cfg, "environment.env_class", name in known, did_you_mean(name, known, right).removeprefix("; "))
    for name in ("train_data", "val_data"):
        for source in getattr(data, name):
            if source.endswith((".parquet", ".json", ".jsonl")) and not Path(source).expanduser().is_file():
                raise ConfigError(f"data.{name}: no file {source!r}; `rg-env dataset --out {source}` makes one")
    mix = TaskMix.parse(rg.tasks)
    if data.train_data:
        require(cfg, f"{PREFIX}.complexity", rg.complexity is None, "has no effect with data.train_data")
    else:
        require(cfg, f"{PREFIX}.size", rg.size >= batch, f"must be at least trainer.train_batch_size={batch}")
        scales_of(mix, rg.complexity)
    complete_at = rg.length_penalty.max_length or cfg.generator.sampling_params.max_generate_length
    fits = rg.length_penalty.buffer is None or rg.length_penalty.buffer <= complete_at
    right = f"must be at most the length at which the penalty is complete, {complete_at}"
    require(cfg, f"{PREFIX}.length_penalty.buffer", fits, right)
    system_prompt = resolve_system_prompt(rg.system_prompt)
    check_worked_examples(rg.worked_examples, rg.format)
    options = {"format": rg.format, "prefilled_think": rg.prefilled_think, "setting": f"{PREFIX}.format"}
    warning = format_warning(system_prompt, rg.worked_examples, **options)
    if warning and not data.train_data:
        logger.warning(warning)
    if rg.dump_rollouts and rg.rollout_save_score_threshold == 1:
        logger.warning(
            f"{PREFIX}.rollout_save_score_threshold=1.0: no score is above it, so the text of no solved group is kept; "
            "lower it"
        )


# --------------------------------------------------------------------------------------------------------------- loops
_NEEDS_GROUPS = ("grpo", "rloo", "maxrl")
"""Advantage estimators that compare a response with the others of its group."""
_ROLLOUT_LOSSES = ("rollout_is", "dppo")
"""Losses that use the sampler's logprobs; cispo does with `cispo_anchor=rollout`."""


def check_loops(cfg: Any) -> None:
    """Refuse combinations that die in the first step, or that a checkpoint cannot continue."""
    trainer, generator, algorithm = cfg.trainer, cfg.generator, cfg.trainer.algorithm
    estimator = value_of(cfg, "trainer.algorithm.advantage_estimator")
    loss = value_of(cfg, "trainer.algorithm.policy_loss_type")
    uses_rollout = loss in _ROLLOUT_LOSSES or (loss == "cispo" and algorithm.cispo.cispo_anchor == "rollout")
    sampling = algorithm.dynamic_sampling.type
    several_rows = generator.step_wise_trajectories and generator.max_turns > 1
    rules: list[tuple[str, object, str]] = [
        (
            "generator.n_samples_per_prompt",
            generator.n_samples_per_prompt > 1 or estimator not in _NEEDS_GROUPS,
            f"{estimator} compares the responses of a group, so a group needs at least 2",
        ),
        (
            "generator.merge_stepwise_output",
            not (generator.merge_stepwise_output and sampling),
            "SkyRL cannot merge the rows of groups that dynamic sampling has changed; set it to false",
        ),
        (
            "trainer.algorithm.dynamic_sampling.type",
            not (several_rows and sampling),
            "SkyRL selects single rows, and step-wise trajectories of several turns have several; set it to null",
        ),
        (
            "generator.chat_template.name_or_path",
            not generator.chat_template.name_or_path or generator.sampling_params.logprobs is None,
            "SkyRL has no logprobs with a template of its own; add chat_template.jinja to the model's folder instead",
        ),
    ]
    if trainer.fully_async.enabled:
        mini, settings = trainer.policy_mini_batch_size, trainer.fully_async
        most = mini * (settings.max_staleness_steps + 1)
        rules += [
            (
                "trainer.fully_async.simulate_training",
                not settings.simulate_training,
                "a simulated training trains nothing; set it to false",
            ),
            (
                "trainer.policy_mini_batch_size",
                trainer.train_batch_size == mini,
                "the fully-async loop trains on one mini-batch per step; set it to "
                f"trainer.train_batch_size={trainer.train_batch_size}",
            ),
            (
                "trainer.fully_async.num_parallel_generation_workers",
                mini <= settings.num_parallel_generation_workers <= most,
                f"must be at least trainer.policy_mini_batch_size={mini} and at most {most}, "
                "which is that × (trainer.fully_async.max_staleness_steps + 1)",
            ),
            (
                "trainer.algorithm.policy_loss_type",
                uses_rollout,
                "when the fully-async loop trains, the weights that sampled are gone; use a loss with the sampler's "
                "logprobs: rollout_is, dppo, or cispo with trainer.algorithm.cispo.cispo_anchor=rollout",
            ),
            (
                "trainer.algorithm.dynamic_sampling.type",
                sampling is None,
                "the fully-async loop does not support it; use trainer.fully_async.sample_full_batch instead",
            ),
            (
                "trainer.fully_async.sample_full_batch",
                algorithm.zero_variance_filter or not settings.sample_full_batch,
                "also needs trainer.algorithm.zero_variance_filter=true",
            ),
            (
                "generator.batched",
                not generator.batched,
                "the fully-async loop must be able to pause single responses; set it to false",
            ),
            (
                "trainer.placement.colocate_all",
                not trainer.placement.colocate_all,
                "the fully-async loop samples while it trains, on separate GPUs; set it to false",
            ),
        ]
    for setting, ok, right in rules:
        require(cfg, setting, ok, right)
    correction = algorithm.off_policy_correction
    corrects = correction.tis_ratio_type or correction.sequence_mask_metric
    if (uses_rollout or corrects) and (cfg.rg_dump.device != "cpu" or uses_server(generator.inference_engine)):
        mode = (generator.inference_engine.engine_init_kwargs or {}).get("logprobs_mode")
        require(
            cfg,
            "generator.sampling_params.temperature",
            generator.sampling_params.temperature == 1.0 or mode == "processed_logprobs",
            "vLLM returns the logprobs of temperature 1 at any temperature, and this loss or off-policy correction "
            f"would compare them with the trainer's; set it to 1.0, or {_ENGINE}.engine_init_kwargs."
            "logprobs_mode=processed_logprobs",
        )
    _check_resumption(cfg)


def _check_resumption(cfg: Any) -> None:
    """Refuse a checkpoint that cannot be resumed from."""
    trainer, mode = cfg.trainer, value_of(cfg, "trainer.resume_mode")
    if mode == "from_path":
        setting, path = "trainer.resume_path", str(trainer.resume_path or "")
        right = "trainer.resume_mode=from_path needs a checkpoint, such as …/global_step_40"
        require(cfg, setting, "global_step_" in Path(path).name, right)
        require(cfg, setting, "://" in path or Path(path).is_dir(), "there is no such folder")
    right = (
        f"SkyRL cannot resume from {trainer.ckpt_path} with that; set it to 0 to write no more checkpoints, "
        "or set trainer.resume_mode=none for a new run"
    )
    require(
        cfg,
        "trainer.ckpt_interval",
        mode != "latest" or trainer.ckpt_interval >= 0 or not newest_file(cfg).exists(),
        right,
    )


def finished_at(cfg: Any) -> int | None:
    """The last step of the run that `latest` would resume, if there is nothing left to train; else None.

    SkyRL would start everything, evaluate and, with `max_training_steps`, train one step more. Not recognized: a run on
    files that is limited by its epochs, because how many of their rows are too long is not known yet.
    """
    trainer = cfg.trainer
    newest = newest_step(cfg)
    if value_of(cfg, "trainer.resume_mode") != "latest" or newest is None:
        return None
    limits = [] if trainer.max_training_steps is None else [trainer.max_training_steps]
    if not cfg.data.train_data:
        limits.append(cfg.rg_dump.size // trainer.train_batch_size * trainer.epochs)
    return newest if limits and newest >= min(limits) else None


def newest_file(cfg: Any) -> Path:
    """Where SkyRL notes the step of the newest checkpoint."""
    return Path(cfg.trainer.ckpt_path, "latest_ckpt_global_step.txt")


def newest_step(cfg: Any) -> int | None:
    """The step of the newest checkpoint in a local folder; None if there is none."""
    try:
        return int(newest_file(cfg).read_text())
    except (OSError, ValueError):
        return None


# ------------------------------------------------------------------------------------------------------------- models
def check_model_paths(cfg: Any) -> None:
    """Refuse a model path that is neither a folder, a hub model nor `nano`, and a run without a policy."""
    known = f"a hub model such as Qwen/Qwen2.5-1.5B-Instruct, or `{NANO}`"
    need(cfg.trainer.policy.model.path, _MODELS[0], None, f"it is not set; name a model folder, {known}")
    for setting in _MODELS:
        path = value_of(cfg, setting)
        folder = Path(path or ".").expanduser()
        if folder.is_dir():
            need(
                path in (None, "") or (folder / "config.json").is_file(), setting, path, "the folder has no config.json"
            )
        elif path != NANO:
            is_name = not folder.exists() and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)
            need(is_name, setting, path, f"there is no such folder; name an existing one, {known}")


def check_models(cfg: Any) -> None:
    """Check the model folders of policy, reference and critic, and the policy's tokenizer."""
    for setting in _MODELS:
        path = value_of(cfg, setting)
        if path and Path(path).expanduser().is_dir():
            folder = ModelFolder(Path(path).expanduser(), setting)
            folder.check_weights()
            if setting == _MODELS[0]:
                folder.check_tokenizer(cfg.generator.chat_template.name_or_path)


def check_hub_models(cfg: Any) -> None:
    """Raises UnavailableError if the configuration of a hub model cannot be loaded. A cluster finds out by itself."""
    from huggingface_hub import constants, try_to_load_from_cache

    for setting in _MODELS if not os.environ.get("RAY_ADDRESS") else ():
        path = value_of(cfg, setting)
        if not path or Path(path).is_dir() or isinstance(try_to_load_from_cache(path, "config.json"), str):
            continue
        try:
            if constants.HF_HUB_OFFLINE:
                raise OSError("HF_HUB_OFFLINE is set")
            url = f"{constants.ENDPOINT}/{path}/resolve/main/config.json"
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_SECONDS).close()
        except (OSError, http.client.HTTPException) as error:
            why = one_line(getattr(error, "reason", None) or error, _LONGEST_REASON)
            raise UnavailableError(
                f"{setting}={path!r}: download it with `hf download {path}`, or name a folder ({why})"
            ) from None


@dataclass
class ModelFolder:
    """A folder that `setting` names. The checks raise ConfigError."""

    path: Path
    setting: str

    def refuse(self, what: str) -> NoReturn:
        refuse(self.setting, str(self.path), what)

    def check_weights(self) -> None:
        """Refuse a folder without a complete model."""
        from transformers import PretrainedConfig

        try:
            config, _ = PretrainedConfig.get_config_dict(self.path)
            files = {path.name for path in self.path.iterdir()}
            indices = files & {"model.safetensors.index.json", "pytorch_model.bin.index.json"}
            shards = {
                shard
                for index in indices
                for shard in json.loads((self.path / index).read_text())["weight_map"].values()
            }
        except Exception as error:  # a broken file can raise anything
            self.refuse(
                f"its config.json or the index of its weights cannot be loaded ({one_line(error, _LONGEST_REASON)})"
            )
        if "model_type" not in config:
            self.refuse("config.json has no model_type, so this is not a transformers model")
        if missing := sorted(shards - files):
            self.refuse(f"{len(missing)} of {len(shards)} weight files are missing, {missing[0]} first")
        if not any(name.endswith((".safetensors", ".bin")) for name in files):
            more = "; a GGUF file has to be converted first" if any(name.endswith(".gguf") for name in files) else ""
            self.refuse(f"the folder has no weights (model.safetensors){more}")

    def check_tokenizer(self, other_template: str | None = None) -> None:
        """Refuse a tokenizer that cannot write a prompt, or ends an answer differently from its chat template.

        Args:
            other_template: the template that replaces the tokenizer's, as SkyRL's `generator.chat_template` names it.
        """
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.path, trust_remote_code=True)
        except Exception as error:  # a broken file can raise anything
            reason = one_line(error, _LONGEST_REASON)
            self.refuse(f"its tokenizer cannot be loaded ({reason}); copy tokenizer.json and tokenizer_config.json")
        if tokenizer.eos_token is None:
            self.refuse(
                "the tokenizer has no eos token, so no answer would ever end; set eos_token in tokenizer_config.json"
            )
        if not tokenizer.chat_template:
            self.refuse(
                "the tokenizer has no chat template; use the model's instruct version, or add chat_template.jinja to "
                "the folder"
            )
        if not other_template:
            self._check_end(tokenizer)

    def _check_end(self, tokenizer: Any) -> None:
        """The token that the template puts after an answer must be one that ends generation."""
        from transformers import GenerationConfig

        answer = "An answer."
        talk = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": answer}]
        try:
            text = str(tokenizer.apply_chat_template(talk, tokenize=False))
        except Exception as error:  # templates can raise anything
            self.refuse(f"its chat template fails on a plain chat ({one_line(error, _LONGEST_REASON)})")
        before, _, after = text.rpartition(answer)
        after = after.strip()
        if not before or not after:
            return  # the template rewrites answers or ends them with nothing: there is nothing to compare
        ends: Any = None
        with suppress(OSError):  # there is no generation_config.json
            ends = GenerationConfig.from_pretrained(self.path).eos_token_id
        ids = [token for token in (ends if isinstance(ends, list) else [ends]) if token is not None]
        if not after.startswith((tokenizer.eos_token, *tokenizer.convert_ids_to_tokens(ids))):
            used = next((token for token in tokenizer.all_special_tokens if after.startswith(token)), after.split()[0])
            self.refuse(
                f"the chat template ends an answer with {used!r}, but the tokenizer's eos is {tokenizer.eos_token!r}, "
                f"so generation would not stop; set eos_token to {used!r} in tokenizer_config.json"
            )


# ------------------------------------------------------------------------------------------------ what a machine has
_RAY_FOLDER = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray")
"""Where `ray start` leaves the address of the cluster."""
_SECONDS = 5.0
_BFLOAT16 = "set it to false; to compute in bfloat16 set trainer.policy.fsdp_config.mixed_precision.param_dtype=bf16"
_ON_CPU: dict[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(
        (
            *("trainer.flash_attn", "trainer.remove_microbatch_padding", "trainer.placement.colocate_all"),
            *("trainer.policy.torch_profiler_config.enable", "trainer.policy.record_memory", f"{_ENGINE}.enable_pd"),
            *(f"{_ENGINE}.enable_return_routed_experts", f"{_ENGINE}.enable_return_sample_support_set"),
            *("trainer.algorithm.enable_sample_support_replay", "generator.vision_language_generator"),
            *(f"trainer.{role}.fsdp_config.cpu_offload" for role in _ROLES),
        ),
        ((False,), "set it to false"),
    ),
    **{f"trainer.{role}.sequence_parallel_size": ((1,), "set it to 1") for role in _ROLES},
    **{
        f"trainer.placement.{role}_num_gpus_per_node": ((1,), f"set it to 1, and {role}_num_nodes to the workers")
        for role in _ROLES
    },
    "trainer.strategy": (("fsdp", "fsdp2"), "use fsdp"),
    "trainer.bf16": ((False,), _BFLOAT16),
    "trainer.policy.model.lora.rank": ((0,), "the sampler loads whole models; set it to 0"),
    f"{_ENGINE}.model_dtype": (("float32", "bfloat16"), "use float32 or bfloat16"),
    f"{_ENGINE}.num_engines": ((1,), "there is one sampler; set it to 1"),
    f"{_ENGINE}.fp8_weight_sync_mode": ((None,), "set it to null"),
}
"""Setting → values with which a CPU run works, and advice for others."""


def check_cpu(cfg: Any) -> None:
    """Refuse what cannot work on the CPU."""
    allowed = dict(_ON_CPU)
    for role in _ROLES:
        precision = f"trainer.{role}.fsdp_config.mixed_precision"
        if value_of(cfg, precision):
            kinds = (f"{precision}.param_dtype", f"{precision}.reduce_dtype")
            allowed |= dict.fromkeys(kinds, (("bf16", "fp32"), "use bf16 or fp32"))
    for setting, (values, right) in allowed.items():
        require(cfg, setting, value_of(cfg, setting) in values, f"cannot run on the CPU; {right}")
    engine = cfg.generator.inference_engine
    if uses_server(engine):
        right = "name the vLLM server, such as http://127.0.0.1:8000; SkyRL's router does not run on the CPU"
        require(cfg, f"{_ENGINE}.external_proxy_url", engine.external_proxy_url, right)
    else:  # vLLM supports more of them than our sampler
        for name in ("sampling_params", "eval_sampling_params"):
            _check_sampling_params(f"generator.{name}", getattr(cfg.generator, name))
    cpu_threads()


def _check_sampling_params(where: str, params: Any) -> None:
    if params is None:
        return
    # SkyRL passes repetition_penalty to no engine: setting it would silently do nothing.
    names = ("temperature", "top_p", "top_k", "min_p", "logprobs", "stop", "repetition_penalty")
    known = {"max_tokens": params.max_generate_length, **{name: getattr(params, name) for name in names}}
    try:
        SamplingParams.from_vllm({**(params.additional_kwargs or {}), **known})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def check_gpus(cfg: Any) -> None:
    """Raises UnavailableError if this machine has too few GPUs. In a cluster that the run would join, Ray decides."""
    if os.environ.get("RAY_ADDRESS") or _ray_is_running():
        return
    import torch

    have = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not have:
        raise UnavailableError(
            f"{PREFIX}.device={cfg.rg_dump.device!r}: this machine has no GPU and RAY_ADDRESS names no cluster; "
            f"configs/cpu/ has the same algorithms for {PREFIX}.device=cpu"
        )
    needed = gpus_needed(cfg)
    if needed > have:
        raise UnavailableError(
            f"this run needs {needed} GPUs and this machine has {have}: lower trainer.placement.*_num_gpus_per_node "
            "and generator.inference_engine.num_engines, or name a larger cluster in RAY_ADDRESS (docs/gpu.md)"
        )


def _ray_is_running() -> bool:
    """Whether a Ray that `ray start` started on this machine answers; SkyRL joins it."""
    with suppress(OSError, ValueError):
        host, _, port = (_RAY_FOLDER / "ray_current_cluster").read_text().strip().rpartition(":")
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    return False


def gpus_needed(cfg: Any) -> int:
    """GPUs that SkyRL will claim, over all nodes."""
    placement, algorithm, engine = cfg.trainer.placement, cfg.trainer.algorithm, cfg.generator.inference_engine

    def gpus_of(role: str) -> int:
        return int(getattr(placement, f"{role}_num_nodes") * getattr(placement, f"{role}_num_gpus_per_node"))

    needed = gpus_of("policy")
    if placement.colocate_all:
        return needed
    if (algorithm.use_kl_loss or algorithm.use_kl_in_reward) and not placement.colocate_policy_ref:
        needed += gpus_of("ref")
    if cfg.trainer.critic.model.path:
        needed += gpus_of("critic")
    width = engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size
    return needed + (int(engine.num_engines * width) if engine.run_engines_locally else 0)


def check_servers(cfg: Any) -> None:
    """Ask each vLLM server in `generator.inference_engine` for its models and routes; SkyRL would retry for minutes.

    Raises:
        ConfigError: one line for the first server that cannot be used; UnavailableError if none answers.
    """
    engine = cfg.generator.inference_engine
    urls = dict.fromkeys(engine.external_server_urls or [], f"{_ENGINE}.external_server_urls")
    if engine.external_proxy_url:
        urls[engine.external_proxy_url] = f"{_ENGINE}.external_proxy_url"
    for url, setting in urls.items():
        _check_model_of(cfg, url, setting)
        if cfg.rg_dump.device == "cpu":
            _check_routes(url, setting)
    if urls and cfg.rg_dump.device == "cpu":
        from transformers import AutoConfig

        model = cfg.trainer.policy
        config = AutoConfig.from_pretrained(model.model.path, **model.model_config_kwargs).get_text_config()
        right = (
            "its input and output embeddings are tied, and vLLM on a CPU keeps the old output embeddings when it "
            f"reloads weights; remove {_ENGINE}.external_proxy_url and external_server_urls to use rg_env's sampler"
        )
        require(cfg, "trainer.policy.model.path", not config.tie_word_embeddings, right)


def _check_model_of(cfg: Any, url: str, setting: str) -> None:
    wanted = cfg.generator.inference_engine.served_model_name or cfg.trainer.policy.model.path
    try:
        models = {str(model["id"]): model for model in _get(url, "v1/models")["data"]}
    except (
        urllib.error.HTTPError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        http.client.HTTPException,
    ) as error:
        if isinstance(error, ValueError) and "url type" in str(error):
            refuse(setting, url, "must be an address such as http://127.0.0.1:8000")
        refuse(setting, url, f"something answers there, but not a vLLM server ({one_line(error)})")
    except OSError as error:
        more = f"no server answers ({one_line(error)}); start one, for example with scripts/serve_vllm.sh"
        raise UnavailableError(f"{setting}={url!r}: {more}") from error
    if wanted not in models:
        names = ", ".join(map(repr, models)) or "nothing"
        more = f"start it with that model, or set {_ENGINE}.served_model_name to the name that it has there"
        refuse(setting, url, f"the server has {names}, not {wanted!r}; {more}")
    room = models[wanted].get("max_model_len")
    needed = cfg.trainer.max_prompt_length + cfg.generator.sampling_params.max_generate_length
    right = (
        f"the server has room for {room} tokens, but trainer.max_prompt_length and generator.sampling_params."
        f"max_generate_length add up to {needed}; start it with --max-model-len {needed}"
    )
    need(not isinstance(room, int) or needed <= room, setting, url, right)


def _check_routes(url: str, setting: str) -> None:
    """A server that takes new weights from a file, as in a CPU run, is a plain vLLM with these routes."""
    try:
        routes = str(_get(url, "openapi.json"))
    except (OSError, ValueError) as error:
        refuse(setting, url, f"the server does not list its routes ({one_line(error)})")
    samples = "/inference/v1/generate"
    lacks = f"SkyRL samples from {samples}, which it lacks; start it with --enable-scale-out"
    need(samples in routes, setting, url, lacks)
    need(
        "/collective_rpc" in routes,
        setting,
        url,
        "the server takes no new weights; start it with VLLM_SERVER_DEV_MODE=1",
    )


def _get(url: str, route: str) -> Any:
    with urllib.request.urlopen(f"{url.rstrip('/')}/{route}", timeout=_SECONDS) as answer:
        return json.load(answer)
