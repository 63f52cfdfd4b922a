"""Recorder around SkyRL's own generator, with environments of skyrl-gym; only the engine is scripted.

What is recorded is counted again from SkyRL's output, which is kept beside it.
"""

import asyncio
import copy
import json
import math
import re
from pathlib import Path

import pytest
import skyrl_gym
import trl
from skyrl.train.config import GeneratorConfig
from skyrl.train.config.config import ChatTemplateConfig
from skyrl.train.generators.base import BatchMetadata, GeneratorInterface, TrajectoryID
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import concatenate_generator_outputs, prepare_generator_input
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

import rg_env
from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter, open_run
from rg_env.dump.validate import validate
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.recorder import Recorder
from rg_env.skyrl.train_config import RGSkyRLGymConfig
from tests.skyrl.generating import TASK, right, script_for, tokenizer, total
from tests.skyrl.scripted_engine import ScriptedEngine

SAMPLES = 3
MULTI_TURN = {"max_turns": 3}
MODES = {
    "plain": {},
    "batched": {"batched": True},
    "turns": MULTI_TURN,
    "turns in one message": MULTI_TURN | {"use_conversation_multi_turn": False},
    "step-wise": MULTI_TURN | {"step_wise_trajectories": True},
}


def prompts(env_class, count=2, **extras):
    return [
        {
            "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{n} + 2"}],
            "env_class": env_class,
            "env_extras": {"reward_spec": {"method": "rule", "ground_truth": str(n + 2)}, "extra_info": {}} | extras,
            "uid": str(n),
        }
        for n in range(count)
    ]


def script(prompt, sample):
    """Wrong in the first turn; right in the second turn of sample 0; sample 2 is cut off in its first turn."""
    turn = prompt.count("step-by-step")
    number = int(prompt.split(" + ")[0].split()[-1].split("\n")[-1])
    if sample == 2 and turn == 0:
        return "I go on and on…"
    return f"I say #### {number + 2}" if sample == 0 and turn == 1 else f"  turn {turn}\n\n#### 99"


def make(generator_class, script=script, settings=None, **kwargs):
    """A generator of SkyRL's over a scripted engine."""
    rg_env.register()
    config = GeneratorConfig(**{"max_input_length": 1024, "n_samples_per_prompt": SAMPLES, **(settings or {})})
    config.sampling_params.max_generate_length = 100
    engine = ScriptedEngine(tokenizer(), script)
    return generator_class(config, RGSkyRLGymConfig(rg_dump=RGDumpConfig()), engine, tokenizer(), **kwargs)


def batch_of(rows, phase="train", step=5):
    return prepare_generator_input(rows, SAMPLES, {"logprobs": 1}, "gsm8k", phase, step)[0]


def recorded(folder, rows, settings=None, script=script, phase="train", generator_class=SkyRLGymGenerator, **more):
    """One call; returns the record, and what SkyRL's generator returned."""
    inner = make(generator_class, script, settings)
    raw = {}
    generate = inner.generate

    async def kept(batch, disable_tqdm=False):
        output = await generate(batch, disable_tqdm)
        raw.update(copy.deepcopy(output))
        return output

    inner.generate = kept
    with DumpWriter(folder, "run", 1) as writer:
        output = asyncio.run(Recorder(inner, writer, tokenizer(), **more).generate(batch_of(rows, phase)))
        assert list(open_run(folder).groups()), "on disk when the call returns"
    return list(open_run(folder).groups()), raw, output


def rows_of(raw):
    """The rows of each trajectory."""
    result, rows = [], []
    for row, is_last in enumerate(raw.get("is_last_step") or [True] * len(raw["rewards"])):
        rows.append(row)
        if is_last:
            result.append(rows)
            rows = []
    return result


