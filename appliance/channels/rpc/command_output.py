"""Commands that run, at the local socket: what they say grows, ends once, and can be stopped.

For clients that run a command themselves after accepting it, and for whoever wants one to end. Whoever may open the socket
may do this; no model can. Beside `rpc` because one table would pass 600 lines.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Run = Annotated[str, "its name or id, or the beginning or end of the id"]
Path = Annotated[str, Range(1, 2048), "a channel, as the command's log entry names it"]


@dataclass(frozen=True)
class Pours:
    """What the core does for these methods."""

    append: Callable[[str, str, str], int]  # run, channel, text
    complete: Callable[[str, str, int, int], None]  # run, channel, exit code, milliseconds
    abort: Callable[[str, str, str], None]  # run, channel, reason
    cancel: Callable[[str, str, str], int]
    tails: Callable[[], list[dict[str, str]]]


class Streams:
    """The method table of commands that run."""

    def __init__(self, pours: Pours) -> None:
        self._pours = pours

    @method("stream.append", access="own")
    def append(self, call: Call, run: Run, path: Path, text: Annotated[str, Range(0, 1_000_000), "what it said"]) -> dict[str, Any]:
        """Let a channel grow; its size. A conflict once it has ended."""
        return {"bytes": self._pours.append(run, path, text)}

    @method("stream.complete", access="own")
    def complete(
        self,
        call: Call,
        run: Run,
        path: Path,
        exit_code: Annotated[int, Range(-255, 255), "what the system said"] = 0,
        duration_ms: Annotated[int, Range(0, 2**53), "how long it took"] = 0,
    ) -> dict[str, Any]:
        """A command has ended: 200 for exit code 0, else 500, for all its channels. A conflict the second time."""
        self._pours.complete(run, path, exit_code, duration_ms)
        return {"path": path}

    @method("stream.abort", access="own")
    def abort(self, call: Call, run: Run, path: Path, reason: Annotated[str, "why"] = "aborted") -> dict[str, Any]:
        """A client gave a command up: 499, with the reason."""
        self._pours.abort(run, path, reason)
        return {"path": path}

    @method("stream.cancel", access="own")
    def cancel(
        self,
        call: Call,
        run: Run,
        path: Annotated[str, "a channel; empty for every command of the run"] = "",
        reason: Annotated[str, "why"] = "stopped",
    ) -> dict[str, Any]:
        """Stop a command that runs: 499. Not found when it does not run (any more)."""
        return {"stopped": self._pours.cancel(run, path, reason)}

    @method("stream.list", access="own")
    def list(self, call: Call) -> "list[dict[str, str]]":  # quoted: the name is taken in here
        """The commands that run, each with the last lines of what it said."""
        return self._pours.tails()
