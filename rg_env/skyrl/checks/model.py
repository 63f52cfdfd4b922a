"""A local model folder that is whole, and whose tokenizer ends an answer where its chat template does.

A hub model is left to the hub: nothing is downloaded here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rg_env.errors import ConfigError

_ANSWER = "An answer."


_Refuse = Callable[[str], ConfigError]


def check_model_folder(path: str | None, setting: str) -> None:
    """Refuse a folder without a whole model in it.

    Args:
        path: what `setting` says; anything but an existing folder passes.

    Raises:
        ConfigError: naming the file.
    """
    folder, refuse = Path(path or "").expanduser(), _refusal(path, setting)
    if not path or not folder.is_dir():
        return
    config = _read_json(folder / "config.json", refuse)
    if "model_type" not in config:
        raise refuse("config.json names no model_type, so it is no transformers model")
    _check_weights(folder, refuse)


def check_tokenizer(path: str, setting: str, chat_template: Any) -> None:
    """Refuse a folder whose tokenizer cannot write a prompt, or ends an answer elsewhere than its template does.

    Args:
        path: what `setting` says; anything but an existing folder passes.
        chat_template: SkyRL's `generator.chat_template`; one named there stands in for the tokenizer's.

    Raises:
        ConfigError: naming the token.
    """
    folder, refuse = Path(path).expanduser(), _refusal(path, setting)
    if not folder.is_dir():
        return
    tokenizer = _load_tokenizer(folder, refuse)
    if tokenizer.eos_token is None:
        raise refuse(
            "the tokenizer has no eos token, so no answer would ever end; set eos_token in tokenizer_config.json"
        )
    if chat_template.name_or_path:
        return
    if not tokenizer.chat_template:
        raise refuse(
            "the tokenizer has no chat template; take the model's instruct version, add chat_template.jinja to the "
            "folder, or set generator.chat_template.name_or_path"
        )
    _check_end(folder, tokenizer, refuse)


def _refusal(path: str | None, setting: str) -> _Refuse:
    return lambda what: ConfigError(f"{setting}={path!r}: {what}")


def _check_weights(folder: Path, refuse: _Refuse) -> None:
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        if (folder / index).is_file():
            shards = sorted(set(_read_json(folder / index, refuse).get("weight_map", {}).values()))
            missing = [shard for shard in shards if not (folder / shard).is_file()]
            if missing:
                raise refuse(f"{len(missing)} of {len(shards)} weight files are missing, {missing[0]} first")
            return
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        more = "; a GGUF file has to be converted first" if any(folder.glob("*.gguf")) else ""
        raise refuse(f"the folder has no weights (model.safetensors){more}")


def _load_tokenizer(folder: Path, refuse: _Refuse) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    except Exception as error:  # whatever a broken file makes the tokenizer raise
        raise refuse(
            f"its tokenizer cannot be loaded ({_one_line(error)}); copy tokenizer.json and tokenizer_config.json"
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _check_end(folder: Path, tokenizer: Any, refuse: _Refuse) -> None:
    """The token that the template puts after an answer has to be one that ends generation."""
    talk = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": _ANSWER}]
    try:
        text = str(tokenizer.apply_chat_template(talk, tokenize=False))
    except Exception as error:  # templates raise what they like
        raise refuse(f"its chat template fails on a plain chat ({_one_line(error)})") from error
    before, _, after = text.rpartition(_ANSWER)
    after = after.strip()
    if not before or not after:
        return  # the template rewrites answers, or ends them with nothing: there is nothing to compare with
    ends = {tokenizer.eos_token, *_generation_ends(folder, tokenizer, refuse)}
    if not any(after.startswith(end) for end in ends):
        used = next((token for token in tokenizer.all_special_tokens if after.startswith(token)), after.split()[0])
        raise refuse(
            f"the chat template ends an answer with {used!r}, but the tokenizer's eos is {tokenizer.eos_token!r}, so "
            f"generation would run on; set eos_token to {used!r} in tokenizer_config.json"
        )


def _generation_ends(folder: Path, tokenizer: Any, refuse: _Refuse) -> list[str]:
    path = folder / "generation_config.json"
    if not path.is_file():
        return []
    ids = _read_json(path, refuse).get("eos_token_id")
    ids = ids if isinstance(ids, list) else [ids]
    return [tokenizer.convert_ids_to_tokens(number) for number in ids if isinstance(number, int)]


def _read_json(path: Path, refuse: _Refuse) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse(f"{path.name} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise refuse(f"{path.name} is no JSON ({error})") from error
    if not isinstance(content, dict):
        raise refuse(f"{path.name} is no JSON object")
    return content
