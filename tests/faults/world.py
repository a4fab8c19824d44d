"""The small world that every case starts from: two data sets, a finished run, an unfinished one, a comparison.

It is built once for each worker, at the path where its cases run, because runs and caches may hold absolute paths.
"""

from __future__ import annotations

import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from sincere.recipes import EXPERIMENTS
from sincere.records.reproduction import STORED, Experiment
from sincere.records.results import Results
from tests.faults.command import Command, Outcome, Server

PICTURES, ARRAYS, OTHER = "pictures", "arrays.npz", "other.npz"
FEATURES, TABLE, SAVED = "features.npz", "table.parquet", "saved"
HAS_PARQUET = find_spec("pyarrow") is not None
HAS_DATASETS = find_spec("datasets") is not None
HAS_TENSORBOARD = find_spec("tensorboard") is not None
HOME, RUN, PARTIAL, COMPARISON, FRESH = "home", "run", "partial", "comparison", "fresh"
SEARCH, TUNED = "search", "tuned"
REPRODUCED, RECIPE = "reproduced", "cifar2-small"
CLASSES = ("ants", "bees", "cats")
NETWORK = ("--size", "8", "--batch-size", "16", "--head", "linear", "--dim", "8", "--threads", "1", "--n-views", "1")
TRAIN = (*NETWORK, "--epochs", "3", "--validation", "0.2", "--validate-every", "1")
SHORT = (*NETWORK, "--epochs", "1")
ON_FEATURES = (*NETWORK[2:], "--epochs", "1")  # which have no size in pixels
FROZEN = ("--weights", f"{RUN}/model.safetensors", "--freeze")
MEASURE = ("--resamples", "100")
LOSSES = ("--losses", "sincere", "supcon")
HAS_OPTUNA = find_spec("optuna") is not None
TRIALS = (*NETWORK, *LOSSES, "--trials", "2", "--pruner", "none", "--epochs", "2", "--validation", "0.2")
_COLUMNS = ("features", "labels", "texts")


def make_pictures(folder: Path, *, n_images: int = 14, side: int = 10, seed: int = 0) -> None:
    """Write class folders of small PNG files whose classes overlap."""
    generator = np.random.default_rng(seed)
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(n_images):
            Image.fromarray(blob(generator, number, side)).save(folder / name / f"{i:02d}.png")


