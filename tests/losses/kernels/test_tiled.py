"""The two tiled forms of a loss agree with each other and do not depend on the size of their blocks."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from sincere.loss_catalog import LOSSES
from sincere.loss_entry import Formula
from sincere.losses.kernels.class_blocks import class_blocks
from sincere.losses.kernels.row_blocks import row_block_losses
from sincere.losses.kernels.symmetric_tiles import similarity_limit, symmetric_tile_losses
from sincere.losses.pairs import Contrast, contrast_batch, contrast_with_keys

FORMULAS = {name: loss.formula() for name, loss in LOSSES.items() if loss.is_plain} | {
    "margin of 0.5": Formula(epsilon=0.5)
}
formulas = pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS.keys())
LABELLINGS = {
    "random": lambda n: torch.randint(6, (n,)),
    "pairs": lambda n: torch.arange(n) // 2,
    "one class": lambda n: torch.zeros(n, dtype=torch.int64),
    "all different": lambda n: torch.arange(n),
    "skewed": lambda n: torch.randint(1, 40, (n,)).square() // 150,
    "unlabelled": lambda n: torch.randint(-1, 3, (n,)),
}
labellings = pytest.mark.parametrize("labelling", LABELLINGS)


def batch(labelling: str, formula: Formula, n: int = 57, d: int = 7) -> tuple[torch.Tensor, Contrast, torch.Tensor]:
    z = normalize(torch.randn(n, d, dtype=torch.float64), dim=1)
    contrast = contrast_batch(formula, LABELLINGS[labelling](n), n_views=1, dtype=z.dtype)
    return z, contrast, torch.rand(n, dtype=z.dtype)


@formulas
@labellings
@pytest.mark.parametrize("side", [1, 2, 16, 28, 56, 57, 100])
def test_symmetric_tiles_are_tile_size_agnostic(formula: Formula, labelling: str, side: int) -> None:
    z, contrast, weights = batch(labelling, formula)
    tiled = symmetric_tile_losses(z, 10.0, contrast, weights, side=side)
    rows = row_block_losses(z, None, torch.tensor(10.0, dtype=z.dtype), contrast, weights)
    torch.testing.assert_close(tiled.losses, rows.losses)
    torch.testing.assert_close(tiled.log_denominators, rows.log_denominators)
    torch.testing.assert_close(tiled.anchor_gradient, rows.anchor_gradient)
    torch.testing.assert_close(tiled.similarity_gradient, rows.similarity_gradient)


@formulas
@pytest.mark.parametrize("rows_per_block", [1, 2, 16, 28, 56, 57, 100])
def test_row_blocks_are_block_size_agnostic(formula: Formula, rows_per_block: int) -> None:
    z, keys = (normalize(torch.randn(k, 7, dtype=torch.float64), dim=1) for k in (57, 91))
    anchor_index = torch.randint(-1, 91, (57,))
    labels, key_labels = torch.randint(-1, 5, (57,)), torch.randint(-1, 9, (91,))
    contrast = contrast_with_keys(formula, labels, key_labels, anchor_index, n_views=1, n_key_views=1, dtype=z.dtype)
    weights, inverse_temperature = torch.rand(57, dtype=z.dtype), torch.tensor(20.0, dtype=z.dtype)
    whole = row_block_losses(z, keys, inverse_temperature, contrast, weights, rows_per_block=57)
    blocks = row_block_losses(z, keys, inverse_temperature, contrast, weights, rows_per_block=rows_per_block)
    for name in ("losses", "anchor_gradient", "key_gradient", "similarity_gradient"):
        torch.testing.assert_close(getattr(blocks, name), getattr(whole, name))


@formulas
@labellings
def test_masks_and_sorting_agree(formula: Formula, labelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerators run the row blocks under masks instead of sorting by class; both give the same."""
    z, contrast, weights = batch(labelling, formula)
    inverse_temperature = torch.tensor(10.0, dtype=z.dtype)
    by_class = row_block_losses(z, None, inverse_temperature, contrast, weights, rows_per_block=10)
    monkeypatch.setattr("sincere.host.reads_back", lambda device: False)
    masked = row_block_losses(z, None, inverse_temperature, contrast, weights, rows_per_block=10)
    for name in ("losses", "anchor_gradient", "similarity_gradient"):
        torch.testing.assert_close(getattr(masked, name), getattr(by_class, name))


@labellings
@pytest.mark.parametrize("side", [1, 3, 10, 70])
def test_class_blocks_hold_each_pair_of_a_class_once(labelling: str, side: int) -> None:
    ids = LABELLINGS[labelling](57).sort().values
    ids = ids.unique(return_inverse=True)[1]
    seen = torch.zeros(57, 57, dtype=torch.int64)
    for block in class_blocks(ids, side):
        rows, columns = torch.broadcast_tensors(block.anchors[:, :, None], block.members[:, None])
        assert rows.numel() <= side * side
        kept = block.leave_out(torch.ones(rows.shape), 0.0) == 1
        for pair in [(rows, columns)] if block.on_diagonal else [(rows, columns), (columns, rows)]:
            seen.index_put_((pair[0][kept], pair[1][kept]), torch.tensor(1), accumulate=True)
    expected = (ids[:, None] == ids) & ~torch.eye(57, dtype=torch.bool)
    assert torch.equal(seen, expected.long())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_symmetric_tiles_are_safe_up_to_their_limit(dtype: torch.dtype) -> None:
    """At the limit the most similar and the least similar pairs stay finite, and right against the row blocks."""
    limit = similarity_limit(dtype)
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]] * 40, dtype=dtype)
    contrast = contrast_batch(Formula(), torch.arange(200) % 3, n_views=1, dtype=dtype)
    weights = torch.ones(200, dtype=dtype)
    tiles = symmetric_tile_losses(z, limit, contrast, weights)
    rows = row_block_losses(z, None, torch.tensor(limit, dtype=dtype), contrast, weights)
    torch.testing.assert_close(tiles.losses, rows.losses)
    torch.testing.assert_close(tiles.anchor_gradient, rows.anchor_gradient, rtol=1e-4, atol=1e-4)
