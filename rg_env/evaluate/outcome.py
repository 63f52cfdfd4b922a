"""How far an evaluation or collection got, and how it ended.

`Totals` counts an attempt; `Answers` is what the ledger has, over all attempts; `Finished` is both, with the exit code.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rg_env.base.errors import MissingGroupsError, RGEnvError, one_line
from rg_env.dump.entry import open_run_of
from rg_env.dump.schema import LedgerRecord, answered
from rg_env.evaluate.endpoint import Reply
from rg_env.evaluate.job import Job
from rg_env.rollouts.rollout import Rollout
from rg_env.scoring import Status
from rg_env.scoring.file_scorers import WHY_UNREAD


@dataclass(slots=True)
class Totals:
    """What an attempt has done so far.

    Attributes:
        groups: questions that were asked to the end.
        missing: groups that could not be written.
        answered, solved: responses of finished groups, and those of them with at least `solved_at`.
        responses, failures: requests that were answered, and that failed for good; `last_failure` says why.
        uncounted: responses whose tokens the server did not count.
        reasoning_apart, think_opened: see `Reply`.
        unread: answers that the scorer of their file could not read, by its reason.
        unanswered_in_succession: the last groups, all without any answer.
    """

    groups: int = 0
    missing: int = 0
    answered: int = 0
    solved: int = 0
    responses: int = 0
    failures: int = 0
    last_failure: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    reasoning_apart: int = 0
    think_opened: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    unanswered_in_succession: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def is_over(self, limit: int | None) -> bool:
        """Return whether a budget of tokens is used up."""
        return limit is not None and self.tokens >= limit

    def add(self, reply: Reply) -> None:
        if reply.failure is not None:
            self.failures += 1
            self.last_failure = reply.failure
            return
        self.responses += 1
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        self.uncounted += reply.completion_tokens is None
        self.reasoning_apart += reply.reasoning_apart
        self.think_opened += reply.think_opened

    def add_group(self, rollouts: Sequence[Rollout], solved_at: float) -> None:
        """Count the new rollouts of a group."""
        responded = [rollout for rollout in rollouts if rollout.responded]
        self.groups += 1
        self.answered += len(responded)
        self.solved += sum(rollout.verdict.scored.score >= solved_at for rollout in responded)
        for rollout in responded:
            scored = rollout.verdict.scored
            if scored.status is Status.OK and scored.detail in WHY_UNREAD.values():
                self.unread[scored.detail] += 1
        self.unanswered_in_succession = 0 if responded else self.unanswered_in_succession + 1


@dataclass(frozen=True)
class Answers:
    """What the dump of a run has, over all attempts.

    Attributes:
        complete: the numbers of the questions with a response to every request.
        partial: the groups that lost some, by the number of their question.
        responses: rollouts with a response.
    """

    complete: frozenset[int] = frozenset()
    partial: Mapping[int, LedgerRecord] = field(default_factory=dict)
    responses: int = 0

    @property
    def groups(self) -> int:
        """The number of questions with any response."""
        return len(self.complete) + len(self.partial)

    @classmethod
    def of_run(cls, folder: Path, run_id: str) -> Answers:
        """Count what the ledger has."""
        complete: set[int] = set()
        partial: dict[int, LedgerRecord] = {}
        responses = 0
        for group in open_run_of(folder, run_id).ledger():
            rollouts = group.rollouts
            count = len(answered(rollouts))
            responses += count
            if count == len(rollouts):
                complete.add(group.call)
            else:
                partial[group.call] = group
        return cls(frozenset(complete), partial, responses)


@dataclass(frozen=True)
class Finished:
    """How a job ended.

    Attributes:
        totals: of this attempt; `answers`: of all.
        signum: the signal that stopped it; `error`: what did, after some requests had been answered.
    """

    job: Job
    run_id: str
    totals: Totals
    answers: Answers
    signum: int | None = None
    error: RGEnvError | None = None

    @property
    def planned(self) -> int:
        """The number of all responses that the job wants."""
        return len(self.job.questions) * self.job.samples

    @property
    def is_complete(self) -> bool:
        return len(self.answers.complete) == len(self.job.questions)

    @property
    def out_of_tokens(self) -> bool:
        return self.totals.is_over(self.job.options.limits.max_tokens_total) and not self.is_complete

    @property
    def was_stopped(self) -> bool:
        """Whether something ended it before all requests were sent."""
        return bool(self.out_of_tokens or self.signum is not None or self.error)

    @property
    def end(self) -> str:
        """How it ended, for the manifest."""
        if self.signum is not None:
            return f"stopped by {signal.Signals(self.signum).name}"
        if self.error:
            return f"failed: {one_line(self.error)}"
        if self.out_of_tokens:
            return "stopped at --max-tokens-total"
        return "finished" if self.is_complete else "finished, responses are missing"

    @property
    def exit_code(self) -> int:
        """0; 1 if a response is missing; 3 if groups could not be written; 128 + N after signal N."""
        if self.signum is not None:
            return 128 + self.signum
        if self.totals.missing:
            return MissingGroupsError.exit_code
        return 0 if self.is_complete and not self.error else 1
