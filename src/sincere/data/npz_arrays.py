"""Images and labels as people store them in an .npz, checked and converted where their meaning is clear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sincere import checks
from sincere.data.decode import convert, eight_bits
from sincere.data.pixel_storage import Pixels
from sincere.errors import DataError, first_line

Array = NDArray[np.generic]

CHANNELS = (1, 3)
CHUNK_VALUES = 1 << 20  # pixel values that are converted at a time
LONGEST_LABEL = 255  # characters: what the name of a class folder can have
_INTEGERS = ("int16", "int32", "int64", "uint32", "uint64")  # int8 cannot hold 255, uint16 may mean 0 to 65535
_FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class NamedArray:
    """An array of an .npz.

    Attributes:
        path: Path of the file.
        name: Name of the array.
        values: The array.
    """

    path: Path
    name: str
    values: Array

    def refuse(self, requirement: str, got: object, remedy: str = "") -> DataError:
        """Return the error that says what the array must be."""
        return DataError(checks.wording(str(self.path), f"{self.name} {requirement}", got, remedy))


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
    _check_range(images)
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
        pixels[start : start + step] = block if height == width else [_centre_square(image, side) for image in block]
    return pixels


def _centre_square(image: Pixels, side: int) -> Pixels:
    grey = image.shape[2] == 1
    return convert(Image.fromarray(image[..., 0] if grey else image), side, grey=grey)


def _check_range(images: NamedArray) -> None:
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
        if high <= 1:  # white might be 1 or 255
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


def check_labels(labels: NamedArray, n_images: int) -> None:
    """Check that labels are integers or short strings, one for each image.

    Raises:
        DataError: They are not.
    """
    values = labels.values
    kind = values.dtype.kind
    if kind not in "iuUS" or values.shape != (n_images,):
        whole = kind == "f" and bool(np.isfinite(values).all()) and bool((values == np.rint(values)).all())
        remedy = f"Convert them with {labels.name}.astype(int)" if whole else ""
        got = f"{values.dtype} of shape {values.shape}"
        raise labels.refuse(f"must be integers or strings of shape ({n_images},)", got, remedy)
    if kind in "iu":
        if int(values.max()) > np.iinfo(np.int64).max:  # would turn negative
            raise labels.refuse("must number the classes from 0", values.max())
        return
    lengths = np.char.str_len(cast("NDArray[np.str_]", values))
    if lengths.max() > LONGEST_LABEL:
        raise labels.refuse(f"must have at most {LONGEST_LABEL} characters each", f"one of {lengths.max():,}")
    if lengths.min() == 0:
        raise labels.refuse("must not be empty strings", f"one at position {lengths.argmin()}")


def encode_labels(
    path: Path, parts: Sequence[NamedArray], class_names: NamedArray | None
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Return the labels of each part as indices into the class names, and these names.

    Integers are the indices. The classes of strings are `class_names`, or else the strings of all parts, sorted.

    Raises:
        DataError: A label has no name, or the names are wrong.
    """
    given = None if class_names is None else _class_names(class_names)
    are_strings = [part.values.dtype.kind in "US" for part in parts]
    if any(are_strings) != all(are_strings):
        names = " and ".join(part.name for part in parts)
        types = " and ".join(str(part.values.dtype) for part in parts)
        raise DataError(f"{path}: {names} must both be integers or both be strings; got {types}")
    if not any(are_strings):
        labels = [part.values.astype(np.int64) for part in parts]
        return labels, _names_of_integers(path, labels, given)
    found = [np.unique(part.values, return_inverse=True) for part in parts]
    texts = [_decode(part, unique) for part, (unique, _) in zip(parts, found, strict=True)]
    present = sorted({text for part_texts in texts for text in part_texts})
    index = {name: label for label, name in enumerate(present if given is None else given)}
    for text in present:
        if text not in index:
            raise DataError(f"{path}: class_names must name every label; got none for {text!r}")
    encoded = [
        np.array([index[text] for text in part_texts], dtype=np.int64)[inverse]
        for part_texts, (_, inverse) in zip(texts, found, strict=True)
    ]
    return encoded, tuple(index)


def _names_of_integers(path: Path, labels: list[NDArray[np.int64]], given: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the class names in label order; the labels themselves if none are given."""
    highest = int(max(part.max() for part in labels))
    if given is None:
        if highest >= len(labels[0]):  # also keeps a stray label from allocating all memory
            requirement = "must number the classes from 0, each with a training image"
            raise DataError(f"{path}: labels {requirement}; got {highest} with {len(labels[0])} training images")
        return tuple(map(str, range(highest + 1)))
    if highest >= len(given):
        raise DataError(f"{path}: class_names must name every label; got {len(given)} names and label {highest}")
    return given


def _class_names(array: NamedArray) -> tuple[str, ...]:
    values = array.values
    if values.ndim != 1 or values.dtype.kind not in "US":
        raise array.refuse("must be strings of shape (classes,)", f"{values.dtype} of shape {values.shape}")
    names = _decode(array, values)
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise array.refuse("must be different", f"{duplicates[0]!r} more than once")
    return names


def _decode(array: NamedArray, values: Array) -> tuple[str, ...]:
    """Return strings of an array as text; bytes are UTF-8."""
    try:
        return tuple(text.decode() if isinstance(text, bytes) else text for text in values.tolist())
    except UnicodeDecodeError as error:
        raise DataError(f"{array.path}: {array.name} must be UTF-8; {first_line(error)}") from error
