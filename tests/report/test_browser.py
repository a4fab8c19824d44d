"""The report in headless Chromium: charts are drawn, no errors, no requests, the map is interactive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from sincere.checks import printable
from sincere.records.arrays import EmbeddingMap
from sincere.report.gallery import cut
from sincere.report.label_placement import Box
from sincere.report.page import write_report
from sincere.report.search_page import write_search_report
from sincere.report.theme import BLUE, ON_DARK
from tests.browser import headless_browser, needs_browser
from tests.report.comparison_folder import CLASSES, HOSTILE_NAMES, LOSSES, SCRIPT, make_comparison
from tests.report.test_search_page import search_results

pytestmark = needs_browser
DARK_GROUND, LIGHT_GROUND = "rgb(21, 24, 28)", "rgb(255, 255, 255)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with headless_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def page(browser: webdriver.Chrome, reported: Path) -> webdriver.Chrome:
    """The report, freshly loaded and drawn, at desktop width on a light ground."""
    look(browser, dark=False)
    width(browser, 1280)
    logs(browser)  # what came before
    load(browser, (reported / "report.html").as_uri())
    return browser


def load(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    WebDriverWait(browser, 30).until(lambda b: b.execute_script("return document.documentElement.dataset.drawn"))
    WebDriverWait(browser, 10).until(lambda b: b.find_elements(By.CSS_SELECTOR, "#card .label"))


def look(browser: webdriver.Chrome, *, dark: bool) -> None:
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def width(browser: webdriver.Chrome, pixels: int) -> None:
    size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": pixels < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def logs(browser: webdriver.Chrome) -> tuple[list[str], list[str]]:
    """Return the errors on the console and the URLs requested since the last call."""
    messages = [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return messages, urls


def outside(addresses: list[str]) -> list[str]:
    return [address for address in addresses if not address.startswith(("file:", "data:", "blob:", "chrome:"))]


def one(browser: webdriver.Chrome | WebElement, selector: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, selector)


def ground(browser: webdriver.Chrome) -> Any:
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def overflow(browser: webdriver.Chrome, screen: int) -> Any:
    """Return by how much the page is wider than the screen; innerWidth would grow with it on a phone."""
    return browser.execute_script("return document.documentElement.scrollWidth") - screen


def point_at(browser: webdriver.Chrome, number: int, point: int) -> None:
    """Move the pointer to a point of a map."""
    canvas = one(browser, f"#map-{number} canvas")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    x, y = browser.execute_script("return arguments[0].positions[arguments[1]]", canvas, point)
    box = canvas.rect
    offset = round(x - box["width"] / 2), round(y - box["height"] / 2)
    ActionChains(browser, duration=0).move_to_element_with_offset(canvas, *offset).perform()


def test_no_error_and_no_request(page: webdriver.Chrome, reported: Path) -> None:
    messages, urls = logs(page)
    assert messages == []
    assert (reported / "report.html").as_uri() in urls
    assert outside(urls) == []


def test_the_test_above_can_fail(browser: webdriver.Chrome, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<img src='http://127.0.0.1:9/x.png'><script>nothing.there</script>")
    logs(browser)
    browser.get((tmp_path / "bad.html").as_uri())
    messages, urls = logs(browser)
    assert any("nothing is not defined" in message for message in messages)
    assert outside(urls) == ["http://127.0.0.1:9/x.png"]


def test_the_policy_stops_what_escaping_might_miss(page: webdriver.Chrome) -> None:
    image = "<img src='http://127.0.0.1:9/x.png' onerror='alert(1)'>"
    page.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", image)
    messages = WebDriverWait(page, 10).until(lambda b: logs(b)[0])
    assert all("Content Security Policy" in message for message in messages)
    with pytest.raises(NoAlertPresentException):
        page.switch_to.alert.accept()


def test_every_chart_is_drawn(page: webdriver.Chrome) -> None:
    charts = page.execute_script("return Object.keys(report.charts)")
    assert len(charts) == 2 + 3 * len(LOSSES) + 2
    for name in charts:
        marks = page.find_elements(By.CSS_SELECTOR, f"#{name} svg .role-mark path, #{name} svg .role-mark line")
        assert marks, name
        assert one(page, f"#{name} svg").size["width"] > 200, name
    text = page.execute_script("return document.querySelector('#similarity-1 svg').textContent")
    assert "SupConmargin 0." in text


def test_pointing_at_the_map_shows_image_label_and_neighbours(page: webdriver.Chrome, reported: Path) -> None:
    found = EmbeddingMap.read(reported / "runs" / "sincere-0")
    for point in (4, 350):  # in the first row of the sheet, and far below
        point_at(page, 0, point)
        assert one(page, "#card .label").text == CLASSES[found.labels[point]]
        assert one(page, "#card .about .note").text == f"test image {found.ids[point]}"
        groups = page.find_elements(By.CSS_SELECTOR, "#card .neighbours")
        assert len(groups) == len(LOSSES)
        assert f"predicted {CLASSES[found.predictions[point]]}" in one(groups[0], "p").text
        labels = [item.get_property("textContent") for item in groups[0].find_elements(By.CSS_SELECTOR, "li .class")]
        assert labels == [CLASSES[found.train_labels[i]] for i in found.neighbours[point]]
        assert labels[0] == CLASSES[found.predictions[point]], "the first training image decides"
        shown = [item.text for item in groups[0].find_elements(By.CSS_SELECTOR, "li .similarity")]
        # Two roundings: that of the page's data, to five digits, and that of the text.
        assert [float(text) for text in shown] == pytest.approx(found.similarities[point].tolist(), abs=0.00051)
        pixels = page.execute_script(
            "const c = document.querySelector('#card .about canvas'), s = c.width / 8, p = c.getContext('2d');"
            "return [...Array(64).keys()].map((i) =>"
            " p.getImageData((i % 8 + 0.5) * s, (Math.floor(i / 8) + 0.5) * s, 1, 1).data[0])"
        )
        np.testing.assert_array_equal(pixels, found.thumbnails[point].ravel())
        for item, i in zip(groups[0].find_elements(By.TAG_NAME, "li"), found.neighbours[point], strict=True):
            assert item.get_attribute("title") == f"training image {found.train_ids[i]}"
            colour = page.execute_script(
                "const c = arguments[0].querySelector('canvas'), s = c.width / 8;"
                "return c.getContext('2d').getImageData(3.5 * s, 4.5 * s, 1, 1).data[0]", item
            )  # fmt: skip
            assert colour == found.train_thumbnails[i][4, 3, 0]


def test_the_first_neighbour_has_the_predicted_class_everywhere(page: webdriver.Chrome) -> None:
    wrong = page.execute_script(
        "return report.map.maps.flatMap(({ gallery, neighbours, predictions }) => neighbours.filter((row, p) =>"
        " report.map.galleries[gallery].labels[row[0]] !== predictions[p])).length"
    )
    assert wrong == 0


def placed_names(browser: webdriver.Chrome) -> list[list[Box]]:
    """Return the boxes of the class names on each map that is shown."""
    names = "return [...document.querySelectorAll('.map canvas')].map((canvas) => canvas.names)"
    return [[Box(n["x"], n["y"], n["width"], n["height"]) for n in drawn] for drawn in browser.execute_script(names)]


@pytest.mark.parametrize("screen", [1280, 390])
def test_names_on_the_map_do_not_overlap(browser: webdriver.Chrome, tmp_path: Path, screen: int) -> None:
    names = [f"class number {i}" for i in range(20)]
    width(browser, screen)
    load(browser, write_report(make_comparison(tmp_path, class_names=names, n_test=200), figures=False).as_uri())
    shown = [drawn for drawn in placed_names(browser) if drawn]
    assert len(shown) == (3 if screen == 1280 else 1)
    side = one(browser, ".map canvas").size["width"]
    moved = browser.execute_script(
        "return document.querySelector('.map canvas').names.filter(({ at, x, y }) =>"
        " Math.hypot(at.x - x, at.y - ABOVE - y) > 1).length"
    )
    assert moved > 0, "some would have overlapped"
    for boxes in shown:
        assert len(boxes) == 20
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
        assert all(box.inside(side) == box for box in boxes)


def test_arrow_keys_select_the_next_image(page: webdriver.Chrome) -> None:
    canvas = one(page, "#map-1 canvas")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert one(page, "#card .about .note").text == "test image 1000"
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert one(page, "#card .about .note").text == "test image 1001"
    canvas.send_keys(Keys.ARROW_LEFT)
    assert one(page, "#card .about .note").text == "test image 1000"


def test_histograms_of_one_class_are_drawn_on_demand(page: webdriver.Chrome) -> None:
    assert not page.find_elements(By.CSS_SELECTOR, "#class-0 svg")
    one(page, "#per-class summary").click()
    WebDriverWait(page, 10).until(lambda b: len(b.find_elements(By.CSS_SELECTOR, "#per-class svg")) == len(LOSSES))
    subtitle = "return document.querySelector('#class-2 svg .role-title-subtitle').textContent"
    before = page.execute_script(subtitle)
    assert before.startswith("margin 0.")
    Select(one(page, "#class-choice")).select_by_visible_text(SCRIPT)
    WebDriverWait(page, 10).until(lambda b: b.execute_script(subtitle) != before)
    expected = page.execute_script("return report.classes[2][1].text")
    assert page.execute_script(subtitle) == expected
    bars = page.find_elements(By.CSS_SELECTOR, "#class-2 .mark-rect.role-mark path")
    assert len(bars) == page.execute_script("return report.classes[2][1].bars.length")


def test_a_script_as_a_name_is_text(page: webdriver.Chrome) -> None:
    labels = page.execute_script("return [...report.map.sheets[0].labels.keys()].filter((p) => "
                                 "report.map.sheets[0].labels[p] === 1)")  # fmt: skip
    point_at(page, 2, labels[3])
    assert one(page, "#card .label").text == SCRIPT
    row = "#confusion-0 .mark-rect.role-mark path:nth-child(2)"
    page.execute_script(f"document.querySelector('{row}').scrollIntoView({{block: 'center'}})")
    ActionChains(page, duration=0).move_to_element(one(page, row)).perform()
    tooltip = WebDriverWait(page, 10).until(lambda b: one(b, "#vg-tooltip-element.visible"))
    assert SCRIPT in tooltip.text
    inside = "return document.querySelectorAll('main script, #vg-tooltip-element script, #card script').length"
    assert page.execute_script(inside) == 0
    with pytest.raises(NoAlertPresentException):
        page.switch_to.alert.accept()


@pytest.mark.parametrize("screen", [1280, 390])
def test_hostile_names_are_shown_as_text(browser: webdriver.Chrome, tmp_path: Path, screen: int) -> None:
    width(browser, screen)
    logs(browser)
    load(browser, write_report(make_comparison(tmp_path, class_names=HOSTILE_NAMES, n_test=60), figures=False).as_uri())
    messages, urls = logs(browser)
    assert (messages, outside(urls)) == ([], [])
    shown = [printable(name) for name in HOSTILE_NAMES]
    rows = "return [...document.querySelector('table.sortable').tBodies[0].rows].map((row) => row.cells[0].textContent)"
    assert browser.execute_script(rows) == shown
    for name in browser.execute_script("return Object.keys(report.charts)"):
        assert browser.find_elements(By.CSS_SELECTOR, f"#{name} svg .role-mark"), name
    one(browser, "#per-class summary").click()
    WebDriverWait(browser, 10).until(lambda b: len(b.find_elements(By.CSS_SELECTOR, "#per-class svg")) == len(LOSSES))
    browser.execute_script("document.getElementById('map').scrollIntoView()")
    for point in (1, 5, 6):  # a line break, and the long ones
        point_at(browser, 0, point)
        assert one(browser, "#card .label").text == shown[point].strip()
        assert overflow(browser, screen) <= 0
    with pytest.raises(NoAlertPresentException):
        browser.switch_to.alert.accept()


@pytest.mark.parametrize("screen", [1280, 390])
def test_a_map_of_features_shows_texts(browser: webdriver.Chrome, tmp_path: Path, screen: int) -> None:
    texts = ("photos/one.jpg", SCRIPT, "<img src=x onerror=alert(1)>", "y" * 500, "two words")
    width(browser, screen)
    look(browser, dark=False)
    logs(browser)
    load(browser, write_report(make_comparison(tmp_path, n_test=60, texts=texts), figures=False).as_uri())
    found = EmbeddingMap.read(tmp_path / "runs" / "sincere-0")
    shown = [text[:200] for text in texts]
    for point in range(5):
        point_at(browser, 0, point)
        assert one(browser, "#card .label").text == CLASSES[point]
        assert one(browser, "#card .about .text").text == shown[point]
        assert one(browser, "#card .about .note").text == f"test sample {1000 + point}"
        nearest = [
            item.text for item in browser.find_elements(By.CSS_SELECTOR, "#card .neighbours:first-child li .text")
        ]
        assert nearest == [cut(texts[i % 5]) for i in found.neighbours[point]]
        assert overflow(browser, screen) <= 0
    assert not browser.find_elements(By.CSS_SELECTOR, "#card canvas, #card img, #card script")
    assert "60 test samples projected by t-SNE" in one(browser, "#map").text
    messages, urls = logs(browser)
    assert (messages, outside(urls)) == ([], [])
    with pytest.raises(NoAlertPresentException):
        browser.switch_to.alert.accept()


def test_nothing_overflows_a_phone_screen(page: webdriver.Chrome, reported: Path) -> None:
    width(page, 390)
    load(page, (reported / "report.html").as_uri())
    one(page, "#per-class summary").click()
    WebDriverWait(page, 10).until(lambda b: b.find_elements(By.CSS_SELECTOR, "#class-2 svg"))
    assert overflow(page, 390) == 0
    shown = [canvas.is_displayed() for canvas in page.find_elements(By.CSS_SELECTOR, ".map canvas")]
    assert shown == [True, False, False]
    page.find_elements(By.CSS_SELECTOR, "#map-choice button")[1].click()
    point_at(page, 1, 7)
    assert one(page, "#card .about .note").text == "test image 1007"
    page.execute_script("document.querySelector('main').style.width = '500px'")
    assert overflow(page, 390) > 0  # it would have been seen


def test_dark(page: webdriver.Chrome) -> None:
    bar = "return document.querySelector('#similarity-0 .mark-rect.role-mark path:last-child').getAttribute('fill')"
    assert (ground(page), page.execute_script(bar)) == (LIGHT_GROUND, BLUE)
    look(page, dark=True)
    WebDriverWait(page, 10).until(lambda b: b.execute_script(bar) == ON_DARK[BLUE])
    assert ground(page) == DARK_GROUND
    one(page, "#theme").click()
    WebDriverWait(page, 10).until(lambda b: b.execute_script(bar) == BLUE)
    assert ground(page) == LIGHT_GROUND
    assert one(page, "#theme").text == "Dark"


def test_tabs_and_sorting(page: webdriver.Chrome) -> None:
    tables = page.find_elements(By.CSS_SELECTOR, "table.sortable")
    assert [table.is_displayed() for table in tables] == [True, False, False]
    page.find_elements(By.CSS_SELECTOR, ".tabs .choice button")[1].click()
    assert [table.is_displayed() for table in tables] == [False, True, False]
    column = "return [...arguments[0].tBodies[0].rows].map((row) => Number(row.cells[3].dataset.value))"
    before = page.execute_script(column, tables[1])
    button = tables[1].find_elements(By.CSS_SELECTOR, "thead button")[3]
    button.click()
    assert page.execute_script(column, tables[1]) == sorted(before) != before
    button.click()
    assert page.execute_script(column, tables[1]) == sorted(before, reverse=True)


def test_labels_that_may_be_wrong(page: webdriver.Chrome) -> None:
    rows = page.find_elements(By.CSS_SELECTOR, "#labels tbody tr")
    assert len(rows) == 20
    shown = [cell.text for cell in rows[1].find_elements(By.CSS_SELECTOR, "th, td:not(:first-child)")]
    assert shown == [SCRIPT, "test", CLASSES[1], CLASSES[2], "1.0%"]
    widths = page.execute_script("return [...document.querySelectorAll('#labels img')].map((i) => i.naturalWidth)")
    assert widths == [8] * 20, "all thumbnails are drawn"
    with pytest.raises(NoAlertPresentException):
        page.switch_to.alert.accept()


def test_reduced_motion_is_respected(page: webdriver.Chrome) -> None:
    assert page.execute_script("return getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    features = [{"name": "prefers-reduced-motion", "value": "no-preference"}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert page.execute_script("return getComputedStyle(document.documentElement).scrollBehavior") == "smooth"


def test_the_page_of_a_search(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """It shares its scripts with the other report, but not its map and classes."""
    search_results().write(tmp_path)
    width(browser, 1280)
    logs(browser)
    browser.get(write_search_report(tmp_path, figures=False).as_uri())
    WebDriverWait(browser, 30).until(lambda b: b.execute_script("return document.documentElement.dataset.drawn"))
    charts = browser.find_elements(By.CSS_SELECTOR, ".chart")
    assert len(charts) == 8
    assert all(chart.find_elements(By.CSS_SELECTOR, "svg path") for chart in charts)
    messages, addresses = logs(browser)
    assert messages == []
    assert outside(addresses) == []
    assert overflow(browser, 1280) <= 0
    first = one(browser, "#trials tbody tr td:nth-child(3)").text
    button = browser.find_elements(By.CSS_SELECTOR, "#trials thead button")[2]
    browser.execute_script("arguments[0].click()", button)  # wherever it is
    assert one(browser, "#trials tbody tr td:nth-child(3)").text != first  # sorted by accuracy, the other way round
