"""A fingerprint is the same in every process, and changes with the content of an object."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sincere.errors import InputTypeError
from sincere.workflows import fingerprints
from sincere.workflows.fingerprints import fingerprint

FACTOR = 2.0


class Holder:
    """An object with anything in it."""

    def __init__(self, content: Any) -> None:
        self.content = content


class Slotted:
    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


class Scaled(nn.Module):
    def __init__(self, content: Any) -> None:
        super().__init__()
        self.content = content
        self.layer = nn.Identity()

    def forward(self, x: Any) -> Any:
        return x


def buffered(content: float) -> nn.Module:
    module = nn.Identity()
    module.register_buffer("content", torch.tensor(content), persistent=False)
    return module


def nested(content: float) -> nn.Module:
    module = Scaled(0.0)
    module.layer = Scaled(content)
    return module


def closure(content: Any) -> Callable[[], Any]:
    return lambda: content


def default(content: Any) -> Callable[[], Any]:
    def function(value: Any = content) -> Any:
        return value

    return function


def add(a: float, b: float) -> float:
    return a + b


MAKERS: dict[str, Callable[[Any], Any]] = {
    "attribute": Holder, "slot": Slotted, "attribute of a module": Scaled, "of a submodule": nested,
    "buffer that is not stored": buffered, "closure": closure, "default": default,
    "array": lambda x: closure(np.array([x, 1.0])), "tensor in a list": lambda x: Holder([torch.tensor([x] * 2000)]),
    "last of a long array": lambda x: np.append(np.zeros(5000), x), "set": lambda x: Holder({x, "a", "b"}),
    "object in a list": lambda x: [Holder(x)], "callable attribute": lambda x: Holder(closure(x)),
    "module as attribute": lambda x: Holder(nested(x)), "partial": lambda x: partial(add, x),
    "method": lambda x: Holder(x).__init__, "date": lambda x: datetime.timedelta(x), "numpy number": np.float32,
    "bfloat16": lambda x: torch.tensor(x, dtype=torch.bfloat16), "sparse": lambda x: torch.tensor([0, x]).to_sparse(),
    "object array": lambda x: np.array([x, None], dtype=object), "dict": lambda x: {"a": {"b": x}},
}  # fmt: skip


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_content_tells_objects_apart(make: Callable[[Any], Any]) -> None:
    assert fingerprint(make(1.0)) == fingerprint(make(1.0)) != fingerprint(make(2.0))


def test_names_and_shapes_count() -> None:
    assert fingerprint(partial(add, a=1)) != fingerprint(partial(add, b=1))
    assert fingerprint(torch.zeros(2, 3)) != fingerprint(torch.zeros(3, 2))
    assert fingerprint(torch.zeros(2)) != fingerprint(torch.zeros(2, dtype=torch.int32))
    frozen = nn.Linear(2, 2).requires_grad_(False)
    trained = nn.Linear(2, 2)
    trained.load_state_dict(frozen.state_dict())
    assert fingerprint(frozen) != fingerprint(trained)
    assert fingerprint(frozen) == fingerprint(frozen.eval()), "the mode is set by the training loop"


def _function(source: str) -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(source, names)
    return names["f"]


def test_code_counts_and_documentation_does_not() -> None:
    plain = _function("def f(x):\n    return x + 1")
    assert fingerprint(plain) == fingerprint(_function("def f(x):\n    'About it.'\n    return x + 1"))
    assert fingerprint(plain) != fingerprint(_function("def f(x):\n    return x - 1"))
    calls = "def g(x):\n    return x {} 1\ndef f(x):\n    return g(x)"
    assert fingerprint(_function(calls.format("+"))) != fingerprint(_function(calls.format("-"))), "what it calls"
    constant = "FACTOR = {}\ndef f(x):\n    return FACTOR * x"
    assert fingerprint(_function(constant.format(1))) != fingerprint(_function(constant.format(2)))
    counter = "COUNT = {}\ndef f(x):\n    global COUNT\n    COUNT += 1\n    return x"
    assert fingerprint(_function(counter.format(1))) == fingerprint(_function(counter.format(2))), "its own to change"
    method = "class f:\n    def forward(self):\n        return self.helper()\n    def helper(self):\n        return {}"
    assert fingerprint(_function(method.format(1))()) != fingerprint(_function(method.format(2))())


def test_cycles_and_what_cannot_be_read() -> None:
    one = Holder(None)
    one.content = one
    assert fingerprint(one) == fingerprint(one)

    def recursive(n: int) -> int:
        return n and recursive(n - 1)

    assert fingerprint(recursive) == fingerprint(recursive)
    assert fingerprint(open) == fingerprint(open)
    assert fingerprint(len) != fingerprint(max)
    with pytest.raises(InputTypeError, match="weights must be initialised"):
        fingerprint(nn.LazyLinear(3))
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(InputTypeError, match="list is nested too deeply"):
        fingerprint(deep)


def test_the_same_in_every_process() -> None:
    """Whatever the addresses of objects and the order of sets are."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.workflows.test_fingerprints import *\n"
        "torch.manual_seed(0)\n"
        "known = lambda x: x in {'a', 'b', 'c'}\n"
        "objects = [known, Holder({'x', 'y', 'z'}), nested(1.0), nn.Linear(3, 2), add, partial(add, Holder(1))]\n"
        "print(fingerprint(objects))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": str(seed)}
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 64


def test_installed_packages_count_by_name() -> None:
    """An update of PyTorch does not make a run another one."""
    assert fingerprints._is_installed(nn.Linear)
    assert fingerprints._is_installed(np.concatenate)
    assert fingerprints._is_installed(nn.functional.relu)
    assert not fingerprints._is_installed(Holder)
