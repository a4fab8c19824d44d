"""Data of the maps: the same images share a sheet, and thumbnails keep their pixels."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sincere.report.evidence import read_evidence
from sincere.report.map import Plane, map_data, planes_of
from tests.report.comparison_folder import make_comparison


@pytest.fixture(scope="module")
def planes(reported: Path) -> list[Plane]:
    return planes_of(read_evidence(reported, files=False).shown)


def test_maps_of_the_same_images_share_a_sheet(planes: list[Plane]) -> None:
    data = map_data(planes)
    assert [one["sheet"] for one in data["maps"]] == [0, 0, 0]
    assert len(data["sheets"]) == 1
    other = replace(planes[1].map, ids=planes[1].map.ids + 1)
    data = map_data([planes[0], Plane("supcon", other), planes[2]])
    assert [one["sheet"] for one in data["maps"]] == [0, 1, 0]
    assert data["sheets"][1]["ids"][0] == other.ids[0]


def opened(source: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(source.split(",", 1)[1])))


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_pixels_are_those_of_the_thumbnails(tmp_path: Path, channels: int, mode: str) -> None:
    make_comparison(tmp_path, losses=("sincere",), n_test=23, channels=channels)
    (plane,) = planes_of(read_evidence(tmp_path, files=False).shown)
    (sheet,) = map_data([plane])["sheets"]
    image = opened(sheet["thumbnails"]["source"])
    assert (image.format, image.mode) == ("PNG", mode)
    pixels = np.asarray(image).reshape(image.height, image.width, channels)
    for i in range(23):
        row, column = divmod(i, sheet["thumbnails"]["columns"])
        tile = pixels[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
        np.testing.assert_array_equal(tile, plane.map.thumbnails[i])


def test_a_large_sheet_is_a_jpeg(planes: list[Plane]) -> None:
    thumbnails = np.full((359, 64, 64, 3), 130, dtype=np.uint8)
    (sheet,) = map_data([Plane("sincere", replace(planes[0].map, thumbnails=thumbnails))])["sheets"]
    image = opened(sheet["thumbnails"]["source"])
    assert image.format == "JPEG"
    assert abs(int(np.asarray(image)[5, 5, 0]) - 130) <= 2


def test_features_have_texts_and_no_thumbnails(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",), n_test=20, texts=("a.txt", "\x1b[31m", "x" * 500))
    (plane,) = planes_of(read_evidence(tmp_path, files=False).shown)
    (sheet,) = map_data([plane])["sheets"]
    assert sheet["thumbnails"] is None
    assert sheet["texts"][:4] == ["a.txt", "\\x1b[31m", "x" * 200, "a.txt"]


def test_both_axes_have_one_scale(planes: list[Plane]) -> None:
    points = np.array([[0, 0], [4, 0], [4, 1]], dtype=np.float32)
    found = replace(planes[0].map, points=points, labels=np.array([0, 0, 1]))
    np.testing.assert_allclose(Plane("sincere", found).unit, [[0, 0.375], [1, 0.375], [1, 0.625]])
    assert Plane("sincere", found).label_positions()[0].tolist() == [0.5, 0.375]
    alike = replace(found, points=np.zeros((3, 2), dtype=np.float32))
    assert (Plane("sincere", alike).unit == 0.5).all()
