"""The machinery of a CPU run: a private Ray instance, and the two hooks of SkyRL's `BasePPOExp` that select workers.

Datasets, generator and trainer come from the experiment that the mixin is combined with.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import ray
from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.utils import initialize_ray
from skyrl.train.utils.utils import str_to_torch_dtype

from rg_env.base.processes import ray_folder
from rg_env.skyrl.cpu.client import CPUInferenceClient, ReloadingClient
from rg_env.skyrl.cpu.cpu_settings import SamplingParams, cpu_threads, uses_server
from rg_env.skyrl.cpu.sampler import SamplerActor
from rg_env.skyrl.own_workers import OwnWorkers

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_enable_metrics_collection": "0",
    "RAY_enable_worker_prestart": "0",  # workers started early lack the run's environment and stay unused
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "0",  # with Ray's default of 15, any other program on the machine starves the run
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise Ray warns about this change at each start
    "TOKENIZERS_PARALLELISM": "false",
}
"""Environment variables of Ray and its workers."""


@contextmanager
def cpu_ray(cfg: Any) -> Iterator[None]:
    """SkyRL's `initialize_ray(cfg)` for a CPU run, and its shutdown.

    It never joins another cluster. On exit, even after an error, Ray is stopped, its temporary folder is removed and
    `os.environ` is restored. SkyRL places each training worker on a GPU, so Ray gets one logical GPU per worker.
    """
    placement = cfg.trainer.placement
    workers = placement.policy_num_nodes + placement.ref_num_nodes + placement.critic_num_nodes
    folder = ray_folder()
    start = functools.partial(
        ray.init,
        address="local",
        num_cpus=workers + 8,  # logical, for the sampler, SkyRL's entry task and its registries
        num_gpus=workers,
        include_dashboard=False,
        _temp_dir=str(folder),
    )
    # By default OpenMP's threads spin while they wait: if another process uses a core, small operations take 5 to 10
    # times as long.
    wait_policy = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    with mock.patch.dict(os.environ, ENVIRONMENT | wait_policy):  # restores os.environ, including what SkyRL adds
        os.environ.pop("RAY_ADDRESS", None)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray counts its entries and would refuse logical GPUs
        try:
            with mock.patch.object(ray, "init", start):
                initialize_ray(cfg)
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


class CPUMixin(OwnWorkers):
    """Mixin for `BasePPOExp`: `class Experiment(CPUMixin, MyExperiment)`."""

    workers = "rg_env.skyrl.cpu.workers"
    cfg: Any
    tokenizer: Any

    def get_inference_client(self) -> CPUInferenceClient | ReloadingClient:
        """SkyRL's client of the vLLM servers in the configuration, or a client of a new sampler if there are none.

        The sampler loads its model in the background.
        """
        policy, generator = self.cfg.trainer.policy, self.cfg.generator
        engine, model_name = generator.inference_engine, resolve_policy_model_name(self.cfg)
        if uses_server(engine):  # as SkyRL's `build_new_inference_client`, which needs vllm_router
            return ReloadingClient(
                proxy_url=engine.external_proxy_url,
                server_urls=list(engine.external_server_urls or [engine.external_proxy_url]),
                data_parallel_size=engine.data_parallel_size,
                model_name=model_name,
                tokenizer=self.tokenizer,
            )
        defaults = get_sampling_params_for_backend(engine.backend, generator.sampling_params)
        for params in (defaults, get_sampling_params_for_backend(engine.backend, generator.eval_sampling_params)):
            SamplingParams.from_vllm(params)  # refuses what the sampler lacks, before anything is loaded
        actor = SamplerActor.remote(  # type: ignore[attr-defined]
            policy.model.path,
            self.cfg.trainer.seed,
            dict(policy.model_config_kwargs),
            cpu_threads(),
            str_to_torch_dtype(engine.model_dtype),
        )
        return CPUInferenceClient(actor, model_name, defaults)
