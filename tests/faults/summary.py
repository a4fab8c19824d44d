"""The table, the list of failures, the closing line, and the JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.case import Kind, Verdict

COUNTED = {
    Kind.SURVIVED: "survived",
    Kind.TRACEBACK: "tracebacks",
    Kind.LOST: "lost",
    Kind.WRONG: "wrong",
    Kind.EXECUTED: "executed",
}


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Return how many cases ended in which way; those that were skipped are no cases."""
    found = Counter(verdict.kind for verdict in verdicts)
    n_cases = sum(found[kind] for kind in COUNTED)
    return {"cases": n_cases, **{word: found[kind] for kind, word in COUNTED.items()}}


def closing_line(verdicts: Sequence[Verdict]) -> str:
    """Return the one line that matters."""
    found = counts(verdicts)
    return "faults: " + ", ".join(f"{number} {word}" for word, number in found.items())


def by_group(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Return the verdicts of each group, in order."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.group, []).append(verdict)
    return groups


def print_failures(verdicts: Sequence[Verdict]) -> None:
    """Print every case that did not survive, and why cases were skipped."""
    for verdict in verdicts:
        if verdict.kind in (Kind.SURVIVED, Kind.SKIPPED):
            continue
        print(f"{verdict.kind}: {verdict.case}\n    {verdict.detail}\n    {verdict.command}")
        if verdict.first:
            print(f"    {verdict.first}")
        if verdict.last != verdict.first:
            print(f"    {verdict.last}")
    skipped = Counter((verdict.group, verdict.detail) for verdict in verdicts if verdict.kind is Kind.SKIPPED)
    for (group, reason), number in skipped.items():
        print(f"skipped: {number} of {group}: {reason}")


def print_table(verdicts: Sequence[Verdict], seconds: float) -> None:
    """Print the counts of each group with the time that its cases took."""
    header = ("group", "cases", *COUNTED.values(), "seconds")
    rows = [header]
    for group, found in by_group(verdicts).items():
        numbers = counts(found)
        rows.append((group, *map(str, numbers.values()), f"{sum(verdict.seconds for verdict in found):.0f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    print()
    for row in rows:
        print(
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )
    print(f"{seconds:.0f} s in all")


def print_load(measured: dict[str, Any]) -> None:
    """Print what was measured with large inputs."""
    for name, values in measured.items():
        print(f"load: {name}: {json.dumps(values)}")


def write_json(
    path: Path,
    verdicts: Sequence[Verdict],
    batches: Sequence[Verdict],
    load: dict[str, Any],
    *,
    seconds: float,
    short: bool,
) -> None:
    """Write the counts by group, with what was measured under load, the machine and the versions."""
    from benchmarks.measure import machine

    groups = {group: counts(found) for group, found in by_group([*verdicts, *batches]).items()}
    failed = [
        {"case": verdict.case, "kind": str(verdict.kind), "detail": verdict.detail}
        for verdict in [*verdicts, *batches]
        if verdict.kind not in (Kind.SURVIVED, Kind.SKIPPED)
    ]
    content = {
        "machine": machine(), "line": closing_line(verdicts), "counts": counts(verdicts), "groups": groups,
        "load": load, "seconds": round(seconds), "short": short, "failed": failed,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
