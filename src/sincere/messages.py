"""Messages to the user: progress and results on stdout, warnings on stderr. Starts no torch."""

from __future__ import annotations

import os

from rich.console import Console

from sincere.checks import printable


def is_follower() -> bool:
    """Tell whether another process has started this one to share its work."""
    return any(int(os.environ.get(name, "0")) > 0 for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


class Messages:
    """The one way in which the workflows speak to the user.

    Args:
        console: Where progress and results go; stdout by default.
        quiet: Whether only notes are printed.
        silent: Whether nothing is printed at all, as in a process that follows another.
    """

    def __init__(self, console: Console | None = None, *, quiet: bool = False, silent: bool = False) -> None:
        self.console = console or Console()
        self.warnings = Console(stderr=True, quiet=silent)
        self.quiet = quiet or silent

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if not self.quiet:
            self.console.print(printable(text), soft_wrap=True, highlight=False, markup=False)

    def note(self, *texts: str) -> None:
        """Print what the user should know in any case, to stderr."""
        for text in texts:
            self.warnings.print(printable(f"note: {text}"), soft_wrap=True, highlight=False, markup=False)
