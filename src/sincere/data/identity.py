"""Content hash of the files behind a data set's name or path. Does not import torch."""

from __future__ import annotations

import os
from pathlib import Path

from sincere.data.catalog import DATASETS, is_saved_dataset
from sincere.data.class_folders import folder_files, has_class_folders
from sincere.data.labels_csv import LABELS_CSV, has_labels_csv
from sincere.data.listing import file_facts, file_list, files_below, listing_digest
from sincere.data.load_options import LoadOptions


def source_digest(data: str, data_dir: Path | None = None, *, may_be_plain: bool = False) -> str | None:
    """Return a hash of the names and contents of all files of a data set; None where there are no files yet.

    Files are read once: while the status of a file is unchanged, its stored hash is used.

    Args:
        data: Name or path.
        data_dir: Where named data sets are.
        may_be_plain: Whether it may be a folder of images without class folders.

    Raises:
        DataError: A folder cannot be read or is not a data set.
    """
    settings = LoadOptions()
    path = Path(data)
    if data in DATASETS:
        if DATASETS[data].content is not None:
            return DATASETS[data].content
        below, where = DATASETS[data].folder, data_dir or settings.root
        arrays, root = DATASETS[data].array_file(where), where / (below or "")
        if arrays is not None:
            files, subject = file_list(where, [os.fsencode(arrays.name)]), arrays
        elif below is None or not root.is_dir():
            return None
        else:
            files, subject = file_list(root, files_below(root, images_only=False)), root
    elif path.is_dir() and is_saved_dataset(path):
        files, subject = file_list(path, files_below(path, images_only=False)), path
    elif path.is_dir() and has_labels_csv(path):
        files, subject = file_list(path, [*files_below(path), LABELS_CSV.encode()]), path
    elif path.is_dir():
        plain = may_be_plain and not has_class_folders(path)
        files, subject = file_list(path, files_below(path)) if plain else folder_files(path), path
    elif path.is_file():
        files, subject = file_list(path.parent, [os.fsencode(path.name)]), path
    else:
        return None
    return listing_digest(files, file_facts(files, settings.cache, subject=subject))
