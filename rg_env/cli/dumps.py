"""The commands `rg-env dumps …`, except `stats`, `export` and `import`.

To add one, write the function that does the work, without printing, in `analysis/` or `dump/`, and one here that parses
arguments, calls it and prints with the functions of `output.py`, which make text from dumps safe. Its docstring is its
`--help`: what it is for, the exit codes, an example. Slow modules are imported inside. Add an entry to `COMMANDS` of
tests/cli/test_hostile.py, which reads corrupt dumps with every command, and a section to docs/reading.md.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.base.choices import SortBy
from rg_env.base.errors import refuse
from rg_env.base.output import cell, console, new_table, print_error, print_json, print_line, print_text
from rg_env.base.processes import usable_cores
from rg_env.base.wording import counted
from rg_env.cli.base import CommandApp
from rg_env.cli.exchange import export_app, import_app
from rg_env.cli.options import (
    DumpPaths,
    Force,
    Imports,
    JsonFlag,
    Selection,
    SolvedAt,
    Where,
    import_tasks,
    locate_dumps,
    print_remarks,
    reading,
    spinner,
)
from rg_env.cli.stats_command import stats

if TYPE_CHECKING:
    from rich.table import Table

    from rg_env.analysis.rescore import Rescored
    from rg_env.dump import GroupRecord, RolloutRecord

dumps_app = CommandApp(
    """Analyze, export and check dumps.

    A dump is the set of files with recorded rollouts that runs write to a folder.

    Examples:
      rg-env dumps stats runs/quickstart/dumps
      rg-env dumps show runs/quickstart/dumps --where "outcome = 'all_failed'"
    """,
)
dumps_app.command()(stats)


@dumps_app.command()
def show(
    selection: Selection,
    search: Annotated[str, typer.Option(help="Show groups with this text in a message, ignoring case.")] = "",
    sort: Annotated[
        SortBy | None,
        typer.Option(help="Order by mean score, mean length or spread of scores, the largest first. Default: by step."),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print at once, without a pager, as into a pipe.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of groups to print.")] = None,
    every_rollout: Annotated[
        bool, typer.Option("--every-rollout", help="Print all rollouts, not only the best and the worst.")
    ] = False,
    rollout: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Print only rollout N (`repetition`) of each group.")
    ] = None,
) -> None:
    """Print the groups of a dump, in a terminal through a pager.

    The pager is PAGER, else less. To browse with a mouse: `rg-env dumps open`.

    Examples:
      rg-env dumps show dumps/sample
      rg-env dumps show dumps/sample --where "outcome = 'all_failed'" --search prime
      rg-env dumps show dumps/sample --sort spread --limit 3
    """
    from rg_env.dump import open_run
    from rg_env.dump.contents import without_collecting
    from rg_env.dump.group_text import Query, group_text

    conditions = selection.where or []
    query = Query(_joined(conditions), search)
    dump = open_run(*selection.dumps)
    count = 0
    has_rollout = False
    without = ("", 0)  # a group without the rollout that is asked for, and its last one
    with without_collecting(), _paged(plain) as print_group:
        for group in islice(query.groups(dump, sort), limit):
            count += 1
            numbers = [one.repetition for one in group.rollouts]
            if rollout is not None and rollout not in numbers:
                # Another group may have it. If none does, nothing is printed but the line below.
                without = group.group_id, max(numbers)
                continue
            has_rollout = True
            print_group(group_text(group, dump.solved_at(group), every_rollout=every_rollout, repetition=rollout))
    if count and not has_rollout:
        group_id, highest = without
        refuse("--rollout", rollout, f"no group has it; {group_id} has 0 to {highest}")
    if not count and conditions:
        # For a ConditionError if nothing matches, whether its text was kept or not.
        next(dump.where(conditions).groups(), None)
    # What was shown was read at its place: only if something was not there, all files were searched.
    print_remarks(dump, texts=dump.has_read_texts)
    if why := dump.why_no_texts():
        print_error(why)
    elif not count and str(query):
        print_error(f"no group matches {query}")
    elif not count:
        print_error("there are no groups")
    raise typer.Exit(int(not count))


@contextmanager
def _paged(plain: bool) -> Iterator[Callable[[str], object]]:
    """Give what prints safe text: in a terminal through a pager, whose end is the end of the block."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if plain or not is_terminal or not command or shutil.which(command[0]) is None:
        yield print_text
        return
    # Of less: a text that fits on the screen stays there.
    variables = {"LESS": "-FX", **os.environ}
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=variables, encoding="utf-8", errors="replace")
    into = pager.stdin
    assert into is not None, "it is a pipe"
    # A pager that was left takes no more.
    with suppress(BrokenPipeError, KeyboardInterrupt):
        yield lambda text: into.write(f"{text}\n")
    with suppress(BrokenPipeError):
        into.close()
    pager.wait()


