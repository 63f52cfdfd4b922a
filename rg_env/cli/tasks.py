"""`rg-env tasks`: the tasks, the scale of difficulty of one, and the files of questions of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.base.errors import ConfigError, need
from rg_env.base.output import cell, console, print_fields, print_json, print_line
from rg_env.base.wording import yes_or_no
from rg_env.cli.base import Command, CommandApp
from rg_env.cli.options import Imports, JsonFlag, import_tasks

if TYPE_CHECKING:
    from rg_env.tasks.levels import Scale

_LEGEND = (
    "levels: has levels of difficulty, which `rg-env tasks --levels TASK` shows",
    "scorer: sound (reviewed), audited (attacked without finding a hole), guarded (answers are checked",
    "        first), unsound (accepts wrong answers), unaudited (your own task); see docs/rewards.md",
)
_COMPLEXITIES = (0.0, 0.5, 1.0)
"""Complexities of the sample questions."""
_MAX_CHARS = 600
"""Longer sample questions are shortened, except in JSON."""


class TasksCommand(Command):
    """Knows what is meant by a name without an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and Path(args[0]).suffix in (".csv", ".tsv", ".json", ".jsonl", ".parquet"):
            raise ConfigError(f"{args[0]!r}: name the recipe that has this file of questions, such as mine.yaml")
        if args and not args[0].startswith("-") and not args[0].endswith((".yaml", ".yml")):
            raise ConfigError(f"`{ctx.command_path}` takes no name; did you mean `rg-env tasks --levels {args[0]}`?")
        return super().parse_args(ctx, args)


def tasks(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.yaml]...",
            help="Try the answers in this recipe's question files, as its runs do.",
        ),
    ] = None,
    levels: Annotated[
        str | None, typer.Option(metavar="TASK", help="Show the levels of difficulty of this task instead.")
    ] = None,
    imports: Imports = None,
    as_json: JsonFlag = False,
) -> None:
    """List Reasoning Gym's tasks or the levels of one, or try the answers to your own questions.

    With a recipe, exit code 1 if rows of its files are left out, or a file is refused.

    Examples:
      rg-env tasks
      rg-env tasks --levels chain_sum
      rg-env tasks mine.yaml
    """
    import_tasks(imports)
    if recipe:
        need(levels is None, "--levels", levels, "shows a task of Reasoning Gym: leave out the recipe")
        raise typer.Exit(_show_files(recipe, as_json))
    if levels is not None:
        _show_levels(levels, as_json)
        return
    from rich.table import Table

    from rg_env.tasks import list_tasks

    known = list_tasks()
    if as_json:
        print_json([asdict(task) for task in known])
        return
    table = Table("task", "category", "mix", "levels", "scorer", "note", box=None, padding=(0, 1, 0, 0))
    table.columns[0].no_wrap = True
    for task in known:
        in_mix, has_levels = yes_or_no(task.in_default_mix), yes_or_no(task.has_levels)
        table.add_row(cell(task.name), task.category, in_mix, has_levels, task.soundness.value, task.reason)
    console().print(table)
    print_line(f"{len(known)} tasks, {sum(task.in_default_mix for task in known)} in the default mix (mix)")
    for line in _LEGEND:
        print_line(line)


def _show_files(recipe: list[str], as_json: bool) -> int:
    """Print the audit of the files of questions of a recipe; returns 1 if it leaves rows out or refuses one, else 0."""
    from rg_env.base.choices import Split
    from rg_env.base.output import new_table
    from rg_env.evaluate.eval_settings import read_settings
    from rg_env.scoring.audit import audit_of, lines_of
    from rg_env.tasks import TaskMix

    config = read_settings(recipe, "eval").rg
    files = TaskMix.parse(config.tasks).files
    need(files, "tasks", " ".join(recipe), "has no file of questions; `rg-env tasks` lists those of Reasoning Gym")
    table = new_table(["task", "file", "scorer"], ["rows", "with junk", "left out"], compact=True)
    facts, lines = [], []
    for task, file in files.items():
        for split in Split if file.evaluates_elsewhere else [Split.TRAIN]:
            audit, name = audit_of(task, file, split, config.scorer, config.format), file.of_split(split)
            result = "refused" if audit.is_refused else f"{len(audit.left_out):,}"
            table.add_row(task, cell(name), file.scorer, f"{audit.rows:,}", f"{audit.with_junk:,}", result)
            lines += [f"{task}: {name}: {line}" for line in lines_of(audit)]
            faults = [{"row": fault.row, "rule": fault.rule.name.lower(), "text": fault.text} for fault in audit.faults]
            counts = {"rows": audit.rows, "tried": audit.tried, "with_junk": audit.with_junk}
            left_out = {"left_out": sorted(audit.left_out), "refused": audit.is_refused, "faults": faults}
            facts.append({"task": task, "file": name, "split": split.value, "scorer": file.scorer} | counts | left_out)
    if as_json:
        print_json(facts)
    else:
        console().print(table)
        for line in lines:
            print_line(line)
        print_line("with junk: rows on which answers such as 0 and x=x were tried, too")
    return int(any(fact["left_out"] or fact["refused"] for fact in facts))


