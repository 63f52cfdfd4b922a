"""What a worker in its sandbox can do, by functions of ours that try, and what it cannot."""

from __future__ import annotations

import errno
import json
import os
import pickle
import platform
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import sympy

from rg_env.runner import caller_pool as pool_module
from rg_env.runner import child_seccomp as seccomp
from rg_env.runner.child_sandbox import LANDLOCK, MEASURES, SECCOMP, readable_paths
from rg_env.scoring import Guarded, Status, guarded, sandbox_report
from rg_env.scoring.pools import _upstream_modules, target_of
from rg_env.tasks.registry import task_names
from tests.runner.programs import attempts
from tests.runner.programs.attempts import FORBIDDEN, MECHANISMS
from tests.running import program, run_program

Item = Callable[..., dict[str, Any]]
Needs = Callable[[str], None]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def missing() -> dict[str, str]:
    """Mechanism → why this system does not have it, "" if it has."""
    report = sandbox_report()
    return {mechanism: report[name] for mechanism, name in MEASURES.items()}


@pytest.fixture
def needs(missing: dict[str, str]) -> Needs:
    def skip_without(mechanism: str) -> None:
        if missing[mechanism]:
            pytest.skip(f"this system does not offer {mechanism}: {missing[mechanism]}")

    return skip_without


@pytest.fixture(scope="module")
def attempting() -> Iterator[Guarded]:
    with guarded(attempts.attempt, workers=1, timeout=30.0) as made:
        yield made


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_worker_cannot(attempting: Guarded, needs: Needs, tmp_path: Path, what: str) -> None:
    needs(MECHANISMS[what])
    victim = tmp_path / "folder" / "victim"
    victim.parent.mkdir()
    victim.write_text("precious")
    before = victim.stat()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander,
        socket.socket() as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as local,
    ):
        local.bind(str(tmp_path / "socket"))
        for internet in (tcp, udp):
            internet.bind(("127.0.0.1", 0))
        for listener in (tcp, local):
            listener.listen()
        facts = {
            "path": str(victim),
            "pid": bystander.pid,
            "python": os.__file__,
            "sync": 162 if platform.machine() == "x86_64" else 81,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "local": str(tmp_path / "socket"),
        }
        for number in range(len(FORBIDDEN[what])):
            tried = attempting.score(what, number, facts)
            assert (tried.value, tried.status) == (None, Status.ERROR), number
            assert re.match(
                "(PermissionError|OSError|MemoryError|ValueError|RuntimeError|CalledProcessError)", tried.detail
            ), number
            assert [path.name for path in victim.parent.iterdir()] == ["victim"], number
            assert victim.read_text() == "precious", number
            after = victim.stat()
            assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)
            assert bystander.poll() is None, number
        for listener in (tcp, udp, local):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is udp else listener.accept()
        bystander.communicate(b"\n")
    assert bystander.returncode == 0


def test_every_row_of_the_page_is_tried() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    table = page[page.index("| a worker cannot |") :].partition("\n\n")[0]
    elsewhere = ("change the mode", "make any system call beyond")  # the first row's attempts; the filter itself
    for row in table.splitlines()[2:]:
        assert row.removeprefix("| ").startswith((*FORBIDDEN, *elsewhere)), row


# -- what docs/security.md says is possible


def value_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of ours returns in a worker."""
    with guarded(function, workers=1, timeout=30.0) as scorer:
        scored = scorer.score(*arguments)
    assert scored.status == Status.OK, scored.detail
    return scored.value


def test_what_is_possible(needs: Needs, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Late imports; looking whether a file or a process exists; writing to nowhere."""
    needs(SECCOMP)
    assert value_of(attempts.import_late) == 1.0
    assert value_of(attempts.look, str(tmp_path)) == 1.0
    assert value_of(attempts.look, f"/proc/{os.getpid()}") == 1.0
    assert value_of(attempts.write_to_nowhere) == 2.0
    # Unknown, as on an older system: io_uring_setup, pidfd_open, clone3, openat2.
    with guarded(attempts.error_of_call, workers=1) as scorer:
        assert [scorer.score(call).value for call in (425, 434, 435, 437)] == [errno.ENOSYS] * 4
    with guarded(attempts.limit_of, workers=1, timeout=30.0) as scorer:
        for name, limit in {"CPU": 600 + 30, "NOFILE": 64, "FSIZE": 0, "CORE": 0}.items():
            assert scorer.score(name).value == {"soft": limit, "hard": limit}, name
    assert capfd.readouterr() == ("", "")


