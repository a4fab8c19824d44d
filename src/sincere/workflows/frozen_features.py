"""Features of a data set through a frozen encoder: computed once, and kept in the cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from sincere.data.cache import entry_path
from sincere.data.dataset import Dataset, Samples
from sincere.data.feature_cache import cached_features
from sincere.data.feature_storage import Features, place_features
from sincere.data.load_options import home
from sincere.data.views import ViewMaker, named_augmentation, view_maker
from sincere.messages import Messages
from sincere.models.embedding import EmbeddingModel
from sincere.models.inference import for_inference
from sincere.training.progress import CountProgress
from sincere.workflows.arithmetic import Compute, choose_arithmetic

VERSION = 1  # of how features are computed: another one makes cached features invalid
BATCH = 256  # images that are given to the encoder at once
VIEW_SEED = 0  # of the cached augmented versions, which the runs of all seeds share


@dataclass(frozen=True, eq=False)
class FrozenEncoder:
    """An encoder whose weights stay as they are.

    Attributes:
        compute: Maps images (n, c, h, w) to features (n, d).
        n_features: Number of features of an image.
        identity: What decides the features of an image: weights, input size, arithmetic.
        device: Where to compute.
    """

    compute: Compute
    n_features: int
    identity: tuple[object, ...]
    device: torch.device

    def features(
        self, samples: Samples, make_views: ViewMaker | None, chosen: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the features of some samples (k, d), or of their views (k, n_views, d)."""
        rows = []
        for start in range(0, len(chosen), BATCH):
            batch = chosen[start : start + BATCH]
            images = samples.items.gather(samples.positions[batch]).to(self.device)
            if make_views is None:
                rows.append(self.compute(images))
                continue
            ids = torch.from_numpy(samples.ids[batch]).to(self.device)
            views = make_views(images, ids, torch.zeros_like(ids))
            rows.append(self.compute(views.flatten(0, 1)).view(*views.shape[:2], -1))
        values: NDArray[np.float32] = torch.cat(rows).cpu().numpy()
        return values


def with_features(
    model: EmbeddingModel,
    data: Dataset,
    device: torch.device,
    messages: Messages,
    *,
    cached_views: int = 0,
    augmentation: str = "none",
) -> Dataset:
    """Return the data set with the features of its images in their place; features are returned as they are.

    Args:
        model: The model whose encoder is frozen.
        data: Images; or features, ready-made or computed before.
        device: Where to compute.
        messages: Receives the progress.
        cached_views: Number of augmented versions of each training image, from which views are drawn besides itself.
        augmentation: How they are augmented.

    Raises:
        DataError: The cache cannot be written.
    """
    if data.train.are_features:
        return data
    encoder = _frozen_encoder(model, data, device)
    train, test = (_cached(encoder, data, part, messages) for part in ("train", "test"))
    versions = None
    if cached_views:
        chosen = named_augmentation(augmentation, mirror_is_same_class=data.mirror_is_same_class)
        make_views = view_maker(chosen, size=data.size, seed=VIEW_SEED, n_views=cached_views)
        views = _cached(encoder, data, "train", messages, make_views, (cached_views, augmentation))
        versions = torch.cat([train[:, None], views], dim=1)
    return replace(
        data,
        train=replace(data.train, items=Features(train, versions), positions=np.arange(len(train))),
        test=replace(data.test, items=Features(test), positions=np.arange(len(test))),
        origin=data,
    )


def _cached(
    encoder: FrozenEncoder,
    data: Dataset,
    part: str,
    messages: Messages,
    make_views: ViewMaker | None = None,
    views: tuple[int, str] | tuple[()] = (),
) -> Tensor:
    """Return the features of a part (n, d), or of the views of its images (n, n_views, d)."""
    samples: Samples = getattr(data, part)
    what = f"{part} images" if make_views is None else f"augmented {part} images"
    shape = (len(samples), *views[:1], encoder.n_features)
    with CountProgress(messages, f"features of {what}") as progress:
        values = cached_features(
            _path(encoder, data, part, views),
            lambda chosen: encoder.features(samples, make_views, chosen),
            shape,
            progress=progress,
        )
    return place_features(values, encoder.device)


def _path(encoder: FrozenEncoder, data: Dataset, part: str, views: tuple[object, ...]) -> Path:
    """Return the cache entry of a part; data or an encoder that have changed replace it."""
    stored = getattr(data, part).items.shape[1:]
    subject = (data.name, data.class_names, part, data.size, *views)
    return entry_path(home() / "features", subject, (VERSION, data.digest, stored, *encoder.identity))


def _frozen_encoder(model: EmbeddingModel, data: Dataset, device: torch.device) -> FrozenEncoder:
    """Return the encoder of a model, in bfloat16 where the hardware gains from it and metrics stay the same."""
    encoder = for_inference(model.encoder, prepare=model.preparation).to(device)

    def full(images: Tensor) -> Tensor:
        output: Tensor = encoder(images)
        return output.float()

    compute, arithmetic = choose_arithmetic(full, lambda features: normalize(features, dim=1), data.train, device)
    n_features = full(data.train.items.gather(data.train.positions[:1]).to(device)).shape[1]
    return FrozenEncoder(compute, n_features, (arithmetic, _weights_digest(model)), device)


def _weights_digest(model: EmbeddingModel) -> str:
    """Return a hash of the encoder's weights and of how images are prepared for it."""
    spec = model.spec
    digest = hashlib.sha256(repr((spec.encoder, spec.size, spec.mean, spec.std)).encode())
    for name, value in model.encoder.state_dict().items():
        digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
