"""Models are built from a spec and a seed, take grey and colour images of any size, and survive saving."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sincere.catalog import ENCODERS, HEADS, READY_MADE, Encoder
from sincere.errors import DataError, InputValueError, MissingPackageError
from sincere.models.embedding import EmbeddingModel, Preparation, build_model, load_model, save_model, save_spec
from sincere.records.model import ModelSpec


def spec(**changes: Any) -> ModelSpec:
    channels = changes.get("channels", 3)
    defaults = {
        "encoder": "small",
        "channels": channels,
        "size": 16,
        "mean": (0.5,) * channels,
        "std": (0.25,) * channels,
    }
    return ModelSpec(**{**defaults, **changes})


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != READY_MADE])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_encoder_takes_grey_and_colour(encoder: str, channels: int) -> None:
    model = build_model(spec(encoder=encoder, channels=channels, size=32)).eval()
    pixels = torch.randint(0, 256, (2, channels, 32, 32), dtype=torch.uint8)
    embeddings = model.embed(pixels)
    assert embeddings.shape == (2, 128)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))
    assert f"{encoder}: " in model.describe()


def test_features_take_the_place_of_images() -> None:
    model = build_model(ModelSpec(encoder=READY_MADE, n_features=5, dim=4, feature_scale=2.0, frozen=True)).eval()
    features = torch.randn(3, 5)
    torch.testing.assert_close(model(features), model.head(features / 2))
    assert model.outputs(features).shape == (3, 8), "probes take the embeddings"
    assert model.describe() == "5 ready-made features; head mlp, 4 dimensions"


def test_a_frozen_model_gives_the_same_for_images_and_their_features() -> None:
    model = build_model(spec(encoder="small", size=16, feature_scale=3.0)).eval()
    pixels = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(model.embed(pixels), model.embed(model.features(pixels)))


def test_an_encoder_must_return_two_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "flat", Encoder("torch.nn:Identity", "an encoder that is none"))
    got = r"torch.float32 of shape \(2, 3, 16, 16\)"
    message = rf"^model: encoder flat must return floating-point features of shape \(2, d\) here; got {got}$"
    with pytest.raises(InputValueError, match=message):
        build_model(spec(encoder="flat", size=16))


def test_grey_and_colour_images_are_converted() -> None:
    grey = torch.randint(0, 256, (2, 1, 16, 16), dtype=torch.uint8)
    colour = Preparation(spec(channels=3))(grey)
    torch.testing.assert_close(colour, Preparation(spec(channels=3))(grey.expand(-1, 3, -1, -1)))
    pixels = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    pillow = [Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L") for image in pixels]
    expected = torch.stack([torch.from_numpy(np.array(image)) for image in pillow])[:, None]
    prepare = Preparation(spec(channels=1))
    torch.testing.assert_close(prepare(pixels), prepare(expected), atol=0.01, rtol=0)  # Pillow rounds
    torch.testing.assert_close(prepare(grey.expand(-1, 3, -1, -1)), prepare(grey), msg="luma weights sum to 1")


def test_outputs_are_embeddings_and_features_concatenated() -> None:
    model = build_model(spec(dim=24)).eval()
    images = torch.rand(3, 3, 16, 16)
    outputs = model.outputs(images)
    torch.testing.assert_close(outputs[:, :24], model.embed(images))
    torch.testing.assert_close(outputs[:, 24:], model.features(images).detach())
    assert not outputs.requires_grad


@pytest.mark.parametrize("size", [8, 9, 16, 17, 28, 32, 33, 48, 64])
def test_small_takes_eight_to_sixty_four_pixels(size: int) -> None:
    model = build_model(spec(size=size, channels=1))
    assert model(torch.rand(2, 1, size, size)).shape == (2, 128)
    assert sum(p.numel() for p in model.encoder.parameters()) < 1_500_000


@pytest.mark.parametrize(("size", "side", "stride"), [(32, 3, 1), (64, 3, 1), (65, 7, 2), (224, 7, 2)])
def test_the_stem_of_a_resnet_suits_the_size(size: int, side: int, stride: int) -> None:
    model = build_model(spec(encoder="resnet18", size=size))
    assert model.encoder.conv1.kernel_size == (side, side)
    assert model.encoder.conv1.stride == (stride, stride)
    assert isinstance(model.encoder.maxpool, torch.nn.Identity) == (size <= 64)
    assert f"{side} x {side} stem" in model.describe()


@pytest.mark.parametrize("head", HEADS)
def test_heads(head: str) -> None:
    model = build_model(spec(head=head, dim=24)).eval()
    images = torch.rand(3, 3, 16, 16)
    features = model.features(images)
    assert model(images).shape == (3, model.spec.dim)
    assert model.spec.dim == (features.shape[1] if head == "none" else 24)
    if head == "none":
        torch.testing.assert_close(model(images), features)


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = build_model(spec(), seed=3).state_dict()
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after), "building draws nothing from the global generator"
    second, third = build_model(spec(), seed=3).state_dict(), build_model(spec(), seed=4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], third[name]) for name in first)


def test_preparation_scales_resizes_and_normalises() -> None:
    prepare = Preparation(spec(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)))
    pixels = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    prepared = prepare(pixels)
    torch.testing.assert_close(prepared[:, 1], (pixels[:, 1].float() / 255 - 0.4) / 0.3)
    torch.testing.assert_close(prepare(pixels.float() / 255), prepared)
    assert prepare(torch.zeros(2, 3, 40, 30, dtype=torch.uint8)).shape == (2, 3, 16, 16)
    board = (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).mul(255).byte().expand(1, 3, 32, 32)
    assert float(prepare(board)[0, 0, 4:-4, 4:-4].std()) < 0.01, "a fine pattern becomes grey, not another pattern"


def test_a_saved_model_is_loaded_unchanged(tmp_path: Path) -> None:
    model = build_model(spec(head="linear", class_names=("cat", "<dog>")), seed=5)
    model(torch.rand(8, 3, 16, 16))  # moves the running statistics
    save_model(model.eval(), tmp_path)
    again = load_model(tmp_path).eval()
    images = torch.rand(4, 3, 16, 16)
    assert torch.equal(again(images), model(images))
    assert again.spec == model.spec
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]


def test_a_loaded_model_embeds_an_image_independently_of_its_batch(tmp_path: Path) -> None:
    model = build_model(spec(), seed=5)
    model(torch.rand(8, 3, 16, 16))
    save_model(model, tmp_path)
    again, images = load_model(tmp_path), torch.rand(6, 3, 16, 16)
    together = again.embed(images)
    assert not together.requires_grad
    torch.testing.assert_close(again.embed(images[:1]), together[:1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.json", None, ": holds no model; model.json is missing"),
        ("model.safetensors", None, ": holds no model; model.safetensors is missing"),
        ("model.json", "{}", ": its model is damaged (1 validation error for ModelSpec)"),
        ("model.json", "{", "/model.json: is damaged: no readable JSON; copy it again, or train again"),
        ("model.safetensors", "nonsense", "/model.safetensors: is damaged ("),
    ],
)
def test_damaged_models(name: str, content: str | None, message: str, tmp_path: Path) -> None:
    save_model(build_model(spec()), tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as caught:
        load_model(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}{message}")


def test_weights_of_another_model(tmp_path: Path) -> None:
    save_model(build_model(spec()), tmp_path)
    save_spec(spec(dim=64), tmp_path)
    with pytest.raises(DataError, match=r"model.safetensors does not fit model.json"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "resnet5"}, "Did you mean 'resnet50'?"),
        ({"head": "mpl"}, "Did you mean 'mlp'?"),
        ({"encoder": "timm:resnet_nonsense"}, "model: encoder must be a name that timm knows; got 'resnet_nonsense'."),
    ],
)
def test_unknown_names(changes: dict[str, Any], message: str) -> None:
    if "timm" in str(changes):
        pytest.importorskip("timm")
    with pytest.raises(InputValueError) as caught:
        build_model(spec(**changes))
    assert message in str(caught.value)


def test_timm_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    expected = r"model: the encoder timm:resnet10t needs timm, .* install it with: pip install 'sincere\[timm\]'"
    with pytest.raises(MissingPackageError, match=expected):
        build_model(spec(encoder="timm:resnet10t"))


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_timm(name: str) -> None:
    pytest.importorskip("timm")
    model = build_model(spec(encoder=f"timm:{name}", channels=1, size=32))
    assert isinstance(model, EmbeddingModel)
    assert model(torch.rand(2, 1, 32, 32)).shape == (2, 128)


def test_small_has_no_pretrained_weights() -> None:
    with pytest.raises(InputValueError, match="pretrained must be off for encoder small"):
        build_model(spec(), pretrained=True)


def test_every_changed_byte_of_the_weights_is_noticed(tmp_path: Path) -> None:
    save_model(build_model(spec()), tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    expected = load_model(tmp_path).state_dict()
    generator = np.random.default_rng(0)
    noticed = 0
    for position in generator.integers(0, len(content), 60):
        changed = bytearray(content)
        changed[position] ^= 1 << int(generator.integers(8))
        path.write_bytes(changed)
        try:
            found = load_model(tmp_path).state_dict()
        except DataError:
            noticed += 1
            continue
        assert all(torch.equal(found[name], expected[name]) for name in expected), "only padding may change unnoticed"
    assert noticed > 50


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_files_have_the_mode_of_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    """Safetensors itself writes files that only their owner can read."""
    before = os.umask(umask)
    try:
        save_model(build_model(spec()), tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"model.safetensors": mode, "model.json": mode}
