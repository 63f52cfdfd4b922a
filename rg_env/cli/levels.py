"""`rg-env tasks --levels`: the scale of difficulty of a task."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from rg_env.output import cell, console, print_fields, print_json, print_line
from rg_env.tasks.levels import Scale, attributes_of, samples, scale_of, seconds_of, why_cut
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
    scale = scale_of(task, {})
    found = _described(task, scale)
    if as_json:
        print_json(found)
        return
    if scale is None:
        print_line(f"{task} has no levels and always has its default options: {found['cut']['all']}")
        return
    table = Table("attribute", "level", "options", "used", box=None)
    for attribute in found["attributes"]:
        for number, options in enumerate(attribute["levels"]):
            used = attribute["lowest"] <= number <= attribute["highest"]
            values = ", ".join(f"{name}={value}" for name, value in options.items())
            table.add_row(cell("" if number else attribute["name"]), str(number), cell(values), "yes" if used else "no")
    console().print(table)
    for end, reason in found["cut"].items():
        print_line(f"levels cut off ({end}): {reason}")
    for sample in found["samples"]:
        print_line("")
        question = sample["question"]
        shown = question if len(question) <= _MAX_CHARS else f"{question[:_MAX_CHARS]} … ({len(question)} characters)"
        level = ", ".join(f"{name} {value}" for name, value in sample["level"].items())
        seconds = sample["seconds"]
        cost = f"{1000 * seconds:.2g} ms" if seconds >= 0.0001 else "less than 0.1 ms"
        print_line(f"complexity {sample['complexity']:g}: {level}; {cost} per item")
        print_fields({"question": shown})


def _described(task: str, scale: Scale | None) -> dict[str, Any]:
    usable = {} if scale is None else {part.name: (part.low, part.high) for part in scale.attributes}
    attributes = [
        {
            "name": part.name,
            "levels": [dict(options) for options in part.values],
            "lowest": usable[part.name][0],
            "highest": usable[part.name][1],
        }
        for part in attributes_of(task)
        if part.name in usable
    ]
    seconds = seconds_of(task)
    sampled = [] if scale is None else [_sample(scale, c, s) for c, s in zip(_SHOWN, seconds, strict=True)]
    return {
        "task": task,
        "has_levels": scale is not None,
        "attributes": attributes,
        "cut": why_cut(task),
        "samples": sampled,
    }


def _sample(scale: Scale, complexity: float, seconds: float) -> dict[str, Any]:
    entry = next(entry for entry in samples(scale.task, scale.options(complexity)) if isinstance(entry, dict))
    return {
        "complexity": complexity,
        "level": scale.level(complexity),
        "options": scale.options(complexity),
        "seconds": seconds,
        "question": entry["question"],
    }
