"""Real runs of SkyRL's trainer on the CPU, each in its own process, with Ray."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.running import run_command

GROUP = 4

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


def run(folder: Path, *args: str) -> str:
    done = run_command(sys.executable, "-u", "-m", "tests.cpu.toy_run", folder, *args)
    return done.stdout + done.stderr


def report_of(folder: Path) -> Any:
    return torch.load(folder / "report.pt", weights_only=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of GRPO on a policy with tied embeddings, on two data-parallel workers."""
    folder = tmp_path_factory.mktemp("run")
    run(folder, "tied=true", "trainer.placement.policy_num_nodes=2")
    return folder


@pytest.mark.long
def test_rollouts_and_trainer_agree_on_logprobs(folder: Path) -> None:
    for step in report_of(folder)["steps"]:
        batch = step["batch"]
        mask = batch["loss_mask"].bool()
        assert mask.sum() > 16
        torch.testing.assert_close(batch["rollout_logprobs"][mask], batch["action_log_probs"][mask], atol=1e-4, rtol=0)


@pytest.mark.long
def test_gradients_and_weights_are_those_of_plain_torch(folder: Path) -> None:
    """Rewards, advantages, loss, clipping and AdamW written out once more, from the tokens alone."""
    report = report_of(folder)
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.999), weight_decay=1e-2)
    for step, after in zip(report["steps"], report["synced"][1:], strict=True):
        batch = step["batch"]
        sequences, mask = batch["sequences"], batch["loss_mask"].float()
        width = mask.shape[1]
        texts = [
            tokenizer.decode(tokens[-width:][kept.bool()], skip_special_tokens=True)
            for tokens, kept in zip(sequences, batch["response_mask"], strict=True)
        ]
        rewards = torch.tensor([text.count("a") / max(1, len(text)) for text in texts]).view(-1, GROUP)
        advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)).view(-1, 1)
        positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        logits = model(sequences, attention_mask=batch["attention_mask"], position_ids=positions).logits
        logprobs = (logits[:, -width - 1 : -1] / 0.8).log_softmax(-1).gather(-1, sequences[:, -width:, None])[..., 0]
        loss = -(advantages * logprobs * mask).sum() / mask.sum()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert step["status"]["grad_norm"] == pytest.approx(norm.item(), rel=1e-3)
        assert norm > 0.01
        optimizer.step()
        optimizer.zero_grad()
        for name, weight in load_file(Path(after["policy"]) / "model.safetensors").items():
            # AdamW's first steps are near sign(gradient): entries with a gradient near 0 may go either way.
            wrong = ~torch.isclose(weight, model.state_dict()[name], atol=1e-5)
            assert wrong.float().mean() < 0.002, name


@pytest.mark.long
def test_weights_move_and_the_sampler_follows(folder: Path) -> None:
    synced = report_of(folder)["synced"]
    assert [at["version"] for at in synced] == [1, 2, 3]
    before: dict[str, torch.Tensor] = {}
    for at in synced:
        policy = load_file(Path(at["policy"]) / "model.safetensors")
        for name, weight in policy.items():
            assert torch.equal(weight, at["sampler"][name]), name
            assert name not in before or not torch.equal(weight, before[name]), name
        before = policy
        assert torch.equal(at["sampler"]["lm_head.weight"], at["sampler"]["model.embed_tokens.weight"])


@pytest.mark.weekly
def test_a_run_with_critic_and_reference_is_resumed(tmp_path: Path) -> None:
    """Each kind of worker is saved and loaded. `tests/e2e/test_stopping.py` interrupts runs."""
    args = [
        'trainer.algorithm.advantage_estimator="gae"',
        f'trainer.critic.model.path="{tmp_path / "model"}"',
        "trainer.algorithm.use_kl_loss=true",
        "trainer.ckpt_interval=1",
        'trainer.resume_mode="latest"',
    ]
    run(tmp_path, *args, "trainer.max_training_steps=1")
    output = run(tmp_path, *args, "trainer.max_training_steps=2")
    assert "'trainer/global_step': 2" in output
    assert "'trainer/global_step': 1," not in output
    (step,) = report_of(tmp_path)["steps"]
    mask = step["batch"]["loss_mask"].bool()
    difference = step["batch"]["rollout_logprobs"][mask] - step["batch"]["action_log_probs"][mask]
    assert difference.abs().max() < 1e-4, "the sampler has the weights of the checkpoint"
    assert step["status"]["policy_kl"] > 0, "the reference is the policy of the beginning"
