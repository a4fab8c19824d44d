"""`python -m benchmarks.tables`: write the tables in the README and the docs from benchmarks/results/*.json.

A table is placed between `<!-- begin generated: NAME -->` and the matching end; a test fails if one is out of date.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import reference_pages, triton_tables
from benchmarks.measure import RESULTS
from sincere.evaluation.geometry import READING
from sincere.loss_catalog import DEFAULT_LOSS, RAW_FEATURES, loss_title
from sincere.messages import Messages
from sincere.recipes import EXPERIMENTS, all_recipes
from sincere.records.estimates import Estimate
from sincere.records.results import ABOUT_LOSSES, Record, Results
from sincere.records.search import SearchResults
from sincere.report.reproduction_page import markdown_table, tables_of
from sincere.report.tables import estimate_text, interval, number
from sincere.settings.reproduce_request import ALL, ReproduceRequest
from sincere.workflows.reproduce import collect

ROOT = Path(__file__).parents[1]
EXTRAS = {  # what each one is for
    "": "the losses and the theory; torch with CUDA is nearly all of it",
    "all": "`sincere train`, `compare` and the other commands; the estimators for scikit-learn",
    "datasets": "data sets of Hugging Face",
    "export": "ONNX files, the Hugging Face hub",
    "lightning": "`sincere.integrations.lightning`",
    "metric-learning": "`sincere.integrations.metric_learning`",
    "mlflow": "`--log mlflow`",
    "parquet": "features in .parquet files",
    "search": "`sincere search`",
    "sentence-transformers": "`sincere.integrations.sentence_transformers`",
    "tensorboard": "`--log tensorboard`",
    "timm": "encoders of timm",
    "transformers": "`sincere.integrations.transformers`",
    "wandb": "`--log wandb`",
}
FAMILY_METRICS = {
    "knn1": "1-NN",
    "knn1_many": "many",
    "knn1_medium": "medium",
    "knn1_few": "few",
    "margin": "margin",
    "linear": "linear probe",
}
MARK = "<!-- begin generated: "
PAGES = tuple(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if MARK in path.read_text()
)


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(header)
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times(value: float | None) -> str:
    digits = 0 if value is None or value >= 10 else 1 if value >= 1.05 else 2
    return "-" if value is None else f"{value:.{digits}f}x"


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
    where = f"{machine['processor']}, {machine['threads']} threads; {versions}; {machine['started'][:10]}."
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
        cells = [_cell(summary, name, share=name != "margin") for name in metrics]
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


def views(results: dict[str, Any]) -> str:
    rows = []
    for name, case in results["views"]["cases"].items():
        speed = "" if name == "sincere" else times(results["views"]["times_faster"][name])
        rows.append([name, f"{case['median_ms']:,.0f} ms", f"{case['low_ms']:,.0f} to {case['high_ms']:,.0f}", speed])
    table = markdown(
        [f"{results['views']['n_images']:,} images x 2 views, one core", "median", "quartiles", "speed-up of sincere"],
        rows,
    )
    delivery = results["delivery"]
    speed = f"All batches of an epoch on {delivery['threads']} threads: {delivery['views_per_second']:,.0f} views/s"
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
    return markdown(["data set", "images", "per class", "mean", "standard deviation"], rows)


def kills(results: dict[str, Any]) -> str:
    weights, rows = ("the same" if results[key] else "different" for key in ("same_weights", "same_rows"))
    return (
        f"{results['kills']} kills, {results['before_first_write']} of them before the run had written anything. "
        f"Compared bit by bit with an uninterrupted run, the final weights are {weights}; the rows of metrics.jsonl, "
        f"except for times, are {rows}. Last checkpoint at each kill: steps {', '.join(map(str, results['steps']))}."
    )


def recipe(results: dict[str, Any]) -> str:
    cases = dict(results["cases"])
    base = cases.pop("recipe")["knn1_validation"]
    rows = [["**the recipe**", f"{100 * base:.1f}%", "", "1", f"{results['n_views'] / 1e3:.0f}"]]
    for name, case in sorted(cases.items(), key=lambda item: -item[1]["knn1_validation"]):
        found = case["knn1_validation"]
        views = f"{case['n_views_seen'] / 1e3:.0f}"
        rows.append([name, f"{100 * found:.1f}%", f"{100 * (found - base):+.1f}", f"{case['cost']:.2f}", views])
    header = ["with", "1-NN, validation", "difference", "time per view", "thousand views"]
    return f"{markdown(header, rows)}\n\nOne seed each. {described(results)}"


def minutes(results: dict[str, Any], *, classes: list[str] | None = None) -> str:
    runs = [run for run in results["runs"] if run["classes"] == classes]
    order = ["sincere", "supcon", "cross-entropy"]
    rows = []
    machines = list(dict.fromkeys(described(run) for run in runs))
    for run in sorted(runs, key=lambda run: (run["minutes"], order.index(run["loss"]), run["seed"])):
        changed = "".join(f", {name.replace('_', ' ')} {value:g}" for name, value in run["settings"].items())
        metrics = {name: Estimate(**value) for name, value in run["metrics"].items()}
        rows.append(
            [
                f"{run['minutes']:g}",
                loss_title(run["loss"]) + changed,
                f"{run['seed']}",
                f"{run['epochs']}",
                f"{estimate_text(metrics['knn1'], share=True)} {interval(metrics['knn1'], share=True)}",
                f"{estimate_text(metrics['margin'], share=False)} {interval(metrics['margin'], share=False)}",
                f"{run['train_loss']['first']:.2f} / {run['train_loss']['last']:.2f}",
                f"{run['wall_seconds'] / 60:.1f}" if run["planned_by_minutes"] and run["wall_seconds"] else "-",
                str(1 + machines.index(described(run))),
            ]
        )
    header = [
        "minutes",
        "loss",
        "seed",
        "epochs",
        "1-NN, test",
        "margin, test",
        "loss, first / last",
        "minutes in total",
        "machine",
    ]
    notes = " ".join(f"({number}) {text}" for number, text in enumerate(machines, start=1))
    return f"{markdown(header, rows)}\n\nMachines: {notes}"


def recipes() -> str:
    rows = []
    for scale in ("paper", "cpu"):
        for name, recipe in all_recipes().items():
            if recipe.scale != scale or name.endswith("-224"):
                continue
            command = "compare" if recipe.verb == "train" else "transfer"
            transfers = ", ".join(key for key in recipe.transfers if not key.endswith("-224"))
            losses = ", ".join(map(loss_title, recipe.losses))
            rows.append([f"`{name}`", scale, command, recipe.form, losses, str(len(recipe.seeds)), transfers])
    return markdown(["recipe", "scale", "for", "model or probe", "losses", "seeds", "transfers"], rows)


def reproduction() -> dict[str, str]:
    """Return the tables of the stored reproduction of the paper, and what it lacks."""
    request = ReproduceRequest.make(item=ALL, out=ROOT / "reproduction")
    found = collect(request, Messages(silent=True))
    named: dict[str, list[str]] = {}
    for table in tables_of(found, ALL):
        named.setdefault(f"reproduction-{table.item}", []).append(markdown_table(table))
    lacking = [f"- `{missing.name}`: {len(missing.runs)} of {missing.n_runs} runs" for missing in found.missing]
    written = {name: "\n\n".join(texts) for name, texts in named.items()}
    return {**written, "reproduction-missing": "\n".join(lacking) or "Nothing: all runs are there."}


def headline() -> str:
    """Return margins and accuracies of SupCon and SINCERE, for the experiments that have three seeds or more."""
    request = ReproduceRequest.make(item="margins", out=ROOT / "reproduction")
    rows = []
    for experiment in collect(request, Messages(silent=True)).trained():
        results = experiment.results
        if results.scope != ABOUT_LOSSES:
            continue
        summaries = {summary.loss: summary for summary in results.summaries}
        cells = [
            f"{estimate_text(value, share=share)} {interval(value, share=share)}"
            for name, share in (("margin", False), ("knn1", True))
            for value in (summaries[loss].metrics[name] for loss in ("supcon", "sincere"))
        ]
        rows.append([EXPERIMENTS[experiment.recipe].title, *cells])
    return markdown(["", "margin, SupCon", "margin, SINCERE", "1-NN, SupCon", "1-NN, SINCERE"], rows)


def class_sampler(results: dict[str, Any]) -> str:
    rows = [
        [
            row["data"],
            f"{row['most_over_fewest']:.2f}",
            f"{row['n_favoured']} of {row['n_classes']}",
            str(row["never_seen_small_batch"]),
            f"{100 * row['distinct_share']:.0f}%",
            f"{100 * row['accuracy_sd']:.2f} points",
            f"{100 * row['difference_sd']:.2f} points",
        ]
        for row in results["rows"]
    ]
    header = [
        "data",
        f"most over fewest images of a class, batches of {results['batch']}",
        "classes with more",
        f"classes never seen, batches of {results['small_batch']}",
        "test images that were drawn",
        "standard deviation of an accuracy by the draw",
        "of a difference",
    ]
    return f"{markdown(header, rows)}\n\n{results['draws']:,} draws of test sets."


def frozen_cifar10(results: dict[str, Any]) -> str:
    return f"{comparison(results['cifar10'])} {described(results)}"


def tuned(results: dict[str, Any]) -> str:
    search = results["search"]
    rows = []
    for found in search["losses"]:
        values = [trial["value"] for trial in search["trials"] if trial["loss"] == found["loss"]]
        best = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in found["best"].items())
        accuracies = (number(value, share=True) for value in (found["value"], min(values)))
        rows.append([loss_title(found["loss"]), best, *accuracies, str(len(values)), str(found["n_close"])])
    header = ["", "best settings", "1-NN, held out", "of the worst trial", "trials", "as good"]
    counts = f"{search['n_train']:,} training and {search['n_validation']:,} held-out images"
    notes = "".join(f" Note: {note}." for note in search["notes"])
    chosen = f"{markdown(header, rows)}\n\n{counts}.{notes}"
    return f"{chosen}\n\n{comparison(results['comparison'])} {described(results)}"


def comparison(about: dict[str, Any]) -> str:
    """Return the table of a comparison on frozen features, and SINCERE's differences from SupCon."""
    metrics = {"margin": False, "knn1": True, "knn5": True, "linear": True}
    titles = dict(zip(metrics, ("margin", "1-NN", "5-NN", "linear probe"), strict=True))
    rows = []
    for summary in about["summaries"]:
        cells = [
            f"{number(estimate['estimate'], share=share)} {interval(Estimate(**estimate), share=share)}"
            for estimate, share in ((summary["metrics"][name], share) for name, share in metrics.items())
        ]
        rows.append([loss_title(summary["loss"]), *cells])
    table = markdown(["", *titles.values()], rows)
    clauses = []
    for metric, share in metrics.items():
        d = sincere_minus_supcon(about, metric)
        size = f"{number(d['estimate'], share=share)} {span(d, share=share)}"
        clauses.append(f"{titles[metric]} {size}{'' if d['significant'] else ' (not significant)'}")
    counts = f"{about['n_train']:,} training and {about['n_test']:,} test images, {len(about['seeds'])} seeds"
    return f"{table}\n\nSINCERE minus SupCon: {'; '.join(clauses)}. {counts}."


