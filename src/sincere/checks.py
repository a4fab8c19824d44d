"""Input checks with one wording: `<caller>: <argument> must <requirement>; got <what came>. <remedy>`.

Every public function checks its arguments once, here, and hands plain facts to the code below it. No check
reads a tensor's values back from an accelerator, because that would stall the training step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any
from unicodedata import category

from sincere.errors import InputTypeError, InputValueError

if TYPE_CHECKING:
    from torch import Tensor

_CONTROLS = {"Cc", "Cs", "Zl", "Zp"}  # Unicode categories
_DIRECTIONS = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def wording(caller: str, requirement: str, got: object, remedy: str = "") -> str:
    """Return the one error sentence of this package."""
    return f"{caller}: {requirement}; got {got}" + (f". {remedy}" if remedy else "")


def choice(caller: str, argument: str, value: object, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`, else raise with the nearest one."""
    names = list(options)
    if isinstance(value, str) and value in names:
        return value
    raise InputValueError(f"{caller}: {argument} {not_one_of(value, names)}")


def not_one_of(value: object, names: Sequence[str]) -> str:
    """Return the requirement that a value is one of some names, with the nearest one."""
    near = get_close_matches(str(value), names, n=1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    if isinstance(value, str) and "," in value and {part.strip() for part in value.split(",")} <= {*names, ""}:
        hint = ". Give one name, or, where several are possible, several with spaces between them"
    return f"must be one of {', '.join(map(repr, names))}; got {value!r}{hint}"


def sample_name(text: object, number: object) -> str:
    """Return what to call a sample: its file name or text, without control characters; # and its id if it has none."""
    return f"#{number}" if text is None or text == "" else printable(str(text))


def number(
    caller: str, argument: str, value: object, *, above: float | None = None, least: float | None = None
) -> float:
    """Return `value` as a float if it is a finite real number, greater than `above`, at least `least`."""
    limit = f" greater than {above:g}" if above is not None else f" of at least {least:g}" if least is not None else ""
    requirement = f"{argument} must be a finite number{limit}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(wording(caller, requirement, type(value).__name__))
    result = float(value)
    if not math.isfinite(result) or (above is not None and result <= above) or (least is not None and result < least):
        raise InputValueError(wording(caller, requirement, value))
    return result


def count(caller: str, argument: str, value: object, *, least: int) -> int:
    """Return `value` if it is an integer of at least `least`."""
    requirement = f"{argument} must be an integer of at least {least}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputTypeError(wording(caller, requirement, type(value).__name__))
    if value < least:
        raise InputValueError(wording(caller, requirement, value))
    return int(value)


def flag(caller: str, argument: str, value: object) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, bool):
        raise InputTypeError(wording(caller, f"{argument} must be True or False", repr(value)))
    return value


def tensor(caller: str, argument: str, value: object) -> Tensor:
    """Return `value` if it is a torch tensor."""
    import torch

    if not isinstance(value, torch.Tensor):
        remedy = f"; convert them with torch.as_tensor({argument})" if isinstance(value, (list, tuple)) else ""
        raise InputTypeError(wording(caller, f"{argument} must be a torch.Tensor", f"{type(value).__name__}{remedy}"))
    return value


def float_rows(caller: str, argument: str, value: object) -> Tensor:
    """Return `value` if it is a non-empty floating-point tensor of shape (n, d) or (n, views, d)."""
    rows = tensor(caller, argument, value)
    if not rows.is_floating_point():
        raise InputTypeError(wording(caller, f"{argument} must have a floating-point type", rows.dtype))
    if rows.ndim not in (2, 3):
        raise InputValueError(wording(caller, f"{argument} must have shape (n, d) or (n, views, d)", shape(rows)))
    if rows.numel() == 0:
        raise InputValueError(wording(caller, f"{argument} must not be empty", f"shape {shape(rows)}"))
    return rows


def integers(
    caller: str, argument: str, value: object, *, expected: tuple[int, ...], form: str, like: Tensor
) -> Tensor:
    """Return `value` as int64 if it is an integer tensor of shape `expected` on the device of `like`.

    `form` says the expected shape in words, for the message.
    """
    import torch

    ids = tensor(caller, argument, value)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        remedy = f"Convert them with {argument}.long()"
        raise InputTypeError(wording(caller, f"{argument} must have an integer type", ids.dtype, remedy))
    if ids.shape != expected:
        raise InputValueError(wording(caller, f"{argument} must have shape {form}", shape(ids)))
    same_device(caller, argument, ids, like)
    return ids.to(torch.int64)


def same_device(caller: str, argument: str, value: Tensor, like: Tensor) -> None:
    """Raise unless both tensors are on one device."""
    if value.device != like.device:
        requirement = f"{argument} must be on the embeddings' device {like.device}"
        raise InputValueError(wording(caller, requirement, value.device))


def shape(value: Any) -> tuple[int, ...]:
    """Return a tensor's shape as the plain tuple that messages show."""
    return tuple(value.shape)


def printable(text: str) -> str:
    r"""Return text with everything that could steer a terminal or reorder a line shown as an escape.

    Control characters, halves of characters (as in undecodable names of files), line separators and marks that
    override the direction of writing.

    Example:
        >>> printable("cat" + chr(27) + "[31m")
        'cat\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(_escaped(c) if category(c) in _CONTROLS or c in _DIRECTIONS else c for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
