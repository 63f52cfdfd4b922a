"""Checks that model folders are complete, and that the tokenizer ends an answer as its chat template does.

Not covered: what is inside hub models, because nothing is downloaded here.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NoReturn

from rg_env.errors import UnavailableError, need, one_line, refuse
from rg_env.skyrl.checks.settings import value_of

NAMED_MODELS = ("nano", "smollm2")
"""Accepted as a model path: the small policy that comes with rg_env; SmolLM2-135M-Instruct from PyPI."""

_SETTINGS = tuple(f"trainer.{role}.model.path" for role in ("policy", "ref", "critic"))
_HUB_SECONDS = 5.0
_ANSWER = "An answer."
_LONGEST_REASON = 200


def check_model_paths(cfg: Any) -> None:
    """Refuse a model path that is neither a folder, a hub model nor a named model, and a run without a policy."""
    known = f"a hub model such as Qwen/Qwen2.5-1.5B-Instruct, {' or '.join(f'`{name}`' for name in NAMED_MODELS)}"
    need(cfg.trainer.policy.model.path, _SETTINGS[0], None, f"it is not set; name a model folder, {known}")
    for setting in _SETTINGS:
        path = value_of(cfg, setting)
        if path and path not in NAMED_MODELS and not Path(path).expanduser().is_dir():
            is_name = not Path(path).expanduser().exists() and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)
            need(is_name, setting, path, f"there is no such folder; name an existing one, {known}")


def check_models(cfg: Any) -> None:
    """Check the model folders of policy, reference and critic, and the policy's tokenizer. Raises ConfigError."""
    for setting in _SETTINGS:
        path = value_of(cfg, setting)
        if path and Path(path).expanduser().is_dir():
            folder = ModelFolder(Path(path).expanduser(), setting)
            folder.check_weights()
            if setting == _SETTINGS[0]:
                folder.check_tokenizer(cfg.generator.chat_template.name_or_path)


def check_hub_models(cfg: Any) -> None:
    """Check that hub models can be loaded: they are in the cache, or the hub has them. A cluster finds out by itself.

    Raises:
        ConfigError: the hub has no such model. UnavailableError: it is not in the cache, and the hub does not answer.
    """
    import huggingface_hub
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    paths = {value_of(cfg, setting): setting for setting in reversed(_SETTINGS)}
    for path, setting in paths.items() if not os.environ.get("RAY_ADDRESS") else ():
        if not path or Path(path).expanduser().is_dir():
            continue
        if isinstance(huggingface_hub.try_to_load_from_cache(path, "config.json"), str):
            continue
        try:
            huggingface_hub.model_info(path, timeout=_HUB_SECONDS)
        except RepositoryNotFoundError:
            refuse(setting, path, "the hub has no such model, or it is private and you are not logged in")
        except Exception as error:  # the errors of its HTTP client differ between versions
            offline = isinstance(error, OfflineModeIsEnabled)
            why = "HF_HUB_OFFLINE is set" if offline else f"the hub does not answer: {one_line(error, _LONGEST_REASON)}"
            raise UnavailableError(
                f"{setting}={path!r}: the model is not in the cache, and {why}; download it with `hf download {path}`, "
                "or name a folder"
            ) from None


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
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.path, trust_remote_code=True)
        except Exception as error:  # a broken file can raise anything
            reason = one_line(error, _LONGEST_REASON)
            self.refuse(f"its tokenizer cannot be loaded ({reason}); copy tokenizer.json and tokenizer_config.json")
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
        found = (self.path / "generation_config.json").is_file() and self._read_json("generation_config.json")
        ids = found.get("eos_token_id") if found else None
        ids = [number for number in (ids if isinstance(ids, list) else [ids]) if isinstance(number, int)]
        if not after.startswith((tokenizer.eos_token, *tokenizer.convert_ids_to_tokens(ids))):
            used = next((token for token in tokenizer.all_special_tokens if after.startswith(token)), after.split()[0])
            self.refuse(
                f"the chat template ends an answer with {used!r}, but the tokenizer's eos is {tokenizer.eos_token!r}, "
                f"so generation would not stop; set eos_token to {used!r} in tokenizer_config.json"
            )

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