@pytest.mark.parametrize("mode", MODES)
def test_a_recount_from_skyrls_output_equals_the_record(tmp_path, mode):
    env_class = "gsm8k" if mode in ("plain", "batched") else "gsm8k_multi_turn"
    groups, raw, output = recorded(tmp_path, prompts(env_class), MODES[mode])
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    trajectories = rows_of(raw)
    assert len(rollouts) == len(trajectories) == 2 * SAMPLES
    for rollout, rows in zip(rollouts, trajectories, strict=True):
        assert rollout.score == rollout.base_score == sum(total(raw["rewards"][row]) for row in rows)
        assert rollout.reward == total(raw["rewards"][rows[-1]])
        assert rollout.response_tokens == sum(sum(raw["loss_masks"][row]) for row in rows)
        assert rollout.stop_reason == raw["stop_reasons"][rows[-1]]
        said = [message["content"] for message in rollout.conversation if message["role"] == "assistant"]
        told = json.loads(rollout.each_turn)
        assert len(said) == len(told) == rollout.turns
        assert (rollout.raw_score, rollout.tagged_score, rollout.violation, rollout.answer) == (None, None, "", "")
    assert [group.uid for group in groups] == ["0", "1"]
    assert {(g.environment, g.task, g.phase, g.step, g.run_id) for g in groups} == {
        (env_class, env_class, "train", 5, "run")
    }
    names = output["group_ids"]
    assert names == [group.group_id for group in groups for rollout in group.rollouts for _ in range(
        rollout.turns if mode == "step-wise" else 1
    )]  # fmt: skip
    assert all(output[key] == raw[key] for key in raw if key != "trajectory_ids")


@pytest.mark.parametrize("mode", ["turns", "turns in one message", "step-wise"])
def test_every_turn_is_in_the_conversation_as_it_was_written(tmp_path, mode):
    (group, _), _, _ = recorded(tmp_path, prompts("gsm8k_multi_turn"), MODES[mode])
    first, second, third = ([(m["role"], m["content"]) for m in rollout.conversation] for rollout in group.rollouts)
    again = "Please provide your step-by-step reasoning, "
    again += "and also include a tentative numeric answer at the end in the exact format: '#### ANSWER'."
    assert first[2:] == [("assistant", "  turn 0\n\n#### 99"), ("user", again), ("assistant", "I say #### 2")]
    assert [role for role, _ in second] == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert third[2] == ("assistant", "I go on and on")
    reasons = [[turn["stop_reason"] for turn in json.loads(one.each_turn)] for one in group.rollouts]
    assert reasons[2] == (["length", "stop", "stop"] if mode == "step-wise" else [None, None, "stop"])
    assert group.rollouts[0].turns == 2


def test_overlong_filtering_hides_no_turn(tmp_path):
    def cut_late(prompt, sample):
        return "no #### 99" if "provide" not in prompt else "on and on…"

    settings = MULTI_TURN | {"apply_overlong_filtering": True, "max_turns": 2}
    (group, _), raw, _ = recorded(tmp_path, prompts("gsm8k_multi_turn"), settings, cut_late)
    assert not any(map(any, raw["loss_masks"]))
    messages = group.rollouts[0].conversation[2:]
    assert [message["role"] for message in messages] == ["assistant", "user", "assistant"]
    assert messages[0]["content"] == "no #### 99" and messages[2]["content"] == "on and on"
    assert group.rollouts[0].response_tokens is None


def test_turns_are_exact_with_a_template_that_changes_the_last_turn(tmp_path, monkeypatch):
    """Qwen3's puts an empty think block into the last message of the assistant only."""
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    monkeypatch.setattr(tokenizer(), "chat_template", template.read_text())
    (group, _), _, _ = recorded(tmp_path, prompts("gsm8k_multi_turn"), MULTI_TURN)
    first = [(message["role"], message["content"]) for message in group.rollouts[0].conversation]
    assert [role for role, _ in first] == ["system", "user", "assistant", "user", "assistant"]
    assert (first[2][1], first[4][1]) == ("  turn 0\n\n#### 99", "I say #### 2")
    assert first[3][1].startswith("Please provide your step-by-step reasoning")


