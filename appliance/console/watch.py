"""`--watch`: a command again and again, redrawn on a terminal, one after the other in a pipe.

Each round is the whole command, which connects anew: a core that restarts is shown as soon as it is back. Knows nothing about
what is shown.
"""

import io
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TextIO

from appliance.clock import sleep_s
from appliance.console import terminal
from appliance.errors import BadInput, OwlError

PAUSE_S = 2.0
LEAST_S = 0.2
# Commands that show something which changes by itself.
WATCHED = frozenset(
    {
        "status",
        "usage",
        *(f"{word} list" for word in ("task", "thread", "schedule", "worker", "job", "session", "model", "mcp", "grants")),
        "entry waiting",
        "model providers",
    }
)


class ScreenPage(io.StringIO):
    """What a command writes, kept until it is whole; as wide as the terminal that it is for."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def isatty(self) -> bool:
        return self._out.isatty()

    def fileno(self) -> int:
        return self._out.fileno()


def repeat(show: Callable[[], int], pause_s: float) -> int:
    """Show it until Ctrl+C; the exit code 0. An error is shown in its place, and the next round may be better."""
    if pause_s < LEAST_S:
        raise BadInput(f"--watch {pause_s:g}", hint=f"at least {LEAST_S:g} seconds")
    out = sys.stdout
    try:
        while True:
            page = ScreenPage(out)
            sys.stdout = page
            try:
                show()
            except OwlError as error:
                terminal.complain(error, page)
            finally:
                sys.stdout = out
            _draw(page.getvalue(), out, pause_s)
            sleep_s(pause_s)
    except KeyboardInterrupt:
        if out.isatty():
            out.write("\n")
        return 0


def _draw(text: str, out: TextIO, pause_s: float) -> None:
    """On a terminal in the place of the page before, without a flicker and no longer than the screen; else below it."""
    if not out.isatty():
        out.write(text)
        out.flush()
        return
    head = f"every {pause_s:g} s, {datetime.now():%H:%M:%S}, Ctrl+C ends\n\n"
    lines = (head + text).rstrip("\n").split("\n")[: os.get_terminal_size(out.fileno()).lines]
    out.write("\x1b[H" + "\x1b[K\n".join(lines) + "\x1b[K\x1b[J")
    out.flush()
