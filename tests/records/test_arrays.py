"""Arrays come back as they were written; anything else is refused in one line."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sincere.errors import DataError
from sincere.records.arrays import PER_IMAGE, PerImage
from sincere.records.npz import read_arrays, write_arrays

N = 6


def made() -> PerImage:
    ids = np.arange(N)
    values = {"margin": np.random.default_rng(0).random((N, 2)), "knn1": np.ones(N)}
    values["auroc"] = np.ones(N + 3)  # of unknown images, too
    return PerImage(ids, ids % 2, ids % 2, ids, ids, np.arange(3), values, np.array([f"{i}.png" for i in ids]))


def test_round_trip_and_digest(tmp_path: Path) -> None:
    digest = made().write(tmp_path)
    assert digest == hashlib.sha256((tmp_path / PER_IMAGE).read_bytes()).hexdigest()
    again = PerImage.read(tmp_path, digest)
    np.testing.assert_array_equal(again.labels, made().labels)
    assert again.texts is not None
    assert again.texts.tolist() == [f"{i}.png" for i in range(N)]
    np.testing.assert_array_equal(again.values["margin"], made().values["margin"])
    assert [path.name for path in tmp_path.iterdir()] == [PER_IMAGE]
    with pytest.raises(DataError, match=r"per_image\.npz: is damaged, or of another evaluation: .*; evaluate the run"):
        PerImage.read(tmp_path, "0" * 64)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    digest = made().write(tmp_path)
    broken = made()
    broken.values["bad"] = np.array([{}], dtype=object)
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        broken.write(tmp_path)
    assert PerImage.read(tmp_path, digest).values.keys() == {"margin", "knn1", "auroc"}
    assert [path.name for path in tmp_path.iterdir()] == [PER_IMAGE]


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("ids", np.array(3)),
        ("ids", np.array([], dtype=np.int64)),
        ("labels", np.arange(N - 1)),
        ("labels", np.arange(N) * 1.0),
        ("predictions", np.full(N, -1)),
        ("noise_ids", np.zeros((N, 1), dtype=np.int64)),
        ("texts", np.arange(N)),
        ("texts", np.array(["a.png"])),
        ("unknown_ids", np.array(3)),
        ("unknown_ids", np.full(3, -1)),
        ("value_knn1", np.ones(N + 1)),
        ("value_knn1", np.ones((N, 3))),
        ("value_knn1", np.full(N, "a")),
        ("value_knn1", np.ones(N, dtype=complex)),
    ],
)
def test_wrong_shapes_types_and_values(name: str, array: Any, tmp_path: Path) -> None:
    made().write(tmp_path)
    write_arrays(tmp_path / PER_IMAGE, {**read_arrays(tmp_path / PER_IMAGE, remedy=""), name: array})
    wrong = name.removeprefix("value_")
    with pytest.raises(
        DataError, match=f"is damaged: {wrong} has a wrong shape, type or value; evaluate the run again"
    ):
        PerImage.read(tmp_path)


def test_any_damaged_byte_gives_the_arrays_or_one_line(tmp_path: Path) -> None:
    digest = made().write(tmp_path)
    path = tmp_path / PER_IMAGE
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="evaluate the run again"):
            PerImage.read(tmp_path, digest)
    for end in range(0, len(content), 40):
        path.write_bytes(content[:end])
        with pytest.raises(DataError, match="is damaged; evaluate the run again"):
            PerImage.read(tmp_path)
