"""A provider of models for tests: plays scripted turns in three wire formats over HTTP or TLS, and everything that goes wrong.

Written from the formats' own documentation, without the adapters' code: it is what they are checked against. Every
request is kept as it came. Each answer is used once, in the order given; `always` plays one for ever.
"""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SERVED = "served-model-1"
Handler = BaseHTTPRequestHandler


@dataclass(frozen=True)
class Call:
    """A tool call; `pieces` are its arguments as text, cut as they are to be sent."""

    name: str
    pieces: tuple[str, ...]
    id: str = "call_a1"


@dataclass(frozen=True)
class Used:
    """Tokens: `prompt` is all of it, `cached` and `written` parts of it; `output` includes `reasoning`."""

    prompt: int = 100
    output: int = 7
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Turn:
    """An answer, in no format. `finish`: stop, length, calls, refused, or "" for one that never says why it ended."""

    chunks: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    signature: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    used: Used | None = field(default_factory=Used)
    pause_s: float = 0
    is_held: bool = False  # only the first event comes before the server is told to go on
    slice_bytes: int = 0  # send it in pieces of so many bytes, wherever they cut
    is_crlf: bool = False


@dataclass(frozen=True)
class Status:
    """An HTTP answer of any kind."""

    status: int
    body: Any = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = "application/json"


@dataclass(frozen=True)
class Half:
    """The first `count` events of a turn; then the line is cut, or, with `is_silent`, nothing comes for a long time."""

    turn: Turn
    count: int
    is_silent: bool = False


@dataclass(frozen=True)
class Raw:
    """These bytes as a stream of events, `pause_s` between them; the last ends it properly."""

    parts: tuple[bytes, ...]
    pause_s: float = 0
    kind: str = "text/event-stream"


@dataclass(frozen=True)
class Silence:
    """Nothing, not even a status."""


@dataclass(frozen=True)
class HangUp:
    """The connection is closed without a word."""


Answer = Turn | Status | Half | Raw | Silence | HangUp


@dataclass
class Seen:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: Any
    line: int  # which connection it came on


