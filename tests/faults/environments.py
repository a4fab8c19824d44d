"""Environments that commands must live with: schedulers, terminals, encodings, closed streams, no home."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from functools import partial

from tests.faults.case import Case
from tests.faults.judges import DONE, REFUSED, check_done, check_ended
from tests.faults.scene import Scene
from tests.faults.verbs import VERBS, Verb
from tests.faults.world import World

GROUP = "environments"


@dataclass(frozen=True)
class Environment:
    """Variables over the usual ones, and how the command is started.

    Attributes:
        variables: None removes one.
        fresh: Whether Python reads them when it starts.
        closed_stdout: Whether nobody reads the output.
        may_refuse: Whether exit code 2 is a good answer.
        open_files: Number of files that may be open.
    """

    variables: dict[str, str | None] = field(default_factory=dict)
    fresh: bool = False
    closed_stdout: bool = False
    may_refuse: bool = False
    open_files: int | None = None


ENVIRONMENTS = {
    "slurm-2-tasks": Environment({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "1"}, may_refuse=True),
    "slurm-2-tasks-named": Environment(
        {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "job", "SLURM_PROCID": "0"}, may_refuse=True
    ),
    "rank-3-of-2": Environment({"RANK": "3", "WORLD_SIZE": "2", "LOCAL_RANK": "3"}, may_refuse=True),
    "rank-a-word": Environment({"RANK": "first", "WORLD_SIZE": "two"}, may_refuse=True),
    "rank-alone": Environment({"RANK": "0"}, may_refuse=True),
    "world-alone": Environment({"WORLD_SIZE": "4"}, may_refuse=True),
    "local-rank-alone": Environment({"LOCAL_RANK": "1"}, may_refuse=True),
    "torchelastic": Environment({"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "0"}, may_refuse=True),
    "lsf": Environment({"LSB_JOBID": "1", "LSB_DJOB_RANKFILE": "nowhere"}, may_refuse=True),
    "lang-c": Environment({"LANG": "C", "LC_ALL": "C"}, fresh=True),
    "lang-posix-no-coercion": Environment({"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0",
    "PYTHONUTF8": "0"}, fresh=True),
    "lang-unknown": Environment({"LANG": "xx_YY.nonsense", "LC_ALL": "xx_YY.nonsense"}, fresh=True),
    "ascii-output": Environment({"PYTHONIOENCODING": "ascii"}, fresh=True),
    "latin-output": Environment({"PYTHONIOENCODING": "latin-1:strict"}, fresh=True),
    "columns-1": Environment({"COLUMNS": "1"}),
    "columns-0": Environment({"COLUMNS": "0"}),
    "columns-word": Environment({"COLUMNS": "wide", "LINES": "-3"}),
    "columns-huge": Environment({"COLUMNS": "1000000"}),
    "no-home": Environment({"HOME": None, "SINCERE_HOME": None}, may_refuse=True),
    "home-nowhere": Environment({"HOME": "/nonexistent", "SINCERE_HOME": None}, may_refuse=True),
    "sincere-home-file": Environment({"SINCERE_HOME": "/dev/null"}, may_refuse=True),
    "sincere-home-long": Environment({"SINCERE_HOME": "/" + "x" * 5000}, may_refuse=True),
    "sincere-home-empty": Environment({"SINCERE_HOME": ""}),
    "term-unset": Environment({"TERM": None}),
    "term-odd": Environment({"TERM": "\x1b[31m", "COLORTERM": "truecolor"}),
    "force-color": Environment({"TERM": "dumb", "NO_COLOR": "1"}),
    "no-path": Environment({"PATH": None}),
    "path-nowhere": Environment({"PATH": "/nonexistent"}),
    "tmpdir-nowhere": Environment({"TMPDIR": "/nonexistent"}),
    "omp-odd": Environment({"OMP_NUM_THREADS": "-5"}, fresh=True),
    "cuda-odd": Environment({"CUDA_VISIBLE_DEVICES": "99"}, fresh=True),
    "closed-stdout": Environment(closed_stdout=True),
    "closed-stdout-fresh": Environment(closed_stdout=True, fresh=True),
    "few-open-files": Environment(open_files=24, may_refuse=True),
    "very-few-open-files": Environment(open_files=8, may_refuse=True),
}  # fmt: skip
_SHORT = ("slurm-2-tasks", "rank-a-word", "lang-c", "columns-1", "no-home", "closed-stdout", "few-open-files")
_VERBS = ("train", "evaluate", "report", "compare-done", "cache")


def cases(world: World, seed: int, *, short: bool) -> list[Case]:
    """Every environment with the verbs."""
    found = []
    for name in _SHORT if short else ENVIRONMENTS:
        environment = ENVIRONMENTS[name]
        verbs = ("train", "evaluate") if environment.fresh or short else _VERBS
        for verb in verbs:
            run = partial(_inside, verb=VERBS[verb], environment=environment)
            found.append(Case(GROUP, f"{name}/{verb}", run))
    return found


def _inside(world: World, *, verb: Verb, environment: Environment) -> None:
    scene = Scene(world, verb)
    _ = scene.reference
    scene.restore()
    outcome = scene.run(
        environment=environment.variables, fresh=environment.fresh, closed_stdout=environment.closed_stdout,
        open_files=environment.open_files, timeout=60,
    )  # fmt: skip
    if environment.closed_stdout:  # to end is no mistake, to leave something broken is one
        check_ended(outcome, (DONE, REFUSED, 141, -signal.SIGPIPE))
        scene.recover()
        return
    if not environment.may_refuse:
        check_done(outcome, "the verb in this environment")
    check_ended(outcome)
    if outcome.code == DONE:
        scene.check_result(outcome, named=False)
    else:
        scene.recover()