def frozen_photos(results: dict[str, Any]) -> str:
    folders = results["photos"]
    losses = [summary["loss"] for summary in folders[0]["summaries"]]
    rows, gains = [], dict[str, list[float]]()
    for i, about in enumerate(folders):
        of = {summary["loss"]: summary["metrics"] for summary in about["summaries"]}
        knn1 = {loss: of[loss]["knn1"]["estimate"] for loss in losses}
        for loss in losses:
            gains.setdefault(loss, []).append(knn1[loss] - knn1[RAW_FEATURES])
        d = sincere_minus_supcon(about, "margin")
        margins = [number(of[loss]["margin"]["estimate"], share=False) for loss in ("sincere", "supcon")]
        difference = f"{number(d['estimate'], share=False)} {span(d, share=False)}"
        cells = [number(knn1[loss], share=True) for loss in losses]
        rows.append([str(i), *cells, *margins, difference, f"{about['seconds']:.0f} s"])
    titles = [loss_title(loss) for loss in losses]
    header = ["folder", *(f"1-NN, {title}" for title in titles), "margin, SINCERE", "margin, SupCon"]
    gained = "; ".join(
        f"{loss_title(loss)} {100 * statistics.mean(values):+.1f} points "
        f"({100 * min(values):+.1f} to {100 * max(values):+.1f})"
        for loss, values in gains.items()
        if loss != RAW_FEATURES
    )
    table = markdown([*header, "difference of the margins", "time"], rows)
    counts = f"{folders[0]['n_train']:,} training and {folders[0]['n_test']:,} test images each"
    return f"{table}\n\n1-NN above that of raw features, mean (range): {gained}. {counts}. {described(results)}"