def test_with_a_template_that_drops_thinking_texts_are_what_was_written_and_tokens_what_is_trained_on(
    tmp_path, monkeypatch
):
    def thinking(prompt, sample):
        return "<think>long and longer</think>\n\n#### 99" if "provide" not in prompt else "I say #### 2"

    async def without_logprobs(engine, *args, generate=ScriptedEngine.generate, **kwargs):
        return {**await generate(engine, *args, **kwargs), "response_logprobs": None}

    monkeypatch.setattr(ScriptedEngine, "generate", without_logprobs)  # SkyRL has none with a template of its own
    template = ChatTemplateConfig(source="name", name_or_path="qwen3_without_thinking")
    settings = MULTI_TURN | {"chat_template": template, "max_turns": 2}
    (group, _), raw, _ = recorded(tmp_path, prompts("gsm8k_multi_turn"), settings, thinking)
    rollout = group.rollouts[0]
    assert rollout.conversation[2]["content"] == "<think>long and longer</think>\n\n#### 99"
    tokens = [turn["tokens"] for turn in json.loads(rollout.each_turn)]
    assert rollout.response_tokens == sum(tokens) == sum(raw["loss_masks"][0])
    trained = [token for token, mask in zip(raw["response_ids"][0], raw["loss_masks"][0], strict=True) if mask]
    assert tokenizer().decode(trained[: tokens[0]]).startswith("#### 99")


def test_the_turns_of_another_generator_are_the_runs_of_its_loss_mask(tmp_path):
    """A row that is filtered as overlong is one turn of unknown length: where it ends is not known."""
    turns = ["one", " shown", " two", " after the last turn"]
    pieces = [tokenizer().encode(text) for text in turns]
    ids = [token for piece in pieces for token in piece]
    mask = [1 - number % 2 for number, piece in enumerate(pieces) for _ in piece]
    generator = Returning(response_ids=[ids, ids], loss_masks=[mask, [0] * len(ids)])
    with DumpWriter(tmp_path, "run", 1) as writer:
        asyncio.run(Recorder(generator, writer, tokenizer()).generate(given()))
    (group,) = open_run(tmp_path).groups()
    decoded, filtered = group.rollouts
    assert [message["content"] for message in decoded.conversation] == ["?", "one", " shown", " two"]
    assert [turn["tokens"] for turn in json.loads(decoded.each_turn)] == [len(pieces[0]), len(pieces[2])]
    assert [message["content"] for message in filtered.conversation] == ["?", "".join(turns)]
    assert filtered.response_tokens is None


@pytest.mark.parametrize("generator_class", [RGDumpGenerator, SkyRLGymGenerator])
def test_a_rollout_that_raises_ends_the_call_and_the_groups_before_it_stay(tmp_path, generator_class, warnings):
    """SkyRL fails the whole call; nothing of it is recorded. Our generator says once which rollout it was."""
    with DumpWriter(tmp_path, "run", 1) as writer:
        if generator_class is RGDumpGenerator:
            generator = make(RGDumpGenerator, writer=writer)
        else:
            generator = Recorder(make(SkyRLGymGenerator), writer, tokenizer())
        asyncio.run(generator.generate(batch_of(prompts("gsm8k"))))
        with pytest.raises(AssertionError, match="ground_truth"):
            asyncio.run(generator.generate(batch_of(prompts("gsm8k", reward_spec={}))))
    assert validate(tmp_path).good
    assert [group.uid for group in open_run(tmp_path).groups()] == ["0", "1"]
    said = [line for line in warnings if "SkyRL#1613" in line]
    assert len(said) == (generator_class is RGDumpGenerator)
    assert all(re.match(r"rollout \d of gsm8k \d failed: ground_truth is required", line) for line in said)


