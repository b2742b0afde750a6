"""The process of the web page beside its core: why it is not there is said where people look."""

import socket

from loopback import raw_serving
from process import Box, a_box, until

from appliance.http import process
from appliance.runtime.settings import Channels, Config, WebSettings
from appliance.service.web_process import build_web_process
from appliance.upkeep.checks import upkeep

__all__ = ["a_box"]


def test_a_taken_port_is_told_with_its_reason(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environ = {**box.environ, "OWLBOX__CHANNELS__WEB__ENABLED": "true", "OWLBOX__CHANNELS__WEB__PORT": str(port)}
        page = build_web_process(box.home, environ, is_enabled=True)
        assert page is not None and page.problem == ""
        page.start()
        try:
            until(lambda: f"cannot listen at 127.0.0.1 port {port}: Address already in use" in page.problem, "the reason is told")
        finally:
            page.stop()


def test_doctor_asks_for_the_page_itself(box: Box) -> None:
    """A page that is served is none's fault, whatever the core knows of its child; a dead one and a stranger's are named."""
    server = process.build_server(box.home, box.environ, WebSettings(enabled=True, port=0), folder=box.home.root)
    port = server.sock.getsockname()[1]
    settings = Config(channels=Channels(web=WebSettings(enabled=True, port=port)))
    find = lambda state: upkeep.check_channels(settings, {"channels": {"web": state}}, 0)  # noqa: E731
    server.start()
    try:
        assert find("Address already in use").state == "ok" and find(True).state == "ok"
    finally:
        server.close()
    dead = find(True)
    assert dead.state == "problem" and f"nobody answers at http://localhost:{port}: Connection re" in dead.message
    assert "systemctl status owlbox-web" in dead.hint
    with raw_serving(lambda sock: sock.sendall(b"HTTP/1.0 200 OK\r\n\r\na printer")) as url:
        other = int(url.rpartition(":")[2].strip("/"))
        settings = Config(channels=Channels(web=WebSettings(enabled=True, port=other)))
        assert f"another program answers at http://localhost:{other}" in find(True).message
        assert "web page: cannot listen" in find("cannot listen").message
