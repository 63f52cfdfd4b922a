#!/usr/bin/env bash
# TRL 1.16.0 counts a reward of None as 0 where a second reward function is there.
#
# The usual guess, and what happens with one function: a response whose reward function returns None is left out.
# What happens: the sum over the functions leaves the None out, so the response has the sum of the others, and is
# compared with responses that have all of them. Rewards 1, 1, 1, None beside 0, 0, 0, 0: advantages .5, .5, .5, -1.5.
# Met by: a verifier that could not judge an answer (a timeout, a machine without memory), beside a reward for length.
# The cure here: rg_env's adapter says so at its first None.
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


def verifier(completions, **_):
    return [1.0, 1.0, 1.0, None]  # the fourth response could not be judged


def other(completions, **_):
    return [0.0] * len(completions)


def advantages(functions, folder):
    settings = GRPOConfig(
        output_dir=folder, per_device_train_batch_size=4, num_generations=4, max_completion_length=4, max_steps=1,
        use_cpu=True, bf16=False, report_to=[], log_completions=True, logging_steps=1, save_strategy="no",
        num_completions_to_print=0,
    )
    rows = Dataset.from_dict({"prompt": ["a b", "c d", "e f", "g h"]})
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, args=settings, train_dataset=rows, reward_funcs=functions
    )
    trainer.train()
    (saved,) = glob.glob(f"{folder}/completions/*.parquet")
    return [round(advantage, 2) for advantage in pl.read_parquet(saved)["advantage"]]


alone, beside = advantages([verifier], "alone"), advantages([verifier, other], "beside")
print("trl", version("trl"))
print("one function, rewards 1, 1, 1, None: advantages", alone)
print("the same and a second function that gives 0:", beside)
sys.exit(not (beside == [0.5, 0.5, 0.5, -1.5] and alone == [0.0] * 4))
PY
"$python" run.py >out 2>log || { cat out log; exit 1; }
tail -3 out
