"""Workers: who works through the queue; of the one under the cursor what it is and does, or the log as it grows."""

from datetime import datetime
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Log, OptionList

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.text.invisible import escape_invisible
from appliance.tui.choice_list import Rows
from appliance.tui.panel import Host, ago, is_missing
from appliance.tui.shown_text import Shown
from appliance.tui.tabs.list_panel import REFRESH, Lister

LIMIT = 100
LOG_EVERY_S = 1.5
LOG_LINES = 4000
MARKS = {"running": ("●", "bold $success"), "stopped": ("○", "dim"), "dead": ("✗", "bold $error")}
EMPTY = "No worker has been started. Press n for one that stays and takes every task, o for one that does a single task."
NONE = "No worker matches the filter."
MISSING = "This core knows no workers yet: update it."
MODES = {"persist": "stays and takes every task", "once": "does a single task"}


class Workers(Lister):
    """The tab of those who do the tasks."""

    LABEL = "Workers"
    EVERY_S = 3.0
    FILTERS = {"status": ("", "running", "stopped", "dead")}
    DEFAULT_CSS = """
    Workers #log { display: none; width: 1fr; padding: 0 1; background: $background; scrollbar-size: 1 1; }
    Workers #log { border-left: solid $foreground 25%; }
    Workers #log:ansi { border-left: solid ansi_bright_black; }
    Workers.-log #log { display: block; }
    Workers.-log #look { display: none; }
    .-narrow Workers #rows { width: 1fr; height: 50%; }
    .-narrow Workers #look { display: block; }
    .-narrow Workers.-log #look { display: none; }
    .-narrow Workers Horizontal { layout: vertical; }
    .-wide Workers #rows { width: 46; }
    """
    BINDINGS = [
        Binding("l", "log", "Log"),
        Binding("n", "start(True)", "New"),
        Binding("o", "start(False)", "Once"),
        Binding("x", "stop", "Stop"),
        Binding("shift+x,X", "kill", show=False),
        Binding("f", "filter('status')", "Filter"),
        REFRESH,
        Binding("shift+up,k", "look(-1)", show=False),
        Binding("shift+down,j", "look(1)", show=False),
        Binding("K", "look(-5)", show=False),
        Binding("J", "look(5)", show=False),
        Binding("g", "look_at('first')", show=False),
        Binding("G", "look_at('last')", show=False),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._log_of, self._log_bytes = "", 0  # whose log is shown, and how far it was read
        self._log_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """The list, and beside it facts or a log."""
        yield Shown(id="filters", markup=False)
        with Horizontal():
            yield Rows(id="rows", markup=False)
            with VerticalScroll(id="look", can_focus=False):
                yield Shown(id="words", markup=False)
            log = Log(id="log", max_lines=LOG_LINES)
            log.can_focus = False
            yield log

    # -- keys ---------------------------------------------------------------------------------------

    def leave(self) -> bool:
        """Esc closes the log, then shows all workers again."""
        if self.has_class("-log"):
            self.action_log()
            return True
        return super().leave()

    def action_refresh(self) -> None:
        """Fetch the list."""
        params = {"status": self.filters["status"], "limit": LIMIT}
        self.ask("worker.list", params, self._show_workers, failed=self._show_unlisted)

    def action_log(self) -> None:
        """Show the log of the one under the cursor, or what it is and does."""
        is_log = not self.has_class("-log")
        self.set_class(is_log, "-log")
        if self._log_timer is not None:
            self._log_timer.stop()
            self._log_timer = None
        if is_log:
            self._log_timer = self.set_interval(LOG_EVERY_S, self._read_on)
            self._log_of = ""
        self._show_selected()

    def action_look(self, lines: int) -> None:
        """Scroll what is beside the list; a log that was scrolled up stays there until its end is asked for."""
        self._visible_side.scroll_relative(y=lines * 3, animate=False)

    def action_look_at(self, end: str) -> None:
        """The beginning, or the end, which a log is then followed at."""
        if end == "first":
            self._visible_side.scroll_home(animate=False)
        else:
            self._visible_side.scroll_end(animate=False)

    def action_start(self, is_persistent: bool) -> None:
        """Start one that outlives this screen."""
        self.ask("worker.start", {"is_persistent": is_persistent}, self._worker_started)

    def action_stop(self) -> None:
        """Let the one under the cursor put down what it does, and end."""
        if worker := self._running_worker():
            self.ask("worker.stop", {"id": worker["id"]}, self._worker_ended)

    def action_kill(self) -> None:
        """End the one under the cursor at once, when asked twice."""
        if worker := self._running_worker():
            question = f"End worker {worker['id'][-8:]} at once, so that its task begins again"
            self.sure(question, "X", lambda: self.ask("worker.stop", {"id": worker["id"], "is_forced": True}, self._worker_ended))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show what it is, or its log."""
        self._show_selected()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return opens and closes the log."""
        event.stop()
        self.action_log()

    # -- asking -------------------------------------------------------------------------------------

    def _worker_started(self, worker: dict[str, Any]) -> None:
        self.host.say(f"worker {str(worker['id'])[-8:]} has begun", False)
        self._wanted = worker["id"]
        self.clear_filters()
        self.action_refresh()

    def _worker_ended(self, worker: dict[str, Any]) -> None:
        self.host.say(f"worker {str(worker['id'])[-8:]}: {worker['status']}", False)
        self.action_refresh()

    def _show_selected(self) -> None:
        worker = self.selected_item()
        if worker is None:
            return
        if not self.has_class("-log"):
            self.ask("worker.view", {"id": worker["id"]}, self._show_worker, failed=self._show_unviewed)
        elif worker["id"] != self._log_of:
            self._log_of, self._log_bytes = worker["id"], -1
            self.query_one(Log).clear()
            self._read_log()

    def _read_on(self) -> None:
        """What a running worker has written meanwhile, while somebody looks."""
        worker = self.selected_item()
        if self.display and self.host.link.is_up and self.host.is_watched() and worker and worker["status"] == "running":
            self._read_log()

    def _read_log(self) -> None:
        params = {"id": self._log_of, "after": self._log_bytes}
        self.ask("worker.log", params, self._show_log, failed=self._show_unlogged)

    # -- showing ------------------------------------------------------------------------------------

    @property
    def _visible_side(self) -> Log | VerticalScroll:
        return self.query_one(Log) if self.has_class("-log") else self.query_one("#look", VerticalScroll)

    def _show_unlisted(self, error: OwlError) -> None:
        if is_missing(error, "worker.list"):
            self.show_beside(MISSING)
        else:
            self._show_error(error)

    def _show_workers(self, workers: list[dict[str, Any]]) -> None:
        seen = [(w["id"], w["status"], w["task"], ago(w["started_ms"], now_ms())) for w in workers]
        self.fill(workers, _worker_row, NONE if self.filters["status"] else EMPTY, seen=seen)

    def _show_worker(self, worker: dict[str, Any]) -> None:
        mark, style = MARKS.get(worker["status"], (" ", ""))
        lines = [Content.assemble((mark, style), (f" {worker['status']}", "bold"), f"  {worker['reason'] or ''}")]
        facts = {
            "id": worker["id"],
            "mode": MODES.get(worker["mode"], worker["mode"]),
            "pid": f"{worker['pid']} on {worker['host']}",
            "started": moment(worker["started_ms"]),
            "heard of": moment(worker["beat_ms"]),
            "ended": moment(worker["ended_ms"]),
            "log": worker["log"] or "none: it ran in a terminal",
        }
        lines += [Content.assemble((f"{name:<9}", "dim"), value) for name, value in facts.items() if value]
        for claim in worker["claims"]:
            lines.append(Content.assemble(("works on ", "dim"), (f"{claim['task']}. {claim['name']}", "bold")))
        if not worker["claims"]:
            lines.append(Content.assemble(("no task now; l shows the log", "dim")))
        self.show_beside(Content("\n").join(lines))

    def _show_log(self, log: dict[str, Any]) -> None:
        if log["id"] != self._log_of or (self._log_bytes >= 0 and log["start"] != self._log_bytes):
            return
        view = self.query_one(Log)
        is_at_end = view.max_scroll_y - view.scroll_y < 2
        text = log["text"] or ("" if self._log_bytes > 0 else "Its log is empty.\n")
        self._log_bytes = int(log["size_bytes"])
        if text:
            view.write(escape_invisible(text), scroll_end=is_at_end)

    def _show_unlogged(self, error: OwlError) -> None:
        self.query_one(Log).write(str(error))

    def _show_unviewed(self, error: OwlError) -> None:
        self.show_beside(str(error))

    def _running_worker(self) -> dict[str, Any] | None:
        worker = self.selected_item()
        if worker is not None and worker["status"] != "running":
            self.host.say(f"worker {worker['id'][-8:]} is {worker['status']} already", False)
            return None
        return worker


def moment(at_ms: int | None) -> str:
    """A time of this box, with seconds; nothing for none."""
    return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000).strftime("%d %b %Y %H:%M:%S")


def _worker_row(worker: dict[str, Any]) -> Content:
    task = worker.get("task")
    is_running = worker["status"] == "running"
    what = f"task {task}" if task else worker["status"] if is_running else worker["reason"] or worker["status"]
    age = f"{ago(worker['started_ms'], now_ms()):>6}"
    return Content.assemble(
        MARKS.get(worker["status"], " "), f" {worker['id'][-8:]} ", (age, "dim"), f" {worker['mode']:<7} {what}"
    )
