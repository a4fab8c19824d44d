"""Write the model of a run for use elsewhere: as ONNX, or as a folder with a model card."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sincere import __version__, checks
from sincere.errors import DataError, InputValueError, UnsupportedError
from sincere.loss_catalog import loss_title
from sincere.messages import Messages
from sincere.models.onnx_graph import EMBEDDINGS, FEATURES, IMAGES, input_description, stored_shape, to_onnx
from sincere.records.config import CONFIG, read_config
from sincere.records.files import write_atomic
from sincere.records.model import ModelSpec
from sincere.settings.use_requests import ExportRequest
from sincere.workflows.model import Model, load
from sincere.workflows.pretrained import export_folder

SUFFIX = ".onnx"
TOLERANCE = 1e-4  # of embeddings of unit length
SEED = 0  # of the images on which ONNX and PyTorch are compared
N_FEATURES = 8  # rows of features on which they are


def run_export(request: ExportRequest, messages: Messages | None = None) -> Path:
    """Write the file or the folder.

    Raises:
        InputValueError: The file does not end with .onnx.
        DataError: The file or the folder exists, or RUN holds no model.
        MissingPackageError: onnx or onnxscript is not installed.
        UnsupportedError: The encoder cannot be exported, or the embeddings differ.
    """
    messages = messages or Messages(quiet=request.quiet)
    out = request.out
    if request.format == "onnx":
        check_file(out, overwrite=request.overwrite)  # before a model is loaded
    model = load(request.run, device="cpu")
    if request.format == "hub":
        export_folder(model, out, reference=request.reference, overwrite=request.overwrite)
        messages.say(f"{model.network.describe()}: {out}")
        return out
    difference = export_onnx(model, out, overwrite=request.overwrite)
    if difference is None:
        messages.note("not compared with PyTorch: onnxruntime is not installed; pip install 'sincere[export]' adds it")
    else:
        messages.say(f"embeddings of onnxruntime and PyTorch differ by {difference:.1e} at most")
    messages.say(f"{input_description(model.spec)}: {out}")
    return out


def check_file(out: Path, *, overwrite: bool) -> None:
    """Raise for a file that must not be written.

    Raises:
        InputValueError: It does not end with .onnx.
        DataError: It exists.
    """
    if out.suffix.lower() != SUFFIX:
        remedy = "--format hub writes a folder"
        raise InputValueError(checks.wording("export", f"out must end with {SUFFIX}", repr(str(out)), remedy))
    if out.is_dir():
        raise DataError(f"{out}: is a folder; choose a file")
    if out.exists() and not overwrite:
        raise DataError(f"{out}: exists already; --overwrite (in Python: overwrite=True) replaces it")


def export_onnx(model: Model, out: Path, *, overwrite: bool = False) -> float | None:
    """Write an .onnx file; return the largest difference to PyTorch's embeddings, None without onnxruntime.

    Raises:
        InputValueError: The file does not end with .onnx.
        DataError: The file exists.
        MissingPackageError: onnx or onnxscript is not installed.
        UnsupportedError: The encoder cannot be exported, or the embeddings differ by more than 1e-4.
    """
    check_file(out, overwrite=overwrite)
    content = to_onnx(model.network, _metadata(model))
    difference = largest_difference(content, model) if find_spec("onnxruntime") is not None else None
    if difference is not None and not difference <= TOLERANCE:  # also if it is NaN
        reason = f"its embeddings differ from PyTorch's by {difference:.1e}, more than {TOLERANCE:g}"
        raise UnsupportedError(f"export: {out} was not written: {reason}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, content)
    return difference


def _metadata(model: Model) -> dict[str, str]:
    """Return what the file says of itself."""
    spec, settings = model.spec, read_config(model.folder) if (model.folder / CONFIG).exists() else {}
    trained = f", trained with {loss_title(str(settings['loss']))}" if "loss" in settings else ""
    return {
        "sincere_version": __version__,
        "description": checks.printable(model.network.describe() + trained),
        "input": input_description(spec),
        "output": f"{EMBEDDINGS}: float32 (n, {spec.dim}), of unit length",
        "class_names": json.dumps(spec.class_names),
    }


def largest_difference(content: bytes, model: Model) -> float:
    """Return the largest difference between the embeddings of an ONNX file and of the model, on random input."""
    import onnxruntime

    if model.device.type != "cpu":  # others may compute with fewer digits
        model = Model(model.folder, copy.deepcopy(model.network), torch.device("cpu"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    name = IMAGES if model.spec.n_features is None else FEATURES
    differences = [
        float(np.abs(session.run([EMBEDDINGS], {name: batch})[0] - model.embed(batch).numpy()).max())
        for batch in _trial_batches(model.spec)
    ]
    return float(np.max(differences))  # NaN if one is


def _trial_batches(spec: ModelSpec) -> Iterator[NDArray[np.float32] | NDArray[np.uint8]]:
    """Yield features, or images of several shapes: portrait, landscape, square, smaller and larger than the input."""
    generator = np.random.default_rng(SEED)
    if spec.n_features is not None:
        yield (generator.normal(size=(N_FEATURES, spec.n_features)) * spec.feature_scale).astype(np.float32)
        return
    channels, side, _ = stored_shape(spec)
    shapes = [(side + side // 2 + 1, side + 1), (side, 2 * side + 1), (side, side), (side // 2 + 1, side // 3 + 1)]
    for height, width in (*shapes, (3 * side + 1, 2 * side + 1)):
        yield generator.integers(256, size=(2, height, width, channels), dtype=np.uint8)
