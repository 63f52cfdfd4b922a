"""A mistake on the command line, and `--help`, are answered without importing what takes seconds."""

from __future__ import annotations

import json
import shlex

from tests.running import run_program

STATS, QUICKSTART = "dumps stats dumps/sample", "train configs/quickstart.yaml"
MISTAKES = {
    "stats": "no command 'stats'; did you mean `rg-env dumps stats`?",
    "stats dumps/sample --by step": "did you mean `rg-env dumps stats`?",
    "valdate": "`rg-env dumps validate`",
    "sft": "`rg-env dumps export sft`",
    "trian": "`rg-env train`",
    "attak": "`rg-env attack`",
    "dumps stat": "`rg-env dumps stats`",
    "dumps tasks": "`rg-env tasks`",
    "dumps merge a b": "no command 'merge'; use one of stats, show",
    "serve --scorer math": "names no function; write module:function",
    "dumps replay dumps/sample nope": "no command 'replay'; use one of stats, show",
    "dumps import reasoning-gym-eval x": "use one of atif, verifiers, trl",
    "dumps export xyz x --out x.jsonl": "use one of sft, dpo",
    "train": "name a configuration",
    "train no.yaml": "check the path; recipes are in ",
    "train quickstart": "did you mean configs/quickstart.yaml?",
    "train my/quickstart.yaml": "did you mean configs/quickstart.yaml?",
    f"{QUICKSTART} trainer.epoch=1": "trainer.epochs",
    f"{QUICKSTART} trainer.epochs=many": "trainer.epochs",
    f"{QUICKSTART} environment.skyrl_gym.rg_dump.tasks.nope=1": "nope",
    f"{QUICKSTART} environment.skyrl_gym.rg_dump.format=loose": "strict",
    f"{QUICKSTART} --chek": "did you mean --check?",
    f"{QUICKSTART} --resume": "did you mean trainer.resume_mode=latest?",
    f"{QUICKSTART} -n 5": "no option -n; `rg-env train --help` lists its options",
    "train --trainer.seed=5": "write trainer.seed=5",
    "train --train-batch-size 4": "did you mean trainer.train_batch_size=",
    "eval --limit 5": "`rg-env eval --help` lists its options",
    "eval --item 5": "did you mean --items?",
    "eval": "--model",
    "eval --model no/such/folder": "there is no such folder; `rg-env runs` lists the runs",
    "eval --model docs": "so it is no model; those of a run are in its folder exports",
    "eval --model nano --tasks configs/quikstart.yaml": "there is no such file; did you mean configs/quickstart.yaml?",
    "eval --resume --model nano": "--resume needs --out",
    "eval --endpoint http://127.0.0.1:9/v1 --model x --suite nope": "nope",
    "eval --endpoint localhost:8000 --model x --items 2": "must be an address such as http://127.0.0.1:8000/v1",
    "eval --endpoint http://127.0.0.1:9 --model x --retries 0": "no server answers at http://127.0.0.1:9/v1",
    "eval --temperature=-1": "--temperature",
    "collect --groups 3 --out d": "--model",
    "score chain_sun": "unknown task 'chain_sun'; did you mean chain_sum",
    "score mine --tasks train.csv": "a file of questions has a name in the mix, such as {mine: {file: {path: train.csv",
    "score other:7 --tasks '{mine: {file: t.csv}}'": "unknown task 'other:7'; the files of the mix are mine",
    "score gcd-train-42": "did you mean gcd-train-42-0?",
    "tasks chain_sum": "did you mean `rg-env tasks --levels chain_sum`?",
    "score chain_sum --response": "see `rg-env score --help`",
    "tasks --levels nope": "nope",
    "dataset --out x.csv": ".parquet",
    "dataset --out x.parquet --tasks nope": "nope",
    "attack --tasks nope": "nope",
    "attack --items many": "'--items': must be a whole number; see",
    "serve --timeout soon": "'--timeout': must be a number; see",
    "serve --workers 0": "--workers",
    "dumps export sft dumps/sample --out x.csv": "must end in .jsonl",
    "dumps export sft dumps/sample --out /proc/none/x.jsonl": "cannot be written",
    "dumps export sft no/such/folder --out x.jsonl": "no/such/folder cannot be read",
    "dumps export sft dumps/sample --out x.jsonl --where 'color = 1'": "unknown column color",
    "dumps export sft dumps/sample --out x.jsonl --min-score -1": "--min-score",
    "dumps export sft dumps/sample --out x.jsonl --per-group 0": "--per-group",
    "dumps export dpo dumps/sample --out x.jsonl --margin 0": "--margin': must be greater than or equal to 0.001",
    "dumps report dumps/sample --out x.jsonl": "must end in .html",
    "dumps report dumps/sample --out x.html --where 'color = 1'": "unknown column color",
    "dumps signs dumps/sample --where 'color = 1'": "unknown column color",
    "dumps show dumps/sample --plain --where 'nope = 1'": "unknown column nope",
    "dumps stats no/such/folder": "no/such/folder cannot be read",
    f"{STATS} --where 'color = 1'": "unknown column color",
    f"{STATS} --where \"task = 'spell'\"": "no rollout matches task = 'spell'; the tasks are ",
    f"{STATS} --where 'reward > 5'": "no rollout matches reward > 5; reward is 0 to 1",
    f"{STATS} --where solved": "did you mean base_score >= solved_at?",
    f"{STATS} --where ''": "the condition is empty",
    f"{STATS} --against nowhere": "nowhere cannot be read",
    f"{STATS} --columns solverate": "there is no solverate; did you mean solve_rate",
    f"{STATS} --by color": "use one of task, category",
    f"{STATS} --by task,": "use one of task, category",
    f"{STATS} --solved-at 2": "--solved-at",
}
"""What the one line says, by what was typed after `rg-env`."""
SLOW = ("torch", "ray", "transformers", "vllm", "reasoning_gym", "sympy", "datasets")


def test_a_mistake_is_one_line_that_says_what_is_wrong_without_slow_imports():
    commands = json.dumps([shlex.split(typed) for typed in MISTAKES])
    done = run_program("typed_mistakes", commands, json.dumps(SLOW))
    for (typed, says), (code, _, text, imported) in zip(MISTAKES.items(), json.loads(done.stdout), strict=True):
        assert (code, text[:8], text.count("\n"), imported) == (2, "rg-env: ", 1, []), (typed, text)
        assert says in text, typed
