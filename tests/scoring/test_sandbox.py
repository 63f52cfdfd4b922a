"""Workers under attack from within: answers that are code, handed to the pool below the guard.

`spiral_matrix` evaluates its answer, so what stands in the text is run in a worker. Each attack says by ending its
process (`CRASHED`) that it succeeded, or is looked for outside.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import sympy

from rg_env.scoring import AnswerScore, Status, guard, guarded, sandbox_report, seccomp
from rg_env.scoring import pool as pool_module
from rg_env.scoring.sandbox import LANDLOCK, LIMITS, MEASURES, PRIVILEGES, SECCOMP, readable_paths
from rg_env.scoring.scorer import Scorer
from rg_env.tasks.registry import task_names

Item = Callable[..., dict[str, Any]]
Attack = Callable[[str], AnswerScore]


@pytest.fixture(scope="module")
def missing() -> dict[str, str]:
    """Mechanism → why this system does not have it, "" if it has."""
    report = sandbox_report()
    return {mechanism: report[name] for mechanism, name in MEASURES.items()}


@pytest.fixture
def needs(missing: dict[str, str]) -> Callable[[str], None]:
    def skip_without(mechanism: str) -> None:
        if missing[mechanism]:
            pytest.skip(f"this system does not offer {mechanism}: {missing[mechanism]}")

    return skip_without


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(workers=1, timeout=30.0, normalize=False) as made:
        yield made


@pytest.fixture
def attack(scorer: Scorer, item: Item, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attack]:
    """Run an expression in a worker, past the guard; the oracle answer is still right afterwards."""
    entry = item("spiral_matrix")
    monkeypatch.setattr(guard, "admit", lambda entry, answer: (entry, answer, ""))

    def run(answer: str) -> AnswerScore:
        return scorer.score_answer(entry, answer)

    yield run
    right = run(entry["answer"])
    assert right.status is Status.OK
    assert right.raw == 1.0


def succeeds(attack: Attack, statement: str) -> bool:
    """Whether the Python statement ran to its end in a worker."""
    program = f"{statement}\n__import__('os')._exit(1)"
    outcome = attack(f"exec({program!r}, {{}})")
    return outcome.status is Status.CRASHED


def test_code_does_run_below_the_guard(attack: Attack) -> None:
    assert succeeds(attack, "import os, json; os.getpid()")


@pytest.mark.parametrize(
    "statement",
    [
        "open({path!r}, 'w')",
        "open({path!r}, 'a')",
        "open({path!r}, 'r+')",
        "open({path!r} + '.new', 'x')",
        "import os; os.open({path!r}, os.O_RDONLY | os.O_TRUNC)",
        "import os; os.truncate({path!r}, 0)",
        "import os; os.unlink({path!r})",
        "import os; os.rename({path!r}, {path!r} + '.moved')",
        "import os; os.link({path!r}, {path!r} + '.link')",
        "import os; os.symlink({path!r}, {path!r} + '.symlink')",
        "import os; os.mkdir({path!r} + '.folder')",
        "import os; os.mkfifo({path!r} + '.fifo')",
        "import os; os.chmod({path!r}, 0)",
        "import os; os.utime({path!r}, (0, 0))",
        "import os; os.chown({path!r}, 1, 1)",
        "import os; os.setxattr({path!r}, 'user.rg', b'1')",
        "import shutil; shutil.rmtree({path!r}.rpartition('/')[0])",
        "import tempfile; tempfile.mkdtemp()",
    ],
)
def test_no_file_is_changed(attack: Attack, needs: Callable[..., None], tmp_path: Path, statement: str) -> None:
    needs(LANDLOCK)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    before = victim.stat()
    assert not succeeds(attack, statement.format(path=str(victim)))
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert victim.read_text() == "precious"
    after = victim.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)


@pytest.mark.parametrize(
    "statement",
    [
        "open({path!r}).read()",
        "import os; os.listdir({folder!r})",
        "import os; assert os.listdir('/proc')",
        "open('/proc/%d/environ' % __import__('os').getppid(), 'rb').read()",
        "open('/etc/passwd').read()",
        "import os; os.listdir('/')",
    ],
)
def test_no_file_outside_pythons_own_is_read(
    attack: Attack, needs: Callable[..., None], tmp_path: Path, statement: str
) -> None:
    needs(LANDLOCK)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    assert not succeeds(attack, statement.format(path=str(secret), folder=str(tmp_path)))


def test_late_imports_and_data_files_of_packages_can_be_read(attack: Attack) -> None:
    assert succeeds(attack, "import turtledemo, xml.dom.minidom, reasoning_gym as r; open(r.__file__).read()")


def test_nobody_is_called(attack: Attack, needs: Callable[..., None], tmp_path: Path) -> None:
    needs(SECCOMP)
    with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp.bind(("127.0.0.1", 0))
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(str(tmp_path / "socket"))
            local.listen()
            for statement in (
                f"import socket; socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 2)",
                f"import socket as s; s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', {udp.getsockname()!r})",
                f"import socket as s; s.socket(s.AF_UNIX).connect({str(tmp_path / 'socket')!r})",
                "import socket as s; s.socket(s.AF_UNIX).bind('\\0rg-env')",
                "import socket as s; s.socket(s.AF_INET, s.SOCK_RAW, 1)",
                "import socket as s; s.socket().bind(('127.0.0.1', 0))",
            ):
                assert not succeeds(attack, statement), statement
            for listener in (tcp, udp, local):
                listener.setblocking(False)
                with pytest.raises(BlockingIOError):
                    listener.recv(1) if listener is udp else listener.accept()


@pytest.mark.parametrize(
    "statement",
    [
        "import os; os.fork() or os._exit(0)",
        "import os; os.system('exit 0') == 0 or 1 / 0",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import os; os._exit(1)'])",
        # a fork bomb, of four generations if nothing holds it
        "import os\nfor _ in range(4): os.fork()",
        "import threading as t; x = t.Thread(target=print); x.start(); x.join()",
    ],
)
def test_no_process_is_started(attack: Attack, needs: Callable[..., None], statement: str) -> None:
    needs(SECCOMP)
    assert not succeeds(attack, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "import os; os.kill({pid}, 0)",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.killpg(os.getpgid(os.getppid()), 9)",
        "import os; os.kill(-1, 0)",
        "import os; os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
        "import os; os.sched_setaffinity({pid}, [0])",
        "import resource; resource.prlimit({pid}, resource.RLIMIT_NOFILE, (0, 0))",
        "import ctypes; assert ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0",
        # a signal by way of input on a socket
        "import fcntl, sys\nfor fd in range(3, 20):\n"
        " try: fcntl.fcntl(fd, 8, {pid})\n"
        " except PermissionError: sys.exit()\n"
        " except OSError: pass",
    ],
)
def test_other_processes_are_left_alone(attack: Attack, needs: Callable[..., None], statement: str) -> None:
    needs(SECCOMP)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        assert not succeeds(attack, statement.format(pid=bystander.pid))
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0


@pytest.mark.parametrize(
    "statement",
    [
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY,) * 2)",
        "import resource as r; r.setrlimit(r.RLIMIT_CPU, (r.RLIM_INFINITY,) * 2)",
        "import os; [os.open('/dev/null', os.O_RDONLY) for _ in range(100)]",
        "bytearray(3 << 30)",
    ],
)
def test_limits_hold_and_cannot_be_lifted(attack: Attack, needs: Callable[..., None], statement: str) -> None:
    needs(LIMITS)
    assert not succeeds(attack, statement)


@pytest.mark.parametrize(
    "statement", ["import os; os.chroot('/')", "import os; os.setuid(1)", "import os; os.nice(-5)"]
)
def test_root_is_nobody_special(attack: Attack, needs: Callable[..., None], statement: str) -> None:
    needs(PRIVILEGES)
    assert not succeeds(attack, statement)


def test_newer_system_calls_are_unknown(attack: Attack, needs: Callable[..., None]) -> None:
    needs(SECCOMP)
    for number in (425, 434, 435, 437):  # io_uring_setup, pidfd_open, clone3, openat2
        statement = f"import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall({number}, 0, 0, 0, 0)"
        assert succeeds(attack, statement + "; assert ctypes.get_errno() == 38"), number


@pytest.mark.parametrize(
    "statement",
    [
        "import socket; socket.socketpair()",
        "import fcntl; fcntl.flock(open('/dev/null'), fcntl.LOCK_SH)",
        "import fcntl; fcntl.lockf(open('/dev/null'), fcntl.LOCK_SH)",
        "import fcntl; fcntl.fcntl(open({python!r}), 1024, 0)",  # F_SETLEASE
        "import fcntl, os; fcntl.fcntl(os.open({folder!r}, os.O_RDONLY), 1026, 1)",  # F_NOTIFY
        "import os; os.pipe()",
        "import os; os.memfd_create('x')",
        "import ctypes; assert ctypes.CDLL(None).shmget(0, 4096, 0o600) >= 0",
        "import ctypes; assert ctypes.CDLL(None).shmctl(0, 0, None) >= 0",
        "import ctypes; assert ctypes.CDLL(None).semget(0, 1, 0o600) >= 0",
        "import ctypes; assert ctypes.CDLL(None).msgget(0, 0o600) >= 0",
        "import ctypes; assert ctypes.CDLL(None).inotify_init() >= 0",
        "import ctypes; assert ctypes.CDLL(None).inotify_init1(0) >= 0",
        "import os; os.fsync(os.open({python!r}, os.O_RDONLY))",
        "import ctypes; assert ctypes.CDLL(None).syncfs(os.open({python!r}, 0)) == 0",
        "import os, ctypes; c = ctypes.CDLL(None, use_errno=True); os.sync(); c.syscall({sync}); "
        "assert ctypes.get_errno() == 0",
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.shmdt(None); assert ctypes.get_errno() != 1",
    ],
)
def test_nothing_is_shared_with_other_processes(attack: Attack, needs: Callable[..., None], statement: str) -> None:
    needs(SECCOMP)
    sync = 162 if platform.machine() == "x86_64" else 81
    assert not succeeds(attack, statement.format(python=os.__file__, folder=os.path.dirname(os.__file__), sync=sync))  # noqa: PTH120


def test_output_is_discarded(attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    assert succeeds(attack, "import os; os.write(1, b'x'); os.write(2, b'x')")
    assert capfd.readouterr() == ("", "")


# -- what docs/security.md says is possible


def test_a_worker_can_decide_its_own_score_and_nothing_protects_it(attack: Attack) -> None:
    forge = """
