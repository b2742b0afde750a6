"""A server that speaks Telegram's Bot API, as far as its documentation says: updates that are held back and confirmed by the next
offset, messages, files both ways and buttons. It keeps every call; `fails` are statuses of the next calls of a method."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "4711:tawny"
BOT = {"id": 99, "is_bot": True, "username": "owl_bot", "first_name": "Owl"}


@dataclass
class Telegram:
    """What the server knows."""

    url: str = ""
    updates: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    fails: dict[str, list[int]] = field(default_factory=dict)
    offset: int = 0
    number: int = 0
    news: threading.Condition = field(default_factory=threading.Condition)

    def put(self, kind: str, content: dict[str, Any]) -> None:
        """An update for the bot."""
        with self.news:
            self.number += 1
            self.updates.append({"update_id": self.number, kind: content})
            self.news.notify_all()

    def say(self, text: str, sender: int = 7, chat: int = 7, **more: Any) -> None:
        """Somebody writes."""
        kind = "private" if chat > 0 else "supergroup"
        message = {"message_id": 1000 + self.number, "date": 1_790_000_000, "text": text, "chat": {"id": chat, "type": kind}}
        self.put("message", {**message, "from": {"id": sender, "is_bot": False, "first_name": "Ann"}, **more})

    def sent(self, method: str) -> list[Any]:
        """What was sent by a method."""
        with self.news:
            return [given for name, given in self.calls if name == method]

    def answer(self, method: str, given: Any) -> Any:
        """The result of a call."""
        if method == "getMe":
            return BOT
        if method == "getUpdates":
            with self.news:
                self.offset = max(self.offset, int(given.get("offset") or 0))
                self.updates = [one for one in self.updates if one["update_id"] >= self.offset]
                self.news.wait_for(lambda: bool(self.updates), min(2.0, float(given.get("timeout") or 0)))
                return self.updates[:100]
        if method == "getFile":
            return {"file_id": given["file_id"], "file_path": f"photos/{given['file_id']}"}
        return {"message_id": 1} if method.startswith("send") else True


@contextmanager
def serving() -> Iterator[Telegram]:
    """A server for as long as the block lasts."""
    telegram = Telegram()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = json.loads(body or b"{}") if "json" in self.headers.get("Content-Type", "") else body
            _, bot, method = self.path.split("/")
            failed = telegram.fails.get(method, [])
            status = 401 if bot != f"bot{TOKEN}" else failed.pop(0) if failed else 200
            if status == 200:
                if method != "getUpdates":
                    with telegram.news:
                        telegram.calls.append((method, given))
                self.reply(200, json.dumps({"ok": True, "result": telegram.answer(method, given)}).encode())
            else:
                more = {"parameters": {"retry_after": 1}} if status == 429 else {}
                self.reply(status, json.dumps({"ok": False, "description": "no", **more}).encode())

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            self.reply(200 if name in telegram.files else 404, telegram.files.get(name, b""))

        def reply(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # clients are killed while they wait

    server = Server(("127.0.0.1", 0), Handler)
    telegram.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield telegram
    finally:
        server.shutdown()
        server.server_close()