def sincere_minus_supcon(comparison: dict[str, Any], metric: str) -> dict[str, Any]:
    wanted = ("sincere", "supcon", metric)
    return next(d for d in comparison["differences"] if (d["a"], d["b"], d["metric"]) == wanted)


def span(difference: dict[str, Any], *, share: bool) -> str:
    return f"[{number(difference['low'], share=share)}, {number(difference['high'], share=share)}]"


def photos(results: dict[str, Any]) -> str:
    rows = []
    decoding = results["decoding"]
    cases = [(f"decoding {decoding['n_images']:,} JPEGs of about 200 px into the cache", decoding)]
    cases += [
        (f"features of {case['n_images']:,} JPEGs at {case['side']} px, decoding included", case)
        for case in results["features"]
    ]
    for title, case in cases:
        ours, *others = case["cases"]
        for theirs in (name for name in others if not name.startswith(ours)):
            rates = [f"{case['cases'][name]['images_per_second']:,.0f}" for name in (ours, theirs)]
            note = "; torchvision keeps them in memory, too" if theirs.endswith("kept in memory") else ""
            rows.append([f"{title}{note}", *rates, times(case["times_faster"][theirs])])
    header = ["images per second", "sincere", "torchvision's ImageFolder in a DataLoader with 2 workers", "speed-up"]
    return f"{markdown(header, rows)}\n\n{described(results)}"


