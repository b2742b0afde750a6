"""Help: keys, commands, where things are."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content

from appliance import __version__
from appliance.tui.commands import COMMANDS
from appliance.tui.panel import Panel
from appliance.tui.shown_text import Shown

KEYS = (
    (
        "Everywhere",
        (
            ("Tab, Shift+Tab", "next and previous tab"),
            ("F1 to F7", "go to a tab; outside of Chat also 1 to 7"),
            ("Esc", "close, stop an answer (twice), back to Chat"),
            ("Ctrl+R", "connect again now, when the core is away"),
            ("Ctrl+C", "copy what is selected; else stop, clear, leave"),
            ("k, j", "outside of Chat: scroll what is beside the list"),
            ("r", "outside of Chat: look again now"),
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
            ("Ctrl+T", "open or close all tool boxes; a click does one"),
            ("Ctrl+B", "what fills the packet of this thread, as /budget"),
        ),
    ),
    (
        "What waits for you",
        (
            ("Ctrl+O", "to the card of what waits, and back"),
            ("a, r", "accept it; reject it, which ends the answer"),
            ("d", "accept it and its like for 7 days, if strangers caused it"),
            ("w", "reject it, saying why"),
            ("f", "it was tried and went wrong: the answer goes on"),
            ("1 to 9", "an answer of a question; or type it as a message"),
            ("Left, Right", "when there are several; Up and Down read on"),
        ),
    ),
    (
        "Threads",
        (
            ("Return", "go on with the thread in Chat"),
            ("/", "filter by title"),
            ("d", "delete, after asking"),
        ),
    ),
    (
        "Context",
        (
            ("Return", "open a folder, read an entry"),
            ("/", "search everything the owl knows"),
        ),
    ),
    (
        "Tasks",
        (
            ("a", "add one: its name, then - and what more there is to say"),
            ("Return", "the thread in which it was done, in Chat"),
            ("s", "only one state: pending, in progress, waiting, ..."),
            ("e, x, d", "do it again, cancel it, delete it"),
        ),
    ),
    (
        "Schedules",
        (
            ("a", "add one: what - when; without a dash a reminder"),
            ("p, t, d", "pause or resume it, do it now, delete it"),
            ("Return", "the thread in which it was asked for, in Chat"),
            ("o", "with what the owl looks after by itself"),
        ),
    ),
    (
        "Workers",
        (
            ("n, o", "start one that stays, or one for a single task"),
            ("x, X", "let it end, end it at once"),
        ),
    ),
)
WIDTH = 18


class Guide(Panel):
    """The last tab."""

    LABEL = "Help"
    DEFAULT_CSS = "Guide VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }"
    BINDINGS = [
        Binding("k", "scroll(-1)", show=False),
        Binding("j", "scroll(1)", show=False),
    ]

    def compose(self) -> ComposeResult:
        """One long text."""
        with VerticalScroll():
            yield Shown(self.text(), markup=False)

    def enter(self) -> None:
        """Scroll with the arrow keys."""
        self.screen.set_focus(self.query_one(VerticalScroll))

    def action_scroll(self, lines: int) -> None:
        """Move a line."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def text(self) -> Content:
        """The page."""
        lines = []
        for head, keys in KEYS:
            lines += _build_section(head, keys)
        lines += _build_section("Commands in Chat", tuple((f"/{c.name} {c.argument}", c.about) for c in COMMANDS))
        home = self.host.home
        places = (
            ("home", home),
            ("your notes", f"{home}/box/notes"),
            ("settings", f"{home}/owlbox.toml"),
            ("logs", f"{home}/logs"),
            ("this version", __version__),
        )
        lines += _build_section("Where things are", places)
        return Content("\n").join(lines)


def _build_section(head: str, rows: tuple[tuple[str, str], ...]) -> list[Content]:
    lines = [Content.assemble((head, "bold"))]
    lines += [Content.assemble((f"  {key:<{WIDTH}}", "$secondary"), about) for key, about in rows]
    return [*lines, Content("")]
