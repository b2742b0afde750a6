"""A server that speaks what Slack does, as far as its public documentation says: the Web API, and Socket Mode over a WebSocket.

It keeps every call, sends events and holds those that were not confirmed, which it sends again on the next connection.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from appliance.clock import new_id

TEAM, BOT = "T0TEAM", "U0OWL"


class Workspace:
    """One workspace and its app."""

    def __init__(self, team: str = TEAM, tokens: tuple[str, str] = ("xoxb", "xapp")) -> None:
        self.team, self.tokens = team, tokens
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, bytes] = {}
        self.plan: list[str] = []  # what the next posts end with: ok, hang-up, limited, or an error of Slack
        self.open_envelopes: dict[str, dict[str, Any]] = {}
        self.sockets: list[ServerConnection] = []
        self._guard = threading.Lock()
        self._http: ThreadingHTTPServer | None = None
        self._ws: Server | None = None
        self.port = self.ws_port = 0

    def start(self) -> None:
        """Listen, at the ports of before if there were any."""
        workspace = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *words: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                data = workspace.files.get(self.path)
                self._say(200 if data is not None else 404, data or b"")

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                if len(body) < size:
                    return  # half a request is none
                if self.path.startswith("/upload/"):
                    workspace.files[self.path] = body
                    self._say(200, b"OK")
                    return
                is_json = "json" in self.headers.get("Content-Type", "")
                given = json.loads(body or b"{}") if is_json else {k: v[0] for k, v in parse_qs(body.decode()).items()}
                status, answer = workspace.answer(self.path.rpartition("/")[2], given, self.headers.get("Authorization", ""))
                if status:
                    self._say(status, json.dumps(answer).encode())
                else:
                    self.close_connection = True

            def _say(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if status == 429:
                    self.send_header("Retry-After", "1")
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(data)

        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        self._ws = serve(self._talk, "127.0.0.1", self.ws_port, compression=None)
        self.ws_port = self._ws.socket.getsockname()[1]
        threading.Thread(target=self._ws.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Listen no more, and hang up."""
        assert self._http is not None and self._ws is not None
        self._http.shutdown()
        self._http.server_close()
        self._ws.shutdown()
        for socket in self.sockets:
            socket.close()
        self.sockets.clear()

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.port}/api"

    def answer(self, method: str, given: dict[str, Any], token: str) -> tuple[int, dict[str, Any]]:
        """What a call comes to; status 0 hangs up."""
        with self._guard:
            self.calls.append((method, given))
            more: dict[str, Any] = {"ts": f"9.{len(self.calls)}"}
            step = self.plan.pop(0) if self.plan and method == "chat.postMessage" else "ok"
        if step == "hang-up":
            return 0, {}
        if step == "limited":
            self.calls.pop()
            return 429, {"ok": False, "error": "ratelimited"}
        wanted = f"Bearer {self.tokens[method == 'apps.connections.open']}"
        if step != "ok" or token != wanted:
            return 200, {"ok": False, "error": step if step != "ok" else "invalid_auth"}
        if method == "auth.test":
            more = {"team_id": self.team, "user_id": BOT, "user": "owl", "team": "Birds"}
        if method == "apps.connections.open":
            more = {"url": f"ws://127.0.0.1:{self.ws_port}/link"}
        if method == "files.getUploadURLExternal":
            more = {"upload_url": f"http://127.0.0.1:{self.port}/upload/F1", "file_id": "F1"}
        return 200, {"ok": True, **more}

    def _talk(self, socket: ServerConnection) -> None:
        socket.send(json.dumps({"type": "hello", "num_connections": 1}))
        with self._guard:
            self.sockets.append(socket)
            waiting = list(self.open_envelopes.values())
        try:
            for one in waiting:
                socket.send(json.dumps(one))
            while True:
                envelope = json.loads(socket.recv())["envelope_id"]
                self.open_envelopes.pop(envelope, None)
        except (ConnectionClosed, ValueError):
            pass

    def event(self, text: str, user: str = "U0BEN", **more: Any) -> None:
        """Something that a person says: to the bot alone, or with `channel` in a channel."""
        at = f"{len(self.calls) + 1_000_000}.{int(new_id()[-6:], 16)}"
        is_direct = "channel" not in more
        event = {"type": "message", "user": user, "text": text, "ts": at, "team": self.team, "channel": "D0DM"}
        event |= {"channel_type": "im" if is_direct else "channel", **more}
        payload = {"team_id": more.pop("payload_team", self.team), "event": event, "event_id": new_id(), "type": "event_callback"}
        self.send({"type": "events_api", "payload": payload, "envelope_id": new_id()})

    def send(self, envelope: dict[str, Any]) -> None:
        """Send it now, or on the next connection, until it is confirmed."""
        with self._guard:
            self.open_envelopes[envelope["envelope_id"]] = envelope
            sockets = list(self.sockets[-1:])
        for socket in sockets:
            try:
                socket.send(json.dumps(envelope))
            except ConnectionClosed:
                pass

    def shown(self) -> list[str]:
        """What stands in the workspace: each message as it was posted or changed last."""
        texts: dict[str, str] = {}
        for number, (method, given) in enumerate(self.calls, 1):
            if method in ("chat.postMessage", "chat.update"):
                texts[str(given.get("ts", f"9.{number}"))] = str(given["markdown_text"])
        return list(texts.values())

    def posts(self) -> list[dict[str, Any]]:
        """What was posted."""
        return [given for method, given in self.calls if method == "chat.postMessage"]


@contextmanager
def workspace(*given: Any) -> Iterator[Workspace]:
    """A running one."""
    made = Workspace(*given)
    made.start()
    try:
        yield made
    finally:
        made.stop()
