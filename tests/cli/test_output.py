"""What comes from models and from other people's dumps is shown, never obeyed."""

from __future__ import annotations

import json
import math
import sys
import unicodedata
from pathlib import Path

import pytest
from loguru import logger
from rich.table import Table

from rg_env.base.output import cell, console, guard_streams, print_error, print_fields, print_json, print_line
from rg_env.cli import main
from rg_env.dump import FileKind, ledger_line, to_line
from rg_env.dump.files import batch_name, lock_name, manifest_name
from tests.dump.records import group, rollout

EVIL = (
    "=x\x1b]52;c;Y3VybCBldmlsfHNo\x07\x1b[2J\x9b31m\r\x08\x00\x7f\u202e\u2066\u200b\u2028\n"
    "rg-env: all is well\ttab[/red][bold]\U000e0041"
)
NAME = EVIL.translate({0: None, ord("/"): None, ord("\n"): None, 0xD800: None, 0x2028: None})
"""As much of it as a file name can have."""
SNEAKY = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def hidden(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) in SNEAKY and character != "\n"}


def evil_group(uid: int):
    response = {"role": "assistant", "content": f"<think>{EVIL}</think><answer>{EVIL}</answer>"}
    texts = dict.fromkeys(["answer", "detail", "stop_reason", "policy_version"], EVIL)
    texts["conversation"] = [{"role": EVIL, "content": EVIL}, response]
    rollouts = [rollout(score, k, **texts) for k, score in enumerate([1.0, 0.0, 1.0, 0.0])]
    entry = {"question": EVIL, "answer": EVIL, "metadata": {"source_dataset": EVIL, EVIL: EVIL}}
    names = dict.fromkeys(["task", "item_id", "item", "group_id", "run_id"], EVIL)
    names |= {"run_id": NAME, "group_id": f"{EVIL}{uid}", "item": f"{EVIL}{uid}"}
    level, config = json.dumps({EVIL: EVIL}), json.dumps({EVIL: EVIL})
    return group(uid, rollouts, **names, step=uid, level=level, task_config=config, entry=json.dumps(entry))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dump")
    groups = [evil_group(uid) for uid in range(12)]
    corrupt = b'{"' + NAME.encode() + b'": \x1b]0;title\x07\n{"item_id": "\x1b[2J", "rollouts": "\x1b[31m"}\n'
    texts, ledger = (folder / batch_name(kind, NAME, 0) for kind in (FileKind.ROLLOUTS, FileKind.LEDGER))
    texts.write_bytes(b"".join(map(to_line, groups)) + corrupt)
    ledger.write_bytes(b"".join(ledger_line(record, FileKind.ROLLOUTS) for record in groups) + corrupt)
    settings = {"attempt": 1, "model": EVIL, EVIL: EVIL}
    (folder / manifest_name(NAME)).write_text(json.dumps({**settings, "attempts": [settings]}))
    (folder / lock_name(NAME)).write_bytes(b"process 1\x1b]0;title\x07 on elsewhere\n")
    return folder


@pytest.fixture
def run(monkeypatch, capfd):
    """Run the command line in this process; returns exit code, standard output and standard error."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["rg-env", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capfd.readouterr()
        return end.value.code or 0, captured.out, captured.err

    yield run
    logger.configure(patcher=lambda record: None)


COMMANDS = {
    "stats": ["stats", "DUMP"],
    "stats by step": ["stats", "DUMP", "--by", "step"],
    "stats details": ["stats", "DUMP", "--by", "level", "--details"],
    "stats json": ["stats", "DUMP", "--json"],
    "stats against": ["stats", "DUMP", "--against", "DUMP"],
    "a condition that nothing fulfills": ["stats", "DUMP", "--where", "task = 'gcd'"],
    "a wrong condition": ["stats", "DUMP", "--where", EVIL.replace("\0", "")],
    "show": ["show", "DUMP", "--plain", "--every-rollout"],
    "show nothing": ["show", "DUMP", "--plain", "--search", NAME + "?"],
    "report": ["report", "DUMP", "--out", "OUT/report.html"],
    "signs": ["signs", "DUMP"],
    "signs json": ["signs", "DUMP", "--json"],
    "validate": ["validate", "DUMP"],
    "validate json": ["validate", "DUMP", "--json"],
    "rescore": ["rescore", "DUMP", "--workers", "1", "--out", "OUT/changes.jsonl"],
    "rescore json": ["rescore", "DUMP", "--workers", "1", "--json"],
    "export sft": ["export", "sft", "DUMP", "--out", "OUT/sft/train.jsonl"],
    "export dpo": ["export", "dpo", "DUMP", "--out", "OUT/dpo/train.jsonl"],
    "runs": ["runs", "DUMP"],
    "runs json": ["runs", "DUMP", "--json"],
    "no such file": ["stats", "OUT/" + NAME],
    "an argument too many": ["report", "DUMP", "--" + NAME],
    "no such option": ["stats", "DUMP", "--" + NAME],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_nothing_that_a_terminal_obeys(command, run, folder, tmp_path):
    args = [folder if arg == "DUMP" else arg.replace("OUT/", f"{tmp_path}/") for arg in COMMANDS[command]]
    code, out, err = run(*args) if args[0] == "runs" else run("dumps", *args)
    assert code in (0, 1, 2)
    assert out or err
    assert "Traceback" not in err
    assert not hidden(out)
    assert not hidden(err)
    assert not any(line.startswith("rg-env: all is well") for line in (out + err).splitlines())
    if "--json" in args and code != 2:
        json.loads(out)
        assert out.isascii()


def test_a_response_cannot_write_the_clipboard(run):
    code, out, err = run("score", "gcd", "--response", f"<think></think><answer>{EVIL}</answer>")
    assert code == 0
    assert not hidden(out + err)
    assert "␛]52;" in out
    _, out, _ = run("score", "gcd", "--response", f"<think></think><answer>{EVIL}</answer>", "--json")
    assert not hidden(out)
    assert json.loads(out)["parsed_answer"] == EVIL.strip()


def test_an_error_that_nobody_expected_is_shown_safely(run, monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError(EVIL)

    monkeypatch.setattr("rg_env.dump.open_run", broken)
    code, out, err = run("dumps", "stats", "x")
    assert code == 1
    assert "Traceback" in err
    assert not hidden(out + err)


def test_every_way_to_print_is_safe(capfd):
    print_line(EVIL)
    print_error(EVIL)
    print_fields({"name": EVIL})
    print_json({EVIL: EVIL})
    table = Table(EVIL)
    table.add_row(EVIL)
    table.add_row(cell(EVIL))
    console().print(table)
    console().print(EVIL)
    captured = capfd.readouterr()
    assert not hidden(captured.out + captured.err)
    assert captured.err.count("\n") == 1
    assert "\nrg-env: all is well" not in captured.out.split("{")[0], "in a value of a field, and in a line"


def test_json_has_null_for_what_is_no_number(capfd):
    print_json({"nan": math.nan, "in": [(math.inf, 1.5)]})
    assert json.loads(capfd.readouterr().out) == {"nan": None, "in": [[None, 1.5]]}


def test_log_lines_are_safe():
    lines = []
    sink = logger.add(lambda message: lines.append(message.record["message"]))
    guard_streams()
    try:
        exec("logger.warning(text)", {"__name__": "rg_env.dump", "logger": logger, "text": "a\x1b]0;x\x07 b"})
    finally:
        logger.remove(sink)
        logger.configure(patcher=lambda record: None)
    assert lines == ["a␛]0;x␇ b"]