def test_workers_have_no_secrets_no_input_and_a_fixed_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RG_ENV_TEST_TOKEN", "secret")
    found = value_of(attempts.of_environment, "RG_ENV_TEST_TOKEN")
    assert found == {"token": 0.0, "input": 0.0, "hash seed": 0.0}


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("reply", [b"1.0\n", b"[1.0, 1.0]\n", b"[1.0,", b"GARBAGE.", bytes(2)])
def test_what_a_worker_writes_to_its_socket_decides_no_other_score(reply: bytes, fresh: bool) -> None:
    """Half a reply is not waited for: the deadline, of an hour, has no part in this."""
    with guarded(attempts.write_to_socket, workers=1, timeout=3600.0, fresh=fresh) as scorer:
        first = scorer.score(reply, 0.0 if reply.endswith(b"\n") else 10.0**6)
        assert (first.value, first.status) == (None, Status.CRASHED)
        assert scorer.score(b"", 0.5).value == 0.5


def test_a_worker_is_replaced_after_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_module._JOBS_PER_WORKER == 10_000
    monkeypatch.setattr(pool_module, "_JOBS_PER_WORKER", 2)
    with guarded("os:getpid", workers=1, fresh=False) as scorer:
        pids = [scorer.score().value for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]


# -- what scoring needs is allowed


@pytest.mark.long
def test_every_task_scores_the_same_with_and_without_the_sandbox(item: Item) -> None:
    jobs = []
    for task in task_names():
        entry = item(task)
        for answer in (entry["answer"], "0", "x y", "[[1, 2], [3, 4]]"):
            jobs.append((task, {}, pickle.dumps((entry, answer, f"<answer>{answer}</answer>"))))
    sandboxed, free = (
        subprocess.run(
            program("score_all", how), input=pickle.dumps(jobs), capture_output=True, check=True, cwd=ROOT
        ).stdout
        for how in ("sandboxed", "free")
    )
    assert len(json.loads(sandboxed)) == 4 * 105
    assert sandboxed == free


def by_numpy(matrix: str) -> float:
    return float(np.linalg.svd(np.array(json.loads(matrix)))[1][0])


def by_sympy(expression: str) -> float:
    return float(sympy.integrate(sympy.sympify(expression), (sympy.Symbol("x"), 0, 1)))


def test_scorers_of_users_may_use_numpy_and_sympy() -> None:
    with guarded(by_numpy, workers=1) as scorer:
        assert scorer.score("[[3, 0], [0, 4]]").value == pytest.approx(4.0)
    with guarded(by_sympy, workers=1, timeout=30) as scorer:
        assert scorer.score("x**2 * exp(x) + sqrt(x)").value == pytest.approx(1.38495, abs=1e-4)


# -- as another user, and where the system offers less

AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
WRITE, READ = ("write, create, rename", 0), ("read files other than", 0)
CALLS = (("use the network", 5), ("start processes", 1), ("signal or trace", 0), ("share memory", 0))
CHANGES = (("write, create, rename", 18), ("write, create, rename", 6), ("write, create, rename", 7))


