"""The training loop, on Lightning Fabric. It knows no data set and no loss: the workflow hands in what it calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch import Tensor

from sincere.errors import DataError, SincereError, first_line
from sincere.records.log import MetricsLog
from sincere.training.checkpoints import Checkpoints, random_states, restore_random_states
from sincere.training.diagnostics import mean_similarities, warnings
from sincere.training.interruption import InterruptedRunError, StopRequest
from sincere.training.micro_batches import backward_in_pieces
from sincere.training.progress import Reporter
from sincere.training.schedules import learning_rate_factor

SETTLE_STEPS = 20  # losses stay on the device for so many steps, so that a step forces no wait for it


class TrainingError(SincereError):
    """The loss is no longer finite."""


class Views(Protocol):
    """A batch: views (n, v, c, h, w) and labels (n,)."""

    @property
    def images(self) -> Tensor:
        """Views."""
        ...

    @property
    def labels(self) -> Tensor:
        """Classes."""
        ...


class PiecedViews(Protocol):
    """A batch that is seen in pieces."""

    @property
    def labels(self) -> Tensor:
        """Classes of all its images."""
        ...

    @property
    def pieces(self) -> Callable[[], Generator[Views, None, None]]:
        """Makes its pieces, the same ones each time."""
        ...


@dataclass(frozen=True)
class Calls:
    """What the loop calls.

    Attributes:
        batches: Batches from one step to another, counted over all epochs; in pieces where the plan says so.
        loss: Embeddings (n, views, d) and labels to a loss.
        inspect: Embeddings and labels of an epoch's last batch to figures of it: the loss's "chance" and "floor", and
            what else there is to say.
        validate: Live 1-NN accuracies of the model by name.
        whole: This process's embeddings and labels of a batch to those of all processes.
    """

    batches: Callable[[int, int], Generator[Views | PiecedViews, None, None]]
    loss: Callable[[Tensor, Tensor], Tensor]
    inspect: Callable[[Tensor, Tensor], dict[str, float]]
    validate: Callable[[], dict[str, float]]
    whole: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda embeddings, labels: (embeddings, labels)


@dataclass(frozen=True)
class Plan:
    """How long and how often.

    Attributes:
        n_epochs: In all.
        steps_per_epoch: Batches in one.
        n_warmup: Steps of warm-up.
        clip_norm: Largest norm of the gradient, or None.
        validate_every: Epochs between live checks.
        score: The live figure that decides which checkpoint is the best, or None.
        early_stop: Live checks without a better score before the run ends, or None.
        checkpoint_seconds: Longest time between checkpoints.
        in_pieces: Whether the network sees a batch piece by piece.
    """

    n_epochs: int
    steps_per_epoch: int
    n_warmup: int
    clip_norm: float | None = None
    validate_every: int = 10
    score: str | None = None
    early_stop: int | None = None
    checkpoint_seconds: float = 300.0
    in_pieces: bool = False

    @property
    def n_steps(self) -> int:
        """Steps in all."""
        return self.n_epochs * self.steps_per_epoch


@dataclass
class Progressed:
    """What the loop carries from step to step, besides weights; all of it is in a checkpoint.

    Attributes:
        step: Steps done.
        seconds: Time spent so far, in all sessions.
        loss_sum: Of the epoch so far; likewise the sums below.
        best: Best score so far.
        best_epoch: Its epoch.
        checks_since_best: Live checks since.
        stopped_early: Whether the run ended before its last epoch.
    """

    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    wait_seconds: float = 0.0
    epoch_seconds: float = 0.0
    images: int = 0
    best: float = -math.inf
    best_epoch: int = 0
    checks_since_best: int = 0
    stopped_early: bool = False

    def begin_epoch(self) -> None:
        """Empty the epoch's sums."""
        self.loss_sum = self.wait_seconds = self.epoch_seconds = 0.0
        self.images = 0


def _progressed(stored: Mapping[str, Any], n_steps: int) -> Progressed:
    """Return how far a run had come, if that is possible.

    Raises:
        TypeError, ValueError: A checkpoint says something else.
    """
    done = Progressed(**stored)
    for part in fields(Progressed):
        value = getattr(done, part.name)
        if not isinstance(value, {"int": int, "bool": bool}.get(str(part.type), int | float)):
            raise TypeError(f"{part.name} is {value!r}")
    if not 0 <= done.step <= n_steps:
        raise ValueError(f"step {done.step} of {n_steps}")
    return done


