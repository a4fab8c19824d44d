"""Loads data sets of Hugging Face `datasets`: saved to disk, parquet files with images, or given in Python.

The rows are read once, one after the other. Images are written into the cache as files, just as they are encoded, and
then loaded like any other image files: decoded once or, where they fit neither into memory nor into the cache, on every
access. Vectors are written into a .parquet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.data.cache import entry_path, new_entry
from sincere.data.catalog import PARQUET_FILES
from sincere.data.class_folders import LabelledFiles, labelled_files
from sincere.data.dataset import Dataset
from sincere.data.image_files import files_dataset
from sincere.data.listing import FileList, file_facts, file_list, files_below, listing_digest
from sincere.data.load_options import LoadOptions
from sincere.data.named_arrays import NamedArray, encode_labels, split_by_class, without_unused
from sincere.data.parquet import FEATURES, LABELS, TEST, TRAIN, VALIDATION, load_parquet
from sincere.errors import DataError, MissingPackageError, first_line, missing_package
from sincere.records.npz import read_arrays, write_arrays

try:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise MissingPackageError(missing_package("data: a data set of Hugging Face", error, extra="datasets")) from error


IMAGES = ("image", "img", "images", "pixels")
ROWS, LABEL_FILE = 1000, "labels.npz"  # rows that are read at a time; labels of all images in the cache
_SUFFIXES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp", b"GIF8": ".gif", b"BM": ".bmp"}


@dataclass(frozen=True, eq=False)
class HuggingFaceData:
    """A data set of the library.

    Attributes:
        name: Name of the data set in messages.
        parts: Its rows, by the name of the split; a single one is split here.
        content: Hash of its content; None to take the library's fingerprints.
        path: Where it is on disk; None where it was given in Python.
    """

    name: str
    parts: Mapping[str, Any]
    content: str | None = None
    path: Path | None = None

    @cached_property
    def digest(self) -> str:
        """Content hash.

        Raises:
            DataError: The library has no fingerprint of it, so that two of them could not be told apart.
        """
        if self.content is not None:
            return self.content
        prints = {name: getattr(part, "_fingerprint", None) for name, part in sorted(self.parts.items())}
        if None in prints.values():
            remedy = "save it as parquet files and name their folder, or make a datasets.Dataset of it"
            raise DataError(f"{self.name}: an IterableDataset cannot be told from another one; {remedy}")
        return hashlib.sha256(repr(prints).encode()).hexdigest()

    def _entry(self, options: LoadOptions, *columns: str, part: str = "") -> Path:
        """Return its place in the cache: a changed file replaces what was there, other data do not."""
        source = self.digest if self.path is None else str(self.path.resolve())
        return entry_path(options.cache, ("hugging-face", source, part), (self.digest, *columns))

    def __call__(self, options: LoadOptions) -> Dataset:
        """Return it as a data set.

        Raises:
            DataError: A column is missing or has a wrong type or value, or there is no training part.
        """
        train, test, notes = _chosen_parts(self.name, self.parts)
        features = train.features
        labels = _column(self.name, features, LABELS, "integer or string labels", _is_label)
        if (vectors := _vectors_column(features)) is not None:
            return self._vectors(train, test, vectors, labels, options)
        images = _column(self.name, features, IMAGES, "images or vectors", _is_image)
        parts = {part: rows for part, rows in ((TRAIN, train), (TEST, test)) if rows is not None}
        numbers = _class_numbers(self.name, parts.values(), labels)
        found = [self._written(part, rows, images, labels, options) for part, rows in parts.items()]
        root = Path(self.name)
        stored, class_names = [NamedArray(root, f"column {labels!r}", values) for _, values in found], None
        if numbers:
            of_part = [_numbering(rows, labels, numbers) for rows in parts.values()]
            stored = [
                replace(array, values=np.array([number(label) for label in array.values.tolist()]))
                for array, number in zip(stored, of_part, strict=True)
            ]
            stored, class_names = without_unused(stored, NamedArray(root, "class names", np.array([*numbers])))
        encoded, known = encode_labels(root, stored, class_names, noun="image")
        files = [files for files, _ in found]
        both = [labelled_files(*each) for each in zip((TRAIN, TEST), files, encoded, strict=False)]
        if len(both) == 1:
            rows, note = split_by_class(
                stored[0], encoded[0], known, seed=options.seed, noun="image", remedy="add a split named test"
            )
            both, notes = _split(both[0], rows, options.seed), (*notes, note)
        return files_dataset(self.name, both[0], both[1], known, options, notes=notes)

    def _written(
        self, part: str, rows: Any, images: str, labels: str, options: LoadOptions
    ) -> tuple[FileList, NDArray[Any]]:
        """Return the files of a part in the cache, written on first use, and their labels."""
        path = self._entry(options, images, labels, part=part)
        try:
            stored = read_arrays(path / LABEL_FILE, remedy="")
            complete = all((path / name).is_file() for name in stored["names"].tolist())
        except (DataError, FileNotFoundError, KeyError, TypeError):
            complete = False
        if not complete:
            with new_entry(path) as work:
                _write_images(self.name, rows, images, labels, work)
            stored = read_arrays(path / LABEL_FILE, remedy="remove it")
        return file_list(path, [name.encode() for name in stored["names"].tolist()]), stored["labels"]

    def _vectors(self, train: Any, test: Any, vectors: str, labels: str, options: LoadOptions) -> Dataset:
        """Return a column of vectors as a data set of features, through a .parquet in the cache."""
        path = self._entry(options, vectors, labels, part="vectors")
        file = path / f"{Path(self.name).name}.parquet"
        parts = {part: rows for part, rows in ((TRAIN, train), (TEST, test)) if rows is not None}
        numbers = _class_numbers(self.name, parts.values(), labels)
        if not file.is_file():
            with new_entry(path) as work:
                _write_vectors(self.name, parts, vectors, labels, numbers, work / file.name)
        return load_parquet(file, options, class_names=[*numbers] or None)


def load_saved(path: Path, options: LoadOptions) -> Dataset:
    """Load a folder that `save_to_disk` wrote, or one of parquet files named train-..., test-... or the like.

    Raises:
        DataError: It is damaged, or a column is missing or wrong.
    """
    content = listing_digest(
        files := file_list(path, files_below(path, images_only=False)), file_facts(files, options.cache, subject=path)
    )
    try:
        shards = _shards(path)
        found = _streamed(shards) if shards else datasets.load_from_disk(str(path))
    except Exception as error:
        raise DataError(f"{path}: is not a readable data set of the library datasets ({first_line(error)})") from error
    return hugging_face_data(path.resolve().name, found, content=content, path=path)(options)


def load_image_parquet(path: Path, options: LoadOptions) -> Dataset:
    """Load a .parquet with a column of images, row after row.

    Raises:
        DataError: A column is missing or wrong.
    """
    files = file_list(path.parent, [path.name.encode()])
    content = listing_digest(files, file_facts(files, options.cache, subject=path))
    return hugging_face_data(path.stem, _streamed({TRAIN: [path]}), content=content, path=path)(options)


def hugging_face_data(
    name: str, value: Any, *, content: str | None = None, path: Path | None = None
) -> HuggingFaceData:
    """Return a Dataset, or a DatasetDict of splits, of the library as data for `train`."""
    parts = dict(value) if isinstance(value, Mapping) else {TRAIN: value}
    return HuggingFaceData(name, {str(part): rows for part, rows in parts.items()}, content, path)


def _shards(path: Path) -> dict[str, list[Path]]:
    """Return the parquet files of a folder by split: what stands before the first - or . in their names."""
    found: dict[str, list[Path]] = {}
    for file in sorted(file for pattern in PARQUET_FILES for file in path.glob(pattern)):
        found.setdefault(file.name.partition(".")[0].partition("-")[0], []).append(file)
    return found


def _streamed(shards: Mapping[str, list[Path]]) -> dict[str, Any]:
    files = {split: [str(path) for path in paths] for split, paths in shards.items()}
    return dict(datasets.load_dataset("parquet", data_files=files, streaming=True))


def _chosen_parts(name: str, parts: Mapping[str, Any]) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the training and the test part, None where it is to be split off, and notes for the user."""
    held_out = next((part for part in (TEST, *VALIDATION) if part in parts), None)
    if TRAIN not in parts and len(parts) > 1:
        raise DataError(f"{name}: must have a split named {TRAIN}; got {', '.join(parts)}")
    train = parts.get(TRAIN, next(iter(parts.values())))
    left = sorted(set(parts) - {TRAIN, held_out}) if len(parts) > 1 else []
    notes = (f"{name}: not used: {', '.join(left)}",) if left else ()
    return _with_features(train), None if held_out is None else _with_features(parts[held_out]), notes


