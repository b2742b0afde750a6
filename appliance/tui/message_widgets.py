"""What stands in a talk: what a person said, tool boxes, notes. The assistant's own words are in `prose`."""

import json
import re
from collections.abc import Callable
from typing import Any

from textual import events
from textual.content import Content
from textual.timer import Timer

from appliance.clock import monotonic_s
from appliance.text.references import for_people
from appliance.tui.panel import Panel
from appliance.tui.shown_text import Shown

MARKS = {"waits": ("?", "$warning bold"), "running": ("⟳", "$secondary"), "ok": ("✔", "$success"), "error": ("✘", "$error bold")}
COMMANDS = {"exec", "shell", "sh", "env"}  # tools whose words can be followed while they run
GIVEN_CHARS = 60
GROWING_CHARS = 20  # beside what a command says
ENDED_CHARS = 30  # beside what went wrong, or that it waits
RESULT_CHARS = 4000
BRIEF_CHARS = 200  # of thoughts that are folded
GROWING_THOUGHT_CHARS = 60  # the last of thoughts that still come
OUTPUT_CHARS = 120  # of what a call said, below it
LOOK_S = 2.0  # between looks at what commands have said last
PAGED = re.compile(r"\[lr_[0-9]+: this result has ([0-9]+) characters(?:, of which the first [0-9]+ are kept)?, in ([0-9]+) pages")
OUTCOMES = {
    "interrupted": "The answer was interrupted. Ask again to go on.",
    "cancelled": "Stopped.",
    "stopped": "The owl was shut down while it answered. Ask again to go on.",
}


def explained(outcome: str, why: str) -> str:
    """How an answer ended that did not end well, in words, with its cause where it is known."""
    if outcome == "interrupted" and why:
        return f"The answer was interrupted: {why}. Ask again to go on."
    return OUTCOMES.get(outcome) or why or outcome


class Said(Shown):
    """A person's message; dim until the core has it."""

    DEFAULT_CSS = """
    Said { padding: 0 1; margin: 0 1 1 0; border-left: outer $primary; text-style: bold; }
    Said.-waiting { text-style: none; color: $foreground 60%; border-left: outer $foreground 40%; }
    Said:ansi.-waiting { text-style: dim; }
    Said.-chosen { border-left: outer $warning; background: $boost; }
    Said:ansi.-chosen { border-left: outer ansi_yellow; text-style: reverse; }
    """

    def __init__(self, text: str, *, state: str = "") -> None:
        super().__init__(markup=False)
        self._words = text
        self.state = state

    @property
    def words(self) -> str:
        """What was said."""
        return self._words

    def on_mount(self) -> None:
        """Draw."""
        self.show(self.state)

    def show(self, state: str) -> None:
        """Say what the message waits for, "" when it is with the core."""
        self.state = state
        self.set_class(bool(state), "-waiting")
        self.update(Content.assemble(self._words, (f"  ({state})" if state else "", "dim")))


class Note(Shown):
    """A line of the program itself, not of the conversation."""

    DEFAULT_CSS = """
    Note { padding: 0 2; margin: 0 0 1 0; color: $foreground 70%; }
    Note.-error { color: $error; }
    Note:ansi { color: ansi_default; }
    """

    def __init__(self, text: str, *, is_error: bool = False) -> None:
        super().__init__(text, markup=False, classes="-error" if is_error else "")


class Earlier(Shown):
    """Stands above the first message when there are older ones."""

    DEFAULT_CSS = "Earlier { padding: 0 2; color: $secondary; text-style: underline; width: auto; }"

    def __init__(self, count: int) -> None:
        super().__init__(f"▲ {count} earlier events: Page Up, or click here", markup=False)


class Later(Shown):
    """Stands below the last message while there are newer ones."""

    DEFAULT_CSS = "Later { padding: 0 2; color: $secondary; text-style: underline; width: auto; }"

    def __init__(self) -> None:
        super().__init__("▼ newer events: Page Down, or Ctrl+End for the newest", markup=False)


class Preparing(Shown):
    """Stands in place of a call whose arguments are still being written."""

    DEFAULT_CSS = "Preparing { padding: 0 2; margin: 0 0 1 0; color: $foreground 80%; } Preparing:ansi { color: ansi_default; }"

    def __init__(self, tool: str) -> None:
        mark, style = MARKS["running"]
        super().__init__(Content.assemble((f"{mark} ", style), f"Preparing tool call: {tool}…"), markup=False)


