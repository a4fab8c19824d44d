"""Names of classes, files and folders that mean something to terminals, shells, browsers and file systems."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from tests.faults.browser import check_page
from tests.faults.case import Case, FaultError, Kind
from tests.faults.command import Command
from tests.faults.judges import DONE, MARKER, check_ended, check_not_executed
from tests.faults.world import ARRAYS, FRESH, LOSSES, MEASURE, NETWORK, PICTURES, SHORT, World

GROUP = "names"
NAMES: dict[str, bytes] = {
    "escape": b"\x1b[31mred\x1b[0m", "title": b"\x1b]0;owned\x07", "bell": b"a\x07b", "backspace": b"ab\x08\x08c",
    "newline": b"one\ntwo", "return": b"one\rtwo", "tab": b"one\ttwo", "delete": b"a\x7fb", "c1": "a\x9b31mb".encode(),
    "not-utf8": b"caf\xe9", "only-bytes": b"\xff\xfe\xfd", "override": "abc\u202egnp.exe".encode(),
    "isolate": "a\u2066b\u2069".encode(),
    "separator": "a\u2028b".encode(), "combining": ("e" + "\u0301" * 40).encode(), "emoji": "\U0001f600".encode(),
    "long": b"n" * 200, "long-wide": "\u00fc".encode() * 100, "quotes": b"it's \"quoted\"",
    "script": b"<script>alert(1)<|script>",
    "image": b"<img src=x onerror=alert(1)>", "entity": b"&lt;b&gt;&amp;", "dash": b"--help", "dashes": b"--",
    "tilde": b"~",
    "shell": f"$(touch {MARKER})".encode(), "ticks": f"`touch {MARKER}`".encode(),
    "semicolon": f"a; touch {MARKER}".encode(),
    "space": b" a b ", "percent": b"%s%n%d", "braces": b"{0.__class__}", "rich": b"[bold red]x[|]", "rich-open": b"[|]",
    "backslash": b"a\\nb\\x1b", "dollar": b"$HOME", "star": b"*", "brackets": b"[a-z]", "hash": b"#a = 1",
    "dot-end": b"a.",
    "close-script": b"<|script><b>", "comment": b"<!--", "template": b"${alert(1)}", "json": b'"],"x":[',
    "csv": b"=1+1,2;3",
    "null-word": b"NUL", "number": b"1e5", "npz": b"a.npz",
}  # fmt: skip
SHORT_NAMES = ("escape", "newline", "not-utf8", "override", "script", "dash", "rich", "space")
# `|` stands for a slash, which no name of a file can hold.
IN_BROWSER = (
    "script",
    "image",
    "close-script",
    "comment",
    "template",
    "json",
    "quotes",
    "escape",
    "override",
    "not-utf8",
)


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every name as a class, as a file, as the data folder and as the output folder."""
    found = []
    roles = {"class": _class, "file": _file, "data": _data, "out": _out, "npz": _npz_classes}
    for i, name in enumerate(SHORT_NAMES if short else NAMES):
        for j, (role, run) in enumerate(roles.items()):
            if role in ("class", "out") if short else role == "class" or (i + j) % 2:  # rendering takes its time
                found.append(Case(GROUP, f"{role}/{name}", partial(run, name=NAMES[name])))
    for name in IN_BROWSER[:1] if short else IN_BROWSER:
        found.append(Case(GROUP, f"browser/{name}", partial(_browser, name=NAMES[name])))
    return found


def _text(name: bytes) -> str:
    return os.fsdecode(name)


def _run_all(world: World, data: str, out: str, *, accepted: bool) -> None:
    """Train, evaluate with a report, and resume; a refusal in one line is a good answer unless the name is usual."""
    for arguments in (
        ("train", f"--data={data}", f"--out={out}", *SHORT),
        ("evaluate", *([out] if not out.startswith("-") else [f"./{out}"]), *MEASURE),
        ("train", "--resume", f"--out={out}"),
    ):
        outcome = world.run(Command(arguments))
        check_not_executed(world.here, outcome)
        check_ended(outcome)
        if outcome.code != DONE:
            if accepted:
                raise FaultError(Kind.WRONG, "a usual name is refused", outcome)
            return


def _class(world: World, *, name: bytes) -> None:
    world.restore((PICTURES,))
    pictures = os.fsencode(world.here / PICTURES)
    os.rename(os.path.join(pictures, b"ants"), os.path.join(pictures, name))
    _run_all(world, PICTURES, FRESH, accepted=_usual(name))


def _file(world: World, *, name: bytes) -> None:
    """A file of this name that is an image, and one that is damaged, so that messages show it."""
    world.restore((PICTURES,))
    ants = os.fsencode(world.here / PICTURES / "ants")
    os.rename(os.path.join(ants, b"00.png"), os.path.join(ants, name + b".png"))
    _run_all(world, PICTURES, FRESH, accepted=_usual(name))
    with open(os.path.join(ants, name + b".png"), "wb") as file:
        file.write(b"no image")
    shutil.rmtree(world.here / FRESH, ignore_errors=True)
    check_ended(world.run(Command(("train", "--data", PICTURES, "--out", FRESH, *SHORT))))


def _data(world: World, *, name: bytes) -> None:
    world.restore((PICTURES,))
    os.rename(os.fsencode(world.here / PICTURES), os.path.join(os.fsencode(world.here), name))
    _run_all(world, _text(name), FRESH, accepted=False)
    if not name.startswith(b"-"):
        outcome = world.run(
            Command(("train", f"--data={_text(name)}", *SHORT))
        )  # the folder of the run is named after it
        check_ended(outcome)


def _out(world: World, *, name: bytes) -> None:
    world.restore((PICTURES,))
    _run_all(world, PICTURES, _text(name), accepted=False)


def _npz_classes(world: World, *, name: bytes) -> None:
    """Class names of an .npz may hold what no folder can: slashes."""
    import numpy as np

    world.restore((ARRAYS,))
    try:
        text = name.replace(b"|", b"/").decode()
    except UnicodeDecodeError:
        text = name.decode("latin-1")
    with np.load(world.here / ARRAYS) as archive:
        arrays = dict(archive)
    arrays["class_names"] = np.array([text, "bees", "cats"])
    np.savez(world.here / ARRAYS, **arrays)
    _run_all(world, ARRAYS, FRESH, accepted=_usual(name))


def _usual(name: bytes) -> bool:
    """Tell whether a name must be accepted: plain letters, spaces inside, marks that people use."""
    return name in {
        NAMES[key] for key in ("emoji", "quotes", "percent", "dollar", "number", "script", "image", "entity")
    }


def _browser(world: World, *, name: bytes) -> None:
    """A comparison on classes of such names, opened in a browser."""
    world.restore((PICTURES,))
    pictures = os.fsencode(world.here / PICTURES)
    os.rename(os.path.join(pictures, b"ants"), os.path.join(pictures, name))
    arguments = ("compare", "--data", PICTURES, "--out", "shown", *LOSSES, *NETWORK, "--epochs", "1", *MEASURE)
    outcome = world.run(Command(arguments, real_renderer=True, timeout=120))
    check_ended(outcome)
    page = Path(world.here / "shown" / "report.html")
    if outcome.code == DONE:
        check_page(page, world.here.parent / "browser", outcome)
