"""Other projects' own clients against a real server: `make test-weekly`.

The SDK of ORS, TRL's adapter for it, OpenEnv's client and its `openenv validate`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rg_env import ReasoningGymDataset
from rg_env.skyrl.cpu import nano_path

pytestmark = pytest.mark.clients
openreward = pytest.importorskip("openreward")
openenv = pytest.importorskip("openenv")

from tests.serve.test_serve import serving  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MIX = "gcd,chain_sum"
TRAIN = ReasoningGymDataset(MIX, 20, 42, "train")
WRONG = "certainly wrong"


def right(index: int) -> str:
    return str(TRAIN.item(index).entry["answer"])


@pytest.fixture(scope="module")
def server() -> Iterator[SimpleNamespace]:
    with serving("--workers", "2", "--tasks", MIX, "--rows", "20") as made:
        # The SDK puts `sessions.` in front of the name of the host, if it is not told otherwise.
        os.environ["OPENREWARD_SESSION_URL"] = made.url
        yield made
        del os.environ["OPENREWARD_SESSION_URL"]


def test_the_sdk_of_ors_lists_samples_and_submits(server: SimpleNamespace) -> None:
    client = openreward.OpenReward(base_url=server.url)
    env = client.environments.get("reasoning_gym")
    assert env.list_splits() == ["train", "eval"]
    assert (env.num_tasks("train"), len(env.list_tasks("eval"))) == (20, 20)
    assert [task.task_spec["index"] for task in env.get_task_range("train", -2)] == [18, 19]
    assert [tool.name for tool in env.list_tools()] == ["submit"]
    for index in range(3):
        for answer, reward in ((right(index), 1.0), (WRONG, 0.0)):
            with env.session(split="train", index=index) as session:
                (block,) = session.get_prompt()
                assert block.text.startswith(TRAIN.item(index).entry["question"])
                output = session.call_tool("submit", {"answer": answer})
                assert (output.reward, output.finished) == (reward, True)
                with pytest.raises(Exception, match="has been answered"):
                    session.call_tool("submit", {"answer": right(index)})
        with env.session(task=env.get_task("train", index)) as session:
            assert session.is_assistant_message_final()
            assert session.call_terminal_tool(f"So it is <answer>{right(index)}</answer>.").reward == 1.0
    client.environments.close()


def test_a_tool_call_through_the_adapter_of_trl_earns_its_reward(server: SimpleNamespace) -> None:
    from trl.experimental.openreward import OpenRewardSpec

    spec = OpenRewardSpec(server.url, num_tasks=8)
    row = {name: value for name, value in spec.train_dataset[3].items() if name != "prompt"}
    environments = [spec.environment_factory() for _ in range(3)]
    for environment, answer in zip(environments, (right(3), WRONG, None), strict=True):
        assert environment.reset(**row).startswith(TRAIN.item(3).entry["question"])
        if answer is not None:
            environment.submit(answer=answer)
    assert spec.reward_funcs(environments=environments) == [1.0, 0.0, None]
    for environment in environments:
        environment._close()


def test_the_trainer_of_trl_takes_steps_with_rewards_of_the_server(server: SimpleNamespace, tmp_path: Path) -> None:
    """Only the sampling is scripted, because `nano` is too small to call a tool."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_chat_template
    from trl.experimental.openreward import OpenRewardSpec

    tokenizer = AutoTokenizer.from_pretrained(nano_path(), padding_side="left")
    tokenizer.chat_template = qwen3_chat_template  # that of nano has no tools
    # A prompt with the description of the tool is longer than what nano was trained with.
    model = AutoModelForCausalLM.from_pretrained(nano_path(), max_position_embeddings=4096)
    rows = [TRAIN.item(index).entry for index in range(4)]

    def reply(number: int, prompt: str) -> str:
        """What row `number` of a batch says: a right answer, or every other time a wrong one."""
        if "<tool_response>" in prompt:
            return "That was it.<|im_end|>"
        (answer,) = [row["answer"] for row in rows if row["question"] in prompt]
        arguments = {"answer": WRONG if number % 2 else answer}
        call = json.dumps({"name": "submit", "arguments": arguments})
        return f"<tool_call>\n{call}\n</tool_call><|im_end|>"

    def generate(input_ids: torch.Tensor, **_: object) -> torch.Tensor:
        texts = [reply(number, prompt) for number, prompt in enumerate(tokenizer.batch_decode(input_ids))]
        sampled = tokenizer(texts, padding=True, padding_side="right", add_special_tokens=False, return_tensors="pt")
        return torch.cat([input_ids, sampled.input_ids], dim=1)

    model.generate = generate
    spec = OpenRewardSpec(server.url, num_tasks=len(rows))
    args = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=1024,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=args,
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [(step["reward"], step["tools/call_frequency"], step["tools/failure_frequency"]) for step in steps] == [
        (0.5, 1.0, 0.0)
    ] * 3
    assert all(step["grad_norm"] > 0 for step in steps)


def test_the_client_of_openenv_runs_episodes(server: SimpleNamespace) -> None:
    from openenv.core.generic_client import GenericEnvClient

    with GenericEnvClient(base_url=server.url).sync() as env:
        for answer, reward in ((right(3), 1.0), (WRONG, 0.0)):
            start = env.reset(index=3)
            assert start.observation["question"] == TRAIN.item(3).entry["question"]
            assert (start.reward, start.done) == (None, False)
            end = env.step({"answer": answer})
            assert (end.reward, end.done) == (reward, True)
            assert env.state()["step_count"] == 1
            with pytest.raises(RuntimeError, match="has been answered"):
                env.step({"answer": right(3)})
        env.reset(index=3)
        assert env.step({"response": f"<answer>{right(3)}</answer>"}).reward == 1.0
        assert env.reset(seed=7).observation == env.reset(seed=7, episode_id="mine").observation
        assert env.state()["episode_id"] == "mine"


def test_openenv_validates_the_server(server: SimpleNamespace, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("openenv")
    report = tmp_path / "report.json"
    command = [program, "validate", "--url", server.url, "--output", report, "--timeout", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    criteria = json.loads(report.read_text())["criteria"]
    assert len(criteria) >= 6 and all(criterion["passed"] for criterion in criteria)


def test_openenv_validates_the_folder_of_its_manifest() -> None:
    program = Path(sys.executable).with_name("openenv")
    command = [program, "validate", ROOT / "examples" / "openenv", "--level", "static", "--skip-build"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "Verdict: PASS" in done.stdout, done.stdout + done.stderr
