"""A loss that is registered in the catalog, and nowhere else, is found by every part of the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sincere
from sincere.cli import main
from sincere.errors import InputValueError, UnsupportedError
from sincere.loss_catalog import LOSSES
from sincere.loss_entry import Formula, HyperParameter, Loss
from sincere.losses.functional import eps_supinfonce_loss
from sincere.losses.reference_levels import loss_levels
from sincere.records.log import MetricsLog
from sincere.report.theme import loss_colours
from sincere.settings.requests import TrainRequest


class ToyLoss(nn.Module):
    """SINCERE times a factor."""

    def __init__(self, temperature: float, *, factor: float = 1.0) -> None:
        super().__init__()
        self.temperature, self.factor = temperature, factor

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.factor * eps_supinfonce_loss(embeddings, labels, epsilon=0.0, temperature=self.temperature)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Loss(
        module=f"{__name__}:ToyLoss",
        title="Toy",
        about="SINCERE times a factor",
        paper="https://arxiv.org/abs/2309.14277",
        colour="#123456",
        hyper_parameters=(HyperParameter("factor", 2.0, "Factor of the toy loss."),),
        margin_note="margins of the toy loss are those of a toy",
    )
    monkeypatch.setitem(LOSSES, "toy", toy)


@pytest.fixture
def data(tmp_path: Path) -> str:
    labels = np.arange(60) % 3
    pixels = np.array([60, 120, 200])[labels][:, None, None, None] + np.random.default_rng(0).normal(
        0, 25, (60, 8, 8, 1)
    )
    images = np.clip(pixels, 0, 255).astype(np.uint8)
    np.savez(tmp_path / "blobs.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return str(tmp_path / "blobs.npz")


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_help_and_completion(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "toy" in text
    assert "--factor" in text
    assert "Factor of the toy loss." in text
    assert "toy: SINCERE times a factor" in " ".join(text.replace("│", " ").split())
    assert main(["completion", "fish"]) == 0
    script = capsys.readouterr().out
    assert "infonce debiased set-sincere toy" in script
    assert "-l factor" in script


def test_settings() -> None:
    assert TrainRequest.make(loss="toy", factor=3).hyper_parameters() == {"factor": 3.0}
    with pytest.raises(InputValueError, match="factor must be at least 0"):
        TrainRequest.make(factor=-1)


def test_levels_and_repulsion_follow_from_the_denominator(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(12) % 3
    for compute in (
        lambda: loss_levels("toy", labels),
        lambda: sincere.repulsion_meter(torch.eye(12), labels, loss="toy"),
    ):
        with pytest.raises(UnsupportedError, match="toy has none of the formulas that are known here"):
            compute()
    family = replace(LOSSES["toy"], terms=Formula(positives_in_denominator=True))
    monkeypatch.setitem(LOSSES, "toy", family)
    assert loss_levels("toy", labels) == loss_levels("supcon", labels)
    assert sincere.repulsion_meter(torch.eye(12), labels, loss="toy").overall.share == 0


def test_hyper_parameters_of_one_name_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, message in (("epsilon", "another loss have different hyper-parameters called 'epsilon'"), ("dim", "two")):
        clash = replace(LOSSES["toy"], hyper_parameters=(HyperParameter(name, 0.9, "A margin."),))
        monkeypatch.setitem(LOSSES, "toy", clash)
        with pytest.raises(InputValueError, match=message):
            TrainRequest.make(loss="eps-supinfonce")


def test_a_loss_that_takes_no_group_runs_on_one_device_only(data: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="the loss toy takes no group= and runs on one device only"):
        sincere.train(data=data, loss="toy", devices=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_comparison_and_report(data: str, tmp_path: Path) -> None:
    options = {"epochs": 3, "batch_size": 20, "head": "linear", "dim": 8, "quiet": True}
    results = sincere.compare(
        data=data, losses=("toy", "supcon"), metrics=("margin", "knn"), resamples=100, out=tmp_path / "c", **options
    )
    assert [row.loss for row in results.rows] == ["toy", "supcon"]
    assert LOSSES["toy"].margin_note in results.notes
    row = MetricsLog(tmp_path / "c" / "runs" / "toy-0" / "metrics.jsonl").rows()[-1]
    assert row.keys().isdisjoint({"chance", "floor", "repulsion_share"})
    page = (tmp_path / "c" / "report.html").read_text()
    assert "Toy" in page
    assert "#123456" in page
    assert LOSSES["toy"].paper in page
    assert loss_colours(["toy"]) == {"toy": "#123456"}
    assert "factor = 2.0" in (tmp_path / "c" / "runs" / "toy-0" / "config.toml").read_text()
