"""Features of a data set through a frozen encoder: computed once, and kept in the cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from sincere.data.cache import cache_key
from sincere.data.dataset import Dataset, Samples
from sincere.data.decode import DECODER
from sincere.data.feature_cache import BLOCK, cached_features, fill_share
from sincere.data.feature_storage import Features, place_features
from sincere.data.load_options import home
from sincere.data.views import ViewMaker, named_augmentation, view_maker
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel
from sincere.models.inference import for_inference
from sincere.training.progress import CountProgress
from sincere.workflows.fingerprints import tensor_bytes
from sincere.workflows.launch import in_turn

VERSION = 2  # of how features are computed: another one makes cached features invalid
BATCH = 256  # images that are given to the encoder at once
VIEW_SEED = 0  # of the cached augmented versions, which the runs of all seeds share


@dataclass(frozen=True, eq=False)
class Augmented:
    """How augmented versions of an image are made.

    Attributes:
        n_versions: Number of versions of each image.
        augmentation: Name of the augmentation.
        make_views: Makes them.
    """

    n_versions: int
    augmentation: str
    make_views: ViewMaker


@dataclass(frozen=True, eq=False)
class FrozenEncoder:
    """An encoder whose weights stay as they are.

    Attributes:
        network: Maps images (n, c, h, w) to features (n, d), in float32, as those of new images are computed later.
        n_features: Number of features of an image.
        digest: Hash of what decides the features of an image: weights and input size.
        device: Where to compute.
    """

    network: nn.Module
    n_features: int
    digest: str
    device: torch.device

    def features(self, samples: Samples, augmented: Augmented | None, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the features of some samples (k, d), or of augmented versions of them (k, n_versions, d)."""
        rows, step = [], BATCH if augmented is None else max(1, BATCH // augmented.n_versions)
        for start in range(0, len(chosen), step):
            batch = chosen[start : start + step]
            images = samples.items.gather(samples.positions[batch]).to(self.device)
            if augmented is None:
                rows.append(self.network(images).float())
                continue
            ids = torch.from_numpy(samples.ids[batch]).to(self.device)
            versions = augmented.make_views(images, ids, torch.zeros_like(ids))
            rows.append(self.network(versions.flatten(0, 1)).float().view(*versions.shape[:2], -1))
        values: NDArray[np.float32] = torch.cat(rows).cpu().numpy()
        return values


def with_features(
    model: EmbeddingModel,
    data: Dataset,
    device: torch.device,
    messages: Messages,
    *,
    fabric: Fabric | None = None,
    cached_views: int = 0,
    augmentation: str = "none",
) -> Dataset:
    """Return the data set with the features of its images in their place; features are returned as they are.

    Args:
        model: The model whose encoder is frozen.
        data: Images; or features, ready-made or computed before.
        device: Where to compute.
        messages: Receives the progress.
        fabric: Processes that share the images, if there are several.
        cached_views: Number of augmented versions of each training image, from which views are drawn besides itself.
        augmentation: How they are augmented.

    Raises:
        DataError: The cache cannot be written.
    """
    if data.train.are_features:
        return data
    encoder = _frozen_encoder(model, data, device)
    train, test = (_cached(encoder, data, part, messages, fabric) for part in ("train", "test"))
    unknown = None
    if data.unknown is not None:
        computed = _cached(encoder, data, "unknown", messages, fabric)
        unknown = replace(data.unknown, items=Features(computed), positions=np.arange(len(computed)))
    versions = None
    if cached_views:
        chosen = named_augmentation(augmentation, mirror_is_same_class=data.mirror_is_same_class)
        make_views = view_maker(chosen, size=data.size, seed=VIEW_SEED, n_views=cached_views)
        versions = _cached(encoder, data, "train", messages, fabric, Augmented(cached_views, augmentation, make_views))
    unlabelled, n = None, len(train)
    if data.unlabelled is not None:  # in one storage with the others
        more = _cached(encoder, data, "unlabelled", messages, fabric)
        train = torch.cat([train, more])
        if cached_views and versions is not None:
            of_more = Augmented(cached_views, augmentation, make_views)
            versions = torch.cat([versions, _cached(encoder, data, "unlabelled", messages, fabric, of_more)])
    items = Features(train, versions)
    if data.unlabelled is not None:
        unlabelled = replace(data.unlabelled, items=items, positions=np.arange(n, len(train)))
    return replace(
        data,
        train=replace(data.train, items=items, positions=np.arange(n)),
        unlabelled=unlabelled,
        test=replace(data.test, items=Features(test), positions=np.arange(len(test))),
        unknown=unknown,
        origin=data,
    )


def _cached(
    encoder: FrozenEncoder,
    data: Dataset,
    part: str,
    messages: Messages,
    fabric: Fabric | None,
    augmented: Augmented | None = None,
) -> Tensor:
    """Return the features of a part (n, d), or of augmented versions of its images (n, n_versions, d).

    Several processes first compute each its share of what the cache lacks, then read it; one that has another disk
    computes what it does not find there.
    """
    samples: Samples = getattr(data, part)
    what = f"{part} images" if augmented is None else f"augmented {part} images"
    views = () if augmented is None else (augmented.n_versions, augmented.augmentation)
    shape = (len(samples), *views[:1], encoder.n_features)
    path = _path(encoder, data, part, views)

    def compute(chosen: NDArray[np.int64]) -> NDArray[np.float32]:
        return encoder.features(samples, augmented, chosen)

    with CountProgress(messages, f"features of {what}") as progress:
        if fabric is not None and fabric.world_size > 1:
            with in_turn(fabric):  # the first one makes the file
                fill_share(path, compute, shape, share=range(0))
            own = range(fabric.global_rank, -(-shape[0] // BLOCK), fabric.world_size)
            fill_share(path, compute, shape, share=own, progress=progress)
            fabric.barrier()
        values = cached_features(path, compute, shape, progress=progress)
    return place_features(values, encoder.device)


def _path(encoder: FrozenEncoder, data: Dataset, part: str, views: tuple[object, ...]) -> Path:
    """Return the cache entry of a part: one for each content of the data and each encoder."""
    stored = getattr(data, part).items.shape[1:]
    digest = data.unknown_digest if part == "unknown" else data.digest
    content = (VERSION, DECODER, digest, part, data.size, stored, *views, encoder.digest)
    return home() / "features" / cache_key(*content)


def _frozen_encoder(model: EmbeddingModel, data: Dataset, device: torch.device) -> FrozenEncoder:
    encoder = for_inference(model.encoder, prepare=model.preparation).to(device)
    n_features = encoder(data.train.items.gather(data.train.positions[:1]).to(device)).shape[1]
    return FrozenEncoder(encoder, n_features, _weights_digest(model), device)


def _weights_digest(model: EmbeddingModel) -> str:
    """Return a hash of the encoder's weights and of how images are prepared for it."""
    spec = model.spec
    digest = hashlib.sha256(repr((spec.encoder, spec.size, spec.mean, spec.std)).encode())
    for name, value in model.encoder.state_dict().items():
        digest.update(name.encode() + tensor_bytes(value))
    return digest.hexdigest()
