"""Settings of the loss. The hyper-parameters of each loss come from the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from sincere.catalog import own_name
from sincere.errors import InputValueError
from sincere.loss_catalog import DEFAULT_LOSS, LOSSES, loss_name
from sincere.loss_entry import HyperParameter
from sincere.settings.record import MANY, Choices, Setting, Settings


class LossSettings(Settings):
    """Hyper-parameters of the losses: the temperature, and what the catalog lists for each loss."""

    model_config = ConfigDict(extra="allow")
    title: ClassVar[str] = "Loss"
    __pydantic_extra__: dict[str, float] = Field(init=False)

    temperature: float = Field(default=0.1, gt=0)
    """Divides the similarities; a smaller one gives more weight to the most similar images."""
    positives_in_denominator: bool | None = None
    """Whether supcon-in, k-positives, targeted and nearest-neighbours keep the other positives in the denominator. Off
    gives them SINCERE's. Default: on, as in their papers; the other losses have no choice."""

    @classmethod
    def settings(cls) -> Iterator[Setting]:
        """Yield the settings that all losses share, then the hyper-parameters of each."""
        yield from super().settings()
        for own in _hyper_parameters().values():
            kind = int if own.whole else float
            yield Setting(own.name, kind, own.default, required=False, help=own.help, concern=cls.title)

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
            if value > MANY:
                raise ValueError(f"{own.name} must be at most {MANY:,}; got {value:g}")
            if own.below is not None and value >= own.below:
                raise ValueError(f"{own.name} must be below {own.below:g}; got {value:g}")
            if own.whole and value != int(value):
                raise ValueError(f"{own.name} must be a whole number; got {value:g}")
        return self

    def hyper_parameters(self, loss: str) -> dict[str, float]:
        """Return the values of a loss's own hyper-parameters."""
        own = LOSSES[loss].hyper_parameters if loss in LOSSES else ()
        values = {number.name: self.__pydantic_extra__[number.name] for number in own}
        found = {number.name: int(values[number.name]) if number.whole else values[number.name] for number in own}
        if self.positives_in_denominator is not None and chooses_denominator(loss):
            found["positives_in_denominator"] = self.positives_in_denominator
        return found

    def check_denominator(self, losses: Iterable[str]) -> None:
        """Raise if `positives_in_denominator` is given, and none of these losses has the choice.

        Raises:
            ValueError: None has.
        """
        names = list(losses)
        if self.positives_in_denominator is None or any(map(chooses_denominator, names)):
            return
        choosers = ", ".join(name for name in LOSSES if chooses_denominator(name))
        requirement = f"positives_in_denominator must be left out for losses other than {choosers}"
        raise ValueError(f"{requirement}; got {self.positives_in_denominator} for {', '.join(map(own_name, names))}")

    def suited_to(self, loss: str) -> dict[str, Any]:
        """Return the values by name, without a choice that this loss does not have."""
        return {**self.flat(), **({} if chooses_denominator(loss) else {"positives_in_denominator": None})}


class NamedLossSettings(LossSettings):
    """One loss and its hyper-parameters."""

    name: Annotated[str, Choices(LOSSES, read=loss_name)] = Field(
        default=DEFAULT_LOSS,
        alias="loss",
        description="Loss to minimise, or a sum such as 'sincere + 0.5*cross-entropy'.",
    )


def chooses_denominator(loss: str) -> bool:
    """Tell whether a loss can have SINCERE's denominator in place of its own."""
    return loss in LOSSES and LOSSES[loss].chooses_denominator


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
