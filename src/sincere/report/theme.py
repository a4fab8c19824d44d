"""Colours and fonts of the figures: the palette of Okabe and Ito (https://jfly.uni-koeln.de/color/).

Its colours are distinguishable with any colour vision.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from sincere.loss_catalog import LOSSES, RAW_FEATURES

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"
SKY, AMBER, BROWN = "#56B4E9", "#E69F00", "#A0785A"
INK, GROUND = "#1B1F24", "#FEFEFE"  # colours of text and background, also for rules and for text on filled cells
# Replacements on a dark background, where deep colours are hard to see.
ON_DARK = {
    BLUE: "#4AA8E0",
    ORANGE: "#FF8B3D",
    GREEN: "#2BC79A",
    PURPLE: "#E3A3C6",
    GREY: "#A9AEB6",
    BROWN: "#CBA485",
    INK: "#E8EAED",
    GROUND: "#15181C",
}
CLASS_COLOURS = (BLUE, AMBER, GREEN, PURPLE, SKY, ORANGE, "#A8A000", "#9C755F", "#8F6BC8", "#8A8F98")
FREE_COLOURS = tuple(colour for colour in CLASS_COLOURS if colour != "#9C755F")  # which is near that of raw features
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def loss_colours(losses: Sequence[str]) -> dict[str, str]:
    """Return the colour of each loss: that of the catalog; for losses without one, colours that are not in use."""
    known = {loss: LOSSES[loss].colour for loss in losses if loss in LOSSES} | {RAW_FEATURES: BROWN}
    free = cycle([colour for colour in FREE_COLOURS if colour not in known.values()])
    return {loss: known.get(loss) or next(free) for loss in dict.fromkeys(losses)}


def class_colours(n_classes: int) -> list[str]:
    """Return a colour for each class; for more than ten, hues in steps of the golden angle."""
    if n_classes <= len(CLASS_COLOURS):
        return list(CLASS_COLOURS[:n_classes])
    levels = (0.42, 0.55, 0.66)
    return [_hex(colorsys.hls_to_rgb(0.618034 * i % 1, levels[i % 3], 0.6)) for i in range(n_classes)]


def chart_config(*, dark: bool) -> dict[str, Any]:
    """Return the Vega-Lite configuration of all charts for the light or the dark theme."""
    text, quiet, line = (ON_DARK[INK], "#A9AEB6", "#33383F") if dark else (INK, "#57606A", "#E3E6EA")
    axis = {"labelColor": quiet, "titleColor": quiet, "gridColor": line, "domainColor": line, "tickColor": line}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **axis,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelFlush": False,
        },
        "legend": {"labelColor": quiet, "titleColor": quiet, "labelFontSize": 11.5, "orient": "bottom"},
        "title": {
            "color": text,
            "subtitleColor": quiet,
            "fontSize": 14,
            "fontWeight": 600,
            "subtitleFontSize": 12,
            "anchor": "start",
            "frame": "group",
            "offset": 12,
        },
        "text": {"color": text},
    }


def _hex(colour: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in colour)
