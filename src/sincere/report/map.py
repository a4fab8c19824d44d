"""The maps of the test embeddings: the same images under every loss, with one sheet of their thumbnails."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sincere.records.arrays import EmbeddingMap
from sincere.report.evidence import Run, titled

MOST_EXACT = 1_000_000  # pixels of a sheet up to which it is PNG; larger ones are photographs as JPEG
STEPS = 4095  # of a coordinate on the page


@dataclass(frozen=True, eq=False)
class Plane:
    """A map and the loss it belongs to."""

    loss: str
    map: EmbeddingMap

    @cached_property
    def unit(self) -> NDArray[np.float64]:
        """Points in the unit square (m, 2), both axes to one scale."""
        points = self.map.points.astype(np.float64)
        low, high = points.min(axis=0), points.max(axis=0)
        span = max(float((high - low).max()), 1e-12)
        unit: NDArray[np.float64] = (points - (low + high) / 2) / span + 0.5
        return unit

    def tops(self) -> dict[int, NDArray[np.float64]]:
        """Return for each class with a point where its name goes: above the bulk of its points, hiding few."""
        places = {}
        for label in np.unique(self.map.labels):
            points = self.unit[self.map.labels == label]
            places[int(label)] = np.array([np.median(points[:, 0]), np.quantile(points[:, 1], 0.9)])
        return places


def planes_of(runs: Sequence[Run]) -> list[Plane]:
    """Return the maps there are."""
    return [Plane(run.row.loss, run.map) for run in runs if run.map is not None and len(run.map.ids)]


def map_data(planes: Sequence[Plane]) -> dict[str, Any]:
    """Return what the page needs to draw the maps.

    `sheets` holds what does not depend on the loss: ids, labels and thumbnails; maps of the same images share one.
    """
    sheets: list[EmbeddingMap] = []
    maps = []
    for plane in planes:
        found = plane.map
        same = (i for i, sheet in enumerate(sheets) if _same_images(sheet, found))
        number = next(same, len(sheets))
        if number == len(sheets):
            sheets.append(found)
        maps.append(
            {
                "loss": titled(plane.loss),
                "sheet": number,
                "points": (STEPS * plane.unit).round().astype(int).ravel().tolist(),
                "predictions": found.predictions.tolist(),
                "neighbours": found.neighbours.tolist(),
                "tops": {label: place.round(4).tolist() for label, place in plane.tops().items()},
            }
        )
    return {"steps": STEPS, "maps": maps, "sheets": [_sheet(found) for found in sheets]}


def _same_images(one: EmbeddingMap, other: EmbeddingMap) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.labels, other.labels)


def _sheet(found: EmbeddingMap) -> dict[str, Any]:
    n, height, width = found.thumbnails.shape[:3]
    columns = math.ceil(math.sqrt(n * height / width))  # about square
    return {
        "ids": found.ids.tolist(),
        "labels": found.labels.tolist(),
        "columns": columns,
        "width": width,
        "height": height,
        "source": _data_url(_tiled(found.thumbnails, columns)),
    }


def _tiled(thumbnails: NDArray[np.uint8], columns: int) -> Image.Image:
    n, height, width, channels = thumbnails.shape
    rows = math.ceil(n / columns)
    filled = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    filled[:n] = thumbnails
    sheet = filled.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    pixels = sheet.reshape(rows * height, columns * width, channels)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


def _data_url(image: Image.Image) -> str:
    exact = image.width * image.height <= MOST_EXACT
    options: dict[str, Any] = {"optimize": True} if exact else {"quality": 85, "subsampling": 0}
    kind = "png" if exact else "jpeg"
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
