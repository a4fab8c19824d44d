"""Data with several labels per sample, made of patterns that may occur together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

NAMES = ("bar", "cross", "dot", "frame")
N_TRAIN, N_TEST = 160, 80


def patterns() -> NDArray[np.float64]:
    """Return four patterns of 8 x 8 pixels, 0 or 1."""
    drawn = np.zeros((4, 8, 8))
    drawn[0, 3:5] = 1
    drawn[1, np.arange(8), np.arange(8)] = drawn[1, np.arange(8), 7 - np.arange(8)] = 1
    drawn[2, 1:3, 5:7] = 1
    drawn[3, [0, -1]] = drawn[3, :, [0, -1]] = 1
    return drawn


def label_sets(n: int, seed: int) -> NDArray[np.int64]:
    """Return label sets (n, 4): each label with probability 0.3, so that a quarter of the rows has none."""
    return (np.random.default_rng(seed).random((n, 4)) < 0.3).astype(np.int64)


def pictures(labels: NDArray[np.int64], seed: int) -> NDArray[np.uint8]:
    """Return noisy images (n, 8, 8, 1) with the patterns of their labels."""
    noise = np.random.default_rng((seed, 1)).normal(0, 45, (len(labels), 8, 8))
    drawn = np.einsum("nl,lhw->nhw", labels, patterns()).clip(0, 1)
    return np.clip(60 + 120 * drawn + noise, 0, 255).astype(np.uint8)[..., None]


def features(labels: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return features (n, 24): the labels in four of them, and noise in all, stronger in the others."""
    noise = np.random.default_rng((seed, 2)).normal(0, 1, (len(labels), 24))
    noise[:, :4] *= 0.2
    noise[:, :4] += labels
    return noise


def save_images(path: Path) -> Path:
    train, test = label_sets(N_TRAIN, 0), label_sets(N_TEST, 1)
    np.savez(
        path,
        train_images=pictures(train, 0),
        train_labels=train,
        test_images=pictures(test, 1),
        test_labels=test,
        class_names=np.array(NAMES),
    )
    return path


def save_features(path: Path) -> Path:
    train, test = label_sets(N_TRAIN, 0), label_sets(N_TEST, 1)
    np.savez(
        path,
        train_features=features(train, 0),
        train_labels=train.astype(bool),
        test_features=features(test, 1),
        test_labels=test.astype(np.float32),
    )
    return path


def save_folder(root: Path, *, n: int = 40, split: bool = False) -> Path:
    """Write image files, a.png and below sub/, with a labels.csv."""
    labels = label_sets(n, 0)
    pixels = pictures(labels, 0)
    (root / "sub").mkdir(parents=True)
    lines = ["file,labels,split" if split else "file,labels"]
    for i in range(n):
        name = f"{'sub/' if i % 2 else ''}{i:03}.png"
        Image.fromarray(pixels[i, :, :, 0]).save(root / name)
        joined = ";|"[i % 3 == 0].join(label for label, has in zip(NAMES, labels[i], strict=True) if has)
        lines.append(f"{name},{joined}" + (f",{'test' if i % 4 == 0 else 'train'}" if split else ""))
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root
