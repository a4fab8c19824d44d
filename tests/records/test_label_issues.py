"""The list of doubtful labels comes back as it was written; anything else is refused in one line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sincere.errors import DataError
from sincere.records.label_issues import LABEL_LIST, LabelList
from sincere.records.npz import read_arrays, write_arrays

M = 4


def made() -> LabelList:
    positions = np.arange(M)
    pixels = np.zeros((M, 8, 8, 3), dtype=np.uint8)
    texts = np.array(["a.png", "\x1b[31m.png", "\udcff.png", "d.png"])
    return LabelList(
        100, 7, 5, "features", "digest", 3, positions, positions % 2, positions % 3, positions / 10, positions > 1,
        pixels, texts,
    )  # fmt: skip


def test_round_trip(tmp_path: Path) -> None:
    made().write(tmp_path)
    again = LabelList.read(tmp_path, 3)
    assert (again.n_samples, again.n_issues, again.k, again.basis, again.data, again.epochs) == (
        100, 7, 5, "features", "digest", 3,
    )  # fmt: skip
    for name in ("ids", "labels", "suggested", "agreement", "is_test", "thumbnails", "texts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made(), name))
    assert [again.part(i) for i in range(M)] == ["training", "training", "test", "test"]
    assert again.name(1) == r"\x1b[31m.png"
    with pytest.raises(FileNotFoundError):
        LabelList.read(tmp_path / "nowhere", 3)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("n_samples", np.array([3])),
        ("n_samples", np.array(6)),
        ("n_issues", np.array(3)),
        ("k", np.array(-1)),
        ("k", np.array(2.0)),
        ("epochs", np.array("a")),
        ("basis", np.array("guesses")),
        ("basis", np.array(3)),
        ("data", np.array(["a", "b"])),
        ("ids", np.array(3)),
        ("ids", np.arange(M) * 1.0),
        ("labels", np.full(M, 3)),
        ("suggested", np.full(M, -1)),
        ("suggested", np.zeros(M + 1, dtype=np.int64)),
        ("agreement", np.full(M, np.nan)),
        ("agreement", np.full(M, 1.1)),
        ("agreement", np.zeros(M, dtype=np.int64)),
        ("is_test", np.zeros(M, dtype=np.int64)),
        ("is_test", np.zeros(M + 1, dtype=np.bool_)),
        ("thumbnails", np.zeros((M, 8, 8, 2), dtype=np.uint8)),
        ("thumbnails", np.zeros((M + 1, 8, 8, 1), dtype=np.uint8)),
        ("thumbnails", np.zeros((M, 8, 999, 1), dtype=np.uint8)),
        ("texts", np.array(["a"])),
        ("texts", np.zeros(M)),
    ],
)
def test_wrong_shapes_types_and_values(name: str, array: Any, tmp_path: Path) -> None:
    made().write(tmp_path)
    write_arrays(tmp_path / LABEL_LIST, {**read_arrays(tmp_path / LABEL_LIST, remedy=""), name: array})
    with pytest.raises(DataError, match="has a wrong shape, type or value; find them again with `sincere labels`"):
        LabelList.read(tmp_path, 3)


def test_missing_and_additional_arrays(tmp_path: Path) -> None:
    made().write(tmp_path)
    arrays = read_arrays(tmp_path / LABEL_LIST, remedy="")
    write_arrays(tmp_path / LABEL_LIST, {**arrays, "more": np.zeros(3)})
    with pytest.raises(DataError, match="is of another version"):
        LabelList.read(tmp_path, 3)
    write_arrays(tmp_path / LABEL_LIST, {name: array for name, array in arrays.items() if name != "labels"})
    with pytest.raises(DataError, match="is of another version"):
        LabelList.read(tmp_path, 3)


def test_any_damaged_byte_is_noticed(tmp_path: Path) -> None:
    made().write(tmp_path)
    path = tmp_path / LABEL_LIST
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with suppress(DataError):  # a field of the archive that nobody reads may be damaged
            np.testing.assert_array_equal(LabelList.read(tmp_path, 3).agreement, made().agreement)