import os
for fd in range(3, 20):
    try: os.write(fd, b"[1.0, 1.0]" + bytes([10]))
    except OSError: pass
os._exit(0)"""
    assert attack(f"exec({forge!r}, {{}})").raw == 1.0


def test_the_existence_of_files_and_processes_can_be_guessed(attack: Attack, tmp_path: Path) -> None:
    for path in (str(tmp_path), f"/proc/{os.getpid()}"):
        assert succeeds(attack, f"import os; os.stat({path!r})")


def test_the_limits_are_those_of_the_page(attack: Attack, needs: Callable[..., None]) -> None:
    needs(LIMITS)
    for name, value in {"CPU": 600 + 30, "NOFILE": 64, "FSIZE": 0, "CORE": 0}.items():
        assert succeeds(attack, f"import resource as r; assert r.getrlimit(r.RLIMIT_{name}) == ({value}, {value})")


def test_a_worker_is_replaced_after_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_module._JOBS_PER_WORKER == 10_000
    monkeypatch.setattr(pool_module, "_JOBS_PER_WORKER", 2)
    with guarded("os:getpid", workers=1) as scorer:
        pids = [scorer.score().value for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]


# -- what scoring needs is allowed

SCORES = """
import json, pickle, sys
import reasoning_gym
from rg_env.scoring.sandbox import Sandbox
from rg_env.scoring.worker import make_scorer
jobs = pickle.load(sys.stdin.buffer)
if sys.argv[1] == "sandboxed":
    Sandbox().enter(1 << 30, 60)
