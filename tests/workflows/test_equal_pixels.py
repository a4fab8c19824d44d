"""The same images as a folder of PNG files and as one .npz: the same pixels, weights and results, bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sincere
from sincere.data.catalog import load_dataset, load_source
from sincere.data.load_options import LoadOptions
from sincere.errors import DataError
from sincere.records.arrays import PerImage
from tests.workflows.trained_runs import same_weights

SETTINGS = {"epochs": 2, "augmentation": "digits", "batch_size": 256, "quiet": True, "size": 8}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The digits, in the order that a folder of them is read in."""
    data = load_dataset("digits")
    folder = tmp_path_factory.mktemp("digits")
    arrays: dict[str, np.ndarray] = {}
    for part, images in (("train", data.train), ("test", data.test)):
        order = np.lexsort((images.ids, images.labels))
        pixels = images.items.gather(images.positions[order]).permute(0, 2, 3, 1).numpy()
        arrays |= {f"{part}_images": pixels, f"{part}_labels": images.labels[order]}
        for i, (picture, label) in enumerate(zip(pixels, images.labels[order], strict=True)):
            place = folder / "png" / part / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture[..., 0]).save(place / f"{i:05d}.png")
    np.savez(folder / "digits.npz", **arrays, class_names=np.array(data.class_names))
    return folder / "png", folder / "digits.npz"


def test_the_same_pixels(digits: tuple[Path, Path], tmp_path: Path) -> None:
    png, npz = (load_source(source, LoadOptions(size=8, cache=tmp_path)) for source in digits)
    assert (png.mean, png.std, png.class_names, png.size) == (npz.mean, npz.std, npz.class_names, npz.size)
    for part in ("train", "test"):
        one, other = getattr(png, part), getattr(npz, part)
        assert np.array_equal(one.labels, other.labels)
        assert np.array_equal(one.ids, other.ids)
        assert one.items.gather(one.positions).equal(other.items.gather(other.positions))


@pytest.mark.slow
def test_the_same_weights_and_results(
    digits: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    found = []
    for name, source in zip(("png", "npz"), digits, strict=True):
        sincere.train(data=source, out=tmp_path / name, **SETTINGS)
        found.append(sincere.evaluate(tmp_path / name, report=False, quiet=True))
    assert same_weights(tmp_path / "png", tmp_path / "npz")
    one, other = (results.rows[0] for results in found)
    assert (one.metrics, one.margin, one.classes) == (other.metrics, other.margin, other.classes)
    arrays = [PerImage.read(tmp_path / name).values for name in ("png", "npz")]
    assert all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])


def test_eight_images_moved_to_another_class_are_noticed(
    digits: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    root = tmp_path / "png"
    shutil.copytree(digits[0], root)
    options = {**SETTINGS, "epochs": 1, "losses": ("sincere",), "metrics": ("knn",), "out": tmp_path / "c"}
    sincere.compare(data=root, **options)
    for path in sorted((root / "train" / "3").iterdir())[:8]:
        path.rename(root / "train" / "8" / path.name)
    with pytest.raises(DataError, match="was trained on other data than"):
        sincere.compare(data=root, **options)
