"""Trains `nano`, the small policy in `rg_env/skyrl/cpu/nano`, in a few minutes on two CPU cores.

Supervised training from random weights on worked solutions of train-split items, half of them without intermediate
steps. Training stops while the policy still makes mistakes, so that reinforcement learning can
improve it. Invariant: nano never sees an eval-split question.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from reasoning_gym.arithmetic.leg_counting import ANIMALS
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from rg_env import ReasoningGymDataset, Scorer
from rg_env.rows.dataset import Rows
from rg_env.rows.eval_set import EvalSet
from rg_env.scoring import Verdict
from rg_env.skyrl.cpu import nano_path
from rg_env.tasks import Item, hash64

NANO_TASKS: dict[str, dict[str, Any]] = {
    "chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}},
    "leg_counting": {"weight": 1, "config": {"min_animals": 1, "max_animals": 2, "max_instances": 3}},
    "spell_backward": {"weight": 1, "config": {"min_word_len": 3, "max_word_len": 5}},
}
"""The task mix, in the format of the setting `tasks`."""
CONTEXT = 256
"""In tokens. The longest prompt has about 70, the longest worked solution about 60."""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PRE_TOKENS = r"</?(?:think|answer)>| ?[A-Za-z]+|[0-9]|\n|[^A-Za-z0-9\n<>]+|[<>]"
"""Tags, words with the space before them, single digits, runs of punctuation."""
WORD_SHARE = 0.1
"""A word in at least this share of a task's texts becomes a token: words of the prompts, not of single questions."""

WARMUP_STEPS = 50
AT_ONCE_SHARE = 0.5
"""Share of the solutions that give the answer without intermediate steps."""

Message = dict[str, str]


def worked_solution(entry: Mapping[str, Any], *, at_once: bool = False) -> str:
    """A correct response to an item of nano's tasks, with short working (`at_once`: with none): nano has to learn it in
    minutes, and each token slows a rollout down."""
    working = "I see it." if at_once else ", ".join(working_of(entry["metadata"]))
    return f"<think>{working}</think>\n<answer>{entry['answer']}</answer>"


def working_of(metadata: Mapping[str, Any]) -> list[str]:
    """The steps that lead to the answer of an item with this metadata."""
    steps: list[str] = []
    match metadata["source_dataset"]:
        case "spell_backward":  # number the letters: `neon` → `1n2e3o4n`
            return ["".join(f"{position}{letter}" for position, letter in enumerate(metadata["word"], 1))]
        case "chain_sum":  # one operation at a time: `4 - 1 + 5` → `4 - 1 = 3`, `3 + 5 = 8`
            first, *rest = metadata["expression"].split()
            total = int(first)
            for operator, term in zip(rest[::2], rest[1::2], strict=True):
                before, total = total, total + int(term) if operator == "+" else total - int(term)
                steps.append(f"{before} {operator} {term} = {total}")
        case "leg_counting":  # legs of each animal, then the total so far: `2 * 10 = 20`, `1 * 6 = 6`, `20 + 6 = 26`
            total = 0
            for animal, count in metadata["animals"].items():
                legs = count * ANIMALS[animal]
                steps.append(f"{count} * {ANIMALS[animal]} = {legs}")
                if total:
                    steps.append(f"{total} + {legs} = {total + legs}")
                total += legs
    return steps


@dataclass(frozen=True)
class Example:
    """One item and its prompt."""

    item: Item
    messages: list[Message]


@dataclass(frozen=True)
class Figures:
    """Shares in [0, 1] over one sampled response per item. `given_format`: share of well-formed responses solved."""

    format: float
    solved: float
    given_format: float
    score: float
    tokens: float

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], lengths: Sequence[int]) -> Figures:
        """A response is solved if its base score is at least 0.99, the default of `solved_at`."""
        formed = sum(verdict.parsed.violation is None for verdict in verdicts)
        solved = sum(verdict.scored.score >= 0.99 for verdict in verdicts)
        count = len(verdicts)
        score = sum(verdict.scored.score for verdict in verdicts) / count
        return cls(formed / count, solved / count, solved / max(formed, 1), score, sum(lengths) / count)

    def line(self, name: str) -> str:
        return (
            f"{name:<16} format {self.format:.3f}  solved {self.solved:.3f}  solved given format "
            f"{self.given_format:.3f}  score {self.score:.3f}  tokens {self.tokens:.1f}"
        )


def examples(dataset: Rows, indices: Iterable[int]) -> list[Example]:
    """The items at these indices with their prompts."""
    return [Example(dataset.item(index), dataset.row(index)["prompt"]) for index in indices]


