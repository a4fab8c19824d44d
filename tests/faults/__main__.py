"""Run the suite: `python -m tests.faults [--short] [--only GROUP[/NAME]] [--source DIR] [--json FILE]`."""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tests.faults import load, losses
from tests.faults.case import Case, FaultError, Kind, SkippedError, Verdict, verdict
from tests.faults.summary import closing_line, print_failures, print_load, print_table, write_json
from tests.faults.world import World

GROUPS = (
    "damage", "kills", "full_disk", "permissions", "stale", "settings", "environments", "payloads", "crafted", "names",
    "together", "foreign",
)  # fmt: skip
SHORT_STEP = 3  # the short suite takes every third of a group's short list
ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run what is asked for; 1 if anything did not survive."""
    options = _options()
    source = options.source.resolve()
    work = Path(tempfile.mkdtemp(prefix="faults-", dir=_work_folder()))
    start = time.monotonic()
    try:
        worlds = _worlds(work, source, options.jobs)
        cases = _chosen(worlds[0], options)
        if options.list:
            print("\n".join(case.full_name for case in cases))
            return 0
        verdicts = _run(worlds, cases)
        for world in worlds:
            world.close()
        batches = _batches(source, options)
        measured = {} if options.short or options.only else load.measure(source, options.jobs)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    seconds = time.monotonic() - start
    print_failures([*verdicts, *batches])
    print_table([*verdicts, *batches], seconds)
    print_load(measured)
    if options.json is not None:
        write_json(options.json, verdicts, batches, measured, seconds=seconds, short=options.short)
    print(closing_line(verdicts))
    return int(any(found.kind not in (Kind.SURVIVED, Kind.SKIPPED) for found in [*verdicts, *batches]))


def _batches(source: Path, options: argparse.Namespace) -> list[Verdict]:
    """Return the verdicts on random batches of the losses, which are counted apart."""
    if options.only and not any(only.split("/")[0] == losses.GROUP for only in options.only):
        return []
    return losses.verdicts(source, options.seed, options.only, short=options.short, jobs=options.jobs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="folder that holds the package")
    parser.add_argument("--short", action="store_true", help="a part of the cases, about three minutes")
    parser.add_argument("--only", action="append", help="a group, or the beginning of a case's name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--json", type=Path, help="where to write the counts")
    return parser.parse_args()


def _work_folder() -> str:
    """Return where worlds are built: in memory where there is room."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * 10**9
    return str(memory) if roomy else tempfile.gettempdir()


def _worlds(work: Path, source: Path, jobs: int) -> list[World]:
    worlds: list[World | BaseException] = []

    def build(number: int) -> None:
        try:
            worlds.append(World(work / f"worker-{number}", source))
        except BaseException as error:
            worlds.append(error)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for world in worlds:
        if isinstance(world, BaseException):
            raise world
    return [world for world in worlds if isinstance(world, World)]


def _chosen(world: World, options: argparse.Namespace) -> list[Case]:
    """Return the cases that are asked for."""
    chosen = [name for name in GROUPS if not options.only or any(only.split("/")[0] == name for only in options.only)]
    found: list[Case] = []
    for name in chosen:
        group = import_module(f"tests.faults.{name}").cases(world, options.seed, short=options.short)
        found += group[::SHORT_STEP] if options.short and not options.only else group
    if not options.only:
        return found
    return [case for case in found if any(f"{case.full_name}/".startswith(only.rstrip("/")) for only in options.only)]


def _run(worlds: Sequence[World], cases: Sequence[Case]) -> list[Verdict]:
    """Run the cases, one at a time in each world."""
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    verdicts: list[Verdict] = []

    def work(world: World) -> None:
        while True:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                return
            found = judged(case, world)
            verdicts.append(found)
            if found.kind not in (Kind.SURVIVED, Kind.SKIPPED):
                print(f"  {found.kind}: {found.case}: {found.detail[:200]}", file=sys.stderr, flush=True)
            if len(verdicts) % 50 == 0:
                print(f"  {len(verdicts)} of {len(cases)} cases", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=work, args=(world,)) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = {case.full_name: number for number, case in enumerate(cases)}
    return sorted(verdicts, key=lambda found: order[found.case])


def judged(case: Case, world: World) -> Verdict:
    """Run a case and tell what became of it."""
    start = time.monotonic()
    kind, detail, outcome = Kind.SURVIVED, "", None
    try:
        case.run(world)
    except FaultError as failure:
        kind, detail, outcome = failure.kind, failure.detail, failure.outcome
    except SkippedError as skipped:
        kind, detail = Kind.SKIPPED, str(skipped)
    except Exception as error:  # the suite's own mistake must not hide the other cases
        kind, detail = Kind.TRACEBACK, f"in the suite itself: {type(error).__name__}: {error}"
        if os.environ.get("FAULTS_DEBUG"):
            raise
    return verdict(case, kind, detail, outcome, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
