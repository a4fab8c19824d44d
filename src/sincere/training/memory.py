"""Estimates the memory of a training step from a forward pass of a few images, before training starts."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sincere.errors import InputValueError

TRIAL_VIEWS = (2, 4)  # two batch sizes tell what grows with the batch from what does not
SAFETY_FACTOR = 1.2  # for what a step needs besides saved activations: their gradients, the batch, allocator rounding


def step_bytes(model: nn.Module, images: Tensor, n_views: int) -> int:
    """Return the approximate memory of a step with `n_views` views in bytes, from forward passes of a few `images`.

    Saved activations grow with the batch; weights that autocast converts do not. Weights are held three times: with
    their gradient and momentum.
    """
    few, more = TRIAL_VIEWS
    saved_few, saved_more = (_saved_bytes(model, images[:n].clone()) for n in TRIAL_VIEWS)
    per_view = (saved_more - saved_few) / (more - few)
    fixed = saved_few - few * per_view + 3 * sum(p.numel() * p.element_size() for p in model.parameters())
    return int(fixed + SAFETY_FACTOR * per_view * n_views)


def _saved_bytes(model: nn.Module, images: Tensor) -> int:
    """Return the bytes that autograd saves for the backward pass, without the weights."""
    trial = copy.deepcopy(model).train()
    weights = {p.untyped_storage().data_ptr() for p in trial.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = trial(images)  # kept alive, so that no storage is freed and its address reused
    del output
    return sum(saved.values())


def check_memory(needed: int, free: int, *, batch_size: int, n_views: int, encoder: str) -> None:
    """Check that a training step fits into memory.

    Raises:
        InputValueError: It does not; the message has the memory needed, the free memory, and a batch size that fits.
    """
    if needed <= free:
        return
    fitting = int(batch_size * 0.9 * free / needed)
    gigabytes = f"about {needed / 1e9:.3g} GB of memory for a step; {free / 1e9:.3g} GB are free"
    rounded = fitting // 8 * 8 or fitting
    remedy = f"try --batch-size {rounded}, or --micro-batch {rounded}, which keeps the batch as it is"
    remedy = remedy if fitting >= 2 else "try a smaller encoder"
    raise InputValueError(f"train: {encoder} with {batch_size} images x {n_views} views needs {gigabytes}; {remedy}")
