#!/usr/bin/env bash
# TRL 1.16.0 saves one generation under several steps, and an evaluation in place of a training step.
#
# The usual guess: `log_completions` saves each completion once, under the step that generated it; with an evaluation
# set, training and evaluation can be told apart.
# What happens: at every log the whole buffer is written, so with `num_iterations=2` the files of steps 1 and 2 are
# equal row by row; and an evaluation writes to the file of the last training step, whose own rows are lost. No column
# says which rows are which.
# Met by: whoever counts or plots saved completions, or trains on them (the evaluation's questions are among them).
# The cure here: `rg-env dumps import trl` counts equal neighbors once, and asks for or infers the phase.
source "$(dirname "$0")/environment.sh"
environment trl==1.16.0 transformers==5.16.1 torch==2.13.0 accelerate datasets==5.2.0 polars==2.1.0 pyarrow jinja2
cp "$(dirname "$0")/tiny_model.py" "$work"
cd "$work"
cat >run.py <<'PY'
import glob
import sys
from importlib.metadata import version

import polars as pl
from datasets import Dataset
from tiny_model import model, tokenizer
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **_):
    return [float(len(completion)) for completion in completions]


def saved_by(folder, **settings):
    """The rows of each file, by its step."""
    settings = GRPOConfig(
        output_dir=folder, per_device_train_batch_size=4, num_generations=2, max_completion_length=4, use_cpu=True,
        bf16=False, report_to=[], log_completions=True, logging_steps=1, save_strategy="no",
        num_completions_to_print=0, **settings,
    )
    train = Dataset.from_dict({"prompt": [f"a {chr(98 + row)}" for row in range(16)]})
    held_out = Dataset.from_dict({"prompt": ["z z", "z y", "z x", "z w"]})
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, args=settings, train_dataset=train, eval_dataset=held_out,
        reward_funcs=reward,
    )
    trainer.train()
    files = sorted(glob.glob(f"{folder}/completions/*.parquet"))
    return {number: pl.read_parquet(file).drop("step") for number, file in enumerate(files, 1)}


print("trl", version("trl"))
twice = saved_by("twice", max_steps=2, num_iterations=2)
equal = twice[1].equals(twice[2])
print("num_iterations=2: the files of steps 1 and 2 are", "equal" if equal else "different")
evaluated = saved_by(
    "evaluated", max_steps=2, eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=4
)
prompts = {step: sorted(set(rows["prompt"])) for step, rows in evaluated.items()}
print("an evaluation after step 2: prompts of the files", prompts, "columns", evaluated[2].columns)
overwritten = all(prompt.startswith("z") for prompt in prompts[2])
sys.exit(not (equal and overwritten))
PY
"$python" run.py >out 2>log || { cat out log; exit 1; }
grep -v "^{'" out
