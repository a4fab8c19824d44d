"""Pieces of Markdown that several tables share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sincere.records.estimates import Estimate
from sincere.report.tables import estimate_text, interval, number


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(header)
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times(value: float | None) -> str:
    digits = 0 if value is None or value >= 10 else 1 if value >= 1.05 else 2
    return "-" if value is None else f"{value:.{digits}f}x"


def megabytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:,.0f} MB"


def threads(machine: dict[str, Any]) -> str:
    return "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"


def described(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {threads(machine)}, {machine['instructions']}, "
        f"{machine['memory_gb']} GB; Python {machine['python']}, {versions}; {machine['date']}."
    )


def span(difference: dict[str, Any], *, share: bool) -> str:
    return f"[{number(difference['low'], share=share)}, {number(difference['high'], share=share)}]"


def sincere_minus_supcon(comparison: dict[str, Any], metric: str) -> dict[str, Any]:
    wanted = ("sincere", "supcon", metric)
    return next(d for d in comparison["differences"] if (d["a"], d["b"], d["metric"]) == wanted)


def metric_cell(of: dict[str, Any], metric: str, *, share: bool) -> str:
    estimate = Estimate(**of["metrics"][metric])
    return f"{estimate_text(estimate, share=share)} {interval(estimate, share=share)}"
