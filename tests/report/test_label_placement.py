"""Names on a map do not overlap, stay inside, and stay near their class."""

from __future__ import annotations

from itertools import combinations
from math import hypot
from pathlib import Path

import numpy as np
import pytest

from sincere.report.evidence import read_evidence
from sincere.report.figure import WIDTH
from sincere.report.label_placement import LONGEST_NAME, Box, place, shortened, text_width
from sincere.report.map import planes_of
from sincere.report.map_figure import MAP_EDGE, NAME_SIZE, map_figure, map_names
from tests.report.comparison_folder import chart_rows, make_comparison

SIDE = 300.0


@pytest.mark.parametrize("seed", range(5))
def test_no_two_names_overlap(seed: int) -> None:
    generator = np.random.default_rng(seed)
    wanted = [Box(*generator.uniform(-20, 320, 2), generator.uniform(20, 110), 16) for _ in range(30)]
    assert any(a.overlaps(b) for a, b in combinations(wanted, 2))
    placed = place(wanted, SIDE)
    assert not any(a.overlaps(b) for a, b in combinations(placed, 2))
    assert all(box.inside(SIDE) == box for box in placed)
    assert [(box.width, box.height) for box in placed] == [(box.width, box.height) for box in wanted]


def test_free_names_stay_and_others_move_little() -> None:
    apart = [Box(50, 50, 40, 16), Box(200, 50, 40, 16), Box(50, 200, 40, 16)]
    assert place(apart, SIDE) == apart
    first, second = place([Box(100, 100, 40, 16), Box(102, 101, 40, 16)], SIDE)
    assert first == Box(100, 100, 40, 16)
    assert hypot(second.x - 102, second.y - 101) <= 24


def test_without_room_a_name_stays_where_it_was_wanted() -> None:
    assert place([Box(50, 50, 90, 90)] * 2, 100) == [Box(50, 50, 90, 90)] * 2
    assert place([Box(0, 0, 150, 16)], 100) == [Box(50, 8, 150, 16)]


def test_names_in_the_figure(tmp_path: Path) -> None:
    class_names = [f"class number {i}" for i in range(12)]
    make_comparison(tmp_path, losses=("sincere",), class_names=class_names, n_test=240)
    planes = planes_of(read_evidence(tmp_path, files=False).shown)
    names = map_names(planes[0], class_names)
    step = (1 + 2 * MAP_EDGE) / WIDTH
    boxes = [Box(n["x"] / step, n["y"] / step, text_width(n["name"], NAME_SIZE), NAME_SIZE) for n in names]
    assert len(boxes) == 12
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    (spec,) = map_figure(planes, class_names).specs().values()
    assert chart_rows(spec, 3) == names
    assert {tuple(layer["encoding"]["x"]["scale"]["domain"]) for layer in spec["layer"]} == {(-MAP_EDGE, 1 + MAP_EDGE)}


def test_widths_and_long_names() -> None:
    assert text_width("abc", 10) < text_width("abcd", 10) < text_width("\u732b" * 4, 10)
    assert shortened("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    assert shortened("x" * 40) == "x" * (LONGEST_NAME - 1) + "…"
