"""Tasks: what is to be done, what is being done and its outcome, and the task under the cursor in full."""

from collections.abc import Callable
from functools import partial
from typing import Any

from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from appliance.clock import now_ms
from appliance.errors import NotFound, OwlError
from appliance.tui.panel import ago
from appliance.tui.tabs.list_panel import REFRESH, SCROLL, Lister

LIMIT = 200
STATES = ("", "pending", "in_progress", "waiting", "complete", "failed")
PRIORITIES = ("", "high", "medium", "low")
MOST_BEFORE = 10  # tasks that came before one, whose outputs are shown
MARKS = {"pending": "·", "in_progress": "▸", "waiting": "?", "complete": "✓", "failed": "✗"}
STYLES = {"in_progress": "bold $primary", "waiting": "bold $warning", "complete": "$success", "failed": "bold $error"}
URGENT = {"high": "!", "low": "↓"}
EMPTY = "No tasks yet. Press a and say what is to be done, or ask the owl in Chat to do something later."
NONE = "No task matches the filter."
FACTS = (("claimed_by", "worker"), ("origin", "asked in"), ("run", "thread"), ("person", "for"))
TEXTS = (("description", ""), ("waiting_reason", "Waits: "), ("failure", "Failed: "), ("output", ""))


class Tasks(Lister):
    """The tab of the queue."""

    LABEL = "Tasks"
    LINE = "a adds a task"
    EVERY_S = 3.0
    FILTERS = {"state": STATES, "priority": PRIORITIES}
    BINDINGS = [
        Binding("a", "type", "Add", priority=True),  # what is typed right after it must not get lost
        Binding("f", "filter('state')", "State"),
        Binding("p", "filter('priority')", show=False),
        Binding("x", "cancel", "Cancel"),
        Binding("e", "reset", "Again"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        REFRESH,
        *SCROLL,
    ]

    # -- keys ---------------------------------------------------------------------------------------

    def action_refresh(self) -> None:
        """Fetch the list."""
        given = {"status": self.filters["state"], "priority": self.filters["priority"], "limit": LIMIT}
        self.call_tool("list_tasks", given, self._show_tasks)

    def action_cancel(self) -> None:
        """Give the task under the cursor up."""
        if task := self.selected_item():
            self.change("cancel_task", task)

    def action_reset(self) -> None:
        """Begin the task under the cursor anew; one that is done or being done only after asking."""
        task = self.selected_item()
        if task is None:
            return
        if task["status"] not in ("complete", "in_progress"):
            self.change("reset_task", task)
            return
        question = f"Do “{task['name']}” again, which is {_state_words(task['status'])}"
        self.sure(question, "e", lambda: self.change("reset_task", task))

    def action_delete(self) -> None:
        """Delete the task under the cursor, after asking."""
        if task := self.selected_item():
            self.sure(f"Delete task {task['id']}, “{task['name']}”", "d", lambda: self.change("delete_task", task))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Add a task; what follows the first " - " is its description."""
        text = self.typed(event)
        name, _, about = text.partition(" - ")
        if name:
            self.call_tool("create_task", {"name": name.strip(), "description": about.strip()}, self._task_added, typed=text)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the task."""
        if task := self.selected_item():
            read = partial(read_task, self.host.link.call, task["id"])
            self.work(read, lambda found: self._show_task(*found), failed=self._show_untold, about="view_task")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return goes to the thread in which it was done."""
        event.stop()
        if task := self.selected_item():
            self.call_tool("view_task", {"id": task["id"]}, self._open_thread)

    # -- asking -------------------------------------------------------------------------------------

    def _task_added(self, outcome: dict[str, Any]) -> None:
        self.host.say(outcome["message"], False)
        self._wanted = outcome["data"]["id"]
        self.clear_filters()
        self.action_refresh()

    # -- showing ------------------------------------------------------------------------------------

    def _show_tasks(self, outcome: dict[str, Any]) -> None:
        tasks = list((outcome.get("data") or {}).get("tasks") or [])
        seen = [(t["id"], t["status"], t["name"], t["priority"], t["open_blockers"], ago(t["created_ms"], now_ms())) for t in tasks]
        self.fill(tasks, _task_row, NONE if any(self.filters.values()) else EMPTY, seen=seen)

    def _show_untold(self, error: OwlError) -> None:
        self.show_beside(str(error))

    def _show_task(self, task: dict[str, Any], before: list[dict[str, Any]]) -> None:
        state = (_state_words(task["status"]), STYLES.get(task["status"], "dim"))
        lines = [Content.assemble((f"{task['id']}. {task['name']}", "bold")), Content.assemble(state, f" · {task['priority']}")]
        if task["blocked_by"]:
            lines.append(Content.assemble(("after ", "dim"), ", ".join(map(str, task["blocked_by"]))))
        lines += [Content.assemble((f"{word} ", "dim"), str(task[key])) for key, word in FACTS if task.get(key)]
        for one in task["tries"]:
            lines.append(Content.assemble((f"attempt {one['number']} ", "dim"), one["outcome"] or "goes on"))
        for key, word in TEXTS:
            if task.get(key):
                lines += [Content(""), Content.assemble((word, "bold"), str(task[key]))]
        for one in before:
            head = f"From {one['id']}. {one['name']}, {_state_words(one['status'])}"
            lines += [Content(""), Content.assemble((head, "bold")), Content(str(one["output"] or "no output yet"))]
        self.show_beside(Content("\n").join(lines))

    def _open_thread(self, outcome: dict[str, Any]) -> None:
        task = outcome.get("data") or {}
        if task.get("run"):
            self.host.resume(task["run"])
        else:
            self.host.say(f"task {task.get('id', '')} has not started yet", False)


def read_task(call: Callable[..., Any], number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A task in full, and those it comes after, whose outputs it is given."""

    def view(one: int) -> dict[str, Any]:
        outcome = call("tool.call", {"name": "view_task", "arguments": {"id": one}})
        if not outcome.get("data"):
            raise NotFound(str(outcome["message"]), hint=str(outcome["hint"]))
        return dict(outcome["data"])

    task = view(number)
    return task, [view(one) for one in task["blocked_by"][:MOST_BEFORE]]


def _state_words(state: str) -> str:
    return state.replace("_", " ")


def _task_row(task: dict[str, Any]) -> Content:
    mark = (MARKS.get(task["status"], " "), STYLES.get(task["status"], "dim"))
    waits = ("⋯ ", "dim") if task["open_blockers"] and task["status"] == "pending" else ""
    age = f"{ago(task['created_ms'], now_ms()):>6}"
    urgent = (f"{URGENT[task['priority']]} ", "bold") if task["priority"] in URGENT else ""
    return Content.assemble(mark, f"{task['id']:>4} ", (age, "dim"), " ", urgent, waits, task["name"])