def adapter(results: dict[str, Any]) -> str:
    speed, accuracy = results["speed"], results["accuracy"]
    ours, theirs = (statistics.median(speed[name]) for name in ("all_seconds", "plain_seconds"))
    rows = [
        [
            "50,000 x 1,280 features, 10 classes, 30 epochs in batches of 4,096 x 2 views",
            f"{ours:.0f} s",
            f"{theirs:,.0f} s with pytorch-metric-learning's SupConLoss in the same loop",
            times(speed["times_faster"]),
        ],
        [
            f"20,000 x 768 features, 20 classes, {accuracy['epochs']} epochs with default settings",
            f"{accuracy['seconds']:.0f} s; 1-NN {accuracy['metrics']['knn1']:.4f}",
            f"{accuracy['logistic_regression_seconds']:.0f} s; accuracy {accuracy['logistic_regression']:.4f} "
            "of logistic regression",
            "",
        ],
    ]
    memory = f"Memory beyond the features in the first case: {megabytes(speed['peak_bytes_beyond_features'])}."
    return f"{markdown(['case', 'sincere', 'compared with', 'speed-up'], rows)}\n\n{memory} {described(results)}"


def training(results: dict[str, Any]) -> str:
    rows = []
    for name, step in results["steps"].items():
        chosen, plain = (step["cases"][key]["median_ms"] for key in ("chosen", "float32, contiguous"))
        rows.append([f"one step of {name}, {step['n_views']} views", f"{chosen:,.0f} ms", f"{plain:,.0f} ms"])
        rows[-1].append(f"{step['times_faster']:.2f}x")
    epoch = results["epoch"]
    ours, theirs = epoch["seconds"].values()
    views = epoch["n_batches"] * epoch["batch_size"] * epoch["n_views"]
    rows.append([f"training small on CIFAR-10, {views:,} views", f"{ours:.0f} s", f"{theirs:.0f} s"])
    rows[-1].append(f"{epoch['times_faster']:.2f}x")
    header = ["", "sincere", "float32, contiguous; last row: data loader with PIL in 2 workers", "speed-up"]
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
    ratio = f"{search['time_over_faiss']:.2f} times as long as the search of faiss alone (median over repetitions)"
    found = f"Neighbours for k = 1 and 5 with margins take {ratio}"
    memory = f"and {megabytes(search['peak_extra_bytes'])} of memory beyond the embeddings"
    table = markdown(["", "median", "quartiles"], rows)
    about = f"{sizes}. {described(results)} Bootstrap: {resampling['n_test']:,} test images. {described(resampling)}"
    return f"{table}\n\n{found}, {memory}. {about}"


