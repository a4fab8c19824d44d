"""A guard that rejects whatever would make an accelerator's queue of work wait for the host, on the CPU as well.

On the CPU, `host.reads_back` is patched to say that values cannot be read, so that the code takes the branch of an
accelerator; what still reads a value is an error. With fake CUDA tensors, `FakeTensorMode` rejects most of it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from sincere.losses.distributed import collectives, global_batch

# Operators that read values, or whose output has a shape that depends on values.
READS = {
    "_local_scalar_dense",
    "is_nonzero",
    "equal",
    "nonzero",
    "nonzero_numpy",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "bincount",
    "histc",
}
METHODS = {"item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__"}


class SynchronisationError(AssertionError):
    """A step would have waited for the device."""


class _RejectReads(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in READS:
            raise SynchronisationError(f"{name} reads values back")
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            raise SynchronisationError("repeat_interleave by a tensor reads the size of its output back")
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
            # A mask that takes one value is filled in place, without positions.
            if masks and not (name != "index" and args[2].numel() == 1):
                raise SynchronisationError(f"{name} by a mask reads positions back")
        is_copy = name == "_to_copy" and args[0].device.type != "cpu"
        if is_copy and torch.device(kwargs.get("device") or args[0].device).type == "cpu":
            raise SynchronisationError("a copy to the CPU waits for the device")
        return func(*args, **kwargs)


class _RejectMethods(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in METHODS and args and isinstance(args[0], torch.Tensor):
            raise SynchronisationError(f"Tensor.{name} reads values back")
        return func(*args, **(kwargs or {}))


def outside_the_guard(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that may read values: those that travel from host to host and are on no device."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return function(*args, **kwargs)

    return call


@contextmanager
def no_synchronisation(monkeypatch: pytest.MonkeyPatch | None = None) -> Iterator[None]:
    """Raise `SynchronisationError` where a value would be read back; with `monkeypatch`, as on an accelerator."""
    with ExitStack() as stack:
        if monkeypatch is not None:
            patched = stack.enter_context(monkeypatch.context())
            patched.setattr("sincere.host.reads_back", lambda device: False)
            for module in (collectives, global_batch):
                patched.setattr(module, "share_numbers", outside_the_guard(collectives.share_numbers))
        stack.enter_context(_RejectMethods())
        stack.enter_context(_RejectReads())
        yield
