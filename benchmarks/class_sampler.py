"""`python -m benchmarks.class_sampler`: what the class sampler of the authors' published code does to a protocol.

That sampler gives each class the same number of slots in a batch, the remainder of the division always to the first
classes, and it draws the test images, too. Simulated here: how often each class is seen in training, and how far an
accuracy on test images that were drawn so is from the accuracy on the test set. Writes results/class_sampler.json.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import write

# Name, classes, test images, accuracy of the paper's models.
DATA = (("CIFAR-2", 2, 2000, 0.925), ("CIFAR-10", 10, 10000, 0.957), ("CIFAR-100", 100, 10000, 0.764))
BATCH = 512
SMALL_BATCH = 64  # fewer slots than CIFAR-100 has classes
DRAWS = 2000


def slots(n_classes: int, batch: int) -> NDArray[np.int64]:
    """Return the slots of each class in a batch: the quotient, and one more for the first ones.

    Example:
        >>> slots(3, 8).tolist(), slots(4, 2).tolist()
        ([3, 3, 2], [1, 1, 0, 0])
    """
    return batch // n_classes + (np.arange(n_classes) < batch % n_classes)


def resampled(n_classes: int, n_test: int, accuracy: float, *, seed: int = 0) -> tuple[NDArray[np.float64], float]:
    """Draw test sets of the same size class by class, with replacement.

    Returns:
        How far the accuracy on each of them is from that on the test set, and the mean share of its images that they
        hold.
    """
    generator = np.random.default_rng(seed)
    per_class = n_test // n_classes
    # The classes have different accuracies, as real ones have.
    rates = np.clip(accuracy + 0.03 * generator.standard_normal(n_classes), 0, 1)
    correct = generator.random((n_classes, per_class)) < rates[:, None]
    errors, distinct = np.empty(DRAWS), np.empty(DRAWS)
    for i in range(DRAWS):
        drawn = generator.integers(0, per_class, (n_classes, per_class)) + per_class * np.arange(n_classes)[:, None]
        errors[i] = correct.ravel()[drawn].mean() - correct.mean()
        distinct[i] = len(np.unique(drawn)) / n_test
    return errors, float(distinct.mean())


def main() -> None:
    rows = []
    for name, n_classes, n_test, accuracy in DATA:
        errors, distinct = resampled(n_classes, n_test, accuracy)
        share = slots(n_classes, BATCH)
        rows.append(
            {
                "data": name,
                "n_classes": n_classes,
                "most_over_fewest": float(share.max() / share.min()),
                "n_favoured": int((share == share.max()).sum()) if share.max() > share.min() else 0,
                "never_seen_small_batch": int((slots(n_classes, SMALL_BATCH) == 0).sum()),
                "accuracy_sd": float(errors.std()),
                "difference_sd": float(np.sqrt(2) * errors.std()),
                "distinct_share": distinct,
            }
        )
    print(write("class_sampler", {"batch": BATCH, "small_batch": SMALL_BATCH, "draws": DRAWS, "rows": rows}))


if __name__ == "__main__":
    main()