@dumps_app.command()
def report(
    selection: Selection,
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.")],
    force: Force = False,
    solved_at: SolvedAt = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Write an HTML report with charts and a browser of groups.

    It is one file that opens without a network. Several runs are shown side by side. A large dump is represented by a
    sample of its groups, spread over the steps.

    Examples:
      rg-env dumps report dumps/sample --out report.html
      rg-env dumps report runs/a/dumps runs/b/dumps --out compare.html
    """
    from rg_env.page import write_report

    dump = selection.open()
    with reading():
        path = write_report(dump, out, force=force, solved_at=solved_at)
    print_line(f"{path}: {path.stat().st_size / 1e6:.1f} MB, open it in a browser")
    print_remarks(dump)
    if open_it:
        open_in_browser(path)


def open_in_browser(path: Path) -> None:
    """Open a file in the user's browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        print_error(f"no browser can be started here: open {path} yourself")


@dumps_app.command("open")
def open_page(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DUMP]...", help="As of `stats`. Default: choose among those in the folder runs."),
    ] = None,
    where: Where = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 0,
    only_link: Annotated[bool, typer.Option("--link", help="Print the link, and start no browser.")] = False,
) -> None:
    """Show runs on a live page: curves, groups and their texts, while they are being written and afterwards.

    The page is for this machine only. On another one, forward the port: ssh -L PORT:localhost:PORT HOST.

    Examples:
      rg-env dumps open
      rg-env dumps open dumps/sample --where "outcome = 'all_failed'"
      rg-env dumps open runs/a/dumps runs/b/dumps --port 8601 --link
    """
    import webbrowser
    from urllib.parse import urlencode

    from rg_env.dump.conditions import parse_condition
    from rg_env.dump.locate import RUNS
    from rg_env.dump.run_files import find_runs
    from rg_env.page.server import LivePage, listen, serve

    dumps = locate_dumps(paths or [])
    for dump in dumps:
        find_runs([dump])  # a DumpError says what is wrong with it
    view = ""
    if where:
        for condition in where:
            parse_condition(condition)
        view = "#" + urlencode({"where": _joined(where)})
    live, listener = LivePage(dumps, RUNS), listen(port)
    link = f"http://127.0.0.1:{listener.getsockname()[1]}/{live.token}/{view}"
    print_line(f"{link} (Ctrl-C stops it)")
    if not only_link and sys.stdout.isatty():
        webbrowser.open(link)
    serve(live, listener)


def _joined(conditions: Sequence[str]) -> str:
    """Return conditions as one; a single one as it was typed, because messages and the page show it."""
    if len(conditions) > 1:
        return " AND ".join(f"({condition})" for condition in conditions)
    return "".join(conditions)


