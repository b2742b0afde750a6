"""The interface that programs for OpenAI's models speak: /v1/chat/completions, /v1/models and /v1/embeddings.

Model "owl" is a conversation with the assistant, with its notes, tools and memory: a chat of the person whom the request is from.
A program sends the whole conversation with each question; the same thread goes on when what was said before is what this process
remembers of a thread, or when the request names it (header `X-Owlbox-Thread`). Otherwise a new thread begins, and what was said
before is put behind the question as a document. Every other model is a local one as it is. Not done: tools of the program,
images, audio, several choices.
"""

import base64
import hashlib
import json
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, OwlError
from appliance.http.message import HttpMessage, Response
from appliance.http.program_calls import ProgramCalls, Told, token_of
from appliance.http.server import route

OWL = "owl"
THREAD = "x-owlbox-thread"
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_THREADS = 1000
EVENTS = "text/event-stream; charset=utf-8"
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
NOT_TAKEN = ("functions", "logprobs", "audio")


class ProgramTurn(Struct, frozen=True):
    """One message of the program's conversation; results of its own tools are `tool` before the owl, `user` before a model."""

    role: str
    text: str


class WantedAnswer(Struct, frozen=True):
    """One request for a completion."""

    model: str
    turns: tuple[ProgramTurn, ...]
    is_streamed: bool
    has_usage: bool
    temperature: float | None
    max_tokens: int
    stop: tuple[str, ...]
    thread: str


class OpenAiRoutes:
    """The routes, over whatever way there is to the core."""

    def __init__(self, calls: ProgramCalls) -> None:
        self._calls = calls
        self._threads: OrderedDict[str, str] = OrderedDict()  # by what was said in them, the newest last
        self._guard = threading.Lock()

    @route("GET", "/v1/models", access="open")
    def list_models(self, request: HttpMessage) -> Response:
        """The assistant, and the local models."""
        names = self._calls.call(request, "model.names", {})
        found = [OWL, *names["chat"], *names["embed"]]
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "owlbox"} for name in found]
        return Response.of_json({"object": "list", "data": data})

    def chat_models(self, request: HttpMessage) -> list[str]:
        """The assistant, and the local models that talk."""
        return [OWL, *self._calls.call(request, "model.names", {})["chat"]]

    @route("POST", "/v1/embeddings", access="open", max_body=MAX_BODY_BYTES)
    def embed(self, request: HttpMessage) -> Response:
        """Vectors by the local embedding model."""
        given = request.json()
        texts = given.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one for one in texts):
            raise _bad("input must be a text, or a list of texts that are not empty", "input")
        if given.get("encoding_format", "float") not in ("float", "base64"):
            raise _bad("encoding_format must be float or base64", "encoding_format")
        vectors = self._calls.call(request, "model.embed", {"texts": texts})["vectors"]
        is_packed = given.get("encoding_format") == "base64"
        data = [{"object": "embedding", "index": n, "embedding": _pack(one) if is_packed else one} for n, one in enumerate(vectors)]
        count = sum(len(one.split()) for one in texts)  # nobody counts tokens here
        usage = {"prompt_tokens": count, "total_tokens": count}
        return Response.of_json({"object": "list", "data": data, "model": str(given.get("model") or "embed"), "usage": usage})

    @route("POST", "/v1/chat/completions", access="open", max_body=MAX_BODY_BYTES)
    def complete(self, request: HttpMessage) -> Response:
        """Send an answer, as a whole or as a stream."""
        wanted = read_wanted(request.json(), request.header(THREAD)[:64])
        told, key = self.begin(request, wanted)
        answer = CompletionAnswer(wanted)
        if wanted.is_streamed:
            first = next(told, None)  # what is wrong from the start is answered with its status
            return Response(200, self._stream(answer, told, first, key), EVENTS, (("X-Accel-Buffering", "no"),))
        for _ in answer.hear(told):
            pass
        self.remember(key, wanted, answer)
        headers = ((THREAD, answer.thread),) if answer.thread else ()
        return Response.of_json(answer.whole(), headers=headers)

    def begin(self, request: HttpMessage, wanted: WantedAnswer) -> tuple[Told, str]:
        """Ask the assistant or a model; and by what its thread is remembered."""
        return self._ask_owl(request, wanted) if wanted.model == OWL else (self._ask_model(request, wanted), "")

    def _stream(self, answer: "CompletionAnswer", told: Told, first: Any, key: str) -> Iterator[bytes]:
        """Server-sent events; what goes wrong on the way is the last one before the end."""
        try:
            yield _event(answer.chunk({"role": "assistant", "content": ""}))
            for text in answer.hear(told, first):
                yield _event(answer.chunk({"content": text}))
            self.remember(key, answer.wanted, answer)
            yield _event(answer.chunk({}, answer.reason))
            if answer.wanted.has_usage:
                yield _event({**answer.head("chat.completion.chunk"), "choices": [], "usage": answer.usage})
        except OwlError as error:
            yield _event({"error": {"message": str(error), "type": error.outcome, "param": None, "code": error.status}})
        finally:
            told.close()
        yield b"data: [DONE]\n\n"

    def _ask_owl(self, request: HttpMessage, wanted: WantedAnswer) -> tuple[Told, str]:
        """Hand the question to the assistant, in the thread that goes on or a new one; and by what its thread is remembered."""
        whose = f"{request.peer.uid if request.peer else ''}\0{token_of(request)}"
        at = max((n for n, turn in enumerate(wanted.turns) if turn.role == "assistant"), default=-1) + 1
        before, last = wanted.turns[:at], [turn.text for turn in wanted.turns[at:] if turn.role == "user"]
        if not last:
            raise _bad("the last message is not a user's", "messages")
        with self._guard:
            thread = wanted.thread or (self._threads.get(_digest(whose, before), "") if before else "")
        question = "\n\n".join(last)
        behind = "" if thread else _write_background(wanted.turns, at)
        params: dict[str, Any] = {"text": f"{question}\n\n{behind}" if behind else question, "thread": thread}
        if behind:
            params["own_chars"] = len(question)
        return self._calls.stream(request, "message.send", params), whose

    def _ask_model(self, request: HttpMessage, wanted: WantedAnswer) -> Told:
        messages = [{"role": "user" if turn.role == "tool" else turn.role, "content": turn.text} for turn in wanted.turns]
        params: dict[str, Any] = {"messages": messages, "model": wanted.model, "max_tokens": wanted.max_tokens}
        params["stop"] = list(wanted.stop)
        if wanted.temperature is not None:
            params["temperature"] = wanted.temperature
        return self._calls.stream(request, "model.chat", params)

    def remember(self, whose: str, wanted: WantedAnswer, answer: "CompletionAnswer") -> None:
        """Note what was said in a thread, so that the next request goes on with it."""
        if not answer.thread:
            return
        said = (*wanted.turns, ProgramTurn("assistant", answer.text))
        with self._guard:
            self._threads[_digest(whose, said)] = answer.thread
            while len(self._threads) > MAX_THREADS:
                self._threads.popitem(last=False)


