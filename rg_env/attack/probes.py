"""Finds scorers that run text of an answer as code, or whose cost outgrows the answer, by texts that harm nobody.

- Code is found by a trace: a function whose name means nothing anywhere but in the process of the scorer.
- In place of a text that never ends, one form is tried at growing sizes that cost milliseconds. If time or memory grow
  faster than the text, so much that an answer of the allowed length would exceed a limit, that is a finding.

Invariant: a program that reads one of these texts takes some milliseconds and megabytes, and does nothing. Not covered:
tasks that run answers as programs.
"""

from __future__ import annotations

import builtins
import copy
import math
import pickle
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple

from rg_env.configuration.modules import modules_of_tasks
from rg_env.runner.caller_pool import ScorerPool
from rg_env.runner.child_process import make_answerer
from rg_env.runner.failures import Failure, JobFailedError, ProtocolError
from rg_env.runner.handover import wait
from rg_env.scoring import guard
from rg_env.scoring.expressions import Refusal
from rg_env.scoring.file_scorers import FileQuestion, file_question, path_of
from rg_env.scoring.upstream import score_form
from rg_env.tasks.upstream.oracles import corrected

TRACE = "rg_env_trace"
TRACES = (
    "rg_env_trace(1)",
    "[rg_env_trace(1)]",
    "{'answer': rg_env_trace(1)}",
    "sympify('rg_env_trace(1)')",
    "!!python/object/apply:builtins.rg_env_trace [1]",  # YAML
    "cbuiltins\nrg_env_trace\n(I1\ntR.",  # a pickle
    "; rg_env_trace; $(rg_env_trace)",  # a shell: no such command
)
"""Each calls the function in another notation."""

_LONGEST = 8192
"""Characters of an answer."""
_LEAST_POWER = 1.5
_TRIES = 3
"""Measurements, the least of which counts, before growth is a finding."""


class Resource(NamedTuple):
    """What a text may need too much of.

    Attributes:
        limit: for an answer of the greatest length.
        noise: what the largest size must need more than the next one to be growth.
        unbearable, said: an amount that nobody has, and in words.
    """

    limit: float
    noise: float
    unbearable: float
    said: str


_TIME = Resource(limit=1.0, noise=0.006, unbearable=3600.0, said="take about an hour")
"""CPU seconds."""
_MEMORY = Resource(limit=1024.0, noise=3.0, unbearable=float(1 << 20), said="need about a terabyte")
"""MiB."""


class Form(NamedTuple):
    """A text of any size, and sizes at which it costs milliseconds, at least three: the last three tried are compared.

    No size is tried after one that took some milliseconds more than a short answer.
    """

    shown: str
    make: Callable[[int], str]
    sizes: Sequence[int]


def _number(text: str, *sizes: int) -> Form:
    """Make the form of a text with a number, whose size is the number and not the length of the text."""
    return Form(text.replace("#", "n"), lambda size: text.replace("#", str(size)), sizes)


FORMS = (
    # The numbers of a form differ by one digit: so little longer a text may cost ten times as much.
    _number("9**#", 30, 300, 3_000, 30_000, 300_000),
    _number("1e#", 20, 200, 2_000, 20_000, 200_000),
    _number("1e-#", 20, 200, 2_000, 20_000, 200_000),
    _number("len(sorted('a'*#))", 1_000, 10_000, 100_000, 1_000_000),
    _number("[0]*#", 30, 300, 3_000, 30_000, 300_000),
    _number("factorial(#)", 30, 300, 3_000, 30_000),
    _number("#!", 30, 300, 3_000, 30_000),
    _number("F#", 1, 13, 130, 1_300),
    _number("A+#", 30, 300, 3_000, 30_000),
    # These grow with their length.
    Form("minus signs", lambda size: "-" * size + "1", (10, 20, 40, 80)),
    Form("signs of negation", lambda size: "¬" * size + "P", (10, 20, 40, 80, 160, 320)),
    Form("nested conjunctions", lambda size: "(" * size + "P" + " ∧ Q)" * size, (15, 30, 60, 120)),
    Form("equal factors", lambda size: "*".join(["(x+1)"] * size), (2, 4, 8, 16)),
    Form("opening tags", lambda size: "<answer>" * size, (125, 250, 500, 1_000)),
    Form("a letter and a sign", lambda size: "a" * size + "!", (1_000, 2_000, 4_000)),
    Form("a long fraction", lambda size: "9" * size + "/" + "7" * size, (1_000, 2_000, 4_000)),
)
_ENOUGH = 0.008
"""CPU seconds that a text takes longer than a short answer, after which no larger one is tried."""


