"""Image files of any mode are decoded to uint8 pixels of one size; an unreadable file is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from sincere.data import decode as decode_module
from sincere.data import image_headers
from sincere.data.decode import BadImageError, convert, decode, plain_jpeg
from sincere.data.image_headers import jpeg_shape
from sincere.data.listing import GREY, UNREADABLE, inspect_file
from sincere.errors import DataError

RED = (220, 30, 40)


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def sixteen_bit(size: tuple[int, int], value: int = 51400) -> Image.Image:
    return Image.fromarray(np.full(size[::-1], value, dtype=np.uint16))


def turned(upright: Image.Image, orientation: int, path: Path) -> Path:
    """Write an image as a rotated camera does: rotated pixels, and the EXIF tag that undoes the rotation."""
    undo = {
        1: [],
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    for step in undo[orientation]:
        upright = upright.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    return save(path, upright, exif=exif, quality=98)


KINDS: dict[str, Callable[[Path], Path]] = {
    "rgb jpeg": lambda p: save(p / "a.jpg", Image.new("RGB", (40, 30), RED), quality=98),
    "rgba": lambda p: save(p / "a.png", Image.new("RGBA", (30, 40), (*RED, 255))),
    "palette": lambda p: save(
        p / "a.gif", Image.new("RGB", (31, 17), RED).convert("P", palette=Image.Palette.ADAPTIVE)
    ),
    "cmyk": lambda p: save(p / "a.jpg", Image.new("RGB", (40, 40), RED).convert("CMYK"), quality=98),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_mode_gives_the_same_colour(kind: str, tmp_path: Path) -> None:
    pixels = decode(KINDS[kind](tmp_path), 16, grey=False)
    assert pixels.shape == (16, 16, 3)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - RED).max() <= 12


def test_transparent_is_white(tmp_path: Path) -> None:
    clear = save(tmp_path / "a.png", Image.new("RGBA", (8, 8), (0, 0, 0, 0)))
    assert (decode(clear, 8, grey=False) == 255).all()
    for mode in ("LA", "RGBA"):
        premultiplied = Image.new(mode, (8, 8), (0,) * len(mode)).convert(mode.replace("A", "a"))
        assert (convert(premultiplied, 8, grey=True) == 255).all()


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (200, 1), (257, 1), (51400, 200), (65535, 255)])
def test_sixteen_bits_are_scaled_by_a_fixed_factor(value: int, expected: int, tmp_path: Path) -> None:
    """A dark 16-bit image stays dark: no guess from its largest value."""
    wide = save(tmp_path / "a.png", sixteen_bit((8, 8), value))
    assert (decode(wide, 8, grey=True) == expected).all()
    assert decode(wide, 8, grey=False).shape == (8, 8, 3)
    assert (convert(Image.new("I", (8, 8), value), 8, grey=True) == expected).all()
    assert inspect_file(wide)[1:] == (GREY, 8)


def test_values_out_of_range_are_an_error(tmp_path: Path) -> None:
    share = save(tmp_path / "a.tiff", Image.new("F", (8, 8), 0.4))
    assert (decode(share, 8, grey=True) == 102).all()
    cases = {"F": (1.5, "1"), "I": (70000, "65535")}
    for mode, (value, largest) in cases.items():
        path = save(tmp_path / f"{mode}.tiff", Image.new(mode, (8, 8), value))
        with pytest.raises(DataError) as caught:
            decode(path, 8, grey=True)
        expected = f"mode {mode} values must be 0 to {largest}; got {value:g} to {value:g}"
        remedy = "remove it, or leave out such files with --skip-bad-images (skip_bad_images=True in Python)"
        assert str(caught.value) == f"{path}: cannot be read as an image ({expected}); {remedy}"
    nan = save(tmp_path / "nan.tiff", Image.new("F", (8, 8), float("nan")))
    with pytest.raises(DataError, match="values must be 0 to 1"):
        decode(nan, 8, grey=True)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_camera_rotation_is_applied(orientation: int, tmp_path: Path) -> None:
    picture = Image.new("L", (20, 20), 0)
    picture.paste(255, (0, 0, 10, 10))
    picture.paste(130, (10, 0, 20, 10))
    pixels = decode(turned(picture, orientation, tmp_path / "a.jpg"), 20, grey=True)[..., 0].astype(int)
    corners = [pixels[y : y + 6, x : x + 6].mean() for y, x in ((2, 2), (2, 12), (12, 2), (12, 12))]
    assert corners == pytest.approx([255, 130, 0, 0], abs=5)


def scene(width: int, height: int) -> Image.Image:
    """Return a picture with gradients and edges, different in all four corners."""
    coarse = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def resampled(path: Path, size: int) -> np.ndarray:
    """Return what Pillow gives for the whole image: all pixels decoded, then the centre square resized."""
    with Image.open(path) as image:
        width, height = image.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        square = image.crop((left, top, left + side, top + side))
        return np.asarray(square.resize((size, size), Image.Resampling.BILINEAR)).astype(int)


@pytest.mark.parametrize("sides", [(20, 20), (24, 20), (25, 20), (20, 31), (33, 40), (40, 40), (55, 40), (17, 60)])
def test_up_to_twice_the_size_every_pixel_is_decoded(sides: tuple[int, int], tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", scene(*sides), quality=90)
    assert np.abs(decode(path, 20, grey=False) - resampled(path, 20)).max() <= 1
    large = save(tmp_path / "a.png", scene(*(9 * side for side in sides)))
    assert np.abs(decode(large, 20, grey=False) - resampled(large, 20)).max() <= 1, "formats other than JPEG: any size"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("sides", [(131, 97), (160, 160), (1003, 700)])
def test_large_jpegs_are_decoded_at_a_fraction_of_their_size(
    sides: tuple[int, int], orientation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The square is where it would be in the whole image, whichever way the camera was held."""
    upright = scene(*sides)
    turned_path = turned(upright, orientation, tmp_path / "turned.jpg")
    loaded: list[int] = []
    real = decode_module._reduced_square

    def spy(image: Image.Image, size: int, width: float, height: float) -> Image.Image:
        loaded.append(min(image.size))
        return real(image, size, width, height)

    monkeypatch.setattr(decode_module, "_reduced_square", spy)
    pixels = decode(turned_path, 40, grey=False).astype(int)
    assert loaded == [{97: 49, 160: 40, 700: 88}[min(sides)]]
    expected = np.asarray(ImageOps.fit(upright, (40, 40), method=Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(pixels - expected).mean() < 3


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"progressive": True}, {"quality": 20}])
def test_plain_jpegs_have_the_pixels_of_pillow(mode: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Without Pillow: equal files give equal pixels on machines with and without the faster decoder."""
    path = save(tmp_path / "a.jpg", scene(131, 97).convert(mode), **options)
    content = path.read_bytes()
    assert jpeg_shape(content) == (97, 131, len(mode))
    pixels = plain_jpeg(content, None, grey=mode == "L")
    assert pixels is not None
    with Image.open(path) as image:
        assert np.array_equal(pixels, np.asarray(image).reshape(97, 131, -1))
    assert decode(path, 60, grey=False).shape == (60, 60, 3)


def test_other_jpegs_are_left_to_pillow(tmp_path: Path) -> None:
    rotated = turned(scene(50, 40), 6, tmp_path / "turned.jpg")
    kinds = {
        "rotated": rotated,
        "cmyk": save(tmp_path / "cmyk.jpg", scene(50, 40).convert("CMYK")),
        "to be converted": save(tmp_path / "colour.jpg", scene(50, 40)),
        "to be reduced": save(tmp_path / "large.jpg", scene(500, 400).convert("L")),
    }
    for kind, path in kinds.items():
        assert plain_jpeg(path.read_bytes(), 40, grey=kind.startswith("to be")) is None, kind
    upright = turned(scene(50, 40), 1, tmp_path / "upright.jpg")
    assert plain_jpeg(upright.read_bytes(), 40, grey=False) is not None
    damaged = bytearray(kinds["to be converted"].read_bytes())
    damaged[-200:-100] = bytes(100)
    assert plain_jpeg(bytes(damaged), 40, grey=False) is None
    (tmp_path / "damaged.jpg").write_bytes(damaged)
    assert decode(tmp_path / "damaged.jpg", 40, grey=False).shape == (40, 40, 3), "what Pillow tolerates is read"


def test_without_the_faster_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.jpg", scene(131, 97), quality=90)
    fast = decode(path, 60, grey=False), inspect_file(path)
    monkeypatch.setattr(image_headers, "simplejpeg", None)
    assert np.array_equal(decode(path, 60, grey=False), fast[0])
    assert inspect_file(path) == fast[1]


def test_a_large_jpeg_that_is_cut_off_is_bad(tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", scene(400, 300), quality=90)
    path.write_bytes(path.read_bytes()[:-3000])
    for size in (20, 300, None):
        with pytest.raises(BadImageError):
            decode(path, size, grey=False)


def test_too_large_or_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.png", Image.new("RGB", (64, 64), RED))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for bad in (path, tmp_path / "gone.png"):
        assert inspect_file(bad)[1] == UNREADABLE
        with pytest.raises(DataError) as caught:
            decode(bad, 8, grey=False)
        assert str(caught.value).startswith(f"{bad}: cannot be read as an image (")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_postscript_with_another_suffix_is_refused(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow would pass it to Ghostscript, which executes it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(DataError, match="cannot be read as an image"):
        decode(path, 8, grey=False)
    assert inspect_file(path)[1] == UNREADABLE
    assert not (tmp_path / "executed").exists()


def test_a_disk_error_is_not_a_bad_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image must not be skipped for good."""
    path = save(tmp_path / "a.png", Image.new("RGB", (8, 8), RED))

    def broken(*args: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("sincere.data.decode.open_image", broken)
    with pytest.raises(DataError, match="cannot be read now") as caught:
        decode(path, 8, grey=False)
    assert not isinstance(caught.value, BadImageError)
