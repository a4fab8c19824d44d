"""One image file to uint8 pixels of a fixed size, whatever it is: grey, RGB, RGBA, palette, CMYK, 16 bits, rotated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from sincere.data.reasons import reason
from sincere.errors import DataError

_WIDE_MODES = {"I", "I;16", "I;16B", "I;16L", "I;16N"}
_GREY_MODES = {"1", "L", "LA", "La", "F", *_WIDE_MODES}


def decode(path: Path, size: int | None, *, grey: bool) -> NDArray[np.uint8]:
    """Return the image as (h, w, c) uint8, c = 1 for grey else 3, cropped to the middle square and resized.

    The camera's rotation (EXIF) is applied and transparent parts become white. Whole numbers wider than 8 bits count as
    16 bits, 0 to 65535; floating-point ones as shares, 0 to 1.

    Raises:
        DataError: The file is missing, empty, damaged, too large, out of range or no image; the message names it.
    """
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            image.load()
        return convert(image, size, grey=grey)
    except Exception as error:  # Pillow's plugins raise almost anything on damaged files
        why = f"cannot be read as an image ({reason(error)}); remove it or pass skip_bad_images"
        raise DataError(f"{path}: {why}") from error


def convert(image: Image.Image, size: int | None, *, grey: bool) -> NDArray[np.uint8]:
    """Return an opened image as `decode` does.

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
    image = image.convert("L" if grey else "RGB")
    if size is not None and image.size != (size, size):
        image = ImageOps.fit(image, (size, size), method=Image.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[:, :, None] if grey else pixels


def is_grey(path: Path) -> bool:
    """Tell from the header whether an image has no colours."""
    try:
        with Image.open(path) as image:
            return image.mode in _GREY_MODES
    except Exception:
        return True  # damaged: it has no say; decode() will name it


def _eight_bits(image: Image.Image, largest: int) -> Image.Image:
    """Scale values of 0 to `largest` to 0 to 255, by the same factor whatever the image holds."""
    values = np.asarray(image, dtype=np.float64)
    if not ((values >= 0) & (values <= largest)).all():
        raise ValueError(f"mode {image.mode} values must be 0 to {largest}; got {values.min():g} to {values.max():g}")
    return Image.fromarray((values * (255 / largest)).round().astype(np.uint8))
