"""Labels that may be wrong, as a report shows them: label_issues.npz, beside the whole list in label_issues.csv."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sincere.checks import sample_name
from sincere.errors import DataError
from sincere.records.arrays import is_pictures
from sincere.records.npz import read_arrays, write_arrays

LABEL_ISSUES, LABEL_LIST = "label_issues.csv", "label_issues.npz"
MOST_SHOWN = 20  # samples in a report
PARTS = ("training", "test")
REMEDY = "find them again with `sincere labels`"
_COUNTS = ("n_samples", "n_issues", "k", "epochs")
_TEXTS = ("basis", "data")


@dataclass(frozen=True, eq=False)
class LabelList:
    """The training and test samples of a run whose label is the most doubtful, at most 20.

    Attributes:
        n_samples: Number of samples.
        n_issues: Number of those whose label may be wrong.
        k: Number of neighbours that voted on each label.
        basis: What neighbours were searched by: "features" or "embeddings".
        data: Content hash of the data.
        epochs: Number of epochs after which the run was looked at.
        ids: Which sample of the source each is (m,), the most doubtful first.
        labels: Their labels (m,).
        suggested: Labels that most of the neighbours have (m,).
        agreement: Share of the neighbours' votes for the sample's own label (m,).
        is_test: Whether each is of the test part (m,).
        thumbnails: Pixels (m, h, w, c), uint8, c = 1 or 3; None where the samples are features.
        texts: A text or path for each (m,); None without.
    """

    n_samples: int
    n_issues: int
    k: int
    basis: str
    data: str
    epochs: int
    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    suggested: NDArray[np.int64]
    agreement: NDArray[np.float64]
    is_test: NDArray[np.bool_]
    thumbnails: NDArray[np.uint8] | None = None
    texts: NDArray[np.str_] | None = None

    def name(self, i: int) -> str:
        """Return the file name or text of a sample, or # and its id."""
        return sample_name(None if self.texts is None else self.texts[i], self.ids[i])

    def part(self, i: int) -> str:
        """Return which part a sample is of."""
        return PARTS[int(self.is_test[i])]

    def write(self, folder: Path) -> None:
        """Write label_issues.npz."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        write_arrays(
            folder / LABEL_LIST, {name: np.asarray(value) for name, value in values.items() if value is not None}
        )

    @classmethod
    def read(cls, folder: Path, n_classes: int) -> Self:
        """Read label_issues.npz.

        Raises:
            FileNotFoundError: There is none.
            DataError: It is damaged, or has labels beyond `n_classes`.
        """
        path = folder / LABEL_LIST
        arrays: dict[str, Any] = read_arrays(path, remedy=REMEDY)
        for names, kinds, convert in ((_COUNTS, "iu", int), (_TEXTS, "U", str)):
            for name in names:
                value = arrays.get(name, np.empty(0))
                _check(path, name, value.ndim == 0 and value.dtype.kind in kinds)
                arrays[name] = convert(value)
        try:
            record = cls(**arrays)
        except TypeError as error:
            raise DataError(f"{path}: is of another version; {REMEDY}") from error
        record._check(path, n_classes)
        return record

    def _check(self, path: Path, n_classes: int) -> None:
        m = len(self.ids) if self.ids.ndim else -1
        _check(path, "n_issues", 0 <= m <= min(self.n_issues, MOST_SHOWN) and self.n_issues <= self.n_samples)
        _check(path, "k", self.k >= 0 and self.epochs >= 0)
        _check(path, "basis", self.basis in ("features", "embeddings"))
        for name in ("ids", "labels", "suggested"):
            array = getattr(self, name)
            _check(path, name, array.shape == (m,) and array.dtype.kind in "iu" and not (array < 0).any())
        for name in ("labels", "suggested"):
            _check(path, name, bool((getattr(self, name) < n_classes).all()))
        share = self.agreement
        _check(path, "agreement", share.shape == (m,) and share.dtype.kind == "f")
        _check(path, "agreement", bool(((share >= 0) & (share <= 1 + 1e-6)).all()))
        _check(path, "is_test", self.is_test.shape == (m,) and self.is_test.dtype.kind == "b")
        if self.thumbnails is not None:
            _check(path, "thumbnails", is_pictures(self.thumbnails) and len(self.thumbnails) == m)
        if self.texts is not None:
            _check(path, "texts", self.texts.dtype.kind == "U" and self.texts.shape == (m,))


def _check(path: Path, name: str, right: bool) -> None:
    if not right:
        raise DataError(f"{path}: is damaged: {name} has a wrong shape, type or value; {REMEDY}")
