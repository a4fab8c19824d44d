"""Train a model: from a request to a run in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from rich.console import Console

from sincere.data.dataset import Dataset
from sincere.evaluation.knn import accuracy_1nn
from sincere.models.embedding import EmbeddingModel, load_model, save_model, save_spec
from sincere.records.config import TrainRequest, TrainSettings
from sincere.training.checkpoints import BEST, DamagedError, read
from sincere.training.fit import Fit
from sincere.training.progress import Reporter, make_reporter
from sincere.training.tensorboard import BoardReporter, check_board
from sincere.workflows.hardware import choose_device
from sincere.workflows.launch import (
    check_same_step,
    embed_shared,
    in_turn,
    is_follower,
    lost_processes_told,
    start_processes,
)
from sincere.workflows.run_folder import SUMMARY_KINDS, RunFolder
from sincere.workflows.trained_model import load_data
from sincere.workflows.training_setup import check_names, prepare, resolve


@dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Attributes:
        folder: Where it is.
        settings: What was chosen.
        epochs: Epochs done.
        seconds: Time spent training.
        train_loss: Mean loss of the first and the last epoch.
        knn1_test: 1-NN accuracy on the test part, with all of train as neighbours.
    """

    folder: Path
    settings: TrainSettings
    epochs: int
    seconds: float
    train_loss: dict[str, float]
    knn1_test: float

    def model(self) -> EmbeddingModel:
        """Load the trained model."""
        return load(self.folder)


def train(**settings: Any) -> TrainResult:
    """Train a model with the settings of `sincere train`; with resume=True, those of the run need not be repeated.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The data or the folder are.

    Example:
        >>> import tempfile
        >>> result = train(data="digits", epochs=1, out=tempfile.mkdtemp(), quiet=True)
        >>> result.epochs
        1
    """
    request = TrainRequest.make(**settings)
    if request.resume:
        settings = {**RunFolder(request.folder()).stored_settings(), **settings}
    return run_training(TrainRequest.make(**settings))


def load(run: str | Path) -> EmbeddingModel:
    """Return the model of a run, ready to embed images.

    Raises:
        DataError: There is none in that folder, or it is damaged.
    """
    return load_model(Path(run))


def run_training(request: TrainRequest, console: Console | None = None, data: Dataset | None = None) -> TrainResult:
    """Train, save the model, and check it once on the test part; data are loaded unless they are handed in.

    Where several processes share the run, each comes here; the first one alone writes and speaks.
    """
    check_names(request)
    if request.tensorboard:
        check_board()
    folder = RunFolder(request.folder())
    if not is_follower():
        folder.check_free(request)
    fabric = start_processes(request, choose_device(request.device))
    with lost_processes_told(fabric):
        return _train(request, folder, fabric, console, data)


def _train(
    request: TrainRequest, folder: RunFolder, fabric: Fabric, console: Console | None, data: Dataset | None
) -> TrainResult:
    """Train in this process, which may share the run with others."""
    quiet = request.quiet or not fabric.is_global_zero
    console = console or Console(quiet=not fabric.is_global_zero)
    reporter = make_reporter(console, quiet=quiet)
    say = _silent if quiet else reporter.say
    say(f"run: {folder.path}")
    with in_turn(fabric):
        data = data or load_data(request, fabric.device, None if quiet else console)
    say(f"{len(data.train):,} training images, {len(data.test):,} test images, {len(data.class_names)} classes")
    for note in data.notes:
        reporter.say(f"note: {note}")
    settings = resolve(request.settings(), data, fabric.device)
    if request.resume:
        folder.check_same(settings)
        if request.threads is None:  # as it began: the number of threads decides the last bits of the weights
            began_with = folder.stored_settings().get("threads") or settings.threads
            settings = settings.model_copy(update={"threads": began_with})
        summary, notes = folder.summary_or_note()
        if summary is not None:
            say(f"{folder.path}: is finished already")
            kept = {name: summary[name] for name in SUMMARY_KINDS if name != "data"}
            return TrainResult(folder.path, settings, **kept)
        for note in notes:
            reporter.say(f"note: {note}")
    seconds = request.checkpoint_minutes * 60
    with torch.random.fork_rng(), _thread_number(cast(int, settings.threads)):
        fit = prepare(folder, settings, data, fabric, reporter, say=say, checkpoint_seconds=seconds)
        with folder.locked() if fabric.is_global_zero else nullcontext():
            if request.resume:
                with in_turn(fabric):
                    resumed = fit.resume()
                check_same_step(fabric, fit.done.step, folder.path)
                for note in resumed:
                    reporter.say(f"note: {note}")
                say(f"resuming after step {fit.done.step:,} of {fit.plan.n_steps:,}")
            elif fabric.is_global_zero:
                folder.begin(request, settings, str(fabric.device))
            if fabric.is_global_zero and fit.done.step == 0:
                save_spec(cast(EmbeddingModel, fit.model.module).spec, folder.path)
            if request.tensorboard and fabric.is_global_zero:
                fit.reporter = BoardReporter(reporter, folder.path, first_step=fit.done.step)
            fit.run()
            return _finish(folder, settings, data, fit, reporter, say)


@contextmanager
def _thread_number(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _silent(text: str) -> None:
    """Say nothing."""


def _finish(
    folder: RunFolder,
    settings: TrainSettings,
    data: Dataset,
    fit: Fit,
    reporter: Reporter,
    say: Callable[[str], None],
) -> TrainResult:
    """Save the model (the best checkpoint's, where there was validation) and its 1-NN accuracy on the test part."""
    done = fit.done
    if fit.plan.score is not None:
        line = _take_best(fit)
        (reporter.say if line.startswith("warning") else say)(line)
    model = cast(EmbeddingModel, fit.model.module)
    model.eval()
    train_part, test_part = (embed_shared(model, part, fit.fabric) for part in (data.train, data.test))
    knn1 = accuracy_1nn(test_part.embeddings, test_part.labels, train_part.embeddings, train_part.labels)
    rows = fit.rows
    losses = {"first": rows[0]["loss"], "last": rows[-1]["loss"]}
    figures = {"epochs": len(rows), "seconds": done.seconds, "train_loss": losses, "knn1_test": knn1}
    if fit.fabric.is_global_zero:
        save_model(model, folder.path)
        folder.write_summary({**figures, "data": data.digest})
    fit.fabric.barrier()
    say(f"loss {losses['first']:.3f} -> {losses['last']:.3f} in {done.seconds:.0f} s of training")
    say(f"1-NN on the test part: {knn1:.4f}. The model is in {folder.path}")
    return TrainResult(folder.path, settings, len(rows), done.seconds, losses, knn1)


def _take_best(fit: Fit) -> str:
    """Set the weights of the best checkpoint, if there is an intact one of this run; return a line about it.

    Raises:
        DataError: It cannot be read at the moment; the run can be resumed when it can.
    """
    done = fit.done
    try:
        content = read(fit.checkpoints.folder / BEST)
    except DamagedError as error:
        return f"warning: {error}; taking the last weights instead of the best"
    if content["progress"]["best_epoch"] != done.best_epoch:
        return f"warning: {BEST} is not of epoch {done.best_epoch}; taking the last weights instead of the best"
    fit.model.load_state_dict(content["model"])
    return f"the best checkpoint is that of epoch {done.best_epoch}: 1-NN {done.best:.3f} (validation)"
