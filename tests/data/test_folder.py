"""Folders of images of every kind end as uint8 pixels of one size, decoded once; bad ones are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sincere.data.decode import decode
from sincere.data.folder import load_folder
from sincere.data.images import MappedImages, StreamedImages, TensorImages
from sincere.data.settings import LoadSettings
from sincere.errors import DataError

RED = (220, 30, 40)


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def make_tree(root: Path, n_classes: int = 3, per_class: int = 10, side: int = 20) -> Path:
    generator = np.random.default_rng(0)
    for c in range(n_classes):
        for i in range(per_class):
            pixels = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
            save(root / f"class{c}" / f"{i}.png", Image.fromarray(pixels))
    return root


def sixteen_bit(size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(np.full(size[::-1], 51400, dtype=np.uint16))


KINDS: dict[str, Callable[[Path], Path]] = {
    "rgb jpeg": lambda p: save(p / "a.jpg", Image.new("RGB", (40, 30), RED), quality=98),
    "rgba": lambda p: save(p / "a.png", Image.new("RGBA", (30, 40), (*RED, 255))),
    "palette": lambda p: save(
        p / "a.gif", Image.new("RGB", (31, 17), RED).convert("P", palette=Image.Palette.ADAPTIVE)
    ),
    "cmyk": lambda p: save(p / "a.jpg", Image.new("RGB", (40, 40), RED).convert("CMYK"), quality=98),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_ends_as_the_same_colour(kind: str, tmp_path: Path) -> None:
    pixels = decode(KINDS[kind](tmp_path), 16, grey=False)
    assert pixels.shape == (16, 16, 3)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - RED).max() <= 12


def test_transparent_is_white_and_grey_and_sixteen_bits(tmp_path: Path) -> None:
    clear = save(tmp_path / "a.png", Image.new("RGBA", (8, 8), (0, 0, 0, 0)))
    assert (decode(clear, 8, grey=False) == 255).all()
    wide = save(tmp_path / "b.png", sixteen_bit((8, 8)))
    assert (decode(wide, 8, grey=True) == 200).all()
    assert decode(wide, 8, grey=False).shape == (8, 8, 3)


def test_camera_rotation_is_applied(tmp_path: Path) -> None:
    picture = Image.new("RGB", (20, 20), "black")
    picture.paste("white", (0, 0, 20, 10))  # the upper half
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    path = save(tmp_path / "a.jpg", picture, exif=exif, quality=98)
    pixels = decode(path, 20, grey=True)
    assert pixels[:8].mean() < 20 < 230 < pixels[12:].mean()


def test_one_tree_is_split_stratified_and_seeded(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "shapes")
    data = load_folder(root, LoadSettings(size=8, cache=tmp_path / "cache"))
    assert (data.name, data.class_names) == ("shapes", ("class0", "class1", "class2"))
    assert (len(data.train), len(data.test)) == (24, 6)
    assert np.bincount(data.test.labels).tolist() == [2, 2, 2]
    assert data.train.images.shape[1:] == (3, 16, 16), "twice the training size, for crops"
    assert data.test.images.shape[1:] == (3, 8, 8)
    again = load_folder(root, LoadSettings(size=8, cache=tmp_path / "cache"))
    assert torch.equal(data.train.images.gather(data.train.positions), again.train.images.gather(again.train.positions))


@pytest.mark.parametrize("part", ["test", "val"])
def test_given_parts_are_kept(part: str, tmp_path: Path) -> None:
    make_tree(tmp_path / "set" / "train", per_class=4)
    make_tree(tmp_path / "set" / part, per_class=2)
    data = load_folder(tmp_path / "set", LoadSettings(size=8, cache=tmp_path / "cache"))
    assert (len(data.train), len(data.test)) == (12, 6)


def test_five_hundred_mixed_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for i in range(500):
        size = tuple(int(x) for x in generator.integers(6, 40, 2))
        mode = ("L", "RGB", "RGBA", "P", "CMYK")[i % 5]
        suffix = ".jpg" if mode == "CMYK" or (i % 7 == 0 and mode in ("L", "RGB")) else ".png"
        save(tmp_path / "set" / f"c{i % 4}" / f"{i}{suffix}", Image.new("RGB", size, RED).convert(mode))
    data = load_folder(tmp_path / "set", LoadSettings(size=8, cache=tmp_path / "cache"))
    assert len(data.train) + len(data.test) == 500
    assert data.train.images.shape == (400, 3, 16, 16)
    everything = data.test.images.gather(data.test.positions)
    assert everything.shape == (100, 3, 8, 8)


def test_all_grey_stays_grey(tmp_path: Path) -> None:
    for i in range(8):
        save(tmp_path / "set" / f"c{i % 2}" / f"{i}.png", Image.new("L", (10, 10), 90))
    save(tmp_path / "set" / "c0" / "wide.png", sixteen_bit((10, 10)))
    data = load_folder(tmp_path / "set", LoadSettings(size=8, cache=tmp_path / "cache"))
    assert data.train.images.shape[1] == 1
    assert len(data.mean) == 1


def test_decoded_once_and_again_when_changed(tmp_path: Path) -> None:
    root, cache = make_tree(tmp_path / "set"), tmp_path / "cache"
    seen: list[int] = []
    load_folder(root, LoadSettings(size=8, cache=cache, progress=lambda done, total: seen.append(done)))
    assert len(seen) == 30
    seen.clear()
    load_folder(root, LoadSettings(size=8, cache=cache, progress=lambda done, total: seen.append(done)))
    assert not seen, "the cache is used"
    save(root / "class0" / "0.png", Image.new("RGB", (9, 9), RED))
    data = load_folder(root, LoadSettings(size=8, cache=cache, progress=lambda done, total: seen.append(done)))
    assert seen, "a changed file makes it anew"
    assert len(data.train) == 24


def test_what_does_not_fit_is_mapped_or_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, cache = make_tree(tmp_path / "set"), tmp_path / "cache"
    held = load_folder(root, LoadSettings(size=8, cache=cache))
    assert isinstance(held.train.images, TensorImages)
    streamed = load_folder(root, LoadSettings(size=8, cache=cache, cache_limit_bytes=100))
    assert isinstance(streamed.train.images, StreamedImages)
    monkeypatch.setattr("sincere.data.images._free_bytes", lambda device: 100)
    mapped = load_folder(root, LoadSettings(size=8, cache=cache))
    assert isinstance(mapped.train.images, MappedImages)
    positions = np.array([5, 3, 3, 20])
    expected = held.train.images.gather(positions)
    assert torch.equal(streamed.train.images.gather(positions), expected)
    assert torch.equal(mapped.train.images.gather(positions), expected)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n damaged"])
def test_a_bad_image_is_named_or_left_out(content: bytes, tmp_path: Path) -> None:
    root, cache = make_tree(tmp_path / "set"), tmp_path / "cache"
    bad = root / "class1" / "3.png"
    bad.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_folder(root, LoadSettings(size=8, cache=cache))
    assert str(caught.value).startswith(f"{bad}: cannot be read as an image")
    assert not list(cache.glob("*")), "nothing half-written stays"
    data = load_folder(root, LoadSettings(size=8, cache=cache, skip_bad_images=True))
    assert len(data.train) + len(data.test) == 29
    assert len(data.notes) == 1
    assert data.notes[0].startswith("1 of ")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: make_tree(root, n_classes=1), "{root}: at least two class folders are needed; got 1"),
        (lambda root: (make_tree(root) / "class3").mkdir(), "{root}/class3: class folder without any image"),
        (
            lambda root: make_tree(root / "train"),
            "{root}: has train/ but neither test/ nor val/; add one, or put the class folders at the top",
        ),
    ],
)
def test_bad_trees(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    root = tmp_path / "set"
    make(root)
    with pytest.raises(DataError) as caught:
        load_folder(root, LoadSettings(size=8, cache=tmp_path / "cache"))
    assert str(caught.value) == message.format(root=root)
