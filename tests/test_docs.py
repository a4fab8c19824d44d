"""The pages say what the code does: examples run, tables are the measured ones, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from benchmarks.tables import pages

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=str)
@pytest.mark.parametrize("shape", [(16, 2, 8), (16, 8)])
def test_examples_run(page: Path, shape: tuple[int, ...]) -> None:
    """All Python blocks of a page, one after the other, with a batch at hand."""
    names = {"embeddings": torch.randn(*shape, requires_grad=True), "labels": torch.arange(16) % 4}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return pages.tables()


@pytest.mark.parametrize("page", pages.PAGES)
def test_tables_are_those_of_the_stored_results(page: str, generated: dict[str, str]) -> None:
    text = (ROOT / page).read_text()
    assert pages.rewritten(text, generated) == text, "stale: run `make docs`"


def test_every_generated_part_is_on_a_page(generated: dict[str, str]) -> None:
    """A table that is lost when a page is moved or rewritten is noticed."""
    texts = "".join((ROOT / page).read_text() for page in pages.PAGES)
    assert set(re.findall(r"<!-- begin generated: ([\w-]+) -->", texts)) == set(generated)


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
