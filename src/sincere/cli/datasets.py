"""`sincere datasets`: list the data sets known by name."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from sincere.checks import printable
from sincere.cli.flags import parse_request
from sincere.data.catalog import DATASETS
from sincere.data.load_options import LoadOptions
from sincere.records.config import Settings


class DatasetsRequest(Settings):
    """List the data sets known by name: sizes, and whether they are on disk. Starts no download."""

    data_dir: Path | None = None
    """Where named data sets are kept. Default: $SINCERE_HOME/datasets or ~/.cache/sincere/datasets."""


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = parse_request(DatasetsRequest, arguments, verb="datasets")
    root = options.data_dir or LoadOptions().root
    table = Table(box=None, header_style="bold")
    for column in ("name", "train", "test", "classes", "px", "on disk", "what it shows"):
        table.add_column(column, justify="right" if column in ("train", "test", "classes", "px") else "left")
    for name, named in DATASETS.items():
        side = "vary" if named.side is None else str(named.side)
        there = "yes" if named.on_disk(root) else "no"
        table.add_row(name, f"{named.n_train:,}", f"{named.n_test:,}", str(named.n_classes), side, there, named.about)
    console = Console()
    console.print(table)
    line = f"Folder: {root}. Or your own: a folder of class folders, or an .npz (docs/data.md)."
    console.print(printable(line), soft_wrap=True, markup=False)
    return 0
