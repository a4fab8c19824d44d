"""Settings of the loss. The hyper-parameters of each loss come from the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from sincere.catalog import DEFAULT_LOSS, LOSSES, HyperParameter
from sincere.errors import InputValueError
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
        known = _hyper_parameters()
        for name in values:
            if name not in known and name not in {field.alias or key for key, field in cls.model_fields.items()}:
                raise ValueError(f"{name} is not a setting of the losses")
        return {own.name: own.default for own in known.values()} | values

    @model_validator(mode="after")
    def _in_range(self) -> LossSettings:
        for own in _hyper_parameters().values():
            value = self.__pydantic_extra__[own.name]
            if value < own.least:
                raise ValueError(f"{own.name} must be at least {own.least:g}; got {value:g}")
        return self

    def hyper_parameters(self, loss: str) -> dict[str, float]:
        """Return the values of a loss's own hyper-parameters."""
        own = LOSSES[loss].hyper_parameters if loss in LOSSES else ()
        return {number.name: self.__pydantic_extra__[number.name] for number in own}


class NamedLossSettings(LossSettings):
    """One loss and its hyper-parameters."""

    name: Annotated[str, Choices(LOSSES)] = Field(default=DEFAULT_LOSS, alias="loss", description="Loss to minimise.")


def _hyper_parameters() -> dict[str, HyperParameter]:
    """Return the hyper-parameters of all losses by name.

    Raises:
        InputValueError: Two losses have different ones of the same name, which one flag could not serve.
    """
    known: dict[str, HyperParameter] = {}
    for name, loss in LOSSES.items():
        for own in loss.hyper_parameters:
            if known.setdefault(own.name, own) != own:
                problem = f"{name} and another loss have different hyper-parameters called {own.name!r}"
                raise InputValueError(f"catalog: {problem}; give one of them another name")
    return known
