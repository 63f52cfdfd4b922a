"""`rg-env serve` with 1,000 clients: 800 ask for the score of an answer every 20 seconds, and 200 of another address
leave, send half a body, send slowly, send 100 MB, send large entries, valid entries that take long to check, or 4 MB
of valid JSON, or ask for items that take long to make. A run with them takes a minute, which begins after the start.

The cost is the CPU time that the server's process takes between a polite question and its answer, which 95 of 100 stay
below, next to that without the 200: how much of the server's own work comes first, whatever else has the cores. Six
clients with heavy valid entries alone are measured by the time of a polite answer. Where all clients are in one
process, a polite one also waits while that process does the rude ones' work, such as sending 100 MB; so the rude ones
are in a process of their own, too, on one of the cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.bench_serve import started
from benchmarks.comparison import Comparison, Goal
from rg_env.runner.caller_worker import cpu_seconds
from rg_env.serve.connections import allow_connections

POLITE, RUDE = 800, 200
PAUSE_SECONDS = 20.0
"""Between two questions of a polite client."""
SECONDS, QUICK_SECONDS = 60, 20
QUIET_SECONDS = 20
START_SECONDS = 5
"""In which all clients connect, before a run counts."""
HEAVY = 6
"""Clients that send nothing but heavy valid entries."""
ITEM, RIGHT = "gcd-train-42-0", "2"
LARGE = {
    "entry": {
        "question": "?",
        "answer": "1",
        "metadata": {"source_dataset": "simple_integration", "integrand": "1+" * 5000, "variable": "x"},
    },
    "answer": ["1 + " * 2000 + "1"] * 20,
}
NUMBERS = [str(number * 7.25) for number in range(15_000)]
VALID_HEAVY = {
    "entry": {
        "question": "sort",
        "answer": str(NUMBERS),
        "metadata": {"source_dataset": "number_sorting", "direction": "ascending"},
    },
    "answer": ["[1, 2]"] * 20,
}
MANY_LISTS = b",".join([b"[1]"] * 990_000)
NOTES: list[str] = []


class Asked(NamedTuple):
    """A polite answer: when it was asked for, how long it took and how much CPU the server took meanwhile, in ms, and
    what was wrong with it, if anything."""

    at: float
    milliseconds: float
    server: float
    wrong: str = ""


def request(body: Any) -> bytes:
    content = json.dumps(body).encode()
    return head(len(content)) + content


def head(length: int) -> bytes:
    lines = ["POST /score HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


class Client:
    """A connection to the server, from one of this machine's addresses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, address: str) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, body: Any) -> Any:
        """The reply to a request."""
        await self.send(request(body))
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        (length,) = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
        return json.loads(await self._reader.readexactly(int(length)))


# ----------------------------------------------------------------------------------------------------------- clients
async def polite(port: int, number: int, end: float, asked: list[Asked], server: int) -> None:
    """Ask for right and wrong answers in turn."""
    # They begin one after the other.
    await asyncio.sleep(PAUSE_SECONDS * number / POLITE)
    client = None
    while time.monotonic() < end:
        number += 1
        start, before = time.monotonic(), cpu_seconds(server)
        try:
            client = client or await Client.connect(port, "127.0.0.1")
            reply = await client.ask({"item": ITEM, "answer": RIGHT if number % 2 else "-1"})
            scores = [verdict["score"] for verdict in reply.get("verdicts", ())]
            wrong = "" if scores == [number % 2] else str(reply)[:100]
        except (OSError, EOFError) as error:
            wrong, client = type(error).__name__, None
        took, worked = time.monotonic() - start, cpu_seconds(server) - before
        asked.append(Asked(start, took * 1000, worked * 1000, wrong))
        await asyncio.sleep(min(PAUSE_SECONDS, max(0.0, end - time.monotonic())))
    if client:
        client.writer.close()


async def leave(client: Client) -> None:
    await client.send(request({"item": ITEM, "answer": [RIGHT] * 20}))
    await asyncio.sleep(0.02)


