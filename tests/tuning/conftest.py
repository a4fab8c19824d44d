"""Searches of these tests write no figures as files, which takes seconds each; tests/report does."""

from __future__ import annotations

from functools import partial

import pytest

from sincere.report.search_page import write_search_report


@pytest.fixture(autouse=True)
def _no_figure_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sincere.workflows.search.write_search_report", partial(write_search_report, figures=False))