class Found(NamedTuple):
    """What a probe showed. `failure` is how the scorer failed on it, else None."""

    probe: str
    is_code: bool = False
    failure: Failure | None = None


class Cost(NamedTuple):
    """Of scoring a text: calls of the trace, CPU seconds, and the most memory until then in MiB."""

    traces: float
    seconds: float
    memory: float


class Prober(AbstractContextManager["Prober"]):
    """Probes the scorer of one item, in processes like those that score answers.

    Args:
        entry: an item of the task.
        options: of the task's items, where they are not its defaults.
        is_guarded: whether the guard reads the texts first, as in training.
        timeout: CPU seconds for a probe.
    """

    def __init__(
        self,
        entry: Mapping[str, Any],
        options: Mapping[str, Any] = MappingProxyType({}),
        *,
        is_guarded: bool = True,
        timeout: float = 5.0,
    ) -> None:
        question = file_question(entry)
        modules = [__name__]
        target: tuple[object, ...]
        if isinstance(question, FileQuestion):
            path = path_of(question.scorer)
            modules.append(path.partition(":")[0])
            target = (__name__, probe_of_file.__name__, path, dict(question.row), question.answer)
        else:
            modules += ["rg_env.tasks.upstream.slim_import", *modules_of_tasks()]
            target = (__name__, probe_of_task.__name__, dict(corrected(entry)), dict(options), is_guarded)
        self._target = pickle.dumps(target)
        preparation = pickle.dumps((self._target, []))
        self._pool = ScorerPool(1, timeout, lambda: modules, fresh=True, preparation=preparation)

    def find(self) -> list[Found]:
        """Try every trace and every form. Raises ScorerPoolError: no process can be started."""
        found = []
        # All in one process: a trace changes nothing that the next one could notice.
        costs = self._measure(TRACES)
        if isinstance(costs, Failure):
            found.append(Found("a call", failure=costs))
        else:
            for text, cost in zip(TRACES, costs, strict=False):
                if cost is not None and cost.traces:
                    found.append(Found(f"`{' '.join(text.split())}`", is_code=True))
        for form in FORMS:
            growth = self._growth(form)
            if growth is not None:
                found.append(growth)
        return found

    def _growth(self, form: Form) -> Found | None:
        texts = [form.make(size) for size in form.sizes]
        least: list[Cost] = []
        described = ""
        for _ in range(_TRIES):
            costs = self._measure(texts, is_growth=True)
            if isinstance(costs, Failure):
                return Found(f"`{form.shown}`", failure=costs)
            tried = [cost for cost in costs if cost is not None]
            # The guard bounds the form, or the scorer is too slow to tell.
            if len(tried) < 3:
                return None
            # Where the machine was slower, fewer sizes were tried.
            longer = max(tried, least, key=len)
            least = [Cost(*map(min, *pair)) for pair in zip(tried, least, strict=False)]
            least += longer[len(least) :]
            # Most forms are done after the first time: only what looks like growth is measured again.
            described = growth_of([len(text) for text in texts[: len(least)]], least)
            if not described:
                return None
        return Found(f"`{form.shown}`: {described}")

    def _measure(self, texts: Sequence[str], is_growth: bool = False) -> list[Cost | None] | Failure:
        """Return the costs of texts, scored one after another in one process; None if the guard refuses the text.

        Args:
            is_growth: the texts are of one form. None is scored after one that cost enough, or if the guard refuses
                any: then there are fewer costs.
        """
        try:
            return wait(self._pool.run(self._target, pickle.dumps((texts, is_growth)), _check))
        except JobFailedError as failed:
            # A machine without a free core says nothing about the scorer.
            return [] if failed.excused else failed.failure

    def __exit__(self, *_: object) -> None:
        self._pool.close()


def growth_of(lengths: Sequence[int], costs: Sequence[Cost]) -> str:
    """Say how long a text would be unbearable, judged by the last three; "" if nothing outgrows the texts."""
    seconds = _outgrown(lengths[-3:], [cost.seconds for cost in costs[-3:]], _TIME)
    return seconds or _outgrown(lengths[-3:], [cost.memory for cost in costs[-3:]], _MEMORY)


