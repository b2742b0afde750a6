"""The page that installs, in a real Chromium: manifest, icons, service worker, reading offline, and notifications of a device.

A Chromium without a window has no push service, so what the browser's own `subscribe` would answer is put in its place: an address
at a service on loopback and keys whose private half the test has. All else is real: the page's code, the core, its sender, the
encrypted request, the permission, and the service worker, to which the browser hands what was decrypted.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import browser as browsers
import draw_icons
import numpy as np
import pytest
from browser import Browser, browsing
from process import Box, a_shared_box, script, until  # noqa: F401
from push_service import Device, PushService, serving
from test_web_page import Page, _answers, free_port

from appliance.http import page_routes

pytestmark = pytest.mark.skipif(not browsers.CHROMIUM or not browsers.DRIVER, reason="no chromium with chromedriver here")

STATIC = Path(page_routes.__file__).parent / "static"
PLAY = """
[[turns]]
match = "remind me"
tool_calls = [{name = "use", arguments = {tool = "remind", arguments = {text = "ring <b>the plumber</b>", when = "in 1 second"}}}]
[[turns]]
repeat = true
text = "Hoot **hoot**."
"""
SUBSCRIBE = """
const [endpoint, p256dh, auth] = arguments;
const unsubscribe = async () => {
  window.isUnsubscribed = true;
  window.made = null;
  return true;
};
const made = { endpoint, toJSON: () => ({ endpoint, keys: { p256dh, auth } }), unsubscribe };
PushManager.prototype.subscribe = async (wanted) => {
  window.wanted = [wanted.userVisibleOnly, wanted.applicationServerKey.length];
  return (window.made = made);
};
PushManager.prototype.getSubscription = async () => window.made ?? null;
"""
SHOWN = """
const done = arguments[arguments.length - 1];
navigator.serviceWorker.ready.then((one) => one.getNotifications()).then((found) => done(found.map(
  (one) => [one.title, one.body, one.tag, one.data?.thread ?? ""])), (error) => done(String(error)));
