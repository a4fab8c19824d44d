"""Images that a user gives: whatever their form, they become the pixels that their file would have in a data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sincere.data.decode import BadImageError, decode
from sincere.data.given_images import given_images
from sincere.errors import DataError, InputTypeError

SHAPE = (3, 16, 16)
FORMS: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "text": str,
    "PIL": Image.open,
    "array (h, w, c)": lambda path: np.asarray(Image.open(path)),
    "array (c, h, w)": lambda path: np.asarray(Image.open(path)).transpose(2, 0, 1),
    "floats": lambda path: np.asarray(Image.open(path)) / 255,
    "integers": lambda path: np.asarray(Image.open(path)).astype(np.int64),
    "tensor (c, h, w)": lambda path: torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1),
    "bfloat16": lambda path: (torch.from_numpy(np.array(Image.open(path))) / 255).to(torch.bfloat16),
    "batch (n, h, w, c)": lambda path: np.asarray(Image.open(path))[None],
    "batch (n, c, h, w)": lambda path: (
        torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)[None].float() / 255
    ),
    "list": lambda path: [path],
    "nested": lambda path: ([Image.open(path)],),
}


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    coarse = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    path = tmp_path / "set" / "a.png"
    path.parent.mkdir()
    Image.fromarray(coarse).resize((40, 30), Image.Resampling.BICUBIC).save(path)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [SHAPE, (1, 16, 16), (3, 30, 30)])
def test_every_form_gives_the_pixels_of_the_file(form: str, shape: tuple[int, int, int], photo: Path) -> None:
    given = given_images(FORMS[form](photo))
    assert len(given) == 1
    [(positions, pixels)] = given.batches(shape)
    assert positions == [0]
    assert pixels.shape == (1, *shape)
    expected = decode(photo, shape[1], grey=shape[0] == 1).transpose(2, 0, 1)
    tolerance = 1 if form == "bfloat16" else 0  # which has 8 bits
    assert np.abs(pixels[0].numpy().astype(int) - expected).max() <= tolerance


def test_grey_images_become_colour(photo: Path) -> None:
    with Image.open(photo) as image:
        grey = image.convert("L")
    for form in (grey, np.asarray(grey), np.asarray(grey)[None], torch.from_numpy(np.array(grey))[None]):
        [(_, pixels)] = given_images(form).batches(SHAPE)
        assert torch.equal(pixels[0, 0], pixels[0, 2])
        assert np.array_equal(pixels[0, 0], decode_grey(grey))


def decode_grey(image: Image.Image) -> np.ndarray:
    from sincere.data.decode import convert

    return convert(image, SHAPE[1], grey=True)[:, :, 0]


def test_a_tensor_has_its_channels_first_and_an_array_last_where_both_are_possible() -> None:
    values = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    assert np.array_equal(given_images(values).pixels(0, (3, 3, 3)), values)
    assert np.array_equal(given_images(torch.from_numpy(values)).pixels(0, (3, 3, 3)), values.transpose(1, 2, 0))


def test_folders_are_read_in_order_and_bad_files_named(photo: Path) -> None:
    folder = photo.parent
    (folder / "b.jpg").write_text("no image")
    (folder / "c").mkdir()
    Image.open(photo).save(folder / "c" / "d.png")
    given = given_images([folder, photo])
    assert given.names == [str(folder / name) for name in ("a.png", "b.jpg", "c/d.png", "a.png")]
    with pytest.raises(BadImageError, match=r"b\.jpg: cannot be read as an image"):
        list(given.batches(SHAPE))
    [(positions, pixels)] = given.batches(SHAPE, skip_bad=True)
    assert positions == [0, 2, 3]
    assert len(pixels) == 3
    assert given.skipped_note(positions) == (f"1 of 4 images could not be read and were left out: {folder / 'b.jpg'}",)
    assert given.skipped_note(range(4)) == ()
    assert given.skipped_note([]) == (
        f"4 of 4 images could not be read and were left out: {', '.join(given.names[:3])}, ...",
    )


def test_a_rotated_photo_is_turned(photo: Path, tmp_path: Path) -> None:
    with Image.open(photo) as image:
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    [(_, from_path)] = given_images(tmp_path / "turned.jpg").batches(SHAPE)
    [(_, from_image)] = given_images(Image.open(tmp_path / "turned.jpg")).batches(SHAPE)
    assert torch.equal(from_path, from_image)


def test_many_images_come_in_batches() -> None:
    given = given_images(np.zeros((100, 4, 4, 1), dtype=np.uint8))
    seen = []
    batches = list(given.batches((1, 4, 4), progress=lambda done, total: seen.append((done, total))))
    assert [i for positions, _ in batches for i in positions] == list(range(100))
    assert seen[-1] == (100, 100)
    assert len(batches) > 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.full((4, 4, 3), 2.0), "values must be floats from 0 to 1; got float64 from 2.0 to 2.0"),
        (np.random.default_rng(0).normal(size=(4, 4, 3)), "Undo their normalisation"),
        (
            [np.zeros((4, 4, 3)), np.full((4, 4, 3), np.nan)],
            r"images\[1\] must be floats from 0 to 1; got float64 with",
        ),
        (np.zeros((4, 4, 5)), "with c = 1 or 3"),
        (np.zeros((4, 4, 4), dtype=np.uint8), "Transparency is not supported"),
        (np.zeros(7), r"must have shape \(h, w\)"),
        (np.zeros((0, 4, 4, 3)), "must not be empty"),
        ("nowhere.png", "nowhere.png: no such file or folder"),
    ],
)
def test_what_cannot_be_an_image_is_refused(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        given_images(value)


@pytest.mark.parametrize("value", [3, None, {"a": 1}, b"bytes", [[1, 2]]])
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(InputTypeError, match="must be paths, folders, PIL images, arrays or tensors"):
        given_images(value)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no images"):
        given_images(tmp_path)
