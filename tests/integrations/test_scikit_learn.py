"""The estimators behave as those of scikit-learn, and learn."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from sincere import ContrastiveClassifier, ContrastiveEmbedder, SupConLoss
from sincere.errors import InputTypeError, InputValueError
from sincere.loss_catalog import LOSSES


@parametrize_with_checks([ContrastiveEmbedder(epochs=10), ContrastiveClassifier(epochs=10)])
def test_scikit_learn_accepts(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return tuple(train_test_split(*load_digits(return_X_y=True), random_state=0, train_size=600))


@pytest.fixture(scope="module")
def fitted(digits: Any) -> ContrastiveClassifier:
    return ContrastiveClassifier(epochs=60, random_state=0).fit(*digits[::2])


def test_embedding_separates_classes_further_than_features(digits: Any, fitted: ContrastiveClassifier) -> None:
    train, test, train_labels, test_labels = digits

    def margin(rows: np.ndarray, references: np.ndarray) -> float:
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, references)]
        similar, same = unit[0] @ unit[1].T, test_labels[:, None] == train_labels
        positive, negative = np.where(same, similar, -2).max(axis=1), np.where(same, -2, similar).max(axis=1)
        return float(np.median(positive) - np.median(negative))

    assert margin(fitted.transform(test), fitted.transform(train)) > 3 * margin(test, train)
    neighbours = KNeighborsClassifier(5).fit(fitted.transform(train), train_labels)
    assert neighbours.score(fitted.transform(test), test_labels) > 0.95
    assert fitted.loss_curve_[-1] < 0.5 * fitted.loss_curve_[0]


def test_embeddings_have_unit_length_and_names(fitted: ContrastiveClassifier, digits: Any) -> None:
    embeddings = fitted.transform(digits[1])
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1)
    assert list(fitted.get_feature_names_out())[:2] == ["contrastiveclassifier0", "contrastiveclassifier1"]


@pytest.mark.parametrize("classifier", ["knn", "dino", "lightly", "means"])
def test_every_classifier_classifies(fitted: ContrastiveClassifier, digits: Any, classifier: Any) -> None:
    model = pickle.loads(pickle.dumps(fitted)).set_params(classifier=classifier)
    shares = model.predict_proba(digits[1])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert model.score(digits[1], digits[3]) > 0.93


def test_string_classes(digits: Any) -> None:
    names = np.array([f"digit {label}" for label in digits[2]])
    model = ContrastiveClassifier(epochs=3, random_state=0).fit(digits[0], names)
    assert set(model.predict(digits[1])) <= set(names)


@pytest.mark.parametrize("loss", [*LOSSES, SupConLoss(0.2)], ids=str)
def test_every_loss_trains(digits: Any, loss: Any) -> None:
    model = ContrastiveEmbedder(loss, epochs=5, dim=8, random_state=0).fit(digits[0], digits[2])
    assert model.loss_curve_[-1] < model.loss_curve_[0]


@pytest.mark.parametrize("loss", [*LOSSES, "sincere+0.5*k-positives"])
def test_random_state_decides_all_and_global_state_nothing(digits: Any, loss: str) -> None:
    model = ContrastiveEmbedder(loss, epochs=2, dim=8, random_state=3)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = model.fit_transform(digits[0], digits[2])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    np.testing.assert_array_equal(clone(model).fit_transform(digits[0], digits[2]), first)
    other = clone(model).set_params(random_state=4).fit_transform(digits[0], digits[2])
    assert not np.allclose(other, first)


def test_threads_do_not_share_random_numbers(digits: Any) -> None:
    model, before = ContrastiveEmbedder(epochs=1, dim=4, random_state=3), torch.get_rng_state()
    expected = clone(model).fit_transform(digits[0], digits[2])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: clone(model).fit_transform(digits[0], digits[2]), range(12)))
    assert all(np.allclose(one, expected) for one in found)
    assert torch.equal(torch.get_rng_state(), before)


def test_data_frames_out(digits: Any) -> None:
    train, test, labels, _ = digits
    pipeline = make_pipeline(StandardScaler(), ContrastiveClassifier(epochs=2, random_state=0))
    expected = pipeline.fit(train, labels).predict(test)
    framed = clone(pipeline).set_output(transform="pandas").fit(pd.DataFrame(train).add_prefix("f"), labels)
    np.testing.assert_array_equal(framed.predict(pd.DataFrame(test).add_prefix("f")), expected)
    assert isinstance(framed.transform(pd.DataFrame(test).add_prefix("f")), pd.DataFrame)


def test_what_surrounds_a_fit_does_not_matter(digits: Any) -> None:
    model = ContrastiveEmbedder(epochs=1, dim=4, random_state=3)
    expected = clone(model).fit_transform(digits[0], digits[2])
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            found = clone(model).fit(digits[0], digits[2]).transform(digits[0])
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.shape == expected.shape  # other weights: they are drawn in the default type


def test_features_of_any_size(digits: Any) -> None:
    model = ContrastiveClassifier(epochs=3, dim=4, random_state=3)
    expected = clone(model).fit(digits[0], digits[2]).predict(digits[1])
    for size in (1e160, 1e-160):
        found = clone(model).fit(digits[0] * size, digits[2]).predict(digits[1] * size)
        assert np.mean(found == expected) > 0.99


def test_classes_of_one_row(digits: Any) -> None:
    """A target of the class is a positive, too; without one a row alone has none."""
    rows = digits[0][:20]
    targeted = ContrastiveEmbedder("targeted", n_views=1, epochs=2, dim=4, random_state=0).fit(rows, np.arange(20))
    assert targeted.loss_curve_[-1] > 0
    with pytest.raises(InputValueError, match="a row alone has no positive"):
        ContrastiveEmbedder(n_views=1, epochs=1).fit(rows, np.arange(20))


def test_cross_entropy_has_no_classifier_here(digits: Any) -> None:
    with pytest.raises(InputValueError, match="here is no classifier for cross-entropy; got 'sincere\\+cross-entropy'"):
        ContrastiveEmbedder("sincere+cross-entropy").fit(digits[0], digits[2])


def test_nearly_all_features_may_be_dropped(digits: Any) -> None:
    assert np.isfinite(ContrastiveEmbedder(epochs=1, feature_dropout=0.9985).fit(*digits[::2]).loss_curve_).all()


def test_no_row_has_a_positive() -> None:
    message = "ContrastiveClassifier: y must have a class with two rows, because a row alone has no positive; got 20"
    with pytest.raises(InputValueError, match=message):
        ContrastiveClassifier(epochs=1).fit(np.random.default_rng(0).normal(size=(20, 4)), np.arange(20))


def test_a_classifier_that_is_set_later_is_checked(fitted: ContrastiveClassifier, digits: Any) -> None:
    model = pickle.loads(pickle.dumps(fitted)).set_params(classifier="nearest")
    with pytest.raises(InputValueError, match="classifier must be one of 'knn', 'dino', 'lightly', 'means'"):
        model.predict(digits[1])


def test_grid_search_is_no_worse_than_the_default(digits: Any) -> None:
    train, _, labels, _ = digits
    pipeline = make_pipeline(StandardScaler(), ContrastiveClassifier(epochs=8, random_state=0))
    grid = {
        "contrastiveclassifier__temperature": [0.1, 0.3],
        "contrastiveclassifier__loss": ["sincere", "supcon"],
    }
    search = GridSearchCV(pipeline, grid, cv=3).fit(train, labels)
    scores = {
        (each["contrastiveclassifier__loss"], each["contrastiveclassifier__temperature"]): score
        for each, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True)
    }
    assert len(set(scores.values())) > 1  # the parameters reach the training
    assert search.best_score_ >= scores["sincere", 0.1] > 0.9


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"loss": "sincer"}, InputValueError, "Did you mean 'sincere'"),
        ({"temperature": 0.0}, InputValueError, "temperature must be a finite number greater than 0; got 0.0"),
        ({"dim": 0}, InputValueError, "dim must be an integer of at least 1; got 0"),
        ({"epochs": 1.5}, InputTypeError, "epochs must be an integer"),
        ({"feature_dropout": 1.0}, InputValueError, "feature_dropout must be at least 0 and below 1; got 1.0"),
        ({"classifier": "linear"}, InputValueError, "classifier must be one of 'knn', 'dino', 'lightly', 'means'"),
        ({"loss": "infonce", "n_views": 1}, InputValueError, "infonce needs n_views of at least 2"),
        ({"learning_rate": 1e30}, InputValueError, "the loss must stay finite"),
        ({"loss": nn.Linear(2, 2)}, InputTypeError, "loss must have no weights to train"),
        ({"loss": 3}, InputTypeError, "loss must be the name of a loss, or a callable; got int"),
        (
            {"loss": SupConLoss},
            InputTypeError,
            "loss must be the name of a loss, or a callable; got the class",
        ),
        ({"loss_options": {"temperature": 1.0}}, InputValueError, "loss_options must not hold the temperature"),
        ({"loss_options": {"reduction": "none"}}, InputValueError, "reduction must be 'mean' or 'sum'"),
        ({"loss_options": {"epsilon": 1.0}}, InputTypeError, "epsilon"),
    ],
)
def test_bad_parameters(digits: Any, parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ContrastiveClassifier(**{"epochs": 2, **parameters}).fit(digits[0], digits[2])


def test_one_class(digits: Any) -> None:
    with pytest.raises(InputValueError, match="y must have at least two classes; got 1 class"):
        ContrastiveEmbedder().fit(digits[0], np.zeros(600))
