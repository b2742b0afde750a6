"""Workers: who works through the queue, and the end of the log of the one under the cursor."""

from typing import Any

from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.tui.list_panel import REFRESH, SCROLL, Lister
from appliance.tui.panel import ago, is_missing

LIMIT = 100
MARKS = {"running": ("●", "bold $success"), "stopped": ("○", "dim"), "dead": ("✗", "bold $error")}
EMPTY = "No worker has been started. Press n for one that stays and takes every task, o for one that does a single task."
MISSING = "This core knows no workers yet: update it."


class Workers(Lister):
    """The tab of those who do the tasks."""

    LABEL = "Workers"
    EVERY_S = 3.0
    DEFAULT_CSS = """
    .-narrow Workers #rows { width: 1fr; height: 50%; }
    .-narrow Workers #look { display: block; }
    .-narrow Workers Horizontal { layout: vertical; }
    .-wide Workers #rows { width: 46; }
    """
    BINDINGS = [
        Binding("n", "start(True)", "New"),
        Binding("o", "start(False)", "Once"),
        Binding("x", "stop", "Stop"),
        Binding("shift+x", "kill", show=False),
        REFRESH,
        Binding("shift+up,k", "look(-1)", "Scroll", key_display="k/j"),
        SCROLL[1],
    ]

    # -- keys ---------------------------------------------------------------------------------------

    def action_refresh(self) -> None:
        """Fetch the list."""
        self.ask("worker.list", {"limit": LIMIT}, self._show_workers, failed=self._show_unlisted)

    def action_start(self, is_persistent: bool) -> None:
        """Start one that outlives this screen."""
        self.ask("worker.start", {"is_persistent": is_persistent}, self._worker_started)

    def action_stop(self) -> None:
        """Let the one under the cursor put down what it does, and end."""
        if worker := self._running_worker():
            self.ask("worker.stop", {"id": worker["id"]}, self._worker_ended)

    def action_kill(self) -> None:
        """End the one under the cursor at once, after asking."""
        if worker := self._running_worker():
            question = f"End worker {worker['id'][-8:]} at once? Its task begins anew."
            self.sure(question, "End", lambda: self.ask("worker.kill", {"id": worker["id"]}, self._worker_ended))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the log."""
        if worker := self.selected_item():
            self.ask("worker.log", {"id": worker["id"]}, self._show_log, failed=self._show_unlogged)

    # -- asking -------------------------------------------------------------------------------------

    def _worker_started(self, worker: dict[str, Any]) -> None:
        self.host.say(f"worker {str(worker['id'])[-8:]} has begun", False)
        self.action_refresh()

    def _worker_ended(self, worker: dict[str, Any]) -> None:
        self.host.say(f"worker {str(worker['id'])[-8:]}: {worker['status']}", False)
        self.action_refresh()

    def _look_again(self) -> None:
        """The log goes on while the list stays as it is."""
        super()._look_again()
        worker = self.selected_item()
        if self.display and self.host.link.is_up and worker and worker["status"] == "running":
            self.ask("worker.log", {"id": worker["id"]}, self._show_log)

    # -- showing ------------------------------------------------------------------------------------

    def _show_unlisted(self, error: OwlError) -> None:
        if is_missing(error, "worker.list"):
            self.show_beside(MISSING)
        else:
            self._show_error(error)

    def _show_workers(self, workers: list[dict[str, Any]]) -> None:
        seen = [(w["id"], w["status"], w.get("claims"), ago(w["started_ms"], now_ms())) for w in workers]
        self.fill(workers, _worker_row, EMPTY, seen=seen)

    def _show_log(self, log: dict[str, Any]) -> None:
        look = self.query_one("#look")
        is_at_end = look.max_scroll_y - look.scroll_y < 2
        self.show_beside(log["text"] or "Its log is empty.")
        if is_at_end:
            look.scroll_end(animate=False)

    def _show_unlogged(self, error: OwlError) -> None:
        self.show_beside(str(error))

    def _running_worker(self) -> dict[str, Any] | None:
        worker = self.selected_item()
        if worker is not None and worker["status"] != "running":
            self.host.say(f"worker {worker['id'][-8:]} is {worker['status']} already", False)
            return None
        return worker


def _worker_row(worker: dict[str, Any]) -> Content:
    doing = ", ".join(map(str, worker.get("claims") or ()))
    what = f"task {doing}" if doing else {"running": "waits"}.get(worker["status"], worker.get("reason") or worker["status"])
    age = f"{ago(worker['started_ms'], now_ms()):>6}"
    return Content.assemble(
        MARKS.get(worker["status"], " "), f" {worker['id'][-8:]} ", (age, "dim"), f" {worker['mode']:<7} {what}"
    )
