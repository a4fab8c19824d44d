"""Files that try to execute something: pickles, PostScript, git configuration, bombs. A marker tells that one did."""

from __future__ import annotations

import io
import os
import pickle
import stat
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from tests.faults.case import Case, FaultError, Kind
from tests.faults.command import Command
from tests.faults.judges import MARKER, check_ended, check_not_executed
from tests.faults.scene import Scene, Target, targets
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import ARRAYS, FRESH, HOME, PICTURES, SHORT, World

GROUP = "payloads"
MOST_MEMORY = 3 << 30


class _Payload:
    """Unpickling this runs a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.mkdir, (str(self.marker),)


def _bare_pickle(marker: Path) -> bytes:
    return pickle.dumps(_Payload(marker))


def _object_array(marker: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([_Payload(marker)], dtype=object), allow_pickle=True)
    return file.getvalue()


def _object_archive(marker: Path) -> bytes:
    """An .npz whose every member is a pickle, under the names that readers look for."""
    file, member = io.BytesIO(), _object_array(marker)
    names = ("train_images", "train_labels", "test_images", "test_labels", "class_names", "ids", "labels", "points")
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", member)
    return file.getvalue()


def _torch_archive(marker: Path) -> bytes:
    """A .pt as torch.save writes it, with a payload as its content."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"model": _Payload(marker)}, protocol=2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return file.getvalue()


def _torch_legacy(marker: Path) -> bytes:
    """A .pt as torch.save wrote it before it took archives."""
    magic, version = 0x1950A86A20F9469CFC6C, 1001
    return b"".join(pickle.dumps(part, protocol=2) for part in (magic, version, {}, _Payload(marker), []))


