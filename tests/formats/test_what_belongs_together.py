"""Rows, identities, phases and rewards of other programs are what they are: a wrong count is worse than a line more."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from backports import zstd

from rg_env.analysis.runs import list_runs
from rg_env.dump import open_run
from rg_env.formats import FORMATS, import_records
from tests.formats.test_programs import GYM, atropos, contents, dumps, imported

OPENS = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
"""A prompt as a chat template writes it."""


def write_lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def skyrl(prompt, response, score, **changes):
    row = {"input_prompt": prompt, "output_response": response, "score": score, "stop_reason": "stop"}
    return row | {"env_class": "gym", "env_extras": {}, "data_source": "gsm8k"} | changes


def verl(prompt, score, step=1, **more):
    return {"input": prompt, "output": f"answer {score}", "gts": "x", "score": score, "step": step, **more}


def completions(folder, step, rows, **columns):
    """A file of TRL, with a prompt, a completion and a reward in each row."""
    folder.mkdir(parents=True, exist_ok=True)
    prompts, texts, rewards = zip(*rows, strict=True)
    table = {"step": [step] * len(rows), "prompt": prompts, "completion": texts, "reward": rewards}
    advantages = [reward - 0.5 for reward in rewards]
    pl.DataFrame(table | columns | {"advantage": advantages}).write_parquet(folder / f"completions_{step:05}.parquet")


# -- identities


def arm(folder, score):
    """An arm of an experiment, in a folder that is called as in every other."""
    evals = folder / "dumped_evals"
    rows = [skyrl(f"Q{number // 2}", "a", score) for number in range(4)]
    write_lines(evals / "global_step_10_evals" / "gsm8k.jsonl", *rows)
    return evals


def test_imports_from_folders_of_one_name_are_two_runs_with_names_of_their_own(tmp_path):
    for name, score in (("A", 0.0), ("B", 1.0)):
        imported("skyrl", arm(tmp_path / f"source-{name}", score), tmp_path / name)
    dump = open_run(tmp_path / "A", tmp_path / "B")
    assert len(list(dump.groups())) == 4 and sorted(dump.names.values()) == ["A", "B"]
    _, said = dumps("stats", tmp_path / "A", tmp_path / "B")
    assert "2 runs · 4 groups" in said and "again, first in" not in said
    _, said = dumps("stats", tmp_path / "A", "--against", tmp_path / "B")
    assert "this: A, evaluation after step 10 other: B, evaluation after step 10" in said
    out = tmp_path / "sft.jsonl"
    assert dumps("export", "sft", tmp_path / "A", tmp_path / "B", "--include-eval", "--out", out)[0] == 0
    assert len(out.read_text().splitlines()) == 2


def test_an_import_is_called_by_its_name_and_its_id_is_that_of_its_records(tmp_path):
    source = arm(tmp_path / "source", 1.0)
    assert dumps("import", "skyrl", source, "--out", tmp_path / "A", "--name", "large batch")[0] == 0
    imported("skyrl", source, tmp_path / "B")
    (first,), (second,) = open_run(tmp_path / "A").runs, open_run(tmp_path / "B").runs
    assert first.run_id == second.run_id
    assert list(open_run(tmp_path / "A").names.values()) == ["large batch"]


def test_a_source_with_the_folders_of_two_runs_is_two_runs(tmp_path):
    for name, score in (("a", 0.0), ("b", 1.0)):
        write_lines(tmp_path / "source" / name / "1.jsonl", verl("Q", score), verl("Q", score))
    imported("verl", tmp_path / "source", tmp_path / "out")
    assert [group.outcome for group in open_run(tmp_path / "out").groups()] == ["all_failed", "all_correct"]


def test_runs_of_atropos_of_one_id_differ_if_their_records_do(tmp_path):
    for name, score in (("a", 0), ("b", 1)):
        path = tmp_path / name / "reasoning_gym_environment_rollouts_same_0000.jsonl"
        write_lines(path, json.loads(atropos(score, 0.5).replace(r"\ud800", "")))
        imported("atropos", tmp_path / name, tmp_path / f"out-{name}")
    assert len(open_run(tmp_path / "out-a", tmp_path / "out-b").runs) == 2


# -- rows and rollouts

SECOND = OPENS.format("Q") + "{}<|im_end|>\n" + OPENS.format("Again.")
STEP_WISE = {
    # With the tokens of a word at its border, a tokenizer decodes another space than before.
    "plain": [("Q1", "a", 0.0), ("Q1 a try again", "4", 1.0), ("Q1", "b", 0.0), ("Q1 b try again", "5", 0.0)],
    # SkyRL's step has the next prompt's beginning in its response.
    "with what was shown": [
        (OPENS.format("Q"), f"1<|im_end|>\n{OPENS.format('Again.')}", 0.0),
        (SECOND.format("1"), "2<|im_end|>", 1.0),
        (OPENS.format("Q"), f"3<|im_end|>\n{OPENS.format('Again.')}", 0.0),
        (SECOND.format("3"), "4<|im_end|>", 0.0),
    ],
    "without earlier thoughts": [
        (OPENS.format("Q") + "<think>\n", f"Hm.</think>\n\n1<|im_end|>\n{OPENS.format('Again.')}", 0.0),
        (SECOND.format("1"), "2<|im_end|>", 1.0),
        (OPENS.format("Q") + "<think>\n", f"So.</think>\n\n3<|im_end|>\n{OPENS.format('Again.')}", 0.0),
        (SECOND.format("3"), "4<|im_end|>", 0.0),
    ],
}


@pytest.mark.parametrize("case", STEP_WISE)
def test_turns_that_skyrl_saved_apart_are_one_rollout_with_the_reward_of_the_last(case, tmp_path):
    rows = [skyrl(prompt, response, [score]) for prompt, response, score in STEP_WISE[case]]
    write_lines(tmp_path / "evals" / "global_step_5_evals" / "gsm8k.jsonl", *rows)
    (group,), rewards, said = imported("skyrl", tmp_path / "evals", tmp_path / "out")
    assert (rewards, [rollout.turns for rollout in group.rollouts]) == ([[1.0, 0.0]], [2, 2])
    roles = [message["role"] for message in group.rollouts[0].conversation]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert "2 rows joined, as later turns" in said


def test_turns_whose_prompt_lacks_the_response_before_are_said(tmp_path):
    rows = [skyrl("Q. Answer:", "a", 0.0), skyrl("Q. Answer: [summary] go on", "b", 1.0)]
    write_lines(tmp_path / "evals" / "gsm8k.jsonl", *rows)
    groups, _, said = imported("skyrl", tmp_path / "evals", tmp_path / "out")
    assert len(groups) == 2 and "1 row counted as rollouts that look like later turns" in said


def test_samples_of_one_prompt_are_not_its_turns(tmp_path):
    rows = [skyrl("Q", "", 0.0), skyrl("Q", "a", 1.0), skyrl("Q", "a", 1.0), skyrl("Qa", "b", 0.0, data_source="other")]
    write_lines(tmp_path / "evals" / "gsm8k.jsonl", *rows)
    _, rewards, said = imported("skyrl", tmp_path / "evals", tmp_path / "out")
    assert rewards == [[0.0, 1.0, 1.0], [0.0]] and "turn" not in said


def test_outputs_of_one_rollout_of_verl_are_joined_by_their_ids(tmp_path):
    prompts = ["Q", "Q answer 0.0 more", "Q", "a new summary"]
    names = ["q_0_0", "q_0_1", "q_1_0", "q_1_1"]
    rows = [verl(prompt, float(name == "q_0_1"), uid=name) for prompt, name in zip(prompts, names, strict=True)]
    write_lines(tmp_path / "rollouts" / "1.jsonl", *rows[::-1])
    (group,), rewards, said = imported("verl", tmp_path / "rollouts", tmp_path / "out")
    assert (rewards, [rollout.turns for rollout in group.rollouts]) == ([[0.0, 1.0]], [2, 2])
    assert contents(group.rollouts[0]) == ["Q", "answer 0.0", "a new summary", "answer 0.0"]
    assert contents(group.rollouts[1]) == ["Q", "answer 0.0", " more", "answer 1.0"]
    assert "does not name question" not in said


ONE_TEXT = {
    "special tokens": (
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n",
        f"a<|im_end|>\n{OPENS.format('?')}b",
        2,
    ),
    "none": ("user\nQ\nassistant\n", "a\nuser\n<tool_response>2</tool_response>\nassistant\nb", 2),
    "a header": (
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "a<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n2<|start_header_id|>assistant<|end_header_id|>\n\nb",
        2,
    ),
    "one turn about an assistant": ("user\nQ\nassistant\n", "The user\nasks the assistant\n4", 1),
    "a base model": ("Q:", "a\nuser\nassistant\nb", 1),
}


@pytest.mark.parametrize("case", ONE_TEXT)
def test_a_text_of_several_turns_has_their_number(case, tmp_path):
    prompt, response, turns = ONE_TEXT[case]
    write_lines(tmp_path / "1.jsonl", verl(prompt, 1.0) | {"output": response})
    (group,), _, _ = imported("verl", tmp_path / "1.jsonl", tmp_path / "out")
    (rollout,) = group.rollouts
    assert rollout.turns == turns and "".join(contents(rollout)) == prompt + response


def rows_of(question, *texts):
    return [(question, text, float(number % 2)) for number, text in enumerate(texts)]


def test_completions_that_trl_saved_at_several_steps_count_once(tmp_path):
    """It saves what it generated last whenever it logs; of an evaluation that is shorter, with the rows before."""
    first, second = [*rows_of("Q1", "a", "b"), *rows_of("Q2", "c", "d")], [*rows_of("Q3", "e", "f")]
    for step, rows in enumerate([first, first, [*first[2:], *second], [*first[2:], *second]], 1):
        completions(tmp_path / "completions", step, rows)
    groups, rewards, said = imported("trl", tmp_path / "completions", tmp_path / "out")
    assert rewards == [[0, 1]] * 3 and [group.step for group in groups] == [1, 1, 3]
    assert "10 rollouts saved again and counted once" in said


def test_equal_answers_of_several_evaluations_are_counted_if_the_user_says_what_they_are(tmp_path):
    for step in (10, 20, 30):
        completions(tmp_path / "completions", step, [*rows_of("Q1", "a", "b"), *rows_of("Q2", "c", "d")])
    _, rewards, said = imported("trl", tmp_path / "completions", tmp_path / "once")
    assert rewards == [[0, 1]] * 2 and "(if these are evaluations, --phase eval counts each)" in said
    groups, rewards, said = imported("trl", tmp_path / "completions", tmp_path / "each", "--phase", "eval")
    assert rewards == [[0, 1]] * 6 and sorted({group.step for group in groups}) == [10, 20, 30] and "again" not in said


def test_equal_completions_of_different_advantage_are_different_rollouts(tmp_path):
    completions(tmp_path / "completions", 1, rows_of("Q", "a", "b"))
    completions(tmp_path / "completions", 2, [("Q", "a", 1.0), ("Q", "b", 0.0)])
    groups, _, said = imported("trl", tmp_path / "completions", tmp_path / "out")
    assert len(groups) == 2 and "again" not in said


def test_a_trace_that_prime_rl_has_twice_counts_once(tmp_path):
    episode = json.loads((Path(__file__).parent / "files" / "verifiers" / "traces.jsonl").read_text().splitlines()[0])
    for subset in ("all", "effective"):
        write_lines(tmp_path / "run" / "step_7" / "train" / subset / "traces.jsonl", episode)
    _, rewards, said = imported("verifiers", tmp_path / "run", tmp_path / "out")
    assert rewards == [[1.5]] and "1 rollout saved again" in said


# -- groups of equal prompts


def test_a_prompt_that_came_twice_in_a_step_is_two_groups_if_the_others_tell(tmp_path):
    twice = [verl("Q", score) for score in [0.0] * 4 + [1.0] * 4]
    others = [verl(f"Q{number}", score) for number in range(2) for score in (0.0, 1.0, 0.0, 1.0)]
    write_lines(tmp_path / "1.jsonl", *twice, *others)
    groups, rewards, said = imported("verl", tmp_path / "1.jsonl", tmp_path / "out")
    assert [0.0] * 4 in rewards and [1.0] * 4 in rewards and sum(group.no_signal for group in groups) == 2
    assert "4 groups formed by equal prompts" in said and "1 of them by their number of rows" in said


def test_sizes_that_tell_nothing_split_nothing(tmp_path):
    sizes = {"Q1": 2, "Q2": 4, "Q3": 6}
    write_lines(tmp_path / "1.jsonl", *(verl(prompt, 0.0) for prompt, size in sizes.items() for _ in range(size)))
    _, rewards, said = imported("verl", tmp_path / "1.jsonl", tmp_path / "out")
    assert list(map(len, rewards)) == [2, 4, 6] and "by their number" not in said


# -- phases

TRAIN = [[f"T{step}{number}" for number in range(2)] for step in range(12)]
PHASES = {
    # What TRL saves: the evaluation in place of a step, or after the last rows of it.
    "an evaluation in place of each second step": ("trl", {1: TRAIN[1], 2: ["E"], 3: TRAIN[3], 4: ["E"]}, [2, 4]),
    "after rows of training": ("trl", {1: TRAIN[1], 2: [*TRAIN[2], "E"], 3: TRAIN[3], 4: [*TRAIN[4], "E"]}, [2, 4]),
    "nothing but evaluations": (
        "verl",
        {0: ["E", "F"], 10: ["E", "F"], 20: ["E", "F"], 23: ["E", "F"]},
        [0, 10, 20, 23],
    ),
    "at each step": ("trl", {1: ["E"], 2: ["E"]}, [1, 2]),
    "more often than epochs": ("verl", {k: [*TRAIN[k % 6], *["E"] * (k % 2 == 0)] for k in range(1, 9)}, [2, 4, 6, 8]),
    "two epochs": ("verl", {step: TRAIN[step % 4] for step in range(1, 9)}, []),
    "one batch at all steps": ("verl", {step: ["Q"] for step in range(1, 5)}, []),
    "not regularly": ("verl", {1: ["A"], 2: TRAIN[2], 4: ["A"], 5: ["A"]}, []),
    "one step": ("trl", {2: ["A"]}, []),
    "far apart": ("verl", {0: ["A"], 2**62: ["A"]}, [0, 2**62]),
}


def write_steps(folder, form, steps):
    for step, questions in steps.items():
        rows = [(question, f"{step} {number}", float(number)) for question in questions for number in range(2)]
        if form == "trl":
            completions(folder, step, rows)
        else:
            write_lines(folder / f"{step}.jsonl", *(verl(question, score, step) for question, _, score in rows))


@pytest.mark.parametrize("case", PHASES)
def test_prompts_that_come_back_regularly_are_taken_for_an_evaluation(case, tmp_path):
    form, steps, evaluations = PHASES[case]
    write_steps(tmp_path / "source", form, steps)
    groups, _, said = imported(form, tmp_path / "source", tmp_path / "out")
    evaluated = {
        (group.step, group.rollouts[0].conversation[0]["content"]) for group in groups if group.phase == "eval"
    }
    assert sorted({step for step, _ in evaluated}) == evaluations
    assert {question for _, question in evaluated} <= {"E", "F", "A"}
    assert "assumed train" in said
    assert ("where the same prompts come back" in said) == bool(evaluations)


@pytest.mark.parametrize("phase", ["train", "eval"])
def test_the_phase_that_the_user_names_is_that_of_all_records_and_not_said(phase, tmp_path):
    write_steps(tmp_path / "source", "trl", PHASES["after rows of training"][1])
    code, said = dumps("import", "trl", tmp_path / "source", "--out", tmp_path / "out", "--phase", phase)
    assert code == 0 and "phase" not in said
    assert {group.phase for group in open_run(tmp_path / "out").groups()} == {phase}
    for kind in ("sft", "dpo"):
        _, said = dumps("export", kind, tmp_path / "out", "--include-eval", "--out", tmp_path / f"{kind}.jsonl")
        assert "was assumed" not in said


def test_exports_of_a_phase_that_nobody_named_say_so(tmp_path):
    write_steps(tmp_path / "source", "verl", {1: ["Q"]})
    imported("verl", tmp_path / "source", tmp_path / "out")
    for kind in ("sft", "dpo"):
        _, said = dumps("export", kind, tmp_path / "out", "--out", tmp_path / f"{kind}.jsonl")
        assert "The phase of imported rollouts was assumed (train)" in said
    _, said = dumps("export", "card", tmp_path / "out")
    assert "was assumed (train)" in said and "was assumed (train)" in (tmp_path / "out" / "README.md").read_text()


def test_a_phase_that_records_name_is_kept(tmp_path):
    source = arm(tmp_path, 1.0)
    code, said = dumps("import", "skyrl", source, "--out", tmp_path / "out", "--phase", "train")
    assert code == 0 and {group.phase for group in open_run(tmp_path / "out").groups()} == {"eval"}, said


def test_that_trl_saves_one_step_of_several_is_said(tmp_path):
    for step in (5, 10):
        completions(tmp_path / "completions", step, rows_of(f"Q{step}", "a", "b"))
    _, _, said = imported("trl", tmp_path / "completions", tmp_path / "out")
    assert "one step in 5 (TRL saves one in `logging_steps`)" in said


# -- rewards and numbers


def test_the_reward_of_several_numbers_is_the_one_that_the_user_chooses(tmp_path):
    completions(tmp_path / "completions", 1, rows_of("Q", "a", "b"), confidence=[0.25, 0.75])
    _, _, said = imported("trl", tmp_path / "completions", tmp_path / "unknown")
    assert "the numbers are reward, confidence: --reward NAME chooses one" in said
    import_it = ("import", "trl", tmp_path / "completions", "--reward")
    assert dumps(*import_it, "confidence", "--out", tmp_path / "out")[0] == 0
    (group,) = open_run(tmp_path / "out").groups()
    assert [rollout.reward for rollout in group.rollouts] == [0.25, 0.75]
    completions(tmp_path / "one", 1, rows_of("Q", "a", "b"))
    table = pl.read_parquet(tmp_path / "one" / "completions_00001.parquet")
    table.rename({"reward": "Qwen2.5-RM"}).write_parquet(tmp_path / "one" / "completions_00001.parquet")
    _, rewards, _ = imported("trl", tmp_path / "one", tmp_path / "dotted")
    assert rewards == [table["reward"].to_list()]
    code, said = dumps(*import_it, "confidenze", "--out", tmp_path / "no")
    assert code == 2 and "has no number `confidenze` (--reward), but: reward, confidence" in said
    write_lines(tmp_path / "atif" / "a.json", trajectory(step("agent", "x"), extra={"accuracy": 0.25, "note": "y"}))
    import_atif = ("import", "atif", tmp_path / "atif", "--reward")
    assert dumps(*import_atif, "accuracy", "--out", tmp_path / "atif-out")[0] == 0
    (group,) = open_run(tmp_path / "atif-out").groups()
    assert group.rollouts[0].reward == 0.25
    code, said = dumps(*import_atif, "note", "--out", tmp_path / "no")
    assert code == 2 and "has no number `note` (--reward), but: accuracy" in said
    write_lines(tmp_path / "1.jsonl", verl("Q", 0.5, acc=True))
    assert dumps("import", "verl", tmp_path / "1.jsonl", "--reward", "acc", "--out", tmp_path / "verl")[0] == 0
    (group,) = open_run(tmp_path / "verl").groups()
    assert group.rollouts[0].reward == 1
    code, said = dumps("import", "skyrl", tmp_path, "--reward", "x", "--out", tmp_path / "no")
    assert code == 2 and "records of SkyRL have one reward" in said


def test_an_infinite_product_of_reward_and_weight_is_unknown(tmp_path):
    file = Path(__file__).parent / "files" / "vf-eval" / "traces.jsonl"
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    for episode in episodes:
        for trace in episode["traces"]:
            trace["rewards"] = {"right": {"score": 1e200, "weight": 1e200}}
    write_lines(tmp_path / "traces.jsonl", *episodes)
    groups, _, _ = imported("verifiers", tmp_path / "traces.jsonl", tmp_path / "out")
    assert {rollout.status for group in groups for rollout in group.rollouts} == {"unscored"}


@pytest.mark.parametrize("number", [2**70, -(2**63) - 1, 10**400])
def test_whole_numbers_of_any_size_stay_whole(number, tmp_path):
    write_lines(tmp_path / "1.jsonl", verl("Q", 1.0) | {"gts": number})
    (group,), _, _ = imported("verl", tmp_path / "1.jsonl", tmp_path / "out")
    assert group.expected_answer == str(number)


# -- ATIF and jobs of Harbor


def step(source, message, **more):
    return {"source": source, "message": message, **more}


def trajectory(*steps, **more):
    return {"schema_version": "ATIF-v1.8", "agent": {"name": "a", "version": "1"}, "steps": list(steps), **more}


COPIED = {"is_copied_context": True}


def test_copied_steps_are_context_and_no_turns(tmp_path):
    steps = [step("user", "q", **COPIED), step("agent", "old", **COPIED), step("user", "on"), step("agent", "new")]
    write_lines(tmp_path / "a.json", trajectory(*steps, extra={"reward": 1.0}))
    (group,), _, _ = imported("atif", tmp_path / "a.json", tmp_path / "out")
    (rollout,) = group.rollouts
    assert (rollout.turns, contents(rollout)) == (1, ["[user]\nq\n\n[assistant]\nold", "on", "new"])
    out = tmp_path / "sft.jsonl"
    assert dumps("export", "sft", tmp_path / "out", "--include-eval", "--out", out)[0] == 0
    said = [message["content"] for message in json.loads(out.read_text())["messages"] if message["role"] == "assistant"]
    assert said == ["new"]


def trial(job, name, rewards, *, task="add", reward_file="", **documents):
    folder = job / name
    files = {"config.json": {"task": {"path": task}}, "verifier/ctrf.json": {"results": {}}}
    result = {"trial_name": name, "task_name": task, "agent_info": {"name": "terminus-2"}, "source": "bench"}
    files["result.json"] = result | {"verifier_result": rewards and {"rewards": rewards}}
    documents = documents or {"trajectory.json": trajectory(step("user", "q"), step("agent", name))}
    files |= {f"agent/{file}": content for file, content in documents.items()}
    for file, content in files.items():
        write_lines(folder / file, content)
    if reward_file:
        (folder / "verifier" / "reward.txt").write_text(reward_file)
    return folder


def test_a_job_of_harbor_has_its_tasks_and_rewards(tmp_path):
    job = tmp_path / "jobs" / "2026-01-01"
    trial(job, "add__1", {"reward": 1})
    trial(job, "add__2", None, reward_file="0.25\n")
    trial(job, "add__3", {"a": 0.5, "b": 1.0})
    trial(job, "sub__1", {"correct": 0.0}, task="sub")
    write_lines(job / "add__1" / "user-agent" / "trajectory.json", trajectory(step("agent", "as a user")))
    write_lines(job / "result.json", {"n_total_trials": 4})
    write_lines(job / "config.json", {"job_name": "x"})
    (add, sub), rewards, said = imported("atif", tmp_path / "jobs", tmp_path / "out")
    assert (add.item, sub.item, add.task, add.phase) == ("add", "sub", "bench", "eval")
    assert [rollout.reward for rollout in add.rollouts[:2]] == [1.0, 0.25] and rewards[1] == [0.0]
    assert add.rollouts[2].status == "unscored" and "the numbers are a, b: --reward NAME chooses one" in said
    assert "equal prompts" not in said
    assert dumps("stats", tmp_path / "out")[0] == 0


def test_a_trial_without_a_trajectory_is_named(tmp_path):
    job = tmp_path / "jobs" / "a"
    trial(job, "add__1", {"reward": 1})
    (trial(job, "add__2", {"reward": 0}) / "agent" / "trajectory.json").unlink()
    code, said = dumps("import", "atif", tmp_path / "jobs", "--out", tmp_path / "out")
    assert code == 1 and "a/add__2: a trial without agent/trajectory.json; left out" in said and "1 rollout in" in said


def test_a_trajectory_that_goes_on_in_other_files_is_one_rollout(tmp_path):
    first = trajectory(step("user", "q"), step("agent", "one"), continued_trajectory_ref="trajectory.cont-1.json")
    second = trajectory(step("user", "q, summed up", **COPIED), step("agent", "two"))
    summary = trajectory(step("user", "sum up"), step("agent", "a summary"))
    files = {
        "trajectory.json": first,
        "trajectory.cont-1.json": second,
        "trajectory.summarization-1-summary.json": summary,
    }
    trial(tmp_path / "jobs" / "a", "add__1", {"reward": 1}, **files)
    (group,), rewards, _ = imported("atif", tmp_path / "jobs", tmp_path / "out")
    assert rewards == [[1.0]] and group.rollouts[0].turns == 2
    assert contents(group.rollouts[0]) == ["q", "one", "[user]\nq, summed up", "two"]


@pytest.mark.parametrize("name", ["../../secret.json", "/a/b.json", "trajectory.json"])
def test_a_trajectory_goes_on_in_a_file_beside_it_only(name, tmp_path):
    write_lines(tmp_path / "secret.json", trajectory(step("agent", "secret")))
    first = trajectory(step("user", "q"), step("agent", "one"), continued_trajectory_ref=name)
    trial(tmp_path / "jobs" / "a", "add__1", {"reward": 1}, **{"trajectory.json": first})
    (group,), _, _ = imported("atif", tmp_path / "jobs", tmp_path / "out")
    assert contents(group.rollouts[0]) == ["q", "one"]


def test_steps_of_a_trial_have_their_own_rewards(tmp_path):
    folder = tmp_path / "jobs" / "a" / "add__1"
    for number, name in enumerate(("plan", "do")):
        write_lines(
            folder / "steps" / name / "agent" / "trajectory.json", trajectory(step("user", name), step("agent", "x"))
        )
        (folder / "steps" / name / "verifier").mkdir()
        (folder / "steps" / name / "verifier" / "reward.txt").write_text(str(number))
    write_lines(folder / "result.json", {"trial_name": "add__1", "task_name": "add", "verifier_result": None})
    groups, _, _ = imported("atif", tmp_path / "jobs", tmp_path / "out")
    assert {group.item: group.rollouts[0].reward for group in groups} == {"add do": 1, "add plan": 0}


# -- files that people have


def test_the_chunks_of_prime_rl_are_read_and_its_annotations_are_no_episodes(tmp_path):
    lines = (Path(__file__).parent / "files" / "verifiers" / "traces.jsonl").read_text().splitlines()
    episode = json.loads(lines[0])
    episode["run"] = {"type": "train", "id": "r"}
    episode["traces"][0]["info"] = {"kind": "eval", "dispatch": {"step": 3}}
    traces = tmp_path / "run" / "monitors" / "file" / "traces"
    write_lines(traces / "stream" / "00000.jsonl", episode)
    write_lines(traces / "stream.index.jsonl", {"line": 1, "id": "x"})
    write_lines(traces / "annotations" / "orch" / "00000.jsonl", {"version": 1, "trace_id": "x", "info": {}})
    (group,), rewards, _ = imported("verifiers", tmp_path / "run", tmp_path / "out")
    assert (group.phase, group.step, rewards) == ("eval", 3, [[1.5]])


def test_a_file_and_its_compressed_copies_are_read_once(tmp_path):
    for number in (1, 2):
        content = write_lines(tmp_path / "verl" / f"{number}.jsonl", verl("Q", 0.5, number)).read_bytes()
        (tmp_path / "verl" / f"{number}.jsonl.zst").write_bytes(zstd.compress(content))
    (tmp_path / "verl" / "2.jsonl").unlink()
    (tmp_path / "verl" / "2.jsonl.gz").write_bytes(gzip.compress(content))
    _, rewards, _ = imported("verl", tmp_path / "verl", tmp_path / "out")
    assert rewards == [[0.5], [0.5]]


def test_nemo_gym(tmp_path):
    wrong = GYM | {"reward": 0.0, "response": {"output": GYM["response"]["output"][-1:]}}
    cut = GYM | {"response": GYM["response"] | {"incomplete_details": {"reason": "max_output_tokens"}}}
    masked = GYM | {"mask_sample": True, "_ng_task_index": 7}
    output = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    steps = {"responses_create_params": {"input": []}, "response": {"output": [output[:1], output]}, "reward": -1.0}
    write_lines(tmp_path / "data" / "example_rollouts.jsonl", GYM, wrong, cut, masked, steps)
    write_lines(tmp_path / "data" / "example.jsonl", {"responses_create_params": {}})
    write_lines(tmp_path / "data" / "example_rollouts_materialized_inputs.jsonl", {"responses_create_params": {}})
    (sums, one, other), rewards, said = imported("nemo-gym", tmp_path / "data", tmp_path / "out")
    assert (rewards[0], rewards[2]) == ([1.0, 0.0, 1.0], [-1.0]) and "reward of 1 unknown" in said
    assert (sums.task, sums.expected_answer, sums.phase, one.uid.split()[0]) == ("sums", "2", "eval", "7")
    first = sums.rollouts[0]
    call = "<think>I call.</think>\n" + '[tool_call {"name": "add", "arguments": "{\\"a\\": 1}"}]'
    assert contents(first) == ["Add.", "1+1?", call, "2", "It is 2."]
    assert (first.turns, first.response_tokens, first.truncated, sums.rollouts[2].stop_reason) == (
        2,
        9,
        False,
        "length",
    )
    assert one.rollouts[0].masked and contents(other.rollouts[0]) == ["2+2?", "4"]
    assert [rollout.stop_reason for rollout in sums.rollouts] == ["stop", "stop", "length"]
    _, said = dumps("stats", tmp_path / "out", "--json", "--by", "phase")
    assert json.loads(said)[0]["truncated"] == 0.25


def test_collections_of_nemo_gym_in_one_folder_keep_their_questions_apart_and_shards_unite(tmp_path):
    rows = {"math-rs0-chunk0": ("1+1?", "a", 1.0), "math-rs1-chunk0": ("1+1?", "a", 1.0)}
    rows |= {"code": ("2+2?", "a", 0.0), "other": ("1+1?", "b", 0.5)}
    for name, (question, model, reward) in rows.items():
        row = GYM | {"_ng_task_index": 0, "reward": reward, "responses_create_params": {"input": question}}
        row["response"] = GYM["response"] | {"model": model}
        write_lines(tmp_path / "data" / f"{name}_rollouts.jsonl", row)
    _, rewards, said = imported("nemo-gym", tmp_path / "data", tmp_path / "out")
    assert sorted(rewards) == [[0.0], [0.5], [1.0, 1.0]] and "equal prompts" not in said


def test_failures_of_nemo_gym_are_unscored(tmp_path):
    failed = GYM | {"_ng_failure_class": "judge_failed", "reward": 0.0}
    write_lines(tmp_path / "data" / "eval.jsonl", GYM, failed)
    write_lines(tmp_path / "data" / "eval_failures.jsonl", failed)
    (group,), _, said = imported("nemo-gym", tmp_path / "data", tmp_path / "out")
    assert [rollout.status for rollout in group.rollouts] == ["ok", "unscored"] and "reward of 1 unknown" in said


OLDER = {
    "results of verifiers": ("verifiers", "results.jsonl", {"prompt": [], "completion": [], "reward": 1.0}),
    "rollouts of prime-rl": ("verifiers", "train_rollouts.jsonl", {"example_id": 1, "prompt": [], "reward": 1.0}),
    "process of Atropos": ("atropos", "results.jsonl", {"tokens": [[1]], "messages": [[]], "scores": [1.0]}),
}


@pytest.mark.parametrize("case", OLDER)
def test_files_that_are_not_read_name_the_way(case, tmp_path):
    form, name, row = OLDER[case]
    write_lines(tmp_path / "source" / name, row)
    code, said = dumps("import", form, tmp_path / "source", "--out", tmp_path / "out")
    assert code == 2 and ("update verifiers" in said or "set dump_rollouts=true" in said)


def test_nothing_says_that_an_import_of_atropos_has_every_group(tmp_path):
    sentence = "Atropos saves no group that is all correct"
    write_lines(tmp_path / "data_dumps" / "a.jsonl", json.loads(atropos(1, 0).replace(r"\ud800", "")))
    _, _, said = imported("atropos", tmp_path / "data_dumps", tmp_path / "runs" / "out")
    assert sentence in said
    _, said = dumps("stats", tmp_path / "runs" / "out")
    assert sentence in said and "every group" not in said
    (run,) = list_runs(tmp_path / "runs")
    assert run.end == "finished" and sentence in run.never_saved


def test_a_prompt_is_paired_with_the_same_prompt_of_another_import(tmp_path):
    """Ids of questions are made of the prompt alone."""
    write_lines(tmp_path / "1.jsonl", verl("Q", 1.0))
    result = import_records("verl", FORMATS["verl"], tmp_path / "1.jsonl", tmp_path / "a")
    completions(tmp_path / "completions", 3, rows_of("Q", "a", "b"))
    imported("trl", tmp_path / "completions", tmp_path / "b")
    (first,), (second,) = open_run(tmp_path / "a").groups(), open_run(tmp_path / "b").groups()
    assert result.groups == 1 and first.item == second.item
