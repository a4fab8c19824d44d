"""Odd values of every setting that the verbs have, wrong commands, and odd data."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from tests.faults.case import Case
from tests.faults.command import Command
from tests.faults.judges import DONE, INTERRUPTED, REFUSED, check_done, check_ended, check_refused
from tests.faults.world import (
    ARRAYS,
    FRESH,
    HAS_OPTUNA,
    HOME,
    LOSSES,
    MEASURE,
    OTHER,
    PICTURES,
    RUN,
    SHORT,
    TRIALS,
    World,
    make_arrays,
)  # fmt: skip

GROUP = "settings"
VALUES = {
    "zero": "0", "minus one": "-1", "huge": str(10**30), "large": "1000000", "digits": "9" * 5000, "nan": "nan",
    "inf": "inf", "tiny": "1e-300", "empty": "", "long": "x" * 10_000, "escape": "\x1b[31mred\x07", "path": "../..",
    "null": "a\ufffeb", "three": "3", "word": "none",
}  # fmt: skip
# Of a comparison or a search, whose settings are mostly those of a run.
FEW_VALUES = ("zero", "huge", "nan", "escape", "long")
SHORT_VALUES = ("huge", "nan", "escape")
_BASES = {
    "train": ("train", "--data", ARRAYS, "--out", FRESH, *SHORT),
    "compare": ("compare", "--data", ARRAYS, "--out", "new", *LOSSES, *SHORT, *MEASURE),
    "evaluate": ("evaluate", RUN, *MEASURE, "--no-report"),
    "transfer": ("transfer", RUN, "--to", OTHER, *MEASURE, "--no-report"),
    "report": ("report", RUN),
    "datasets": ("datasets",),
    "reproduce": ("reproduce", "margins", "--out", "new"),
    **({"search": ("search", "--data", ARRAYS, "--out", "new", *TRIALS)} if HAS_OPTUNA else {}),
}
_NO_SETTINGS = {"help", "config"}
_STOPPED = (DONE, REFUSED, INTERRUPTED, 143, -signal.SIGTERM)
WRONG_COMMANDS: dict[str, tuple[str, ...]] = {
    "no verb": (), "unknown verb": ("trian",), "escape as verb": ("\x1b[31m",), "unknown flag": ("train",
    "--epocs", "3"),
    "no value": ("train", "--epochs"), "no data": ("evaluate",), "no folder": ("report",),
    "no target": ("transfer", RUN),
    "missing run": ("evaluate", "nowhere"), "missing data": ("train", "--data", "nowhere", "--out", FRESH),
    "file as run": ("evaluate", ARRAYS), "device as run": ("evaluate", "/dev/null"),
    "file as report": ("report", ARRAYS),
    "resume and overwrite": ("train", "--resume", "--overwrite", "--out", RUN), "resume nothing": ("train", "--resume"),
    "config missing": ("train", "--config"), "config nowhere": ("train", "--config", "nowhere.toml"),
    "config a folder": ("train", "--config", RUN), "config binary": ("train", "--config", ARRAYS),
    "out a file": ("train", "--data", ARRAYS, "--out", ARRAYS, *SHORT), "out empty": ("train", "--out", ""),
    "out root": ("train", "--data", ARRAYS, "--out", "/", *SHORT), "out long": ("train", "--data", ARRAYS,
    "--out", "x" * 300),
    "null in a name": ("train", "--data", "a\0b", "--out", FRESH), "null in out": ("train", "--out", "a\0b"),
    "classes unknown": ("train", "--data", ARRAYS, "--classes", "dogs", "--out", FRESH),
    "one class": ("train", "--data", ARRAYS, "--classes", "ants", "--out", FRESH, *SHORT),
    "fifo as data": ("train", "--data", "fifo", "--out", FRESH), "fifo as npz": ("train", "--data", "fifo.npz",
    "--out", FRESH),
    "device as data": ("train", "--data", "/dev/zero", "--out", FRESH), "null as data": ("train",
    "--data", "/dev/null"),
    "proc as data": ("train", "--data", "/proc/self/mem", "--out", FRESH), "text as data": ("train",
    "--data", "notes.txt"),
    "fifo as run": ("evaluate", "fifo"), "fifo as config": ("train", "--config", "fifo"),
    "device as config": ("train", "--config", "/dev/zero"),
    "weights nowhere": (*_BASES["train"], "--weights", "nowhere.pth"),
    "weights in a comparison nowhere": (*_BASES["compare"], "--weights", "nowhere.pth"),
    "folder as weights": (*_BASES["train"], "--weights", "folder.pth"),
    "text as weights": (*_BASES["train"], "--weights", "notes.pth"),
    "text as safetensors": (*_BASES["train"], "--weights", "notes.safetensors"),
    "fifo as weights": (*_BASES["train"], "--weights", "fifo.pth"),
    "weights of another encoder": (*_BASES["train"], "--encoder", "lite0", "--weights", f"{RUN}/model.safetensors"),
    "weights and pretrained": (*_BASES["train"], "--pretrained", "--weights", f"{RUN}/model.safetensors"),
    "unknown recipe": ("train", "--recipe", "shoes"), "recipe of no run": ("transfer", "nowhere", "--recipe", "pets"),
    "no item": ("reproduce",), "unknown item": ("reproduce", "shoes"),
    "file as out": ("reproduce", "knn", "--out", ARRAYS),
    "tuned nowhere": ("compare", "--tuned", "nowhere"), "tuned a run": ("compare", "--tuned", RUN),
    **({name: (*_BASES["search"], *words) for name, words in {
        "space backwards": ("--space", "temperature=0.5:0.1"), "space of nothing": ("--space", "="),
        "space without end": ("--space", "temperature=0.1:"), "space unknown": ("--space", "shoes=1,2"),
        "storage nonsense": ("--storage", "nonsense"), "storage of no kind": ("--storage", "a://b:c@d/e"),
        "storage refused": ("--storage", "postgresql://ann:secret@127.0.0.1:9/x"),
        "storage a text": ("--storage", "sqlite:///notes.txt"), "worker of nothing": ("--worker",),
        "grid of nothing": ("--grid", "space"),
    }.items()} if HAS_OPTUNA else {}),
    "other weights than expected": (*_BASES["train"], "--weights", f"{RUN}/model.safetensors",
    "--weights-sha256", "0" * 64),
}  # fmt: skip


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every setting with every odd value; commands that are wrong; data that are odd."""
    found = []
    for verb, base in _BASES.items():
        shown = world.run(Command((verb, "--help"))).out
        names = sorted(set(re.findall(r"(?<![\w-])--([a-z][a-z-]*[a-z])", shown)) - _NO_SETTINGS)
        names = [name for name in names if f"no-{name}" not in names and not name.startswith("no-")]
        for name in names:
            for label in SHORT_VALUES[:1] if short else FEW_VALUES if verb in ("compare", "search") else VALUES:
                run = partial(_setting, arguments=(*base, f"--{name}", VALUES[label]))
                found.append(Case(GROUP, f"{verb}/{name}/{label.replace(' ', '-')}", run))
    for label, arguments in WRONG_COMMANDS.items():
        found.append(Case(GROUP, f"wrong/{label.replace(' ', '-')}", partial(_wrong, arguments=arguments)))
    for label, make in {**SMALL_DATA, **({} if short else MORE_DATA)}.items():
        found.append(Case(GROUP, f"data/{label.replace(' ', '-')}", partial(_odd_data, make=make)))
    for size in (1, 4, 9) if short else range(1, 10):
        found.append(Case(GROUP, f"size/{size}", partial(_size, size=size)))
    for words in (("--ks", "0"), ("--ks", "1", "1000"), ("--threads", "1000000"), ("--resamples", str(10**12))):
        for verb in ("train", "evaluate", "compare"):
            if (verb == "train") == (words[0] == "--threads") or verb == "compare":
                name = f"chosen/{verb}{'-'.join(words)}"
                found.append(Case(GROUP, name, partial(_setting, arguments=(*_BASES[verb], *words))))
    return found


