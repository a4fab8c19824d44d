"""`python -m benchmarks.recipe --cases NAME ...`: parts of the recipe of `small` left out or changed, at equal time.

Each case trains on 45,000 images of CIFAR-10 and is judged by the 1-NN accuracy of the other 5,000 training images; the
test part is not used. The time of a step, views included, is measured in turns with that of the recipe as it is, and
the number of views follows from it, so that other load on the machine does not change the result. Adds the cases to
results/recipe.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from benchmarks.measure import RESULTS, write
from sincere import sincere_loss
from sincere.catalog import AUGMENTATIONS, Augmentation
from sincere.data.catalog import load_dataset
from sincere.data.dataset import Dataset, Samples
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
from sincere.workflows.assembly import STEM_IMAGES
from sincere.workflows.timing import ratio, time_in_turns

SHIFTS = AUGMENTATIONS["shifts"]
assert isinstance(SHIFTS, Augmentation)


@dataclass(frozen=True)
class Case:
    """What a run differs in from the recipe.

    Attributes:
        change: Changes the encoder after its stem was whitened.
        small_until: Fraction of the run in which images have half their side.
        average: Fraction of the run, at its end, over which the weights are averaged.
    """

    widths: tuple[int, ...] = WIDTHS
    change: Callable[[SmallEncoder], None] | None = None
    learning_rate: float = 0.06
    weight_decay: float = 0.17
    augmentation: Any = SHIFTS
    n_views: int = 1
    batch_views: int = 512
    temperature: float = 0.1
    head: Callable[[int, int], nn.Module] = linear
    schedule: str = "linear"
    small_until: float = 0.0
    average: float = 0.0


def random_stem(encoder: SmallEncoder) -> None:
    stem = encoder.stem[0]
    assert isinstance(stem, nn.Conv2d)
    stem.reset_parameters()
    stem.requires_grad_(True)


def stem_bias(encoder: SmallEncoder) -> None:
    stem = encoder.stem[0]
    assert isinstance(stem, nn.Conv2d)
    stem.bias = nn.Parameter(torch.zeros(stem.out_channels))


def random_convolutions(encoder: SmallEncoder) -> None:
    for layer in encoder.stages.modules():
        if isinstance(layer, nn.Conv2d):
            layer.reset_parameters()


def trained_scales(encoder: SmallEncoder) -> None:
    for layer in encoder.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.weight.requires_grad_(True)
            layer.momentum = 0.1


def relu(encoder: SmallEncoder) -> None:
    for module in list(encoder.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.GELU):
                setattr(module, name, nn.ReLU(inplace=True))


def average_pooling(encoder: SmallEncoder) -> None:
    encoder.stages.append(nn.AdaptiveAvgPool2d(1))


RECIPE = "recipe"
CASES: dict[str, Case] = {
    RECIPE: Case(),
    "random stem, trained": Case(change=random_stem),
    "trained bias in the stem": Case(change=stem_bias),
    "random initialisation": Case(change=random_convolutions),
    "trained batch-norm scales, momentum 0.1": Case(change=trained_scales),
    "ReLU": Case(change=relu),
    "average pooling": Case(change=average_pooling),
    "random flips": Case(augmentation=replace(SHIFTS, alternate_flips=False)),
    "crops (light)": Case(augmentation=AUGMENTATIONS["light"]),
    "cosine": Case(schedule="cosine"),
    "two views": Case(n_views=2),
    "batches of 256": Case(batch_views=256, learning_rate=0.045),
    "batches of 1,024": Case(batch_views=1024, learning_rate=0.08),
    "MLP head": Case(head=mlp),
    "temperature 0.05": Case(temperature=0.05),
    "temperature 0.2": Case(temperature=0.2),
    "learning rate 0.04": Case(learning_rate=0.04),
    "learning rate 0.09": Case(learning_rate=0.09),
    "16 px for the first third": Case(small_until=1 / 3),
    "average of the last tenth": Case(average=0.1),
    "narrow (32, 64, 128)": Case(widths=(32, 64, 128)),
    "wide (64, 128, 256)": Case(widths=(64, 128, 256)),
}


@dataclass(eq=False)
class Run:
    """A case, ready to take steps."""

    case: Case
    model: EmbeddingModel
    loader: ViewLoader
    optimizer: torch.optim.Optimizer

    def step(self, step: int, n_steps: int, inputs: Tensor, labels: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * learning_rate_factor(
                step, n_steps, n_steps // 10, schedule=self.case.schedule
            )
        images = inputs.flatten(0, 1)
        if step < self.case.small_until * n_steps:
            images = interpolate(images, scale_factor=0.5, mode="bilinear", antialias=True)
            # Past the preparation, which would enlarge them again.
            normalised = (images - self.model.preparation.mean) / self.model.preparation.std
            rows = self.model.head(self.model.encoder(normalised))
        else:
            rows = self.model(images)
        loss = sincere_loss(rows.view(*inputs.shape[:2], -1), labels, temperature=self.case.temperature)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def timed_step(self) -> None:
        """Take one step as the loop does, but wait for its views; the learning rate is near 0."""
        batch = self.loader.batch(0)
        self.step(0, 1000, batch.inputs, batch.labels)


def build(case: Case, data: Dataset, train: Samples) -> Run:
    torch.manual_seed(0)
    spec = ModelSpec(encoder="small", channels=3, size=32, mean=data.mean, std=data.std)
    encoder = SmallEncoder(3, case.widths)
    model = EmbeddingModel(spec, encoder, case.head(case.widths[-1], 128))
    encoder.whiten_stem(model.preparation(train.items.gather(train.positions[:STEM_IMAGES])))
    if case.change is not None:
        case.change(encoder)
    model.to(memory_format=torch.channels_last)
    sampler = make_sampler("shuffle", train.labels, case.batch_views // case.n_views, seed=0)
    loader = ViewLoader(train, sampler, view_maker(case.augmentation, size=32, n_views=case.n_views))
    settings = OptimizerSettings("muon", case.learning_rate, weight_decay=case.weight_decay)
    return Run(case, model, loader, make_optimizer(model, settings))


def relative_cost(case: Case, data: Dataset, train: Samples) -> float:
    """Return the time per view relative to the recipe's."""
    runs = {RECIPE: build(CASES[RECIPE], data, train), "case": build(case, data, train)}
    times = time_in_turns({name: run.timed_step for name, run in runs.items()}, seconds=4.0, least=4)
    per_step = 1 / ratio(times["case"], times[RECIPE])
    cost = per_step * CASES[RECIPE].batch_views / case.batch_views
    return cost * (1 - 0.75 * case.small_until)  # a quarter of the positions


