"""A real browser and the page that it shows: what a person sees and does, and what axe-core says of it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.ui.needs import find

SECONDS: Final = 30.0
AXE: Final = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,900",
)


class Browser:
    """One window."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Go there, and wait until all is loaded."""
        self.driver.get(address)

    def text(self, selector: str = "body") -> str:
        """What can be seen of an element."""
        return str(self.driver.find_element(By.CSS_SELECTOR, selector).text)

    def count(self, selector: str) -> int:
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        """The text of what has the focus."""
        return str(self.driver.switch_to.active_element.text)

    def wait_for(self, selector: str, text: str) -> None:
        wait = WebDriverWait(self.driver, SECONDS, 0.05, ignored_exceptions=(StaleElementReferenceException,))
        try:
            wait.until(lambda _: text in self.text(selector))
        except TimeoutException as problem:
            raise AssertionError(f"{text!r} is not in {self.text(selector)!r}; {self.text('footer')!r}") from problem

    def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    @contextmanager
    def size(self, width: int, height: int) -> Iterator[None]:
        """Have a window of this size inside, as a phone may have it, until the end of the block."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def violations(self) -> list[str]:
        """What axe-core finds, of all its rules: rule, and the elements."""
        self.run(AXE.read_text())
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations))"
        )
        return [f"{each['id']}: {[node['target'] for node in each['nodes']][:3]}" for each in found]

    def complaints(self) -> list[str]:
        """What the browser's console has said since the last call: errors of scripts, of loading, of the content policy."""
        return [str(each["message"]) for each in self.driver.get_log("browser")]

    def complaints_until(self, text: str) -> list[str]:
        """The same, up to one that has this text in it."""
        said: list[str] = []

        def has_text(_: object) -> bool:
            said.extend(self.complaints())
            return any(text in each for each in said)

        WebDriverWait(self.driver, SECONDS, 0.05).until(has_text, f"the console says {text!r}")
        return said

    def screenshot(self, file: Path) -> None:
        """The window as a picture."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(file))


@contextmanager
def browser(*, scripts: bool = True) -> Iterator[Browser]:
    """A browser of its own, with or without JavaScript."""
    options = ChromeOptions()
    options.binary_location = find("chromium")
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        if not scripts:
            options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
        driver = Chrome(options=options, service=Service(executable_path=find("chromedriver")))
        try:
            driver.set_script_timeout(SECONDS)
            yield Browser(driver)
        finally:
            driver.quit()


class ServedPage:
    """The command `ui` in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self._process = process
        self.address = address

    def path(self, view: str) -> str:
        return self.address + view

    def cpu_seconds(self) -> float:
        """What the process has used until now."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served_page(*arguments: str, folder: Path | None = None) -> Iterator[ServedPage]:
    """Serve a page until the end of the block; it ends at once, with status 0, when it is interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dra_extender", "ui", *arguments], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        yield ServedPage(process, address)
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(SECONDS)
        process.stdout.close()
    assert status == 0
