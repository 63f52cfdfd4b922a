"""Settings of SkyRL 0.4.0 that do not fit together.

Invariant: what trains on nothing, does nothing, or ends the run only when the models are loaded is a mistake; what
trains, but on something else than one would think, is a warning. All of it follows from the config alone, and no check
imports torch or Ray.
Not covered: what SkyRL's `validate_cfg` refuses by itself, and losses or estimators of the user's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loguru import logger

from rg_env.configuration.config import PREFIX
from rg_env.configuration.settings import value_of
from rg_env.skyrl.cpu.cpu_settings import uses_server

ENGINE = "generator.inference_engine"
ROLES = ("policy", "ref", "critic")
COMPARE_A_GROUP = ("grpo", "rloo", "maxrl")
"""SkyRL's advantage estimators for which the rewards of a group are relative to each other."""
NOT_BATCHED = "its responses would be scored one after another once the last one is there; set it to false"

Mistakes = Iterator[tuple[str, str]]
"""Settings with wrong values, and what would be right."""

_ALGORITHM = "trainer.algorithm"
_CORRECTION = f"{_ALGORITHM}.off_policy_correction"
_SAME = "all responses to a question would be the same"


# ------------------------------------------------------------------------------------------------- what is generated
OWN_NAMES = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "logprobs", "stop")},
    "max_tokens": "max_generate_length",
    **dict.fromkeys(("min_tokens", "skip_special_tokens", "include_stop_str_in_output"), ""),
}
"""What SkyRL sends with every request, whatever `additional_kwargs` says, with the setting that it is from, if any."""


def check_sampling(cfg: Any) -> Mistakes:
    """How responses are sampled, in training and in evaluations."""
    generator = cfg.generator
    sizes = {"sampling_params": generator.n_samples_per_prompt}
    sizes["eval_sampling_params"] = generator.eval_n_samples_per_prompt
    for name, samples in sizes.items():
        params, group = getattr(generator, name), f"generator.{name}"
        if params.repetition_penalty != 1:
            right = f"SkyRL passes it to no engine; set {group}.additional_kwargs.repetition_penalty"
            yield f"{group}.repetition_penalty", right
        extra = params.additional_kwargs or {}
        for own in sorted(extra.keys() & OWN_NAMES.keys()):  # get_vllm_sampling_params
            right = f"set {group}.{OWN_NAMES[own]} instead" if OWN_NAMES[own] else "leave it out"
            yield f"{group}.additional_kwargs", f"SkyRL drops {own} and sends its own; {right}"
        if samples > 1 and extra.get("seed") is not None:
            yield f"{group}.additional_kwargs", f"SkyRL sends its seed with every request, so {_SAME}; leave it out"
        if samples > 1 and params.temperature == 0:
            length = f" and {group}.max_generate_length={params.max_generate_length}"
            yield f"{group}.temperature", f"{_SAME}; set it to 1.0{length if name.startswith('eval') else ''}"


def check_generator(cfg: Any) -> Mistakes:
    """What the generator cannot do."""
    generator, dynamic_sampling = cfg.generator, cfg.trainer.algorithm.dynamic_sampling.type
    if generator.batched and cfg.rg_dump.experiment_class is None:  # another experiment may have another generator
        yield "generator.batched", NOT_BATCHED
    if generator.vision_language_generator:
        yield "generator.vision_language_generator", "rg_env's generator has only texts; set it to false"
    if generator.chat_template.name_or_path and generator.sampling_params.logprobs is not None:
        right = "SkyRL has no logprobs with a template of its own; add chat_template.jinja to the model's folder"
        yield "generator.chat_template.name_or_path", right
    if dynamic_sampling and generator.merge_stepwise_output:
        right = "SkyRL cannot merge the rows of groups that dynamic sampling has changed; set it to false"
        yield "generator.merge_stepwise_output", right
    if dynamic_sampling and generator.step_wise_trajectories and generator.max_turns > 1:
        right = "SkyRL selects single rows, and step-wise trajectories of several turns have several; set it to null"
        yield f"{_ALGORITHM}.dynamic_sampling.type", right


