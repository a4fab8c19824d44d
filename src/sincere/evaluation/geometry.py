"""The shape of the test embeddings: how tight classes are, how spread out they are, how close to neural collapse.

Each metric is a function of the weights of the test images, all 1, which gives it a confidence interval (`influence`).

- alignment and uniformity: Wang and Isola 2020, https://arxiv.org/abs/2005.10242
- neural collapse, NC1 to NC4: Papyan, Han and Donoho 2020, https://arxiv.org/abs/2008.08186
- RankMe: Garrido et al. 2023, https://arxiv.org/abs/2210.02885
- silhouette: Rousseeuw 1987, https://doi.org/10.1016/0377-0427(87)90125-7
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from sincere.evaluation.influence import influence_values
from sincere.evaluation.model_outputs import Metric, ModelOutputs
from sincere.records.results import Better

GROUP = "geometry"
BLOCK_BYTES = 2**27  # of similarities that are computed at a time
RIDGE = 1e-10  # of the mean variance between classes, so that its matrix can be inverted
TINY = 1e-12
CLUSTER_SEED, MOST_CLUSTERED = 0, 10_000  # of k-means, and embeddings that it is fitted to


@dataclass(frozen=True, eq=False)
class LabelledVectors:
    """Vectors with their classes, and the sums over classes that most metrics stand on.

    Attributes:
        vectors: Vectors (n, d) of float64.
        classes: Class of each (n,), counted from 0 without gaps.
        n_classes: Number of classes.
    """

    vectors: Tensor
    classes: Tensor
    n_classes: int

    @classmethod
    def of(cls, vectors: Tensor, labels: Tensor) -> LabelledVectors:
        """Return vectors with labels, of which some classes may be missing."""
        present, classes = torch.unique(labels, return_inverse=True)
        return cls(vectors.double(), classes, len(present))

    def __len__(self) -> int:
        return len(self.classes)

    def counts(self, weights: Tensor) -> Tensor:
        """Return the weight of each class (C,)."""
        return weights.new_zeros(self.n_classes).index_add(0, self.classes, weights)

    def sums(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the vectors of each class (C, d)."""
        zeros = self.vectors.new_zeros(self.n_classes, self.vectors.shape[1])
        return zeros.index_add(0, self.classes, weights[:, None] * self.vectors)

    def means(self, weights: Tensor) -> Tensor:
        """Return the mean of each class (C, d)."""
        return self.sums(weights) / self.counts(weights)[:, None]


def measure(outputs: ModelOutputs) -> dict[str, Metric]:
    """Return the geometry of the test embeddings; NC3 and NC4, of the probe's input, where there is a linear probe."""
    test = outputs.test
    embedded = LabelledVectors.of(test.embeddings, test.labels)
    n, device = len(embedded), test.embeddings.device

    def values(statistic: Callable[[LabelledVectors, Tensor], Tensor], data: LabelledVectors) -> NDArray[np.float64]:
        return influence_values(lambda weights: statistic(data, weights), n, device)

    arrays = {}
    if bool((torch.bincount(embedded.classes) >= 2).any()):
        arrays["alignment"] = values(alignment, embedded)
    if n >= 2:
        arrays["uniformity"] = uniformity_values(test.embeddings)
    if embedded.n_classes >= 2:
        arrays["nc1"] = values(within_class_variability, embedded)
        if embedded.n_classes > 2:  # two means are opposite and equally far from their centre, whatever they are
            arrays["nc2_norms"] = values(norm_variation, embedded)
            arrays["nc2_angles"] = values(angle_deviation, embedded)
        if "linear" in outputs.probes and int(test.labels.unique().numel()) == len(outputs.probes["linear"].bias):
            weight = outputs.probes["linear"].weight.double().to(device)
            features = LabelledVectors.of(test.features, test.labels)
            arrays["nc3"] = values(lambda data, w: self_duality(data, w, weight), features)
            arrays["nc4"] = disagreement(outputs).cpu().numpy()
    arrays["rankme"] = values(rankme, embedded)
    if 2 <= embedded.n_classes < n:
        arrays["silhouette"] = values(silhouette, embedded)
        clusters = cluster(test.embeddings, embedded.n_classes)
        arrays["nmi"] = values(lambda data, w: mutual_information(data.classes, clusters, w), embedded)
    return {name: Metric(values=array, group=GROUP, **READING[name]._asdict()) for name, array in arrays.items()}


class Reading(NamedTuple):
    """Title of a metric, and how to read it.

    Attributes:
        title: Title in tables.
        about: What its values mean, in one sentence.
        better: Which direction is better, if one is.
        share: Whether it is a fraction of the test images.
    """

    title: str
    about: str
    better: Better | None = None
    share: bool = False


