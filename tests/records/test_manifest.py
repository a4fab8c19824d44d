"""The manifest tells the commit without running anything that a folder's configuration names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sincere.records.manifest import make_manifest


def test_an_evaluation_states_when_it_began_and_ended() -> None:
    manifest = make_manifest(seed=0, device="cpu", started="2026-01-01T00:00:00+00:00")
    assert manifest["started"] == "2026-01-01T00:00:00+00:00"
    assert manifest["ended"] > manifest["started"]
    assert "ended" not in make_manifest(seed=0, device="cpu")


def git(folder: Path, *words: str) -> str:
    options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *options, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def commit() -> str | None:
    found: str | None = make_manifest(seed=0, device="cpu")["git_commit"]
    return found


def test_the_commit_of_the_working_folder(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = git(repository, "rev-parse", "HEAD")
    (repository / "below").mkdir()
    monkeypatch.chdir(repository / "below")
    assert commit() == expected
    git(repository, "pack-refs", "--all")
    assert commit() == expected, "packed"
    git(repository, "checkout", "-q", "--detach")
    assert commit() == expected, "detached"
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "second")
    monkeypatch.chdir(tmp_path / "other")
    assert commit() == git(tmp_path / "other", "rev-parse", "HEAD") != expected, "a work tree"


def test_outside_a_repository_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert commit() is None


def test_nothing_that_a_folder_configures_is_executed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = repository / "evil"
    program.write_text(f"#!/bin/sh\ntouch {repository}/executed\n")
    program.chmod(0o755)
    with (repository / ".git" / "config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {repository}\n")
    monkeypatch.chdir(repository)
    assert commit() is not None
    assert not (repository / "executed").exists()


@pytest.mark.parametrize("head", ["ref: ../../etc/passwd", "ref: /etc/passwd", "nonsense", "", "\x1b[31m" + "a" * 40])
def test_crafted_repositories_tell_nothing(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    monkeypatch.chdir(tmp_path)
    assert commit() is None
