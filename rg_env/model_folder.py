"""What is checked about a local model folder before anything starts: that it is whole, and that it can hold a chat.

Each fault is one `ConfigError` that names the folder, what is wrong with it and how to mend it. Nothing is loaded but
the tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rg_env.errors import ConfigError

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_ANSWER = "ANSWER"


def check_model_folder(folder: Path, setting: str) -> None:
    """Refuse a folder that a run would stumble over later.

    Args:
        setting: what named the folder, as the message should begin.

    Raises:
        ConfigError: for a missing file, a tokenizer without a chat template, or an end token that ends no turn.
    """

    def need(ok: bool, wrong: str) -> None:
        if not ok:
            raise ConfigError(f"{setting}: {wrong}")

    need((folder / "config.json").is_file(), "the folder has no config.json, so it holds no model")
    _read_json(folder / "config.json", setting)
    missing = _missing_weights(folder, setting)
    need(not missing, f"the folder lacks {missing}; copy the model again, weights included")
    need(
        any((folder / name).is_file() for name in _TOKENIZERS),
        f"the folder has no tokenizer ({', '.join(_TOKENIZERS)}); save the model's tokenizer into it",
    )
    tokenizer = _tokenizer(folder, setting)
    need(
        bool(tokenizer.chat_template),
        "its tokenizer has no chat template; use an instruct model, or save one as chat_template.jinja in the folder",
    )
    ends, tail = _end_tokens(folder, tokenizer, setting), _end_of_turn(tokenizer, setting)
    need(
        any(end in tail for end in ends),
        f"its chat template ends a turn with {tail.strip()!r}, but the model's end token is "
        f"{' or '.join(ends) or 'not set'}, so no response would end; set eos_token in tokenizer_config.json",
    )


def _missing_weights(folder: Path, setting: str) -> str:
    """The first weight file that is not there, or an empty text."""
    for name in _WEIGHTS:
        index = folder / f"{name}.index.json"
        if index.is_file():
            parts = _read_json(index, setting).get("weight_map", {})
            return next((part for part in sorted(set(parts.values())) if not (folder / part).is_file()), "")
    return "" if any((folder / name).is_file() for name in _WEIGHTS) else " and ".join(_WEIGHTS)


def _read_json(file: Path, setting: str) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{setting}: {file.name} cannot be read ({error}); copy the model again") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{setting}: {file.name} holds no settings; copy the model again")
    return content


def _tokenizer(folder: Path, setting: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    except Exception as error:  # transformers raises whatever its parsers do
        raise ConfigError(f"{setting}: its tokenizer cannot be loaded ({_first_line(error)})") from error


def _end_tokens(folder: Path, tokenizer: Any, setting: str) -> list[str]:
    """The texts of all tokens that end a response: the tokenizer's, and those of generation_config.json."""
    file = folder / "generation_config.json"
    ids = _read_json(file, setting).get("eos_token_id") if file.is_file() else None
    ids = ids if isinstance(ids, list) else [ids]
    tokens = [tokenizer.eos_token, *(tokenizer.convert_ids_to_tokens(i) for i in ids if isinstance(i, int))]
    return list(dict.fromkeys(token for token in tokens if token))


def _end_of_turn(tokenizer: Any, setting: str) -> str:
    """What the chat template writes behind an answer."""
    messages = [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": _ANSWER}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception as error:  # templates raise what they like
        raise ConfigError(f"{setting}: its chat template fails on a plain chat ({_first_line(error)})") from error
    return str(text).rpartition(_ANSWER)[2]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
