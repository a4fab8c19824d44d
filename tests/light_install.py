"""What `pip install sincere` alone must be able to do: run by .ci/run where only torch and numpy are installed.

A script, not a test module: pytest is not there either.
"""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from importlib.util import find_spec

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import sincere

ABSENT = ("pydantic", "rich", "cyclopts", "scipy", "sklearn", "lightning_fabric", "torchvision", "jaxtyping", "altair")


def check_losses() -> None:
    """A closed form, every function against its module, and signatures."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    labels = torch.tensor([0, 0, 1, 1])
    expected = math.log(math.e + 2) - 1
    assert math.isclose(sincere.sincere_loss(z, labels, temperature=1.0).item(), expected, rel_tol=1e-6)
    embeddings = torch.randn(600, 2, 16, requires_grad=True)
    labels = torch.randint(10, (600,))
    pairs = (
        (sincere.sincere_loss, sincere.SINCERELoss),
        (sincere.supcon_loss, sincere.SupConLoss),
        (sincere.eps_supinfonce_loss, sincere.EpsSupInfoNCELoss),
    )
    for function, module in pairs:
        loss = function(embeddings, labels, temperature=0.2)
        loss.backward()
        assert torch.equal(loss, module(0.2)(embeddings, labels))
        assert "group" in inspect.signature(function).parameters
    assert torch.equal(sincere.info_nce_loss(embeddings), sincere.InfoNCELoss()(embeddings))


def check_theory() -> None:
    """The instruments of the theory."""
    z, labels = torch.nn.functional.normalize(torch.randn(80, 8), dim=1), torch.arange(80) % 4
    assert sincere.repulsion_meter(z, labels, loss="sincere").overall.share == 0
    assert len(sincere.class_divergence_bounds(z, labels)) == 4


def check_group(rank: int, port: int) -> None:
    """One of two processes: the loss of the whole batch, by the same call that a single process makes."""
    torch.manual_seed(0)
    embeddings, labels = torch.randn(20, 8), torch.arange(20) % 3
    expected = sincere.sincere_loss(embeddings, labels, group="world")  # no process group yet
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0)
    dist.init_process_group("gloo", rank=rank, world_size=2, store=store)
    own = slice(0, 12) if rank == 0 else slice(12, 20)
    for exchange in ("gather", "ring"):
        criterion = sincere.SINCERELoss(group="world", exchange=exchange)
        torch.testing.assert_close(criterion(embeddings[own], labels[own]), expected)
    dist.destroy_process_group()


def check_command() -> None:
    """A verb says in one line what to install, and so does the Python function."""
    result = subprocess.run(
        [sys.executable, "-m", "sincere.cli", "compare"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2, result
    assert result.stderr.count("\n") == 1, result.stderr
    assert "pip install 'sincere[all]'" in result.stderr, result.stderr
    print(result.stderr, end="")
    help_text = subprocess.run(
        [sys.executable, "-m", "sincere.cli", "--help"], capture_output=True, text=True, check=True
    )
    assert "compare" in help_text.stdout
    for call in (sincere.train, lambda: sincere.load_dataset("digits")):
        message = ""
        try:
            call()
        except ImportError as error:
            message = str(error)
        assert "pip install 'sincere[all]'" in message, message


if __name__ == "__main__":
    present = [name for name in ABSENT if find_spec(name) is not None]
    assert not present, f"not a light environment: {present}"
    check_losses()
    check_theory()
    mp.start_processes(check_group, args=(29533,), nprocs=2, start_method="spawn")
    check_command()
    print("light install: losses, modules, theory and group= work with torch and numpy alone")
