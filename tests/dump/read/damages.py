"""Kinds of damage to a dump, and what the commands say about each, as stored by an earlier version.

`python -m tests.dump.read.damages` stores what the commands say now: only where a change of figures, findings, messages
or exit codes is on purpose. The dump in `tests/data/readings` was written before ledger lines named the place of a
text.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backports import zstd
from typer.testing import CliRunner

from rg_env.base.errors import RGEnvError
from rg_env.cli import app
from rg_env.dump.schema import LedgerRecord
from tests.analysis.reports import Report

DATA = Path(__file__).parents[2] / "data" / "readings"
STORED = DATA / "readings.json.xz"
LEDGER, TEXTS = "_ledger_", "_rollouts_"
TERMINAL = {"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"}

Lines = list[bytes]


def _first(folder: Path, word: str) -> Path:
    return min(path for path in folder.iterdir() if f"environment{word}" in path.name)


def of_line(change: Callable[[bytes], bytes], word: str = LEDGER, number: int = 1) -> Callable[[Path], None]:
    """Damage to one line of the first file of a kind."""

    def damage(folder: Path) -> None:
        path = _first(folder, word)
        lines = path.read_bytes().splitlines(keepends=True)
        lines[number] = change(lines[number])
        path.write_bytes(b"".join(lines))

    return damage


def value(name: str, new: Any, word: str = LEDGER) -> Callable[[Path], None]:
    """Another value of a key; of a list, of its first element."""

    def change(line: bytes) -> bytes:
        record = json.loads(line)
        if isinstance(record[name], list) and not isinstance(new, list):
            record[name] = [new, *record[name][1:]]
        else:
            record[name] = new
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"

    return of_line(change, word)


def replaced(old: bytes, new: bytes, word: str = LEDGER) -> Callable[[Path], None]:
    def change(line: bytes) -> bytes:
        assert old in line
        return line.replace(old, new, 1)

    return of_line(change, word)


def without(name: str) -> Callable[[Path], None]:
    def change(line: bytes) -> bytes:
        record = json.loads(line)
        del record[name]
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"

    return of_line(change)


def _in_other_order(line: bytes) -> bytes:
    record = json.loads(line)
    return json.dumps(dict(reversed(record.items()))).encode() + b"\n"


def _shorter(line: bytes) -> bytes:
    record = json.loads(line)
    record["reward"] = record["reward"][:-1]
    return json.dumps(record).encode() + b"\n"


def _empty_group(line: bytes) -> bytes:
    record = json.loads(line)
    for name in LedgerRecord.__struct_fields__:
        if isinstance(record.get(name), list):
            record[name] = []
    return json.dumps(record | {"text": "", "text_reason": "no_rollouts"}).encode() + b"\n"


def _copy_of(path: Path, name: str) -> None:
    shutil.copy(path, path.with_name(name))


def copied_line(folder: Path) -> None:
    path = _first(folder, LEDGER)
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[2])


def differing_line(folder: Path) -> None:
    path = _first(folder, LEDGER)
    line = path.read_bytes().splitlines(keepends=True)[2]
    path.write_bytes(path.read_bytes() + line.replace(b'"no_signal":false', b'"no_signal":true'))


def copied_file(folder: Path) -> None:
    (folder / "copy").mkdir()
    shutil.copy(_first(folder, LEDGER), folder / "copy")
    shutil.copy(_first(folder, TEXTS), folder / "copy")


def differing_file(folder: Path) -> None:
    copied_file(folder)
    for word in (LEDGER, TEXTS):
        path = _first(folder / "copy", word)
        path.write_bytes(path.read_bytes().replace(b'"response_tokens"', b'"response_tokens" '))


def renumbered_file(folder: Path) -> None:
    for word in (LEDGER, TEXTS):
        path = _first(folder, word)
        _copy_of(path, path.name.replace("_0000", "_0077"))


def second_attempt(folder: Path) -> None:
    for word in (LEDGER, TEXTS):
        path = _first(folder, word)
        lines = path.read_bytes().splitlines(keepends=True)[5:]
        again = b"".join(lines).replace(b'"attempt":1', b'"attempt":2').replace(b":1:train:", b":2:train:")
        path.with_name(path.name.replace("_0000", "_0050")).write_bytes(again)


def compressed(folder: Path) -> None:
    for path in list(folder.glob("*.jsonl")):
        path.with_name(path.name + ".zst").write_bytes(zstd.compress(path.read_bytes()))
        path.unlink()


def gzipped(folder: Path) -> None:
    for path in list(folder.glob("*.jsonl")):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def torn_archive(folder: Path) -> None:
    compressed(folder)
    for word in (LEDGER, TEXTS):
        path = _first(folder, word)
        path.write_bytes(path.read_bytes()[:-30])


def without_ledger(folder: Path) -> None:
    for path in list(folder.glob(f"*{LEDGER}*")):
        path.unlink()


def without_first_ledger(folder: Path) -> None:
    _first(folder, LEDGER).unlink()


def without_first_texts(folder: Path) -> None:
    _first(folder, TEXTS).unlink()


def moved_texts(folder: Path) -> None:
    """Texts under another number, so that no place in the ledger is right."""
    path = _first(folder, TEXTS)
    path.rename(path.with_name(path.name.replace("_0000", "_0090")))


def exchanged_texts(folder: Path) -> None:
    """Lines of texts in another order: what is at a place is another group."""
    path = _first(folder, TEXTS)
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))


def part_file(folder: Path) -> None:
    path = _first(folder, LEDGER)
    path.rename(path.with_name(path.name + ".part"))


def without_manifest(folder: Path) -> None:
    next(folder.glob("*_manifest_*")).unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "whole": lambda folder: None,
    "text for an integer": value("step", "7"),
    "fraction for an integer": value("attempt", 7.5),
    "boolean for an integer": value("call", True),
    "integer too large": value("step", 2**63),
    "negative integer": value("step", -4),
    "number for a text": value("uid", 5),
    "object for a text": value("task", {"a": 1}),
    "number in a list of texts": value("stop_reason", 5),
    "text for a float": value("score", "1.5"),
    "null for a score": value("base_score", None),
    "null for a raw score": value("raw_score", None),
    "null for a text": value("task", None),
    "null for tokens": value("response_tokens", None),
    "number for a boolean": value("truncated", 1),
    "text for a boolean": value("no_signal", "true"),
    "unknown violation": value("violation", "no_such"),
    "unknown status": value("status", "no_such"),
    "unknown outcome": value("outcome", "no_such"),
    "unknown kind of text": value("text", "no_such"),
    "list for a number": value("complexity", [0.5]),
    "score out of range": value("base_score", 7.0),
    "extra key": replaced(b'"attempt":', b'"extra":[1,{"a":null}],"attempt":'),
    "missing key with a default": without("uid"),
    "missing key": without("group_id"),
    "missing column with a default": without("turns"),
    "missing column": without("reward"),
    "missing column of words": without("violation"),
    "key twice": replaced(b'"task":', b'"task":"gcd","task":'),
    "column twice": replaced(b'"reward":', b'"reward":[0.5],"reward":'),
    "columns in another order": of_line(_in_other_order),
    "unequal lengths": of_line(_shorter),
    "torn line": of_line(lambda line: line[:200]),
    "torn last line": of_line(lambda line: line[:-40], number=-1),
    "no last line feed": of_line(lambda line: line[:-1], number=-1),
    "joined lines": of_line(lambda line: line[:-1] + line),
    "junk behind a line": of_line(lambda line: line[:-1] + b"x\n"),
    "blank lines": of_line(lambda line: b"\n  \n" + line + b"\n"),
    "CRLF": of_line(lambda line: line[:-1] + b"\r\n"),
    "form feed": of_line(lambda line: line[:-1] + b"\x0c\n"),
    "control character": replaced(b'"task":"', b'"task":"\x01'),
    "not UTF-8": replaced(b'"task":"', b'"task":"\xff\xfe'),
    "lone surrogate": replaced(b'"task":"', b'"task":"\\ud800'),
    "escapes that look like keys": replaced(b'"uid":"', b'"uid":"\\",\\"repetition\\":[\\"'),
    "NaN": replaced(b'"score":[', b'"score":[NaN,'),
    "too large for a float": replaced(b'"baseline":0.0', b'"baseline":1e999'),
    "null as a line": of_line(lambda line: b"null\n"),
    "a list as a line": of_line(lambda line: b"[1,2]\n"),
    "null bytes": of_line(lambda line: b"\0" * 60 + b"\n"),
    "later version": replaced(b'"schema_version":1', b'"schema_version":2'),
    "copied line": copied_line,
    "differing line": differing_line,
    "copied file": copied_file,
    "differing file": differing_file,
    "renumbered file": renumbered_file,
    "second attempt": second_attempt,
    "zstandard": compressed,
    "gzip": gzipped,
    "torn archive": torn_archive,
    "empty group": of_line(_empty_group),
    "text file, torn line": of_line(lambda line: line[:300], TEXTS),
    "text file, wrong value": value("step", "7", TEXTS),
    "text file, differing value": value("step", 2, TEXTS),
    "text file, without a line": of_line(lambda line: b"", TEXTS),
    "without ledger": without_ledger,
    "without the first ledger": without_first_ledger,
    "without the first texts": without_first_texts,
    "moved texts": moved_texts,
    "exchanged texts": exchanged_texts,
    "open ledger": part_file,
    "without manifest": without_manifest,
}


IN_FULL = ("whole", "torn line", "second attempt", "without the first texts", "exchanged texts")
"""Of these, more commands are compared, which show the same in other ways."""


def readings(name: str, folder: Path) -> dict[str, Any]:
    """What the commands say about a corrupt copy of the dump, in a form to compare."""
    dump = folder / "run" / "dumps"
    shutil.copytree(DATA / "dump", dump)
    DAMAGES[name](dump)
    folders = [str(dump)]
    if (dump / "copy").exists():
        folders.append(str(dump / "copy"))
    page = folder / "report.html"
    commands = {
        "stats": ["dumps", "stats", *folders, "--json"],
        "validate": ["dumps", "validate", *folders, "--json"],
        "runs": ["runs", str(folder / "run"), "--json"],
    }
    if name in IN_FULL:
        commands |= {
            "report": ["dumps", "report", *folders, "--out", str(page)],
            "stats by step": ["dumps", "stats", *folders, "--by", "step,level", "--json", "--columns", "solve_rate"],
            "stats of some": ["dumps", "stats", *folders, "--where", "base_score < 0.5"],
            "table": ["dumps", "stats", *folders],
            "show": ["dumps", "show", *folders, "--plain", "--every-rollout"],
        }
    said: dict[str, Any] = {}
    for command, arguments in commands.items():
        done = CliRunner().invoke(app, arguments, env=TERMINAL)
        error = done.exception
        assert error is None or isinstance(error, (RGEnvError, SystemExit)), (command, error)
        output: Any = done.stdout
        if "--json" in arguments and output:
            output = json.loads(output)
        if command == "report":
            output = None
            if page.exists():
                report = Report(page.read_text("utf-8"))
                output = {"summary": report.summary, "groups": report.groups}
        message = str(error) if isinstance(error, RGEnvError) else ""
        said[command] = {"exit": done.exit_code, "output": output, "errors": done.stderr, "message": message}
    return _comparable(said, str(folder))


def _comparable(said: Any, folder: str) -> Any:
    """Floats to ten digits, since the order of a sum may differ; without the folder."""
    if isinstance(said, float):
        return float(f"{said:.10g}")
    if isinstance(said, str):
        return re.sub(r"\s*\n\s*", "\n", said.replace(folder, "FOLDER"))
    if isinstance(said, dict):
        return {_comparable(key, folder): _comparable(inner, folder) for key, inner in said.items()}
    if isinstance(said, list):
        return [_comparable(inner, folder) for inner in said]
    return said


def stored() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(lzma.decompress(STORED.read_bytes()))
    return content


def main() -> None:
    said = {}
    for name in DAMAGES:
        with tempfile.TemporaryDirectory() as folder:
            said[name] = readings(name, Path(folder))
    STORED.write_bytes(lzma.compress(json.dumps(said, sort_keys=True).encode()))


if __name__ == "__main__":
    main()
