"""What a worker says about its work while it works: lines of phases in a file, or streaming text on a terminal.

Everything is shortened and for people; the thread's rows hold the whole of it. A log never grows past its limit
by much, and a full disk never stops a worker. Knows nothing about tasks.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TextIO

from appliance.clock import local_hms
from appliance.records import CallPreparing, Delta, Event, LoopEnded, Thinking
from appliance.text.references import begin_of_address, for_people

MAX_BYTES = 5_000_000
KEEP_FILES = 2
INPUT_CHARS = 200
TEXT_CHARS = 2000
Shown = Delta | Thinking | CallPreparing | Event | LoopEnded


class Phases(Protocol):
    """Whoever is told what a worker does."""

    def say(self, phase: str, text: str = "") -> None: ...
    def note(self, text: str) -> None: ...
    def show(self, item: Shown) -> None: ...


class PhaseLog:
    """Phases as lines of a file that begin with the local time; `is_output` when the process' own output goes there too."""

    def __init__(self, path: Path, clean: Callable[[str], str], *, is_output: bool = False, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._clean = clean
        self._is_output = is_output
        self._max_bytes = max_bytes

    def say(self, phase: str, text: str = "") -> None:
        """A phase with what belongs to it on one line."""
        self._write_line(f"[[{phase}]] {' '.join(text.split())}".rstrip())

    def note(self, text: str) -> None:
        """A plain sentence."""
        self._write_line(text)

    def show(self, item: Shown) -> None:
        """A step of the model's work."""
        if not isinstance(item, Event):
            return
        if item.kind == "message" and item.role == "assistant":
            self.say("assistant", item.content[:TEXT_CHARS])
        elif item.kind == "tool_use":
            self.say("tool-call", f"{item.tool} {cut_input(item)}")
        elif item.kind == "tool_result":
            self.say("tool-result", _result_word(item))
        elif item.outcome == "waiting":
            self.say("waiting", item.content)

    def _write_line(self, line: str) -> None:
        data = f"{local_hms()} {self._clean(line)}\n".encode("utf-8", "backslashreplace")
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, data)
                is_full = os.fstat(handle).st_size >= self._max_bytes
            finally:
                os.close(handle)
            if is_full:
                self._turn_over()
        except OSError:
            pass  # a full disk: the log is where we would have said so

    def _turn_over(self) -> None:
        """Begin a new file, keep the last ones; our own output follows."""
        for number in range(KEEP_FILES, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if newer.exists():
                os.replace(newer, older)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._is_output:
            os.dup2(handle, 1)
            os.dup2(handle, 2)
        os.close(handle)


class Screen:
    """The same for a person who watches: the answer as it comes, with addresses as people know them, tool calls as marked lines."""

    def __init__(self, out: TextIO, shown: Callable[[str], str]) -> None:
        self._out = out
        self._shown = shown
        self._is_open = False
        self._held = ""  # of the answer, which may go on as an address

    def say(self, phase: str, text: str = "") -> None: ...

    def note(self, text: str) -> None:
        """A plain sentence on a line of its own."""
        self._put_line(text)

    def show(self, item: Shown) -> None:
        """A step of the model's work."""
        if isinstance(item, Delta):
            self._put_text(item.text)
        elif isinstance(item, Event) and item.kind == "tool_use":
            self._put_line(f"→ {item.tool} {cut_input(item)}")
        elif isinstance(item, Event) and item.kind == "tool_result":
            self._put_line(f"← {item.tool} {_result_word(item)}")
        elif isinstance(item, Event) and item.outcome == "waiting":
            self._put_line(f"… {item.content}")
        elif isinstance(item, LoopEnded):
            self._end_line()

    def _put_line(self, text: str) -> None:
        self._end_line()
        self._put_text(f"{text}\n")
        self._is_open = False

    def _end_line(self) -> None:
        if self._is_open:
            self._put_text("\n")
            self._is_open = False

    def _put_text(self, text: str) -> None:
        text = self._held + text
        cut = len(text) if text.endswith("\n") else begin_of_address(text)
        text, self._held = for_people(text[:cut]), text[cut:]
        try:
            self._out.write(self._shown(text))
            self._out.flush()
        except OSError:
            pass  # the terminal was closed, or the pipe: the work goes on
        self._is_open = True


def cut_input(event: Event) -> str:
    """The input of a tool call, cut."""
    text = json.dumps(event.input or {}, ensure_ascii=False)
    return text if len(text) <= INPUT_CHARS else text[: INPUT_CHARS - 1] + "…"


def _result_word(event: Event) -> str:
    return f"{'ok' if event.status < 400 else 'err'} in {(event.duration_ms or 0) / 1000:.1f}s"
