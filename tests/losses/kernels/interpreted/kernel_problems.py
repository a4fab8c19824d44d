"""Small problems at the level of the kernels, and the answer of the row blocks in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sincere.loss_entry import Formula
from sincere.losses.kernels.normalize import ScaledRows
from sincere.losses.kernels.result import LossAndGradient
from sincere.losses.kernels.row_blocks import row_block_losses
from sincere.losses.kernels.triton import triton_losses
from sincere.losses.kernels.triton_ops import Blocks
from sincere.losses.pairs import Contrast, contrast_batch, contrast_with_keys

N, M, D, TEMPERATURE = 37, 45, 19, 0.1
FORMULAS = {"sincere": Formula(), "supcon": Formula(True), "margin": Formula(epsilon=0.5)}
RESULTS = ("losses", "anchor_gradient", "key_gradient", "similarity_gradient")
SMALL = Blocks(rows=16, columns=16, chunk=16, out=16, splits=2)


@dataclass(frozen=True, eq=False)
class KernelProblem:
    """Rows with scales of their own, labels of which some are -1 or ignored, key weights, and keys or not."""

    formula: Formula
    keyed: bool

    def rows(self, n: int, seed: int) -> ScaledRows:
        generator = torch.Generator().manual_seed(seed)
        values = torch.nn.functional.normalize(torch.randn(n, D, generator=generator), dim=1)
        scales = 0.5 + torch.rand(n, generator=generator)
        return ScaledRows(values / scales[:, None], scales)

    def contrast(self, dtype: torch.dtype) -> Contrast:
        generator = torch.Generator().manual_seed(5)
        labels, key_labels = (torch.randint(-1, 5, (size,), generator=generator) for size in (N, M))
        labels[::9] = key_labels[::11] = -100
        index = torch.randint(-1, M, (N,), generator=generator)
        weights = 0.2 + torch.rand(M if self.keyed else N, generator=generator, dtype=torch.float64)
        if not self.keyed:
            return contrast_batch(self.formula, labels, n_views=1, dtype=dtype, key_weights=weights)
        return contrast_with_keys(
            self.formula, labels, key_labels, index, n_views=1, n_key_views=1, dtype=dtype, key_weights=weights
        )

    @property
    def weights(self) -> Tensor:
        return torch.linspace(0.1, 1.0, N)

    def solve(self, blocks: Blocks = SMALL) -> LossAndGradient:
        """The answer of the Triton kernel."""
        return triton_losses(
            self.rows(N, 1),
            self.rows(M, 2) if self.keyed else None,
            torch.tensor(TEMPERATURE),
            self.contrast(torch.float32),
            self.weights,
            with_key_gradient=True,
            blocks=blocks,
        )

    def expected(self) -> LossAndGradient:
        exact = [rows.values.double() * rows.scales.double()[:, None] for rows in (self.rows(N, 1), self.rows(M, 2))]
        inverse_temperature = torch.tensor(1 / TEMPERATURE, dtype=torch.float64)
        return row_block_losses(
            exact[0],
            exact[1] if self.keyed else None,
            inverse_temperature,
            self.contrast(torch.float64),
            self.weights.double(),
        )


def largest_error(actual: LossAndGradient, expected: LossAndGradient) -> float:
    """Return the largest error of any result, relative to the length of the right one; infinite for NaN."""
    errors = []
    for name in RESULTS:
        right, ours = getattr(expected, name), getattr(actual, name)
        assert (right is None) == (ours is None), name
        if right is not None:
            error = float((ours.double() - right).norm() / right.norm())
            errors.append(error if error == error else float("inf"))
    return max(errors)


KERNEL_PROBLEMS = {
    f"{name}, {'keys' if keyed else 'batch'}": KernelProblem(formula, keyed)
    for keyed in (False, True)
    for name, formula in FORMULAS.items()
}
