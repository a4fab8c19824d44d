"""The arithmetic of an evaluation: bfloat16 where the hardware gains from it and metrics stay the same."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sincere.data.dataset import Samples
from sincere.data.loader import plain_batches
from sincere.evaluation.embed import half_precision_suffices
from sincere.evaluation.projection import sample_positions
from sincere.workflows.hardware import bfloat16_gains

SAMPLE = 1000  # samples on which half precision is tried

Compute = Callable[[Tensor], Tensor]


def choose_arithmetic(
    compute: Compute, embeddings: Compute, samples: Samples, device: torch.device
) -> tuple[Compute, str | None]:
    """Return how to compute, and "bfloat16" or "float32" where there was a choice, else None.

    Args:
        compute: Maps images or features to outputs, in full precision.
        embeddings: Maps outputs to embeddings of unit length, whose metrics must not change.
        samples: Some of them are tried.
        device: Where to compute.
    """
    if not bfloat16_gains(device) or len(samples) < 2:
        return compute, None

    def half(inputs: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return compute(inputs)

    some = samples.subset(sample_positions(len(samples), most=SAMPLE))
    batch = next(plain_batches(some, batch_size=SAMPLE, device=device))
    if half_precision_suffices(
        lambda inputs: embeddings(compute(inputs)), lambda inputs: embeddings(half(inputs)), batch.inputs, batch.labels
    ):
        return half, "bfloat16"
    return compute, "float32"