print(json.dumps([make_scorer(task, options)(arguments) for task, options, arguments in jobs]))
"""


def test_every_task_scores_the_same_with_and_without_the_sandbox(item: Item) -> None:
    jobs = []
    for task in task_names():
        entry = item(task)
        for answer in (entry["answer"], "0", "x y", "[[1, 2], [3, 4]]"):
            arguments = pickle.dumps((entry, answer, f"<answer>{answer}</answer>"))
            jobs.append((task, {}, arguments))
    scores = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", SCORES, how], input=pickle.dumps(jobs), capture_output=True, check=True, cwd=ROOT
            ).stdout
        )
        for how in ("sandboxed", "free")
    ]
    assert len(scores[0]) == 4 * 105
    assert scores[0] == scores[1]


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

CONFINED = """
import sys, threading, ctypes, socket, os
from rg_env.scoring import sandbox, seccomp

def missing(*_):
    raise OSError(38, "Function not implemented")

if {without} == "Landlock":
    sandbox.landlock_abi = missing
if {without} == "seccomp":
    seccomp.build = missing
if {without} == "installing":
    seccomp.install = missing
if {without} == "enforcement":
    seccomp.install = lambda program: None
for name, why in sandbox.try_measures().items():
    os.write(1, (f"{{name}}: {{why}}" if why else name).encode() + b"\\n")
for number, attempt in enumerate({attempts}):
    try:
        exec(attempt)
    except (OSError, RuntimeError, AssertionError):
        continue
    os.write(1, b"succeeded: " + attempt.encode() + b"\\n")