async def send_half(client: Client) -> None:
    await client.send(head(1000) + b'{"item": ')
    await asyncio.sleep(5)


async def send_slowly(client: Client) -> None:
    for byte in head(1000)[:50]:
        await client.send(bytes([byte]))
        await asyncio.sleep(0.3)


async def send_much(client: Client) -> None:
    await client.send(head(100 << 20))
    for _ in range(100):
        await client.send(b" " * (1 << 20))


async def send_heavy_entries(client: Client) -> None:
    await client.ask(VALID_HEAVY)


async def send_many_lists(client: Client) -> None:
    body = b'{"entry": {"metadata": [' + MANY_LISTS + b']}, "answer": "1"}'
    await client.send(head(len(body)) + body)
    await asyncio.sleep(1)


async def send_large_entries(client: Client) -> None:
    await client.ask(LARGE)


async def ask_for_slow_items(client: Client) -> None:
    await client.ask({"item": f"knight_swap-train-{random.randrange(1000)}-{random.randrange(1000)}", "answer": "1"})


KINDS: tuple[Callable[[Client], Awaitable[None]], ...] = (
    leave,
    send_half,
    send_slowly,
    send_much,
    send_large_entries,
    send_heavy_entries,
    send_many_lists,
    ask_for_slow_items,
)


Rude = Sequence[Callable[[Client], Awaitable[None]]]
"""What each rude client does."""
OF_ALL_KINDS: Rude = [KINDS[number % len(KINDS)] for number in range(RUDE)]
OF_HEAVY_ENTRIES: Rude = [send_heavy_entries] * HEAVY


async def rude(port: int, behave: Callable[[Client], Awaitable[None]], end: float) -> None:
    """Do the same again and again, until the end."""
    while time.monotonic() < end:
        with suppress(OSError, EOFError, TimeoutError):
            client = await Client.connect(port, "127.0.0.2")
            try:
                async with asyncio.timeout(max(0.1, end - time.monotonic())):
                    await behave(client)
            finally:
                client.writer.transport.abort()
        await asyncio.sleep(0.5)


async def all_clients(port: int, seconds: float, polite_ones: int, rude_ones: Rude, server: int) -> list[Asked]:
    """Return the polite answers of a run without its start."""
    begin = time.monotonic() + START_SECONDS
    end = begin + seconds
    asked: list[Asked] = []
    all_of_them = [polite(port, number, end, asked, server) for number in range(polite_ones)]
    await asyncio.gather(*all_of_them, *(rude(port, behave, end) for behave in rude_ones))
    return [one for one in asked if one.at >= begin]


def be_rude(port: int, seconds: float, rude_ones: Rude) -> float:
    """The rude ones alone, on the last core. Returns the CPU seconds that they took."""
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    allow_connections()
    before = time.process_time()
    asyncio.run(all_clients(port, seconds, 0, rude_ones, os.getpid()))
    return time.process_time() - before


