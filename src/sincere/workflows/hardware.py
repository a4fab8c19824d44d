"""Which device to use, and what it gains from."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
import warnings
from functools import cache
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from sincere import checks
from sincere.catalog import DEVICES
from sincere.errors import InputValueError

TRIAL_SIDE, TRIAL_SECONDS = 64, 5.0  # of the matrices whose product is tried, and how long that may take


def choose_device(name: str, *, caller: str) -> torch.device:
    """Return a device by name, such as "cuda" or "cuda:1"; "auto" is cuda, or cpu where there is none.

    Raises:
        InputValueError: There is no such device, or not here.
    """
    available = {"cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0, "cpu": 1}
    if name == "auto":
        return torch.device("cuda" if available["cuda"] else "cpu")
    kind, _, index = name.partition(":")
    if kind == "mps":
        requirement = "device must be cpu or cuda, because training and evaluation need float64, which MPS lacks"
        raise InputValueError(checks.wording(caller, requirement, repr(name)))
    checks.choice(caller, "device", kind if kind != "auto" else name, DEVICES)
    if not (index.isdecimal() or name == kind) or int(index or 0) >= available[kind]:
        raise InputValueError(checks.wording(caller, "device must be available here", repr(name), "Try cpu"))
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> str:
    """Return the arithmetic by name; "auto" is bfloat16 where the device gains from it.

    Raises:
        InputValueError: The device has no such arithmetic.
    """
    if name == "16-mixed" and device.type != "cuda":
        requirement = f"precision must not be 16-mixed on {device.type}, which has no such arithmetic"
        raise InputValueError(checks.wording("train", requirement, name))
    if name == "bf16-mixed" and device.type == "cpu" and not runs_bfloat16():
        requirement = "precision must not be bf16-mixed on this CPU, which announces AMX but cannot run it"
        remedy = "Try 32-true, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment"
        raise InputValueError(checks.wording("train", requirement, name, remedy))
    if name != "auto":
        return name
    return "bf16-mixed" if bfloat16_gains(device) else "32-true"


def bfloat16_gains(device: torch.device) -> bool:
    """Tell whether the hardware computes in bfloat16, rather than imitating it."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = _cpu_flags() if device.type == "cpu" else frozenset()
    return bool(flags & {"avx512_bf16", "amx_bf16"}) and runs_bfloat16()


def _cpu_flags() -> frozenset[str]:
    """Return the names of the instruction sets that the CPU announces; none where Linux does not list them."""
    info = Path("/proc/cpuinfo")
    return frozenset(info.read_text().split()) if info.exists() else frozenset()


@cache
def runs_bfloat16() -> bool:
    """Tell whether this process would survive a product of bfloat16 matrices.

    Some virtual machines announce AMX, and then end a process that uses it (SIGILL). So where the CPU announces it, a
    child process tries.
    """
    if "amx_bf16" not in _cpu_flags():
        return True
    with warnings.catch_warnings():
        # Python 3.12 and later warn that a child of a process with threads may hang: it has a time limit, and no
        # threads of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _multiply_and_exit()
    end = time.monotonic() + TRIAL_SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _multiply_and_exit() -> None:
    """Multiply two matrices in this child process and end it, without a trace if that is what ends it."""
    try:
        import resource  # where there is no fork, there is none of it either

        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with threadpool_limits(1):
            matrix = torch.ones(TRIAL_SIDE, TRIAL_SIDE, dtype=torch.bfloat16)
            os._exit(int((matrix @ matrix).sum().item() != TRIAL_SIDE**3))
    finally:
        os._exit(1)
