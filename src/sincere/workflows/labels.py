"""List the training samples of a run whose label may be wrong."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import torch
from rich.table import Table
from torch import Tensor
from torch.nn.functional import normalize

from sincere.checks import printable
from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.evaluation.label_issues import find_label_issues
from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK, locked, write_atomic
from sincere.settings.requests import LabelsRequest
from sincere.workflows.embedded_data import embed_data
from sincere.workflows.frozen_features import with_features
from sincere.workflows.hardware import choose_device
from sincere.workflows.run_folder import LABEL_ISSUES, RunFolder
from sincere.workflows.trained_model import Trained, check_input, load_data, load_trained, stored_settings

SHOWN = 20  # rows in the terminal


def run_labels(request: LabelsRequest, messages: Messages | None = None) -> Path:
    """Rank the training samples, write label_issues.csv into the run, and show the first.

    Raises:
        DataError: The folder holds no run, or its data are gone or have other classes.
    """
    messages = messages or Messages(quiet=request.quiet)
    folder = RunFolder(request.run)
    settings, trained = stored_settings(folder), load_trained(folder)
    source = settings.data if request.data is None else settings.data.model_copy(update={"source": request.data})
    device = choose_device(request.machine.device, caller=request.verb)
    data = load_data(source, settings, device, messages)
    check_input(trained.model.spec, data, folder.path)
    if trained.model.spec.class_names != data.class_names:
        raise DataError(f"{folder.path}: was trained on other classes than those of {data.name}")
    vectors, what = _vectors(trained, data, device, messages)
    labels = data.train.labels
    issues = find_label_issues(vectors, torch.from_numpy(labels).to(device), k=request.k)
    ranked = issues.ranking(labels)
    rows = [
        (
            printable(str(data.train.texts[i])) if data.train.texts is not None else f"#{data.train.ids[i]}",
            printable(data.class_names[labels[i]]),
            printable(data.class_names[issues.suggested[i]]),
            f"{issues.agreement[i]:.4f}",
        )
        for i in ranked
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "label", "suggested", "agreement"])
    writer.writerows(rows)
    path = folder.path / LABEL_ISSUES
    with locked(folder.path, EVALUATION_LOCK):
        write_atomic(path, text.getvalue())
    if rows and not messages.quiet:
        table = Table("name", "label", "neighbours say", "agreement", box=None, header_style="bold")
        for row in rows[:SHOWN]:
            table.add_row(*row)
        messages.console.print(table)
    n = f"{len(rows):,} of {len(labels):,} training {data.noun}"
    messages.say(f"{n} have another label than most of their {issues.k} nearest neighbours by {what}: {path}")
    return path


def _vectors(trained: Trained, data: Dataset, device: torch.device, messages: Messages) -> tuple[Tensor, str]:
    """Return vectors of unit length of the training part, and what they are.

    Features, which have not seen the labels, if the encoder was frozen or there is none; else the embeddings.
    """
    if trained.model.spec.frozen or data.train.are_features:
        train = with_features(trained.model, data, device, messages).train
        return normalize(train.items.gather(train.positions).to(device), dim=1), "features"
    messages.say(f"embedding {len(data.train):,} training and {len(data.test):,} test {data.noun}")
    return embed_data(trained.model, data, device).train.embeddings, "embeddings"