class CompletionAnswer:
    """One answer as it comes: what of it is said, and what the interface wants to know about it."""

    def __init__(self, wanted: WantedAnswer) -> None:
        self.wanted = wanted
        self.thread = ""
        self.text = ""
        self.reason = "stop"
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._id, self._created_s = f"chatcmpl-{new_id()}", now_ms() // 1000

    def hear(self, told: Told, first: Any = None) -> Iterator[str]:
        """Take what is told, and yield the pieces of text; an error that it ended with is raised."""
        final, waits = "", []
        while True:
            try:
                name, value = first if first is not None else next(told)
            except StopIteration as end:
                result = end.value or {}
                break
            first = None
            if name == "accepted":
                self.thread = value["run"]
            elif name == "delta":
                self.text += value["text"]
                yield value["text"]
            elif name == "event" and value["kind"] == "message" and value["role"] == "assistant":
                final = value["content"]
            elif name == "proposal":
                waits = [f"{value['text']}\nowlbox approve {ref} --thread {value['run']}" for ref in value.get("refs", ())]
        status = int(result.get("status", 200))
        if status >= 400 and not self.text:
            error = OwlError(str(result.get("message") or "the answer ended early"), outcome=str(result.get("outcome", "failed")))
            error.status = status if status < 600 else 500
            raise error
        rest = "" if self.text.strip() else final or str(result.get("text", ""))
        if status == 202 and waits:
            rest += ("\n\n" if self.text or rest else "") + "It waits for your decision: " + "\n".join(waits)
        if rest:
            self.text += rest
            yield rest
        self.reason = {"length": "length", "filtered": "content_filter"}.get(str(result.get("reason")), "stop")
        prompt, output = int(result.get("prompt_tokens", 0)), int(result.get("output_tokens", 0))
        self.usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}

    def head(self, kind: str) -> dict[str, Any]:
        """The fields that every object of the answer begins with."""
        return {"id": self._id, "object": kind, "created": self._created_s, "model": self.wanted.model}

    def chunk(self, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        """A piece of a streamed answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self.head("chat.completion.chunk"), "choices": [choice], **({"thread": self.thread} if self.thread else {})}

    def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": self.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.reason}
        known = {**self.head("chat.completion"), "choices": [choice], "usage": self.usage}
        return {**known, "thread": self.thread} if self.thread else known


def read_wanted(given: dict[str, Any], thread: str) -> WantedAnswer:
    """What a request wants, in the thread that it names, "" for none."""
    model, messages, stop = given.get("model"), given.get("messages"), given.get("stop") or []
    if not isinstance(model, str) or not model:
        raise _bad("model must be a name: GET /v1/models lists them", "model")
    if not isinstance(messages, list) or not messages:
        raise _bad("messages must be a list of messages", "messages")
    for name in NOT_TAKEN:
        if given.get(name):
            raise _bad(f"{name} is not supported here", name)
    if given.get("tools") and model != OWL:
        raise _bad("tools are not supported: a local model is lent as it is", "tools")
    if given.get("n") not in (None, 1):
        raise _bad("n must be 1: there is one choice", "n")
    temperature, most = given.get("temperature"), given.get("max_completion_tokens") or given.get("max_tokens") or 512
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        raise _bad("temperature must be a number", "temperature")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise _bad("max_tokens must be a whole number above 0", "max_tokens")
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(one, str) for one in stop):
        raise _bad("stop must be a text or a list of texts", "stop")
    options = given.get("stream_options")
    return WantedAnswer(
        model=model,
        turns=tuple(_read_turn(one) for one in messages),
        is_streamed=given.get("stream") is True,
        has_usage=isinstance(options, dict) and options.get("include_usage") is True,
        temperature=temperature,
        max_tokens=min(most, 100_000),
        stop=tuple(stop),
        thread=thread,
    )


def _read_turn(given: Any) -> ProgramTurn:
    """A message of the conversation; of a list of parts the texts."""
    if not isinstance(given, dict) or given.get("role") not in ROLES:
        raise _bad(f"a message needs a role: one of {', '.join(ROLES)}", "messages")
    content = given.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in content):
            raise _bad("only texts are understood: no images, no sound", "messages")
        content = "\n".join(part["text"] for part in content)
    calls = given.get("tool_calls") if given["role"] == "assistant" else None
    called = _write_calls(calls) if isinstance(calls, list) else ""
    if content is None and called:  # the program's own tools were called, and nothing was said
        content = ""
    if not isinstance(content, str):
        raise _bad("a message needs its content as text", "messages")
    return ProgramTurn(ROLES[given["role"]], "\n".join(filter(None, (content, called))))


def _write_calls(given: list[Any]) -> str:
    """Calls of the program's own tools that stand in a history, a line each."""
    calls = [one["function"] for one in given if isinstance(one, dict) and isinstance(one.get("function"), dict)]
    return "\n".join(f"[called {one.get('name')} with {one.get('arguments')}]" for one in calls)


def _write_background(turns: tuple[ProgramTurn, ...], at: int) -> str:
    """What a new thread has to know: the program's instructions, and what was said before the question."""
    told = [turn.text for turn in turns if turn.role == "system" and turn.text.strip()]
    said = [f"{turn.role}: {turn.text}" for turn in turns[:at] if turn.role != "system"]
    parts = [f"[from the program that asks]\n{text}" for text in told]
    return "\n\n".join([*parts, *(["[said before]\n" + "\n".join(said)] if said else [])])


def _digest(whose: str, turns: tuple[ProgramTurn, ...]) -> str:
    said = json.dumps([whose, [(turn.role, turn.text.strip()) for turn in turns if turn.role != "system"]])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def _pack(vector: list[float]) -> str:
    """A vector as the official clients ask for it: base64 of little-endian floats."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def _bad(message: str, param: str) -> BadInput:
    return BadInput(message, hint=f"look at {param}")
