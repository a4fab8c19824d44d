"""What the training loop is given: its length and intervals, and the functions that it calls."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from sincere.losses.queue import MemoryQueue


class Views(Protocol):
    """A batch: views (n, n_views, ...) of images or features, and labels (n,) or label sets (n, L)."""

    @property
    def inputs(self) -> Tensor:
        """Views of the samples."""
        ...

    @property
    def labels(self) -> Tensor:
        """Class of each image."""
        ...


class MicroBatchedViews(Protocol):
    """A batch that the network sees in micro-batches."""

    @property
    def labels(self) -> Tensor:
        """Class of each image of the batch."""
        ...

    @property
    def pieces(self) -> Callable[[], Generator[Views, None, None]]:
        """Returns a generator of the micro-batches, the same ones on each call."""
        ...


@dataclass(frozen=True)
class LoopFunctions:
    """The functions that the loop calls.

    Attributes:
        batches: Returns the batches from one step to another, counted over all epochs; in micro-batches if the plan
            says so.
        loss: Maps the network's output (n, n_views, d), which begins with the embeddings, and labels (n,) to a loss.
        inspect: Maps output and labels of the last batch of an epoch to metrics: the "chance" and "floor" of the
            loss, and optionally others.
        validate: Returns live 1-NN accuracies of the model by name.
        gather: Maps the embeddings and labels of this process to those of all processes.
        queue: Receives the embeddings of each batch after its step, for the loss of later ones; None without.
        loss_state: A module whose buffers the loss changes from step to step; None without.
    """

    batches: Callable[[int, int], Generator[Views | MicroBatchedViews, None, None]]
    loss: Callable[[Tensor, Tensor], Tensor]
    inspect: Callable[[Tensor, Tensor], dict[str, float]]
    validate: Callable[[], dict[str, float]]
    gather: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda embeddings, labels: (embeddings, labels)
    queue: MemoryQueue | None = None
    loss_state: nn.Module | None = None


@dataclass(frozen=True)
class Plan:
    """Length of a run, and how often it is validated and saved.

    Attributes:
        n_epochs: Number of epochs.
        steps_per_epoch: Number of batches in an epoch.
        n_warmup: Number of warm-up steps of the learning rate schedule.
        schedule: How the learning rate falls: a name in `SCHEDULES`.
        clip_norm: Largest norm of the gradient; None for no clipping.
        validate_every: Number of epochs between live validations.
        score: Name of the live metric that decides which checkpoint is the best; None to track none.
        early_stop: Number of validations without a better score after which the run ends; None to never stop early.
        checkpoint_seconds: Longest time between two checkpoints.
        uses_micro_batches: Whether the network sees a batch in micro-batches.
        dim: Dimension of an embedding, where more follows in the output of the network; None where nothing does.
    """

    n_epochs: int
    steps_per_epoch: int
    n_warmup: int
    schedule: str = "cosine"
    clip_norm: float | None = None
    validate_every: int = 10
    score: str | None = None
    early_stop: int | None = None
    checkpoint_seconds: float = 300.0
    uses_micro_batches: bool = False
    dim: int | None = None

    @property
    def n_steps(self) -> int:
        """Number of steps over all epochs."""
        return self.n_epochs * self.steps_per_epoch
