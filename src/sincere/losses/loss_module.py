"""What the modules of the losses have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sincere.losses.inputs import check_temperature


class LossModule(nn.Module):
    """A module that holds a temperature, and options, for the function that computes its loss.

    Attributes:
        temperature: A number; a tensor, which becomes a buffer; or an `nn.Parameter`, which is learned.
        option_names: The function's keyword arguments that are attributes of the module.
    """

    temperature: float | Tensor
    option_names: ClassVar[tuple[str, ...]]

    def __init__(self, temperature: float | Tensor = 0.1) -> None:
        """Check and hold the temperature."""
        super().__init__()
        check_temperature(type(self).__name__, temperature, torch.float32)
        if isinstance(temperature, Tensor) and not isinstance(temperature, nn.Parameter):
            self.register_buffer("temperature", temperature)
        else:
            self.temperature = temperature

    def options(self) -> dict[str, Any]:
        """Return the hyper-parameters and options as the function's keyword arguments."""
        return {name: getattr(self, name) for name in self.option_names}

    def extra_repr(self) -> str:
        """Return the hyper-parameters and options for `print(module)`."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options().items())
