"""Cache entries come whole or not at all, whatever breaks or whoever else writes."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sincere.data.cache import decoded_array, file_state
from sincere.data.entries import entry, new_entry
from sincere.errors import DataError


def decoders(n: int, value: int = 7) -> list[Callable[[], np.ndarray]]:
    return [lambda i=i: np.full((2, 2, 3), value + i, dtype=np.uint8) for i in range(n)]


def read(place: Path, made: list[Callable[[], np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return decoded_array(place, made, source="set: train", skip_bad=False)


def test_another_process_may_be_quicker(tmp_path: Path) -> None:
    """Both make the same entry; the second finds it there and takes it."""
    place = tmp_path / "subject-state"

    def slow() -> np.ndarray:
        read(place, decoders(3))
        return np.full((2, 2, 3), 7, dtype=np.uint8)

    array, good = read(place, [slow, *decoders(3)[1:]])
    assert array[:, 0, 0, 0].tolist() == [7, 8, 9]
    assert good.tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
@pytest.mark.parametrize("name", ["positions.npy", "images.npy"])
def test_a_damaged_entry_is_made_anew(damage: str, name: str, tmp_path: Path) -> None:
    place = tmp_path / "subject-state"
    read(place, decoders(3))
    path = place / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-5])
    assert read(place, decoders(3))[0][:, 0, 0, 0].tolist() == [7, 8, 9]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "subject-state", decoders(3))
    assert str(caught.value) == (
        f"{tmp_path}: cached images cannot be written ([Errno 28] No space left on device); "
        "make room or choose another folder"
    )
    assert list(tmp_path.iterdir()) == []


def test_room_is_taken_before_pixels_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda file, start, size: taken.append(size), raising=False)
    read(tmp_path / "subject-state", decoders(3))
    assert taken == [(tmp_path / "subject-state" / "images.npy").stat().st_size]


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(DataError, match=r"cache: cached images cannot be written \("):
        read(tmp_path / "cache" / "subject-state", decoders(3))


def test_others_may_read_an_entry(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    read(tmp_path / "subject-state", decoders(1))
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "subject-state")]
    assert modes[0] == modes[1]


def test_only_old_leavings_and_older_entries_go(tmp_path: Path) -> None:
    old, young = tmp_path / ".unfinished-old", tmp_path / ".unfinished-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "images.npy").write_bytes(b"half")
    long_ago = time.time() - 3 * 24 * 3600
    for path in (old / "images.npy", old):
        os.utime(path, (long_ago, long_ago))
    first, second = (entry(tmp_path, ("images", "train"), (state,)) for state in (1, 2))
    other = entry(tmp_path, ("images", "test"), (1,))
    for place in (first, other, second):
        read(place, decoders(2))
    assert set(tmp_path.iterdir()) == {young, other, second}


@pytest.mark.parametrize("where", ["start", "decoder", "progress", "reader"])
def test_an_interrupt_does_not_wait_for_all_images(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def make(i: int) -> Callable[[], np.ndarray]:
        def decoder() -> np.ndarray:
            decoded.append(i)
            time.sleep(0.001)
            if where == "decoder" and i == 3:
                raise KeyboardInterrupt
            return np.zeros((2, 2, 3), dtype=np.uint8)

        return decoder

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    class Interrupted(list[Callable[[], np.ndarray]]):
        def __iter__(self) -> Iterator[Callable[[], np.ndarray]]:
            yield from self[:350]
            raise KeyboardInterrupt

    if where == "reader":
        monkeypatch.setattr("sincere.data.cache._reserve", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        decoded_array(
            tmp_path / "subject-state",
            (Interrupted if where == "start" else list)(make(i) for i in range(400)),
            source="set: train",
            skip_bad=False,
            progress=interrupt if where == "progress" else None,
            workers=2,
        )
    time.sleep(0.5)  # in which all would be decoded if they were still waiting
    assert len(decoded) < 150
    assert caught.traceback, "held until here, as an error that ends a program is"
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_a_failed_entry_stays(tmp_path: Path) -> None:
    def fail() -> None:
        with new_entry(tmp_path / "a-b") as work:
            (work / "x").write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_state_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.png"
    assert file_state(path, tmp_path) == ("a/b.png", -1, -1), "missing"
    path.parent.mkdir()
    path.write_bytes(b"123")
    os.utime(path, ns=(5, 7))
    assert file_state(path, tmp_path) == ("a/b.png", 3, 7)
