"""`rg-env tasks --levels`: the scale of difficulty of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from rg_env.output import cell, console, print_fields, print_json, print_line
from rg_env.tasks.levels import Scale, base_options, samples, scale_of, seconds_of, why_cut
from rg_env.tasks.registry import check_name

_SHOWN = (0.0, 0.5, 1.0)
"""Complexities of the sample questions."""
_MAX_CHARS = 600
"""Longer sample questions are shortened, except in JSON."""


def show_levels(task: str, as_json: bool) -> None:
    """Print attributes, usable levels, seconds per item and sample questions of a task.

    Raises:
        ConfigError: there is no such task.
    """
    check_name(task)
    scale, cut = scale_of(task, {}), why_cut(task)
    attributes = scale.attributes if scale else ()
    questions = [_sample(scale, *pair) for pair in zip(_SHOWN, seconds_of(task), strict=True)] if scale else []
    if as_json:
        levels = [
            {"name": attribute.name, "levels": attribute.values, "lowest": attribute.low, "highest": attribute.high}
            for attribute in attributes
        ]
        facts = {"task": task, "has_levels": scale is not None}
        print_json(facts | {"attributes": levels, "cut": cut, "samples": questions})
        return
    if scale is None:
        print_line(f"{task} has no levels and always has its default options: {cut['all']}")
        return
    table = Table("attribute", "level", "options", "used", box=None)
    for attribute in attributes:
        for level, options in enumerate(attribute.values):
            used = "yes" if attribute.low <= level <= attribute.high else "no"
            table.add_row(cell("" if level else attribute.name), str(level), cell(_words(options, "=")), used)
    console().print(table)
    for end, reason in cut.items():
        what = "upstream's defaults are not used" if end == "defaults" else f"levels cut off ({end})"
        print_line(f"{what}: {reason}")
    if base := base_options(task):
        print_line(f"options without a complexity, and at every level that does not set them: {_words(base, '=')}")
    for sample in questions:
        question = sample["question"]
        if len(question) > _MAX_CHARS:
            question = f"{question[:_MAX_CHARS]} … ({len(question)} characters)"
        cost = f"{1000 * sample['seconds']:.2g} ms" if sample["seconds"] >= 0.0001 else "less than 0.1 ms"
        print_line("")
        print_line(f"complexity {sample['complexity']:g}: {_words(sample['level'], ' ')}; {cost} per item")
        print_fields({"question": question})


def _words(values: Mapping[str, Any], sign: str) -> str:
    return ", ".join(f"{name}{sign}{value}" for name, value in values.items())


def _sample(scale: Scale, complexity: float, seconds: float) -> dict[str, Any]:
    options = scale.options(complexity)
    entry = next(entry for entry in samples(scale.task, options) if isinstance(entry, dict))
    facts = {"complexity": complexity, "level": scale.level(complexity), "options": options}
    return facts | {"seconds": seconds, "question": entry["question"]}
