"""Data that change behind a comparison, a run or an evaluation: what was computed from others may not be shown."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from tests.faults.case import Case, FaultError, Kind
from tests.faults.command import Command
from tests.faults.judges import DONE, INTERRUPTED, check_done, check_ended, names_damage
from tests.faults.scene import told
from tests.faults.verbs import results
from tests.faults.world import ARRAYS, CLASSES, HOME, LOSSES, MEASURE, NETWORK, PARTIAL, PICTURES, RUN, World

GROUP = "stale"
OUT, LINKED = "again", "linked"
Change = Callable[[Path], None]


def _kept_times(path: Path, write: Callable[[], None]) -> None:
    """Change a file but not its time."""
    status = path.stat()
    write()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _move_between_classes(here: Path) -> None:
    for number in range(3):
        shutil.move(here / PICTURES / "ants" / f"{number:02d}.png", here / PICTURES / "bees" / f"moved{number}.png")


def _exchange_between_classes(here: Path) -> None:
    _swap(here / PICTURES / "ants" / "03.png", here / PICTURES / "cats" / "03.png")


def _swap_in_class(here: Path) -> None:
    _swap(here / PICTURES / "ants" / "00.png", here / PICTURES / "ants" / "05.png")


def _swap(one: Path, other: Path) -> None:
    aside = one.with_suffix(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def _rename_file(here: Path) -> None:
    (here / PICTURES / "ants" / "00.png").rename(here / PICTURES / "ants" / "zz.png")


def _rename_class(here: Path) -> None:
    (here / PICTURES / "ants").rename(here / PICTURES / "zebras")


def _exchange_class_names(here: Path) -> None:
    _swap(here / PICTURES / "ants", here / PICTURES / "cats")


def _add_image(here: Path) -> None:
    shutil.copy2(here / PICTURES / "cats" / "00.png", here / PICTURES / "ants" / "14.png")


def _remove_image(here: Path) -> None:
    (here / PICTURES / "ants" / "04.png").unlink()


def _replace_by_same_size(here: Path) -> None:
    """Other pixels in a file of the same length and time: the last byte of an uncompressed image differs."""
    path = here / PICTURES / "bees" / "00.bmp"
    content = bytearray(path.read_bytes())
    content[-300:] = bytes(255 - value for value in content[-300:])
    _kept_times(path, lambda: path.write_bytes(content))


def _retarget_link(here: Path) -> None:
    link = here / PICTURES / "dogs"
    link.unlink()
    link.symlink_to("../elsewhere2", target_is_directory=True)


def _retarget_file_link(here: Path) -> None:
    link = here / PICTURES / "ants" / "link.png"
    link.unlink()
    link.symlink_to("../cats/01.png")


def _change_arrays(here: Path, edit: Callable[[dict[str, np.ndarray]], None]) -> None:
    path = here / ARRAYS
    with np.load(path) as archive:
        arrays = dict(archive)
    edit(arrays)
    _kept_times(path, lambda: np.savez(path, **arrays))


def _one_pixel(arrays: dict[str, np.ndarray]) -> None:
    arrays["train_images"][5, 3, 3] ^= 0xFF


def _one_test_image(arrays: dict[str, np.ndarray]) -> None:
    arrays["test_images"][2] = 255 - arrays["test_images"][2]


def _labels(arrays: dict[str, np.ndarray]) -> None:
    arrays["train_labels"][[0, 1]] = arrays["train_labels"][[1, 0]]


def _class_names(arrays: dict[str, np.ndarray]) -> None:
    arrays["class_names"] = np.array([f"{name}-2" for name in CLASSES])


CHANGES: dict[str, Change] = {
    "files moved between classes": _move_between_classes,
    "files exchanged between classes": _exchange_between_classes,
    "two files swapped in a class": _swap_in_class,
    "a file renamed": _rename_file,
    "a class renamed": _rename_class,
    "two class names exchanged": _exchange_class_names,
    "an image added": _add_image,
    "an image removed": _remove_image,
    "pixels replaced with the same size and time": _replace_by_same_size,
    "a linked class retargeted": _retarget_link,
    "a linked file retargeted": _retarget_file_link,
    "npz: one pixel": partial(_change_arrays, edit=_one_pixel),
    "npz: one test image": partial(_change_arrays, edit=_one_test_image),
    "npz: two labels": partial(_change_arrays, edit=_labels),
    "npz: class names": partial(_change_arrays, edit=_class_names),
}


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every change, behind a comparison, behind a run to resume and behind an evaluation."""
    found = []
    for name, change in CHANGES.items():
        label = name.replace(": ", "-").replace(" ", "-")
        found.append(Case(GROUP, f"compare/{label}", partial(_compare, change=change, name=name)))
        if not short:
            found.append(Case(GROUP, f"resume/{label}", partial(_resume, change=change, name=name)))
            found.append(Case(GROUP, f"evaluate/{label}", partial(_evaluate, change=change, name=name)))
    for data in (PICTURES, ARRAYS):
        found.append(Case(GROUP, f"compare/touched-{data}", partial(_touched, data=data)))
        found.append(Case(GROUP, f"compare/unchanged-{data}", partial(_touched, data=data, touch=False)))
    return found


