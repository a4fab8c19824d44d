"""Several labels per image: patterns that occur together, learned from label sets of shape (n, L).

Each image shows some of four patterns, and its label set has a 1 for each of them. Images that share a label are
positives of each other, more so the more labels they share; images that share none are negatives.

pip install '.[all]'
"""

import tempfile
from pathlib import Path

import numpy as np

import sincere

rng = np.random.default_rng(0)
names = np.array(["bar", "cross", "dot", "frame"])
patterns = np.zeros((4, 8, 8))
patterns[0, 3:5] = 1
patterns[1, np.arange(8), np.arange(8)] = patterns[1, np.arange(8), 7 - np.arange(8)] = 1
patterns[2, 1:3, 5:7] = 1
patterns[3, [0, -1]] = patterns[3, :, [0, -1]] = 1


def make(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy images (n, 8, 8, 1) and label sets (n, 4); about a quarter of the images has no label."""
    labels = (rng.random((n, 4)) < 0.3).astype(int)
    shown = np.einsum("nl,lhw->nhw", labels, patterns).clip(0, 1)
    pixels = 80 + 80 * shown + rng.normal(0, 60, (n, 8, 8))
    return np.clip(pixels, 0, 255).astype(np.uint8)[..., None], labels


folder = Path(tempfile.mkdtemp())
(train_images, train_labels), (test_images, test_labels) = make(400), make(200)
np.savez(
    folder / "patterns.npz",
    train_images=train_images,
    train_labels=train_labels,
    test_images=test_images,
    test_labels=test_labels,
    class_names=names,
)

for when, epochs in (("before", 1), ("after", 20)):
    run = folder / f"{epochs}-epochs"
    options = {"batch_size": 100, "learning_rate": 0.02, "threads": 1, "quiet": True}
    sincere.train(data=folder / "patterns.npz", out=run, epochs=epochs, **options)
    row = sincere.evaluate(run, report=False, quiet=True).rows[0]
    by_label = ", ".join(f"{label.name} {label.average_precision:.2f}" for label in row.labels)
    print(f"{when}: mean average precision {row.metrics['label_map'].estimate:.3f} ({by_label})")

several = np.flatnonzero(test_labels.sum(axis=1) == 2)[:3]
for image, found in zip(several, sincere.load(run).predict(test_images[several]), strict=True):
    print(f"a test image of {' and '.join(names[test_labels[image] == 1])}: {found}")
