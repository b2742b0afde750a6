"""What commands that run have said last, asked for now and then and shown in their boxes, as long as one runs."""

from collections.abc import Callable
from typing import Any

from textual.timer import Timer

from appliance.tui.message_widgets import ToolBox
from appliance.tui.panel import Panel

LOOK_S = 2.0


class CommandTails:
    """Follows the commands of the thread that a panel shows."""

    def __init__(self, panel: Panel, thread: Callable[[], str], boxes: Callable[[], list[ToolBox]]) -> None:
        """`thread` is the one on the screen, `boxes` those of its calls."""
        self._panel = panel
        self._thread = thread
        self._boxes = boxes
        self._timer: Timer | None = None

    def follow(self) -> None:
        """Look from now on, until none runs any more."""
        if self._timer is None:
            self._timer = self._panel.set_interval(LOOK_S, self._look)

    def _look(self) -> None:
        if any(box.is_busy for box in self._boxes()) and self._thread():
            self._panel.ask("stream.list", {}, self._show)
        elif self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _show(self, found: list[dict[str, Any]]) -> None:
        tails = [one["tail"] for one in found if one["run"] == self._thread()]
        for box, tail in zip([box for box in self._boxes() if box.is_busy], tails):
            box.grow(tail)
