"""Checks that model folders are complete, and that the tokenizer ends an answer as its chat template does.

Not covered: what is inside hub models, because nothing is downloaded here.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from rg_env.errors import UnavailableError, need, one_line, refuse
from rg_env.skyrl.checks.settings import value_of

NAMED_MODELS = ("nano", "smollm2")
"""Accepted as a model path: the small policy that comes with rg_env; SmolLM2-135M-Instruct from PyPI."""

_ROLES = ("policy", "ref", "critic")
_HUB_SECONDS = 5.0
_ANSWER = "An answer."
_LONGEST_REASON = 200


def check_model_paths(cfg: Any) -> None:
    """Refuse a model path that is neither a folder, a hub model nor a named model.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass.

    Raises:
        ConfigError: no policy is named, or a folder does not exist.
    """
    for role in _ROLES:
        setting = f"trainer.{role}.model.path"
        path = value_of(cfg, setting)
        if path or role == "policy":
            _check_path(setting, path)


def check_models(cfg: Any) -> None:
    """Check the model folders of policy, reference and critic.

    Raises:
        ConfigError: a folder lacks a file, or the policy's tokenizer cannot write a prompt or ends an answer
            differently from its template.
    """
    for role in _ROLES:
        setting = f"trainer.{role}.model.path"
        path = value_of(cfg, setting)
        if path and Path(path).expanduser().is_dir():
            folder = ModelFolder(Path(path).expanduser(), setting)
            folder.check_weights()
            if role == "policy":
                folder.check_tokenizer(cfg.generator.chat_template.name_or_path)


def check_hub_models(cfg: Any) -> None:
    """Check that hub models can be loaded: they are in the cache, or the hub has them. A cluster finds out by itself.

    Raises:
        ConfigError: the hub has no such model. UnavailableError: it is not in the cache, and the hub does not answer.
    """
    if os.environ.get("RAY_ADDRESS"):
        return
    settings = [f"trainer.{role}.model.path" for role in reversed(_ROLES)]
    for path, setting in {value_of(cfg, setting): setting for setting in settings}.items():
        if path and not Path(path).expanduser().is_dir():
            _check_hub_model(setting, path)


def _check_hub_model(setting: str, path: str) -> None:
    import huggingface_hub
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    if isinstance(huggingface_hub.try_to_load_from_cache(path, "config.json"), str):
        return
    try:
        huggingface_hub.model_info(path, timeout=_HUB_SECONDS)
    except RepositoryNotFoundError:
        refuse(setting, path, "the hub has no such model, or it is private and you are not logged in")
    except OfflineModeIsEnabled:
        reason = "HF_HUB_OFFLINE is set"
    except Exception as error:  # the errors of its HTTP client, which differs between versions
        reason = f"the hub does not answer: {one_line(error, _LONGEST_REASON)}"
    else:
        return
    raise UnavailableError(
        f"{setting}={path!r}: the model is not in the cache, and {reason}; download it with `hf download {path}`, or "
        "name a folder"
    )


def _check_path(setting: str, path: str | None) -> None:
    known = f"a hub model such as Qwen/Qwen2.5-1.5B-Instruct, {' or '.join(f'`{name}`' for name in NAMED_MODELS)}"
    if not path:
        refuse(setting, path, f"it is not set; name a model folder, {known}")
    if path in NAMED_MODELS:
        return
    folder = Path(path).expanduser()
    ok = folder.is_dir() or (not folder.exists() and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path))
    need(ok, setting, path, f"there is no such folder; name an existing one, {known}")


class ModelFolder:
    """A folder that `setting` names. The checks raise ConfigError."""

    def __init__(self, path: Path, setting: str) -> None:
        self.path = path
        self.setting = setting

    def refuse(self, what: str) -> NoReturn:
        refuse(self.setting, str(self.path), what)

    def check_weights(self) -> None:
        """Refuse a folder without a complete model."""
        if "model_type" not in self._read_json("config.json"):
            self.refuse("config.json has no model_type, so this is not a transformers model")
        for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
            if (self.path / index).is_file():
                shards = sorted(set(self._read_json(index).get("weight_map", {}).values()))
                if missing := [shard for shard in shards if not (self.path / shard).is_file()]:
                    self.refuse(f"{len(missing)} of {len(shards)} weight files are missing, {missing[0]} first")
                return
        if not any(self.path.glob("*.safetensors")) and not any(self.path.glob("*.bin")):
            more = "; a GGUF file has to be converted first" if any(self.path.glob("*.gguf")) else ""
            self.refuse(f"the folder has no weights (model.safetensors){more}")

    def check_tokenizer(self, other_template: str | None = None) -> None:
        """Refuse a tokenizer that cannot write a prompt, or ends an answer differently from its chat template.

        Args:
            other_template: the template that replaces the tokenizer's, as SkyRL's `generator.chat_template` names it.
        """
        with suppress(Exception):  # whatever it is, the tokenizer's own class decides
            self._check_tokenizer(self._plain_tokenizer(), other_template)
            return
        self._check_tokenizer(self._load_tokenizer(), other_template)

    def _check_tokenizer(self, tokenizer: Any, other_template: str | None) -> None:
        if tokenizer.eos_token is None:
            self.refuse(
                "the tokenizer has no eos token, so no answer would ever end; set eos_token in tokenizer_config.json"
            )
        if other_template:
            return
        if not tokenizer.chat_template:
            self.refuse(
                "the tokenizer has no chat template; use the model's instruct version, add chat_template.jinja to the "
                "folder, or set generator.chat_template.name_or_path"
            )
        self._check_end(tokenizer)

    def _plain_tokenizer(self) -> Any:
        """The tokenizer without the defaults of its class, which takes a second less to import."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(self.path)

    def _load_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self.path, trust_remote_code=True)
        except Exception as error:  # a broken file can raise anything
            reason = one_line(error, _LONGEST_REASON)
            self.refuse(f"its tokenizer cannot be loaded ({reason}); copy tokenizer.json and tokenizer_config.json")

    def _check_end(self, tokenizer: Any) -> None:
        """The token that the template puts after an answer must be one that ends generation."""
        talk = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": _ANSWER}]
        try:
            text = str(tokenizer.apply_chat_template(talk, tokenize=False))
        except Exception as error:  # templates can raise anything
            self.refuse(f"its chat template fails on a plain chat ({one_line(error, _LONGEST_REASON)})")
        before, _, after = text.rpartition(_ANSWER)
        after = after.strip()
        if not before or not after:
            return  # the template rewrites answers or ends them with nothing: there is nothing to compare
        ends = {tokenizer.eos_token, *self._generation_ends(tokenizer)}
        if not any(after.startswith(end) for end in ends):
            used = next((token for token in tokenizer.all_special_tokens if after.startswith(token)), after.split()[0])
            self.refuse(
                f"the chat template ends an answer with {used!r}, but the tokenizer's eos is {tokenizer.eos_token!r}, "
                f"so generation would not stop; set eos_token to {used!r} in tokenizer_config.json"
            )

    def _generation_ends(self, tokenizer: Any) -> list[str]:
        if not (self.path / "generation_config.json").is_file():
            return []
        ids = self._read_json("generation_config.json").get("eos_token_id")
        ids = ids if isinstance(ids, list) else [ids]
        return [tokenizer.convert_ids_to_tokens(number) for number in ids if isinstance(number, int)]

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except OSError as error:
            self.refuse(f"{name} cannot be read ({error.strerror})")
        except ValueError as error:
            self.refuse(f"{name} is not JSON ({error})")
        if not isinstance(content, dict):
            self.refuse(f"{name} is not a JSON object")
        return content
