"""Answers that upstream stores wrongly are corrected, in our items and in entries of any origin."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rg_env.scoring import Scorer
from rg_env.tasks import ItemStream, Split
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.clarity import correct
from rg_env.tasks.upstream.oracles import corrected

Entry = dict[str, Any]


def interval(start: str, end: str, asked: str, form: str, stored: str = "") -> Entry:
    kind = "date" if asked == "D days" else "datetime" if "%d" in form else "time"
    return {
        "question": f"A video call started at {start} and ended at {end}. How long was the call? Answer in {asked}.",
        "answer": stored,
        "metadata": {
            "source_dataset": "time_intervals",
            "task_type": kind,
            "format": form,
            "expected_format": asked,
            "start_time": "",
            "end_time": "",
        },
    }


WEEKDAY = "%Y-%m-%d (%A) %H:%M:%S %z"
INTERVALS = [
    (interval("13:31:16.310", "15:00:43.656", "HH:MM:SS.mmm", "%H:%M:%S.%f", "01:29:27.345"), "01:29:27.346"),
    (interval("23:59:59.500", "00:00:00.100", "HH:MM:SS.mmm", "%H:%M:%S.%f", "-24:00:00.600"), "00:00:00.600"),
    (interval("23:00", "00:00", "HH:MM", "%H:%M", "-23:00"), "01:00"),
    (
        interval(
            "2358-04-20 (Sunday) 03:51:19 -0100",
            "2358-05-13 (Tuesday) 11:44:31 -0900",
            "D days, HH:MM:SS",
            WEEKDAY,
            "23 days, 00:00:00",
        ),
        "23 days, 15:53:12",
    ),
    (interval("06 February 2024, 23:41", "01 March 2024, 00:45", "D days, HH:MM", "%d %B %Y, %H:%M"), "23 days, 01:04"),
    (interval("02/13/2235", "03/10/2235", "D days", "%m/%d/%Y"), "25 days"),
    (interval("2503-09-17 (Monday)", "2503-09-22 (Saturday)", "D days", "%Y-%m-%d (%A)"), "5 days"),
]


def test_our_items_have_clear_and_exact_intervals() -> None:
    stream = ItemStream("time_intervals", {}, 5, Split.TRAIN)
    kinds = set()
    for index in range(300):
        entry = stream.item(index).entry
        assert correct(entry) == entry
        assert not re.search("202[5-9]", entry["metadata"]["start_time"]) or "%d" in entry["metadata"]["format"]
        kinds.add(entry["metadata"]["format"])
    assert {"%H:%M:%S.%f", WEEKDAY, "%m/%d/%Y"} <= kinds


@pytest.mark.parametrize("question", ["", "How long is it?", "from a to b? Answer in D days.", None, 5])
def test_what_cannot_be_read_or_is_correct_is_left_as_it_is(question: Any) -> None:
    unreadable = {**interval("", "", "", "%H:%M", "01:00"), "question": question}
    assert corrected(unreadable) is unreadable
    entry = entry_of("chain_sum", "1 + 1", "2")
    assert correct(entry) is corrected(entry) is entry


# -- the other tasks


def entry_of(name: str, question: str, stored: Any = "", **metadata: Any) -> Entry:
    return {"question": question, "answer": stored, "metadata": {"source_dataset": name, **metadata}}


FAMILY = "Ann is married to Bob. They have children called Edward and Lily. Edward is married to Sarah. \
They have children called Zoe and Owen."


def family(who: str, to: str, stored: str) -> Entry:
    question = f"{FAMILY}\n\nWhat is {who} to {to}? Respond only with the word that describes their relationship."
    return entry_of("family_relationships", question, stored, person1=who, person2=to, relationship=stored)


def cards(initial: str, *rounds: str, stored: str) -> Entry:
    lines = [f"Round {number}: Add a {new} card and remove an {old} card." for number, (new, old) in enumerate(rounds)]
    return entry_of("mahjong_puzzle", f"Now, given the initial cards {initial}, what is …\n" + "\n".join(lines), stored)


def syllogism(first: str, second: str, conclusion: str, stored: str) -> Entry:
    question = f"Consider these statements:\n1. {first}\n2. {second}\n\nDoes it logically follow that:\n{conclusion}?"
    return entry_of("syllogism", question, stored, is_valid=stored == "Yes")


WRONG = [
    (family("Sarah", "Ann", "mother-in-law"), "daughter-in-law"),
    (family("Zoe", "Lily", "niece"), "niece"),
    (family("Owen", "Lily", "niece"), "nephew"),
    (family("Edward", "Ann", "son"), "son"),
    (cards("ABBCXYZXYZXYZ", "QX", "BX", stored="Chi"), "Peng"),
    (cards("ABBBCEGIKMOQS", "DA", stored="Pass"), "Chi"),
    (cards("ACEGIKMOQSUWY", "ZA", stored="Peng"), "Pass"),
    (
        syllogism("All children are tigers", "Some tigers are not students", "Some children are not students", "Yes"),
        "No",
    ),
    (syllogism("All ants are bees", "All bees are cats", "All ants are cats", "No"), "Yes"),
    (
        entry_of(
            "advanced_geometry",
            "Given a triangle with vertices A=(4, 4), B=(9, -4), and C=(5, -4), determine the angle at B in degrees.",
            "57.99°",
            task_type="angle_measure",
        ),
        "57.995°",
    ),
]


def test_wrong_answers_are_corrected() -> None:
    with Scorer(workers=1, timeout=30.0) as scorer:
        for entry, answer in [*INTERVALS, *WRONG]:
            before = repr(entry)
            assert correct(entry)["answer"] == corrected(entry)["answer"] == answer
            assert correct(correct(entry)) == correct(entry)
            assert scorer.score_answer(entry, answer.removesuffix("°")).score == 1.0, entry
            if entry["answer"] not in ("", answer) and entry["metadata"]["source_dataset"] != "advanced_geometry":
                assert scorer.score_answer(entry, entry["answer"]).score == 0.0, entry
            assert repr(entry) == before


TSUMEGO = [list(".....XXXXX"), list(".OX..XOO.X"), list(".X...XXXXX"), *[list("." * 10)] * 7]


@pytest.mark.parametrize(
    "entry",
    [
        entry_of("aiw", "Susan has 3 male colleagues … with the only exception of Matilda. How many …"),
        entry_of("aiw", "Patricia has 4 sisters and … How many sisters does William's brother have?"),
        entry_of("basic_arithmetic", "Calculate 7 / 2.", expression="7 / 2"),
        entry_of("basic_arithmetic", "Calculate 7 / (2 - 2).", expression="7 / (2 - 2)"),
        entry_of("calendar_arithmetic", "", task="count_business_days", start_date="2022-11-23", end_date="2023-01-07"),
        entry_of("color_cube_rotation", "", rotations=["left", "bottom"]),
        entry_of("game_of_life_halting", "Initial board:\n[[0 0 ... 0 0]\n ...\n [0 0 ... 0 0]]"),
        entry_of("jugs", "", '["No solution"]'),
        entry_of("knight_swap", "", board={"A1": ["C2"], "C2": ["A1"], "B3": ["A1"]}),
        entry_of("letter_counting", 'How many times does the letter "s" appear in the text: "Mr Smith says"?'),
        entry_of("power_function", "Compute -524.0707^-8. Return your …"),
        entry_of("puzzle24", "Make 24 using 5, 8, 9, 7. … You can use the operators *, /.", "5*8 - 9 - 7"),
        entry_of("simple_equations", "Determine the value of i that satisfies: 0 = 0", variable="i", equation="0 = 0"),
        entry_of("survo", "", puzzle=[[0, 0, 3], [0, 0, 3], [3, 3, 6]], candidate_numbers=[1, 2, 1, 2]),
        entry_of("tsumego", "capture some", "A9", board=TSUMEGO),
        syllogism("All ants are bees", "All bees are cats", "Some ants are cats", "Yes"),
        interval("2024-01-02 10:00 +0000", "2024-01-02 12:00 +0500", "D days, HH:MM", "%Y-%m-%d %H:%M %z"),
        interval("03/04/2024", "04/04/2024", "D days", "%m/%d/%Y"),
        interval("2024-01-02 10:00:00", "2024-01-02 10:00:40", "D days, HH:MM", "%Y-%m-%d %H:%M:%S"),
    ],
    ids=lambda entry: entry["metadata"]["source_dataset"],
)
def test_a_question_without_a_clear_answer_is_no_item(entry: Entry) -> None:
    with pytest.raises(UnusableItemError):
        correct(entry)
    assert corrected(entry)["question"] == entry["question"]


@pytest.mark.parametrize(
    "entry",
    [
        entry_of("aiw", "Patricia has 4 sisters and … How many sisters does Patricia's brother have?"),
        entry_of("basic_arithmetic", "", expression="-8 / ( 2 - -2 ) * 3"),
        entry_of("calendar_arithmetic", "", task="is_leap_year"),
        entry_of("color_cube_rotation", "", rotations=["left", "front"]),
        entry_of("game_of_life_halting", "Initial board:\n[[0 0]\n [0 0]]. If it won't halt, reply 'False'."),
        entry_of("jugs", "", '["fill A"]'),
        entry_of("knight_swap", "", board={"A1": ["C2", "B3"], "C2": ["A1"], "B3": ["A1"]}),
        entry_of("letter_counting", 'How many times does the letter "t" appear in the text: "Mr Smith says"?'),
        entry_of("power_function", "Compute -524.0707^-7. Return your …"),
        entry_of("puzzle24", "Make 24 using 5, 8, 9, 7. … You can use the operators *, -.", "5*8 - 9 - 7"),
        entry_of("power_function", "Compute 524.0707^8. Return your …"),
        entry_of("survo", "", puzzle=[[0, 0, 3], [0, 0, 5], [3, 5, 8]], candidate_numbers=[1, 2, 2, 3]),
        entry_of("tsumego", "capture some", "I9", board=TSUMEGO),
    ],
    ids=lambda entry: entry["metadata"]["source_dataset"],
)
def test_a_clear_question_is_an_item(entry: Entry) -> None:
    assert correct(entry) == entry