@pytest.mark.parametrize("phase", ["train", "eval"])
def test_a_rollout_that_skyrl_returns_no_row_of_is_recorded_without_a_response(tmp_path, phase):
    """Step-wise, SkyRL 0.4.0 leaves out what has a longer prompt than `max_input_length`."""
    short, long = prompts("gsm8k_multi_turn")
    long["prompt"][1]["content"] += " and so on" * 200
    groups, raw, output = recorded(tmp_path, [short, long], MODES["step-wise"], phase=phase)
    assert {name.instance_id for name in raw["trajectory_ids"]} == {"0"}
    assert [[rollout.status.value for rollout in group.rollouts] for group in groups] == [["ok"] * SAMPLES]
    (_, lost) = open_run(tmp_path).ledger()
    assert (lost.uid, lost.text_reason) == ("1", "no_responses")
    assert [(rollout.status.value, rollout.repetition) for rollout in lost.rollouts] == [
        ("no_response", number) for number in range(SAMPLES)
    ]
    assert validate(tmp_path).good
    assert output.get("group_ids", []) == ([groups[0].group_id] * len(raw["rewards"]) if phase == "train" else [])


def test_the_item_is_the_same_in_every_run_and_names_the_data_source(tmp_path):
    groups, _, _ = recorded(tmp_path / "a", prompts("gsm8k", data_source="openai/gsm8k"))
    others, _, _ = recorded(tmp_path / "b", prompts("gsm8k", data_source="openai/gsm8k"), phase="eval")
    assert [group.item for group in groups] == [group.item for group in others]
    assert groups[0].task == groups[0].item_id == "openai/gsm8k" and len({group.item for group in groups}) == 2
    assert {group.phase for group in others} == {"eval"}


def test_rewards_outside_0_and_1_are_kept_and_the_threshold_of_the_user_says_what_is_solved(tmp_path):
    class WithRewards(SkyRLGymGenerator):
        async def generate(self, input_batch, disable_tqdm=False):
            output = await super().generate(input_batch, disable_tqdm)
            return output | {"rewards": [2.5, 3.0, 2.5, -1.0, 0.0, 2.5]}

    groups, _, _ = recorded(tmp_path, prompts("gsm8k"), generator_class=WithRewards, solved_at={"gsm8k": 2.0})
    assert [[rollout.reward for rollout in group.rollouts] for group in groups] == [[2.5, 3.0, 2.5], [-1.0, 0.0, 2.5]]
    assert [group.outcome for group in groups] == ["all_correct", "mixed"]
    assert {group.solved_at for group in groups} == {2.0}


@pytest.mark.parametrize("generator_class", [RGDumpGenerator, SkyRLGymGenerator])
def test_wrong_answers_with_a_reward_of_minus_1_are_failed(tmp_path, generator_class):
    """skyrl-gym's `aime` follows DAPO: 1 for a right answer, -1 for a wrong one."""

    def wrong(prompt, sample):
        return "Answer: 2" if (prompt.count("0 + 2"), sample) == (1, 1) else "Answer: 99"

    rows = prompts("aime", 4, reward_model={"ground_truth": "2"})
    config = RGDumpConfig(dump_failed_rollouts=False)
    with DumpWriter(tmp_path, "run", 1, config) as writer:
        if generator_class is RGDumpGenerator:
            generator = make(RGDumpGenerator, wrong, writer=writer)
        else:
            generator = Recorder(make(SkyRLGymGenerator, wrong), writer, tokenizer())
        output = asyncio.run(generator.generate(batch_of(rows)))
    assert [total(reward) for reward in output["rewards"]] == [-1.0, 1.0, -1.0, *[-1.0] * 9]
    lines = list(open_run(tmp_path).ledger())
    assert [line.outcome for line in lines] == ["mixed", *["all_failed"] * 3]
    assert [line.text_reason for line in lines] == ["", *["dump_failed_rollouts_off"] * 3]


class NoNumber(BaseTextEnv):
    """Pays what the response says: `nan`, `inf`, or a number."""

    def __init__(self, env_config=None, extras=None):
        super().__init__()

    def step(self, action):
        return BaseTextEnvStepOutput(observations=[], reward=float(action), done=True, metadata={})


