"""A talk line by line, on a terminal or in a pipe: messages and answers, commands, decisions, the first questions.

Knows the words of the method table, not how it is reached. The full-screen face is `tui`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from appliance.console.connect import Reach
from appliance.console.line_decisions import resolve_waiting, tell_waiting
from appliance.console.terminal import AnswerPrinter, announce, call_line, complain, pages, plain, say, say_line, send, verdict
from appliance.errors import OwlError
from appliance.text.references import for_people

LEAVING = ("exit", "quit", "/exit", "/quit", ":q")
PROPOSED = 202
HELP = """\
Type a message and press Return. A line that ends in \\ continues on the next one.
/new starts a new thread · /clear ends this one and starts another · /threads lists them · /resume ID continues one
/status says what runs · /skills what else can be called · /help · exit, quit or Ctrl+D ends
accept and reject decide about what waits for you
Ctrl+C stops an answer."""


@dataclass(frozen=True)
class Paper:
    """Where a talk is written: answers to `out`, as JSON one a line with `is_json`, and all else to `aside`."""

    out: TextIO
    aside: TextIO
    is_json: bool = False
    is_plain: bool = False  # every state in words, for those who do not see the screen

    def answer(self) -> AnswerPrinter:
        """A listener that writes an answer to this terminal."""
        if self.is_json:
            return AnswerPrinter(None, self.aside)
        if self.is_plain:
            return PlainAnswer(self.out, self.aside)
        return AnswerPrinter(self.out, self.aside)

    def complain(self, error: OwlError) -> None:
        """Print the error of one message; the conversation goes on."""
        if self.is_json:
            say(json.dumps({"error": plain(error)}, ensure_ascii=False), self.out)
        else:
            complain(error, self.aside)


def converse(reach: Reach, text: str, thread: str, paper: Paper) -> str:
    """Say one thing in a thread, "" for a new one, and write down the answer; the thread to go on with."""
    params = {"text": text, "thread": thread, "kind": "chat"}
    answer = paper.answer()
    result = send(reach, params, answer)
    answer.end_line()
    if paper.is_json:
        say(json.dumps({**result, "answer": answer.text}, ensure_ascii=False), paper.out)
    elif (error := verdict(result)) and result.get("status") != PROPOSED:  # what waits is told by the talk
        paper.complain(error)
    return answer.run or thread


def interview(reach: Reach, read_line: Callable[[str], str], aside: TextIO) -> None:
    """Ask the first questions that are open; the end of input or Ctrl+C leaves the rest for the next time.

    Whoever may not write what everybody is told is asked nothing.
    """
    asked: dict[str, Any] = {}
    try:
        asked = reach.call("interview.answer")
        while asked["text"]:
            if asked["note"]:
                say(asked["note"], aside)
            count = f"({asked['number']}/{asked['total']}) " if asked["is_open"] else ""
            say(f"{count}{asked['text']}", aside)
            if not asked["is_open"]:
                return
            asked = reach.call("interview.answer", {"text": read_line("> ")})
    except (EOFError, KeyboardInterrupt):
        print(f"\n{asked.get('later', '')}", file=aside)
    except OwlError:
        return  # trouble with them keeps nobody from talking


def chat(reach: Reach, thread: str, read_line: Callable[[str], str], paper: Paper, first: str = "") -> int:
    """Talk until the end of input, beginning with `first`; errors are said and the talk goes on. Its thread is said at the end."""
    kept = [thread]
    try:
        if first:
            kept[0] = converse(reach, first, thread, paper)
        print("Owlbox. /help shows what you can type.", file=paper.aside)
        return _run_talk(reach, kept, read_line, paper)
    finally:
        if kept[0]:
            say(farewell(reach, kept[0]), paper.aside)


def _run_talk(reach: Reach, kept: list[str], read_line: Callable[[str], str], paper: Paper) -> int:
    """Run the conversation; `kept` holds the current thread, "" before the first."""
    aside = paper.aside
    while True:
        waiting = None
        try:
            if not paper.is_json:
                announce(reach, aside)
                waiting = tell_waiting(reach, kept[0], aside, is_plain=paper.is_plain)
        except OwlError as error:
            paper.complain(error)
        try:
            text = _read_message(read_line)
        except (EOFError, KeyboardInterrupt):
            print(file=aside)
            return 0
        if not text:
            continue
        try:
            if text.lower() in LEAVING:
                return 0
            if text.startswith("/"):
                thread = _run_command(reach, text, kept[0], aside)
                if thread is not None:
                    kept[0] = thread
                    continue
            if waiting is not None and (decision := waiting.read(text)):
                resolve_waiting(reach, waiting, decision, paper.answer(), aside)
            else:
                kept[0] = converse(reach, text, kept[0], paper)
        except KeyboardInterrupt:
            print("\n(stopped)", file=aside)
        except OwlError as error:
            paper.complain(error)


def farewell(reach: Reach, thread: str) -> str:
    """Mark a thread as ended, and what is said when it is left."""
    try:
        is_ended = bool(reach.call("thread.end", {"id": thread})["is_ended"])
    except OwlError:
        is_ended = False  # it is kept all the same
    how = "ended" if is_ended else "is kept"
    return f"Thread {thread} {how}.\nContinue with: owlbox chat --thread {thread}"


def retell(reach: Reach, thread: str, aside: TextIO) -> str:
    """Show what was said and done in a thread so far; its id."""
    for page in pages(reach, thread):
        thread = str(page["thread"]["id"])
        for event in page["events"]:
            if event["kind"] == "message":
                say(for_people(f"{'>' if event['role'] == 'user' else ' '} {event['content']}"), aside)
            elif event["kind"] == "tool_use":
                say(call_line(event), aside)
    return thread


def _read_message(read_line: Callable[[str], str]) -> str:
    lines = [read_line("> ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read_line("… "))
    return "\n".join(lines).strip()


def _run_command(reach: Reach, text: str, thread: str, aside: TextIO) -> str | None:
    """Run a slash command; returns the thread to go on with, None for one that calls a skill and is a message."""
    word, _, rest = text.partition(" ")
    word = word.lower()
    if word == "/help":
        print(HELP, file=aside)
    elif word == "/new":
        print("A new thread begins with your next message.", file=aside)
        return ""
    elif word == "/clear":
        if thread:
            say(farewell(reach, thread), aside)
        print("A new thread begins with your next message.", file=aside)
        return ""
    elif word == "/threads":
        for t in reach.call("thread.list", {"limit": 10}):
            say(f"{'*' if t['id'] == thread else ' '} {t['id']}  {t['title'] or '(untitled)'}", aside)
    elif word == "/status":
        status = reach.call("core.status")
        broker = status.get("broker", {})  # a person with standard rights is told nothing of it
        model = f", model {broker['model']}" if broker.get("model") else ""
        about = f" · broker {broker['state']}{model}" if broker else ""
        say(f"core {'running' if reach.is_remote else 'not running'}{about}", aside)
        if broker:
            say(f"{status['answering']} being answered · {status['entries']} entries · {status['home']}", aside)
    elif word == "/resume" and rest:
        return retell(reach, rest.strip(), aside)
    elif word == "/skills":
        for one in reach.call("skill.list"):
            if not one["is_reserved"]:
                say_line(f"{one['usage']}  {one['description']}", aside)
    elif any(word == f"/{one['name']}" and not one["is_reserved"] for one in reach.call("skill.list")):
        return None
    else:
        say(f"unknown command {word}; /help lists commands, /skills what else can be called", aside)
    return thread


class PlainAnswer(AnswerPrinter):
    """Says when the assistant thinks, answers, works and has ended; text is written as soon as its line is whole."""

    def __init__(self, out: TextIO, aside: TextIO) -> None:
        super().__init__(out, aside)
        self._line = ""  # what has come of a line that is not whole
        self._is_speaking = False

    def listen(self, name: str, value: dict[str, Any]) -> None:
        """One notification."""
        assert self._aside is not None
        kind = value.get("kind") if name == "event" else name
        if name == "accepted":
            self.run = value["run"]
            say("Thinking.", self._aside)
        elif name == "delta":
            self._write_lines(value["text"])
        elif kind == "tool_use":
            self.end_line()
            given = ", ".join(f"{k} {json.dumps(v, ensure_ascii=False)}" for k, v in (value["input"] or {}).items())
            say(f"Working: {value['tool']}{f' with {given}' if given else ''}.", self._aside)
            self.events.append(value)
        elif kind == "tool_result":
            is_good = int(value["status"]) < 400
            say(f"Done: {value['tool']}." if is_good else f"Failed: {value['tool']}, {value['outcome']}.", self._aside)
            self.events.append(value)
        elif name == "proposal":
            self.end_line()  # what waits is told whole when the answer stands still
        else:
            super().listen(name, value)

    def end_line(self) -> None:
        """Write the rest of the last line, and say that the answer has ended."""
        rest, self._line = self._line, ""
        if rest:
            self._write_text(rest)
        super().end_line()
        if self._is_speaking:
            self._is_speaking = False
            say("End of the answer.", self._aside)

    # -- inside -------------------------------------------------------------------------------------

    def _write_lines(self, text: str) -> None:
        if not self._is_speaking:
            self._is_speaking = True
            say("Answer:", self._aside)
        whole, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._write_text(whole + newline)
