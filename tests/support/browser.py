"""A real browser for tests: headless Chromium, driven over the WebDriver protocol by chromedriver.

One browser for a whole file: it costs seconds to start. Errors that the page logs, breaches of its Content-Security-Policy among
them, are collected and read with `problems`.
"""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from process import until

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
WAIT_S = 90.0
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element, as the protocol fixes it
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions
--disable-background-networking --disable-component-update --disable-sync --disable-default-apps --mute-audio --no-pings
--hide-scrollbars --force-prefers-reduced-motion --host-resolver-rules=MAP\u00a0*.example\u00a0127.0.0.1""".split()
ENTER, TAB, ESCAPE = "\ue007", "\ue004", "\ue00c"


class Browser:
    """One window."""

    def __init__(self, port: int, session: str) -> None:
        self._port = port
        self._path = f"/session/{session}"

    def command(self, method: str, path: str, given: Mapping[str, Any] | None = None) -> Any:
        """The value of one WebDriver command; AssertionError with the browser's words when it fails."""
        return _ask(self._port, method, self._path + path, given)

    def open(self, address: str) -> None:
        """Load a page."""
        self.command("POST", "/url", {"url": address})

    def run(self, script: str, *given: Any) -> Any:
        """What a script returns."""
        return self.command("POST", "/execute/sync", {"script": script, "args": list(given)})

    def find(self, css: str) -> str:
        """The first element that is shown, waited for."""
        seek = """return [...document.querySelectorAll(arguments[0])].find(
            one => one.checkVisibility({checkVisibilityCSS: true})) ?? null"""
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = [self.run(seek, css)]
            return found[0] is not None

        until(is_there, f"{css} is shown", WAIT_S)
        return str(found[0][ELEMENT])

    def click(self, css: str) -> None:
        """Click at an element."""
        self.command("POST", f"/element/{self.find(css)}/click", {})

    def press(self, name: str) -> None:
        """Click at the button that is called so."""
        seek = """const found = [...document.querySelectorAll("button")].find(one => one.checkVisibility()
            && (one.getAttribute("aria-label") ?? one.textContent).trim().startsWith(arguments[0]));
            found?.click(); return !!found"""
        until(lambda: bool(self.run(seek, name)), f"a button {name}", WAIT_S)

    def type(self, css: str, text: str) -> None:
        """Type into an element."""
        self.command("POST", f"/element/{self.find(css)}/value", {"text": text})

    def choose(self, css: str, *paths: Path) -> None:
        """Choose files in an input, shown or not."""
        found = self.run("return document.querySelector(arguments[0])", css)[ELEMENT]
        self.command("POST", f"/element/{found}/value", {"text": "\n".join(map(str, paths))})

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": pressed}]})

    def text(self, css: str = "body") -> str:
        """The text of an element as it is shown, "" when it is not there."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def shows(self, *texts: str, css: str = "body") -> None:
        """Wait until these are shown."""
        for text in texts:
            try:
                until(lambda text=text: text in self.text(css), f"{text!r} is shown", WAIT_S)  # type: ignore[misc]
            except AssertionError:
                raise AssertionError(f"{text!r} is not shown, but: {self.text()[-1500:]}") from None

    def resize(self, width: int, height: int) -> None:
        """Another size of the viewport, as of a phone."""
        given = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": given})

    def screenshot(self, path: Path) -> None:
        """A picture of the window, for people to look at."""
        path.write_bytes(base64.b64decode(self.command("GET", "/screenshot")))

    def problems(self) -> list[str]:
        """What the page has logged as an error since the last look."""
        found = self.command("POST", "/se/log", {"type": "browser"})
        return [one["message"] for one in found if one["level"] == "SEVERE"]


def _ask(port: int, method: str, path: str, given: Mapping[str, Any] | None = None) -> Any:
    wire = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        wire.request(method, path, None if method == "GET" else json.dumps(given or {}), {"Content-Type": "application/json"})
        value = json.loads(wire.getresponse().read())["value"]
    finally:
        wire.close()
    if isinstance(value, dict) and "error" in value:
        raise AssertionError(f"{value['error']}: {value['message'][:500]}")
    return value


@contextmanager
def browsing(*flags: str) -> Iterator[Browser]:
    """A browser with an empty profile; both are gone afterwards."""
    assert DRIVER and CHROMIUM, "apt install chromium chromium-driver"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="owl-browser-", ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(
            [DRIVER, f"--port={port}", "--log-level=OFF"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
            start_new_session=True,
        )
        try:
            until(lambda: _is_ready(port), "chromedriver listens", WAIT_S)
            options = {
                "binary": CHROMIUM,
                "args": [one.replace("\u00a0", " ") for one in (*FLAGS, *flags, f"--user-data-dir={profile}/profile")],
            }
            wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = _ask(port, "POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            browser = Browser(port, made["sessionId"])
            try:
                yield browser
            finally:
                browser.command("DELETE", "")
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(10)


def _is_ready(port: int) -> bool:
    try:
        return bool(_ask(port, "GET", "/status")["ready"])
    except OSError:
        return False