@dumps_app.command()
def signs(
    selection: Selection,
    rescore: Annotated[
        int, typer.Option(min=0, metavar="N", help="Score the responses of N groups a second time.")
    ] = 0,
    imports: Imports = None,
    as_json: JsonFlag = False,
) -> None:
    """Look for signs of reward hacking and of a broken verifier.

    Exit code 1 if any is found.

    Examples:
      rg-env dumps signs dumps/sample
      rg-env dumps signs dumps/sample --rescore 50
      rg-env dumps signs runs/a/dumps runs/b/dumps --where "phase = 'eval'"
    """
    from rg_env.analysis.second_scoring import SIGN as SECOND_SCORING
    from rg_env.analysis.signs import NAMES, find_signs

    import_tasks(imports)
    dump = selection.open()
    with spinner("scoring") if rescore else reading():
        result = find_signs(dump, score_again=rescore, workers=usable_cores())
    if as_json:
        print_json([asdict(sign) for sign in result.signs])
    else:
        for sign in result.signs:
            since = ""
            if sign.step is not None:
                since = f", from step {sign.step}"
            p_value = ""
            if sign.p is not None:
                p_value = f" (p {sign.p:.1g})"
            print_line(f"{sign.task}: {sign.sign}{since}")
            print_line(f"  {sign.what}{p_value}.")
            if sign.groups:
                print_line(f"  groups: {', '.join(sign.groups)}")
            print_line("")
        if result.signs:
            print_line(counted(len(result.signs), "sign"))
        else:
            print_line("nothing found")
        print_line(
            f"{counted(result.responses, 'response')} read: {result.answers:,} with an answer, {result.think_blocks:,} "
            f"with a think block, {result.references:,} to an item whose reference answer is known"
        )
        tasks = Counter(sign.sign for sign in result.signs)
        tasks_with = []
        for name in NAMES:
            if rescore or name != SECOND_SCORING:  # else nobody has looked for it
                tasks_with.append(f"{name} {tasks[name]}")
        print_line(f"tasks with each sign: {', '.join(tasks_with)}")
    print_remarks(dump)
    raise typer.Exit(int(bool(result.signs)))


@dumps_app.command()
def validate(paths: DumpPaths, as_json: JsonFlag = False) -> None:
    """Check every line of a dump, and its files against each other; for one file, only its lines.

    Exit code 1 if there are problems, 3 if the run could not write some groups.

    Examples:
      rg-env dumps validate dumps/sample
      rg-env dumps validate runs/*/dumps --json
    """
    from rg_env.dump import FileKind
    from rg_env.dump.contents import KINDS
    from rg_env.dump.validate import validate as check

    dumps = locate_dumps(paths)
    with reading("checking"):
        result = check(*dumps)
    found = result.findings
    ledger_lines, problems = result.records[FileKind.LEDGER], found.counts.total()
    if as_json:
        facts = {"good": result.good, "runs": result.runs, "texts": result.texts, "ledger_lines": ledger_lines}
        facts["compared"] = result.compared
        findings = []
        for kind, place, text in found:
            advice = KINDS[kind].advice
            findings.append({"kind": kind, "file": place.file, "line": place.line, "what": text, "advice": advice})
        print_json(facts | {"counts": found.counts, "findings": findings, "remarks": result.remarks})
    else:
        for finding in found:
            print_line(f"{finding} ({KINDS[finding.kind].advice})")
        for remark in result.remarks:
            print_line(remark)
        if problems > len(found.kept):
            print_line(f"… and {problems - len(found.kept)} more")
        kinds = ", ".join(f"{count} {kind}" for kind, count in found.counts.items())
        summary = "no problems found"
        if not result.compared:
            summary = f"no problems found within {counted(result.files, 'file')}"
        if problems:
            summary = f"{counted(problems, 'problem')} found ({kinds})"
        read = f"{counted(ledger_lines, 'ledger line')}, {counted(result.texts, 'text')}"
        print_line(f"{counted(result.runs, 'run')}, {read}: {summary}")
    # Missing groups come first: the run could not write them, and what it wrote may be right.
    if found.counts["groups_missing"]:
        raise typer.Exit(3)
    raise typer.Exit(int(not result.good))


