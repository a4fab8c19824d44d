"""Write the embeddings of images to a file, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from sincere import checks
from sincere.checks import printable
from sincere.data.given_images import NONE_READ, GivenImages
from sincere.data.load_options import Progress
from sincere.errors import DataError, InputValueError
from sincere.losses.distributed.collectives import gather, sizes_of
from sincere.messages import Messages
from sincere.records.embedding_files import WRITERS
from sincere.records.files import atomic_file
from sincere.settings.use_requests import EmbedRequest
from sincere.training.progress import CountProgress
from sincere.workflows.launch import report_lost_processes, speaker, start_processes
from sincere.workflows.model import Model, load

SHARE = 1024  # images that a process embeds before they are gathered


def run_embedding(request: EmbedRequest, messages: Messages | None = None) -> Path:
    """Embed images and write the file, which is there only when it is complete.

    Raises:
        InputValueError: The file has another suffix than .npz or .parquet.
        DataError: The file exists, the folder holds no run, or an image cannot be read.
    """
    messages = messages or Messages(quiet=request.quiet)
    out, suffix = request.out, request.out.suffix.lower()
    if suffix not in WRITERS:
        raise InputValueError(checks.wording("embed", f"out must end with {' or '.join(WRITERS)}", repr(str(out))))
    if out.exists() and not request.overwrite:
        raise DataError(f"{out}: exists already; --overwrite replaces it")
    if out.is_dir():
        raise DataError(f"{out}: is a folder")
    model = load(request.run, device="cpu")  # before there are processes, so that one of them says what is wrong
    given, dim, read = model.given_files(request.images), model.spec.dim, list[int]()
    fabric = start_processes(request.machine, caller=request.verb)
    messages = speaker(fabric, messages)
    model = Model(model.folder, model.network, fabric.device)
    shares = _in_shares if fabric.world_size > 1 else _alone
    with report_lost_processes(fabric, request.verb, "run the same command again"):
        if not fabric.is_global_zero:
            for _ in _in_shares(model, given, fabric, request.skip_bad_images, None):
                pass
            fabric.barrier()
            return out
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            atomic_file(out) as aside,
            WRITERS[suffix](aside, dim) as add,
            CountProgress(messages, "embedded images") as progress,
        ):
            for positions, embeddings in shares(model, given, fabric, request.skip_bad_images, progress):
                add([printable(given.names[i]) for i in positions], embeddings)
                read += positions
            if not read:
                raise DataError(f"{request.verb}: {NONE_READ}")
        fabric.barrier()
    messages.note(*given.skipped_note(read))
    messages.say(f"{len(read):,} embeddings of {dim} dimensions: {out}")
    return out


Embedded = Iterator[tuple[list[int], NDArray[np.float32]]]


def _alone(model: Model, given: GivenImages, fabric: Fabric, skip_bad: bool, progress: Progress | None) -> Embedded:
    """Yield positions and embeddings, batch by batch."""
    for positions, outputs in model.outputs(given, skip_bad=skip_bad, progress=progress):
        yield positions, outputs[:, : model.spec.dim].cpu().numpy()


def _in_shares(model: Model, given: GivenImages, fabric: Fabric, skip_bad: bool, progress: Progress | None) -> Embedded:
    """Yield positions and embeddings in order, each process embedding its share of every few thousand images."""
    n, n_processes, rank = len(given), fabric.world_size, fabric.global_rank
    for start in range(0, n, SHARE * n_processes):
        first, last = (min(n, start + SHARE * i) for i in (rank, rank + 1))
        positions = torch.zeros(0, dtype=torch.int64)
        embeddings = torch.zeros(0, model.spec.dim)
        for at, outputs in model.outputs(given.part(first, last), skip_bad=skip_bad):
            positions = torch.cat([positions, first + torch.tensor(at)])
            embeddings = torch.cat([embeddings, outputs[:, : model.spec.dim].cpu()])
        device = fabric.device
        sizes = sizes_of(len(positions), None)
        positions, embeddings = (gather(rows.to(device), sizes, None).cpu() for rows in (positions, embeddings))
        if progress is not None:
            progress(min(n, start + SHARE * n_processes), n)
        yield positions.tolist(), embeddings.numpy()
