"""Checks that the vLLM servers in a configuration answer, have the model, and can load new weights.

Without this check, SkyRL retries a missing server for half a minute per request, and a server with another model fails
every rollout, both after the policy has been loaded.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from rg_env.errors import UnavailableError, one_line, refuse
from rg_env.skyrl.checks.settings import require

_SECONDS = 5.0
_ENGINE = "generator.inference_engine"
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
_GENERATE = "/inference/v1/generate"
_RELOAD = "/collective_rpc"


def check_servers(cfg: Any) -> None:
    """Ask each server named in `generator.inference_engine`; does nothing if none is named.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass.

    Raises:
        ConfigError: one line for the first server that cannot be used; UnavailableError if none answers.
    """
    engine = cfg.generator.inference_engine
    proxy = {engine.external_proxy_url: "external_proxy_url"} if engine.external_proxy_url else {}
    urls = dict.fromkeys(engine.external_server_urls or [], "external_server_urls") | proxy
    reloads = not cfg.trainer.fully_async.simulate_training and cfg.rg_dump.device == "cpu"
    for url, setting in urls.items():
        server = _Server(url, f"{_ENGINE}.{setting}")
        server.check_model(cfg)
        server.check_routes(reloads=reloads)
    if urls and reloads:
        _check_cpu_policy(cfg)


class _Server:
    def __init__(self, url: str, setting: str) -> None:
        self.url = url
        self.setting = setting

    def refuse(self, what: str) -> NoReturn:
        refuse(self.setting, self.url, what)

    def check_model(self, cfg: Any) -> None:
        models, path = self._models(), cfg.trainer.policy.model.path
        wanted = cfg.generator.inference_engine.served_model_name or path
        found = next((model for model in models if model.get("id") == wanted), None)
        if found is None:
            names = ", ".join(repr(model.get("id")) for model in models) or "nothing"
            self.refuse(
                f"the server has {names}, not {wanted!r}; start it with that model, or set {_ENGINE}.served_model_name "
                "to the name that it has there"
            )
        root = str(found.get("root") or "")
        if _different_models(root, path):
            self.refuse(f"what the server calls {wanted!r} is {root}, not trainer.policy.model.path={path}")
        room = found.get("max_model_len")
        needed = cfg.trainer.max_prompt_length + cfg.generator.sampling_params.max_generate_length
        if isinstance(room, int) and needed > room:
            self.refuse(
                f"the server has room for {room} tokens, but trainer.max_prompt_length and "
                f"generator.sampling_params.max_generate_length add up to {needed}; "
                f"start it with --max-model-len {needed}"
            )

    def check_routes(self, *, reloads: bool) -> None:
        """Check that SkyRL can sample from it and, with `reloads`, that it loads new weights.

        Without `reloads`, a server that does not list its routes, such as a router, is not refused.
        """
        if reloads and urlsplit(self.url).hostname not in _LOCAL_HOSTS:
            self.refuse(f"new weights are passed in a file, so the server has to be at {_LOCAL_HOSTS[0]}")
        try:
            routes = self._get("openapi.json").get("paths", {})
        except (OSError, ValueError) as error:
            if not reloads:
                return
            self.refuse(f"the server does not list its routes ({_reason(error)})")
        if _GENERATE not in routes:
            self.refuse(f"SkyRL samples from {_GENERATE}, which the server lacks; start it with --enable-scale-out")
        if reloads and _RELOAD not in routes:
            self.refuse("the server takes no new weights; start it with VLLM_SERVER_DEV_MODE=1")

    def _models(self) -> list[dict[str, Any]]:
        try:
            return [dict(model) for model in self._get("v1/models")["data"]]
        except (urllib.error.HTTPError, KeyError, TypeError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, ValueError) and "url type" in str(error):
                self.refuse("must be an address such as http://127.0.0.1:8000")
            self.refuse(f"something answers there, but not a vLLM server ({_reason(error)})")
        except OSError as error:
            raise UnavailableError(
                f"{self.setting}={self.url!r}: no server answers ({_reason(error)}); start one, for example with "
                "scripts/serve_vllm.sh"
            ) from error

    def _get(self, route: str) -> Any:
        with urllib.request.urlopen(f"{self.url.rstrip('/')}/{route}", timeout=_SECONDS) as answer:
            return json.load(answer)


def _different_models(root: str, path: str) -> bool:
    """Whether two folders hold models of different shape. A copy of a folder is the same model."""
    configs = [Path(folder).expanduser() / "config.json" for folder in (root, path)]
    if not all(config.is_file() for config in configs):
        return False
    return configs[0].read_bytes() != configs[1].read_bytes()


def _check_cpu_policy(cfg: Any) -> None:
    """Refuse what vLLM on a CPU silently gets wrong."""
    from transformers import AutoConfig

    model = cfg.trainer.policy
    config = AutoConfig.from_pretrained(model.model.path, **model.model_config_kwargs).get_text_config()
    require(
        cfg,
        "trainer.policy.model.path",
        not config.tie_word_embeddings,
        "its input and output embeddings are tied, and vLLM on a CPU keeps the old output embeddings when it reloads "
        f"weights; remove {_ENGINE}.external_proxy_url and external_server_urls to generate with the sampler of rg_env",
    )
    require(
        cfg,
        "generator.sampling_params.temperature",
        cfg.generator.sampling_params.temperature == 1.0,
        "vLLM returns the logprobs of temperature 1 at any sampling temperature, and the trainer's would not match; "
        "set it to 1.0",
    )


def _reason(error: BaseException) -> str:
    return one_line(getattr(error, "reason", None) or error)
