"""Places the names of classes on a map so that they do not overlap; map.js does the same on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from unicodedata import east_asian_width

GAP = 2.0  # pixels between two names
RING, DIRECTIONS = (
    4.0,
    16,
)  # distance in pixels between the rings on which a free position is searched, and their points
FAR = 24.0  # pixels from which on a line leads from a name to its class
LONGEST_NAME = 18  # characters
_NARROW, _WIDE = 0.62, 1.05  # mean width of a bold character in units of the font size; Latin, and Chinese or emoji


@dataclass(frozen=True)
class Box:
    """A text on a map: its centre and its size in pixels."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Box, gap: float = 0.0) -> bool:
        """Return whether two boxes are closer than `gap` on both axes."""
        across = abs(self.x - other.x) < (self.width + other.width) / 2 + gap
        return across and abs(self.y - other.y) < (self.height + other.height) / 2 + gap

    def inside(self, side: float) -> Box:
        """Return the box shifted into a square that starts at 0; centred where it is too large."""
        x, y = (
            side / 2 if size > side else min(max(at, size / 2), side - size / 2)
            for at, size in ((self.x, self.width), (self.y, self.height))
        )
        return replace(self, x=x, y=y)


def place(wanted: Sequence[Box], side: float) -> list[Box]:
    """Return boxes inside a square of this side that do not overlap, each as near to its wanted position as is free.

    Greedy, in the order given: positions on rings around the wanted one are tried from the inside out. Where nothing is
    free, a box stays where it was wanted.

    Example:
        >>> [box.y for box in place([Box(50, 50, 40, 10), Box(50, 50, 40, 10)], 100)]
        [50, 38.0]
    """
    placed: list[Box] = []
    for box in wanted:
        start = box.inside(side)
        free = (option for option in _options(start, side) if not any(option.overlaps(other, GAP) for other in placed))
        placed.append(next(free, start))
    return placed


def _options(start: Box, side: float) -> Sequence[Box]:
    """Return the positions to try, the nearest first; upwards first within a ring."""
    options = [start]
    for ring in range(1, math.ceil(side / RING) + 1):
        for step in range(DIRECTIONS):
            turn = (step + 1) // 2 * (1 if step % 2 else -1)  # alternately to both sides of straight up
            angle = 2 * math.pi * turn / DIRECTIONS
            x, y = start.x + ring * RING * math.sin(angle), start.y - ring * RING * math.cos(angle)
            options.append(replace(start, x=x, y=y).inside(side))
    return options


def shortened(name: str) -> str:
    """Return a name cut to what fits on a map."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def text_width(text: str, font_size: float) -> float:
    """Return about how wide a bold text is in pixels; rather too wide than too narrow."""
    return font_size * sum(_WIDE if east_asian_width(character) in "WF" else _NARROW for character in text)
