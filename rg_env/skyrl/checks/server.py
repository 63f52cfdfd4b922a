"""Checks that the vLLM servers in a configuration answer, have the model, and can load new weights.

Without this check, SkyRL retries a missing server for half a minute per request, and a server with another model fails
every rollout, both after the policy has been loaded.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol
from urllib.parse import urlsplit

from rg_env.errors import UnavailableError, one_line, refuse
from rg_env.skyrl.checks.settings import require

_SECONDS = 5.0
_ENGINE = "generator.inference_engine"
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


class _Refuse(Protocol):
    """Refuses one server."""

    def __call__(self, right: str) -> NoReturn: ...


def check_servers(cfg: Any) -> None:
    """Ask each server named in `generator.inference_engine`; does nothing if none is named.

    Raises:
        ConfigError: one line for the first server that cannot be used; UnavailableError if none answers.
    """
    engine = cfg.generator.inference_engine
    proxy = {engine.external_proxy_url: "external_proxy_url"} if engine.external_proxy_url else {}
    urls = dict.fromkeys(engine.external_server_urls or [], "external_server_urls") | proxy
    reloads = not cfg.trainer.fully_async.simulate_training and cfg.rg_dump.device == "cpu"
    for url, setting in urls.items():
        refuse_it: _Refuse = partial(refuse, f"{_ENGINE}.{setting}", url)
        _check_model(cfg, _models(url, f"{_ENGINE}.{setting}"), refuse_it)
        if reloads and urlsplit(url).hostname not in _LOCAL_HOSTS:
            refuse_it(f"new weights are passed in a file, so the server has to be at {_LOCAL_HOSTS[0]}")
        _check_routes(url, reloads, refuse_it)
    if urls and reloads:
        _check_cpu_policy(cfg)


def _models(url: str, setting: str) -> list[dict[str, Any]]:
    try:
        return [dict(model) for model in _get(url, "v1/models")["data"]]
    except (urllib.error.HTTPError, KeyError, TypeError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, ValueError) and "url type" in str(error):
            refuse(setting, url, "must be an address such as http://127.0.0.1:8000")
        refuse(setting, url, f"something answers there, but not a vLLM server ({_reason(error)})")
    except OSError as error:
        more = f"no server answers ({_reason(error)}); start one, for example with scripts/serve_vllm.sh"
        raise UnavailableError(f"{setting}={url!r}: {more}") from error


def _check_model(cfg: Any, models: list[dict[str, Any]], refuse_it: _Refuse) -> None:
    path = cfg.trainer.policy.model.path
    wanted = cfg.generator.inference_engine.served_model_name or path
    found = next((model for model in models if model.get("id") == wanted), None)
    if found is None:
        names = ", ".join(repr(model.get("id")) for model in models) or "nothing"
        refuse_it(
            f"the server has {names}, not {wanted!r}; start it with that model, or set {_ENGINE}.served_model_name "
            "to the name that it has there"
        )
    root = str(found.get("root") or "")
    configs = [Path(folder).expanduser() / "config.json" for folder in (root, path)]
    if all(one.is_file() for one in configs) and configs[0].read_bytes() != configs[1].read_bytes():
        refuse_it(f"what the server calls {wanted!r} is {root}, not trainer.policy.model.path={path}")
    room = found.get("max_model_len")
    needed = cfg.trainer.max_prompt_length + cfg.generator.sampling_params.max_generate_length
    if isinstance(room, int) and needed > room:
        refuse_it(
            f"the server has room for {room} tokens, but trainer.max_prompt_length and generator.sampling_params."
            f"max_generate_length add up to {needed}; start it with --max-model-len {needed}"
        )


def _check_routes(url: str, reloads: bool, refuse_it: _Refuse) -> None:
    """Without `reloads`, a server that does not list its routes, such as a router, is not refused."""
    try:
        routes = _get(url, "openapi.json").get("paths", {})
    except (OSError, ValueError) as error:
        if reloads:
            refuse_it(f"the server does not list its routes ({_reason(error)})")
        return
    if "/inference/v1/generate" not in routes:
        refuse_it("SkyRL samples from /inference/v1/generate, which the server lacks; start it with --enable-scale-out")
    if reloads and "/collective_rpc" not in routes:
        refuse_it("the server takes no new weights; start it with VLLM_SERVER_DEV_MODE=1")


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


def _get(url: str, route: str) -> Any:
    with urllib.request.urlopen(f"{url.rstrip('/')}/{route}", timeout=_SECONDS) as answer:
        return json.load(answer)


def _reason(error: BaseException) -> str:
    return one_line(getattr(error, "reason", None) or error)