def significance(results: dict[str, Any]) -> str:
    same, simulation = results["same_loss"], results["simulation"]
    header = ["seeds of the same loss", "pairs", "margin significantly different", "1-NN significantly different"]
    rows = [
        [
            f"{case['seeds']} vs. {case['seeds']}",
            f"{case['pairs']:,}, {case['drawn']}",
            *(f"{case[name]:,} ({case[name] / case['pairs']:.1%})" for name in ("margin", "knn1")),
        ]
        for case in same["cases"]
    ]
    runs = f"{same['n_runs']} runs of {same['epochs']} epochs of {same['loss']} on {same['data']}"
    about = f"{runs}, {same['n_test']} test images; no seed is on both sides."
    shares = [cell["coverage"] for cell in simulation["cells"]]
    sizes = {cell["n_seeds"] for cell in simulation["cells"]}
    numbers = f"{min(sizes)} to {max(sizes)} seeds"
    grid = f"{len(shares)} combinations of variance over images, variance over seeds, and {numbers}"
    share = f"{min(shares):.1%} to {max(shares):.1%}"
    covered = (
        f"the confidence interval of a difference covers the true value in {share} of {simulation['repetitions']:,}"
    )
    twice = [case["coverage"] for case in simulation["image_by_seed_only"]]
    only = (
        f"{min(twice):.1%} to {max(twice):.1%} if the only variance is an interaction of image and seed, which the "
        "interval includes twice"
    )
    found = f"In a simulation of {grid}, {covered} repetitions each; {only}."
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
    header = ["loss, exchange", "batch", "processes", "received by each process", "extra memory of each process"]
    table = markdown(header, rows)
    return f"{table}\n\nfloat32, gloo, one thread each. {described(results)}"


def micro(results: dict[str, Any]) -> str:
    rows = [
        [f"{case['batch']:,}", f"{case['micro_batch']:,}", megabytes(case["peak_extra_bytes"])]
        for case in results["micro"]
    ]
    return markdown(["batch size", "micro-batch size", "extra memory of a step"], rows)


def _cell(of: dict[str, Any], metric: str, *, share: bool) -> str:
    estimate = Estimate(**of["metrics"][metric])
    return f"{estimate_text(estimate, share=share)} {interval(estimate, share=share)}"


def _metric_rows(about: dict[str, Any], names: Iterable[str]) -> str:
    """Return a table with a row for each metric, a column for each loss, and the difference of SINCERE and SupCon."""
    rows = []
    for name in names:
        metric = about["metrics"][name]
        share = metric["share"]
        d = sincere_minus_supcon(about, name)
        cells = [_cell(summary, name, share=share) for summary in about["summaries"]]
        rows.append([metric["title"], *cells, f"{number(d['estimate'], share=share)} {span(d, share=share)}"])
    titles = [loss_title(summary["loss"]) for summary in about["summaries"]]
    return markdown(["", *titles, "SINCERE minus SupCon"], rows)


