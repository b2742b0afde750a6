"""Tasks: what is to be done, what is being done and what became of it, and the task under the cursor in full."""

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
from appliance.tui.panel import Means, Panel, ago
from appliance.tui.rows import Rows

LIMIT = 200
LOOK_S = 3.0  # how old the list may be while it is looked at
STATES = ("", "pending", "in_progress", "waiting", "complete", "failed")
MARKS = {"pending": "·", "in_progress": "▸", "waiting": "?", "complete": "✓", "failed": "✗"}
STYLES = {"in_progress": "bold $primary", "waiting": "bold $warning", "complete": "$success", "failed": "bold $error"}
URGENT = {"high": "!", "low": "↓"}
EMPTY = "No tasks yet. Press a and say what is to be done,\nor ask the owl in Chat to do something later."
NONE = "No task is {state} now."
FACTS = (("claimed_by", "worker"), ("origin", "asked in"), ("thread", "thread"), ("person", "for"))
TEXTS = (("description", ""), ("waiting_reason", "Waits: "), ("failure", "Failed: "), ("output", ""))


class Tasks(Panel):
    """The tab of the queue."""

    LABEL = "Tasks"
    SCOPED_CSS = False
    DEFAULT_CSS = """
    Tasks #new { border: none; height: 1; padding: 0 1; background: $surface; }
    Tasks #new:focus { background: $boost; }
    Tasks #jobs { width: 38; text-wrap: nowrap; text-overflow: ellipsis; }
    Tasks #look { padding: 0 1; width: 1fr; scrollbar-size-vertical: 1; }
    .-narrow Tasks #jobs { width: 1fr; }
    .-narrow Tasks #look { display: none; }
    .-wide Tasks #jobs { width: 52; }
    """
    BINDINGS = [
        Binding("a", "add", "Add", priority=True),  # what is typed right after it must not get lost
        Binding("s", "state", "State"),
        Binding("x", "cancel", "Cancel"),
        Binding("e", "reset", "Again"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("r", "refresh", show=False),
        Binding("shift+up,k", "look(-1)", show=False),
        Binding("shift+down,j", "look(1)", show=False),
    ]

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._state = ""
        self._tasks: list[dict[str, Any]] = []
        self._shown: list[Any] = []
        self._look: Timer | None = None
        self._wanted = 0  # the task to go to once it is in the list

    def compose(self) -> ComposeResult:
        """A line to add one, the list, the task."""
        field = Input(placeholder="a adds a task", id="new", select_on_focus=False)
        field.cursor_blink = False
        yield field
        with Horizontal():
            yield Rows(id="jobs", markup=False)
            with VerticalScroll(id="look", can_focus=False):
                yield Static(id="job", markup=False)

    def enter(self) -> None:
        """Look at the queue, and again every few seconds while it is on the screen."""
        self.screen.set_focus(self.query_one(Rows))
        self.action_refresh()
        if self._look is None:
            self._look = self.set_interval(LOOK_S, self._look_again)

    def leave(self) -> bool:
        """Esc in the line clears it and goes to the list; with a state chosen it shows all states again."""
        field = self.query_one("#new", Input)
        if field.has_focus or field.value:
            field.value = ""
            self.screen.set_focus(self.query_one(Rows))
            return True
        if self._state:
            self._state = ""
            self.action_refresh()
            return True
        return False

    # -- keys ---------------------------------------------------------------------------------------

    def action_refresh(self) -> None:
        """Fetch the list."""
        self._call("list_tasks", {"status": self._state, "limit": LIMIT}, self._listed)

    def action_add(self) -> None:
        """Type what is to be done."""
        field = self.query_one("#new", Input)
        if field.has_focus:
            raise SkipAction
        self.screen.set_focus(field)

    def action_state(self) -> None:
        """Show only the next state, after the last one all."""
        self._state = STATES[(STATES.index(self._state) + 1) % len(STATES)]
        self.means.say(f"tasks: {_named(self._state) or 'all'}", False)
        self.action_refresh()

    def action_cancel(self) -> None:
        """Give the task under the cursor up."""
        if task := self._chosen():
            self._change("cancel_task", task)

    def action_reset(self) -> None:
        """Begin the task under the cursor anew; one that is done or being done only after asking."""
        task = self._chosen()
        if task is None:
            return
        if task["status"] not in ("complete", "in_progress"):
            self._change("reset_task", task)
            return
        question = f"Do “{task['name']}” again? It is {_named(task['status'])}."
        self.app.push_screen(Confirm(question, "Again"), lambda is_yes: self._change("reset_task", task) if is_yes else None)

    def action_delete(self) -> None:
        """Delete the task under the cursor, after asking."""
        if task := self._chosen():
            question = f"Delete task {task['id']}, “{task['name']}”?"
            self.app.push_screen(Confirm(question, "Delete"), lambda is_yes: self._change("delete_task", task) if is_yes else None)

    def action_look(self, lines: int) -> None:
        """Scroll the task."""
        self.query_one("#look").scroll_relative(y=lines * 3, animate=False)

    def on_key(self, event: events.Key) -> None:
        """Down leaves the line."""
        if event.key == "down" and self.query_one("#new").has_focus:
            self.screen.set_focus(self.query_one(Rows))
            event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Add a task; what follows the first " - " is its description."""
        name, _, about = event.value.strip().partition(" - ")
        if not name:
            return
        event.input.value = ""
        self.screen.set_focus(self.query_one(Rows))
        self._call("create_task", {"name": name.strip(), "description": about.strip()}, self._added)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the task."""
        if task := self._chosen():
            self._call("view_task", {"id": task["id"]}, self._viewed)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return goes to the thread in which it was done."""
        event.stop()
        if task := self._chosen():
            self._call("view_task", {"id": task["id"]}, self._open)

    # -- asking -------------------------------------------------------------------------------------

    def _call(self, tool: str, arguments: dict[str, Any], then: Any) -> None:
        def told(outcome: dict[str, Any]) -> None:
            if int(outcome["status"]) >= 400:
                hint = f" ({outcome['hint']})" if outcome["hint"] else ""
                self.means.say(f"{outcome['message']}{hint}", True)
            else:
                then(outcome)

        self.ask("tool.call", {"name": tool, "arguments": arguments}, told, about=tool)

    def _change(self, tool: str, task: dict[str, Any]) -> None:
        def changed(outcome: dict[str, Any]) -> None:
            self.means.say(outcome["message"], False)
            self.action_refresh()

        self._call(tool, {"id": task["id"]}, changed)

    def _added(self, outcome: dict[str, Any]) -> None:
        self.means.say(outcome["message"], False)
        self._wanted = outcome["data"]["id"]
        self._state = ""
        self.action_refresh()

    def _look_again(self) -> None:
        """Only while the tab is on the screen: nobody else waits for it."""
        if self.display and self.means.link.is_up:
            self.action_refresh()
        elif not self.display and self._look is not None:
            self._look.stop()
            self._look = None

    # -- showing ------------------------------------------------------------------------------------

    def _listed(self, outcome: dict[str, Any]) -> None:
        tasks = list((outcome.get("data") or {}).get("tasks") or [])
        seen = [(t["id"], t["status"], t["name"], t["priority"], t["open_blockers"], ago(t["created_ms"], now_ms())) for t in tasks]
        if seen == self._shown and tasks:
            return
        rows, chosen = self.query_one(Rows), self._chosen()
        here, self._wanted = self._wanted or (chosen["id"] if chosen else 0), 0
        self._tasks, self._shown = tasks, seen
        rows.set_options([Option(_row(task)) for task in tasks])
        ids = [task["id"] for task in tasks]
        rows.highlighted = (ids.index(here) if here in ids else 0) if ids else None
        if not ids:
            self.query_one("#job", Static).update(NONE.format(state=_named(self._state)) if self._state else EMPTY)

    def _viewed(self, outcome: dict[str, Any]) -> None:
        task = outcome.get("data")
        if not task:
            return
        state = (_named(task["status"]), STYLES.get(task["status"], "dim"))
        lines = [Content.assemble((f"{task['id']}. {task['name']}", "bold")), Content.assemble(state, f" · {task['priority']}")]
        if task["blocked_by"]:
            lines.append(Content.assemble(("after ", "dim"), ", ".join(map(str, task["blocked_by"]))))
        lines += [Content.assemble((f"{word} ", "dim"), str(task[key])) for key, word in FACTS if task.get(key)]
        for one in task["attempts"]:
            lines.append(Content.assemble((f"attempt {one['number']} ", "dim"), one["outcome"] or "goes on"))
        for key, word in TEXTS:
            if task.get(key):
                lines += [Content(""), Content.assemble((word, "bold"), str(task[key]))]
        self.query_one("#job", Static).update(Content("\n").join(lines))

    def _open(self, outcome: dict[str, Any]) -> None:
        task = outcome.get("data") or {}
        if task.get("thread"):
            self.means.resume(task["thread"])
        else:
            self.means.say(f"nobody has begun task {task.get('id', '')} yet", False)

    def _chosen(self) -> dict[str, Any] | None:
        place = self.query_one(Rows).highlighted
        return self._tasks[place] if place is not None and place < len(self._tasks) else None

    def _failed(self, error: OwlError) -> None:
        self.means.say(str(error), True)


def _named(state: str) -> str:
    return state.replace("_", " ")


def _row(task: dict[str, Any]) -> Content:
    mark = (MARKS.get(task["status"], " "), STYLES.get(task["status"], "dim"))
    waits = ("⋯ ", "dim") if task["open_blockers"] and task["status"] == "pending" else ""
    age = f"{ago(task['created_ms'], now_ms()):>6}"
    urgent = (f"{URGENT[task['priority']]} ", "bold") if task["priority"] in URGENT else ""
    return Content.assemble(mark, f"{task['id']:>4}", (age, "dim"), " ", urgent, waits, task["name"])
