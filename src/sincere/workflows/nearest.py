"""A page that shows images and the training images that are nearest to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sincere import checks
from sincere.checks import printable
from sincere.data.dataset import Samples
from sincere.data.given_images import NONE_READ, GivenImages
from sincere.errors import DataError, InputValueError, SincereError
from sincere.evaluation.label_neighbours import K
from sincere.messages import Messages
from sincere.records.files import write_atomic
from sincere.report.neighbours_page import PAGE_MARK, Neighbour, Query, neighbours_page
from sincere.settings.use_requests import NearestRequest
from sincere.training.progress import CountProgress
from sincere.workflows.model import SEPARATOR, Model, load
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.thumbnails import thumbnails
from sincere.workflows.trained_model import load_data, stored_settings

SHOWN = 96  # pixels of a thumbnail
N_VOTES = 5  # nearest training images that vote for a class


def run_nearest(request: NearestRequest, messages: Messages | None = None) -> Path:
    """Write the page.

    Raises:
        DataError: The folder holds no run or no reference embeddings, or an image cannot be read.
    """
    messages = messages or Messages(quiet=request.quiet)
    _check_free(request.out)
    model = load(request.run, device=request.machine.device)
    given, read = model.given_files(request.images), list[int]()
    messages.note(*model.too_few_to_reject(request.false_alarms))
    references = _reference_images(model, request, messages)
    queries = list[Query]()
    with CountProgress(messages, "embedded images") as progress:
        for positions, outputs in model.outputs(given, skip_bad=request.skip_bad_images, progress=progress):
            queries += _queries(model, request, given, positions, outputs, references)
            read += positions
    if not read:
        raise DataError(f"{request.verb}: {NONE_READ}")
    messages.note(*given.skipped_note(read))
    request.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(request.out, neighbours_page(str(request.run), queries))
    messages.say(f"page: {request.out}")
    return request.out


def _queries(
    model: Model,
    request: NearestRequest,
    given: GivenImages,
    positions: Sequence[int],
    outputs: Tensor,
    references: Samples | None,
) -> Iterator[Query]:
    """Yield what the page shows of each image of a batch of outputs."""
    nearest = model.neighbours(outputs[:, : model.spec.dim], min(request.k, len(model.reference)))
    named = model.named(model.classify(outputs, "knn"))
    fits = model.fit(outputs, request.unknown_score).tolist()
    for row, position in enumerate(positions):
        rows = nearest.positions[row].numpy()
        pixels: Any = [None] * len(rows) if references is None else thumbnails(references.subset(rows), SHOWN)
        about = zip(nearest.names[row], nearest.labels[row], nearest.similarities[row].tolist(), pixels, strict=True)
        yield Query(
            name=printable(given.names[position]),
            label=SEPARATOR.join(named[row]),
            confidence=max(named[row].values()),
            n_votes=K if model.has_label_sets else N_VOTES,
            p_known=fits[row],
            is_unknown=fits[row] <= request.false_alarms,
            pixels=given.pixels(position, (3, SHOWN, SHOWN)),
            nearest=[Neighbour(printable(name), label, similarity, image) for name, label, similarity, image in about],
        )


def _check_free(out: Path) -> None:
    """Raise if the page would replace anything but another such page.

    Raises:
        InputValueError: The path does not end with .html.
        DataError: It is a folder or another file.
    """
    if out.suffix.lower() != ".html":
        raise InputValueError(checks.wording("nearest", "out must end with .html", repr(str(out))))
    if out.is_dir() or (out.exists() and PAGE_MARK not in out.read_text(encoding="utf-8", errors="replace")):
        raise DataError(f"{out}: exists already and is no page of this command; choose another --out")


def _reference_images(model: Model, request: NearestRequest, messages: Messages) -> Samples | None:
    """Return the training images in the order of the reference set; None, with a note, where they are gone."""
    try:
        folder = RunFolder(model.folder)
        settings = stored_settings(folder)
        where = settings.data
        if request.data is not None:
            where = where.model_copy(update={"source": request.data})
        data = load_data(where, settings, model.device, messages)
        train, summary = data.train, folder.summary()
        is_same = summary is not None and summary["data"] == data.digest
        if not is_same or train.are_features or not np.array_equal(train.ids, model.reference.ids):
            raise SincereError("they are other images now")
    except SincereError as error:
        messages.note(f"no thumbnails of the training images: {error}")
        return None
    return train
