"""`python -m benchmarks.training --cifar10 FILE`: time of training steps and of an epoch. Writes results/training.json.

Steps: with the precision and memory format that `sincere train` selects, compared with contiguous float32. Epoch:
`sincere train` with `small` on CIFAR-10, compared with a loop with the same network and optimiser in contiguous float32
and a data loader that runs torchvision on PIL images in two workers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms

from benchmarks.measure import write
from sincere import sincere_loss, train
from sincere.data.catalog import load_dataset
from sincere.data.dataset import Dataset
from sincere.models.embedding import build_model
from sincere.records.model import ModelSpec
from sincere.training.optimizers import OptimizerSettings, make_optimizer
from sincere.workflows.hardware import bfloat16_gains
from sincere.workflows.timing import ratio, summary, time_in_turns

MEAN, STD = (0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)
BATCH, N_VIEWS = 512, 2


def trainer(encoder: str, *, chosen: bool, optimizer: str = "sgd") -> Callable[[Tensor, Tensor], None]:
    """Return a training step on views (n, v, c, h, w) and labels: as `sincere train` runs it, or plain float32."""
    gains = chosen and bfloat16_gains(torch.device("cpu"))
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed" if gains else "32-true")
    model = build_model(ModelSpec(encoder=encoder, channels=3, size=32, mean=MEAN, std=STD))
    if chosen:
        model.to(memory_format=torch.channels_last)
    network, stepper = fabric.setup(model, make_optimizer(model, OptimizerSettings(optimizer, learning_rate=0.06)))

    def step(views: Tensor, labels: Tensor) -> None:
        embeddings = network(views.flatten(0, 1)).view(*views.shape[:2], -1)
        stepper.zero_grad(set_to_none=True)
        fabric.backward(sincere_loss(embeddings, labels))
        stepper.step()

    return step


def measure_steps(encoder: str, n_views: int, seconds: float) -> dict[str, Any]:
    views, labels = torch.rand(n_views // 2, 2, 3, 32, 32), torch.arange(n_views // 2) % 10
    cases = {
        "chosen": partial(trainer(encoder, chosen=True), views, labels),
        "float32, contiguous": partial(trainer(encoder, chosen=False), views, labels),
    }
    rounds = time_in_turns(cases, seconds=seconds)
    return {
        "n_views": n_views,
        "cases": {name: summary(times) for name, times in rounds.items()},
        "times_faster": ratio(rounds["chosen"], rounds["float32, contiguous"]),
    }


class PerImage(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """The data of the hand-written loop: PIL images, augmented one by one."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.arrays, self.labels = pixels.permute(0, 2, 3, 1).contiguous().numpy(), labels
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(32, scale=(0.2, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
                transforms.RandomGrayscale(0.2),
                transforms.ToTensor(),
            ]
        )

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.arrays[index])
        return torch.stack([self.transform(image) for _ in range(N_VIEWS)]), int(self.labels[index])


def their_batches(data: Dataset, n_batches: int) -> Iterator[tuple[Tensor, Tensor]]:
    pixels = data.train.items.gather(data.train.positions[: n_batches * BATCH])
    images = PerImage(pixels, torch.from_numpy(data.train.labels))
    yield from DataLoader(images, BATCH, shuffle=True, num_workers=2, drop_last=True)


def measure_epoch(path: Path, data: Dataset, n_batches: int) -> dict[str, Any]:
    """Time the first epoch of `sincere train`, by its log, and a hand-written loop with the same optimiser."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        options: Any = {
            "epochs": 1,
            "batch_size": BATCH,
            "n_views": N_VIEWS,
            "augmentation": "paper",
            "validate_every": 2,
        }
        run = train(data=path, out=Path(folder) / "run", quiet=True, **options)
        row = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[0])
        whole = row["step"] * BATCH / row["images_per_second"]
        seconds["chosen"] = whole * n_batches / row["step"]
    step, count = trainer("small", chosen=False, optimizer="muon"), 0
    began = time.perf_counter()
    for views, labels in their_batches(data, n_batches):
        step(views, labels)
        count += 1
    assert count == n_batches
    seconds["PIL in 2 workers, float32, contiguous"] = time.perf_counter() - began
    ours, theirs = seconds.values()
    sizes = {"n_batches": n_batches, "batch_size": BATCH, "n_views": N_VIEWS}
    return {**sizes, "seconds": seconds, "times_faster": theirs / ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", type=Path, default=Path("data/cifar10.npz"))
    parser.add_argument("--seconds", type=float, default=60.0, help="minimum time for each kind of step")
    parser.add_argument("--batches", type=int, default=50000 // BATCH, help="number of batches; 97 are a whole epoch")
    options = parser.parse_args()
    steps = {name: measure_steps(name, n, options.seconds) for name, n in (("resnet50", 64), ("small", 512))}
    epoch = measure_epoch(options.cifar10, load_dataset(options.cifar10), options.batches)
    bfloat16 = bfloat16_gains(torch.device("cpu"))
    path = write("training", {"bfloat16": bfloat16, "steps": steps, "epoch": epoch})
    for name, measured in {**steps, "epoch": epoch}.items():
        print(f"{name}: {measured['times_faster']:.2f} times faster")
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
