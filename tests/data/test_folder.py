"""Class folders of any image format are decoded once to uint8 pixels of one size; bad images are named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sincere.data.folder import load_folder
from sincere.data.load_options import LoadOptions
from sincere.data.pixel_storage import MappedImages, StreamedImages, TensorImages
from sincere.errors import DataError
from tests.data.test_decode import RED, save, sixteen_bit, turned


def make_tree(root: Path, n_classes: int = 3, per_class: int = 10, side: int = 20) -> Path:
    generator = np.random.default_rng(0)
    for c in range(n_classes):
        for i in range(per_class):
            pixels = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
            save(root / f"class{c}" / f"{i}.png", Image.fromarray(pixels))
    return root


def test_one_tree_is_split_stratified_and_seeded(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "shapes")
    data = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
    assert (data.name, data.class_names) == ("shapes", ("class0", "class1", "class2"))
    assert (len(data.train), len(data.test)) == (24, 6)
    assert np.bincount(data.test.labels).tolist() == [2, 2, 2]
    assert data.train.items.shape[1:] == (3, 16, 16), "twice the input's size, for crops"
    assert data.test.items.shape[1:] == (3, 16, 16), "as in train"
    assert sorted([*data.train.ids, *data.test.ids]) == list(range(30)), "ids count the files of the whole tree"
    other = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache", seed=1))
    assert set(other.test.ids) != set(data.test.ids), "another seed, another split"
    again = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
    assert np.array_equal(again.test.ids, data.test.ids)
    assert torch.equal(data.train.items.gather(data.train.positions), again.train.items.gather(again.train.positions))


@pytest.mark.parametrize("part", ["test", "val"])
def test_given_parts_are_kept(part: str, tmp_path: Path) -> None:
    make_tree(tmp_path / "set" / "train", per_class=4)
    make_tree(tmp_path / "set" / part, per_class=2)
    data = load_folder(tmp_path / "set", LoadOptions(size=8, cache=tmp_path / "cache"))
    assert (len(data.train), len(data.test)) == (12, 6)
    assert (data.train.ids.tolist(), data.test.ids.tolist()) == (list(range(12)), list(range(6)))
    assert data.notes == ()


COLOURS = {"c0": RED, "c1": (20, 190, 60), "c2": (40, 60, 230), "c3": (240, 220, 40)}


def mixed_image(i: int, colour: tuple[int, int, int], size: tuple[int, int], stem: Path) -> None:
    """One of eight kinds, all of one colour; the 16-bit ones are grey, and the turned ones black in the lower half."""
    kind = ("L", "RGB", "RGBA", "P", "CMYK", "16", "EXIF", "JPEG")[i % 8]
    plain = Image.new("RGB", size, colour)
    if kind == "16":
        save(stem.with_suffix(".png"), sixteen_bit(size))
    elif kind == "EXIF":
        plain.paste("black", (0, size[1] // 2, *size))
        turned(plain, 5 + i // 8 % 4, stem.with_suffix(".jpg"))
    elif kind in ("CMYK", "JPEG"):
        save(stem.with_suffix(".jpg"), plain.convert("CMYK" if kind == "CMYK" else "RGB"), quality=98)
    else:
        save(stem.with_suffix(".png"), plain.convert(kind, palette=Image.Palette.ADAPTIVE))


def test_five_hundred_mixed_images(tmp_path: Path) -> None:
    """Each comes back with its class's colour, or that colour's grey."""
    generator = np.random.default_rng(0)
    for i in range(500):
        name = f"c{i // 8 % 4}"
        size = tuple(int(x) for x in generator.integers(6, 40, 2))
        mixed_image(i, COLOURS[name], size, tmp_path / "set" / name / f"{i:03d}")
    data = load_folder(tmp_path / "set", LoadOptions(size=8, cache=tmp_path / "cache"))
    assert data.train.items.shape == (400, 3, 16, 16)
    assert data.test.items.shape == (100, 3, 16, 16)
    listing = sorted((tmp_path / "set").rglob("*.*"))
    for part in (data.train, data.test):
        pixels = part.items.gather(part.positions).int()
        for image, label, number in zip(pixels, part.labels, part.ids, strict=True):
            path = listing[number]
            assert path.parent.name == f"c{label}"
            colour, kind = COLOURS[path.parent.name], int(path.stem) % 8
            luma = Image.new("RGB", (1, 1), colour).convert("L").getpixel((0, 0))
            expected = torch.tensor({0: (luma,) * 3, 5: (200,) * 3}.get(kind, colour))
            if kind == 6:
                assert (image[:, 0].float().mean(dim=1) - expected).abs().max() <= 40, "the colour is on top"
                assert image[:, -1].float().mean() <= 40, "black is below"
            else:
                assert (image - expected[:, None, None]).abs().max() <= 12, path


def test_all_grey_stays_grey(tmp_path: Path) -> None:
    for i in range(8):
        save(tmp_path / "set" / f"c{i % 2}" / f"{i}.png", Image.new("L", (10, 10), 90))
    save(tmp_path / "set" / "c0" / "wide.png", sixteen_bit((10, 10)))
    data = load_folder(tmp_path / "set", LoadOptions(size=8, cache=tmp_path / "cache"))
    assert data.train.items.shape[1] == 1
    assert len(data.mean) == 1


def test_decoded_once_and_again_when_changed(tmp_path: Path) -> None:
    root, cache = make_tree(tmp_path / "set"), tmp_path / "cache"
    seen: list[int] = []
    load_folder(root, LoadOptions(size=8, cache=cache, progress=lambda done, total: seen.append(done)))
    assert seen == [24, 6]
    seen.clear()
    load_folder(root, LoadOptions(size=8, cache=cache, progress=lambda done, total: seen.append(done)))
    assert not seen, "the cache is used"
    changed, before = root / "class0" / "0.png", sorted(path.name for path in cache.iterdir() if path.is_dir())
    content, old = changed.read_bytes(), changed.stat()
    changed.write_bytes(content[:-1] + b"?")
    os.utime(changed, ns=(old.st_atime_ns, old.st_mtime_ns))
    seen.clear()
    load_folder(root, LoadOptions(size=8, cache=cache, progress=lambda done, total: seen.append(done)))
    assert seen, "a changed file is decoded again, even with the same size and modification time"
    after = sorted(path.name for path in cache.iterdir() if path.is_dir())
    assert len(after) == len(before) == 2, "older entries are removed: images of train and test"
    assert after != before


def test_images_that_do_not_fit_are_mapped_or_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, cache = make_tree(tmp_path / "set"), tmp_path / "cache"
    held = load_folder(root, LoadOptions(size=8, cache=cache))
    assert isinstance(held.train.items, TensorImages)
    streamed = load_folder(root, LoadOptions(size=8, cache=cache, cache_limit_bytes=100))
    assert isinstance(streamed.train.items, StreamedImages)
    monkeypatch.setattr("sincere.data.pixel_storage.free_bytes", lambda device: 100)
    mapped = load_folder(root, LoadOptions(size=8, cache=cache))
    assert isinstance(mapped.train.items, MappedImages)
    positions = np.array([5, 3, 3, 20])
    expected = held.train.items.gather(positions)
    assert torch.equal(streamed.train.items.gather(positions), expected)
    assert torch.equal(mapped.train.items.gather(positions), expected)


def test_a_colour_image_changes_the_statistics(tmp_path: Path) -> None:
    """A coloured test image makes all images coloured, though no training image has changed."""
    root, settings = tmp_path / "set", LoadOptions(size=8, cache=tmp_path / "cache")
    for part in ("train", "test"):
        for i in range(4):
            save(root / part / f"c{i % 2}" / f"{i}.png", Image.new("L", (10, 10), 30 * i))
    assert len(load_folder(root, settings).mean) == 1
    save(root / "test" / "c0" / "new.png", Image.new("RGB", (10, 10), RED))
    data = load_folder(root, settings)
    assert len(data.mean) == data.train.items.shape[1] == 3


def test_streaming_skips_bad_images_as_well(tmp_path: Path) -> None:
    root, seen = make_tree(tmp_path / "set"), list[int]()
    (root / "class1" / "3.png").write_bytes(b"not an image")
    held = load_folder(root, LoadOptions(size=8, cache=tmp_path / "a", skip_bad_images=True))
    settings = LoadOptions(
        size=8,
        cache=tmp_path / "b",
        skip_bad_images=True,
        cache_limit_bytes=100,
        progress=lambda done, total: seen.append(done),
    )
    for expected in (30, 0):  # files are tried once
        seen.clear()
        streamed = load_folder(root, settings)
        assert sum(seen) == expected
        assert streamed.notes == held.notes != ()
        for part in ("train", "test"):
            ours, theirs = getattr(streamed, part), getattr(held, part)
            assert np.array_equal(ours.ids, theirs.ids)
            assert torch.equal(ours.items.gather(ours.positions), theirs.items.gather(theirs.positions))
    assert 13 not in {*held.train.ids, *held.test.ids}, "ids count the files, also those left out"


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n damaged"])
def test_a_bad_image_is_named_or_left_out(content: bytes, tmp_path: Path) -> None:
    root, cache = make_tree(tmp_path / "set"), tmp_path / "cache"
    bad = root / "class1" / "3.png"
    bad.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_folder(root, LoadOptions(size=8, cache=cache))
    assert str(caught.value).startswith(f"{bad}: cannot be read as an image")
    assert not [path for path in cache.iterdir() if path.is_dir()], "nothing half-written stays"
    data = load_folder(root, LoadOptions(size=8, cache=cache, skip_bad_images=True))
    assert len(data.train) + len(data.test) == 29
    assert len(data.notes) == 1
    assert data.notes[0].startswith("1 of ")
    with pytest.raises(DataError, match="cannot be read as an image"):
        load_folder(root, LoadOptions(size=8, cache=cache))  # what was left out before is still an error


def test_hidden_files_and_other_files_are_ignored(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "set")
    save(root / "class0" / ".ipynb_checkpoints" / "0.png", Image.new("RGB", (9, 9), RED))
    for name in ("._0.png", "notes.pdf", "old.palm", "film.mpg", "table.h5", "readme.txt"):
        (root / "class1" / name).write_bytes(b"no picture")
    data = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
    assert len(data.train) + len(data.test) == 30


def test_notes_on_unused_parts_and_missing_classes(tmp_path: Path) -> None:
    root = tmp_path / "set"
    make_tree(root / "train", per_class=4)
    make_tree(root / "test", n_classes=2, per_class=2)
    make_tree(root / "val", per_class=2)
    data = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
    assert len(data.test) == 4
    assert data.notes == (
        f"val/ is not used, because there is a test/: {root}/val",
        "test/ has no images of 1 of 3 classes: class2",
    )


def test_equal_files_give_equal_pixels_in_both_parts(tmp_path: Path) -> None:
    """Of any size, larger or smaller than the input."""
    for side in (5, 8, 11, 40):
        root = tmp_path / f"set{side}"
        make_tree(root / "train", per_class=4, side=side)
        make_tree(root / "test", per_class=4, side=side)
        data = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
        train, test = (part.items.gather(part.positions) for part in (data.train, data.test))
        assert torch.equal(train, test)


def test_images_no_larger_than_the_input_are_stored_as_they_are(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "set", side=8)
    data = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
    first = np.asarray(Image.open(root / "class0" / "0.png")).transpose(2, 0, 1)
    part = data.train if 0 in data.train.ids else data.test
    at = int(np.flatnonzero(part.ids == 0)[0])
    assert np.array_equal(part.items.gather(np.array([at]))[0].numpy(), first)


@pytest.mark.parametrize("name", ["images.bin", "about.npz", "statistics.npz"])
def test_every_changed_byte_of_the_cache_is_repaired(name: str, tmp_path: Path) -> None:
    limit = 100 if name == "statistics.npz" else 10**6  # only the statistics of streamed images have their own file
    root, settings = (
        make_tree(tmp_path / "set"),
        LoadOptions(size=8, cache=tmp_path / "cache", cache_limit_bytes=limit),
    )
    intact = load_folder(root, settings)
    images = [part.items.gather(part.positions).clone() for part in (intact.train, intact.test)]
    generator = np.random.default_rng(0)
    for trial in range(12):
        paths = sorted((tmp_path / "cache").rglob(name))
        path = paths[trial % len(paths)]
        content = bytearray(path.read_bytes())
        position = int(generator.integers(len(content)))
        content[position] ^= 1 << int(generator.integers(8))
        path.write_bytes(content)
        again = load_folder(root, settings)
        assert (again.mean, again.std) == (intact.mean, intact.std)
        for part, expected in zip((again.train, again.test), images, strict=True):
            assert torch.equal(part.items.gather(part.positions), expected)
        if name == "images.bin":
            assert again.notes == (f"{path.parent}: was damaged; its images were decoded again",)


def test_a_damaged_mapped_cache_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, settings = make_tree(tmp_path / "set"), LoadOptions(size=8, cache=tmp_path / "cache")
    monkeypatch.setattr("sincere.data.pixel_storage.free_bytes", lambda device: 100)
    load_folder(root, settings)
    for path in (tmp_path / "cache").rglob("images.bin"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged: pixels do not match their checksum; remove it"):
        load_folder(root, settings).train.items.gather(np.arange(24))


def test_a_broken_link_is_a_bad_image(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "set")
    (root / "class0" / "lost.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"lost\.png: cannot be read as an image"):
        load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
    data = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache", skip_bad_images=True))
    assert len(data.train) + len(data.test) == 30


def test_names_that_steer_a_terminal_are_shown_as_escapes(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "set", n_classes=1)
    (root / "class0").rename(root / "\x1b[31mred")
    os.rename(make_tree(tmp_path / "other", n_classes=1) / "class0", os.fsencode(root) + b"/caf\xe9")
    data = load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache"))
    assert data.class_names == ("\\x1b[31mred", "caf\\udce9")


def unsorted(root: Path) -> None:
    make_tree(root.parent / "sorted", n_classes=1)
    (root.parent / "sorted" / "class0").rename(root)


def only_bad_tests(root: Path) -> None:
    make_tree(root / "train")
    make_tree(root / "test", per_class=1)
    for path in (root / "test").rglob("*.png"):
        path.write_bytes(b"bad")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: make_tree(root, n_classes=1), "{root}: at least two class folders are needed; got 1"),
        (
            unsorted,
            "{root}: at least two class folders are needed; got 0; its images lie directly in it: sort them into one "
            "folder for each class, or give the folder above",
        ),
        (lambda root: (make_tree(root) / "class3").mkdir(), "{root}/class3: class folder without any image"),
        (
            lambda root: make_tree(root / "train"),
            "{root}: has train/ but neither test/ nor val/; add one, or put the class folders at the top",
        ),
        (
            lambda root: (make_tree(root / "train") / ".." / "test").mkdir(),
            "{root}/test: has no class folders; it needs those of train/",
        ),
        (only_bad_tests, "{root}: test: none of the 3 images can be read"),
        (
            lambda root: (make_tree(root) / "up").symlink_to(".."),
            "{root}/up: is a link to a folder that contains the data set itself; remove it",
        ),
        (
            lambda root: save(make_tree(root) / "alone" / "1.png", Image.new("RGB", (9, 9), RED)),
            "{root}/alone: a single image cannot be split in two parts; add more, or put them into train/ and test/",
        ),
    ],
)
def test_bad_trees(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    root = tmp_path / "set"
    make(root)
    with pytest.raises(DataError) as caught:
        load_folder(root, LoadOptions(size=8, cache=tmp_path / "cache", skip_bad_images=True))
    assert str(caught.value) == message.format(root=root)
