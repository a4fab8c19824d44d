"""Projection of embeddings to two dimensions: t-SNE, or PCA where there are too few points for it.

t-SNE: van der Maaten and Hinton 2008, https://www.jmlr.org/papers/v9/vandermaaten08a.html
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

MOST_POINTS = 2000
FEWEST_FOR_TSNE = 30


def sample_positions(n: int, *, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Return at most `most` random positions out of n, ascending; the same ones for every model."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most]).astype(np.int64)


def project_2d(embeddings: Tensor) -> tuple[NDArray[np.float32], str]:
    """Return two-dimensional points (n, 2) for embeddings (n, d), and the name of the method."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    z = embeddings.cpu().numpy()
    if np.ptp(z, axis=0).max() == 0:
        return np.zeros((len(z), 2), dtype=np.float32), "PCA"
    if len(z) < FEWEST_FOR_TSNE or z.shape[1] < 2:
        points = PCA(min(2, *z.shape), svd_solver="full").fit_transform(z)
        return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))).astype(np.float32), "PCA"
    perplexity = min(30.0, (len(z) - 1) / 3)
    return TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(z).astype(np.float32), "t-SNE"
