"""One step of TRL's trainer with `nano`, in several processes. Arguments: folders for its output and the dump."""

import sys

from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rg_env.cpu import nano_path
from rg_env.dataset import ReasoningGymDataset
from rg_env.integrations.trl import GRPOReward, to_dataset

output, dump = sys.argv[1:]
args = GRPOConfig(
    output_dir=output,
    max_steps=1,
    per_device_train_batch_size=4,
    num_generations=4,
    max_completion_length=16,
    use_cpu=True,
    bf16=False,
    report_to="none",
    save_strategy="no",
)
tasks = {"spell_backward": {"weight": 1, "config": {"min_word_len": 3, "max_word_len": 5}}}
with GRPOReward(args, dump=dump, model="nano") as reward:
    GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(nano_path()),
        reward_funcs=reward,
        args=args,
        train_dataset=to_dataset(ReasoningGymDataset(tasks, size=16)),
        processing_class=AutoTokenizer.from_pretrained(nano_path(), padding_side="left"),
    ).train()
