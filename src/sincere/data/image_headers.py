"""Which files are images, what their headers tell, and the pixels of JPEGs. Does not import torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

try:
    import simplejpeg
except ImportError:  # Pillow decodes all images then
    simplejpeg = None

# Formats that Pillow decodes itself; for others it starts programs (PostScript), or they are not pictures.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA", "TIFF", "WEBP")
JPEG = b"\xff\xd8\xff"  # how a JPEG begins
SUFFIXES = {
    *(".apng", ".avif", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpf", ".jpg", ".jpx"),
    *(".mpo", ".pbm", ".pfm", ".pgm", ".png", ".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp"),
}


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that this Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def open_image(source: Path | IO[bytes]) -> Image.Image:
    """Open an image of one of `FORMATS`, whatever its suffix; no external program is started."""
    return Image.open(source, formats=_formats())


def jpeg_shape(content: bytes) -> tuple[int, int, int] | None:
    """Return height, width and channels of a JPEG from its header; None if it is none, or cannot be read."""
    if simplejpeg is None or not content.startswith(JPEG):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content, strict=True)
    except ValueError:
        return None
    channels = {"Gray": 1, "YCbCr": 3, "RGB": 3}.get(colours)
    return None if channels is None else (height, width, channels)


def jpeg_pixels(content: bytes, n_channels: int) -> NDArray[np.uint8] | None:
    """Return the pixels (h, w, c) of a JPEG, the same as Pillow's; None if it is damaged, which Pillow may tolerate."""
    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
            content, colorspace="GRAY" if n_channels == 1 else "RGB", strict=True
        )
    except ValueError:
        return None
    return pixels
