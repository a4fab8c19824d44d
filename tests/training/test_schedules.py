"""The learning rate follows the paper's schedule at every step."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from sincere.catalog import SCHEDULES
from sincere.training.schedules import learning_rate_factor, warmup_steps


def test_the_papers_curve() -> None:
    n_steps, n_warmup = 800 * 97, 10 * 97
    assert learning_rate_factor(0, n_steps, n_warmup) == 0.001
    assert learning_rate_factor(n_warmup // 2, n_steps, n_warmup) == pytest.approx(0.001 + 0.999 / 2)
    assert learning_rate_factor(n_warmup, n_steps, n_warmup) == 1.0
    middle = (n_warmup + n_steps - 1) / 2
    expected = 0.001 + 0.999 * (1 + math.cos(math.pi * (int(middle) - n_warmup) / (n_steps - 1 - n_warmup))) / 2
    assert learning_rate_factor(int(middle), n_steps, n_warmup) == pytest.approx(expected)
    assert learning_rate_factor(int(middle), n_steps, n_warmup) == pytest.approx(0.5005, abs=1e-4)
    assert learning_rate_factor(n_steps - 1, n_steps, n_warmup) == pytest.approx(0.001, abs=1e-12)


def test_a_straight_line() -> None:
    curve = [learning_rate_factor(t, 101, 10, schedule="linear") for t in range(101)]
    assert curve[:11] == [learning_rate_factor(t, 101, 10) for t in range(11)], "the warm-up is the same"
    assert curve[55] == pytest.approx(0.5005)
    assert curve[-1] == pytest.approx(0.001)
    steps = {round(a - b, 12) for a, b in pairwise(curve[10:])}
    assert len(steps) == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_learning_rate_rises_then_falls(schedule: str) -> None:
    curve = [learning_rate_factor(t, 200, 20, schedule=schedule) for t in range(200)]
    assert curve[:21] == sorted(curve[:21])
    assert curve[20:] == sorted(curve[20:], reverse=True)


@pytest.mark.parametrize(("n_steps", "n_warmup"), [(1, 0), (1, 1), (2, 1), (5, 5), (2, 0)])
def test_tiny_runs(n_steps: int, n_warmup: int) -> None:
    for step in range(n_steps):
        assert 0.001 <= learning_rate_factor(step, n_steps, n_warmup) <= 1


@pytest.mark.parametrize("n_steps", [2, 3, 10])
@pytest.mark.parametrize("epochs", [None, 0, 1, 100])
def test_the_last_step_is_at_the_floor(n_steps: int, epochs: float | None) -> None:
    n_warmup = warmup_steps(n_steps, 1, epochs)
    assert learning_rate_factor(n_steps - 1, n_steps, n_warmup) == pytest.approx(0.001)


def test_warm_up_is_ten_epochs_or_a_tenth() -> None:
    assert warmup_steps(800 * 97, 97) == 970
    assert warmup_steps(20 * 97, 97) == 194
    assert warmup_steps(20 * 97, 97, epochs=0) == 0
    assert warmup_steps(20 * 97, 97, epochs=1.5) == 146
    assert warmup_steps(10, 5, epochs=50) == 8, "the last step still ends at a thousandth"
