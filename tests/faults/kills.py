"""Commands that are killed or interrupted at every kind of moment, and then repeated."""

from __future__ import annotations

import random
import signal
from functools import partial
from math import ceil

from tests.faults.case import Case, FaultError, Kind
from tests.faults.command import Command
from tests.faults.judges import DONE, INTERRUPTED, REFUSED, check_ended
from tests.faults.scene import Scene
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import HOME, PICTURES, World

GROUP = "kills"
_GENTLE = {  # what is sent, and how the command may end
    "SIGINT": (DONE, REFUSED, INTERRUPTED),
    "SIGINT SIGINT": (DONE, REFUSED, INTERRUPTED),
    "SIGTERM": (DONE, REFUSED, INTERRUPTED, 143, -signal.SIGTERM),
}


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Kills at changes of files and at random times; signals that ask; kills of builds that leave things behind."""
    generator = random.Random(seed)
    n_changes, n_times, n_gentle = (3, 1, 1) if short else (12, 4, 3)
    found = []
    for verb in VERBS.values():
        if not verb.writes:
            continue
        for i in range(n_changes):
            share = (i + generator.random()) / n_changes
            found.append(Case(GROUP, f"{verb.name}/change-{share:.3f}", partial(_at_change, verb=verb, share=share)))
        for i in range(n_times):
            share = (i + generator.random()) / n_times
            found.append(Case(GROUP, f"{verb.name}/time-{share:.3f}", partial(_at_time, verb=verb, share=share)))
        for kinds in _GENTLE:
            for i in range(n_gentle):
                share = (i + generator.random()) / n_gentle
                name = f"{verb.name}/{kinds.replace(' ', '-')}-{share:.3f}"
                run = partial(_asked, verb=verb, share=share, kinds=kinds, twice_after=generator.uniform(0.001, 0.03))
                found.append(Case(GROUP, name, run))
    for i in range(1 if short else 4):
        found.append(Case(GROUP, f"cache/leftovers-{i}", partial(_leftovers, seed=seed + i)))
    return found


def _begin(world: World, verb: Verb, share: float) -> tuple[Scene, int]:
    """Return the verb about to start, and the change of a file that stands at a share of all it makes."""
    scene = Scene(world, verb)
    operation = max(1, ceil(share * scene.reference.operations))
    scene.restore()
    return scene, operation


def _at_change(world: World, *, verb: Verb, share: float) -> None:
    scene, operation = _begin(world, verb, share)
    outcome = scene.run(at_operation=operation, disturbance="SIGKILL")
    check_ended(outcome, (DONE, REFUSED, -signal.SIGKILL))
    scene.check_earlier_results(outcome)
    scene.recover()


def _at_time(world: World, *, verb: Verb, share: float) -> None:
    scene, _ = _begin(world, verb, share)
    outcome = scene.run(signals=[(share * scene.reference.seconds, signal.SIGKILL)])
    check_ended(outcome, (DONE, REFUSED, -signal.SIGKILL))
    scene.check_earlier_results(outcome)
    scene.recover()


def _asked(world: World, *, verb: Verb, share: float, kinds: str, twice_after: float) -> None:
    """Ask politely, at a change of a file, and, the second time, soon after or at the next change."""
    scene, operation = _begin(world, verb, share)
    if share < 0.5:
        outcome = scene.run(at_operation=operation, disturbance=kinds)
    else:
        moments = (share * scene.reference.seconds, twice_after)
        numbers = [signal.Signals[name] for name in kinds.split()]
        outcome = scene.run(signals=list(zip(moments, numbers, strict=False)))
    check_ended(outcome, _GENTLE[kinds])
    scene.check_earlier_results(outcome)
    scene.recover()


def _leftovers(world: World, *, seed: int) -> None:
    """Four kills while images are cached, then a run that ends: about what an undisturbed run leaves may be there."""
    generator = random.Random(seed)
    scene = Scene(world, "cache")
    usual = scene.reference
    scene = Scene(world, "cache")
    outcome = scene.run()
    check_ended(outcome, (DONE,))
    usual_bytes = _bytes_in(world)
    scene.restore()
    for number in range(4):
        arguments = [f"fresh{number}" if word == "fresh" else word for word in scene.verb.arguments]
        operation = generator.randint(3, max(3, usual.operations // 2))
        outcome = world.run(Command(arguments, at_operation=operation))
        check_ended(outcome, (DONE, REFUSED, -signal.SIGKILL))
    outcome = scene.run()
    check_ended(outcome, (DONE,))
    scene.check_result(outcome, named=False)
    left = _bytes_in(world)
    if left > 2 * usual_bytes + 4096:
        raise FaultError(Kind.LOST, f"{left:,} bytes in the cache, {usual_bytes:,} usually", outcome)


def _bytes_in(world: World) -> int:
    assert (world.here / PICTURES).is_dir()
    return sum(path.stat().st_size for path in (world.here / HOME).rglob("*") if path.is_file())
