"""Schedules: what is done again and again, reminders, and the one under the cursor with its next times and how it went."""

import getpass
from datetime import datetime
from typing import Any

from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from appliance.clock import now_ms
from appliance.tui.panel import Host, until
from appliance.tui.tabs.list_panel import REFRESH, SCROLL, Lister

LIMIT = 200
MARKS = {"active": "●", "paused": "‖", "completed": "✓", "failed": "✗"}
STYLES = {"active": "$success", "paused": "bold $warning", "completed": "dim", "failed": "bold $error"}
EMPTY = """Nothing is scheduled. Press a and type what, a dash, and when:

  read the news - every weekday at 7am
  remind me to call Ada in 20 minutes"""
NONE = "No schedule matches the filter."
FACTS = (("status", "state"), ("words", "when"), ("action", "action"), ("role", "as"), ("said", "last said"))


class Schedules(Lister):
    """The tab of what is to happen when."""

    LABEL = "Schedules"
    LINE = "a adds one: what - when, or: remind me to call Ada tomorrow at 9"
    EVERY_S = 5.0
    FILTERS = {"enabled": ("", "yes", "no")}
    BINDINGS = [
        Binding("a", "type", "Add", priority=True),  # what is typed right after it must not get lost
        Binding("e", "enable", "On/off"),
        Binding("f", "filter('enabled')", show=False),
        Binding("t", "trigger", "Now"),
        Binding("o", "own", "Built-in"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        REFRESH,
        *SCROLL,
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._has_own = False
        self._me = getpass.getuser()

    # -- keys ---------------------------------------------------------------------------------------

    def action_own(self) -> None:
        """Show what the assistant looks after by itself too, or leave it out."""
        self._has_own = not self._has_own
        self.host.say("built-in schedules are shown" if self._has_own else "built-in schedules are hidden", False)
        self.action_refresh()

    def action_refresh(self) -> None:
        """Fetch the list."""
        given: dict[str, Any] = {"limit": LIMIT, "soonest": True}
        if is_enabled := self.filters["enabled"]:
            given["enabled"] = is_enabled == "yes"
        self.call_tool("list_schedules", given, self._show_schedules)

    def action_enable(self) -> None:
        """Pause the schedule under the cursor, or resume it."""
        if known := self.selected_item():
            self.change("disable_schedule" if known["status"] == "active" else "enable_schedule", known)

    def action_trigger(self) -> None:
        """Do it now, whatever its time."""
        if known := self.selected_item():
            self.host.say(f"running “{known['name']}” now", False)
            self.change("trigger_schedule", known)

    def action_delete(self) -> None:
        """Delete the schedule under the cursor, after asking."""
        if known := self.selected_item():
            self.sure(f"Delete the schedule “{known['name']}”", "d", lambda: self.change("delete_schedule", known))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Add one; what does not say when after a dash is a reminder."""
        text = self.typed(event)
        what, dash, rest = text.partition(" - ")
        when, _, about = rest.partition(" - ")
        if not what:
            return
        if dash:
            given = {"name": what.strip(), "frequency": when.strip(), "description": about.strip()}
            self.call_tool("create_schedule", given, self._schedule_added, typed=text)
        else:
            self.call_tool("remind", {"text": what}, self._schedule_added, typed=text)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the schedule."""
        if known := self.selected_item():
            self.call_tool("view_schedule", {"id": known["id"]}, self._show_schedule)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return goes to the thread in which it was asked for."""
        event.stop()
        known = self.selected_item()
        if known and known["source"]:
            self.host.resume(known["source"])
        elif known:
            self.host.say("it was not created in a thread", False)

    # -- asking -------------------------------------------------------------------------------------

    def _schedule_added(self, outcome: dict[str, Any]) -> None:
        self.host.say(outcome["message"], False)
        self._wanted = outcome["data"]["schedule"]["id"]
        self.clear_filters()
        self.action_refresh()

    # -- showing ------------------------------------------------------------------------------------

    def _show_schedules(self, outcome: dict[str, Any]) -> None:
        found = list((outcome.get("data") or {}).get("schedules") or [])
        found = [one for one in found if self._has_own or one["type"] != "system"]
        found.sort(key=lambda one: (one["next_ms"] is None, one["next_ms"] or 0, one["created_ms"]))
        now = now_ms()
        seen = [(s["id"], s["status"], s["name"], s["words"], until(s["next_ms"], now), s["updated_ms"]) for s in found]
        self.fill(found, _schedule_row, NONE if self.filters["enabled"] else EMPTY, seen=seen)

    def _show_schedule(self, outcome: dict[str, Any]) -> None:
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
        self.show_beside(Content("\n").join(lines))


def moment(at_ms: int) -> str:
    """A time of this box, as short as it is clear."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%a %d %b %Y %H:%M")


def _schedule_row(known: dict[str, Any]) -> Content:
    mark = (MARKS.get(known["status"], " "), STYLES.get(known["status"], "dim"))
    ahead = f"{until(known['next_ms'], now_ms()):>7}"
    return Content.assemble(mark, (ahead, "dim"), " ", known["name"], (f"  {known['words']}", "dim"))
