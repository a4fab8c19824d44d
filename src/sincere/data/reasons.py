"""What an error from another library says, in one line."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """Return an error's first line, or its kind if it says nothing.

    Example:
        >>> reason(ValueError("cut off" + chr(10) + "at byte 3")), reason(EOFError())
        ('cut off', 'EOFError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
