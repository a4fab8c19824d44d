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
