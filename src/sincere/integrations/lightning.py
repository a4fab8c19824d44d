"""The losses in a Lightning module, and a callback that measures k-NN accuracy while it trains.

    module = ContrastiveModule(network, temperature=0.1)
    knn = LiveKNN(train_loader, test_loader, k=5)
    Trainer(max_epochs=10, callbacks=[knn]).fit(module, train_loader)

Documentation of Lightning: https://lightning.ai/docs/pytorch
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.optim import AdamW, Optimizer

from sincere import checks
from sincere.errors import InputTypeError, InputValueError, MissingPackageError, missing_package
from sincere.evaluation.neighbours import find_neighbours
from sincere.integrations.named_loss import NamedLoss, stack_views
from sincere.loss_catalog import DEFAULT_LOSS

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities.seed import isolate_rng
except ModuleNotFoundError as error:
    raise MissingPackageError(missing_package("sincere.integrations.lightning", error)) from error


class ContrastiveModule(LightningModule):
    """A network that is trained by a contrastive loss of the embeddings that it returns.

    A batch is a pair of inputs and labels, as torch's data loaders make it. Inputs are a tensor, or a list or tuple of
    tensors: the views of each item, which go through the network one after the other. Views may come without labels if
    the loss is "infonce". For a learning rate schedule, override `configure_optimizers`; for other batches,
    `split_batch`. A checkpoint holds the loss and its options: `ContrastiveModule.load_from_checkpoint(path,
    network=network)`.

    Args:
        network: Maps inputs (n, ...) to embeddings (n, d).
        loss: Name of the loss in `sincere.loss_catalog.LOSSES`; "infonce" needs views and no labels.
        temperature: Divides the similarities. An `nn.Parameter` with one element is trained with the network.
        optimizer: Makes the optimiser from the parameters; AdamW with a learning rate of 0.001 unless another is given.
        **options: Further arguments of the loss: `epsilon`, or the options of `sincere.losses.options.ModuleOptions`.
            `group="world"` computes the loss of the combined batch of all processes.

    Raises:
        InputTypeError, InputValueError: There is no such loss or option, or a value is out of range.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: str = DEFAULT_LOSS,
        *,
        temperature: float | Tensor = 0.1,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        plain = {name: value for name, value in options.items() if isinstance(value, bool | int | float | str)}
        # Given as a dict, so that neither a process group nor what a subclass takes gets into checkpoints.
        self.save_hyperparameters({"loss": loss, "temperature": float(temperature), **plain})
        self.network = network
        self.named_loss = NamedLoss(type(self).__name__, loss, temperature, options)
        self._make_optimizer = optimizer or partial(AdamW, lr=1e-3)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the embeddings (n, d) of inputs (n, ...)."""
        embeddings: Tensor = self.network(inputs)
        return embeddings

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch, and log it as `train_loss`."""
        return self._step(batch, "train_loss")

    def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch, and log it as `val_loss`."""
        return self._step(batch, "val_loss")

    def configure_optimizers(self) -> Any:
        """Return the optimiser of all parameters, those of the loss included."""
        return self._make_optimizer(self.parameters())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the temperature one that is learned, if it is in the checkpoint."""
        missing = checkpoint["state_dict"].keys() - self.state_dict().keys()
        learned = [name for name in missing if name.startswith("named_loss.") and name.endswith(".temperature")]
        if learned:
            self.named_loss.learn_temperature(checkpoint["state_dict"][learned[0]])

    def split_batch(self, batch: Any) -> tuple[Sequence[Tensor], Tensor | None]:
        """Return the views of a batch, each (n, ...), and its labels (n,) or None.

        Raises:
            InputValueError: It is a pair whose second part is neither labels (n,) nor another view.
        """
        pair = isinstance(batch, list | tuple) and len(batch) == 2 and isinstance(batch[1], Tensor)
        inputs, labels = batch if pair and batch[1].ndim == 1 else (batch, None)
        if pair and labels is None and batch[1].ndim == 2 and _shape(batch[0]) != _shape(batch[1]):
            requirement = "a batch must be inputs with labels (n,), or views of one shape"
            got = ", ".join(map(_shape, batch))
            raise InputValueError(
                checks.wording(type(self).__name__, requirement, got, "Override split_batch for others")
            )
        return (inputs if isinstance(inputs, list | tuple) else [inputs]), labels

    def _step(self, batch: Any, name: str) -> Tensor:
        views, labels = self.split_batch(batch)
        embeddings = stack_views([self(view) for view in views])
        loss: Tensor = self.named_loss(embeddings, labels)
        self.log(name, loss, prog_bar=True, batch_size=len(embeddings))
        return loss


