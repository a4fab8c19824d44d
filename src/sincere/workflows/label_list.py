"""The training samples of a run whose label may be wrong, stored in its folder: by an evaluation, or on demand."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from sincere.checks import printable, sample_name
from sincere.data.dataset import Dataset
from sincere.evaluation.label_issues import find_label_issues
from sincere.messages import Messages
from sincere.records.files import write_atomic
from sincere.records.label_issues import LABEL_ISSUES, MOST_SHOWN, LabelList
from sincere.workflows.thumbnails import thumbnails

THUMBNAIL = 64  # pixels
# Of a search that an evaluation makes by itself, about 10 s on one CPU core: pairs of samples times the multiplications
# for each, where choosing the nearest takes as long as PER_PAIR of them.
MOST_MULTIPLICATIONS, PER_PAIR = 2e11, 500


def list_label_issues(
    folder: Path, data: Dataset, embeddings: Tensor, *, epochs: int, device: torch.device, messages: Messages
) -> None:
    """Write the list as a part of an evaluation, unless that takes long; the report then names the command for it."""
    n_dimensions = data.train.items.shape[1] if data.train.are_features else embeddings.shape[1]
    if not is_cheap(len(data.train), n_dimensions):
        return
    messages.say(f"comparing the labels of {len(data.train):,} training {data.noun} with those of their neighbours")
    vectors, basis = label_vectors(data, device, lambda: embeddings)
    write_label_issues(folder, data, vectors, basis, epochs=epochs)


def is_cheap(n_samples: int, n_dimensions: int) -> bool:
    """Return whether an evaluation looks for wrong labels by itself.

    Example:
        >>> is_cheap(10_000, 1280), is_cheap(50_000, 128)
        (True, False)
    """
    return n_samples**2 * (n_dimensions + PER_PAIR) <= MOST_MULTIPLICATIONS


def label_vectors(data: Dataset, device: torch.device, embeddings: Callable[[], Tensor]) -> tuple[Tensor, str]:
    """Return vectors of unit length of the training part (n, d), and what they are: "features" or "embeddings".

    Features, which have not seen the labels, where the encoder was frozen or there is none; else the embeddings.
    """
    if data.train.are_features:
        return normalize(data.train.items.gather(data.train.positions).to(device), dim=1), "features"
    return embeddings(), "embeddings"


def write_label_issues(
    folder: Path, data: Dataset, vectors: Tensor, basis: str, *, epochs: int, k: int | None = None
) -> LabelList:
    """Rank the training samples whose label may be wrong; write all to label_issues.csv and the first to .npz.

    Args:
        folder: Where to write.
        data: The data set; features if the encoder is frozen.
        vectors: Vectors of unit length of the training part (n, d).
        basis: What they are.
        epochs: Number of epochs that the model was trained.
        k: Number of neighbours that vote; by default half of the median class size, 5 to 200.
    """
    train, images = data.train, (data.origin or data).train
    issues = find_label_issues(vectors, torch.from_numpy(train.labels).to(vectors.device), k=k)
    ranked = issues.ranking(train.labels)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "label", "suggested", "agreement"])
    for i in ranked:
        name = sample_name(None if train.texts is None else train.texts[i], train.ids[i])
        classes = (printable(data.class_names[label]) for label in (train.labels[i], issues.suggested[i]))
        writer.writerow([name, *classes, f"{issues.agreement[i]:.4f}"])
    write_atomic(folder / LABEL_ISSUES, text.getvalue())
    first = ranked[:MOST_SHOWN]
    listed = LabelList(
        n_samples=len(train),
        n_issues=len(ranked),
        k=issues.k,
        basis=basis,
        data=data.digest,
        epochs=epochs,
        ids=train.ids[first],
        labels=train.labels[first],
        suggested=issues.suggested[first],
        agreement=issues.agreement[first],
        thumbnails=thumbnails(images.subset(first), THUMBNAIL) if len(first) and not images.are_features else None,
        texts=None if train.texts is None else train.texts[first],
    )
    listed.write(folder)
    return listed
