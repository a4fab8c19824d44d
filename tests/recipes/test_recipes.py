"""The recipes are settings that the commands accept, with the values of the paper and of the authors' code."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sincere.cli import main
from sincere.cli.flags import given_settings
from sincere.errors import InputValueError
from sincere.recipes import EXPERIMENTS, RUN_RECIPES, TRANSFER_RECIPES, published
from sincere.records.config import write_config
from sincere.settings.evaluation_requests import TransferRequest
from sincere.settings.reproduce_request import ReproduceRequest
from sincere.settings.requests import CompareRequest, RunSettings, TrainRequest

# Learning rate and temperature of SINCERE, SupCon and eps-SupInfoNCE: the authors' final settings.
PAPER = {
    "cifar10": ((0.65, 0.1), (0.35, 0.05), (0.5, 0.1)),
    "cifar100": ((0.65, 0.05), (0.65, 0.1), (0.5, 0.1)),
    "cifar2": ((0.65, 0.1), (0.5, 0.1), (0.5, 0.1)),
    "imagenet100": ((0.65, 0.05), (0.5, 0.05), (0.5, 0.1)),
}
LOSSES = ("sincere", "supcon", "eps-supinfonce")
RATES = {"aircraft": (100, 100, 200), "cars": (100, 50, 100), "dtd": (100, 50, 5), "flowers102": (50, 100, 100)}
RATES |= {"food101": (5, 5, 5), "pets": (50, 5, 50)}


@pytest.mark.parametrize("name", RUN_RECIPES)
def test_a_run_has_the_settings_of_its_recipe(name: str) -> None:
    request = TrainRequest.make_or_resume(recipe=name)
    given = RUN_RECIPES.settings(name)
    assert {key: request.flat()[key] for key in given} == given
    assert name == f"{next(n for n, r in EXPERIMENTS.items() if r is RUN_RECIPES[name])}-{request.loss.name}"


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings(name: str) -> None:
    for loss, (rate, temperature) in zip(LOSSES, PAPER[name], strict=True):
        values = TrainRequest.make_or_resume(recipe=f"{name}-{loss}").flat()
        assert (values["learning_rate"], values["temperature"], values["epsilon"]) == (rate, temperature, 0.25)
        assert (values["encoder"], values["head"], values["dim"]) == ("resnet50", "mlp", 128)
        assert (values["optimizer"], values["momentum"], values["weight_decay"]) == ("sgd", 0.9, 1e-4)
        assert (values["epochs"], values["warmup_epochs"], values["schedule"]) == (800, 10, "cosine")
        assert (values["batch_size"], values["n_views"], values["augmentation"]) == (512, 2, "paper")
        assert values["data"] == name
    assert {name for name, recipe in EXPERIMENTS.items() if recipe.scale == "paper"} == PAPER.keys()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_loss_of_a_comparison_is_the_run_of_its_recipe(name: str, tmp_path: Path) -> None:
    comparison = CompareRequest.make_complete(recipe=name)
    assert (comparison.losses, comparison.seeds) == (tuple(EXPERIMENTS[name].losses), EXPERIMENTS[name].seeds)
    for loss in comparison.losses:
        run = comparison.run(loss, comparison.seeds[0], resume=False).run_settings()
        assert run == TrainRequest.make_or_resume(recipe=f"{name}-{loss}", seed=run.seed).run_settings()


def test_a_recipe_says_all_that_decides_its_results() -> None:
    named = {"data", "encoder", "head", "dim", "unaugmented", "n_views", "batch_size", "sampler", "optimizer", "epochs"}
    named |= {"learning_rate", "weight_decay", "schedule", "temperature"}
    for recipe in EXPERIMENTS.values():
        for loss in recipe.losses:
            assert named <= recipe.of_loss(loss).keys()
            assert {"augmentation", "feature_dropout"} & recipe.of_loss(loss).keys()


def test_minutes_take_the_place_of_epochs() -> None:
    for request in (
        TrainRequest.make_or_resume(recipe="cifar10-sincere", minutes=5),
        CompareRequest.make_complete(recipe="cifar10-small", minutes=5),
    ):
        assert (request.optimisation.epochs, request.optimisation.minutes) == (None, 5)


def test_a_resumed_run_keeps_what_it_was_started_with(tmp_path: Path) -> None:
    first = TrainRequest.make_or_resume(recipe="cifar10-sincere", epochs=3, out=tmp_path)
    write_config(first.run_settings().stored(), tmp_path)
    resumed = TrainRequest.make_or_resume(recipe="cifar10-sincere", resume=True, out=tmp_path)
    assert resumed.run_settings() == first.run_settings()


def test_recipes_have_folders_of_their_own() -> None:
    folders = {TrainRequest.make_or_resume(recipe=name).folder() for name in RUN_RECIPES}
    assert len(folders) == len(RUN_RECIPES)


def test_what_is_given_wins_over_a_recipe() -> None:
    request = TrainRequest.make_or_resume(recipe="cifar10-supcon", epochs=3, temperature=0.2, loss="sincere")
    assert (request.optimisation.epochs, request.loss.temperature, request.loss.name) == (3, 0.2, "sincere")
    assert request.optimisation.learning_rate == 0.35
    assert CompareRequest.make_complete(recipe="cifar10", seeds=[4], batch_size=8).batches.batch_size == 8
    with pytest.raises(InputValueError, match="in the recipe cifar10 each loss has its own temperature"):
        CompareRequest.make_complete(recipe="cifar10", temperature=0.2)
    with pytest.raises(InputValueError, match="recipe and tuned both say"):
        CompareRequest.make_complete(recipe="cifar10", tuned="runs/x")


@pytest.mark.parametrize("name", RATES)
def test_transfers_in_the_papers_form_and_in_the_form_of_the_authors_configurations(name: str, tmp_path: Path) -> None:
    for loss, rate in zip(LOSSES, RATES[name], strict=True):
        write_config(RunSettings.make(loss=loss).stored(), tmp_path)
        paper, authors = (
            TransferRequest.make_complete(run=tmp_path, recipe=recipe) for recipe in (name, f"{name}-224")
        )
        assert paper.to == authors.to == name
        assert (paper.size, paper.evaluation.probe_weight_decay) == (32, 1e-4)
        assert (authors.size, authors.evaluation.probe_weight_decay) == (224, 0.0)
        assert len(paper.evaluation.probe_rates) > 1, "chosen on held-out images"
        assert authors.evaluation.probe_rates == (rate,)
        assert paper.evaluation.probe == authors.evaluation.probe == "paper"
        assert paper.folder() != authors.folder()
    assert name in published().transfer
    assert name in TRANSFER_RECIPES


def test_published_values_are_of_the_papers_data_and_losses() -> None:
    values = published()
    for table in (values.margin, values.train_loss, values.knn):
        assert table.keys() == PAPER.keys()
    for table in (values.margin, values.knn, values.transfer):
        assert all({"sincere", "supcon"} <= row.keys() <= set(LOSSES) for row in table.values())
    assert values.margin["cifar10"]["sincere"] == 0.854
    assert values.knn["cifar2"]["supcon"] == (92.15, 92.15)
    for table, of_data in values.significant.items():
        assert all(set(losses) <= getattr(values, table)[data].keys() for data, losses in of_data.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--recipe", "cifar10-sincer"], "Did you mean 'cifar10-sincere'?"),
        (["compare", "--recipe", "cifar11"], "Did you mean 'cifar10'?"),
        (["transfer", "x", "--recipe", "pets"], "x/config.toml: no such file"),
        (["reproduce", "margin"], "Did you mean 'margins'?"),
        (["reproduce", "all", "--recipes", "cifar10"], "cifar10 is a recipe of the scale paper; set --scale"),
        (["reproduce", "all", "--search"], "search is for the scale paper"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_missing_run_has_a_command_that_is_accepted(tmp_path: Path) -> None:
    for scale in ("cpu", "paper"):
        request = ReproduceRequest.make(item="all", scale=scale, out=tmp_path, data_dir=tmp_path, batch_size=8)
        for name, recipe in request.experiments().items():
            sincere, verb, *words = shlex.split(request.command(name))
            assert (sincere, verb) == ("sincere", "compare")
            assert CompareRequest.make_complete(**given_settings(CompareRequest, words)) == request.comparison(name)
            for transfer in recipe.transfers:
                runs = {moved.run for moved in request.transfers(name, transfer).values()}
                assert runs == {
                    request.comparison(name).run(loss, seed, resume=False).folder()
                    for loss in recipe.losses
                    for seed in recipe.seeds
                }
                _, verb, *words = shlex.split(request.transfer_command(name))
                again = ReproduceRequest.make(**given_settings(ReproduceRequest, words))
                assert (verb, again.train, again.item) == ("reproduce", True, "transfer")
                assert again.transfers(name, transfer) == request.transfers(name, transfer)
