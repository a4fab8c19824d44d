"""Whether a CPU computes in bfloat16 is tried out, not believed."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from sincere.errors import InputValueError
from sincere.workflows import hardware

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _untried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU that announces AMX; what was found out about the real one is tried again afterwards."""
    hardware.runs_bfloat16.cache_clear()
    monkeypatch.setattr(hardware, "_cpu_flags", lambda: frozenset({"avx512f", "avx512_bf16", "amx_bf16"}))
    yield
    hardware.runs_bfloat16.cache_clear()


def end_with_sigill() -> None:
    faulthandler.disable()  # of pytest, which would print a traceback
    os.kill(os.getpid(), signal.SIGILL)


def hang() -> None:
    time.sleep(600)


@pytest.mark.parametrize("outcome", [lambda: os._exit(1), end_with_sigill, hang])
def test_arithmetic_that_ends_a_process_is_not_chosen(
    outcome: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_multiply_and_exit", outcome)
    monkeypatch.setattr(hardware, "TRIAL_SECONDS", 0.5)
    assert not hardware.runs_bfloat16()
    assert not hardware.bfloat16_gains(CPU)
    assert hardware.choose_precision("auto", CPU) == "32-true"
    message = (
        "^train: precision must not be bf16-mixed on this CPU, which announces AMX but cannot run it; "
        "got bf16-mixed. Try 32-true, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment$"
    )
    with pytest.raises(InputValueError, match=message):
        hardware.choose_precision("bf16-mixed", CPU)


def test_arithmetic_that_works_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_multiply_and_exit", lambda: os._exit(0))
    assert hardware.choose_precision("auto", CPU) == "bf16-mixed"
    assert hardware.choose_precision("bf16-mixed", CPU) == "bf16-mixed"


def test_the_trial_leaves_the_process_as_it_was() -> None:
    """The real trial, in a process that has computed with several threads: an answer, in well under its limit."""
    threads = torch.get_num_threads()
    (torch.rand(300, 300) @ torch.rand(300, 300)).sum()
    started = time.monotonic()
    works = hardware.runs_bfloat16()
    assert time.monotonic() - started < hardware.TRIAL_SECONDS
    assert torch.get_num_threads() == threads
    if works:  # else this line would end the process
        ones = torch.ones(64, 64, dtype=torch.bfloat16)
        assert (ones @ ones).eq(64).all()


def test_without_amx_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_multiply_and_exit", end_with_sigill)
    for flags, gains in (({"avx2"}, False), ({"avx512_bf16"}, True)):
        monkeypatch.setattr(hardware, "_cpu_flags", lambda flags=flags: frozenset(flags))
        hardware.runs_bfloat16.cache_clear()
        assert hardware.runs_bfloat16()
        assert hardware.bfloat16_gains(CPU) == gains


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "mps",
            "train: device must be cpu or cuda, because training and evaluation need float64, which MPS lacks; got",
        ),
        ("auto:1", "train: device must be one of 'auto', 'cpu', 'cuda'; got 'auto:1'"),
        ("cpu:1", "train: device must be available here; got 'cpu:1'. Try cpu$"),
    ],
)
def test_devices_that_cannot_be_used(name: str, message: str) -> None:
    with pytest.raises(InputValueError, match=f"^{message}"):
        hardware.choose_device(name, caller="train")


def test_auto_is_no_device_that_was_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert hardware.choose_device("auto", caller="train") == CPU
