"""`python -m benchmarks.shapes --cases NAME ...`: variants of `small` and its training on CIFAR-10, at equal compute.

Each case trains with the same number of multiplications, counted over convolutions, forward and backward, so that other
load on the machine does not change the result: 1-NN accuracy of 5,000 test images among 10,000 training images. Adds
the cases to results/shapes.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import RESULTS, write
from sincere import sincere_loss
from sincere.catalog import AUGMENTATIONS
from sincere.data.catalog import load_dataset
from sincere.data.dataset import Dataset
from sincere.data.loader import ViewLoader, plain_batches
from sincere.data.samplers import make_sampler
from sincere.data.views import view_maker
from sincere.evaluation.embed import embed
from sincere.evaluation.knn import accuracy_1nn
from sincere.models.embedding import EmbeddingModel
from sincere.models.heads import linear, mlp
from sincere.models.small import WIDTHS, SmallEncoder
from sincere.records.model import ModelSpec
from sincere.training.optimizers import OptimizerSettings, make_optimizer
from sincere.training.schedules import learning_rate_factor

N_REFERENCES, N_QUERIES = 10_000, 5_000


@dataclass(frozen=True)
class Case:
    """An encoder and the settings it is trained with."""

    widths: tuple[int, ...] = WIDTHS
    stride: int = 2
    optimizer: str = "muon"
    learning_rate: float = 0.1
    weight_decay: float = 0.1
    augmentation: str = "light"
    n_views: int = 1
    batch_views: int = 512
    temperature: float = 0.1
    head: str = "mlp"
    gelu: bool = False


CASES: dict[str, Case] = {
    "chosen": Case(),
    "narrow": Case(widths=(24, 48, 96, 192)),
    "wide": Case(widths=(48, 96, 192, 256)),
    "two stages": Case(widths=(48, 96, 192)),
    "stride 1 stem": Case(widths=(16, 32, 64, 128), stride=1),
    "GELU": Case(gelu=True),
    "SGD, rate 0.5": Case(optimizer="sgd", learning_rate=0.5, weight_decay=5e-4),
    "rate 0.06": Case(learning_rate=0.06, weight_decay=0.17),
    "rate 0.2": Case(learning_rate=0.2, weight_decay=0.05),
    "batches of 256": Case(batch_views=256),
    "batches of 1,024": Case(batch_views=1024),
    "two views": Case(n_views=2),
    "paper's augmentation": Case(augmentation="paper"),
    "no augmentation": Case(augmentation="none"),
    "temperature 0.2": Case(temperature=0.2),
    "temperature 0.05": Case(temperature=0.05),
    "linear head": Case(head="linear"),
}


def build(case: Case, data: Dataset) -> EmbeddingModel:
    torch.manual_seed(0)
    encoder = SmallEncoder(3, case.widths, stride=case.stride)
    if case.gelu:
        for module in encoder.modules():
            for name, child in module.named_children():
                if isinstance(child, nn.ReLU):
                    setattr(module, name, nn.GELU())
    spec = ModelSpec(encoder="small", channels=3, size=32, mean=data.mean, std=data.std)
    head = {"mlp": mlp, "linear": linear}[case.head](case.widths[-1], 128)
    return EmbeddingModel(spec, encoder, head).to(memory_format=torch.channels_last)


@torch.no_grad()
def multiplications(encoder: nn.Module) -> int:
    """Return the number of multiplications of all convolutions for one image, forward."""
    total = 0

    def count(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal total
        assert isinstance(layer, nn.Conv2d)
        total += output.numel() * layer.weight[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in encoder.modules() if isinstance(layer, nn.Conv2d)]
    encoder.eval()(torch.zeros(1, 3, 32, 32))
    encoder.train()
    for hook in hooks:
        hook.remove()
    return total


def run(case: Case, data: Dataset, budget: float) -> dict[str, Any]:
    """Train for `budget` multiplications and return the 1-NN accuracy."""
    model = build(case, data)
    each = multiplications(model.encoder)
    n_steps = int(budget / (3 * each * case.batch_views))
    sampler = make_sampler("shuffle", data.train.labels, case.batch_views // case.n_views, seed=0)
    make_views = view_maker(AUGMENTATIONS[case.augmentation], size=32, n_views=case.n_views)
    loader = ViewLoader(data.train, sampler, make_views)
    settings = OptimizerSettings(
        case.optimizer,
        case.learning_rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=case.weight_decay,
        decay_norms_and_biases=False,
    )
    optimizer = make_optimizer(model, settings)
    for step, batch in enumerate(loader.batches(0, n_steps)):
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * learning_rate_factor(step, n_steps, n_steps // 10)
        embeddings = model(batch.inputs.flatten(0, 1)).view(*batch.inputs.shape[:2], -1)
        loss = sincere_loss(embeddings, batch.labels, temperature=case.temperature)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.eval()
    sets = data.train.subset(data.train.positions[:N_REFERENCES]), data.test.subset(data.test.positions[:N_QUERIES])
    known, queries = (embed(model.embed, plain_batches(part)) for part in sets)
    accuracy = accuracy_1nn(queries.embeddings, queries.labels, known.embeddings, known.labels)
    parameters = sum(p.numel() for p in model.encoder.parameters())
    metrics = {
        "knn1": accuracy,
        "multiplications": each,
        "parameters": parameters,
        "n_views_seen": n_steps * case.batch_views,
    }
    return {**asdict(case), **metrics}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", type=Path, default=Path("data/cifar10.npz"))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--budget", type=float, default=8.0, help="multiplications per case, in 10^12")
    options = parser.parse_args()
    data = load_dataset(options.cifar10)
    for name in options.cases:
        metrics = run(CASES[name], data, options.budget * 1e12)
        path = RESULTS / "shapes.json"
        stored = json.loads(path.read_text())["cases"] if path.exists() else {}
        write("shapes", {"budget": options.budget * 1e12, "cases": {**stored, name: metrics}})
        print(f"{name}: 1-NN {metrics['knn1']:.3f}, {metrics['multiplications'] / 1e6:.1f}M per view", flush=True)


if __name__ == "__main__":
    main()
