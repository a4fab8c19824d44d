"""The training loop, on Lightning Fabric. It depends on no data set and no loss: those are passed in as functions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, cast

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch import Tensor

from sincere.errors import DataError, SincereError, first_line
from sincere.losses.distributed.collectives import host_group
from sincere.messages import Messages
from sincere.records.log import MetricsLog
from sincere.training.checkpoints import Checkpoints, random_states, restore_random_states
from sincere.training.diagnostics import lasting_warnings, mean_similarities
from sincere.training.interruption import InterruptedRunError, StopRequest
from sincere.training.micro_batches import backward_in_micro_batches
from sincere.training.plan import LoopFunctions, MicroBatchedViews, Plan, Views
from sincere.training.progress import Reporter
from sincere.training.schedules import learning_rate_factor
from sincere.training.state import TrainingState, check_identity, read_rows, read_state

UNTIMED_STEPS, MOST_TIMED_STEPS, TIMED_SECONDS = 2, 20, 10.0  # of the timing: the first steps allocate memory
FLUSH_STEPS = 20  # steps after which losses are copied from the device: doing so in each step would stall it


class TrainingError(SincereError):
    """The loss or a weight is no longer finite."""


@dataclass(eq=False)
class Fit:
    """A training run.

    Attributes:
        fabric: Device, precision and processes.
        model: The network, wrapped by Fabric.
        optimizer: The optimizer, wrapped by Fabric.
        plan: Length of the run and its intervals.
        calls: Functions that the loop calls.
        checkpoints: The checkpoints of the run.
        log: The metrics on disk, a row for each epoch.
        reporter: Receives the progress of the run.
        messages: Receives what the user should know.
        identity: Settings and data of the run, stored in each checkpoint.
        state: State of the loop.
        rows: Metrics of each epoch so far, as in the log.
        stop: Receives requests to stop.
    """

    fabric: Fabric
    model: _FabricModule
    optimizer: torch.optim.Optimizer
    plan: Plan
    calls: LoopFunctions
    checkpoints: Checkpoints
    log: MetricsLog
    reporter: Reporter
    messages: Messages
    identity: Mapping[str, Any]
    state: TrainingState = field(default_factory=TrainingState)
    rows: list[dict[str, Any]] = field(default_factory=list)
    stop: StopRequest = field(default_factory=StopRequest)
    _pending_losses: list[Tensor] = field(default_factory=list, init=False)
    _saved_at: float = field(default=0.0, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    def resume(self) -> list[str]:
        """Restore the last intact checkpoint, if there is one, and return notes for the user.

        The log is rewritten from the checkpoint: later rows are dropped, and damaged ones are repaired.

        Raises:
            DataError: A checkpoint cannot be read at the moment, or is of another run.
        """
        content, notes = self.checkpoints.last()
        if content is not None:
            check_identity(self.checkpoints.folder, self.identity, content["identity"])
            try:
                self._restore(content)
            except Exception as error:
                problem = f"its checkpoint does not fit this run ({first_line(error)})"
                raise DataError(f"{self.checkpoints.folder}: {problem}") from error
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
        if self.calls.queue is not None:
            self.calls.queue.load_state_dict(content["queue"])
        if self.calls.loss_state is not None:
            self.calls.loss_state.load_state_dict(content["loss"])
        self.state = read_state(content["progress"], self.plan)
        self.rows = read_rows(content["rows"], self.state, self.plan)
        restore_random_states(content["random"])

    def epoch_seconds(self) -> float:
        """Return how long an epoch takes, with its share of the validations, from the first steps.

        These change the model, so that the run must be prepared again.
        """
        self.model.train()
        with closing(self.calls.batches(0, UNTIMED_STEPS + MOST_TIMED_STEPS)) as batches:
            seconds = [self._timed_step(batches) for _ in range(UNTIMED_STEPS + 1)][-1:]
            n_steps = self.fabric.broadcast(min(MOST_TIMED_STEPS - 1, int(TIMED_SECONDS / seconds[0])))
            seconds += [self._timed_step(batches) for _ in range(n_steps)]
        started = time.monotonic()
        self.model.eval()
        self.calls.validate()
        validation = (time.monotonic() - started) / self.plan.validate_every
        # The median: other work on the machine delays single steps.
        found: float = self.fabric.broadcast(median(seconds) * self.plan.steps_per_epoch + validation)
        return found

    def _timed_step(self, batches: Iterator[Views | MicroBatchedViews]) -> float:
        started = time.monotonic()
        batch = next(batches)
        self._enqueue(self._step(batch), batch.labels)
        self._flush_losses()  # waits for the device
        return time.monotonic() - started

    def run(self) -> TrainingState:
        """Train to the end, from the last checkpoint after a call of `resume`.

        Raises:
            TrainingError: The loss is not finite; the last checkpoint is from before that.
            InterruptedRunError: SIGTERM or Ctrl-C was received; a checkpoint was written.
        """
        plan, state = self.plan, self.state
        self._saved_at = time.monotonic()
        self.reporter.start(state.step, plan.n_steps)
        try:
            with self.stop, closing(self.calls.batches(state.step, plan.n_steps)) as batches:
                while state.step < plan.n_steps and not state.stopped_early:
                    self._epoch(batches)
        finally:
            self.reporter.stop()
        return state

    def _epoch(self, batches: Iterator[Views | MicroBatchedViews]) -> None:
        plan, state = self.plan, self.state
        epoch = state.step // plan.steps_per_epoch + 1
        if state.step % plan.steps_per_epoch == 0:
            state.start_epoch()
        self.model.train()
        end = epoch * plan.steps_per_epoch
        started = time.monotonic()
        while state.step < end:
            wait_started = time.monotonic()
            batch = next(batches)
            state.wait_seconds += time.monotonic() - wait_started
            outputs = self._step(batch)
            if state.step == end:
                self._flush_losses()
                metrics = self._inspect(outputs, batch.labels)
            self._enqueue(outputs, batch.labels)  # after the inspection, which sees the queue that the loss has seen
            now = time.monotonic()
            state.epoch_seconds, state.seconds = state.epoch_seconds + now - started, state.seconds + now - started
            started = now
            signal = self._stop_signal()
            if signal is not None:
                self._flush_losses()
                if state.step < end:
                    self._save()
                    self.fabric.barrier()  # a process that exits early would take down the one that is still writing
                    raise InterruptedRunError(f"stopped by {signal} after step {state.step:,} of {plan.n_steps:,}")
            if state.step < end and now - self._saved_at > plan.checkpoint_seconds:
                self._save()
        self._finish_epoch(epoch, metrics)
        if signal is not None:
            self._save()
            self.fabric.barrier()
            raise InterruptedRunError(f"stopped by {signal} after epoch {epoch} of {plan.n_epochs}")

    def _step(self, batch: Views | MicroBatchedViews) -> Tensor:
        """Take one step and return the network's output (n, n_views, d), detached."""
        plan, state = self.plan, self.state
        factor = learning_rate_factor(state.step, plan.n_steps, plan.n_warmup, schedule=plan.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self.optimizer.zero_grad(set_to_none=True)
        loss, outputs = self._backward(batch)
        if plan.clip_norm is not None:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=plan.clip_norm, error_if_nonfinite=False)
        self.optimizer.step()
        self._pending_losses.append(loss)
        state.step, state.images = state.step + 1, state.images + len(outputs) * self.fabric.world_size
        if len(self._pending_losses) >= FLUSH_STEPS:
            self._flush_losses()
        self.reporter.step(state.step)
        return outputs

    def _enqueue(self, outputs: Tensor, labels: Tensor) -> None:
        if self.calls.queue is not None:
            self.calls.queue.enqueue(outputs[..., : self.plan.dim], labels)

    def _backward(self, batch: Views | MicroBatchedViews) -> tuple[Tensor, Tensor]:
        """Compute the gradient of a batch; return its loss and the network's output (n, n_views, d), detached."""
        n = len(batch.labels)
        if self.plan.uses_micro_batches:
            pieces = cast(MicroBatchedViews, batch).pieces
            loss, rows = backward_in_micro_batches(
                self.fabric,
                self.model,
                lambda: (piece.inputs.flatten(0, 1) for piece in pieces()),
                lambda rows: self.calls.loss(rows.view(n, len(rows) // n, -1), batch.labels),
            )
            return loss, rows.view(n, len(rows) // n, -1)
        views = cast(Views, batch).inputs
        outputs: Tensor = self.model(views.flatten(0, 1)).view(*views.shape[:2], -1)
        loss = self.calls.loss(outputs, batch.labels)
        self.fabric.backward(loss)
        return loss.detach(), outputs.detach()

    def _flush_losses(self) -> None:
        """Copy the pending losses from the device, check that they are finite, and add them to the sum."""
        if not self._pending_losses:
            return
        losses = torch.stack(self._pending_losses).double().tolist()
        first = self.state.step - len(losses) + 1
        self._pending_losses.clear()
        for step, loss in enumerate(losses, start=first):
            if not math.isfinite(loss):
                raise self._failure(f"the loss is {loss} at step {step:,}")
            self.state.loss_sum += loss

    def _stop_signal(self) -> str | None:
        """Return the name of a signal that this process, or another process of the run, has received."""
        name = self.stop.name
        if self.fabric.world_size == 1:
            return name
        requested = torch.tensor(int(name is not None))
        dist.all_reduce(requested, dist.ReduceOp.MAX, host_group(None))  # among CPUs: no step waits for a device
        return name or ("a signal to another process" if requested else None)

    def _inspect(self, outputs: Tensor, labels: Tensor) -> dict[str, float | None]:
        """Return metrics of the last batch of an epoch, over all processes."""
        outputs, labels = self.calls.gather(outputs, labels)
        positive, negative = mean_similarities(outputs[..., : self.plan.dim], labels)
        similarities = {"partner_similarity": positive, "noise_similarity": negative}
        return {**similarities, **self.calls.inspect(outputs, labels)}

    def _finish_epoch(self, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Validate if it is due, log the epoch, and save a checkpoint if it is due."""
        plan, state = self.plan, self.state
        row = {**state.epoch_metrics(epoch, plan, self.optimizer.param_groups[0]["lr"]), **metrics}
        if epoch % plan.validate_every == 0 or epoch == plan.n_epochs:
            started = time.monotonic()
            self._check_weights()
            self.model.eval()
            row |= self.fabric.broadcast(self.calls.validate())  # all processes decide by the same score
            state.seconds += time.monotonic() - started
            self._track_best(row)
        self.rows.append(row)
        if self.fabric.is_global_zero:
            self.log.append(row)
        self.reporter.epoch(row)
        warmup_epochs = plan.n_warmup / plan.steps_per_epoch
        for kind, text in lasting_warnings(self.rows, n_epochs=plan.n_epochs, warmup_epochs=warmup_epochs).items():
            if kind not in self._warned:
                self._warned.add(kind)
                self.messages.note(text)
        last = epoch == plan.n_epochs or state.stopped_early
        if last or time.monotonic() - self._saved_at >= plan.checkpoint_seconds / 10:
            self._save()

    def _track_best(self, row: Mapping[str, Any]) -> None:
        """Save the checkpoint if it is the best so far; stop early if there was no better one for long enough."""
        state, plan = self.state, self.plan
        if plan.score is None:
            return
        if row[plan.score] > state.best:
            state.best, state.best_epoch, state.checks_since_best = row[plan.score], row["epoch"], 0
            self._write(self.checkpoints.save_best)
        else:
            state.checks_since_best += 1
            state.stopped_early = plan.early_stop is not None and state.checks_since_best >= plan.early_stop
            if state.stopped_early:
                self.messages.say(f"stopped early: no better 1-NN since epoch {state.best_epoch}")

    def _save(self) -> None:
        self._write(lambda content: self.checkpoints.save(content, self.state.step))
        self._saved_at = time.monotonic()

    def _write(self, save: Callable[[dict[str, Any]], object]) -> None:
        """Save a checkpoint in the first process; all processes check that losses and weights are finite."""
        content = self._content()
        if self.fabric.is_global_zero:
            with self.stop.deferred():
                save(content)

    def _content(self) -> dict[str, Any]:
        """Return the content of a checkpoint, after a check that losses and weights are finite."""
        self._flush_losses()
        self._check_weights()
        return {
            "identity": dict(self.identity),
            "progress": asdict(self.state),
            "rows": self.rows,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "queue": {} if self.calls.queue is None else self.calls.queue.state_dict(),
            "loss": {} if self.calls.loss_state is None else self.calls.loss_state.state_dict(),
            "random": random_states(),
        }

    def _check_weights(self) -> None:
        if not all(bool(torch.isfinite(value).all()) for value in self.model.parameters()):
            raise self._failure(f"the weights are not finite after step {self.state.step:,}")

    def _failure(self, problem: str) -> TrainingError:
        paths = self.checkpoints.paths()
        last = f"the last checkpoint is {paths[-1].name}" if paths else "there was no checkpoint yet"
        remedy = "Start over with --overwrite and a lower --learning-rate, --clip-norm 1, or --precision 32-true"
        return TrainingError(f"train: {problem}; {last}. {remedy}")
