"""The losses as a loss of sentence-transformers (https://sbert.net).

loss = SentenceContrastiveLoss(model, temperature=0.1)
args = SentenceTransformerTrainingArguments(..., batch_sampler=BatchSamplers.GROUP_BY_LABEL)
SentenceTransformerTrainer(model, args, train_dataset=dataset, loss=loss).train()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from sincere.errors import MissingPackageError, missing_package
from sincere.integrations.named_loss import NamedLoss, stack_views
from sincere.loss_catalog import DEFAULT_LOSS

try:
    from sentence_transformers import SentenceTransformer
except ModuleNotFoundError as error:
    raise MissingPackageError(missing_package("sincere.integrations.sentence_transformers", error)) from error


class SentenceContrastiveLoss(nn.Module):
    """A supervised contrastive loss of sentences with class labels, for `SentenceTransformerTrainer`.

    The data set has a column of sentences and an integer column `label`. Further columns of sentences are views of the
    first one, such as paraphrases: all columns of a row share its label. Without labels, `loss="infonce"` contrasts the
    columns of a row with those of the other rows.

    Args:
        model: The model that is trained.
        loss: Name of the loss in `sincere.loss_catalog.LOSSES`.
        temperature: Divides the cosine similarities. An `nn.Parameter` with one element is trained with the model.
        **options: Further arguments of the loss: `epsilon`, or the options of `sincere.losses.options.ModuleOptions`.
            `group="world"` computes the loss of the combined batch of all processes.

    Raises:
        InputTypeError, InputValueError: There is no such loss or option, or a value is out of range.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        loss: str = DEFAULT_LOSS,
        *,
        temperature: float | Tensor = 0.1,
        **options: Any,
    ) -> None:
        super().__init__()
        # The trainer looks for `model`, to wrap it, and takes an attribute `loss` for a loss that wraps another.
        self.model = model
        self.named_loss = NamedLoss(type(self).__name__, loss, temperature, options)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: Tokenized sentences, one entry for each column.
            labels: Class of each row (n,), any integer type; -1 means "no label", as in `sincere_loss`.
        """
        embeddings = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """Return the loss of embeddings (n, d), one entry for each column; losses that wrap this one call it."""
        return self.named_loss(stack_views(embeddings), labels)  # type: ignore[no-any-return]

    def get_config_dict(self) -> dict[str, Any]:
        """Return what the model card says about the loss: its name, hyper-parameters and changed options."""
        return self.named_loss.config()

    @property
    def citation(self) -> str:
        """The paper of the loss, for the model card."""
        entry = self.named_loss.entry
        return f"\n@misc{{{self.named_loss.name},\n    title = {{{entry.title}}},\n    url = {{{entry.paper}}}\n}}\n"