def warn_of_other_evaluations(cfg: Any) -> None:
    """Warn of evaluations that ask or stop otherwise than training does."""
    training, evaluation = cfg.generator.sampling_params, cfg.generator.eval_sampling_params
    if cfg.trainer.eval_interval <= 0:
        return
    # Only if the whole group is left out, SkyRL takes the length of training (`GeneratorConfig.__post_init__`).
    if evaluation.max_generate_length < training.max_generate_length:
        logger.warning(
            "generator.eval_sampling_params.max_generate_length={} cuts off responses that training allows "
            "(generator.sampling_params.max_generate_length={})",
            evaluation.max_generate_length,
            training.max_generate_length,
        )
    # After a stop string SkyRL appends the end of the text and keeps it out of the loss, so that it is never learned.
    if training.stop and list(training.stop) != list(evaluation.stop or ()):
        logger.warning(
            "training stops responses at {}, evaluations do not: set generator.eval_sampling_params.stop to the same",
            list(training.stop),
        )
    if cfg.data.train_data and not cfg.data.val_data:
        logger.warning(
            "data.val_data is empty: evaluations ask items of {}.tasks, and not of data.train_data; name a file, or "
            "set trainer.eval_interval=-1",
            PREFIX,
        )


# ---------------------------------------------------------------------------------------------- advantages and losses
def check_advantages(cfg: Any) -> Mistakes:
    """What a group's rewards become."""
    generator, algorithm, loop = cfg.generator, cfg.trainer.algorithm, cfg.trainer.fully_async
    estimator = algorithm.advantage_estimator
    if estimator in COMPARE_A_GROUP and generator.n_samples_per_prompt < 2:
        right = f"{estimator} compares the responses of a group, so a group needs at least 2"
        yield "generator.n_samples_per_prompt", right
    if estimator == "maxrl":
        negative = ""
        if cfg.rg_dump.length_penalty.kind in ("dapo", "kimi"):
            negative = f"{PREFIX}.length_penalty.kind={cfg.rg_dump.length_penalty.kind}"
        elif algorithm.use_kl_in_reward:
            negative = f"{_ALGORITHM}.use_kl_in_reward"
        if negative:
            right = f"it divides by a group's mean reward, and where {negative} makes that negative, what is bad is "
            yield f"{_ALGORITHM}.advantage_estimator", f"{right}rewarded; use grpo, or change that setting"
    if cfg.trainer.critic.model.path and estimator in ("grpo", "rloo", "maxrl", "reinforce++"):
        yield "trainer.critic.model.path", f"{estimator} has no use for a critic, which would be trained; leave it out"
    # rg_env's rewards are lists, one per token. For these SkyRL's trainer skips the filter; only its fully async
    # collector with `sample_full_batch` sums them before it looks.
    if algorithm.zero_variance_filter and not (loop.enabled and loop.sample_full_batch):
        instead = f"{_ALGORITHM}.dynamic_sampling.type=filter"
        if loop.enabled:
            instead = "trainer.fully_async.sample_full_batch=true with it"
        right = f"it does nothing here, because SkyRL filters no rewards of tokens; set {instead}"
        yield f"{_ALGORITHM}.zero_variance_filter", right


_SCALED = "SkyRL divides advantages by the number of tokens of a mini-batch before it comes to this loss"
_MOST_SCALED = 0.1
"""Bounds and coefficients from here on are those of advantages that are not divided."""


def check_loss(cfg: Any) -> Mistakes:
    """Losses that train on something else than the advantages."""
    algorithm, setting = cfg.trainer.algorithm, f"{_ALGORITHM}.policy_loss_type"
    if algorithm.policy_loss_type == "cross_entropy":
        yield setting, "it imitates every response, right or wrong, because it is for supervised fine-tuning"
    elif algorithm.policy_loss_type == "clip_cov" and algorithm.clip_cov.clip_cov_lb >= _MOST_SCALED:
        right = f"{_SCALED}, so none reaches {_ALGORITHM}.clip_cov.clip_cov_lb={algorithm.clip_cov.clip_cov_lb:g} and "
        yield setting, f"{right}nothing is clipped; divide clip_cov_lb and clip_cov_ub by it, too, or use gspo"
    elif algorithm.policy_loss_type == "kl_cov" and algorithm.kl_cov.ppo_kl_coef >= _MOST_SCALED:
        right = f"{_SCALED}, but not its KL term, which would outweigh the reward; divide {_ALGORITHM}.kl_cov."
        yield setting, f"{right}ppo_kl_coef={algorithm.kl_cov.ppo_kl_coef:g} by it, or use gspo"


