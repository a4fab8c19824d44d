"""The suite's own judges can fail: commands that misbehave on purpose are counted as what they are."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from tests.faults.__main__ import judged
from tests.faults.case import Case, Kind
from tests.faults.command import Command, Outcome, Server
from tests.faults.judges import (
    MARKER,
    check_done,
    check_ended,
    check_kept,
    check_not_executed,
    check_refused,
    check_same,
    checksums,
    names_damage,
)  # fmt: skip
from tests.faults.summary import closing_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the suite needs fork and /proc")

FAKE = '''
import os, signal, sys, time

def main():
    """A command that misbehaves as its argument says."""
    kind = sys.argv[1]
    if kind == "traceback":
        raise RuntimeError("on purpose")
    if kind == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(60)
    if kind == "delete":
        os.remove("precious")
    if kind == "change":
        open("precious", "w").write("other")
    if kind == "execute":
        open("executed-marker", "w").close()
    if kind == "escape":
        print("\\x1b[31m")
    if kind == "exit":
        return 1
    if kind == "two-lines":
        print("sincere: one\\nsincere: two", file=sys.stderr)
        return 2
    if kind == "refuse":
        print("sincere: no", file=sys.stderr)
        return 2
    if kind == "read":
        print(open("precious").read())
    return 0
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a package whose command misbehaves."""
    source = tmp_path_factory.mktemp("source")
    (source / "sincere").mkdir()
    (source / "sincere" / "__init__.py").write_text("")
    (source / "sincere" / "cli.py").write_text(FAKE)
    server = Server(source, tmp_path_factory.mktemp("here"))
    yield server
    server.close()


def outcome_of(server: Server, kind: str, **options: object) -> Outcome:
    (server.folder / "precious").write_text("precious")
    (server.folder / MARKER).unlink(missing_ok=True)
    return server.run(Command((kind,), **options))  # type: ignore[arg-type]


def kind_of(server: Server, kind: str, **options: object) -> tuple[Kind, str]:
    """Return how a case with this command is judged."""
    here = server.folder

    def run(world: object) -> None:
        (here / "precious").write_text("precious")
        before = checksums(here, ("precious",))
        outcome = outcome_of(server, kind, **options)
        check_ended(outcome)
        check_kept(here, before, outcome)
        check_not_executed(here, outcome)

    found = judged(Case("group", kind, run), None)  # type: ignore[arg-type]
    return found.kind, found.detail


@pytest.mark.parametrize(
    ("misbehaviour", "kind", "detail"),
    [
        ("nothing", Kind.SURVIVED, ""),
        ("refuse", Kind.SURVIVED, ""),
        ("traceback", Kind.TRACEBACK, "on purpose"),
        ("segfault", Kind.TRACEBACK, "SIGSEGV"),
        ("exit", Kind.TRACEBACK, "exit code 1"),
        ("delete", Kind.LOST, "precious is gone"),
        ("change", Kind.LOST, "precious has changed"),
        ("execute", Kind.EXECUTED, MARKER),
        ("escape", Kind.WRONG, "control character"),
        ("two-lines", Kind.WRONG, "2 lines"),
    ],
)
def test_misbehaviour_is_counted_as_what_it_is(server: Server, misbehaviour: str, kind: Kind, detail: str) -> None:
    found, said = kind_of(server, misbehaviour)
    assert found is kind
    assert detail in said


def test_a_name_that_holds_the_marker_is_not_the_marker(server: Server) -> None:
    asking = server.folder / f"$(touch {MARKER})"
    asking.mkdir()
    kind, _ = kind_of(server, "nothing")
    asking.rmdir()
    assert kind is Kind.SURVIVED


def test_a_hang_is_counted_as_one(server: Server) -> None:
    kind, detail = kind_of(server, "hang", timeout=1.0)
    assert kind is Kind.TRACEBACK
    assert "hang" in detail


def test_signals_and_disturbances_arrive(server: Server) -> None:
    assert outcome_of(server, "hang", signals=[(0.1, signal.SIGKILL)]).code == -signal.SIGKILL
    assert outcome_of(server, "change", at_operation=1).code == -signal.SIGKILL
    assert (server.folder / "precious").read_text() == "precious"
    assert "No space left" in outcome_of(server, "change", at_operation=1, disturbance="ENOSPC").err


def test_permissions_hold_for_commands(server: Server) -> None:
    outcome_of(server, "nothing")
    (server.folder / "precious").chmod(0)
    outcome = server.run(Command(("read",)))
    (server.folder / "precious").chmod(0o644)
    assert "PermissionError" in outcome.err


def test_other_results_and_wrong_acceptance_are_failures(server: Server) -> None:
    fine = outcome_of(server, "nothing")
    for judge in (
        lambda: check_same({"a": 1}, {"a": 2}, fine, "results"),
        lambda: check_refused(fine, "nonsense"),
        lambda: check_done(outcome_of(server, "refuse"), "the command"),
    ):
        with pytest.raises(Exception, match=r"wrong|lost"):
            judge()


def test_damage_must_be_named_where_it_usually_is_not() -> None:
    assert names_damage("map.npz: is damaged", "")
    assert not names_damage("all is well", "")
    assert not names_damage("the files are damaged", "the files are damaged")


def test_the_closing_line(server: Server) -> None:
    cases = [Case("group", name, lambda world: None) for name in ("one", "two")]
    verdicts = [judged(case, None) for case in cases]  # type: ignore[arg-type]
    expected = "faults: 2 cases, 2 survived, 0 tracebacks, 0 lost, 0 wrong, 0 executed"
    assert closing_line(verdicts) == expected
