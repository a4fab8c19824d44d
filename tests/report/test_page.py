"""The report shows the results, loads nothing, escapes all text, and tolerates missing files."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sincere.cli.report import main
from sincere.errors import DataError, InputValueError
from sincere.loss_catalog import LOSSES as CATALOG
from sincere.messages import Messages
from sincere.records.files import read_json, write_json
from sincere.records.results import Results
from sincere.report.page import write_report
from sincere.report.result_figures import MOST_CLASSES
from sincere.report.tables import finding, show
from tests.report.comparison_folder import CLASSES, HOSTILE_NAMES, LOSSES, SCRIPT, chart_rows, make_comparison

FIGURES = ("confusion", "differences", "map", "meters", "similarity", "training")
STARTS = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}

PAPERS = tuple(loss.paper for loss in CATALOG.values())  # links, which load nothing


class Elements(HTMLParser):
    """Collects elements with their attributes, the texts that are shown, and the scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if self.cdata_elem == "script":
            self.scripts.append((attributes, data))
        elif tag != "style":
            self.texts.append(data)

    def data(self) -> dict[str, Any]:
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "report-data"))


def parsed(folder: Path) -> Elements:
    return Elements((folder / "report.html").read_text(encoding="utf-8"))


def written(folder: Path) -> Elements:
    write_report(folder, figures=False)
    return parsed(folder)


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit results.json; what comes out is checked to be results still."""
    path = folder / "results.json"
    content = read_json(path, remedy="")
    edit(content)
    write_json(path, content)
    Results.read(folder)


def test_sections_in_order(reported: Path) -> None:
    page = parsed(reported)
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"] == [
        "results", "similarity", "training", "classes", "map", "confusion", "labels", "reproduce",
    ]  # fmt: skip
    shown = "\n".join(page.texts)
    assert finding(Results.read(reported)) in shown
    assert "1,438 training, 359 test" in shown
    assert "The paper does not compare margins of eps-SupInfoNCE." in shown
    assert "sincere compare --data 'my photos/<b>'" in shown
    assert "temperature = 0.1" in shown
    assert [tag for tag, _ in page.elements].count("caption") == 2 + len(LOSSES)


def test_every_chart_has_an_element(reported: Path) -> None:
    page = parsed(reported)
    ids = {attributes.get("id") for _, attributes in page.elements}
    charts = page.data()["charts"]
    assert set(charts) <= ids
    assert {name.rsplit("-", 1)[0] for name in charts} == set(FIGURES) - {"map"}
    assert all(spec["description"] for spec in charts.values())


def test_names_are_escaped(reported: Path) -> None:
    text = (reported / "report.html").read_text(encoding="utf-8")
    assert SCRIPT not in text
    assert "my photos/<b>" not in text
    page = parsed(reported)
    assert page.texts.count(SCRIPT) >= 2 * len(LOSSES) + 1  # a class, what another is confused with, and the choice
    assert page.data()["class_names"] == list(CLASSES)
    data = next(text for attributes, text in page.scripts if attributes.get("id") == "report-data")
    assert not set("<>&") & set(data)


def test_hostile_names_are_drawn_and_written(tmp_path: Path) -> None:
    make_comparison(tmp_path, class_names=HOSTILE_NAMES, n_test=60)
    write_report(tmp_path)
    results = Results.read(tmp_path)
    assert list(results.data.class_names[:3]) == [r"\x1b[31mred", r"a\nb", r"\udcff"]
    assert len(list((tmp_path / "figures").iterdir())) == len(FIGURES) * len(STARTS)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not set("\x00\x1b\u202e\u2028") & set(text)
    svg = (tmp_path / "figures" / "confusion.svg").read_text(encoding="utf-8")
    assert r"\x1b[31mred" in svg
    show(results, None, Messages(Console(file=(printed := io.StringIO()))))
    assert "\x1b" not in printed.getvalue()


def test_no_element_loads_anything(reported: Path) -> None:
    page = parsed(reported)
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base"), tag
        assert str(attributes.get("src", "data:")).startswith("data:"), tag
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith(("#", "figures/", *PAPERS))
    style = re.search(r"<style>(.*?)</style>", (reported / "report.html").read_text(encoding="utf-8"), re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import", style[1])


def test_the_policy_allows_these_scripts_alone(reported: Path) -> None:
    page = parsed(reported)
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    scripts = [text for attributes, text in page.scripts if "type" not in attributes]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert re.findall("'sha256-(.*?)'", policy) == hashes
    assert len(hashes) == 4


def test_the_page_is_small(reported: Path) -> None:
    assert (reported / "report.html").stat().st_size < 2_000_000


def test_figures_in_three_formats(reported: Path) -> None:
    files = sorted(path.name for path in (reported / "figures").iterdir())
    assert files == sorted(f"{name}.{suffix}" for name in FIGURES for suffix in STARTS)
    for name in files:
        assert (reported / "figures" / name).read_bytes().startswith(STARTS[name[-3:]]), name
    svg = (reported / "figures" / "similarity.svg").read_text(encoding="utf-8")
    assert all(title in svg for title in ("SINCERE", "SupCon", "margin 0.", "cosine similarity"))
    links = {attributes["href"] for tag, attributes in parsed(reported).elements if tag == "a"}
    assert {link.removeprefix("figures/") for link in links if link.startswith("figures/")} == set(files)


def test_without_figures(tmp_path: Path) -> None:
    page = written(make_comparison(tmp_path))
    assert not (tmp_path / "figures").exists()
    assert {a["href"] for tag, a in page.elements if tag == "a" and not str(a["href"]).startswith("#")} <= {*PAPERS}
    assert not list(tmp_path.glob(".*"))


def test_one_run(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",), class_names=("cat", "dog"), n_test=20)
    charts = written(tmp_path).data()["charts"]
    assert sorted(charts) == ["confusion-0", "meters-0", "meters-1", "similarity-0", "training-0"]


def test_six_losses_two_seeds_two_hundred_classes(tmp_path: Path) -> None:
    losses = (*LOSSES, "infonce", "mine", "yours")
    names = [f"class {i}" for i in range(200)]
    make_comparison(tmp_path, losses=losses, seeds=(3, 4), class_names=names, n_test=300, epochs=10)
    page = written(tmp_path)
    data = page.data()
    assert [key for key in data["charts"] if key.startswith("similarity")] == [f"similarity-{i}" for i in range(6)]
    assert [len(classes) for classes in data["classes"]] == [200] * 6
    assert page.texts.count("Shown: the runs with seed 3.") == 4
    assert any(f"Of 200 classes, the {MOST_CLASSES} with the most mistakes" in text for text in page.texts)
    assert len(data["charts"]["confusion-0"]["layer"][0]["encoding"]["x"]["scale"]["domain"]) == MOST_CLASSES
    runs = {row["seed"] for row in chart_rows(data["charts"]["training-4"])}
    assert runs == {3, 4}
    pushed = data["charts"]["meters-0"]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert pushed == ["SINCERE", "SupCon"]  # the others have no such measure
    assert (tmp_path / "report.html").stat().st_size < 6_000_000


def test_missing_files_leave_gaps(tmp_path: Path) -> None:
    """Classes without images, no divergence, no training loss, no log, no map, no manifest, no config."""

    def edit(content: dict[str, Any]) -> None:
        for row in content["rows"]:
            row["train_loss"] = None
            row["finished"] = False
            for one in row["classes"]:
                one["divergence"] = one["divergence_cap"] = None

    make_comparison(tmp_path, losses=("sincere", "supcon"), empty_classes=2)
    change(tmp_path, edit)
    for loss in ("sincere", "supcon"):
        for name in ("metrics.jsonl", "map.npz", "manifest.json", "config.toml"):
            (tmp_path / "runs" / f"{loss}-0" / name).unlink()
    page = written(tmp_path)
    shown = "\n".join(page.texts)
    assert "The training log, metrics.jsonl, is missing." in shown
    assert "No map of SINCERE, seed 0: " in shown
    assert "map.npz: is missing; evaluate the run again" in shown
    assert "SINCERE, seed 0, SupCon, seed 0" in shown  # not finished
    assert 'loss = "supcon"' in shown  # from results.json
    data = page.data()
    assert data["map"] is None
    assert data["classes"][0][-1] == {"bars": [], "medians": [], "text": "no test images"}


def test_a_map_of_one_run_is_missing(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere", "supcon"))
    (tmp_path / "runs" / "sincere-0" / "map.npz").write_bytes(b"no archive")
    page = written(tmp_path)
    assert [drawn["loss"] for drawn in page.data()["map"]["maps"]] == ["SupCon"]
    assert any("map.npz: is damaged" in text for text in page.texts)


def test_values_that_are_not_numbers_leave_gaps(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",), epochs=3)
    log = tmp_path / "runs" / "sincere-0" / "metrics.jsonl"
    row = {"epoch": 4, "seconds": 9, "loss": float("nan"), "chance": 6.2, "floor": 0.0, "repulsion_share": None}
    log.write_text(log.read_text() + json.dumps(row) + "\n")
    values = chart_rows(written(tmp_path).data()["charts"]["training-0"])
    assert [value["epoch"] for value in values if value["quantity"] == "loss"] == [1, 2, 3]
    assert [value["epoch"] for value in values if value["quantity"] == "chance"] == [1, 2, 3, 4]


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",))
    run = tmp_path / "runs" / "sincere-0"
    change(tmp_path, lambda content: content["rows"][0].update(folder="."))
    (tmp_path / "results.json").rename(run / "results.json")
    assert "training-0" in written(run).data()["charts"]


def test_stale_figures_are_removed_and_user_files_stay(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",), n_test=30)
    figures = tmp_path / "figures"
    figures.mkdir()
    kept = ("mine.png", "differences.txt", "notes.svg")
    for name in (*kept, "differences.png", "differences.pdf"):  # a single run has no differences
        (figures / name).write_text("earlier")
    write_report(tmp_path)
    assert not list(figures.glob("differences.p*"))
    assert all((figures / name).read_text() == "earlier" for name in kept)
    assert not list(figures.glob(".*"))


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no results\.json"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_comparison(tmp_path, losses=("sincere",), n_test=30)
    main([str(tmp_path), "--no-figures"])
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    assert not (tmp_path / "figures").exists()
    with pytest.raises(InputValueError, match=r"^report: .*FOLDER"):
        main([])


def loads_torch(statement: str) -> bool:
    code = f"{statement}\nimport sys; sys.exit(3 if 'torch' in sys.modules else 0)"
    returned = subprocess.run([sys.executable, "-c", code], check=False).returncode
    assert returned in (0, 3)
    return returned == 3


def test_no_torch(tmp_path: Path) -> None:
    make_comparison(tmp_path, losses=("sincere",), n_test=30)
    code = "from pathlib import Path\nfrom sincere.report.page import write_report\n"
    code += f"write_report(Path({str(tmp_path)!r}), figures=False)"
    assert not loads_torch(code)
    assert (tmp_path / "report.html").exists()


def test_the_test_above_can_fail() -> None:
    assert loads_torch("import torch")
