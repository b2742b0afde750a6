"""The process of the web page beside its core: why it is not there is said where people look."""

import socket

from process import Box, a_box, until

from appliance.service.web_process import build_web_process

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
