"""`small`: a stem that whitens patches, convolutions that start as the identity, norms without a scale."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from sincere.models.small import N_FILTERS, SmallEncoder, TinyEncoder, small


def correlated_images(n: int, channels: int, size: int) -> Tensor:
    """Smooth noise: neighbouring pixels and channels are alike, as in photos."""
    noise = torch.randn(n, channels, size + 2, size + 2, generator=torch.Generator().manual_seed(0))
    return nn.functional.avg_pool2d(noise, 3, stride=1) * 3 + noise.mean(dim=1, keepdim=True)[..., 1:-1, 1:-1]


@pytest.mark.parametrize(("channels", "stride"), [(3, 1), (1, 1), (3, 2)])
def test_the_outputs_of_the_stem_are_uncorrelated_with_variance_one(channels: int, stride: int) -> None:
    encoder = SmallEncoder(channels, stride=stride)
    images = correlated_images(200, channels, 32)
    encoder.whiten_stem(images)
    side, n = 2 * stride, min(N_FILTERS, channels * (2 * stride) ** 2)
    filters = encoder.stem[0].weight
    assert filters.shape == (2 * n, channels, side, side)
    assert torch.equal(filters[n:], -filters[:n])
    outputs = conv2d(images, filters[:n], stride=side).transpose(0, 1).flatten(1)  # the patches it was computed from
    second_moments = outputs @ outputs.T / outputs.shape[1]
    torch.testing.assert_close(second_moments, torch.eye(n), atol=0.02, rtol=0)


def test_the_stem_takes_the_components_of_largest_variance() -> None:
    encoder = SmallEncoder(3, stride=2)  # 48 values to a patch, 12 filters
    images = correlated_images(200, 3, 32)
    encoder.whiten_stem(images)
    patches = images.double().unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 48)
    _, values, components = torch.linalg.svd(patches / len(patches) ** 0.5, full_matrices=False)
    expected = components[:N_FILTERS] / (values[:N_FILTERS, None] ** 2 + 5e-4).sqrt()
    found = encoder.stem[0].weight[:N_FILTERS].flatten(1).double()
    for one, other in zip(found, expected, strict=True):  # the sign of a component is arbitrary
        assert min((one - other).abs().max(), (one + other).abs().max()) < 1e-4


def test_only_convolutions_of_the_stages_and_biases_of_the_norms_are_trained() -> None:
    encoder = SmallEncoder(3)
    trained = {name for name, parameter in encoder.named_parameters() if parameter.requires_grad}
    norms = {name for name, module in encoder.named_modules() if isinstance(module, nn.BatchNorm2d)}
    convolutions = {name for name, module in encoder.stages.named_modules() if isinstance(module, nn.Conv2d)}
    assert trained == {f"stages.{name}.weight" for name in convolutions} | {f"{name}.bias" for name in norms}
    assert len(norms) == len(convolutions) == 6


def test_convolutions_pass_on_their_input_at_first() -> None:
    encoder = SmallEncoder(3)
    first = encoder.stages[0][0]
    images = torch.randn(2, first.in_channels, 9, 9)
    torch.testing.assert_close(first(images)[:, : first.in_channels], images)


@pytest.mark.parametrize(
    ("size", "kind"), [(8, TinyEncoder), (16, TinyEncoder), (17, SmallEncoder), (64, SmallEncoder)]
)
def test_the_network_suits_the_size(size: int, kind: type[nn.Module]) -> None:
    encoder = small(channels=3, size=size).eval()
    assert isinstance(encoder, kind)
    features = encoder(torch.randn(2, 3, size, size))
    assert features.shape == (2, 64 if kind is TinyEncoder else 160)
    assert features.isfinite().all()
