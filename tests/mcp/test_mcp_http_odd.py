"""A server over HTTP whose texts are cut in the middle of a character: it costs that text alone, and no time."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mcp_hubs import Stand, standing
from needs import needs

from appliance.clock import monotonic_s

pytestmark = needs("bwrap", "perl", "python3")
# What stands for the mark in a text: half a pair of surrogates, half of UTF-8.
HALVES = {"half a pair": b"\\ud83d", "half of UTF-8": b"\xf0\x9f"}
TOOL = {"name": "say", "description": "says MARK", "inputSchema": {"type": "object", "properties": {}}}
RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "odd", "version": "1"},
    },
    "tools/list": {"tools": [TOOL, TOOL | {"name": "other", "description": "fine"}]},
    "tools/call": {"content": [{"type": "text", "text": "so MARK far"}]},
}


@contextmanager
def serving(half: bytes, is_stream: bool, heard: list[str] | None = None) -> Iterator[str]:
    """The server; its address. `heard` is given the methods that it is asked for."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            self._say(405, b"", "text/plain")

        do_DELETE = do_GET

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if heard is not None:
                heard.append(asked["method"])
            if "id" not in asked:
                self._say(202, b"", "text/plain")
                return
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": RESULTS.get(asked["method"], {})}
            body = json.dumps(answer).encode().replace(b"MARK", half)
            if is_stream:
                self._say(200, b"event: message\ndata: " + body + b"\n\n", "text/event-stream")
            else:
                self._say(200, body, "application/json")

        def _say(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("odd")) as made:
        yield made


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("half", HALVES)
def test_half_a_character_over_http_costs_neither_the_tools_nor_time(stand: Stand, half: str, is_stream: bool) -> None:
    began_s, name = monotonic_s(), f"{half.split()[-1].lower()}-{is_stream}".lower()
    with serving(HALVES[half], is_stream) as url:
        stand.hub.add(name, {"url": url})
        found = stand.hub.listing(name)
        assert [ware.name for ware in found.wares] == ["say", "other"], (found, stand.hub.entries())
        assert found.wares[0].description.startswith("says ")
        reply = stand.hub.call(name, "say", {})
    assert reply.text.startswith("so ") and reply.text.endswith(" far") and not reply.is_error, reply
    assert monotonic_s() - began_s < 30
