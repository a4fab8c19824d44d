"""A headless browser for tests of pages, and the reason why a test without one is skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = (shutil.which("chromium") or shutil.which("google-chrome")), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver on the PATH (Debian: chromium-driver)"
)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-prefers-reduced-motion", "--window-size=1280,900",
)  # fmt: skip


@contextmanager
def headless_browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """Start a browser with a profile of its own that logs its messages and requests; quit it at the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
