"""Everything that reads dumps, on one of three environments: rg_dump, gsm8k and gsm8k_multi_turn."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from rg_env.analysis.stats import statistics
from rg_env.cli.app import app
from rg_env.dump import Attempt, DumpWriter, open_run, write_manifest
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.generator import RGDumpGenerator
from tests.analysis.reports import Report
from tests.skyrl.generating import TASK, right, script_for
from tests.skyrl.test_recorder import MULTI_TURN, batch_of, make, prompts, script


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two steps with three environments each."""
    folder = tmp_path_factory.mktemp("mixed")
    rows = ReasoningGymDataset(TASK, size=2)
    answers = script_for(rows, right("{}"), right("no"), "no tags")

    def both(prompt, sample):
        return script(prompt, sample) if "Be brief" in prompt else answers(prompt, sample)

    with DumpWriter(folder, "run", 1) as writer:
        write_manifest(folder, "run", Attempt(attempt=1, model="scripted"))
        generator = make(RGDumpGenerator, both, MULTI_TURN, writer=writer)
        for step in (1, 2):
            batch = [*rows.collate_fn([rows[0], rows[1]]), *prompts("gsm8k_multi_turn", 2), *prompts("gsm8k", 1)]
            batch = [row | {"uid": str(number)} for number, row in enumerate(batch)]
            asyncio.run(generator.generate(batch_of(batch, step=step)))
    return folder


def run(*args):
    result = CliRunner().invoke(app, ["dumps", *map(str, args)])
    assert result.exit_code == 0, result.output
    return result.output


def test_statistics_keep_env_classes_apart(mixed):
    found = statistics(open_run(mixed).scan(), "phase")
    assert found.select("phase", "environment").rows() == [
        ("train", name) for name in ("gsm8k", "gsm8k_multi_turn", "rg_dump")
    ]
    assert found["format_rate"].to_list() == [None, None, pytest.approx(2 / 3)]
    assert found["solve_rate"].to_list() == [0.0, pytest.approx(1 / 3), pytest.approx(1 / 3)]
    alone = statistics(open_run(mixed).where(["environment = 'gsm8k'"]).scan(), "environment")
    assert alone.select("phase", "environment").rows() == [("train", "gsm8k")]


def test_every_command_reads_it(mixed, tmp_path):
    assert "no problems found" in run("validate", mixed)
    assert "gsm8k_multi_turn" in run("stats", mixed, "--by", "task")
    assert json.loads(run("stats", mixed, "--json"))
    assert "nothing found" in run("signs", mixed)
    assert "0 changed" in run("rescore", mixed)
    run("report", mixed, "--out", tmp_path / "report.html")
    groups = Report((tmp_path / "report.html").read_text()).groups
    reported = next(group for group in groups if group["environment"] == "gsm8k_multi_turn")
    assert [message["role"] for message in reported["prompt"]] == ["system", "user"]
    assert reported["rollouts"][0]["text"].startswith("[assistant]\n  turn 0")
    shown = run("show", mixed, "--where", "environment = 'gsm8k_multi_turn'")
    assert "[user]" in shown and "[assistant]" in shown and "2 turns" in shown


def test_exports_have_whole_conversations_and_no_pair_of_different_prompts(mixed, tmp_path):
    run("export", "sft", mixed, "--out", tmp_path / "sft.jsonl", "--where", "environment = 'gsm8k_multi_turn'")
    lines = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    assert [one["role"] for one in lines[0]["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    result = CliRunner().invoke(app, ["dumps", "export", "dpo", str(mixed), "--out", str(tmp_path / "dpo.jsonl")])
    assert result.exit_code in (0, 1)
    pairs = [json.loads(line) for line in (tmp_path / "dpo.jsonl").read_text().splitlines()]
    assert {pair["task"] for pair in pairs} == {"chain_sum"}
