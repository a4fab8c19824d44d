"""What a loader needs to know besides the name: sizes, folders, what may be done."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sincere import checks

if TYPE_CHECKING:
    import torch

Progress = Callable[[int, int], None]

CACHE_LIMIT_BYTES = 40 * 10**9


def home() -> Path:
    """Return the folder of downloads and decoded images: $SINCERE_HOME, else the user's cache."""
    chosen = os.environ.get("SINCERE_HOME")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sincere"


@dataclass(frozen=True)
class LoadOptions:
    """How to load a data set.

    Attributes:
        size: Side of the network's input, in pixels; None is the data set's own, or 32 where images vary.
        root: Folder that holds data sets as torchvision lays them out, and takes downloads.
        cache: Folder of decoded images.
        download: Whether to download what is missing.
        skip_bad_images: Whether to leave out images that cannot be read, instead of stopping.
        seed: Of the split, for folders without one of their own.
        device: Where pixels live if they fit.
        cache_limit_bytes: Decoded images beyond this are not cached but decoded as they are read.
        progress: Told (done, total) while images are decoded.

    Raises:
        InputValueError, InputTypeError: A number is not one, or too small.
    """

    size: int | None = None
    root: Path = field(default_factory=lambda: home() / "datasets")
    cache: Path = field(default_factory=lambda: home() / "decoded")
    download: bool = True
    skip_bad_images: bool = False
    seed: int = 0
    device: torch.device | str = "cpu"
    cache_limit_bytes: int = CACHE_LIMIT_BYTES
    progress: Progress | None = None

    def __post_init__(self) -> None:
        for argument, least in (("size", 1), ("seed", 0), ("cache_limit_bytes", 0)):
            value = getattr(self, argument)
            if argument != "size" or value is not None:
                object.__setattr__(self, argument, checks.count("load_dataset", argument, value, least=least))
