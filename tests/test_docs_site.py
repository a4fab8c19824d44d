"""The documentation site: it is built strictly, complete, needs no network, and is readable on any screen."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

import sincere
from sincere.cli import VERBS, main
from tests.browser import headless_browser, needs_browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NEEDED = ("mkdocs", "material", "mkdocstrings")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
needs_mkdocs = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (pip install '.[docs]')")


class Resources(HTMLParser):
    """Collects the addresses from which a page loads something; links to follow are not among them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (name in ("src", "srcset", "data", "poster") or (name == "href" and tag == "link")) and value:
                self.addresses.append(value)


def is_remote(address: str) -> bool:
    return re.match(r"(?i)\s*(https?:|//)", address) is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@needs_mkdocs
def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        html = page.read_text()
        assert not [address for address in Resources(html).addresses if is_remote(address)], page
        assert 'class="mermaid"' not in html, page  # the theme would load its script from a network
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text()), style


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img alt="" src="HTTP://example.org/a.png">',
    ],
)
def test_a_remote_resource_would_be_noticed(html: str) -> None:
    assert [address for address in Resources(html).addresses if is_remote(address)]
    assert not Resources('<a href="https://arxiv.org/abs/2309.14277">paper</a>').addresses


@needs_mkdocs
def test_outside_files_are_in_the_site_and_links_to_them_work(site: Path) -> None:
    """Figures and pages that lie outside docs/ are taken into the site by docs/hooks."""
    pictures = [address for address in Resources((site / "index.html").read_text()).addresses if ".svg" in address]
    assert pictures
    assert all((site / address).is_file() for address in pictures)
    changes = (site / "repository" / "CHANGELOG.html").read_text()
    assert 'href="../explanation/promises.html"' in changes
    assert 'href="../repository/examples/sentences.py.html"' in (site / "guides" / "integrations.html").read_text()
    assert "SentenceContrastiveLoss" in (site / "repository" / "examples" / "sentences.py.html").read_text()


@needs_mkdocs
def test_every_page_is_in_the_navigation() -> None:
    import yaml  # comes with mkdocs

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = [page for page in _leaves(nav) if not page.startswith("repository/")]
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    outside = [page.removeprefix("repository/") for page in _leaves(nav) if page.startswith("repository/")]
    assert all((ROOT / name).is_file() for name in outside)


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(item)


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(path.read_text() for path in (DOCS / "reference" / "api").glob("*.md"))
    named = re.findall(r"^::: sincere\.(\w+)$", pages, flags=re.MULTILINE)
    assert sorted(named) == sorted(sincere.__all__), "add `::: sincere.NAME` to a page of docs/reference/api"


@pytest.mark.parametrize("verb", VERBS)
def test_the_command_line_page_has_the_flags_of_the_help(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main([verb, "--help"]) == 0
    in_help = re.findall(r"^│ (?:[* ]  )?(--[a-z0-9-]+)", capsys.readouterr().out, flags=re.MULTILINE)
    page = (DOCS / "reference" / "command-line.md").read_text()
    section = page.split(f"\n## sincere {verb}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`--.*?) \||^- \[.*?\)(: .*)$", section, flags=re.MULTILINE)
    on_page = [flag for row in rows for flag in re.findall(r"`(--[a-z0-9-]+)`", "".join(row))]
    assert sorted(on_page) == sorted(in_help)
    assert in_help or verb == "completion"


def test_links_to_papers_are_well_formed_and_on_their_page() -> None:
    """Whatever docs and docstrings cite is in docs/explanation/papers.md."""
    pages, sources = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], list((ROOT / "src").rglob("*.py"))
    cited: dict[str, Path] = {}
    for path in [*pages, *sources]:
        text = path.read_text()
        for link in re.findall(r"\S*arxiv\.org\S*", text, flags=re.IGNORECASE):
            assert re.search(r"(^|[(\"'\[<])https://arxiv\.org/abs/\d{4}\.\d{4,5}(?!\d)", link), (path, link)
        for link in re.findall(r"https://(?:arxiv\.org/abs/[\d.]+|doi\.org/10\.[\w./()%-]+)", text):
            cited[unquote(link).rstrip(".,)")] = path
    listed = unquote((DOCS / "explanation" / "papers.md").read_text())
    assert len(cited) > 25
    assert not {link: path for link, path in cited.items() if link not in listed}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with headless_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@needs_mkdocs
@needs_browser
def test_it_is_searched_from_disk_without_a_request(browser: webdriver.Chrome, site: Path) -> None:
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get((site / "guides" / "photos.html").as_uri())
    box = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    box.click()
    box.send_keys("partner")
    wait = WebDriverWait(browser, 30)
    wait.until(lambda b: any("Glossary" in e.text for e in b.find_elements(By.CSS_SELECTOR, ".md-search-result h1")))
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


@needs_mkdocs
@needs_browser
@pytest.mark.parametrize("width", [1400, 420])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("page", ["index", "guides/photos", "reference/settings"])
def test_it_follows_the_system_and_fits_the_screen(
    browser: webdriver.Chrome, site: Path, page: str, dark: bool, width: int
) -> None:
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((site / f"{page}.html").as_uri())
    WebDriverWait(browser, 10).until(lambda b: b.find_elements(By.CSS_SELECTOR, "h1"))
    scheme = browser.execute_script("return document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if dark else "default")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
