"""`python -m benchmarks.tables`: write the tables in the README and the docs from benchmarks/results/*.json.

A table stands between `<!-- begin generated: NAME -->` and the matching end; a test fails when one is stale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/benchmarks.md", "docs/theory.md", "docs/data.md")


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(header)
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}x" if value < 10 else f"{value:.0f}x"


def megabytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:,.0f} MB"


def described(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['threads']} threads, {machine['instructions']}, "
        f"{machine['memory_gb']} GB; Python {machine['python']}, {versions}; {machine['date']}."
    )


def losses(results: dict[str, Any]) -> str:
    header = ["n", "tiled, ms (quartiles)", "faster than dense", "than pytorch-metric-learning", "time / three GEMMs"]
    header += ["SupCon, tiled, ms", "faster than dense", "than pytorch-metric-learning", "extra memory: tiled", "dense"]
    header += ["pytorch-metric-learning"]
    rows = []
    for size in results["sizes"]:
        if size["n"] < 512:
            continue
        cases, faster, supcon = size["cases"], size["times_faster"]["tiled"], size["times_faster"]["supcon-tiled"]
        tiled = cases["tiled"]
        extra = [cases.get(name, {}).get("peak_extra_bytes") for name in ("tiled", "dense", "pytorch-metric-learning")]
        rows.append(
            [
                f"{size['n']:,}",
                f"{tiled['median_ms']:,.1f} ({tiled['low_ms']:,.1f} to {tiled['high_ms']:,.1f})",
                times(faster.get("dense")),
                times(faster.get("pytorch-metric-learning")),
                f"{1 / faster['three-gemms']:.2f}" if "three-gemms" in faster else "-",
                f"{cases['supcon-tiled']['median_ms']:,.1f}",
                times(supcon.get("supcon-dense")),
                times(supcon.get("pytorch-metric-learning")),
                *map(megabytes, extra),
            ]
        )
    left_out = "A dash means left out: the case's matrices would not have fitted into this machine's memory."
    setting = f"d = {results['d']}, {results['n_classes']} classes, temperature 0.1. {described(results)}"
    note = f"\n{results['note']}" if "note" in results else ""
    return f"{markdown(header, rows)}\n\n{left_out}\n{setting}{note}"


def losses_short(results: dict[str, Any]) -> str:
    header = ["n", "time", "faster than our dense form", "than pytorch-metric-learning", "extra memory", "dense"]
    rows = []
    for size in results["sizes"]:
        if size["n"] not in (512, 1024, 8192, 32768):
            continue
        cases, faster = size["cases"], size["times_faster"]["tiled"]
        rows.append(
            [
                f"{size['n']:,}",
                f"{cases['tiled']['median_ms']:,.1f} ms",
                times(faster.get("dense")),
                times(faster.get("pytorch-metric-learning")),
                megabytes(cases["tiled"]["peak_extra_bytes"]),
                megabytes(cases.get("dense", {}).get("peak_extra_bytes")),
            ]
        )
    return markdown(header, rows)


def crossing(results: dict[str, Any]) -> str:
    rows = [
        [
            f"{size['n']}",
            f"{size['times_faster']['tiled']['dense']:.2f}x",
            f"{size['times_faster']['supcon-tiled']['supcon-dense']:.2f}x",
        ]
        for size in results["sizes"]
        if size["n"] <= 1024
    ]
    return markdown(["n", "SINCERE: tiled faster than dense", "SupCon: tiled faster than dense"], rows)


def theory(results: dict[str, Any]) -> str:
    rows = [
        [name, f"{case['median_ms']:,.1f} ms", f"{case['low_ms']:,.1f} to {case['high_ms']:,.1f}"]
        for name, case in results["cases"].items()
    ]
    return f"{markdown(['instrument', 'median', 'quartiles'], rows)}\n\n{described(results)}"


def views(results: dict[str, Any]) -> str:
    rows = []
    for name, case in results["views"]["cases"].items():
        speed = "" if name == "sincere" else times(results["views"]["times_faster"][name])
        rows.append([name, f"{case['median_ms']:,.0f} ms", f"{case['low_ms']:,.0f} to {case['high_ms']:,.0f}", speed])
    table = markdown(
        [f"{results['views']['n_images']:,} images x 2 views, one core", "median", "quartiles", "ours is faster by"],
        rows,
    )
    delivery = results["delivery"]
    speed = f"A whole epoch's batches on {delivery['threads']} threads: {delivery['views_per_second']:,.0f} views/s"
    return f"{table}\n\n{speed}. {described(results)}"


def real_data(results: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{d['n_train']:,} + {d['n_test']:,}",
            str(d["per_class"]),
            *(", ".join(f"{x:.4f}" for x in d[key]) for key in ("mean", "std")),
        ]
        for name, d in results["real"].items()
    ]
    return markdown(["data set", "images", "of each class", "mean", "standard deviation"], rows)


def tables() -> dict[str, str]:
    """Return every generated table by name."""
    results = json.loads((RESULTS / "losses.json").read_text())
    data = json.loads((RESULTS / "data.json").read_text())
    return {
        "views": views(data),
        "real-data": real_data(data),
        "losses": losses(results),
        "losses-short": losses_short(results),
        "crossing": crossing(results),
        "theory": theory(json.loads((RESULTS / "theory.json").read_text())),
    }


def rewritten(page: str, generated: dict[str, str]) -> str:
    """Return a page's text with its tables replaced."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- begin generated: {name} -->\n{generated[name]}\n<!-- end generated: {name} -->"

    pattern = r"<!-- begin generated: ([\w-]+) -->.*?<!-- end generated: \1 -->"
    return re.sub(pattern, replace, page, flags=re.DOTALL)


def main() -> None:
    generated = tables()
    for name in PAGES:
        path = ROOT / name
        path.write_text(rewritten(path.read_text(), generated))


if __name__ == "__main__":
    main()
