"""Mistakes that users make, and what the one line about each must contain; "" if it must suggest nothing."""

RG = "environment.skyrl_gym.rg_dump"
ENGINE = "generator.inference_engine"
NOTHING = "docs/settings.md"

ATROPOS = {
    "group_size=8": "use generator.n_samples_per_prompt",
    "env.group_size=8": "use generator.n_samples_per_prompt",
    "--env.group_size=8": "use generator.n_samples_per_prompt",
    f"{RG}.group_size=8": "use generator.n_samples_per_prompt",
    "max_token_length=2048": "use generator.sampling_params.max_generate_length",
    "tokenizer_name=nano": "use trainer.policy.model.path",
    "batch_size=64": "use trainer.train_batch_size",
    "total_steps=100": "use trainer.max_training_steps",
    "steps_per_eval=25": "use trainer.eval_interval",
    "use_wandb=true": "use trainer.logger",
    "wandb_name=run": "use trainer.run_name",
    "num_rollouts_to_keep=50": "use trainer.num_logger_train_samples",
    "dump_rollouts=true": f"use {RG}.dump_rollouts",
    "rollout_save_score_threshold=0.5": f"use {RG}.rollout_save_score_threshold",
    "seed=1": f"use {RG}.seed or trainer.seed",
    "complexity_mode=random": f"use {RG}.complexity_mode",
    "inference_weight=4": "no such setting",
    "rollout_server_url=http://localhost:8000": "no such setting",
    "openai.base_url=http://localhost:9004": f"use {ENGINE}.external_proxy_url",
    "eval_handling=NONE": "no such setting",
}
OLDER_SKYRL = {
    "skyrl_train.entrypoints.main_base": "skyrl.train.entrypoints",
    "generator.backend=vllm": f"use {ENGINE}.backend",
    "generator.num_inference_engines=2": f"use {ENGINE}.num_engines",
    "generator.inference_engine_tensor_parallel_size=2": f"use {ENGINE}.tensor_parallel_size",
    "generator.weight_sync_backend=nccl": f"use {ENGINE}.weight_sync_backend",
    "generator.run_engines_locally=true": f"use {ENGINE}.run_engines_locally",
    "generator.gpu_memory_utilization=0.8": f"use {ENGINE}.gpu_memory_utilization",
    "generator.async_engine=true": "always asynchronous",
    "generator.enable_http_endpoint=true": "always has",
    "generator.remote_inference_engine_urls=[x]": f"use {ENGINE}.external_server_urls",
    "trainer.use_sample_packing=true": "use trainer.remove_microbatch_padding",
    "+trainer.seed=1": "expected a .yaml file or key=value",
}
MISSPELLED = {
    "trainer.polcy.model.path=x": "did you mean trainer.policy.model.path?",
    f"{RG}.dump_dri=x": f"did you mean {RG}.dump_dir?",
    "environment.rg_dump.eval_seed=1": f"use {RG}.eval_seed",
    f"{RG}.formt_bonus=1": f"did you mean {RG}.format_bonus?",
    "n_samples_per_prompt=8": "did you mean generator.n_samples_per_prompt?",
    "trainer.n_samples_per_prompt=8": "did you mean generator.n_samples_per_prompt?",
    "lr=1e-4": "trainer.policy.optimizer_config.lr",
    "trainer.learning_rate=1e-4": NOTHING,
    "frobnicate=1": NOTHING,
    "trainer.cheese=1": NOTHING,
    f"{RG}.flavour=1": NOTHING,
    "trainer.policy=3": "group of settings",
    "trainer.seed.value=3": "trainer.seed has no parts",
    "--fast": "expected a .yaml file or key=value",
    "trainer.policy": "expected a .yaml file or key=value",
}
WRONG_TYPES = {
    "trainer.seed=foo": "whole number",
    "trainer.seed=1.5": "whole number",
    "trainer.max_training_steps=abc": "whole number",
    "trainer.max_training_steps=1.5": "whole number",
    "trainer.max_training_steps=true": "whole number",
    "trainer.policy.optimizer_config.lr=1e-4x": "must be a number",
    "trainer.policy.optimizer_config.lr=null": "must have a value",
    "trainer.policy.optimizer_config.adam_betas=0.9": "write [0.9]",
    "trainer.algorithm.use_kl_loss=maybe": "true or false",
    "trainer.algorithm.use_kl_loss=1": "true or false",
    "trainer.run_name=7": "put it in quotes",
    "trainer.policy.fsdp_config.wrap_policy=3": "mapping",
    "generator.n_samples_per_prompt=2.5": "whole number",
    "generator.n_samples_per_prompt=": "must have a value",
    "generator.sampling_params.stop=END": "write [END]",
    "generator.sampling_params.temperature=hot": "must be a number",
    "data.train_data=foo.parquet": "write [foo.parquet]",
    "data.train_data=[3]": "data.train_data[0]",
    f"{RG}.size=many": "whole number",
    f"{RG}.debug_logging=yes please": "true or false",
    f"{RG}.scorer.timeout=soon": "must be a number",
    f"{RG}.scorer=3": "group of settings",
    f"{RG}.dump_dir=": "must have a value",
    f"{RG}.dump_dir='  '": "must not be empty",
    f"{RG}.dump_dir=null": "must have a value",
    f"{RG}.worked_examples=none": "must be a list",
}
OUT_OF_RANGE = {
    "trainer.epochs=0": "at least 1",
    "trainer.max_training_steps=0": "at least 1",
    "trainer.policy.optimizer_config.lr=-1": "at least 0",
    "trainer.policy.optimizer_config.lr=.inf": "must be a number",
    "trainer.train_batch_size=-4": "at least 1",
    "trainer.eval_interval=-5": "at least -1",
    "generator.n_samples_per_prompt=0": "at least 1",
    "generator.n_samples_per_prompt=1": "at least 2",
    "generator.sampling_params.top_p=1.5": "at most 1",
    "generator.sampling_params.temperature=-1": "at least 0",
    f"{ENGINE}.gpu_memory_utilization=90": "at most 1",
    f"{RG}.rollout_save_score_threshold=1.5": "at most 1",
    f"{RG}.size=0": "at least 1",
    f"{RG}.scorer.workers=0": "at least 1",
    f"{RG}.length_penalty.threshold=1": "below 1",
}
WRONG_CHOICES = {
    "trainer.logger=wand": "did you mean wandb?",
    f"{RG}.scorer.workers=many": "must be auto, or a whole number",
    "trainer.resume_mode=lastest": "latest",
    "trainer.strategy=deepspeed": "megatron",
    "trainer.policy.optimizer_config.scheduler=cosin": "did you mean cosine",
    "trainer.algorithm.advantage_estimator=grpoo": "did you mean grpo",
    "trainer.algorithm.policy_loss_type=ppo": "regular",
    "trainer.algorithm.loss_reduction=mean": "token_mean",
    "trainer.algorithm.dynamic_sampling.type=filterr": "filter, replace",
    "trainer.algorithm.kl_estimator_type=k4": "k3",
    f"{ENGINE}.backend=sglang": "vllm",
    f"{RG}.length_penalty.kind=kimmi": "did you mean kimi?",
    f"{RG}.device=gpu": "cuda, cpu",
    "environment.env_class=rgdump": "did you mean rg_dump?",
    "environment.env_class=gsm8k": "data.train_data",
    f"{RG}.tasks=[chain_summ]": "did you mean chain_sum",
    f"{RG}.system_prompt=think_anser": "think_answer",
}
NOT_TOGETHER = {
    f"{RG}.tasks={{chain_sum: {{weight: 1, config: {{min_term: 2}}}}}}": "min_terms",
    f"{RG}.tasks={{chain_sum: {{weight: 1, config: {{min_terms: 5, max_terms: 2}}}}}}": "chain_sum",
    f"{RG}.tasks={{chain_sum: 0, lcm: 0}}": "weight",
    f"{RG}.length_penalty.buffer=5000": "at most",
    f"{RG}.size=3": "at least trainer.train_batch_size=4",
    "trainer.policy_mini_batch_size=3": "divisible",
    "trainer.placement.colocate_all=true": "cannot run on the CPU",
    "generator.inference_engine.external_server_urls=[http://127.0.0.1:8000]": "external_proxy_url",
}
WRONG_PLACES = {
    "data.train_data=[foo.parquet]": "rg-env dataset",
    "no/such/file.yaml": "cannot be read",
    "trainer.ckpt_path=/proc/x": "cannot be written",
    "trainer.log_path=/proc/x/y": "cannot be written",
    f"{RG}.dump_dir=/proc/x": "cannot be written",
    "trainer.policy.model.path=./no/such/folder": "there is no such folder",
    "trainer.policy.model.path=tests": "config.json",
    "trainer.ref.model.path=gpt-x": "there is no such folder",
    "trainer.policy.model.path=nobody/nothing": "`hf download nobody/nothing`",
    "trainer.policy.model.path=null": "it is not set",
}
USER_CODE = {
    f"{RG}.imports=[no_such_module]": "there is no module 'no_such_module'",
    f"{RG}.imports=my_module": "write [my_module]",
    f"{RG}.reward=my_reward": "write module.name",
    f"{RG}.reward=no_such_module.my_reward": "there is no module 'no_such_module'",
    f"{RG}.reward=json.dunps": "the module json has no 'dunps'",
    f"{RG}.experiment_class=MyExperiment": "write module.name",
}
MISTAKES = (
    ATROPOS
    | OLDER_SKYRL
    | MISSPELLED
    | WRONG_TYPES
    | OUT_OF_RANGE
    | WRONG_CHOICES
    | NOT_TOGETHER
    | WRONG_PLACES
    | USER_CODE
)
THROUGH_THE_COMMAND = (
    *("group_size=8", "generator.backend=vllm", "trainer.learning_rate=1e-4", "trainer.seed=foo", "trainer.epochs=0"),
    *("trainer.strategy=deepspeed", "environment.env_class=gsm8k", "data.train_data=[foo.parquet]"),
    *("trainer.ckpt_path=/proc/x", f"{RG}.dump_dir="),
)
"""Ten of them, one of each kind that users make most."""
