"""What scripts and dashboards of other people rely on, as text.

`python -m tests.snapshots` writes it to `tests/data/snapshots`.

`tests/test_net.py` compares those of the command line, `tests/skyrl/test_metric_names.py` the names of metrics. Who
changes a name on purpose writes the snapshots again, and the diff shows the change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.cli.base import commands_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "data" / "snapshots"
SAMPLE = ROOT / "dumps" / "sample"

JSON_COMMANDS = (
    ("dumps", "stats", str(SAMPLE)),
    ("dumps", "stats", str(SAMPLE), "--by", "step"),
    ("dumps", "stats", str(SAMPLE), "--by", "task"),
    ("dumps", "signs", str(SAMPLE)),
    ("dumps", "validate", str(SAMPLE)),
    ("dumps", "rescore", str(SAMPLE), "--where", "task = 'leg_counting'", "--workers", "2"),
    ("runs", str(ROOT / "dumps")),
    ("score", "gcd-train-42-0"),
    ("score", "gcd-train-42-0", "--response", "<think>x</think><answer>1</answer>"),
)

TERMINAL = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}


def commands() -> dict[tuple[str, ...], Any]:
    """Every command, by the words that call it."""
    pairs: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    for path, command in pairs:
        pairs += [((*path, name), child) for name, child in commands_of(command).items()]
    return dict(pairs)


def options_snapshot() -> str:
    """The arguments and options of every command, as `--help` lists them; its prose may change."""
    lines = []
    for path, command in sorted(commands().items()):
        lines.append(" ".join(("rg-env", *path)))
        for parameter in command.params:
            names = " ".join([*parameter.opts, *parameter.secondary_opts])
            required = "required" if parameter.required else ""
            lines.append(f"  {names} {required}".rstrip())
    return "\n".join(lines)


def json_keys(words: Sequence[str]) -> list[str]:
    """The keys of what a command prints with `--json`, each with the types of its values."""
    result = CliRunner().invoke(app, [*words, "--json"], env=TERMINAL)
    assert result.exit_code in (0, 1) and result.stdout, result.stderr
    return keys_of(json.loads(result.stdout))


def keys_of(value: Any) -> list[str]:
    """The paths to all values, with their types: `groups[].reward: float`."""
    types: dict[str, set[str]] = {}
    for path, kind in _paths(value, ""):
        types.setdefault(path, set()).add(kind)
    return [f"{path}: {' or '.join(sorted(kinds))}" for path, kinds in sorted(types.items())]


def _paths(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _paths(inner, f"{path}[]")
    else:
        yield path, type(value).__name__


def json_snapshot() -> str:
    """The keys of all commands with `--json`, except `eval`, which needs a model."""
    lines = []
    for words in JSON_COMMANDS:
        shown = " ".join(words).replace(f"{ROOT}/", "")
        lines += [f"rg-env {shown} --json", *(f"  {line}" for line in json_keys(words)), ""]
    return "\n".join(lines)


def snapshots() -> dict[str, str]:
    """The snapshots of the command line, by file name."""
    texts = {"commands.txt": options_snapshot(), "json.txt": json_snapshot()}
    return {name: f"{text}\n" for name, text in texts.items()}


def main() -> None:
    """Write all snapshots again."""
    from tests.skyrl.metric_names import METRICS, metric_names  # imports SkyRL, which takes ten seconds

    for name, text in (snapshots() | {METRICS: metric_names()}).items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