def _prepare(world: World, *parts: str) -> None:
    """Restore the data and add what some changes need: an uncompressed image, a linked class, a linked file."""
    world.restore((PICTURES, ARRAYS, *parts))
    pictures = world.here / PICTURES
    with Image.open(pictures / "bees" / "00.png") as image:
        image.save(pictures / "bees" / "00.bmp")
    for number in (1, 2):
        shutil.copytree(pictures / ("ants" if number == 1 else "bees"), world.here / f"elsewhere{number}")
    (pictures / "dogs").symlink_to("../elsewhere1", target_is_directory=True)
    (pictures / "ants" / "link.png").symlink_to("../bees/01.png")


def _data(name: str) -> str:
    return ARRAYS if name.startswith("npz") else PICTURES


def _compare_command(data: str) -> Command:
    return Command(("compare", "--data", data, "--out", OUT, *LOSSES, *NETWORK, "--epochs", "1", *MEASURE))


def _compare(world: World, *, change: Change, name: str) -> None:
    _prepare(world)
    first = world.run(_compare_command(_data(name)))
    check_done(first, "the comparison before the change")
    before = results(OUT)(world.here)
    change(world.here)
    outcome = world.run(_compare_command(_data(name)))
    check_ended(outcome)
    if outcome.code == DONE and results(OUT)(world.here) == before:
        raise FaultError(Kind.WRONG, f"{name}: the old results are shown as those of the new data", outcome)


def _touched(world: World, *, data: str, touch: bool = True) -> None:
    """Data that were only touched are not computed again."""
    _prepare(world)
    check_done(world.run(_compare_command(data)), "the comparison")
    before = results(OUT)(world.here)
    if touch:
        for path in [world.here / data, *(world.here / data).rglob("*.png")]:
            os.utime(path)
    outcome = world.run(_compare_command(data))
    check_done(outcome, "the same comparison on the same data")
    if results(OUT)(world.here) != before:
        raise FaultError(Kind.WRONG, "other results on the same data", outcome)


def _resume(world: World, *, change: Change, name: str) -> None:
    """A run that goes on with other data must refuse, or say so."""
    _prepare(world)

    def saved() -> bool:
        folder = world.here / PARTIAL / "checkpoints"
        return folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())

    arguments = (
        "train",
        "--data",
        _data(name),
        "--out",
        PARTIAL,
        *NETWORK,
        "--epochs",
        "40",
        "--checkpoint-minutes",
        "0",
    )
    first = world.run(Command(arguments, signals=[(saved, signal.SIGTERM)]))
    check_ended(first, (INTERRUPTED,))
    change(world.here)
    outcome = world.run(Command(("train", "--resume", "--out", PARTIAL)))
    check_ended(outcome)
    if outcome.code == DONE and not names_damage(outcome.said, first.said):
        raise FaultError(Kind.WRONG, f"{name}: the run went on with other data", outcome)


def _evaluate(world: World, *, change: Change, name: str) -> None:
    """An evaluation on other data than the run's must say so."""
    _prepare(world, HOME)
    check_done(world.run(Command(("train", "--data", _data(name), "--out", RUN, *NETWORK, "--epochs", "1"))), "train")
    evaluate = Command(("evaluate", RUN, *MEASURE, "--no-report"))
    first = world.run(evaluate)
    check_done(first, "the evaluation before the change")
    usual = told(world.here, first)
    change(world.here)
    outcome = world.run(evaluate)
    check_ended(outcome)
    if outcome.code == DONE and not names_damage(told(world.here, outcome), usual):
        raise FaultError(Kind.WRONG, f"{name}: other data are evaluated without a word", outcome)
