from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rg_env.cli.options import DumpPaths, JsonFlag
from rg_env.output import counted, print_json, print_line


def tokens(
    paths: DumpPaths,
    step: Annotated[int | None, typer.Option(min=1, help="Only this step.")] = None,
    worst: Annotated[int, typer.Option(min=0, help="Sequences to show of each step.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """Check the token records of training steps, which `dump_tokens` writes.

    Shows how far the log probabilities of engine and trainer differ, which sequences differ most, and which share of
    tokens was not trained on. Computes the advantages of grpo, rloo and reinforce++ again from the recorded rewards.

    Exit code 1 if advantages do not follow from the rewards.

    Examples:
      rg-env dumps tokens runs/quickstart/dumps
      rg-env dumps tokens runs/quickstart/dumps --step 12 --worst 10
    """
    from rg_env.analysis.tokens import find_tokens, read_step
    from rg_env.dump.read.dump import open_run
    from rg_env.errors import DumpError

    found = [read_step(file, worst) for file in find_tokens(paths, None if step is None else range(step, step + 1))]
    wrong = sum(len(one.wrong) for one in found)
    if as_json:
        print_json([asdict(one) | {"file": str(one.file.path), "step": one.file.step} for one in found])
        raise typer.Exit(int(wrong > 0))
    ids = {row["group_id"] for one in found for row in one.worst}
    try:
        texts = {group.group_id: group for group in open_run(*paths).groups(ids=ids)} if ids else {}
    except DumpError:
        texts = {}
    for one in found:
        size = f"{counted(one.rows, 'sequence')}, {counted(one.tokens, 'token')}"
        print_line(f"step {one.file.step}: {size}, {one.masked:.1%} not trained on")
        if one.mean is None:
            print_line("  log probabilities of engine and trainer were not both recorded")
        else:
            print_line(f"  |trainer - engine|: mean {one.mean:.3g}, max {one.largest:.3g}")
            print_line(f"  by position: {_positions(one.by_position)}; outside of the clip range: {one.outside:.2%}")
        for row in one.worst:
            print_line(f"  mean {row['mean']:.3g}, max {row['largest']:.3g}: {row['group_id']}, {row['repetition']}")
            rollouts = texts[row["group_id"]].rollouts if row["group_id"] in texts else ()
            for text in (rollout.transcript() for rollout in rollouts if rollout.repetition == row["repetition"]):
                print_line(f"    {text[:200]!r}")
        for fault in one.wrong[:5]:
            print_line(f"  advantage off by {fault['difference']:.3g}: {fault['group_id']}, {fault['repetition']}")
        if not one.recomputed:
            print_line(f"  advantages ({one.estimator}): not recomputed")
        else:
            print_line(
                f"  advantages ({one.estimator}): {f'{len(one.wrong)} differ' if one.wrong else 'as computed again'}"
            )
    raise typer.Exit(int(wrong > 0))


def _positions(means: dict[int, float]) -> str:
    return ", ".join(f"{start}+ {mean:.3g}" for start, mean in means.items())
