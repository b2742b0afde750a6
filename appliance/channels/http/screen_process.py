"""The full screen as a process behind a browser: started for whoever is logged in, spoken to in Textual's packets.

The process is `owlbox tui` with Textual's web driver, which reads and writes packets in place of a terminal: a letter (D for what
is typed or drawn, M for JSON about it), four bytes of length, the bytes. It gets the session's token in its environment and says it
in `hello`, so that the core grants what that person may do and nothing of this process's own rights.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from appliance.runtime.rpc_client import SESSION

LOG = logging.getLogger(__name__)
READY = b"__GANGLION__\n"  # what the driver says first
HEAD_LINES = 10
DRIVER = "textual.drivers.web_driver:WebDriver"
MAX_PACKET_BYTES = 8 * 1024 * 1024
END_S = 5.0
MOST_COLUMNS, MOST_ROWS = 500, 200
# Not for the child: what it was told itself, and what would make its screen colourless or of another kind.
LEFT_OUT = ("NO_COLOR", "OWLBOX_CONTEXT", "OWLBOX_SSH_KEY", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC")


class ScreenProcess:
    """One screen; `close` ends it."""

    def __init__(self, home: Path, environ: Mapping[str, str], session: str, columns: int, rows: int) -> None:
        given = {name: value for name, value in environ.items() if name not in LEFT_OUT}
        given |= {
            SESSION: session,
            "TEXTUAL_DRIVER": DRIVER,
            "TEXTUAL_COLOR_SYSTEM": "truecolor",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "COLUMNS": str(_within(columns, MOST_COLUMNS)),
            "ROWS": str(_within(rows, MOST_ROWS)),
        }
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "appliance", "--home", str(home), "tui"],
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )

    def type(self, text: str) -> None:
        """What was typed in the browser."""
        self._write(b"D", text.encode("utf-8", "replace"))

    def resize(self, columns: int, rows: int) -> None:
        """The window has another size, in letters."""
        self.tell({"type": "resize", "width": _within(columns, MOST_COLUMNS), "height": _within(rows, MOST_ROWS)})

    def tell(self, meta: dict[str, Any]) -> None:
        """Something beside what is typed."""
        self._write(b"M", json.dumps(meta).encode())

    def packets(self) -> Iterator[tuple[bytes, bytes]]:
        """What the screen draws and says, until it ends."""
        out = self._child.stdout
        assert out is not None
        if not any(out.readline(len(READY) + 200) == READY for _ in range(HEAD_LINES)):
            LOG.warning("a screen for a browser did not start")
            return
        while len(head := _read(out, 5)) == 5:
            size = int.from_bytes(head[1:], "big")
            if size > MAX_PACKET_BYTES or len(body := _read(out, size)) < size:
                return
            yield head[:1], body

    def close(self) -> None:
        """Ask it to end as leaving does, then end it."""
        try:
            self.tell({"type": "quit"})
            assert self._child.stdin is not None
            self._child.stdin.close()
        except OSError:
            pass  # it has ended
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def _write(self, kind: bytes, body: bytes) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(kind + len(body).to_bytes(4, "big") + body)
        self._child.stdin.flush()


def _read(out: IO[bytes], size: int) -> bytes:
    """So many bytes, or what was left."""
    parts = b""
    while len(parts) < size and (more := out.read(size - len(parts))):
        parts += more
    return parts


def _within(size: int, most: int) -> int:
    return max(1, min(most, size))
