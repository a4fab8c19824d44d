"""Train a model: from a request to a run in a folder."""

from __future__ import annotations

import inspect
import random
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from sincere.catalog import PYTHON
from sincere.data.dataset import Dataset
from sincere.errors import DataError, UnsupportedError
from sincere.evaluation.embed import EmbeddedImages
from sincere.evaluation.knn import accuracy_1nn
from sincere.evaluation.model_outputs import PartOutputs
from sincere.loss_catalog import CROSS_ENTROPY, LOSSES, find_loss, sum_terms
from sincere.messages import Messages, is_follower
from sincere.models.embedding import EmbeddingModel, check_encoder, load_model, save_model, save_spec
from sincere.records.files import LOCK
from sincere.settings.keywords import TrainKeywords
from sincere.settings.requests import RunSettings, TrainRequest
from sincere.settings.signatures import OBJECTS, with_signature
from sincere.training.checkpoints import BEST, DamagedError, read
from sincere.training.fit import Fit
from sincere.training.interruption import InterruptedRunError
from sincere.training.loggers import LoggedReporter, Logger, RunLoggers, check_loggers, open_loggers, stored_loggers
from sincere.workflows.advice import class_sizes, small_classes_note
from sincere.workflows.assembly import frozen_data, prepare
from sincere.workflows.defaults import resolve
from sincere.workflows.embedded_data import EmbeddedData, embed_data, reference_of
from sincere.workflows.launch import (
    check_same_step,
    embed_shared,
    in_turn,
    report_lost_processes,
    share_statistics,
    speaker,
    start_processes,
)
from sincere.workflows.length import epochs_that_fit
from sincere.workflows.model import Model, load
from sincere.workflows.python_objects import named_objects
from sincere.workflows.run_folder import NAMES, SUMMARY_KINDS, RunFolder
from sincere.workflows.trained_model import load_data


@dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Attributes:
        folder: Its folder.
        settings: Its settings, with every choice made.
        epochs: Number of epochs trained.
        seconds: Time spent training.
        train_loss: Mean loss of the first and the last epoch.
        knn1_test: 1-NN accuracy on the test part, with all of train as neighbours; with label sets, the fraction of the
            test images with a label whose nearest training image shares one.
    """

    folder: Path
    settings: RunSettings
    epochs: int
    seconds: float
    train_loss: dict[str, float]
    knn1_test: float

    def model(self, *, encoder: nn.Module | None = None) -> Model:
        """Load the trained model; see `sincere.load`."""
        return load(self.folder, encoder=encoder)


@with_signature(TrainRequest)
def train(*, loggers: Sequence[Logger] = (), **settings: Unpack[TrainKeywords]) -> TrainResult:
    """Train a model with the settings of `sincere train`; with resume=True, those of the run need not be repeated.

    Objects may take the place of names. `data`: arrays or tensors by the names of an .npz file, a pair of images (n, h,
    w, c) or features (n, d) and labels (n,) or label sets (n, L), or a torch Dataset of (image, label), or a pair of
    them for training and testing. `encoder`: an `nn.Module` from images (n, c, h, w) to features (n, d); a copy of it
    is trained. `loss`: a callable from embeddings (n, n_views, dim) and labels (n,) to a number. `augmentation`: a
    callable from uint8 images (n, c, h, w) to views (n, c, size, size); one that takes `generator=` gets a seeded
    torch.Generator. Their names alone are stored: pass the same objects again to resume. `loggers`: loggers of
    Lightning or Lightning Fabric, which get the settings, the metrics of each epoch and the final ones; `log` makes one
    by name.

    Raises:
        InputValueError: A setting is wrong.
        DataError: The data or the folder are.

    Example:
        >>> import tempfile
        >>> result = train(data="digits", epochs=1, out=tempfile.mkdtemp(), quiet=True)
        >>> result.epochs
        1
    """
    with named_objects(settings, stores_run=True) as named:
        return run_training(TrainRequest.make_or_resume(**named), loggers=loggers)


def run_training(
    request: TrainRequest, messages: Messages | None = None, *, loggers: Sequence[Logger] = ()
) -> TrainResult:
    """Train, save the model, and check it once on the test part; `loggers` are in addition to those of the request.

    Where several processes share the run, each comes here; the first one alone writes and speaks.

    Raises:
        InterruptedRunError: SIGTERM or Ctrl-C; a checkpoint was written.
    """
    try:
        result, _ = train_run(request, messages or Messages(quiet=request.quiet), loggers=loggers)
    except InterruptedRunError as stopped:
        command = f"sincere train --resume --out {shlex.quote(str(request.folder()))}"
        if any(PYTHON in str(request.flat().get(name)) for name in OBJECTS):
            command = "the same call of sincere.train, with resume=True"
        raise InterruptedRunError(f"{stopped}; resume it with: {command}") from stopped
    return result


def train_run(
    request: TrainRequest,
    messages: Messages,
    data: Dataset | None = None,
    *,
    fabric: Fabric | None = None,
    for_evaluation: bool = False,
    loggers: Sequence[Logger] = (),
) -> tuple[TrainResult, EmbeddedData | None]:
    """Train a run; return its result, and what its model makes of the images if an evaluation follows.

    Args:
        request: What to train.
        messages: Receives its progress.
        data: The data to train on; loaded if None.
        fabric: The processes that share the run; started if None.
        for_evaluation: Whether the model is evaluated next, so that its outputs are worth keeping.
        loggers: Loggers in addition to those of the request.
    """
    if request.model.encoder is not None:
        check_encoder(request.model.encoder)
    find_loss(request.loss.name, caller=request.verb)
    if request.machine.devices * request.machine.nodes > 1:
        _check_group(request.loss.name)
    check_loggers(request.log, loggers)
    folder = RunFolder(request.folder())
    if not is_follower():
        folder.check_free(request)
    if fabric is None:
        fabric = start_processes(request.machine, caller=request.verb, precision=request.machine.precision)
    with report_lost_processes(fabric):
        return _train(request, folder, fabric, speaker(fabric, messages), data, loggers, for_evaluation=for_evaluation)


def _check_group(loss: str) -> None:
    """Raise if a loss, or a term of a sum, cannot be computed across processes.

    Raises:
        UnsupportedError: Its module takes no `group`.
    """
    names = [loss] if loss in list(LOSSES) else [name for name, _ in sum_terms(loss) if name != CROSS_ENTROPY]
    for name in names:
        if "group" not in inspect.signature(LOSSES[name].load()).parameters:
            problem = f"the loss {name} takes no group= and runs on one device only"
            raise UnsupportedError(f"train: {problem}; use --devices 1")


def _train(
    request: TrainRequest,
    folder: RunFolder,
    fabric: Fabric,
    messages: Messages,
    data: Dataset | None,
    given_loggers: Sequence[Logger],
    *,
    for_evaluation: bool,
) -> tuple[TrainResult, EmbeddedData | None]:
    """Train in this process, which may share the run with others."""
    messages.say(f"run: {folder.path}")
    if data is None:
        with in_turn(fabric):
            data = load_data(request.data, request, fabric.device, messages)
        if (small := small_classes_note(data)) is not None:  # an evaluation has it among its results
            messages.note(small)
    messages.say(f"{len(data.train):,} training {data.noun}, {len(data.test):,} test {data.noun}; {class_sizes(data)}")
    settings = resolve(request.run_settings(), data, fabric.device)
    if request.resume:
        folder.check_same(settings)
        if request.machine.threads is None:  # the number of threads decides the last bits of the weights
            began_with = folder.stored_settings().get("threads") or settings.machine.threads
            settings = settings.replaced(threads=began_with)
        summary, notes = folder.summary_or_note()
        if summary is not None:
            if summary["data"] != data.digest:
                raise DataError(f"{folder.path}: was trained on other data than {request.data.source} holds now")
            messages.say(f"{folder.path}: is finished already")
            kept = {name: summary[name] for name in SUMMARY_KINDS if name != "data"}
            return TrainResult(folder.path, settings, **kept), None
        messages.note(*notes)
    with thread_number(cast(int, settings.machine.threads)):
        data = frozen_data(settings, data, fabric, messages)
    seconds = request.checkpoint_minutes * 60
    with ExitStack() as until_the_end:
        with own_random_state(), thread_number(cast(int, settings.machine.threads)):
            if settings.optimisation.minutes is not None:
                n_epochs = epochs_that_fit(folder, settings, data, fabric, messages)
                settings = settings.replaced(minutes=None, epochs=n_epochs)
            fit = prepare(folder, settings, data, fabric, messages, checkpoint_seconds=seconds)
            if fabric.is_global_zero:
                until_the_end.enter_context(folder.locked())
            _start(fit, request, settings, folder, messages)
            loggers = until_the_end.enter_context(_loggers(fit, request, settings, folder, messages, given_loggers))
            fit.run()
        result, embedded = _finish(folder, settings, data, fit, messages, for_evaluation=for_evaluation)
        loggers.metrics({"knn1_test": result.knn1_test}, fit.state.step)
        return result, embedded


def _start(fit: Fit, request: TrainRequest, settings: RunSettings, folder: RunFolder, messages: Messages) -> None:
    """Write what the run is into its folder or, if it is resumed, restore its last checkpoint."""
    fabric = fit.fabric
    if request.resume:
        with in_turn(fabric):
            notes = fit.resume()
        check_same_step(fabric, fit.state.step, folder.path)
        messages.note(*notes)
        messages.say(f"resuming after step {fit.state.step:,} of {fit.plan.n_steps:,}")
    elif fabric.is_global_zero:
        folder.begin(request, settings, str(fabric.device))
    if fabric.is_global_zero and fit.state.step == 0:
        save_spec(cast(EmbeddingModel, fit.model.module).spec, folder.path)


@contextmanager
def _loggers(
    fit: Fit,
    request: TrainRequest,
    settings: RunSettings,
    folder: RunFolder,
    messages: Messages,
    given: Sequence[Logger],
) -> Iterator[RunLoggers]:
    """Log the run until the block ends; the first process does, with the loggers of a resumed run if none are named."""
    if not fit.fabric.is_global_zero:
        yield RunLoggers(messages, {})
        return
    names = request.log or (tuple(stored_loggers(folder.path)) if request.resume else ())
    check_loggers(names)
    try:
        loggers = open_loggers(names, folder.path, messages, objects=given, first_step=fit.state.step)
    except DataError:
        if not request.resume:  # nothing was trained yet: leave no run that would have to be overwritten
            folder.set_aside(NAMES - {LOCK})
        raise
    if loggers.loggers:
        loggers.settings(settings.stored())
        fit.reporter = LoggedReporter(fit.reporter, loggers)
    try:
        yield loggers
    except BaseException:
        loggers.finish(failed=True)
        raise
    loggers.finish()


@contextmanager
def own_random_state() -> Iterator[None]:
    """Leave the caller's random generators as they are: a run sets them, and restores them when it is resumed."""
    before = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


