"""A page in headless Chromium, seen as a reader and as an auditor."""

from __future__ import annotations

import base64
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

ANSWERS_WITHIN_S = 600
"""Audits take a few seconds, and longer on a busy machine; the driver's own limits are 30 and 120 s."""


class Chromium:
    """A Chromium process, which shows one page after another."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="iosonde-chromium-", ignore_cleanup_errors=True)
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, f"--user-data-dir={self._profile.name}"):
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"profile.default_content_setting_values.automatic_downloads": 1})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.driver.set_script_timeout(ANSWERS_WITHIN_S)
        self.driver.command_executor.client_config.timeout = ANSWERS_WITHIN_S

    def quit(self) -> None:
        self.driver.quit()
        self._profile.cleanup()


class Browser:
    def __init__(
        self,
        page: Path | str,
        *,
        chromium: Chromium,
        width: int = 1280,
        dark: bool = False,
        scripts: bool = True,
        downloads: Path,
    ) -> None:
        self.downloads = downloads
        self.driver = chromium.driver
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        light = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": light})
        downloading = {"behavior": "allow", "downloadPath": str(downloads)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloading)
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        self.driver.get("about:blank")
        for log in ("browser", "performance"):  # of the page before
            self.driver.get_log(log)
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self.driver.get(page if isinstance(page, str) else page.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def read_through(self) -> None:
        """Scroll from top to bottom as a reader does, until the view of single runs is drawn."""
        place = 0
        while place < self.run("return document.documentElement.scrollHeight"):
            self.run("window.scrollTo({ top: arguments[0], behavior: 'instant' })", place)
            place += 700
            time.sleep(0.05)
        self.wait("return document.querySelector('#run-view').dataset.run")

    def wait(self, script: str, *, seconds: float = 300) -> Any:
        return wait(lambda: self.run(script), what=script, seconds=seconds)

    def click(self, selector: str) -> None:
        """Click with the mouse, once the page has come to rest: what is drawn above would move the aim."""
        element = self.driver.find_element("css selector", selector)
        self.run("arguments[0].scrollIntoView({ behavior: 'instant', block: 'center' })", element)
        places: list[Any] = []
        while len(places) < 3 or places[-3:] != [places[-1]] * 3:
            assert len(places) < 200, f"`{selector}` does not come to rest: {places[-3:]}"
            places.append(self.run("const r = arguments[0].getBoundingClientRect(); return [r.x, r.y]", element))
            time.sleep(0.05)
        element.click()

    def download(self, name: str) -> str:
        path = self.downloads / name
        wait(lambda: path.exists() and path.stat().st_size > 0, what=name)
        return path.read_text()

    def violations(self) -> list[str]:
        """Return what axe-core complains of: rule and elements."""
        import axe_core_python

        (folder,) = axe_core_python.__path__
        self.run((Path(folder) / "axe.min.js").read_text() + "\nwindow.axe = axe;")
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] }).then((r) => done(r.violations))"
        )
        return [f"{rule['id']}: {[node['html'][:200] for node in rule['nodes'][:5]]}" for rule in found]

    def pages(self) -> int:
        """Return the number of pages that the page takes in print."""
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
        return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))

    def requests(self) -> list[str]:
        """Return every address that was requested, except the page itself and objects that it created in memory."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if url != self.driver.current_url and not url.startswith(("data:", "blob:"))]

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


def wait(condition: Callable[[], Any], *, what: str, seconds: float = 300) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for: {what}"
        time.sleep(0.05)
    return found