def skip_unless_runs(command: list[str]) -> None:
    try:
        subprocess.run([*command, "import rg_env.scoring"], check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("cannot run Python as another user here")


@pytest.mark.parametrize(
    ("without", "tried", "possible", "reason"),
    [
        ("", (WRITE, READ, *CALLS), (), {}),
        ("Landlock", (WRITE, READ, *CHANGES, *CALLS), (READ,), {LANDLOCK: "Function not implemented"}),
        ("seccomp", (WRITE, READ, CALLS[-1]), (CALLS[-1],), {SECCOMP: "Function not implemented"}),
        ("installing", (), (), {SECCOMP: "Function not implemented"}),
        ("enforcement", (), (), {SECCOMP: "does not enforce"}),
    ],
)
def test_a_missing_measure_is_named_with_its_reason_and_the_others_hold(
    tmp_path: Path, needs: Needs, without: str, tried: Any, possible: Any, reason: dict[str, str]
) -> None:
    """All of them hold for a user without privileges, too."""
    needs(LANDLOCK)
    needs(SECCOMP)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for path in (victim, *tmp_path.parents[:2], tmp_path):
        path.chmod(0o777)
    command = program("confined", without, json.dumps(tried), json.dumps({"path": str(victim), "pid": os.getpid()}))
    if not without:
        command = [*AS_NOBODY, *command]
        skip_unless_runs([*AS_NOBODY, sys.executable, "-c"])
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for mechanism, name in MEASURES.items():
        (line,) = (line for line in lines if line.startswith(name))
        assert line == name if mechanism not in reason else reason[mechanism] in line
    succeeded = [line.removeprefix("succeeded: ") for line in lines if line.startswith("succeeded: ")]
    assert succeeded == [f"{what} {number}" for what, number in tried if (what, number) in possible]


def test_scoring_works_for_another_user_than_root(item: Item) -> None:
    entry = item("chain_sum")
    program = (
        f"from rg_env.scoring import Scorer\nprint(Scorer(workers=1).score_answer({entry!r}, {entry['answer']!r}))"
    )
    capabilities = "+dac_override,+dac_read_search"  # the interpreter may be in root's home folder
    command = [*AS_NOBODY, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", sys.executable, "-c"]
    skip_unless_runs(command)
    done = subprocess.run([*command, program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "score=1.0" in done.stdout, done.stderr


def test_a_worker_needs_no_file_for_its_first_score(item: Item) -> None:
    """What it needs is read before the sandbox, where it may be unreadable."""
    entry = item("chain_sum")
    request = pickle.dumps((pickle.dumps(entry), entry["answer"]))
    done = run_program("files_of_worker", target_of("chain_sum", {}).hex(), request.hex(), *_upstream_modules())
    assert json.loads(done.stdout) == {"reply": [1.0, 0.15], "opened": []}


def test_finding_the_readable_folders_triggers_no_lazy_import(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    class Lazy(ModuleType):  # transformers has 60 such modules, and logs a warning for each lookup
        def __getattr__(self, name: str) -> list[str]:
            looked_up.append(name)
            return []

    package = ModuleType("package")
    package.__path__ = ["/somewhere"]
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "package", package)
    assert "/somewhere" in readable_paths()
    assert looked_up == []


def test_packages_in_a_folder_of_any_name_can_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As after `pip install --target`. A scorer that may not list it takes what is installed there for missing.
    (tmp_path / "target" / "reasoning_gym-0.1.25.dist-info").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "target")
    monkeypatch.syspath_prepend(tmp_path / "scripts")
    readable = readable_paths()
    assert str(tmp_path / "target") in readable
    assert str(tmp_path / "scripts") not in readable


# -- the filter itself


def headers() -> dict[str, dict[str, int]]:
    found = {}
    for machine, name, pattern in (
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)"),
        ("aarch64", "/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+) (\d+)"),
    ):
        if Path(name).exists():
            found[machine] = {call: int(number) for call, number in re.findall(pattern, Path(name).read_text())}
    return found


@pytest.mark.skipif(not headers(), reason="no kernel headers on this system")
def test_the_numbers_of_the_calls_are_the_kernels() -> None:
    for machine, known in headers().items():
        for name, number in numbers(0 if machine == "x86_64" else 1).items():
            assert known.get(name, known.get("fstatat" if name == "newfstatat" else "")) == number, name


def numbers(column: int) -> dict[str, int]:
    """Every call of the tables that the architecture has."""
    pairs = seccomp.ALLOWED | {name: row[0] for name, row in (seccomp.NONE_OF_BITS | seccomp.ONE_OF_VALUES).items()}
    return {name: number for name, pair in pairs.items() if (number := pair[column]) is not None}


KILLED = -1


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What a filter returns: a classic BPF machine, as far as the filter needs one."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(arguments + (0,) * 6)[:6])
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        kind, if_true, if_false, operand = code[at]
        at += 1
        if kind == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
        elif kind == 0x06:
            return {0x7FFF: 0, 0x8000: KILLED}.get(operand >> 16, operand & 0xFFFF)
        else:
            true = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: accumulator & operand}[kind]
            at += if_true if true else if_false


@pytest.mark.parametrize(("machine", "architecture"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_the_filter_allows_what_it_lists_and_nothing_else(machine: str, architecture: int) -> None:
    allowed = numbers(0 if machine == "x86_64" else 1)
    program = seccomp.build(machine)
    ruled = {allowed[name] for name in (*seccomp.NONE_OF_BITS, *seccomp.ONE_OF_VALUES) if name in allowed}
    for number in set(range(1000)) - ruled:
        refused = 1 if number < 424 else 38
        assert verdict(program, architecture, number) == (0 if number in allowed.values() else refused), number
    openat, prlimit, fcntl = (allowed[name] for name in ("openat", "prlimit64", "fcntl"))
    assert verdict(program, architecture, openat, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == 0
    assert verdict(program, architecture, openat, 0, 0, os.O_WRONLY) == 1
    assert [verdict(program, architecture, prlimit, pid) for pid in (0, 1)] == [0, 1]
    assert [verdict(program, architecture, fcntl, 3, command) for command in (1, 8, 10, 15, 7, 1024)] == [0, *[1] * 5]
    assert verdict(program, 0x40000003, 1) == KILLED  # another architecture's numbers
    assert verdict(program, architecture, 0x40000001) == KILLED


def test_an_architecture_without_a_table_is_named() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.build("riscv64")
