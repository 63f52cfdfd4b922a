"""Tries public threads about verifiers that hang, and makes the tables of evidence/hangs.md.

    python evidence/hangs.py threads /tmp/hangs
    python evidence/hangs.py zeros 2000

`threads` installs the released packages without their dependencies into a throwaway environment (a folder) and calls
each thread's function twice with the thread's input: as released, in a process that is killed after 30 seconds, and
through `guarded`. `zeros` scores right answers by released functions and by ours while other processes keep the
machine busy. Both write into the page. Inputs that run code or never end are not here.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from rg_env import ReasoningGymDataset
from rg_env.scoring import guarded

PAGE = Path(__file__).with_suffix(".md")
PACKAGES = ["verl==0.9.1", "torchtitan==0.3.0", "verifiers==0.1.14", "colorlog", "tenacity"]
KILLED_AFTER = 30
TASKS = ["chain_sum", "decimal_arithmetic", "fraction_simplification", "gcd", "polynomial_multiplication", "products"]
SCORERS = {
    "math_verify": "Math-Verify 0.9.0, its own timeouts",
    "trl": "TRL 1.16.0, `accuracy_reward`",
    "plain": "`guarded`, Math-Verify without its timeouts",
}


def series(terms: int) -> str:
    """The test of NeMo Gym#1354 has 800 terms. It is 0."""
    return rf"\frac{{x^{{{terms}}}-1}}{{x-1}}-({'+'.join(f'x^{{{power}}}' for power in range(terms))})"


TEXTS = {
    "garbled": "{@Neillier 1276915 4951077 ник增高人权 国 {1,1-3-10鼓励不停);5个_GENERAL2全校。 _HEADERS1 Orchestra}",
    "series": series(800),
    "digits": "1" * 100_000,
    "third": r"\frac{1}{3}",
    "percent": r"7.41\%",
}
CASES = r"""
Math-Verify#65, comment | `verify` of a number and a garbled text | compared | compared | garbled | 7
Math-Verify#55 | a right answer, in a thread | math_verify in a thread | plain | third | third
Math-Verify#50 | `7.41\%`, right, in a thread | math_verify in a thread | plain | percent | percent
TRL#5281 | its example, right, in a thread | trl in a thread | trl | third | third
verl#5635 | a right answer, in a thread | verl in a thread | verl_alone | third | third
torchtitan#4346 | a right answer, in a thread | torchtitan in a thread | torchtitan | 34 | 34
verifiers#831 | its test: 100 000 digits, right | verifiers | verifiers_alone | digits | digits
NeMo Gym#1354 | its test: a series of 800 terms, right | metric | plain | series | 0
"""
"""Thread, input, function as released, function behind `guarded`, response, right answer."""


def load(module: str, *bare: str) -> Any:
    """Import one file of a released package, with empty packages in place of those that would import a trainer."""
    for name in bare:
        if name not in sys.modules:
            sys.modules[name] = package = ModuleType(name)
            package.__path__ = [str(Path(folder, *name.split("."))) for folder in sys.path]
            for base in ("Rollout", "RewardFn", "DapoMathSample"):  # of classes in the file that are not used here
                setattr(package, base, type(base, (), {"Config": object}))
    return importlib.import_module(module)


def compared(response: str, gold: str) -> float:
    return float(load("math_verify").verify([4951077, response], [92.5857658508735, "92.5857658508735"]))


def math_verify(response: str, gold: str) -> float:
    package = load("math_verify")
    return float(package.verify(package.parse(f"${gold}$"), package.parse(rf"\boxed{{{response}}}")))


def plain(response: str, gold: str) -> float:
    """Math-Verify without its own timeouts."""
    package = load("math_verify")
    logging.disable()
    right = package.parse(f"${gold}$", parsing_timeout=None)
    answer = package.parse(rf"\boxed{{{response}}}", parsing_timeout=None)
    return float(package.verify(right, answer, timeout_seconds=None))


def metric(response: str, gold: str) -> float:
    package, parser = load("math_verify.metric"), load("math_verify.parser")
    latex = parser.LatexExtractionConfig()
    scorer = package.math_metric((latex,), (parser.ExprExtractionConfig(), latex))
    return float(scorer([rf"\boxed{{{gold}}}"], [rf"\boxed{{{response}}}"])[0])


def trl(response: str, gold: str) -> float:
    completions = [[{"role": "assistant", "content": rf"\boxed{{{response}}}"}]]
    return float(load("trl.rewards").accuracy_reward(completions, [f"${gold}$"])[0])  # TypeError for its None


def verl(response: str, gold: str) -> float:
    package = load("verl.utils.reward_score.math_verify", "verl", "verl.utils", "verl.utils.reward_score")
    return float(package.compute_score(rf"\boxed{{{response}}}", gold, timeout=20))


def verl_alone(response: str, gold: str) -> float:
    """Without verl's own processes."""
    package = load("verl.utils.reward_score.math_verify", "verl", "verl.utils", "verl.utils.reward_score")
    return float(package._verify_in_subprocess(rf"\boxed{{{gold}}}", rf"\boxed{{{response}}}"))


def torchtitan(response: str, gold: str) -> float:
    recipe = "torchtitan.experiments.rl"
    bare = ["torchtitan", "torchtitan.experiments", recipe, f"{recipe}.examples", f"{recipe}.examples.dapo_math"]
    bare += [f"{recipe}.rollout", f"{recipe}.rubrics", f"{recipe}.examples.dapo_math.data"]
    package = load(f"{recipe}.examples.dapo_math.rubric", *bare)
    return float(package.score_math_response(f"work\nAnswer: ${response}$", gold))


