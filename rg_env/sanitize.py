"""Text from a model made safe to show: what a terminal would obey becomes something to look at.

Invariant: nothing that comes out is a control or format character (Unicode's categories Cc, Cf, Zl, Zp: they drive
terminals, hide, and turn the direction of writing) but the line feed, and all of it can be encoded; text without such
characters comes out as it is.
"""

from __future__ import annotations

import re

# Unicode's categories Cc, Cf, Cs, Zl and Zp without the line feed; a test holds this list against Python's tables.
_HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_TAB = "    "


def visible(text: str, *, one_line: bool = False) -> str:
    r"""The text with everything that is not plain to see written out.

    Control characters become their pictures, others that do not show their number; a tab becomes four spaces.

    Args:
        text: anything.
        one_line: line feeds become a picture, too.

    >>> visible("red: \x1b[31m, left: \u202e, lone: \ud800")
    'red: ␛[31m, left: <U+202E>, lone: <U+D800>'
    """
    shown = _HIDDEN.sub(lambda match: _picture(match[0]), text)
    return shown.replace("\n", "␊") if one_line else shown


def _picture(character: str) -> str:
    if character == "\t":
        return _TAB
    number = ord(character)
    if number < 0x20:
        return chr(0x2400 + number)
    return "␡" if number == 0x7F else f"<U+{number:04X}>"
