"""Earlier threads: a list with a filter, and what was said in the one under the cursor."""

from typing import Any

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from appliance.clock import now_ms
from appliance.tui.confirm import Confirm
from appliance.tui.panel import Means, Panel, ago, named
from appliance.tui.rows import Rows
from appliance.tui.sender import PROPOSED, RUNNING

LIMIT = 200
PREVIEW_EVENTS = 40
PREVIEW_CHARS = 600


class Threads(Panel):
    """The second tab."""

    LABEL = "Threads"
    SCOPED_CSS = False
    DEFAULT_CSS = """
    Threads #filter { border: none; height: 1; padding: 0 1; background: $surface; }
    Threads #filter:focus { background: $boost; }
    Threads #rows { width: 36; }
    Threads #look { padding: 0 1; width: 1fr; scrollbar-size-vertical: 1; }
    .-narrow Threads #rows { width: 1fr; }
    .-narrow Threads #look { display: none; }
    .-wide Threads #rows { width: 46; }
    """
    BINDINGS = [
        Binding("slash", "filter", "Filter", key_display="/", priority=True),  # what is typed right after it must not get lost
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("r", "refresh", "Refresh"),
        Binding("shift+up,k", "look(-1)", show=False),
        Binding("shift+down,j", "look(1)", show=False),
    ]

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._all: list[dict[str, Any]] = []
        self._shown: list[dict[str, Any]] = []

    def compose(self) -> ComposeResult:
        """Filter, list, preview."""
        field = Input(placeholder="/ filters by title", id="filter", select_on_focus=False)
        field.cursor_blink = False
        yield field
        with Horizontal():
            yield Rows(id="rows", markup=False)
            with VerticalScroll(id="look", can_focus=False):
                yield Static(id="words", markup=False)

    def enter(self) -> None:
        """Look at the list again."""
        self.screen.set_focus(self.query_one(Rows))
        self.action_refresh()

    def leave(self) -> bool:
        """Esc in the filter clears it and goes to the list."""
        field = self.query_one("#filter", Input)
        if not (field.has_focus or field.value):
            return False
        field.value = ""
        self.screen.set_focus(self.query_one(Rows))
        return True

    def action_refresh(self) -> None:
        """Fetch the list."""
        self.ask("thread.list", {"limit": LIMIT}, self._listed)

    def action_filter(self) -> None:
        """Type a part of a title."""
        field = self.query_one("#filter", Input)
        if field.has_focus:
            raise SkipAction
        self.screen.set_focus(field)

    def action_look(self, lines: int) -> None:
        """Scroll the preview."""
        self.query_one("#look").scroll_relative(y=lines * 3, animate=False)

    def action_resume(self) -> None:
        """Go on in the thread under the cursor."""
        if thread := self._chosen():
            self.means.resume(thread["id"])

    def action_delete(self) -> None:
        """Delete the thread under the cursor, after asking; the one in the chat is refused (E-236)."""
        thread = self._chosen()
        if thread is None:
            return
        if thread["id"] == self.means.attached():
            self.means.say("this thread is open in the chat: /new there first, then delete it", True)
            return
        title = thread["title"] or thread["id"]
        self.app.push_screen(
            Confirm(f"Delete “{title}” and everything said in it?", "Delete"),
            lambda is_yes: self._delete(thread["id"], title) if is_yes else None,
        )

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        self._fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return in the filter goes to the list."""
        self.screen.set_focus(self.query_one(Rows))

    def on_key(self, event: events.Key) -> None:
        """Down leaves the filter."""
        if event.key == "down" and self.query_one("#filter").has_focus:
            self.screen.set_focus(self.query_one(Rows))
            event.stop()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return or a second click."""
        event.stop()
        self.action_resume()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show what was said."""
        if thread := self._chosen():
            after = max(0, int(thread["last_seq"]) - PREVIEW_EVENTS)
            self.ask("thread.view", {"id": thread["id"], "after": after}, self._look)

    def _delete(self, thread: str, title: str) -> None:
        def deleted(done: dict[str, Any]) -> None:
            self.means.say(f"deleted “{title}” with {done['events']} events", False)
            self.action_refresh()

        self.ask("thread.delete", {"id": thread}, deleted)

    def _chosen(self) -> dict[str, Any] | None:
        place = self.query_one(Rows).highlighted
        return self._shown[place] if place is not None and place < len(self._shown) else None

    def _listed(self, threads: list[dict[str, Any]]) -> None:
        self._all = threads
        self._fill()

    def _fill(self) -> None:
        rows, before = self.query_one(Rows), self._chosen()
        words = self.query_one("#filter", Input).value.lower().split()
        self._shown = [t for t in self._all if all(w in named(t).lower() or w in t["id"] for w in words)]
        rows.set_options([Option(self._row(t)) for t in self._shown])
        ids = [t["id"] for t in self._shown]
        rows.highlighted = (ids.index(before["id"]) if before and before["id"] in ids else 0) if ids else None
        if not ids:
            nothing = "No thread has that in its title." if self._all else "No threads yet. What you say in Chat becomes one."
            self.query_one("#words", Static).update(nothing)

    def _row(self, thread: dict[str, Any]) -> Content:
        is_here = thread["id"] == self.means.attached()
        mark = "!" if thread["id"] in self.means.unread() else ""
        mark = mark or ("?" if thread["status"] == PROPOSED else "●" if is_here else "…" if thread["status"] == RUNNING else " ")
        title = named(thread) or "(untitled)"
        age = f"{ago(thread['updated_ms'], now_ms()):>6}"
        return Content.assemble((mark, "bold"), (age, "dim"), f" {title}")

    def _look(self, found: dict[str, Any]) -> None:
        thread, before = found["thread"], ""
        title, about = named(thread) or "(untitled)", f"{thread['kind']} · {thread['last_seq']} events"
        lines = [Content.assemble((title, "bold")), Content.assemble((about, "dim"))]
        for event in found["events"]:
            text = event["content"] if len(event["content"]) <= PREVIEW_CHARS else event["content"][:PREVIEW_CHARS] + "…"
            kind = event["kind"] if event["role"] != "user" else "user"
            shown = {"user": ("▌ " + text, "bold"), "message": (text, ""), "status_change": (text, "dim")}
            shown["tool_use"] = (f"· {event['tool']}", "dim")
            shown["proposal"] = (f"? {text}", "bold")
            if kind in shown:
                lines += [] if kind == before else [Content("")]
                lines.append(Content.assemble(shown[kind]))
                before = kind
        self.query_one("#words", Static).update(Content("\n").join(lines))
        self.query_one("#look").scroll_home(animate=False)
