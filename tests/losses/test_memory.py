"""The memory claim itself: the tiled kernel holds nothing of size n x n, forward or backward."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.memory import peak_extra_bytes

N = 6144
MATRIX_BYTES = N * N * 4  # 151 MB


@pytest.mark.parametrize("n_classes", [2, 100])
@pytest.mark.parametrize("temperature", [0.1, 0.01])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_tiled_stays_far_below_the_matrix(n_classes: int, temperature: float, reduction: str) -> None:
    """On one thread: tiles grow with the threads, and at this n those of several threads are no small part of n x n."""
    options = {"n_classes": n_classes, "temperature": temperature, "reduction": reduction}
    extra = peak_extra_bytes(N, kernel="tiled", n_threads=1, **options)
    assert extra < MATRIX_BYTES / 2


@pytest.mark.parametrize("temperature", [0.1, 0.01])
def test_label_sets_stay_far_below_the_matrix(temperature: float) -> None:
    """One of the two matrices that are computed, similarities and weights of pairs, would be enough to fail."""
    extra = peak_extra_bytes(N, kernel="label-sets", n_threads=1, temperature=temperature)
    assert extra < MATRIX_BYTES / 2


def test_the_measurement_sees_the_matrix() -> None:
    """Else the test above could not fail."""
    assert peak_extra_bytes(N, kernel="dense", n_classes=100) > 2 * MATRIX_BYTES


def test_the_measurement_fails_loudly() -> None:
    command = [sys.executable, "-m", "benchmarks.memory", "--n", "64", "--kernel", "nonsense"]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
