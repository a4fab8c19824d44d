"""Our module and callback under the real Lightning."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.optim import AdamW
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from sincere import info_nce_loss, sincere_loss
from sincere.errors import InputTypeError, InputValueError
from sincere.integrations.lightning import ContrastiveModule, LiveKNN
from sincere.loss_catalog import LOSSES

pytestmark = pytest.mark.filterwarnings("ignore")


def digits() -> tuple[Tensor, Tensor]:
    """Digits with noise, so that their pixels alone do not tell them apart."""
    pixels, labels = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(0)
    images = torch.tensor(pixels, dtype=torch.float32) / 16
    return images + 0.6 * torch.randn(images.shape, generator=generator), torch.tensor(labels)


def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    images, labels = digits()
    train, test = TensorDataset(images[:900], labels[:900]), TensorDataset(images[900:], labels[900:])
    return DataLoader(train, batch_size=100, shuffle=True), DataLoader(test, batch_size=500)


def make_module(**options: Any) -> ContrastiveModule:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 16))
    return ContrastiveModule(network, optimizer=partial(AdamW, lr=3e-3), **options)


def make_trainer(epochs: int, *callbacks: Callback, **options: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    checkpoints = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    return Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[*callbacks],
        enable_checkpointing=checkpoints,
        **{**quiet, **options},
    )


def test_training_improves_the_live_accuracy() -> None:
    train, test = loaders()
    knn, module = LiveKNN(train, test, k=5), make_module()
    images, labels = train.dataset.tensors  # type: ignore[attr-defined]
    before = module.named_loss(module.network(images), labels).item()
    trainer = make_trainer(6, knn)
    trainer.fit(module, train)
    epochs, accuracies = zip(*knn.history, strict=True)
    assert epochs == (0, 1, 2, 3, 4, 5, 6)
    assert accuracies[-1] > accuracies[0] + 0.1, accuracies
    assert trainer.callback_metrics["knn"].item() == pytest.approx(accuracies[-1])
    assert module.named_loss(module.network(images), labels).item() < before - 1
    assert "train_loss" in trainer.callback_metrics


def test_live_accuracy_is_that_of_the_nearest_reference() -> None:
    train, test = loaders()
    module = make_module().train()
    accuracy = LiveKNN(train, test, k=1).measure(module)
    (references, classes), (queries, labels) = train.dataset.tensors, test.dataset.tensors  # type: ignore[attr-defined]
    module.eval()
    with torch.no_grad():
        similarities = normalize(module(queries), dim=1) @ normalize(module(references), dim=1).T
    assert accuracy == pytest.approx((classes[similarities.argmax(dim=1)] == labels).double().mean().item(), abs=0.003)


def test_training_takes_the_same_course_without_the_callback() -> None:
    train, test = loaders()
    weights = []
    for callbacks in ([], [LiveKNN(train, test, every_n_epochs=2)]):
        module = make_module()
        module.network[0].eval()  # a frozen part
        torch.manual_seed(1)
        make_trainer(2, *callbacks).fit(module, train)
        weights.append(torch.cat([parameter.flatten() for parameter in module.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("form", ["loader", "batch sampler"])
def test_a_loader_with_a_generator_of_its_own_takes_the_same_course(form: str) -> None:
    (dataset, test), weights = (loader.dataset for loader in loaders()), []
    for watched in (False, True):
        generator = torch.Generator().manual_seed(3)
        if form == "loader":
            train = DataLoader(dataset, batch_size=100, shuffle=True, generator=generator)
        else:
            batches = BatchSampler(RandomSampler(dataset, generator=generator), batch_size=100, drop_last=False)
            train = DataLoader(dataset, batch_sampler=batches)
        module = make_module()
        torch.manual_seed(1)
        make_trainer(2, *([LiveKNN(train, DataLoader(test, batch_size=500))] if watched else [])).fit(module, train)
        weights.append(torch.cat([parameter.flatten() for parameter in module.parameters()]))
    assert torch.equal(*weights)


def test_items_without_a_label_are_left_out() -> None:
    train, test = loaders()
    module = make_module()
    expected = LiveKNN(train, test).measure(module)
    batches = []
    for loader in (train, test):
        images, labels = loader.dataset.tensors  # type: ignore[attr-defined]
        nothing = torch.where(torch.arange(50) % 2 == 0, -1, -100)
        mixed = torch.randperm(len(labels) + 50)
        extended = torch.cat([images, torch.randn(50, 64)])[mixed], torch.cat([labels, nothing])[mixed]
        batches.append(DataLoader(TensorDataset(*extended), batch_size=100))
    assert LiveKNN(*batches).measure(module) == pytest.approx(expected)


def test_two_of_them_with_others_that_follow_the_accuracy(tmp_path: Path) -> None:
    train, test = loaders()
    one, five = LiveKNN(train, test, k=1, name="knn1"), LiveKNN(train, test, every_n_epochs=2)
    stop, best = EarlyStopping("knn", mode="max", patience=9), ModelCheckpoint(tmp_path, monitor="knn", mode="max")
    make_trainer(3, one, five, stop, best).fit(make_module(), train, test)
    assert [epochs for epochs, _ in one.history] == [0, 1, 2, 3]
    assert [epochs for epochs, _ in five.history] == [0, 2]
    stored = torch.load(best.best_model_path, weights_only=False)["callbacks"]
    assert len([key for key in stored if key.startswith("LiveKNN")]) == 2


def test_a_checkpoint_holds_the_loss(tmp_path: Path) -> None:
    train, _ = loaders()
    module, best = make_module(loss="eps-supinfonce", temperature=0.5, epsilon=0.1), ModelCheckpoint(tmp_path)
    make_trainer(1, best, limit_train_batches=2).fit(module, train)
    loaded = ContrastiveModule.load_from_checkpoint(best.best_model_path, network=make_module().network)
    assert loaded.named_loss.config() == module.named_loss.config()
    assert torch.equal(loaded.network[0].weight, module.network[0].weight)


def test_a_checkpoint_of_a_subclass_holds_nothing_else(tmp_path: Path) -> None:
    """What a subclass takes, such as a network, is its own affair; training resumes with torch's safe loading."""

    class Own(ContrastiveModule):
        def __init__(self, backbone: nn.Module, loss: str = "sincere", temperature: float | torch.Tensor = 0.1) -> None:
            super().__init__(backbone, loss, temperature=temperature)

    train, _ = loaders()
    temperature = nn.Parameter(torch.tensor(0.3))
    module = Own(make_module().network, temperature=temperature)
    checkpoints = ModelCheckpoint(tmp_path, save_last=True)
    make_trainer(1, checkpoints, limit_train_batches=2).fit(module, train)
    assert dict(module.hparams) == {"loss": "sincere", "temperature": pytest.approx(0.3)}
    loaded = Own.load_from_checkpoint(checkpoints.best_model_path, backbone=make_module().network)
    assert torch.equal(loaded.network[0].weight, module.network[0].weight)
    assert torch.equal(loaded.named_loss.criterion.temperature, temperature)
    resumed = Own(make_module().network, temperature=nn.Parameter(torch.tensor(0.3)))
    last = tmp_path / "last.ckpt"
    make_trainer(2, limit_train_batches=2).fit(resumed, train, ckpt_path=last, weights_only=True)


def test_a_process_group_is_no_hyperparameter(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        module = make_module(group=torch.distributed.group.WORLD)
        assert set(module.hparams) == {"loss", "temperature"}
    finally:
        torch.distributed.destroy_process_group()


def test_views_of_different_size_and_inputs_by_name() -> None:
    class Named(nn.Module):
        def forward(self, inputs: Any) -> torch.Tensor:
            z: torch.Tensor = inputs["x"] if isinstance(inputs, dict) else inputs.flatten(2).mean(dim=2)
            return z

    module = ContrastiveModule(Named())
    views, labels = [torch.randn(6, 3, 16, 16), torch.randn(6, 3, 8, 8)], torch.arange(6) // 2
    found, of_batch = module.split_batch([views, labels])
    assert [tuple(view.shape) for view in found] == [(6, 3, 16, 16), (6, 3, 8, 8)]
    assert of_batch is labels
    assert module.split_batch(views)[1] is None
    batches = [({"x": torch.eye(6)}, labels)]
    assert LiveKNN(batches, batches, k=1).measure(module) == 1.0


def test_modes_are_restored() -> None:
    train, test = loaders()
    module = make_module().train()
    module.network[0].eval()
    LiveKNN(train, test).measure(module)
    assert not module.network[0].training
    assert module.network[2].training


def test_best_checkpoint_and_resuming(tmp_path: Path) -> None:
    train, test = loaders()
    knn = LiveKNN(train, test)
    checkpoints = ModelCheckpoint(tmp_path, monitor="knn", mode="max", save_last=True)
    make_trainer(2, knn, checkpoints).fit(make_module(), train)
    assert checkpoints.best_model_score is not None
    assert checkpoints.best_model_score.item() == pytest.approx(max(accuracy for _, accuracy in knn.history[1:]))
    resumed = LiveKNN(train, test)
    make_trainer(3, resumed).fit(make_module(), train, ckpt_path=tmp_path / "last.ckpt", weights_only=False)
    assert resumed.history[:3] == knn.history
    assert [epochs for epochs, _ in resumed.history] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "name", [name for name, loss in LOSSES.items() if loss.needs_labels and not loss.needs_classes]
)
def test_loss_is_the_function_of_that_name(name: str) -> None:
    module, criterion = make_module(loss=name, temperature=0.2).eval(), LOSSES[name].load()(0.2)
    module.log = lambda *arguments, **options: None  # type: ignore[method-assign]
    one, other, labels = torch.randn(8, 64), torch.randn(8, 64), torch.arange(8) // 2
    torch.testing.assert_close(module.training_step([one, labels], 0), criterion(module(one), labels))
    views = torch.stack([module(one), module(other)], dim=1)
    torch.testing.assert_close(module.training_step(([one, other], labels), 0), criterion(views, labels))
    assert not torch.equal(criterion(views, labels), criterion(module(one), labels))


def test_views_without_labels() -> None:
    module = make_module(loss="infonce").eval()
    module.log = lambda *arguments, **options: None  # type: ignore[method-assign]
    views = [torch.randn(8, 64), torch.randn(8, 64)]
    expected = info_nce_loss(torch.stack([module(view) for view in views], dim=1))
    torch.testing.assert_close(module.training_step(views, 0), expected)
    torch.testing.assert_close(module.training_step([views, torch.arange(8)], 0), expected)


def test_temperature_can_be_learned() -> None:
    temperature = nn.Parameter(torch.tensor(0.5))
    train, _ = loaders()
    module = make_module(temperature=temperature)
    make_trainer(1, limit_train_batches=3).fit(module, train)
    assert abs(temperature.item() - 0.5) > 1e-3  # weight decay alone would change it by 5e-5
    z, labels = torch.randn(8, 16), torch.arange(8) // 2
    torch.testing.assert_close(module.named_loss(z, labels), sincere_loss(z, labels, temperature=temperature))


def test_errors() -> None:
    names = ", ".join(map(repr, LOSSES))
    cases: list[tuple[type[Exception], str, Any]] = [
        (
            InputValueError,
            f"ContrastiveModule: loss must be one of {names}; got 'supco'. Did you mean 'supcon'?",
            lambda: make_module(loss="supco"),
        ),
        (
            InputValueError,
            "ContrastiveModule: reduction must be 'mean' or 'sum', because a trainer needs one number; got 'none'",
            lambda: make_module(reduction="none"),
        ),
        (
            InputTypeError,
            "ContrastiveModule: n_classes and dim must be given for the loss targeted, which keeps something for each "
            "class; got n_classes",
            lambda: make_module(loss="targeted", n_classes=4),
        ),
        (
            InputTypeError,
            "ContrastiveModule: labels must be given, because sincere compares classes; got None. Without labels, use "
            'several views and loss="infonce"',
            lambda: make_module().training_step(torch.randn(4, 64), 0),
        ),
        (
            InputValueError,
            "LiveKNN: k must be an integer of at least 1; got 0",
            lambda: LiveKNN([], [], k=0),
        ),
        (
            InputTypeError,
            "LiveKNN: a batch of references must be a pair of inputs, in one view, and labels, a tensor; got Tensor",
            lambda: LiveKNN([torch.randn(4, 64)], []).measure(make_module()),
        ),
        (
            InputTypeError,
            "LiveKNN: a batch of references must be a pair of inputs, in one view, and labels, a tensor; got list of "
            "list, Tensor",
            lambda: LiveKNN([[[torch.randn(4, 64)] * 2, torch.arange(4)]], []).measure(make_module()),
        ),
        (
            InputValueError,
            "LiveKNN: labels of references must be (n,); got (4, 3)",
            lambda: LiveKNN([[torch.randn(4, 64), torch.ones(4, 3)]], []).measure(make_module()),
        ),
        (
            InputValueError,
            "LiveKNN: references must have labelled items each time they are read; got none. Pass a data loader, not "
            "an iterator",
            lambda: LiveKNN(iter([]), []).measure(make_module()),
        ),
        (
            InputValueError,
            "ContrastiveModule: a batch must be inputs with labels (n,), or views of one shape; got (4, 64), (4, 1). "
            "Override split_batch for others",
            lambda: make_module().training_step([torch.randn(4, 64), torch.zeros(4, 1)], 0),
        ),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=f"^{re.escape(message)}$"):
            call()


def test_a_checkpoint_of_a_sum_with_a_learned_temperature(tmp_path: Path) -> None:
    temperature, best = nn.Parameter(torch.tensor(0.3)), ModelCheckpoint(tmp_path)
    module = make_module(loss="sincere+0.5*supcon", temperature=temperature)
    train, _ = loaders()
    make_trainer(1, best, limit_train_batches=2).fit(module, train)
    loaded = ContrastiveModule.load_from_checkpoint(best.best_model_path, network=make_module().network)
    learned = list(loaded.named_loss.parameters())
    assert len(learned) == 1  # the terms share it
    assert torch.equal(learned[0], temperature)
    z, labels = torch.randn(8, 16), torch.arange(8) // 2
    assert torch.equal(loaded.named_loss(z, labels), module.named_loss(z, labels))
