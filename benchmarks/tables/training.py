"""Tables of data, training and evaluation: speed, and accuracy in a given time."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.tables.markdown import described, markdown, megabytes, times
from sincere.loss_catalog import loss_title
from sincere.records.estimates import Estimate
from sincere.report.tables import estimate_text, interval


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


def kills(results: dict[str, Any]) -> str:
    weights, rows = ("the same" if results[key] else "different" for key in ("same_weights", "same_rows"))
    return (
        f"{results['kills']} kills, {results['before_first_write']} of them before the run had written anything. "
        f"Compared bit by bit with an uninterrupted run, the final weights are {weights}; the rows of metrics.jsonl, "
        f"except for times, are {rows}. Last checkpoint at each kill: steps {', '.join(map(str, results['steps']))}."
    )


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
