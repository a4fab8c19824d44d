"""The reference set of a run on disk: embeddings of its training samples, from which others are classified."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sincere.errors import DataError
from sincere.records.config import CONFIG
from sincere.records.tensors import read_tensors, write_tensors

REFERENCE = "reference.safetensors"
_SEPARATOR = "\0"  # between texts: no file name has it


@dataclass(frozen=True, eq=False)
class Reference:
    """Embeddings with their labels.

    Attributes:
        embeddings: Embeddings of unit length (m, d).
        labels: Class of each (m,), an index into the class names; or label sets (m, L).
        ids: Id of each sample in its source (m,).
        class_names: Names of the classes.
        held_out: Embeddings of test samples (h, d): how well samples fit that the model has not seen.
        texts: File name or text of each (m,); None without.
        digests: Hash of the name and content of each image file (m, 16); None where there are no files.
    """

    embeddings: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    class_names: tuple[str, ...]
    held_out: NDArray[np.float32]
    texts: NDArray[np.str_] | None = None
    digests: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, position: int) -> str:
        """Return what to call one: its file name or text, else its id."""
        return str("" if self.texts is None else self.texts[position]) or f"#{self.ids[position]}"

    def write(self, folder: Path) -> None:
        """Write reference.safetensors."""
        arrays: dict[str, NDArray[Any]] = {
            "embeddings": self.embeddings,
            "labels": self.labels,
            "ids": self.ids,
            "held_out": self.held_out,
        }
        if self.texts is not None:
            joined = _SEPARATOR.join(text.replace(_SEPARATOR, " ") for text in self.texts.tolist())
            arrays["texts"] = np.frombuffer(joined.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        if self.digests is not None:
            arrays["digests"] = self.digests
        write_tensors(folder / REFERENCE, arrays, {"class_names": json.dumps(list(self.class_names))})

    @property
    def have_label_sets(self) -> bool:
        """Whether a sample may have several labels, not one class."""
        return self.labels.ndim == 2

    def counts(self) -> list[int]:
        """Return the number of samples of each class, or with each label."""
        if self.have_label_sets:
            return [int(count) for count in self.labels.sum(axis=0)]
        return [int(count) for count in np.bincount(self.labels, minlength=len(self.class_names))]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read reference.safetensors.

        Raises:
            DataError: It is missing or damaged.
        """
        path = folder / REFERENCE
        is_run = (folder / CONFIG).is_file()
        remedy = f"`sincere evaluate {folder}` writes it" if is_run else "export the run again, with its reference set"
        try:
            arrays, about = read_tensors(path, remedy=remedy)
        except FileNotFoundError as error:
            what = "holds no reference embeddings, from which others are classified"
            raise DataError(f"{folder}: {what}; {remedy}") from error
        try:
            embeddings, labels, ids, held_out = (arrays[name] for name in ("embeddings", "labels", "ids", "held_out"))
            names = tuple(str(name) for name in json.loads(about["class_names"]))
            n, texts = len(labels), None
            if "texts" in arrays:
                texts = np.array(arrays["texts"].tobytes().decode("utf-8", "surrogatepass").split(_SEPARATOR))
            shapes = embeddings.ndim == 2 and len(embeddings) == n > 0 and ids.shape == (n,)
            shapes = shapes and labels.shape in ((n,), (n, len(names)))
            shapes = shapes and held_out.ndim == 2 and held_out.shape[1] == embeddings.shape[1]
            digests = arrays.get("digests")
            shapes = shapes and (digests is None or (digests.shape == (n, 16) and digests.dtype == np.uint8))
            finite = bool(np.isfinite(embeddings).all()) and bool(np.isfinite(held_out).all())
            sound = shapes and finite and (texts is None or len(texts) == n)
            if not sound or labels.min() < 0 or labels.max() >= (len(names) if labels.ndim == 1 else 2):
                raise ValueError("its arrays do not fit together")
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: is damaged ({error}); {remedy}") from error
        return cls(embeddings.astype(np.float32), labels, ids, names, held_out.astype(np.float32), texts, digests)
