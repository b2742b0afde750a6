"""Starts a server of tools in a unit of its own: both ends of the socket between bridge and program unit.

systemd holds the socket, lets only the bridge's user open it, and starts one `owlbox-program@.service` for each connection. That
process runs `main` here: it takes one server as a line of JSON, with the descriptors that become its input, output and error,
makes the sandbox around itself and becomes the server. So the bridge, which holds secrets and reads what strangers send, needs
no namespaces. What comes back is a descriptor of the process, or an error; its exit code comes from bubblewrap.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec

from appliance.errors import BadInput, OwlError, Unavailable, from_outcome
from appliance.mcp import sandbox
from appliance.mcp.sandbox import Enclosure
from appliance.sandbox import bubblewrap, landlock, tool_unit
from appliance.sandbox.descriptors import Descriptors

TAKE_S = 20.0  # starting a unit on a busy small box
MAX_LINE_BYTES = 1 << 20
MAX_ANSWER_BYTES = 1 << 16
HANDED = 5  # descriptors: input, output, error, status of bubblewrap, and where the server says that it begins
HINT = "systemctl status owlbox-program.socket"


# -- the bridge's end -------------------------------------------------------------------------------


class Program:
    """A server in its unit, used as asyncio's `Process` is."""

    def __init__(
        self,
        process: int,
        pid: int,
        streams: tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader],
        status: asyncio.StreamReader,
    ) -> None:
        """`process` is its pidfd, which belongs to this object from now on; bubblewrap says on `status` how it ended."""
        self.pid = pid
        self.stdin: asyncio.StreamWriter | None = streams[0]
        self.stdout: asyncio.StreamReader | None = streams[1]
        self.stderr: asyncio.StreamReader | None = streams[2]
        self.returncode: int | None = None
        self._process = process
        self._end = asyncio.create_task(self._watch_status(status))

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.shield(self._end)

    def kill(self) -> None:
        """End it with everything that it started; ProcessLookupError when it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._process, signal.SIGKILL)

    async def _watch_status(self, status: asyncio.StreamReader) -> int:
        """The exit code, once the stream has ended, as it does with bubblewrap."""
        code = -signal.SIGKILL
        async for line in status:
            with contextlib.suppress(ValueError):
                code = int(json.loads(line).get("exit-code", code))
        self.returncode = code
        os.close(self._process)
        return code


async def start(path: Path, what: Enclosure, core: str, ready_fd: int, limit: int) -> Program:
    """Have the unit at `path` start a server; it says on `ready_fd` that it begins. Unavailable when the unit does not take it."""
    order = {"what": msgspec.to_builtins(what, enc_hook=str), "core": core}
    line = json.dumps(order).encode() + b"\n"
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as undo:
        mine, input_end = socket.socketpair()  # as asyncio gives its children
        undo.callback(mine.close)
        theirs.callback(input_end.close)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        for here, there in pipes:
            undo.callback(os.close, here)
            theirs.callback(os.close, there)
        handed = (input_end.fileno(), *(there for _, there in pipes), ready_fd)
        told, process = await asyncio.to_thread(_hand_over, path, line, handed)
        undo.pop_all()
    output, error, status = [await _read_from(here, limit) for here, _ in pipes]
    _, writer = await asyncio.open_connection(sock=mine)
    return Program(process, int(told["pid"]), (writer, output, error), status)


def _hand_over(path: Path, line: bytes, handed: tuple[int, ...]) -> tuple[dict[str, Any], int]:
    """Send the order to the unit; its response, and the descriptor of its process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(TAKE_S)
        try:
            sock.connect(str(path))
            socket.send_fds(sock, [line[:1]], handed)
            sock.sendall(line[1:])
            data, handles = _receive(sock, MAX_ANSWER_BYTES)
        except OSError as error:
            raise Unavailable(f"the program unit does not answer at {path}: {error}", hint=HINT) from None
    if not data:
        raise Unavailable("the program unit hung up", hint="journalctl -u 'owlbox-program@*'")
    told: dict[str, Any] = json.loads(data)
    if "error" in told:
        raise from_outcome(told["outcome"], told["error"], told["hint"])
    return told, handles[0]


async def _read_from(handle: int, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(handle, "rb", 0))
    return reader


# -- the unit's end ---------------------------------------------------------------------------------


def main() -> None:
    """Become the one server that comes over standard input, a socket; the program of owlbox-program@.service."""
    with socket.socket(fileno=os.dup(0)) as sock, Descriptors() as files:
        try:
            tool_unit.check_peer(sock, "")
            what, core, handed = _receive_order(sock)
            if reason := bubblewrap.missing():
                raise Unavailable(reason)
            listed = files.listed(sandbox.options(what))
            title = bubblewrap.title(what.order, core)
            command = sandbox.command(what, handed[4], landlock.version())
        except OwlError as error:
            sock.sendall(json.dumps({"error": error.message, "outcome": error.outcome, "hint": error.hint}).encode())
            return
        process = os.pidfd_open(os.getpid())
        socket.send_fds(sock, [json.dumps({"pid": os.getpid()}).encode()], [process])
        os.close(process)
        for number, handle in enumerate(handed[:3]):
            os.dup2(handle, number)
        for handle in (*files.numbers, *handed[3:]):
            os.set_inheritable(handle, True)
        words = [title, "--args", str(listed), "--json-status-fd", str(handed[3]), "--", *command]
        os.execve(bubblewrap.BWRAP, words, {})


def _receive_order(sock: socket.socket) -> tuple[Enclosure, str, list[int]]:
    sock.settimeout(TAKE_S)
    data, handed = bytearray(), list[int]()
    while not data.endswith(b"\n"):
        piece, handles = _receive(sock, 1 << 16)
        handed += handles
        data += piece
        if not piece or len(data) > MAX_LINE_BYTES:
            raise BadInput("no whole order came")
    try:
        told = json.loads(data)
        what = msgspec.convert(told["what"], Enclosure, dec_hook=lambda kind, text: kind(text))
        core = str(told["core"])
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise BadInput(f"an order that cannot be read: {error}") from error
    if len(handed) != HANDED:
        raise BadInput(f"{HANDED} descriptors were to come, and {len(handed)} did")
    return what, core, handed


def _receive(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Bytes and descriptors; Python's `recv_fds` passes over the flag that would have no program inherit these."""
    data, handles, _, _ = socket.recv_fds(sock, size, HANDED)
    for handle in handles:
        os.set_inheritable(handle, False)
    return data, handles


if __name__ == "__main__":
    main()
