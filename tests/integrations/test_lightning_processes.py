"""Two processes of Lightning take the steps that one process takes with the combined batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = """
import os
import sys
from functools import partial

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, TensorDataset

from sincere.integrations.lightning import ContrastiveModule

n_processes, out, options = int(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
torch.manual_seed(0)
inputs, labels = torch.randn(64, 6), torch.arange(64) % 5
own = slice(int(os.environ.get("LOCAL_RANK", "0")), None, n_processes)  # so that each step has the same items
data = TensorDataset(inputs[own], labels[own])
module = ContrastiveModule(torch.nn.Linear(6, 3), optimizer=partial(torch.optim.SGD, lr=0.3), **options)
trainer = Trainer(
    accelerator="cpu", devices=n_processes, strategy="ddp" if n_processes > 1 else "auto", max_epochs=3, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    use_distributed_sampler=False,
)
trainer.fit(module, DataLoader(data, batch_size=32 // n_processes))
if trainer.is_global_zero:
    torch.save(module.network.state_dict(), out)
"""


def weights(folder: Path, n_processes: int, options: str) -> torch.Tensor:
    program, out = folder / "program.py", folder / f"weights-{n_processes}.pt"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(n_processes), str(out), options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found: torch.Tensor = torch.load(out)["weight"]
    return found


@pytest.mark.slow
def test_the_group_makes_processes_one_batch(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    one = weights(tmp_path, 1, "{'group': 'world'}")
    two = weights(tmp_path, 2, "{'group': 'world'}")
    torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-4)  # float32, as in test_devices
    assert not torch.allclose(weights(tmp_path, 2, "{}"), one, atol=1e-3), "without it, each contrasts its own batch"
