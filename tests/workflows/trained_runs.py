"""What tests of runs share."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import sincere
from sincere.training import fit as fit_module
from sincere.training.interruption import InterruptedRunError


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def stopped_after(step: int, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    real = fit_module.Fit._step

    def interrupted(self: fit_module.Fit, batch: fit_module.Views) -> torch.Tensor:
        embeddings = real(self, batch)
        if self.state.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return embeddings

    with monkeypatch.context() as patch:
        patch.setattr(fit_module.Fit, "_step", interrupted)
        with pytest.raises(InterruptedRunError, match=r"stopped by SIGTERM after (step \d+ of \d+|epoch \d+ of 4)"):
            sincere.train(**settings)
