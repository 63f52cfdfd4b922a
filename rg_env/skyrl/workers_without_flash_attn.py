"""SkyRL's FSDP workers, unchanged, for GPUs where flash-attn is not installed.

Ray imports the module of an actor's class in each of its processes: this one, which imports that of SkyRL with a stub.
"""

from __future__ import annotations

import ray

from rg_env.skyrl.own_workers import flash_attn_stub

with flash_attn_stub():
    from skyrl.backends.skyrl_train.workers.fsdp import fsdp_worker


class Policy(fsdp_worker.FSDPPolicyWorkerBase):
    pass


class Critic(fsdp_worker.FSDPCriticWorkerBase):
    pass


class Reference(fsdp_worker.FSDPRefWorkerBase):
    pass


PolicyWorker = ray.remote(num_gpus=1)(Policy)
CriticWorker = ray.remote(num_gpus=1)(Critic)
RefWorker = ray.remote(num_gpus=1)(Reference)
