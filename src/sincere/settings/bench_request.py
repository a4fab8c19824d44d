"""The request of `sincere bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from sincere.settings.machine import MOST_THREADS, DeviceSettings
from sincere.settings.record import Choices, Request

PARTS: dict[str, str] = {  # and their titles
    "losses": "one step of SINCERE, value and gradient",
    "views": "augmented views of a batch",
    "step": "one training step",
    "neighbours": "nearest neighbours and margins of an evaluation",
}
BATCHES = (256, 512, 1024, 2048, 4096, 8192)


class BenchRequest(Request):
    """Measure losses, views, a training step and the neighbour search on this machine.

    Cases of one size take turns, so that other work on the machine slows all of them. Prints a table and writes a JSON
    file that you can send to others: it names the hardware and versions, no host and no path.
    """

    verb: ClassVar[str] = "bench"
    takes_config: ClassVar[bool] = False
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere bench", "this machine, about three minutes"),
        ("sincere bench --device cuda --batch-sizes 4096 16384 65536", "larger batches on a GPU"),
        ("sincere bench --parts losses --seconds 1", "only the losses, quickly"),
    )
    most_used: ClassVar[tuple[str, ...]] = ("device", "parts", "batch_sizes", "out")

    machine: DeviceSettings = DeviceSettings()
    parts: tuple[Annotated[str, Choices(PARTS)], ...] = tuple(PARTS)
    """What to measure."""
    batch_sizes: tuple[Annotated[int, Field(ge=2, le=10_000_000)], ...] = BATCHES
    """Numbers of embeddings in a batch of the losses."""
    dim: int = Field(default=128, ge=1, le=100_000)
    """Dimension of an embedding."""
    seconds: float = Field(default=5.0, gt=0, le=3600)
    """Shortest time for each size and part, in seconds; every case runs at least three times."""
    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    """CPU threads. Default: as torch chooses."""
    out: Path = Path("bench.json")
    """File of the measurements; an earlier one is replaced."""
    quiet: bool = False
    """Print nothing but warnings, to stderr."""
