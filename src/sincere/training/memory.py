"""How much memory a training step will need, from a small step, before the real one begins."""

from __future__ import annotations

import copy

import psutil
import torch
from torch import Tensor, nn

from sincere.errors import InputValueError

TRIAL_VIEWS = (2, 4)  # from two sizes: what grows with the batch, and what does not
MARGIN = 1.2  # what a step holds beyond saved activations: gradients on their way, the batch, allocator rounding


def free_bytes(device: torch.device) -> int:
    """Return the memory that is free on a device; of the system where it shares that."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def step_bytes(model: nn.Module, images: Tensor, n_views: int) -> int:
    """Return about how many bytes a step with `n_views` views needs, from steps with a few of `images`.

    What autograd saves grows with the batch, but for weights cast to another type; weights are held with their gradient
    and momentum.
    """
    few, more = TRIAL_VIEWS
    saved_few, saved_more = (_saved_bytes(model, images[:n].clone()) for n in TRIAL_VIEWS)
    per_view = (saved_more - saved_few) / (more - few)
    fixed = saved_few - few * per_view + 3 * sum(p.numel() * p.element_size() for p in model.parameters())
    return int(fixed + MARGIN * per_view * n_views)


def _saved_bytes(model: nn.Module, images: Tensor) -> int:
    """Return the bytes that autograd saves in one forward pass, besides the weights."""
    trial = copy.deepcopy(model).train()
    weights = {p.untyped_storage().data_ptr() for p in trial.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = trial(images)  # held, so that no storage is freed and counted for another
    del output
    return sum(saved.values())


def check_memory(needed: int, free: int, *, batch_size: int, n_views: int, encoder: str) -> None:
    """Raise if a step will not fit, with a batch size that would.

    Raises:
        InputValueError: The message says how much is needed and how much is free.
    """
    if needed <= free:
        return
    fitting = int(batch_size * 0.9 * free / needed)
    gigabytes = f"about {needed / 1e9:.3g} GB of memory for a step; {free / 1e9:.3g} GB are free"
    rounded = fitting // 8 * 8 or fitting
    remedy = f"try --batch-size {rounded}, or --micro-batch {rounded}, which keeps the batch as it is"
    remedy = remedy if fitting >= 2 else "try a smaller encoder"
    raise InputValueError(f"train: {encoder} with {batch_size} images x {n_views} views needs {gigabytes}; {remedy}")
