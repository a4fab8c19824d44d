"""Ready-made features in a .parquet give the same data as in an .npz; a wrong file gives a one-line error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sincere
from sincere.data.catalog import load_source
from sincere.data.dataset import Dataset
from sincere.data.load_options import LoadOptions
from sincere.errors import DataError
from tests.data.test_feature_files import values_of

pa = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
pq = pytest.importorskip("pyarrow.parquet")

FEATURES = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
LABELS = np.arange(60) % 3
WORDS = np.array(["bird", "cat", "dog"])[LABELS]
SPLIT = np.array(["train"] * 45 + ["test"] * 15)


def lists(values: np.ndarray = FEATURES, kind: Any = None) -> Any:
    return pa.array(list(values), type=kind)


def load(folder: Path, *, row_group_size: int | None = None, **columns: Any) -> Dataset:
    good = {"features": lists(), "label": WORDS, "split": SPLIT}
    chosen = {name: values for name, values in {**good, **columns}.items() if values is not None}
    pq.write_table(pa.table(chosen), folder / "a.parquet", row_group_size=row_group_size)
    return load_source(folder / "a.parquet", LoadOptions())


def message(folder: Path, **columns: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(folder, **columns)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{folder / 'a.parquet'}: ")


def test_load(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert (data.name, data.class_names, data.noun, data.notes) == ("a", ("bird", "cat", "dog"), "samples", ())
    assert torch.equal(values_of(data.train), torch.from_numpy(FEATURES[:45]))
    assert torch.equal(values_of(data.test), torch.from_numpy(FEATURES[45:]))
    assert data.train.labels.tolist() == LABELS[:45].tolist()
    assert data.test.ids.tolist() == list(range(45, 60))
    np.savez(tmp_path / "b.npz", features=FEATURES, labels=WORDS)
    same = sincere.load_dataset(tmp_path / "b.npz")
    assert load(tmp_path, split=None).digest == same.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda: {"features": lists(kind=pa.list_(pa.float32(), 5))},
        lambda: {"features": lists(kind=pa.large_list(pa.float64()))},
        lambda: {"label": pa.array(WORDS).dictionary_encode()},
        lambda: {"label": pa.array(WORDS, type=pa.large_string())},
        lambda: {"features": None, "vector": lists()},
        lambda: {"features": None, "state": lists(), "numbers": np.arange(60), "tags": [["a"]] * 60},
        lambda: {"label": None, "target": WORDS},
        lambda: {"split": pa.array(np.where(SPLIT == "test", "validation", SPLIT)).dictionary_encode()},
        lambda: {"row_group_size": 7},
    ],
)
def test_other_forms_give_the_same_data(change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load(tmp_path).digest
    monkeypatch.setattr("sincere.data.parquet.BATCH", 4)
    assert load(tmp_path, **change()).digest == expected


def test_integers(tmp_path: Path) -> None:
    whole = (10 * FEATURES).astype(np.int16)
    data = load(tmp_path, label=LABELS.astype(np.uint8), features=lists(whole))
    assert data.class_names == ("0", "1", "2")
    assert torch.equal(values_of(data.train), torch.from_numpy(whole[:45]).float())
    coded = pa.array(LABELS).dictionary_encode()
    assert load(tmp_path, label=coded).train.labels.tolist() == LABELS[:45].tolist()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"text": ["one"] * 60, "path": ["two"] * 60}, "one"),
        ({"path": pa.array(["p"] * 60).dictionary_encode(), "id": np.arange(60)}, "p"),
        ({"id": np.arange(60)}, "45"),
        ({"text": pa.array([None] * 60, pa.string())}, ""),
        ({"text": ["\u00fc" * 300] * 60}, "\u00fc" * 199 + "\u2026"),
        ({"text": [[1.0]] * 60, "path": ["p"] * 60, "features": lists()}, "p"),
    ],
)
def test_texts(columns: dict[str, Any], expected: str, tmp_path: Path) -> None:
    texts = load(tmp_path, **columns).test.texts
    assert texts is not None
    assert texts[0] == expected


def test_a_split_with_three_parts_leaves_validation_out(tmp_path: Path) -> None:
    split = np.array(["train"] * 30 + ["val"] * 15 + ["test"] * 15)
    data = load(tmp_path, split=split)
    assert (len(data.train), data.test.ids[0]) == (30, 45)
    left_out = "15 rows of the validation part are left out, because there is a test part"
    assert data.notes == (f"{tmp_path / 'a.parquet'}: {left_out}",)


def test_without_a_test_part_the_file_is_split(tmp_path: Path) -> None:
    for split in (None, np.array(["train"] * 60)):
        data = load(tmp_path, split=split)
        assert (len(data.train), len(data.test)) == (48, 12)
        assert "it was split by class into 48 samples for training and 12 for testing" in data.notes[0]


def with_null(values: Any, row: int) -> Any:
    return [*values[:row], None, *values[row + 1 :]]


def ragged() -> list[list[float]]:
    rows = FEATURES.tolist()
    return [*rows[:7], rows[7][:3], *rows[8:]]


def damaged(value: float, kind: str = "f4") -> Any:
    values = FEATURES.astype(kind)
    values[50, 3] = value
    return lists(values)


NAMES = "features, embedding, embeddings or vector"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"features": damaged(np.nan)}, "column 'features' must be finite; got nan in row 50, column 3"),
        (
            {"features": damaged(1e300, "f8")},
            "column 'features' must be from -1e+30 to 1e+30; got 1e+300 in row 50, column 3",
        ),
        (
            {"features": ragged()},
            "column 'features' must hold lists of the same length; got 3 in row 7 and 5 in row 0",
        ),
        ({"features": with_null(FEATURES.tolist(), 9)}, "column 'features' must not be null; got null in row 9"),
        (
            {"features": [*FEATURES.tolist()[:20], [1.0, None, 2, 3, 4], *FEATURES.tolist()[21:]]},
            "column 'features' must not be null; got null in row 20",
        ),
        ({"features": [[]] * 60}, "column 'features' must hold lists of numbers; got list<element: null>"),
        ({"features": lists(np.zeros((60, 0)))}, "column 'features' must not be empty; got shape (60, 0)"),
        ({"features": WORDS}, "column 'features' must hold lists of numbers; got string"),
        (
            {"features": None},
            f"a column of features is missing; it must hold lists of numbers and be called {NAMES}; "
            "the file has label, split",
        ),
        (
            {"features": None, "a": lists(), "b": lists()},
            f"the columns a, b could be features; it must hold lists of numbers and be called {NAMES}; "
            "the file has label, split, a, b",
        ),
        ({"vector": lists()}, "columns features and vector could mean the same; keep one, or rename the others"),
        (
            {"label": None},
            "a column of labels is missing, called label, labels, class or target; it has features, split",
        ),
        ({"class": WORDS}, "columns label and class could mean the same; keep one, or rename the others"),
        (
            {"label": LABELS + 0.5},
            "column 'label' must hold integers or strings; got double, such as 0.5 in row 0",
        ),
        (
            {"label": LABELS.astype("f4")},
            "column 'label' must hold integers or strings; got float, such as 0.0 in row 0. Convert them to integers",
        ),
        (
            {"label": LABELS == 0},
            "column 'label' must hold integers or strings; got bool, such as True in row 0",
        ),
        ({"label": with_null(WORDS.tolist(), 3)}, "column 'label' must not be null; got null in row 3"),
        ({"label": with_null(LABELS.tolist(), 4)}, "column 'label' must not be null; got null in row 4"),
        (
            {"label": [*WORDS[:59], "x" * 1000]},
            "column 'label' must have at most 255 characters each; got 1,000 in row 59",
        ),
        ({"label": [*WORDS[:59], ""]}, "column 'label' must not be empty strings; got one at position 59"),
        ({"label": LABELS + 1}, "a: class '0' has no training sample"),
        ({"split": np.arange(60)}, "column 'split' must hold strings; got int64"),
        (
            {"split": [*SPLIT[:59], "dev"]},
            "column 'split' must be train, test, val or validation; got 'dev' in row 59",
        ),
        ({"split": ["test"] * 60}, "column 'split' must be train in some rows; got only test"),
        (
            {"split": None, "label": ["bird", *["cat", "dog"] * 29, "dog"]},
            "class 'bird' has a single sample, which cannot be split in two parts; "
            "add more, or add a column 'split' with train and test",
        ),
    ],
)
def test_refused(columns: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sincere.data.parquet.BATCH", 8)
    assert message(tmp_path, **columns) == text


def test_no_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"features": lists(FEATURES[:0]), "label": WORDS[:0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="must have rows; got none"):
        load_source(tmp_path / "a.parquet", LoadOptions())


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    load(tmp_path)
    intact = path.read_bytes()
    generator = np.random.default_rng(0)
    contents = [b"", b"nonsense", intact[: len(intact) // 2]]
    for _ in range(60):
        content = bytearray(intact)
        for position in generator.integers(0, len(intact), 5):
            content[position] ^= 255
        contents.append(bytes(content))
    messages = []
    for content in contents:
        path.write_bytes(content)
        try:
            load_source(path, LoadOptions())
        except DataError as error:  # any other kind fails the test
            messages.append(str(error))
    assert len(messages) > 30
    assert not any("\n" in text for text in messages)


def test_a_class_of_rows_that_are_left_out_is_no_class(tmp_path: Path) -> None:
    split = np.array(["train"] * 40 + ["val"] * 5 + ["test"] * 15)
    words = np.where(split == "val", "only here", WORDS)
    data = load(tmp_path, label=words, split=split)
    assert data.class_names == ("bird", "cat", "dog")
    assert torch.equal(values_of(data.test), torch.from_numpy(FEATURES[45:]))
    assert data.test.ids.tolist() == list(range(45, 60))


def test_paths(tmp_path: Path) -> None:
    load(tmp_path)
    short = (tmp_path / "a.parquet").rename(tmp_path / "a.pq")
    assert sincere.load_dataset(short).name == "a"
    with pytest.raises(DataError, match=r"a\.parquet: no such file$"):
        sincere.load_dataset(tmp_path / "a.parquet")
    (tmp_path / "many.parquet").mkdir()
    with pytest.raises(DataError, match=r"many\.parquet: is a folder without .parquet files$"):
        sincere.load_dataset(tmp_path / "many.parquet")


def test_bytes_beside_lists_of_any_name_are_taken_for_images(tmp_path: Path) -> None:
    """Such as identifiers: rather an error than features that are bounding boxes."""
    pytest.importorskip("datasets")
    columns = {"features": None, "mine": lists(), "uuid": pa.array([bytes([i]) for i in range(60)])}
    with pytest.raises(DataError, match="column 'uuid' must hold encoded images; row 0 is none; if these"):
        load(tmp_path, **columns)
    data = load(tmp_path, uuid=columns["uuid"])  # called features
    assert torch.equal(values_of(data.train), torch.from_numpy(FEATURES[:45]))
