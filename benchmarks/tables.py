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
from sincere.records.results import Results

ROOT = Path(__file__).parents[1]
CASE_KEYS = (
    *("widths", "stride", "optimizer", "learning_rate", "weight_decay", "augmentation"),
    *("n_views", "batch_views", "temperature", "head", "gelu"),
)
PAGES = (
    "README.md",
    "docs/benchmarks.md",
    "docs/theory.md",
    "docs/data.md",
    "docs/training.md",
    "docs/evaluation.md",
    "docs/results.md",
    "docs/scaling.md",
    "docs/promises.md",
)


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


def kills(results: dict[str, Any]) -> str:
    weights, rows = ("the same" if results[key] else "different" for key in ("same_weights", "same_rows"))
    return (
        f"{results['kills']} kills, {results['before_first_write']} of them before the run had written anything: final "
        f"weights bit for bit {weights} as without, rows of metrics.jsonl (but for times) {rows}. The last checkpoints "
        f"at the moments of the kills: steps {', '.join(map(str, results['steps']))}."
    )


def shapes(results: dict[str, Any]) -> str:
    chosen = results["cases"]["chosen"]
    header = ["case", "1-NN", "million multiplications a view", "million parameters", "thousand views seen"]
    rows = []
    for name, case in sorted(results["cases"].items(), key=lambda item: -item[1]["knn1"]):
        changed = [f"{key} {case[key]}" for key in chosen if key in CASE_KEYS and case[key] != chosen[key]]
        rows.append(
            [
                f"**{name}**" if name == "chosen" else f"{name} ({', '.join(changed)})",
                f"{case['knn1']:.3f}",
                f"{case['multiplications'] / 1e6:.1f}",
                f"{case['parameters'] / 1e6:.2f}",
                f"{case['n_views_seen'] / 1e3:.0f}",
            ]
        )
    each = f"{results['budget'] / 1e12:g} x 10^12 multiplications each"
    base = ", ".join(f"{key} {chosen[key]}" for key in CASE_KEYS)
    return f"{markdown(header, rows)}\n\n{each}; one seed. Chosen: {base}. {described(results)}"


def half_hour(results: dict[str, Any]) -> str:
    rows = [
        [f"{row['epoch']}", f"{row['seconds'] / 60:.1f}", f"{row['loss']:.3f}", f"{row['knn1_validation']:.3f}"]
        for row in results["rows"]
        if "knn1_validation" in row
    ]
    table = markdown(["epoch", "minutes", "loss", "live 1-NN, 2% of train held out"], rows)
    total = f"**1-NN on the test part: {results['knn1_test']:.4f}**, {results['wall_seconds'] / 60:.1f} minutes in all"
    return (
        f"```bash\n{results['command']}\n```\n\n{total}, with loading and the final check; "
        f"{results['seconds'] / 60:.1f} of them training.\n\n![loss and live 1-NN](figures/half-hour.svg)\n\n{table}"
        f"\n\n{described(results)}"
    )


def training(results: dict[str, Any]) -> str:
    rows = []
    for name, step in results["steps"].items():
        chosen, plain = (step["cases"][key]["median_ms"] for key in ("chosen", "float32, contiguous"))
        rows.append([f"step of {name}, {step['n_views']} views", f"{chosen:,.0f} ms", f"{plain:,.0f} ms"])
        rows[-1].append(f"{step['times_faster']:.2f}x")
    epoch = results["epoch"]
    ours, theirs = epoch["seconds"].values()
    views = epoch["n_batches"] * epoch["batch_size"] * epoch["n_views"]
    rows.append([f"training small on CIFAR-10, {views:,} views", f"{ours:.0f} s", f"{theirs:.0f} s"])
    rows[-1].append(f"{epoch['times_faster']:.2f}x")
    header = ["", "as chosen here", "float32, default order; the last row fed by PIL in 2 workers", "faster"]
    return f"{markdown(header, rows)}\n\n{described(results)}"


def evaluation(results: dict[str, Any], resampling: dict[str, Any]) -> str:
    search = results["search"]
    models = f"{resampling['n_losses']} losses with {resampling['n_seeds']} seeds and their differences"
    cases = {
        **search["cases"],
        **{
            f"bootstrap of {name}: {models}, {resampling['n_resamples']:,} resamples": case
            for name, case in resampling["cases"].items()
        },
    }
    rows = [
        [name, f"{case['median_ms'] / 1e3:.2f} s", f"{case['low_ms'] / 1e3:.2f} to {case['high_ms'] / 1e3:.2f} s"]
        for name, case in cases.items()
    ]
    sizes = f"{results['n_test']:,} test and {results['n_train']:,} training embeddings of {results['d']} dimensions"
    ratio = f"{search['time_over_faiss']:.2f} times the search alone (median over rounds)"
    found = f"Neighbours for k = 1 and 5 with margins take {ratio}"
    memory = f"and {megabytes(search['peak_extra_bytes'])} beyond the embeddings"
    table = markdown(["", "median", "quartiles"], rows)
    about = f"{sizes}. {described(results)} Bootstrap: {resampling['n_test']:,} test images. {described(resampling)}"
    return f"{table}\n\n{found}, {memory}. {about}"


