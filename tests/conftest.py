"""Shape checks of the kernels' annotations run in the tests only; the installed package never pays for them."""

from __future__ import annotations

import os

import pytest
import torch
from jaxtyping import install_import_hook

# Before anything imports the kernels.
install_import_hook(
    ["sincere.losses.kernels", "sincere.losses.contrast", "sincere.losses.equations"], "beartype.beartype"
)

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # one process per core already


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
