"""The losses' arguments, checked once and brought into the form the kernels take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sincere import checks, host
from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.loss_catalog import LOSSES, find_loss, loss_name
from sincere.loss_entry import Formula
from sincere.losses.label_inputs import check_key_weights, check_label_sets, check_labels
from sincere.losses.label_sets import LabelOptions
from sincere.losses.pairs import PLAIN_LABELS, Contrast, contrast_batch, contrast_with_keys
from sincere.shapes import KeyRows, Rows, Scalar

FIRST_UNLABELLED = 2**62  # first id of images without a label, above all labels


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
        operand_dtype: The type in which embeddings and keys were given; float32 where they differ.
    """

    caller: str
    shape: tuple[int, ...]
    rows: Rows
    key_rows: KeyRows | None
    temperature: Scalar
    contrast: Contrast
    operand_dtype: torch.dtype


def check_formula(caller: str, loss: str, hyper_parameters: Mapping[str, float]) -> Formula:
    """Return what the kernels compute for a loss of the table, with these hyper-parameters in place of its defaults.

    Raises:
        InputTypeError, InputValueError: There is no such loss or hyper-parameter, or a value is out of range.
        UnsupportedError: The loss is none of the plain ones, which alone have reference levels and coefficients.
    """
    entry = find_loss(loss, caller=caller)
    allowed = {parameter.name: parameter for parameter in entry.hyper_parameters}
    for name, value in hyper_parameters.items():
        if name not in allowed:
            has = f"hyper-parameters {', '.join(allowed)}" if allowed else "no hyper-parameter besides the temperature"
            raise InputTypeError(f"{caller}: unexpected keyword argument {name!r}; {loss} has {has}")
        checks.number(caller, name, value, least=allowed[name].least)
    formula = entry.formula(**hyper_parameters)
    if formula is None or not formula.is_plain:
        names = ", ".join(name for name, known in LOSSES.items() if known.is_plain)
        raise UnsupportedError(f"{caller}: {loss} has none of the formulas that are known here, those of {names}")
    return formula


def check_labelled_loss(caller: str, loss: str) -> None:
    """Raise unless a loss is in the table and compares classes."""
    labelled = [name for name, entry in LOSSES.items() if entry.needs_labels]
    if loss not in LOSSES:
        checks.choice(caller, "loss", loss_name(loss), labelled)
    entry = LOSSES[loss]
    if not entry.needs_labels or entry.needs_views:
        names = ", ".join(map(repr, labelled))
        requirement = f"loss must be one that takes labels, {names}"
        raise InputValueError(checks.wording(caller, requirement, f"{loss!r}, whose classes are single images"))


def check_inputs(
    caller: str,
    formula: Formula,
    embeddings: Tensor,
    labels: Tensor,
    temperature: float | Tensor,
    keys: Tensor | None = None,
    key_labels: Tensor | None = None,
    anchor_index: Tensor | None = None,
    key_weights: Tensor | None = None,
    label_options: LabelOptions = PLAIN_LABELS,
    draw: int = 0,
) -> Inputs:
    """Return the checked inputs, or raise the error that says which argument is wrong and how."""
    labels = check_labels(caller, embeddings, labels, label_options)
    n_views, dtype = count_views(embeddings), embeddings.dtype
    if keys is None:
        for argument, value in (("key_labels", key_labels), ("anchor_index", anchor_index)):
            if value is not None:
                raise InputValueError(checks.wording(caller, f"{argument} must come with keys", "keys=None"))
    else:
        dtype = torch.promote_types(dtype, _check_keys(caller, keys, embeddings).dtype)
    dtype = statistics_dtype(dtype)
    key_weights = check_key_weights(caller, formula, key_weights, embeddings, keys)
    shared: dict[str, Any] = {"dtype": dtype, "options": label_options, "key_weights": key_weights}
    key_rows = None
    if keys is None:
        contrast = contrast_batch(formula, labels, n_views=n_views, **shared)
    else:
        key_labels, anchor_index = _check_key_ids(
            caller, embeddings, keys, labels, key_labels, anchor_index, label_options
        )
        shared |= {"n_views": n_views, "n_key_views": count_views(keys)}
        contrast = contrast_with_keys(formula, labels, key_labels, anchor_index, **shared)
        key_rows = without_ignored(keys, label_options.ignored(key_labels), dtype)
    return Inputs(
        caller=caller,
        shape=checks.shape(embeddings)[:-1],
        rows=without_ignored(embeddings, label_options.ignored(labels), dtype),
        key_rows=key_rows,
        temperature=check_temperature(caller, temperature, dtype),
        contrast=replace(contrast, draw=draw),
        operand_dtype=embeddings.dtype if keys is None or keys.dtype == embeddings.dtype else dtype,
    )


def without_ignored(embeddings: Tensor, ignored: Tensor, dtype: torch.dtype) -> Rows:
    """Return one row for each view, zero where an image takes no part, so that no NaN in it can spread."""
    rows = embeddings.flatten(0, -2).to(dtype)
    if host.reads_back(ignored.device) and not bool(ignored.any()):
        return rows
    return rows.masked_fill(ignored.repeat_interleave(count_views(embeddings))[:, None], 0.0)


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
    caller: str,
    embeddings: Tensor,
    keys: Tensor,
    labels: Tensor,
    key_labels: Tensor | None,
    anchor_index: Tensor | None,
    options: LabelOptions,
) -> tuple[Tensor, Tensor | None]:
    if key_labels is None:
        raise InputValueError(checks.wording(caller, "keys must come with key_labels", "key_labels=None"))
    m = len(keys)
    if labels.ndim == 2:
        if checks.tensor(caller, "key_labels", key_labels).ndim != 2 or key_labels.shape[1] != labels.shape[1]:
            requirement = f"key_labels must be label sets of shape (m, L) with L = {labels.shape[1]}, as labels are"
            raise InputValueError(checks.wording(caller, requirement, checks.shape(key_labels)))
        key_labels = check_label_sets(caller, "key_labels", key_labels, m, options, like=embeddings)
    else:
        form = f"(m,) with m = {m} keys"
        key_labels = checks.integers(caller, "key_labels", key_labels, expected=(m,), form=form, like=embeddings)
    if anchor_index is None:
        return key_labels, None
    shape = checks.shape(embeddings)[:-1]
    form = f"{shape}, one entry for each embedding"
    anchor_index = checks.integers(caller, "anchor_index", anchor_index, expected=shape, form=form, like=embeddings)
    # Elsewhere it would wait for the device, where a wrong index fails anyway; a compiler cannot trace it.
    if host.reads_back(anchor_index.device):
        low, high, rows = int(anchor_index.min()), int(anchor_index.max()), m * count_views(keys)
        if low < -1 or high >= rows:
            requirement = f"anchor_index must be -1 or a row of keys, 0 to {rows - 1}"
            raise InputValueError(checks.wording(caller, requirement, low if low < -1 else high))
    return key_labels, anchor_index