def _three_seeds(about: dict[str, Any]) -> str:
    counts = f"{about['n_train']:,} training and {about['n_test']:,} test images"
    return f"{counts}, {about['epochs']} epochs, {len(about['seeds'])} seeds"


def classifiers(results: dict[str, Any]) -> str:
    about = results["cifar10"]
    names = ["knn1", "knn5", "dino", "lightly", "means", "linear"]
    return f"{_metric_rows(about, names)}\n\n{_three_seeds(about)}. {described(results)}"


def collapse(results: dict[str, Any]) -> str:
    about = results["cifar10"]
    names = [name for name, metric in about["metrics"].items() if metric["group"] == "geometry"]
    return f"{_metric_rows(about, ['margin', *names])}\n\n{_three_seeds(about)}. {described(results)}"


def unknown(results: dict[str, Any]) -> str:
    names = ["margin", "auroc_nearest", "auroc_mahalanobis", "fpr95_nearest", "fpr95_mahalanobis"]
    parts = []
    for name, title in (("cifar10-unknown", "CIFAR-10, frozen encoder"), ("digits-unknown", "Digits")):
        about = results[name]
        left_out = f"without {' and '.join(about['unknown_classes'])}"
        counts = f"{_three_seeds(about)}, {about['n_unknown']:,} images of unknown classes"
        parts.append(f"{title}, {left_out} ({counts}):\n\n{_metric_rows(about, names)}")
    return "\n\n".join([*parts, described(results)])


def geometry() -> str:
    rows = [(f"`{name}`", reading.title, reading.about) for name, reading in READING.items()]
    return markdown(("metric", "title", "how to read it"), rows).replace("---:", "---")  # words, not numbers


def schema(record: type[Record], file: str) -> str:
    """Return the fields of a JSON file, a table for each kind of object, from the schema of its records."""
    whole = record.model_json_schema(by_alias=True)
    parts = {file: whole, **whole["$defs"]}
    text = []
    for name, part in parts.items():
        rows = [
            [f"`{field}`", _kind(about), about.get("description", "").replace("\n", " ")]
            for field, about in part["properties"].items()
        ]
        text.append(f"### {name}\n\n{part.get('description', '').splitlines()[0]}\n")
        text.append(markdown(["key", "type", "meaning"], rows).replace("---:", "---") + "\n")
    return "\n".join(text)


def _kind(about: dict[str, Any]) -> str:
    """Return the type of a field in the words of JSON."""
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
        return f"mapping from name to {_kind(about['additionalProperties'])}"
    return str(about["type"])


def extras(results: dict[str, Any]) -> str:
    rows = []
    for row in results["extras"]:
        command = f"`pip install '.[{row['extra']}]'`" if row["extra"] else "`pip install .`"
        rows.append([command, EXTRAS[row["extra"]], str(row["packages"]), megabytes(row["bytes"])])
    return markdown(["command", "for", "packages", "on disk"], rows) + "\n\n" + described(results)


def faults(results: dict[str, Any]) -> str:
    header = ["group", "cases", "survived", "tracebacks", "lost", "wrong", "executed"]
    rows = [[name, *(f"{counts[word]:,}" for word in header[1:])] for name, counts in results["groups"].items()]
    total = [f"**{results['counts'][word]:,}**" for word in header[1:]]
    minutes = f"The run took {results['seconds'] / 60:.0f} minutes, including the measurements below"
    note = "The random batches of the group `losses` are not included in the total."
    return f"{markdown(header, [*rows, ['**total**', *total]])}\n\n{note} {minutes}. {described(results)}"


