"""A random language model with one layer, and its tokenizer of 26 words: for scripts that need some model."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = {word: number for number, word in enumerate(["<pad>", "<eos>", *(chr(97 + letter) for letter in range(26))])}
plain = Tokenizer(models.WordLevel(words, unk_token="a"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="a")
shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), pad_token_id=0, eos_token_id=1, **shape))
