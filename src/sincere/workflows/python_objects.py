"""Python objects in place of names: data, encoders, losses and augmentations that a caller has in hand.

While a call lasts, each object has an entry in its table (`DATASETS`, `ENCODERS`, `LOSSES`, `AUGMENTATIONS`) under a
name such as "python:MyEncoder@1f2e3d4c5b6a": its own name and a fingerprint of its content. That name is what
config.toml and results hold. It cannot bring the object back, but tells whether a later call has the same one.
"""

from __future__ import annotations

import copy
import inspect
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import AUGMENTATIONS, ENCODERS, PYTHON, CustomAugmentation, Encoder, own_name
from sincere.data.catalog import DATASETS, NamedSet
from sincere.data.python_data import python_data
from sincere.errors import InputTypeError, InputValueError, first_line
from sincere.loss_catalog import LOSSES
from sincere.loss_entry import Loss
from sincere.messages import Messages
from sincere.models.embedding import load_spec
from sincere.settings.signatures import OBJECTS
from sincere.workflows.fingerprints import fingerprint

DIGITS = 12  # of a fingerprint in a name
LONGEST_NAME = 60  # characters
SETTINGS = (*OBJECTS, "to")  # what may be an object

_lock = threading.Lock()
_uses: Counter[tuple[int, str]] = Counter()  # calls that use an entry of a table


