"""Two commands at the same time in one folder: both work, or one says in a line that the other is there."""

from __future__ import annotations

import random
import time
from functools import partial

from tests.faults.case import Case, FaultError, Kind
from tests.faults.command import Command, Outcome
from tests.faults.judges import DONE, check_ended
from tests.faults.scene import Scene
from tests.faults.verbs import VERBS
from tests.faults.world import RUN, World

GROUP = "together"
PAIRS = (
    ("train", "train"), ("resume", "resume"), ("compare", "compare"), ("compare-overwrite", "compare-overwrite"),
    ("compare-unreported", "compare-unreported"), ("evaluate", "evaluate"), ("evaluate", "report"),
    ("report", "report"), ("transfer", "transfer"), ("cache", "cache"), ("evaluate", "transfer"),
)  # fmt: skip


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Pairs of verbs, the second one a little later each time."""
    generator = random.Random(seed)
    found = []
    for one, other in PAIRS:
        for i in range(1 if short else 7):
            later = 0.0 if i == 0 else generator.uniform(0, 0.5)
            run = partial(_both, one=one, other=other, later=later)
            found.append(Case(GROUP, f"{one}+{other}/{later:.3f}", run))
        if not short and one == other == "cache":
            found += [
                Case(GROUP, f"cache+cache/folders-{i}", partial(_two_runs, later=generator.uniform(0, 0.1)))
                for i in range(6)
            ]
    return found


def _both(world: World, *, one: str, other: str, later: float) -> None:
    scene = Scene(world, one)
    reference = scene.reference
    _ = Scene(world, other).reference
    parts = dict.fromkeys((*VERBS[one].needs, *VERBS[other].needs))
    world.restore(tuple(parts))
    for name in VERBS[one].absent:
        (world.here / name).unlink(missing_ok=True)
    outcomes = _run_both(world, Command(VERBS[one].arguments), Command(VERBS[other].arguments), later)
    _judge(outcomes)
    if one == "evaluate" and other == "report":  # the page may be of the old results or of the new ones
        return
    if scene.verb.result(world.here) != reference.result:
        raise FaultError(Kind.WRONG, "other results than one of them alone", outcomes[0])
    again = world.run(Command(("report", RUN))) if one == "evaluate" else None
    if again is not None:
        check_ended(again, (DONE,))


def _two_runs(world: World, *, later: float) -> None:
    """Two runs in two folders that fill the same cache."""
    scene = Scene(world, "cache")
    reference = scene.reference
    scene.restore()
    elsewhere = [f"{word}-2" if word == "fresh" else word for word in scene.verb.arguments]
    outcomes = _run_both(world, Command(elsewhere), Command(scene.verb.arguments), later)
    for outcome in outcomes:
        check_ended(outcome, (DONE,))
    if scene.verb.result(world.here) != reference.result:
        raise FaultError(Kind.WRONG, "other results than alone", outcomes[1])


def _run_both(world: World, one: Command, other: Command, later: float) -> list[Outcome]:
    first = world.server.start(one)
    time.sleep(later)
    second = world.server.start(other)
    return [first.finish(), second.finish()]


def _judge(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        check_ended(outcome)
    if all(outcome.code != DONE for outcome in outcomes):
        raise FaultError(Kind.WRONG, "neither of the two worked", outcomes[0])
