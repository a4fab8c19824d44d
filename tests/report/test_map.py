"""Data of the maps: the same images share a sheet, and thumbnails keep their pixels."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sincere.report import gallery as gallery_module
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


def test_training_images_of_all_losses_are_stored_once(planes: list[Plane]) -> None:
    data = map_data(planes)
    (gallery,) = data["galleries"]
    assert len(set(gallery["ids"])) == len(gallery["ids"]) == gallery["thumbnails"]["n"] <= 30
    pixels = np.asarray(opened(gallery["thumbnails"]["source"]))
    for plane, drawn in zip(planes, data["maps"], strict=True):
        found = plane.map
        assert drawn["gallery"] == 0
        for point in (0, 17, 358):
            for i, at in zip(found.neighbours[point], drawn["neighbours"][point], strict=True):
                assert gallery["ids"][at] == found.train_ids[i]
                assert gallery["labels"][at] == found.train_labels[i]
                row, column = divmod(at, gallery["thumbnails"]["columns"])
                tile = pixels[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
                np.testing.assert_array_equal(tile, found.train_thumbnails[i][..., 0])
            assert gallery["labels"][drawn["neighbours"][point][0]] == found.predictions[point]
            np.testing.assert_allclose(drawn["similarities"][point], found.similarities[point], atol=5e-4)


def test_too_many_thumbnails_are_cut_and_the_nearest_are_kept(
    planes: list[Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    n = len(planes[0].map.ids)
    noise = np.random.default_rng(0).integers(256, size=(5 * n, 24, 24, 3)).astype(np.uint8)
    found = replace(
        planes[0].map,
        neighbours=np.arange(5 * n).reshape(n, 5, order="F"),
        train_ids=np.arange(5 * n),
        train_labels=np.zeros(5 * n, dtype=np.int64),
        train_thumbnails=noise[: 4 * n],
    )
    (whole,) = map_data([Plane("sincere", found)])["galleries"]
    assert (len(whole["ids"]), whole["thumbnails"]["n"]) == (5 * n, 4 * n)
    monkeypatch.setattr(gallery_module, "MOST_SHEET_BYTES", len(whole["thumbnails"]["source"]) * 2 // 3)
    data = map_data([Plane("sincere", found)])
    (gallery,) = data["galleries"]
    assert n <= gallery["thumbnails"]["n"] < 4 * n
    assert len(gallery["thumbnails"]["source"]) <= gallery_module.MOST_SHEET_BYTES
    assert len(gallery["ids"]) == 5 * n, "ids and classes stay"
    assert all(row[0] < gallery["thumbnails"]["n"] for row in data["maps"][0]["neighbours"])


def test_maps_with_other_thumbnails_have_galleries_of_their_own(planes: list[Plane]) -> None:
    larger = np.zeros((len(planes[1].map.train_ids), 12, 12, 1), dtype=np.uint8)
    plain = replace(planes[2].map, train_thumbnails=None)
    data = map_data([planes[0], Plane("supcon", replace(planes[1].map, train_thumbnails=larger)), Plane("x", plain)])
    assert [one["gallery"] for one in data["maps"]] == [0, 1, 2]
    assert [gallery["thumbnails"] and gallery["thumbnails"]["width"] for gallery in data["galleries"]] == [8, 12, None]


def test_long_texts_lose_their_middle() -> None:
    path = "photos/" + "a" * 200 + "/00012.png"
    assert len(gallery_module.cut(path)) == gallery_module.LONGEST_TEXT
    assert gallery_module.cut(path).startswith("photos/aa")
    assert gallery_module.cut(path).endswith("a/00012.png")
    assert gallery_module.cut("short.png") == "short.png"


def test_features_have_texts_and_no_thumbnails(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",), n_test=20, texts=("a.txt", "\x1b[31m", "x" * 500))
    (plane,) = planes_of(read_evidence(tmp_path, files=False).shown)
    (sheet,) = map_data([plane])["sheets"]
    assert sheet["thumbnails"] is None
    assert sheet["texts"][:4] == ["a.txt", "\\x1b[31m", "x" * 200, "a.txt"]
    (gallery,) = map_data([plane])["galleries"]
    assert gallery["thumbnails"] is None
    assert set(gallery["texts"]) == {"a.txt", "\\x1b[31m", gallery_module.cut("x" * 500)}


def test_both_axes_have_one_scale(planes: list[Plane]) -> None:
    points = np.array([[0, 0], [4, 0], [4, 1]], dtype=np.float32)
    found = replace(planes[0].map, points=points, labels=np.array([0, 0, 1]))
    np.testing.assert_allclose(Plane("sincere", found).unit, [[0, 0.375], [1, 0.375], [1, 0.625]])
    assert Plane("sincere", found).label_positions()[0].tolist() == [0.5, 0.375]
    alike = replace(found, points=np.zeros((3, 2), dtype=np.float32))
    assert (Plane("sincere", alike).unit == 0.5).all()
