"""A toy policy on disk: a random Llama of two layers, letters as tokens, a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ALPHABET = "abcdefghij <>|"


def build_tokenizer() -> Any:
    """One token per character; `<eos>` ends a turn, `<user>` and `<assistant>` open one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<eos>", "<user>", "<assistant>", "<unk>"]
    # Tokens of several letters, so that a stop string can end inside of one.
    vocabulary = {token: number for number, token in enumerate([*special, *ALPHABET, "abc", "de"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>"],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return fast


def build_model(folder: Path, *, tied: bool = False, hidden: int = 32, layers: int = 2, **more: Any) -> Path:
    """Save a random Llama with its tokenizer, always the same one for the same arguments."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = build_tokenizer()
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        # Wider than usual: a random model should not be indifferent between its tokens.
        "initializer_range": 0.3,
        **more,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**settings))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