def _show_levels(task: str, as_json: bool) -> None:
    """Print attributes, usable levels, seconds per item and sample questions of a task."""
    from rich.table import Table

    from rg_env.tasks.levels import scale_of, seconds_of, why_cut
    from rg_env.tasks.registry import check_name

    check_name(task)
    scale, cut = scale_of(task, {}), why_cut(task)
    attributes = scale.attributes if scale else ()
    questions = []
    if scale is not None:
        for complexity, seconds in zip(_COMPLEXITIES, seconds_of(task), strict=True):
            questions.append(_sample(scale, complexity, seconds))
    if as_json:
        levels = []
        for attribute in attributes:
            usable = {"lowest": attribute.low, "highest": attribute.high}
            levels.append({"name": attribute.name, "levels": attribute.values, **usable})
        facts = {"task": task, "has_levels": scale is not None}
        print_json(facts | {"attributes": levels, "cut": cut, "samples": questions})
        return
    if scale is None:
        # Popped, so that the reason is not printed again below, with those of single levels.
        print_line(f"{task} has no levels and always has its default options: {cut.pop('all')}")
        _show_base_options(task, cut)
        return
    table = Table("attribute", "level", "options", "used", box=None)
    for attribute in attributes:
        heading = attribute.name
        for level, options in enumerate(attribute.values):
            used = yes_or_no(attribute.low <= level <= attribute.high)
            table.add_row(cell(heading), str(level), cell(_words(options, "=")), used)
            heading = ""  # below its first level
    console().print(table)
    _show_base_options(task, cut)
    for sample in questions:
        question = sample["question"]
        if len(question) > _MAX_CHARS:
            question = f"{question[:_MAX_CHARS]} … ({len(question)} characters)"
        cost = "less than 0.1 ms"
        if sample["seconds"] >= 0.0001:
            cost = f"{1000 * sample['seconds']:.2g} ms"
        print_line("")
        print_line(f"complexity {sample['complexity']:g}: {_words(sample['level'], ' ')}; {cost} per item")
        print_fields({"question": question})


def _show_base_options(task: str, cut: Mapping[str, str]) -> None:
    """Print which levels and options are not used, why, and what takes the place of upstream's defaults."""
    from rg_env.tasks.levels import base_options

    for end, reason in cut.items():
        if end == "defaults":
            subject = "upstream's defaults are not used"
        else:
            subject = f"levels cut off ({end})"
        print_line(f"{subject}: {reason}")
    if base := base_options(task):
        print_line(f"options without a complexity, and at every level that does not set them: {_words(base, '=')}")


def _words(values: Mapping[str, Any], sign: str) -> str:
    return ", ".join(f"{name}{sign}{value}" for name, value in values.items())


def _sample(scale: Scale, complexity: float, seconds: float) -> dict[str, Any]:
    """Make the first training item of a level, with the options that the level stands for."""
    from rg_env.tasks import ItemStream, Split

    options = scale.options(complexity)
    entry = ItemStream(scale.task, options, 0, Split.TRAIN).item(0).entry
    facts = {"complexity": complexity, "level": scale.level(complexity), "options": options}
    return facts | {"seconds": seconds, "question": entry["question"]}


commands = CommandApp("The command alone.")
commands.command(cls=TasksCommand)(tasks)
