"""Folders as on the Hugging Face hub: a model that is saved and loaded is the same."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sincere
from sincere.errors import DataError
from sincere.records import files
from sincere.workflows.pretrained import FILES
from tests.workflows.conftest import QUICK

pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")


@pytest.fixture(scope="module")
def run(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluated run, to copy and not to change."""
    folder = tmp_path_factory.mktemp("hub") / "run"
    sincere.train(data=data, out=folder, **QUICK)
    sincere.evaluate(folder, quiet=True, report=False)
    return folder


@pytest.fixture(scope="module")
def images(data: str) -> torch.Tensor:
    return sincere.load_dataset(data).test.items.gather([0, 1, 2, 3])


def test_a_saved_model_is_the_same(run: Path, images: torch.Tensor, tmp_path: Path) -> None:
    model = sincere.load(run)
    assert model.save_pretrained(tmp_path / "saved") is None
    again = sincere.Model.from_pretrained(tmp_path / "saved", device="cpu")
    assert isinstance(again, sincere.Model)
    assert torch.equal(again.embed(images), model.embed(images))
    for classifier in ("knn", "means", "linear"):
        assert torch.equal(
            again.predict_proba(images, classifier=classifier), model.predict_proba(images, classifier=classifier)
        )
    assert torch.equal(again.p_known(images), model.p_known(images))
    assert torch.equal(sincere.load(tmp_path / "saved").embed(images), model.embed(images))


def test_the_card_travels_with_the_model(run: Path, tmp_path: Path) -> None:
    """Also where the results of the evaluation do not."""
    sincere.load(run).save_pretrained(tmp_path / "one")
    sincere.Model.from_pretrained(tmp_path / "one").save_pretrained(tmp_path / "two")
    card = (tmp_path / "one" / "README.md").read_text()
    assert "5-NN accuracy" in card
    assert (tmp_path / "two" / "README.md").read_text() == card


def test_a_readme_of_the_user_stays(run: Path, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "README.md").write_text("mine")
    sincere.load(run).save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "README.md").read_text() == "mine"


def test_a_run_without_an_evaluation(finished: Path, images: torch.Tensor, tmp_path: Path) -> None:
    copied = shutil.copytree(finished, tmp_path / "run")
    (copied / "reference.safetensors").unlink()
    sincere.load(copied).save_pretrained(tmp_path / "saved")
    assert "Not evaluated" in (tmp_path / "saved" / "README.md").read_text()
    again = sincere.Model.from_pretrained(tmp_path / "saved")
    assert again.embed(images).shape == (4, 8)
    with pytest.raises(DataError, match="holds no reference embeddings"):
        again.predict(images)


def test_the_names_of_training_images_may_be_left_out(run: Path, images: torch.Tensor, tmp_path: Path) -> None:
    sincere.load(run).save_pretrained(tmp_path / "saved", reference=False)
    assert not (tmp_path / "saved" / "reference.safetensors").exists()
    assert sincere.Model.from_pretrained(tmp_path / "saved").embed(images).shape == (4, 8)


def test_files_of_another_model_do_not_stay(run: Path, finished: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(finished, tmp_path / "bare")
    (bare / "reference.safetensors").unlink()
    sincere.load(run).save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "reference.safetensors").exists()
    sincere.load(bare).save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved" / "reference.safetensors").exists()
    assert not (tmp_path / "saved" / "linear.safetensors").exists()


def test_a_replacement_that_stops_half_way_is_no_model(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, folder = sincere.load(run), tmp_path / "saved"
    model.save_pretrained(folder)
    real = Path.replace

    def stopped(self: Path, target: Path) -> Path:
        if self.name == "model.safetensors" and self.parent.name.endswith(files.UNFINISHED):
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            model.save_pretrained(folder)
    with pytest.raises(DataError, match=r"holds no model; model.json is missing"):
        sincere.Model.from_pretrained(folder)
    model.save_pretrained(folder)
    assert sincere.Model.from_pretrained(folder).class_names == model.class_names


def test_an_encoder_that_was_given_in_python(data: str, images: torch.Tensor, tmp_path: Path) -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    run = sincere.train(data=data, out=tmp_path / "run", encoder=encoder, **QUICK)
    model = sincere.load(run.folder, encoder=encoder)
    model.save_pretrained(tmp_path / "saved")
    like = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    again = sincere.Model.from_pretrained(tmp_path / "saved", encoder=like)
    assert torch.equal(again.embed(images), model.embed(images))


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    for name in (tmp_path / "nothing", "user/does-not-exist"):
        with pytest.raises(DataError, match=f"^{name}: is neither a folder nor a model that the hub gives") as caught:
            sincere.Model.from_pretrained(name, local_files_only=True)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"holds no model; model.json is missing"):
        sincere.Model.from_pretrained(tmp_path)


def test_a_run_is_not_written_into(run: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    with pytest.raises(DataError, match="holds a run"):
        sincere.load(run).save_pretrained(run)
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before


def test_a_download_takes_the_files_of_a_model_only(
    run: Path, images: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub itself is replaced: this test sends nothing."""
    from huggingface_hub import hub_mixin

    from sincere.workflows import hub

    model = sincere.load(run)
    model.save_pretrained(tmp_path / "saved")
    requested: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        requested.update(options, name=name)
        return str(tmp_path / "saved")

    def config(**options: Any) -> str:
        return str(tmp_path / "saved" / "config.json")

    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.setattr(hub_mixin, "hf_hub_download", config)
    again = sincere.Model.from_pretrained("user/name", revision="v1")
    assert torch.equal(again.embed(images), model.embed(images))
    assert (requested["name"], requested["revision"]) == ("user/name", "v1")
    assert "model.safetensors" in requested["allow_patterns"]
    assert not [pattern for pattern in requested["allow_patterns"] if pattern.endswith((".py", ".bin", ".pt"))]


def test_an_upload_sends_the_files_of_a_model(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub itself is replaced: this test sends nothing."""
    from huggingface_hub import hub_mixin

    sent: dict[str, Any] = {}

    class Api:
        def __init__(self, **options: Any) -> None:
            self.repo_id = ""

        def create_repo(self, repo_id: str, **options: Any) -> Api:
            self.repo_id = repo_id
            return self

        def upload_folder(self, *, repo_id: str, folder_path: Path, **options: Any) -> str:
            sent[repo_id] = {path.name for path in folder_path.iterdir()}
            return "address"

    monkeypatch.setattr(hub_mixin, "HfApi", Api)
    assert sincere.load(run).push_to_hub("user/name") == "address"
    assert sent == {"user/name": set(FILES)}


def test_loading_a_run_needs_no_hub(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sincere.workflows.hub", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert sincere.load(run).class_names == ("0", "1", "2")