class Thought(Shown):
    """What a model thinks before it answers: one line, the end of it while it grows, or all of it when it is opened."""

    DEFAULT_CSS = """
    Thought { padding: 0 2; margin: 0 0 1 0; color: $foreground 60%; text-style: italic; }
    Thought { text-wrap: nowrap; text-overflow: ellipsis; }
    Thought:hover { background: $boost; }
    Thought.-open { border-left: solid $secondary; padding: 0 1; text-wrap: wrap; }
    Thought:ansi { color: ansi_default; }
    """

    def __init__(self, text: str) -> None:
        super().__init__(markup=False)
        self._words = text.strip()
        self._is_growing = False
        self.is_open = False

    @property
    def words(self) -> str:
        """What has come of it."""
        return self._words

    def open(self, is_open: bool) -> None:
        """Show all of it, or one line."""
        self.is_open = is_open
        self.set_class(is_open, "-open")
        line = " ".join(self._words.split())
        brief = line[-GROWING_THOUGHT_CHARS:].partition(" ")[2] if self._is_growing and len(line) > GROWING_THOUGHT_CHARS else line
        self.update(self._words if is_open else f"… {brief[:BRIEF_CHARS]}")

    def grow(self, text: str) -> None:
        """More of it has come."""
        self._is_growing, self._words = True, (self._words + text).lstrip()
        self.open(self.is_open)

    def finish(self, text: str) -> None:
        """This is all of it."""
        self._is_growing, self._words = False, text.strip()
        self.open(self.is_open)

    def on_click(self, event: events.Click) -> None:
        """Open or close."""
        event.stop()
        self.open(not self.is_open)


class ToolBox(Shown):
    """A call of a tool: one line, or with arguments and result when it is opened."""

    DEFAULT_CSS = """
    ToolBox { padding: 0 2; margin: 0 0 1 0; color: $foreground 80%; text-wrap: nowrap; text-overflow: ellipsis; }
    ToolBox:hover { background: $boost; }
    ToolBox.-open { border-left: solid $secondary; padding: 0 1; text-wrap: wrap; }
    ToolBox:ansi { color: ansi_default; }
    """

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__(markup=False)
        self._tool = str(event["tool"])
        self._given: dict[str, Any] = event["input"] or {}
        self._result: dict[str, Any] | None = None
        self.is_open = False
        self._is_waiting = False
        self._said = ""
        self._began_s = 0.0
        self._clock: Timer | None = None
        self._is_repeated = False
        self.is_command = bool(COMMANDS & {self._tool, str(self._given.get("tool", ""))})

    def on_mount(self) -> None:
        """Draw, and show that it goes on."""
        self._draw_call()

    def start(self) -> None:
        """It runs now: say how long it has been running, second by second."""
        self._began_s = monotonic_s()
        self._clock = self.set_interval(1.0, self._draw_call)

    def wait(self, is_waiting: bool = True) -> None:
        """It waits for somebody's decision, or not any more."""
        self._is_waiting = is_waiting
        self._draw_call()

    def grow(self, said: str) -> None:
        """The last lines of what a command that runs has said."""
        if said != self._said:
            self._said = said
            self._draw_call()

    @property
    def is_busy(self) -> bool:
        """True while a command runs."""
        return self.is_command and self.is_running and not self._is_waiting

    @property
    def is_running(self) -> bool:
        """True until its result came."""
        return self._result is None

    def finish(self, event: dict[str, Any] | None) -> None:
        """The result came; None when it never will."""
        if self._clock is not None:
            self._clock.stop()
        self._result = event or {"status": 499, "outcome": "interrupted", "content": "no result", "duration_ms": None}
        self._draw_call()

    def be_repeated(self, answer: str) -> None:
        """Do not say below the call what the answer says again, as where the words of a tool are the answer."""
        if self._result is not None and " ".join(str(self._result["content"]).split()) == " ".join(answer.split()):
            self._is_repeated = True
            self._draw_call()

    def open(self, is_open: bool) -> None:
        """Show or hide arguments and result."""
        self.is_open = is_open
        self.set_class(is_open, "-open")
        self._draw_call()

    def on_click(self, event: events.Click) -> None:
        """Open or close."""
        event.stop()
        self.open(not self.is_open)

    def _draw_call(self) -> None:
        result = self._result
        state = ("waits" if self._is_waiting else "running") if result is None else "ok" if int(result["status"]) < 400 else "error"
        mark, style = MARKS[state]
        given = ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in meant(self._tool, self._given)[1].items())
        is_heard = state == "running" and bool(self._said)
        room = GROWING_CHARS if is_heard else ENDED_CHARS if state in ("waits", "error") else GIVEN_CHARS
        if len(given) > room and not self.is_open:
            given = given[: room - 1] + "…"
        name = tool_name(self._tool, self._given, result)
        tail = format_duration(result) if result is not None else " · waits for you" if self._is_waiting else self._elapsed()
        if is_heard and not self.is_open:
            tail = f" · {self._said.rpartition(chr(10))[2]}"
        if state == "error" and result is not None and not self.is_open:
            tail += f" · {result['outcome']}: {' '.join(in_words(str(result['content'])).split())}"
        head = Content.assemble((f"{mark} ", style), (name, "bold"), f"({given})", (tail, "dim"))
        below = self._body_lines() if self.is_open else self._brief_lines() if state == "ok" else []
        self.update(Content("\n").join([head, *below]))

    def _elapsed(self) -> str:
        seconds = int(monotonic_s() - self._began_s) if self._began_s else 0
        return f" · {seconds} s" if seconds else ""

    def _brief_lines(self) -> list[Content]:
        """The beginning of what a call said."""
        assert self._result is not None
        text = for_people(" ".join(str(self._result["content"]).split()))
        text = describe_result(self._result) or (text if len(text) <= OUTPUT_CHARS else f"{text[: OUTPUT_CHARS - 1]}…")
        return [Content.assemble((f"  {text}", "dim"))] if text and not self._is_repeated else []

    def _body_lines(self) -> list[Content]:
        if self._result is None:
            return [Content("it needs your approval" if self._is_waiting else self._said or "still running")]
        text = in_words(str(self._result["content"])).rstrip()
        if origin := (self._result.get("input") or {}).get("origin"):
            text = f"({origin}: strangers may have written this)\n{text}"
        if len(text) > RESULT_CHARS:
            text = f"{text[:RESULT_CHARS]}\n… {len(text) - RESULT_CHARS} more characters"
        return [Content(for_people(text) or "(nothing)")]


