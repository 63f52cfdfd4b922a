"""Checks that model folders are complete, and that the tokenizer ends an answer as its chat template does.

Of a hub model only config.json is loaded, and no code; not covered: what else is in it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rg_env.errors import UnavailableError, need, one_line, refuse
from rg_env.skyrl.checks.settings import value_of

NANO = "nano"
"""Accepted as a model path: the small policy that comes with rg_env."""

_SETTINGS = tuple(f"trainer.{role}.model.path" for role in ("policy", "ref", "critic"))
_ANSWER = "An answer."
_LONGEST_REASON = 200


def check_model_paths(cfg: Any) -> None:
    """Refuse a model path that is neither a folder, a hub model nor a named model, and a run without a policy."""
    known = f"a hub model such as Qwen/Qwen2.5-1.5B-Instruct, or `{NANO}`"
    need(cfg.trainer.policy.model.path, _SETTINGS[0], None, f"it is not set; name a model folder, {known}")
    for setting in _SETTINGS:
        path = value_of(cfg, setting)
        if path and path != NANO and not Path(path).expanduser().is_dir():
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
    """Raises UnavailableError if the configuration of a hub model cannot be loaded. A cluster finds out by itself."""
    from transformers import PretrainedConfig

    paths = {value_of(cfg, setting): setting for setting in reversed(_SETTINGS)}
    for path, setting in paths.items() if not os.environ.get("RAY_ADDRESS") else ():
        if path and not Path(path).expanduser().is_dir():
            try:
                PretrainedConfig.get_config_dict(path)
            except Exception as error:  # the errors of its HTTP client differ between versions
                why = one_line(error, _LONGEST_REASON)
                raise UnavailableError(
                    f"{setting}={path!r}: download it with `hf download {path}`, or name a folder ({why})"
                ) from None


@dataclass
class ModelFolder:
    """A folder that `setting` names. The checks raise ConfigError."""

    path: Path
    setting: str

    def refuse(self, what: str) -> NoReturn:
        refuse(self.setting, str(self.path), what)

    def check_weights(self) -> None:
        """Refuse a folder without a complete model."""
        from transformers import PretrainedConfig

        try:
            config, _ = PretrainedConfig.get_config_dict(self.path)
        except Exception as error:  # a broken file can raise anything
            self.refuse(f"its config.json cannot be loaded ({one_line(error, _LONGEST_REASON)})")
        if "model_type" not in config:
            self.refuse("config.json has no model_type, so this is not a transformers model")
        found = {path.name for path in self.path.iterdir()}
        for index in found & {"model.safetensors.index.json", "pytorch_model.bin.index.json"}:
            shards = set(json.loads((self.path / index).read_text())["weight_map"].values())
            if missing := sorted(shards - found):
                self.refuse(f"{len(missing)} of {len(shards)} weight files are missing, {missing[0]} first")
        if not any(name.endswith((".safetensors", ".bin")) for name in found):
            more = "; a GGUF file has to be converted first" if any(name.endswith(".gguf") for name in found) else ""
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
        ids = _generation_ends(self.path)
        if not after.startswith((tokenizer.eos_token, *tokenizer.convert_ids_to_tokens(ids))):
            used = next((token for token in tokenizer.all_special_tokens if after.startswith(token)), after.split()[0])
            self.refuse(
                f"the chat template ends an answer with {used!r}, but the tokenizer's eos is {tokenizer.eos_token!r}, "
                f"so generation would not stop; set eos_token to {used!r} in tokenizer_config.json"
            )


def _generation_ends(folder: Path) -> list[int]:
    """The end tokens that only `generation_config.json` knows."""
    from transformers import GenerationConfig

    try:
        found = GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:  # there is none
        return []
    return [number for number in (found if isinstance(found, list) else [found]) if number is not None]