"""
CACHED = """
const done = arguments[arguments.length - 1];
caches.open("shell").then((one) => one.keys()).then((all) => done(all.map((one) => new URL(one.url).pathname)));
"""


@pytest.fixture(scope="module")
def service() -> Iterator[PushService]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def page(shared_box: Box, service: PushService) -> Iterator[Page]:
    port = free_port()
    shared_box.environ |= {"OWLBOX__CHANNELS__WEB__ENABLED": "true", "OWLBOX__CHANNELS__WEB__PORT": str(port)}
    shared_box.environ |= {"OWLBOX__CHANNELS__PUSH__ENABLED": "true", "OWLBOX__TOOLS__WEB__PRIVATE_NETWORKS": '["127.0.0.0/8"]'}
    script(shared_box, PLAY)
    core = shared_box.serve()
    with browsing() as browser:
        made = Page(shared_box, core, browser, port)
        until(lambda: _answers(made), "the page is served")
        browser.open(core.call("login.invite", person="ann")["address"])
        browser.shows("New conversation")
        yield made


def ask(browser: Browser, code: str) -> Any:
    return browser.command("POST", "/execute/async", {"script": code, "args": []})


def cdp(browser: Browser, command: str, **params: Any) -> Any:
    return browser.command("POST", "/goog/cdp/execute", {"cmd": command, "params": params})


def allow(page: Page) -> None:
    cdp(page.browser, "Browser.grantPermissions", origin=page.address, permissions=["notifications"])


def test_the_page_can_be_installed(page: Page) -> None:
    browser = page.browser
    cdp(browser, "Page.enable")
    manifest = cdp(browser, "Page.getAppManifest")
    assert manifest["errors"] == [] and json.loads(manifest["data"])["display"] == "standalone"
    assert [one["errorId"] for one in cdp(browser, "Page.getInstallabilityErrors")["installabilityErrors"]] in (
        [],
        ["in-incognito"],
    )
    for icon in json.loads(manifest["data"])["icons"]:
        name = icon["src"].lstrip("/")
        if name.endswith(".png"):
            drawn = draw_icons.read(draw_icons.draw(*draw_icons.ICONS[name]))
            assert np.array_equal(draw_icons.read((STATIC / name).read_bytes()), drawn), "run tests/support/draw_icons.py"
            assert icon["sizes"] == f"{len(drawn)}x{len(drawn)}"
    assert browser.problems() == []


def test_the_worker_keeps_every_file_of_the_page(page: Page) -> None:
    wanted = {f"/{one.name}" for one in STATIC.iterdir() if one.suffix in (".js", ".css", ".svg") and one.name != "sw.js"}
    until(lambda: wanted | {"/"} <= set(ask(page.browser, CACHED)), lambda: str(wanted - set(ask(page.browser, CACHED))))


def test_without_a_network_the_last_conversation_is_read_and_only_read(page: Page) -> None:
    browser = page.begin()
    page.say("keep <b>this</b>")
    browser.shows("Hoot hoot.", css="#log")
    until(lambda: "Hoot" in str(browser.run("return localStorage.getItem('last-conversation')")), "it is kept")
    until(lambda: browser.run("return !!navigator.serviceWorker.controller"), "the worker controls the page")
    page.core.kill()  # and its server with it: nobody is there
    until(lambda: not _answers(page), "nobody serves the page")
    browser.open(page.address)
    browser.shows("Offline", css="#state")
    browser.shows("keep <b>this</b>", "Hoot hoot.", css="#log")
    left = "return [...document.querySelectorAll('button, textarea, input')].filter(one => one.checkVisibility()).length"
    assert browser.run(left) == 0, "it is read, and nothing can be done"
    page.core = page.box.serve()
    browser.shows("Chat", css=".tabs")
    page.say("and on")
    until(lambda: browser.text("#log").count("Hoot hoot.") == 2, "the conversation goes on")
    assert [one for one in browser.problems() if not one.endswith("net::ERR_CONNECTION_REFUSED")] == [], "some were not answered"


def test_a_device_is_switched_on_told_of_a_reminder_and_switched_off(page: Page, service: PushService) -> None:
    browser, device = page.begin(), Device()
    allow(page)
    browser.run(SUBSCRIBE, f"{service.url}/phone", device.keys["key"], device.keys["auth"])
    browser.press("Settings")
    browser.press("Notify this device")
    browser.press("Stop notifying this device")
    until(lambda: page.core.call("push.list", person="ann") == [] and browser.run("return !!window.isUnsubscribed"), "it is off")
    browser.click("[name=push-shows][value=text]")
    browser.press("Notify this device")
    browser.shows("(this device)", "the text", service.url, css="#push-list")
    assert browser.run("return window.wanted") == [True, 65]
    until(lambda: len(service.told(device, "/phone")) == 2, "it is greeted each time")
    browser.press("Chat")
    page.say("remind me to ring the plumber")
    until(lambda: any("plumber" in one["body"] for one in service.told(device, "/phone")), "the reminder came", 60)
    told = service.told(device, "/phone")[-1]
    hand_over(browser, page, told, lambda: len(shown(browser)) == 1)
    [[title, body, tag, _]] = shown(browser)
    assert title == "Owlbox" and "ring <b>the plumber</b>" in body and tag == told["tag"]
    evil = told | {"body": "<img src=x onerror=alert(1)>", "thread": "../evil"}
    hand_over(browser, page, evil, lambda: [one[1] for one in shown(browser)] == ["<img src=x onerror=alert(1)>"])
    hand_over(browser, page, "no JSON {", lambda: len(shown(browser)) == 2)
    browser.press("Settings")
    browser.resize(390, 780)
    browser.run("document.querySelector('#push-list').scrollIntoView()")
    browser.screenshot(page.box.home.root / "push.png")
    browser.resize(1000, 700)
    assert browser.problems() == []


def test_a_browser_that_cannot_says_why(page: Page) -> None:
    browser = page.begin()
    browser.press("Settings")
    browser.run("PushManager.prototype.subscribe = async () => { throw new Error('no push service here'); }")
    browser.press("Stop notifying this device")
    browser.press("Notify this device")
    browser.shows("no push service here", css="#push-note")
    assert page.core.call("push.list", person="ann") == []


def test_logging_out_ends_it_and_leaves_nothing_behind(page: Page, service: PushService) -> None:
    browser, device = page.begin(), Device()
    browser.run(SUBSCRIBE, f"{service.url}/phone", device.keys["key"], device.keys["auth"])
    browser.press("Settings")
    browser.press("Notify this device")
    browser.shows("(this device)", css="#push-list")
    browser.press("Log out")
    browser.shows("Log in")
    until(lambda: page.core.call("push.list", person="ann") == [], "the core forgot it")
    assert browser.run("return localStorage.getItem('last-conversation') ?? localStorage.getItem('push')") is None


def shown(browser: Browser) -> list[list[str]]:
    """The notifications that stand there: title, text, tag and thread."""
    return list(ask(browser, SHOWN))


def hand_over(browser: Browser, page: Page, told: Any, is_shown: Callable[[], bool]) -> None:
    """Hand the worker a message as the browser would, decrypted: again where the browser lost it, as it does with one
    whose worker it has just stopped. The same tag takes the same place."""
    cdp(browser, "ServiceWorker.enable")
    text = told if isinstance(told, str) else json.dumps(told)

    def is_taken() -> bool:
        cdp(browser, "ServiceWorker.deliverPushMessage", origin=f"{page.address}/", registrationId="0", data=text)
        with suppress(AssertionError):
            until(is_shown, "it is shown", 4)
        return is_shown()

    until(is_taken, lambda: str(shown(browser)))
