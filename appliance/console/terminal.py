"""Plain text on a terminal or in a pipe: streaming an answer, tables, progress. The talk line by line is in `line_talk`.

Knows the words of the method table, not how it is reached. The full-screen face is `tui`.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TextIO
from unicodedata import combining, east_asian_width

from appliance.clock import monotonic_s
from appliance.console.connect import Reach
from appliance.errors import Lost, OwlError, Unavailable, from_outcome
from appliance.text.fences import told
from appliance.text.invisible import escape_invisible, unfinished
from appliance.text.references import begin_of_address, for_people

REDRAW_S = 0.25
NOTICE_CHARS = 600  # of what somebody is told before their question is answered
PAGE = 200  # events of a thread at a time
NARROW = 80  # columns of a terminal that does not say how many it has
KEPT_CHARS = 16  # of what was written, to judge what follows by
GAP = "  "  # between the columns of a table
LEAST = 16  # columns that a cell keeps which is cut to fit


def fitting(text: str, out: TextIO) -> str:
    """The text as it may be written to `out`: with escapes for what nobody sees on a terminal, as it is in a pipe."""
    return escape_invisible(text) if out.isatty() else text


def say(text: str, out: TextIO | None = None) -> None:
    """Print a line for people, on standard output unless told otherwise."""
    stream = out or sys.stdout
    print(fitting(text, stream), file=stream, flush=True)


def says_yes(question: str) -> bool:
    """Whether the person at the terminal agrees; nobody does where there is none."""
    return sys.stdin.isatty() and input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def say_json(data: object) -> int:
    """Print data for programs, on one line; the exit code 0."""
    say(json.dumps(data, ensure_ascii=False))
    return 0


class Table(NamedTuple):
    """Rows under their heads, for `show`; without rows the sentence `empty` is printed. Columns named in `cut` give way.

    Lines of `lead` stand before it, those of `foot` behind.
    """

    rows: Sequence[Sequence[str]]
    heads: Sequence[str]
    cut: Sequence[str] = ()
    empty: str = ""
    lead: Sequence[str] = ()
    foot: Sequence[str] = ()


def show(args: argparse.Namespace, data: object, text: "str | Table | list[str]") -> int:
    """Print what a command found or did: the data with `--json`, else the text for people; the exit code 0.

    A list is printed line by line with `say_line`: its lines repeat names of others.
    """
    if args.json:
        return say_json(data)
    if isinstance(text, Table):
        for line in text.lead:
            say_line(line)
        if text.rows or not (text.empty or text.lead):
            table(text.rows, text.heads, sys.stdout, cut=text.cut)
        elif text.empty:
            say(text.empty)
        for line in text.foot:
            say_line(line)
    elif isinstance(text, str):
        say(text)
    else:
        for line in text:
            say_line(line)
    return 0


def say_line(text: str, out: TextIO | None = None) -> None:
    """Print one line that repeats names of others: a line break in them does not end it, in a pipe neither."""
    print(escape_invisible(text, "line"), file=out or sys.stdout, flush=True)


def vault(status: dict[str, Any]) -> str:
    """The state of the vault, in one line."""
    if status.get("problem"):
        return f"problem: {status['problem']}"
    if status["is_locked"]:
        return "locked: owlbox secret unlock"
    words = {"expiring": "end within 7 days", "expired": "expired"}
    notes = [f"{status[name]} {said}" for name, said in words.items() if status[name]]
    return ", ".join([f"{status['count']} secrets", *notes])


def complain(error: object, out: TextIO | None = None) -> None:
    """Print an error as one line; it may quote anything, so it is always made visible."""
    print(f"owlbox: {escape_invisible(' '.join(str(error).split()), 'exact')}", file=out or sys.stderr)


def state(thread: dict[str, Any]) -> str:
    """The state of a thread, in one word."""
    return str(thread["outcome"] or {100: "waiting", 102: "running"}.get(thread["status"], thread["status"]))


def strangers(thread: dict[str, Any]) -> str:
    """Origin of the untrusted text in a thread, "" for none."""
    return ", ".join(told(name) for name in sorted(thread["metadata"].get("origins") or ()))


class AnswerPrinter:
    """Listens to one answer: text to `out` as it comes, what tools do to `aside`."""

    def __init__(self, out: TextIO | None, aside: TextIO | None) -> None:
        self._out = out
        self._aside = aside
        self._ends_with_newline = True
        self._shown = self._held = ""  # the last that was written, and what can only be judged with what follows
        self.run = ""
        self.text = ""
        self.events: list[dict[str, Any]] = []

    def listen(self, name: str, value: dict[str, Any]) -> None:
        """Handle one notification of the core."""
        if name == "accepted":
            self.run = value["run"]
        elif name == "delta":
            self._write_text(value["text"])
        elif name == "proposal" and self._aside is not None:
            self.end_line()
            say(f"? {value['text']}", self._aside)
            for ref in value["refs"]:
                say(f"  owlbox approve {ref} --thread {value['run']} (or reject)", self._aside)
        elif name == "event":
            self.events.append(value)
            if value["kind"] == "message" and value["role"] == "assistant":
                self.text = value["content"]
                self.end_line()
            elif value["outcome"] in ("waiting", "failover") and value["kind"] == "status_change" and self._aside is not None:
                self.end_line()
                say(f"… {value['content']}", self._aside)
            elif value["kind"] == "proposal" and (value.get("input") or {}).get("is_held") and self._aside is not None:
                self.end_line()
                say(value["content"], self._aside)
            elif value["kind"] == "tool_use" and self._aside is not None:
                self.end_line()
                say(call_line(value), self._aside)

    def _write_text(self, text: str, *, is_end: bool = False) -> None:
        if self._out is None or not (text := self._held + text):
            return
        cut = len(text) if is_end else begin_of_address(text)
        cut = min(cut, len(text) - unfinished(text)) if self._out.isatty() and not is_end else cut
        text, self._held = for_people(text[:cut]), text[cut:]
        self._out.write(escape_invisible(text, before=self._shown) if self._out.isatty() else text)
        self._out.flush()
        self._shown = (self._shown + text)[-KEPT_CHARS:]
        self._ends_with_newline = self._shown.endswith("\n")

    def end_line(self) -> None:
        """Write what was held back, and end the line unless it has ended."""
        self._write_text("", is_end=True)
        if not self._ends_with_newline:
            self._write_text("\n")


def ask(reach: Reach, params: dict[str, Any], out: TextIO | None, aside: TextIO | None) -> tuple[AnswerPrinter, dict[str, Any]]:
    """Send a message and stream its answer to `out`."""
    answer = AnswerPrinter(out, aside)
    return answer, send(reach, params, answer)


def send(reach: Reach, params: dict[str, Any], answer: AnswerPrinter) -> dict[str, Any]:
    """Send a message whose answer is listened to; Ctrl+C stops the answer and keeps what was said.

    Lost means that nobody said it was accepted; sent again with the same `message_id` it is accepted once.
    """
    try:
        result: dict[str, Any] = reach.call("message.send", params, answer.listen)
    except KeyboardInterrupt:
        if answer.run:
            reach.stop(answer.run)
        raise
    except Lost:
        if not answer.run:
            raise
        answer.end_line()
        raise Unavailable(f"the connection to the core was lost; your message is saved: owlbox thread view {answer.run}") from None
    if params.get("wait", True) and result.get("is_new") is False:
        raise Unavailable(f"the message was accepted before and is saved: owlbox thread view {answer.run}")
    return result


def announce(reach: Reach, aside: TextIO | None) -> list[dict[str, Any]]:
    """Say first what this person was told and has not been shown yet: reminders, ends of tasks, alerts; what was said.

    Without `aside` they are only returned, for a caller that shows them. Trouble with them keeps nobody from talking.
    """
    try:
        waiting: list[dict[str, Any]] = reach.call("notice.list", {"is_waiting": True})
        for one in waiting if aside is not None else ():
            text = one["text"] if len(one["text"]) <= NOTICE_CHARS else f"{one['text'][:NOTICE_CHARS].rstrip()} …"
            where = f"  (owlbox thread view {one['run']})" if one["run"] and text != one["text"] else ""
            say(f"* {clock(one['at_ms'])} {for_people(text)}{where}", aside)
        if waiting:
            reach.call("notice.seen", {"keys": [one["key"] for one in waiting]})
    except OwlError:
        return []  # what is wrong is said when the message is sent
    return waiting


def clock(at_ms: int) -> str:
    """The time of day of a moment, with the date when that was another day."""
    then = datetime.fromtimestamp(at_ms / 1000)
    return then.strftime("%H:%M" if then.date() == datetime.now().date() else "%Y-%m-%d %H:%M")


def verdict(result: dict[str, Any]) -> OwlError | None:
    """The error an answer ended with, or None when it ended well."""
    status = int(result.get("status", 200))
    if status in (102, 200):
        return None
    if status == 202:
        return Unavailable("it needs your approval", hint="owlbox approve accepts it, owlbox reject rejects it")
    if status == 100:
        return Unavailable(f"kept: {result.get('message')}: owlbox thread view {result.get('run')}")
    outcome = str(result.get("outcome", "failed"))
    return from_outcome(outcome, str(result.get("message") or f"the answer ended: {outcome}"))


def plain(error: OwlError) -> dict[str, Any]:
    """An error as JSON-ready values."""
    return {"status": error.status, "outcome": error.outcome, "message": error.message, "hint": error.hint}


def call_line(event: dict[str, Any]) -> str:
    """A call of a tool as one line."""
    given = ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in (event["input"] or {}).items())
    return f"· {event['tool']}({given})"


def pages(reach: Reach, thread: str, after: int = 0, only: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """A thread, a page of `thread.view` at a time; there is always a first one."""
    has_more = True
    while has_more:
        page = reach.call("thread.view", {"id": thread, "after": after, "only": list(only) or None, "limit": PAGE})
        yield page
        has_more = page["has_more"]
        after = page["events"][-1]["seq"] if page["events"] else after


def columns(out: TextIO) -> int:
    """How many columns a line may have: what COLUMNS says, else those of the terminal; 0 in a pipe, where nothing is cut."""
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    if not out.isatty():
        return 0
    try:
        return os.get_terminal_size(out.fileno()).columns or NARROW
    except (OSError, ValueError):
        return NARROW


def breadth(text: str) -> int:
    """How many columns a line takes: wide letters take two, marks above others none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def clipped(text: str, room: int) -> str:
    """As much of a line as fits, with a sign where it is cut."""
    if breadth(text) <= room:
        return text
    while text and breadth(text) >= room:
        text = text[:-1]
    return f"{text.rstrip()}…"


