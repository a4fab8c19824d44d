"""One comparison and its report, shared by all tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sincere.report.page import write_report
from tests.report.comparison_folder import SCRIPT, make_comparison, write_labels


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three losses with report.html and figures/; not to be changed."""
    folder = make_comparison(tmp_path_factory.mktemp("comparison"))
    write_labels(folder / "runs" / "sincere-0", n=30, texts=("photos/a.png", SCRIPT, "long/" * 60))
    assert write_report(folder) == folder / "report.html"
    return folder
