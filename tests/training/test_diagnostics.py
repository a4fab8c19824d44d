"""Diagnostics warn of collapse, of a loss at chance and of too large a batch, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sincere.errors import InputValueError
from sincere.training.diagnostics import lasting_warnings, mean_similarities, warnings
from sincere.training.memory import check_memory, step_bytes


def test_mean_similarities_against_all_pairs() -> None:
    torch.manual_seed(0)
    embeddings, labels = torch.randn(20, 3, 7, dtype=torch.float64), torch.randint(0, 4, (20,))
    z = torch.nn.functional.normalize(embeddings.flatten(0, 1), dim=1)
    ids = labels.repeat_interleave(3)
    s, same = z @ z.T, ids[:, None] == ids
    diagonal = torch.eye(60, dtype=torch.bool)
    positive, negative = mean_similarities(embeddings, labels)
    assert positive == pytest.approx(float(s[same & ~diagonal].mean()))
    assert negative == pytest.approx(float(s[~same].mean()))


def test_without_a_pair_the_similarity_is_none() -> None:
    assert mean_similarities(torch.randn(2, 1, 4), torch.tensor([0, 1]))[0] is None
    assert mean_similarities(torch.randn(2, 1, 4), torch.tensor([0, 0]))[1] is None


def row(**changes: Any) -> dict[str, Any]:
    return {"epoch": 12, "loss": 2.0, "chance": 6.0, "floor": 0.0, "noise_similarity": 0.1, **changes}


def test_a_healthy_epoch_has_no_warning() -> None:
    assert warnings(row(), warmup_epochs=10) == {}
    assert warnings(row(loss=5.99, epoch=11), warmup_epochs=10) == {}, "warm-up is not over"


def test_stuck_and_collapsed_have_a_remedy() -> None:
    stuck = warnings(row(loss=5.99), warmup_epochs=10)["stuck"]
    assert stuck.startswith("the loss 5.990 is still at its chance level 6.000: try a longer warm-up")
    alone = warnings(row(loss=0.003, chance=0.003, floor=0.0), warmup_epochs=10)["stuck"]
    assert alone.endswith("hardly any sample of a batch is of another class than most; add samples of other classes")
    collapsed = warnings(row(noise_similarity=0.97), warmup_epochs=10)["collapsed"]
    assert "mean similarity of 0.97: the embeddings collapse; try a lower learning rate" in collapsed
    assert warnings(row(noise_similarity=None), warmup_epochs=10) == {}


def test_a_warning_needs_a_fifth_of_the_run() -> None:
    """Runs that learn well are often collapsed, or at chance, in their first epochs."""
    collapsed = row(noise_similarity=0.97)
    options: dict[str, Any] = {"n_epochs": 30, "warmup_epochs": 0}
    assert lasting_warnings([collapsed] * 5, **options) == {}
    assert list(lasting_warnings([collapsed] * 6, **options)) == ["collapsed"]
    assert lasting_warnings([*[collapsed] * 5, row()], **options) == {}
    assert lasting_warnings([row(), *[collapsed] * 5], **options) == {}
    assert list(lasting_warnings([row(), *[collapsed] * 6], **options)) == ["collapsed"]
    assert list(lasting_warnings([collapsed] * 2, n_epochs=2, warmup_epochs=0)) == ["collapsed"], "a short run"
    mixed = [row(noise_similarity=0.97, loss=5.99), collapsed, collapsed]
    assert list(lasting_warnings(mixed, n_epochs=3, warmup_epochs=0)) == ["collapsed"]


def test_memory_of_a_step_counts_weights_and_saved_activations() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten())
    images = torch.randn(4, 3, 16, 16)
    weights = 3 * 4 * sum(p.numel() for p in model.parameters())
    saved = (3 + 8) * 16 * 16 * 4  # the input of the convolution and the output of the ReLU, for each view
    assert step_bytes(model, images, 1000) == pytest.approx(weights + 1.2 * 1000 * saved, rel=1e-6)


def test_weights_cast_by_autocast_do_not_grow_with_the_batch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 4))
    images = torch.randn(4, 300)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        grown = step_bytes(model, images, 1001) - step_bytes(model, images, 1)
    assert grown < 1.2 * 1000 * 4 * 300 * 3, "300 activations, not 90,000 weights, for each view"


def test_too_large_a_step_is_refused_with_a_size_that_fits() -> None:
    check_memory(10, 10, batch_size=512, n_views=2, encoder="resnet50")
    with pytest.raises(InputValueError) as caught:
        check_memory(80 * 10**9, 20 * 10**9, batch_size=512, n_views=2, encoder="resnet50")
    assert str(caught.value) == (
        "train: resnet50 with 512 images x 2 views needs about 80 GB of memory for a step; 20 GB are free; "
        "try --batch-size 112, or --micro-batch 112, which keeps the batch as it is"
    )
