"""A list, and beside it the one under the cursor in full: the shape of most tabs.

A panel says what its rows are, what is told about the chosen one and what its keys do; the list, the line above
it, filters, the cursor that stays on its row, scrolling and looking again are here. Knows nothing of what is listed.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input

from appliance.tui.choice_list import Rows
from appliance.tui.panel import Host, Panel
from appliance.tui.shown_text import Row, Shown

# Keys that every panel has, to stand where it likes in the footer.
REFRESH = Binding("r", "refresh", show=False)
SCROLL = (Binding("shift+up,k", "look(-1)", show=False), Binding("shift+down,j", "look(1)", show=False))

NAME_CHARS = 30  # of a name beside its outcome, on one line
Item = dict[str, Any]
Told = Callable[[dict[str, Any]], object]


class Lister(Panel):
    """A tab of this shape."""

    LINE: ClassVar[str] = ""  # what the line above the list shows while it is empty; "" for no line
    EVERY_S: ClassVar[float] = 0.0  # how old the list may be while it is looked at; 0 for as it was when the tab was opened
    FILTERS: ClassVar[dict[str, tuple[str, ...]]] = {}  # what each filter may be set to, "" for all first
    SCOPED_CSS = False
    DEFAULT_CSS = """
    Lister #line { border: none; height: 1; padding: 0 1; background: $surface; }
    Lister #line:focus { background: $boost; }
    Lister #filters { display: none; height: 1; padding: 0 1; color: $warning; text-wrap: nowrap; text-overflow: ellipsis; }
    Lister #filters.-on { display: block; }
    Lister #rows { width: 38; text-wrap: nowrap; text-overflow: ellipsis; }
    Lister #look { padding: 0 1; width: 1fr; scrollbar-size-vertical: 1; }
    .-narrow Lister #rows { width: 1fr; }
    .-narrow Lister #look { display: none; }
    .-narrow Lister.-empty Horizontal { layout: vertical; }
    .-narrow Lister.-empty #rows { height: 1; }
    .-narrow Lister.-empty #look { display: block; }
    .-wide Lister #rows { width: 52; }
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._items: list[Item] = []
        self._seen: object = None  # what the rows were made from, so that nothing is drawn anew that is the same
        self._timer: Timer | None = None
        self._wanted: Any = None  # the id to go to once it is in the list
        self.filters = dict.fromkeys(self.FILTERS, "")

    def compose(self) -> ComposeResult:
        """The line, the list, what there is to know."""
        if self.LINE:
            field = Input(placeholder=self.LINE, id="line", select_on_focus=False)
            field.cursor_blink = False
            yield field
        yield Shown(id="filters", markup=False)
        with Horizontal():
            yield Rows(id="rows", markup=False)
            with VerticalScroll(id="look", can_focus=False):
                yield Shown(id="words", markup=False)

    def enter(self) -> None:
        """Look at the list, and again every few seconds while it is on the screen."""
        self.screen.set_focus(self.query_one(Rows))
        self.action_refresh()
        if self.EVERY_S and self._timer is None:
            self._timer = self.set_interval(self.EVERY_S, self._look_again)

    def leave(self) -> bool:
        """Esc in the line clears it and goes to the list; with a filter set it shows all again."""
        field = self.query_one("#line", Input) if self.LINE else None
        if field is not None and (field.has_focus or field.value):
            field.value = ""
            self.screen.set_focus(self.query_one(Rows))
            return True
        if not any(self.filters.values()):
            return False
        self.clear_filters()
        self.action_refresh()
        return True

    def on_key(self, event: events.Key) -> None:
        """Down leaves the line."""
        if event.key == "down" and self.LINE and self.query_one("#line").has_focus:
            self.screen.set_focus(self.query_one(Rows))
            event.stop()

    @abstractmethod
    def action_refresh(self) -> None:
        """Fetch the list."""

    def action_type(self) -> None:
        """Type in the line."""
        field = self.query_one("#line", Input)
        if field.has_focus:
            raise SkipAction
        self.screen.set_focus(field)

    def action_filter(self, name: str) -> None:
        """Show only the next kind, after the last one all."""
        values = self.FILTERS[name]
        self.filters[name] = values[(values.index(self.filters[name]) + 1) % len(values)]
        self._show_filters()
        self.action_refresh()

    def clear_filters(self) -> None:
        """Show all from the next look on."""
        self.filters = dict.fromkeys(self.FILTERS, "")
        self._show_filters()

    def action_look(self, lines: int) -> None:
        """Scroll what is beside the list."""
        self.query_one("#look").scroll_relative(y=lines * 3, animate=False)

    def typed(self, event: Input.Submitted) -> str:
        """What was typed in the line, which is empty again unless there was nothing; the list has the focus then."""
        text = event.value.strip()
        if text:
            event.input.value = ""
            self.screen.set_focus(self.query_one(Rows))
        return text

    def selected_item(self) -> Item | None:
        """The one under the cursor."""
        place = self.query_one(Rows).highlighted
        return self._items[place] if place is not None and place < len(self._items) else None

    def fill(self, items: Sequence[Item], row: Callable[[Item], Content], nothing: str, *, seen: object = None) -> None:
        """Show these, the cursor where it was; `nothing` stands beside an empty list. Not again when `seen` is as before."""
        if seen is not None and seen == self._seen and items:
            return
        rows, before = self.query_one(Rows), self.selected_item()
        here, self._wanted = self._wanted or (before["id"] if before else None), None
        self._items, self._seen = list(items), seen
        if items or rows.option_count:
            rows.set_options([Row(row(one)) for one in items])
        ids = [one["id"] for one in items]
        rows.highlighted = (ids.index(here) if here in ids else 0) if ids else None
        self.set_class(not ids, "-empty")
        if not ids:
            self.show_beside(nothing)

    def show_beside(self, words: Content | str) -> None:
        """Show this beside the list."""
        self.query_one("#words", Shown).update(words)

    def call_tool(self, tool: str, arguments: dict[str, Any], then: Told, *, typed: str = "") -> None:
        """Call a tool; `then` gets its outcome. What went wrong is said at the bottom, and what was `typed` is back in its line."""

        def failed(error: str) -> None:
            self.host.say(error, True)
            if typed and not (field := self.query_one("#line", Input)).value:
                field.value = typed
                field.cursor_position = len(typed)
                if self.display:
                    self.screen.set_focus(field)

        def told(outcome: dict[str, Any]) -> None:
            if int(outcome["status"]) >= 400:
                hint = f" ({outcome['hint']})" if outcome["hint"] else ""
                failed(f"{outcome['message']}{hint}")
            else:
                then(outcome)

        self.ask("tool.call", {"name": tool, "arguments": arguments}, told, failed=lambda error: failed(str(error)), about=tool)

    def change(self, tool: str, item: Item) -> None:
        """Call a tool for one of them, show the outcome, and refresh."""

        def changed(outcome: dict[str, Any]) -> None:
            data = outcome.get("data") or {}
            name, note = str(item["name"]), data.get("note") or data.get("verb")
            shown = name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"
            self.host.say(f"{shown}: {note}" if note else outcome["message"], False)
            self._seen = None
            self.action_refresh()

        self.call_tool(tool, {"id": item["id"]}, changed)

    def _show_filters(self) -> None:
        words = [f"{name}: {value.replace('_', ' ')}" for name, value in self.filters.items() if value]
        line = self.query_one("#filters", Shown)
        line.update(f"{', '.join(words)}  (Esc shows all)")
        line.set_class(bool(words), "-on")

    def _look_again(self) -> None:
        """Only while the tab is on the screen and somebody is there: nobody else waits for it."""
        if self.display and self.host.link.is_up:
            if self.host.is_watched():
                self.action_refresh()
        elif not self.display and self._timer is not None:
            self._timer.stop()
            self._timer = None
