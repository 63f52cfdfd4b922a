"""CPU versions of the two hooks of SkyRL's `BasePPOExp` that select where a run computes.

Datasets, generator and trainer come from the experiment that the mixin is combined with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.utils.utils import str_to_torch_dtype

from rg_env.cpu.client import CPUInferenceClient
from rg_env.cpu.sampler_actor import SamplerActor
from rg_env.cpu.settings import cpu_threads, uses_server

if TYPE_CHECKING:
    from rg_env.cpu.vllm_engine import ReloadingClient


class CPUMixin:
    """Mixin for `BasePPOExp`: `class Experiment(CPUMixin, MyExperiment)`."""

    cfg: Any
    tokenizer: Any

    def get_inference_client(self) -> CPUInferenceClient | ReloadingClient:
        """SkyRL's client of the vLLM servers in the configuration, or a client of a new sampler if there are none.

        The sampler loads its model in the background.
        """
        if uses_server(self.cfg.generator.inference_engine):
            from rg_env.cpu import vllm_engine

            return vllm_engine.connect(self.cfg, self.tokenizer)
        policy, generator = self.cfg.trainer.policy, self.cfg.generator
        actor = SamplerActor.remote(  # type: ignore[attr-defined]
            policy.model.path,
            self.cfg.trainer.seed,
            dict(policy.model_config_kwargs),
            cpu_threads(),
            str_to_torch_dtype(generator.inference_engine.model_dtype),
        )
        defaults = get_sampling_params_for_backend(generator.inference_engine.backend, generator.sampling_params)
        return CPUInferenceClient(actor, resolve_policy_model_name(self.cfg), defaults)

    def _setup_trainer(self) -> Any:
        """As in SkyRL, with the worker classes in `fsdp_worker` replaced by ours."""
        from rg_env.cpu import workers  # takes seconds

        with mock.patch.multiple(
            "skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker",
            PolicyWorker=workers.PolicyWorker,
            RefWorker=workers.RefWorker,
            CriticWorker=workers.CriticWorker,
        ):
            return super()._setup_trainer()  # type: ignore[misc]
