"""Tools: every call of a tool in the thread that is open in the chat, with all it was given and all it said.

Reads the record, of a long thread the end first; while the tab is on the screen only what is new is asked for.
"""

import json
from datetime import datetime
from typing import Any

from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from appliance.text.references import for_people
from appliance.tui.message_widgets import MARKS, describe_result, format_duration, in_words, meant, tool_name
from appliance.tui.panel import Host
from appliance.tui.tabs.list_panel import SCROLL, Item, Lister

PAGE_EVENTS = 1000
ROW_CHARS = 60
EMPTY = "No tool was called in this thread. What the owl searches, reads and changes for you stands here, call by call."
NONE = "No call matches the filter."
NO_THREAD = "No thread is open in the chat."
EARLIER = {"id": "earlier", "tool": "", "state": "earlier"}
STATES = ("", "running", "waits", "ok", "error")


class Tools(Lister):
    """The tab of what was called."""

    LABEL = "Tools"
    LINE = "/ filters by name and arguments"
    EVERY_S = 2.0
    FILTERS = {"state": STATES}
    BINDINGS = [
        Binding("slash", "type", "Search", key_display="/", priority=True),
        Binding("f", "filter('state')", "State"),
        Binding("r", "refresh", "Refresh"),
        Binding("shift+up,k", "look(-1)", "Scroll", key_display="k/j"),
        SCROLL[1],
        Binding("K", "look(-5)", show=False),
        Binding("J", "look(5)", show=False),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._thread = ""
        self._calls: dict[str, Item] = {}  # by call id, the oldest first
        self._first, self._last = 0, 0  # the events after the first and up to the last one are known
        self._shown: object = None

    def action_refresh(self) -> None:
        """Ask for what has happened since; of another thread, for its end."""
        thread = self.host.attached()
        if thread != self._thread:
            self._thread, self._calls, self._first, self._last, self._shown = thread, {}, 0, 0, None
        if not thread:
            self._fill_rows()
        elif self._last:
            self._fetch_events(self._last)
        else:
            self.ask("thread.view", {"id": thread, "after": 2**62}, self._take_end, about="end")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        self._fill_rows()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return in the filter goes to the list."""
        self.screen.set_focus(self.query_one("#rows"))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the call in full."""
        if call := self.selected_item():
            self._show_call(call)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return on the last line fetches what was called before."""
        event.stop()
        if (call := self.selected_item()) and call["state"] == "earlier":
            self._fetch_events(max(0, self._first - PAGE_EVENTS), self._first)

    # -- reading the record -------------------------------------------------------------------------

    def _take_end(self, found: dict[str, Any]) -> None:
        if found["thread"]["id"] == self._thread:
            self._first = self._last = max(0, int(found["thread"]["last_seq"]) - PAGE_EVENTS)
            self._fetch_events(self._first)

    def _fetch_events(self, after: int, until: int = 0) -> None:
        params = {"id": self._thread, "after": after, "limit": min(PAGE_EVENTS, until - after) if until else PAGE_EVENTS}
        self.ask("thread.view", params, lambda found: self._take_events(found, after, until))

    def _take_events(self, found: dict[str, Any], after: int, until: int) -> None:
        thread, events = found["thread"], found["events"]
        if thread["id"] != self._thread:
            return
        if until:  # those before what is known, which may come in several pages
            known, self._calls = self._calls, {}
            self._add_events(events)
            self._calls = {**self._calls, **known}
            self._first = after if not found["has_more"] or not events else min(self._first, after)
        else:
            self._add_events(events)
            self._last = events[-1]["seq"] if events else max(self._last, 1)
            if found["has_more"]:
                self._fetch_events(self._last)
        self._fill_rows()

    def _add_events(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            call = self._calls.get(event["call_id"]) if event["call_id"] else None
            if event["kind"] == "tool_use":
                tool, given = event["tool"], event["input"] or {}
                made = {"id": event["call_id"], "tool": tool, "given": given, "at_ms": event["at_ms"]}
                self._calls[event["call_id"]] = {**made, "seq": event["seq"], "state": "running", "result": None}
            elif call is not None and event["kind"] == "proposal":
                call["state"] = "waits"
            elif call is not None and event["kind"] == "tool_result":
                call["state"] = "ok" if int(event["status"]) < 400 else "error"
                call["result"] = event

    # -- showing ------------------------------------------------------------------------------------

    def _fill_rows(self) -> None:
        words = self.query_one("#line", Input).value.lower().split()
        state = self.filters["state"]
        shown = [c for c in reversed(self._calls.values()) if not state or c["state"] == state]
        shown = [c for c in shown if all(word in f"{c['tool']} {brief(c['given'], 10_000)}".lower() for word in words)]
        nothing = NONE if self._calls else EMPTY if self._thread else NO_THREAD
        items = [*shown, EARLIER] if self._first else shown
        self.fill(items, _call_row, nothing, seen=[(c["id"], c["state"]) for c in items])
        if call := self.selected_item():
            self._show_call(call)

    def _show_call(self, call: Item) -> None:
        if (call["id"], call["state"]) == self._shown:
            return
        self._shown = (call["id"], call["state"])
        self.show_beside(Content("\n").join(_call_lines(call)))
        self.query_one("#look").scroll_home(animate=False)


def brief(given: dict[str, Any], room: int = ROW_CHARS) -> str:
    """The arguments of a call, cut to this many characters."""
    text = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _call_row(call: Item) -> Content:
    if call["state"] == "earlier":
        return Content.assemble(("▲ earlier calls: Enter", "dim"))
    at = datetime.fromtimestamp(call["at_ms"] / 1000).strftime("%H:%M")
    name = tool_name(call["tool"], call["given"], call["result"])
    return Content.assemble(
        MARKS[call["state"]], (f" {at} ", "dim"), (name, "bold"), f" {brief(meant(call['tool'], call['given'])[1])}"
    )


def _call_lines(call: Item) -> list[Content]:
    if call["state"] == "earlier":
        return [Content("Enter loads earlier calls.")]
    result = call["result"]
    mark, style = MARKS[call["state"]]
    head = Content.assemble((f"{mark} ", style), (tool_name(call["tool"], call["given"], result), "bold"))
    at = datetime.fromtimestamp(call["at_ms"] / 1000).strftime("%a %d %b %Y %H:%M:%S")
    lines = [head, Content.assemble((f"{at}{format_duration(result) if result else ''}", "dim"))]
    lines += [Content(""), Content.assemble(("Given", "bold"))]
    given = meant(call["tool"], call["given"])[1]
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        lines.append(Content.assemble((f"{name}: ", "$secondary"), text))
    if not given:
        lines.append(Content.assemble(("nothing", "dim")))
    lines += [Content(""), Content.assemble(("Result", "bold"), (f"  {describe_result(result)}", "dim"))]
    waiting = {"waits": "it needs your approval: Ctrl+O", "running": "it has not ended yet"}
    if result is None:
        return [*lines, Content(waiting.get(call["state"], ""))]
    if origin := (result.get("input") or {}).get("origin"):
        lines.append(Content.assemble((f"from {origin}: strangers may have written this", "$warning")))
    return [*lines, Content(for_people(in_words(str(result["content"]))) or "(nothing)")]
