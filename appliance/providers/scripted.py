"""A model that says what a file tells it to: for demonstrations, screenshots and tests, without network.

The file (TOML or JSON) holds `turns`, an optional `title` and an optional `otherwise`. A turn:

    match          regular expression looked for in the last message of the user, without the line that says when it was sent
    text | chunks  what to say, whole (cut every `chunk_size` characters) or piece by piece
    delay_s        wait before the first piece; chunk_delay_s: before every later one
    reasoning      thoughts, sent before the text
    tool_calls     [{name, arguments}]
    error          outcome name to fail with (unavailable, timeout, ...), after what was said
    repeat         true: the turn is never used up

A turn whose `match` is found wins; turns without `match` are used in order; when none is left the owl
says `otherwise`. Only requests with purpose "turn" or "bench" use turns up: titles answer `title`. The
file is trusted like the configuration that names it. What was used up is forgotten when the process ends.
"""

import json
import re
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from appliance.clock import monotonic_s
from appliance.errors import Cancelled, ConfigError, DeadlineExceeded, from_outcome
from appliance.records import Ask, Cancel, Finish, Measure, Message, Pause, Piece, Route, ToolCall

TITLE = "A short talk"
OTHERWISE = "I have nothing more to say; my script has ended."
CHARS_PER_TOKEN = 2
SENT = re.compile(r"\A\[\w+ \d{4}-\d\d-\d\d \d\d:\d\d [^\n]*\]\n")  # as `prompt.sections` writes it


class ScriptedTurn(Struct, frozen=True):
    """One scripted answer."""

    match: re.Pattern[str] | None = None
    chunks: tuple[str, ...] = ()
    delay_s: float = 0
    chunk_delay_s: float = 0
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    error: str = ""
    repeat: bool = False


class Script(Struct, frozen=True):
    """A whole file."""

    turns: tuple[ScriptedTurn, ...] = ()
    title: str = TITLE
    otherwise: str = OTHERWISE


class Scripted:
    """Model port that plays a script; several threads may ask."""

    name = "scripted"
    is_loaded = True
    memory_bytes = 0

    def __init__(self, path: Path, window: int) -> None:
        self.model = path.stem
        self.window = window
        self._script = read(path)
        self._left = list(self._script.turns)
        self._guard = threading.Lock()

    def load(self, cancel: Cancel) -> None:
        """Nothing to do: the file was read when the object was made."""

    def close(self) -> None:
        """Nothing to give back."""

    def count(self, text: str) -> int:
        """Half as many tokens as characters, rounded up."""
        return -(-len(text) // CHARS_PER_TOKEN)

    def measure(self, route: Route, ask: Ask) -> Measure:
        """Tokens per named part, of the tools' schemas, and of the messages."""
        parts: dict[str, int] = {}
        texts = [(part.name, part.text) for part in ask.system]
        texts += [("tools", json.dumps([t.name, t.description, t.schema], ensure_ascii=False)) for t in ask.tools]
        texts += [("messages", m.content) for m in ask.messages]
        for name, text in texts:
            parts[name] = parts.get(name, 0) + self.count(text)
        return Measure(self.model, parts, sum(parts.values()))

    def generate(self, route: Route, ask: Ask, cancel: Cancel, pause: Pause | None = None) -> Iterator[Piece | Finish]:
        """The next turn's pieces with its delays, then one Finish, or its error; others may go first between pieces."""
        end_s = monotonic_s() + ask.deadline_s
        turn = self._next_turn(ask)
        spoken = 0
        _pause_for(turn.delay_s, end_s, cancel)
        if turn.reasoning:
            yield Piece(turn.reasoning, is_reasoning=True)
        for i, chunk in enumerate(turn.chunks):
            if pause is not None:
                pause.rest()
            _pause_for(turn.chunk_delay_s if i else 0, end_s, cancel)
            spoken += len(chunk)
            yield Piece(chunk)
        for call in turn.tool_calls:
            yield Piece("", tool=call.name)
            _pause_for(turn.chunk_delay_s, end_s, cancel)
        if turn.error:
            raise from_outcome(turn.error, f"the script says: {turn.error}")
        prompt = self.measure(route, ask).total
        yield Finish(
            reason="tool_calls" if turn.tool_calls else "stop",
            tool_calls=turn.tool_calls,
            reasoning=turn.reasoning,
            provider=self.name,
            model=self.model,
            prompt_tokens=prompt,
            evaluated_tokens=prompt,
            output_tokens=-(-spoken // CHARS_PER_TOKEN),
        )

    def _next_turn(self, ask: Ask) -> ScriptedTurn:
        if ask.purpose not in ("turn", "bench"):
            return ScriptedTurn(chunks=(self._script.title,))
        said = _last_of_user(ask.messages)
        with self._guard:
            turn = next((t for t in self._left if t.match and t.match.search(said)), None)
            turn = turn or next((t for t in self._left if t.match is None), None)
            if turn is None:
                return ScriptedTurn(chunks=(self._script.otherwise,))
            if not turn.repeat:
                self._left = [t for t in self._left if t is not turn]
            return turn


def _last_of_user(messages: tuple[Message, ...]) -> str:
    return SENT.sub("", next((m.content for m in reversed(messages) if m.role == "user"), ""))


def _pause_for(seconds: float, end_s: float, cancel: Cancel) -> None:
    left_s = end_s - monotonic_s()
    if cancel.wait(min(seconds, max(0, left_s))) if seconds > 0 else cancel.is_set():
        raise Cancelled("stopped while the script was speaking")
    if seconds > left_s:
        raise DeadlineExceeded("the script takes longer than the deadline allows")


# -- the file --------------------------------------------------------------------------------------


def read(path: Path) -> Script:
    """The script in a file; ConfigError names the file, the turn and the key."""
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"script {path}: {error.strerror or error}", key="models.script", hint="check the path") from None
    except ValueError as error:
        raise ConfigError(f"script {path}: {error}", key="models.script") from None
    checked = _Checked(path.name, "", raw, {"turns": list, "title": str, "otherwise": str})
    turns = tuple(_parse_turn(path.name, i, raw_turn) for i, raw_turn in enumerate(checked.get("turns", []), 1))
    return Script(turns, checked.get("title", TITLE), checked.get("otherwise", OTHERWISE))


KEYS: dict[str, type | tuple[type, ...]] = {
    "match": str,
    "text": str,
    "chunks": list,
    "chunk_size": int,
    "delay_s": (int, float),
    "chunk_delay_s": (int, float),
    "reasoning": str,
    "tool_calls": list,
    "error": str,
    "repeat": bool,
}


@dataclass
class _Checked:
    """One table of the file, whose keys and types are known to be right."""

    file: str
    place: str
    raw: Any
    keys: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.raw, dict):
            self.fail("", "must be a table")
        for key, value in self.raw.items():
            if key not in self.keys:
                self.fail(key, f"unknown key, expected one of {', '.join(self.keys)}")
            if not isinstance(value, self.keys[key]) or (isinstance(value, bool) and self.keys[key] is not bool):
                self.fail(key, f"has the wrong type ({type(value).__name__})")

    def get(self, key: str, default: Any) -> Any:
        """The value or a default."""
        return self.raw.get(key, default)

    def fail(self, key: str, why: str) -> NoReturn:
        """Raise ConfigError for a key of this table."""
        where = " ".join(part for part in (self.place, key) if part) or "the file"
        raise ConfigError(f"script {self.file}: {where}: {why}", key=key or "turns")

    def require(self, is_fine: bool, key: str, why: str) -> None:
        """Raise ConfigError unless it is fine."""
        if not is_fine:
            self.fail(key, why)