# ------------------------------------------------------------------------------------------------------------ figures
class Load:
    """Runs of the clients against one server, and what all of them found."""

    def __init__(self, port: int, server: psutil.Process) -> None:
        self._port, self._server = port, server
        self._other_process = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self.cores: dict[str, list[float]] = {}
        """CPU seconds per second that processes took, with the rude ones: the server, and who is in the clients'."""
        self.answers = 0
        self.wrong: Counter[str] = Counter()
        self.medians: list[float] = []
        self.slowest = 0.0

    def server_time(self, seconds: float, rude_ones: Rude = (), *, apart: bool = False) -> float:
        """Milliseconds of the server's CPU, within which it answered 95 of 100 polite questions.

        `apart`: the rude ones are in another process.
        """
        asked = self._run(seconds, rude_ones, apart)
        return statistics.quantiles([one.server for one in asked], n=20)[-1]

    def time(self, seconds: float, rude_ones: Rude = ()) -> float:
        """Milliseconds within which half of the polite answers came."""
        return statistics.median(one.milliseconds for one in self._run(seconds, rude_ones, apart=False))

    def _run(self, seconds: float, rude_ones: Rude, apart: bool) -> list[Asked]:
        here: Rude = () if apart else rude_ones
        other = None
        if apart:
            self._other_process.submit(be_rude, self._port, 0, ()).result()  # it has started, and imported all
            other = self._other_process.submit(be_rude, self._port, seconds, rude_ones)
        pid = self._server.pid
        before, before_of_server, start = time.process_time(), cpu_seconds(pid), time.monotonic()
        asked = asyncio.run(all_clients(self._port, seconds, POLITE, here, pid))
        took = time.monotonic() - start
        if rude_ones:
            self._note("polite ones" if apart else "all clients", (time.process_time() - before) / took)
            self._note("server", (cpu_seconds(pid) - before_of_server) / took)
        if other is not None:
            self._note("rude ones", other.result() / took)
        times = [one.milliseconds for one in asked]
        self.answers += len(asked)
        self.wrong.update(one.wrong for one in asked if one.wrong)
        if rude_ones:
            self.medians.append(statistics.median(times))
            self.slowest = max(self.slowest, *times)
        return asked

    def _note(self, process: str, cores: float) -> None:
        self.cores.setdefault(process, []).append(cores)


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    """With and without the rude ones."""
    allow_connections()
    seconds = QUICK_SECONDS if quick else SECONDS
    with started("-m", "rg_env", "serve", "--port", "0") as url:
        port = int(url.rpartition(":")[2])
        server = next(child for child in psutil.Process().children() if "serve" in child.cmdline())
        load = Load(port, server)
        load.time(QUICK_SECONDS)  # processes and imports
        before = state_of(server)
        for apart, where in ((False, ""), (True, "; the rude ones in a process of their own, on one core")):
            yield Comparison(
                f"the server's CPU until a polite answer, 95 of 100{where}",
                "ms",
                partial(load.server_time, seconds, OF_ALL_KINDS, apart=apart),
                partial(load.server_time, min(seconds, QUIET_SECONDS)),
                "the same without the rude ones",
                goal=Goal(ratio=6.0),
                slow=True,
            )
        yield Comparison(
            f"a polite answer, half of them; {HEAVY} others send heavy valid entries",
            "ms",
            partial(load.time, min(seconds, QUIET_SECONDS), OF_HEAVY_ENTRIES),
            partial(load.time, min(seconds, QUIET_SECONDS)),
            "the same without the others",
            goal=Goal(ratio=3.0),
            slow=True,
        )
        after = settled(server, before)
        start = time.monotonic()
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        ended = time.monotonic() - start
    reasons = "".join(f" ({number:,}: {why})" for why, number in load.wrong.most_common(3))
    NOTES.append(
        f"{load.answers:,} polite answers, {load.wrong.total():,} of them wrong or refused{reasons}; "
        "with the rude ones the median was "
        f"{statistics.median(load.medians):.0f} ms, the slowest {load.slowest / 1000:.1f} s."
    )
    NOTES.append(
        f"The server had {before.descriptors} descriptors and {before.megabytes} MB before, {after.descriptors} and "
        f"{after.megabytes} MB after all had left; SIGTERM ended it within {ended:.1f} s. Load average at the end: "
        f"{os.getloadavg()[0]:.1f}; clients and server shared the cores."
    )
    shares = ", ".join(f"{process} {statistics.median(cores):.2f}" for process, cores in load.cores.items())
    NOTES.append(
        f"Cores that processes took while there were rude clients, without scorers and makers of items: {shares}."
    )


class State(NamedTuple):
    """What a server keeps."""

    descriptors: int
    megabytes: int


def state_of(server: psutil.Process) -> State:
    return State(server.num_fds(), server.memory_info().rss >> 20)


def settled(server: psutil.Process, before: State) -> State:
    """What it keeps when it has noticed that all have left, which takes as long as a head may."""
    deadline = time.monotonic() + 90
    while server.num_fds() > before.descriptors and time.monotonic() < deadline:
        time.sleep(1)
    return state_of(server)
