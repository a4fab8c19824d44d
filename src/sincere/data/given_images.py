"""Images that a user gives to a trained model: paths, folders, PIL images, arrays, tensors, or lists of these.

Each becomes the pixels that its file would have in a data set: `decode` and `centre_square` are used for both.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from sincere import checks
from sincere.data.chunks import in_order
from sincere.data.dataset import Samples, all_samples
from sincere.data.decode import BadImageError, centre_square, convert, decode, eight_bits, left_out_note
from sincere.data.listing import files_below
from sincere.data.load_options import Progress
from sincere.data.named_arrays import NamedArray
from sincere.data.npz_arrays import CHANNELS, channels_last, check_range
from sincere.data.pixel_storage import TensorImages
from sincere.data.python_data import as_array
from sincere.errors import DataError, InputTypeError, first_line

NONE_READ = "none of the images can be read"
FORMS = "paths, folders, PIL images, arrays or tensors of pixels, or a list of these"
Item = Path | Image.Image | NDArray[Any]


@dataclass(frozen=True, eq=False)
class GivenImages:
    """Images, decoded when they are needed.

    Attributes:
        items: A path, a PIL image or an array (h, w, c) for each.
        names: What each is called in messages and tables: its path, or its position.
    """

    items: Sequence[Item]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.items)

    def part(self, start: int, end: int) -> GivenImages:
        """Return some of the images."""
        return GivenImages(self.items[start:end], self.names[start:end])

    def pixels(self, i: int, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
        """Return an image as uint8 pixels (h, w, c) of this shape (c, h, w).

        Raises:
            BadImageError: It cannot be read.
        """
        item, n_channels, side = self.items[i], shape[0], shape[1]
        if isinstance(item, Path):
            return decode(item, side, grey=n_channels == 1)
        if isinstance(item, Image.Image):
            try:
                upright = ImageOps.exif_transpose(item)
                return convert(upright, side, grey=n_channels == 1)
            except Exception as error:  # Pillow reads the pixels now, and raises almost anything on damaged files
                raise BadImageError(f"{self.names[i]}: cannot be read as an image ({first_line(error)})") from error
        pixels = eight_bits(item, 1) if item.dtype.kind == "f" else item.astype(np.uint8, copy=False)
        if pixels.shape[2] > n_channels:
            return convert(Image.fromarray(pixels), side, grey=True)
        square = centre_square(np.require(pixels, requirements=["C", "W"]), side)
        return np.broadcast_to(square, (*square.shape[:2], n_channels))

    def skipped_note(self, read: Collection[int]) -> tuple[str, ...]:
        """Return a note on images that were left out, if there are any, given the positions of the others."""
        n = len(self) - len(read)
        if not n:
            return ()
        good = set(read)
        left_out = (name for i, name in enumerate(self.names) if i not in good)
        return (left_out_note(left_out, n, len(self), "images"),)

    def batches(
        self, shape: tuple[int, int, int], *, skip_bad: bool = False, progress: Progress | None = None
    ) -> Generator[tuple[list[int], Tensor], None, None]:
        """Yield positions of images and their pixels (k, c, h, w), decoded in threads; few of them are in memory.

        Args:
            shape: Channels, height and width of the pixels.
            skip_bad: Whether to leave out images that cannot be read.
            progress: Called with (done, total).

        Raises:
            BadImageError: An image cannot be read, and `skip_bad` is off.
        """
        for good, pixels in in_order(partial(self._decoded, shape, skip_bad), len(self), progress=progress):
            if good:
                yield good, torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)

    def _decoded(
        self, shape: tuple[int, int, int], skip_bad: bool, positions: range
    ) -> tuple[list[int], list[NDArray[np.uint8]]]:
        good, pixels = list[int](), list[NDArray[np.uint8]]()
        for i in positions:
            try:
                pixels.append(self.pixels(i, shape))
            except BadImageError:
                if not skip_bad:
                    raise
                continue
            good.append(i)
        return good, pixels


def plain_images(
    folder: Path, shape: tuple[int, int, int], *, skip_bad: bool = False, progress: Progress | None = None
) -> Samples:
    """Return all images below a folder as samples without classes, in memory.

    Args:
        folder: The folder.
        shape: Channels, height and width of the pixels.
        skip_bad: Whether to leave out images that cannot be read.
        progress: Called with (done, total).

    Raises:
        DataError: There are no images, or one cannot be read.
    """
    given, positions, parts = given_images(folder), list[int](), list[Tensor]()
    for good, pixels in given.batches(shape, skip_bad=skip_bad, progress=progress):
        positions += good
        parts.append(pixels.contiguous())
    if not parts:
        raise DataError(f"{folder}: none of its images can be read")
    samples = all_samples(TensorImages(torch.cat(parts)), np.zeros(len(positions), dtype=np.int64))
    return replace(samples, texts=np.array([given.names[i] for i in positions]))


def given_images(value: Any) -> GivenImages:
    """Return what a user has given as images.

    Arrays are (h, w), (h, w, c), (c, h, w), or batches (n, h, w, c) or (n, c, h, w), of 1 or 3 channels, as uint8, as
    integers from 0 to 255 or as floats from 0 to 1. Where both orders are possible, the channels of a tensor come first
    and those of an array last.

    Raises:
        InputTypeError: It is something else.
        DataError: A path does not exist, a folder holds no images, or values cannot be pixels.
    """
    items, names = list[Item](), list[str]()
    for item, name in _flattened(value, ""):
        items.append(item)
        names.append(name or f"image {len(names)}")
    return GivenImages(items, names)


def _flattened(value: Any, where: str) -> Iterator[tuple[Item, str]]:
    """Yield each image, with its name if it has one."""
    if isinstance(value, str | Path):
        yield from _paths(Path(value).expanduser())
    elif isinstance(value, Image.Image):
        yield value, ""
    elif isinstance(value, np.ndarray | Tensor):
        for image in _arrays(value, where or "values"):
            yield image, ""
    elif isinstance(value, Iterable) and not isinstance(value, bytes | dict):
        for i, one in enumerate(value):
            yield from _flattened(one, f"images[{i}]")
    else:
        raise InputTypeError(checks.wording("images", f"must be {FORMS}", type(value).__name__))


def _paths(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_dir():
        names = files_below(path)
        if not names:
            raise DataError(f"{path}: holds no images")
        for name in names:
            file = path / name.decode("utf-8", "surrogateescape")
            yield file, str(file)
    elif path.exists() or path.is_symlink():
        yield path, str(path)
    else:
        raise DataError(f"{path}: no such file or folder")


def _arrays(value: NDArray[Any] | Tensor, name: str) -> Iterator[NDArray[Any]]:
    """Yield the images (h, w, c) of an array, checked."""
    array, channels_first = as_array(name, value), isinstance(value, Tensor)
    if array.ndim == 2:
        array, channels_first = array[:, :, None], False
    if array.ndim == 3 and array.shape[0] not in CHANNELS and array.shape[2] not in CHANNELS:
        remedy = "A stack of grey images needs an axis for channels: (n, h, w, 1)"
        if 4 in (array.shape[0], array.shape[2]):
            remedy = "Transparency is not supported in arrays; drop the fourth channel"
        requirement = "must have shape (h, w), (h, w, c) or (c, h, w) with c = 1 or 3"
        raise NamedArray(Path("images"), name, array).refuse(requirement, tuple(array.shape), remedy)
    batch = NamedArray(Path("images"), name, array[None] if array.ndim == 3 else array)
    if batch.values.ndim != 4:
        requirement = "must have shape (h, w), (h, w, c), (c, h, w), (n, h, w, c) or (n, c, h, w)"
        raise batch.refuse(requirement, tuple(array.shape))
    if not batch.values.size:
        raise batch.refuse("must not be empty", f"shape {tuple(array.shape)}")
    if channels_first and batch.values.shape[1] in CHANNELS:
        batch = replace(batch, values=batch.values.transpose(0, 2, 3, 1))
    else:
        batch = channels_last(batch)
    check_range(batch)
    yield from batch.values
