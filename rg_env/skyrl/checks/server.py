"""The vLLM servers that a configuration names: they answer, they have the model, and they can take new weights.

Without this, SkyRL retries a server that is not there for half a minute per request, and a server with another model
fails every rollout, both after the policy has been loaded.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rg_env.errors import ConfigError

_SECONDS = 5.0
_ENGINE = "generator.inference_engine"
_HERE = ("127.0.0.1", "localhost", "::1")
_RELOAD = "/collective_rpc"


def check_servers(cfg: Any, *, training: bool = True) -> None:
    """Ask each server named in `generator.inference_engine`; does nothing where none is named.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass.
        training: whether the servers have to take new weights.

    Raises:
        ConfigError: one line for the first server that will not do.
    """
    engine = cfg.generator.inference_engine
    proxy = {engine.external_proxy_url: "external_proxy_url"} if engine.external_proxy_url else {}
    servers = dict.fromkeys(engine.external_server_urls or [], "external_server_urls")
    simulated = cfg.trainer.fully_async.simulate_training
    for url, setting in (servers | proxy).items():
        where = f"{_ENGINE}.{setting}={url}"
        _check_model(cfg, where, _get_models(url, where))
        if training and not simulated and cfg.rg_dump.device == "cpu":
            _check_reload(url, where)
    if (proxy or servers) and training and not simulated and cfg.rg_dump.device == "cpu":
        _check_cpu_policy(cfg)


def _get_models(url: str, where: str) -> list[dict[str, Any]]:
    try:
        models = _get(f"{url.rstrip('/')}/v1/models")["data"]
        return [dict(model) for model in models]
    except (urllib.error.HTTPError, KeyError, TypeError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, ValueError) and "url type" in str(error):
            raise ConfigError(f"{where}: must be an address such as http://127.0.0.1:8000") from error
        raise ConfigError(f"{where}: something answers there, but no vLLM server ({_reason(error)})") from error
    except OSError as error:
        raise ConfigError(
            f"{where}: no server answers ({_reason(error)}); start one, such as by scripts/serve_vllm.sh"
        ) from error


def _check_model(cfg: Any, where: str, models: list[dict[str, Any]]) -> None:
    engine, path = cfg.generator.inference_engine, cfg.trainer.policy.model.path
    wanted = engine.served_model_name or path
    found = next((model for model in models if model.get("id") == wanted), None)
    if found is None:
        names = ", ".join(repr(model.get("id")) for model in models) or "nothing"
        raise ConfigError(
            f"{where}: the server has {names}, not {wanted!r}; start it with that model, or set "
            f"{_ENGINE}.served_model_name to the name that it has there"
        )
    root = str(found.get("root") or "")
    if _different_models(root, path):
        raise ConfigError(f"{where}: what the server calls {wanted!r} is {root}, not trainer.policy.model.path={path}")
    room, generator = found.get("max_model_len"), cfg.generator
    need = cfg.trainer.max_prompt_length + generator.sampling_params.max_generate_length
    if isinstance(room, int) and need > room:
        raise ConfigError(
            f"{where}: the server has room for {room} tokens, but trainer.max_prompt_length and "
            f"generator.sampling_params.max_generate_length add up to {need}; start it with --max-model-len {need}"
        )


def _different_models(root: str, path: str) -> bool:
    """Whether two folders hold models of different shape. A copy of a folder is the same model."""
    configs = [Path(folder).expanduser() / "config.json" for folder in (root, path)]
    if not all(config.is_file() for config in configs):
        return False
    return configs[0].read_bytes() != configs[1].read_bytes()


def _check_reload(url: str, where: str) -> None:
    if urlsplit(url).hostname not in _HERE:
        raise ConfigError(f"{where}: new weights go through a file, so the server has to be at {_HERE[0]}")
    try:
        routes = _get(f"{url.rstrip('/')}/openapi.json").get("paths", {})
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: the server does not say what it can do ({_reason(error)})") from error
    if _RELOAD not in routes:
        raise ConfigError(f"{where}: the server takes no new weights; start it with VLLM_SERVER_DEV_MODE=1")


def _check_cpu_policy(cfg: Any) -> None:
    """What vLLM on a CPU would silently get wrong."""
    from transformers import AutoConfig

    path = cfg.trainer.policy.model.path
    config = AutoConfig.from_pretrained(path, **cfg.trainer.policy.model_config_kwargs).get_text_config()
    if config.tie_word_embeddings:
        raise ConfigError(
            f"trainer.policy.model.path={path!r}: its input and output embeddings are tied, and vLLM on a CPU keeps "
            f"the old output embeddings when it reloads weights; leave out {_ENGINE}.external_proxy_url and "
            "external_server_urls, so that the sampler of rg_env generates"
        )
    temperature = cfg.generator.sampling_params.temperature
    if temperature != 1.0:
        raise ConfigError(
            f"generator.sampling_params.temperature={temperature}: vLLM gives the logprobs of temperature 1 whatever "
            "it samples with, and the trainer's would not match; set it to 1.0"
        )


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
        return json.load(answer)


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None) or error
    return " ".join(str(inner).split()) or type(error).__name__
