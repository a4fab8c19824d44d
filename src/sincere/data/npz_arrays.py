"""Images as people store them in an .npz, checked and converted where their meaning is clear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sincere.data.decode import centre_square, eight_bits
from sincere.data.named_arrays import NamedArray
from sincere.data.pixel_storage import Pixels

CHANNELS = (1, 3)
CHUNK_VALUES = 1 << 20  # pixel values that are converted at a time
_INTEGERS = ("int16", "int32", "int64", "uint32", "uint64")  # int8 cannot hold 255, uint16 may mean 0 to 65535
_FLOATS = ("float16", "float32", "float64")


def channels_last(images: NamedArray) -> NamedArray:
    """Return images as (n, h, w, c), without a copy.

    Images (n, c, h, w) are recognised by their 1 or 3 channels, unless the last axis could be the channels, too.

    Raises:
        DataError: No axis can be the channels, or there are no images.
    """
    values, name = images.values, images.name
    shape = values.shape
    if values.ndim != 4 or (shape[1] not in CHANNELS and shape[3] not in CHANNELS):
        remedy = ""
        if values.ndim == 3:
            remedy = f"Give grey images a channel axis with {name}[..., None]"
        elif values.ndim == 4 and 4 in (shape[1], shape[3]):
            kept = "[..., :3]" if shape[3] == 4 else "[:, :3]"
            remedy = f"Transparency is not supported; drop the fourth channel with {name}{kept}"
        raise images.refuse("must have shape (n, h, w, c) or (n, c, h, w) with c = 1 or 3", shape, remedy)
    if not values.size:
        raise images.refuse("must not be empty", f"shape {shape}")
    return images if shape[3] in CHANNELS else replace(images, values=values.transpose(0, 2, 3, 1))


def square_pixels(images: NamedArray) -> Pixels:
    """Return images (n, h, w, c) as uint8, the centre square where h and w differ; uint8 squares are not copied.

    Floats are rounded to multiples of 1/255. The square is cut as for image files, so that equal images give equal
    pixels. Beside images and result, the memory is that of some blocks of `CHUNK_VALUES`.

    Raises:
        DataError: Their type or range has no clear meaning.
    """
    check_range(images)
    values = images.values
    n, height, width, n_channels = values.shape
    side = min(height, width)
    if values.dtype == np.uint8 and height == width:
        return values.astype(np.uint8, copy=False)
    pixels = np.empty((n, side, side, n_channels), dtype=np.uint8)
    step = max(1, CHUNK_VALUES // (height * width * n_channels))
    for start in range(0, n, step):
        block = values[start : start + step]
        block = eight_bits(block, 1) if block.dtype.kind == "f" else block.astype(np.uint8, copy=False)
        pixels[start : start + step] = block if height == width else [centre_square(image, side) for image in block]
    return pixels


def check_range(images: NamedArray) -> None:
    """Check that values are pixels.

    Raises:
        DataError: Their type or range has no clear meaning.
    """
    values, name = images.values, images.name
    kind = values.dtype.name
    if kind == "uint8":
        return
    if kind not in (*_INTEGERS, *_FLOATS):
        remedy = ""
        if kind == "uint16":
            remedy = f"Convert them with {name}.astype('uint8') if they are 0 to 255, ({name} // 257).astype('uint8')"
            remedy += " if they are 0 to 65535"
        elif kind == "bool":
            remedy = f"Convert them with {name}.astype('uint8') * 255"
        raise images.refuse("must be uint8, integers from 0 to 255 or floats from 0 to 1", kind, remedy)
    low, high = values.min().item(), values.max().item()  # NaN if any value is
    got = f"{kind} from {low} to {high}" if np.isfinite([low, high]).all() else f"{kind} with NaN or infinite values"
    if kind in _INTEGERS:
        if low < 0 or high > 255:
            raise images.refuse("must be integers from 0 to 255", got)
        if high == 1:  # white might be 1 or 255
            raise images.refuse("must be integers from 0 to 255", got, "Multiply them by 255 if 1 is white")
    elif not (low >= 0 and high <= 1):
        raise images.refuse("must be floats from 0 to 1", got, _scaling(name, low, high))


def _scaling(name: str, low: float, high: float) -> str:
    """Return the remedy for floats in this range, if it is one that is common."""
    if not np.isfinite([low, high]).all():
        return "Leave out the images with such values"
    if low >= -0.01 and high <= 1.01:
        return f"Clip them with {name}.clip(0, 1)"
    if low >= -1 and high <= 1:
        return f"If they are scaled to [-1, 1], use ({name} + 1) / 2"
    if low >= 0 and high <= 255:
        return f"Divide them by 255, or convert them with {name}.round().astype('uint8')"
    return "Undo their normalisation, or convert them to uint8"