def verifiers(response: str, gold: str) -> float:
    rubric = load("verifiers.rubrics.math_rubric").MathRubric(max_workers=1, max_verify_chars=200_000)
    completion = [{"role": "assistant", "content": rf"\boxed{{{response}}}"}]
    return float(asyncio.run(rubric.correct_answer(rubric.parser, completion, gold)))


def verifiers_alone(response: str, gold: str) -> float:
    """Without verifiers' own processes and timeout."""
    package = load("verifiers.rubrics.math_rubric")
    return float(package.verify_response(response, gold, 200_000, None)[0])


def call(name: str, response: str, gold: str) -> str:
    """Call the function in this process; say what it returned or raised, and in how many seconds."""
    function, _, thread = name.partition(" in a ")
    began = time.monotonic()
    try:
        with ThreadPoolExecutor(1) if thread else nullcontext() as executor:
            scorer = globals()[function]
            value = executor.submit(scorer, response, gold).result() if executor else scorer(response, gold)
        result = f"{value:g}"
    except BaseException as error:
        result = type(error).__name__
    return f"{result}, {time.monotonic() - began:.1f} s"


def call_released(*arguments: str) -> str:
    """`call` in a process that is killed with its children."""
    process = subprocess.Popen(
        [sys.executable, __file__, "call", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    timer = threading.Timer(KILLED_AFTER, os.killpg, [process.pid, signal.SIGKILL])
    timer.start()
    line = process.stdout.readline().strip() if process.stdout else ""
    timer.cancel()
    os.killpg(process.pid, signal.SIGKILL)  # what it started may hang, too
    process.wait()
    return line or f"**killed after {KILLED_AFTER} s**"


def call_ours(name: str, response: str, gold: str) -> str:
    """What becomes of the same input behind `guarded`."""
    with guarded(f"hangs:{name}", workers=1) as scorer:
        scorer.score("1", "1")  # imports the package
        began = time.monotonic()
        score = scorer.score(TEXTS.get(response, response), TEXTS.get(gold, gold))
        value = f"`{score.status}`" if score.value is None else f"{score.value:g}"
        return f"{value}, {time.monotonic() - began:.1f} s"


def table_of_threads(folder: Path) -> str:
    uv = ["bash", str(Path(__file__).with_name("uv.sh"))]
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "--quiet", "--no-deps", "--python", python, *PACKAGES], check=True)
    sys.path.extend(map(str, folder.glob("lib/python*/site-packages")))
    lines = ["| thread | input | as released | here |", "|---|---|---|---|"]
    for case in CASES.strip().splitlines():
        thread, text, released, ours, response, gold = case.split(" | ")
        cells = [thread, text, call_released(released, response, gold), call_ours(ours, response, gold)]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def right_answers(count: int) -> list[tuple[str, str]]:
    """Responses and gold answers that Math-Verify finds equal when nothing stops it."""
    dataset = ReasoningGymDataset(TASKS, size=10**9, seed=39)
    answers = (str(dataset.item(index).entry["answer"]) for index in itertools.count())
    return list(itertools.islice(((answer, answer) for answer in answers if plain(answer, answer) == 1.0), count))


def count_scores(name: str, answers: list[tuple[str, str]]) -> Counter[str]:
    """How often a function scores right answers 1, 0 or not at all. `guarded` ones are called for `plain`."""
    counts: Counter[str] = Counter()
    with guarded("hangs:plain") as scorer:
        for response, gold in answers:
            try:
                value = scorer.score(response, gold).value if name == "plain" else globals()[name](response, gold)
            except BaseException:
                value = None
            counts["no value" if value is None else "right" if value == 1.0 else "zero"] += 1
    return counts


def score_in_process(name: str, answers: list[tuple[str, str]]) -> str:
    """The row of a scorer in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, __file__, "score", name]
    done = subprocess.run(command, input=json.dumps(answers), capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout.splitlines()[-1])
    cells = [SCORERS[name], *(counts.get(key, 0) for key in ("right", "zero", "no value"))]
    return f"| {' | '.join(map(str, cells))} | {time.monotonic() - began:.0f} |"


def table_of_zeros(count: int) -> str:
    easy = right_answers(count)
    slow = [(series(terms), "0") for terms in range(300, 324)]
    lines = ["| scored by | 1 | 0 | not scored | seconds |", "|---|---|---|---|---|"]
    print(f"load {os.getloadavg()[0]:.0f} before the busy processes start", flush=True)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        for answers, title in (easy, f"{count:,} answers of tasks"), (slow, f"{len(slow)} answers of 300 to 323 terms"):
            lines.append(f"| **{title}** | | | | |")
            with ThreadPoolExecutor(len(SCORERS)) as threads:
                lines += threads.map(score_in_process, SCORERS, itertools.repeat(answers))
            print(f"load {os.getloadavg()[0]:.0f}", *lines, sep="\n", flush=True)
    finally:
        for process in busy:
            process.kill()
    return "\n".join(lines)


def write(name: str, table: str) -> None:
    """Put the table between its marks in the page."""
    marks = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
    PAGE.write_text(marks.sub(lambda match: f"{match[1]}{table}\n{match[2]}", PAGE.read_text()))


def main() -> None:
    match sys.argv[1:]:
        case ["threads", folder]:
            write("threads", table_of_threads(Path(folder)))
        case ["zeros", count]:
            write("zeros", table_of_zeros(int(count)))
        case ["call", name, response, gold]:
            print(call(name, TEXTS.get(response, response), TEXTS.get(gold, gold)), flush=True)
        case ["score", name]:
            print(json.dumps(count_scores(name, json.load(sys.stdin))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
