"""Disks without room, files that may not grow, and changes that fail: at every writer, at many moments."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path

from tests.faults.case import Case, SkippedError
from tests.faults.command import Outcome
from tests.faults.judges import DONE, check_ended, check_kept, checksums
from tests.faults.scene import Scene
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import ARRAYS, OTHER, PICTURES, World

GROUP = "full_disk"
ROOMY = 256 << 20
_ERRORS = ("ENOSPC", "EIO", "EACCES", "EROFS", "EMFILE")
_INPUTS = (f"{PICTURES}/**/*", ARRAYS, OTHER)


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Small disks, few inodes, small files, and errors at single changes."""
    generator = random.Random(seed)
    found = []
    for verb in (verb for verb in VERBS.values() if verb.writes):
        for share in _spread(generator, 2 if short else 6):
            found.append(Case(GROUP, f"{verb.name}/disk-{share:.3f}", partial(_disk, verb=verb, share=share)))
        for more in (2,) if short else (0, 2, 6):
            found.append(Case(GROUP, f"{verb.name}/inodes-{more}", partial(_inodes, verb=verb, more=more)))
        for most in (2000,) if short else (0, 200, 1500, 12_000, 100_000, 350_000):
            found.append(Case(GROUP, f"{verb.name}/file-{most}", partial(_file_size, verb=verb, most=most)))
        for error in _ERRORS[:1] if short else _ERRORS:
            for share in _spread(generator, 1 if short else 2):
                name = f"{verb.name}/{error}-{share:.3f}"
                found.append(Case(GROUP, name, partial(_error, verb=verb, error=error, share=share)))
    return found


def _spread(generator: random.Random, count: int) -> list[float]:
    return [(i + generator.random()) / count for i in range(count)]


def _disk(world: World, *, verb: Verb, share: float) -> None:
    """A disk that has room for a share of what the verb writes."""
    scene = Scene(world, verb)
    _ = scene.reference
    before = _blocks(world.template, verb)
    scene.restore()
    scene.run()
    needed = max(16 << 10, _used(world.here) - before)
    with small_disk(world) as remount:
        scene.restore()
        inputs = checksums(world.here, _INPUTS)
        remount(f"size={_used(world.here) + int(share * needed) // 4096 * 4096}")
        outcome = scene.run()
        _judge(scene, outcome, inputs)
        remount(f"size={ROOMY}")
        scene.recover()


def _inodes(world: World, *, verb: Verb, more: int) -> None:
    """A disk that takes only a few more files."""
    scene = Scene(world, verb)
    _ = scene.reference
    with small_disk(world) as remount:
        scene.restore()
        inputs = checksums(world.here, _INPUTS)
        status = os.statvfs(world.here)
        remount(f"nr_inodes={status.f_files - status.f_ffree + more}")
        outcome = scene.run()
        _judge(scene, outcome, inputs)
        remount("nr_inodes=100000")
        scene.recover()


def _file_size(world: World, *, verb: Verb, most: int) -> None:
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    inputs = checksums(world.here, _INPUTS)
    outcome = scene.run(file_bytes=most)
    _judge(scene, outcome, inputs)
    scene.recover()


def _error(world: World, *, verb: Verb, error: str, share: float) -> None:
    scene = Scene(world, verb)
    operation = max(1, ceil(share * scene.reference.operations))
    scene.restore()
    inputs = checksums(world.here, _INPUTS)
    outcome = scene.run(at_operation=operation, disturbance=error)
    _judge(scene, outcome, inputs)
    scene.recover()


def _judge(scene: Scene, outcome: Outcome, inputs: dict[str, str]) -> None:
    """One line, exit code 2, earlier results intact; or the usual result, where it did not matter."""
    check_ended(outcome)
    check_kept(scene.here, inputs, outcome)
    scene.check_earlier_results(outcome)
    if outcome.code == DONE:
        scene.check_result(outcome, named=True)


@contextmanager
def small_disk(world: World) -> Iterator[partial[None]]:
    """Put a file system in memory over the world; give a function that changes its options."""
    where = str(world.here)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOMY}", "faults", where], capture_output=True).returncode:
        raise SkippedError("a file system in memory cannot be mounted here (not root?)")
    try:
        yield partial(_remount, where)
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def _remount(where: str, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", where], check=True, capture_output=True)


def _used(folder: Path) -> int:
    """Return the bytes of all files in whole blocks, with one block for each folder as a margin."""
    paths = list(folder.rglob("*"))
    return sum(-(-path.stat().st_size // 4096) * 4096 if path.is_file() else 0 for path in paths) + 4096


def _blocks(template: Path, verb: Verb) -> int:
    return sum(_used(template / name) if (template / name).is_dir() else 4096 for name in verb.needs)
