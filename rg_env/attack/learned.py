"""Rules that a policy learns by heart from items with their answers, without solving any question.

Two kinds of rule: one answer where a count of the question, or a ratio of two, is above a threshold, and another answer
elsewhere; and the answer of the most similar question that is known. Counted are words, signs such as `++`, and pairs
of words such as `1 1`.

Invariant: a rule sees only the question; all else comes from the known items. Rules are fitted on them, so that only
other items say how often they are right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rg_env.attack.attacks import Attack
from rg_env.scoring.formatting import canonical

Columns = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""A row for each count or ratio, a column for each question."""

_MOST_COUNTS = 80
"""Words and signs that are counted: those that most questions differ in."""
_MOST_CLASSES = 6
"""The commonest answers, one of which a rule gives."""
_COMPARED = 2000
"""Characters at the end of a question by which it is similar to others: what comes before is often the same."""
_TOKEN = re.compile(r"\w+|[^\w\s]{1,2}")
_PAIR = re.compile(r"(?<!\S)(?=(\S{1,10} \S{1,10})(?!\S))")


class Count(NamedTuple):
    """Something that is counted in a question."""

    name: str
    of: Callable[[str], float]


def learned_rules(questions: Sequence[str], answers: Sequence[str]) -> list[Attack]:
    """Fit the best rule of one count, the best of a ratio of two, and the most similar question.

    Args:
        questions, answers: of the known items, at least one.
    """
    rules = [_most_similar(questions, answers)]
    counts = counts_of(questions)
    values = _values(counts, questions)
    canonical_answers = [canonical(answer) for answer in answers]
    # The best threshold of all counts, then the best of all ratios.
    for name_of, columns, function_of in (_single(counts, values), _ratios(counts, values)):
        split = _best_split(columns, canonical_answers)
        if split is None:
            continue
        above = _spelling_of(split.above, answers)
        below = _spelling_of(split.below, answers)
        count = function_of(split.row)
        name = f"`{above}` if {name_of(split.row)} is above {split.threshold:.4g}, else `{below}`"
        rules.append(Attack(name, _threshold_rule(count, split.threshold, above, below)))
    return rules


def _most_similar(questions: Sequence[str], answers: Sequence[str]) -> Attack:
    known = [_trigrams(question) for question in questions]

    def answer(question: str) -> str:
        trigrams = _trigrams(question)
        likeness = []
        for other in known:
            # Jaccard's index of the two sets of trigrams.
            likeness.append(len(trigrams & other) / max(1, len(trigrams | other)))
        return answers[likeness.index(max(likeness))]

    return Attack(f"the answer to the most similar of {len(known)} questions", answer)


def _trigrams(question: str) -> frozenset[str]:
    text = question[-_COMPARED:]
    return frozenset(text[start : start + 3] for start in range(max(1, len(text) - 2)))


def _threshold_rule(of: Callable[[str], float], threshold: float, above: str, below: str) -> Callable[[str], str]:
    def answer(question: str) -> str:
        if of(question) > threshold:
            return above
        return below

    return answer


def _spelling_of(text: str, answers: Sequence[str]) -> str:
    """Return the first answer of the items with this canonical form."""
    return next(answer for answer in answers if canonical(answer) == text)


# -- counts


def counts_of(questions: Sequence[str]) -> list[Count]:
    """Return what is worth counting in the questions of a task: what is not equally often in all of them."""
    tokens = [Counter([*_TOKEN.findall(question), *_PAIR.findall(question)]) for question in questions]
    varying: Counter[str] = Counter()
    # How many questions differ from the commonest number of a token.
    for token in set().union(*tokens):
        times = Counter(of_question[token] for of_question in tokens)
        varying[token] = len(questions) - times.most_common(1)[0][1]
    chosen = [token for token, number in varying.most_common(_MOST_COUNTS) if number > 0]
    counts = [Count(f"the number of `{token}`", _function_of(token)) for token in chosen]
    return [*counts, *_MEASURES]


def _function_of(token: str) -> Callable[[str], float]:
    pattern = None
    # Pairs and words as a whole; of signs, every occurrence. Pairs overlap: `1 1 1` has two.
    if " " in token:
        pattern = re.compile(rf"(?<!\S)(?={re.escape(token)}(?!\S))")
    elif re.fullmatch(r"\w+", token):
        pattern = re.compile(rf"\b{re.escape(token)}\b")
    if pattern is not None:
        return lambda question: len(pattern.findall(question))
    return lambda question: question.count(token)


