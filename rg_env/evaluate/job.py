"""What an evaluation or collection is to ask, of which model, and the plan by which it is continued.

Invariant: what determines the groups is in the plan, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rg_env.configuration.config import RGDumpConfig
from rg_env.configuration.settings import without_free
from rg_env.evaluate.endpoint import RequestLimits, Responder, Sampling
from rg_env.evaluate.suites import Questions
from rg_env.rows.templates import Opening


@dataclass(frozen=True)
class EndpointOptions:
    """How to reach a model, and what to ask of it.

    Attributes:
        url: of a running server; None: one is started on this machine.
        model: the server's name for the model, or its folder.
        name: of the model in the manifest.
        server_options: further arguments of the server that is started.
        request: further fields of every request.
        opening: how the rendered prompts end; None: unknown.
        local: makes what responds in this process, in place of a server.
        is_own: this process started the server at `url`.
    """

    url: str | None
    model: str
    name: str
    sampling: Sampling
    limits: RequestLimits
    server_options: Sequence[str] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    opening: Opening | None = None
    local: Callable[[Sampling], Responder] | None = None
    is_own: bool = False


@dataclass(frozen=True)
class Job:
    """A collection or an evaluation.

    Attributes:
        command: `collect`, which records groups of phase train, or `eval`.
        samples: responses to each question.
        config: our settings, complete; the dump is written to `dump_dir`.
    """

    command: str
    questions: Questions
    samples: int
    config: RGDumpConfig
    options: EndpointOptions

    @property
    def folder(self) -> Path:
        return Path(self.config.dump_dir)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What determines the groups, as JSON: a run is continued with the same plan only."""
        # The request is there if it is empty, too: a later one that is not is a difference.
        sampling = {**asdict(self.options.sampling), "request": self.options.request}
        plan = {
            "command": self.command,
            "model": self.options.model,
            "groups": len(self.questions),
            "samples": self.samples,
            "sampling": sampling,
            "questions": self.questions.facts,
            "config": without_free(self.config),
        }
        # As it comes back from the manifest, with which `--resume` compares it: lists for tuples, text for enums.
        return dict(json.loads(json.dumps(plan, default=str)))