def folded(text: str, out: TextIO) -> list[str]:
    """A line as several that fit, those after the first further in; as one where lines have no end. A long word is cut."""
    room, lead = columns(out), text[: len(text) - len(text.lstrip())]
    lines = [lead]
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
        if room and lines[-1].strip() and breadth(longer) > room:
            longer = f"{lead}{GAP}{word}"
            lines.append(longer)
        lines[-1] = clipped(longer, room) if room else longer
    return lines


def table(rows: Sequence[Sequence[str]], heads: Sequence[str], out: TextIO, cut: Sequence[str] = ()) -> None:
    """Columns as wide as their widest cell.

    Where lines have an end, the columns named in `cut` are shortened to fit, and when that is not enough
    the first column has a line of its own with the others below it. No other cell is ever cut.
    """
    cells = [list(heads), *[[escape_invisible(" ".join(cell.split()), "line") for cell in row] for row in rows]]
    for line in _table_lines(cells, cut, columns(out)):
        say(line, out)


def _table_lines(cells: list[list[str]], cut: Sequence[str], room: int) -> list[str]:
    """A table as lines, the row of `cells` that has the heads first."""
    widths = [max(breadth(row[i]) for row in cells) for i in range(len(cells[0]))]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - room if room else 0
    soft = [i for i, head in enumerate(cells[0]) if head in cut]
    while over > 0 and (wide := max((i for i in soft if widths[i] > LEAST), key=lambda i: widths[i], default=None)) is not None:
        widths[wide], over = widths[wide] - 1, over - 1
    if over > 0 and len(widths) > 1:
        firsts = [clipped(row[0], room) if 0 in soft else row[0] for row in cells]
        rest = _table_lines([row[1:] for row in cells], cut, max(1, room - len(GAP)))
        each = len(rest) // len(cells)  # lines that each row came to
        return [one for n, first in enumerate(firsts) for one in (first, *(GAP + line for line in rest[n * each : (n + 1) * each]))]
    kept = [[clipped(cell, widths[i]) if i in soft else cell for i, cell in enumerate(row)] for row in cells]
    return [GAP.join(cell + " " * (width - breadth(cell)) for cell, width in zip(row, widths)).rstrip() for row in kept]