"""


def confined(attempts: list[str], without: str = "", command: tuple[str, ...] = ()) -> tuple[set[str], list[str]]:
    """Try statements in a sandbox: (the mechanisms that are active, the statements that succeeded)."""
    lines = output_of(attempts, without, command)
    succeeded = [line.removeprefix("succeeded: ") for line in lines if line.startswith("succeeded: ")]
    return {mechanism for mechanism, name in MEASURES.items() if name in lines}, succeeded


def output_of(attempts: list[str], without: str = "", command: tuple[str, ...] = ()) -> list[str]:
    program = CONFINED.format(without=repr(without), attempts=repr(attempts))
    done = subprocess.run(
        [*command, sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


ROOT = Path(__file__).parents[2]
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
WRITE, READ = "open({victim!r}, 'w')", "open({victim!r}).read()"
CALLS = ("socket.socket()", "threading.Thread(target=print).start()", "os.kill({pid}, 0)", "socket.socketpair()")
CREAT = "assert ctypes.CDLL(None).creat({victim!r}.encode(), 0o600) >= 0"


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., list[str]]:
    """Statements about a file that everybody may change, and about this process."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for folder in (victim, *tmp_path.parents[:2], tmp_path):
        folder.chmod(0o777)
    return lambda *statements: [one.format(victim=str(victim), pid=os.getpid()) for one in statements]


def test_the_sandbox_holds_for_a_user_without_privileges(
    written: Callable[..., list[str]], missing: dict[str, str], needs: Callable[[str], None]
) -> None:
    needs(LANDLOCK)
    needs(SECCOMP)
    try:
        subprocess.run([*AS_NOBODY, sys.executable, "-c", "import rg_env.scoring"], check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("cannot run Python as another user here")
    active, succeeded = confined(written(WRITE, READ, *CALLS), command=AS_NOBODY)
    assert active == {mechanism for mechanism in MEASURES if not missing[mechanism]}
    assert succeeded == []


def test_without_landlock_files_can_only_be_read(
    written: Callable[..., list[str]], needs: Callable[[str], None]
) -> None:
    needs(SECCOMP)
    remove, rename = "os.unlink({victim!r})", "os.rename({victim!r}, {victim!r} + 'x')"
    active, succeeded = confined(written(WRITE, CREAT, remove, rename, READ, *CALLS), without="Landlock")
    assert active == set(MEASURES) - {LANDLOCK}
    assert succeeded == written(READ)


def test_without_seccomp_files_are_still_safe(written: Callable[..., list[str]], needs: Callable[[str], None]) -> None:
    needs(LANDLOCK)
    active, succeeded = confined(written(WRITE, READ, CALLS[-1]), without="seccomp")
    assert active == set(MEASURES) - {SECCOMP}
    assert succeeded == written(CALLS[-1])


def test_scoring_works_for_another_user_than_root(item: Item) -> None:
    entry = item("chain_sum")
    program = (
        f"from rg_env.scoring import Scorer\nprint(Scorer(workers=1).score_answer({entry!r}, {entry['answer']!r}))"
    )
    capabilities = "+dac_override,+dac_read_search"  # the interpreter may be in root's home folder
    command = [*AS_NOBODY, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", sys.executable, "-c"]
    try:
        subprocess.run([*command, "import rg_env.scoring"], check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("cannot run Python as another user here")
    done = subprocess.run([*command, program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "score=1.0" in done.stdout, done.stderr


# -- where the system offers less


@pytest.mark.parametrize(
    ("without", "mechanism", "why"),
    [
        ("Landlock", LANDLOCK, "Function not implemented"),
        ("seccomp", SECCOMP, "Function not implemented"),
        ("installing", SECCOMP, "Function not implemented"),
        ("enforcement", SECCOMP, "does not enforce"),
    ],
)
def test_a_missing_measure_is_named_with_its_reason(without: str, mechanism: str, why: str) -> None:
    (line,) = (line for line in output_of([], without) if line.startswith(f"{MEASURES[mechanism]}: "))
    assert why in line


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
    found = {name: pair[column] for name, pair in seccomp.ALLOWED.items()}
    found |= {name: pair[column] for name, (pair, *_) in (seccomp.NONE_OF_BITS | seccomp.ONE_OF_VALUES).items()}
    return {name: number for name, number in found.items() if number is not None}


KILLED = -1


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What a filter returns: a classic BPF machine, as far as the filter needs one."""
    import struct

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
    with pytest.raises(seccomp.SeccompError, match="riscv64"):
        seccomp.build("riscv64")
