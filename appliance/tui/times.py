"""Schedules: what is done again and again, reminders, and the one under the cursor with its next times and how it went."""

import getpass
from datetime import datetime
from typing import Any

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.tui.confirm import Confirm
from appliance.tui.panel import Means, Panel
from appliance.tui.rows import Rows

LIMIT = 200
LOOK_S = 5.0  # how old the list may be while it is looked at
MARKS = {"active": "●", "paused": "‖", "completed": "✓", "failed": "✗"}
STYLES = {"active": "$success", "paused": "bold $warning", "completed": "dim", "failed": "bold $error"}
ADD = "a adds one: what - when, or: remind me to call Ada tomorrow at 9"
EMPTY = """Nothing is scheduled. Press a and type what, a dash, and when:

  read the news - every weekday at 7am
  remind me to call Ada in 20 minutes"""
FACTS = (("status", "is"), ("words", "when"), ("action", "does"), ("role", "as"), ("said", "last said"))
DAY_MS = 86_400_000


class Schedules(Panel):
    """The tab of what is to happen when."""

    LABEL = "Schedules"
    SCOPED_CSS = False
    DEFAULT_CSS = """
    Schedules #when { border: none; height: 1; padding: 0 1; background: $surface; }
    Schedules #when:focus { background: $boost; }
    Schedules #times { width: 38; text-wrap: nowrap; text-overflow: ellipsis; }
    Schedules #look { padding: 0 1; width: 1fr; scrollbar-size-vertical: 1; }
    .-narrow Schedules #times { width: 1fr; }
    .-narrow Schedules #look { display: none; }
    .-wide Schedules #times { width: 52; }
    """
    BINDINGS = [
        Binding("a", "add", "Add", priority=True),  # what is typed right after it must not get lost
        Binding("p", "pause", "Pause"),
        Binding("t", "trigger", "Now"),
        Binding("o", "own", "Owl's own"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("r", "refresh", show=False),
        Binding("shift+up,k", "look(-1)", show=False),
        Binding("shift+down,j", "look(1)", show=False),
    ]

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._schedules: list[dict[str, Any]] = []
        self._shown: list[Any] = []
        self._timer: Timer | None = None
        self._has_own = False
        self._me = getpass.getuser()
        self._wanted = ""  # the schedule to go to once it is in the list

    def compose(self) -> ComposeResult:
        """A line to add one, the list, the schedule."""
        field = Input(placeholder=ADD, id="when", select_on_focus=False)
        field.cursor_blink = False
        yield field
        with Horizontal():
            yield Rows(id="times", markup=False)
            with VerticalScroll(id="look", can_focus=False):
                yield Static(id="time", markup=False)

    def enter(self) -> None:
        """Look at the list, and again every few seconds while it is on the screen."""
        self.screen.set_focus(self.query_one(Rows))
        self.action_refresh()
        if self._timer is None:
            self._timer = self.set_interval(LOOK_S, self._look_again)

    def leave(self) -> bool:
        """Esc in the line clears it and goes to the list."""
        field = self.query_one("#when", Input)
        if not (field.has_focus or field.value):
            return False
        field.value = ""
        self.screen.set_focus(self.query_one(Rows))
        return True

    # -- keys ---------------------------------------------------------------------------------------

    def action_own(self) -> None:
        """Show what the owl looks after by itself too, or leave it out."""
        self._has_own = not self._has_own
        self.means.say("with the owl's own" if self._has_own else "without the owl's own", False)
        self.action_refresh()

    def action_refresh(self) -> None:
        """Fetch the list."""
        self._call("list_schedules", {"limit": LIMIT}, self._listed)

    def action_add(self) -> None:
        """Type what is to happen when."""
        field = self.query_one("#when", Input)
        if field.has_focus:
            raise SkipAction
        self.screen.set_focus(field)

    def action_pause(self) -> None:
        """Pause the schedule under the cursor, or resume it."""
        if known := self._chosen():
            self._change("disable_schedule" if known["status"] == "active" else "enable_schedule", known)

    def action_trigger(self) -> None:
        """Do it now, whatever its time."""
        if known := self._chosen():
            self.means.say(f"doing “{known['name']}” now", False)
            self._change("trigger_schedule", known)

    def action_delete(self) -> None:
        """Delete the schedule under the cursor, after asking."""
        if known := self._chosen():
            question = f"Delete schedule {known['id']}, “{known['name']}”?"
            self.app.push_screen(
                Confirm(question, "Delete"), lambda is_yes: self._change("delete_schedule", known) if is_yes else None
            )

    def action_look(self, lines: int) -> None:
        """Scroll the schedule."""
        self.query_one("#look").scroll_relative(y=lines * 3, animate=False)

    def on_key(self, event: events.Key) -> None:
        """Down leaves the line."""
        if event.key == "down" and self.query_one("#when").has_focus:
            self.screen.set_focus(self.query_one(Rows))
            event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Add one; what does not say when after a dash is a reminder."""
        what, dash, rest = event.value.strip().partition(" - ")
        when, _, about = rest.partition(" - ")
        if not what:
            return
        event.input.value = ""
        self.screen.set_focus(self.query_one(Rows))
        if dash:
            given = {"name": what.strip(), "frequency": when.strip(), "description": about.strip()}
            self._call("create_schedule", given, self._added)
        else:
            words = what.removeprefix("remind me to ").removeprefix("remind me of ").removeprefix("remind me ")
            self._call("remind", {"text": words}, self._added)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the schedule."""
        if known := self._chosen():
            self._call("view_schedule", {"id": known["id"]}, self._viewed)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return goes to the thread in which it was asked for."""
        event.stop()
        known = self._chosen()
        if known and known["source"]:
            self.means.resume(known["source"])
        elif known:
            self.means.say("it was not asked for in a thread", False)

    # -- asking -------------------------------------------------------------------------------------

    def _call(self, tool: str, arguments: dict[str, Any], then: Any) -> None:
        def told(outcome: dict[str, Any]) -> None:
            if int(outcome["status"]) >= 400:
                hint = f" ({outcome['hint']})" if outcome["hint"] else ""
                self.means.say(f"{outcome['message']}{hint}", True)
            else:
                then(outcome)

        self.ask("tool.call", {"name": tool, "arguments": arguments}, told, about=tool)

    def _change(self, tool: str, known: dict[str, Any]) -> None:
        def changed(outcome: dict[str, Any]) -> None:
            self.means.say(outcome["message"], False)
            self._shown = []
            self.action_refresh()

        self._call(tool, {"id": known["id"]}, changed)

    def _added(self, outcome: dict[str, Any]) -> None:
        self.means.say(outcome["message"], False)
        self._wanted = outcome["data"]["schedule"]["id"]
        self.action_refresh()

    def _look_again(self) -> None:
        """Only while the tab is on the screen: nobody else waits for it."""
        if self.display and self.means.link.is_up:
            self.action_refresh()
        elif not self.display and self._timer is not None:
            self._timer.stop()
            self._timer = None

    # -- showing ------------------------------------------------------------------------------------

    def _listed(self, outcome: dict[str, Any]) -> None:
        found = list((outcome.get("data") or {}).get("schedules") or [])
        found = [one for one in found if self._has_own or one["type"] != "system"]
        found.sort(key=lambda one: (one["next_ms"] is None, one["next_ms"] or 0, one["created_ms"]))
        seen = [(one["id"], one["status"], one["name"], one["words"], until(one["next_ms"]), one["updated_ms"]) for one in found]
        if seen == self._shown and found:
            return
        rows, chosen = self.query_one(Rows), self._chosen()
        here, self._wanted = self._wanted or (chosen["id"] if chosen else ""), ""
        self._schedules, self._shown = found, seen
        rows.set_options([Option(_row(one)) for one in found])
        ids = [one["id"] for one in found]
        rows.highlighted = (ids.index(here) if here in ids else 0) if ids else None
        if not ids:
            self.query_one("#time", Static).update(EMPTY)

    def _viewed(self, outcome: dict[str, Any]) -> None:
        data = outcome.get("data") or {}
        known = data.get("schedule")
        if not known:
            return
        lines = [Content.assemble((known["name"], "bold")), Content.assemble((known["id"], "dim"))]
        lines += [Content.assemble((f"{word} ", "dim"), str(known[key])) for key, word in FACTS if known.get(key)]
        if known["person"] not in ("", self._me):
            lines.append(Content.assemble(("for ", "dim"), known["person"]))
        if known["failures"]:
            lines.append(Content.assemble((f"{known['failures']} failures in a row", "bold $error")))
        lines += [Content.assemble((known["text"] or known["description"], ""))] if known["text"] or known["description"] else []
        lines.append(Content.assemble(("\nNext", "bold")))
        lines += [Content(f"  {moment(at_ms)}") for at_ms in known["next"]] or [Content.assemble(("  never", "dim"))]
        if fired := data.get("firings"):
            lines.append(Content.assemble(("\nWas", "bold")))
            lines += [Content(f"  {moment(one['due_ms'])}  {one['status']} {one['outcome']}") for one in fired[:10]]
        self.query_one("#time", Static).update(Content("\n").join(lines))

    def _chosen(self) -> dict[str, Any] | None:
        place = self.query_one(Rows).highlighted
        return self._schedules[place] if place is not None and place < len(self._schedules) else None

    def _failed(self, error: OwlError) -> None:
        self.means.say(str(error), True)


def moment(at_ms: int) -> str:
    """A time of this box, as short as it is clear."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%a %d %b %Y %H:%M")


def until(at_ms: int | None) -> str:
    """How long until then, in at most six letters."""
    if at_ms is None:
        return "-"
    minutes = max(0, at_ms - now_ms() + 59_999) // 60_000
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"


def _row(known: dict[str, Any]) -> Content:
    mark = (MARKS.get(known["status"], " "), STYLES.get(known["status"], "dim"))
    return Content.assemble(mark, (f"{until(known['next_ms']):>7}", "dim"), " ", known["name"], (f"  {known['words']}", "dim"))