def _outgrown(lengths: Sequence[int], costs: Sequence[float], kind: Resource) -> str:
    """Say how long a text is unbearable, if costs grow faster than lengths and beyond the limit; else return ""."""
    # Differences: what each text costs whatever its size does not count.
    first, last = costs[1] - costs[0], costs[2] - costs[1]
    if last < kind.noise:
        return ""
    power = math.log(last / max(first, last / 1000)) / math.log(lengths[2] / lengths[1])
    # In logarithms: the cost of the longest answer may not fit a float.
    at_longest = math.log(last) + power * math.log(_LONGEST / lengths[2])
    if power < _LEAST_POWER or at_longest < math.log(kind.limit):
        return ""
    length = lengths[2] * (kind.unbearable / last) ** (1 / power)
    return f"a text of {length:,.0f} characters would {kind.said}"


def _check(reply: object) -> list[Cost | None]:
    """Check a worker's reply. Raises ProtocolError for anything but costs."""
    if not isinstance(reply, list):
        raise ProtocolError("the reply is not a list")
    costs: list[Cost | None] = []
    for cost in reply:
        if cost is None:
            costs.append(None)
        elif isinstance(cost, list) and len(cost) == 3 and all(isinstance(number, float) for number in cost):
            costs.append(Cost(*cost))
        else:
            raise ProtocolError("the reply has something else than costs")
    return costs


# -- in the process of the scorer

Probe = Callable[[bytes], list[Cost | None]]
"""What measures: a request of `Prober` → the costs."""
Prepare = Callable[[str], Callable[[], object] | None]
"""Text → a function that scores it; None if the guard refuses it."""


def probe_of_task(entry: dict[str, Any], options: dict[str, Any], is_guarded: bool) -> Probe:
    """Make what measures the scorer of an item's task on texts as answers."""
    from rg_env.tasks.upstream.slim_import import reasoning_gym

    task = entry["metadata"]["source_dataset"]
    dataset = reasoning_gym.create_dataset(task, **{**options, "size": 1, "seed": 0})

    def prepare(text: str) -> Callable[[], object] | None:
        item, raw, tagged = copy.deepcopy(entry), text, f"<answer>{text}</answer>"
        try:
            if is_guarded:
                item, raw, tagged = guard.admit(item, text)
        except (Refusal, guard.BrokenEntry):
            return None
        # Both forms, as in training; a scorer may change the entry.
        other = copy.deepcopy(item)
        return lambda: (score_form(dataset, item, raw), score_form(dataset, other, tagged))

    return _make_probe(prepare, str(entry["answer"]))


def probe_of_file(path: str, row: dict[str, Any], own: str) -> Probe:
    """Make what measures `module:function`, the scorer of a question of a file."""
    answer = make_answerer(path)
    return _make_probe(lambda text: lambda: answer(pickle.dumps((text, row))), own)


def _make_probe(prepare: Prepare, own: str) -> Probe:
    def score_short() -> None:
        for text in ("1", own):
            if score := prepare(text):
                score()

    # Before the forks, so that what the scorer imports late counts in no measurement.
    score_short()
    calls: list[object] = []
    # A function of C: sympy evaluates no other builtins.
    setattr(builtins, TRACE, calls.append)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        # In the sandbox no shell can start.
        is_shell = event == "os.system" or (event == "subprocess.Popen" and str(arguments[0]).endswith("sh"))
        if is_shell and TRACE in repr(arguments):
            calls.append(event)

    sys.addaudithook(watch)
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10

    def cost_of(score: Callable[[], object]) -> Cost:
        calls.clear()
        before = resource.getrusage(resource.RUSAGE_SELF)
        score()
        after = resource.getrusage(resource.RUSAGE_SELF)
        # Not time.process_time(): under a limit of CPU time, Linux moves that clock in steps of some milliseconds only.
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(float(len(calls)), seconds, after.ru_maxrss / unit)

    def measure(request: bytes) -> list[Cost | None]:
        texts, is_growth = pickle.loads(request)
        scores = list(map(prepare, texts))
        if is_growth and None in scores:
            return []
        # Once more: after a fork, much memory is copied when it is first used.
        score_short()
        enough = cost_of(score_short).seconds + _ENOUGH
        costs: list[Cost | None] = []
        for score in scores:
            cost = score and cost_of(score)
            costs.append(cost)
            if is_growth and cost is not None and cost.seconds > enough:
                break
        return costs

    return measure
