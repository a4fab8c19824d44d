"""Workers that share one study on a real PostgreSQL server, which the test starts."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

import sincere
from sincere.errors import DataError
from sincere.tuning.storage import open_storage
from tests.tuning.analytic import BEST, bowl, run

PASSWORD = "correct-horse"
WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server on loopback as an unprivileged user; yield its address with the password."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = programs[-1] if programs else shutil.which("initdb")
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    home = Path(found).parent
    user: str | None = None
    if os.getuid() == 0:  # the server refuses to run as root
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    folder = Path("/tmp") / f"sincere-postgresql-{os.getpid()}"  # the user must be able to enter it
    folder.mkdir(mode=0o700)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if user is not None:
        for path in (folder, secret):
            shutil.chown(path, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(*command: str) -> None:
        subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, timeout=WAIT_SECONDS)

    data = str(folder / "data")
    try:
        call(str(home / "initdb"), "-D", data, "-U", "ann", "-A", "scram-sha-256", "--pwfile", str(secret), "-N")
        options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
        call(str(home / "pg_ctl"), "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://ann:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            call(str(home / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_three_workers_one_of_them_killed(server: str, tmp_path: Path) -> None:
    """Each has a folder of its own, as on other machines: the killed one is noticed by its heartbeat alone."""
    log = tmp_path / "log"

    def start(role: str, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.tuning.analytic", role, server, str(tmp_path / name), str(log)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment)

    first = start("search", "first")
    storage = open_storage(server)
    _wait(lambda: "shared/sincere" in optuna.get_all_study_names(storage) and log.exists(), first)
    second, third = start("worker", "second"), start("worker", "third")
    try:
        for process in (second, third):
            _wait(lambda process=process: f"start {process.pid} " in log.read_text(), process)
        second.send_signal(signal.SIGKILL)  # in the middle of its trial
        Path(f"{log}.go").touch()
        assert first.wait(WAIT_SECONDS) == 0
        assert third.wait(WAIT_SECONDS) == 0
    finally:
        for process in (first, second, third):
            process.kill()
            process.wait()
    trials = optuna.load_study(study_name="shared/sincere", storage=storage).trials
    complete = [tuple(trial.params.items()) for trial in trials if trial.state == TrialState.COMPLETE]
    assert len(complete) == len(set(complete)) == 12
    assert Counter(trial.state for trial in trials)[TrialState.FAIL] == 1
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.FAIL}
    ended = Counter(line.partition(" ")[2].partition(" ")[2] for line in log.read_text().splitlines() if "end" in line)
    assert set(ended.values()) == {1}
    assert len({line.split()[1] for line in log.read_text().splitlines()}) == 3  # all took part
    results = sincere.records.search.SearchResults.read(tmp_path / "first")
    assert results.best("sincere") == BEST


def _wait(condition, process: subprocess.Popen[bytes]) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() in (None, 0), "the process has ended"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_wrong_password_is_not_shown(server: str, tmp_path: Path) -> None:
    wrong = server.replace(PASSWORD, "battery-staple")
    with pytest.raises(DataError) as error:
        sincere.search(objective=bowl, losses=["sincere"], storage=wrong, out=tmp_path / "s", quiet=True)
    assert "password authentication failed" in str(error.value)
    assert "battery-staple" not in str(error.value)
    assert not list((tmp_path / "s").glob("*.json"))


def test_a_password_in_the_address_is_stored_nowhere(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "s"
    monkeypatch.setattr(sys, "argv", ["sincere", "search", f"--storage={server}"])
    run(out, trials=2, storage=server, study="secret")
    texts = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert texts
    assert not any(PASSWORD.encode() in text for text in texts)