class Progress:
    """How far a transfer is: a bar with bytes, rate and time left that redraws on a terminal, a line now and then in a pipe."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._stage = ""
        self._shown = -1
        self._drawn_s = 0.0
        self._start = (0.0, 0)  # when this stage began, and with how many bytes

    def show(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` bytes of a stage; a total of 0 is unknown."""
        stage, now_s, is_screen = fitting(stage, self._out), monotonic_s(), self._out.isatty()
        if stage != self._stage:
            if self._stage and is_screen:
                self._out.write("\n")
            self._stage, self._shown, self._drawn_s, self._start = stage, -1, 0.0, (now_s, done)
        part = min(100, 100 * done // total) if total else 0
        if is_screen:
            if now_s - self._drawn_s < REDRAW_S and part == self._shown:
                return
            self._out.write("\r" + self._bar_line(done, total, part, now_s - self._start[0]) + "\x1b[K")
        else:
            part = part // 25 * 25
            if part == self._shown:
                return
            self._out.write(f"{stage}: {part} %\n" if total else f"{stage}\n")
        self._shown, self._drawn_s = part, now_s
        self._out.flush()

    def show_steps(self, stage: str, done: int, of: int) -> None:
        """`done` of so many steps of a stage: a bar without bytes on a terminal, one line a stage in a pipe."""
        if not self._out.isatty():
            self.show(stage, 0, 0)
            return
        if stage != self._stage and self._stage:
            self._out.write("\n")
        self._stage = stage
        self._out.write(f"\r{stage:<20} [{'#' * (20 * done // max(1, of)):<20}] {done} of {of}\x1b[K")
        self._out.flush()

    def _bar_line(self, done: int, total: int, part: int, spent_s: float) -> str:
        """One line of at most 79 columns."""
        mb, rate = 1_000_000, (done - self._start[1]) / spent_s if spent_s > 1 else 0.0
        speed = f" {rate / mb:.1f} MB/s" if rate else ""
        if not total:
            return f"{self._stage:<10} {done // mb} MB{speed}" if done else f"{self._stage:<10} …"
        left_s = (total - done) / rate if rate else 0.0
        left = f", {left_s / 60:.0f} min left" if left_s >= 90 else f", {left_s:.0f} s left" if left_s >= 1 else ""
        line = f"{self._stage:<10} [{'#' * (part // 5):<20}] {part:3d} % {done // mb}/{-(-total // mb)} MB{speed}{left}"
        return line[:79]

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """The work is over."""
        if self._stage and self._out.isatty():
            self._out.write("\n")
            self._out.flush()
