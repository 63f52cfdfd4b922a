"""The colors of the page, by WCAG 2.2: text has a contrast of at least 4.5 with what is behind it, light and dark."""

import re
from pathlib import Path

import pytest

import rg_env.page

STYLE = (Path(rg_env.page.__file__).parent / "assets" / "style.css").read_text()
COLORS = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", STYLE)
ON_PLAIN = ("text", "muted", "accent", "right", "wrong", "trouble")
PAIRS = [
    *((name, behind) for name in ON_PLAIN for behind in ("bg", "panel")),
    *(("text", "hover"), ("muted", "hover"), ("accent", "hover"), ("text", "bar")),
    *(("think-text", "think"), ("answer-text", "answer"), ("mark-text", "mark")),
]


def luminance(color: str) -> float:
    """Relative luminance, in [0, 1]."""
    shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_greatest_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "behind"), PAIRS)
def test_text_can_be_read(text: str, behind: str, scheme: str) -> None:
    colors = {name: light if scheme == "light" else dark for name, light, dark in COLORS}
    assert contrast(colors[text], colors[behind]) >= 4.5
