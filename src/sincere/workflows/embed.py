"""Write the embeddings of images to a file, batch by batch."""

from __future__ import annotations

from pathlib import Path

from sincere import checks
from sincere.checks import printable
from sincere.errors import DataError, InputValueError
from sincere.messages import Messages
from sincere.records.embedding_files import WRITERS
from sincere.records.files import atomic_file
from sincere.settings.requests import EmbedRequest
from sincere.training.progress import CountProgress
from sincere.workflows.model import load


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
    model = load(request.run, device=request.machine.device)
    given, dim, n_done = model.given_files(request.images), model.spec.dim, 0
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_file(out) as aside,
        WRITERS[suffix](aside, dim) as add,
        CountProgress(messages, "embedded images") as progress,
    ):
        for positions, outputs in model.outputs(given, skip_bad=request.skip_bad_images, progress=progress):
            add([printable(given.names[i]) for i in positions], outputs[:, :dim].cpu().numpy())
            n_done += len(positions)
        if not n_done:
            raise DataError("embed: none of the images can be read")
    messages.note(*given.skipped_note(n_done))
    messages.say(f"{n_done:,} embeddings of {dim} dimensions: {out}")
    return out
