"""Settings of the machine: devices, arithmetic, processes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sincere.catalog import DEVICES
from sincere.settings.record import Choices, Settings

MOST_THREADS = 256


class DeviceSettings(Settings):
    """The device that computes."""

    title: ClassVar[str] = "Machine"

    device: Annotated[str, Choices(DEVICES)] = "auto"
    """Device. auto: cuda, else cpu."""


class DevicesSettings(DeviceSettings):
    """Several devices or machines that share the work."""

    devices: int = Field(default=1, ge=1, le=1024)
    """Devices of each machine, or processes on a CPU, that share the images."""
    nodes: int = Field(default=1, ge=1, le=65536)
    """Machines."""


class MachineSettings(DeviceSettings):
    """How a device computes."""

    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    """CPU threads. Default: all, or 1 for tiny images, where threads only wait for each other."""
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    """Arithmetic. auto: bfloat16 where the hardware has it."""
    channels_last: bool = True
    """Keep the channels of a pixel together in memory, which makes convolutions faster."""
    compile: bool = False
    """Compile the network with torch.compile: slower to start, often faster to run."""


class ClusterSettings(MachineSettings, DevicesSettings):
    """Several devices or machines that share every batch, and how they compute."""

    devices: int = Field(default=1, ge=1, le=1024)
    """Devices of each machine, or processes on a CPU. They share every batch; the loss is that of the whole batch."""
