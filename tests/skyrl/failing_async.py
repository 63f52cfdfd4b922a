"""A supervised run of the fully asynchronous loop in which a rollout raises: its argument is the folder."""

import sys
from pathlib import Path

from rg_env.base.errors import ScorerPoolError
from rg_env.terminal.reports import Reports
from rg_env.terminal.screen import Screen
from rg_env.terminal.supervisor import supervise


def work():
    from tests.skyrl.scripted_training import FULLY_ASYNC, build, train

    trainer = build(Path(sys.argv[1]), **FULLY_ASYNC)
    trainer.reports = Reports.of_this_process()
    generate = trainer.generator.generate

    async def generate_then_fail(*args, **kwargs):
        if trainer.generated:
            raise ScorerPoolError("the scorer processes are gone")
        return await generate(*args, **kwargs)

    trainer.generator.generate = generate_then_fail
    train(trainer)


if __name__ == "__main__":
    screen = Screen("train")
    code = supervise(work, screen)
    screen.end(code, [])
    sys.exit(code)
