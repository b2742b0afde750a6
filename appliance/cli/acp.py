"""The command `owlbox acp`: the assistant for editors that speak the Agent Client Protocol, over standard input and output.

Reads lines and hands them to `channels.acp_server`; each call goes to the core over a connection of its own, or is done in this
process when no core runs. While it serves, nothing else of this process can write to the editor.
"""

import argparse
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from appliance.channels.acp_server import AcpServer, Listen
from appliance.cli.mcp_serve import claim_descriptor, lines, write_line
from appliance.console.connect import InProcess, Reach, reach
from appliance.errors import BadInput
from appliance.runtime.paths import Home

FINISH_S = 5.0
Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the command."""
    command("acp", serve, "agent for editors (Agent Client Protocol)")


def serve(args: argparse.Namespace, home: Home) -> int:
    """Serve until the editor hangs up."""
    home.require()
    if sys.stdin.isatty():
        raise BadInput("acp talks to an editor, and this is a terminal", hint="name it in your editor: docs/guides/programs.md")
    taken, given = claim_descriptor(0, os.O_RDONLY), claim_descriptor(1, os.O_WRONLY)
    core = CoreWays(home)
    server = AcpServer(core, lambda line: write_line(given, line))
    for line in lines(taken):
        server.handle_line(line if isinstance(line, bytes) else b"?")
    server.finish(FINISH_S)
    core.close()
    return 0


class CoreWays:
    """Ways to the core: one for each call where a core runs, as long as it takes; else one core in this process for all."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._guard = threading.Lock()
        self._inside: InProcess | None = None

    def call(self, method: str, params: dict[str, Any], listen: Listen | None = None) -> Any:
        """The result; notifications go to `listen`."""
        way = self._find_way()
        try:
            return way.call(method, params, listen)
        finally:
            if way is not self._inside:
                way.close()

    def close(self) -> None:
        """End the core in this process, if there is one."""
        if self._inside is not None:
            self._inside.close()

    def _find_way(self) -> Reach:
        with self._guard:
            if self._inside is not None:
                return self._inside
            way = reach(self._home, os.environ)
            if isinstance(way, InProcess):
                self._inside = way
            return way
