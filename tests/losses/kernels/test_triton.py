"""The Triton kernel: its tests in the interpreter, the choice of it, and the CUDA path on fake tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from sincere import sincere_loss
from sincere.errors import UnsupportedError
from sincere.loss_entry import Formula
from sincere.losses.kernels import triton_support
from sincere.losses.options import KERNELS
from sincere.losses.pairs import contrast_batch

pytest.importorskip("triton", reason="Triton is not installed")

from benchmarks.triton_compile import Variant, compile_variant, programs_per_processor
from benchmarks.triton_roofline import GPUS, kernel_times

INTERPRETED = Path(__file__).parent / "interpreted"
ROOT = Path(__file__).parents[3]


SLOW = pytest.mark.slow
LONG = ("test_faults.py", "test_parity.py")
FILES = sorted(path.name for path in INTERPRETED.glob("test_*.py"))


# Faults that are put into the kernels take a minute, and the oracle's values half of one: all of them are slow tests.
@pytest.mark.parametrize(
    ("file", "which"),
    [
        pytest.param(file, which, marks=[SLOW] if which == "slow" or file in LONG else [])
        for file in FILES
        for which in ("not slow", "slow")
    ],
)
def test_in_the_interpreter(file: str, which: str) -> None:
    """In a process of its own: the interpreter is chosen when Triton is imported, and no other test may meet it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, str(INTERPRETED / file)]
    finished = subprocess.run(command, env=environment, cwd=ROOT, check=False, capture_output=True, text=True)
    if finished.returncode == 5:  # pytest: no test was selected
        pytest.skip(f"{file} has no test that is {which}")
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert " passed" in finished.stdout


def test_the_interpreter_stays_out_of_this_process() -> None:
    assert not triton_support.is_interpreted()
    code = "import sys\nfrom sincere import sincere_loss\nimport torch\n"
    code += "sincere_loss(torch.randn(512, 4), torch.arange(512) % 3)\n"
    code += "assert not [name for name in sys.modules if name.startswith('sincere.losses.kernels.triton_kern')]"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "it needs a CUDA device; the embeddings are on cpu"),
        ({"labels": torch.eye(4)[torch.arange(8) % 4]}, "label sets are not supported"),
        ({"embeddings": torch.randn(8, 3, dtype=torch.float64)}, "float64 is not supported"),
        ({"embeddings": torch.randn(8, 1025)}, "d must be at most 1,024; got 1,025"),
    ],
)
def test_a_request_that_cannot_run_raises_the_reason(change: dict[str, torch.Tensor], reason: str) -> None:
    arguments = {"embeddings": torch.randn(8, 3), "labels": torch.arange(8) % 4} | change
    with pytest.raises(UnsupportedError) as raised:
        sincere_loss(**arguments, kernel="triton")
    assert str(raised.value) == f'kernel="triton" cannot run: {reason}; kernel="auto" takes another'
    assert sincere_loss(**arguments).isfinite()


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_support, "_IS_INSTALLED", False)
    monkeypatch.setattr(triton_support, "is_interpreted", lambda: True)
    with pytest.raises(UnsupportedError, match="Triton is not installed"):
        sincere_loss(torch.randn(8, 3), torch.arange(8) % 4, kernel="triton")


@pytest.mark.parametrize(("major", "expected"), [(7, "it needs a GPU of compute capability 8.0"), (8, None)])
def test_old_gpus_take_another_kernel(monkeypatch: pytest.MonkeyPatch, major: int, expected: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=major))
    contrast = contrast_batch(Formula(), torch.arange(4), n_views=1, dtype=torch.float32)
    problem = {"d": 8, "dtype": torch.float32, "device": torch.device("cuda")}
    reason = triton_support.triton_obstacle(contrast, **problem)
    assert reason == expected or (expected is not None and reason is not None and reason.startswith(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("kernel", ["triton", "auto"])
def test_shapes_and_devices_on_fake_cuda_tensors(dtype: torch.dtype, reduction: str, kernel: str) -> None:
    assert kernel in KERNELS
    with FakeTensorMode():
        x = torch.empty(2048, 64, dtype=dtype, device="cuda", requires_grad=True)
        labels = torch.empty(2048, dtype=torch.int64, device="cuda")
        value = sincere_loss(x, labels, reduction=reduction, kernel=kernel)
    assert value.device.type == "cuda"
    assert value.dtype == torch.float32
    assert value.shape == (() if reduction == "mean" else (2048,))
    assert value.requires_grad


def test_auto_takes_it_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """On fake tensors; the tiled kernel would ask the device for its memory."""
    called = []
    monkeypatch.setattr("sincere.losses.kernels.tiled.tiled_losses", lambda *_, **__: called.append("tiled"))
    with FakeTensorMode():
        keys, key_labels = torch.empty(2048, 8, device="cuda"), torch.empty(2048, dtype=torch.int64, device="cuda")
        options = {"keys": keys, "key_labels": key_labels}
        assert sincere_loss(keys.clone().requires_grad_(), key_labels, **options).requires_grad
    assert not called


@pytest.mark.parametrize(
    "title", ["denominators, batch, SINCERE", pytest.param("gradient, batch, SINCERE", marks=pytest.mark.slow)]
)
def test_compiles_without_a_gpu(title: str) -> None:
    """For all kernels and GPUs: `python -m benchmarks.triton_compile`."""
    compiled = compile_variant(Variant(title, "bfloat16", 128, 80))
    assert compiled["spilled_bytes"] == 0
    assert 0 < compiled["occupancy"] <= 1


def test_occupancy() -> None:
    """The scarcest of registers, shared memory and warps counts."""
    assert programs_per_processor(80, registers=128, shared_bytes=0, warps=4) == 4
    assert programs_per_processor(80, registers=16, shared_bytes=40 * 1024, warps=4) == 4
    assert programs_per_processor(80, registers=16, shared_bytes=0, warps=8) == 8


def test_roofline_of_a_plain_case() -> None:
    """In bfloat16 on an A100 with n = 32,768, as docs/reference/gpu.md works it out."""
    times = kernel_times(GPUS["A100"], "bfloat16", 32768, gradient=False)
    expected = {"products": 0.88e-3, "exponentials": 0.44e-3, "other": 0.66e-3, "cache": 0.59e-3}
    assert times == pytest.approx(expected, rel=0.02)