@contextmanager
def thread_number(n: int) -> Iterator[None]:
    """Compute with this number of threads until the block ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _finish(
    folder: RunFolder, settings: RunSettings, data: Dataset, fit: Fit, messages: Messages, *, for_evaluation: bool
) -> tuple[TrainResult, EmbeddedData | None]:
    """Save the model (the best checkpoint's, where there was validation) and its 1-NN accuracy on the test part."""
    state, fabric = fit.state, fit.fabric
    if fit.plan.score is not None:
        _take_best(fit, messages)
    model = cast(EmbeddingModel, fit.model.module)
    model.eval()
    if fabric.is_global_zero:
        save_model(model, folder.path)
    train: PartOutputs | EmbeddedImages
    test: PartOutputs | EmbeddedImages
    embedded = None
    if for_evaluation:  # of the model on disk, so that a later evaluation gives the same
        fabric.barrier()
        embedded = embed_data(load_model(folder.path), data, fabric.device, fabric)
        train, test = embedded.train, embedded.test
    else:
        share_statistics(model, fabric)
        parts = (data.train, data.test)
        train, test = (embed_shared(model.embed, part, fabric, width=model.spec.dim) for part in parts)
    knn1 = accuracy_1nn(test.embeddings, test.labels, train.embeddings, train.labels)
    rows = fit.rows
    losses = {"first": rows[0]["loss"], "last": rows[-1]["loss"]}
    summary = {"epochs": len(rows), "seconds": state.seconds, "train_loss": losses, "knn1_test": knn1}
    if fabric.is_global_zero:
        reference_of(train, test, data).write(folder.path)
        folder.write_summary({**summary, "data": data.digest})
    fabric.barrier()
    messages.say(f"loss {losses['first']:.3f} -> {losses['last']:.3f} in {state.seconds:.0f} s of training")
    what = f"test {data.noun} whose nearest training {data.noun.removesuffix('s')} shares a label"
    about = what if data.have_label_sets else "1-NN accuracy on the test part"
    messages.say(f"{about}: {knn1:.4f}. The model is in {folder.path}")
    return TrainResult(folder.path, settings, len(rows), state.seconds, losses, knn1), embedded


def _take_best(fit: Fit, messages: Messages) -> None:
    """Set the weights of the best checkpoint, if there is an intact one of this run.

    Raises:
        DataError: It cannot be read at the moment; the run can be resumed when it can.
    """
    state = fit.state
    try:
        content = read(fit.checkpoints.folder / BEST)
    except DamagedError as error:
        messages.note(f"{error}; taking the last weights instead of the best")
        return
    if content["progress"]["best_epoch"] != state.best_epoch:
        messages.note(f"{BEST} is not of epoch {state.best_epoch}; taking the last weights instead of the best")
        return
    fit.model.load_state_dict(content["model"])
    messages.say(f"the best checkpoint is that of epoch {state.best_epoch}: 1-NN {state.best:.3f} (validation)")
