"""Workers: who works through the queue, and the end of the log of the one under the cursor."""

from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.tui.confirm import Confirm
from appliance.tui.panel import Means, Panel, ago, is_missing
from appliance.tui.rows import Rows

LIMIT = 100
LOOK_S = 3.0  # how old the list may be while it is looked at
MARKS = {"running": ("●", "bold $success"), "stopped": ("○", "dim"), "dead": ("✗", "bold $error")}
EMPTY = "No worker has been started.\nPress n for one that stays and takes every task,\no for one that does a single task."
MISSING = "This core knows no workers yet: update it."


class Workers(Panel):
    """The tab of those who do the tasks."""

    LABEL = "Workers"
    SCOPED_CSS = False
    DEFAULT_CSS = """
    Workers #crew { width: 38; text-wrap: nowrap; text-overflow: ellipsis; }
    Workers #look { padding: 0 1; width: 1fr; scrollbar-size-vertical: 1; }
    .-narrow Workers #crew { width: 1fr; height: 50%; }
    .-narrow Workers Horizontal { layout: vertical; }
    .-wide Workers #crew { width: 46; }
    """
    BINDINGS = [
        Binding("n", "start(True)", "New"),
        Binding("o", "start(False)", "Once"),
        Binding("x", "stop", "Stop"),
        Binding("shift+x", "kill", show=False),
        Binding("r", "refresh", show=False),
        Binding("shift+up,k", "look(-1)", "Scroll", key_display="k/j"),
        Binding("shift+down,j", "look(1)", show=False),
    ]

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._workers: list[dict[str, Any]] = []
        self._shown: list[Any] = []
        self._look: Timer | None = None

    def compose(self) -> ComposeResult:
        """The list, the log."""
        with Horizontal():
            yield Rows(id="crew", markup=False)
            with VerticalScroll(id="look", can_focus=False):
                yield Static(id="log", markup=False)

    def enter(self) -> None:
        """Look at them, and again every few seconds while the tab is on the screen."""
        self.screen.set_focus(self.query_one(Rows))
        self.action_refresh()
        if self._look is None:
            self._look = self.set_interval(LOOK_S, self._look_again)

    # -- keys ---------------------------------------------------------------------------------------

    def action_refresh(self) -> None:
        """Fetch the list."""
        self.ask("worker.list", {"limit": LIMIT}, self._listed, failed=self._unlisted)

    def action_start(self, is_persistent: bool) -> None:
        """Start one that outlives this screen."""
        self.ask("worker.start", {"is_persistent": is_persistent}, self._started)

    def action_stop(self) -> None:
        """Let the one under the cursor put down what it does, and end."""
        if worker := self._alive():
            self.ask("worker.stop", {"id": worker["id"]}, self._ended)

    def action_kill(self) -> None:
        """End the one under the cursor at once, after asking."""
        if worker := self._alive():
            question = f"End worker {worker['id'][-8:]} at once? Its task begins anew."
            self.app.push_screen(
                Confirm(question, "End"),
                lambda is_yes: self.ask("worker.kill", {"id": worker["id"]}, self._ended) if is_yes else None,
            )

    def action_look(self, lines: int) -> None:
        """Scroll the log."""
        self.query_one("#look").scroll_relative(y=lines * 3, animate=False)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the log."""
        if worker := self._chosen():
            self.ask("worker.log", {"id": worker["id"]}, self._logged, failed=self._unlogged)

    # -- asking -------------------------------------------------------------------------------------

    def _started(self, worker: dict[str, Any]) -> None:
        self.means.say(f"worker {str(worker['id'])[-8:]} has begun", False)
        self.action_refresh()

    def _kill(self, worker: dict[str, Any]) -> None:
        self.ask("worker.kill", {"id": worker["id"]}, self._ended)

    def _ended(self, worker: dict[str, Any]) -> None:
        self.means.say(f"worker {str(worker['id'])[-8:]}: {worker['status']}", False)
        self.action_refresh()

    def _look_again(self) -> None:
        """Only while the tab is on the screen: nobody else waits for it."""
        if self.display and self.means.link.is_up:
            self.action_refresh()
            worker = self._chosen()
            if worker and worker["status"] == "running":
                self.ask("worker.log", {"id": worker["id"]}, self._logged)
        elif not self.display and self._look is not None:
            self._look.stop()
            self._look = None

    # -- showing ------------------------------------------------------------------------------------

    def _unlisted(self, error: OwlError) -> None:
        if is_missing(error, "worker.list"):
            self.query_one("#log", Static).update(MISSING)
        else:
            self._failed(error)

    def _listed(self, workers: list[dict[str, Any]]) -> None:
        seen = [(w["id"], w["status"], w.get("claims"), ago(w["started_ms"], now_ms())) for w in workers]
        if seen == self._shown and workers:
            return
        rows, before = self.query_one(Rows), self._chosen()
        self._workers, self._shown = workers, seen
        rows.set_options([Option(_row(worker)) for worker in workers])
        ids = [worker["id"] for worker in workers]
        rows.highlighted = (ids.index(before["id"]) if before and before["id"] in ids else 0) if ids else None
        if not ids:
            self.query_one("#log", Static).update(EMPTY)

    def _logged(self, log: dict[str, Any]) -> None:
        look = self.query_one("#look")
        is_at_end = look.max_scroll_y - look.scroll_y < 2
        self.query_one("#log", Static).update(log["text"] or "Its log is empty.")
        if is_at_end:
            look.scroll_end(animate=False)

    def _unlogged(self, error: OwlError) -> None:
        self.query_one("#log", Static).update(str(error))

    def _chosen(self) -> dict[str, Any] | None:
        place = self.query_one(Rows).highlighted
        return self._workers[place] if place is not None and place < len(self._workers) else None

    def _alive(self) -> dict[str, Any] | None:
        worker = self._chosen()
        if worker is not None and worker["status"] != "running":
            self.means.say(f"worker {worker['id'][-8:]} is {worker['status']} already", False)
            return None
        return worker


def _row(worker: dict[str, Any]) -> Content:
    doing = ", ".join(map(str, worker.get("claims") or ()))
    what = f"task {doing}" if doing else {"running": "waits"}.get(worker["status"], worker.get("reason") or worker["status"])
    age = f"{ago(worker['started_ms'], now_ms()):>6}"
    return Content.assemble(
        MARKS.get(worker["status"], " "), f" {worker['id'][-8:]} ", (age, "dim"), f" {worker['mode']:<7} {what}"
    )
