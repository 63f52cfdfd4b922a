import pytest

from rg_env.scoring.parse import is_same_answer, normal_form


@pytest.mark.parametrize(
    ("one", "other"), [("1, 2", "1,2"), ("0", "0.0"), ("-0", "0.0000"), ("0" * 400, "0.0"), ("TRUE", "true")]
)
def test_the_same_answer_in_another_form(one, other):
    assert is_same_answer(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("one", "1"),
        ("0.1", "0.0"),
        ("1234567890", "1234567891"),
        ("1_0", "10"),
        ("1 23", "12 3"),
        ("12", "1 2 3"),
        ("", "0"),
        ("nan", "0"),
    ],
)
def test_another_answer(one, other):
    assert not is_same_answer(one, other)


def test_grids_of_digits_are_not_compared_as_rounded_numbers():
    grid = "5 5 5 5 5 5\n5 5 5 5 5 5\n5 5 5 5 5 1"
    assert normal_form(grid) != normal_form(grid[:-1] + "2")
    assert normal_form(grid) == normal_form(grid.replace("\n", " \n"))
