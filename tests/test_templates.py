"""What chat templates and tokenizers do to the tags: refused or warned of with the setting that fixes it, in every
command that samples."""

import json
import shutil

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from rg_env.base.errors import ConfigError
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.templates import Opening, check_tags, judged_text, load_tokenizer, system_message_optional
from rg_env.skyrl.cpu import nano_path

GENERATION = "<|im_start|>assistant\n{% endif %}"
OPENS = f"{GENERATION[:-11]}<think>\n{{% endif %}}"
CLOSES = f"{GENERATION[:-11]}<think>\n\n</think>\n\n{{% endif %}}"
REFUSES_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
STRIPS = "{{ message['content'].split('</think>')[-1] }}"
EXAMPLE = {"question": "2 + 2", "response": "<think>4</think><answer>4</answer>"}


@pytest.fixture
def folder(tmp_path):
    """A copy of nano to change."""
    return shutil.copytree(nano_path(), tmp_path / "model")


@pytest.fixture
def changed(folder):
    """Changes a text in the template of the model."""

    def change(old, new):
        path = folder / "chat_template.jinja"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return folder

    return change


@pytest.fixture
def with_special_tags(folder):
    """The model, whose tokenizer takes these tags for special tokens."""

    def add(*tags):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.add_special_tokens({"extra_special_tokens": list(tags)})
        tokenizer.save_pretrained(folder)
        return folder

    return add


def check(folder, keeps_special_tokens=False, **settings):
    config, tokenizer = RGDumpConfig(**settings), load_tokenizer(str(folder))
    return check_tags("model", "it", tokenizer, config, {}, keeps_special_tokens=keeps_special_tokens)


def refused(folder, **settings):
    with pytest.raises(ConfigError) as error:
        check(folder, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_ordinary_model_is_accepted_without_a_word(folder):
    assert check(folder, worked_examples=[EXAMPLE]) == (Opening.PLAIN, [])


def test_a_template_that_opens_the_think_block(changed):
    folder = changed(GENERATION, OPENS)
    assert refused(folder).endswith("set prefilled_think=true")
    assert check(folder, prefilled_think=True) == (Opening.THINK_OPENED, [])
    assert check(folder, format="lenient") == (Opening.THINK_OPENED, [])


def test_a_template_that_writes_an_empty_block(changed):
    folder = changed(GENERATION, CLOSES)
    opening, (warning,) = check(folder)
    assert opening is Opening.THINK_CLOSED
    assert "set format=lenient, or use a template that does not" in warning
    assert check(folder, format="lenient") == (Opening.THINK_CLOSED, [])


def test_prefilled_think_without_such_a_template(folder):
    _, (warning,) = check(folder, prefilled_think=True)
    assert "set prefilled_think=false" in warning


def test_tags_in_the_question_or_examples_are_no_opening(folder):
    assert check(folder, system_prompt="Begin with <think> please", worked_examples=[EXAMPLE])[0] is Opening.PLAIN


def test_tags_that_are_special_tokens(with_special_tags):
    folder = with_special_tags("<|im_start|>", "<think>", "</think>", "<answer>", "</answer>")
    line = refused(folder)
    assert "skip_special_tokens" in line and '"special": false' in line
    assert "format=lenient" not in line  # it needs the answer tags
    assert "<answer>" in refused(folder, format="lenient")
    assert check(folder, keeps_special_tokens=True) == (Opening.PLAIN, [])


def test_the_remedy_for_special_tags_is_one(with_special_tags):
    folder = with_special_tags("<think>", "</think>")
    assert "format=lenient" in refused(folder)
    assert check(folder, format="lenient") == (Opening.PLAIN, [])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = folder / name
        content = json.loads(path.read_text())
        for token in content.get("added_tokens", []):
            token["special"] = token["special"] and "think" not in token["content"]
        content.pop("extra_special_tokens", None)
        path.write_text(json.dumps(content))
    assert check(folder) == (Opening.PLAIN, [])


def test_a_template_without_a_system_role(changed):
    folder = changed("{% for", f"{REFUSES_SYSTEM}{{% for")
    assert "System role not supported" in refused(folder)
    assert "set system_prompt=null" in refused(folder)
    assert check(folder, system_prompt=None, format="lenient") == (Opening.PLAIN, [])


def test_skyrl_s_own_system_message_is_left_out_where_the_template_refuses_it(changed):
    tokenizer = load_tokenizer(str(changed("{% for", f"{REFUSES_SYSTEM}{{% for")))
    own = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "I am a user."}]
    with system_message_optional(tokenizer):
        assert "I am a user." in tokenizer.apply_chat_template(own, tokenize=False)
    with pytest.raises(Exception, match="System role"):
        tokenizer.apply_chat_template(own, tokenize=False)


def test_a_template_that_removes_earlier_thoughts(changed):
    folder = changed("{{ message['content'] }}", STRIPS)
    assert "worked_examples show no think block" in check(folder, worked_examples=[EXAMPLE])[1][0]
    assert check(folder) == (Opening.PLAIN, [])


@pytest.mark.parametrize(
    ("text", "prefilled", "opening", "judged"),
    [
        ("so</think><answer>4</answer>", False, None, "<think>so</think><answer>4</answer>"),
        ("so</think><answer>4</answer>", True, None, "so</think><answer>4</answer>"),
        ("so</think><answer>4</answer>", False, Opening.PLAIN, "so</think><answer>4</answer>"),
        ("<think>so</think>", False, None, "<think>so</think>"),
        ("4", False, None, "4"),
    ],
)
def test_the_text_that_is_judged(text, prefilled, opening, judged):
    assert judged_text(text, prefilled, opening) == judged


def test_a_model_whose_server_would_be_started_is_checked_first(changed, tmp_path):
    folder = changed(GENERATION, OPENS)
    out = tmp_path / "out"
    for command in (["collect", "--groups", "2"], ["eval", "num_eval_samples_per_task=1"]):
        done = CliRunner().invoke(app, [*command, "--model", str(folder), "--tasks", "gcd", "--out", str(out)])
        assert isinstance(done.exception, ConfigError), done.output
        assert str(done.exception).endswith("set prefilled_think=true")
        assert not out.exists()


def test_a_template_that_leaves_out_the_system_message_is_a_warning(changed):
    folder = changed("{% for message in messages %}", "{% for message in messages if message['role'] != 'system' %}")
    _, warnings = check(folder)
    assert any("leaves out the system message" in line and "system_prompt=null" in line for line in warnings)
    assert not check(folder, system_prompt=None, worked_examples=[EXAMPLE])[1]
