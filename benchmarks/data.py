"""`python -m benchmarks.data --cifar10 FILE --fashion-mnist FILE`: augmentation, data loading, and real data sets.

Times the augmented views and the data loader, and checks the data sets against published values.
docs/reference/data.md says how to create the files. Writes results/data.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.measure import write
from sincere.data.catalog import load_dataset
from sincere.data.dataset import Dataset
from sincere.data.loader import ViewLoader
from sincere.data.samplers import make_sampler
from sincere.data.torchvision_sets import CIFAR10_STATISTICS, FASHION_STATISTICS
from sincere.data.views import make_views, named_augmentation, view_maker
from sincere.models.embedding import Preparation
from sincere.records.model import ModelSpec
from sincere.workflows.timing import ratio, summary, time_in_turns

N_IMAGES, N_VIEWS = 1024, 2
PUBLISHED = {
    "cifar10": (CIFAR10_STATISTICS, (50000, 10000, 10)),
    "fashion-mnist": (FASHION_STATISTICS, (60000, 10000, 10)),
}


def per_image(pixels: Tensor) -> Callable[[], object]:
    """Return the pipeline of the paper's code: PIL and torchvision, image by image."""
    from torchvision import transforms

    pipeline = transforms.Compose(
        [
            transforms.RandomResizedCrop(32, scale=(0.2, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            transforms.RandomGrayscale(0.2),
            transforms.ToTensor(),
            transforms.Normalize(*CIFAR10_STATISTICS),
        ]
    )
    arrays = pixels.permute(0, 2, 3, 1).numpy()
    return lambda: torch.stack([pipeline(Image.fromarray(array)) for array in arrays for _ in range(N_VIEWS)])


def kornia_batch(pixels: Tensor) -> Callable[[], object]:
    """Return the batched operations of kornia, with its own random numbers."""
    from kornia import augmentation

    mean, std = (torch.tensor(x) for x in CIFAR10_STATISTICS)
    pipeline = augmentation.AugmentationSequential(
        augmentation.RandomResizedCrop((32, 32), scale=(0.2, 1.0)),
        augmentation.RandomHorizontalFlip(),
        augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        augmentation.RandomGrayscale(p=0.2),
        augmentation.Normalize(mean, std),
        data_keys=["input"],
    )
    return lambda: [pipeline(pixels.float() / 255) for _ in range(N_VIEWS)]


def measure_views(data: Dataset, seconds: float) -> dict[str, Any]:
    torch.set_num_threads(1)
    pixels, ids = data.train.items.gather(np.arange(N_IMAGES)), torch.arange(N_IMAGES)
    first, augmentation = torch.zeros_like(ids), named_augmentation("paper")
    mean, std = CIFAR10_STATISTICS
    prepare = Preparation(ModelSpec(encoder="small", channels=3, size=32, mean=mean, std=std))

    def ours() -> Tensor:
        views = make_views(pixels, ids, first, augmentation, size=32, seed=0, n_views=N_VIEWS)
        return cast(Tensor, prepare(views.flatten(0, 1)))

    cases: dict[str, Callable[[], object]] = {
        "sincere": ours,
        "torchvision on PIL images": per_image(pixels),
        "kornia, one order of colour changes per batch": kornia_batch(pixels),
    }
    rounds = time_in_turns(cases, seconds=seconds)
    return {
        "n_images": N_IMAGES,
        "cases": {name: summary(times) for name, times in rounds.items()},
        "times_faster": {name: ratio(rounds["sincere"], times) for name, times in rounds.items() if name != "sincere"},
    }


def measure_delivery(data: Dataset, threads: int) -> dict[str, Any]:
    """Measure the data loader: all batches of an epoch, of 512 images each, as in training."""
    torch.set_num_threads(threads)
    sampler = make_sampler("auto", data.train.labels, 512, seed=0)
    loader = ViewLoader(data.train, sampler, view_maker(named_augmentation("paper"), size=32, n_views=N_VIEWS))
    for _ in loader.batches(0, 3):
        pass
    start = time.perf_counter()
    n_views = sum(len(batch.labels) * N_VIEWS for batch in loader.batches(0, sampler.n_batches))
    seconds = time.perf_counter() - start
    return {"threads": threads, "n_views": n_views, "views_per_second": n_views / seconds}


def check_real(name: str, data: Dataset) -> dict[str, Any]:
    """Check that a data set has its published size, balanced classes, mean and standard deviation."""
    (mean, std), (n_train, n_test, n_classes) = PUBLISHED[name]
    counts = [np.bincount(part.labels, minlength=n_classes) for part in (data.train, data.test)]
    assert [count.tolist() for count in counts] == [[n // n_classes] * n_classes for n in (n_train, n_test)], counts
    np.testing.assert_allclose(data.mean, mean, atol=1e-6)
    np.testing.assert_allclose(data.std, std, atol=1e-6)
    per_class = f"{counts[0][0]:,} + {counts[1][0]:,}"
    return {"n_train": n_train, "n_test": n_test, "per_class": per_class, "mean": data.mean, "std": data.std}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", type=Path, default=Path("data/cifar10.npz"))
    parser.add_argument("--fashion-mnist", type=Path, default=Path("data/fashion-mnist.npz"))
    parser.add_argument("--seconds", type=float, default=60.0, help="minimum time for the views")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    sets = {"cifar10": load_dataset(options.cifar10), "fashion-mnist": load_dataset(options.fashion_mnist)}
    real = {name: check_real(name, data) for name, data in sets.items()}
    pair = load_dataset(options.cifar10, classes=["cat", "dog"])
    assert (len(pair.train), len(pair.test)) == (10000, 2000)
    delivery = measure_delivery(sets["cifar10"], threads)
    views = measure_views(sets["cifar10"], options.seconds)
    torch.set_num_threads(threads)
    path = write("data", {"real": real, "views": views, "delivery": delivery})
    print(f"{delivery['views_per_second']:,.0f} views/s; times faster: {views['times_faster']}; wrote {path.name}")


if __name__ == "__main__":
    main()
