"""The content hash of a data set covers names, labels and every byte; unchanged files are read once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sincere.data import listing
from sincere.data.identity import source_digest
from sincere.data.listing import file_facts, file_list, files_below
from tests.data.test_folder import make_tree


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    return make_tree(tmp_path / "set")


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def replace_pixels(path: Path) -> None:
    """Change the content but neither size nor modification time."""
    content, before = bytearray(path.read_bytes()), path.stat()
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "moved to another class": lambda root: (root / "class0" / "0.png").rename(root / "class1" / "moved.png"),
    "two swapped": lambda root: swap(root / "class0" / "0.png", root / "class1" / "0.png"),
    "pixels replaced": lambda root: replace_pixels(root / "class2" / "3.png"),
    "renamed": lambda root: (root / "class0" / "0.png").rename(root / "class0" / "zero.png"),
    "class renamed": lambda root: (root / "class0").rename(root / "klasse0"),
    "added": lambda root: shutil.copy(root / "class0" / "0.png", root / "class0" / "more.png"),
    "removed": lambda root: (root / "class0" / "0.png").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(change: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "RACY_NS", 0)  # these files are as young as no user's
    before = source_digest(str(root))
    CHANGES[change](root)
    assert source_digest(str(root)) != before


def test_a_class_folder_that_is_a_link(root: Path, tmp_path: Path) -> None:
    other = make_tree(tmp_path / "other", n_classes=1, per_class=7) / "class0"
    shutil.move(root / "class0", tmp_path / "elsewhere")
    (root / "class0").symlink_to(tmp_path / "elsewhere")
    before = source_digest(str(root))
    (root / "class0").unlink()
    (root / "class0").symlink_to(other)
    assert source_digest(str(root)) != before


def test_unchanged_files_are_not_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "RACY_NS", 0)
    before = source_digest(str(root))
    monkeypatch.setattr(listing, "inspect_file", lambda path: pytest.fail(f"reads {path}"))
    assert source_digest(str(root)) == before


def test_touched_files_are_read_again_and_have_the_same_hash(root: Path) -> None:
    before = source_digest(str(root))
    for path in root.rglob("*.png"):
        os.utime(path)
    assert source_digest(str(root)) == before


def test_a_file_that_changed_just_before_it_was_read_is_read_again(root: Path) -> None:
    """A second change within the clock's resolution would have the same status."""
    before = source_digest(str(root))
    replace_pixels(root / "class0" / "0.png")
    assert source_digest(str(root)) != before


def test_a_damaged_cache_of_hashes_is_computed_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "RACY_NS", 0)
    before = source_digest(str(root))
    (stored,) = (tmp_path / "home" / "decoded").glob("files-*.npz")
    content = stored.read_bytes()
    for position in np.random.default_rng(0).integers(0, len(content), 30):
        changed = bytearray(content)
        changed[position] ^= 64
        stored.write_bytes(changed)
        assert source_digest(str(root)) == before


def test_the_hash_of_an_npz_covers_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    path = tmp_path / "set.npz"
    images = np.zeros((4, 2, 2, 1), dtype=np.uint8)
    digests = set()
    for value in (0, 1):
        images[3, 1, 1, 0] = value
        np.savez(path, train_images=images)
        os.utime(path, ns=(1, 1))
        digests.add(source_digest(str(path)))
    assert len(digests) == 2


def test_named_sets_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    assert source_digest("digits") is None
    assert source_digest("cifar10", tmp_path) is None
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"1")
    before = source_digest("cifar10", tmp_path)
    (folder / "data_batch_1").write_bytes(b"2")
    assert None is not before != source_digest("cifar10", tmp_path)


def test_fifty_thousand_unchanged_files_take_little_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of them here, in a tenth of the two seconds, three times that for a busy machine."""
    monkeypatch.setattr(listing, "RACY_NS", 0)
    for c in range(10):
        (tmp_path / "set" / f"c{c}").mkdir(parents=True)
        for i in range(500):
            (tmp_path / "set" / f"c{c}" / f"{i}.png").write_bytes(b"%d" % i)
    names = files_below(tmp_path / "set")
    assert len(names) == 5000
    file_facts(file_list(tmp_path / "set", names), tmp_path / "cache")
    began = time.monotonic()
    file_facts(file_list(tmp_path / "set", files_below(tmp_path / "set")), tmp_path / "cache")
    assert time.monotonic() - began < 0.6


def test_a_file_that_could_not_be_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "RACY_NS", 0)
    real = Path.read_bytes

    def broken(self: Path) -> bytes:
        if self.name == "3.png":
            raise OSError(5, "Input/output error")
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", broken)
        wrong = source_digest(str(root))
    right = source_digest(str(root))
    assert right != wrong
    assert source_digest(str(root)) == right


def test_a_test_part_with_fewer_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    make_tree(tmp_path / "set" / "train", n_classes=2)
    make_tree(tmp_path / "set" / "test", n_classes=1)
    assert source_digest(str(tmp_path / "set")) is not None
