"""What labels and weights of keys a loss was given, checked: classes, label sets, probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sincere import checks, host
from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.loss_entry import Formula
from sincere.losses.label_sets import LabelOptions
from sincere.losses.options import LABEL_SIMILARITIES
from sincere.losses.pairs import PLAIN_LABELS


def check_label_options(caller: str, options: Mapping[str, Any]) -> LabelOptions:
    """Return how labels are read, from the options of a loss."""
    similarity = checks.choice(caller, "label_similarity", options["label_similarity"], LABEL_SIMILARITIES)
    soft = checks.flag(caller, "soft", options["soft"])
    if soft and similarity == "tanimoto":
        requirement = 'label_similarity must be "overlap" with soft=True, whose weights are probabilities'
        raise InputValueError(checks.wording(caller, requirement, repr(similarity)))
    ignore_index = options["ignore_index"]
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise InputTypeError(checks.wording(caller, "ignore_index must be an integer", type(ignore_index).__name__))
    return LabelOptions(soft, similarity == "tanimoto", ignore_index)


def check_labels(
    caller: str, embeddings: Tensor, labels: Tensor, options: LabelOptions = PLAIN_LABELS, argument: str = "labels"
) -> Tensor:
    """Return the labels of embeddings (n, d) or (n, views, d): int64 (n,), or label sets (n, L) as they are."""
    checks.float_rows(caller, "embeddings", embeddings)
    n = len(embeddings)
    if isinstance(labels, Tensor) and labels.ndim == 2:
        return check_label_sets(caller, argument, labels, n, options, like=embeddings)
    if options.soft:
        requirement = f"{argument} must be probabilities of shape (n, L) with soft=True"
        got = checks.shape(checks.tensor(caller, argument, labels))
        raise InputValueError(checks.wording(caller, requirement, f"shape {got}"))
    form = f"(n,) with n = {n} embeddings"
    return checks.integers(caller, argument, labels, expected=(n,), form=form, like=embeddings)


def check_label_sets(
    caller: str, argument: str, labels: Tensor, n: int, options: LabelOptions, *, like: Tensor
) -> Tensor:
    """Return label sets (n, L) of numbers of at least 0, or rows filled with the label that is ignored."""
    if labels.is_complex():
        raise InputTypeError(checks.wording(caller, f"{argument} must be real numbers", labels.dtype))
    if len(labels) != n or labels.shape[1] == 0:
        requirement = f"{argument} must have shape (n,), or (n, L) for label sets, with n = {n} embeddings"
        raise InputValueError(checks.wording(caller, requirement, checks.shape(labels)))
    checks.same_device(caller, argument, labels, like)
    # Elsewhere this would wait for the device; a compiler cannot trace it.
    if host.reads_back(labels.device):
        rows = labels[~options.ignored(labels)].double()
        if not bool(((rows >= 0) & rows.isfinite()).all()):
            worst = rows[~((rows >= 0) & rows.isfinite())][0].item()
            requirement = f"{argument} of shape (n, L) must be label sets, finite numbers of at least 0"
            raise InputValueError(checks.wording(caller, requirement, f"{worst:g}"))
        if not labels.is_floating_point() and bool((rows > 1).any()):
            requirement = f"{argument} of an integer type and shape (n, L) must be multi-hot, 0 or 1"
            remedy = "One label per image has shape (n,); labels at several levels are for hierarchical_loss"
            raise InputValueError(checks.wording(caller, requirement, f"{rows.max().item():g}", remedy))
        most = float(rows.sum(dim=1).max()) if len(rows) else 0.0
        if options.soft and most > 1.001:
            requirement = f"rows of {argument} must be probabilities, with a sum of at most 1, with soft=True"
            raise InputValueError(checks.wording(caller, requirement, f"a sum of {most:g}"))
    return labels


def check_key_weights(
    caller: str, formula: Formula, key_weights: Tensor | None, embeddings: Tensor, keys: Tensor | None
) -> Tensor | None:
    """Return the weights of keys, (m,), or of the images themselves, (n,), if they are positive numbers."""
    if key_weights is None:
        return None
    weights = checks.tensor(caller, "key_weights", key_weights)
    if formula.prior:
        raise UnsupportedError(f"{caller}: key_weights cannot be combined with prior, which counts keys")
    m, form = (len(embeddings), "(n,) with n") if keys is None else (len(keys), "(m,) with m")
    if weights.shape != (m,):
        requirement = f"key_weights must have shape {form} = {m} {'embeddings' if keys is None else 'keys'}"
        raise InputValueError(checks.wording(caller, requirement, checks.shape(weights)))
    checks.same_device(caller, "key_weights", weights, embeddings)
    if host.reads_back(weights.device):
        wrong = ~((weights > 0) & weights.isfinite())
        if bool(wrong.any()):
            requirement = "key_weights must be finite numbers greater than 0"
            raise InputValueError(checks.wording(caller, requirement, f"{weights[wrong][0].item():g}"))
    return weights