_USES_NO_CORRECTION = ("importance_sampling", "cross_entropy", "clip_cov", "kl_cov")
_MASKS = ("outlier_token_is_threshold_low", "outlier_token_is_threshold_high")
_BOTH_MASKS = ("token_mask_is_threshold_low", "token_mask_is_threshold_high")


def check_correction(cfg: Any) -> Mistakes:
    """Off-policy correction, and what else compares the sampler's logprobs with the trainer's."""
    algorithm, sampling = cfg.trainer.algorithm, cfg.generator.sampling_params
    correction = algorithm.off_policy_correction
    # The cap of a setting that SkyRL calls deprecated is -1, and each ratio at most the cap.
    if algorithm.use_tis and algorithm.tis_imp_ratio_cap <= 0:
        right = f"with {_ALGORITHM}.tis_imp_ratio_cap={algorithm.tis_imp_ratio_cap:g} every gradient would be turned "
        yield f"{_ALGORITHM}.use_tis", f"{right}around; set {_CORRECTION}.tis_ratio_type=token instead"
    given = [name for name in _BOTH_MASKS if getattr(correction, name) is not None]
    if len(given) == 1:
        (other,) = {*_BOTH_MASKS} - {*given}
        yield f"{_CORRECTION}.{given[0]}", f"it does nothing without {_CORRECTION}.{other}; set both"
    used = _corrections(correction)
    loss = algorithm.policy_loss_type
    if used and loss in _USES_NO_CORRECTION:
        yield f"{_CORRECTION}.{used[0]}", f"{_ALGORITHM}.policy_loss_type={loss} corrects nothing; leave it out"
    if loss == "cispo" and algorithm.cispo.cispo_anchor == "rollout" and correction.tis_ratio_type:
        right = f"{_ALGORITHM}.cispo.cispo_anchor=rollout corrects already; set it to null"
        yield f"{_CORRECTION}.tis_ratio_type", right
    # Of the others `validate_cfg` turns logprobs on.
    has_masks = not {*used}.isdisjoint((*_MASKS, *_BOTH_MASKS))
    if sampling.logprobs is None and (has_masks or needs_rollout_logprobs(cfg)):
        yield "generator.sampling_params.logprobs", "this loss or correction compares with them; set it to 1"


def _corrections(correction: Any) -> list[str]:
    """Return the settings that turn on a correction."""
    used = [name for name in ("tis_ratio_type", "sequence_mask_metric") if getattr(correction, name)]
    used += [name for name in _MASKS if getattr(correction, name) is not None]
    # SkyRL applies this mask only if it has both ends.
    if all(getattr(correction, name) is not None for name in _BOTH_MASKS):
        used += _BOTH_MASKS
    return used


def check_temperature(cfg: Any) -> Mistakes:
    """Logprobs of one temperature that are compared with those of another."""
    algorithm, sampling = cfg.trainer.algorithm, cfg.generator.sampling_params
    engine, setting = cfg.generator.inference_engine, "generator.sampling_params.temperature"
    if algorithm.temperature not in (None, sampling.temperature):  # SkyRL completes it only later
        yield f"{_ALGORITHM}.temperature", f"must be {setting}, {sampling.temperature:g}; leave it out"
    compared = needs_rollout_logprobs(cfg) or algorithm.use_tis or _corrections(algorithm.off_policy_correction)
    # The CPU's own sampler returns the logprobs of the temperature that it sampled with.
    of_vllm = cfg.rg_dump.device != "cpu" or uses_server(engine)
    mode = f"{ENGINE}.engine_init_kwargs.logprobs_mode"
    is_processed = (engine.engine_init_kwargs or {}).get("logprobs_mode") == "processed_logprobs"
    if compared and of_vllm:
        if is_processed and (sampling.top_p != 1 or sampling.top_k > 0 or sampling.min_p > 0):
            right = f"with {mode}=processed_logprobs vLLM returns logprobs of what top_p, top_k and min_p leave, and "
            right += "the trainer's are of all tokens; set these to 1.0, -1 and 0"
            yield "generator.sampling_params.top_p", right
        elif not is_processed and sampling.temperature != 1:
            right = "vLLM returns the logprobs of temperature 1 at any temperature, and this loss or off-policy "
            right += f"correction would compare them with the trainer's; set it to 1.0, or {mode}=processed_logprobs"
            yield setting, right


