"""What may not happen: each judge raises FaultError, and says which kind it is."""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.faults.case import FaultError, Kind
from tests.faults.command import Outcome

MARKER = "executed-marker"
DONE, REFUSED, INTERRUPTED = 0, 2, 130
_TRACES = ("Traceback (most recent call last)", "Fatal Python error", "Exception ignored in", "terminate called after")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]")
_REMARK = re.compile(r"^(note|warning)\b", re.IGNORECASE)
NAMED_DAMAGE = re.compile(
    r"damage|truncated|cut off|cannot be (read|used|parsed)|not readable|unreadable|corrupt|checksum|does not match"
    r"|missing"
    r"|not finished|last checkpoint|left out|other data|other images|changed|not the images|other version|not finite"
    r"|invalid|is empty"
    r"|going back|beginning again|start(s|ed|ing) over|trained again|measured again|evaluate the run again",
    re.IGNORECASE,
)


def check_ended(outcome: Outcome, allowed: Collection[int] = (DONE, REFUSED)) -> None:
    """The command ended by itself, with a code it may have, without a traceback, and an error is one clear line."""
    if outcome.hung:
        raise FaultError(Kind.TRACEBACK, f"hang: {outcome.seconds:.0f} s", outcome)
    if outcome.code < 0 and outcome.code not in allowed:
        name = signal.Signals(-outcome.code).name
        raise FaultError(Kind.TRACEBACK, f"died of {name}", outcome)
    for trace in _TRACES:
        if trace in outcome.said:
            last = [line for line in outcome.err.splitlines() if line.strip()][-1:]
            raise FaultError(Kind.TRACEBACK, f"traceback: {' '.join(last)[:160]}", outcome)
    if outcome.code not in allowed:
        raise FaultError(Kind.TRACEBACK, f"exit code {outcome.code}", outcome)
    if outcome.code == REFUSED:
        lines = [line for line in outcome.err.splitlines() if line.strip() and not _REMARK.match(line)]
        if len(lines) != 1:
            raise FaultError(Kind.WRONG, f"an error in {len(lines)} lines, not in one", outcome)
    check_printable(outcome)


def check_printable(outcome: Outcome) -> None:
    """Nothing that a terminal would obey is printed."""
    if found := _CONTROL.search(outcome.said):
        raise FaultError(Kind.WRONG, f"a raw control character {found[0]!r} was printed", outcome)


def check_refused(outcome: Outcome, what: str) -> None:
    """The command said no, in one line."""
    check_ended(outcome)
    if outcome.code != REFUSED:
        raise FaultError(Kind.WRONG, f"{what} was accepted", outcome)


def check_done(outcome: Outcome, what: str) -> None:
    """The command worked."""
    check_ended(outcome)
    if outcome.code != DONE:
        raise FaultError(Kind.LOST, f"{what} does not work", outcome)


def check_same(result: object, reference: object, outcome: Outcome, what: str) -> None:
    """The result is that of the undisturbed command."""
    if result != reference:
        raise FaultError(Kind.WRONG, f"{what}: other results than undisturbed", outcome)


def check_not_executed(folder: Path, outcome: Outcome) -> None:
    """No marker was left by something that should not have run."""
    for path in folder.rglob(MARKER):  # exactly: names that ask a shell for it hold the word, too
        raise FaultError(Kind.EXECUTED, f"{path.relative_to(folder)} was created", outcome)


def names_damage(text: str, usual: str) -> bool:
    """Tell whether a text speaks of damage where it usually does not."""
    count = lambda said: len(NAMED_DAMAGE.findall(said))  # noqa: E731
    return count(text) > count(usual)


def checksums(folder: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Return what the files that match hold, by name."""
    sums = {}
    for pattern in patterns:
        for path in folder.glob(pattern):
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                sums[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return sums


def check_kept(folder: Path, before: dict[str, str], outcome: Outcome, *, changed: bool = False) -> None:
    """Files that were there are there, and the same unless they may be `changed`."""
    for name, digest in before.items():
        path = folder / name
        if not path.exists():
            raise FaultError(Kind.LOST, f"{name} is gone", outcome)
        if not changed and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise FaultError(Kind.LOST, f"{name} has changed", outcome)
