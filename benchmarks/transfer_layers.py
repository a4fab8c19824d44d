"""`python -m benchmarks.transfer_layers OUT --data-dir DIR`: transfer, by layer. Writes results/transfer_layers.json.

Why nearest neighbours and the linear probe disagree about transfers from scratch: the first are found in the output of
the head, the second takes the output of the encoder. Here both are measured in both layers, for the models of five
classes of CIFAR-10 on the other five, with RankMe, the effective number of directions. OUT is the folder of `sincere
reproduce --train`, which has the models. About a quarter of an hour on one CPU core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measure import write
from sincere.data.dataset import Dataset
from sincere.data.splits import stratified_split
from sincere.evaluation.geometry import LabelledVectors, rankme
from sincere.evaluation.model_outputs import PartOutputs
from sincere.evaluation.neighbours import find_neighbours
from sincere.evaluation.probe import fast_probe
from sincere.messages import Messages
from sincere.recipes import EXPERIMENTS
from sincere.settings.reproduce_request import ReproduceRequest
from sincere.statistics.bootstrap import intervals, is_significant
from sincere.workflows.embedded_data import embed_data
from sincere.workflows.run_folder import RunFolder
from sincere.workflows.trained_model import load_data, load_trained, stored_settings

RECIPE, TRANSFER = "cifar10-half-small", "other-half"
LAYERS = {"encoder": "features", "head": "embeddings"}  # and the field of `PartOutputs` with its output
ACCURACIES = ("knn1", "linear")
HELD_OUT, SEED, CPU = 0.1, 0, torch.device("cpu")


@dataclass(frozen=True, eq=False)
class LayerOutcome:
    """What the output of a layer of a model is good for.

    Attributes:
        correct: For each accuracy, 1 for each test image that is classified correctly, else 0 (n,).
        rankme: RankMe of the test images.
    """

    correct: dict[str, NDArray[np.float64]]
    rankme: float


def measure_layer(train: PartOutputs, test: PartOutputs, layer: str) -> LayerOutcome:
    """Classify the test images by the output of a layer."""
    outputs: list[Tensor] = [getattr(part, LAYERS[layer]) for part in (train, test)]
    unit = [normalize(output, dim=1) for output in outputs]
    nearest = find_neighbours(unit[1], test.labels, unit[0], train.labels, ks=(1,))
    learn, held_out = stratified_split(train.labels.numpy(), HELD_OUT, seed=SEED)
    probe = fast_probe(outputs[0], train.labels, learn=learn, held_out=held_out)
    correct = {
        "knn1": (nearest.predictions[1] == test.labels).double().numpy(),
        "linear": probe.correct(outputs[1], test.labels).numpy(),
    }
    weights = torch.ones(len(test.labels), dtype=torch.float64)
    return LayerOutcome(correct, float(rankme(LabelledVectors.of(unit[1], test.labels), weights)))


def measured(request: ReproduceRequest) -> Iterator[tuple[str, int, dict[str, LayerOutcome]]]:
    """Yield loss, seed and the layers of each model."""
    messages = Messages()
    data: Dataset | None = None
    for (loss, seed), moved in request.transfers(RECIPE, TRANSFER).items():
        run = RunFolder(moved.run)
        settings, trained = stored_settings(run), load_trained(run)
        if data is None:  # the same for every run
            source = moved.data(size=trained.model.spec.size, data_dir=request.data_dir)
            data = load_data(source, settings, CPU, messages)
        with torch.inference_mode():
            embedded = embed_data(trained.model, data, CPU)
        layers = {layer: measure_layer(embedded.train, embedded.test, layer) for layer in LAYERS}
        shown = {
            layer: {name: round(float(v.mean()), 4) for name, v in o.correct.items()} for layer, o in layers.items()
        }
        messages.say(f"{loss}, seed {seed}: {shown}")
        yield loss, seed, layers


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    request = ReproduceRequest.make(item="transfer", out=arguments.out, data_dir=arguments.data_dir)
    runs = {(loss, seed): layers for loss, seed, layers in measured(request)}
    losses, seeds = list(EXPERIMENTS[RECIPE].losses), EXPERIMENTS[RECIPE].seeds
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for layer in LAYERS:
        of = {loss: [runs[loss, seed][layer] for seed in seeds] for loss in losses}
        found = {
            name: intervals([[outcome.correct[name] for outcome in of[loss]] for loss in losses]) for name in ACCURACIES
        }
        for i, loss in enumerate(losses):
            accuracies = {name: asdict(found[name].estimates[i]) for name in ACCURACIES}
            rows.append({"layer": layer, "loss": loss, **accuracies, "rankme": [o.rankme for o in of[loss]]})
        for name in ACCURACIES:
            (a, b), difference = (losses[0], losses[1]), found[name].differences[0, 1]
            about = {"layer": layer, "metric": name, "a": a, "b": b, "significant": is_significant(difference)}
            differences.append({**about, **asdict(difference)})
    results = {"recipe": RECIPE, "transfer": TRANSFER, "seeds": list(seeds), "rows": rows, "differences": differences}
    print(write("transfer_layers", results))


if __name__ == "__main__":
    main()
