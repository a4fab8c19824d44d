"""The pages say what the code does: examples run, tables are the measured ones, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from benchmarks import tables

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=str)
@pytest.mark.parametrize("shape", [(16, 2, 8), (16, 8)])
def test_examples_run(page: Path, shape: tuple[int, ...]) -> None:
    """All Python blocks of a page, one after the other, with a batch at hand."""
    names = {"embeddings": torch.randn(*shape, requires_grad=True), "labels": torch.arange(16) % 4}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_are_those_of_the_stored_results(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "begin generated" in text
    assert tables.rewritten(text, tables.tables()) == text, "stale: run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / page).read_text()):
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


def test_no_path_of_a_machine_in_the_results() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        assert not re.search(r'"/\w+/', path.read_text())
