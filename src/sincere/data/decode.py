"""One image file to uint8 pixels of a fixed size, whatever it is: grey, RGB, RGBA, palette, CMYK, 16 bits, rotated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from sincere.errors import DataError

_GREY_MODES = {"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F"}
_WIDE_MODES = {"I", "I;16", "I;16B", "I;16L", "F"}


def decode(path: Path, size: int | None, *, grey: bool) -> NDArray[np.uint8]:
    """Return the image as (h, w, c) uint8, c = 1 for grey else 3, cropped to the middle square and resized.

    The camera's rotation (EXIF) is applied, transparent parts become white, 16-bit values are scaled to 8 bits.

    Raises:
        DataError: The file is empty, damaged or no image; the message names it.
    """
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            image.load()
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as an image ({error}); remove it or pass skip_bad_images") from error
    return convert(image, size, grey=grey)


def convert(image: Image.Image, size: int | None, *, grey: bool) -> NDArray[np.uint8]:
    """Return an opened image as `decode` does."""
    if image.mode in _WIDE_MODES:
        values = np.asarray(image, dtype=np.float64)
        image = Image.fromarray((values * (255 / 65535 if values.max() > 255 else 1)).round().astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
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
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError):
        return True  # damaged: it has no say; decode() will name it
