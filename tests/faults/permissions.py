"""Files that may not be read, folders that may not be written, and no memory while a checkpoint is read."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

from tests.faults.case import Case
from tests.faults.judges import DONE, check_ended, check_kept, checksums
from tests.faults.scene import Scene, Target, targets
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import HOME, PICTURES, World

GROUP = "permissions"
_EVERYTHING = ("**/*",)
_MARGINS_MB = (0, 1, 2, 4, 8, 16, 32, 64, 128)


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every file that a verb reads made unreadable, every folder that it writes to made read-only."""
    found = []
    for verb in VERBS.values():
        Scene(world, verb)
        read = [target for target in targets(world.here, verb.reads) if "runs/supcon" not in target.pattern]
        pictures = [target for target in read if target.pattern.startswith(f"{PICTURES}/")]
        read = [target for target in read if target not in pictures[1:]]
        for target in read[:: 3 if short else 1]:
            name = f"{verb.name}/unreadable/{target.name}"
            found.append(Case(GROUP, name, partial(_unreadable, verb=verb, target=target)))
        folders = {path.relative_to(world.here) for path in world.here.rglob("*") if path.is_dir()}
        shallow = sorted(str(folder) for folder in folders if len(folder.parts) <= 2 and folder.parts[0] != PICTURES)
        for folder in [".", *shallow][:: 3 if short else 1]:
            name = f"{verb.name}/read-only/{folder}"
            found.append(Case(GROUP, name, partial(_read_only, verb=verb, folder=folder)))
            if folder == ".":  # the command starts in it
                continue
            name = f"{verb.name}/closed/{folder}"
            found.append(Case(GROUP, name, partial(_read_only, verb=verb, folder=folder, mode=0o000)))
    for verb_name in ("resume", "evaluate", "compare-unreported"):
        for margin in (1, 16) if short else _MARGINS_MB:
            run = partial(_no_memory, verb=VERBS[verb_name], margin_mb=margin)
            found.append(Case(GROUP, f"{verb_name}/memory-{margin}-MB", run))
    return found


def _unreadable(world: World, *, verb: Verb, target: Target) -> None:
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    path = target.find(world.here)
    content = path.read_bytes()
    path.chmod(0)
    outcome = scene.run()
    check_ended(outcome)
    scene.check_earlier_results(outcome)
    # The cache can be made again, and a run that comes to its end leaves its last two checkpoints.
    expendable = target.pattern.startswith(HOME) or outcome.code == DONE
    check_kept(world.here, {} if expendable else checksums_of(path, world.here, content), outcome)
    if outcome.code == DONE:
        scene.check_result(outcome, named=True)
        return
    path.chmod(0o644)
    scene.recover()


def checksums_of(path: Path, here: Path, content: bytes) -> dict[str, str]:
    """Return the checksum of a file that is unreadable now."""
    return {str(path.relative_to(here)): hashlib.sha256(content).hexdigest()}


def _read_only(world: World, *, verb: Verb, folder: str, mode: int = 0o555) -> None:
    """A folder, and all below it, that may not be written to, or not be opened at all."""
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    before = checksums(world.here, _EVERYTHING)
    top = world.here / folder
    inside = [Path(place) for place, _, _ in os.walk(top)] if mode else [top]
    modes = {path: path.stat().st_mode for path in inside}
    for path in inside:
        path.chmod(mode)
    outcome = scene.run()
    for path, old in modes.items():
        path.chmod(old)
    check_ended(outcome)
    scene.check_earlier_results(outcome)
    if outcome.code == DONE:
        scene.check_result(outcome, named=True)
        return
    kept = {name: digest for name, digest in before.items() if not name.endswith((".lock", ".jsonl"))}
    kept = {name: digest for name, digest in kept.items() if not name.startswith(HOME)}  # it can be made again
    check_kept(world.here, kept, outcome, changed=verb.name.startswith("compare"))
    scene.recover()


def _no_memory(world: World, *, verb: Verb, margin_mb: int) -> None:
    """Too little memory is not damage: whatever the command says, checkpoints stay and the next try works."""
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    before = checksums(world.here, ("*/checkpoints/*", "*/model.*", "*/runs/*/checkpoints/*", "*/runs/*/model.*"))
    outcome = scene.run(memory_bytes=margin_mb << 20, timeout=60)
    if outcome.code != DONE:
        check_kept(world.here, before, outcome)
    scene.recover()
