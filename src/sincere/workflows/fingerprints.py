"""Fingerprints of Python objects: a hash of what an object consists of, the same in every process.

It covers weights, arrays and attributes, the code of functions and of the methods of classes, and the functions and
constants of their own modules that they use. What PyTorch and other installed packages contain counts by its name.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sincere.errors import InputTypeError

PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    PurePath,
    np.generic,
    torch.dtype,
    torch.device,
)
_INSTALLED = ("site-packages", "dist-packages")
# Attributes of a module that are covered otherwise, or do not matter: training mode is set by the loop.
_MODULE_TABLES = {"_parameters", "_buffers", "_modules", "training"}


def fingerprint(value: Any) -> str:
    """Return a hash of an object's content, in hexadecimal.

    Raises:
        InputTypeError: It holds weights that are not initialised, or is nested too deeply.
    """
    try:
        return _Walk().digest(value).hex()
    except RecursionError as error:
        raise InputTypeError(f"{type(value).__name__} is nested too deeply to be told from other objects") from error


class _Walk:
    """One pass over an object and all it refers to; what was met before counts by its number."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no later object gets the address of an earlier one

    def digest(self, value: Any) -> bytes:
        hashed = hashlib.sha256()
        for part in self._parts(value):
            hashed.update(len(part).to_bytes(8, "little") + part)
        return hashed.digest()

    def _parts(self, value: Any) -> Iterator[bytes]:
        """Yield what an object consists of."""
        if isinstance(value, PLAIN):
            yield f"{type(value).__name__} {value!r}".encode()
            return
        if id(value) in self.seen:
            yield f"number {self.seen[id(value)]}".encode()
            return
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        kind = type(value)
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        if isinstance(value, Tensor):
            yield from _tensor(value)
        elif isinstance(value, np.ndarray):
            yield from self._array(value)
        elif isinstance(value, list | tuple):
            yield from map(self.digest, value)
        elif isinstance(value, set | frozenset):
            yield from sorted(_Walk().digest(element) for element in value)
        elif isinstance(value, Mapping):
            yield from map(self.digest, [part for item in value.items() for part in item])
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, MethodType):
            yield from map(self.digest, (value.__func__, value.__self__))
        elif isinstance(value, functools.partial):
            yield from map(self.digest, (value.func, value.args, value.keywords))
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, ModuleType | BuiltinFunctionType):
            yield _name(value)
        else:
            yield from self._object(value)

    def _array(self, value: np.ndarray[Any, Any]) -> Iterator[bytes]:
        yield repr((value.dtype.str, value.shape)).encode()
        yield self.digest(value.tolist()) if value.dtype.hasobject else np.ascontiguousarray(value).tobytes()

    def _object(self, value: Any) -> Iterator[bytes]:
        yield self.digest(type(value))
        attributes = dict(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            slots = vars(base).get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else slots
            attributes |= {name: getattr(value, name) for name in names if hasattr(value, name)}
        if isinstance(value, nn.Module):
            named: dict[str, Any] = {**value._parameters, **value._buffers, **value._modules}
            attributes = {name: part for name, part in attributes.items() if name not in _MODULE_TABLES} | named
        elif not attributes:
            yield from map(self.digest, _pickled_state(value))
        for name, part in sorted(attributes.items()):
            yield name.encode()
            yield self.digest(part)

    def _class(self, value: type) -> Iterator[bytes]:
        """Yield the code of a class and of its bases, apart from those of installed packages."""
        for base in value.__mro__:
            yield _name(base)
            if _is_installed(base):
                continue
            for name, part in sorted(vars(base).items()):
                function = _function_of(part)
                if function is not None or isinstance(part, (*PLAIN, tuple)):
                    if name in ("__doc__", "__module__", "__firstlineno__", "__static_attributes__"):
                        continue
                    yield name.encode()
                    yield self.digest(part if function is None else function)

    def _function(self, function: FunctionType) -> Iterator[bytes]:
        if _is_installed(function):
            yield _name(function)
        else:
            yield from self._code(function.__code__, documentation=function.__doc__)
            used = _global_names(function.__code__)
            for name in sorted(used & function.__globals__.keys()):
                part = function.__globals__[name]
                if isinstance(part, (*PLAIN, tuple, FunctionType, functools.partial)):
                    yield name.encode()
                    yield self.digest(part)
        for cell in function.__closure__ or ():
            try:
                yield self.digest(cell.cell_contents)
            except ValueError:  # not filled yet, as in a function that is being defined
                yield b"empty"
        yield from map(self.digest, (function.__defaults__, function.__kwdefaults__))

    def _code(self, code: CodeType, *, documentation: str | None = None) -> Iterator[bytes]:
        yield code.co_code
        yield repr(code.co_names).encode()
        for i, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                yield from self._code(constant)
            elif i or constant != documentation:  # the first constant is the docstring, if there is one
                yield self.digest(constant)


def _tensor(value: Tensor) -> Iterator[bytes]:
    if torch.nn.parameter.is_lazy(value):
        raise InputTypeError("weights must be initialised; call the module once before it is passed on")
    yield repr((str(value.dtype), tuple(value.shape), value.requires_grad)).encode()
    if value.layout is not torch.strided:
        value = value.to_dense()
    if not value.is_meta:
        yield tensor_bytes(value)


def tensor_bytes(value: Tensor) -> bytes:
    """Return the values of a tensor of any type and on any device, in order."""
    plain = value.detach().cpu().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _pickled_state(value: Any) -> tuple[Any, ...]:
    """Return what pickle would store of an object without attributes, such as a date; nothing if it cannot."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # locks, files, generators: raises almost anything
        return ()
    return reduced[1:3] if isinstance(reduced, tuple) else (reduced,)


def _function_of(part: Any) -> Callable[..., Any] | None:
    """Return the function behind an attribute of a class: a method, a property, a static method."""
    if isinstance(part, FunctionType):
        return part
    function = getattr(part, "fget", None) or getattr(part, "__func__", None) or getattr(part, "func", None)
    return function if isinstance(function, FunctionType) else None


def _global_names(code: CodeType) -> set[str]:
    """Return the global names that a function reads, and does not set itself."""
    names: dict[str, set[str]] = {"LOAD_GLOBAL": set(), "LOAD_NAME": set(), "STORE_GLOBAL": set()}
    for instruction in dis.get_instructions(code):
        if instruction.opname in names:
            names[instruction.opname].add(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names["LOAD_GLOBAL"] |= _global_names(constant)
    return (names["LOAD_GLOBAL"] | names["LOAD_NAME"]) - names["STORE_GLOBAL"]


def _is_installed(value: Any) -> bool:
    """Return whether a function or class comes with Python or an installed package, not from the caller's own code."""
    top = (value.__module__ or "").partition(".")[0]
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return any(part in file for part in _INSTALLED)


def _name(value: Any) -> bytes:
    owner = getattr(value, "__module__", None) or ""
    return f"{owner}.{getattr(value, '__qualname__', None) or value.__name__}".encode()
