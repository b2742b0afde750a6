"""What servers answer, made fit for the protocol's library, which refuses a whole answer for one odd part of it.

A tool, resource or prompt that is none, as the protocol has it, is taken out of its list and named; half characters are replaced; a
result of a call is one whatever stands in it, also nothing. What is no answer at all becomes an error at once: the library would
wait for another until the time is over. Requests and answers are matched by their ids.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import methods
from mcp_types.jsonrpc import INTERNAL_ERROR
from pydantic import ValidationError

from appliance.mcp import content

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
LEFT_OUT = "owlbox/left-out"  # in the `_meta` of a list: what was taken out of it, and why
NONE = "what it answers is no message of MCP"
HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # an escape of half a character, whole pairs as well
MAX_KEPT = content.MAX_CHARS  # characters of all parts of a result together
NOTE_BYTES = 80  # left for the words that say that a part was cut
Item = SessionMessage | Exception
Transport = AbstractAsyncContextManager[tuple[Any, Any]]


class Repair:
    """The requests of one connection that wait for an answer; `version` is that of the protocol that was agreed on."""

    def __init__(self, version: Callable[[], str]) -> None:
        self._version = version
        self._asked: dict[str | int, str] = {}

    @asynccontextmanager
    async def around(self, transport: Transport) -> AsyncGenerator[tuple[Any, Any]]:
        """Wrap a transport so that its responses are repaired."""
        async with transport as (source, target):
            incoming, reading = anyio.create_memory_object_stream[Item](0)
            writing, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_answers, source, incoming)
                tasks.start_soon(self._pass_requests, outgoing, target)
                try:
                    yield reading, writing
                finally:
                    reading.close()
                    writing.close()
                    tasks.cancel_scope.cancel()

    async def _pass_answers(self, source: Any, to: MemoryObjectSendStream[Item]) -> None:
        async with to:
            async for item in source:
                message = item.message if isinstance(item, SessionMessage) else None
                if isinstance(message, types.JSONRPCResponse):
                    method = self._asked.pop(message.id, "")
                    message.result = self.result(method, message.result)
                elif isinstance(message, types.JSONRPCError) and message.id is not None:
                    self._asked.pop(message.id, None)
                await to.send(item)

    async def _pass_requests(self, outgoing: MemoryObjectReceiveStream[SessionMessage], to: Any) -> None:
        async with outgoing, to:
            async for item in outgoing:
                if isinstance(item.message, types.JSONRPCRequest):
                    self._asked[item.message.id] = item.message.method
                await to.send(item)

    def result(self, method: str, said: dict[str, Any]) -> dict[str, Any]:
        """An answer to this request as the library takes it."""
        if method in LISTS:
            return self._check_list(method, said)
        return bounded(_call_result(said)) if method == "tools/call" else said

    def _check_list(self, method: str, said: dict[str, Any]) -> dict[str, Any]:
        key = LISTS[method]
        rows = said.get(key)
        kept: list[dict[str, Any]] = []
        left_out: list[str] = []
        for number, one in enumerate(rows if isinstance(rows, list) else [], 1):
            try:
                methods.parse_server_result(method, self._version(), {**said, "_meta": None, "nextCursor": None, key: [one]})
                if method == "tools/list" and (not one["name"].strip() or any(one["name"] == other["name"] for other in kept)):
                    raise ValueError("another tool has this name" if one["name"].strip() else "name: is empty")
                kept.append(one)
            except (ValidationError, ValueError, RecursionError) as error:
                name = one.get("name") if isinstance(one, dict) else None
                left_out.append(f"{str(name)[:100] if name else f'number {number}'}: {_reason(error)}")
        cursor = said.get("nextCursor")
        meta = {LEFT_OUT: left_out} if left_out else None
        return {**said, key: kept, "nextCursor": cursor if isinstance(cursor, str) else None, "_meta": meta}


def _reason(error: Exception) -> str:
    """The error in one part of a list, in one line."""
    if not isinstance(error, ValidationError):
        return content.printable(str(error))[:200]
    first = error.errors()[0]
    place = ".".join(str(one) for one in first["loc"][2:])
    return f"{place}: {first['msg']}".removeprefix(": ")[:200]


def _call_result(said: dict[str, Any]) -> dict[str, Any]:
    """The result of a call with blocks that are some; what is none is shown as text."""
    given = said.get("content")
    blocks = given if isinstance(given, list) else [] if given is None else [given]
    data = said.get("structuredContent")
    kept = [_block(one) for one in blocks]
    if data is not None and not isinstance(data, dict):
        kept, data = kept or [_text(json.dumps(data, ensure_ascii=False))], None
    made = {**said, "content": kept, "structuredContent": data, "isError": said.get("isError") is True}
    return {name: value for name, value in made.items() if value is not None}


def _block(said: Any) -> dict[str, Any]:
    if isinstance(said, str):
        return _text(said)
    try:
        types.CallToolResult.model_validate({"content": [said]}, by_name=False)
        is_block = isinstance(said, dict) and isinstance(said.get("type"), str)
    except (ValidationError, RecursionError):
        is_block = False
    if not is_block:
        if isinstance(said, dict) and isinstance(said.get("text"), str):
            return _text(said["text"])
        kind = said.get("type") if isinstance(said, dict) else type(said).__name__
        return _text(f"[a block of kind {kind!s:.40} that cannot be shown]")
    block: dict[str, Any] = said
    return block


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def bounded(said: dict[str, Any], limit: int = MAX_KEPT) -> dict[str, Any]:
    """A result whose parts have together no more bytes than the way to the core takes; what is cut says so."""
    left, kept = limit, []
    for block in said["content"]:
        size = _size(block)
        text = block.get("text")
        if size > left and isinstance(text, str):
            part = text.encode("utf-8", "replace")[: max(0, left - NOTE_BYTES)].decode("utf-8", "ignore")
            block, size = {**block, "text": f"{part}\n[cut: {len(part)} of {len(text)} characters kept]"}, left
        elif size > left:
            block, size = _text(f"[a block of kind {block.get('type')!s:.40}, {size} bytes: too large]"), 0
        left -= size
        kept.append(block)
        if len(kept) >= 1000 or left <= 0:
            break
    made = {**said, "content": kept}
    if (data := said.get("structuredContent")) is not None and _size(data) > left:
        made.pop("structuredContent")
        made["content"] = kept or [_text(f"[a result of {_size(data)} bytes: too large]")]
    return made


def _size(part: Any) -> int:
    return len(json.dumps(part, ensure_ascii=False).encode("utf-8", "replace"))


def mended(line: bytes) -> bytes:
    """A message, or a line of an event stream with one, with a sign in place of each half character."""
    if (text := line.decode("utf-8", "replace")).find("\ufffd") >= 0:
        line = text.encode()
    if HALF.search(line) is None:
        return line
    head = b"data:" if line.startswith(b"data:") else b""
    try:
        said = json.loads(line[len(head) :])
    except (ValueError, RecursionError):
        return line
    # A pair of halves is read as a whole character; what is left are halves.
    return head + json.dumps(said, ensure_ascii=False).encode("utf-8", "replace") + line[len(line.rstrip(b"\r\n")) :]


def salvaged(line: bytes) -> types.JSONRPCResponse | types.JSONRPCError | None:
    """The answer that a line which is no message stands for: a result of nothing or of bare words, else an error."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, Mapping) or "method" in said or not isinstance(said.get("id"), str | int):
        return None
    result = said.get("result")
    if "error" not in said and "result" in said and (result is None or isinstance(result, str | list)):
        return types.JSONRPCResponse(jsonrpc="2.0", id=said["id"], result={} if result is None else {"content": result})
    error = types.ErrorData(code=INTERNAL_ERROR, message=f"Invalid JSON: {NONE}")
    return types.JSONRPCError(jsonrpc="2.0", id=said["id"], error=error)
