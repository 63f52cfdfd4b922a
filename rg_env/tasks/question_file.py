"""A file of questions and answers as a task: what a mix says about it, and which functions may score its answers.

`question_sources` reads such files, `question_rows` makes questions and answers of what stands there.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rg_env.base.choices import Split
from rg_env.base.errors import ConfigError, did_you_mean, need_number
from rg_env.configuration.modules import allow_as_scorers, import_named

OWN_SCORERS = ("exact", "number", "math", "choice")
MOST_ANSWERS = 100
"""Right answers of a question, at most."""
_COLUMN = re.compile(r"\{([^{}]+)\}")
"""A column in a template, by its name."""


@dataclass(frozen=True)
class HubSet:
    """A data set of the Hugging Face hub, which `datasets` loads.

    Attributes:
        name: `OWNER/NAME`.
        config: its configuration (subset), where it has several.
        split: whose rows are asked.
        eval_split: questions for evaluation; without it, a part of `split`.
    """

    name: str
    config: str | None = None
    split: str = "train"
    eval_split: str | None = None


@dataclass(frozen=True)
class QuestionFile:
    """The settings of a file in a task mix. A column in a column is named with dots: `reward_model.ground_truth`.

    Attributes:
        path: a file of JSON Lines, JSON, CSV, TSV (each may be compressed: `.gz`) or Parquet, or a folder that
            `datasets` saved; "" where `hub` names the questions.
        eval_path: questions for evaluation; without it, a part of `path`.
        hub: a data set of the hub in place of a path.
        question: the name of a column, or a text with columns in braces: `"{Body} {Question}"`.
        answer: the name of a column. A list is several right answers.
        answer_after: the answer is what stands behind the last such text: `"####"`.
        scorer: `exact`, `number`, `math`, `choice`, a function of (answer, row) as `module.function` or
            `module:function`, or a column in braces that names one of the first four for each row.
        tolerance: of `number`, relative to the right answer.
    """

    path: str = ""
    eval_path: str | None = None
    hub: HubSet | None = None
    question: str = "question"
    answer: str = "answer"
    answer_after: str | None = None
    scorer: str = "exact"
    tolerance: float = 1e-6

    def of_split(self, split: Split) -> str:
        """Return the file that the rows of a split are in; of a data set of the hub, its name and split."""
        is_eval = split is Split.EVAL and self.evaluates_elsewhere
        if self.hub is None:
            return self.eval_path if is_eval and self.eval_path else self.path
        name = "/".join(filter(None, (self.hub.name, self.hub.config)))
        return f"{name} ({self.hub.eval_split if is_eval else self.hub.split})"

    @property
    def evaluates_elsewhere(self) -> bool:
        """Whether the questions for evaluation are elsewhere than those for training."""
        if self.hub is None:
            return self.eval_path is not None
        return self.hub.eval_split is not None

    @property
    def scorer_column(self) -> str | None:
        """The column that names the scorer of each row; None where all have the same."""
        match = _COLUMN.fullmatch(self.scorer)
        return match[1] if match else None


def columns_in(template: str) -> list[str]:
    """Return the columns that stand in braces in a text; none if it is itself the name of a column."""
    return _COLUMN.findall(template)


def fill_in(template: str, texts: Mapping[str, str]) -> str:
    """Return a template with the texts of its columns."""
    return _COLUMN.sub(lambda match: texts[match[1]], template)


def parse_file(task: str, value: object) -> QuestionFile:
    """Read the key `file` of a task of the mix.

    Raises:
        ConfigError: a key is missing, unknown or wrong, or there is no such scorer.
    """
    place = f"tasks.{task}.file"
    if isinstance(value, str):
        value = {"path": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: must be a path, or a mapping with `path`")
    options = _options(place, value, QuestionFile)
    if "tolerance" in options:
        need_number(f"{place}.tolerance", options["tolerance"], at_least=0)
    _need_texts(place, options, but=("tolerance", "hub"))
    if "hub" in options:
        options["hub"] = _parse_hub(f"{place}.hub", options["hub"])
    if ("path" in options) == ("hub" in options):
        raise ConfigError(f"{place}: needs either `hub` or `path` (a JSON Lines, CSV or Parquet file)")
    for key in ("path", "eval_path"):
        if options.get(key, "").startswith("~/"):
            options[key] = str(Path(options[key]).expanduser())
    if "scorer" in options:  # module:function means the same, and entries name it in one way
        options["scorer"] = options["scorer"].replace(":", ".")
    file = QuestionFile(**options)
    if file.hub and file.eval_path:
        raise ConfigError(f"{place}.eval_path: goes with `path`; for a data set on the hub, set `hub.eval_split`")
    if file.evaluates_elsewhere and file.of_split(Split.EVAL) == file.of_split(Split.TRAIN):
        key, same = ("hub.eval_split", "hub.split") if file.hub else ("eval_path", "path")
        raise ConfigError(f"{place}.{key}: is the same as `{same}`; leave it out to hold out an eighth of the rows")
    if file.scorer_column is None:
        if "tolerance" in options and file.scorer != "number":
            raise ConfigError(f"{place}.tolerance: only scorer=number has one; scorer is {file.scorer}")
        _check_scorer(place, file.scorer)
    return file


def _options(place: str, value: Mapping[Any, Any], kind: type) -> dict[str, Any]:
    """Return the keys of a mapping that are set. Raises ConfigError: it has one that is not a field of `kind`."""
    known = [field.name for field in fields(kind)]
    for key in value:
        if key not in known:
            raise ConfigError(f"{place}: unknown key {key!r}{did_you_mean(str(key), known, _list_names(known))}")
    return {key: option for key, option in value.items() if option is not None}


def _need_texts(place: str, options: Mapping[str, Any], but: tuple[str, ...] = ()) -> None:
    for key, option in options.items():
        if key not in but and (not isinstance(option, str) or not option):
            raise ConfigError(f"{place}.{key}={option!r}: must be a text")


def _parse_hub(place: str, value: object) -> HubSet:
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}={value!r}: must be the name of a data set, or {{name, config, split, eval_split}}")
    options = _options(place, value, HubSet)
    _need_texts(place, options)
    if "name" not in options:
        raise ConfigError(f"{place}: needs `name`, its name on the hub (OWNER/NAME)")
    if importlib.util.find_spec("datasets") is None:
        raise ConfigError(f"{place}: needs the package datasets (pip install 'rg_env[hub]')")
    return HubSet(**options)


def _list_names(names: list[str]) -> str:
    return f"it takes {', '.join(names)}"


def _check_scorer(place: str, scorer: str) -> None:
    if scorer == "math" and importlib.util.find_spec("math_verify") is None:
        raise ConfigError(f"{place}.scorer=math: needs math-verify (pip install math-verify)")
    if scorer in OWN_SCORERS:
        return
    module, _, name = scorer.rpartition(".")
    if not module:
        choices = [*OWN_SCORERS, "module.function"]
        raise ConfigError(f"{place}.scorer={scorer!r}{did_you_mean(scorer, choices, _list_names(choices))}")
    try:
        # Imported in this process, too, so that a wrong name ends the start and not the first answer.
        import_named([module])
    except ConfigError as error:
        raise ConfigError(f"{place}.scorer={scorer!r}: {error}") from error
    if not callable(getattr(sys.modules[module], name, None)):
        raise ConfigError(f"{place}.scorer={scorer!r}: the module {module} has no function {name!r}")
    # Only after it has been imported and found: entries may name what is in this set.
    allow_as_scorers([scorer])
