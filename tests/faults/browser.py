"""A report in headless Chromium: it must not run what it shows, nor report errors, nor ask for anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.faults.case import FaultError, Kind, SkippedError
from tests.faults.command import Outcome

CHROMIUM, DRIVER = (shutil.which("chromium") or shutil.which("google-chrome")), shutil.which("chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip


def check_page(page: Path, profile: Path, outcome: Outcome) -> None:
    """The page is drawn without an alert and without an error on its console.

    Raises:
        SkippedError: There is no browser.
    """
    if CHROMIUM is None or DRIVER is None:
        raise SkippedError("needs chromium and chromedriver on the PATH")
    from selenium.common.exceptions import TimeoutException, UnexpectedAlertPresentException

    browser = _start(profile)
    try:
        browser.get(page.as_uri())
        _wait_until_drawn(browser)
        said = [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        if said:
            raise FaultError(Kind.WRONG, f"on the page's console: {said[0][:200]}", outcome)
        if browser.execute_script("return document.querySelectorAll('main script, main img[onerror]').length"):
            raise FaultError(Kind.EXECUTED, "a name became markup in the page", outcome)
    except UnexpectedAlertPresentException as error:
        raise FaultError(Kind.EXECUTED, "the page shows an alert", outcome) from error
    except TimeoutException as error:
        raise FaultError(Kind.WRONG, "the page is not drawn", outcome) from error
    finally:
        browser.quit()
        shutil.rmtree(profile, ignore_errors=True)


def _start(profile: Path) -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER, log_output=subprocess.DEVNULL))


def _wait_until_drawn(browser: Any) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    drawn = "return document.documentElement.dataset.drawn || !document.querySelector('script')"
    WebDriverWait(browser, 30).until(lambda found: found.execute_script(drawn))
