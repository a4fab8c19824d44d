"""The command line: quick help, one-line errors, exit codes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sincere.cli import VERBS, main
from sincere.records.config import read_settings, write_config
from sincere.settings.requests import RunSettings, TrainRequest
from sincere.settings.verbs import REQUESTS


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
    assert f"Usage: sincere {verb}" in result.stdout


def test_every_verb_has_a_request() -> None:
    assert REQUESTS.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_every_setting_and_fits_the_terminal(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for setting in REQUESTS[verb].settings():
        assert (setting.name.upper() if setting.positional else f"--{setting.name.replace('_', '-')} ") in text
        assert setting.help.split()[0] in text
    if any(setting.positional for setting in REQUESTS[verb].settings()):
        assert "Arguments" in text


def test_help_is_grouped_with_the_most_used_flags_first(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--help"])
    titles = [line.split("─ ")[1].split(" ─")[0] for line in capsys.readouterr().out.splitlines() if "╭─ " in line]
    assert titles == [
        "Most used",
        "Data",
        "Loss",
        "Model",
        "Batches and augmentation",
        "Optimisation",
        "Validation",
        "Machine",
        "Run",
    ]
    assert len(TrainRequest.most_used) == 10


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("tr", "train transfer"),
        ("train --los", "--loss"),
        ("compare --los", "--losses"),
        ("train --loss si", "sincere"),
        ("transfer --to fash", "fashion-mnist"),
        ("evaluate --metrics kn", "knn"),
        ("train --sampler b", "balanced"),
        ("train --data pho", "photos/ photos.npz"),
        ("train --data photos/c", "photos/cat/"),
        ("train --out pho", "photos/ photos.npz"),
        ("evaluate pho", "photos/ photos.npz"),
        ("train --vers", ""),
        ("report --fig", "--figures"),
        ("completion f", "fish"),
    ],
)
def test_completion_in_bash(words: str, completed: str, tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos.npz").touch()
    (tmp_path / "completion").write_text(run("completion", "bash").stdout)
    folder = Path(sys.executable).parent  # where the scripts find `sincere`
    line = f"sincere {words}"
    setup = f"PATH={folder}:$PATH; source completion; COMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}"
    script = f"{setup}; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _sincere; echo ${{COMPREPLY[@]}}"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.split() == completed.split()


@pytest.mark.parametrize(("shell", "sign"), [("zsh", "#compdef sincere"), ("fish", "complete -c sincere")])
def test_completion_in_other_shells(shell: str, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert sign in script
    assert all(name in script for name in ("sampler", "p-by-k", "eps-supinfonce", "transfer"))
    if shutil.which(shell) is not None:
        check = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
        assert check.returncode == 0, check.stderr


def test_completion_of_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zhs"]) == 2
    assert "shell must be 'bash', 'zsh' or 'fish'; got 'zhs'" in capsys.readouterr().err


def test_what_is_not_installed_is_named_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; sys.modules['pydantic'] = None; from sincere.cli import main; sys.exit(main(['compare']))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    remedy = "install it with: pip install 'sincere[all]'"
    assert result.stderr == f"sincere: compare needs pydantic, which is not installed; {remedy}\n"


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
        (["trian"], "sincere: 'trian' is not a command; did you mean 'train'?\n"),
        (
            ["dance"],
            "sincere: 'dance' is not a command; the commands are compare, train, search, evaluate, transfer, ",
        ),
        (["train", "--data", "digts"], "did you mean 'digits'?\n"),
        (["train", "--temperature", "0"], "sincere: train: temperature must be greater than 0; got '0'\n"),
        (["train", "--config", "missing.toml"], "sincere: missing.toml: no such file\n"),
        (["train", "--temprature", "1"], "sincere: train: unknown option: --temprature"),
        (["train", "--temprature", "1"], "Did you mean --temperature?\n"),
        (["train", "--lr", "1"], "unknown option: --lr. Did you mean --learning-rate?\n"),
        (
            ["train", "--epochs", "many"],
            "sincere: train: epochs must be an integer; got 'many'\n",
        ),
        (["train", "--out", ""], "sincere: train: out must be the name of a folder\n"),
        (["train", "--config"], "sincere: train: --config needs a value\n"),
        (["train", "--nesterov", "--momentum", "0"], "sincere: train: nesterov needs momentum above 0\n"),
        (["train", "--seed", "18446744073709551616"], "sincere: train: seed must be less than"),
        (["train", "--precision", "16-mixed"], "precision must not be 16-mixed on cpu"),
        (["train", "--out", "/dev/null/run"], "sincere: "),
        (["train", "--loss", "sincer"], "Did you mean 'sincere'?\n"),
        (
            ["train", "digits"],
            "train: unexpected argument 'digits'; --help lists the options, and names with spaces need quotes\n",
        ),
        (["train", "--losses", "a"], "unknown option: --losses. Did you mean --loss?\n"),
        (["compare", "--losses", "sincere,supcon"], "several with spaces between them\n"),
        (["train", "--epochs", "1.5"], "sincere: train: epochs must be an integer; got '1.5'\n"),
        (["train", "--classes"], "sincere: train: --classes needs a value\n"),
        (["train", "--data", ""], "sincere: train: data must not be empty; got ''\n"),
        (["compare", "--losses", "--epochs", "3"], "sincere: compare: --losses needs a value\n"),
        (["train", "--batch-size", "10000"], "sincere: train: batch_size must be at most"),
        (["evaluate"], "sincere: evaluate: RUN is missing; put it before the options\n"),
        (["evaluate", "--ks", "1", "5", "runs/x"], "sincere: evaluate: RUN is missing; put it before the options\n"),
        (["transfer", "x"], "sincere: transfer: to is missing: name the other data set, or a recipe\n"),
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
    request = seen[0]
    assert (request.loss.temperature, request.optimisation.epochs, request.data.classes) == (0.2, 9, ("3", "8"))
    (tmp_path / "mine.toml").write_text("temprature = 0.2\n")
    assert main(["train", "--config", str(tmp_path / "mine.toml")]) == 2


def test_the_last_of_repeated_flags_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    assert main(["train", "--epochs", "3", "--nesterov", "--epochs", "4", "--no-nesterov"]) == 0
    assert (seen[0].optimisation.epochs, seen[0].optimisation.nesterov) == (4, False)


def test_classes_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    main(["train", "--data", "cifar10.npz", "--classes", "cat", "dog", "--seed", "4"])
    assert seen[0].data.classes == ("cat", "dog")
    assert seen[0].folder() == Path("runs/cifar10-sincere-4")


def test_resume_needs_only_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    write_config(RunSettings.make(data="cifar10.npz", temperature=0.07).stored(), tmp_path)
    for out in (["--out", str(tmp_path)], [f"--out={tmp_path}"]):
        assert main(["train", "--resume", *out]) == 0
    assert {(request.data.source, request.loss.temperature) for request in seen} == {("cifar10.npz", 0.07)}


def test_resume_finds_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TrainRequest] = []
    monkeypatch.setattr("sincere.workflows.train.run_training", seen.append)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "digits-supcon-0").mkdir(parents=True)
    settings = RunSettings.make(loss="supcon", head="linear")
    write_config(settings.stored(), tmp_path / "runs" / "digits-supcon-0")
    assert main(["train", "--resume", "--loss", "supcon"]) == 0
    assert seen[0].model.head == "linear"


def test_settings_survive_the_file(tmp_path: Path) -> None:
    settings = RunSettings.make(data="a 'b'.npz", classes=("<x>", "é"), epochs=3, learning_rate=0.1)
    write_config(settings.stored(), tmp_path)
    assert RunSettings.make(**read_settings(tmp_path / "config.toml")) == settings


def test_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "dtd").mkdir()
    assert main(["datasets", "--data-dir", str(tmp_path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert " yes " in lines["digits"]
    assert " yes " in lines["dtd"]
    assert " no " in lines["pets"]


@pytest.mark.slow
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


def test_one_interruption_is_enough_and_further_ones_do_no_harm() -> None:
    program = """
import os, signal, sys
import sincere.cli

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Verb:
    @staticmethod
    def main(words):
        try:
            interrupt()
        finally:
            interrupt()

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job in the background
sincere.cli.import_module = lambda name: Verb
sys.argv = ["sincere", "datasets"]
code = sincere.cli.main()
interrupt()
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "sincere: interrupted\n")


def test_a_caller_keeps_its_own_handling_of_interruptions() -> None:
    import signal

    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
