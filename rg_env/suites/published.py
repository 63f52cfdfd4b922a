"""Reads the result files of Reasoning Gym's evaluations (`eval/eval.py` and `training/evaluations` in its repository).

Invariant: one result is in memory at a time, whatever the size of a file. A file holds one dataset, or all datasets of
a run under `categories`. A result has a list of `completions`, or in older files the keys of its only completion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import ijson

from rg_env.errors import DumpError, one_line

_IN_CATEGORIES = "categories.item.datasets.item"
_PARTS = ("name", "config", "system_prompt", "results.item")


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """What the results of one task have in common.

    Attributes:
        options: fields of the task's config.
        size, seed: of the dataset; None if the file lacks them, so that upstream's defaults were used.
        system_prompt: None if the file does not have it.
    """

    task: str
    options: Mapping[str, Any]
    size: int | None
    seed: int | None
    system_prompt: str | None


@dataclass(frozen=True, slots=True)
class PublishedResponse:
    """One completion.

    Attributes:
        text: None if there is none.
        score: as published; None if there is none.
    """

    text: str | None
    score: float | None


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One item and its completions.

    Attributes:
        index: in the dataset.
        answer: the expected answer as a text; None if the file does not have it.
    """

    dataset: PublishedDataset
    index: int
    question: str
    answer: str | None
    responses: tuple[PublishedResponse, ...]


def read_results(path: Path) -> Iterator[PublishedResult]:
    """The results in a file, in order; none if it is the JSON of something else, such as a summary.

    Raises:
        DumpError: the file cannot be read, or is not JSON.
    """
    # In the first pass for what the results have in common, which may come after them.
    datasets = []
    found: dict[str, Any] = {}
    for part, value in _parts(path):
        if part == "end":
            datasets.append(_dataset(found))
            found = {}
        elif part != "results.item":
            found[part] = value
    number = index = 0
    for part, value in _parts(path):
        if part == "end":
            number, index = number + 1, 0
        elif part == "results.item":
            dataset = datasets[number]
            if dataset is not None and isinstance(value, dict) and isinstance(value.get("question"), str):
                yield _result(dataset, index, value)
            index += 1


def _parts(path: Path) -> Iterator[tuple[str, Any]]:
    """Each part of each dataset in a file with its value, and `end` after each dataset."""
    try:
        with path.open("rb") as file:
            yield from _built(file)
    except (ijson.JSONError, UnicodeDecodeError) as error:
        raise DumpError(f"{path} is not JSON ({one_line(error, 100)})") from None
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror})") from None


def _built(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    builder: Any = None
    part = whole = ""
    for prefix, event, value in ijson.parse(file):
        local = prefix[len(_IN_CATEGORIES) + 1 :] if prefix.startswith(_IN_CATEGORIES) else prefix
        if builder is None and local in _PARTS and event != "map_key":
            builder, part, whole = ijson.ObjectBuilder(), local, prefix
        if builder is not None:
            builder.event(event, value)
            if prefix == whole and event not in ("start_map", "start_array", "map_key"):
                yield part, _plain(builder.value)
                builder = None
        elif event == "end_map" and not local:
            yield "end", None


def _plain(value: Any) -> Any:
    """The value with floats in place of decimals."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case _:
            return value


def _dataset(found: Mapping[str, Any]) -> PublishedDataset | None:
    name, config, prompt = (found.get(part) for part in ("name", "config", "system_prompt"))
    if not isinstance(name, str) or not isinstance(config, dict):
        return None
    nested = config.pop("params", {})
    options = config | (nested if isinstance(nested, dict) else {})
    size, seed = options.pop("size", None), options.pop("seed", None)
    return PublishedDataset(
        name,
        options,
        size if isinstance(size, int) else None,
        seed if isinstance(seed, int) else None,
        prompt if isinstance(prompt, str) else None,
    )


def _result(dataset: PublishedDataset, index: int, result: Mapping[str, Any]) -> PublishedResult:
    completions = result.get("completions", [result])
    answer = result.get("expected_answer")
    return PublishedResult(
        dataset,
        index,
        result["question"],
        None if answer is None else str(answer),
        tuple(_response(one) for one in completions if isinstance(one, dict)) if isinstance(completions, list) else (),
    )


def _response(completion: Mapping[str, Any]) -> PublishedResponse:
    text, answer, score = (completion.get(key) for key in ("full_model_response", "model_answer", "score"))
    if not isinstance(text, str):
        text = f"<answer>{answer}</answer>" if isinstance(answer, str) else None
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        score = None
    return PublishedResponse(text, score if score is None else float(score))
