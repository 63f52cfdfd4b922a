"""What the Atropos environment's dumps get wrong, with numbers, through the real generator, scorers and files."""

import json
from collections import Counter

import pytest

from rg_env.analysis.stats import statistics
from rg_env.configuration.config import RGDumpConfig, ScorerConfig
from rg_env.dump import DumpWriter, Outcome, open_run
from rg_env.rows.dataset import ReasoningGymDataset
from tests.skyrl.generating import SAMPLES, TASK, oracle, right, run, total

ITEMS = 10


@pytest.fixture(scope="module")
def items():
    return ReasoningGymDataset(TASK, size=ITEMS)


def record(items, folder, right_in_group, **settings):
    """Train on `items`, of whose group *k* the first `right_in_group[k]` responses are right; read the record back."""
    answers = oracle(items)
    wanted = dict(zip(answers, right_in_group, strict=True))

    def script(prompt, sample):
        question = next(question for question in answers if question in prompt)
        return right(answers[question] if sample < wanted[question] else "no")

    with DumpWriter(folder, "run", 1) as writer:
        output, _ = run(items, script, writer=writer, **settings)
    return output, open_run(folder)


def test_a_right_group_at_the_length_limit_has_not_failed(items, tmp_path):
    """Atropos' penalty takes its scores to 0 before it looks which groups failed: all 10 would lie in FAILED."""
    answers = oracle(items)

    def script(prompt, sample):
        answer = next(answer for question, answer in answers.items() if question in prompt)
        return f"<think>{'1' * 200}</think><answer>{answer}</answer>"

    with DumpWriter(tmp_path, "run", 1) as writer:
        output, _ = run(items, script, writer=writer)
    assert {total(reward) for reward in output["rewards"]} == {0.0}
    dump = open_run(tmp_path)
    assert {line.text for line in dump.ledger()} == {"rollouts"}
    for group in dump.groups():
        assert group.outcome is Outcome.ALL_CORRECT
        assert group.no_signal
        assert {(r.base_score, r.penalty_factor, r.score, r.reward) for r in group.rollouts} == {(1.0, 0.0, 0.0, 0.0)}
    assert len(list(dump.ledger())) == ITEMS


@pytest.mark.parametrize(
    ("right_in_group", "atropos"),
    [([4] * 8 + [2] * 2, 0.5), ([4] * 9 + [0], 0.0)],
    ids=["some groups mixed", "no group mixed"],
)
def test_a_solve_rate_of_nine_tenths_reads_nine_tenths(items, tmp_path, right_in_group, atropos):
    """36 of 40 responses are right. Atropos' environment drops groups in which all is right before it saves."""
    output, dump = record(items, tmp_path, right_in_group)
    [row] = statistics(dump.scan()).iter_rows(named=True)
    assert row["solve_rate"] == pytest.approx(0.9)
    assert row["mean_base_score"] == pytest.approx(0.9)
    assert output["rollout_metrics"]["environment/rg_dump/mean_solved"] == pytest.approx(0.9)
    kept = Counter(group.outcome for group in dump.where(["text = 'rollouts'"]).groups())
    assert kept[Outcome.ALL_CORRECT] == right_in_group.count(4) and kept[Outcome.MIXED] == right_in_group.count(2)
    left = [n for n in right_in_group if n < SAMPLES]
    assert sum(left) / (SAMPLES * len(left)) == atropos, "what is left where groups that are all right are dropped"


def test_scores_stay_with_their_texts_where_responses_drop_out(tmp_path, monkeypatch):
    """Atropos' environment skips responses and saves the texts of one list with the scores of the other.

    Of five responses, the second is cut off, which keeps it out of the loss, and the third makes its scorer spin.
    """

    # However busy the machine is, the one that spins uses up its CPU time.
    monkeypatch.setattr("rg_env.runner.caller_pool.WALL_FACTOR", 10_000.0)
    rows = [{"question": f"What is right for {number}?", "answer": f"right {number}"} for number in range(10, 50)]
    path = tmp_path / "acts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    file = {"path": str(path), "scorer": "tests.scoring.file_scorer_functions.acting"}
    acts = ReasoningGymDataset({"acts": {"file": file}}, size=2)
    answers = oracle(acts)

    def script(prompt, sample):
        answer = next(answer for question, answer in answers.items() if question in prompt)
        return [right("no"), "<think>cut off…", right("spin"), right(answer), "no tags"][sample]

    config = RGDumpConfig(on_scorer_failure="mask", scorer=ScorerConfig(timeout=1.0))
    with DumpWriter(tmp_path / "dumps", "run", 1) as writer:
        output, _ = run(acts, script, config=config, writer=writer, samples=5, apply_overlong_filtering=True)
    groups = list(open_run(tmp_path / "dumps").groups())
    assert len(groups) == 2
    for group in groups:
        said = {r.conversation[-1]["content"]: (r.base_score, r.status, r.violation) for r in group.rollouts}
        assert list(said.values()) == [
            (0.0, "ok", ""),
            (0.0, "ok", "unclosed_think"),
            (0.0, "timeout", ""),
            (1.0, "ok", ""),
            (0.0, "ok", "no_think"),
        ]
        assert [text.endswith("</answer>") for text in said] == [True, False, True, True, False]
        assert said[right(answers[group.rollouts[0].conversation[-2]["content"]])][0] == 1.0
    trained = [rollout.reward for group in groups for rollout in group.rollouts]
    assert [total(reward) for reward in output["rewards"]] == trained
    in_loss = [any(mask) for number, mask in enumerate(output["loss_masks"]) if number % 5 != 2]
    assert in_loss == [True, False, True, True] * 2, "on a busy machine, the scorer that spins may get no core: masked"