def needs_rollout_logprobs(cfg: Any) -> bool:
    """Return whether the loss takes the logprobs of the sampler for those of the old policy."""
    loss, anchor = cfg.trainer.algorithm.policy_loss_type, cfg.trainer.algorithm.cispo.cispo_anchor
    return loss in ("rollout_is", "dppo") or (loss, anchor) == ("cispo", "rollout")


def uses_reference(cfg: Any) -> bool:
    """Return whether a reference model is loaded."""
    return bool(cfg.trainer.algorithm.use_kl_loss or cfg.trainer.algorithm.use_kl_in_reward)


def warn_of_another_reference(cfg: Any) -> None:
    """Warn of a KL term between different temperatures. Megatron's workers have one for all models."""
    algorithm, temperature = cfg.trainer.algorithm, cfg.generator.sampling_params.temperature
    is_scaled = cfg.trainer.strategy == "megatron" or algorithm.enable_sample_support_replay
    if uses_reference(cfg) and temperature != 1 and not is_scaled:
        logger.warning(
            "generator.sampling_params.temperature={:g}: SkyRL's reference model has temperature 1, so that the KL "
            "term is not 0 at first and pulls the policy away from the reference; set it to 1.0, or "
            "trainer.algorithm.use_kl_loss=false",
            temperature,
        )


# ------------------------------------------------------------------------------------------------- loops and machines
def check_async_loop(cfg: Any) -> Mistakes:
    """What SkyRL's fully asynchronous loop refuses only when the engines are up."""
    trainer, loop = cfg.trainer, cfg.trainer.fully_async
    if loop.simulate_training:
        right = "it is of SkyRL's simulator, which trains nothing; set it to false"
        yield "trainer.fully_async.simulate_training", right
    if not loop.enabled:
        return
    batch, workers = trainer.policy_mini_batch_size, loop.num_parallel_generation_workers
    most = batch * (1 + loop.max_staleness_steps)
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
        right = "must be null with trainer.fully_async; trainer.fully_async.sample_full_batch=true does the same, with "
        yield f"{_ALGORITHM}.dynamic_sampling.type", f"{right}{_ALGORITHM}.zero_variance_filter=true"
    if loop.sample_full_batch and not trainer.algorithm.zero_variance_filter:
        yield "trainer.fully_async.sample_full_batch", f"needs {_ALGORITHM}.zero_variance_filter=true"
    if trainer.algorithm.policy_loss_type in _OF_OLD_POLICY and not needs_rollout_logprobs(cfg):
        right = f"must be rollout_is or dppo with trainer.fully_async, or cispo with {_ALGORITHM}.cispo."
        yield f"{_ALGORITHM}.policy_loss_type", f"{right}cispo_anchor=rollout"


_OF_OLD_POLICY = ["regular", "dual_clip", "gspo", "clip_cov", "kl_cov", "cispo", "sapo", "importance_sampling"]
"""Losses of SkyRL's that need logprobs of the policy that has sampled, which the asynchronous loop does not keep."""


LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def workers_of(cfg: Any, role: str) -> int:
    """Return the number of workers that share a model."""
    nodes = value_of(cfg, f"trainer.placement.{role}_num_nodes")
    return int(nodes * value_of(cfg, f"trainer.placement.{role}_num_gpus_per_node"))


def check_workers(cfg: Any) -> Mistakes:
    """How many workers the models have. `check_cpu` knows what the CPU allows."""
    trainer, placement = cfg.trainer, cfg.trainer.placement
    if cfg.rg_dump.device == "cpu":
        return
    if trainer.strategy != "megatron":  # which divides its workers otherwise
        for role in ROLES:
            setting, workers = f"trainer.{role}.sequence_parallel_size", workers_of(cfg, role)
            if workers % value_of(cfg, setting):
                yield setting, f"must divide the {workers} workers of trainer.placement.{role}_*"
    policy = workers_of(cfg, "policy")
    beside = []
    if uses_reference(cfg) and (placement.colocate_all or placement.colocate_policy_ref):
        beside.append("ref")
    if trainer.critic.model.path and placement.colocate_all:
        beside.append("critic")
    for role in beside:
        if workers_of(cfg, role) != policy:
            right = f"must give as many GPUs as the policy has, {policy}, because they share them"
            yield f"trainer.placement.{role}_num_gpus_per_node", right
    rank = trainer.policy.model.lora.rank
    # SkyRL makes it vLLM's `max_lora_rank`. Megatron may merge the adapters before.
    if trainer.strategy != "megatron" and rank > 0 and rank not in LORA_RANKS:
        yield "trainer.policy.model.lora.rank", f"vLLM takes {', '.join(map(str, LORA_RANKS))}"
    if trainer.strategy != "megatron" and trainer.remove_microbatch_padding and not trainer.flash_attn:
        yield "trainer.flash_attn", "trainer.remove_microbatch_padding needs it; set that to false, too"