def _with_features(rows: Any) -> Any:
    return rows if rows.features is not None else rows._resolve_features()


def _is_vector(kind: Any) -> bool:
    inner = getattr(kind, "feature", None)
    return inner is not None and str(getattr(inner, "dtype", "")).startswith(("float", "int", "uint"))


def _is_label(kind: Any) -> bool:
    dtype = str(getattr(kind, "dtype", ""))
    return isinstance(kind, datasets.ClassLabel) or dtype.startswith(("int", "uint", "string", "large_string"))


def _is_image(kind: Any) -> bool:
    if isinstance(kind, Mapping):
        return set(kind) == {"bytes", "path"}
    return isinstance(kind, datasets.Image) or getattr(kind, "dtype", "") in ("binary", "large_binary")


def _find(features: Mapping[str, Any], names: tuple[str, ...], fits: Any) -> str | None:
    """Return the column of such a name, or else the only one of such a kind."""
    named = [name for name in names if name in features and fits(features[name])]
    of_kind = [name for name, kind in features.items() if fits(kind)]
    declared = [name for name in of_kind if isinstance(features[name], Mapping | datasets.Image)]  # not mere bytes
    found = declared or of_kind
    return named[0] if named else found[0] if len(found) == 1 else None


def _vectors_column(features: Mapping[str, Any]) -> str | None:
    """Return the column of vectors; lists beside images are only vectors if they are called so, not bounding boxes."""
    vectors = _find(features, FEATURES, _is_vector)
    return None if vectors not in FEATURES and any(map(_is_image, features.values())) else vectors


