"""Data sets of Hugging Face `datasets` are loaded as the same files, or arrays, would be."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import sincere
from sincere.data.catalog import load_source
from sincere.data.identity import source_digest
from sincere.data.load_options import LoadOptions
from sincere.errors import DataError

datasets = pytest.importorskip("datasets")
NAMES = ("cat", "dog", "frog/toad")  # not every name can be that of a folder


@pytest.fixture
def options(tmp_path: Path) -> LoadOptions:
    return LoadOptions(cache=tmp_path / "cache")


def pictures(n: int, *, seed: int = 0) -> tuple[list[bytes], list[int]]:
    generator = np.random.default_rng(seed)
    labels = [i % 3 for i in range(n)]
    encoded = []
    for label in labels:
        pixels = np.clip(60 + 60 * label + generator.normal(0, 20, (20, 24, 3)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        encoded.append(file.getvalue())
    return encoded, labels


def image_set(n: int, *, seed: int = 0) -> Any:
    encoded, labels = pictures(n, seed=seed)
    columns = {"image": [{"bytes": content, "path": None} for content in encoded], "label": labels}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(NAMES))})
    return datasets.Dataset.from_dict(columns, features=features)


def vector_set(n: int, *, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    columns = {"embedding": generator.normal(size=(n, 5)).tolist(), "label": [NAMES[i % 3] for i in range(n)]}
    return datasets.Dataset.from_dict(columns)


def saved(path: Path, form: str) -> str:
    """Write 30 training and 12 test images in one of the forms, and return the path to load."""
    parts = datasets.DatasetDict({"train": image_set(30), "test": image_set(12, seed=1)})
    if form == "saved":
        parts.save_to_disk(str(path / "set"))
    elif form == "shards":
        (path / "set" / "data").mkdir(parents=True)
        for name, part in parts.items():
            for shard in range(2):
                file = path / f"set/data/{name}-0000{shard}-of-2.parquet"
                part.shard(2, shard, contiguous=True).to_parquet(str(file))
    return str(path / "set")


@pytest.mark.parametrize("form", ["saved", "shards"])
def test_images_are_those_that_were_stored(form: str, tmp_path: Path, options: LoadOptions) -> None:
    path = saved(tmp_path, form)
    data = load_source(path, options)
    assert (len(data.train), len(data.test), data.class_names) == (30, 12, NAMES)
    assert data.train.labels.tolist() == [i % 3 for i in range(30)]
    expected = np.asarray(Image.open(io.BytesIO(pictures(30)[0][7])))[:, 2:22]  # the centre square
    pixels = data.train.items.gather(np.array([7]))[0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(pixels, expected)
    again = load_source(path, options)
    assert again.digest == data.digest
    assert torch.equal(again.test.items.gather(np.arange(12)), data.test.items.gather(np.arange(12)))


def test_given_in_python_equals_saved(tmp_path: Path, options: LoadOptions) -> None:
    parts = datasets.DatasetDict({"train": image_set(30), "test": image_set(12, seed=1)})
    given = load_source(parts, options)
    stored = load_source(saved(tmp_path, "saved"), options)
    rows = np.arange(30)
    assert torch.equal(given.train.items.gather(rows), stored.train.items.gather(rows))


def test_one_split_is_split_by_class(tmp_path: Path, options: LoadOptions) -> None:
    image_set(30).to_parquet(str(tmp_path / "pets.parquet"))
    data = load_source(str(tmp_path / "pets.parquet"), options)
    assert len(data.train) + len(data.test) == 30
    assert np.bincount(data.test.labels).tolist() == [2, 2, 2]
    assert (
        "pets: has no test part; it was split by class into 24 images for training and 6 for testing (seed 0)"
        in data.notes
    )


def test_images_that_fit_nowhere_are_streamed(tmp_path: Path) -> None:
    path = saved(tmp_path, "saved")
    small = load_source(path, LoadOptions(cache=tmp_path / "cache"))
    streamed = load_source(path, LoadOptions(cache=tmp_path / "cache", cache_limit_bytes=0))
    assert type(streamed.train.items).__name__ == "StreamedImages"
    rows = np.array([3, 11])
    assert torch.equal(streamed.train.items.gather(rows), small.train.items.gather(rows))


def test_vectors(tmp_path: Path, options: LoadOptions) -> None:
    parts = datasets.DatasetDict({"train": vector_set(30), "validation": vector_set(9, seed=1)})
    parts.save_to_disk(str(tmp_path / "set"))
    data = load_source(str(tmp_path / "set"), options)
    assert data.train.are_features
    assert (len(data.train), len(data.test), data.class_names) == (30, 9, NAMES)
    values = data.train.items.gather(np.arange(30)).numpy()
    np.testing.assert_allclose(values, np.array(vector_set(30)["embedding"]), rtol=1e-6)


def labelled_vectors(labels: list[int], *, seed: int = 0) -> Any:
    """Vectors with the classes of a ClassLabel, in which -1 means that the class is not known."""
    vectors = np.random.default_rng(seed).normal(size=(len(labels), 5)).tolist()
    kinds = {
        "embedding": datasets.Sequence(datasets.Value("float64")),
        "label": datasets.ClassLabel(names=["z", "b", "a"]),
    }
    return datasets.Dataset.from_dict({"embedding": vectors, "label": labels}, features=datasets.Features(kinds))


def test_vectors_of_an_unknown_class_have_no_label(options: LoadOptions) -> None:
    known = [0, 2] * 15
    parts = datasets.DatasetDict({"train": labelled_vectors(known + [-1] * 9), "test": labelled_vectors([0, 2, 2])})
    data = load_source(parts, options)
    assert data.class_names == ("z", "a")  # in their order, without the one that nothing has
    assert data.train.labels.tolist() == [label // 2 for label in known]
    assert data.test.labels.tolist() == [0, 1, 1]
    assert data.n_unlabelled == 9


@pytest.mark.parametrize("kind", ["images", "vectors"])
@pytest.mark.parametrize("test_labels", ["numbered in another way", "strings"])
def test_parts_that_number_their_classes_differently(kind: str, test_labels: str, options: LoadOptions) -> None:
    """`class_encode_column` numbers the classes of each part by itself."""
    make = image_set if kind == "images" else vector_set
    named = [["ant", "bee", "cat"] * 4, ["cat", "bee", "cat"]]
    parts = {}
    for part, names in zip(("train", "test"), named, strict=True):
        rows = make(len(names)).remove_columns("label").add_column("label", names)
        parts[part] = rows if part == "test" and test_labels == "strings" else rows.class_encode_column("label")
    assert getattr(parts["test"].features["label"], "names", None) in (None, ["bee", "cat"])
    data = load_source(datasets.DatasetDict(parts), options)
    for samples, names in zip((data.train, data.test), named, strict=True):
        assert [data.class_names[label] for label in samples.labels] == names


def test_a_test_part_without_labels_is_refused(options: LoadOptions) -> None:
    parts = datasets.DatasetDict({"train": labelled_vectors([0, 2] * 15), "test": labelled_vectors([-1] * 6)})
    with pytest.raises(DataError, match="test labels must be 0 to 1; got -1"):
        load_source(parts, options)


def test_images_of_an_unknown_class_have_no_label(options: LoadOptions) -> None:
    train, test = (image_set(n).filter(lambda row: row["label"] != 1) for n in (30, 6))
    unknown = train.select(range(3)).map(lambda row: {"label": -1}, features=train.features)
    parts = datasets.DatasetDict({"train": datasets.concatenate_datasets([train, unknown]), "test": test})
    data = load_source(parts, options)
    assert data.class_names == ("cat", "frog/toad")
    assert data.n_unlabelled == 3
    assert set(data.train.labels.tolist()) == {0, 1}


@pytest.mark.parametrize("kind", ["numpy", "torch", "transform"])
def test_the_format_that_rows_are_shown_in_does_not_matter(kind: str, options: LoadOptions, tmp_path: Path) -> None:
    rows, vectors = image_set(30), vector_set(30)
    if kind == "transform":
        shown, shown_vectors = (each.with_transform(lambda batch: {"other": [0]}) for each in (rows, vectors))
    else:
        shown, shown_vectors = rows.with_format(kind), vectors.with_format(kind)
    for plain, formatted in ((rows, shown), (vectors, shown_vectors)):
        one = load_source(plain, options)
        other = load_source(formatted, LoadOptions(cache=tmp_path / "other"))
        assert other.train.labels.tolist() == one.train.labels.tolist()
        each = np.arange(len(one.train))
        assert torch.equal(other.train.items.gather(each), one.train.items.gather(each))


def test_changed_content_is_noticed(tmp_path: Path, options: LoadOptions) -> None:
    path = saved(tmp_path, "saved")
    before = source_digest(path), load_source(path, options).digest
    datasets.DatasetDict({"train": image_set(30, seed=5), "test": image_set(12)}).save_to_disk(str(tmp_path / "other"))
    for file in (tmp_path / "set").rglob("*"):
        if file.is_file():
            file.unlink()
    for file in (tmp_path / "other").rglob("*"):
        if file.is_file():
            (tmp_path / "set" / file.relative_to(tmp_path / "other")).write_bytes(file.read_bytes())
    assert source_digest(path) != before[0]
    assert load_source(path, options).digest != before[1]


def test_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINCERE_HOME", str(tmp_path / "home"))
    options = {"epochs": 3, "batch_size": 12, "encoder": "small", "size": 16, "quiet": True}
    parts = datasets.DatasetDict({"train": image_set(30), "test": image_set(12, seed=1)})
    named = sincere.train(data=saved(tmp_path, "saved"), out=tmp_path / "a", **options)
    given = sincere.train(data=parts, out=tmp_path / "b", **options)
    assert named.knn1_test == given.knn1_test > 0.6


def without(column: str) -> Any:
    return image_set(12).remove_columns(column)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            lambda: without("label"),
            "a column of integer or string labels is missing, called label, labels, class or target",
        ),
        (
            lambda: image_set(12).cast_column("label", datasets.Value("float32")),
            r"it has image \(PIL.Image.Image\), label \(float32\)",
        ),
        (lambda: without("image"), "a column of images or vectors is missing"),
        (
            lambda: datasets.DatasetDict({"extra": image_set(12), "test": image_set(12)}),
            "must have a split named train; got extra, test",
        ),
        (lambda: image_set(12).select([]), "has no rows"),
    ],
)
def test_bad_sets(value: Any, message: str, options: LoadOptions) -> None:
    with pytest.raises(DataError, match=message):
        load_source(value(), options)


def test_damaged_folder(tmp_path: Path, options: LoadOptions) -> None:
    path = Path(saved(tmp_path, "saved"))
    next(path.rglob("*.arrow")).write_bytes(b"no arrow")
    with pytest.raises(DataError, match="is not a readable data set of the library datasets"):
        load_source(str(path), options)


def test_two_sets_of_one_name_keep_their_entries(tmp_path: Path, options: LoadOptions) -> None:
    first, second = image_set(30), image_set(30, seed=5)
    kept = load_source(first, options).train.items.gather(np.arange(10))
    other = load_source(second, options).train.items.gather(np.arange(10))
    assert not torch.equal(kept, other)
    entries = sorted(path.name for path in options.cache.iterdir() if path.is_dir())
    assert torch.equal(load_source(first, options).train.items.gather(np.arange(10)), kept)
    assert sorted(path.name for path in options.cache.iterdir() if path.is_dir()) == entries  # nothing was made again


def test_a_set_without_a_fingerprint_is_refused(options: LoadOptions) -> None:
    with pytest.raises(DataError, match="an IterableDataset cannot be told from another one; save it as parquet"):
        load_source(image_set(30).to_iterable_dataset(), options)


def test_lists_beside_images_are_vectors_only_by_name(tmp_path: Path, options: LoadOptions) -> None:
    """Such as bounding boxes, of which there is one in each row."""
    boxes = [[1.0, 2.0, 3.0, 4.0]] * 30
    images = image_set(30).add_column("bbox", boxes)
    file = tmp_path / "images.parquet"
    images.to_parquet(str(file))
    bytes_only = datasets.Dataset.from_dict(
        {"jpg": pictures(30)[0], "label": pictures(30)[1], "bbox": boxes}  # as in WebDataset
    )
    for source in (images, file, bytes_only):
        data = load_source(source, options)
        assert not data.train.are_features
        assert (len(data.train), len(data.test)) == (24, 6)
    named = image_set(30).add_column("embedding", boxes)
    assert load_source(named, options).train.are_features