def build_tokenizer(train: Sequence[Example]) -> PreTrainedTokenizerFast:
    """Tokens for the words that all prompts share, single bytes for everything else.

    There are no byte-pair merges, because they would join the letters of words to be spelled and the digits of numbers
    to be added. A pre-token is either in the vocabulary or split into bytes.
    """
    pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for example in train:
        turns = [*(f"{m['role']}\n{m['content']}" for m in example.messages), "assistant\n"]
        solutions = (worked_solution(example.item.entry, at_once=at_once) for at_once in (False, True))
        texts[example.item.task].append("\n".join([*turns, *solutions]))
    common: set[str] = set()
    for of_task in texts.values():
        counts = Counter(
            word for text in of_task for word in {word for word, _ in pre_tokenizer.pre_tokenize_str(text)}
        )
        common |= {word for word, count in counts.items() if count >= WORD_SHARE * len(of_task)}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *sorted(common.difference(alphabet))]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """0.9 million random parameters. Embeddings are untied: vLLM keeps the old output embeddings of tied ones."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def prompt_ids(tokenizer: PreTrainedTokenizerBase, example: Example) -> list[int]:
    """The prompt as SkyRL tokenizes it, with the generation prompt."""
    ids: list[int] = tokenizer.apply_chat_template(example.messages, add_generation_prompt=True, return_dict=False)
    return ids


@torch.no_grad()
def evaluate(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    subjects: Sequence[Example],
    scorer: Scorer,
    *,
    seed: int,
    max_new_tokens: int = 64,
    batch_size: int = 128,
) -> dict[str, Figures]:
    """Sample one response per item at temperature 1. Returns figures per task and for `all`. Restores torch's RNG."""
    model.eval()
    verdicts: defaultdict[str, list[Verdict]] = defaultdict(list)
    lengths: defaultdict[str, list[int]] = defaultdict(list)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for start in range(0, len(subjects), batch_size):
            batch = subjects[start : start + batch_size]
            inputs = tokenizer.pad({"input_ids": [prompt_ids(tokenizer, e) for e in batch]}, return_tensors="pt")
            output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=True, temperature=1.0, top_k=0)
            for example, response in zip(batch, output[:, inputs["input_ids"].shape[1] :], strict=True):
                item = example.item
                text = tokenizer.decode(response, skip_special_tokens=True)
                for name in (item.task, "all"):
                    lengths[name].append(int(response.ne(tokenizer.pad_token_id).sum()))
                verdict = scorer.score_response(item.entry, text, item.config)
                verdicts[item.task].append(verdict)
                verdicts["all"].append(verdict)
    return {name: Figures.of(verdicts[name], lengths[name]) for name in sorted(verdicts)}


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    train_set: Sequence[Example],
    check_set: Sequence[Example],
    scorer: Scorer,
    *,
    seed: int,
    steps: int,
    batch_size: int,
    lr: float,
    check_every: int = 50,
) -> None:
    """Minimize the cross-entropy of the responses; prompts are masked."""
    sequences = []
    for example in train_set:
        prompt = prompt_ids(tokenizer, example)
        at_once = hash64("at once", example.item.id) < AT_ONCE_SHARE * 2**64
        text = worked_solution(example.item.entry, at_once=at_once)
        response = tokenizer(text, add_special_tokens=False)["input_ids"]
        sequences.append((prompt, [*response, tokenizer.eos_token_id]))
    chooser = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP_STEPS))
    for step in range(1, steps + 1):
        batch = chooser.sample(sequences, batch_size)
        longest = max(len(prompt) + len(response) for prompt, response in batch)
        ids = torch.full((batch_size, longest), tokenizer.pad_token_id)  # right padding needs no mask: causal
        labels = torch.full((batch_size, longest), -100)
        for row, (prompt, response) in enumerate(batch):
            end = len(prompt) + len(response)
            ids[row, :end] = torch.tensor(prompt + response)
            labels[row, len(prompt) : end] = torch.tensor(response)
        model.train()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % check_every == 0:
            figures = evaluate(model, tokenizer, check_set, scorer, seed=seed)
            print(f"step {step:>4}  loss {loss.item():.3f}  {figures['all'].line('check').strip()}", flush=True)


def eval_examples(per_task: int) -> list[Example]:
    """The fixed evaluation set with the default `eval_seed`, 123."""
    dataset = EvalSet(NANO_TASKS, samples_per_task=per_task)
    return examples(dataset, range(len(dataset)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="output folder (default: rg_env/skyrl/cpu/nano)")
    parser.add_argument("--eval-only", type=Path, metavar="FOLDER", help="only evaluate the policy in FOLDER")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, batches, sampling and items")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--items", type=int, default=9000, help="number of train-split items to train on")
    parser.add_argument("--eval-per-task", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with Scorer(workers=1) as scorer:
        if options.eval_only:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(options.eval_only)
            model = LlamaForCausalLM.from_pretrained(options.eval_only, dtype=torch.float32)
        else:
            start = time.monotonic()
            torch.manual_seed(options.seed)
            dataset = ReasoningGymDataset(NANO_TASKS, seed=options.seed, split="train")
            train_set = examples(dataset, range(options.items))
            check_set = examples(dataset, range(options.items, options.items + 384))
            tokenizer = build_tokenizer(train_set)
            model = build_model(tokenizer)
            train(
                model,
                tokenizer,
                train_set,
                check_set,
                scorer,
                seed=options.seed,
                steps=options.steps,
                batch_size=options.batch_size,
                lr=options.lr,
            )
            model = model.to(torch.bfloat16)
            out = options.out or nano_path()
            tokenizer.save_pretrained(out)
            model.save_pretrained(out)
            (out / "model.safetensors").chmod(0o644)
            seconds = time.monotonic() - start
            print(f"{options.steps} steps, {seconds:.0f} s, {model.num_parameters()} parameters → {out}")
            model = model.to(torch.float32)  # the saved weights, including rounding
        figures = evaluate(model, tokenizer, eval_examples(options.eval_per_task), scorer, seed=options.seed)
    for name, of_task in figures.items():
        print(of_task.line(name))
    print(json.dumps({name: vars(of_task) for name, of_task in figures.items()}))


if __name__ == "__main__":
    main()
