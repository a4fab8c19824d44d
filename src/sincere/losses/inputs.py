"""The losses' arguments, checked once and brought into the form the kernels take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sincere import checks
from sincere.catalog import LOSSES, Formula, find_loss
from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.losses.pairs import Contrast, contrast_batch, contrast_with_keys
from sincere.shapes import KeyRows, Rows, Scalar


@dataclass(frozen=True, eq=False)
class Inputs:
    """A loss's arguments after the checks.

    Attributes:
        caller: The public function, for later messages.
        shape: The embeddings' shape without d.
        rows: Each view a row of its own, in the type the statistics are computed in.
        key_rows: The keys likewise; None for a batch against itself.
        temperature: Without dimensions, in the same type; a number stays on the CPU.
        contrast: Who is compared with whom, and how.
    """

    caller: str
    shape: tuple[int, ...]
    rows: Rows
    key_rows: KeyRows | None
    temperature: Scalar
    contrast: Contrast


def check_formula(caller: str, loss: str, hyper_parameters: Mapping[str, float]) -> Formula:
    """Return what the kernels compute for a loss of the table, with these hyper-parameters in place of its defaults.

    Raises:
        InputTypeError, InputValueError: There is no such loss or hyper-parameter, or a value is out of range.
        UnsupportedError: The loss is of another kind.
    """
    entry = find_loss(loss, caller=caller)
    allowed = {parameter.name: parameter for parameter in entry.hyper_parameters}
    for name, value in hyper_parameters.items():
        if name not in allowed:
            has = f"hyper-parameters {', '.join(allowed)}" if allowed else "no hyper-parameter besides the temperature"
            raise InputTypeError(f"{caller}: unexpected keyword argument {name!r}; {loss} has {has}")
        checks.number(caller, name, value, least=allowed[name].least)
    formula = entry.formula(**hyper_parameters)
    if formula is None:
        raise UnsupportedError(f"{caller}: {loss} is not a loss of this family: its terms are not known here")
    return formula


def check_labelled_loss(caller: str, loss: str) -> None:
    """Raise unless a loss is in the table and compares classes."""
    labelled = [name for name, entry in LOSSES.items() if entry.needs_labels]
    if loss in LOSSES and loss not in labelled:
        names = ", ".join(map(repr, labelled))
        requirement = f"loss must be one that takes labels, {names}"
        raise InputValueError(checks.wording(caller, requirement, f"{loss!r}, whose classes are single images"))
    checks.choice(caller, "loss", loss, labelled)


def check_inputs(
    caller: str,
    formula: Formula,
    embeddings: Tensor,
    labels: Tensor,
    temperature: float | Tensor,
    keys: Tensor | None,
    key_labels: Tensor | None,
    anchor_index: Tensor | None,
) -> Inputs:
    """Return the checked inputs, or raise the error that says which argument is wrong and how."""
    labels = check_labels(caller, embeddings, labels)
    n_views, dtype = count_views(embeddings), embeddings.dtype
    if keys is None:
        for argument, value in (("key_labels", key_labels), ("anchor_index", anchor_index)):
            if value is not None:
                raise InputValueError(checks.wording(caller, f"{argument} must come with keys", "keys=None"))
    else:
        dtype = torch.promote_types(dtype, _check_keys(caller, keys, embeddings).dtype)
    dtype = statistics_dtype(dtype)
    if keys is None:
        contrast = contrast_batch(formula, labels, n_views=n_views, dtype=dtype)
    else:
        key_labels, anchor_index = _check_key_ids(caller, embeddings, keys, key_labels, anchor_index)
        views = {"n_views": n_views, "n_key_views": count_views(keys)}
        contrast = contrast_with_keys(formula, labels, key_labels, anchor_index, **views, dtype=dtype)
    return Inputs(
        caller=caller,
        shape=checks.shape(embeddings)[:-1],
        rows=embeddings.flatten(0, -2).to(dtype),
        key_rows=None if keys is None else keys.flatten(0, -2).to(dtype),
        temperature=check_temperature(caller, temperature, dtype),
        contrast=contrast,
    )


def check_labels(caller: str, embeddings: Tensor, labels: Tensor) -> Tensor:
    """Return the labels as int64 if there is one for each embedding (n, d) or (n, views, d)."""
    checks.float_rows(caller, "embeddings", embeddings)
    n = len(embeddings)
    form = f"(n,) with n = {n} embeddings"
    return checks.integers(caller, "labels", labels, expected=(n,), form=form, like=embeddings)


def count_views(rows: Tensor) -> int:
    """Return the number of views of (n, views, d), 1 for (n, d)."""
    return rows.shape[1] if rows.ndim == 3 else 1


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which losses are computed: float32 whatever the input, but float64 stays float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_temperature(caller: str, temperature: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Return the temperature without dimensions; a number stays on the CPU."""
    if not isinstance(temperature, Tensor):
        value = checks.number(caller, "temperature", temperature, above=0.0)
        tiny = torch.finfo(dtype).tiny
        if value < tiny:
            requirement = f"temperature must be at least {tiny:.3g}, the smallest {dtype}"
            raise InputValueError(checks.wording(caller, requirement, temperature))
        return torch.tensor(value, dtype=dtype, device="cpu")
    if not temperature.is_floating_point():
        requirement = "temperature must be a number or a floating-point tensor"
        raise InputTypeError(checks.wording(caller, requirement, temperature.dtype))
    if temperature.numel() != 1:
        requirement = "temperature must be a number or a tensor with one element"
        raise InputValueError(checks.wording(caller, requirement, f"shape {checks.shape(temperature)}"))
    return temperature.reshape(()).to(dtype)


def _check_keys(caller: str, keys: Tensor, embeddings: Tensor) -> Tensor:
    checks.float_rows(caller, "keys", keys)
    checks.same_device(caller, "keys", keys, embeddings)
    if keys.shape[-1] != embeddings.shape[-1]:
        requirement = f"keys must have the embeddings' dimension d = {embeddings.shape[-1]}"
        raise InputValueError(checks.wording(caller, requirement, f"shape {checks.shape(keys)}"))
    return keys


def _check_key_ids(
    caller: str, embeddings: Tensor, keys: Tensor, key_labels: Tensor | None, anchor_index: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    if key_labels is None:
        raise InputValueError(checks.wording(caller, "keys must come with key_labels", "key_labels=None"))
    m = len(keys)
    form = f"(m,) with m = {m} keys"
    key_labels = checks.integers(caller, "key_labels", key_labels, expected=(m,), form=form, like=embeddings)
    if anchor_index is None:
        return key_labels, None
    shape = checks.shape(embeddings)[:-1]
    form = f"{shape}, one entry for each embedding"
    anchor_index = checks.integers(caller, "anchor_index", anchor_index, expected=shape, form=form, like=embeddings)
    # Elsewhere it would wait for the device, where a wrong index fails anyway; a compiler cannot trace it.
    if anchor_index.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high, rows = int(anchor_index.min()), int(anchor_index.max()), m * count_views(keys)
        if low < -1 or high >= rows:
            requirement = f"anchor_index must be -1 or a row of keys, 0 to {rows - 1}"
            raise InputValueError(checks.wording(caller, requirement, low if low < -1 else high))
    return key_labels, anchor_index
