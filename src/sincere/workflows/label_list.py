"""The samples of a run whose label may be wrong, stored in its folder: by an evaluation, or on demand."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from sincere.checks import printable, sample_name
from sincere.data.dataset import Dataset, Samples
from sincere.evaluation.label_issues import find_label_issues
from sincere.messages import Messages
from sincere.records.files import write_atomic
from sincere.records.label_issues import LABEL_ISSUES, MOST_SHOWN, PARTS, LabelList
from sincere.workflows.thumbnails import thumbnails

THUMBNAIL = 64  # pixels
# Of a search that an evaluation makes by itself, about 10 s on one CPU core: pairs of samples times the multiplications
# for each, where choosing the nearest takes as long as PER_PAIR of them.
MOST_MULTIPLICATIONS, PER_PAIR = 2e11, 500


def list_label_issues(
    folder: Path,
    data: Dataset,
    embeddings: tuple[Tensor, Tensor],
    *,
    epochs: int,
    device: torch.device,
    messages: Messages,
) -> None:
    """Write the list as a part of an evaluation, unless that takes long; the report then names the command for it.

    Args:
        folder: Where to write.
        data: The data set; features if the encoder is frozen.
        embeddings: Embeddings of the training and of the test part.
        epochs: Number of epochs that the model was trained.
        device: Where to compute.
        messages: Receives the progress.
    """
    n = len(data.train) + len(data.test)
    n_dimensions = data.train.items.shape[1] if data.train.are_features else embeddings[0].shape[1]
    if not is_cheap(n, n_dimensions):
        return
    messages.say(f"comparing the labels of {n:,} {data.noun} with those of their neighbours")
    vectors, basis = label_vectors(data, device, lambda: embeddings)
    write_label_issues(folder, data, vectors, basis, epochs=epochs)


def is_cheap(n_samples: int, n_dimensions: int) -> bool:
    """Return whether an evaluation looks for wrong labels by itself.

    Example:
        >>> is_cheap(10_000, 1280), is_cheap(50_000, 128)
        (True, False)
    """
    return n_samples**2 * (n_dimensions + PER_PAIR) <= MOST_MULTIPLICATIONS


def label_vectors(
    data: Dataset, device: torch.device, embeddings: Callable[[], tuple[Tensor, Tensor]]
) -> tuple[Tensor, str]:
    """Return vectors of unit length, the training part first (n, d), and what they are: "features" or "embeddings".

    Features, which have not seen the labels, where the encoder was frozen or there is none; else the embeddings.
    """
    if data.train.are_features:
        parts = [part.items.gather(part.positions).to(device) for part in (data.train, data.test)]
        return normalize(torch.cat(parts), dim=1), "features"
    return torch.cat(embeddings()), "embeddings"


def write_label_issues(
    folder: Path, data: Dataset, vectors: Tensor, basis: str, *, epochs: int, k: int | None = None
) -> LabelList:
    """Rank the samples whose label may be wrong; write all to label_issues.csv and the first to .npz.

    Args:
        folder: Where to write.
        data: The data set; features if the encoder is frozen.
        vectors: Vectors of unit length, the training part first (n, d).
        basis: What they are.
        epochs: Number of epochs that the model was trained.
        k: Number of neighbours that vote; by default half of the median class size, 5 to 200.
    """
    parts = (data.train, data.test)
    labels, ids = (np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "ids"))
    is_test = np.arange(len(labels)) >= len(data.train)
    texts = _texts(parts)
    issues = find_label_issues(vectors, torch.from_numpy(labels).to(vectors.device), k=k)
    ranked = issues.ranking(labels)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "label", "suggested", "agreement", "part"])
    for i in ranked:
        name = sample_name(None if texts is None else texts[i], ids[i])
        classes = (printable(data.class_names[label]) for label in (labels[i], issues.suggested[i]))
        writer.writerow([name, *classes, f"{issues.agreement[i]:.4f}", PARTS[int(is_test[i])]])
    write_atomic(folder / LABEL_ISSUES, text.getvalue())
    first = ranked[:MOST_SHOWN]
    listed = LabelList(
        n_samples=len(labels),
        n_issues=len(ranked),
        k=issues.k,
        basis=basis,
        data=data.digest,
        epochs=epochs,
        ids=ids[first],
        labels=labels[first],
        suggested=issues.suggested[first],
        agreement=issues.agreement[first],
        is_test=is_test[first],
        thumbnails=_thumbnails(data.origin or data, first),
        texts=None if texts is None else texts[first],
    )
    listed.write(folder)
    return listed


def _texts(parts: Sequence[Samples]) -> NDArray[np.str_] | None:
    """Return the text of each sample of all parts, empty where it has none; None if no part has any."""
    if all(part.texts is None for part in parts):
        return None
    return np.concatenate([np.full(len(part), "") if part.texts is None else part.texts for part in parts])


def _thumbnails(images: Dataset, positions: NDArray[np.int64]) -> NDArray[np.uint8] | None:
    """Return small pixels of images, whose positions count the training part first; None of features, or of none."""
    if images.train.are_features or not len(positions):
        return None
    n_train, together = len(images.train), None
    is_test = positions >= n_train
    for part, chosen in ((images.train, ~is_test), (images.test, is_test)):
        if not chosen.any():
            continue
        pixels = thumbnails(part.subset(positions[chosen] - (n_train if part is images.test else 0)), THUMBNAIL)
        if together is None:
            together = np.empty((len(positions), *pixels.shape[1:]), dtype=np.uint8)
        together[chosen] = pixels
    return together