def blob(generator: np.random.Generator, number: int, side: int) -> np.ndarray:
    """Return a noisy image whose brightness tells its class, mostly."""
    brightness = 90 + 30 * number + generator.normal(0, 14)
    pixels = brightness + generator.normal(0, 25, (side, side, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def make_arrays(path: Path, *, n_train: int = 36, n_test: int = 12, side: int = 8, seed: int = 1) -> None:
    """Write an .npz data set."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for part, n in (("train", n_train), ("test", n_test)):
        labels = np.arange(n) % len(CLASSES)
        arrays[f"{part}_images"] = np.stack([blob(generator, int(label), side) for label in labels])
        arrays[f"{part}_labels"] = labels
    np.savez(path, class_names=np.array(CLASSES), **arrays)


def make_features(folder: Path, *, n_train: int = 36, n_test: int = 12, width: int = 6, seed: int = 3) -> None:
    """Write ready-made features as an .npz and, where pyarrow is installed, as a .parquet."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for part, n in (("train", n_train), ("test", n_test)):
        labels = np.arange(n) % len(CLASSES)
        features = labels[:, None] + generator.normal(0, 0.8, (n, width))
        arrays |= {f"{part}_features": features.astype(np.float32), f"{part}_labels": labels}
        arrays[f"{part}_texts"] = np.array([f"notes/{i}.txt" for i in range(n)])
    np.savez(folder / FEATURES, class_names=np.array(CLASSES), **arrays)
    if HAS_PARQUET:
        import pyarrow
        import pyarrow.parquet

        both = {name: np.concatenate([arrays[f"{part}_{name}"] for part in ("train", "test")]) for name in _COLUMNS}
        columns = {"features": list(both["features"]), "label": both["labels"], "text": both["texts"]}
        columns["split"] = ["train"] * n_train + ["test"] * n_test
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / TABLE)


def make_saved(folder: Path, *, n_images: int = 36, side: int = 8, seed: int = 4) -> None:
    """Write a data set of Hugging Face `datasets` as its `save_to_disk` does."""
    import datasets

    generator, labels = np.random.default_rng(seed), [i % len(CLASSES) for i in range(n_images)]
    images = [Image.fromarray(blob(generator, label, side)) for label in labels]
    columns = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    rows = datasets.Dataset.from_dict({"image": images, "label": labels}, features=columns)
    datasets.disable_progress_bars()
    rows.train_test_split(test_size=1 / 3, seed=0).save_to_disk(folder)


class World:
    """The folder of a worker: `here` is disturbed by its cases, `template` is what they start from."""

    def __init__(self, folder: Path, source: Path) -> None:
        """Build the template with the package in `source`."""
        self.here, self.template = folder / "here", folder / "template"
        self.here.mkdir(parents=True)
        self.server = Server(source, self.here)
        self._build()

    def close(self) -> None:
        """Stop the server and remove the folder."""
        self.server.close()
        empty(self.here)
        shutil.rmtree(self.here.parent, ignore_errors=True)

    def run(self, command: Command) -> Outcome:
        """Run a command in the world."""
        return self.server.run(command)

    def restore(self, needs: tuple[str, ...]) -> None:
        """Begin anew with copies of these parts of the template."""
        empty(self.here)
        for name in needs:
            source, target = self.template / name, self.here / name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target)

    def _build(self) -> None:
        make_pictures(self.here / PICTURES)
        make_arrays(self.here / ARRAYS)
        make_arrays(self.here / OTHER, n_train=24, n_test=9, seed=2)
        make_features(self.here)
        if HAS_DATASETS:
            make_saved(self.here / SAVED)
        checkpoints = ("--checkpoint-minutes", "0")
        commands = [
            Command(("train", "--data", PICTURES, "--out", RUN, *TRAIN, *checkpoints)),
            Command(("evaluate", RUN, *MEASURE)),
            Command(("transfer", RUN, "--to", OTHER, *MEASURE, "--no-report")),
            Command(("compare", "--data", PICTURES, "--out", COMPARISON, *LOSSES, *TRAIN, *MEASURE)),
            Command(("train", "--data", ARRAYS, "--out", FRESH, *SHORT, *FROZEN)),
        ]
        if HAS_OPTUNA:
            commands.append(Command(("search", "--data", PICTURES, "--out", SEARCH, *TRIALS)))
        for command in commands:
            outcome = self.run(command)
            if outcome.code != 0:
                raise RuntimeError(f"{outcome.command}: does not work undisturbed: {outcome.err.strip()[-500:]}")
        # As if the comparison were that of a recipe.
        results = Results.read(self.here / COMPARISON)
        rows = tuple(
            row.model_copy(update={"settings": {**row.settings, **EXPERIMENTS[RECIPE].of_loss(row.loss)}})
            for row in results.rows
        )
        stored = Experiment(recipe=RECIPE, results=results.model_copy(update={"rows": rows}))
        stored.write(self.here / REPRODUCED / STORED)
        shutil.rmtree(self.here / FRESH)  # its features stay in the cache
        self._build_partial(checkpoints)
        shutil.copytree(self.here, self.template, symlinks=True)

    def _build_partial(self, checkpoints: tuple[str, str]) -> None:
        """Leave a run that was killed when it had two checkpoints."""
        arguments = ("train", "--data", PICTURES, "--out", PARTIAL, *TRAIN, *checkpoints)

        def begun() -> bool:
            stored = list((self.here / PARTIAL / "checkpoints").glob("step-*"))
            return len(stored) >= 2 and (self.here / PARTIAL / "metrics.jsonl").exists()

        for operation in range(14, 60):
            shutil.rmtree(self.here / PARTIAL, ignore_errors=True)
            outcome = self.run(Command(arguments, at_operation=operation))
            rows = self.here / PARTIAL / "metrics.jsonl"
            if outcome.code == -signal.SIGKILL and begun() and rows.read_text().count("\n") >= 2:
                return
        raise RuntimeError("no unfinished run with two checkpoints could be made")


def empty(folder: Path) -> None:
    """Remove what is in a folder, whatever its permissions are."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            for top, names, _ in os.walk(path):
                for name in (top, *(os.path.join(top, name) for name in names)):
                    if not os.path.islink(name):
                        os.chmod(name, 0o755)
            shutil.rmtree(path)
        else:
            path.unlink()
