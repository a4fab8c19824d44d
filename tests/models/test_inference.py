"""Copies for inference compute the features of the original encoder, which stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sincere.catalog import ENCODERS
from sincere.models import inference
from sincere.models.embedding import build_model
from sincere.models.inference import for_inference
from sincere.models.lite0 import SameConv2d, lite0
from sincere.models.norms import with_group_norms
from tests.models.test_embedding import spec


def randomised(network: nn.Module) -> nn.Module:
    """Give batch norms weights and running statistics as after training, some weights negative."""
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.2, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            nn.init.normal_(module.weight, 1, 0.4, generator=generator)
            nn.init.normal_(module.bias, 0, 0.2, generator=generator)
    return network.eval()


def images(n: int, height: int, width: int | None = None) -> Tensor:
    return torch.randn(n, 3, height, width or height, generator=torch.Generator().manual_seed(1))


def n_batch_norms(network: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def assert_same(network: nn.Module, batch: Tensor, *, left: int | None = None) -> None:
    """Check the features of the copy, and how many batch norms it has."""
    fast = for_inference(network)
    with torch.no_grad():
        expected = network(batch)
    found = fast(batch)
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    assert not found.requires_grad
    if left is not None:
        assert n_batch_norms(fast) == left


@pytest.mark.parametrize(
    ("name", "size", "left"),
    [("lite0", 32, 0), ("lite0", 75, 0), ("small", 8, 2), ("small", 32, 3), ("resnet18", 32, 0), ("resnet18", 80, 0)],
)
def test_features_are_the_same(name: str, size: int, left: int) -> None:
    """The norms that `small` keeps come after a max-pooling, which does not commute with a negative weight."""
    torch.manual_seed(0)
    assert_same(randomised(ENCODERS[name].load()(channels=3, size=size)), images(5, size), left=left)


@pytest.mark.parametrize("shape", [(32, 48), (33, 32), (50, 71), (1, 1), (3, 2)])
def test_images_that_are_not_square(shape: tuple[int, int]) -> None:
    """All combinations of odd and even padding."""
    assert_same(randomised(lite0(channels=3, size=32)), images(3, *shape))


@pytest.mark.parametrize(("side", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2), (1, 1), (3, 3), (4, 1), (2, 2)])
@pytest.mark.parametrize("n", range(1, 10))
def test_padding_in_the_kernel(side: int, stride: int, n: int) -> None:
    network = nn.Sequential(SameConv2d(3, 4, side, stride=stride), nn.BatchNorm2d(4))
    assert_same(randomised(network), images(2, n), left=0)


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "mobilenetv3_small_050", "resnet10t"])
def test_encoders_of_timm(name: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    assert_same(randomised(timm.create_model(name, num_classes=0)), images(2, 64), left=0)


def test_group_norms_are_kept() -> None:
    network = with_group_norms(lite0(channels=3, size=32)).eval()
    assert_same(network, images(2, 32))
    kinds = [type(module).__name__ for module in for_inference(network).modules()]
    assert kinds.count("GroupNorm") == 49


def test_the_original_is_not_changed() -> None:
    network = randomised(lite0(channels=3, size=32)).train()
    before = copy.deepcopy(network.state_dict())
    fast = for_inference(network)
    fast(images(4, 32))
    assert network.training
    assert not fast.training
    assert all(parameter.requires_grad for parameter in network.parameters())
    after = network.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert network.conv_stem.weight.is_contiguous(), "channels-last order is for the copy only"


class Block(nn.Module):
    """A convolution and a batch norm, combined in several ways."""

    def __init__(self, combine: Callable[[Block, Tensor], Tensor], **norm: bool) -> None:
        super().__init__()
        self.convolution, self.norm, self.combine = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3, **norm), combine

    def forward(self, batch: Tensor) -> Tensor:
        return self.combine(self, batch).flatten(1)


WAYS: dict[str, tuple[Callable[[Block, Tensor], Tensor], int]] = {
    "a pair": (lambda self, batch: self.norm(self.convolution(batch)), 0),
    "cannot be traced": (lambda self, batch: self.norm(self.convolution(batch)) * (2 if batch.sum() > 0 else 3), 1),
    "output used twice": (lambda self, batch: self.norm(y := self.convolution(batch)) + y, 1),
    "convolution called twice": (lambda self, batch: self.norm(self.convolution(self.convolution(batch))), 1),
    "norm called twice": (lambda self, batch: self.norm(self.norm(self.convolution(batch))), 1),
    "weight used elsewhere": (
        lambda self, batch: self.norm(self.convolution(batch)) * self.convolution.weight.sum(),
        1,
    ),
    "norm before": (lambda self, batch: self.convolution(self.norm(batch)), 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_only_pairs_are_folded(way: str) -> None:
    combine, left = WAYS[way]
    assert_same(randomised(Block(combine)), images(4, 6), left=left)


def test_a_weight_that_a_hook_computes() -> None:
    def compute(convolution: nn.Module, _: object) -> None:
        nn.init.ones_(convolution.weight)

    block = Block(WAYS["a pair"][0])
    block.convolution.register_forward_pre_hook(compute)
    assert_same(randomised(block), images(4, 6), left=1)


def test_a_batch_is_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except where an image's features depend on its batch."""
    sizes: list[int] = []

    def combine(self: Block, batch: Tensor) -> Tensor:
        if isinstance(batch, Tensor):
            sizes.append(len(batch))
        return self.norm(self.convolution(batch))

    monkeypatch.setattr(inference, "PIXELS", 3 * 36)
    assert_same(randomised(Block(combine)), images(20, 6))
    assert (max(sizes[1:]), sum(sizes)) == (3, 40), "after the whole batch by the original"
    sizes.clear()
    assert_same(Block(combine, track_running_stats=False).eval(), images(20, 6), left=1)
    assert sizes == [20, 20]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_number_of_threads_stays(n_threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(n_threads)
        network = randomised(lite0(channels=3, size=32))
        assert_same(network, images(7, 32))
        with pytest.raises(RuntimeError):
            for_inference(network)(torch.zeros(8, 2, 32, 32))
        assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)


def test_stored_pixels_are_prepared() -> None:
    model = build_model(spec(encoder="lite0", size=32)).eval()
    fast = for_inference(model.encoder, prepare=model.preparation)
    stored = torch.randint(0, 256, (6, 3, 50, 50), dtype=torch.uint8)
    with torch.no_grad():
        expected = model.features(stored)
    assert float((fast(stored) - expected).norm() / expected.norm()) < 1e-5


def test_features_can_train_a_probe() -> None:
    """As tensors of `torch.inference_mode` could not."""
    features = for_inference(lite0(channels=3, size=32))(images(4, 32))
    probe = nn.Linear(features.shape[1], 2)
    probe(features).sum().backward()
    assert probe.weight.grad is not None
