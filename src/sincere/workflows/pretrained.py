"""A model as a folder for others: weights, what classifies new images, and a model card."""

from __future__ import annotations

import shutil
from pathlib import Path

from sincere import __version__
from sincere.checks import printable
from sincere.errors import DataError
from sincere.evaluation.probe import Probe
from sincere.models.embedding import SPEC, WEIGHTS, save_model
from sincere.records.config import CONFIG, read_config
from sincere.records.files import UNFINISHED, publish_folder, read_bytes, staged_folder, write_atomic, write_json
from sincere.records.reference import REFERENCE
from sincere.records.results import RESULTS, Results
from sincere.report.model_card import CardFacts, model_card
from sincere.workflows.model import LINEAR, Model
from sincere.workflows.run_folder import PROBES, RunFolder

CARD, HUB_CONFIG = "README.md", "config.json"  # the names that the hub knows
PROBE = PROBES[LINEAR]
FILES = (WEIGHTS, SPEC, REFERENCE, PROBE, CARD, HUB_CONFIG)


def export_folder(model: Model, folder: Path, *, reference: bool = True, overwrite: bool = False) -> None:
    """Write a folder, which is there only when it is complete.

    Raises:
        DataError: The folder is that of a run, or it is not empty and `overwrite` is off; or a file of the model's run
            is damaged.
    """
    check_folder(model, folder)
    if not folder.exists() or not any(folder.iterdir()):
        work = folder.with_name(f".{folder.name}{UNFINISHED}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            _write(model, work, reference=reference, card=True)
            publish_folder(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    elif overwrite:
        replace_files(model, folder, reference=reference, card=True)
    else:
        raise DataError(f"{folder}: is not empty; --overwrite replaces the files of a model in it")


def check_folder(model: Model, folder: Path) -> None:
    """Raise for a folder that must not be written to.

    Raises:
        DataError: It is a file, or the folder of a run.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; choose a folder")
    if (folder / CONFIG).exists() or folder.resolve() == model.folder.resolve():
        raise DataError(f"{folder}: holds a run, or is where the model comes from; choose another folder")


def replace_files(model: Model, folder: Path, *, reference: bool = True, card: bool) -> None:
    """Write the files into a folder, in place of those of another model; other files stay.

    model.json, without which nothing is loaded, is removed first and comes last: a folder in which this was stopped
    half-way does not pass for a model.
    """
    with staged_folder(folder, last=SPEC) as work:
        _write(model, work, reference=reference, card=card)
        (folder / SPEC).unlink(missing_ok=True)
        kept = {path.name for path in work.iterdir()} | (set() if card else {CARD})
        for name in FILES:
            if name not in kept:
                (folder / name).unlink(missing_ok=True)


def _write(model: Model, folder: Path, *, reference: bool, card: bool) -> None:
    save_model(model.network, folder)
    write_json(folder / HUB_CONFIG, {"library_name": "sincere", "sincere_version": __version__, "model": SPEC})
    if reference and (model.folder / REFERENCE).exists():
        model.reference.write(folder)
    if (model.folder / PROBE).exists():
        probe, names = Probe.load(model.folder / PROBE)
        probe.save(folder / PROBE, names)
    if card:
        write_atomic(folder / CARD, card_of(model))


def card_of(model: Model) -> str:
    """Return the model card: that of the folder if the model was exported before, else one from the run's files.

    Raises:
        DataError: A file of the run is damaged.
    """
    if not (model.folder / CONFIG).exists() and (model.folder / CARD).exists():
        return read_bytes(model.folder / CARD).decode("utf-8", "replace")
    folder = RunFolder(model.folder)
    summary = folder.summary()
    counts, label_sets = None, False
    if (model.folder / REFERENCE).exists():
        counts, label_sets = model.reference.counts(), model.reference.have_label_sets
    return model_card(
        CardFacts(
            model.spec,
            settings=read_config(model.folder) if (model.folder / CONFIG).exists() else {},
            digest=str(summary["data"]) if summary is not None else "",
            train_counts=counts,
            label_sets=label_sets,
            results=_results(model, None if summary is None else str(summary["data"])),
            version=__version__,
        )
    )


def _results(model: Model, digest: str | None) -> Results | None:
    """Return the results of this model on its own data, if it was evaluated when its training had ended.

    Args:
        model: The model.
        digest: Content hash of the data that it was trained on; None if it is not known.
    """
    if not (model.folder / RESULTS).exists():
        return None
    results = Results.read(model.folder)
    same = results.data.class_names == tuple(map(printable, model.class_names)) and results.data.digest == digest
    return results if results.kind == "evaluation" and same and results.rows[0].finished else None
