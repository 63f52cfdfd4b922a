"""The pool over Ray actors: with stand-ins for the actors, and with two Ray nodes on this machine."""

import json
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from rg_env.errors import ConfigError, ScorerPoolError
from rg_env.scoring import AnswerScore, Scorer, Status
from rg_env.scoring.workers import ray_pool
from rg_env.scoring.workers.connection import Job
from tests.e2e.conftest import run_command
from tests.scoring.workers.processes import wait_until

JOB = Job.of("chain_sum", {}, {}, "1", calls_code=False)
GOOD = AnswerScore(1.0, 1.0, 1.0, Status.OK)


class Actor:
    """Stands for the handle of an actor: its calls return futures, passed to `on_start` and `on_run`."""

    def __init__(self, on_start, on_run):
        self._pending = []
        self.start, self.run = self._method(on_start), self._method(on_run)

    def _method(self, on_call):
        def call(*_):
            self._pending.append(future := Future())
            on_call(future)
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(remote=call)

    def die(self):
        for future in self._pending:
            if not future.done():
                future.set_exception(ActorDiedError())


class Ray:
    """Stands for the module `ray`."""

    def __init__(self):
        self.made, self.killed, self.calls = [], [], []
        self.on_start = lambda future: future.set_result("host")
        self.on_run = self.calls.append

    def remote(self, **options):
        self.options = options
        return lambda _: SimpleNamespace(remote=self._make)

    def _make(self, *_):
        self.made.append(Actor(lambda call: self.on_start(call), lambda call: self.on_run(call)))
        return self.made[-1]

    def is_initialized(self):
        return True

    def nodes(self):
        return [{"Alive": alive, "Resources": {"CPU": cpus}} for alive, cpus in ((True, 4), (True, 2), (False, 8))]

    def kill(self, actor):
        actor.die()
        self.killed.append(actor)


@pytest.fixture
def actors(monkeypatch):
    stand_in = Ray()
    monkeypatch.setattr(ray_pool, "ray", stand_in)
    return stand_in


@pytest.fixture
def make_pool(actors):
    made = []

    def make(pools=1, workers=1):
        made.append(ray_pool.RayScorerPool(pools, workers, 5.0))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.mark.parametrize(("workers", "pools"), [(2, 2), (3, 1), (16, 1)])
def test_each_living_node_with_enough_cores_gets_an_actor(actors, make_pool, workers, pools):
    pool = make_pool(None, workers)
    assert wait_until(lambda: pool.capacity == pools * workers)
    assert actors.options["num_cpus"] == workers


def as_ray_raises(error):
    return RayTaskError("run", "", error).as_instanceof_cause()


@pytest.mark.parametrize(
    "error", [ActorDiedError(), ActorUnavailableError("gone", None), as_ray_raises(ScorerPoolError("no fork"))]
)
def test_an_answer_of_a_lost_actor_is_scored_by_another(actors, make_pool, threads, error):
    pool = make_pool()
    answer = threads.submit(pool.run, JOB)
    assert wait_until(lambda: actors.calls)
    actors.calls[0].set_exception(error)
    assert wait_until(lambda: len(actors.calls) == 2)
    actors.calls[1].set_result(GOOD)
    assert answer.result() == GOOD
    assert wait_until(lambda: actors.killed == actors.made[:1])
    assert len(actors.made) == 2


def test_a_bug_in_the_actor_is_raised_and_loses_no_actor(actors, make_pool):
    pool = make_pool()
    actors.on_run = lambda future: future.set_exception(as_ray_raises(KeyError("bug")))
    with pytest.raises(KeyError):
        pool.run(JOB)
    assert not actors.killed


def test_an_answer_that_loses_every_actor_is_no_zero_to_train_on(actors, make_pool):
    actors.on_run = lambda future: future.set_exception(ActorDiedError())
    result = make_pool().run(JOB)
    assert (result.status, result.starved, result.raw) == (Status.ERROR, True, None)


def test_an_actor_that_never_answers_is_lost(actors, make_pool, monkeypatch):
    monkeypatch.setattr(ray_pool, "_ANSWER_SECONDS", 0.01)
    assert make_pool().run(JOB).starved
    assert wait_until(lambda: len(actors.killed) == len(actors.calls) == 8)


def test_answers_wait_while_every_actor_has_enough(actors, make_pool, threads):
    pool = make_pool(pools=2)
    assert wait_until(lambda: pool.capacity == 2)
    answers = [threads.submit(pool.run, JOB) for _ in range(7)]
    assert wait_until(lambda: len(actors.calls) == 4)
    assert not wait_until(lambda: len(actors.calls) > 4, seconds=0.1)
    for number in range(7):
        assert wait_until(lambda number=number: len(actors.calls) > number)
        actors.calls[number].set_result(GOOD)
    assert [answer.result() for answer in answers] == [GOOD] * 7


def test_actors_that_fail_to_start_are_an_error_and_no_zero(actors, make_pool):
    actors.on_start = lambda future: future.set_exception(as_ray_raises(ScorerPoolError("no module reasoning_gym")))
    pool = make_pool()
    with pytest.raises(ScorerPoolError, match=r"3 times in a row.*no module reasoning_gym"):
        pool.run(JOB)
    assert len(actors.made) == 3


def test_no_node_with_free_cores_is_an_error(actors, make_pool, monkeypatch):
    monkeypatch.setattr(ray_pool, "_START_SECONDS", 0.01)
    actors.on_start = lambda future: None
    with pytest.raises(ScorerPoolError, match="ray status"):
        make_pool().run(JOB)


def test_closing_ends_actors_and_waiting_answers(actors, make_pool, threads):
    pool = make_pool()
    answers = [threads.submit(pool.run, JOB) for _ in range(3)]
    assert wait_until(lambda: len(actors.calls) == 2)
    pool.close()
    for answer in answers:
        with pytest.raises(ScorerPoolError, match="closed"):
            answer.result()
    assert pool.closed
    assert actors.killed == actors.made
    assert wait_until(lambda: not [t for t in threading.enumerate() if t.name == "rg_env-scorer-actor"])


def test_without_ray_the_backend_is_refused_in_one_line():
    with pytest.raises(ConfigError, match=r"scorer.backend='ray': no Ray is running in this process; use processes"):
        Scorer(backend="ray")


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_node_costs_no_answer():
    done = run_command(sys.executable, "-m", "tests.scoring.workers.ray_nodes_run")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    seen = json.loads(line.removeprefix("RESULT"))
    assert seen["nodes"] == 2
    assert seen["answers left"] > 100
    assert seen["victim is out"]
    assert seen["not ok"] == []
    assert seen["wrong scores"] == 0
    assert seen["load"]["rg_dump/max_scoring_queue"] > 0
    assert seen["without nodes"].startswith("ScorerPoolError: no scorer actor has started")
