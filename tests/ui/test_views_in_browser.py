"""Every view in a browser: nothing that axe-core, the console or the content policy complains of, by keyboard, without scripts."""

from pathlib import Path
from typing import Final

import pytest
from selenium.webdriver.common.keys import Keys

from tests.ui.browser import Browser, ServedPage, browser

VIEWS: Final = {
    "pending": "pending",
    "why": "pending?pod=ml/infer-1",
    "map": "map",
    "node": "node?name=node-1",
    "waiting": "waiting",
    "health": "health",
}
PICTURES: Final = {*((name, "light") for name in VIEWS), ("map", "dark")}
LARGE_VIEWS: Final = {
    "pending": "pending",
    "why": "pending?pod=ml/wait-0001",
    "map": "map",
    "map of one driver, last page": "map?driver=gpu.example.com&page=50",
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
    window.open(example.address)
    window.press(Keys.TAB)
    assert window.focused() == "Skip to content"
    window.press(Keys.ENTER, Keys.TAB)
    pod = window.focused()
    assert "/" in pod
    window.press(Keys.ENTER)
    window.wait_for("#pod h2", pod)
    assert window.text("#pod pre").startswith(f"{pod}  Pending")


def test_every_link_and_field_shows_that_it_has_the_focus(window: Browser, example: ServedPage) -> None:
    window.open(example.path("map"))
    reached = window.count("a, input, select, button")
    for _ in range(reached):
        window.press(Keys.TAB)
        outline = window.run("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", window.focused()


def test_page_fits_a_narrow_window(window: Browser, example: ServedPage) -> None:
    """Wide tables scroll by themselves; the page does not."""
    size = window.driver.get_window_size()
    window.driver.set_window_size(500, 900)
    try:
        for view in VIEWS.values():
            window.open(example.path(view))
            assert window.run("return document.documentElement.scrollWidth <= innerWidth"), view
    finally:
        window.driver.set_window_size(size["width"], size["height"])


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
