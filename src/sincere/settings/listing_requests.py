"""The requests of verbs that only list or print something."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from sincere.settings.record import Positional, Request


class DatasetsRequest(Request):
    """List the data sets known by name: sizes, and whether they are on disk. Starts no download."""

    verb: ClassVar[str] = "datasets"
    takes_config: ClassVar[bool] = False

    data_dir: Path | None = None
    """Folder of named data sets. Default: $SINCERE_HOME/datasets or ~/.cache/sincere/datasets."""


class CompletionRequest(Request):
    """Print a script that completes commands, flags and names in a shell."""

    verb: ClassVar[str] = "completion"
    takes_config: ClassVar[bool] = False
    examples: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sincere completion bash > ~/.local/share/bash-completion/completions/sincere", "for bash"),
        ('sincere completion zsh > "${fpath[1]}/_sincere"', "for zsh"),
        ("sincere completion fish > ~/.config/fish/completions/sincere.fish", "for fish"),
    )

    shell: Annotated[Literal["bash", "zsh", "fish"], Positional()]
    """Shell."""