def _setting(world: World, *, arguments: tuple[str, ...]) -> None:
    """Any value is refused in one line or taken; a run that would last for ever is stopped after a while."""
    world.restore((ARRAYS, OTHER, HOME, RUN))
    command = Command(arguments, signals=[(5.0, signal.SIGTERM)], memory_bytes=6 << 30, timeout=25)
    check_ended(world.run(command), _STOPPED)


def _wrong(world: World, *, arguments: tuple[str, ...]) -> None:
    world.restore((ARRAYS, HOME, RUN))
    for name in ("fifo", "fifo.npz", "fifo.pth"):
        os.mkfifo(world.here / name)
    for name in ("notes.txt", "notes.pth", "notes.safetensors"):
        (world.here / name).write_text("no data\n")
    (world.here / "folder.pth").mkdir()
    outcome = world.run(Command(arguments, memory_bytes=4 << 30, timeout=10))
    if arguments:
        check_refused(outcome, "a wrong command")
    else:
        check_ended(outcome)


def _size(world: World, *, size: int) -> None:
    """An input of any size is refused, or trained, evaluated and resumed."""
    world.restore((PICTURES,))
    outcome = world.run(Command(("train", "--data", PICTURES, "--out", FRESH, *SHORT, "--size", str(size))))
    check_ended(outcome)
    if outcome.code == DONE:
        _works(world)


def _folder(here: Path, counts: dict[str, int], side: int = 10, *, mode: str = "RGB") -> str:
    generator = np.random.default_rng(0)
    for name, n_images in counts.items():
        (here / "odd" / name).mkdir(parents=True)
        for i in range(n_images):
            pixels = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(here / "odd" / name / f"{i}.png")
    return "odd"


def _npz(here: Path, *, side: int = 8, one_class: bool = False, n_train: int = 36, n_test: int = 12) -> str:
    make_arrays(here / "odd.npz", side=side, n_train=n_train, n_test=n_test)
    if one_class:
        with np.load(here / "odd.npz") as archive:
            arrays = {name: np.zeros_like(a) if name.endswith("labels") else a for name, a in archive.items()}
        arrays["class_names"] = np.array(["ants"])
        np.savez(here / "odd.npz", **arrays)
    return "odd.npz"


def _links(here: Path, *, kind: str) -> str:
    folder = _folder(here, {"a": 6, "b": 6})
    places = {
        "dangling file": ("a/dangling.png", "nowhere.png"), "dangling folder": ("dangling", "nowhere"),
        "loop": ("a/loop", "../../odd"), "self": ("a/self.png", "self.png"), "parent": ("parent", ".."),
    }  # fmt: skip
    place, target = places[kind]
    (here / folder / place).symlink_to(target)
    return folder


def _with_empty_class(here: Path) -> str:
    _folder(here, {"a": 6, "b": 6})
    (here / "odd" / "empty").mkdir()
    return "odd"


def _with_special_file(here: Path) -> str:
    _folder(here, {"a": 6, "b": 6})
    os.mkfifo(here / "odd" / "a" / "fifo.png")
    return "odd"


def _empty(here: Path) -> str:
    (here / "odd").mkdir()
    return "odd"


SMALL_DATA: dict[str, Callable[[Path], str]] = {
    "1 px": partial(_npz, side=1), "4 px": partial(_npz, side=4), "one class": partial(_npz, one_class=True),
    "2 images": partial(_folder, counts={"a": 1, "b": 1}), "4 images": partial(_folder, counts={"a": 2, "b": 2}),
    "9 images": partial(_folder, counts={"a": 4, "b": 5}), "empty": _empty, "fifo among images": _with_special_file,
    "dangling file": partial(_links, kind="dangling file"), "loop": partial(_links, kind="loop"),
}  # fmt: skip
MORE_DATA: dict[str, Callable[[Path], str]] = {
    **{f"{n} px": partial(_npz, side=n) for n in (2, 3, 5, 6, 7, 9, 15, 17)},
    **{f"folder of {n} px": partial(_folder, counts={"a": 8, "b": 8}, side=n) for n in (1, 2, 4, 7)},
    **{f"{n} images": partial(_folder, counts={"a": n // 2, "b": n - n // 2}) for n in (3, 5, 6, 7, 8)},
    **{f"npz of {n}": partial(_npz, n_train=n, n_test=n) for n in (3, 4, 5, 6, 9)},
    "one test image": partial(_npz, n_test=1), "a class of one": partial(_folder, counts={"a": 1, "b": 9}),
    "one class folder": partial(_folder, counts={"a": 9}), "empty class": _with_empty_class,
    "grey": partial(_folder, counts={"a": 6, "b": 6}, mode="L"), "bits": partial(_folder, counts={"a": 6,
    "b": 6}, mode="1"),
    "palette": partial(_folder, counts={"a": 6, "b": 6}, mode="P"),
    "dangling folder": partial(_links, kind="dangling folder"), "link to itself": partial(_links, kind="self"),
    "link to the parent": partial(_links, kind="parent"),
}  # fmt: skip


def _odd_data(world: World, *, make: Callable[[Path], str]) -> None:
    """Odd data are refused in one line, or trained on for an epoch with default settings, evaluated and resumed."""
    world.restore(())
    data = make(world.here)
    command = Command(("train", "--data", data, "--out", FRESH, "--epochs", "1", "--threads", "1"))
    outcome = world.run(command)
    check_ended(outcome)
    if outcome.code == DONE:
        _works(world)


def _works(world: World) -> None:
    check_done(world.run(Command(("evaluate", FRESH, *MEASURE))), "evaluate after train")
    check_done(world.run(Command(("train", "--resume", "--out", FRESH))), "resume after train")
