"""The ONNX graph prepares images as PyTorch does, to the pixel, and says what it is."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate

from sincere.catalog import ENCODERS
from sincere.data.decode import centre_square
from sincere.errors import MissingPackageError, UnsupportedError
from sincere.models.embedding import EmbeddingModel, build_model
from sincere.models.onnx_graph import CentreSquare, PixelsToEmbeddings, input_description, to_onnx
from sincere.records.model import ModelSpec

SHAPES = [(40, 30), (30, 40), (25, 25), (9, 7), (1, 1), (16, 16), (20, 16), (17, 17), (3, 150), (301, 200), (700, 650)]
needs_onnx = pytest.mark.skipif(
    find_spec("onnx") is None or find_spec("onnxscript") is None, reason="needs onnx and onnxscript"
)
needs_runtime = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs onnxruntime")


def picture(height: int, width: int, channels: int, *, seed: int = 0) -> NDArray[np.uint8]:
    """A smooth image with some noise."""
    generator = np.random.default_rng([seed, height, width])
    coarse = torch.from_numpy(generator.normal(128, 70, (1, channels, 5, 5)))
    smooth = interpolate(coarse, (height, width), mode="bicubic")[0].permute(1, 2, 0).numpy()
    return np.clip(smooth + generator.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)


def spec(**changes: object) -> ModelSpec:
    options = {"encoder": "small", "head": "linear", "dim": 8, "channels": 3, "size": 16}
    options |= {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.2), "class_names": ("a", "b\ud800")}
    return ModelSpec.model_validate(options | changes)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 16, 33])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pixels_are_those_of_the_data_set(shape: tuple[int, int], size: int, channels: int) -> None:
    square = CentreSquare(size)
    noise = np.random.default_rng(1).integers(256, size=(*shape, channels), dtype=np.uint8)
    for image in (picture(*shape, channels), noise, np.full_like(noise, 255), (noise > 127).astype(np.uint8) * 255):
        expected = centre_square(image, size).transpose(2, 0, 1)
        got = square(torch.from_numpy(image)[None])[0].numpy()
        assert np.array_equal(got, expected)


def test_a_resize_without_the_integers_differs() -> None:
    """Else the test above would not need them."""
    image = picture(40, 40, 3)
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    rounded = interpolate(pixels, (16, 16), mode="bilinear", antialias=True).round()[0].permute(1, 2, 0)
    assert not np.array_equal(rounded.numpy(), centre_square(image, 16))


@pytest.mark.parametrize(
    "changes",
    [
        {"image_shape": (3, 28, 28)},
        {"image_shape": (3, 12, 12)},
        {"image_shape": (1, 20, 20)},
        {"image_shape": (3, 28, 28), "channels": 1, "mean": (0.4,), "std": (0.2,)},
        {},
    ],
    ids=["smaller", "larger", "grey-to-colour", "colour-to-grey", "no-stored-size"],
)
def test_the_preparation_is_that_of_the_model(changes: dict[str, object]) -> None:
    network = build_model(spec(**changes)).eval()
    channels, side, _ = network.spec.image_shape or (3, 16, 16)
    images = np.stack([picture(50, 37, channels, seed=seed) for seed in range(3)])
    stored = np.stack([centre_square(image, side) for image in images])
    expected = network.embed(torch.from_numpy(stored).permute(0, 3, 1, 2))
    got = PixelsToEmbeddings(network)(torch.from_numpy(images))
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


def embeddings_of(content: bytes, **inputs: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.float32]:
    import onnxruntime

    outputs: NDArray[np.float32] = onnxruntime.InferenceSession(content).run(["embeddings"], inputs)[0]
    return outputs


@needs_onnx
@needs_runtime
def test_one_file_takes_images_of_any_number_and_shape() -> None:
    import onnx

    network = build_model(spec(image_shape=(3, 28, 28))).train()
    state = {name: value.clone() for name, value in network.state_dict().items()}
    content = to_onnx(network, {"class_names": json.dumps(network.spec.class_names)})
    assert network.training, "the model of the caller must stay as it is"
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    network.eval()
    for shape in SHAPES:
        for n in (1, 3):
            images = np.stack([picture(*shape, 3, seed=seed) for seed in range(n)])
            stored = np.stack([centre_square(image, 28) for image in images])
            expected = network.embed(torch.from_numpy(stored).permute(0, 3, 1, 2)).numpy()
            np.testing.assert_allclose(embeddings_of(content, images=images), expected, atol=2e-6)

    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(about["class_names"]) == ["a", "b\ud800"]
    assert to_onnx(network, about) == content, "equal models must give equal bytes"
    assert b"onnx_graph.py" not in content, "no source code, and no path of this machine"


@needs_onnx
@needs_runtime
def test_a_model_of_features() -> None:
    network = build_model(ModelSpec(encoder="none", head="mlp", dim=8, n_features=6, feature_scale=2.5)).eval()
    features = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    got = embeddings_of(to_onnx(network, {}), features=features)
    np.testing.assert_allclose(got, network.embed(torch.from_numpy(features)).numpy(), atol=1e-6)
    assert input_description(network.spec).startswith("features: float32 (n, 6)")


# No network; tested with its weights in tests/workflows/test_export.py; the parts of resnet18, and slow to trace
# (resnet50 was tried by hand: 8.5e-7).
NOT_TRACED = ("none", "lite0", "resnet34", "resnet50", "resnet101")
ENCODER_CASES = [*((name, "batch") for name in ENCODERS if name not in NOT_TRACED), ("small", "group")]


@needs_onnx
@needs_runtime
@pytest.mark.parametrize(("encoder", "norm"), ENCODER_CASES)
def test_every_encoder_can_be_exported(encoder: str, norm: str) -> None:
    network = build_model(spec(encoder=encoder, norm=norm, size=32)).eval()
    content, images = to_onnx(network, {}), np.stack([picture(50, 37, 3, seed=seed) for seed in range(3)])
    stored = np.stack([centre_square(image, 32) for image in images])
    expected = network.embed(torch.from_numpy(stored).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(embeddings_of(content, images=images), expected, atol=1e-5)


class DependsOnValues(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        """Return another thing for dark images, which no graph can express."""
        return images.flatten(1) if images.sum().item() > 0 else images.flatten(1) * 2


@needs_onnx
def test_an_encoder_that_cannot_be_exported(capfd: pytest.CaptureFixture[str]) -> None:
    network = EmbeddingModel(spec(), DependsOnValues(), nn.Linear(768, 8))
    expected = r"^export: encoder small cannot be exported to ONNX \(torch.onnx: [^\n]+\)$"
    with pytest.raises(UnsupportedError, match=expected):
        to_onnx(network, {})
    assert capfd.readouterr().err == ""


def test_without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError) as caught:
        to_onnx(build_model(spec()), {})
    expected = "export needs onnx, which is not installed; install it with: pip install 'sincere[export]'"
    assert str(caught.value) == expected