READING: dict[str, Reading] = {
    "alignment": Reading(
        "alignment", "mean squared distance between two images of a class, 0 to 4: lower means tighter classes"
    ),
    "uniformity": Reading(
        "uniformity",
        "log of the mean of exp(-2 squared distance) over all pairs: lower means spread out evenly over the sphere, 0 "
        "that all embeddings are the same",
    ),
    "nc1": Reading(
        "NC1 (variability)",
        "variance within classes in units of the variance between them: 0 if every class is a single point",
    ),
    "nc2_norms": Reading(
        "NC2 (norms)",
        "relative variation of the distances of the class means from their centre: 0 if all are equally far",
    ),
    "nc2_angles": Reading(
        "NC2 (angles)",
        "mean deviation of the cosines between class means from -1/(C - 1): 0 if all classes are as far apart as C "
        "classes can be",
    ),
    "nc3": Reading(
        "NC3 (duality)",
        "distance between the weights of the linear probe and the class means of its input, both scaled to length 1, 0 "
        "to 2: 0 if they point the same way",
    ),
    "nc4": Reading(
        "NC4 (nearest mean)",
        "share of test images for which the linear probe and the nearest class mean disagree: 0 if the probe does "
        "nothing else",
        share=True,
    ),
    "rankme": Reading(
        "RankMe",
        "number of dimensions that the embeddings use, from 1 to their length: about the number of classes where these "
        "collapse, far more where other differences are kept, too",
    ),
    "silhouette": Reading(
        "silhouette",
        "how much nearer an image is to its own class than to the nearest other one, -1 to 1, by mean cosine "
        "distances: above 0.5 classes are clearly apart, around 0 they overlap",
        better="higher",
    ),
    "nmi": Reading(
        "NMI",
        "normalised mutual information of the classes and as many k-means clusters: 1 if clustering without labels "
        "finds the classes, 0 if it finds nothing of them",
        better="higher",
    ),
}


def alignment(data: LabelledVectors, weights: Tensor) -> Tensor:
    """Return the mean of ||x - y||^2 over pairs of images of the same class, for vectors of unit length."""
    own = weights.square()
    pairs = data.counts(weights).square().sum() - own.sum()
    products = data.sums(weights).square().sum() - (own * data.vectors.square().sum(dim=1)).sum()
    return 2 - 2 * products / pairs


