"""Scores answers on two Ray nodes of this machine, kills one while it has answers, then the other.

Prints what happened. Started by `test_ray_pool.py` in a process of its own, because Ray is one per process.
"""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import ray
import reasoning_gym
from ray.cluster_utils import Cluster

from rg_env.errors import ScorerPoolError
from rg_env.scoring import Scorer
from rg_env.scoring.workers import ray_pool

ANSWERS = 1000
DATASET = reasoning_gym.create_dataset("chain_sum", seed=1, size=50)


def until(condition):
    end = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def node_and_pid(_):
    return ray.get_runtime_context().get_node_id(), os.getpid()


def main():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = {node.node_id: node for node in (cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1))}
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    scorer = Scorer(workers=1, backend="ray", timeout=60)
    pool = scorer._pool
    until(lambda: len(pool._ready) == 2)
    places = {member: ray.get(member.handle.__ray_call__.remote(node_and_pid)) for member in pool._ready}
    seen = {"nodes": len({node for node, _ in places.values()})}

    def score(number):
        entry = DATASET[number % len(DATASET)]
        return scorer.score(entry, entry["answer"] if number % 2 else "wrong")

    def kill(member):
        node, pid = places[member]
        cluster.remove_node(nodes[node], allow_graceful=False)
        os.kill(pid, signal.SIGKILL)

    victim, other = places
    with ThreadPoolExecutor(16) as threads:
        results = [threads.submit(score, number) for number in range(ANSWERS)]
        until(lambda: sum(result.done() for result in results) > 50)
        os.kill(places[victim][1], signal.SIGSTOP)  # it keeps the answers that it has
        until(lambda: victim.answers == 2)
        seen["answers left"] = sum(not result.done() for result in results)
        kill(victim)
        scores = [result.result() for result in results]
    seen["not ok"] = [str(score) for score in scores if score.status != "ok"]
    seen["wrong scores"] = sum(score.score != number % 2 for number, score in enumerate(scores))
    seen["victim is out"] = victim not in pool._ready and victim.answers == 0
    seen["load"] = scorer.take_load()

    ray_pool._START_SECONDS = 2.0
    kill(other)
    try:
        seen["without nodes"] = str(score(1))
    except ScorerPoolError as error:
        seen["without nodes"] = f"ScorerPoolError: {error}"
    scorer.close()
    print("RESULT", json.dumps(seen), flush=True)
    ray.shutdown()
    cluster.shutdown()


main()
