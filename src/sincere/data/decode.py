"""Decodes an image file of any mode (grey, RGB, RGBA, palette, CMYK, 16 bits, EXIF-rotated) to uint8 pixels.

Plain JPEGs take a faster way than Pillow, with the same pixels: both stand on libjpeg-turbo.
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from torch.nn.functional import interpolate

from sincere.checks import printable
from sincere.data.image_headers import JPEG, jpeg_pixels, jpeg_shape, open_image
from sincere.errors import DataError, first_line

DECODER = 3  # changes with the pixels that `decode` returns for some file, so that cached ones are decoded again
MOST_NAMED = 3  # files in a note
_WIDE_MODES = {"I", "I;16", "I;16B", "I;16L", "I;16N"}


def decode(path: Path, size: int | None, *, grey: bool) -> NDArray[np.uint8]:
    """Return the image as (h, w, c) uint8, c = 1 for grey else 3, cropped to the centre square and resized.

    The EXIF rotation is applied and transparent parts become white. Integers of more than 8 bits are taken as 16 bits,
    0 to 65535; floating-point values as 0 to 1. A JPEG whose shorter side is more than twice `size` is decoded at 1/2,
    1/4 or 1/8 of its size, the smallest that is not below `size`, and resized from there. Resizing is bilinear, with
    antialiasing.

    Raises:
        DataError: The file is missing, empty, damaged, too large, out of range or not an image; the message names it.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(JPEG))
            plain = plain_jpeg(start + file.read(), size, grey=grey) if start == JPEG else None
        if plain is not None:
            return plain
        with open_image(path) as image:
            reduced = None
            if size is not None and min(image.size) > 2 * size:
                reduced = image.draft(None, (size, size))  # None for other formats than JPEG
            image.load()
            if reduced is not None and size is not None:
                _, (_, _, width, height) = reduced
                image = _reduced_square(image, size, width, height)
            ImageOps.exif_transpose(image, in_place=True)
            return convert(image, size, grey=grey)
    except MemoryError:
        raise
    except OSError as error:
        if error.errno not in (None, errno.ENOENT, errno.ELOOP, errno.EINVAL):  # not a problem of the image
            raise DataError(f"{path}: cannot be read now ({first_line(error)})") from error
        raise _bad(path, error) from error
    except Exception as error:  # Pillow's plugins raise almost anything on damaged files
        raise _bad(path, error) from error


class BadImageError(DataError):
    """A file is missing or not an image.

    Attributes:
        problem: What is wrong, without what may help.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem


def left_out_note(names: Iterable[str], n: int, n_all: int, noun: str) -> str:
    """Return a note that n of all images were left out; the first names are given."""
    first = [*islice(names, MOST_NAMED)]
    named = ", ".join([*map(printable, first), *(["..."] if n > len(first) else [])])
    return f"{n:,} of {n_all:,} {noun} could not be read and were left out: {named}"


def _bad(path: Path, error: Exception) -> BadImageError:
    remedy = "remove it, or leave out such files with --skip-bad-images (skip_bad_images=True in Python)"
    return BadImageError(f"{path}: cannot be read as an image ({first_line(error)})", remedy)


def convert(image: Image.Image, size: int | None, *, grey: bool) -> NDArray[np.uint8]:
    """Return an opened image as uint8 pixels: see `decode`.

    Raises:
        ValueError: Its values are out of range, or Pillow cannot convert its mode.
    """
    if image.mode in _WIDE_MODES:
        image = _eight_bits(image, 65535)
    elif image.mode == "F":
        image = _eight_bits(image, 1)
    elif image.mode == "La":
        image = image.convert("LA")
    if image.mode in ("RGBA", "RGBa", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    mode = "L" if grey else "RGB"
    if image.mode != mode:  # else it would be copied
        image = image.convert(mode)
    pixels = np.array(image, dtype=np.uint8)
    return centre_square(pixels[:, :, None] if grey else pixels, size)


def plain_jpeg(content: bytes, size: int | None, *, grey: bool) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG as `decode` does, or None if it needs Pillow.

    It does if it is damaged, rotated, CMYK, to be reduced, or to be converted to grey.
    """
    shape = jpeg_shape(content)
    if shape is None:
        return None
    height, width, n_channels = shape
    reduced = size is not None and min(height, width) > 2 * size
    if reduced or n_channels not in (1, 1 if grey else 3) or height * width > (Image.MAX_IMAGE_PIXELS or sys.maxsize):
        return None
    if b"Exif\0" in content or b"tiff:Orientation" in content:
        with open_image(io.BytesIO(content)) as image:
            if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
                return None
    pixels = jpeg_pixels(content, n_channels)
    if pixels is None:
        return None
    square = centre_square(pixels, size)
    return np.broadcast_to(square, (*square.shape[:2], 1 if grey else 3))


def centre_square(pixels: NDArray[np.uint8], size: int | None) -> NDArray[np.uint8]:
    """Return the centre square of an image (h, w, c), resized; with size None the image as it is.

    PyTorch resizes with the same integers on every CPU, faster than Pillow, whose values differ by 1 at most.
    """
    height, width, _ = pixels.shape
    if size is None or (height, width) == (size, size):
        return pixels
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = torch.from_numpy(pixels)[top : top + side, left : left + side].permute(2, 0, 1)[None]
    if side != size:
        square = interpolate(square, (size, size), mode="bilinear", antialias=True)
    resized: NDArray[np.uint8] = square[0].permute(1, 2, 0).numpy()
    return resized


def _reduced_square(image: Image.Image, size: int, width: float, height: float) -> Image.Image:
    """Return the centre square of a JPEG that was decoded at a fraction of its size, resized.

    `width` and `height` are not whole numbers where the last column or row is a part of one.
    """
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


def _eight_bits(image: Image.Image, largest: int) -> Image.Image:
    """Scale values from 0..`largest` to 0..255, by a factor that does not depend on the image."""
    values = np.asarray(image, dtype=np.float64)
    if not ((values >= 0) & (values <= largest)).all():
        raise ValueError(f"mode {image.mode} values must be 0 to {largest}; got {values.min():g} to {values.max():g}")
    return Image.fromarray(eight_bits(values, largest))


def eight_bits(values: NDArray[Any], largest: int) -> NDArray[np.uint8]:
    """Return values from 0..`largest` as 0..255, rounded."""
    return (values.astype(np.float64, copy=False) * (255 / largest)).round().astype(np.uint8)
