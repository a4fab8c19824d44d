"""Data that a caller has in hand: arrays, tensors, or a torch Dataset of (image, label)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sincere import checks
from sincere.data.dataset import Dataset
from sincere.data.decode import convert
from sincere.data.load_options import LoadOptions
from sincere.data.npz import load_members
from sincere.errors import DataError, InputTypeError, first_line

if TYPE_CHECKING:
    from sincere.data.hugging_face import HuggingFaceData

FORMS = "arrays by the names of an .npz file, (images or features, labels), or a torch Dataset of (image, label)"


@dataclass(frozen=True, eq=False)
class PythonData:
    """Arrays under the names of an .npz file.

    Attributes:
        name: Name of the data set in messages.
        arrays: The arrays.
    """

    name: str
    arrays: Mapping[str, NDArray[Any]]

    def __call__(self, options: LoadOptions) -> Dataset:
        """Return them as a data set.

        Raises:
            DataError: An array is missing, or has a wrong type, shape or value.
        """
        return load_members(Path(self.name), self, options)

    @property
    def files(self) -> list[str]:
        """Names of the arrays."""
        return list(self.arrays)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return an array."""
        return self.arrays[name]

    @cached_property
    def digest(self) -> str:
        """Content hash of the arrays."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            digest.update(repr((name, array.dtype.str, array.shape)).encode())
            digest.update(
                np.ascontiguousarray(array).data if array.dtype.kind != "O" else repr(array.tolist()).encode()
            )
        return digest.hexdigest()


def python_data(name: str, value: Any) -> PythonData | HuggingFaceData:
    """Return data that a caller has given, as arrays.

    Args:
        name: Name of the data set in messages.
        value: Arrays or tensors by the names of an .npz file; or a pair of images (n, h, w, c) or features (n, d) and
            labels; or a torch Dataset of (image, label), which is read once; or two of these for training and testing;
            or a Dataset or DatasetDict of Hugging Face.

    Raises:
        InputTypeError: It is none of these.
        DataError: The samples of a Dataset do not fit together.
    """
    if type(value).__module__.partition(".")[0] == "datasets":
        from sincere.data.hugging_face import hugging_face_data

        return hugging_face_data(name, value)
    if isinstance(value, Mapping):
        return PythonData(name, {str(key): as_array(f"{name}: {key}", array) for key, array in value.items()})
    if isinstance(value, tuple | list) and len(value) == 2:
        first, second = value
        if _is_dataset(first) and _is_dataset(second):
            return PythonData(name, {**_samples(first, "train_"), **_samples(second, "test_")})
        if _is_pair(first) and _is_pair(second):
            return PythonData(name, {**_pair(name, first, "train_"), **_pair(name, second, "test_")})
        return PythonData(name, _pair(name, value, ""))
    if _is_dataset(value):
        return PythonData(name, _samples(value, ""))
    raise InputTypeError(checks.wording("data", f"must be a name, a path, {FORMS}", type(value).__name__))


def _is_dataset(value: Any) -> bool:
    """Return whether a value is a torch Dataset, or behaves as one: it has a length and yields pairs."""
    is_array = isinstance(value, Tensor | np.ndarray | str | Mapping | tuple | list | type)
    return not is_array and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _is_pair(value: Any) -> bool:
    """Return whether a value is a pair of arrays, not two rows of one."""
    return isinstance(value, tuple) and len(value) == 2 and np.ndim(value[1]) in (1, 2) and np.ndim(value[0]) > 1


def _pair(name: str, value: Sequence[Any], prefix: str) -> dict[str, NDArray[Any]]:
    samples, labels = as_array(f"{name}: samples", value[0]), as_array(f"{name}: labels", value[1])
    return {f"{prefix}{'features' if samples.ndim == 2 else 'images'}": samples, f"{prefix}labels": labels}


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Return an array or tensor as an array.

    Raises:
        DataError: It holds no values, or lists of different lengths.
    """
    try:
        if not isinstance(value, Tensor):
            return np.asarray(value)
        dense = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
        return (dense.float() if dense.dtype == torch.bfloat16 else dense).cpu().numpy()
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{name} must be an array, whose rows have one shape ({first_line(error)})") from error


def _samples(dataset: Sequence[Any], prefix: str) -> dict[str, NDArray[Any]]:
    """Return all samples of a torch Dataset as two arrays, read once and in order.

    Raises:
        DataError: A sample is no pair, or has another shape than the first one.
    """
    name = type(dataset).__name__
    items, labels = list[NDArray[Any]](), list[Any]()
    for position in range(len(dataset)):
        sample = dataset[position]
        if not isinstance(sample, tuple | list) or len(sample) < 2:
            got = type(sample).__name__
            raise DataError(f"{name}: sample {position} must be a pair of an image and a label; got {got}")
        item, label = _item(sample[0]), sample[1]
        if items and item.shape != items[0].shape:
            same_side = item.ndim == 3 and item.shape[:2] == items[0].shape[:2]
            remedy = f"Add a transform that {'converts all to RGB' if same_side else 'resizes them'}"
            requirement = f"sample {position} must have shape {items[0].shape}, as sample 0"
            raise DataError(checks.wording(name, requirement, item.shape, remedy))
        items.append(item)
        labels.append(label.item() if isinstance(label, Tensor | np.generic) and label.ndim == 0 else label)
    if not items:
        raise DataError(f"{name}: has no samples")
    return _pair(name, (np.stack(items), labels), prefix)


def _item(value: Any) -> NDArray[Any]:
    if isinstance(value, Image.Image):
        return convert(value, None, grey=value.mode in ("1", "L"))
    return as_array("data: an image", value)