@pytest.mark.parametrize("phase", ["train", "eval"])
@pytest.mark.parametrize("generator_class", [RGDumpGenerator, SkyRLGymGenerator])
@pytest.mark.parametrize("token_level", [True, False])
def test_a_reward_that_is_no_number_is_unscored(tmp_path, generator_class, token_level, phase, warnings):
    """In training, our generator masks it; a `Recorder` passes it on."""
    if "no_number" not in skyrl_gym.envs.registration.registry:
        skyrl_gym.register("no_number", entry_point=f"{__name__}:NoNumber")
    paid = ["nan", "0.5", "1.0", "inf", "0.25", "0.25", "nan", "-inf", "nan"]

    class Flat(generator_class):
        async def agent_loop(self, *args, **kwargs):
            output = await super().agent_loop(*args, **kwargs)
            if not token_level:
                output.reward = sum(output.reward)
            return output

    def script(prompt, sample):
        return paid[3 * next(n for n in range(3) if f"{n} + 2" in prompt) + sample]

    with DumpWriter(tmp_path, "run", 1) as writer:
        ours = generator_class is RGDumpGenerator
        generator = make(Flat, script, writer=writer) if ours else make(Flat, script)
        recorder = generator if ours else Recorder(generator, writer, tokenizer())
        for _ in range(2):
            output = asyncio.run(recorder.generate(batch_of(prompts("no_number", 3), phase)))
    groups = sorted(open_run(tmp_path).groups(), key=lambda group: (group.call, group.uid))[:3]
    statuses = [[rollout.status.value for rollout in group.rollouts] for group in groups]
    assert statuses == [["unscored", "ok", "ok"], ["unscored", "ok", "ok"], ["unscored"] * 3]
    assert [[rollout.masked for rollout in group.rollouts] for group in groups] == [
        [status == "unscored" for status in of_group] for of_group in statuses
    ]
    assert [(group.outcome, group.no_signal) for group in groups] == [
        ("mixed", False),
        ("mixed", True),
        ("mixed", True),
    ]
    assert math.isnan(groups[0].rollouts[0].base_score) and groups[0].rollouts[0].detail
    returned = [total(reward) for reward in output["rewards"]]
    finite = [*(0.75, 0.5, 1.0), *(0.25, 0.25, 0.25), *(0.0, 0.0, 0.0)]  # the mean of the others, 0 if there is none
    if phase == "train" and ours:
        assert returned == finite == [rollout.reward for group in groups for rollout in group.rollouts]
        assert [any(mask) for mask in output["loss_masks"]] == [not masked for masked in output["masked"]]
    else:
        assert list(map(repr, returned)) == [repr(float(number)) for number in paid]
        assert all(any(mask) for mask in output["loss_masks"])
    assert validate(tmp_path).good
    (said,) = [line for line in warnings if "not finite" in line]
    assert said.startswith(
        "5 of 9 rewards in a call are not finite numbers (no_number): recorded with the status unscored"
    )


def test_rows_of_rg_dump_bring_their_verdicts_under_any_generator(tmp_path):
    rows = ReasoningGymDataset(TASK, size=2)
    of_rg = rows.collate_fn([rows[0], rows[1]])
    answers = script_for(rows, right("{}"), right("no"), "no tags")

    def both(prompt, sample):
        return "#### 2" if "Be brief" in prompt else answers(prompt, sample)

    groups, raw, _ = recorded(tmp_path, [*of_rg, *prompts("gsm8k", 1)], script=both)
    assert [group.environment for group in groups] == ["rg_dump", "rg_dump", "gsm8k"]
    assert [rollout.base_score for rollout in groups[0].rollouts] == [1.0, 0.0, 0.0]
    assert groups[0].rollouts[2].violation == "no_think" and groups[0].item == rows.row(0)["extra_info"]["item"]
    assert [r.reward for g in groups for r in g.rollouts] == [total(reward) for reward in raw["rewards"]]


