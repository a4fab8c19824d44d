"""The choice of a kernel and of its block sizes follows the problem and the machine."""

from __future__ import annotations

import pytest
import torch

from sincere import sincere_loss
from sincere.losses.kernels import block_sizes
from sincere.losses.kernels.select import select

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("n", "m", "expected"), [(64, 64, "dense"), (1024, 1024, "tiled"), (8, 65536, "tiled")])
def test_auto_on_the_cpu(n: int, m: int, expected: str) -> None:
    assert select("auto", n_anchors=n, n_keys=m, device=CPU) == expected


def test_auto_on_an_accelerator_never_holds_a_large_matrix() -> None:
    assert select("auto", n_anchors=512, n_keys=512, device=CUDA) == "dense"
    assert select("auto", n_anchors=4096, n_keys=4096, device=CUDA) == "tiled"


def test_auto_takes_triton_on_cuda_where_it_can_run() -> None:
    assert select("auto", n_anchors=512, n_keys=512, device=CUDA, runs_triton=True) == "dense"
    assert select("auto", n_anchors=4096, n_keys=4096, device=CUDA, runs_triton=True) == "triton"
    assert select("auto", n_anchors=4096, n_keys=4096, device=CPU, runs_triton=True) == "tiled"


@pytest.mark.parametrize("kernel", ["dense", "tiled", "triton"])
def test_a_request_is_honoured(kernel: str) -> None:
    assert {select(kernel, n_anchors=n, n_keys=n, device=CPU) for n in (2, 10_000)} == {kernel}


def test_auto_runs_the_kernel_it_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch large enough for tiles must not touch the dense form."""
    monkeypatch.delattr("sincere.losses.kernels.select.dense_losses")
    x, y = torch.randn(1024, 8), torch.randint(10, (1024,))
    assert sincere_loss(x, y).isfinite()
    with pytest.raises(NameError):
        sincere_loss(x[:8], y[:8])


@pytest.mark.parametrize(("l2", "threads", "expected"), [(2**19, 2, 512), (2**19, 8, 1024), (2**21, 1, 724)])
def test_tiles_fill_the_caches(monkeypatch: pytest.MonkeyPatch, l2: int, threads: int, expected: int) -> None:
    monkeypatch.setattr(block_sizes, "cache_bytes", lambda level: l2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    side = block_sizes.tile_side(12_000, 4)
    assert side <= expected
    assert side > 0.9 * expected


def test_tiles_are_even() -> None:
    side = block_sizes.tile_side(1030, 4)
    assert -(-1030 // side) * side - 1030 < side / 2


@pytest.mark.parametrize("m", [10, 30_000, 100_000])
def test_row_blocks_fit_the_last_cache(monkeypatch: pytest.MonkeyPatch, m: int) -> None:
    monkeypatch.setattr(block_sizes, "cache_bytes", lambda level: 2**25)
    rows = block_sizes.block_rows(5000, m, 4, CPU)
    assert 64 <= rows <= 256
    assert rows == 64 or rows * m * 4 <= 2**24


def test_cache_sizes_are_plausible() -> None:
    assert 2**16 <= block_sizes.cache_bytes(2) <= block_sizes.cache_bytes(3) <= 2**31