def meant(tool: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The tool and arguments that are really called, where one tool calls another."""
    inner = given.get("arguments")
    if tool == "use" and isinstance(given.get("tool"), str) and isinstance(inner, dict):
        return meant(given["tool"], inner)
    if tool == "mcp_exec" and isinstance(inner, dict):
        return tool, inner
    return tool, given


def tool_name(tool: str, given: dict[str, Any], result: dict[str, Any] | None = None) -> str:
    """What a tool is called: one of an MCP server as "server / tool", one behind another by its own name."""
    inner = given.get("arguments")
    if tool == "use" and isinstance(given.get("tool"), str) and isinstance(inner, dict):
        return tool_name(given["tool"], inner, result)
    if tool == "mcp_exec" and given.get("server") and given.get("tool"):
        return f"{given['server']} / {given['tool']}"
    server = str(((result or {}).get("input") or {}).get("origin") or "").removeprefix("mcp:")
    if server and tool.startswith(f"{server}_"):
        return f"{server} / {tool.removeprefix(f'{server}_')}"
    return tool


def describe_result(result: dict[str, Any] | None) -> str:
    """The size of a result that a model is shown in pages, else how it ended."""
    if result is None:
        return ""
    content = str(result["content"])
    if found := PAGED.match(content):
        size, pages = int(found[1]), int(found[2])
        return f"Paginated for LLM [{size // 1000}K, {pages}pg]"
    return "" if int(result["status"]) < 400 else str(result["outcome"])


def in_words(content: str) -> str:
    """What a tool said, where it failed: its message and the next step, instead of the JSON that a model is told."""
    try:
        told = json.loads(content) if content.startswith('{"is_error"') else None
    except ValueError:  # cut short
        return content
    if not isinstance(told, dict) or not told.get("message"):
        return content
    hint = told.get("next_action_hint")
    return f"{told['message']} ({hint})" if hint else str(told["message"])


def format_duration(result: dict[str, Any]) -> str:
    """The duration of a call as text."""
    return "" if result["duration_ms"] is None else f" · {result['duration_ms']} ms"


class CommandTails:
    """What commands that run have said last, asked for now and then and shown in their boxes, as long as one runs."""

    def __init__(self, panel: Panel, thread: Callable[[], str], boxes: Callable[[], list[ToolBox]]) -> None:
        """`thread` is the one on the screen, `boxes` those of its calls."""
        self._panel = panel
        self._thread = thread
        self._boxes = boxes
        self._timer: Timer | None = None

    def follow(self) -> None:
        """Look from now on, until none runs any more."""
        if self._timer is None:
            self._timer = self._panel.set_interval(LOOK_S, self._look)

    def _look(self) -> None:
        if any(box.is_busy for box in self._boxes()) and self._thread():
            self._panel.ask("stream.list", {}, self._show)
        elif self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _show(self, found: list[dict[str, Any]]) -> None:
        tails = [one["tail"] for one in found if one["run"] == self._thread()]
        for box, tail in zip([box for box in self._boxes() if box.is_busy], tails):
            box.grow(tail)
