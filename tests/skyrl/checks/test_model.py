"""A model folder without a tokenizer, or a tokenizer that ends answers differently, is refused in one line."""

import json

import pytest

from rg_env.rows.templates import load_tokenizer
from rg_env.skyrl.train_config import load_run

SETTING = "trainer.policy.model.path"


def change(path, **values):
    content = json.loads(path.read_text())
    for name, value in values.items():
        if value is None:
            content.pop(name)
        else:
            content[name] = value
    path.write_text(json.dumps(content))


def test_a_copy_of_a_good_folder_is_accepted(args, folder):
    assert load_run([*args, f"{SETTING}={folder}"]).cfg.trainer.policy.model.path == str(folder)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("config.json", "config.json"),
        ("tokenizer.json", "tokenizer"),
        ("chat_template.jinja", "chat template"),
    ],
)
def test_a_missing_file(refusal, folder, file, expected):
    (folder / file).unlink()
    message = refusal(f"{SETTING}={folder}")
    assert expected in message
    assert str(folder) in message


def test_the_critic_needs_no_tokenizer(args, folder):
    critic = [f"trainer.critic.model.path={folder}", "trainer.algorithm.advantage_estimator=gae"]
    critic.append("trainer.critic_mini_batch_size=4")
    (folder / "tokenizer.json").unlink()
    load_run([*args, *critic])


def test_a_wrong_eos_is_named_with_the_right_one(refusal, folder):
    """As SmolLM2's tokenizer comes out of its GGUF file: answers end with <|im_end|>, eos is <|endoftext|>."""
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    change(folder / "generation_config.json", eos_token_id=324)
    message = refusal(f"{SETTING}={folder}")
    assert "'<|im_end|>'" in message
    assert "'<|endoftext|>'" in message


def test_an_end_that_only_generation_config_knows_is_an_end(args, folder):
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    load_run([*args, f"{SETTING}={folder}"])


def test_no_eos_at_all(refusal, folder):
    change(folder / "tokenizer_config.json", eos_token=None)
    assert "no eos" in refusal(f"{SETTING}={folder}")


def test_a_template_in_the_settings_needs_a_run_without_logprobs(args, refusal, folder, tmp_path):
    (tmp_path / "other.jinja").write_text((folder / "chat_template.jinja").read_text())
    template = "generator.chat_template"
    other = [f"{SETTING}={folder}", f"{template}.source=file", f"{template}.name_or_path={tmp_path}/other.jinja"]
    assert "SkyRL has no logprobs with a template" in refusal(*other)
    load_run([*args, *other, "generator.sampling_params.logprobs=null"])


def test_a_template_that_fails_on_a_plain_chat(refusal, folder):
    (folder / "chat_template.jinja").write_text("{{ raise }")
    assert "chat template fails" in refusal(f"{SETTING}={folder}")


def test_a_template_that_opens_the_think_block_is_refused_with_the_setting(refusal, args, folder):
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"))
    assert refusal(f"{SETTING}={folder}").endswith("set prefilled_think=true")
    load_run([*args, f"{SETTING}={folder}", "prefilled_think=true"])


def test_of_a_model_of_the_hub_the_tokenizer_is_looked_at(refusal, folder, monkeypatch):
    """There is no hub here: a folder stands for it."""
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("rg_env.skyrl.checks.check_hub_model", lambda setting, name: None)
    monkeypatch.setattr("rg_env.skyrl.checks.load_tokenizer", lambda name: load_tokenizer(str(folder)))
    message = refusal(f"{SETTING}=somebody/a-model")
    assert "somebody/a-model opens <think>" in message
    assert message.endswith("set prefilled_think=true")
