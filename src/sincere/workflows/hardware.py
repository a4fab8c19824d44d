"""Which device to use, and what it gains from."""

from __future__ import annotations

from pathlib import Path

import torch

from sincere import checks
from sincere.catalog import DEVICES
from sincere.errors import InputValueError


def choose_device(name: str, *, caller: str) -> torch.device:
    """Return a device by name, such as "cuda" or "cuda:1"; "auto" is the first there is of cuda, mps and cpu.

    Raises:
        InputValueError: There is no such device, or not here.
    """
    available = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": 1,
    }
    if name == "auto":
        return torch.device(next(kind for kind, n_devices in available.items() if n_devices))
    kind, _, index = name.partition(":")
    checks.choice(caller, "device", kind, DEVICES)
    if not (index.isdecimal() or name == kind) or int(index or 0) >= available[kind]:
        raise InputValueError(checks.wording(caller, "device must be available here", repr(name), "Try cpu."))
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> str:
    """Return the arithmetic by name; "auto" is bfloat16 where the device gains from it.

    Raises:
        InputValueError: The device has no such arithmetic.
    """
    if name == "16-mixed" and device.type != "cuda":
        requirement = f"precision must not be 16-mixed on {device.type}, which has no such arithmetic"
        raise InputValueError(checks.wording("train", requirement, name))
    if name != "auto":
        return name
    return "bf16-mixed" if bfloat16_gains(device) else "32-true"


def bfloat16_gains(device: torch.device) -> bool:
    """Tell whether the hardware computes in bfloat16, rather than imitating it."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if device.type == "cpu" and info.exists() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags
