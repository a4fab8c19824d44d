"""Our loss as `compute_loss_func` of the real Hugging Face Trainer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import normalize
from transformers import Trainer, TrainingArguments, ViTConfig, ViTModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from sincere import info_nce_loss, sincere_loss
from sincere.errors import InputTypeError, InputValueError, UnsupportedError
from sincere.integrations.transformers import contrastive_loss_func
from sincere.loss_catalog import LOSSES

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def mean_of_patches(outputs: Any) -> Tensor:
    embeddings: Tensor = outputs.last_hidden_state.mean(dim=1)
    return embeddings


@pytest.fixture
def model() -> ViTModel:
    torch.manual_seed(0)
    return ViTModel(ViTConfig(image_size=8, patch_size=2, num_channels=1, **SIZES))


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)


def make_trainer(
    folder: Path, model: ViTModel, loss_func: Callable[..., Tensor], digits: tuple[Tensor, Tensor], **options: Any
) -> Trainer:
    items = [{"pixel_values": image, "label": int(label)} for image, label in zip(*digits, strict=True)]
    defaults = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
    arguments = TrainingArguments(output_dir=str(folder), **{**defaults, **options})
    return Trainer(model, arguments, train_dataset=items, eval_dataset=items[:50], compute_loss_func=loss_func)


def accuracy_1nn(model: ViTModel, digits: tuple[Tensor, Tensor]) -> float:
    """Leave-one-out accuracy of the nearest other image."""
    model.eval()
    with torch.no_grad():
        z = normalize(mean_of_patches(model(digits[0])), dim=1)
    nearest = (z @ z.T).fill_diagonal_(-2).argmax(dim=1)
    return (digits[1][nearest] == digits[1]).double().mean().item()


def test_trains_in_the_trainer(tmp_path: Path, model: ViTModel, digits: tuple[Tensor, Tensor]) -> None:
    train, test = (digits[0][:1000], digits[1][:1000]), (digits[0][1000:], digits[1][1000:])
    before = accuracy_1nn(model, test)
    loss_func = contrastive_loss_func(embedding=mean_of_patches)
    options = {"num_train_epochs": 6, "per_device_train_batch_size": 100, "learning_rate": 3e-3, "warmup_steps": 10}
    trainer = make_trainer(tmp_path, model, loss_func, train, **options, label_names=["labels"])
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-5:]) < 0.75 * sum(losses[:5])
    after = accuracy_1nn(model, test)
    assert after > before + 0.04, (before, after)
    assert 0 < trainer.evaluate()["eval_loss"] < losses[0]


def test_accumulated_batches_count_by_their_items(
    tmp_path: Path, model: ViTModel, digits: tuple[Tensor, Tensor]
) -> None:
    """40 items in batches of 16, 16 and 8: what the Trainer logs and descends is the mean over the items."""
    loss_func, parts = contrastive_loss_func(embedding=mean_of_patches), []

    def recorded(outputs: Any, labels: Tensor, num_items_in_batch: Tensor) -> Tensor:
        parts.append((len(labels), sincere_loss(mean_of_patches(outputs), labels).item()))
        return loss_func(outputs, labels, num_items_in_batch=num_items_in_batch)

    options = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 3, "max_steps": 1, "max_grad_norm": 0}
    trainer = make_trainer(tmp_path, model, recorded, (digits[0][:40], digits[1][:40]), **options)
    trainer.train()
    assert [n for n, _ in parts] == [16, 16, 8]
    expected = sum(n / 40 * loss for n, loss in parts)
    logged = next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    assert logged == pytest.approx(expected, rel=1e-4)


def outputs(**fields: Tensor) -> BaseModelOutputWithPooling:
    return BaseModelOutputWithPooling(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", [name for name, loss in LOSSES.items() if loss.needs_labels and not loss.needs_classes]
)
def test_loss_is_the_function_of_that_name(name: str) -> None:
    embeddings, labels = torch.randn(12, 5, requires_grad=True), torch.arange(12) % 3
    loss_func = contrastive_loss_func(name, temperature=0.2)
    loss = loss_func(outputs(pooler_output=embeddings), labels, num_items_in_batch=12)
    expected = LOSSES[name].load()(0.2)(embeddings, labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(loss_func(outputs(pooler_output=embeddings), labels), expected)
    half = loss_func(outputs(pooler_output=embeddings), labels, num_items_in_batch=torch.tensor(24))
    torch.testing.assert_close(half, expected / 2)


def test_views_without_labels() -> None:
    views = torch.randn(6, 2, 5)
    loss_func = contrastive_loss_func("infonce", embedding=lambda out: out.last_hidden_state)
    torch.testing.assert_close(loss_func(outputs(last_hidden_state=views), None), info_nce_loss(views))


def test_ignored_label_is_no_label() -> None:
    embeddings = torch.randn(6, 5)
    labels = torch.tensor([0, 0, 1, 1, -100, -100])
    loss = contrastive_loss_func()(outputs(pooler_output=embeddings), labels, num_items_in_batch=torch.tensor(4))
    expected = sincere_loss(embeddings, torch.tensor([0, 0, 1, 1, -1, -1]))
    torch.testing.assert_close(loss, expected)
    assert not torch.isclose(expected, sincere_loss(embeddings, labels))
    ignored = contrastive_loss_func()(outputs(pooler_output=embeddings), torch.full((6,), -100), torch.tensor(0))
    assert ignored.item() == 0


def test_errors() -> None:
    embeddings, labels = torch.randn(6, 3, 5), torch.arange(6) // 2
    cases: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (
            UnsupportedError,
            "contrastive_loss_func: group is not supported: the Trainer scales the mean over the batch of each "
            "process; leave group out",
            lambda: contrastive_loss_func(group="world"),
        ),
        (
            InputTypeError,
            "contrastive_loss_func: embedding must be the name of an output field or a function; got int",
            lambda: contrastive_loss_func(embedding=3),  # type: ignore[arg-type]
        ),
        (
            InputTypeError,
            "contrastive_loss_func: temperature must be a finite number greater than 0; got Tensor",
            lambda: contrastive_loss_func(temperature=torch.tensor(0.1)),  # type: ignore[arg-type]
        ),
        (
            InputValueError,
            "contrastive_loss_func: the model's output must have a field 'pooler_output'; got one with "
            "'last_hidden_state'. Pass a function as embedding: it takes the output and returns embeddings (n, d)",
            lambda: contrastive_loss_func()(outputs(last_hidden_state=embeddings), labels),
        ),
        (
            InputValueError,
            "contrastive_loss_func: last_hidden_state must have shape (n, d); got (6, 3, 5). Pass a function as "
            "embedding, such as lambda out: out.last_hidden_state[:, 0]",
            lambda: contrastive_loss_func(embedding="last_hidden_state")(outputs(last_hidden_state=embeddings), labels),
        ),
        (
            InputTypeError,
            "contrastive_loss_func: labels must be given, because sincere compares classes; got None. Without labels, "
            'use several views and loss="infonce"',
            lambda: contrastive_loss_func()(outputs(pooler_output=embeddings[:, 0]), None),
        ),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=f"^{re.escape(message)}$"):
            call()
