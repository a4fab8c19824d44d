"""Tables of the package: what its extras bring, what its files hold, what faults it survives."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.markdown import described, markdown, megabytes
from sincere.evaluation.geometry import READING
from sincere.records.results import Record

EXTRAS = {  # what each one is for
    "": "the losses and the theory; torch with CUDA is nearly all of it",
    "all": "`sincere train`, `compare` and the other commands; the estimators for scikit-learn",
    "datasets": "data sets of Hugging Face",
    "export": "ONNX files, the Hugging Face hub",
    "lightning": "`sincere.integrations.lightning`",
    "metric-learning": "`sincere.integrations.metric_learning`",
    "mlflow": "`--log mlflow`",
    "parquet": "features in .parquet files",
    "search": "`sincere search`",
    "sentence-transformers": "`sincere.integrations.sentence_transformers`",
    "tensorboard": "`--log tensorboard`",
    "timm": "encoders of timm",
    "transformers": "`sincere.integrations.transformers`",
    "wandb": "`--log wandb`",
}


def extras(results: dict[str, Any]) -> str:
    rows = []
    for row in results["extras"]:
        command = f"`pip install '.[{row['extra']}]'`" if row["extra"] else "`pip install .`"
        rows.append([command, EXTRAS[row["extra"]], str(row["packages"]), megabytes(row["bytes"])])
    return markdown(["command", "for", "packages", "on disk"], rows) + "\n\n" + described(results)


def geometry() -> str:
    rows = [(f"`{name}`", reading.title, reading.about) for name, reading in READING.items()]
    return markdown(("metric", "title", "how to read it"), rows).replace("---:", "---")  # words, not numbers


def schema(record: type[Record], file: str) -> str:
    """Return the fields of a JSON file, a table for each kind of object, from the schema of its records."""
    whole = record.model_json_schema(by_alias=True)
    parts = {file: whole, **whole["$defs"]}
    text = []
    for name, part in parts.items():
        rows = [
            [f"`{field}`", _kind(about), about.get("description", "").replace("\n", " ")]
            for field, about in part["properties"].items()
        ]
        text.append(f"### {name}\n\n{part.get('description', '').splitlines()[0]}\n")
        text.append(markdown(["key", "type", "meaning"], rows).replace("---:", "---") + "\n")
    return "\n".join(text)


def _kind(about: dict[str, Any]) -> str:
    """Return the type of a field in the words of JSON."""
    if "$ref" in about:
        name = about["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in about:
        return " or ".join(_kind(option) for option in about["anyOf"])
    if "enum" in about or "const" in about:
        return " or ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    if "prefixItems" in about:
        return f"[{', '.join(_kind(item) for item in about['prefixItems'])}]"
    if about["type"] == "array" and isinstance(about.get("items"), dict):
        return f"list of {_kind(about['items'])}"
    if about["type"] == "object" and isinstance(about.get("additionalProperties"), dict):
        return f"mapping from name to {_kind(about['additionalProperties'])}"
    return str(about["type"])


def faults(results: dict[str, Any]) -> str:
    header = ["group", "cases", "survived", "tracebacks", "lost", "wrong", "executed"]
    rows = [[name, *(f"{counts[word]:,}" for word in header[1:])] for name, counts in results["groups"].items()]
    total = [f"**{results['counts'][word]:,}**" for word in header[1:]]
    minutes = f"The run took {results['seconds'] / 60:.0f} minutes, including the measurements below"
    note = "The random batches of the group `losses` are not included in the total."
    return f"{markdown(header, [*rows, ['**total**', *total]])}\n\n{note} {minutes}. {described(results)}"


def load(results: dict[str, Any]) -> str:
    found = results["load"]
    neighbours, loss, folder, report = (found[name] for name in ("neighbours", "loss", "folder", "report"))
    first, again = folder["first"], folder["again"]
    rows = [
        ["nearest neighbours of 10,000 queries among 1,000,000 x 128", *_used(neighbours)],
        ["SINCERE, value and gradient, 65,536 x 128", *_used(loss)],
        ["a folder of 100,000 images: hashed, decoded and cached", *_used(first)],
        ["the same folder again", *_used(again)],
        [
            "a report of 3 losses, 1,000 classes, 50,000 test images",
            f"{report['report with figures, s']:.1f} s",
            f"{report['report.html, MB']:.1f} MB page, {report['results.json, MB']:.1f} MB results.json",
        ],
    ]
    return markdown(["task", "time", "memory beyond the input"], rows)


def _used(case: dict[str, Any]) -> list[str]:
    return [f"{case['seconds']:.1f} s", f"{1000 * case['extra_peak_gb']:,.0f} MB"]
