"""Our server behind HTTP, for the protocol's own suite, which knows no other way in: `mcp.protocol_server` with the suite's tools.

The adapter is the suite's need, not the product's: one conversation for each session, answers as JSON. The tools are
those that the suite asks for by name, as far as ours can be like them: they answer with text alone.
"""

import json
import queue
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from appliance.clock import CancelToken
from appliance.errors import NotFound
from appliance.mcp.protocol_server import Conversation
from appliance.records import Outcome

LIMIT_S = 30
HERE = ("localhost", "127.0.0.1", "[::1]")
ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
ANSWERS = {
    "test_simple_text": Outcome(200, "ok", "This is a simple text response for testing."),
    "test_error_handling": Outcome(500, "failed", "This tool intentionally returns an error for testing"),
    "json_schema_2020_12_tool": Outcome(200, "ok", "done"),
}


class Wanted:
    """The tools that the suite calls."""

    def tools(self) -> list[dict[str, Any]]:
        about = {"description": "a tool of the conformance suite", "is_read_only": True}
        nothing = {"type": "object", "properties": {}}
        return [{"name": name, "schema": SCHEMA if "schema" in name else nothing, **about} for name in ANSWERS]

    def call(self, name: str, arguments: Mapping[str, Any], agent: str, cancel: CancelToken) -> Outcome:
        if name not in ANSWERS:
            raise NotFound(f"no tool {name}")
        return ANSWERS[name]


class Session:
    """One conversation, asked one thing at a time."""

    def __init__(self) -> None:
        self.said: queue.Queue[bytes] = queue.Queue()
        self.talk = Conversation(Wanted(), self.said.put)

    def ask(self, body: bytes) -> bytes:
        """The answer, b"" where there is to be none."""
        self.talk.handle_line(body)
        return self.said.get(timeout=LIMIT_S) if "id" in json.loads(body) else b""


class Handler(BaseHTTPRequestHandler):
    """POST as the protocol has it; no streams of events."""

    sessions: dict[str, Session] = {}
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """One message."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._is_from_here():
            self._send(403)
            return
        key = self.headers.get("Mcp-Session-Id") or str(uuid.uuid4())
        found = self.sessions.setdefault(key, Session()).ask(body)
        self._send(200 if found else 202, found, key)

    def do_GET(self) -> None:
        """There is no stream."""
        self._send(405)

    def do_DELETE(self) -> None:
        """The session is over."""
        found = self.sessions.pop(self.headers.get("Mcp-Session-Id") or "", None)
        if found is not None:
            found.talk.close()
        self._send(200)

    def _is_from_here(self) -> bool:
        """Whether no page of a browser can have sent it by a name of its own for this machine."""
        named = [self.headers.get("Host") or "", (self.headers.get("Origin") or "http://localhost").partition("//")[2]]
        return all(name.rpartition(":")[0] in HERE or name in HERE for name in named)

    def _send(self, status: int, body: bytes = b"", session: str = "") -> None:
        self.send_response(status)
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_one_request(self) -> None:
        """The suite hangs up as it likes."""
        try:
            super().handle_one_request()
        except ConnectionResetError:
            self.close_connection = True

    def log_message(self, format: str, *values: object) -> None:
        """Nothing: the suite tells what happened."""


def serve() -> ThreadingHTTPServer:
    """A server on a free port of this machine; the caller runs and ends it."""
    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
