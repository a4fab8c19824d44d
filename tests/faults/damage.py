"""Files that are cut off or have a bit flipped, of every kind that a verb reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.faults.case import Case
from tests.faults.judges import DONE, check_ended, check_not_executed
from tests.faults.scene import Scene, Target, targets
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import ARRAYS, FEATURES, OTHER, PICTURES, SAVED, TABLE, World

GROUP = "damage"
Damage = Callable[[bytes], bytes]
_DATA = (PICTURES, ARRAYS, OTHER, FEATURES, TABLE, SAVED)
_LIKE_TRAIN = ("compare", "compare-overwrite")  # these read what train reads, and take longer


def cut(share: float, content: bytes) -> bytes:
    """Return the first part."""
    return content[: min(int(share * len(content)), len(content) - 1)]


def flip(place: float, bit: int, content: bytes) -> bytes:
    """Return the content with one bit flipped."""
    position = int(place * len(content))
    return content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :]


def zero(place: float, content: bytes) -> bytes:
    """Return the content with a block of zeros, as a disk that lost a page leaves it."""
    start = int(place * len(content))
    end = min(len(content), start + 512)
    return content[:start] + bytes(end - start) + content[end:]


def damages(seed: int, name: str, *, short: bool) -> dict[str, Damage]:
    """Return ways to damage a file, the same ones for the same seed and name."""
    generator = random.Random(f"{seed} {name}")
    shares = (0.5,) if short else (0.0, 0.5, 1.0)
    found: dict[str, Damage] = {f"cut-{share}": partial(cut, share) for share in shares}
    count = 1 if short else 3
    for i in range(count):
        place, bit = (i + generator.random()) / count, generator.randrange(8)
        found[f"flip-{place:.3f}-{bit}"] = partial(flip, place, bit)
    if not short:
        found["zeros"] = partial(zero, generator.random())
    return found


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every damage to every file that a verb reads."""
    found = []
    for verb in VERBS.values():
        Scene(world, verb)
        for target in _distinct(targets(world.here, verb.reads)):
            alike = verb.name in _LIKE_TRAIN and not short
            ways = damages(seed, f"{verb.name} {target.name}", short=short)
            for name, damage in list(ways.items())[:: 3 if alike else 1]:
                run = partial(_damaged, verb=verb, target=target, damage=damage)
                found.append(Case(GROUP, f"{verb.name}/{target.name}/{name}", run))
    return found


def _distinct(found: list[Target]) -> list[Target]:
    """Return one run of a comparison, and two pictures, in place of many that are alike."""
    kept = [target for target in found if "runs/supcon" not in target.pattern]
    pictures = [target for target in kept if target.pattern.startswith(f"{PICTURES}/")]
    return [target for target in kept if target not in pictures[2:]]


def _damaged(world: World, *, verb: Verb, target: Target, damage: Damage) -> None:
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    path = target.find(world.here)
    path.write_bytes(damage(path.read_bytes()))
    outcome = scene.run()
    check_ended(outcome)
    check_not_executed(world.here, outcome)
    other_data = verb.data_decide and target.pattern.startswith(_DATA)
    if outcome.code == DONE and not other_data:
        scene.check_result(outcome, named=True)
    elif outcome.code != DONE and not target.pattern.endswith("results.json"):
        scene.check_earlier_results(outcome)
