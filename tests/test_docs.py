"""The documents match the code: links, names, the table of a training step. test_pages.py runs what
they show. Examples in docstrings run here.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import re

import pytest

from rg_env.analysis.export import Reason
from rg_env.dump import FileKind
from rg_env.dump.contents import KINDS
from tests.documents import EVIDENCE, PAGES, ROOT

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
BRITISH = re.compile(
    r"\b\w*(?:colour|behaviour|neighbour|honour|favour|labour)\w*|\b(?:\w*(?:normal|real|recogn|optim|penal|summar|organ|minim"
    r"|maxim|util|initial|serial|token|general|special|custom|random)is(?:e|es|ed|ing|ation)|judgement|whilst|learnt|analyse\w*"
    r"|catalogue|centre|labelled|modelling|travelled|licence|defence|formulae|towards)\b",
    re.IGNORECASE,
)
WITH_EXAMPLES = [path for path in sorted((ROOT / "rg_env").rglob("*.py")) if ">>> " in path.read_text()]
CODE = {".py", ".yaml", ".sh", ".md", ""}


def page_id(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*PAGES, *EVIDENCE, ROOT / "CHANGELOG.md", ROOT / "dumps" / "README.md"], ids=page_id)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, anchor


def test_every_page_is_in_the_reading_order():
    linked = re.findall(
        r"\]\((docs/[\w/-]+\.md|[A-Z]+\.md)\)", (ROOT / "README.md").read_text().split("## Documentation")[1]
    )
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES if page.name != "README.md"]
    assert sorted(linked) == sorted([*pages, "CHANGELOG.md"])


def names_in(path):
    """Functions, classes and `Class.method`s of a module."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name"))


def test_files_and_functions_of_a_training_step_exist():
    section = ARCHITECTURE[ARCHITECTURE.index("## One training step") : ARCHITECTURE.index("## The folders")]
    rows = re.findall(r"^\| (.+?) \| `(\S+\.py)` \| `([\w.]+)` \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| ") - 1 >= 5, "a row that is not: what, one file, one function"
    for what, file, name in rows:
        assert name in set(names_in(ROOT / "rg_env" / file)), f"{what}: {name} is not in rg_env/{file}"


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=page_id)
def test_the_examples_in_docstrings_hold(path):
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_folders_of_the_architecture_are_all_there_are():
    listed = re.findall(r"^  (\w+)/ ", ARCHITECTURE, re.MULTILINE)
    assert sorted(listed) == sorted(path.parent.name for path in (ROOT / "rg_env").glob("*/__init__.py"))


@pytest.mark.parametrize("page", [*PAGES, *EVIDENCE, ROOT / "Makefile"], ids=page_id)
def test_files_that_a_page_names_exist(page):
    named = re.findall(
        r"(?<![\w/])((?:rg_env|tests|docs|configs|scripts|benchmarks|evidence)/[\w./-]+\.(?:py|md|yaml|sh|jsonl?))",
        page.read_text(),
    )
    assert [name for name in named if not (ROOT / name).exists() and "NAME" not in name] == []


def test_pages_that_the_code_names_exist():
    files = [path for folder in ("rg_env", "scripts", "configs", "examples") for path in (ROOT / folder).rglob("*")]
    texts = (
        path.read_text()
        for path in [*files, ROOT / "Makefile", ROOT / "CHANGELOG.md"]
        if path.is_file() and path.suffix in CODE
    )
    named = {page for text in texts for page in re.findall(r"\b(?:docs|evidence)/[\w-]+\.md", text)}
    assert len(named) > 10 and [page for page in sorted(named) if not (ROOT / page).exists()] == []


def test_the_make_targets_in_contributing_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z][\w-]*)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert {"test", "test-fast", "test-long", "test-weekly", "check", "format", "bench"} <= named <= targets


def test_the_spelling_is_american():
    """In the documents, the code and the recipes."""
    endings = {".py", ".md", ".yaml", ".sh", ".js", ".html", ".tcss"}
    folders = ("rg_env", "docs", "configs", "scripts", "benchmarks")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings]
    files += [*PAGES, *EVIDENCE, ROOT / "CHANGELOG.md"]
    texts = {path: path.read_text() for path in files if "vendor" not in path.parts}
    found = {page_id(path): BRITISH.findall(text.replace("inter_generalisation", "")) for path, text in texts.items()}
    assert len(texts) > 200
    assert {name: words for name, words in found.items() if words} == {}


HABITS = re.compile(
    r"(?<!here )\b(?:is|are) no (?!longer\b|more\b|fewer\b)[a-z]+"  # "there is no" is fine
    r"|\b(?:so many|one's own|[Ww]hoever|[Mm]end(?:s|ed)?)\b"
)
"""What a native speaker would not write: "is no number" for "is not a number"."""


@pytest.mark.parametrize("path", [*PAGES, *sorted((ROOT / "rg_env").rglob("*.py"))], ids=page_id)
def test_the_worst_habits_stay_out(path):
    assert HABITS.findall(path.read_text()) == []


def test_the_skipped_rows_in_the_guide_have_reasons_of_the_code():
    sample = (ROOT / "docs" / "reading.md").read_text().split("left out:\n")[1].split("\n```")[0]
    reasons = re.findall(r"^ +[\d,]+  (.+)$", sample, re.MULTILINE)
    assert len(reasons) >= 5 and set(reasons) <= {reason.value for reason in Reason}


def test_the_closed_sets_are_documented_in_full():
    """The findings of `validate`, the kinds of files."""
    check, dumps = ((ROOT / "docs" / name).read_text() for name in ("reading.md", "dumps.md"))
    findings = re.findall(r"^\| (`.*?) \|", check[check.index("| finding |") :].partition("\n\n")[0], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(findings))) == {*KINDS}
    files = re.findall(r"^reasoning_gym_environment_(\w+?)_\{run_id\}_\{batch\}\.jsonl", dumps, re.MULTILINE)
    assert set(files) == {*FileKind}