class LiveKNN(Callback):
    """Measures k-NN accuracy before the training and after its epochs, and logs it.

    The k nearest references vote, weighted by cosine similarity, as in `sincere evaluate`; the result is exact. The
    embedding is what the module's `forward` returns, in evaluation mode. Items with label -1 or -100, which mean "no
    label", are left out. Random numbers of the training, those of a data loader's own generator included, are left as
    they are, so that it takes the same course without the callback. In a distributed training every process measures
    the same, on all items of both data loaders.

    Args:
        references: Batches of inputs and labels (n,) whose embeddings vote, such as a data loader without augmentation.
            It may shuffle, but must be iterable again and again.
        queries: Batches of held-out inputs and labels.
        k: Number of neighbours that vote.
        every_n_epochs: Measure after every n epochs. In those between, the last value is logged again.
        name: Name in the log, for `ModelCheckpoint(monitor=...)`, loggers and `EarlyStopping`, which must come after
            this callback in the trainer's list.

    Attributes:
        history: Pairs of the number of epochs so far and the accuracy; the first one is (0, before the training).
            Checkpoints hold it.
    """

    def __init__(
        self,
        references: Iterable[Any],
        queries: Iterable[Any],
        *,
        k: int = 5,
        every_n_epochs: int = 1,
        name: str = "knn",
    ) -> None:
        caller = type(self).__name__
        self.references, self.queries, self.name = references, queries, name
        self.k = checks.count(caller, "k", k, least=1)
        self.every_n_epochs = checks.count(caller, "every_n_epochs", every_n_epochs, least=1)
        self.history: list[tuple[int, float]] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the accuracy before the training, unless it is resumed."""
        if not self.history:
            self.history.append((trainer.current_epoch, self.measure(pl_module)))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure and log the accuracy."""
        epochs = trainer.current_epoch + 1
        if epochs % self.every_n_epochs == 0:
            self.history.append((epochs, self.measure(pl_module)))
        pl_module.log(self.name, self.history[-1][1], prog_bar=True)  # what stops or saves by it needs it each epoch

    def measure(self, pl_module: LightningModule) -> float:
        """Return the fraction of queries that their k nearest references classify correctly."""
        training = [(module, module.training) for module in pl_module.modules()]
        generators = [(own, own.get_state()) for own in _generators(self.references, self.queries)]
        with isolate_rng(), torch.no_grad():
            pl_module.eval()
            try:
                references, reference_labels = self._embed(pl_module, "references", self.references)
                queries, labels = self._embed(pl_module, "queries", self.queries)
            finally:
                for module, mode in training:  # a frozen part may be in evaluation mode, and remains so
                    module.training = mode
                for own, state in generators:
                    own.set_state(state)
        found = find_neighbours(queries, labels, references, reference_labels, ks=(self.k,))
        return float((found.predictions[self.k] == labels).double().mean())

    @property
    def state_key(self) -> str:
        """What tells it from other callbacks of this class in a checkpoint."""
        return self._generate_state_key(name=self.name, k=self.k)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {"history": list(self.history)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the history of a checkpoint."""
        self.history = [(int(epochs), float(accuracy)) for epochs, accuracy in state_dict["history"]]

    def _embed(self, pl_module: LightningModule, name: str, batches: Iterable[Any]) -> tuple[Tensor, Tensor]:
        """Return embeddings (n, d) and labels (n,) of all items that have a label."""
        caller = type(self).__name__
        embeddings, labels = [], []
        for batch in batches:
            pair = batch if isinstance(batch, list | tuple) and len(batch) == 2 else None
            if pair is None or isinstance(pair[0], list | tuple) or not isinstance(pair[1], Tensor):
                requirement = f"a batch of {name} must be a pair of inputs, in one view, and labels, a tensor"
                got = f"{type(batch).__name__} of {', '.join(type(part).__name__ for part in batch)}"
                raise InputTypeError(checks.wording(caller, requirement, type(batch).__name__ if pair is None else got))
            inputs, targets = pl_module.transfer_batch_to_device(batch, pl_module.device, 0)
            if targets.ndim != 1:
                raise InputValueError(checks.wording(caller, f"labels of {name} must be (n,)", checks.shape(targets)))
            known = (targets != -1) & (targets != -100)
            embeddings.append(normalize(pl_module(inputs).flatten(1).float(), dim=1)[known])
            labels.append(targets[known])
        if not sum(map(len, labels)):
            requirement = f"{name} must have labelled items each time they are read"
            raise InputValueError(checks.wording(caller, requirement, "none", "Pass a data loader, not an iterator"))
        return torch.cat(embeddings), torch.cat(labels)


def _generators(*loaders: Any) -> list[torch.Generator]:
    """Return the random generators that data loaders and their samplers have of their own."""
    found = []
    for loader in loaders:
        batches = getattr(loader, "batch_sampler", None)
        parts = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
        found += [getattr(part, "generator", None) for part in parts]
    return [own for own in found if isinstance(own, torch.Generator)]


def _shape(part: Any) -> str:
    """Return the shape of a part of a batch, or what it is, for messages."""
    return str(checks.shape(part)) if isinstance(part, Tensor) else type(part).__name__
