"""Several processes: the exact loss of the combined batch, not the mean of the losses of its parts.

Two processes share each batch under DistributedDataParallel. `group="world"` lets every anchor see the rows of all
processes; gradients are those of the whole batch. On GPUs, start it with torchrun and the backend nccl.

pip install '.[all]'
"""

import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import distributed, multiprocessing, nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from sincere import SINCERELoss

N_PROCESSES, BATCH, STEPS = 2, 256, 60


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the 1-NN accuracy of the last images among the first 1,200."""
    with torch.no_grad():
        embeddings = normalize(model(images), dim=1)
    nearest = (embeddings[1200:] @ embeddings[:1200].T).argmax(dim=1)
    return float((labels[:1200][nearest] == labels[1200:]).float().mean())


def train(rank: int, folder: str) -> None:
    """Train in one of the processes."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=N_PROCESSES)
    torch.manual_seed(0)  # the same weights and the same batches everywhere
    images, labels = (torch.tensor(values) for values in load_digits(return_X_y=True))
    images = images.float() / 16
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32)))
    criterion = SINCERELoss(temperature=0.1, group="world")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if rank == 0:
        print(f"before: 1-NN accuracy {accuracy(model.module, images, labels):.3f}")
    for _ in range(STEPS):
        own = torch.randperm(1200)[:BATCH][rank::N_PROCESSES]  # this process's share of the batch
        loss = criterion(model(images[own]), labels[own])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        score = accuracy(model.module, images, labels)
        print(f"after: 1-NN accuracy {score:.3f}; loss of the whole batch {loss.item():.3f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as shared:
        multiprocessing.spawn(train, args=(shared,), nprocs=N_PROCESSES)
