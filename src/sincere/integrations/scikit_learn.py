"""scikit-learn estimators that learn an embedding of ready-made features, in memory: no run, no files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn.functional import normalize

from sincere import checks
from sincere.catalog import CLASSIFIERS, load
from sincere.data.feature_views import make_feature_views
from sincere.data.samplers import ShuffleSampler
from sincere.errors import InputTypeError, InputValueError
from sincere.integrations.named_loss import NamedLoss
from sincere.loss_catalog import DEFAULT_LOSS, LOSSES, find_loss
from sincere.models.heads import mlp
from sincere.training.optimizers import OptimizerSettings, make_optimizer
from sincere.training.schedules import learning_rate_factor, warmup_steps

Criterion = Callable[[Tensor, Tensor], Tensor]
BLOCK_ROWS = 4096  # rows that are embedded at once
FEW_FEATURES = 32  # below that, each feature counts and none is dropped
DROPOUT = 0.2
ENOUGH_STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 500, 10, 100
LEAST_HIDDEN = 128
_GLOBAL_GENERATOR = Lock()  # of torch, which all threads share


class ContrastiveEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn an embedding of features (n, d) with a supervised contrastive loss; rows of `transform` have unit length.

    A network with one hidden layer is trained by AdamW with a cosine schedule. In each step a random fifth of the
    features of a row is set to 0, in two ways: these are its views. Features should have similar scales: put a
    `StandardScaler` before it where they do not. With the same `random_state`, the result is the same on one machine.
    As in the classifiers of scikit-learn, every label is a class, -1 included; leave out rows without a label.

    Args:
        loss: Name of a loss in `sincere.loss_catalog.LOSSES` (sincere, supcon, eps-supinfonce, infonce ...), or a
            callable from embeddings (n, views, dim) and labels (n,) to a loss; a module has no weights to train,
            and is on `device` already.
        temperature: Temperature of a loss given by name.
        loss_options: Further options of a loss given by name, such as {"epsilon": 0.1}.
        dim: Dimension of the embedding.
        hidden: Number of hidden units. None: as many as features, at least 128.
        epochs: Number of epochs. None: as many as make 500 steps, from 10 to 100.
        batch_size: Number of rows in a batch, at most.
        learning_rate: Peak learning rate.
        weight_decay: Weight decay.
        feature_dropout: Fraction of the features that each view sets to 0. None: 0.2, or 0 for fewer than 32 features.
        n_views: Number of views of each row. None: 2, or 1 without dropout.
        random_state: Seed of the weights, the batches and the views, or a `numpy.random.RandomState`.
        device: Device to train on, such as "cuda".

    Attributes:
        classes_: Classes of the training rows.
        network_: The trained network, an `nn.Module` from features / `scale_` to embeddings that are not normalised.
        scale_: Root mean square of the training features.
        loss_curve_: Mean loss of each epoch.
        n_features_in_: Number of features.
        feature_names_in_: Their names, where `fit` was given a data frame.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> features, labels = load_digits(return_X_y=True)
        >>> embedder = ContrastiveEmbedder(dim=16, epochs=2, random_state=0)
        >>> embedder.fit_transform(features, labels).shape
        (1797, 16)
    """

    def __init__(
        self,
        loss: str | Criterion = DEFAULT_LOSS,
        *,
        temperature: float = 0.1,
        loss_options: Mapping[str, Any] | None = None,
        dim: int = 64,
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.003,
        weight_decay: float = 0.01,
        feature_dropout: float | None = None,
        n_views: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.loss = loss
        self.temperature = temperature
        self.loss_options = loss_options
        self.dim = dim
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.feature_dropout = feature_dropout
        self.n_views = n_views
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the embedding of features X (n, d) from the classes y (n,).

        Raises:
            InputTypeError, InputValueError: A parameter is wrong, there is one class only, or no row has a positive.
        """
        features, targets = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(targets)
        self._check_parameters()
        self.classes_, labels = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputValueError(checks.wording(self._caller, "y must have at least two classes", "1 class"))
        largest = float(np.abs(features).max()) or 1.0  # the squares of large features would overflow
        self.scale_ = largest * float(np.sqrt(np.mean(np.square(features / largest)))) or 1.0
        self._n_features_out = self.dim
        self._train(torch.from_numpy((features / self.scale_).astype(np.float32)), labels.astype(np.int64))
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the embeddings (n, dim) of features X (n, d), of unit length."""
        return self._embed(X)

    def _embed(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the embeddings as an array, whatever `set_output` makes of those of `transform`."""
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float64, reset=False)
        network = self.network_  # in float64: a row does not depend on the rows that it is embedded with
        with torch.no_grad():
            blocks = torch.from_numpy(features / self.scale_).split(BLOCK_ROWS)
            found = torch.cat([normalize(network(block), dim=1) for block in blocks])
        embeddings: NDArray[np.float64] = found.numpy()
        return embeddings

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def _caller(self) -> str:
        return type(self).__name__

    def _check_parameters(self) -> None:
        caller = self._caller
        for name, least in (("dim", 1), ("batch_size", 2)):
            checks.count(caller, name, getattr(self, name), least=least)
        for name in ("hidden", "epochs", "n_views"):
            if getattr(self, name) is not None:
                checks.count(caller, name, getattr(self, name), least=1)
        for name, above in (("temperature", 0.0), ("learning_rate", 0.0)):
            checks.number(caller, name, getattr(self, name), above=above)
        checks.number(caller, "weight_decay", self.weight_decay, least=0.0)
        dropout = self.feature_dropout
        if dropout is not None and checks.number(caller, "feature_dropout", dropout, least=0.0) >= 1:
            raise InputValueError(checks.wording(caller, "feature_dropout must be at least 0 and below 1", dropout))

    def _criterion(self, n_classes: int) -> NamedLoss | Criterion:
        """Return the loss as a function of embeddings (n, views, dim) and labels (n,)."""
        caller, options = self._caller, dict(self.loss_options or {})
        if isinstance(self.loss, type) or not (isinstance(self.loss, str) or callable(self.loss)):
            got = f"the class {self.loss.__name__}" if isinstance(self.loss, type) else type(self.loss).__name__
            raise InputTypeError(checks.wording(caller, "loss must be the name of a loss, or a callable", got))
        if not isinstance(self.loss, str):
            if isinstance(self.loss, nn.Module) and any(weight.requires_grad for weight in self.loss.parameters()):
                requirement = "loss must have no weights to train, because only those of the network are trained"
                remedy = "Freeze them with requires_grad_(False)"
                raise InputTypeError(checks.wording(caller, requirement, type(self.loss).__name__, remedy))
            return self.loss
        if "temperature" in options:
            requirement = "loss_options must not hold the temperature, which is a parameter of its own"
            raise InputValueError(checks.wording(caller, requirement, options["temperature"]))
        sizes = {"n_classes": n_classes, "dim": self.dim} if find_loss(self.loss, caller=caller).needs_classes else {}
        return NamedLoss(caller, self.loss, self.temperature, {**sizes, **options}).to(self.device)

    def _views(self, n_features: int) -> tuple[float, int]:
        """Return the dropout and the number of views."""
        dropout = self.feature_dropout
        if dropout is None:
            dropout = DROPOUT if n_features >= FEW_FEATURES else 0.0
        n_views = self.n_views or (2 if dropout else 1)
        if self.loss in LOSSES and not LOSSES[str(self.loss)].needs_labels and (n_views < 2 or not dropout):
            requirement = f"{self.loss} needs n_views of at least 2 and feature_dropout above 0"
            raise InputValueError(checks.wording(self._caller, requirement, f"{n_views} and {dropout}"))
        return dropout, n_views

    @torch.enable_grad()
    def _train(self, features: Tensor, labels: NDArray[np.int64]) -> None:
        """Set `network_`, in float64 on the CPU, and `loss_curve_`."""
        n, n_features = features.shape
        criterion, (dropout, n_views) = self._criterion(int(labels.max()) + 1), self._views(n_features)
        entry = criterion.entry if isinstance(criterion, NamedLoss) else None
        if n_views == 1 and entry is not None and not entry.needs_classes and np.bincount(labels).max() < 2:
            requirement = "y must have a class with two rows, because a row alone has no positive"
            raise InputValueError(checks.wording(self._caller, requirement, f"{n} classes of one row"))
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = mlp(n_features, self.dim, hidden=self.hidden or max(n_features, LEAST_HIDDEN))
        network = network.to(self.device, torch.float32)
        parts: Iterable[Any] = criterion.modules() if isinstance(criterion, NamedLoss) else ()
        drawing = [part for part in parts if getattr(part, "draw", 0) is None]  # by the global generator, otherwise
        chosen = OptimizerSettings("adamw", self.learning_rate, weight_decay=self.weight_decay)
        optimizer = make_optimizer(network, chosen)
        sampler = ShuffleSampler(labels, min(self.batch_size, n), seed=seed)
        suited = min(max(-(-ENOUGH_STEPS // sampler.n_batches), FEWEST_EPOCHS), MOST_EPOCHS)
        n_steps = (self.epochs or suited) * sampler.n_batches
        features, classes = features.to(self.device), torch.from_numpy(labels).to(self.device)
        losses = []
        for step in range(n_steps):
            rows, visits = (torch.from_numpy(x).to(self.device) for x in (sampler.batch(step), sampler.visits(step)))
            views = make_feature_views(features[rows], rows, visits, dropout=dropout, seed=seed, n_views=n_views)
            factor = learning_rate_factor(step, n_steps, warmup_steps(n_steps, sampler.n_batches))
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            for part in drawing:
                part.draw = (seed + step) % np.iinfo(np.int32).max
            loss = criterion(network(views.flatten(0, 1)).view(*views.shape[:2], -1), classes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        curve: list[float] = torch.stack(losses).view(-1, sampler.n_batches).mean(dim=1).tolist()
        if not all(np.isfinite(curve)):
            remedy = "Take a lower learning_rate or a higher temperature"
            raise InputValueError(checks.wording(self._caller, "the loss must stay finite", curve[-1], remedy))
        self.loss_curve_ = curve
        self.network_: nn.Module = network.cpu().double().eval()


class ContrastiveClassifier(ClassifierMixin, ContrastiveEmbedder):  # type: ignore[misc]
    """Learn an embedding as `ContrastiveEmbedder` does, and classify by the nearest training rows in it.

    Args:
        loss: See `ContrastiveEmbedder` for this and the other parameters.
        classifier: "knn": the 5 nearest training rows vote, weighted by cosine similarity, as in the paper; "dino": 20,
            weighted by exp(similarity / 0.07); "lightly": 200, weighted by exp(similarity / 0.1); "means": softmax of
            the similarities to the class means.
        temperature: Temperature of the loss.
        loss_options: Further options of a loss given by name.
        dim: Dimension of the embedding.
        hidden: Number of hidden units.
        epochs: Number of epochs.
        batch_size: Number of rows in a batch, at most.
        learning_rate: Peak learning rate.
        weight_decay: Weight decay.
        feature_dropout: Fraction of the features that each view sets to 0.
        n_views: Number of views of each row.
        random_state: Seed of the weights, the batches and the views, or a `numpy.random.RandomState`.
        device: Device to train on.

    Attributes:
        classes_: Classes of the training rows.
        embeddings_: Embeddings of the training rows (n, dim), of unit length.
        labels_: Position in `classes_` of each training row's class (n,).

    Example:
        >>> from sklearn.datasets import load_digits
        >>> features, labels = load_digits(return_X_y=True)
        >>> model = ContrastiveClassifier(random_state=0).fit(features[:1000], labels[:1000])
        >>> model.score(features[1000:], labels[1000:]) > 0.9
        True
    """

    def __init__(
        self,
        loss: str | Criterion = DEFAULT_LOSS,
        *,
        classifier: Literal["knn", "dino", "lightly", "means"] = "knn",
        temperature: float = 0.1,
        loss_options: Mapping[str, Any] | None = None,
        dim: int = 64,
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.003,
        weight_decay: float = 0.01,
        feature_dropout: float | None = None,
        n_views: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(
            loss,
            temperature=temperature,
            loss_options=loss_options,
            dim=dim,
            hidden=hidden,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            feature_dropout=feature_dropout,
            n_views=n_views,
            random_state=random_state,
            device=device,
        )
        self.classifier = classifier

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from features X (n, d) and classes y (n,).

        Raises:
            InputValueError: A parameter is wrong, or there is one class only.
        """
        self._check_classifier()
        super().fit(X, y)
        self.embeddings_ = self._embed(X)
        self.labels_ = np.searchsorted(self.classes_, np.asarray(y).ravel())
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the share of the votes of each class (n, n_classes); rows sum to 1. They are not calibrated."""
        self._check_classifier()
        queries, references = torch.from_numpy(self._embed(X)), torch.from_numpy(self.embeddings_)
        labels = torch.from_numpy(self.labels_)
        classifier = load(cast(str, CLASSIFIERS[self.classifier].target))
        found = classifier.probabilities(queries, references, labels, len(self.classes_))
        probabilities: NDArray[np.float64] = found.numpy()
        return probabilities

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each row of X."""
        shares = self.predict_proba(X)
        predicted: NDArray[Any] = self.classes_[shares.argmax(axis=1)]
        return predicted

    def _check_classifier(self) -> None:
        checks.choice(self._caller, "classifier", self.classifier, [name for name in CLASSIFIERS if name != "linear"])