def test_our_generator_leaves_rows_of_others_as_skyrl_returns_them(tmp_path):
    """In a batch with its own, whose metrics are added."""
    rows = ReasoningGymDataset(TASK, size=1)
    answers = script_for(rows, right("{}"))

    def both(prompt, sample):
        return script(prompt, sample) if "Be brief" in prompt else answers(prompt, sample)

    others = prompts("gsm8k_multi_turn", 1)
    _, expected, _ = recorded(tmp_path / "stock", others, MULTI_TURN)
    with DumpWriter(tmp_path / "ours", "run", 1) as writer:
        ours = make(RGDumpGenerator, both, MULTI_TURN, writer=writer)
        output = asyncio.run(ours.generate(batch_of([*rows.collate_fn([rows[0]]), *others])))
    assert output["rewards"][SAMPLES:] == expected["rewards"]
    metrics = output["rollout_metrics"]
    assert metrics["environment/rg_dump/mean_solved"] == 1.0
    assert metrics["environment/avg_steps"] == expected["rollout_metrics"]["environment/avg_steps"] > 2
    groups = list(open_run(tmp_path / "ours").groups())
    assert [group.environment for group in groups] == ["rg_dump", "gsm8k_multi_turn"]
    joined = concatenate_generator_outputs([output, copy.deepcopy(output)])
    assert joined["group_ids"] == [group.group_id for group in groups for _ in range(SAMPLES)] * 2


class Returning(GeneratorInterface):
    """Returns what it is told to."""

    def __init__(self, **output):
        self.output = output

    async def generate(self, input_batch):
        count = len(input_batch["prompts"])
        ids = [tokenizer().encode("hello")] * count
        basis = {"prompt_token_ids": ids, "response_ids": ids, "rewards": [1.0] * count}
        return basis | {"loss_masks": [[1] * len(row) for row in ids], "stop_reasons": None} | self.output


def given(ids=True):
    names = [TrajectoryID("a", 0), TrajectoryID("a", 1)]
    message = [{"role": "user", "content": "?"}]
    batch = {"prompts": [message] * 2, "env_classes": ["mine"] * 2, "env_extras": None, "sampling_params": None}
    return batch | {"trajectory_ids": names if ids else None, "batch_metadata": BatchMetadata(1, "train")}


def test_a_generator_of_ones_own_is_recorded(tmp_path):
    generator = Returning(rewards=[0.25, 0.75])
    generator.writer = "its own, of TensorBoard"
    with DumpWriter(tmp_path, "run", 1) as writer:
        recorder = Recorder(generator, writer, tokenizer())
        asyncio.run(recorder.generate(given(), disable_tqdm=True))
    (group,) = open_run(tmp_path).groups()
    assert [rollout.score for rollout in group.rollouts] == [0.25, 0.75]
    assert group.rollouts[0].response == "hello" and group.started_at is None and group.task == "mine"


@pytest.mark.parametrize(
    ("output", "ids", "error"),
    [
        ({}, False, "neither the trainer nor the generator gave `trajectory_ids`"),
        ({"is_last_step": [False, True]}, True, "returned 1 rollouts for 2 prompts"),
        ({"trajectory_ids": [TrajectoryID("a", 1), TrajectoryID("a", 0)]}, True, "in another position"),
    ],
)
def test_an_output_that_cannot_be_recorded_is_one_line(output, ids, error):
    with pytest.raises(RGEnvError, match=error) as raised:
        asyncio.run(Recorder(Returning(**output), None, tokenizer()).generate(given(ids)))
    assert "\n" not in str(raised.value)


def test_wrong_use_is_one_line(tmp_path):
    recorder = Recorder(Returning(), None, tokenizer())
    with pytest.raises(ConfigError, match="needs the policy's tokenizer"):
        Recorder(Returning(), None, None)
    with pytest.raises(ConfigError, match="records already"):
        Recorder(recorder, None, tokenizer())

    class Wrapping(GeneratorInterface):
        async def generate(self, input_batch, disable_tqdm=False):
            return await recorder.generate(input_batch, disable_tqdm)

    with pytest.raises(RGEnvError, match="the groups of this batch are recorded already"):
        asyncio.run(Recorder(Wrapping(), None, tokenizer()).generate(given()))
