"""Python objects in place of names: data, encoders, losses and augmentations that a caller has in hand.

While a call lasts, each object has an entry in its table (`DATASETS`, `ENCODERS`, `LOSSES`, `AUGMENTATIONS`) under a
name such as "python:MyEncoder@1f2e3d4c5b6a": its own name and a fingerprint of its content. That name is what
config.toml and results hold. It cannot bring the object back, but tells whether a later call has the same one.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from sincere import checks
from sincere.catalog import AUGMENTATIONS, ENCODERS, LOSSES, PYTHON, CustomAugmentation, Encoder, Loss, own_name
from sincere.data.catalog import DATASETS, NamedSet
from sincere.data.python_data import python_data
from sincere.errors import InputTypeError, InputValueError
from sincere.messages import Messages
from sincere.models.embedding import load_spec

COLOUR = "#7F7F7F"  # of losses in figures; further ones have others
SETTINGS = ("data", "to", "encoder", "loss", "losses", "augmentation")  # what may be an object
_random = threading.Lock()  # torch's global generator is one for all threads


@contextmanager
def named_objects(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings with a name in the place of each object; the names can be looked up until the block ends.

    Prints a note on what a run in this block cannot store.

    Raises:
        InputTypeError: An object is not of a kind that can be used there.
    """
    named, entries = dict(settings), list[tuple[dict[str, Any], str]]()
    try:
        for setting in SETTINGS:
            value = settings.get(setting)
            if setting == "losses" and isinstance(value, list | tuple):
                named[setting] = [_name("loss", each, entries) for each in value]
            elif setting in settings:
                named[setting] = _name(setting, value, entries)
        if entries:
            names = ", ".join(name for _, name in entries)
            Messages(quiet=bool(settings.get("quiet"))).note(
                f"given in Python, so that only their names can be stored: {names}; "
                "pass the same objects to resume the run or to evaluate it"
            )
        yield named
    finally:
        for table, name in entries:
            table.pop(name, None)


def _name(setting: str, value: Any, entries: list[tuple[dict[str, Any], str]]) -> Any:
    """Return the name of an object, after giving it an entry; names, paths and None are returned as they are."""
    if value is None or isinstance(value, str | Path):
        return value
    table, make = _KINDS[setting]
    entry, name = make(value)
    table[name] = entry
    entries.append((table, name))
    return name


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
        raise InputValueError(checks.wording("load", f"encoder must not be given for {run}, whose encoder is", name))
    ENCODERS[name] = _encoder(encoder)[0]
    try:
        yield
    finally:
        ENCODERS.pop(name, None)


def _data(value: Any) -> tuple[NamedSet, str]:
    kind = "arrays" if isinstance(value, Mapping | tuple | list) else type(value).__name__
    data = python_data(kind, value)
    return NamedSet(data, "given in Python", 0, 0, 0, None, None, content=data.digest), f"{PYTHON}{kind}"


def _encoder(value: Any) -> tuple[Encoder, str]:
    if not isinstance(value, nn.Module):
        raise InputTypeError(checks.wording("train", "encoder must be a name or an nn.Module", type(value).__name__))

    def build(*, channels: int, size: int) -> nn.Module:
        return copy.deepcopy(value)  # the caller's own is not trained

    return Encoder(build, "given in Python"), object_name(value)


def _loss(value: Any) -> tuple[Loss, str]:
    _check_callable("loss", value)
    name = object_name(value)

    def build(temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda embeddings, labels: _checked_loss(name, value(embeddings, labels))

    about = "given in Python; the temperature does not reach it"
    return Loss(build, own_name(name), about, "", COLOUR, None), name


def _checked_loss(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InputTypeError(checks.wording("train", f"loss {name} must return one floating-point number", got))
    return value.reshape(())


def _augmentation(value: Any) -> tuple[CustomAugmentation, str]:
    _check_callable("augmentation", value)
    augment = partial(_augmented, value, takes_generator="generator" in _parameters(value))
    return CustomAugmentation(augment), object_name(value)


def _augmented(function: Callable[..., Tensor], images: Tensor, seed: int, *, takes_generator: bool) -> Tensor:
    """Return views of images by a function of the caller's, whose random numbers are a function of the seed."""
    if takes_generator:
        return function(images, generator=torch.Generator(images.device).manual_seed(seed))
    with _random, torch.random.fork_rng():
        torch.manual_seed(seed)
        return function(images)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some built-in functions
        return {}


def _check_callable(setting: str, value: Any) -> None:
    if not callable(value):
        raise InputTypeError(checks.wording("train", f"{setting} must be a name or a callable", type(value).__name__))


_KINDS: dict[str, tuple[dict[str, Any], Callable[[Any], tuple[Any, str]]]] = {
    "data": (DATASETS, _data),
    "to": (DATASETS, _data),
    "encoder": (ENCODERS, _encoder),
    "loss": (LOSSES, _loss),
    "augmentation": (AUGMENTATIONS, _augmentation),
}


def object_name(value: Any) -> str:
    """Return a name that tells an object from others: its own name, and a fingerprint of its content.

    The fingerprint covers the weights and the printed form of modules, the byte code of functions, and the attributes
    of other objects; not what they call.
    """
    own = getattr(value, "__name__", None) or type(value).__name__
    digest = hashlib.sha256()
    for part in _content(value):
        digest.update(part)
    return f"{PYTHON}{own}@{digest.hexdigest()[:12]}"


def _content(value: Any) -> Iterator[bytes]:
    """Yield what an object consists of, the same in every process."""
    if isinstance(value, nn.Module):
        yield repr(value).encode()
        for name, tensor in value.state_dict().items():
            yield name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes()
        yield from _content(type(value).forward)
    elif isinstance(value, Tensor):
        yield value.detach().cpu().contiguous().numpy().tobytes()
    elif isinstance(value, MethodType):
        yield from _content(value.__func__)
        yield from _content(value.__self__)
    elif isinstance(value, FunctionType):
        yield from _code(value.__code__)
        closure = [cell.cell_contents for cell in value.__closure__ or ()]
        for part in (*closure, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            yield from _content(part)
    elif isinstance(value, partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _content(part)
    elif isinstance(value, str | bytes | int | float | bool | None | tuple | list | dict):
        yield repr(value).encode()
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__}".encode()
        if isinstance(call := vars(type(value)).get("__call__"), FunctionType):
            yield from _code(call.__code__)
        for name, part in sorted(getattr(value, "__dict__", {}).items()):
            yield name.encode()
            if part is not value and not callable(part):
                yield from _content(part)


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code + repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant).encode()
