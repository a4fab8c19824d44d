"""Checks of the two distributions that the theory compares."""

from __future__ import annotations

from torch.distributions import Distribution

from sincere import checks
from sincere.errors import InputTypeError, InputValueError


def check_pair(caller: str, **named: object) -> None:
    """Raise unless these are two single distributions over the same kind of event."""
    for name, distribution in named.items():
        if not isinstance(distribution, Distribution):
            requirement = f"{name} must be a torch.distributions.Distribution"
            raise InputTypeError(checks.wording(caller, requirement, type(distribution).__name__))
        if distribution.batch_shape:
            requirement = f"{name} must be one distribution, without batch shape"
            remedy = "Wrap it in torch.distributions.Independent"
            raise InputValueError(checks.wording(caller, requirement, tuple(distribution.batch_shape), remedy))
    (first, one), (second, other) = ((name, d) for name, d in named.items() if isinstance(d, Distribution))
    if one.event_shape != other.event_shape:
        requirement = f"{second} must have the event shape of {first}, {tuple(one.event_shape)}"
        raise InputValueError(checks.wording(caller, requirement, tuple(other.event_shape)))
