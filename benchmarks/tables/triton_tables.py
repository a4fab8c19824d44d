"""The tables of docs/reference/gpu.md: what was compiled, and what was estimated."""

from __future__ import annotations

from typing import Any

NAMES = {80: "sm_80 (A100)", 90: "sm_90 (H100)", 100: "sm_100 (B200)"}
SHOWN_SIZES = (8192, 65536)
UNITS = {
    "products": "matrix products",
    "exponentials": "exponentials",
    "other": "other arithmetic",
    "cache": "level-2 cache",
}


def compiled(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: registers per thread, shared memory and occupancy of each kernel on each architecture."""
    kernels: dict[tuple[str, str, int], dict[int, dict[str, Any]]] = {}
    for row in results["kernels"]:
        kernels.setdefault((row["title"], row["type"], row["d"]), {})[row["architecture"]] = row
    lines = []
    for (title, kind, d), found in kernels.items():
        blocks = next(iter(found.values()))["blocks"]
        sizes = f"{blocks['rows']} x {blocks['columns']} x {blocks['chunk']}"
        if title.startswith("gradient"):
            sizes += f", {blocks['out']} out"
        cells = [_resources(found[architecture]) if architecture in found else "-" for architecture in NAMES]
        lines.append([title, kind, str(d), f"{sizes}, {blocks['warps']} warps", *cells])
    return ["kernel", "type", "d", "block", *NAMES.values()], lines


def _resources(row: dict[str, Any]) -> str:
    spilled = f", {row['spilled_bytes']} bytes spilled" if row["spilled_bytes"] else ""
    return f"{row['registers']}, {row['shared_bytes'] / 1024:.0f} KB, {row['occupancy']:.0%}{spilled}"


def spills(results: dict[str, Any]) -> str:
    """Return the sentence below the table."""
    kernels = results["kernels"]
    spilled = sum(row["spilled_bytes"] > 0 for row in kernels)
    seconds = sum(row["compile_s"] for row in kernels)
    return (
        f"{len(kernels)} kernels were compiled by Triton {results['triton']} in {seconds / 60:.0f} minutes on one "
        f"core; {spilled or 'none'} of them spill{'s' if spilled == 1 else ''} registers."
    )


def estimated(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: least time of a step, what bounds its two large kernels, and memory."""
    lines = []
    for row in results["estimates"]:
        if row["n"] not in SHOWN_SIZES:  # times grow with n^2
            continue

        first, second = (UNITS[unit] for unit in row["bounds"])
        lines.append(
            [
                row["gpu"],
                row["type"],
                f"{row['n']:,}",
                f"{row['least_ms']:,.3g} ms" if row["least_ms"] < 1000 else f"{row['least_ms']:,.0f} ms",
                first if first == second else f"{first}; {second}",
                f"{row['memory_bytes'] / 1e6:,.0f} MB",
                f"{row['matrix_bytes'] / 1e6:,.0f} MB",
            ]
        )
    return ["GPU", "type", "n", "at least", "bound by", "memory", "one n x n matrix"], lines
