"""Several processes share a run: it ends with the weights of one process, and none dies unnoticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from sincere.cli import main
from sincere.records.files import EVALUATION_LOCK, locked
from sincere.records.results import Results
from sincere.workflows.run_folder import RunFolder

# 12 steps without batch norms, gentle: rounding grows from step to step, and how fast depends on the CPU.
WORDS = "--epochs 4 --batch-size 20 --head linear --dim 8 --norm group --optimizer sgd --learning-rate 0.002"
PLAIN = ["--precision", "32-true", "--threads", "1"]  # bfloat16 would round away what is compared
FLAGS = [*WORDS.split(), "--temperature", "0.5", "--no-channels-last", *PLAIN, "--validate-every", "3"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI"))}


def command(data: str, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "sincere.cli", "train", "--data", data, "--out", str(out), *FLAGS, *more]


def run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(*arguments, capture_output=True, text=True, check=False, timeout=240, env=CLEAN, **options)


def same(one: Path, other: Path) -> None:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, atol=1e-5, rtol=1e-4, msg=name)
    rows = [RunFolder(folder).log.rows() for folder in (one, other)]
    assert len(rows[0]) == len(rows[1]) == 4
    for mine, theirs in zip(*rows, strict=True):
        for key in ("loss", "chance", "floor", "partner_similarity", "noise_similarity", "repulsion_share"):
            assert mine[key] == pytest.approx(theirs[key], abs=1e-4), key
        assert mine.get("knn1_train", 0) == pytest.approx(theirs.get("knn1_train", 0), abs=0.06)  # few, near ties


@pytest.fixture(scope="module")
def alone(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    result = run(command(data, folder))
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(alone: Path, data: str, tmp_path: Path) -> None:
    result = run(command(data, tmp_path / "two", "--devices", "2"))
    assert result.returncode == 0, result.stderr
    same(alone, tmp_path / "two")
    assert result.stdout.count("1-NN accuracy on the test part") == 1  # one process speaks
    one, two = (RunFolder(folder).summary() for folder in (alone, tmp_path / "two"))
    assert one is not None
    assert two is not None
    assert one["knn1_test"] == pytest.approx(two["knn1_test"], abs=0.07)
    assert "Initializing distributed" not in result.stderr


@pytest.mark.slow
def test_under_torchrun_with_micro_batches(alone: Path, data: str, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    words = command(data, tmp_path / "two", "--devices", "2", "--micro-batch", "3")[2:]
    result = run([*launcher, *words])
    assert result.returncode == 0, result.stderr
    same(alone, tmp_path / "two")


@pytest.mark.slow
def test_a_killed_process_takes_the_job_down_and_its_run_goes_on_with_fewer(
    alone: Path, data: str, tmp_path: Path
) -> None:
    folder = tmp_path / "three"
    slow = {**CLEAN, "SINCERE_TEST_SLOW": "0.5"}
    code = (
        "import os, time\n"
        "from sincere.training.fit import Fit\n"
        "real = Fit._step\n"
        "def slowly(self, batch):\n"
        "    time.sleep(float(os.environ['SINCERE_TEST_SLOW']))\n"
        "    return real(self, batch)\n"
        "Fit._step = slowly\n"
        "import sys\n"
        "from sincere.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    script = tmp_path / "slow.py"
    script.write_text(code)
    words = command(data, folder, "--devices", "3", "--checkpoint-minutes", "0")[3:]
    job = subprocess.Popen([sys.executable, str(script), *words], stderr=subprocess.PIPE, text=True, env=slow)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("checkpoints/step-*.pt"))) < 2:
        assert time.monotonic() < deadline, "the run has not begun"
        assert job.poll() is None
        time.sleep(0.1)
    ranks = {child.environ()["LOCAL_RANK"]: child for child in psutil.Process(job.pid).children()}
    sockets = [s for p in (psutil.Process(job.pid), *ranks.values()) for s in p.net_connections("inet")]
    assert {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN} <= {"127.0.0.1", "::1"}
    killed = time.monotonic()
    ranks["2"].kill()
    _, errors = job.communicate(timeout=60)
    assert time.monotonic() - killed < 60
    assert job.returncode != 0
    assert "rank: 2" in errors
    _, alive = psutil.wait_procs(list(ranks.values()), timeout=10)  # on a busy machine they take a moment
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    result = run(command(data, folder, "--devices", "2", "--resume"))
    assert result.returncode == 0, result.stderr
    assert "resuming after step" in result.stdout
    same(alone, folder)


@pytest.mark.slow
def test_too_small_a_batch_for_the_processes(data: str, tmp_path: Path) -> None:
    words = ["--devices", "3", "--batch-size", "2", "--sampler", "shuffle"]
    result = run(command(data, tmp_path / "other", *words))
    assert result.returncode != 0
    assert "batch_size must be at least 3, the processes that share a batch; got 2" in result.stderr


def sincere_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "sincere.cli", *words]


def close(one: Path, other: Path, *, atol: float = 1e-5) -> None:
    """Check that two evaluations are the same but for rounding, which grows in training."""
    a, b = Results.read(one), Results.read(other)
    assert [row.loss for row in a.rows] == [row.loss for row in b.rows]
    for mine, theirs in zip(a.rows, b.rows, strict=True):
        for name, estimate in mine.metrics.items():
            assert theirs.metrics[name].estimate == pytest.approx(estimate.estimate, abs=0.04), name
    stored = [load_file(folder / "embeddings.safetensors") for folder in (one, other)] if len(a.rows) == 1 else []
    for name, value in stored[0].items() if stored else ():
        torch.testing.assert_close(stored[1][name], value, atol=atol, rtol=10 * atol, msg=name)


FEW = ["--metrics", "margin", "knn", "--no-report"]


@pytest.mark.slow
def test_evaluate_and_transfer_on_three_processes_are_those_on_one(alone: Path, data: str, tmp_path: Path) -> None:
    """Embeddings come back in order, although 60 and 30 images are shared by three processes."""
    folders = [tmp_path / name for name in ("one", "three")]
    for folder, n in zip(folders, ("1", "3"), strict=True):
        shutil.copytree(alone, folder)
        for words in (["evaluate", str(folder)], ["transfer", str(folder), "--to", data, "--out", f"{folder}-other"]):
            if n == "1":
                assert main([*words, *FEW]) == 0
                continue
            result = run(sincere_command(*words, *FEW, "--devices", n))
            assert result.returncode == 0, result.stderr
            assert result.stdout.count("accuracy without training") == 1  # one process speaks
    close(*folders)
    close(*(Path(f"{folder}-other") for folder in folders))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.slow
def test_compare_on_two_processes_is_that_on_one(
    alone: Path, data: str, tmp_path: Path, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three steps: the longer it takes, the more likely an activation is so near to 0 that rounding decides about it.
    words = ["compare", "--data", data, "--losses", "sincere", "supcon", *FLAGS, "--epochs", "1"]
    if frozen:  # features are computed in shares
        words = ["compare", "--data", data, "--losses", "sincere", "--freeze", "--epochs", "1", "--batch-size", "20"]
        words += ["--weights", f"{alone}/model.safetensors", "--norm", "group", *PLAIN]
    words += ["--metrics", "margin", "knn", "--out"]
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home-1"))
    assert main([*words, str(tmp_path / "1")]) == 0
    home = {**CLEAN, "SINCERE_HOME": str(tmp_path / "home-2")}
    command = sincere_command(*words, str(tmp_path / "2"), "--devices", "2")
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=home)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("report: ") == 1
    close(tmp_path / "1", tmp_path / "2")
    for folder in sorted((tmp_path / "1" / "runs").iterdir()):
        close(folder, tmp_path / "2" / "runs" / folder.name, atol=1e-4)


@pytest.mark.slow
def test_embed_on_three_processes_writes_the_images_in_order(alone: Path, tmp_path: Path) -> None:
    """Also under torchrun, and where an image that cannot be read is left out."""
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(10):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 12), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")
    (folder / "03.png").write_bytes(b"no image")
    words = ["embed", str(alone), str(folder), "--skip-bad-images", "--out"]
    assert main([*words, str(tmp_path / "one.npz")]) == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    commands = {
        "three": [*sincere_command(*words), str(tmp_path / "three.npz"), "--devices", "3"],
        "torchrun": [*launcher, "sincere.cli", *words, str(tmp_path / "torchrun.npz"), "--devices", "2"],
    }
    one = dict(np.load(tmp_path / "one.npz"))
    assert [Path(name).stem for name in one["names"]] == [f"{i:02d}" for i in range(10) if i != 3]
    for name, command in commands.items():
        result = run(command)
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("9 embeddings of 8 dimensions") == 1
        written = dict(np.load(tmp_path / f"{name}.npz"))
        assert written["names"].tolist() == one["names"].tolist()
        np.testing.assert_allclose(written["embeddings"], one["embeddings"], atol=1e-6)


@pytest.mark.slow
def test_the_first_process_that_fails_says_why_alone(alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(alone, folder)
    with locked(folder, EVALUATION_LOCK):
        result = run(sincere_command("evaluate", str(folder), "--devices", "2"))
    assert result.returncode == 2  # and no process holds its stderr open any more
    assert result.stderr.count("sincere: ") == 1
    assert "lost another one" not in result.stderr


@pytest.mark.slow
def test_what_is_wrong_before_it_starts_is_said_once(tmp_path: Path) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "good.png")
    words = ["embed", str(tmp_path / "no-run"), str(tmp_path), "--out", str(tmp_path / "x.npz"), "--devices", "2"]
    result = run(sincere_command(*words))
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_bad_image_stops_all_processes_with_its_name(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    Image.new("L", (9, 9)).save(tmp_path / "good.png")
    words = ["embed", str(alone), str(tmp_path), "--out", str(tmp_path / "x.npz"), "--devices", "2"]
    result = run(sincere_command(*words))
    assert result.returncode != 0
    assert "bad.png: cannot be read as an image" in result.stderr
    assert not (tmp_path / "x.npz").exists()