def _column(name: str, features: Mapping[str, Any], names: tuple[str, ...], what: str, fits: Any) -> str:
    found = _find(features, names, fits)
    if found is None:
        wanted = f"{', '.join(names[:-1])} or {names[-1]}"
        held = [f"{column} ({getattr(kind, 'dtype', type(kind).__name__)})" for column, kind in features.items()]
        raise DataError(f"{name}: a column of {what} is missing, called {wanted}; it has {', '.join(held)}")
    return found


def _class_numbers(name: str, parts: Collection[Any], labels: str) -> dict[str, int]:
    """Return one number for each class name of all parts, which may number them differently; empty without names."""
    numbers: dict[str, int] = {}
    kinds = [rows.features[labels] for rows in parts]
    if not any(isinstance(kind, datasets.ClassLabel) for kind in kinds):
        return numbers
    for rows, kind in zip(parts, kinds, strict=True):
        if isinstance(kind, datasets.ClassLabel):
            names = kind.names
        elif "string" in kind.dtype:
            names = [row[labels] for row in _rows(name, rows, labels)]
        else:
            names = []
        for class_name in names:
            numbers.setdefault(class_name, len(numbers))
    return numbers


def _numbering(rows: Any, labels: str, numbers: Mapping[str, int]) -> Callable[[Any], Any]:
    """Return what maps a label of a part to the number of its class; one without a name stays without."""
    own = getattr(rows.features[labels], "names", None) or [*numbers]

    def number(label: Any) -> Any:
        if isinstance(label, str):
            return numbers[label]
        if label is None or label < 0:
            return label
        return numbers[own[label]] if label < len(own) else max(label, len(numbers))

    return number


def _rows(name: str, rows: Any, *columns: str) -> Iterator[dict[str, Any]]:
    """Yield the rows with these columns as they are stored, images as they are encoded."""
    chosen = rows.with_format(None).select_columns(list(columns))
    for column in columns:
        if _is_image(chosen.features[column]):
            chosen = chosen.cast_column(column, datasets.Image(decode=False))
    try:
        yield from chosen
    except OSError as error:
        raise DataError(f"{name}: its rows cannot be read ({first_line(error)})") from error


def _write_images(name: str, rows: Any, images: str, labels: str, folder: Path) -> None:
    found, names = list[Any](), list[str]()
    for position, row in enumerate(_rows(name, rows, images, labels)):
        image, label = row[images], row[labels]
        if image is None or label is None:
            raise DataError(f"{name}: column {images if image is None else labels!r} must not be null; row {position}")
        content = image["bytes"] if image["bytes"] is not None else Path(image["path"]).read_bytes()
        suffix = next((end for start, end in _SUFFIXES.items() if content.startswith(start)), ".img")
        if suffix == ".img" and images not in IMAGES:
            remedy = f"if these are not images, call the column of vectors {FEATURES[0]!r}; if they are, {IMAGES[0]!r}"
            raise DataError(f"{name}: column {images!r} must hold encoded images; row {position} is none; {remedy}")
        below = f"{position // ROWS:05d}"
        (folder / below).mkdir(exist_ok=True)
        names.append(f"{below}/{position:08d}{suffix}")
        (folder / names[-1]).write_bytes(content)
        found.append(label)
    if not found:
        raise DataError(f"{name}: has no rows")
    if not isinstance(found[0], int | str):
        raise DataError(f"{name}: column {labels!r} must hold integers or strings; got {type(found[0]).__name__}")
    write_arrays(folder / LABEL_FILE, {"labels": np.array(found), "names": np.array(names)})


def _write_vectors(
    name: str, parts: Mapping[str, Any], vectors: str, labels: str, numbers: Mapping[str, int], path: Path
) -> None:
    """Write rows in blocks."""
    writer = None
    try:
        for part, rows in parts.items():
            block = list[dict[str, Any]]()
            split = {"split": part} if TEST in parts else {}
            number = _numbering(rows, labels, numbers) if numbers else None
            for row in _rows(name, rows, vectors, labels):
                label = row[labels] if number is None else number(row[labels])
                block.append({"features": row[vectors], "label": label, **split})
                if len(block) == ROWS:
                    writer, block = _appended(writer, block, path), []
            if block:
                writer = _appended(writer, block, path)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        raise DataError(f"{name}: columns {vectors!r} and {labels!r} cannot be read ({first_line(error)})") from error
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise DataError(f"{name}: has no rows")


def _appended(writer: Any, block: list[dict[str, Any]], path: Path) -> Any:
    table = pa.Table.from_pylist(block, schema=None if writer is None else writer.schema)
    writer = writer or pq.ParquetWriter(path, table.schema)
    writer.write_table(table)
    return writer


def _split(files: LabelledFiles, rows: tuple[NDArray[np.int64], NDArray[np.int64]], seed: int) -> list[LabelledFiles]:
    return [files.subset(part, chosen, split=seed) for part, chosen in zip((TRAIN, TEST), rows, strict=True)]
