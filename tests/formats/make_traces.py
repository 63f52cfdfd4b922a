"""Writes three files in the environment of verifiers 0.4: `files/verifiers/traces.jsonl` with its classes and its
writer; `files/vf-eval/traces.jsonl` with its command, which asks a scripted server the questions of `make_files`; and
`files/atif` with Harbor's classes.

    .venv-verifiers/bin/python -m tests.formats.make_traces
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harbor.models.trajectories import (
    Agent,
    ContentPart,
    FinalMetrics,
    ImageSource,
    Observation,
    ObservationResult,
    Step,
    Trajectory,
)
from harbor.models.trajectories import ToolCall as HarborCall
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, Episode, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, Error, ModelCall, Reward, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from verifiers.v1.utils.trace_store import write_episode

from tests.evaluate.server import Answer, completion, serving

FILES = Path(__file__).parent / "files"
TASKS = {"spell_backward": {"weight": 1, "config": {"min_word_len": 3, "max_word_len": 5}}}


def trace(task: TraceTask, replies: list[AssistantMessage], **changes) -> Trace:
    nodes = [MessageNode(message=UserMessage(content="What is 1+1?"))]
    calls = []
    for number, reply in enumerate(replies):
        nodes.append(MessageNode(parent=len(nodes) - 1, message=reply, sampled=True))
        usage = Usage(prompt_tokens=9, completion_tokens=5)
        calls.append(ModelCall(node=len(nodes) - 1, finish_reason="length" if number else "stop", usage=usage))
        if reply.tool_calls:
            message = ToolMessage(tool_call_id=reply.tool_calls[0].id, content="2")
            nodes.append(MessageNode(parent=len(nodes) - 1, message=message))
    agent = AgentInfo(config=WireAgentConfig())
    return Trace(task=task, agent=agent, nodes=nodes, calls=calls, is_completed=True, **{"ok": True, **changes})


def with_classes() -> None:
    """Two rollouts of a group and one without, of which one has tools and two turns, one failed."""
    folder = FILES / "verifiers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traces.jsonl").unlink(missing_ok=True)
    task = TraceTask(type="Sums", data=WireTaskData(id="sum-1", name="sums", answer="2"), key="sum-1")
    run = TrainRunInfo(id="r", work=TrainWorkInfo(step=7, policy=PolicySpan(start=6, end=7)))
    call = ToolCall(id="c", name="add", arguments='{"a": 1}')
    two = [AssistantMessage(reasoning_content="Hm.", tool_calls=[call]), AssistantMessage(content="It is 2")]
    traces = [
        trace(
            task,
            [AssistantMessage(content="2")],
            rewards={"right": Reward(score=1), "short": Reward(score=1, weight=0.5)},
        ),
        trace(task, two, rewards={"right": Reward(score=0)}),
        trace(
            task,
            [AssistantMessage(content="3")],
            ok=False,
            rewards={"right": None},
            errors=[Error(type="E", message="m")],
        ),
    ]
    for number, each in enumerate(traces):
        group = GroupInfo(id="g") if number < 2 else None
        write_episode(
            folder, Episode(env=EnvInfo(id="sums"), task=task, group=group, run=run, ok=each.ok, traces=[each])
        )


def with_vf_eval() -> None:
    """Two rollouts of each of four questions: right and wrong ones, one without the format, one truncated."""

    def reply(number: int, body: dict[str, Any]) -> Answer:
        answer = body["messages"][-1]["content"].rpartition(" ")[2][::-1] if number in (0, 3, 4, 5, 6) else "b"
        text = answer if number == 6 else f"<think>I spell.</think><answer>{answer}</answer>"
        return completion(text, finish="length" if number == 7 else "stop")

    with tempfile.TemporaryDirectory() as folder, serving(reply) as server:
        options = f"-m nano --client.base-url {server.url}/v1 -n 4 -r 2 -c 1 --no-push --no-rich".split()
        questions = ("split", "eval"), ("seed", "42"), ("tasks", json.dumps(TASKS))
        options += [word for name, value in questions for word in (f"--env.taskset.{name}", value)]
        subprocess.run(
            [Path(sys.executable).with_name("vf-eval"), "rg-env-verifiers", *options], cwd=folder, check=True
        )
        (saved,) = Path(folder).rglob("traces.jsonl")
        (FILES / "vf-eval").mkdir(exist_ok=True)
        (FILES / "vf-eval" / "traces.jsonl").write_text(saved.read_text().replace(str(Path.home()), "~"))


def with_harbor() -> None:
    """A trajectory with an image, a tool and two steps of the agent: once without a reward, once with one."""
    image = ContentPart(type="image", source=ImageSource(media_type="image/png", path="a.png"))
    steps = [
        Step(step_id=1, source="user", message="What?"),
        Step(
            step_id=2,
            source="agent",
            message=[ContentPart(type="text", text="I look."), image],
            reasoning_content="Where?",
            tool_calls=[HarborCall(tool_call_id="1", function_name="ls", arguments={"path": "/"})],
            observation=Observation(results=[ObservationResult(source_call_id="1", content="bin")]),
        ),
        Step(step_id=3, source="agent", message="Done."),
    ]
    metrics = FinalMetrics(total_completion_tokens=12)
    for name, extra in {"1": None, "2": {"reward": 0.5}}.items():
        document = Trajectory(agent=Agent(name="a", version="1"), steps=steps, final_metrics=metrics, extra=extra)
        (FILES / "atif" / name).mkdir(parents=True, exist_ok=True)
        (FILES / "atif" / name / "trajectory.json").write_text(json.dumps(document.to_json_dict(), indent=2) + "\n")


if __name__ == "__main__":
    with_harbor()
    with_classes()
    with_vf_eval()