def check_reference(cfg: Any) -> Mistakes:
    """A reference model that follows the policy."""
    trainer, setting = cfg.trainer, "trainer.update_ref_every_epoch"
    if not trainer.update_ref_every_epoch:
        return
    if not uses_reference(cfg):
        yield setting, f"without {_ALGORITHM}.use_kl_loss there is no reference model; set it to false"
    elif trainer.epochs == 1:
        yield setting, "it does nothing in the last epoch, and there is one; raise trainer.epochs"
    elif trainer.hf_save_interval > 0:  # RayPPOTrainer.update_ref_with_policy
        right = "SkyRL removes the model that it has exported at the end of an epoch; set trainer.hf_save_interval=-1"
        yield setting, right


# ------------------------------------------------------------------------------------------- settings without an effect
_WITHOUT_EFFECT = (
    ("entropy_loss_coef", "use_entropy_loss", (True,)),
    ("clip_ratio_c", "policy_loss_type", ("dual_clip",)),
    ("value_clip", "advantage_estimator", ("gae",)),
    ("lambd", "advantage_estimator", ("gae",)),
)
"""Settings of the algorithm, what they depend on, and the values with which they have an effect."""
_OF_A_LOSS = ("cispo", "sapo", "dppo", "clip_cov", "kl_cov")
"""Losses with a group of settings of their own."""
_OF_A_PENALTY = {
    "threshold": ("atropos",),
    "correct_at": ("atropos",),
    "buffer": ("dapo",),
    "weight": ("dapo", "kimi"),
}


def warn_of_no_effect(cfg: Any) -> None:
    """Warn of settings that differ from SkyRL's or our defaults, and that nothing reads."""
    algorithm = cfg.trainer.algorithm
    default, unread = type(algorithm)(), {}
    for name, other, values in _WITHOUT_EFFECT:
        if getattr(algorithm, name) != getattr(default, name) and getattr(algorithm, other) not in values:
            unread[f"{_ALGORITHM}.{name}"] = f"{_ALGORITHM}.{other}={str(values[0]).lower()}"
    for loss in _OF_A_LOSS:
        if getattr(algorithm, loss) != getattr(default, loss) and algorithm.policy_loss_type != loss:
            unread[f"{_ALGORITHM}.{loss}"] = f"{_ALGORITHM}.policy_loss_type={loss}"
    if algorithm.kl_loss_coef != default.kl_loss_coef and not uses_reference(cfg):
        unread[f"{_ALGORITHM}.kl_loss_coef"] = f"{_ALGORITHM}.use_kl_loss=true"
    penalty = cfg.rg_dump.length_penalty
    default_penalty = type(penalty)()
    for name, kinds in _OF_A_PENALTY.items():
        if getattr(penalty, name) != getattr(default_penalty, name) and penalty.kind not in kinds:
            unread[f"{PREFIX}.length_penalty.{name}"] = f"{PREFIX}.length_penalty.kind={kinds[0]}"
    for setting, needed in unread.items():
        logger.warning("{} has no effect without {}", setting, needed)
    longest = cfg.generator.sampling_params.max_generate_length
    limit = penalty.max_length or longest
    begins = {"atropos": penalty.threshold * limit, "dapo": limit - (penalty.buffer or limit // 4)}
    if begins.get(penalty.kind, 0) >= longest:
        logger.warning(
            "{}.length_penalty.max_length={}: no response is long enough for the penalty, which begins at {:.0f} "
            "tokens (generator.sampling_params.max_generate_length={})",
            PREFIX,
            limit,
            begins[penalty.kind],
            longest,
        )


CHECKS = (
    check_sampling,
    check_generator,
    check_advantages,
    check_loss,
    check_correction,
    check_temperature,
    check_async_loop,
    check_workers,
    check_reference,
)
WARNINGS = (warn_of_other_evaluations, warn_of_another_reference, warn_of_no_effect)
"""For a config without a mistake."""
