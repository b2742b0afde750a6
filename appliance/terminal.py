"""Plain text on a terminal or in a pipe: streaming an answer, a line-by-line chat, tables, progress.

Knows the words of the method table, not how it is reached. The full-screen face is `tui`.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from appliance.errors import OwlError, from_outcome
from appliance.reach import Reach

HELP = """\
Type a message and press Return. A line that ends in \\ goes on in the next one.
/new starts a new thread · /threads lists them · /resume ID continues one
/status says what runs · /help · /quit or Ctrl+D ends
Ctrl+C stops an answer."""


def state(thread: dict[str, Any]) -> str:
    """How a thread stands, in a word."""
    return str(thread["outcome"] or {100: "waiting", 102: "running"}.get(thread["status"], thread["status"]))


class Answer:
    """Listens to one answer: text to `out` as it comes, what tools do to `aside`."""

    def __init__(self, out: TextIO | None, aside: TextIO | None) -> None:
        self._out = out
        self._aside = aside
        self._ends_with_newline = True
        self.run = ""
        self.text = ""
        self.events: list[dict[str, Any]] = []

    def listen(self, name: str, value: dict[str, Any]) -> None:
        """One notification."""
        if name == "accepted":
            self.run = value["run"]
        elif name == "delta":
            self._write(value["text"])
        elif name == "event":
            self.events.append(value)
            if value["kind"] == "message" and value["role"] == "assistant":
                self.text = value["content"]
                self._end_line()
            elif value["kind"] == "tool_use" and self._aside is not None:
                self._end_line()
                given = ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in (value["input"] or {}).items())
                print(f"· {value['tool']}({given})", file=self._aside, flush=True)

    def _write(self, text: str) -> None:
        if self._out is not None and text:
            self._out.write(text)
            self._out.flush()
            self._ends_with_newline = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._ends_with_newline:
            self._write("\n")


def ask(reach: Reach, params: dict[str, Any], out: TextIO | None, aside: TextIO | None) -> tuple[Answer, dict[str, Any]]:
    """Send a message and stream its answer; Ctrl+C stops the answer and keeps what was said."""
    answer = Answer(out, aside)
    try:
        result: dict[str, Any] = reach.call("message.send", params, answer.listen)
    except KeyboardInterrupt:
        if answer.run:
            reach.stop(answer.run)
        raise
    return answer, result


def verdict(result: dict[str, Any]) -> OwlError | None:
    """The error an answer ended with, or None when it ended well."""
    status = int(result.get("status", 200))
    if status in (100, 102, 200):
        return None
    outcome = str(result.get("outcome", "failed"))
    return from_outcome(outcome, str(result.get("message") or f"the answer ended: {outcome}"))


def chat(reach: Reach, thread: str, read_line: Callable[[str], str], out: TextIO, aside: TextIO) -> int:
    """Talk until the end of input; errors are said and the talk goes on."""
    print("Owlbox. /help shows what you can type.", file=aside)
    while True:
        try:
            text = _message(read_line)
        except EOFError:
            print(file=aside)
            return 0
        except KeyboardInterrupt:
            print("\n(Ctrl+D ends)", file=aside)
            continue
        if not text:
            continue
        try:
            if text.startswith("/"):
                if text in ("/quit", "/exit"):
                    return 0
                thread = _command(reach, text, thread, aside)
                continue
            answer, result = ask(reach, {"text": text, "thread": thread, "kind": "chat"}, out, aside)
            thread = answer.run or thread
            if error := verdict(result):
                print(f"owlbox: {error}", file=aside)
        except KeyboardInterrupt:
            print("\n(stopped)", file=aside)
        except OwlError as error:
            print(f"owlbox: {error}", file=aside)


def _message(read_line: Callable[[str], str]) -> str:
    lines = [read_line("> ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read_line("… "))
    return "\n".join(lines).strip()


def _command(reach: Reach, text: str, thread: str, aside: TextIO) -> str:
    """Run a slash command; returns the thread to go on with."""
    word, _, rest = text.partition(" ")
    if word == "/help":
        print(HELP, file=aside)
    elif word == "/new":
        print("A new thread begins with your next message.", file=aside)
        return ""
    elif word == "/threads":
        for t in reach.call("thread.list", {"limit": 10}):
            print(f"{'*' if t['id'] == thread else ' '} {t['id']}  {t['title'] or '(untitled)'}", file=aside)
    elif word == "/status":
        status = reach.call("core.status")
        broker = status["broker"]
        model = f", model {broker['model']}" if broker.get("model") else ""
        print(f"core {'running' if reach.is_remote else 'not running'} · broker {broker['state']}{model}", file=aside)
        print(f"{status['answering']} being answered · {status['entries']} entries · {status['home']}", file=aside)
    elif word == "/resume" and rest:
        found = reach.call("thread.view", {"id": rest.strip()})
        for event in found["events"]:
            if event["kind"] == "message":
                print(f"{'>' if event['role'] == 'user' else ' '} {event['content']}", file=aside)
        return str(found["thread"]["id"])
    else:
        print(f"unknown command {word}; /help lists them", file=aside)
    return thread


def table(rows: Sequence[Sequence[str]], heads: Sequence[str], out: TextIO) -> None:
    """Columns as wide as their widest cell."""
    cells = [list(heads), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=out)


class Progress:
    """A bar that redraws on a terminal, and a line now and then in a pipe."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._shown: tuple[str, int] = ("", -1)

    def show(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` bytes or steps of a stage; a total of 0 is unknown."""
        part = min(100, 100 * done // total) if total else 0
        step = part if self._out.isatty() else part // 25 * 25
        if (stage, step) == self._shown:
            return
        if self._shown[0] not in ("", stage) and self._out.isatty():
            self._out.write("\n")
        self._shown = (stage, step)
        if self._out.isatty():
            bar = "#" * (part * 30 // 100)
            self._out.write(f"\r{stage:<24} [{bar:<30}] {part:3d} %" if total else f"\r{stage:<24} …")
        else:
            self._out.write(f"{stage}: {step} %\n" if total else f"{stage}\n")
        self._out.flush()

    def end(self) -> None:
        """The work is over."""
        if self._shown[0] and self._out.isatty():
            self._out.write("\n")
            self._out.flush()