@contextmanager
def named_objects(settings: Mapping[str, Any], *, stores_run: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the settings with a name in the place of each object; the names can be looked up until the block ends.

    Args:
        settings: Settings, some of which may be objects.
        stores_run: Whether a run is stored in this block; a note then says what of it cannot be stored.

    Raises:
        InputTypeError: An object is not of a kind that can be used there.
    """
    named = dict(settings)
    with ExitStack() as entries:
        names = []
        for setting in SETTINGS:
            value = settings.get(setting)
            if _is_name(value):
                continue
            if setting != "losses":
                named[setting] = _entered(setting, value, entries)
                names.append(named[setting])
                continue
            if not isinstance(value, list | tuple):
                requirement = "losses must be a list of names and callables"
                raise InputTypeError(checks.wording("compare", requirement, type(value).__name__))
            named[setting] = _named_losses(value, entries)
            names += [name for name, each in zip(named[setting], value, strict=True) if not _is_name(each)]
        if names and stores_run:
            Messages(quiet=bool(settings.get("quiet"))).note(
                f"given in Python, so that only their names can be stored: {', '.join(names)}; "
                "pass the same objects to resume the run or to evaluate it"
            )
        yield named


def _is_name(value: Any) -> bool:
    return value is None or isinstance(value, str | Path)


def _entered(setting: str, value: Any, entries: ExitStack) -> str:
    """Return the name of an object, after giving it an entry."""
    table, make = _KINDS[setting]
    entry, name = make(value)
    entries.enter_context(_entry(table, name, entry))
    return name


def _named_losses(losses: list[Any] | tuple[Any, ...], entries: ExitStack) -> list[Any]:
    """Return losses with a name in the place of each object; where two have the same own name, it tells them apart."""
    made = [None if _is_name(loss) else _loss(loss) for loss in losses]
    own = Counter(own_name(entry[1]) for entry in made if entry is not None)
    named: list[Any] = []
    for loss, entry in zip(losses, made, strict=True):
        if entry is None:
            named.append(loss)
            continue
        record, name = entry
        if own[own_name(name)] > 1:
            kind, mark = name.removeprefix(PYTHON).split("@")
            name = f"{PYTHON}{kind}-{mark[:4]}@{mark}"
            record = _loss(loss, name)[0]
        entries.enter_context(_entry(LOSSES, name, record))
        named.append(name)
    return named


@contextmanager
def _entry(table: dict[str, Any], name: str, entry: Any) -> Iterator[None]:
    """Give an object an entry until the block ends, and until those of other threads end that use the same one."""
    key = (id(table), name)
    with _lock:
        _uses[key] += 1
        table.setdefault(name, entry)
    try:
        yield
    finally:
        with _lock:
            _uses[key] -= 1
            if not _uses[key]:
                del _uses[key]
                table.pop(name, None)


@contextmanager
def given_encoder(run: Path, encoder: nn.Module | None) -> Iterator[None]:
    """Let the encoder of a run be found by its stored name until the block ends; its weights are those of the run.

    Raises:
        DataError: The folder holds no model.
        InputValueError: The run has an encoder that needs no object.
    """
    if encoder is None:
        yield
        return
    name = load_spec(run).encoder
    if not name.startswith(PYTHON):
        raise InputValueError(f"encoder must not be given: {run} has the encoder {name}, which needs none")
    with _entry(ENCODERS, name, _encoder(encoder)[0]):
        yield


def _data(value: Any) -> tuple[NamedSet, str]:
    kind = "arrays" if isinstance(value, Mapping | tuple | list) else type(value).__name__
    data = python_data(kind, value)
    name = f"{PYTHON}{kind}@{data.digest[:DIGITS]}"
    return NamedSet(data, "given in Python", 0, 0, 0, None, None, content=data.digest), name


def _encoder(value: Any) -> tuple[Encoder, str]:
    if not isinstance(value, nn.Module):
        raise InputTypeError(checks.wording("encoder", "must be a name or an nn.Module", type(value).__name__))
    own: nn.Module = _copied("encoder", value).float()  # the caller's own is not trained

    def build(*, channels: int, size: int) -> nn.Module:
        return copy.deepcopy(own)

    return Encoder(build, "given in Python"), object_name("encoder", value)


def _loss(value: Any, name: str | None = None) -> tuple[Loss, str]:
    _check_call("loss", value, "embeddings", "labels")
    if isinstance(value, nn.Module) and any(weight.requires_grad for weight in value.parameters()):
        remedy = "Freeze them with requires_grad_(False), or make them a part of the encoder"
        trained = "must have no weights to train, because only those of the model are trained"
        raise InputTypeError(checks.wording("loss", trained, type(value).__name__, remedy))
    name = name or object_name("loss", value)
    own = _copied("loss", value)

    def build(temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        criterion = copy.deepcopy(own)  # the caller's own keeps its state
        return lambda embeddings, labels: _checked_loss(name, criterion(embeddings, labels), embeddings)

    about = "given in Python; the temperature does not reach it"
    return Loss(build, own_name(name), about, paper="", colour=""), name


def _checked_loss(name: str, value: Any, embeddings: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        got = f"shape {tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
        raise InputTypeError(checks.wording("train", f"loss {name} must return one floating-point number", got))
    if embeddings.requires_grad and not value.requires_grad:
        requirement = f"loss {name} must be differentiable in the embeddings"
        raise InputTypeError(checks.wording("train", requirement, "a number without a gradient"))
    return value.reshape(())


def _augmentation(value: Any) -> tuple[CustomAugmentation, str]:
    takes_generator = "generator" in _parameters(value)
    _check_call("augmentation", value, "images", **({"generator": None} if takes_generator else {}))
    augment = partial(_augmented, _copied("augmentation", value), takes_generator=takes_generator)
    return CustomAugmentation(augment, in_threads=takes_generator), object_name("augmentation", value)


def _augmented(function: Callable[..., Tensor], images: Tensor, seed: int, *, takes_generator: bool) -> Tensor:
    """Return views of images by a function of the caller's, whose random numbers are a function of the seed."""
    images = images.clone()  # it may change them in place
    if takes_generator:
        return function(images, generator=torch.Generator(images.device).manual_seed(seed))
    before = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            return function(images)
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some built-in functions, and of what is not callable
        return {}


def _check_call(setting: str, value: Any, *positional: str, **keywords: Any) -> None:
    """Raise if an object cannot be called with these arguments.

    Raises:
        InputTypeError: It cannot.
    """
    if not callable(value):
        raise InputTypeError(checks.wording(setting, "must be a name or a callable", type(value).__name__))
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of some built-in functions
        return
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        kind = " (a class: pass an instance)" if isinstance(value, type) else ""
        requirement = f"must be a callable that takes ({', '.join((*positional, *keywords))})"
        raise InputTypeError(checks.wording(setting, requirement, f"{own_title(value)}{signature}{kind}")) from error


def _copied(setting: str, value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:  # locks, files, old weight norms: raises almost anything
        requirement = f"must be an object that copy.deepcopy can copy ({first_line(error)})"
        raise InputTypeError(checks.wording(setting, requirement, type(value).__name__)) from error


_KINDS: dict[str, tuple[dict[str, Any], Callable[[Any], tuple[Any, str]]]] = {
    "data": (DATASETS, _data),
    "to": (DATASETS, _data),
    "unknown_data": (DATASETS, _data),
    "encoder": (ENCODERS, _encoder),
    "loss": (LOSSES, _loss),
    "augmentation": (AUGMENTATIONS, _augmentation),
}


def object_name(setting: str, value: Any) -> str:
    """Return a name that tells an object from others: its own name, and a fingerprint of its content.

    Raises:
        InputTypeError: It has no fingerprint, because its weights are not initialised.
    """
    try:
        return f"{PYTHON}{own_title(value)}@{fingerprint(value)[:DIGITS]}"
    except InputTypeError as error:
        raise InputTypeError(f"{setting}: {error}") from error


def own_title(value: Any) -> str:
    """Return the name of a function, or of the class of another object, fit for a file name.

    Example:
        >>> own_title(print), own_title(lambda x: x), own_title(partial(print, end=""))
        ('print', 'lambda', 'print')
    """
    while isinstance(value, partial):
        value = value.func
    name = str(getattr(value, "__name__", None) or type(value).__name__)
    return re.sub(r"\W+", "_", name).strip("_")[:LONGEST_NAME] or "object"