def significance(results: dict[str, Any]) -> str:
    same, simulation = results["same_loss"], results["simulation"]
    header = ["seeds against seeds, the same loss", "pairs", "margin called different", "1-NN called different"]
    rows = [
        [
            f"{case['seeds']} against {case['seeds']} other",
            f"{case['pairs']:,}, {case['drawn']}",
            *(f"{case[name]:,} ({case[name] / case['pairs']:.1%})" for name in ("margin", "knn1")),
        ]
        for case in same["cases"]
    ]
    runs = f"{same['n_runs']} runs of {same['epochs']} epochs of {same['loss']} on {same['data']}"
    about = f"{runs}, {same['n_test']} test images; the seeds of the two sides differ."
    shares = [cell["coverage"] for cell in simulation["cells"]]
    sizes = {cell["n_seeds"] for cell in simulation["cells"]}
    grid = f"{len(shares)} combinations of variance over images, over seeds, and {min(sizes)} to {max(sizes)} seeds"
    share = f"{min(shares):.1%} to {max(shares):.1%}"
    covered = f"the interval of a difference covers the truth in {share} of {simulation['repetitions']:,}"
    twice = [case["coverage"] for case in simulation["image_by_seed_only"]]
    only = f"{min(twice):.1%} to {max(twice):.1%} where seeds differ from image to image only, which it counts twice"
    found = f"Simulated over {grid}, {covered} repetitions each; {only}."
    return f"{markdown(header, rows)}\n\n{about} {found} {described(results)}"


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
    header = ["loss, variant", "batch", "processes", "received by each", "extra memory of each"]
    table = markdown(header, rows)
    return f"{table}\n\nfloat32, gloo, one thread each. {described(results)}"


def micro(results: dict[str, Any]) -> str:
    rows = [
        [f"{case['batch']:,}", f"{case['micro_batch']:,}", megabytes(case["peak_extra_bytes"])]
        for case in results["micro"]
    ]
    return markdown(["images in the batch", "at once", "extra memory of a step"], rows)


def schema() -> str:
    """Return the fields of results.json, a table for each kind of object, from the records themselves."""
    whole = Results.model_json_schema(by_alias=True)
    parts = {"results.json": whole, **whole["$defs"]}
    text = []
    for name, part in parts.items():
        rows = [
            [f"`{field}`", _kind(about), about.get("description", "").replace("\n", " ")]
            for field, about in part["properties"].items()
        ]
        text.append(f"### {name}\n\n{part.get('description', '').splitlines()[0]}\n")
        text.append(markdown(["key", "type", "what it is"], rows).replace("---:", "---") + "\n")
    return "\n".join(text)


def _kind(about: dict[str, Any]) -> str:
    """Return the type of a field as a reader of JSON names it."""
    if "$ref" in about:
        name = about["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in about:
        return " or ".join(_kind(option) for option in about["anyOf"])
    if "enum" in about or "const" in about:
        return " or ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    if "prefixItems" in about:
        return f"[{', '.join(_kind(item) for item in about['prefixItems'])}]"
    if about["type"] == "array" and isinstance(about.get("items"), dict):
        return f"list of {_kind(about['items'])}"
    if about["type"] == "object" and isinstance(about.get("additionalProperties"), dict):
        return f"name to {_kind(about['additionalProperties'])}"
    return str(about["type"])


def faults(results: dict[str, Any]) -> str:
    header = ["group", "cases", "survived", "tracebacks", "lost", "wrong", "executed"]
    rows = [[name, *(f"{counts[word]:,}" for word in header[1:])] for name, counts in results["groups"].items()]
    total = [f"**{results['counts'][word]:,}**" for word in header[1:]]
    minutes = f"{results['seconds'] / 60:.0f} minutes with the measurements below"
    note = "The random batches of the losses are not in the sum."
    return f"{markdown(header, [*rows, ['**sum**', *total]])}\n\n{note} {minutes}. {described(results)}"


def load(results: dict[str, Any]) -> str:
    found = results["load"]
    neighbours, loss, folder, report = (found[name] for name in ("neighbours", "loss", "folder", "report"))
    first, again = folder["first"], folder["again"]
    rows = [
        ["neighbours of 10,000 queries among 1,000,000 x 128", *_used(neighbours)],
        ["SINCERE, value and gradient, 65,536 x 128", *_used(loss)],
        ["a folder of 100,000 images: hashed, decoded and cached", *_used(first)],
        ["the same folder again", *_used(again)],
        [
            "a report of 3 losses, 1,000 classes, 50,000 test images",
            f"{report['report with figures, s']:.1f} s",
            f"{report['report.html, MB']:.1f} MB page, {report['results.json, MB']:.1f} MB results.json",
        ],
    ]
    return markdown(["what", "time", "memory beyond the input"], rows)


def _used(case: dict[str, Any]) -> list[str]:
    return [f"{case['seconds']:.1f} s", f"{1000 * case['extra_peak_gb']:,.0f} MB"]


def tables() -> dict[str, str]:
    """Return every generated table by name."""
    results = json.loads((RESULTS / "losses.json").read_text())
    data = json.loads((RESULTS / "data.json").read_text())
    return {
        "kills": kills(json.loads((RESULTS / "kill_and_resume.json").read_text())),
        "shapes": shapes(json.loads((RESULTS / "shapes.json").read_text())),
        "half-hour": half_hour(json.loads((RESULTS / "half_hour.json").read_text())),
        "training": training(json.loads((RESULTS / "training.json").read_text())),
        "views": views(data),
        "real-data": real_data(data),
        "evaluation": evaluation(
            *(json.loads((RESULTS / f"{x}.json").read_text()) for x in ("evaluation", "bootstrap"))
        ),
        "significance": significance(json.loads((RESULTS / "significance.json").read_text())),
        "schema": schema(),
        "faults": faults(json.loads((RESULTS / "faults.json").read_text())),
        "load": load(json.loads((RESULTS / "faults.json").read_text())),
        "spread": spread(json.loads((RESULTS / "scaling.json").read_text())),
        "micro": micro(json.loads((RESULTS / "scaling.json").read_text())),
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
