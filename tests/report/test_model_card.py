"""The model card says what is known, and no name in it becomes markup."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from sincere.records.model import ModelSpec
from sincere.records.results import Results
from sincere.report.model_card import MOST_CLASSES, CardFacts, code, model_card, quoted
from tests.report.comparison_folder import CLASSES, HOSTILE_NAMES, make_comparison

yaml = pytest.importorskip("yaml", reason="needs PyYAML, which comes with huggingface_hub")
MARKUP = ("a|b", "`", "a``b`", "*b*", "# h", "</td>", "", " ", "\U0001f600", "\uffff")
LINKS = ("[x](javascript:alert(1))", "![](x)", "<https://a.example>")


def spec(names: tuple[str, ...] = CLASSES, **changes: Any) -> ModelSpec:
    options = {"encoder": "small", "channels": 1, "size": 8, "mean": (0.3,), "std": (0.4,), "class_names": names}
    return ModelSpec.model_validate(options | changes)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results.read(make_comparison(tmp_path_factory.mktemp("evaluated"), losses=["sincere"]))


def front_matter(card: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return content


def rendered(card: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(card.split("---\n", 2)[2]))


def test_an_evaluated_model(results: Results) -> None:
    settings = {"loss": "sincere", "temperature": 0.1, "epochs": 40, "seed": 3, "data": "/home/me/digits"}
    facts = CardFacts(spec(), settings, "abc", list(range(100, 110)), results, "1.2.3")
    card = model_card(facts)
    head = front_matter(card)
    assert head["library_name"] == "sincere"
    assert head["metrics"] == ["accuracy"]
    stored = results.rows[0].metrics
    values = {metric["type"]: metric["value"] for metric in head["model-index"][0]["results"][0]["metrics"]}
    assert values == {name: pytest.approx(stored[name].estimate, abs=1e-8) for name in ("margin", "knn1")}
    assert all(isinstance(value, float) for value in values.values())
    knn = stored["knn1"]
    assert f"| `1-NN accuracy` | {knn.estimate:.1%} | [{100 * knn.low:.1f}, {100 * knn.high:.1f}]% |" in card
    for line in (
        "# SINCERE embedding of `digits`",
        "| loss | [SINCERE](https://arxiv.org/abs/2309.14277) |",
        "| temperature | 0.1 |",
        "| epochs | 40 |",
        "| seed | 3 |",
        "| written by | sincere 1.2.3 |",
        "`digits`: 10 classes, 1,045 training images, 359 test images, content hash `abc`.",
        "| `zero` | 100 | 36 |",
        "Note: `the paper does not compare margins of eps-SupInfoNCE`",
    ):
        assert line in card.splitlines()
    limits = card.split("## Limits")[1]
    for words in ("not a calibrated probability", "other classes", "another training seed", "CPUs", "10 classes above"):
        assert words in limits
    assert "/home/me" not in card


def test_a_model_that_was_not_evaluated() -> None:
    card = model_card(CardFacts(spec(), {"loss": "sincere", "data": "/home/me/my photos"}))
    assert "`sincere evaluate RUN` measures it" in card
    assert "model-index" not in front_matter(card)
    assert "The intervals" not in card
    assert "# SINCERE embedding of `my photos`" in card
    assert "/home/me" not in card


def test_a_model_of_which_nothing_else_is_known() -> None:
    card = model_card(CardFacts(spec()))
    assert "# Embedding\n" in card
    assert "Training data: 10 classes." in card


def test_models_of_features_and_of_python_encoders() -> None:
    features = model_card(CardFacts(ModelSpec(encoder="small", n_features=768, class_names=("a", "b"))))
    assert "| input | 768 ready-made features |" in features
    assert "model.embed(features)" in features
    assert front_matter(features)["pipeline_tag"] == "feature-extraction"
    given = model_card(CardFacts(spec(encoder="python:Mine@0123456789ab")))
    assert 'from_pretrained("FOLDER", encoder=encoder)' in given


def test_many_classes_are_cut_off() -> None:
    card = model_card(CardFacts(spec(tuple(f"c{i}" for i in range(MOST_CLASSES + 5)))))
    assert card.count("| `c") == MOST_CLASSES
    assert "and 5 more." in card


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, *MARKUP, *LINKS])
def test_no_name_becomes_markup(name: str, results: Results) -> None:
    data = results.data.model_copy(update={"name": name})
    hostile = results.model_copy(update={"data": data, "notes": (name,)})
    settings = {"loss": f"python:{name}@0", "data": name, "temperature": name}
    plain = CardFacts(spec(("zero", "b", *CLASSES[2:])), {**settings, "loss": "python:x@0"}, "x", [1] * 10, results)
    card = model_card(CardFacts(spec(("zero", name, *CLASSES[2:])), settings, name, [1] * 10, hostile))
    card.encode("utf-8")
    assert front_matter(card)["library_name"] == "sincere"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u2028\u202e]", card)
    tags = [re.findall(r"<(?!/?code)/?\w+[^>]*>", rendered(text)) for text in (card, model_card(plain))]
    assert tags[0] == tags[1], "the same elements as with a harmless name"


def test_code_and_yaml_show_the_text() -> None:
    for text in ("a`b", "``", "x", "a|b", '"', "\\", "é", "\U0001f600"):
        html = MarkdownIt("commonmark").render(code(text))
        assert html.count("<code>") == 1
        assert yaml.safe_load(quoted(text)) == text
    assert rendered(f"---\n---\n| a |\n|---|\n| {code('x|y', in_table=True)} |\n").count("<td>") == 1


def test_it_starts_no_torch() -> None:
    statement = "import sys, sincere.report.model_card; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", statement], check=False).returncode == 0


def test_the_hub_can_read_it(results: Results, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    path = tmp_path / "README.md"
    path.write_text(model_card(CardFacts(spec(), {"loss": "sincere"}, results=results)))
    data = hub.ModelCard.load(path).data
    assert data.library_name == "sincere"
    assert [result.metric_type for result in data.eval_results] == ["margin", "knn1"]
