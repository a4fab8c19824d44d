"""The model card: what a model is, its data, metrics with confidence intervals, limits and use, in Markdown.

Front matter in YAML makes it readable for the Hugging Face hub. Starts no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sincere.catalog import PYTHON
from sincere.checks import printable
from sincere.loss_catalog import LOSSES, loss_title
from sincere.records.model import ModelSpec
from sincere.records.results import Results, Row
from sincere.report.tables import estimate_text, interval
from sincere.settings.data import source_name

MOST_CLASSES = 100  # listed with their counts
LONGEST, LONGEST_NOTE = 80, 400  # characters of a name, and of a note on results
TAGS = ("contrastive-learning", "supervised-contrastive-learning", "embeddings")


@dataclass(frozen=True)
class CardFacts:
    """What a card tells.

    Attributes:
        spec: What the model is.
        settings: Settings of its run by name, those that are known.
        digest: Content hash of the training data; empty if it is not known.
        train_counts: Number of training samples of each class or label; None if it is not known.
        results: Results of its evaluation; None if it was not evaluated.
        version: Version of the package.
        label_sets: Whether a training sample may have several labels.
    """

    spec: ModelSpec
    settings: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    train_counts: Sequence[int] | None = None
    results: Results | None = None
    version: str = ""
    label_sets: bool = False

    @property
    def data_name(self) -> str:
        """Name of the data set, without the path of a folder."""
        if self.results is not None:
            return self.results.data.name
        source = self.settings.get("data")
        return source_name(source) if isinstance(source, str) else ""

    @property
    def row(self) -> Row | None:
        """The metrics of the model."""
        return self.results.rows[0] if self.results is not None else None

    @property
    def noun(self) -> str:
        """What its inputs are called."""
        return "images" if self.spec.n_features is None else "samples"


def model_card(facts: CardFacts) -> str:
    """Return the card as Markdown."""
    loss = facts.settings.get("loss")
    title = f"{_plain(loss_title(loss))} embedding" if isinstance(loss, str) else "Embedding"
    of_data = f" of {code(facts.data_name)}" if facts.data_name else ""
    what = "an image" if facts.spec.n_features is None else f"{facts.spec.n_features:,} ready-made features"
    intro = (
        f"Maps {what} to an embedding of unit length, {facts.spec.dim} dimensions. Embeddings of the same class are "
        f"similar; new {facts.noun} are classified by the most similar training {facts.noun}. Trained with the Python "
        "package sincere, supervised contrastive learning in PyTorch."
    )
    sections = {
        "Model": _model(facts),
        "Data": _data(facts),
        "Metrics": _metrics(facts),
        "Limits": _limits(facts),
        "Use": _use(facts),
    }
    body = "\n\n".join(f"## {heading}\n\n" + "\n".join(lines) for heading, lines in sections.items())
    return f"{_front_matter(facts)}\n# {title}{of_data}\n\n{intro}\n\n{body}\n"


def code(text: str, *, in_table: bool = False, longest: int = LONGEST) -> str:
    r"""Return text as Markdown code, in which nothing is a link, HTML or markup; what is longer is cut off.

    Example:
        >>> print(code("<b>cat</b>"), code("a|b", in_table=True), code("a`b"))
        `<b>cat</b>` `a\|b` ``a`b``
    """
    shown = printable(text)
    shown = shown if len(shown) <= longest else f"{shown[:longest]}..."
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    if in_table:
        shown = shown.replace("|", "\\|")
    padding = " " if not shown.strip() or shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{padding}{shown}{padding}{fence}"


def quoted(text: str) -> str:
    r"""Return text as a string of YAML, in ASCII.

    Example:
        >>> print(quoted('a "b"'), quoted("é"))
        "a \"b\"" "\u00e9"
    """
    return '"' + "".join(map(_yaml_character, printable(text))) + '"'


def _yaml_character(character: str) -> str:
    number = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= number < 0x7F:
        return character
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _plain(text: str) -> str:
    """Return text without what could be markup."""
    return re.sub(r"[^\w .,+-]", "", printable(text))[:LONGEST].replace("_", "\\_")


def _front_matter(facts: CardFacts) -> str:
    images = facts.spec.n_features is None
    task = "image-feature-extraction" if images else "feature-extraction"
    lines = ["library_name: sincere", f"pipeline_tag: {task}", "tags:", *(f"- {tag}" for tag in TAGS)]
    if facts.results is not None and facts.row is not None:
        name = facts.data_name or "data"
        lines += ["metrics:", "- accuracy", "model-index:", f"- name: {quoted(f'sincere {name}')}", "  results:"]
        lines += ["  - task:", f"      type: {task}", "    dataset:", f"      name: {quoted(name)}"]
        lines += [f"      type: {quoted(name)}", "      split: test", "    metrics:"]
        for metric, about in facts.results.metrics.items():
            value = facts.row.metrics[metric].estimate
            lines += [
                f"    - type: {quoted(metric)}",
                f"      name: {quoted(about.title)}",
                f"      value: {value:.8f}",
            ]
    return "\n".join(["---", *lines, "---", ""])


def _model(facts: CardFacts) -> Iterator[str]:
    spec, settings = facts.spec, facts.settings
    yield "| | |\n|---|---|"
    loss = settings.get("loss")
    if isinstance(loss, str):
        paper = LOSSES[loss].paper if loss in LOSSES else ""
        yield f"| loss | {f'[{loss_title(loss)}]({paper})' if paper else code(loss_title(loss), in_table=True)} |"
    for name in ("temperature", "epochs", "batch_size", "seed"):
        if isinstance(settings.get(name), int | float):
            yield f"| {name.replace('_', ' ')} | {settings[name]:g} |"
    if spec.n_features is None:
        trained = "frozen: only the head was trained" if spec.frozen else "trained"
        start = "; started from ImageNet weights" if settings.get("pretrained") is True else ""
        yield f"| encoder | {code(spec.encoder.removeprefix(PYTHON), in_table=True)}, {trained}{start} |"
        colour = "grey" if spec.channels == 1 else "colour"
        yield (
            f"| input | {spec.size} x {spec.size} px, {colour}; images of any shape are cropped to the centre square "
            "and resized |"
        )
    else:
        yield f"| input | {spec.n_features:,} ready-made features |"
    yield f"| head | {code(spec.head, in_table=True)} |"
    yield f"| embedding | {spec.dim} dimensions, unit length |"
    yield f"| written by | sincere {facts.version} |"


def _data(facts: CardFacts) -> Iterator[str]:
    names, counts, row = facts.spec.class_names, facts.train_counts, facts.row
    parts = [f"{len(names):,} {'labels' if facts.label_sets else 'classes'}"]
    if counts is not None and not facts.label_sets:  # else they count some samples several times
        parts.append(f"{sum(counts):,} training {facts.noun}")
    if facts.results is not None:
        parts.append(f"{facts.results.data.n_test:,} test {facts.noun}")
    digest = facts.digest or (facts.results.data.digest if facts.results is not None else "")
    if digest:
        parts.append(f"content hash {code(digest)}")
    yield f"{code(facts.data_name) if facts.data_name else 'Training data'}: {', '.join(parts)}.\n"
    columns = ["label" if facts.label_sets else "class"]
    tested = [] if row is None else [of_class.n_test for of_class in row.classes or row.labels]
    columns += [f"training {facts.noun}"] if counts is not None else []
    columns += [f"test {facts.noun}"] if row is not None else []
    yield f"| {' | '.join(columns)} |\n|---{'|---:' * (len(columns) - 1)}|"
    for i, name in enumerate(names[:MOST_CLASSES]):
        cells = [code(name, in_table=True)]
        cells += [f"{counts[i]:,}"] if counts is not None else []
        cells += [f"{tested[i]:,}"] if row is not None else []
        yield f"| {' | '.join(cells)} |"
    if len(names) > MOST_CLASSES:
        yield f"\nand {len(names) - MOST_CLASSES:,} more."


def _metrics(facts: CardFacts) -> Iterator[str]:
    if facts.results is None or facts.row is None:
        yield "Not evaluated. `sincere evaluate RUN` measures it, with confidence intervals; then export it again."
        return
    data = facts.results.data
    unknown = f", and {data.n_unknown:,} of unknown classes" if data.n_unknown else ""
    yield f"On the {data.n_test:,} test {facts.noun}, which the model was not trained on{unknown}:\n"
    yield "| metric | estimate | 95% confidence interval |\n|---|---:|---:|"
    for name, about in facts.results.metrics.items():
        estimate = facts.row.metrics[name]
        ends = interval(estimate, share=about.share) + ("%" if about.share else "")
        yield f"| {code(about.title, in_table=True)} | {estimate_text(estimate, share=about.share)} | {ends} |"
    for baseline in facts.results.baselines:
        accuracy = estimate_text(baseline.accuracy, share=True)
        yield f"\nWithout training: {code(baseline.name)}, {code(baseline.about)}, has an accuracy of {accuracy}."
    for note in facts.results.notes:
        yield f"\nNote: {code(note, longest=LONGEST_NOTE)}"


def _limits(facts: CardFacts) -> Iterator[str]:
    noun, n_classes = facts.noun, len(facts.spec.class_names)
    measured = facts.results is not None and facts.results.data.n_unknown > 0
    if facts.results is not None:
        yield (
            f"- The intervals cover the variation between test {noun} of the same source, for this trained model. They "
            "do not cover another training seed, or data from elsewhere."
        )
    yield (
        f"- It was trained on the {n_classes:,} classes above only. `sincere transfer RUN --to DATA` measures it on "
        "others."
    )
    yield f"- A confidence is a share of votes among similar training {noun}, not a calibrated probability."
    yield (
        f"- {noun.capitalize()} of other classes get one of these classes, too, perhaps with a high confidence. "
        "`model.p_known` says how well they fit; "
        + ("AUROC and FPR95 above say how well that works." if measured else "how many of them it finds is not known.")
    )
    yield "- Biases and mistakes of the training data and their labels are in the embeddings."
    yield "- The package was tested on CPUs; other devices may round differently."


def _use(facts: CardFacts) -> Iterator[str]:
    argument = "" if not facts.spec.encoder.startswith(PYTHON) else ", encoder=encoder"
    inputs = '"new.jpg"' if facts.spec.n_features is None else "features"
    yield "```bash\npip install 'sincere[all,export]'\n```\n"
    yield "```python\nimport sincere\n"
    yield f'model = sincere.Model.from_pretrained("FOLDER"{argument})  # this folder, or its name on the hub'
    yield f"model.embed({inputs})  # (1, {facts.spec.dim})"
    yield f"model.predict({inputs})  # name of the class, if reference.safetensors is here\n```"
    if argument:
        yield "\n`encoder` is an `nn.Module` like the one that it was trained with; its weights come from this folder."
