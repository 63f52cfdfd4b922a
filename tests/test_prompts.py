"""System prompts, worked examples and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.eval_set import EvalSet
from rg_env.rows.prompts import THINK_ANSWER, Prompts, format_warning, resolve_system_prompt

GOOD = {"question": "1 + 1?", "response": "<think>two</think><answer>2</answer>"}


def test_system_prompts_by_name_text_or_none() -> None:
    from reasoning_gym.utils import SYSTEM_PROMPTS

    assert resolve_system_prompt("think_answer") == THINK_ANSWER
    assert resolve_system_prompt(None) is None
    assert resolve_system_prompt("Be brief, please.") == "Be brief, please."
    for name, text in SYSTEM_PROMPTS.items():
        assert resolve_system_prompt(name) == text
    for name in ("think_anwser", "", "  "):
        with pytest.raises(ConfigError, match="no such prompt; use one of think_answer, "):
            resolve_system_prompt(name)


def test_messages_in_order() -> None:
    examples = [GOOD, GOOD | {"task": "gcd", "question": "other"}, GOOD | {"task": "chain_sum", "question": "mine"}]
    assert [(m["role"], m["content"]) for m in Prompts("My rules.", examples).messages("chain_sum", "Q")] == [
        ("system", "My rules."),
        ("user", "1 + 1?"),
        ("assistant", GOOD["response"]),
        ("user", "mine"),
        ("assistant", GOOD["response"]),
        ("user", "Q"),
    ]
    assert Prompts(None).messages("chain_sum", "Q") == [{"role": "user", "content": "Q"}]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ("text", r"must be a list of \{question, response\}, not str"),
        ([GOOD, {"question": "q"}], r"worked_examples\[1\]: needs `question` and `response`"),
        ([GOOD | {"taks": "gcd"}], r"worked_examples\[0\]: needs"),
        ([GOOD | {"task": "chain_summ"}], r"worked_examples\[0\]: unknown task 'chain_summ'; did you mean chain_sum"),
        ([GOOD | {"question": 3}], r"worked_examples\[0\]: question and response must be texts"),
        ([GOOD | {"response": "2"}], r"worked_examples\[0\]: its response breaks the format \(no_think\)"),
    ],
)
def test_bad_examples_are_one_clear_line(examples: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Prompts(worked_examples=examples)  # type: ignore[arg-type]


def test_an_example_may_name_a_file_of_questions_of_the_mix(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(f'{{"question": "{n} + 1?", "answer": {n + 1}}}\n' for n in range(40)))
    tasks = {"sums": {"file": str(path)}, "gcd": 1}
    examples = [GOOD | {"task": "sums"}]
    config = RGDumpConfig(tasks=tasks, worked_examples=examples)
    rows = ReasoningGymDataset.train_of(config, 8)
    for prompts in (Prompts.of(config), rows.prompts, EvalSet.of(config).prompts):
        assert [len(prompts.messages(task, "Q")) for task in ("sums", "gcd")] == [4, 2]
    config.tasks = ["gcd"]
    for make in (Prompts.of, EvalSet.of):
        with pytest.raises(ConfigError, match=r"worked_examples\[0\]: unknown task 'sums'"):
            make(config)


def test_a_prompt_that_never_asks_for_the_think_block_is_one_warning() -> None:
    from reasoning_gym.utils import SYSTEM_PROMPTS

    def warning(prompt: str | None, **settings: Any) -> str | None:
        return format_warning(RGDumpConfig(system_prompt=prompt, **settings))

    assert {name for name, text in SYSTEM_PROMPTS.items() if warning(text)} == set(SYSTEM_PROMPTS) - {"DeepSeekZero"}
    found = warning(SYSTEM_PROMPTS["default"])
    assert found
    assert "never asks for <think>" in found
    assert "format=lenient or system_prompt=think_answer" in found
    assert "there is no system prompt" in (warning(None) or "")
    assert warning(THINK_ANSWER) is None
    assert warning("Be brief, please.", format="lenient") is None
    assert warning("Be brief, please.", prefilled_think=True) is None
    assert warning("Be brief, please.", worked_examples=[GOOD]) is None
    assert warning("Be brief, please.", worked_examples=[GOOD | {"task": None}]) is None
    assert warning("Be brief, please.", worked_examples=[GOOD | {"task": "gcd"}]) is not None


def test_worked_examples_need_the_format_of_the_run() -> None:
    Prompts(worked_examples=[GOOD, GOOD | {"task": "gcd"}])
    bare = {"question": "1 + 1?", "response": "<answer>2</answer>"}
    Prompts(worked_examples=[bare], format="lenient")
    with pytest.raises(ConfigError, match=r"breaks the format \(no_think\); write <think>"):
        Prompts(worked_examples=[bare])
    with pytest.raises(ConfigError, match=r"breaks the format \(no_answer\); write <answer>…</answer>$"):
        Prompts(worked_examples=[{"question": "1 + 1?", "response": "2"}], format="lenient")
