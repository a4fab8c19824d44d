"""Settings of an evaluation."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sincere.catalog import DEFAULT_METRICS, LONG_TAIL, METRICS, MULTI_LABEL
from sincere.settings.record import MANY, Choices, Settings

PROBE_RATES = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 200.0)


class EvaluationSettings(Settings):
    """What is measured of a model."""

    title: ClassVar[str] = "Evaluation"

    metrics: tuple[Annotated[str, Choices(METRICS)], ...] = Field(default=DEFAULT_METRICS, min_length=1)
    """Metrics. classifiers: k-NN as in DINO and lightly, and class means; geometry: tightness and spread of the
    classes; long-tail: 1-NN accuracy of frequent and rare classes, by default with --imbalance; multi-label: the
    metrics of images with several labels, which then are the default; retrieval is slow for many images."""
    ks: tuple[Annotated[int, Field(ge=1, le=MANY)], ...] = Field(default=(1, 5), min_length=1)
    """Numbers of neighbours that vote in k-NN classification."""
    probe: Literal["fast", "paper", "both"] = "fast"
    """Linear probe. fast: logistic regression on features; paper: SGD on augmented images, much slower."""
    probe_epochs: int = Field(default=100, ge=1, le=MANY)
    """Epochs of the paper's linear probe."""
    probe_rates: tuple[Annotated[float, Field(gt=0, le=MANY)], ...] = Field(default=PROBE_RATES, min_length=1)
    """Learning rates of the paper's linear probe; the best on a tenth of the training images is taken."""
    probe_weight_decay: float = Field(default=1e-4, ge=0, le=1)
    """Weight decay of the paper's linear probe."""
    resamples: int = Field(default=1000, ge=100, le=MANY)
    """Bootstrap resamples of the test images."""

    unknown_data: Annotated[str | None, Choices((), paths=True)] = None
    """Images of classes that the model does not know: the test part of another data set, or a folder of images.
    Measures how well they are told from the known ones."""

    def ks_among(self, n: int) -> tuple[int, ...]:
        """Return the numbers of neighbours among n training images: of the default ones, those that there are.

        Example:
            >>> EvaluationSettings().ks_among(4), EvaluationSettings(ks=(1, 5)).ks_among(4)
            ((1,), (1, 5))
        """
        return self.ks if "ks" in self.model_fields_set else tuple(k for k in self.ks if k <= n)

    def metrics_of(self, *, long_tailed: bool, label_sets: bool = False) -> tuple[str, ...]:
        """Return the metrics to measure: by default with those of the long tail, or those of label sets alone.

        Example:
            >>> EvaluationSettings().metrics_of(long_tailed=True)[-1]
            'long-tail'
            >>> EvaluationSettings(metrics=("knn",)).metrics_of(long_tailed=True)
            ('knn',)
        """
        if "metrics" in self.model_fields_set:
            return self.metrics
        if label_sets:
            return (MULTI_LABEL,)
        return (*self.metrics, LONG_TAIL) if long_tailed else self.metrics

    def identity(self, seed: int) -> dict[str, Any]:
        """Return what decides the metrics of a model, as stored in results.json."""
        return {**self.flat(), "seed": seed}
