"""The similarities of test images to their nearest training images, as histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from sincere.loss_catalog import loss_title
from sincere.records.histograms import WIDEST, Histogram, bin_width
from sincere.records.results import MarginAbout
from sincere.report.evidence import Run
from sincere.report.figure import Figure, panel
from sincere.report.theme import GREY, INK, loss_colours

FEWEST_BINS = 20  # of a histogram, up to which bins of few images are joined
KINDS = ("same class", "another class")
LABEL_KINDS = ("shares a label", "shares none")


def similarity_figure(runs: Sequence[Run], *, label_sets: bool = False) -> Figure:
    """Plot similarities to the nearest image of the same and of another class, one panel per loss, as in the paper.

    With label sets: to the nearest image that shares a label, and to the nearest that does not.
    """
    entries = [(loss_title(run.row.loss), run.row.loss, run.row.margin) for run in runs]
    return histograms_figure("similarity", entries, kinds=LABEL_KINDS if label_sets else KINDS)


def histograms_figure(
    name: str, entries: Sequence[tuple[str, str, MarginAbout]], *, kinds: tuple[str, str] = KINDS
) -> Figure:
    """Plot the similarities of each entry: title, loss, margin. `kinds` names those to the same and to another class.

    All panels share their axes. Dashed rules are medians; the bar between them is the margin.
    """
    margins = [about for _, _, about in entries]
    domain, width = similarity_axis(margins)
    highest = max((bar["share"] for about in margins for bar in histogram_bars(about, width)), default=1.0)
    colours = loss_colours([loss for _, loss, _ in entries])
    x = alt.Scale(domain=domain, nice=False)
    y = alt.Scale(domain=[0, 1.12 * highest], nice=False)
    panels = []
    for i, (title, loss, about) in enumerate(entries):
        colour = colours[loss]
        hue = alt.Color("kind:N", title=None).scale(domain=kinds, range=[colour, GREY])
        # Named, so that the page can replace the bars by those of one class.
        bars = alt.Chart(alt.InlineData(values=histogram_bars(about, width, kinds), name=f"bars-{i}")).mark_bar(
            opacity=0.72, binSpacing=0
        )
        medians = alt.Chart(alt.InlineData(values=median_rules(about, kinds), name=f"medians-{i}"))
        layers = [
            bars.encode(
                x=alt.X("start:Q", title="cosine similarity", scale=x).axis(
                    tickCount=6, labelOverlap="greedy", labelSeparation=8
                ),
                x2="end:Q",
                y=alt.Y("share:Q", title="share of test images", scale=y).stack(None).axis(format="%", tickCount=4),
                y2=alt.Y2Datum(0),
                color=hue,
                tooltip=["kind:N", "start:Q", "end:Q", alt.Tooltip("share:Q", format=".1%")],
            ),
            medians.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=INK).encode(
                x=alt.X("median:Q"), tooltip=["kind:N", alt.Tooltip("median:Q", format=".3f")]
            ),
            medians.mark_rule(strokeWidth=3, color=colour).encode(
                x=alt.X("noise:Q"), x2="target:Q", y=alt.value(5), tooltip=alt.Tooltip("margin:Q", format=".3f")
            ),
        ]
        panels.append(panel(layers, title, f"Similarities under {title}", subtitle=margin_text(about)))
    return Figure(name, tuple(panels))


def similarity_axis(margins: Sequence[MarginAbout]) -> tuple[list[float], float]:
    """Return the ends of the axis that shows all similarities of some margins, and the width of its bins."""
    filled = [
        edge
        for about in margins
        for histogram in (about.target, about.noise)
        for i, count in enumerate(histogram.counts)
        if count
        for edge in _edges(histogram, i)
    ]
    low, high = (min(filled), max(filled)) if filled else (-1.0, 1.0)
    span = max(high - low, 1e-9)
    scale = 10 ** math.floor(math.log10(span))
    step = next(scale * part for part in (0.1, 0.2, 0.5, 1) if span / (scale * part) <= 20)  # the ends are multiples
    ends = [step * math.floor(low / step + 0.01), step * math.ceil(high / step - 0.01)]
    width, most_bins = (
        bin_width(low, high),
        max(FEWEST_BINS, 2 * math.sqrt(max((about.n for about in margins), default=0))),
    )
    while (high - low) / width > most_bins and width < WIDEST:  # few images in many bins are a comb
        width *= 2
    return [round(end, 9) for end in ends], width


def histogram_bars(about: MarginAbout, width: float, kinds: tuple[str, str] = KINDS) -> list[dict[str, Any]]:
    """Return the bars of both histograms, without empty bins; bins narrower than `width` are joined.

    Bars of one width have comparable heights, and none is too thin to be seen.
    """
    bars = []
    same, other = kinds
    for kind, histogram in ((other, about.noise), (same, about.target)):
        counts: dict[tuple[float, float], int] = {}
        for i, count in enumerate(histogram.counts):
            if count:
                bar = _joined_bin(*_edges(histogram, i), width)
                counts[bar] = counts.get(bar, 0) + count
        bars += [
            {"kind": kind, "start": start, "end": end, "share": round(count / about.n, 5)}
            for (start, end), count in counts.items()
        ]
    return bars


def _edges(histogram: Histogram, i: int) -> tuple[float, float]:
    step = (histogram.high - histogram.low) / len(histogram.counts)
    return histogram.low + i * step, histogram.low + (i + 1) * step


def _joined_bin(start: float, end: float, width: float) -> tuple[float, float]:
    """Return the bin of this width that a narrower one is in; a bin of the same width or wider as it is."""
    if end - start < 0.99 * width:
        start = width * math.floor((start + end) / 2 / width)
        end = start + width
    return round(start, 7), round(end, 7)


def median_rules(about: MarginAbout, kinds: tuple[str, str] = KINDS) -> list[dict[str, Any]]:
    """Return the medians and the margin between them; nothing without images."""
    if about.margin is None:
        return []
    both = {"noise": about.noise_median, "target": about.target_median, "margin": about.margin}
    same, other = kinds
    return [{"kind": same, "median": about.target_median, **both}, {"kind": other, "median": about.noise_median}]


def margin_text(about: MarginAbout) -> str:
    """Return the margin and the medians as text."""
    if about.margin is None:
        return "no test images"
    # Two digits of the margin, however small it is.
    digits = min(max(1 - math.floor(math.log10(abs(about.margin))), 3), 6) if about.margin else 3
    values = (f"{value:.{digits}f}" for value in (about.margin, about.target_median, about.noise_median))
    return "margin {} (medians {} and {})".format(*values)
