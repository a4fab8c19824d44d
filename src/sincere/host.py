"""Whether values can be read on the host without waiting for a device: the one question that steps ask about it."""

from __future__ import annotations

import torch


def reads_back(device: torch.device) -> bool:
    """Tell whether values on this device can be read at no cost: it is the CPU, and no compiler is tracing.

    What depends on it (checks of values, sorting into blocks) is left out or done under a mask elsewhere, so that a
    training step never waits for an accelerator. Called as `host.reads_back`, so that tests can force the other branch.
    """
    return device.type == "cpu" and not torch.compiler.is_compiling()