PICKLES = {
    "pickle": _bare_pickle, "object-array": _object_array, "object-archive": _object_archive,
    "torch": _torch_archive, "torch-legacy": _torch_legacy,
}  # fmt: skip
_BINARY = (".npz", ".npy", ".parquet", ".pt", ".safetensors", ".bin")
SUITED = {  # which pickles a reader of such a file might fall for
    (".pt",): ("torch", "torch-legacy", "pickle"),
    (".npy", ".bin"): ("object-array", "pickle", "torch"),
    (".npz",): ("object-archive", "object-array", "pickle"),
    (".safetensors", ".parquet"): ("torch", "pickle"),
}
_POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every pickle in the place of every binary file that a verb reads; and the rest."""
    found = []
    for verb in VERBS.values():
        Scene(world, verb)
        binary = [target for target in targets(world.here, verb.reads) if target.pattern.endswith(_BINARY)]
        for target in (target for target in binary if "runs/supcon" not in target.pattern):
            kinds = next(kinds for suffixes, kinds in SUITED.items() if target.pattern.endswith(suffixes))
            for name in kinds[:1] if short else kinds:
                run = partial(_pickled, verb=verb, target=target, make=PICKLES[name])
                found.append(Case(GROUP, f"{verb.name}/{target.name}/{name}", run))
    for suffix in ("png", "jpg", "eps") if short else ("png", "jpg", "eps", "ps", "gif", "tif", "webp", "PNG"):
        found.append(Case(GROUP, f"postscript/{suffix}", partial(_postscript, suffix=suffix)))
    for verb_name in (
        ("train", "evaluate") if short else ("train", "evaluate", "transfer", "compare", "report", "resume")
    ):
        for key in GIT_SETTINGS:
            run = partial(_git, verb=VERBS[verb_name], key=key)
            found.append(Case(GROUP, f"git/{key.replace('.', '-')}/{verb_name}", run))
    for name, make in BOMBS.items():
        found.append(Case(GROUP, f"bomb/{name}", partial(_bomb, make=make)))
    return found


def _pickled(world: World, *, verb: Verb, target: Target, make: Callable[[Path], bytes]) -> None:
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    target.find(world.here).write_bytes(make(world.here / MARKER))
    outcome = scene.run()
    check_not_executed(world.here, outcome)
    check_ended(outcome)


def _postscript(world: World, *, suffix: str) -> None:
    """A PostScript file under the name of an image, and a `gs` on the path that tells when it is called."""
    world.restore((PICTURES,))
    (world.here / PICTURES / "ants" / f"00a.{suffix}").write_bytes(_POSTSCRIPT)
    tools = world.here / "tools"
    _tool(tools / "gs", world.here / MARKER)
    path = f"{tools}:{os.environ.get('PATH', '')}"
    arguments = ("train", "--data", PICTURES, "--out", FRESH, *SHORT, "--skip-bad-images")
    outcome = world.run(Command(arguments, environment={"PATH": path}))
    check_not_executed(world.here, outcome)
    check_ended(outcome)


def _tool(path: Path, marker: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho called > '{marker}'\nexit 0\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


GIT_SETTINGS = ("core.fsmonitor", "filter.payload.clean", "core.hooksPath", "diff.external", "alias.status")


def _git(world: World, *, verb: Verb, key: str) -> None:
    """A repository as the working folder, whose configuration names a program."""
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    tool = world.here / "tools" / "payload"
    _tool(tool, world.here / MARKER)
    git = partial(subprocess.run, cwd=world.here, check=True, capture_output=True)
    git(["git", "init", "--quiet"])
    (world.here / "tracked.txt").write_text("one\n")
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    git(["git", "add", "tracked.txt"])
    git(["git", *identity, "commit", "--quiet", "--message", "one"])
    value = {"core.hooksPath": str(tool.parent), "alias.status": f"!{tool}"}.get(key, str(tool))
    git(["git", "config", key, value])
    if key.startswith("filter"):
        (world.here / ".gitattributes").write_text("* filter=payload\n")
    (world.here / "tracked.txt").write_text("two\n")
    _tool(tool.with_name("post-index-change"), world.here / MARKER)
    for marker in world.here.glob(f"*{MARKER}*"):
        marker.unlink()
    outcome = scene.run(environment={"GIT_CONFIG_GLOBAL": os.devnull})
    check_not_executed(world.here, outcome)
    check_ended(outcome)


def _png_bomb(here: Path) -> str:
    """A PNG of a few kilobytes whose header promises 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return len(content).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")

    header = (60_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    rows = zlib.compress(bytes(60_000 * 3 + 1) * 50)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (here / PICTURES / "ants" / "00.png").write_bytes(content)
    return PICTURES


def _zip_bomb(here: Path, *, n_bytes: int = 2 << 30) -> str:
    """An .npz of about two megabytes that holds two gigabytes of zeros."""
    header = io.BytesIO()
    n_images = n_bytes // (32 * 32 * 3)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (n_images, 32, 32, 3)}
    )
    with zipfile.ZipFile(here / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("train_images.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(n_images // 4096 + 1):
                member.write(bytes(4096 * 32 * 32 * 3))
        archive.writestr("train_labels.npy", b"")
    return "bomb.npz"


def _shape_bomb(here: Path) -> str:
    """An .npz whose header promises an array of an exabyte."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 50, 32, 32, 1)}
    )
    with zipfile.ZipFile(here / "bomb.npz", "w") as archive:
        for name in ("train_images", "test_images", "train_labels", "test_labels"):
            archive.writestr(f"{name}.npy", header.getvalue() + b"\0")
    return "bomb.npz"


def _nested_header(here: Path) -> str:
    """An .npy header that nests brackets, which a parser may follow too deep."""
    text = ("{'descr': " + "(" * 9000 + "'|u1'" + ")" * 9000 + ", 'fortran_order': False, 'shape': (1,)}").encode()
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(here / "bomb.npz", "w") as archive:
        archive.writestr("train_images.npy", member)
    return "bomb.npz"


BOMBS: dict[str, Callable[[Path], str]] = {
    "png": _png_bomb, "zip": _zip_bomb, "shape": _shape_bomb, "nested-header": _nested_header,
}  # fmt: skip


def _bomb(world: World, *, make: Callable[[Path], str]) -> None:
    """A bomb is refused before it takes the machine's memory."""
    world.restore((PICTURES, ARRAYS, HOME))
    data = make(world.here)
    arguments = ("train", "--data", data, "--out", FRESH, *SHORT)
    outcome = world.run(Command(arguments, memory_bytes=MOST_MEMORY, timeout=60))
    check_ended(outcome)
    if outcome.code == 0:
        raise FaultError(Kind.WRONG, "a bomb was taken as data", outcome)
