"""List the samples of a run whose label may be wrong."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from sincere.checks import printable
from sincere.data.dataset import Dataset
from sincere.errors import DataError
from sincere.messages import Messages
from sincere.records.files import EVALUATION_LOCK, locked, staged_folder
from sincere.records.label_issues import LABEL_ISSUES, LABEL_LIST
from sincere.report.page import refresh_report
from sincere.settings.use_requests import LabelsRequest
from sincere.workflows.embedded_data import embed_data
from sincere.workflows.frozen_features import with_features
from sincere.workflows.hardware import choose_device
from sincere.workflows.label_list import label_vectors, write_label_issues
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.trained_model import Trained, check_input, load_data, load_trained, stored_settings


def run_labels(request: LabelsRequest, messages: Messages | None = None) -> Path:
    """Rank the samples, write the list into the run and its report, and show the first.

    Raises:
        DataError: The folder holds no run, or its data are gone, have other classes or several labels per sample.
    """
    messages = messages or Messages(quiet=request.quiet)
    folder = RunFolder(request.run)
    settings, trained = stored_settings(folder), load_trained(folder)
    source = settings.data if request.data is None else settings.data.model_copy(update={"source": request.data})
    device = choose_device(request.machine.device, caller=request.verb)
    data = load_data(source, settings, device, messages)
    data.check_one_label(request.verb)
    check_input(trained.model.spec, data, folder.path)
    if trained.model.spec.class_names != data.class_names:
        raise DataError(f"{folder.path}: was trained on other classes than those of {data.name}")
    if trained.model.spec.frozen:
        data = with_features(trained.model, data, device, messages)
    vectors, basis = label_vectors(data, device, lambda: _embeddings(trained, data, device, messages))
    with locked(folder.path, EVALUATION_LOCK):
        with staged_folder(folder.path, last=LABEL_LIST) as work:
            found = write_label_issues(work, data, vectors, basis, epochs=trained.epochs, k=request.k)
        try:
            refresh_report(folder.path)
        except DataError as error:  # the list is there all the same
            messages.note(f"report.html was not updated: {error}")
    if len(found.ids) and not messages.quiet:
        table = Table("name", "part", "label", "neighbours say", "agreement", box=None, header_style="bold")
        for i in range(len(found.ids)):
            label, suggested = (printable(data.class_names[x[i]]) for x in (found.labels, found.suggested))
            table.add_row(*map(Text, (found.name(i), found.part(i), label, suggested)), f"{found.agreement[i]:.4f}")
        messages.console.print(table)
    path = folder.path / LABEL_ISSUES
    n = f"{found.n_issues:,} of {found.n_samples:,} {data.noun}"
    messages.say(f"{n} have another label than most of their {found.k} nearest neighbours by {basis}: {path}")
    return path


def _embeddings(trained: Trained, data: Dataset, device: torch.device, messages: Messages) -> tuple[Tensor, Tensor]:
    messages.say(f"embedding {len(data.train):,} training and {len(data.test):,} test {data.noun}")
    embedded = embed_data(trained.model, data, device)
    return embedded.train.embeddings, embedded.test.embeddings
