"""Files are replaced atomically, and damage to any of them is noticed when it is read."""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sincere.checks import printable
from sincere.errors import DataError
from sincere.records.files import atomic_file, locked, read_json, staged_folder, write_atomic, write_json
from sincere.records.npz import read_arrays, write_arrays
from sincere.records.tensors import read_tensors, write_tensors

CONTENT = {"loss": "sincere", "values": [0.1, -2e-9, 3], "names": ["a [1, 2]", "b\n"], "nested": {"rows": [[1, 2], []]}}
ARRAYS = {"images": np.arange(60, dtype=np.uint8).reshape(3, 4, 5), "one": np.array(2.5), "none": np.zeros((0, 3))}


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", CONTENT)
    assert read_json(tmp_path / "x.json", remedy="") == CONTENT
    assert '"values": [0.1, -2e-09, 3]' in (tmp_path / "x.json").read_text(), "a list of numbers takes one line"


def test_tensors_and_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x.safetensors", ARRAYS, {"chosen": "1"})
    tensors, metadata = read_tensors(tmp_path / "x.safetensors", remedy="")
    digest = write_arrays(tmp_path / "x.npz", ARRAYS)
    for found in (tensors, read_arrays(tmp_path / "x.npz", remedy="", expected=digest)):
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            assert np.array_equal(found[name], array)
            assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
    assert metadata == {"chosen": "1"}
    with pytest.raises(DataError, match=r"x\.npz: is damaged, or of another evaluation"):
        read_arrays(tmp_path / "x.npz", remedy="", expected="0" * 64)


WRITERS = {
    "x.json": lambda path: write_json(path, CONTENT),
    "x.safetensors": lambda path: write_tensors(path, ARRAYS, {"chosen": "1"}),
    "x.npz": lambda path: write_arrays(path, ARRAYS),
}
READERS = {
    "x.json": lambda path: read_json(path, remedy="write it again"),
    "x.safetensors": lambda path: read_tensors(path, remedy="write it again"),
    "x.npz": lambda path: read_arrays(path, remedy="write it again"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_changed_bit_goes_unnoticed(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    content = path.read_bytes()
    whole = repr(READERS[name](path))
    for position in range(0, len(content), max(1, len(content) // 400)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        try:
            found = repr(READERS[name](path))
        except DataError as error:
            message = str(error)
        else:
            message = f"{path}: is read as it was"
            # A checksum whose name has changed is taken for more content; the content itself is intact.
            assert re.sub(r"'.{6}': '[0-9a-f]{64}', |, '.{6}': '[0-9a-f]{64}'", "", found) == whole
        assert str(path) in message
        assert "\n" not in message


@pytest.mark.parametrize("name", WRITERS)
def test_no_shortened_file_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    content = path.read_bytes().rstrip()
    for n_bytes in (0, 1, 7, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:n_bytes])
        with pytest.raises(DataError, match="is damaged"):
            READERS[name](path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        READERS[name](path)


@pytest.mark.parametrize("text", ["[1]", "3", "null", "[" * 100_000, "{} x"])
def test_what_is_no_json_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match="is damaged: no "):
        read_json(tmp_path / "x.json", remedy="")


def test_json_without_a_checksum_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(CONTENT))
    assert read_json(tmp_path / "x.json", remedy="") == CONTENT


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomic(path, "old")

    def fail() -> None:
        with atomic_file(path) as aside:
            aside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        with open("/dev/full", "wb", buffering=0) as file:
            return file.write(data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path / 'x'}'"):
        write_atomic(tmp_path / "x", "new")
    assert list(tmp_path.iterdir()) == []


def test_names_of_any_bytes_can_be_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    write_atomic(tmp_path / "x", f'data = "{name}"')
    assert (tmp_path / "x").read_bytes() == b'data = "caf\xe9"'


def test_modes_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    for name, write in WRITERS.items():
        write(tmp_path / name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_staged_files_come_together_or_not_at_all(tmp_path: Path) -> None:
    for name in ("a", "last"):
        (tmp_path / name).write_text("old")

    def write(error: type[BaseException] | None) -> None:
        with staged_folder(tmp_path, last="last") as work:
            for name in ("last", "a", "z"):
                (work / name).write_text("new")
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        write(KeyboardInterrupt)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "last": "old"}
    write(None)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "last": "new", "z": "new"}


def test_the_last_file_is_replaced_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    real = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: moved.append(self.name) or real(self, target))
    with staged_folder(tmp_path, last="b") as work:
        for name in ("c", "b", "a"):
            (work / name).write_text("")
    assert moved == ["a", "c", "b"]


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(DataError, match="another process is working in it"), locked(tmp_path):
            pytest.fail("entered twice")
        with locked(tmp_path, "another.lock"):
            pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 犬", "plain é 犬"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eevil", "\\u202eevil"),
        (os.fsdecode(b"\xff"), "\\udcff"),
    ],
)
def test_nothing_that_steers_a_terminal_is_printed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_members_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("ids", b"text")
    with pytest.raises(DataError, match="is damaged"):
        read_arrays(tmp_path / "x.npz", remedy="")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_pipe_is_not_waited_for(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(DataError, match="is not a regular file"):
        read(tmp_path / "x")
