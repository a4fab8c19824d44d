"""Loads ready-made features from a .parquet: a column of lists of numbers, one of labels, a split and texts if any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sincere.data.dataset import Dataset
from sincere.data.feature_arrays import LONGEST_TEXT, FeaturePart, Rows, features_dataset, finite_float32
from sincere.data.load_options import LoadOptions
from sincere.data.named_arrays import LONGEST_LABEL, NamedArray, without_unused
from sincere.errors import DataError, MissingPackageError, first_line, missing_package

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise MissingPackageError(missing_package("data: a .parquet file", error)) from error

FEATURES = ("features", "embedding", "embeddings", "vector")
LABELS = ("label", "labels", "class", "target")
SPLIT = "split"
TEXTS = ("text", "path", "id")  # the first that there is
TRAIN, TEST, VALIDATION = "train", "test", ("val", "validation")
BATCH = 8192  # rows that are read at a time


def load_parquet(path: Path, options: LoadOptions, *, class_names: Sequence[str] | None = None) -> Dataset:
    """Load and check a .parquet.

    Features are lists of numbers, all of one length; labels are integers or strings. Messages count rows from 0.

    Args:
        path: The file.
        options: How to load it.
        class_names: Names of the classes that integers number; those that no row has are dropped. Without, the numbers
            are the names.

    Raises:
        DataError: A column is missing, or has a wrong type or value.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            part, split = _read(path, file)
    except DataError:
        raise
    except Exception as error:  # on damaged files pyarrow raises errors of many kinds
        raise DataError(f"{path}: is not a readable .parquet ({first_line(error)})") from error
    rows, notes = (None, ()) if split is None else _split_rows(split)
    names = None
    if class_names is not None:
        (labels,), names = without_unused([part.labels], NamedArray(path, "class names", np.array(class_names)))
        part = replace(part, labels=labels)
    remedy = f"add a column {SPLIT!r} with {TRAIN} and {TEST}"
    return features_dataset(path.stem, part, class_names=names, rows=rows, notes=notes, remedy=remedy, options=options)


def has_images(path: Path) -> bool:
    """Tell whether the samples of a .parquet are encoded images.

    A column of lists that is called as features are has precedence. Lists of another name may be of anything, such as
    bounding boxes.
    """
    try:
        with pq.ParquetFile(path) as file:
            types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
    except Exception:  # damaged: `load_parquet` says how
        return False
    if any(name in types and _is_list(types[name]) for name in FEATURES):
        return False
    return any(map(_is_image, types.values()))


