"""How the runner says what went wrong: its exceptions, its three failures, and any exception as one line."""

from __future__ import annotations

from enum import StrEnum

LONGEST_REASON = 200
"""Characters of a reason that a process sends."""


class OneLineError(Exception):
    """Base of the errors whose message is one line for people: what is wrong, and how to fix it."""

    exit_code = 2


class ConfigError(OneLineError):
    """A setting, a name or an option that cannot work."""


class ScorerPoolError(OneLineError):
    """The scorer processes cannot be started; without them every score would be 0."""


class Failure(StrEnum):
    """Why a job has no result."""

    TIMEOUT = "timeout"
    """It took longer than its limit."""
    CRASHED = "crashed"
    """The process died, and so did the one that tried again."""
    ERROR = "error"
    """The function raised, returned something else than numbers, or could not be made ready."""


class JobFailedError(Exception):
    """A job without a result.

    Attributes:
        failure: why.
        excused: a TIMEOUT because the machine had no core for the process.
    """

    def __init__(self, failure: Failure, detail: str, excused: bool = False) -> None:
        super().__init__(detail)
        self.failure = failure
        self.excused = excused


class ProtocolError(Exception):
    """A process sent something invalid: do not use it any more."""


def one_line(text: object, limit: int | None = None) -> str:
    """Return a text, or the message of an exception, as one line of at most `limit` characters. Never raises.

    An exception without a message becomes the name of its class. Control characters are escaped, so that the line
    cannot control a terminal, and so are lone surrogates, so that UTF-8 can encode it.

    >>> one_line("red:\\n \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    try:
        words = " ".join(str(text).split())
    except BaseException:  # `__str__` is code of a user, or even of an answer
        words = ""
    if not words and isinstance(text, BaseException):
        words = type(text).__name__
    # Most texts are printable, and this test is much faster than a look at each character.
    if not words.isprintable():
        words = "".join(_visible(character) for character in words)
    return words[:limit]


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def describe(error: BaseException, limit: int | None = None) -> str:
    """Return an exception as one line, with its class unless it is a plain assertion. Never raises."""
    # The name of a class is text of a user, too, and may have any characters.
    text, name = one_line(error), one_line(type(error).__name__)
    if isinstance(error, AssertionError) or text == name:
        return text[:limit]
    return f"{name}: {text}"[:limit]


def reason_of(value: object) -> str:
    """Return a text that a process sent, as one line of bounded length. Raises ProtocolError if it is none."""
    if not isinstance(value, str):
        raise ProtocolError("neither a number nor a reason")
    return one_line(value, LONGEST_REASON) or "no reason given"