def _numbers(question: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d{1,15}", question)]


def _count_words(question: str) -> int:
    return len(question.split())


def _count_different_words(question: str) -> int:
    return len(set(question.split()))


def _count_lines(question: str) -> int:
    return question.count("\n") + 1


def _count_numbers(question: str) -> int:
    return len(_numbers(question))


def _largest_number(question: str) -> float:
    return max(_numbers(question), default=0.0)


def _sum_of_numbers(question: str) -> float:
    return sum(_numbers(question))


def _count_zeros(question: str) -> int:
    return question.count("0")


def _count_ones(question: str) -> int:
    return question.count("1")


_MEASURES = [
    Count("the length", len),
    Count("the number of words", _count_words),
    Count("the number of different words", _count_different_words),
    Count("the number of lines", _count_lines),
    Count("the number of numbers", _count_numbers),
    Count("the largest number", _largest_number),
    Count("the sum of the numbers", _sum_of_numbers),
    Count("the number of digits 0", _count_zeros),
    Count("the number of digits 1", _count_ones),
]


def _values(counts: Sequence[Count], questions: Sequence[str]) -> Columns:
    rows = []
    for count in counts:
        rows.append([count.of(question) for question in questions])
    return np.array(rows, dtype=np.float64)


class _Candidates(NamedTuple):
    """Values to be split by a threshold, and by row the name and the function of a question that gave them."""

    name_of: Callable[[int], str]
    columns: Columns
    function_of: Callable[[int], Callable[[str], float]]


def _single(counts: Sequence[Count], values: Columns) -> _Candidates:
    """Return the counts themselves."""
    return _Candidates(lambda row: counts[row].name, values, lambda row: counts[row].of)


def _ratios(counts: Sequence[Count], values: Columns) -> _Candidates:
    """Divide every count by every other, plus one, since the other may be 0."""
    size = len(counts)
    # All ordered pairs of counts, less those of a count with itself.
    first, second = np.divmod(np.arange(size * size), size)
    different = first != second
    first, second = first[different], second[different]
    columns = values[first] / (values[second] + 1)

    def name(row: int) -> str:
        return f"{counts[first[row]].name} by {counts[second[row]].name} + 1"

    def of(row: int) -> Callable[[str], float]:
        above, below = counts[first[row]].of, counts[second[row]].of
        return lambda question: above(question) / (below(question) + 1)

    return _Candidates(name, columns, of)


# -- thresholds


class _Split(NamedTuple):
    """The best threshold: of a row, with an answer above it and one below."""

    row: int
    threshold: float
    above: str
    below: str


def _best_split(columns: Columns, answers: Sequence[str]) -> _Split | None:
    """Find the best threshold of all rows; None if none is better than one answer for all."""
    classes = [text for text, _ in Counter(answers).most_common(_MOST_CLASSES)]
    order = np.argsort(columns, axis=1, kind="stable")
    ordered = np.take_along_axis(columns, order, axis=1)
    texts = np.array(answers, dtype=object)
    is_class = np.array([texts == text for text in classes], dtype=np.int32)
    # For each class, row and place: how often it is right among the questions up to that place.
    below = np.cumsum(is_class[:, order], axis=2)
    above = below[:, :, -1:] - below
    # Every threshold of every row at once: the best answer below it and the best above it, each by itself.
    best = below.max(axis=0) + above.max(axis=0)
    # Between equal values there is no threshold; the last place puts all questions on one side.
    best[:, :-1][ordered[:, 1:] == ordered[:, :-1]] = 0
    best[:, -1] = 0
    row, last = np.unravel_index(int(best.argmax()), best.shape)  # the last place below the threshold
    if best[row, last] <= Counter(answers).most_common(1)[0][1]:
        return None
    threshold = float(ordered[row, last] + ordered[row, last + 1]) / 2
    answer_above = classes[int(above[:, row, last].argmax())]
    answer_below = classes[int(below[:, row, last].argmax())]
    return _Split(int(row), threshold, answer_above, answer_below)
