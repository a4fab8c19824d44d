"""Several processes share a run: it ends with the weights of one process, and none dies unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from sincere.workflows.run_folder import RunFolder

# 12 steps without batch norms, gentle: rounding grows from step to step, and how fast depends on the CPU.
WORDS = "--epochs 4 --batch-size 20 --head linear --dim 8 --norm group --optimizer sgd --learning-rate 0.002"
FLAGS = [*WORDS.split(), "--temperature", "0.5", "--no-channels-last", "--threads", "1", "--validate-every", "3"]
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


def test_under_torchrun_with_micro_batches(alone: Path, data: str, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    words = command(data, tmp_path / "two", "--devices", "2", "--micro-batch", "3")[2:]
    result = run([*launcher, *words])
    assert result.returncode == 0, result.stderr
    same(alone, tmp_path / "two")


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


def test_too_small_a_batch_for_the_processes(data: str, tmp_path: Path) -> None:
    words = ["--devices", "3", "--batch-size", "2", "--sampler", "shuffle"]
    result = run(command(data, tmp_path / "other", *words))
    assert result.returncode != 0
    assert "batch_size must be at least 3, the processes that share a batch; got 2" in result.stderr
