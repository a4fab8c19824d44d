"""Data of the interactive maps: the same test samples under every loss, with texts or one sheet of thumbnails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.catalog import loss_title
from sincere.checks import printable
from sincere.records.arrays import EmbeddingMap
from sincere.report.document import data_url
from sincere.report.evidence import Run

LONGEST_TEXT = 200  # characters of a text on the page
STEPS = 4095  # coordinates on the page are integers from 0 to this


@dataclass(frozen=True, eq=False)
class Plane:
    """A map and the loss it belongs to."""

    loss: str
    map: EmbeddingMap

    @cached_property
    def unit(self) -> NDArray[np.float64]:
        """Points in the unit square (m, 2), with the same scale on both axes."""
        points = self.map.points.astype(np.float64)
        low, high = points.min(axis=0), points.max(axis=0)
        span = max(float((high - low).max()), 1e-12)
        unit: NDArray[np.float64] = (points - (low + high) / 2) / span + 0.5
        return unit

    def label_positions(self) -> dict[int, NDArray[np.float64]]:
        """Return the position of each class's name: above most of its points, so that it hides few."""
        positions = {}
        for label in np.unique(self.map.labels):
            points = self.unit[self.map.labels == label]
            positions[int(label)] = np.array([np.median(points[:, 0]), np.quantile(points[:, 1], 0.9)])
        return positions


def planes_of(runs: Sequence[Run]) -> list[Plane]:
    """Return the maps of the runs that have one."""
    return [Plane(run.row.loss, run.map) for run in runs if run.map is not None and len(run.map.ids)]


def map_data(planes: Sequence[Plane]) -> dict[str, Any]:
    """Return the data with which the page draws the maps.

    `sheets` holds what does not depend on the loss: ids, labels, texts and thumbnails; maps of the same images share a
    sheet.
    """
    sheets: list[EmbeddingMap] = []
    maps = []
    for plane in planes:
        embedding_map = plane.map
        same = (i for i, sheet in enumerate(sheets) if _same_images(sheet, embedding_map))
        index = next(same, len(sheets))
        if index == len(sheets):
            sheets.append(embedding_map)
        maps.append(
            {
                "loss": loss_title(plane.loss),
                "sheet": index,
                "points": (STEPS * plane.unit).round().astype(int).ravel().tolist(),
                "predictions": embedding_map.predictions.tolist(),
                "neighbours": embedding_map.neighbours.tolist(),
                "label_positions": {label: at.round(4).tolist() for label, at in plane.label_positions().items()},
            }
        )
    return {"steps": STEPS, "maps": maps, "sheets": [_sheet(sheet) for sheet in sheets]}


def _same_images(one: EmbeddingMap, other: EmbeddingMap) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.labels, other.labels)


def _sheet(embedding_map: EmbeddingMap) -> dict[str, Any]:
    texts, thumbnails = embedding_map.texts, embedding_map.thumbnails
    return {
        "ids": embedding_map.ids.tolist(),
        "labels": embedding_map.labels.tolist(),
        "texts": None if texts is None else [printable(text)[:LONGEST_TEXT] for text in texts.tolist()],
        "thumbnails": None if thumbnails is None else _thumbnails(thumbnails),
    }


def _thumbnails(pixels: NDArray[np.uint8]) -> dict[str, Any]:
    n, height, width = pixels.shape[:3]
    columns = math.ceil(math.sqrt(n * height / width))  # about square
    return {"columns": columns, "width": width, "height": height, "source": data_url(_tiled(pixels, columns))}


def _tiled(thumbnails: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    n, height, width, channels = thumbnails.shape
    rows = math.ceil(n / columns)
    filled = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    filled[:n] = thumbnails
    sheet = filled.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return sheet.reshape(rows * height, columns * width, channels)
