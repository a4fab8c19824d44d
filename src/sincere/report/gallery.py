"""Training samples that are nearest to the points of the maps: each once, shared by the maps of all losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.checks import printable
from sincere.records.arrays import EmbeddingMap
from sincere.report.document import thumbnail_sheet

LONGEST_TEXT = 80  # characters of a text on the page: there may be 30,000 of them
MOST_PNG_PIXELS, QUALITY = 300_000, 75  # of the picture that holds the thumbnails; above that size it is a JPEG
MOST_SHEET_BYTES = 2_400_000

Key = tuple[int, int]  # id and label


class Gallery:
    """Training samples of several maps whose thumbnails have one shape."""

    def __init__(self) -> None:
        self.texts: dict[Key, str | None] = {}  # in the order in which they were added
        self.pixels: dict[Key, NDArray[np.uint8]] = {}

    def add(self, embedding_map: EmbeddingMap, rank: int) -> None:
        """Add the nearest training samples of all points (rank 0), the second (rank 1) and so on."""
        texts, pixels = embedding_map.train_texts, embedding_map.train_thumbnails
        keys = keys_of(embedding_map)
        for i in embedding_map.neighbours[:, rank : rank + 1].ravel().tolist():
            if self.texts.get(keys[i]) is None:
                self.texts[keys[i]] = None if texts is None else cut(printable(str(texts[i])))
            if pixels is not None and i < len(pixels):
                self.pixels.setdefault(keys[i], pixels[i])

    def build(self) -> tuple[dict[str, Any], dict[Key, int]]:
        """Return the content for the page, samples with a thumbnail first, and the position of each sample in it."""
        keys = [key for key in self.texts if key in self.pixels]
        sheet = self._sheet(keys)
        keys += [key for key in self.texts if key not in self.pixels]
        texts = [self.texts[key] for key in keys]
        content = {
            "ids": [key[0] for key in keys],
            "labels": [key[1] for key in keys],
            "texts": None if all(text is None for text in texts) else [text or "" for text in texts],
            "thumbnails": sheet,
        }
        return content, {key: i for i, key in enumerate(keys)}

    def _sheet(self, keys: Sequence[Key]) -> dict[str, Any] | None:
        """Return the thumbnails of as many samples as fit, the first ones; None without any."""
        n = len(keys)
        while n:
            pixels = np.stack([self.pixels[key] for key in keys[:n]])
            sheet = thumbnail_sheet(pixels, most_png_pixels=MOST_PNG_PIXELS, quality=QUALITY)
            if len(sheet["source"]) <= MOST_SHEET_BYTES:
                return sheet
            n = n * 3 // 4
        return None


def build_galleries(maps: Sequence[EmbeddingMap]) -> tuple[list[dict[str, Any]], list[tuple[int, list[list[int]]]]]:
    """Return the galleries, and for each map the number of its gallery and its neighbours as positions in there."""
    shapes = [None if one.train_thumbnails is None else one.train_thumbnails.shape[1:] for one in maps]
    galleries = {shape: Gallery() for shape in shapes}
    for rank in range(max((one.neighbours.shape[1] for one in maps), default=0)):
        # Everybody's nearest first, under every loss: they decide the prediction, so their thumbnails are cut last.
        for shape, one in zip(shapes, maps, strict=True):
            galleries[shape].add(one, rank)
    built = {shape: gallery.build() for shape, gallery in galleries.items()}
    numbers = {shape: number for number, shape in enumerate(built)}
    of_maps = []
    for shape, one in zip(shapes, maps, strict=True):
        keys, positions = keys_of(one), built[shape][1]
        of_maps.append((numbers[shape], [[positions[keys[i]] for i in row] for row in one.neighbours.tolist()]))
    return [content for content, _ in built.values()], of_maps


def keys_of(embedding_map: EmbeddingMap) -> list[Key]:
    """Return id and label of the training samples of a map."""
    return list(zip(embedding_map.train_ids.tolist(), embedding_map.train_labels.tolist(), strict=True))


def cut(text: str) -> str:
    """Return a text without its middle if it is long: of a path, the end says most."""
    if len(text) <= LONGEST_TEXT:
        return text
    head = LONGEST_TEXT // 3
    return f"{text[:head]}…{text[head + 1 - LONGEST_TEXT :]}"
