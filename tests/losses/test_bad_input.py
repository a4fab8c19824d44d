"""Each wrong argument gives one sentence that says what was expected and what came, asserted in full."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from sincere import EpsSupInfoNCELoss, SINCERELoss, eps_supinfonce_loss, info_nce_loss, sincere_loss, supcon_loss
from sincere.errors import InputTypeError, InputValueError, SincereError

X, Y = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 2, 2])
KEYS, KEY_LABELS = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
KEYED = {"keys": KEYS, "key_labels": KEY_LABELS}
META = torch.device("meta")  # a second device on every machine

VALUE_ERRORS: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "embeddings without n": (X[0], Y, {}, "embeddings must have shape (n, d) or (n, views, d); got (4,)"),
    "embeddings of four dimensions": (
        X.view(1, 1, 6, 4),
        Y,
        {},
        "embeddings must have shape (n, d) or (n, views, d); got (1, 1, 6, 4)",
    ),
    "empty batch": (X[:0], Y[:0], {}, "embeddings must not be empty; got shape (0, 4)"),
    "no views": (X.view(6, 1, 4)[:, :0], Y, {}, "embeddings must not be empty; got shape (6, 0, 4)"),
    "too few labels": (X, Y[:5], {}, "labels must have shape (n,) with n = 6 embeddings; got (5,)"),
    "labels per view": (
        X.view(3, 2, 4),
        Y.view(3, 2),
        {},
        "labels of an integer type and shape (n, L) must be multi-hot, 0 or 1; got 2. "
        "One label per image has shape (n,); labels at several levels are for hierarchical_loss",
    ),
    "labels elsewhere": (X, Y.to(META), {}, "labels must be on the embeddings' device cpu; got meta"),
    "temperature 0": (X, Y, {"temperature": 0}, "temperature must be a finite number greater than 0; got 0"),
    "temperature below 0": (
        X,
        Y,
        {"temperature": -0.1},
        "temperature must be a finite number greater than 0; got -0.1",
    ),
    "temperature nan": (
        X,
        Y,
        {"temperature": math.nan},
        "temperature must be a finite number greater than 0; got nan",
    ),
    "temperature inf": (
        X,
        Y,
        {"temperature": math.inf},
        "temperature must be a finite number greater than 0; got inf",
    ),
    "temperature below float32": (
        X,
        Y,
        {"temperature": 1e-50},
        "temperature must be at least 1.18e-38, the smallest torch.float32; got 1e-50",
    ),
    "temperatures": (
        X,
        Y,
        {"temperature": torch.ones(6)},
        "temperature must be a number or a tensor with one element; got shape (6,)",
    ),
    "keys alone": (X, Y, {"keys": KEYS}, "keys must come with key_labels; got key_labels=None"),
    "key_labels alone": (X, Y, {"key_labels": KEY_LABELS}, "key_labels must come with keys; got keys=None"),
    "anchor_index alone": (X, Y, {"anchor_index": Y}, "anchor_index must come with keys; got keys=None"),
    "keys of another dimension": (
        X,
        Y,
        {"keys": KEYS[:, :3], "key_labels": KEY_LABELS},
        "keys must have the embeddings' dimension d = 4; got shape (5, 3)",
    ),
    "keys elsewhere": (
        X,
        Y,
        {"keys": KEYS.to(META), "key_labels": KEY_LABELS},
        "keys must be on the embeddings' device cpu; got meta",
    ),
    "no keys": (X, Y, {"keys": KEYS[:0], "key_labels": KEY_LABELS[:0]}, "keys must not be empty; got shape (0, 4)"),
    "too few key_labels": (
        X,
        Y,
        {"keys": KEYS, "key_labels": Y},
        "key_labels must have shape (m,) with m = 5 keys; got (6,)",
    ),
    "anchor_index too short": (
        X,
        Y,
        {**KEYED, "anchor_index": Y[:3]},
        "anchor_index must have shape (6,), one entry for each embedding; got (3,)",
    ),
    "anchor_index too large": (
        X,
        Y,
        {**KEYED, "anchor_index": Y + 4},
        "anchor_index must be -1 or a row of keys, 0 to 4; got 6",
    ),
    "anchor_index too small": (
        X,
        Y,
        {**KEYED, "anchor_index": Y - 3},
        "anchor_index must be -1 or a row of keys, 0 to 4; got -3",
    ),
    "reduction": (
        X,
        Y,
        {"reduction": "means"},
        "reduction must be one of 'mean', 'sum', 'none'; got 'means'. Did you mean 'mean'?",
    ),
    "kernel": (
        X,
        Y,
        {"kernel": "tyled"},
        "kernel must be one of 'auto', 'dense', 'tiled', 'triton'; got 'tyled'. Did you mean 'tiled'?",
    ),
    "kernel like nothing": (
        X,
        Y,
        {"kernel": None},
        "kernel must be one of 'auto', 'dense', 'tiled', 'triton'; got None",
    ),
}
LIST = "must be a torch.Tensor; got list; convert them with torch.as_tensor"
TYPE_ERRORS: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "embeddings as a list": ([[1.0]], Y, {}, f"embeddings {LIST}(embeddings)"),
    "embeddings as an array": (X.numpy(), Y, {}, "embeddings must be a torch.Tensor; got ndarray"),
    "integer embeddings": (Y[:, None], Y, {}, "embeddings must have a floating-point type; got torch.int64"),
    "complex embeddings": (X.cfloat(), Y, {}, "embeddings must have a floating-point type; got torch.complex64"),
    "labels as a list": (
        X,
        [0] * 6,
        {},
        "labels must be a torch.Tensor; got list; convert them with torch.as_tensor(labels)",
    ),
    "float labels": (
        X,
        Y.float(),
        {},
        "labels must have an integer type; got torch.float32. Convert them with labels.long()",
    ),
    "bool labels": (
        X,
        Y.bool(),
        {},
        "labels must have an integer type; got torch.bool. Convert them with labels.long()",
    ),
    "temperature as text": (
        X,
        Y,
        {"temperature": "0.1"},
        "temperature must be a finite number greater than 0; got str",
    ),
    "temperature as a flag": (
        X,
        Y,
        {"temperature": True},
        "temperature must be a finite number greater than 0; got bool",
    ),
    "integer temperature tensor": (
        X,
        Y,
        {"temperature": torch.tensor(1)},
        "temperature must be a number or a floating-point tensor; got torch.int64",
    ),
    "normalize as text": (X, Y, {"normalize": "no"}, "normalize must be True or False; got 'no'"),
    "keys as a list": (X, Y, {"keys": [1], "key_labels": KEY_LABELS}, f"keys {LIST}(keys)"),
    "float key_labels": (
        X,
        Y,
        {"keys": KEYS, "key_labels": KEY_LABELS.float()},
        "key_labels must have an integer type; got torch.float32. Convert them with key_labels.long()",
    ),
    "float anchor_index": (
        X,
        Y,
        {**KEYED, "anchor_index": Y.float()},
        "anchor_index must have an integer type; got torch.float32. Convert them with anchor_index.long()",
    ),
}


@pytest.mark.parametrize("loss", [sincere_loss, supcon_loss, eps_supinfonce_loss])
@pytest.mark.parametrize("case", VALUE_ERRORS)
def test_value_errors(loss: Any, case: str) -> None:
    embeddings, labels, options, message = VALUE_ERRORS[case]
    with pytest.raises(InputValueError) as caught:
        loss(embeddings, labels, **options)
    assert str(caught.value) == f"{loss.__name__}: {message}"
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SincereError)


@pytest.mark.parametrize("loss", [sincere_loss, supcon_loss, eps_supinfonce_loss])
@pytest.mark.parametrize("case", TYPE_ERRORS)
def test_type_errors(loss: Any, case: str) -> None:
    embeddings, labels, options, message = TYPE_ERRORS[case]
    with pytest.raises(InputTypeError) as caught:
        loss(embeddings, labels, **options)
    assert str(caught.value) == f"{loss.__name__}: {message}"
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("embeddings", [X, X[:, None]])
def test_infonce_needs_two_views(embeddings: torch.Tensor) -> None:
    with pytest.raises(InputValueError) as caught:
        info_nce_loss(embeddings)
    shape = tuple(embeddings.shape)
    expected = f"info_nce_loss: embeddings must have shape (n, views, d) with at least 2 views; got {shape}"
    assert str(caught.value) == expected


@pytest.mark.parametrize(("epsilon", "got"), [(-0.1, "-0.1"), (math.nan, "nan")])
def test_epsilon(epsilon: float, got: str) -> None:
    with pytest.raises(InputValueError) as caught:
        eps_supinfonce_loss(X, Y, epsilon=epsilon)
    assert str(caught.value) == f"eps_supinfonce_loss: epsilon must be a finite number of at least 0; got {got}"


def test_modules_check_when_they_are_made() -> None:
    with pytest.raises(InputValueError, match=r"^SINCERELoss: temperature must be .* got -1$"):
        SINCERELoss(-1)
    with pytest.raises(InputValueError, match=r"^SINCERELoss: temperature must be .* got shape \(2,\)$"):
        SINCERELoss(torch.tensor([0.1, 0.2]))
    with pytest.raises(InputTypeError, match=r"^SINCERELoss: temperature must be .* got torch.int64$"):
        SINCERELoss(torch.tensor(1))
    with pytest.raises(InputTypeError, match=r"^SINCERELoss: normalize must be True or False; got 1$"):
        SINCERELoss(normalize=1)
    with pytest.raises(InputValueError, match=r"^SINCERELoss: reduction must be one of .* got 'avg'"):
        SINCERELoss(reduction="avg")
    with pytest.raises(InputValueError, match=r"^SINCERELoss: kernel must be one of .* got 'fast'"):
        SINCERELoss(kernel="fast")
    with pytest.raises(InputValueError, match=r"^EpsSupInfoNCELoss: epsilon must be .* got -1$"):
        EpsSupInfoNCELoss(epsilon=-1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: sincere_loss(X, Y, temprature=0.1),
            "sincere_loss: unexpected keyword argument 'temprature'. Did you mean 'temperature'?",
        ),
        (lambda: info_nce_loss(X.view(3, 2, 4), view=2), "info_nce_loss: unexpected keyword argument 'view'"),
        (
            lambda: sincere_loss(X, Y, epsilon=0.1),
            "sincere_loss: unexpected keyword argument 'epsilon'",
        ),
        (
            lambda: EpsSupInfoNCELoss(espilon=1),
            "EpsSupInfoNCELoss: unexpected keyword argument 'espilon'. Did you mean 'epsilon'?",
        ),
        (
            lambda: SINCERELoss(kernle="dense"),
            "SINCERELoss: unexpected keyword argument 'kernle'. Did you mean 'kernel'?",
        ),
        (
            lambda: SINCERELoss()(X, Y, key_label=KEY_LABELS),
            "SINCERELoss: unexpected keyword argument 'key_label'. Did you mean 'key_labels'?",
        ),
        (lambda: SINCERELoss()(X, Y, normalize=False), "SINCERELoss: unexpected keyword argument 'normalize'"),
    ],
)
def test_unknown_keywords(call: Any, message: str) -> None:
    with pytest.raises(InputTypeError) as caught:
        call()
    assert str(caught.value) == message
    assert isinstance(caught.value, TypeError)
