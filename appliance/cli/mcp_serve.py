"""The command `owlbox mcp-serve`: the assistant for other agents, over standard input and output or a Unix socket.

Reads lines and hands them to `mcp.protocol_server`; each call goes to the core over its socket, or is done in this process when
no core runs. Serves the person who started it, or who is at the other end of the socket that systemd gave it.
While it serves, nothing else of this process can write to the agent.
"""

import argparse
import os
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.clock import CancelToken
from appliance.console import terminal
from appliance.console.connect import reach
from appliance.errors import AlreadyRunning, BadInput, Cancelled, Lost, OwlError
from appliance.mcp.protocol_server import MAX_LINE, Conversation
from appliance.records import Outcome, from_plain
from appliance.runtime import paths
from appliance.runtime.jsonrpc import MAX_PATH_BYTES
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import STARTING_S, Client, read_identity
from appliance.runtime.users import user_name

FINISH_S = 10.0  # for what was asked before the agent hung up
CALL_S = 150.0  # as for any command: a search may have to load a model first
MAX_CONNECTIONS = 16
Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the command."""
    made = command("mcp-serve", serve, "MCP server: lets other agents search and read, nothing else")
    made.add_argument("--tasks", action="store_true", help="let them add tasks too")
    made.add_argument("--socket", default="", metavar="PATH", help="listen there instead of standard input, for your own programs")
    made.add_argument("--peer", action="store_true", help="serve the peer of the socket that is standard input")


def serve(args: argparse.Namespace, home: Home) -> int:
    """Serve until the agent hangs up, or until stopped."""
    home.require()
    if args.socket:
        return listen(Path(args.socket), home, args.tasks)
    if sys.stdin.isatty():
        raise BadInput("mcp-serve talks to a program, and this is a terminal", hint="see docs/guides/mcp-serve.md")
    person = _peer_name(0) if args.peer else ""
    taken, given = claim_descriptor(0, os.O_RDONLY), claim_descriptor(1, os.O_WRONLY)
    talk(taken, given, Owl(home, args.tasks, person))
    return 0


class Owl:
    """What there is to be called: the tools that the core offers to guests."""

    def __init__(self, home: Home, may_add: bool, person: str = "") -> None:
        self._home = home
        self._may_add = may_add
        self._person = person
        self._inside = threading.Lock()

    def tools(self) -> list[Mapping[str, Any]]:
        """The tools, as the core describes them."""
        return list(self._ask_core("guest.tools", {"may_add": self._may_add}, CancelToken()))

    def call(self, name: str, arguments: Mapping[str, Any], agent: str, cancel: CancelToken) -> Outcome:
        """What becomes of a call."""
        given = {"name": name, "arguments": dict(arguments), "agent": agent, "may_add": self._may_add, "person": self._person}
        return from_plain(Outcome, self._ask_core("guest.call", given, cancel))

    def _ask_core(self, method: str, params: dict[str, Any], cancel: CancelToken) -> Any:
        """Asked of a running core, over a connection of its own; else done here, one at a time."""
        path = paths.find_core(self._home, os.environ)
        if path.exists():
            try:
                client = Client(str(path), name="mcp-serve", timeout_s=STARTING_S, identity=read_identity(os.environ))
            except Lost:
                pass  # the file is a dead core's
            else:
                with client:
                    return _stream_call(client, method, params, cancel)
        with self._inside:
            if cancel.is_set():
                raise Cancelled("stopped")
            way = reach(self._home, os.environ)
            try:
                return way.call(method, params)
            finally:
                way.close()


def _stream_call(client: Client, method: str, params: dict[str, Any], cancel: CancelToken) -> Any:
    """A call that can be cancelled."""
    stream = client.stream(method, params, deadline_s=CALL_S, cancel=cancel)
    while True:
        try:
            next(stream)
        except StopIteration as end:
            return end.value


# -- one agent ----------------------------------------------------------------------------------------


def talk(taken: int, given: int, owl: Owl) -> None:
    """Answer what comes on one descriptor on another, until there is no more."""
    conversation = Conversation(owl, lambda line: write_line(given, line))
    try:
        for line in lines(taken):
            if isinstance(line, int):
                conversation.too_large(line)
            else:
                conversation.handle_line(line)
        conversation.finish(FINISH_S)
    except BrokenPipeError:
        pass  # the agent has gone
    finally:
        conversation.close()


def lines(taken: int) -> Iterator[bytes | int]:
    """Lines without their ends as they come; of one that is too long its length. A last one without an end counts."""
    held, skipped = bytearray(), 0
    while True:
        try:
            data = os.read(taken, 65536)
        except OSError:
            data = b""  # hung up without a word
        held += data
        while (end := held.find(b"\n")) >= 0 or (not data and held):
            line = bytes(held[: end if end >= 0 else len(held)])
            del held[: len(line) + 1]
            if skipped or len(line) > MAX_LINE:
                yield skipped + len(line)
                skipped = 0
            elif line.strip():
                yield line
        if not data:
            return
        if len(held) > MAX_LINE:
            skipped += len(held)
            held.clear()


def write_line(given: int, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(given, left) :]


def claim_descriptor(number: int, flags: int) -> int:
    """A copy of standard input or output for us alone; from now on the number itself leads to nothing, or to the log."""
    kept = os.dup(number)
    other = os.open(os.devnull, flags) if number == 0 else os.dup(2)
    os.dup2(other, number)
    os.close(other)
    return kept


def _peer_name(number: int) -> str:
    """The name of who is at the other end of a descriptor; BadInput where it is no socket of this machine."""
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        raise BadInput("--peer needs a socket as standard input", hint="it is for owlbox-server@.service")
    with socket.socket(fileno=os.dup(number)) as sock:
        uid = _peer_uid(sock) if sock.family == socket.AF_UNIX else os.getuid()
    return user_name(uid)


def _peer_uid(sock: socket.socket) -> int:
    """The user at the other end when it connected, as the kernel says."""
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


# -- many agents --------------------------------------------------------------------------------------


def listen(path: Path, home: Home, may_add: bool) -> int:
    """Serve programs of this very user on a socket, each in a thread, until stopped."""
    with _bind_socket(path) as sock:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        terminal.say(f"listening at {path}", sys.stderr)
        room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            while True:
                connection, _ = sock.accept()
                room.acquire()
                threading.Thread(target=_serve_one, args=(connection, home, may_add, room), daemon=True).start()
        except KeyboardInterrupt:
            return 0
        finally:
            path.unlink(missing_ok=True)


def _serve_one(connection: socket.socket, home: Home, may_add: bool, room: threading.BoundedSemaphore) -> None:
    try:
        with connection:
            if _peer_uid(connection) in (os.getuid(), 0):
                talk(connection.fileno(), connection.fileno(), Owl(home, may_add))
    finally:
        room.release()


def _bind_socket(path: Path) -> socket.socket:
    """A listening socket that only this user can open; AlreadyRunning when somebody listens there."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise BadInput(f"{path} is longer than {MAX_PATH_BYTES} bytes", hint="choose a shorter path")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists():
            if not path.is_socket():
                raise BadInput(f"{path} is in the way and is not a socket", hint="choose another path")
            if _is_answered(path):
                raise AlreadyRunning(f"something listens at {path} already", hint="stop it, or choose another path")
            path.unlink()
        before = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        sock.listen(MAX_CONNECTIONS)
    except OSError as error:
        sock.close()
        raise BadInput(f"cannot listen at {path}: {error.strerror}", hint="choose another path") from None
    except OwlError:
        sock.close()
        raise
    return sock


def _is_answered(path: Path) -> bool:
    """Whether somebody listens there; a file that nobody listens at was left behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