@torch.no_grad()
def uniformity_values(embeddings: Tensor) -> NDArray[np.float64]:
    """Return the values of log mean exp(-2 ||x - y||^2) over pairs of different images (n,); see `influence_values`.

    With K_i the sum over the others, the statistic is log(sum_i K_i / (n (n - 1))) and the influence of an image
    2 K_i / mean(K) - 2: so the n x n matrix is computed in blocks, without autograd.
    """
    n = len(embeddings)
    rows = max(1, BLOCK_BYTES // (n * embeddings.element_size()))
    sums = []
    for start in range(0, n, rows):
        block = embeddings[start : start + rows]
        kernel = (block @ embeddings.T).mul_(4).sub_(4).exp_()  # ||x - y||^2 = 2 - 2 x.y
        own = torch.arange(len(block), device=block.device)
        kernel[own, start + own] = 0
        sums.append(kernel.sum(dim=1, dtype=torch.float64))
    total = torch.cat(sums)
    mean = total.mean()
    influence = 2 * total / mean - 2
    values: NDArray[np.float64] = (torch.log(mean / (n - 1)) + influence - influence.mean()).cpu().numpy()
    return values


def within_class_variability(data: LabelledVectors, weights: Tensor) -> Tensor:
    """Return NC1: trace(S_W S_B^+) / C, with the covariance S_W within classes and S_B of the class means.

    With centred class means M (C, d), S_B^+ is C M^+ (M^+)^T and M^+ = M^T (M M^T)^+.
    """
    means = data.means(weights)
    centred = means - means.mean(dim=0)
    products = centred @ centred.T
    scale = products.diagonal().mean().clamp_min(TINY)
    # Rows of M sum to 0: the matrix of ones makes M M^T invertible and changes nothing in the range of M.
    ones, identity = torch.full_like(products, 1 / data.n_classes), torch.eye(data.n_classes).to(products)
    regular = products + scale * (ones + RIDGE * identity)
    within = (data.vectors - means[data.classes]) @ torch.linalg.solve(regular, centred).T  # (n, C)
    variability: Tensor = (weights * within.square().sum(dim=1)).sum() / weights.sum()
    return variability


def norm_variation(data: LabelledVectors, weights: Tensor) -> Tensor:
    """Return NC2 of norms: standard deviation over mean of the distances of the class means from their centre."""
    norms = _centred_means(data, weights).square().sum(dim=1).clamp_min(TINY**2).sqrt()
    spread: Tensor = (norms.var(correction=0) + TINY**2).sqrt()
    return spread / norms.mean()


def angle_deviation(data: LabelledVectors, weights: Tensor) -> Tensor:
    """Return NC2 of angles: mean of |cos + 1 / (C - 1)| over pairs of centred class means."""
    means = _centred_means(data, weights)
    norms = means.square().sum(dim=1).clamp_min(TINY**2).sqrt()
    unit = means / norms[:, None]
    first, second = torch.triu_indices(data.n_classes, data.n_classes, offset=1, device=unit.device)
    return ((unit @ unit.T)[first, second] + 1 / (data.n_classes - 1)).abs().mean()


def _centred_means(data: LabelledVectors, weights: Tensor) -> Tensor:
    means = data.means(weights)
    return means - means.mean(dim=0)


def self_duality(data: LabelledVectors, weights: Tensor, probe: Tensor) -> Tensor:
    """Return NC3: ||W / ||W|| - M / ||M|| || of the probe's weights W (C, d) and the centred class means M."""
    means, classifier = _centred_means(data, weights), probe - probe.mean(dim=0)
    difference = classifier / classifier.norm().clamp_min(TINY) - means / means.norm().clamp_min(TINY)
    length: Tensor = (difference.square().sum() + TINY**2).sqrt()
    return length


@torch.no_grad()
def disagreement(outputs: ModelOutputs) -> Tensor:
    """Return 1 for each test image whose nearest class mean is not what the linear probe says (n,): NC4 is the mean.

    Class means are those of the training images in the probe's input, and distances are Euclidean.
    """
    train, test, probe = outputs.train, outputs.test, outputs.probes["linear"]
    present, classes, counts = torch.unique(train.labels, return_inverse=True, return_counts=True)
    sums = train.features.new_zeros(len(present), train.features.shape[1]).index_add_(0, classes, train.features)
    nearest = torch.cdist(test.features, sums / counts[:, None]).argmin(dim=1)
    disagrees: Tensor = (present[nearest] != probe.predict(test.features)).double()
    return disagrees


def rankme(data: LabelledVectors, weights: Tensor) -> Tensor:
    """Return RankMe: exp of the entropy of the singular values of the vectors, scaled to sum 1."""
    gram = (weights[:, None] * data.vectors).T @ data.vectors
    singular = torch.linalg.eigvalsh(gram).clamp_min(TINY).sqrt()
    shares = singular / singular.sum()
    return torch.exp(-(shares * shares.log()).sum())


def silhouette(data: LabelledVectors, weights: Tensor) -> Tensor:
    """Return the mean silhouette (b - a) / max(a, b) by cosine distance, for vectors of unit length.

    a is the mean distance to the other images of the class, b the least mean distance to another class. Means of cosine
    distances follow from the class sums, so that no n x n matrix is needed. An image that is alone in its class has 0.
    """
    counts = data.counts(weights)
    products = data.vectors @ data.sums(weights).T  # (n, C)
    is_own = one_hot(data.classes, data.n_classes).bool()
    own_count = counts[data.classes] - weights
    alone = torch.bincount(data.classes)[data.classes] == 1
    own_product = products[is_own] - weights * data.vectors.square().sum(dim=1)
    a = 1 - own_product / torch.where(alone, 1.0, own_count)
    b = (1 - products / counts).masked_fill(is_own, torch.inf).amin(dim=1)
    values = torch.where(alone, 0.0, (b - a) / torch.maximum(a, b).clamp_min(TINY))
    return (weights * values).sum() / weights.sum()


@torch.no_grad()
def cluster(embeddings: Tensor, n_clusters: int) -> Tensor:
    """Return the k-means cluster of each embedding (n,); of many embeddings, a sample decides the centres."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    vectors = embeddings.double().cpu().numpy()
    sample = np.random.default_rng(CLUSTER_SEED).permutation(len(vectors))[:MOST_CLUSTERED]
    # With one thread, so that the clusters do not depend on the number of threads.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # collapsed embeddings have fewer clusters
        fitted = KMeans(n_clusters, n_init=3, max_iter=100, random_state=CLUSTER_SEED).fit(vectors[np.sort(sample)])
        found = fitted.predict(vectors)
    return torch.from_numpy(found).long().to(embeddings.device)


def mutual_information(classes: Tensor, clusters: Tensor, weights: Tensor) -> Tensor:
    """Return the mutual information of two labellings over the mean of their entropies, 0 to 1."""
    n_classes, n_clusters = int(classes.max()) + 1, int(clusters.max()) + 1
    table = weights.new_zeros(n_classes * n_clusters).index_add(0, classes * n_clusters + clusters, weights)
    joint = table.view(n_classes, n_clusters) / weights.sum()
    of_class, of_cluster = joint.sum(dim=1), joint.sum(dim=0)
    h_class, h_cluster = _entropy(of_class), _entropy(of_cluster)
    information = h_class + h_cluster - _entropy(joint.flatten())
    return information / ((h_class + h_cluster) / 2).clamp_min(TINY)


def _entropy(shares: Tensor) -> Tensor:
    present = shares[shares > 0]
    return -(present * present.log()).sum()