@dataclass
class Wire:
    """The server: where it is, what it will answer, and what it was asked."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    always: Answer | None = None
    models: Any = None
    pages: dict[str, Any] = field(default_factory=dict)  # answers to GET by path
    seen: list[Seen] = field(default_factory=list)
    broken: int = 0  # answers that could not be sent to their end, because the other side had gone
    go: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)
    gone: threading.Condition = field(default_factory=threading.Condition)

    def next(self) -> Answer:
        with self.guard:
            if self.always is not None:
                return self.always
            return self.answers.pop(0) if self.answers else Status(500, {"error": {"message": "the test has no answer left"}})

    def wait_broken(self, count: int = 1, timeout_s: float = 60) -> bool:
        """True when so many answers could not be sent to their end."""
        with self.gone:
            return self.gone.wait_for(lambda: self.broken >= count, timeout_s)


@contextmanager
def playing(*answers: Answer, context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Wire]:
    """A server for as long as the block lasts, with TLS when there is a context."""
    wire = Wire(answers=list(answers))

    class Player(_Player):
        server_wire = wire

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that left is what these tests are about

    server = Server((host, 0), Player)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    wire.url = f"{'https' if context else 'http'}://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield wire
    finally:
        wire.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Player(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_wire: Wire
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        wire, path = self.server_wire, self.path.partition("?")[0]
        self._note(None)
        page = wire.pages.get(path)
        if page is None and path.endswith("/models"):
            page = wire.models
        self._status(Status(200, page) if page is not None else Status(404, {"error": {"message": "no such page"}}))

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._note(json.loads(data))
        answer = self.server_wire.next()
        try:
            self._play(answer)
        except OSError:
            with self.server_wire.gone:
                self.server_wire.broken += 1
                self.server_wire.gone.notify_all()
            self.close_connection = True

    def _note(self, body: Any) -> None:
        head = {name.lower(): value for name, value in self.headers.items()}
        with self.server_wire.guard:
            self.server_wire.seen.append(Seen(self.path, head, body, self.client_address[1]))

    def _play(self, answer: Answer) -> None:
        if isinstance(answer, Status):
            self._status(answer)
        elif isinstance(answer, Silence):
            self._wait_gone()
        elif isinstance(answer, HangUp):
            self.close_connection = True
        elif isinstance(answer, Raw):
            self._stream(answer.parts, answer.pause_s, kind=answer.kind)
        elif isinstance(answer, Half):
            self._stream(self._events(answer.turn)[: answer.count], answer.turn.pause_s, is_whole=False)
            if answer.is_silent:
                self._wait_gone()
            self.close_connection = True
        else:
            parts: Sequence[bytes] = self._events(answer)
            if answer.is_crlf:
                parts = [part.replace(b"\n", b"\r\n") for part in parts]
            if size := answer.slice_bytes:
                whole = b"".join(parts)
                parts = [whole[i : i + size] for i in range(0, len(whole), size)]
            self._stream(parts, answer.pause_s, is_held=answer.is_held)

    def _events(self, turn: Turn) -> list[bytes]:
        path = self.path.partition("?")[0]
        if path.endswith("/chat/completions"):
            return list(openai(turn))
        if path.endswith("/messages"):
            return list(anthropic(turn))
        return list(gemini(turn))

    def _status(self, answer: Status) -> None:
        body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        data = body.encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": answer.kind, "Content-Length": str(len(data)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(
        self,
        parts: Sequence[bytes],
        pause_s: float,
        *,
        is_whole: bool = True,
        is_held: bool = False,
        kind: str = "text/event-stream",
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, part in enumerate(parts):
            if i and pause_s and self.server_wire.over.wait(pause_s):
                raise OSError
            if i and is_held:
                self.server_wire.go.wait(120)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if is_whole:
            self.wfile.write(b"0\r\n\r\n")

    def _wait_gone(self) -> None:
        """Until the other side hangs up, or the test is over."""
        self.connection.settimeout(0.05)
        while not self.server_wire.over.is_set():
            try:
                if self.connection.recv(1) == b"":
                    raise OSError
            except TimeoutError:
                continue
        raise OSError


def _event(value: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


# -- chat completions ----------------------------------------------------------------------------------


def openai(turn: Turn) -> Iterator[bytes]:
    """The turn as chat.completion.chunk events."""

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": SERVED, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for text in turn.reasoning:
        yield chunk({"reasoning_content": text})
    for text in turn.chunks:
        yield chunk({"content": text})
    for index, call in enumerate(turn.calls):
        start = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for piece in call.pieces:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    reasons = {"stop": "stop", "length": "length", "calls": "tool_calls", "refused": "content_filter"}
    if not turn.finish:
        return
    yield chunk({}, reasons[turn.finish])
    if turn.used is not None:
        used = turn.used
        usage = {
            "prompt_tokens": used.prompt,
            "completion_tokens": used.output,
            "total_tokens": used.prompt + used.output,
            "prompt_tokens_details": {"cached_tokens": used.cached},
            "completion_tokens_details": {"reasoning_tokens": used.reasoning},
        }
        yield _event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": SERVED, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


# -- messages ------------------------------------------------------------------------------------------


def anthropic(turn: Turn) -> Iterator[bytes]:
    """The turn as messages events."""

    def event(name: str, **more: Any) -> bytes:
        return _event({"type": name, **more}, name)

    used = turn.used
    start: dict[str, Any] = {}
    if used is not None:
        start = {
            "input_tokens": used.prompt - used.cached - used.written,
            "cache_read_input_tokens": used.cached,
            "cache_creation_input_tokens": used.written,
            "output_tokens": 1,
        }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": SERVED, "content": [], "usage": start}
    yield event("message_start", message=message)
    yield event("ping")
    index = 0
    if turn.reasoning:
        yield event("content_block_start", index=index, content_block={"type": "thinking", "thinking": "", "signature": ""})
        for text in turn.reasoning:
            yield event("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": text})
        if turn.signature:
            yield event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": turn.signature})
        yield event("content_block_stop", index=index)
        index += 1
    if turn.chunks:
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for text in turn.chunks:
            yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})
        yield event("content_block_stop", index=index)
        index += 1
    for call in turn.calls:
        yield event(
            "content_block_start", index=index, content_block={"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        )
        for piece in ("", *call.pieces):
            yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        yield event("content_block_stop", index=index)
        index += 1
    reasons = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use", "refused": "refusal"}
    if not turn.finish:
        return
    usage = {} if used is None else {"output_tokens": used.output}
    yield event("message_delta", delta={"stop_reason": reasons[turn.finish], "stop_sequence": None}, usage=usage)
    yield event("message_stop")


# -- generateContent -----------------------------------------------------------------------------------


def gemini(turn: Turn) -> Iterator[bytes]:
    """The turn as GenerateContentResponse events."""

    def response(parts: Sequence[Any], reason: str = "", usage: Mapping[str, int] | None = None) -> bytes:
        candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        value: dict[str, Any] = {"candidates": [candidate], "modelVersion": SERVED, "responseId": "r1"}
        if usage is not None:
            value["usageMetadata"] = usage
        return _event(value)

    for text in turn.reasoning:
        yield response([{"text": text, "thought": True}])
    for text in turn.chunks:
        yield response([{"text": text}])
    for i, call in enumerate(turn.calls):
        part: dict[str, Any] = {"functionCall": {"name": call.name, "args": json.loads("".join(call.pieces) or "{}")}}
        if turn.signature and i == 0:
            part["thoughtSignature"] = turn.signature
        yield response([part])
    reasons = {"stop": "STOP", "length": "MAX_TOKENS", "calls": "STOP", "refused": "SAFETY"}
    if not turn.finish:
        return
    usage = None
    if (used := turn.used) is not None:
        usage = {"promptTokenCount": used.prompt, "candidatesTokenCount": used.output - used.reasoning}
        usage |= {"cachedContentTokenCount": used.cached, "thoughtsTokenCount": used.reasoning}
    yield response([], reasons[turn.finish], usage)


# -- all of them

FORMATS: dict[str, Callable[[Turn], Iterator[bytes]]] = {"openai": openai, "anthropic": anthropic, "gemini": gemini}
