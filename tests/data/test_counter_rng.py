"""Counter-based random numbers depend on their counter alone, and look random."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from sincere.data.counter_rng import CounterRNG

IDS = torch.arange(20_000)


def rng_of(seed: int, visit: int, ids: torch.Tensor, view: int) -> CounterRNG:
    """All images at the same visit."""
    return CounterRNG(seed, torch.full_like(ids, visit), ids, view)


def test_any_split_or_order_gives_the_same_numbers() -> None:
    expected = rng_of(1, 2, IDS, 0).uniform("crop")
    order = torch.randperm(len(IDS))
    assert torch.equal(rng_of(1, 2, IDS[order], 0).uniform("crop"), expected[order])
    parts = [rng_of(1, 2, part, 0).uniform("crop") for part in IDS.split(777)]
    assert torch.equal(torch.cat(parts), expected)


def test_global_generators_have_no_effect() -> None:
    torch.manual_seed(0)
    once = rng_of(0, 0, IDS, 0).normal("x")
    torch.manual_seed(1)
    assert torch.equal(rng_of(0, 0, IDS, 0).normal("x"), once)


@pytest.mark.parametrize(
    "other",
    [
        (rng_of(8, 3, IDS, 1), "a"),
        (rng_of(7, 4, IDS, 1), "a"),
        (rng_of(7, 3, IDS, 2), "a"),
        (rng_of(7, 3, IDS, 1), "b"),
    ],
)
def test_seed_visit_view_and_purpose_give_independent_numbers(other: tuple[CounterRNG, str]) -> None:
    values = rng_of(7, 3, IDS, 1).uniform("a")
    changed = other[0].uniform(other[1])
    assert abs(torch.corrcoef(torch.stack([values, changed]))[0, 1]) < 0.03
    assert (values == changed).float().mean() < 0.001


@pytest.mark.parametrize("image", [0, 1, 2**62])
def test_no_id_is_special(image: int) -> None:
    """One image over many purposes is uniform as well; a counter that is hashed to itself would show here."""
    values = torch.cat([rng_of(0, 0, torch.tensor([image]), 0).uniform(f"purpose {i}") for i in range(2000)])
    assert stats.kstest(values.numpy(), stats.uniform.cdf).pvalue > 1e-4


@pytest.mark.parametrize("rng", [rng_of(0, 0, IDS, 0), CounterRNG(0, IDS, torch.zeros_like(IDS), 0)])
def test_neighbouring_ids_and_visits_are_independent(rng: CounterRNG) -> None:
    values = rng.uniform("a")
    assert stats.kstest(values.numpy(), stats.uniform.cdf).pvalue > 1e-4
    for lag in (1, 2, 10, 32):
        assert abs(torch.corrcoef(torch.stack([values[:-lag], values[lag:]]))[0, 1]) < 0.03


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_distributions(seed: int) -> None:
    rng = rng_of(seed, 5, IDS, 1)
    assert stats.kstest(rng.uniform("u", -2.0, 3.0).numpy(), stats.uniform(-2, 5).cdf).pvalue > 1e-4
    assert stats.kstest(rng.normal("n").numpy(), stats.norm.cdf).pvalue > 1e-4
    assert rng.bernoulli("c", 0.3).float().mean() == pytest.approx(0.3, abs=0.015)
    assert rng.uniform("u").min() >= 0
    assert rng.uniform("u").max() < 1


def test_known_values() -> None:
    """A changed hash would silently change the augmentations of every run: these values must stay."""
    values = CounterRNG(0, torch.tensor([0, 0, 0, 1, 2**40]), torch.tensor([0, 1, 2**40, 0, 0]), 0).uniform("flip")
    expected = [0.261263906955719, 0.16525208950042725, 0.5676939487457275, 0.02484971284866333, 0.21060234308242798]
    torch.testing.assert_close(values, torch.tensor(expected), atol=1e-7, rtol=0)


def test_ids_and_visits_do_not_cancel() -> None:
    """Image 3 at visit 5 and image 5 at visit 3 are independent."""
    one, other = CounterRNG(0, IDS, IDS + 1, 0).uniform("a"), CounterRNG(0, IDS + 1, IDS, 0).uniform("a")
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 0.03
    assert (one == other).float().mean() < 0.001
