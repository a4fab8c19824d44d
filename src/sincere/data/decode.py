"""Decodes an image file of any mode (grey, RGB, RGBA, palette, CMYK, 16 bits, EXIF-rotated) to uint8 pixels."""

from __future__ import annotations

import errno
import warnings
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from sincere.errors import DataError, first_line

# Formats that Pillow decodes itself; for others it starts programs (PostScript), or they are not pictures.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA", "TIFF", "WEBP")
SUFFIXES = {
    *(".apng", ".avif", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpf", ".jpg", ".jpx"),
    *(".mpo", ".pbm", ".pfm", ".pgm", ".png", ".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp"),
}
DECODER = 2  # changes with the pixels that `decode` returns for some file, so that cached ones are decoded again
_WIDE_MODES = {"I", "I;16", "I;16B", "I;16L", "I;16N"}


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that this Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def open_image(source: Path | IO[bytes]) -> Image.Image:
    """Open an image of one of `FORMATS`, whatever its suffix; no external program is started."""
    with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning):  # twice that is an error
        return Image.open(source, formats=_formats())


def decode(path: Path, size: int | None, *, grey: bool) -> NDArray[np.uint8]:
    """Return the image as (h, w, c) uint8, c = 1 for grey else 3, cropped to the centre square and resized.

    The EXIF rotation is applied and transparent parts become white. Integers of more than 8 bits are taken as 16 bits,
    0 to 65535; floating-point values as 0 to 1. A JPEG whose shorter side is more than twice `size` is decoded at 1/2,
    1/4 or 1/8 of its size, the smallest that is not below `size`, and resized from there.

    Raises:
        DataError: The file is missing, empty, damaged, too large, out of range or not an image; the message names it.
    """
    try:
        with open_image(path) as image:
            reduced = None
            if size is not None and min(image.size) > 2 * size:
                reduced = image.draft(None, (size, size))  # None for other formats than JPEG
            image.load()
            if reduced is not None and size is not None:
                _, (_, _, width, height) = reduced  # not whole numbers where the last row or column is a part of one
                image = _centre_square(image, size, width, height)
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
    """A file is missing or not an image."""


def _bad(path: Path, error: Exception) -> BadImageError:
    remedy = "remove it, or leave out such files with --skip-bad-images (skip_bad_images=True in Python)"
    return BadImageError(f"{path}: cannot be read as an image ({first_line(error)}); {remedy}")


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
    if size is not None and image.size != (size, size):
        image = _centre_square(image, size, *image.size)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[:, :, None] if grey else pixels


def _centre_square(image: Image.Image, size: int, width: float, height: float) -> Image.Image:
    """Return the centre square of the first `width` columns and `height` rows, resized."""
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    if side == size and left % 1 == 0 and top % 1 == 0:  # whole pixels: resampling would give the same values
        return image.crop((int(left), int(top), int(left) + size, int(top) + size))
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def _eight_bits(image: Image.Image, largest: int) -> Image.Image:
    """Scale values from 0..`largest` to 0..255, by a factor that does not depend on the image."""
    values = np.asarray(image, dtype=np.float64)
    if not ((values >= 0) & (values <= largest)).all():
        raise ValueError(f"mode {image.mode} values must be 0 to {largest}; got {values.min():g} to {values.max():g}")
    return Image.fromarray(eight_bits(values, largest))


def eight_bits(values: NDArray[Any], largest: int) -> NDArray[np.uint8]:
    """Return values from 0..`largest` as 0..255, rounded."""
    return (values.astype(np.float64, copy=False) * (255 / largest)).round().astype(np.uint8)
