"""Settings of the loss. The hyper-parameters of each loss come from the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from sincere.catalog import DEFAULT_LOSS, LOSSES, HyperParameter
from sincere.settings.record import Choices, Setting, Settings


class LossSettings(Settings):
    """Hyper-parameters of the losses: the temperature, and what the catalog lists for each loss."""

    model_config = ConfigDict(extra="allow")
    title: ClassVar[str] = "Loss"
    __pydantic_extra__: dict[str, float] = Field(init=False)

    temperature: float = Field(default=0.1, gt=0)
    """Divides the similarities; a smaller one gives more weight to the most similar images."""

    @classmethod
    def settings(cls) -> Iterator[Setting]:
        """Yield the settings that all losses share, then the hyper-parameters of each."""
        yield from super().settings()
        for own in _hyper_parameters().values():
            yield Setting(own.name, float, own.default, required=False, help=own.help, concern=cls.title)

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, values: Any) -> Any:
        return {own.name: own.default for own in _hyper_parameters().values()} | values

    @model_validator(mode="after")
    def _in_range(self) -> LossSettings:
        for own in _hyper_parameters().values():
            value = self.__pydantic_extra__[own.name]
            if value < own.least:
                raise ValueError(f"{own.name} must be at least {own.least:g}; got {value:g}")
        return self

    def hyper_parameters(self, loss: str) -> dict[str, float]:
        """Return the values of a loss's own hyper-parameters."""
        return {own.name: self.__pydantic_extra__[own.name] for own in LOSSES[loss].hyper_parameters}


class NamedLossSettings(LossSettings):
    """One loss and its hyper-parameters."""

    name: Annotated[str, Choices(LOSSES)] = Field(default=DEFAULT_LOSS, alias="loss", description="Loss to minimise.")


def _hyper_parameters() -> dict[str, HyperParameter]:
    """Return the hyper-parameters of all losses by name."""
    return {own.name: own for loss in LOSSES.values() for own in loss.hyper_parameters}
