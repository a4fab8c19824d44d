"""A verb in the world: started from the template, run, judged and recovered, the same way for all groups."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.case import FaultError, Kind
from tests.faults.command import Command, Outcome
from tests.faults.judges import DONE, check_done, check_ended, check_same, names_damage
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import World

_HASHED = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, eq=False)
class Reference:
    """What a verb does undisturbed.

    Attributes:
        result: What it makes.
        told: What it says, with the notes of its results.
        seconds: How long it takes.
        operations: How often it changes a file.
    """

    result: Any
    told: str
    seconds: float
    operations: int


class Scene:
    """A verb about to run in a fresh copy of what it needs."""

    references: dict[Path, dict[str, Reference]] = {}  # noqa: RUF012 - by world

    def __init__(self, world: World, verb: Verb | str) -> None:
        """Restore what the verb needs."""
        self.world, self.verb = world, VERBS[verb] if isinstance(verb, str) else verb
        self.here = world.here
        self.restore()

    def restore(self) -> None:
        """Begin anew."""
        self.world.restore(self.verb.needs)
        for name in self.verb.absent:
            (self.here / name).unlink(missing_ok=True)

    @property
    def reference(self) -> Reference:
        """What the verb does undisturbed, found out once for each world."""
        known = Scene.references.setdefault(self.here, {})
        if self.verb.name not in known:
            other = Scene(self.world, self.verb)
            count_to = self.here.parent / "operations"
            count_to.write_text("0")
            outcome = other.run(at_operation=0, count_to=count_to)
            result = self.verb.result(self.here)
            if outcome.code != DONE or result is None:
                raise RuntimeError(f"{outcome.command}: does not work undisturbed: {outcome.err.strip()[-300:]}")
            operations = int(count_to.read_text())
            known[self.verb.name] = Reference(result, told(self.here, outcome), outcome.seconds, operations)
        return known[self.verb.name]

    def run(self, **options: Any) -> Outcome:
        """Run the verb's command."""
        return self.world.run(self.command(**options))

    def command(self, **options: Any) -> Command:
        """Return the verb's command with these disturbances."""
        return replace(Command(self.verb.arguments), **options)

    def recover(self) -> None:
        """Go on or begin again as the table says; the result must be that of the undisturbed verb."""
        outcome = None
        for arguments in self.verb.recoveries:
            outcome = self.world.run(Command(arguments))
            check_ended(outcome)
            if outcome.code == DONE:
                break
        assert outcome is not None
        check_done(outcome, "recovery")
        result = self.verb.result(self.here)
        if result is None:
            raise FaultError(Kind.LOST, "nothing there after recovery", outcome)
        check_same(result, self.reference.result, outcome, "after recovery")

    def check_earlier_results(self, outcome: Outcome) -> None:
        """Results that were there before are there, old or new, and whole."""
        folder = self.verb.holds_results
        if folder is None:
            return
        before = {path.name for path in (self.world.template / folder).iterdir() if path.is_file()}
        beginnings = ("results.", "per_image", "map", "embeddings", *(["report"] if self.verb.name == "report" else []))
        wanted = {name for name in before if name.startswith(beginnings)}
        for name in sorted(wanted - set(self.verb.absent)):
            if not (self.here / folder / name).exists():
                raise FaultError(Kind.LOST, f"{folder}/{name} is gone", outcome)
        try:
            json.loads((self.here / folder / "results.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise FaultError(Kind.LOST, f"{folder}/results.json is cut off ({error})", outcome) from error

    def check_result(self, outcome: Outcome, *, named: bool) -> None:
        """The result is the undisturbed one, or, where `named` allows it, what went wrong is said."""
        result = self.verb.result(self.here)
        if result == self.reference.result:
            return
        if named and names_damage(told(self.here, outcome), self.reference.told):
            return
        what = "no result" if result is None else "other results than undisturbed"
        raise FaultError(Kind.WRONG, f"{what}, and not a word about it", outcome)


def told(here: Path, outcome: Outcome) -> str:
    """Return what a command said: its output, the notes of results, and the report."""
    texts = [outcome.said]
    for path in sorted(here.rglob("results.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            texts += map(str, content["notes"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    if "report" in outcome.command:
        texts += [re.sub(r"<script.*?</script>", "", path.read_text(errors="replace"), flags=re.DOTALL)
                  for path in sorted(here.glob("*/report.html"))]  # fmt: skip
    return "\n".join(texts)


@dataclass(frozen=True)
class Target:
    """A file of the world, named without the parts that depend on where the world is.

    Attributes:
        pattern: Its path, with `*` for parts that are hashes.
        index: Which of the files that match, by size.
    """

    pattern: str
    index: int

    @property
    def name(self) -> str:
        """For the name of a case."""
        return self.pattern.replace("*", "-") + (f"[{self.index}]" if "*" in self.pattern else "")

    def find(self, here: Path) -> Path:
        """Return the file."""
        found = sorted((path.stat().st_size, path) for path in here.glob(self.pattern) if _has_content(path))
        return found[self.index][1]


def _has_content(path: Path) -> bool:
    """Tell locks from files that can be damaged."""
    return path.is_file() and path.stat().st_size > 0


def targets(here: Path, patterns: tuple[str, ...]) -> list[Target]:
    """Return the files that match, each once."""
    paths = {path for pattern in patterns for path in here.glob(pattern) if _has_content(path)}
    counts: dict[str, int] = {}
    found = []
    for path in sorted(paths):
        parts = ["*" if _HASHED.search(part) else part for part in path.relative_to(here).parts]
        pattern = "/".join(parts)
        found.append(Target(pattern, counts.setdefault(pattern, 0)))
        counts[pattern] += 1
    return found
