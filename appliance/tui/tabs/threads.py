"""Earlier threads: a list with a filter, and what was said in the one under the cursor."""

from typing import Any

from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from appliance.clock import now_ms
from appliance.tui.choice_list import Rows
from appliance.tui.panel import Host, ago, named
from appliance.tui.sender import PROPOSED, RUNNING
from appliance.tui.tabs.list_panel import SCROLL, Lister

LIMIT = 200
PREVIEW_EVENTS = 40
PREVIEW_CHARS = 600
NONE = "There is no thread of this type."


class Threads(Lister):
    """The tab of what was said before."""

    LABEL = "Threads"
    LINE = "/ filters by title"
    EVERY_S = 5.0
    FILTERS = {"type": ("", "chat", "ask", "tick", "child")}
    DEFAULT_CSS = """
    Threads #rows { width: 36; }
    .-narrow Threads #rows { width: 1fr; }
    .-wide Threads #rows { width: 46; }
    """
    BINDINGS = [
        Binding("slash", "type", "Filter", key_display="/", priority=True),  # what is typed right after it must not get lost
        Binding("f", "filter('type')", "Type"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("r", "refresh", "Refresh"),
        *SCROLL,
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._all: list[dict[str, Any]] = []
        self._shown: tuple[str, int] = ("", 0)  # the thread beside the list, and the number of its last event
        self._from = 0  # the event after which what is beside the list begins

    def action_refresh(self) -> None:
        """Fetch the list."""
        self.ask("thread.list", {"type": self.filters["type"], "limit": LIMIT}, self._show_threads)

    def action_look(self, lines: int) -> None:
        """Scroll what was said; at its top, fetch what was said before."""
        look, thread = self.query_one("#look"), self.selected_item()
        if lines < 0 and look.scroll_y <= 0 and self._from and thread:
            after = max(0, self._from - PREVIEW_EVENTS)
            self._fetch_thread(thread["id"], after, limit=int(thread["last_seq"]) - after)
        else:
            super().action_look(lines)

    def action_resume(self) -> None:
        """Go on in the thread under the cursor."""
        if thread := self.selected_item():
            self.host.resume(thread["id"])

    def action_delete(self) -> None:
        """Delete the thread under the cursor, after asking; the one in the chat is refused (E-236)."""
        thread = self.selected_item()
        if thread is None:
            return
        if thread["id"] == self.host.attached():
            self.host.say("this thread is open in the chat: /new there first, then delete it", True)
            return
        title = thread["title"] or thread["id"]
        self.sure(f"Delete “{title}” and everything said in it", "d", lambda: self._delete_thread(thread["id"], title))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        self._fill_rows()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return in the filter goes to the list."""
        self.screen.set_focus(self.query_one(Rows))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return or a second click."""
        event.stop()
        self.action_resume()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show what was said."""
        if (thread := self.selected_item()) and self._shown != (thread["id"], thread["last_seq"]):
            last = int(thread["last_seq"])
            self._fetch_thread(thread["id"], max(0, last - PREVIEW_EVENTS), limit=PREVIEW_EVENTS)

    def _fetch_thread(self, thread: str, after: int, *, limit: int) -> None:
        params = {"id": thread, "after": after, "limit": min(1000, limit or 1)}
        self.ask("thread.view", params, lambda found: self._show_thread(found, after))

    def _delete_thread(self, thread: str, title: str) -> None:
        def deleted(done: dict[str, Any]) -> None:
            self.host.say(f"deleted “{title}” with {done['events']} events", False)
            self.action_refresh()

        self.ask("thread.delete", {"id": thread}, deleted)

    def _show_threads(self, threads: list[dict[str, Any]]) -> None:
        self._all = threads
        self._fill_rows()

    def _fill_rows(self) -> None:
        words = self.query_one("#line", Input).value.lower().split()
        shown = [t for t in self._all if all(w in named(t).lower() or w in t["id"] for w in words)]
        nothing = "No thread has that in its title." if self._all else "No threads yet. What you say in Chat becomes one."
        nothing = NONE if self.filters["type"] else nothing
        here, unread, now = self.host.attached(), self.host.unread(), now_ms()
        seen = [(t["id"], t["status"], named(t), ago(t["updated_ms"], now), t["id"] in unread, t["id"] == here) for t in shown]
        self.fill(shown, self._thread_row, nothing, seen=seen)

    def _thread_row(self, thread: dict[str, Any]) -> Content:
        is_here = thread["id"] == self.host.attached()
        mark = "!" if thread["id"] in self.host.unread() else ""
        mark = mark or ("?" if thread["status"] == PROPOSED else "●" if is_here else "…" if thread["status"] == RUNNING else " ")
        title = named(thread) or "(untitled)"
        age = f"{ago(thread['updated_ms'], now_ms()):>6}"
        return Content.assemble((mark, "bold"), (age, "dim"), f" {title}")

    def _show_thread(self, found: dict[str, Any], after: int) -> None:
        thread, before = found["thread"], ""
        is_other = self._shown[0] != thread["id"]
        self._shown, self._from = (thread["id"], thread["last_seq"]), after
        title, about = named(thread) or "(untitled)", f"{thread['kind']} · {thread['last_seq']} events"
        lines = [Content.assemble((title, "bold")), Content.assemble((about, "dim"))]
        lines += [Content.assemble((f"▲ {after} events before these: k at the top", "dim"))] if after else []
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
        self.show_beside(Content("\n").join(lines))
        if is_other:
            self.query_one("#look").scroll_home(animate=False)
