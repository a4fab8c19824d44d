"""A model as one ONNX graph that takes decoded pixels: the preparation of an image is part of it."""

from __future__ import annotations

import copy
import io
import logging
import re
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from sincere.errors import MissingPackageError, UnsupportedError, first_line, missing_package
from sincere.models.embedding import EmbeddingModel
from sincere.records.model import ModelSpec

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

OPSET = 18  # of which PyTorch's exporter knows every operation
EXAMPLE = (2, 37, 41)  # images, height and width that the graph is traced with; 0 and 1 would be taken as constants
MOST_BYTES = 2**31 - 1  # of a file in the format of ONNX
IMAGES, FEATURES, EMBEDDINGS = "images", "features", "embeddings"  # names of inputs and output
_INT16 = 2**15  # weights of pixels are below it
_MOST_BITS = 22  # by which they are scaled


class CentreSquare(nn.Module):
    """Crops images to the centre square and resizes it: bilinear, antialiased, with the integers of `interpolate`.

    The resize of a uint8 image in PyTorch multiplies by weights that are rounded to 16 bits, and rounds the pixels
    after the columns and again after the rows. ONNX's own Resize rounds in other places: pixels differ by up to 2, and
    embeddings by up to 6e-4. Here both steps are matrix products with the same integers, exact in double precision, and
    the crop is a matter of weights that are 0.
    """

    targets: Tensor
    powers: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("targets", torch.arange(size, dtype=torch.float64)[:, None] + 0.5)  # centres of pixels
        self.register_buffer("powers", 2.0 ** torch.arange(1, _MOST_BITS + 1, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        """Return whole numbers from 0 to 255 (n, c, size, size) for uint8 images (n, h, w, c)."""
        # Sides come from tensors: as Python integers they would become conditions on the shape when traced.
        rows, columns = (torch.arange(images.shape[i], dtype=torch.float64, device=images.device) for i in (1, 2))
        side = torch.minimum(rows.max(), columns.max()) + 1
        pixels = images.permute(0, 3, 1, 2).double()
        pixels = self._resized(pixels, columns, side)  # (n, c, h, size)
        return self._resized(pixels.transpose(2, 3), rows, side).transpose(2, 3).float()

    def _resized(self, pixels: Tensor, positions: Tensor, side: Tensor) -> Tensor:
        """Return pixels (..., size) of pixels (..., w), of which the `side` in the middle count."""
        scale = side / self.size
        inside = positions - torch.floor((positions.max() + 1 - side) / 2)
        distance = (inside + 0.5 - self.targets * scale) / scale.clamp(min=1)  # (size, w)
        weights = (1 - distance.abs()).clamp(min=0) * ((inside >= 0) & (inside < side))
        weights = weights / weights.sum(dim=1, keepdim=True)
        n_bits = (torch.floor(weights.max() * self.powers + 0.5) < _INT16).sum()  # as many as the largest allows
        unit = torch.pow(2.0, n_bits.double())
        sums = pixels @ torch.floor(weights * unit + 0.5).T
        return torch.floor(sums / unit + 0.5).clamp(0, 255)


class PixelsToEmbeddings(nn.Module):
    """Maps decoded images of any shape to embeddings of unit length."""

    matrix: Tensor

    def __init__(self, network: EmbeddingModel) -> None:
        super().__init__()
        spec = network.spec
        side = stored_shape(spec)[1]
        self.square = CentreSquare(side)
        # What the model's own resize does to each of the rows, also to each of the columns: without rounding, it is
        # linear, and its matrix is what becomes of the unit vectors.
        units = torch.eye(side)[None, None]
        matrix = interpolate(units, (spec.size, side), mode="bilinear", antialias=True, align_corners=False)[0, 0]
        self.register_buffer("matrix", matrix)
        self.is_resized = side != spec.size
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (n, dim) for uint8 images (n, h, w, c)."""
        pixels = self.square(images) / 255
        if self.is_resized:
            pixels = self.matrix @ pixels @ self.matrix.T
        return normalize(self.network(pixels), dim=1)


class FeaturesToEmbeddings(nn.Module):
    """Maps ready-made features to embeddings of unit length."""

    def __init__(self, network: EmbeddingModel) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor) -> Tensor:
        """Return embeddings (n, dim) for features (n, d)."""
        return normalize(self.network(features), dim=1)


def stored_shape(spec: ModelSpec) -> tuple[int, int, int]:
    """Return channels, height and width at which images are stored before the model converts and resizes them."""
    return spec.image_shape or (spec.channels, spec.size, spec.size)


def input_description(spec: ModelSpec) -> str:
    """Return in words what the graph takes."""
    if spec.n_features is not None:
        return f"{FEATURES}: float32 (n, {spec.n_features}), ready-made features of the kind it was trained on"
    n_channels = stored_shape(spec)[0]
    colours = "grey" if n_channels == 1 else "red, green, blue"
    pixels = f"decoded pixels from 0 to 255 of n images of one shape, of any height and width; {colours}"
    return f"{IMAGES}: uint8 (n, height, width, {n_channels}), {pixels}; cropping, resizing and scaling are inside"


def to_onnx(network: EmbeddingModel, metadata: Mapping[str, str]) -> bytes:
    """Return the content of an .onnx file.

    Its input is `images`, uint8 (n, h, w, c), or `features`, float32 (n, d), for a model of ready-made features; its
    output is `embeddings`, float32 (n, dim), of unit length.

    Args:
        network: The model; it is not changed.
        metadata: What else the file is to say of itself.

    Raises:
        MissingPackageError: onnx or onnxscript is not installed.
        UnsupportedError: The encoder cannot be expressed in ONNX for any number of images, or is too large for a file.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch.onnx needs it)
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing_package("export", error)) from error

    network = copy.deepcopy(network).cpu().float().eval().requires_grad_(False)
    spec, dim = network.spec, torch.export.Dim
    module: nn.Module
    if spec.n_features is not None:
        module, name = FeaturesToEmbeddings(network), FEATURES
        example, dynamic = torch.zeros(EXAMPLE[0], spec.n_features), {0: dim("n")}
    else:
        module, name = PixelsToEmbeddings(network), IMAGES
        example = torch.zeros(*EXAMPLE, stored_shape(spec)[0], dtype=torch.uint8)
        dynamic = {0: dim("n"), 1: dim("height"), 2: dim("width")}
    try:
        model = _traced(module.eval(), example, name, dynamic)
    except Exception as error:  # what a network does may make it raise almost anything
        reason = f"torch.onnx: {_root_line(error)}"
        raise UnsupportedError(f"export: encoder {spec.encoder} cannot be exported to ONNX ({reason})") from error
    _strip(model.graph)
    onnx.helper.set_model_props(model, dict(metadata))
    if model.ByteSize() > MOST_BYTES:
        raise UnsupportedError(f"export: the model is too large for one file of ONNX, 2 GB; got {model.ByteSize():,} B")
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _traced(module: nn.Module, example: Tensor, name: str, dynamic: dict[int, Any]) -> ModelProto:
    options: dict[str, Any] = {"input_names": [name], "output_names": [EMBEDDINGS], "dynamic_shapes": (dynamic,)}
    disabled = logging.root.manager.disable
    # Of a network that it cannot trace, it prints pages; the error says what matters. And it warns of later versions.
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            program = torch.onnx.export(module, (example,), dynamo=True, opset_version=OPSET, verbose=False, **options)
        finally:
            logging.disable(disabled)
    assert program is not None
    proto: ModelProto = program.model_proto
    return proto


def _strip(graph: GraphProto) -> None:
    """Remove what the exporter notes on each node: lines of source code, with the paths of this machine."""
    for parts in (graph.node, graph.initializer, graph.input, graph.output, graph.value_info):
        for part in parts:
            part.ClearField("metadata_props")
            part.ClearField("doc_string")
    graph.ClearField("metadata_props")


def _root_line(error: BaseException) -> str:
    """Return the first line of the error at the root of others, without colours."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return re.sub(r"\x1b\[[0-9;]*m", "", first_line(error))
