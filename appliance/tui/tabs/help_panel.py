"""Help: where things are, what is open, who works, keys, commands."""

from collections import Counter
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content

from appliance import __version__
from appliance.tui.command_runner import channel_line
from appliance.tui.commands import COMMANDS
from appliance.tui.panel import Host, Panel
from appliance.tui.shown_text import Shown

KEYS = (
    (
        "Everywhere",
        (
            ("Tab, Shift+Tab", "next and previous tab"),
            ("F1 to F8", "go to a tab; outside of Chat also 1 to 8"),
            ("Ctrl+G", "find anything that can be done, by typing"),
            ("Ctrl+L", "all threads; Ctrl+N and Ctrl+P the older, the newer one"),
            ("Ctrl+O", "go to what needs your approval"),
            ("Ctrl+S", "choose something that was said, and copy it, also over SSH"),
            ("Esc", "close, stop an answer (twice), back to Chat"),
            ("Ctrl+R", "connect again now, when the core is away"),
            ("Ctrl+C", "copy what is selected; else stop, clear, leave; Ctrl+D leaves"),
            ("k, j", "outside of Chat: scroll what is beside the list"),
            ("r", "outside of Chat: refresh"),
        ),
    ),
    (
        "Chat",
        (
            ("Return", "send; while an answer runs the message is queued"),
            ("Ctrl+J", "new line; also Shift+Return, Alt+Return, \\ Return"),
            ("Up, Down", "what you sent before, from the first or last line"),
            ("Page Up, Down", "read back; Ctrl+Up and Ctrl+Down by line"),
            ("Ctrl+Home, End", "oldest and newest message"),
            ("Ctrl+T", "open or close all tool boxes and thoughts; a click does one"),
            ("Ctrl+K, Ctrl+J", "choose what is queued; Ctrl+E edits, Ctrl+X deletes it"),
            ("Ctrl+B", "what fills the model's context, as /budget"),
        ),
    ),
    (
        "What needs your approval",
        (
            ("Ctrl+O", "to the request that waits, and back"),
            ("a, r", "accept it; reject it and end the answer"),
            ("d", "accept it and similar ones for 7 days, if strangers caused it"),
            ("w", "reject it, saying why"),
            ("f", "say that it failed: the answer goes on"),
            ("1 to 9", "choose an answer; or type it as a message"),
            ("Left, Right", "next request; Up and Down scroll"),
        ),
    ),
    (
        "Tools",
        (
            ("/, f", "filter by words; filter by state"),
            ("k, j, K, J", "scroll the arguments and the result"),
        ),
    ),
    (
        "Context",
        (
            ("Return", "open a folder, read an entry; Backspace goes up"),
            ("/", "search everything the owl knows"),
            ("d, d", "delete the entry under the cursor"),
        ),
    ),
    (
        "Tasks",
        (
            ("a", "add one: its name, or name - description"),
            ("Return", "open the thread in which it was done"),
            ("f, p", "filter by state; filter by priority"),
            ("e, x", "do it again, cancel it"),
            ("d, d", "delete it"),
        ),
    ),
    (
        "Threads",
        (
            ("Return", "go on with the thread in Chat"),
            ("/, f", "filter by title, by type"),
            ("d, d", "delete it with everything said in it"),
        ),
    ),
    (
        "Schedules",
        (
            ("a", "add one: what - when; without a dash a reminder"),
            ("e, t", "switch it on or off, do it now"),
            ("f, o", "filter by on or off; show or hide the built-in ones"),
            ("Return", "open the thread in which it was asked for"),
            ("d, d", "delete it"),
        ),
    ),
    (
        "Workers",
        (
            ("n, o", "start one that stays, or one for a single task"),
            ("x; X, X", "stop it after its task; stop it at once"),
            ("l", "its log, and back; g, G: its beginning, its end"),
            ("f", "filter by state"),
        ),
    ),
)
WIDTH = 18
LIMIT = 100
SCHEDULES: dict[str, Any] = {"name": "list_schedules", "arguments": {"limit": LIMIT, "enabled": True}}
ASKED: dict[str, dict[str, Any]] = {
    "worker.list": {"limit": LIMIT},
    "session.list": {"limit": LIMIT},
    "tool.call": SCHEDULES,
    "skill.list": {},
    "channel.list": {},
}


class HelpGuide(Panel):
    """The last tab."""

    LABEL = "Help"
    DEFAULT_CSS = "HelpGuide VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }"
    BINDINGS = [
        Binding("k", "scroll(-1)", show=False),
        Binding("j", "scroll(1)", show=False),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: dict[str, list[dict[str, Any]]] = {}

    def compose(self) -> ComposeResult:
        """One long text."""
        with VerticalScroll():
            yield Shown(id="here", markup=False)
            yield Shown(self.text(), markup=False)

    def enter(self) -> None:
        """Scroll with the arrow keys; say what is open and who works."""
        self.screen.set_focus(self.query_one(VerticalScroll))
        if not self._known:
            self._show_here()
        for name, params in ASKED.items():
            self.ask(name, params, partial(self._take, name), failed=lambda error: None)

    def _take(self, name: str, found: Any) -> None:
        """One more of the lists has come; what this person may not see never does."""
        self._known[name] = found if isinstance(found, list) else (found.get("data") or {}).get("schedules") or []
        self._show_here()

    def _show_here(self) -> None:
        """Where things are, and how what runs by itself stands."""
        known = self._known
        workers, sessions = known.get("worker.list", []), known.get("session.list", [])
        messages, counts = sum(int(one["messages"]) for one in sessions), Counter(str(one["status"]) for one in workers)
        on = [one for one in known.get("tool.call", []) if one["type"] != "system"]
        missing = sum(1 for one in known.get("skill.list", []) if one["missing"])
        usable = len(known.get("skill.list", [])) - missing
        unusable = f", {missing} cannot" if missing else ""
        home = self.host.home
        places = (
            ("home", home),
            ("your notes", f"{home}/box/notes"),
            ("thread", self.host.attached() or "none yet"),
            ("workers", ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "none"),
            ("sessions", f"{len(sessions)}, messages: {messages}; /sessions shows them"),
            ("schedules", f"{len(on)} on"),
            ("skills", f"{usable} can be used{unusable}; /skills says why"),
            ("this version", __version__),
        )
        lines = _build_section("Here", places)
        channels = [one for one in known.get("channel.list", []) if one["state"] != "off"]
        if channels:
            rows = ((str(one["name"]), channel_line(one).partition(" ")[2].strip()) for one in channels)
            lines += _build_section("Channels", tuple(rows))
        self.query_one("#here", Shown).update(Content("\n").join(lines))

    def action_scroll(self, lines: int) -> None:
        """Move a line."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def text(self) -> Content:
        """The page."""
        lines = []
        for head, keys in KEYS:
            lines += _build_section(head, keys)
        lines += _build_section("Commands in Chat", tuple((f"/{c.name} {c.argument}", c.about) for c in COMMANDS))
        places = (("settings", f"{self.host.home}/owlbox.toml"), ("logs", f"{self.host.home}/logs"))
        lines += _build_section("Where things are", places)
        return Content("\n").join(lines)


def _build_section(head: str, rows: tuple[tuple[str, str], ...]) -> list[Content]:
    lines = [Content.assemble((head, "bold"))]
    lines += [Content.assemble((f"  {key:<{WIDTH}}", "$secondary"), about) for key, about in rows]
    return [*lines, Content("")]
