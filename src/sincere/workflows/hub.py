"""Models on the Hugging Face hub, through the mixin of huggingface_hub.

The mixin is the base of a class of its own, and not of `Model`, so that `Model` works where huggingface_hub is not
installed: this module is imported by the methods that need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin, snapshot_download
from torch import nn

from sincere.errors import DataError, SincereError, first_line
from sincere.report.model_card import TAGS
from sincere.workflows.model import Model, load
from sincere.workflows.pretrained import CARD, FILES, check_folder, replace_files


class HubModel(ModelHubMixin, library_name="sincere", tags=list(TAGS)):
    """A model with the methods of the mixin: save_pretrained, from_pretrained, push_to_hub.

    Attributes:
        model: The model.
        reference: Whether the embeddings, labels and file names of its training images are written, too.
    """

    def __init__(self, model: Model, *, reference: bool = True) -> None:
        self.model = model
        self.reference = reference

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write a folder; see `Model.save_pretrained`. The mixin's own method writes to it before ours is called.

        Raises:
            DataError: The folder is that of a run.
        """
        check_folder(self.model, Path(save_directory))
        address: str | None = super().save_pretrained(save_directory, **options)
        return address

    def _save_pretrained(self, save_directory: Path) -> None:
        card = not (save_directory / CARD).exists()
        replace_files(self.model, save_directory, reference=self.reference, card=card)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        encoder: nn.Module | None = None,
        device: str = "auto",
        **model_kwargs: Any,
    ) -> HubModel:
        folder = Path(model_id)
        if not folder.is_dir():
            options: dict[str, Any] = {"revision": revision, "cache_dir": cache_dir, "token": token}
            options |= {"force_download": force_download, "local_files_only": local_files_only}
            folder = Path(snapshot_download(model_id, allow_patterns=list(FILES), **options))
        return cls(load(folder, encoder=encoder, device=device))


def from_hub(name: str | Path, **options: Any) -> Model:
    """Return the model in a folder or on the hub; see `Model.from_pretrained`.

    Raises:
        DataError: There is none, it cannot be downloaded, or it is damaged.
    """
    try:
        return HubModel.from_pretrained(str(name), **options).model
    except SincereError:
        raise
    except Exception as error:  # of the network, of names that the hub does not accept: of many kinds
        reason = first_line(error)
        raise DataError(f"{name}: is neither a folder nor a model that the hub gives ({reason})") from error
