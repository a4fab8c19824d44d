"""`python -m benchmarks.photos --cifar10 FILE`: decoding JPEGs into the cache, and features of a frozen encoder.

5,000 JPEGs of about 200 px are decoded as for a frozen encoder, and the features of 2,000 of them are computed. Weights
are random: they do not change the time. sincere keeps the images that it decodes, in the cache; torchvision's loop
is timed without and with keeping them. Writes results/photos.json.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import write
from benchmarks.photo_folders import empty_cache, mosaics
from sincere.data.cache import decoded_images
from sincere.data.catalog import load_source
from sincere.data.class_folders import folder_files
from sincere.data.dataset import Dataset
from sincere.data.decode import decode
from sincere.data.load_options import LoadOptions
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel, build_model
from sincere.records.model import ModelSpec
from sincere.workflows.frozen_features import with_features
from sincere.workflows.timing import ratio, summary, time_in_turns

SIDES = (96, 160)  # of the encoder's input
N_DECODED, N_FEATURES = 5000, 2000
OURS, TORCHVISION, TIMM = "sincere", "torchvision ImageFolder, 2 workers", "timm, torchvision ImageFolder, 2 workers"
KEPT = f"{TORCHVISION}, images kept in memory"


def our_features(folder: Path, model: EmbeddingModel) -> Dataset:
    """Return the features of all images of a folder that was never loaded before, as a frozen run computes them."""
    with empty_cache():
        options = LoadOptions(size=model.spec.size, frozen=True)
        data = load_source(folder, options)
        return with_features(model, data, torch.device("cpu"), Messages(silent=True))


def image_folder(folder: Path, side: int, steps: list[Any], batch_size: int = 256) -> Any:
    """Return batches of images and labels as PIL and torchvision give them."""
    from torchvision import datasets, transforms

    pipeline = transforms.Compose([transforms.Resize(side), transforms.CenterCrop(side), *steps])
    return torch.utils.data.DataLoader(datasets.ImageFolder(folder, pipeline), batch_size=batch_size, num_workers=2)


@torch.inference_mode()
def timm_features(folder: Path, network: nn.Module, side: int, batch_size: int) -> Tensor:
    from torchvision import transforms

    steps = [transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)]
    return torch.cat([network(images) for images, _ in image_folder(folder, side, steps, batch_size)])


@torch.inference_mode()
def best_batch_size(network: nn.Module, side: int) -> int:
    """Return the batch size at which timm's network is faster."""
    images, seconds = torch.rand(256, 3, side, side), {}
    for batch_size in (64, 256):
        network(images[:batch_size])
        start = time.perf_counter()
        for batch in images.split(batch_size):
            network(batch)
        seconds[batch_size] = time.perf_counter() - start
    return min(seconds, key=lambda batch_size: seconds[batch_size])


def compared(cases: Mapping[str, Callable[[], object]], n_images: int, **options: Any) -> dict[str, Any]:
    """Return times and images per second of each case, and how many times faster the first is, in each round too."""
    rounds = time_in_turns(cases, **options)
    ours, *others = rounds
    results: dict[str, Any] = {"n_images": n_images, "cases": {}, "times_faster": {}, "times_faster_by_round": {}}
    for name, times in rounds.items():
        found = summary(times)
        results["cases"][name] = {**found, "images_per_second": 1e3 * n_images / found["median_ms"]}
    for name in others:
        results["times_faster"][name] = ratio(rounds[ours], rounds[name])
        by_round = [other / this for this, other in zip(rounds[ours], rounds[name], strict=True)]
        results["times_faster_by_round"][name] = [round(times, 3) for times in by_round]
    return results


def measure_decoding(folder: Path, seconds: float) -> dict[str, Any]:
    from torchvision import transforms

    with empty_cache():
        side = load_source(folder, LoadOptions(frozen=True)).size
    files = folder_files(folder)

    def ours() -> None:
        with empty_cache():
            load_source(folder, LoadOptions(frozen=True))

    def ours_alone() -> None:
        with empty_cache() as home:
            decoded_images(
                home / "images",
                lambda i: decode(files.path(i), side, grey=False),
                len(files),
                source="photos",
                skip_bad=False,
            )

    def theirs() -> None:
        for _ in image_folder(folder, side, [transforms.PILToTensor()]):
            pass

    def theirs_kept() -> None:
        torch.cat([images for images, _ in image_folder(folder, side, [transforms.PILToTensor()])])

    cases = {OURS: ours, TORCHVISION: theirs, KEPT: theirs_kept, "sincere, without listing and hashes": ours_alone}
    return {"side": side, **compared(cases, len(files), seconds=seconds, warm_up=1)}


def measure_features(folder: Path, side: int, seconds: float) -> dict[str, Any]:
    import timm

    spec = ModelSpec(encoder="lite0", channels=3, size=side, mean=(0.5,) * 3, std=(0.5,) * 3, head="none")
    model = build_model(spec).eval()
    network = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    batch_size, n_images = best_batch_size(network, side), len(folder_files(folder))
    cases: dict[str, Callable[[], object]] = {
        OURS: lambda: our_features(folder, model),
        TIMM: lambda: timm_features(folder, network, side, batch_size),
    }
    found = compared(cases, n_images, seconds=seconds, warm_up=0, least=3)
    return {"encoder": "lite0", "side": side, "batch_size_of_timm": batch_size, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", type=Path, required=True, help=".npz from whose images JPEGs are made")
    parser.add_argument("--seconds", type=float, default=60.0, help="minimum time for decoding, and for each size")
    options = parser.parse_args()
    features = []
    with tempfile.TemporaryDirectory() as work:
        folder, some = Path(work) / "all", Path(work) / "some"
        mosaics(options.cifar10, folder, n_images=N_DECODED)
        decoding = measure_decoding(folder, options.seconds)
        print(f"decoding: times faster {decoding['times_faster']}")
        mosaics(options.cifar10, some, n_images=N_FEATURES)
        for side in SIDES:
            features.append(measure_features(some, side, options.seconds))
            print(f"features at {side} px: times faster {features[-1]['times_faster']}")
    versions = {name: importlib.metadata.version(name) for name in ("pillow", "simplejpeg", "timm")}
    path = write("photos", {"more_versions": versions, "decoding": decoding, "features": features})
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
