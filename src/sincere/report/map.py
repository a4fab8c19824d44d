"""Data of the interactive maps: the same test samples under every loss, and the training samples nearest to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.checks import printable
from sincere.loss_catalog import loss_title
from sincere.records.arrays import EmbeddingMap
from sincere.report.document import thumbnail_sheet
from sincere.report.evidence import Run
from sincere.report.gallery import build_galleries

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
    sheet. `galleries` holds the same of the training images that are nearest to them under one loss or another.
    """
    sheets: list[EmbeddingMap] = []
    maps = []
    galleries, of_maps = build_galleries([plane.map for plane in planes])
    for plane, (gallery, nearest) in zip(planes, of_maps, strict=True):
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
                "gallery": gallery,
                "neighbours": nearest,
                "similarities": embedding_map.similarities.astype(np.float64).round(5).tolist(),
                "label_positions": {label: at.round(4).tolist() for label, at in plane.label_positions().items()},
            }
        )
    return {"steps": STEPS, "maps": maps, "sheets": [_sheet(sheet) for sheet in sheets], "galleries": galleries}


def _same_images(one: EmbeddingMap, other: EmbeddingMap) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.labels, other.labels)


def _sheet(embedding_map: EmbeddingMap) -> dict[str, Any]:
    texts, thumbnails = embedding_map.texts, embedding_map.thumbnails
    return {
        "ids": embedding_map.ids.tolist(),
        "labels": embedding_map.labels.tolist(),
        "texts": None if texts is None else [printable(text)[:LONGEST_TEXT] for text in texts.tolist()],
        "thumbnails": None if thumbnails is None else thumbnail_sheet(thumbnails),
    }
