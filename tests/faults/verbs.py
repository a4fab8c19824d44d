"""The table of writers and readers: a new stage is one entry, and all groups of faults take it from here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.faults.world import (
    ARRAYS,
    COMPARISON,
    FEATURES,
    FRESH,
    FROZEN,
    HAS_DATASETS,
    HAS_OPTUNA,
    HAS_PARQUET,
    HAS_TENSORBOARD,
    HOME,
    LOSSES,
    MEASURE,
    ON_FEATURES,
    OTHER,
    PARTIAL,
    PICTURES,
    RECIPE,
    REPRODUCED,
    RUN,
    SAVED,
    SEARCH,
    SHORT,
    TABLE,
    TRAIN,
    TRIALS,
    TUNED,
)  # fmt: skip

Words = tuple[str, ...]
_VARYING = {"manifest", "seconds", "notes", "checksum", "sha256", "started", "command", "git_commit", "time", "folder"}


@dataclass(frozen=True)
class Verb:
    """A command that reads and writes files.

    Attributes:
        name: In the names of cases.
        arguments: Of `sincere`.
        needs: Parts of the world it starts from.
        writes: Patterns of what it writes.
        reads: Patterns of what it reads.
        result: Returns what it made, to be compared with what the undisturbed command makes.
        recoveries: Commands that go on or begin again after it was disturbed, to be tried in this order.
        holds_results: Folder with earlier results that a failure must leave usable, if there is one.
        absent: What is taken away before it starts, as if it had not been written yet.
        data_decide: Whether other data are simply another task, as for a run that begins.
    """

    name: str
    arguments: Words
    needs: Words
    writes: Words
    reads: Words
    result: Callable[[Path], Any]
    recoveries: tuple[Words, ...]
    holds_results: str | None = None
    absent: Words = ()
    data_decide: bool = False


def weights(folder: str) -> Callable[[Path], Any]:
    """Return a function that returns the weights of a run, and how many epochs it logged."""

    def read(world: Path) -> Any:
        path = world / folder / "model.safetensors"
        if not path.exists():
            return None
        tensors = load_file(path)
        rows = (world / folder / "metrics.jsonl").read_bytes().count(b"\n")
        return rows, {name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in tensors.items()}

    return read


def results(*folders: str) -> Callable[[Path], Any]:
    """Return a function that returns the content of results.json in these folders but for times and places."""

    def read(world: Path) -> Any:
        found = [_load(world / folder / "results.json") for folder in folders]
        return None if None in found else [_lasting(content) for content in found]

    return read


def searched(folder: str) -> Callable[[Path], Any]:
    """Return a function that returns the content of search.json but for times."""

    def read(world: Path) -> Any:
        found = _load(world / folder / "search.json")
        return None if found is None else _lasting(found)

    return read


def text(file: str) -> Callable[[Path], Any]:
    """Return a function that returns the text of a file."""

    def read(world: Path) -> Any:
        path = world / file
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None

    return read


def page(folder: str) -> Callable[[Path], Any]:
    """Return a function that returns the report of a folder."""
    return text(f"{folder}/report.html")


def embeddings(file: str) -> Callable[[Path], Any]:
    """Return a function that returns the arrays of a file of embeddings."""

    def read(world: Path) -> Any:
        if not (world / file).exists():
            return None
        with np.load(world / file) as arrays:
            return {name: arrays[name].tolist() for name in arrays.files}

    return read


def measured(file: str) -> Callable[[Path], Any]:
    """Return a function that returns what was measured according to a file, without the times."""

    def read(world: Path) -> Any:
        found = _load(world / file)
        return found and [(row["part"], row["size"], row["case"]) for row in found["rows"]]

    return read


def hashes(folder: str) -> Callable[[Path], Any]:
    """Return a function that returns the content hashes of the files in a folder."""

    def read(world: Path) -> Any:
        paths = sorted((world / folder).glob("[!.]*"))
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths} or None

    return read


def captions(file: str) -> Callable[[Path], Any]:
    """Return a function that returns the labels, similarities and names on a page of neighbours."""

    def read(world: Path) -> Any:
        path = world / file
        return re.findall("<figcaption>.*?</figcaption>", path.read_text()) if path.exists() else None

    return read


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _lasting(content: Any) -> Any:
    """Return the content without what differs from time to time."""
    if isinstance(content, dict):
        return {name: _lasting(value) for name, value in content.items() if name not in _VARYING}
    return [_lasting(value) for value in content] if isinstance(content, list) else content


_RUN_FILES = ("config.toml", "manifest.json", "metrics.jsonl", "summary.json", "model.json", "model.safetensors")
_EXPORTED = (
    "config.toml", "summary.json", "model.json", "model.safetensors", "reference.safetensors", "linear.safetensors",
    "results.json",
)  # fmt: skip
_CACHE = f"{HOME}/**/*"
_DATA = f"{PICTURES}/ants/0[0-3].png"
_train = ("train", "--data", PICTURES, "--out", FRESH, *TRAIN)
_cache = ("train", "--data", PICTURES, "--out", FRESH, *SHORT)
_npz = ("train", "--data", ARRAYS, "--out", FRESH, *SHORT)
_features = ("train", "--data", FEATURES, "--out", FRESH, *ON_FEATURES)
_table = ("train", "--data", TABLE, "--out", FRESH, *ON_FEATURES)
_saved = ("train", "--data", SAVED, "--out", FRESH, *SHORT)
_logged = (*_npz, "--log", "tensorboard")
_queue = ("train", "--data", ARRAYS, "--out", FRESH, *TRAIN, "--queue", "24")
_imbalance = ("compare", "--data", ARRAYS, "--out", TUNED, *LOSSES, *SHORT, *MEASURE, "--imbalance", "4")
_weights = (*_npz, "--weights", f"{RUN}/model.safetensors")
_freeze = (*_npz, *FROZEN)
_resume = ("train", "--resume", "--out", PARTIAL)
_evaluate = ("evaluate", RUN, *MEASURE, "--no-report")
_transfer = ("transfer", RUN, "--to", OTHER, *MEASURE, "--no-report")
_compare = ("compare", "--data", PICTURES, "--out", COMPARISON, *LOSSES, *TRAIN, *MEASURE)
_search = ("search", "--data", PICTURES, "--out", SEARCH, *TRIALS)
_tuned = ("compare", "--tuned", SEARCH, "--out", TUNED, *MEASURE)
_reproduce = ("reproduce", "margins", "--recipes", RECIPE, "--out", REPRODUCED)
_embed = ("embed", RUN, f"{PICTURES}/ants", "--out", "embedded.npz", "--overwrite")
_nearest = ("nearest", RUN, f"{PICTURES}/ants/00.png", "--k", "3")
_labels = ("labels", RUN)
# As a folder: ONNX reads the same files, writes one at once, and takes seconds to trace the network.
_export = ("export", RUN, "--format", "hub", "--out", "exported", "--overwrite")
_bench = ("bench", "--parts", "losses", "--batch-sizes", "8", "--seconds", "0.01", "--device", "cpu")
_again = ("train", "--resume", "--out", FRESH)

# A stage with one of these words is left out where its package is not installed.
_NEEDED = {TABLE: HAS_PARQUET, SAVED: HAS_DATASETS, SEARCH: HAS_OPTUNA, "tensorboard": HAS_TENSORBOARD}
VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb(
            "train", (*_train, "--checkpoint-minutes", "0"), (PICTURES, HOME), (f"{FRESH}/**/*",), (_CACHE, _DATA),
            weights(FRESH), (_again, (*_train, "--overwrite"), _train), data_decide=True,
        ),
        Verb(
            "resume", _resume, (PICTURES, HOME, PARTIAL), (f"{PARTIAL}/**/*",),
            (*(f"{PARTIAL}/{name}" for name in _RUN_FILES), f"{PARTIAL}/checkpoints/*", _CACHE, _DATA),
            weights(PARTIAL), (_resume,),
        ),
        Verb(
            "evaluate", _evaluate, (PICTURES, HOME, RUN), (f"{RUN}/*",),
            (*(f"{RUN}/{name}" for name in _RUN_FILES), f"{RUN}/checkpoints/*", _CACHE, _DATA),
            results(RUN), (_evaluate,), holds_results=RUN,
        ),
        Verb(
            "transfer", _transfer, (OTHER, HOME, RUN), (f"{RUN}/transfer/**/*",),
            (*(f"{RUN}/{name}" for name in _RUN_FILES), f"{RUN}/transfer/*/results.json", OTHER),
            results(f"{RUN}/transfer/other"), (_transfer,), holds_results=f"{RUN}/transfer/other",
        ),
        Verb(
            "report", ("report", RUN), (RUN,), (f"{RUN}/report.html", f"{RUN}/figures/*"),
            (f"{RUN}/results.json", f"{RUN}/map.npz", f"{RUN}/per_image.npz", f"{RUN}/label_issues.npz",
             *(f"{RUN}/{name}" for name in ("config.toml", "manifest.json", "metrics.jsonl"))),
            page(RUN), (("report", RUN),), holds_results=RUN,
        ),
        Verb(
            "reproduce", _reproduce, (REPRODUCED,), (f"{REPRODUCED}/*.html",), (f"{REPRODUCED}/results/*.json",),
            text(f"{REPRODUCED}/margins.html"), (_reproduce,),
        ),
        Verb(
            "embed", _embed, (PICTURES, RUN), ("embedded.npz",),
            (f"{RUN}/model.json", f"{RUN}/model.safetensors", _DATA),
            embeddings("embedded.npz"), (_embed,), data_decide=True,
        ),
        Verb(
            "nearest", _nearest, (PICTURES, HOME, RUN), ("nearest.html",),
            (*(f"{RUN}/{name}" for name in (*_RUN_FILES, "reference.safetensors")), _CACHE, _DATA),
            captions("nearest.html"), (_nearest,), data_decide=True,
        ),
        Verb(
            "labels", _labels, (PICTURES, HOME, RUN), (f"{RUN}/label_issues.*", f"{RUN}/report.html"),
            (*(f"{RUN}/{name}" for name in _RUN_FILES), _CACHE, _DATA), text(f"{RUN}/label_issues.csv"), (_labels,),
            data_decide=True,
        ),
        Verb(
            "export", _export, (RUN,), ("exported/*",),
            tuple(f"{RUN}/{name}" for name in _EXPORTED), hashes("exported"), (_export,),
        ),
        Verb("bench", _bench, (), ("bench.json",), (), measured("bench.json"), (_bench,)),
        Verb(
            "compare", _compare, (PICTURES, HOME), (f"{COMPARISON}/**/*",), (_CACHE, _DATA),
            results(COMPARISON), (_compare, (*_compare, "--overwrite")), data_decide=True,
        ),
        Verb(
            "compare-done", _compare, (PICTURES, HOME, COMPARISON), (),
            (f"{COMPARISON}/*.json", f"{COMPARISON}/runs/*/*", f"{COMPARISON}/runs/*/checkpoints/*", _CACHE, _DATA),
            results(COMPARISON), (_compare, (*_compare, "--overwrite")), holds_results=COMPARISON,
        ),
        Verb(
            "compare-unreported", _compare, (PICTURES, HOME, COMPARISON), (f"{COMPARISON}/**/*",),
            (f"{COMPARISON}/*.json", f"{COMPARISON}/runs/*/*", _CACHE, _DATA),
            results(COMPARISON), (_compare, (*_compare, "--overwrite")),
            absent=(f"{COMPARISON}/report.html", f"{COMPARISON}/results.json"),
        ),
        Verb(
            "compare-overwrite", (*_compare, "--overwrite"), (PICTURES, HOME, COMPARISON), (f"{COMPARISON}/**/*",),
            (f"{COMPARISON}/*.json", _CACHE, _DATA),
            results(COMPARISON), (_compare, (*_compare, "--overwrite")),
        ),
        Verb(
            "search", (*_search, "--checkpoint-minutes", "0"), (PICTURES, HOME), (f"{SEARCH}/**/*",), (_CACHE, _DATA),
            searched(SEARCH), (_search, (*_search, "--overwrite")), data_decide=True,
        ),
        Verb(
            "search-done", _search, (PICTURES, HOME, SEARCH), (f"{SEARCH}/*",),
            (f"{SEARCH}/search.json", f"{SEARCH}/study.db", _CACHE, _DATA),
            searched(SEARCH), (_search, (*_search, "--overwrite")),
        ),
        Verb(
            "tuned", _tuned, (PICTURES, HOME, SEARCH), (f"{TUNED}/**/*",), (f"{SEARCH}/search.json", _CACHE, _DATA),
            results(TUNED), (_tuned, (*_tuned, "--overwrite")),
        ),
        Verb(
            "cache", _cache, (PICTURES,), (_CACHE,), (f"{PICTURES}/*/*.png",),
            weights(FRESH), (_again, (*_cache, "--overwrite"), _cache), data_decide=True,
        ),
        Verb(
            "npz", _npz, (ARRAYS,), (f"{FRESH}/**/*",), (ARRAYS,),
            weights(FRESH), (_again, (*_npz, "--overwrite"), _npz), data_decide=True,
        ),
        Verb(
            "weights", _weights, (ARRAYS, RUN), (f"{FRESH}/**/*",), (f"{RUN}/model.safetensors",),
            weights(FRESH), (_again, (*_weights, "--overwrite"), _weights),
        ),
        Verb(
            "freeze", _freeze, (ARRAYS, HOME, RUN), (f"{FRESH}/**/*",),
            (f"{RUN}/model.safetensors", f"{HOME}/features/*/*"),
            weights(FRESH), (_again, (*_freeze, "--overwrite"), _freeze),
        ),
        Verb(
            "features-cache", _freeze, (ARRAYS, RUN), (_CACHE,), (ARRAYS,),
            weights(FRESH), (_again, (*_freeze, "--overwrite"), _freeze), data_decide=True,
        ),
        Verb(
            "features", _features, (FEATURES,), (f"{FRESH}/**/*",), (FEATURES,),
            weights(FRESH), (_again, (*_features, "--overwrite"), _features), data_decide=True,
        ),
        Verb(
            "parquet", _table, (TABLE,), (f"{FRESH}/**/*",), (TABLE,),
            weights(FRESH), (_again, (*_table, "--overwrite"), _table), data_decide=True,
        ),
        Verb(
            "hugging-face", _saved, (SAVED,), (_CACHE,), (f"{SAVED}/**/*",),
            weights(FRESH), (_again, (*_saved, "--overwrite"), _saved), data_decide=True,
        ),
        Verb(
            "queue", (*_queue, "--checkpoint-minutes", "0"), (ARRAYS,), (f"{FRESH}/**/*",), (ARRAYS,),
            weights(FRESH), (_again, (*_queue, "--overwrite"), _queue), data_decide=True,
        ),
        Verb(
            "imbalance", _imbalance, (ARRAYS,), (f"{TUNED}/**/*",), (ARRAYS,),
            results(TUNED), (_imbalance, (*_imbalance, "--overwrite")), data_decide=True,
        ),
        Verb(
            "logged", _logged, (ARRAYS,), (f"{FRESH}/**/*",), (),
            weights(FRESH), (_again, (*_logged, "--overwrite"), _logged),
        ),
    )
    if all(installed or word not in verb.arguments for word, installed in _NEEDED.items())
}  # fmt: skip
