"""Writes `files/verifiers/traces.jsonl` with the classes and the writer of verifiers 0.4, in its environment:

.venv-verifiers/bin/python -m tests.formats.make_traces
"""

from __future__ import annotations

from pathlib import Path

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, Episode, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, Error, ModelCall, Reward, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from verifiers.v1.utils.trace_store import write_episode

FOLDER = Path(__file__).parent / "files" / "verifiers"


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


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "traces.jsonl").unlink(missing_ok=True)
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
            FOLDER, Episode(env=EnvInfo(id="sums"), task=task, group=group, run=run, ok=each.ok, traces=[each])
        )


if __name__ == "__main__":
    main()
