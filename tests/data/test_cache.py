"""Cache entries are atomic, whatever fails and whichever process writes."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sincere.data.cache import DecodedImages, checksums_of, decoded_images, entry_path, new_entry
from sincere.data.decode import BadImageError
from sincere.errors import DataError
from sincere.records.files import locked


def plain(i: int) -> np.ndarray:
    return np.full((2, 2, 3), 7 + i, dtype=np.uint8)


def read(path: Path, n: int = 3, decode: Callable[[int], np.ndarray] = plain) -> DecodedImages:
    return decoded_images(path, decode, n, source="set: train", skip_bad=False)


def test_another_process_may_publish_first(tmp_path: Path) -> None:
    """Both write the same entry; the second uses the one that is there."""
    path = tmp_path / "subject-state"

    def slow(i: int) -> np.ndarray:
        if i == 0:
            read(path)
        return plain(i)

    found = read(path, 3, slow)
    assert found.pixels[:, 0, 0, 0].tolist() == [7, 8, 9]
    assert found.positions.tolist() == [0, 1, 2]
    assert np.array_equal(found.checksums, checksums_of(found.pixels))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
@pytest.mark.parametrize("name", ["about.npz", "images.bin"])
def test_a_damaged_entry_is_computed_again(damage: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "subject-state"
    read(path)
    file = path / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty" else file.read_bytes()[:-5])
    assert read(path).pixels[:, 0, 0, 0].tolist() == [7, 8, 9]


def test_a_full_disk_gives_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "subject-state")
    assert str(caught.value) == (
        f"{tmp_path}: cached images cannot be written ([Errno 28] No space left on device); "
        "make room or choose another folder with $SINCERE_HOME"
    )
    assert list(tmp_path.iterdir()) == []


def test_disk_space_is_allocated_before_pixels_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    real = os.posix_fallocate

    def reserve(file: int, start: int, size: int) -> None:
        taken.append(size)
        real(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", reserve)
    read(tmp_path / "subject-state")
    assert taken == [(tmp_path / "subject-state" / "images.bin").stat().st_size]


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(DataError, match=r"cache: cached images cannot be written \("):
        read(tmp_path / "cache" / "subject-state")


def test_other_users_can_read_an_entry_path(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    read(tmp_path / "subject-state", 1)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "subject-state")]
    assert modes[0] == modes[1]


def test_unfinished_and_older_entries_are_removed(tmp_path: Path) -> None:
    left, alive = tmp_path / ".unfinished-left", tmp_path / ".unfinished-alive"
    for folder in (left, alive):
        folder.mkdir()
        (folder / "images.bin").write_bytes(b"half")
    (left / ".lock").write_bytes(b"")
    first, second = (entry_path(tmp_path, ("images", "train"), (state,)) for state in (1, 2))
    other = entry_path(tmp_path, ("images", "test"), (1,))
    with locked(alive):
        for path in (first, other, second):
            read(path, 2)
    assert set(tmp_path.iterdir()) == {alive, other, second}


@pytest.mark.parametrize("bad", [[], [0], [5, 40, 41, 99], list(range(32, 64))])
def test_images_that_were_just_decoded_are_those_of_the_entry(bad: list[int], tmp_path: Path) -> None:
    """Without gaps, where bad images are left out."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (100, 3, 4, 2), dtype=np.uint8)

    def decode(i: int) -> np.ndarray:
        if i in bad:
            raise BadImageError("bad")
        return images[i]

    path = tmp_path / "subject-state"
    first = decoded_images(path, decode, 100, source="set: train", skip_bad=True)
    again = decoded_images(path, decode, 100, source="set: train", skip_bad=True)
    good = np.setdiff1d(np.arange(100), bad)
    assert (first.fresh, again.fresh) == (True, False)
    assert isinstance(first.pixels, np.memmap)
    assert isinstance(again.pixels, np.memmap)
    for found in (first, again):
        assert np.array_equal(found.positions, good)
        assert np.array_equal(found.pixels, images[good])
        assert np.array_equal(found.checksums, checksums_of(images[good]))
        flat = images[good].astype(np.int64).reshape(-1, 2)
        assert np.array_equal(found.sums, np.stack([flat.sum(axis=0), (flat**2).sum(axis=0)], axis=1))


@pytest.mark.parametrize("where", ["decoder", "progress", "reader"])
def test_an_interrupt_does_not_wait_for_all_images(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def decode(i: int) -> np.ndarray:
        decoded.append(i)
        time.sleep(0.001)
        if where == "decoder" and i == 3:
            raise KeyboardInterrupt
        return np.zeros((2, 2, 3), dtype=np.uint8)

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    if where == "reader":
        monkeypatch.setattr("sincere.data.cache.allocate", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        decoded_images(
            tmp_path / "subject-state",
            decode,
            2000,
            source="set: train",
            skip_bad=False,
            progress=interrupt if where == "progress" else None,
            workers=2,
        )
    time.sleep(1.0)  # in which many more would be decoded if they were still waiting
    assert len(decoded) < 400
    assert caught.traceback, "kept alive until here, like an error that ends a program"
    assert list(tmp_path.iterdir()) == []


def test_an_entry_is_flushed_to_disk_before_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flushed = tmp_path / "subject-state", set[tuple[str, bool]]()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.add((Path(f"/proc/self/fd/{descriptor}").resolve().name, path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    read(path)
    assert {("images.bin", False), ("about.npz", False), (tmp_path.name, True)} <= flushed


def test_nothing_of_a_failed_entry_stays(tmp_path: Path) -> None:
    def fail() -> None:
        with new_entry(tmp_path / "a-b") as work:
            (work / "x").write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
