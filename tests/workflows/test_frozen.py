"""A frozen encoder: its features are computed once, only the head is trained, and the model still takes images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import sincere
from sincere.data.catalog import load_dataset
from sincere.errors import InputValueError
from sincere.records.results import Results
from sincere.settings.requests import TrainRequest
from sincere.workflows import frozen_features
from sincere.workflows.defaults import resolve
from sincere.workflows.run_folder import RunFolder
from tests.workflows.conftest import QUICK
from tests.workflows.trained_runs import same_weights, stopped_after, weights


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def frozen(data: str, finished: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a run with the encoder of another run, frozen."""
    monkeypatch.setenv("SINCERE_HOME", str(home))
    return {**QUICK, "data": data, "weights": finished / "model.safetensors", "freeze": True, "size": 8}


@pytest.fixture
def n_encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images in each batch that goes through a frozen encoder."""
    counts: list[int] = []
    real = frozen_features.FrozenEncoder.features

    def counted(self: Any, samples: Any, augmented: Any, chosen: Any) -> Any:
        counts.append(len(chosen))
        return real(self, samples, augmented, chosen)

    monkeypatch.setattr(frozen_features.FrozenEncoder, "features", counted)
    return counts


def test_only_the_head_is_trained_on_features_that_are_computed_once(
    frozen: dict[str, Any], tmp_path: Path, n_encoded: list[int]
) -> None:
    sincere.train(out=tmp_path / "a", **frozen)
    first = sum(n_encoded)
    sincere.train(out=tmp_path / "b", loss="supcon", seed=1, **frozen)
    assert sum(n_encoded) == first <= 90
    start, end = load_file(frozen["weights"]), weights(tmp_path / "a")
    encoder = [name for name in end if name.startswith("encoder.") and "num_batches" not in name]
    assert encoder
    assert all(torch.equal(start[name], end[name]) for name in encoder)
    stored = RunFolder(tmp_path / "a").stored_settings()
    assert (stored["freeze"], stored["optimizer"], stored["augmentation"]) == (True, "adamw", "none")
    assert stored["feature_dropout"] == 0.5


def test_it_learns_and_its_model_takes_images(frozen: dict[str, Any], tmp_path: Path) -> None:
    result = sincere.train(out=tmp_path / "run", **{**frozen, "epochs": 20})
    assert result.train_loss["last"] < 0.7 * result.train_loss["first"]
    assert result.knn1_test > 0.9
    sincere.evaluate(tmp_path / "run", quiet=True, report=False)
    stored = load_file(tmp_path / "run" / "embeddings.safetensors")
    data = load_dataset(frozen["data"], size=8)
    images = data.test.items.gather(data.test.positions)
    torch.testing.assert_close(sincere.load(tmp_path / "run").embed(images), stored["test.embeddings"])
    assert torch.equal(stored["test.features"], stored["test.embeddings"]), "probes take what the loss has changed"


def test_stopped_and_resumed_it_ends_the_same(
    frozen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sincere.train(out=tmp_path / "whole", **frozen)
    stopped_after(5, monkeypatch, out=tmp_path / "parts", **frozen)
    sincere.train(resume=True, out=tmp_path / "parts", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "parts")


def test_views_are_drawn_from_cached_versions(frozen: dict[str, Any], tmp_path: Path, n_encoded: list[int]) -> None:
    options = {**frozen, "cached_views": 2, "augmentation": "digits", "feature_dropout": 0.0}
    sincere.train(out=tmp_path / "a", **options)
    sincere.train(out=tmp_path / "b", **options)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert 60 <= sum(n_encoded) <= 150, "60 training images again, with two versions each"
    sincere.train(out=tmp_path / "c", **frozen)
    assert not same_weights(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder_lr": 0.1}, "train: encoder_lr must not be set for a frozen encoder; got 0.1. Leave out freeze=True"),
        ({"head": "none"}, "train: head must be mlp or linear for a frozen encoder or features, because nothing else"),
        ({"norm": "group"}, "train: norm must be batch for a frozen encoder: without their statistics its weights wou"),
        ({"cached_views": 2, "augmentation": "none"}, "train: augmentation must not be none with cached_views, which"),
        ({"augmentation": "light"}, "train: augmentation must be none for features; got light. With cached_views N"),
        ({"freeze": False, "cached_views": 2}, "train: cached_views must be 0 unless the encoder is frozen (f"),
        ({"freeze": False, "feature_dropout": 0.1}, "train: feature_dropout must be 0 unless the encoder is frozen"),
        ({"encoder": "none"}, "train: encoder must turn images into features; got none"),
        ({"weights": None, "encoder": "small"}, "train: freeze needs weights, and small has no ImageNet weights; set"),
        ({"weights": None, "pretrained": False}, "train: freeze needs weights: leave out pretrained=False, or set"),
    ],
)
def test_settings_that_contradict_each_other(
    settings: dict[str, Any], message: str, frozen: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InputValueError) as caught:
        sincere.train(out=tmp_path / "run", **{**frozen, **settings})
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "run" / "config.toml").exists()


def photos(root: Path, *, n: int = 12) -> Path:
    """A folder of photos of three classes, of sizes that vary."""
    generator = np.random.default_rng(0)
    for label, shade in enumerate((40, 120, 200)):
        (root / f"c{label}").mkdir(parents=True)
        for i in range(n):
            side = int(generator.integers(70, 120))
            pixels = np.clip(shade + generator.normal(0, 30, (side, side + 9, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"c{label}" / f"{i}.{'png' if i % 2 else 'jpg'}")
    return root


@pytest.mark.slow
def test_photos_go_through_a_frozen_pretrained_encoder_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    options: dict[str, Any] = {"epochs": 2, "losses": ["sincere", "supcon"], "seeds": [0, 1]}
    results = sincere.compare(data=photos(tmp_path / "photos"), out=tmp_path / "out", **options)
    printed = capsys.readouterr()
    assert "images of 71 to 119 px are taken at 96 px; --size sets another" in printed.err
    assert "lite0: 3.37M parameters for 96 x 96 px, colour" in printed.out
    assert "frozen encoder lite0 at 96 px; --encoder, --no-freeze and --size change that" in printed.out
    assert "starts from ImageNet weights; frozen, only the head is trained" in printed.out
    assert [(row.loss, row.seed) for row in results.rows][-2:] == [("raw-features", 0), ("raw-features", 1)]
    raw = results.summaries[-1]
    assert raw.seed_std == dict.fromkeys(raw.metrics, 0.0)
    assert {(d.a, d.b) for d in results.differences} >= {("sincere", "raw-features"), ("sincere", "supcon")}
    assert "raw features" in (tmp_path / "out" / "report.html").read_text()
    again = sincere.compare(data=tmp_path / "photos", out=tmp_path / "out", **{**options, "seeds": [0, 1, 2]})
    assert again.summaries[-1].metrics["knn1"].estimate == raw.metrics["knn1"].estimate
    alone = sincere.evaluate(tmp_path / "out" / "runs" / "sincere-0", quiet=True)
    assert alone.rows[0].metrics == Results.read(tmp_path / "out").rows[0].metrics


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("lite0", True, True)),
        ({"encoder": "lite0"}, ("lite0", True, True)),
        ({"encoder_lr": 1e-4}, ("lite0", True, False)),
        ({"freeze": False}, ("lite0", True, False)),
        ({"encoder": "lite0", "pretrained": False}, ("lite0", False, False)),
        ({"encoder": "small"}, ("small", False, False)),
        ({"pretrained": False}, ("small", False, False)),
    ],
)
def test_what_is_chosen_for_photos(settings: dict[str, Any], expected: tuple[str, bool, bool], tmp_path: Path) -> None:
    data = load_dataset(photos(tmp_path / "photos", n=2))
    assert data.are_photos
    request = TrainRequest.make(data=str(tmp_path / "photos"), **settings)
    model = resolve(request.run_settings(), data, torch.device("cpu")).model
    assert (model.encoder, model.pretrained, model.freeze) == expected


def test_the_weights_of_a_run_bring_its_encoder_and_size(
    frozen: dict[str, Any], finished: Path, tmp_path: Path
) -> None:
    """Small images are not enlarged for them, as they are for ImageNet weights."""
    del frozen["size"]
    frozen.pop("encoder", None)
    sincere.train(out=tmp_path / "run", **frozen)
    stored, before = (RunFolder(path).stored_settings() for path in (tmp_path / "run", finished))
    assert (stored["encoder"], stored["size"]) == (before["encoder"], before["size"])
    with pytest.raises(InputValueError, match=r"""It is of a run with encoder="small" size=8$"""):
        sincere.train(out=tmp_path / "other", **{**frozen, "encoder": "resnet18"})


def test_settings_of_few_images_fit_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    sincere.train(data=photos(tmp_path / "photos", n=5), out=tmp_path / "run", epochs=1, quiet=True)


def test_features_are_computed_with_the_threads_of_the_run(
    frozen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    numbers = list[int]()
    real = frozen_features.FrozenEncoder.features

    def watched(*arguments: Any) -> Any:
        numbers.append(torch.get_num_threads())
        return real(*arguments)

    monkeypatch.setattr(frozen_features.FrozenEncoder, "features", watched)
    before = torch.get_num_threads()
    sincere.train(out=tmp_path / "run", **{**frozen, "threads": before + 1})
    assert set(numbers) == {before + 1}
    assert torch.get_num_threads() == before