def _is_image(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return {kind.field(i).name for i in range(kind.num_fields)} == {"bytes", "path"}
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _read(path: Path, file: Any) -> tuple[FeaturePart, NamedArray | None]:
    """Return features, labels and texts of all rows, and which part each row belongs to, if that is said."""
    types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
    if len(types) < len(file.schema_arrow.names):
        raise DataError(f"{path}: columns must have different names; got {', '.join(file.schema_arrow.names)}")
    if not file.metadata.num_rows:
        raise DataError(f"{path}: must have rows; got none")
    features = _features_name(path, types)
    labels = _one_of(path, types, LABELS)
    if labels is None:
        raise DataError(f"{path}: a column of labels is missing, called {_listed(LABELS)}; it has {', '.join(types)}")
    texts = next((name for name in TEXTS if name in types and _is_text(types[name])), None)
    others = [name for name in (labels, SPLIT, texts) if name in types]
    table = file.read(columns=others)
    part = FeaturePart(
        labels=_labels(path, labels, table.column(labels)),
        features=_features(path, features, file),
        texts=None if texts is None else NamedArray(path, _column(texts), _texts(table.column(texts))),
    )
    return part, _strings(path, SPLIT, table.column(SPLIT)) if SPLIT in types else None


def _features_name(path: Path, types: dict[str, Any]) -> str:
    """Return the column of features: the one with such a name, or else the only one of lists of numbers."""
    name = _one_of(path, types, FEATURES)
    if name is not None:
        if not _is_list(types[name]):
            raise DataError(f"{path}: {_column(name)} must hold lists of numbers; got {types[name]}")
        return name
    lists = [name for name, kind in types.items() if _is_list(kind)]
    if len(lists) == 1:
        return lists[0]
    problem = "a column of features is missing" if not lists else f"the columns {', '.join(lists)} could be features"
    wanted = f"it must hold lists of numbers and be called {_listed(FEATURES)}"
    raise DataError(f"{path}: {problem}; {wanted}; the file has {', '.join(types)}")


def _one_of(path: Path, types: dict[str, Any], names: tuple[str, ...]) -> str | None:
    found = [name for name in names if name in types]
    if len(found) > 1:
        raise DataError(f"{path}: columns {' and '.join(found)} could mean the same; keep one, or rename the others")
    return found[0] if found else None


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _column(name: str) -> str:
    return f"column {name!r}"


def _is_list(kind: Any) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def _is_string(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_string(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_text(kind: Any) -> bool:
    return _is_string(kind) or bool(pa.types.is_integer(kind))


def _features(path: Path, name: str, file: Any) -> NamedArray:
    """Return a column of lists as one array (n, d), read in batches.

    Raises:
        DataError: A list or a number is null, lists differ in length, or a value is not finite.
    """
    column, n = NamedArray(path, _column(name), np.empty(0)), file.metadata.num_rows
    values: NDArray[np.float32] | None = None
    row = 0
    for batch in file.iter_batches(batch_size=BATCH, columns=[name]):
        lists = batch.column(0)
        _refuse_null(column, lists, row)
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        if values is None:
            values = np.empty((n, int(lengths[0])), dtype=np.float32)
        width = values.shape[1]
        if len(other := np.flatnonzero(lengths != width)):
            got = f"{lengths[other[0]]:,} in row {row + other[0]} and {width:,} in row 0"
            raise column.refuse("must hold lists of the same length", got)
        numbers = lists.flatten()  # the values without the lists around them, not copied
        _refuse_null(column, numbers, row, per_row=width)
        block = numbers.to_numpy(zero_copy_only=False).reshape(len(lists), width)
        values[row : row + len(lists)] = finite_float32(NamedArray(path, column.name, block), first_row=row)
        row += len(lists)
    if values is None or row != n:
        raise DataError(f"{path}: is not a readable .parquet ({row:,} of {n:,} rows)")
    return NamedArray(path, column.name, values)


def _labels(path: Path, name: str, column: Any) -> NamedArray:
    """Return labels, integers or strings.

    Raises:
        DataError: They are neither, or one is null.
    """
    if _is_string(column.type):
        return _strings(path, name, column, longest=LONGEST_LABEL)
    labels = NamedArray(path, _column(name), np.empty(0))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    _refuse_null(labels, column)
    if not pa.types.is_integer(column.type):
        got = f"{column.type}, such as {column[0].as_py()!r} in row 0"
        whole = pa.types.is_floating(column.type) and bool(pc.all(pc.equal(column, pc.round(column))).as_py())
        raise labels.refuse("must hold integers or strings", got, "Convert them to integers" if whole else "")
    return NamedArray(path, labels.name, column.to_numpy())


def _strings(path: Path, name: str, column: Any, *, longest: int | None = None) -> NamedArray:
    """Return a column of strings.

    Raises:
        DataError: It holds something else, or one is null or too long.
    """
    strings = NamedArray(path, _column(name), np.empty(0))
    if not _is_string(column.type):
        raise strings.refuse("must hold strings", column.type)
    column = column.cast(pa.large_string())
    _refuse_null(strings, column)
    lengths = pc.utf8_length(column).to_numpy()
    if longest is not None and lengths.max() > longest:
        got = f"{lengths.max():,} in row {lengths.argmax()}"
        raise strings.refuse(f"must have at most {longest} characters each", got)
    different = column.unique()
    values = np.array(different.to_pylist())[pc.index_in(column, value_set=different).to_numpy()]
    return NamedArray(path, strings.name, values)


def _texts(column: Any) -> NDArray[np.str_]:
    shown = pc.fill_null(column.cast(pa.large_string()), "")
    return np.array(pc.utf8_slice_codeunits(shown, 0, LONGEST_TEXT + 1).to_pylist())


def _refuse_null(column: NamedArray, values: Any, start: int = 0, *, per_row: int = 1) -> None:
    if values.null_count:
        first = int(np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False))[0])
        raise column.refuse("must not be null", f"null in row {start + first // per_row}")


def _split_rows(split: NamedArray) -> tuple[tuple[Rows, Rows] | None, tuple[str, ...]]:
    """Return the rows of training and test samples, None if there is no test part, and notes for the user.

    Raises:
        DataError: A row belongs to another part, or there is no training part.
    """
    parts = np.unique(split.values)
    known = (TRAIN, TEST, *VALIDATION)
    for part in parts.tolist():
        if part not in known:
            row = int(np.flatnonzero(split.values == part)[0])
            raise split.refuse(f"must be {_listed(known)}", f"{part!r} in row {row}")
    if TRAIN not in parts:
        raise split.refuse(f"must be {TRAIN} in some rows", f"only {', '.join(parts.tolist())}")
    train, test = np.flatnonzero(split.values == TRAIN), np.flatnonzero(split.values == TEST)
    validation = np.flatnonzero(np.isin(split.values, VALIDATION))
    if not len(test):
        return ((train, validation) if len(validation) else None), ()
    if not len(validation):
        return (train, test), ()
    left_out = f"{len(validation):,} rows of the validation part are left out, because there is a test part"
    return (train, test), (f"{split.path}: {left_out}",)
