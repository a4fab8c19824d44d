"""Cases, what can be wrong with them, and how they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tests.faults.command import Outcome
from tests.faults.world import World


class Kind(StrEnum):
    """What became of a case."""

    SURVIVED = "survived"
    TRACEBACK = "traceback"
    LOST = "lost"
    WRONG = "wrong"
    EXECUTED = "executed"
    SKIPPED = "skipped"


class FaultError(Exception):
    """A case did not survive."""

    def __init__(self, kind: Kind, detail: str, outcome: Outcome | None = None) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.outcome = kind, detail, outcome


class SkippedError(Exception):
    """A case cannot run here; the message says why."""


@dataclass(frozen=True)
class Case:
    """One case: `run` disturbs the world and raises FaultError.

    Attributes:
        group: What kind of fault.
        name: Of the case in its group; with the group it is enough to run it again.
        run: The case itself.
    """

    group: str
    name: str
    run: Callable[[World], None]

    @property
    def full_name(self) -> str:
        """Group and name."""
        return f"{self.group}/{self.name}"


@dataclass(frozen=True)
class Verdict:
    """What became of a case.

    Attributes:
        case: Its full name.
        group: Its group.
        kind: What became of it.
        detail: Why.
        command: The last command.
        first: First line of its stderr.
        last: Last line.
        seconds: How long the case took.
    """

    case: str
    group: str
    kind: Kind
    detail: str
    command: str
    first: str
    last: str
    seconds: float


def verdict(case: Case, kind: Kind, detail: str, outcome: Outcome | None, seconds: float) -> Verdict:
    """Return the verdict with the lines that tell most."""
    lines = [line for line in (outcome.err if outcome else "").splitlines() if line.strip()]
    first, last = (lines[0], lines[-1]) if lines else ("", "")
    command = outcome.command if outcome else ""
    return Verdict(case.full_name, case.group, kind, detail, _plain(command), _plain(first), _plain(last), seconds)


def _plain(text: str, most: int = 240) -> str:
    """Return a line that can be printed anywhere."""
    shown = text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= most else shown[:most] + "..."