@dumps_app.command()
def seal(paths: DumpPaths) -> None:
    """Compress the finished files of a dump; every command still opens any group in it as fast.

    The files become `.jsonl.zst`, which any zstd unpacks. A plain file is removed after its sealed one was read back.
    Files that are being filled stay as they are.

    Examples:
      rg-env dumps seal runs/quickstart/dumps
      rg-env dumps seal runs/*/dumps
    """
    from rg_env.dump.sealed import seal as seal_files

    dumps = locate_dumps(paths)
    with spinner("compressing"):
        result = seal_files(*dumps)
    facts = ["no plain file to seal"]
    if result.files:
        sizes = f"{result.before / 1e6:.1f} MB are {result.after / 1e6:.1f} MB now"
        facts = [f"{counted(result.files, 'file')} sealed: {sizes}"]
    if result.still_open:
        facts.append(f"{counted(result.still_open, 'file')} still open: resume the run, or wait until it finishes")
    print_line("; ".join(facts))


@dumps_app.command()
def rescore(
    selection: Selection,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSONL file for the old and new scores of each rollout.")
    ] = None,
    force: Force = False,
    workers: Annotated[int, typer.Option(min=1, help="Number of answers scored in parallel.")] = usable_cores(),
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SEC", help="Seconds per answer. Default: as in the run.")
    ] = None,
    imports: Imports = None,
    as_json: JsonFlag = False,
) -> None:
    """Score the recorded responses of a dump again, with the current scorer.

    The dump is not changed. Modules that its manifest names are not imported: --imports does. Exit code 1 if any
    result differs.

    Examples:
      rg-env dumps rescore dumps/sample
      rg-env dumps rescore dumps/sample --workers 8 --out changes.jsonl
    """
    from rg_env.analysis.rescore import rescore as score_again

    import_tasks(imports)
    dump = selection.open()
    with _writing(out, force) as each, spinner("scoring"):
        result = score_again(dump, workers=workers, timeout=timeout, each=each)
    if as_json:
        print_json({**asdict(result), "changed": result.changed})
    else:
        if result.changed:
            console().print(_changes(result))
        rollouts = sum(task.rollouts for task in result.tasks.values())
        print_line(f"{counted(rollouts, 'rollout')} scored again, {result.changed} changed")
        if result.without_question:
            print_line(f"{counted(result.without_question, 'group')} skipped: their lines do not hold the question")
        if result.without_settings:
            lenient = ""
            if result.lenient:
                lenient = f", {result.lenient:,} of them in the lenient format"
            print_line(
                f"{counted(result.without_settings, 'group')} scored with the current default settings{lenient}: "
                "no manifest has those of the run"
            )
    print_remarks(dump)
    raise typer.Exit(int(bool(result.changed)))


def _changes(result: Rescored) -> Table:
    from rich.text import Text

    counts = ("groups", "rollouts", "changed", "raised", "lowered", "newly_scored", "outcomes")
    table = new_table(["task"], [name.replace("_", "\n") for name in counts])
    table.add_column("for example", overflow="fold")
    for task in result.tasks.values():
        numbers = (str(getattr(task, name)) for name in counts)
        table.add_row(cell(task.task), *numbers, Text("\n").join(map(cell, task.examples)))
    return table


@contextmanager
def _writing(out: Path | None, force: bool) -> Iterator[Callable[[GroupRecord, Sequence[RolloutRecord]], object]]:
    """Yield a function that writes a line for each rollout, as recorded and as scored now, to `out`, if any."""
    if out is None:
        yield lambda group, scored: None
        return
    import orjson

    from rg_env.analysis.rescore import COMPARED, has_changed
    from rg_env.base.atomic import check_output, new_file

    with new_file(check_output(out, ".jsonl", force=force)) as draft, draft.open("wb") as file:

        def write(group: GroupRecord, scored: Sequence[RolloutRecord]) -> None:
            for rollout, new in zip(group.rollouts, scored, strict=True):
                row = {"group_id": group.group_id, "task": group.task, "repetition": rollout.repetition}
                for name, version in (("old", rollout), ("new", new)):
                    row[name] = {value: getattr(version, value) for value in COMPARED}
                row["changed"] = has_changed(rollout, new)
                file.write(orjson.dumps(row) + b"\n")

        yield write


dumps_app.add_typer(export_app, name="export")
dumps_app.add_typer(import_app, name="import")

commands = CommandApp("The group alone.")
commands.add_typer(dumps_app, name="dumps")
