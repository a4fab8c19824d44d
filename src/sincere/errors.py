"""The exceptions this package raises on bad input."""

from __future__ import annotations


class SincereError(Exception):
    """Base of every error raised on purpose by this package."""


class InputValueError(SincereError, ValueError):
    """An argument has the right type and a wrong value or shape."""


class DataError(SincereError, ValueError):
    """A data set is missing, damaged or not what its name promises."""


class UnsupportedError(SincereError, RuntimeError):
    """What was asked for exists, but not in this combination; the message names one that works."""


class InputTypeError(SincereError, TypeError):
    """An argument has the wrong type."""


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind if it says nothing.

    Example:
        >>> first_line(ValueError("cut off" + chr(10) + "at byte 3")), first_line(EOFError())
        ('cut off', 'EOFError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
