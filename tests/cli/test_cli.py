"""The command line: quick help, one-line errors, exit codes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sincere.cli import VERBS, main
from sincere.records.comparing import CompareRequest
from sincere.records.config import Settings, TrainRequest, TrainSettings, read_settings, write_config
from sincere.records.measuring import EvaluateRequest, TransferRequest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sincere.cli", *arguments], capture_output=True, text=True, check=False
    )


def test_help_lists_every_verb_and_starts_no_torch() -> None:
    code = "import sys; from sincere.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert all(verb in result.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_starts_no_torch(verb: str) -> None:
    code = f"import sys; from sincere.cli import main\ntry: main(['{verb}', '--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "usage: sincere" in result.stdout


@pytest.mark.parametrize("record", [TrainRequest, CompareRequest, EvaluateRequest, TransferRequest])
def test_every_setting_has_a_help_text(record: type[Settings]) -> None:
    for name, field in record.model_fields.items():
        assert field.description, name


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("tr", "train transfer"),
        ("train --los", "--loss"),
        ("compare --los", "--losses"),
        ("train --loss s", "sincere supcon"),
        ("transfer --to fash", "fashion-mnist"),
        ("evaluate --metrics kn", "knn"),
    ],
)
def test_completion_in_bash(words: str, completed: str, tmp_path: Path) -> None:
    (tmp_path / "completion").write_text(run("completion", "bash").stdout)
    line = f"sincere {words}"
    script = f"source {tmp_path}/completion; COMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}; _shtab_sincere"
    result = subprocess.run(
        ["bash", "-c", f"{script}; echo ${{COMPREPLY[@]}}"], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == completed


def test_completion_of_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zhs"]) == 2
    assert "Did you mean 'zsh'?" in capsys.readouterr().err


def test_settings_from_a_file_hold_for_every_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.toml").write_text('losses = ["sincere", "supcom"]\n')
    assert main(["compare", "--config", str(tmp_path / "settings.toml"), "--out", str(tmp_path / "c")]) == 2
    assert "Did you mean 'supcon'?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sincere 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "sincere: 'trian' is not a verb; did you mean 'train'?\n"),
        (["dance"], "sincere: 'dance' is not a verb; the verbs are compare, train, evaluate, transfer, report, "),
        (["train", "--data", "digts"], "did you mean 'digits'?\n"),
        (["train", "--temperature", "0"], "sincere: settings: temperature input should be greater than 0; got 0.0\n"),
        (["train", "--config", "missing.toml"], "sincere: missing.toml: no such file\n"),
        (["train", "--temprature", "1"], "sincere: train: Unrecognized options: --temprature"),
        (["train", "--temprature", "1"], "Did you mean --temperature?\n"),
        (["train", "--epochs", "many"], "sincere: train: Error parsing --epochs: must be INT; got 'many'"),
        (["train", "--out", ""], "sincere: settings: out must be the name of a folder\n"),
        (["train", "--config"], "sincere: train: --config needs the name of a TOML file\n"),
        (["train", "--nesterov", "--momentum", "0"], "sincere: settings: nesterov needs momentum above 0\n"),
        (["train", "--seed", "18446744073709551616"], "sincere: settings: seed input should be less than"),
        (["train", "--precision", "16-mixed"], "precision must not be 16-mixed on cpu"),
        (["train", "--out", "/dev/null/run"], "sincere: "),
        (["train", "--loss", "sincer"], "Did you mean 'sincere'?\n"),
        (["train", "--resume", "--out", "nowhere"], "sincere: nowhere: holds no run to resume; leave out --resume"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_flags_win_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    (tmp_path / "mine.toml").write_text('temperature = 0.2\nepochs = 7\nclasses = ["3", "8"]\n')
    assert main(["train", "--config", str(tmp_path / "mine.toml"), "--epochs", "9"]) == 0
    assert (seen[0].temperature, seen[0].epochs, seen[0].classes) == (0.2, 9, ("3", "8"))
    (tmp_path / "mine.toml").write_text("temprature = 0.2\n")
    assert main(["train", "--config", str(tmp_path / "mine.toml")]) == 2


def test_classes_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    main(["train", "--data", "cifar10.npz", "--classes", "cat", "dog", "--seed", "4"])
    assert seen[0].classes == ("cat", "dog")
    assert seen[0].folder() == Path("runs/cifar10-sincere-4")


def test_resume_needs_only_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    write_config(TrainSettings(data="cifar10.npz", temperature=0.07), tmp_path)
    for out in (["--out", str(tmp_path)], [f"--out={tmp_path}"]):
        assert main(["train", "--resume", *out]) == 0
    assert {(request.data, request.temperature) for request in seen} == {("cifar10.npz", 0.07)}


def test_resume_finds_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "digits-supcon-0").mkdir(parents=True)
    write_config(TrainSettings(loss="supcon", head="linear"), tmp_path / "runs" / "digits-supcon-0")
    assert main(["train", "--resume", "--loss", "supcon"]) == 0
    assert seen[0].head == "linear"


def test_settings_survive_the_file(tmp_path: Path) -> None:
    settings = TrainSettings(data="a 'b'.npz", classes=("<x>", "é"), epochs=3, learning_rate=0.1)
    write_config(settings, tmp_path)
    assert TrainSettings.make(**read_settings(tmp_path / "config.toml")) == settings


def test_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "dtd").mkdir()
    assert main(["datasets", "--data-dir", str(tmp_path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert " yes " in lines["digits"]
    assert " yes " in lines["dtd"]
    assert " no " in lines["pets"]


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    import signal

    out = tmp_path / "run"
    options = ["--data", "digits", "--epochs", "1000", "--out", str(out), "--head", "linear"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sincere.cli", "train", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.startswith("sincere: stopped by SIGINT after ")
    assert error.endswith(f"; resume it with: sincere train --resume --out {out}\n")
    assert error.count("\n") == 1
    assert list((out / "checkpoints").glob("step-*.pt"))