def load(results: dict[str, Any]) -> str:
    found = results["load"]
    neighbours, loss, folder, report = (found[name] for name in ("neighbours", "loss", "folder", "report"))
    first, again = folder["first"], folder["again"]
    rows = [
        ["nearest neighbours of 10,000 queries among 1,000,000 x 128", *_used(neighbours)],
        ["SINCERE, value and gradient, 65,536 x 128", *_used(loss)],
        ["a folder of 100,000 images: hashed, decoded and cached", *_used(first)],
        ["the same folder again", *_used(again)],
        [
            "a report of 3 losses, 1,000 classes, 50,000 test images",
            f"{report['report with figures, s']:.1f} s",
            f"{report['report.html, MB']:.1f} MB page, {report['results.json, MB']:.1f} MB results.json",
        ],
    ]
    return markdown(["task", "time", "memory beyond the input"], rows)


def _used(case: dict[str, Any]) -> list[str]:
    return [f"{case['seconds']:.1f} s", f"{1000 * case['extra_peak_gb']:,.0f} MB"]


def tables() -> dict[str, str]:
    """Return every generated table by name."""
    results = json.loads((RESULTS / "losses.json").read_text())
    data = json.loads((RESULTS / "data.json").read_text())
    use = json.loads((RESULTS / "use.json").read_text())
    family = json.loads((RESULTS / "loss_family.json").read_text())
    return {
        "kills": kills(json.loads((RESULTS / "kill_and_resume.json").read_text())),
        "recipe": recipe(json.loads((RESULTS / "recipe.json").read_text())),
        "minutes": minutes(json.loads((RESULTS / "minutes.json").read_text())),
        "minutes-cat-dog": minutes(json.loads((RESULTS / "minutes.json").read_text()), classes=["cat", "dog"]),
        "recipes": recipes(),
        "headline": headline(),
        "extras": extras(json.loads((RESULTS / "extras.json").read_text())),
        **reproduction(),
        "class-sampler": class_sampler(json.loads((RESULTS / "class_sampler.json").read_text())),
        "frozen-photos": frozen_photos(json.loads((RESULTS / "frozen.json").read_text())),
        "frozen-cifar10": frozen_cifar10(json.loads((RESULTS / "frozen.json").read_text())),
        "tuned": tuned(json.loads((RESULTS / "tuned.json").read_text())),
        "photos": photos(json.loads((RESULTS / "photos.json").read_text())),
        "adapter": adapter(json.loads((RESULTS / "adapter.json").read_text())),
        "training": training(json.loads((RESULTS / "training.json").read_text())),
        "views": views(data),
        "real-data": real_data(data),
        "evaluation": evaluation(
            *(json.loads((RESULTS / f"{x}.json").read_text()) for x in ("evaluation", "bootstrap"))
        ),
        "significance": significance(json.loads((RESULTS / "significance.json").read_text())),
        "schema": schema(Results, "results.json"),
        "search-schema": schema(SearchResults, "search.json"),
        "geometry": geometry(),
        "classifiers": classifiers(use),
        "collapse": collapse(use),
        "unknown": unknown(use),
        "faults": faults(json.loads((RESULTS / "faults.json").read_text())),
        "load": load(json.loads((RESULTS / "faults.json").read_text())),
        "spread": spread(json.loads((RESULTS / "scaling.json").read_text())),
        "micro": micro(json.loads((RESULTS / "scaling.json").read_text())),
        "bench": bench(json.loads((RESULTS / "bench.json").read_text())),
        **{f"family-{case}": loss_family(about) for case, about in family.items()},
        "losses": losses(results),
        "losses-short": losses_short(results),
        "crossing": crossing(results),
        "label-sets": label_sets(json.loads((RESULTS / "label_sets.json").read_text())),
        "set-loss": set_loss(json.loads((RESULTS / "set_loss.json").read_text())),
        "triton-kernels": triton_kernels(json.loads((RESULTS / "triton.json").read_text())),
        "triton-estimates": markdown(*triton_tables.estimated(json.loads((RESULTS / "triton.json").read_text()))),
        "theory": theory(json.loads((RESULTS / "theory.json").read_text())),
        "command-line": reference_pages.command_line(),
        "settings": reference_pages.settings(),
    }


def rewritten(page: str, generated: dict[str, str]) -> str:
    """Return the text of a page with its tables replaced."""

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
