"""Each call in a process that has seen no other."""

from __future__ import annotations

import ast
import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rg_env.runner
from rg_env.runner import ConfigError, Failure, ScorerPoolError, guarded
from rg_env.runner.caller_worker import ForkServer, Worker
from tests.runner.processes import wait_until
from tests.runner.programs import functions, with_thread


def changed(fresh: bool, answers: int) -> list[float]:
    """The scores of the same wrong answer, before and after others that change what is right."""
    with guarded(functions.remember, workers=1, fresh=fresh) as scorer:
        before = scorer.score("wrong").value
        for _ in range(answers):
            scorer.score("remember")
        return [before, scorer.score("wrong").value]


def test_an_answer_changes_a_process_that_is_used_again_and_no_fresh_one() -> None:
    assert changed(fresh=False, answers=1) == [0.0, 1.0], "the change works where it can"
    assert changed(fresh=True, answers=20) == [0.0, 0.0]


@pytest.mark.long
def test_a_thousand_answers_change_no_later_score() -> None:
    with guarded(functions.remember, workers=2) as scorer:
        for _ in range(1_000):
            scorer.score("remember")
            assert scorer.score("wrong").value == 0.0


def test_calls_take_forks_that_wait_and_ask_for_others_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many wait as calls may run at once."""

    async def fail(server: ForkServer) -> Worker:
        raise OSError(errno.EAGAIN, "no process is free")

    with guarded(functions.double, workers=3) as scorer:
        idle = scorer._pool._idle
        for _ in range(3):
            assert scorer.score(1.0).value == 2.0
            assert wait_until(lambda: len(idle) == 3)
        with monkeypatch.context() as busy:
            busy.setattr(ForkServer, "fork", fail)
            assert [scorer.score(number).value for number in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
            assert not idle
        assert scorer.score(4.0).value == 8.0
        assert wait_until(lambda: len(idle) == 3)


def test_every_call_begins_in_the_same_state() -> None:
    with guarded(functions.count_calls, workers=2) as counter, guarded(functions.draw) as drawer:
        assert {counter.score().value for _ in range(4)} == {1.0}
        assert len({drawer.score().value for _ in range(3)}) == 1


def test_examples_warm_up_the_process_and_a_wrong_one_is_an_error_at_the_start() -> None:
    with guarded(functions.count_calls, examples=[((), 1.0), ((), 2)]) as scorer:
        assert scorer.score().value == 3.0
    with guarded(functions.double, examples=[((2,), 5)]) as scorer:
        for _ in range(2):
            with pytest.raises(ScorerPoolError, match=r"the example \(2,\) gives 4\.0, not 5"):
                scorer.score(1)


def test_threads_after_preparation_are_an_error_that_names_the_remedy() -> None:
    with (
        guarded(with_thread.start_thread, sandbox=False, examples=[((), 1.0)]) as scorer,
        pytest.raises(ScorerPoolError, match=r"threads run .* use fresh=False"),
    ):
        scorer.score()


@pytest.mark.parametrize("examples", [[3], [(1, 2, 3)], [(5, 120)], ["ab"], [((5,), "120")]])
def test_examples_that_are_no_pairs_are_refused(examples: Any) -> None:
    with pytest.raises(ConfigError, match="must be pairs"):
        guarded("math:factorial", examples=examples)


def test_without_a_sandbox_only_wall_time_counts() -> None:
    """A main thread that waits for a thread or a child is not asleep."""
    for function in (functions.wait_for_thread, functions.wait_for_child):
        with guarded(function, timeout=2.0, sandbox=False) as scorer:
            assert scorer.score(2.2).value == 1.0
    with guarded(functions.nap, timeout=0.1, sandbox=False) as scorer:
        late = scorer.score(60)
        assert (late.status, late.detail) == (Failure.TIMEOUT, "no score within 0.4 s")


def test_what_is_raised_cannot_control_a_terminal() -> None:
    with guarded(functions.raise_terminal_codes) as scorer:
        assert scorer.score().detail == "ValueError: \\x1b[2Jred"


def test_threads_of_an_import_have_another_remedy_because_every_server_imports_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = "tests.runner.programs.threads_at_import:score"
    monkeypatch.setattr("rg_env.runner.caller_guarded._path_of", lambda scorer: path)  # it imports the module here
    with guarded(path) as scorer, pytest.raises(ScorerPoolError, match="start them in the function") as raised:
        scorer.score()
    assert "fresh" not in str(raised.value)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("programs.script", "exits the program on import"),
        ("programs.exits_at_import", r"exit code 0\): one of the modules .*exits_at_import exits the process"),
        ("no_such_module", "No module"),
    ],
)
def test_a_module_that_cannot_be_imported_is_said_at_once_and_for_good(
    module: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"tests.runner.{module}:score"
    monkeypatch.setattr("rg_env.runner.caller_guarded._path_of", lambda scorer: path)
    starts: list[object] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **named: starts.append(args) or popen(*args, **named))
    with guarded(path) as scorer:
        for _ in range(2):
            with pytest.raises(ScorerPoolError, match=f"do not start: .*{why}") as raised:
                scorer.score()
            assert "\n" not in str(raised.value)
    assert len(starts) == 1, "nothing is tried again that cannot succeed"


def test_the_folder_runs_in_an_empty_project_under_another_name(tmp_path: Any) -> None:
    """Without any package, by Python alone."""
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(rg_env.runner.__file__).parent, tmp_path / "killable", ignore=without_caches)
    program = (
        "import sys; sys.path = [path for path in sys.path if 'site-packages' not in path]\n"
        "from killable import guarded\n"
        "with guarded('math:factorial', examples=[((3,), 6)]) as f: print(f.score(5).value, f.score(-1).status)\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'rg_env', 'loguru', 'numpy'}))\n"
    )
    command = [getattr(sys, "_base_executable", sys.executable), "-S", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "120.0 error\n[]\n", done.stderr


def test_the_runner_imports_only_the_standard_library() -> None:
    for file in Path(rg_env.runner.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names, file.name
