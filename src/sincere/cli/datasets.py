"""`sincere datasets`: list the data sets known by name."""

from __future__ import annotations

from rich.table import Table

from sincere.cli.flags import parse_request
from sincere.data.catalog import DATASETS
from sincere.data.load_options import LoadOptions
from sincere.messages import Messages
from sincere.settings.data import DATA_HELP
from sincere.settings.listing_requests import DatasetsRequest


def main(arguments: list[str]) -> None:
    """List the data sets."""
    request = parse_request(DatasetsRequest, arguments)
    root = request.data_dir or LoadOptions().root
    table = Table(box=None, header_style="bold")
    for column in ("name", "train", "test", "classes", "px", "on disk", "content"):
        table.add_column(column, justify="right" if column in ("train", "test", "classes", "px") else "left")
    for name, named in DATASETS.items():
        side = "vary" if named.side is None else str(named.side)
        there = "yes" if named.on_disk(root) else "no"
        table.add_row(name, f"{named.n_train:,}", f"{named.n_test:,}", str(named.n_classes), side, there, named.about)
    messages = Messages()
    messages.console.print(table)
    messages.say(f"Folder: {root}. --data takes {DATA_HELP}.")