@dataclass(eq=False)
class Fit:
    """A run of the loop.

    Attributes:
        fabric: Device and precision.
        model: As Fabric wrapped it.
        optimizer: Likewise.
        plan: How long and how often.
        calls: What to call.
        checkpoints: Where to save.
        log: Where rows go.
        reporter: Who is told.
        identity: Stored in each checkpoint: what the run is.
        done: How far it has come.
        rows: The metrics of each epoch so far, as in the log.
    """

    fabric: Fabric
    model: _FabricModule
    optimizer: torch.optim.Optimizer
    plan: Plan
    calls: Calls
    checkpoints: Checkpoints
    log: MetricsLog
    reporter: Reporter
    identity: Mapping[str, Any]
    done: Progressed = field(default_factory=Progressed)
    rows: list[dict[str, Any]] = field(default_factory=list)
    stop: StopRequest = field(default_factory=StopRequest)

    def run(self) -> Progressed:
        """Train to the end, from the last checkpoint if `resume` found one.

        Raises:
            TrainingError: The loss is not finite; the last checkpoint is from before that.
            InterruptedRunError: SIGTERM or Ctrl-C; a checkpoint was written.
        """
        plan, done = self.plan, self.done
        self._saved_at, self._warned = time.monotonic(), set[str]()
        self._unsettled: list[Tensor] = []
        self.reporter.start(done.step, plan.n_steps)
        try:
            with self.stop, closing(self.calls.batches(done.step, plan.n_steps)) as batches:
                while done.step < plan.n_steps and not done.stopped_early:
                    self._epoch(batches)
        finally:
            self.reporter.stop()
        return done

    def resume(self) -> list[str]:
        """Return to the last checkpoint that is intact, or to the start; return notes for the user.

        The log is written anew from the checkpoint: rows after it go, and damaged ones are repaired.

        Raises:
            DataError: A checkpoint cannot be read at the moment, or is of another run.
        """
        content, notes = self.checkpoints.last()
        if content is not None:
            self._check_identity(content["identity"])
            try:
                self._restore(content)
            except Exception as error:
                reason = first_line(error)
                raise DataError(
                    f"{self.checkpoints.folder}: its checkpoint does not fit this run ({reason})"
                ) from error
        if self.fabric.is_global_zero:
            if damaged := self.log.damaged():
                lines = ", ".join(map(str, damaged))
                notes.append(f"{self.log.path}: damaged lines ({lines}) were written again from the checkpoint")
            self.log.rewrite(self.rows)
        return notes

    def _restore(self, content: Mapping[str, Any]) -> None:
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.fabric.strategy.precision.load_state_dict(content["precision"])
        self.done = _progressed(content["progress"], self.plan.n_steps)
        self.rows = [dict(row) for row in content["rows"]]
        if [row["epoch"] for row in self.rows] != list(range(1, self.done.step // self.plan.steps_per_epoch + 1)):
            raise ValueError("its rows are not those of its epochs")
        if not all(isinstance(row["loss"], float) for row in self.rows):
            raise TypeError("a loss is not a number")
        restore_random_states(content["random"])

    def _check_identity(self, stored: Mapping[str, Any]) -> None:
        for name, value in self.identity.items():
            if not isinstance(stored, dict) or stored.get(name) != value:
                was = stored.get(name) if isinstance(stored, dict) else None
                raise DataError(
                    f"{self.checkpoints.folder}: its checkpoint has {name} = {was!r}, not {value!r}; set it back, or "
                    "start over with --overwrite"
                )

    def _epoch(self, batches: Iterator[Views | PiecedViews]) -> None:
        plan, done = self.plan, self.done
        epoch = done.step // plan.steps_per_epoch + 1
        if done.step % plan.steps_per_epoch == 0:
            done.begin_epoch()
        self.model.train()
        end = epoch * plan.steps_per_epoch
        began = time.monotonic()
        while done.step < end:
            asked = time.monotonic()
            batch = next(batches)
            done.wait_seconds += time.monotonic() - asked
            embeddings = self._step(batch)
            if done.step == end:
                self._settle()
                figures = self._inspect(embeddings, batch.labels)
            now = time.monotonic()
            done.epoch_seconds, done.seconds = done.epoch_seconds + now - began, done.seconds + now - began
            began = now
            stopped = self._stopped()
            if stopped is not None:
                self._settle()
                if done.step < end:
                    self._save()
                    self.fabric.barrier()  # whoever leaves first must not take the one down that still writes
                    raise InterruptedRunError(f"stopped by {stopped} after step {done.step:,} of {plan.n_steps:,}")
            if done.step < end and now - self._saved_at > plan.checkpoint_seconds:
                self._save()
        self._finish_epoch(epoch, figures)
        if stopped is not None:
            self._save()
            self.fabric.barrier()
            raise InterruptedRunError(f"stopped by {stopped} after epoch {epoch} of {plan.n_epochs}")

    def _stopped(self) -> str | None:
        """Return the signal that asked to stop, this process or another one that shares the run."""
        name = self.stop.name
        if self.fabric.world_size == 1:
            return name
        asked = self.fabric.strategy.reduce_boolean_decision(name is not None, all=False)
        return name or ("a signal to another process" if asked else None)

    def _step(self, batch: Views | PiecedViews) -> Tensor:
        """Take one step; return the embeddings (n, views, d), detached."""
        plan, done = self.plan, self.done
        factor = learning_rate_factor(done.step, plan.n_steps, plan.n_warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self.optimizer.zero_grad(set_to_none=True)
        loss, embeddings = self._backward(batch)
        if plan.clip_norm is not None:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=plan.clip_norm, error_if_nonfinite=False)
        self.optimizer.step()
        self._unsettled.append(loss)
        done.step, done.images = done.step + 1, done.images + len(embeddings) * self.fabric.world_size
        if len(self._unsettled) >= SETTLE_STEPS:
            self._settle()
        self.reporter.step(done.step)
        return embeddings

    def _backward(self, batch: Views | PiecedViews) -> tuple[Tensor, Tensor]:
        """Put the gradient of a batch into the parameters; return its loss and embeddings (n, views, d), detached."""
        n = len(batch.labels)
        if self.plan.in_pieces:
            pieces = cast(PiecedViews, batch).pieces
            loss, rows = backward_in_pieces(
                self.fabric,
                self.model,
                lambda: (piece.images.flatten(0, 1) for piece in pieces()),
                lambda rows: self.calls.loss(rows.view(n, len(rows) // n, -1), batch.labels),
            )
            return loss, rows.view(n, len(rows) // n, -1)
        images = cast(Views, batch).images
        embeddings: Tensor = self.model(images.flatten(0, 1)).view(*images.shape[:2], -1)
        loss = self.calls.loss(embeddings, batch.labels)
        self.fabric.backward(loss)
        return loss.detach(), embeddings.detach()

    def _settle(self) -> None:
        """Take the losses of the last steps off the device and look at them."""
        if not self._unsettled:
            return
        losses = torch.stack(self._unsettled).double().tolist()
        first = self.done.step - len(losses) + 1
        self._unsettled.clear()
        for step, loss in enumerate(losses, start=first):
            if not math.isfinite(loss):
                raise self._failure(f"the loss is {loss} at step {step:,}")
            self.done.loss_sum += loss

    def _check_weights(self) -> None:
        if not all(bool(torch.isfinite(value).all()) for value in self.model.parameters()):
            raise self._failure(f"the weights are not finite after step {self.done.step:,}")

    def _failure(self, what: str) -> TrainingError:
        kept = self.checkpoints.paths()
        where = f"the last checkpoint is {kept[-1].name}" if kept else "there was no checkpoint yet"
        remedy = "Start over with --overwrite and a lower --learning-rate, --clip-norm 1, or --precision 32-true"
        return TrainingError(f"train: {what}; {where}. {remedy}")

    def _inspect(self, embeddings: Tensor, labels: Tensor) -> dict[str, float | None]:
        """Return the figures of an epoch's last batch."""
        embeddings, labels = self.calls.whole(embeddings, labels)
        partner, noise = mean_similarities(embeddings, labels)
        return {"partner_similarity": partner, "noise_similarity": noise, **self.calls.inspect(embeddings, labels)}

    def _finish_epoch(self, epoch: int, figures: Mapping[str, float | None]) -> None:
        plan, done = self.plan, self.done
        steps = plan.steps_per_epoch
        row: dict[str, Any] = {
            "epoch": epoch,
            "n_epochs": plan.n_epochs,
            "step": done.step,
            "loss": done.loss_sum / steps,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "images_per_second": done.images / done.epoch_seconds,
            "data_wait_share": done.wait_seconds / done.epoch_seconds,
            "seconds": done.seconds,
            **figures,
        }
        if epoch % plan.validate_every == 0 or epoch == plan.n_epochs:
            began = time.monotonic()
            self._check_weights()
            self.model.eval()
            row |= self.fabric.broadcast(self.calls.validate())  # one figure decides for all
            done.seconds += time.monotonic() - began
            self._judge(row)
        self.rows.append(row)
        if self.fabric.is_global_zero:
            self.log.append(row)
        self.reporter.epoch(row)
        for kind, text in warnings(row, warmup_epochs=plan.n_warmup / steps).items():
            if kind not in self._warned:
                self._warned.add(kind)
                self.reporter.say(f"warning: {text}")
        last = epoch == plan.n_epochs or done.stopped_early
        if last or time.monotonic() - self._saved_at >= plan.checkpoint_seconds / 10:
            self._save()

    def _judge(self, row: Mapping[str, Any]) -> None:
        """Keep the best checkpoint, and stop when it has not been beaten for long enough."""
        done, plan = self.done, self.plan
        if plan.score is None:
            return
        if row[plan.score] > done.best:
            done.best, done.best_epoch, done.checks_since_best = row[plan.score], row["epoch"], 0
            self._write(self.checkpoints.save_best)
        else:
            done.checks_since_best += 1
            done.stopped_early = plan.early_stop is not None and done.checks_since_best >= plan.early_stop
            if done.stopped_early:
                self.reporter.say(f"stopped early: no better 1-NN since epoch {done.best_epoch}")

    def _content(self) -> dict[str, Any]:
        """Return all that a checkpoint holds, if it is worth keeping."""
        self._settle()
        self._check_weights()
        return {
            "identity": dict(self.identity),
            "progress": asdict(self.done),
            "rows": self.rows,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "random": random_states(),
        }

    def _save(self) -> None:
        self._write(lambda content: self.checkpoints.save(content, self.done.step))
        self._saved_at = time.monotonic()

    def _write(self, save: Callable[[dict[str, Any]], object]) -> None:
        """Let the first of the processes save; all look at what would be saved."""
        content = self._content()
        if self.fabric.is_global_zero:
            with self.stop.holding():
                save(content)
