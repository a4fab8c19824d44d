"""Options for loading a data set: sizes, folders, downloads."""

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
SMALLEST_PRETRAINED = 96  # pixels: below this, features of ImageNet encoders are poor


def home() -> Path:
    """Return the folder of downloads and decoded images: $SINCERE_HOME, by default in the user's cache folder."""
    chosen = os.environ.get("SINCERE_HOME")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sincere"


@dataclass(frozen=True)
class LoadOptions:
    """How to load a data set.

    Attributes:
        size: Side of the network's input in pixels; None chooses one that suits the data: see `input_size`.
        root: Folder of data sets in torchvision's layout, also for downloads.
        cache: Folder of decoded images.
        download: Whether to download a missing data set.
        skip_bad_images: Whether to leave out images that cannot be read, instead of raising.
        frozen: Whether a frozen encoder will see the images, so that they are stored at the input size; None: if they
            are photos.
        enlarge: Whether the default input size of small images is 96 px, for a frozen encoder with ImageNet weights.
        seed: Random seed of the train/test split, for folders and files without one, and of a long-tailed version.
        device: Device that holds the pixels or features if they fit into its memory.
        cache_limit_bytes: Data sets with more bytes of pixels are not cached but decoded on every access.
        progress: Called with (done, total) while images are decoded.

    Raises:
        InputValueError, InputTypeError: A number is too small, or not an integer.
    """

    size: int | None = None
    root: Path = field(default_factory=lambda: home() / "datasets")
    cache: Path = field(default_factory=lambda: home() / "decoded")
    download: bool = True
    skip_bad_images: bool = False
    frozen: bool | None = False
    enlarge: bool = False
    seed: int = 0
    device: torch.device | str = "cpu"
    cache_limit_bytes: int = CACHE_LIMIT_BYTES
    progress: Progress | None = None

    def __post_init__(self) -> None:
        for argument, least in (("size", 1), ("seed", 0), ("cache_limit_bytes", 0)):
            value = getattr(self, argument)
            if argument != "size" or value is not None:
                object.__setattr__(self, argument, checks.count("load_dataset", argument, value, least=least))

    def input_size(self, side: int) -> int:
        """Return the side of the network's input for images of this side that are no photos.

        It is their own, but with `enlarge` at least 96 px.
        """
        return self.size or (max(side, SMALLEST_PRETRAINED) if self.enlarge else side)