def _parse_turn(file: str, number: int, raw: Any) -> ScriptedTurn:
    table = _Checked(file, f"turn {number}", raw, KEYS)
    chunks, size = table.get("chunks", []), table.get("chunk_size", 0)
    table.require(all(isinstance(c, str) for c in chunks), "chunks", "must be a list of texts")
    table.require(not (chunks and "text" in raw), "chunks", "give text or chunks, not both")
    table.require(size >= 0, "chunk_size", "must not be negative")
    for key in ("delay_s", "chunk_delay_s"):
        table.require(0 <= table.get(key, 0) <= 3600, key, "must be between 0 and 3600")
    error = table.get("error", "")
    table.require(not error or from_outcome(error, "").outcome == error, "error", f"{error!r} is not an outcome")
    return ScriptedTurn(
        match=_parse_pattern(table),
        chunks=tuple(chunks) or _cut_text(table.get("text", ""), size),
        delay_s=table.get("delay_s", 0),
        chunk_delay_s=table.get("chunk_delay_s", 0),
        reasoning=table.get("reasoning", ""),
        tool_calls=_parse_calls(table, number),
        error=error,
        repeat=table.get("repeat", False),
    )


def _parse_pattern(table: _Checked) -> re.Pattern[str] | None:
    if "match" not in table.raw:
        return None
    try:
        return re.compile(table.raw["match"])
    except re.error as error:
        table.fail("match", f"not a regular expression: {error}")


def _cut_text(text: str, size: int) -> tuple[str, ...]:
    step = size or len(text) or 1
    return tuple(text[i : i + step] for i in range(0, len(text), step))


def _parse_calls(table: _Checked, number: int) -> tuple[ToolCall, ...]:
    calls = []
    for i, raw in enumerate(table.get("tool_calls", []), 1):
        one = _Checked(table.file, f"{table.place} tool_calls {i}", raw, {"name": str, "arguments": dict, "id": str})
        one.require(bool(one.get("name", "")), "name", "is missing")
        calls.append(ToolCall(one.get("id", f"call_{number}_{i}"), raw["name"], one.get("arguments", {})))
    return tuple(calls)
