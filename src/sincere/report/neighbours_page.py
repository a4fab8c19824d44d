"""A page of images, each with its nearest training images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sincere.report.document import data_url, document
from sincere.report.markup import Html, tag

PAGE_MARK = "<h1>Nearest training images</h1>"  # by which such a page is known


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A training image.

    Attributes:
        name: Its file name.
        label: Name of its class.
        similarity: Cosine similarity to the query.
        pixels: A thumbnail (h, w, c); None where the image is gone.
    """

    name: str
    label: str
    similarity: float
    pixels: NDArray[np.uint8] | None


@dataclass(frozen=True, eq=False)
class Query:
    """An image that was given.

    Attributes:
        name: Its file name.
        label: Name of the class that its neighbours vote for, or the labels that most of them have.
        confidence: Share of that class, or of the first of these labels, in the votes.
        n_votes: Number of the nearest training images that vote.
        p_known: How well it fits the known classes, compared with held-out test images: a p-value.
        is_unknown: Whether it seems to be of an unknown class.
        pixels: A thumbnail (h, w, c).
        nearest: Its nearest training images, the nearest first.
    """

    name: str
    label: str
    confidence: float
    n_votes: int
    p_known: float
    is_unknown: bool
    pixels: NDArray[np.uint8]
    nearest: Sequence[Neighbour]


def neighbours_page(run: str, queries: Sequence[Query]) -> str:
    """Return the page."""
    about = "Training images with the largest cosine similarity to each image, the nearest first."
    header = tag("header", tag("h1", "Nearest training images"), tag("p", f"{run}. {about}"))
    return document(f"{run}: nearest training images", tag("main", header, *map(_section, queries)))


def _section(query: Query) -> Html:
    vote = f"{query.label}: {query.confidence:.0%} of the votes of the {query.n_votes} nearest"
    nearest = [_figure(one.pixels, one.name, f"{one.label}, {one.similarity:.3f}") for one in query.nearest]
    fit = f"p_known {query.p_known:.2f}: about the share of test images that fit the known classes no better"
    texts = tag("div", tag("p", "unknown? " if query.is_unknown else None, vote), tag("p", fit, class_="note"))
    given = tag("div", tag("img", src=data_url(query.pixels), alt=query.name), texts, class_="pictures")
    return tag("section", tag("h2", query.name), given, tag("div", *nearest, class_="pictures"))


def _figure(pixels: NDArray[np.uint8] | None, name: str, caption: str) -> Html:
    picture = None if pixels is None else tag("img", src=data_url(pixels), alt=name)
    return tag("figure", picture, tag("figcaption", caption, tag("br"), name))
