"""The map of the test embeddings as a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from sincere.loss_catalog import loss_title
from sincere.report.figure import WIDTH, Figure, panel
from sincere.report.label_placement import FAR, Box, place, shortened, text_width
from sincere.report.map import Plane
from sincere.report.theme import GROUND, INK, class_colours

MOST_LABELLED = 30  # classes up to which a map shows their names
MAP_EDGE = 0.06  # between the outermost points of a map and its edge, as a fraction of their extent
NAME_SIZE = 13  # font size of the names on a map


def map_figure(planes: Sequence[Plane], class_names: Sequence[str]) -> Figure:
    """Plot the map of test embeddings coloured by class, one panel per loss; crosses are misclassified."""
    colour = alt.Color("class:N", legend=None).scale(domain=list(class_names), range=class_colours(len(class_names)))
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    panels = []
    for plane in planes:
        embedding_map = plane.map
        labels, predictions = embedding_map.labels, embedding_map.predictions
        rows = [
            {"x": float(x), "y": float(y), "class": class_names[label], "right": bool(label == prediction)}
            for (x, y), label, prediction in zip(plane.unit.round(4), labels, predictions, strict=True)
        ]
        scale = alt.Scale(domain=[-MAP_EDGE, 1 + MAP_EDGE], nice=False)
        x, y = alt.X("x:Q", axis=hidden, scale=scale), alt.Y("y:Q", axis=hidden, scale=scale)
        points = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y, color=colour)
        layers: list[alt.Chart] = [
            points.transform_filter("datum.right").mark_circle(size=14, opacity=1),
            points.transform_filter("!datum.right").mark_point(
                shape="cross", angle=45, size=70, filled=True, opacity=1
            ),
        ]
        if len(class_names) <= MOST_LABELLED:
            words = alt.Chart(alt.Data(values=map_names(plane, class_names))).encode(x=x, y=y, text="name:N")
            layers += [
                words.transform_filter("datum.far")
                .mark_rule(strokeWidth=1, color=INK)
                .encode(x2="to_x:Q", y2="to_y:Q"),
                words.mark_text(fontSize=NAME_SIZE, fontWeight=700, stroke=GROUND, strokeWidth=4, strokeOpacity=0.8),
                words.mark_text(fontSize=NAME_SIZE, fontWeight=700),
            ]
        about = f"{embedding_map.method} map of the test embeddings of {loss_title(plane.loss)}"
        panels.append(panel(layers, loss_title(plane.loss), about, subtitle=embedding_map.method, height=WIDTH))
    return Figure("map", tuple(panels))


def map_names(plane: Plane, class_names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the names of the classes on a map: where they are, without overlap, and the points that they belong to."""
    step = (1 + 2 * MAP_EDGE) / WIDTH  # of a pixel, in the unit of the map
    labels, at = zip(*plane.label_positions().items(), strict=True)
    names = [shortened(class_names[label]) for label in labels]
    wanted = [
        Box((x + MAP_EDGE) / step, (1 + MAP_EDGE - y) / step - 12, text_width(name, NAME_SIZE), 1.25 * NAME_SIZE)
        for name, (x, y) in zip(names, at, strict=True)
    ]
    return [
        {
            "name": name,
            "x": box.x * step - MAP_EDGE,
            "y": 1 + MAP_EDGE - box.y * step,
            "to_x": float(x),
            "to_y": float(y),
            "far": math.hypot(box.x - first.x, box.y - first.y) > FAR,
        }
        for name, (x, y), first, box in zip(names, at, wanted, place(wanted, WIDTH), strict=True)
    ]
