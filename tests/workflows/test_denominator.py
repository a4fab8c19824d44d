"""Losses with SINCERE's denominator in place of their own, on the command line and in comparisons."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

import sincere
from sincere.cli import main
from sincere.errors import DataError, InputValueError
from sincere.loss_catalog import LOSSES
from sincere.settings.requests import CompareRequest, RunSettings, TrainRequest
from sincere.settings.search_request import SearchRequest
from sincere.workflows.training_loss import training_loss
from tests.workflows.conftest import QUICK

CHOOSERS = "supcon-in, k-positives, targeted, nearest-neighbours"


@pytest.mark.parametrize("loss", LOSSES)
def test_the_table_says_who_has_the_choice(loss: str) -> None:
    parameters = inspect.signature(LOSSES[loss].load()).parameters
    assert LOSSES[loss].chooses_denominator == ("positives_in_denominator" in parameters)


@pytest.mark.parametrize("loss", CHOOSERS.split(", "))
def test_the_setting_reaches_the_loss(loss: str) -> None:
    x, labels = torch.randn(12, 2, 4), torch.arange(12) % 3
    values = []
    for chosen in (None, True, False):
        settings = RunSettings.make(loss=loss, positives_in_denominator=chosen)
        torch.manual_seed(0)
        made = training_loss(settings, n_processes=1, dim=4, n_classes=3)
        values.append(made.function(x, labels))
    assert values[0] == values[1] != values[2]


def test_a_term_of_a_sum_has_it_and_others_do_not() -> None:
    settings = RunSettings.make(loss="supcon-in+0.5*infonce", positives_in_denominator=False)
    x, labels = torch.randn(12, 2, 4), torch.arange(12) % 3
    made = training_loss(settings, n_processes=1, dim=4, n_classes=3)
    terms = made.criterion.terms(x, labels)
    torch.testing.assert_close(terms["supcon-in"], sincere.supcon_in_loss(x, labels, positives_in_denominator=False))
    torch.testing.assert_close(terms["infonce"], 0.5 * sincere.info_nce_loss(x))


@pytest.mark.parametrize(("loss", "chosen"), [("sincere", False), ("supcon", True), ("sincere+infonce", False)])
def test_a_loss_without_the_choice(loss: str, chosen: bool) -> None:
    with pytest.raises(InputValueError) as caught:
        TrainRequest.make(loss=loss, positives_in_denominator=chosen)
    requirement = f"positives_in_denominator must be left out for losses other than {CHOOSERS}"
    assert str(caught.value) == f"train: {requirement}; got {chosen} for {loss}"


def test_a_comparison_gives_it_to_those_that_have_the_choice() -> None:
    request = CompareRequest.make(losses=("sincere", "k-positives"), positives_in_denominator=False)
    runs = [request.run(loss, 0, resume=False).hyper_parameters() for loss in request.losses]
    assert runs == [{}, {"n_positives": 6, "positives_in_denominator": False}]
    search = SearchRequest.make(losses=("sincere", "k-positives"), positives_in_denominator=False, n_positives=3)
    trials = [search.trial(loss, {"temperature": 0.3}, 0, name="a") for loss in search.losses]
    assert [trial.loss.temperature for trial in trials] == [0.3, 0.3]
    assert trials[0].hyper_parameters() == {}
    assert trials[1].hyper_parameters() == {"n_positives": 3, "positives_in_denominator": False}
    for record in (CompareRequest, SearchRequest):
        with pytest.raises(InputValueError, match="got False for sincere, supcon"):
            record.make(losses=("sincere", "supcon"), positives_in_denominator=False)


def test_it_is_part_of_the_run(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--data", data, "--loss", "k-positives", "--out", str(tmp_path / "run"), "--epochs", "1"]
    assert main([*command, "--no-positives-in-denominator", "--batch-size", "20"]) == 0
    assert "positives_in_denominator = false" in (tmp_path / "run" / "config.toml").read_text()
    sincere.train(out=tmp_path / "run", resume=True, quiet=True)  # with its own settings
    changed = {"loss": "k-positives", "positives_in_denominator": True}
    with pytest.raises(DataError, match="positives_in_denominator"):
        sincere.train(out=tmp_path / "run", resume=True, **changed, quiet=True)


def test_a_comparison_says_so(data: str, tmp_path: Path) -> None:
    results = sincere.compare(
        data=data,
        losses=("sincere", "supcon-in"),
        positives_in_denominator=False,
        metrics=("knn",),
        resamples=100,
        out=tmp_path / "c",
        **{**QUICK, "epochs": 1},
    )
    note = "SupCon-in: with SINCERE's denominator in place of their own (positives_in_denominator = false)"
    assert note in results.notes