def measure(case: Case, data: Dataset, n_views: int) -> dict[str, Any]:
    """Train on as many views as the recipe takes `n_views` in the same time; return the accuracy on validation."""
    train, held_out = data.validation_split(0.1, seed=0)
    cost = 1.0 if case == CASES[RECIPE] else relative_cost(case, data, train)
    run = build(case, data, train)
    n_steps = int(n_views / cost / case.batch_views)
    averages: dict[str, Tensor] = {}
    n_averaged = 0
    for step, batch in enumerate(run.loader.batches(0, n_steps)):
        run.step(step, n_steps, batch.inputs, batch.labels)
        if case.average and step >= (1 - case.average) * n_steps:
            n_averaged += 1
            for name, value in run.model.state_dict().items():
                if value.is_floating_point():
                    averages.setdefault(name, torch.zeros_like(value)).lerp_(value, 1 / n_averaged)
    run.model.load_state_dict(averages, strict=False)
    run.model.eval()
    known, queries = (embed(run.model.embed, plain_batches(part)) for part in (train, held_out))
    accuracy = accuracy_1nn(queries.embeddings, queries.labels, known.embeddings, known.labels)
    return {"knn1_validation": accuracy, "cost": cost, "n_views_seen": n_steps * case.batch_views}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", type=Path, default=Path("data/cifar10.npz"))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--views", type=int, default=150_000, help="views that the recipe sees: about three minutes")
    options = parser.parse_args()
    data = load_dataset(options.cifar10)
    for name in options.cases:
        found = measure(CASES[name], data, options.views)
        path = RESULTS / "recipe.json"
        stored = json.loads(path.read_text())["cases"] if path.exists() else {}
        write("recipe", {"n_views": options.views, "cases": {**stored, name: found}})
        print(f"{name}: 1-NN {found['knn1_validation']:.4f}, cost {found['cost']:.2f}", flush=True)


if __name__ == "__main__":
    main()
