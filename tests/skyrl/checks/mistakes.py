"""Mistakes that users make, and what the one line about each must contain; "" if it must suggest nothing."""

RG = "environment.skyrl_gym.rg_dump"
ENGINE = "generator.inference_engine"
NOTHING = "docs/settings.md"

MISSPELLED = {
    "+trainer.seed=1": "expected a .yaml file or key=value without spaces",
    "dump_rollots=true": f"did you mean {RG}.dump_rollouts?",
    "trainer.polcy.model.path=x": "did you mean trainer.policy.model.path?",
    "environment.rg_dump.eval_seed=1": f"did you mean {RG}.eval_seed?",
    "n_samples_per_promt=8": "did you mean generator.n_samples_per_prompt?",
    "trainer.n_samples_per_prompt=8": "did you mean generator.n_samples_per_prompt?",
    "lr=1e-4": "may be trainer.policy.optimizer_config.lr or trainer.critic.optimizer_config.lr",
    "trainer.learning_rate=1e-4": "did you mean trainer.policy.optimizer_config.lr?",
    "model=nano": "did you mean trainer.policy.model.path?",  # alone, it would be that of a judge
    "frobnicate=1": NOTHING,
    "trainer.policy=3": "group of settings",
    "trainer.seed.value=3": "trainer.seed has no parts",
    "trainer/seed=3": "did you mean trainer.seed?",
    "--fast": "expected a .yaml file or key=value",
}
WRONG_TYPES = {
    "trainer.seed=foo": "whole number",
    "trainer.seed=1.5": "whole number",
    "trainer.max_training_steps=true": "whole number",
    "trainer.policy.optimizer_config.lr=1e-4x": "must be a number",
    "trainer.algorithm.use_kl_loss=maybe": "true or false",
    "trainer.run_name=7": "put it in quotes",
    "trainer.policy.fsdp_config.wrap_policy=3": "mapping",
    "generator.n_samples_per_prompt=": "must have a value",
    "generator.sampling_params.stop=END": "write [END]",
    "data.train_data=[3]": "data.train_data[0]",
    f"{RG}.scorer=3": "group of settings",
    f"{RG}.dump_dir=": "must have a value",
    f"{RG}.dump_dir='  '": "must not be empty",
}
OUT_OF_RANGE = {
    "trainer.epochs=0": "at least 1",
    "trainer.max_training_steps=0": "trainer.max_training_steps must be > 0",
    "trainer.policy.optimizer_config.lr=-1": "at least 0",
    "trainer.policy.optimizer_config.lr=.inf": "must be a number",
    "generator.n_samples_per_prompt=1": "at least 2",
    "generator.sampling_params.top_p=1.5": "at most 1",
    f"{ENGINE}.gpu_memory_utilization=90": "at most 1",
    f"{RG}.rollout_save_score_threshold=1": "below 1",
    f"{RG}.length_penalty.threshold=1": "below 1",
}
WRONG_CHOICES = {
    "trainer.logger=wand": "did you mean wandb?",
    f"{RG}.scorer.workers=many": "must be auto, or a whole number",
    "trainer.resume_mode=lastest": "latest",
    "trainer.strategy=deepspeed": "megatron",
    "trainer.policy.optimizer_config.scheduler=cosin": "did you mean cosine",
    "trainer.algorithm.advantage_estimator=grpoo": "grpo",
    "trainer.algorithm.policy_loss_type=ppo": "regular",
    "trainer.algorithm.loss_reduction=mean": "token_mean",
    "trainer.algorithm.dynamic_sampling.type=filterr": "filter, replace",
    f"{ENGINE}.backend=sglang": "vllm",
    f"{RG}.length_penalty.kind=kimmi": "did you mean kimi?",
    f"{RG}.device=gpu": "cuda, cpu",
    "environment.env_class=rgdump": "did you mean rg_dump?",
    "environment.env_class=gsm8k": "data.train_data",
    f"{RG}.tasks=[chain_summ]": "did you mean chain_sum",
    f"{RG}.tasks=chain_sum gcd": "names are separated by commas: chain_sum,gcd",
    f"{RG}.tasks=*_sum": "(found undefined alias '_sum', line 1",
    f"{RG}.system_prompt=think_anser": "think_answer",
}
NOT_TOGETHER = {
    f"{RG}.tasks={{chain_sum: {{weight: 1, config: {{min_term: 2}}}}}}": "min_terms",
    f"{RG}.tasks={{chain_sum: {{weight: 1, config: {{min_terms: 5, max_terms: 2}}}}}}": "chain_sum",
    f"{RG}.tasks={{chain_sum: 0, lcm: 0}}": "weight",
    f"{RG}.length_penalty.buffer=5000": "at most",
    f"{RG}.worked_examples=[{{question: Q}}]": "worked_examples[0]: needs `question` and `response`",
    "generator.vision_language_generator=true": "has only texts",
    f"{RG}.size=3": "at least trainer.train_batch_size=4",
    "trainer.algorithm.zero_variance_filter=true": "set trainer.algorithm.dynamic_sampling.type=filter",
    "generator.batched=true": "scored one after another",
    "trainer.fully_async.simulate_training=true": "which trains nothing",
    "trainer.run_name=''": "a name without slashes",
    "trainer.policy_mini_batch_size=3": "divisible",
    "trainer.placement.colocate_all=true": "cannot run on the CPU",
    "generator.inference_engine.external_server_urls=[http://127.0.0.1:8000]": "external_proxy_url",
}
WRONG_PLACES = {
    "data.train_data=[foo.parquet]": "rg-env dataset",
    "no/such/file.yaml": "cannot be read",
    "trainer.ckpt_path=/proc/x": "cannot be written",
    f"{RG}.dump_dir=/proc/x": "cannot be written",
    "trainer.policy.model.path=./no/such/folder": "there is no such folder",
    "trainer.policy.model.path=tests": "config.json",
    "trainer.ref.model.path=gpt-x": "there is no such folder",
    "trainer.policy.model.path=nobody/nothing": "`hf download nobody/nothing`",
    "trainer.policy.model.path=null": "it is not set",
}
USER_CODE = {
    f"{RG}.imports=[no_such_module]": "no module 'no_such_module'",
    f"{RG}.imports=[no_such_module.py]": "a module is named without .py: no_such_module",
    f"{RG}.imports=my_module": "write [my_module]",
    f"{RG}.reward=my_reward": "write module.name",
    f"{RG}.reward=no_such_module.my_reward": "no module 'no_such_module'",
    f"{RG}.reward=json.dunps": "the module json has no 'dunps'; did you mean dumps",
    f"{RG}.reward=json.tool": "only a module of that name: write json.tool.NAME",
    f"{RG}.reward=rg_env/rollouts/rewards.py": "a module is named with dots: rg_env.rollouts.rewards",
    f"{RG}.imports=[rg_env.rollouts.reward]": "did you mean rg_env.rollouts.rewards?",
    f"{RG}.experiment_class=MyExperiment": "write module.name",
}
CRITIC = "trainer.algorithm.advantage_estimator=gae trainer.critic.model.path=nano "
SEVERAL = {
    "trainer.seed 5": "key=value without spaces: trainer.seed=5",
    "trainer.seed: 5": "key=value without spaces: trainer.seed=5",
    "trainer.train_batch_size=10": "trainer.train_batch_size 10 should be divisible by trainer.policy_mini_batch_size",
    "trainer.train_batch_size=2": "trainer.train_batch_size >= trainer.policy_mini_batch_size",
    "trainer.policy_mini_batch_size=0": "trainer.policy_mini_batch_size must be greater than 0",
    "trainer.micro_train_batch_size_per_gpu=3": "micro_train_batch_size_per_gpu 3",
    "trainer.placement.policy_num_nodes=3 trainer.placement.ref_num_nodes=3": "do not divide by 3, as the workers",
    f"{CRITIC}trainer.critic_mini_batch_size=3": "critic_mini_batch_size 3",
    f"{RG}.size=1": "must be at least trainer.train_batch_size",
    f"{RG}.complexity=0.5 data.train_data=[README.md]": "has no effect with data.train_data",
    f"{RG}.seed=7 data.train_data=[README.md]": "has no effect with data.train_data, whose rows",
    f"{RG}.eval_seed=7 data.val_data=[README.md]": "has no effect with data.val_data, whose rows",
    f"{RG}.tasks=[gcd] data.train_data=[README.md] data.val_data=[README.md]": "no effect with data.train_data and",
    f"{RG}.tasks=gcd {RG}.tasks.lcm=2": "tasks is 'gcd' here, which has no such part",
    f"{RG}.tasks=[gcd] {RG}.tasks.lcm=2": "tasks is ['gcd'] here, which has no such part",
    f"{RG}.tasks=[gcd] {RG}.tasks.0=lcm": "tasks is ['gcd'] here, which has no such part",
    f"{RG}.worked_examples=[] {RG}.worked_examples.0.question=a": "worked_examples is [] here",
    f"{RG}.complexity=2": "must be a number of at least 0 and at most 1",
    f"{RG}.complexity=random {RG}.tasks=[acre]": "no task of the mix has levels",
    f"{RG}.format=loose": "must be one of strict, lenient",
    "trainer.fully_async.enabled=true trainer.algorithm.policy_loss_type=dppo": "must be 4 to 20: at least",
    "generator.sampling_params.repetition_penalty=1.2": "additional_kwargs.repetition_penalty",
    "generator.sampling_params.additional_kwargs.min_p=0.1": "set generator.sampling_params.min_p instead",
    "generator.eval_sampling_params.additional_kwargs.skip_special_tokens=false": "SkyRL drops skip_special_tokens",
    "generator.sampling_params.temperature=0": "all responses to a question would be the same",
    "generator.sampling_params.additional_kwargs.seed=7": "all responses to a question would be the same",
}
"""Settings, separated by spaces."""
ON_THE_CPU = {
    "trainer.strategy=megatron": "cannot run on the CPU; set it to fsdp or fsdp2",
    "trainer.flash_attn=true": "cannot run on the CPU; set it to false",
    "trainer.bf16=true": "mixed_precision.param_dtype=bf16",
    "trainer.placement.policy_num_gpus_per_node=4": "set it to 1, and policy_num_nodes to the workers",
    "trainer.policy.model.lora.rank=8": "cannot run on the CPU; set it to 0",
    "trainer.ref.sequence_parallel_size=2": "cannot run on the CPU; set it to 1",
    "generator.inference_engine.model_dtype=float16": "set it to float32 or bfloat16",
    "generator.inference_engine.num_engines=2": "cannot run on the CPU; set it to 1",
}
MISTAKES = (
    MISSPELLED
    | WRONG_TYPES
    | OUT_OF_RANGE
    | WRONG_CHOICES
    | NOT_TOGETHER
    | WRONG_PLACES
    | USER_CODE
    | SEVERAL
    | ON_THE_CPU
)
THROUGH_THE_COMMAND = (
    *("n_samples_per_promt=8", "frobnicate=1", "trainer.learning_rate=1e-4", "trainer.seed=foo", "trainer.epochs=0"),
    *("trainer.strategy=deepspeed", "environment.env_class=gsm8k", "data.train_data=[foo.parquet]"),
    *("trainer.ckpt_path=/proc/x", f"{RG}.dump_dir="),
)
"""Some of them, one of each kind that users make most."""
