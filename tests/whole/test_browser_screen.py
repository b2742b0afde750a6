"""The full screen in a real Chromium: behind the login, with the rights of whoever is logged in, gone with its browser."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection

import browser as browsers
import pytest
from browser import ENTER, Browser, browsing
from process import Box, Core, a_shared_box, is_gone, left_over, script, until  # noqa: F401
from sshd import free_port

pytestmark = pytest.mark.skipif(not browsers.CHROMIUM or not browsers.DRIVER, reason="no chromium with chromedriver here")
PLAY = '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n'


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Iterator[Core]:
    port = str(free_port())
    names = {"ENABLED": "true", "PORT": port, "SCREENS": "1"}
    shared_box.environ |= {f"OWLBOX__CHANNELS__WEB__{name}": value for name, value in names.items()}
    script(shared_box, PLAY)
    made = shared_box.serve()
    shared_box.start("web")
    until(lambda: ask(made, "/screen") == 303, "the server answers, and sends to the login whoever is not logged in")
    yield made


def ask(core: Core, path: str, **headers: str) -> int:
    """The status of a request without a browser; 0 when nobody answers."""
    wire = HTTPConnection("127.0.0.1", int(core.box.environ["OWLBOX__CHANNELS__WEB__PORT"]), timeout=30)
    try:
        wire.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return wire.getresponse().status
    except OSError:
        return 0
    finally:
        wire.close()


def screens(core: Core) -> list[int]:
    """The processes of screens."""
    return [int(line.split()[0]) for line in left_over(core.box) if line.split()[-1] == "tui"]


def is_drawn(page: Browser) -> bool:
    return bool(page.run("return document.body.classList.contains('-first-byte') && document.activeElement.tagName == 'TEXTAREA'"))


@pytest.mark.covers("S-126")
def test_a_person_types_into_the_screen_in_a_browser_and_it_ends_with_it(core: Core) -> None:
    address = f"http://localhost:{core.box.environ['OWLBOX__CHANNELS__WEB__PORT']}"
    with browsing() as page:
        page.resize(1000, 700)
        page.open(f"{address}/screen")
        assert page.run("return location.pathname") == "/" and screens(core) == []
        page.open(core.call("login.invite", person="ann")["address"])
        until(lambda: "ann" in json.dumps(core.call("login.list")), "she is logged in")
        page.open(f"{address}/screen")
        until(lambda: is_drawn(page), "the screen is drawn and takes keys")
        (screen,) = screens(core)
        page.keys(*"hello owl", ENTER)
        until(lambda: "local:ann" in json.dumps(core.call("thread.list")), "it is her thread")
        thread = core.call("thread.list")[0]["id"]
        until(lambda: "Hoot hoot." in json.dumps(core.call("thread.view", id=thread)["events"]), "it is answered")
        assert page.problems() == [], "its own policy lets it work"
        page.open("about:blank")
        until(lambda: is_gone(screen), "it ends with its page")
    assert left_over(core.box), "the core goes on"


@pytest.mark.parametrize("path", ["/screen/ws", "/screen/textual.js", "/screen/screen.css", "/screen/../../owlbox.toml"])
def test_nothing_of_it_is_open_to_strangers(core: Core, path: str) -> None:
    port = core.box.environ["OWLBOX__CHANNELS__WEB__PORT"]
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13", "Sec_WebSocket_Key": "x" * 24}
    assert ask(core, path, **upgrade) in (400, 401, 403, 404)
    assert ask(core, path, Origin=f"http://localhost:{port}", Cookie="owlbox=none", **upgrade) in (400, 401, 403, 404)
    assert screens(core) == []
