"""What a reproduction of the paper has to show: stored experiments, costs, bounds, coefficients; what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sincere.records.reproduction import Costs, Experiment


@dataclass(frozen=True)
class Missing:
    """What has not been run.

    Attributes:
        name: Name of the experiment.
        runs: Names of the runs that it lacks.
        command: Command that makes it.
        n_runs: Number of runs that it should have.
    """

    name: str
    runs: tuple[str, ...]
    command: str
    n_runs: int


@dataclass(frozen=True)
class KnownBound:
    """Loss and bounds for two Gaussians whose divergence is known.

    Attributes:
        n_noise: Number of negatives, |N|.
        divergence: Symmetrised KL divergence J of the two.
        loss: Loss of the best score function, by Monte Carlo.
        standard_error: Its standard error.
        bound: The paper's lower bound on the loss, log|N| - J, or 0.
        tighter_bound: log(|N| + 1) - |N| / (|N| + 1) J, or 0.
    """

    n_noise: int
    divergence: float
    loss: float
    standard_error: float
    bound: float
    tighter_bound: float


@dataclass(frozen=True)
class CoefficientRange:
    """How far the gradient coefficient on a positive can go, per anchor: below 0 attracts, above 0 repels.

    Attributes:
        loss: Name of the loss.
        n_positives: Number of positives of the anchor, |P|.
        low: Lower end of the paper's range.
        high: Upper end.
        lowest: Coefficient on a positive that points away from the anchor, all other items towards it.
        highest: Coefficient on a positive that points as the anchor does, all other items away from it.
    """

    loss: str
    n_positives: int
    low: float
    high: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Reproduction:
    """All that there is to show.

    Attributes:
        scale: The paper's own size, or that of two CPU cores.
        experiments: Stored experiments by name.
        costs: Time and memory of the losses; None if they were not measured.
        bounds: Loss and bounds for known divergences; empty if they were not computed.
        ranges: Ranges of the gradient coefficients; empty if they were not computed.
        missing: What has not been run.
    """

    scale: str
    experiments: Mapping[str, Experiment]
    costs: Costs | None = None
    bounds: tuple[KnownBound, ...] = ()
    ranges: tuple[CoefficientRange, ...] = ()
    missing: tuple[Missing, ...] = field(default=())

    def trained(self) -> Iterator[Experiment]:
        """Yield the experiments on the data that their models were trained on."""
        return (experiment for experiment in self.experiments.values() if experiment.transfer is None)

    def transferred(self) -> Iterator[Experiment]:
        """Yield the transfers."""
        return (experiment for experiment in self.experiments.values() if experiment.transfer is not None)
