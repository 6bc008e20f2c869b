"""Every view in a browser: nothing that axe-core, the console or the content policy complains of, by keyboard, without scripts."""

from pathlib import Path
from typing import Final

import pytest
from selenium.webdriver.common.keys import Keys

from tests.ui.browser import Browser, ServedPage, browser

VIEWS: Final = {
    "overview": "overview",
    "pending": "pending",
    "why": "pending?pod=ml/infer-1#pod",
    "map": "map",
    "node": "node?name=node-1",
    "waiting": "waiting",
    "health": "health",
}
NARROW_VIEWS: Final = {
    **VIEWS,
    "map of nodes": "map?scale=nodes&group=driver",
    "nodes": "node",
    "problem": "node?name=none",
}
PICTURES: Final = {("overview", "light"), ("node", "light"), ("why", "light")}
LARGE_VIEWS: Final = {
    "overview": "overview",
    "pending": "pending",
    "why": "pending?pod=ml/wait-0001",
    "map": "map",
    "map of one driver, last page": "map?driver=gpu.example.com&page=3",
    "map of devices": "map?scale=devices&state=usable&sort=free",
    "nodes": "node",
    "node": "node?name=node-00001",
    "waiting": "waiting",
    "health": "health",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", VIEWS)
def test_view_is_accessible_and_the_console_is_silent(
    window: Browser, example: ServedPage, pictures: Path, name: str, scheme: str
) -> None:
    window.scheme(scheme)
    window.open(example.path(VIEWS[name]))
    if (name, scheme) in PICTURES:
        window.screenshot(pictures / f"page-{name}-{scheme}.png")
    assert window.count("h1") == 1
    assert window.violations() == []
    assert window.complaints() == []


@pytest.mark.parametrize("name", VIEWS)
def test_view_says_the_same_without_scripts(window: Browser, example: ServedPage, name: str) -> None:
    window.open(example.path(VIEWS[name]))
    with browser(scripts=False) as plain:
        plain.open(example.path(VIEWS[name]))
        assert plain.text("main") == window.text("main")
        assert "Without JavaScript this page does not update itself" in plain.text("footer")


def test_keyboard_alone_reaches_the_tree_of_a_pod(window: Browser, example: ServedPage) -> None:
    window.open(example.path("pending"))
    window.press(Keys.TAB)
    assert window.focused() == "Skip to content"
    window.press(Keys.ENTER, Keys.TAB)
    pod = window.focused()
    assert "/" in pod
    window.press(Keys.ENTER)
    window.wait_for("#pod h2", pod)
    assert window.text("#pod pre").startswith(f"{pod}  Pending")


def test_keyboard_moves_between_squares_and_opens_the_device(window: Browser, full: ServedPage) -> None:
    window.open(full.path("map"))
    focused = "return document.activeElement.getAttribute('title')"
    window.run("document.querySelector('button').focus()")
    for _ in range(window.count(".legend a") + 1):
        window.press(Keys.TAB)
    assert window.run(focused) == "node-00000"
    window.press(Keys.ARROW_RIGHT)
    assert window.run(focused).startswith("node-00000 gpu-0: allocated")
    window.press(Keys.ARROW_DOWN)
    assert window.run(focused).startswith("node-00000 gpu-4: unusable: tainted")
    window.press(Keys.END)
    assert window.run(focused).startswith("node-00199 mig-7: ")
    assert window.text("#status") == "Arrow keys move between squares."
    window.press(Keys.HOME, Keys.ARROW_UP, Keys.ARROW_LEFT)
    assert window.run(focused) == "node-00000"
    stops = "return [...document.querySelectorAll('.cells a')].filter((e) => e.tabIndex >= 0).length"
    assert window.run(stops) == 1
    window.press(Keys.ARROW_RIGHT)
    window.press(Keys.ENTER)
    window.wait_for("h1", "Node node-00000")
    assert window.text("tr:target th") == "gpu-0"


def test_map_of_200_nodes_with_eight_devices_is_on_one_screen(
    window: Browser, full: ServedPage, pictures: Path
) -> None:
    window.scheme("light")
    with window.size(1280, 800):
        window.open(full.path("map"))
        assert window.count("a.square") == 200 * 8
        bottom = "return Math.max(...[...document.querySelectorAll('.cells a')].map((e) => e.getBoundingClientRect().bottom))"
        assert window.run(bottom) <= 800
        window.screenshot(pictures / "page-map-200-light.png")
        assert window.violations() == []


def test_every_link_and_field_shows_that_it_has_the_focus(window: Browser, example: ServedPage) -> None:
    window.open(example.path("map"))
    reached = window.run(
        "return [...document.querySelectorAll('a, input, select, button')].filter((e) => e.tabIndex >= 0).length"
    )
    for _ in range(reached):
        window.press(Keys.TAB)
        outline = window.run("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", window.focused()


@pytest.mark.parametrize("name", NARROW_VIEWS)
def test_nothing_scrolls_sideways_on_a_phone(window: Browser, example: ServedPage, pictures: Path, name: str) -> None:
    window.scheme("light")
    with window.size(390, 844):
        window.open(example.path(NARROW_VIEWS[name]))
        if name == "overview":
            window.screenshot(pictures / "page-overview-narrow.png")
        assert window.run("return document.documentElement.scrollWidth") <= 390
        assert (
            window.run(
                "return [...document.querySelectorAll('main, main *')].filter((e) => e.scrollWidth > e.clientWidth"
                " && getComputedStyle(e).overflowX !== 'visible' && !e.matches('.spoken, .of')).map((e) => e.outerHTML)"
            )
            == []
        )
        assert window.violations() == []


def test_rows_are_cards_with_the_header_of_each_column_on_a_phone(window: Browser, example: ServedPage) -> None:
    with window.size(390, 844):
        window.open(example.path("pending"))
        label = "return getComputedStyle(document.querySelector('tbody td, tbody th'), '::before').content"
        assert window.run(label) == '"Pods"'


def test_script_that_a_name_would_bring_into_the_page_does_not_run(window: Browser, example: ServedPage) -> None:
    window.open(example.path("map"))
    window.run(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
        "const i = document.createElement('img'); i.setAttribute('onerror', 'window.ran = 2');"
        "i.addEventListener('error', () => { i.outerHTML = '<p id=failed>failed</p>'; });"
        "document.body.append(i); i.src = 'none';"
    )
    window.wait_for("#failed", "failed")
    assert window.run("return window.ran === undefined")
    said = window.complaints_until("404")  # the console may say it after the event
    assert any("Content Security Policy" in each for each in said)


@pytest.mark.parametrize("name", LARGE_VIEWS)
def test_view_of_5000_nodes_is_accessible(window: Browser, large: ServedPage, name: str) -> None:
    before = large.cpu_seconds()
    window.open(large.path(LARGE_VIEWS[name]))
    used = large.cpu_seconds() - before
    print(f"{name}: {used:.2f} s of CPU, {window.run('return document.documentElement.outerHTML.length')} characters")
    assert window.count("h1") == 1
    assert window.violations() == []
    assert window.complaints() == []
