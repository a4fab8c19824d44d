"""Tables of the losses: speed, memory, and what each of the family reaches."""

from __future__ import annotations

from typing import Any

from benchmarks.tables import triton_tables
from benchmarks.tables.markdown import described, markdown, megabytes, metric_cell, span, threads, times
from sincere.loss_catalog import DEFAULT_LOSS, loss_title
from sincere.report.tables import number

FAMILY_METRICS = {
    "knn1": "1-NN",
    "knn1_many": "many",
    "knn1_medium": "medium",
    "knn1_few": "few",
    "margin": "margin",
    "linear": "linear probe",
}


def losses(results: dict[str, Any]) -> str:
    header = ["n", "SINCERE tiled, ms (quartiles)", "speed-up over dense", "over pytorch-metric-learning"]
    header += ["time / three GEMMs", "SupCon tiled, ms", "speed-up over dense", "over pytorch-metric-learning"]
    header += ["extra memory: tiled", "dense", "pytorch-metric-learning"]
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
    left_out = "A dash means not run: the matrices would not have fitted into the memory of this machine."
    setting = f"d = {results['d']}, {results['n_classes']} classes, temperature 0.1. {described(results)}"
    return f"{markdown(header, rows)}\n\n{left_out}\n{setting}"


def losses_short(results: dict[str, Any]) -> str:
    header = ["n", "time", "speed-up over dense", "over pytorch-metric-learning", "extra memory", "dense"]
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


def bench(results: dict[str, Any]) -> str:
    rows = [
        [
            row["part"],
            f"{row['size']:,}",
            row["case"],
            f"{row['median_ms']:,.1f}",
            f"{row['low_ms']:,.1f} to {row['high_ms']:,.1f}",
            f"{row['times_as_long']:.2f}",
        ]
        for row in results["rows"]
    ]
    machine = results["machine"]
    versions = f"Python {machine['python']}, torch {machine['versions']['torch']}"
    where = f"{machine['processor']}, {threads(machine)}; {versions}; {machine['started'][:10]}."
    table = markdown(["measured", "size", "case", "median, ms", "quartiles, ms", "ratio"], rows)
    return f"{table}\n\nd = {results['dim']}. Ratio: of the time to that of the first case of the same size. {where}"


def loss_family(about: dict[str, Any]) -> str:
    """Return the table of a comparison of all losses, best 1-NN accuracy first."""
    metrics = [name for name in FAMILY_METRICS if name in about["summaries"][0]["metrics"]]
    ordered = sorted(about["summaries"], key=lambda summary: -summary["metrics"]["knn1"]["estimate"])
    against = {d["b"]: d for d in about["differences"] if d["a"] == DEFAULT_LOSS and d["metric"] == "knn1"} | {
        d["a"]: {**d, "estimate": -d["estimate"], "low": -d["high"], "high": -d["low"]}
        for d in about["differences"]
        if d["b"] == DEFAULT_LOSS and d["metric"] == "knn1"
    }
    rows = []
    for summary in ordered:
        cells = [metric_cell(summary, name, share=name != "margin") for name in metrics]
        d = against.get(summary["loss"])
        gap = "-" if d is None else f"{number(d['estimate'], share=True)} {span(d, share=True)}"
        rows.append([loss_title(summary["loss"]), *cells, f"**{gap}**" if d and d["significant"] else gap])
    header = ["", *(FAMILY_METRICS[name] for name in metrics), "1-NN: SINCERE minus this"]
    n_seeds = len(about["seeds"])
    seeds = f"{n_seeds} seeds" if n_seeds > 1 else "one seed, so that intervals are over test images only"
    settings = ", ".join(
        f"{name} {value}" for name, value in about["settings"].items() if name not in ("metrics", "seeds")
    )
    counts = f"{about['n_train']:,} training and {about['n_test']:,} test images"
    return f"{markdown(header, rows)}\n\n{counts}, {seeds}; {settings}. {described(about)}"


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
    return markdown(["n", "SINCERE: speed-up of tiled over dense", "SupCon: speed-up of tiled over dense"], rows)


def theory(results: dict[str, Any]) -> str:
    rows = [
        [name, f"{case['median_ms']:,.1f} ms", f"{case['low_ms']:,.1f} to {case['high_ms']:,.1f}"]
        for name, case in results["cases"].items()
    ]
    return f"{markdown(['function', 'median', 'quartiles'], rows)}\n\n{described(results)}"


def set_loss(results: dict[str, Any]) -> str:
    rows = [
        [
            batch["batch"],
            f"{batch['cases']['SINCERE']['median_ms']:,.1f} ms",
            *(f"{batch['times_slower'][method]:.1f}x" for method in ("saddle", "exact")),
            f"{batch['largest_error']:.0e}",
        ]
        for batch in results["batches"]
    ]
    heads = ["batch", "SINCERE", "saddle point", "exact", "largest error of an anchor's loss"]
    return f"{markdown(heads, rows)}\n\n{results['n']:,} x {results['d']}, value and gradient. {described(results)}"


def label_sets(results: dict[str, Any]) -> str:
    rows = [
        [
            f"{size['n']:,}",
            f"{size['cases']['one label']['median_ms']:,.1f} ms",
            f"{size['cases']['label sets']['median_ms']:,.1f} ms",
            f"{size['times_slower']:.1f}x",
            *(f"{size['extra_bytes'][case] / 1e6:,.0f} MB" for case in ("one label", "label sets")),
        ]
        for size in results["sizes"]
    ]
    heads = ["n", "one label", "label sets", "times as long", "extra memory, one label", "label sets"]
    about = f"d = {results['d']}, 80 labels, three per row, value and gradient of SINCERE."
    return f"{markdown(heads, rows)}\n\n{about} {described(results)}"


def triton_kernels(results: dict[str, Any]) -> str:
    return f"{markdown(*triton_tables.compiled(results))}\n\n{triton_tables.spills(results)}"


def spread(results: dict[str, Any]) -> str:
    rows = [
        [
            f"{case['loss']}, {case['variant']}",
            f"{case['n']:,} x {case['d']:,}",
            str(case["n_processes"]),
            megabytes(case["received_bytes"]),
            megabytes(case["peak_extra_bytes"]),
        ]
        for case in results["spread"]
    ]
    header = ["loss, exchange", "batch", "processes", "received by each process", "extra memory of each process"]
    table = markdown(header, rows)
    return f"{table}\n\nfloat32, gloo, one thread each. {described(results)}"


def micro(results: dict[str, Any]) -> str:
    rows = [
        [f"{case['batch']:,}", f"{case['micro_batch']:,}", megabytes(case["peak_extra_bytes"])]
        for case in results["micro"]
    ]
    return markdown(["batch size", "micro-batch size", "extra memory of a step"], rows)
