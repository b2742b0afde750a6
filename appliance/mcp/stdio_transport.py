"""A server of tools behind its standard input and output, in its sandbox: the transport that the protocol's library drives.

Owns starting it in its enclosure, its lines, its last words and its end. In the bridge process alone. Under systemd the program
unit starts it (`mcp.program_unit`), in a checkout a child of this process is it.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from appliance.errors import ServerError, Unavailable
from appliance.mcp import program_unit, repair, sandbox
from appliance.mcp.program_unit import Program
from appliance.mcp.sandbox import Enclosure
from appliance.sandbox import bubblewrap, landlock
from appliance.sandbox.descriptors import Descriptors
from appliance.sandbox.launcher import this_core

MAX_LINE = 16 << 20  # bytes of one message
WORDS = 4000  # characters of what a server said on its standard error that are kept
READY_S = 15.0  # a sandbox that is not made by then hangs
LEAVE_S = 2.0  # how long a server may take to end when its input ends
KILLED_S = 5.0

Item = SessionMessage | Exception
Process = asyncio.subprocess.Process | Program
Streams = tuple[MemoryObjectReceiveStream[Item], MemoryObjectSendStream[SessionMessage]]


class Conduit:
    """One server's process; `transport` starts it, and ends it when it is left."""

    def __init__(self, what: Enclosure, unit: Path | None = None, bwrap: str = bubblewrap.BWRAP) -> None:
        """`unit` is the program unit's socket; without one a child of this process becomes the server."""
        self._what = what
        self._unit = unit
        self._bwrap = bwrap
        self._said = ""
        self._process: Process | None = None
        self.gone = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process id of its sandbox, 0 before it has one."""
        return self._process.pid if self._process is not None else 0

    async def wait_for_end(self) -> None:
        """Wait a moment for the end of a process whose output has ended, so that `last_words` knows it."""
        if self._process is not None and self.is_gone:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 1.0)

    @property
    def is_gone(self) -> bool:
        """Whether the server has ended, or says nothing any more."""
        return self.gone.is_set() or (self._process is not None and self._process.returncode is not None)

    def last_words(self) -> str:
        """The exit status and the last lines of standard error."""
        code = self._process.returncode if self._process is not None else None
        how = "" if code is None else f"it ended with {code}"
        words = " / ".join(line.strip() for line in self._said.splitlines()[-4:] if line.strip())
        return ": ".join(part for part in (how, words) if part)

    @asynccontextmanager
    async def transport(self) -> AsyncGenerator[Streams, None]:
        """What the library reads from and writes to; ServerError when there is no sandbox for it."""
        process = await self._start_process()
        incoming, reading = anyio.create_memory_object_stream[Item](0)
        writing, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_messages, process, incoming)
            tasks.start_soon(self._write_messages, process, outgoing)
            tasks.start_soon(self._read_stderr, process)
            try:
                yield reading, writing
            finally:
                with anyio.CancelScope(shield=True):
                    reading.close()
                    writing.close()
                    await self._end_process(process)
                tasks.cancel_scope.cancel()

    async def _start_process(self) -> Process:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            if self._unit is not None:
                process: Process = await program_unit.start(self._unit, self._what, this_core(), writing, MAX_LINE)
            else:
                process = await self._start_child(writing)
            self._process = process
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        await self._until_ready(process, reading)
        return process

    async def _start_child(self, ready_fd: int) -> Process:
        with Descriptors() as files:
            listed = files.listed(sandbox.options(self._what))
            command = sandbox.command(self._what, ready_fd, landlock.version())
            try:
                return await asyncio.create_subprocess_exec(
                    *(bubblewrap.title(self._what.order, this_core()), "--args", str(listed), "--", *command),
                    executable=self._bwrap,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(*files.numbers, ready_fd),
                    env={},
                    cwd="/",
                    start_new_session=True,
                    limit=MAX_LINE,
                )
            except OSError as error:
                hint = bubblewrap.missing(self._bwrap)
                raise Unavailable(f"{self._bwrap} cannot be started: {error.strerror}", hint=hint) from None

    async def _until_ready(self, process: Process, handle: int) -> None:
        """Wait for the byte that says that the sandbox stands; ServerError with what bubblewrap said instead."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, told.set)
        try:
            await asyncio.wait_for(told.wait(), READY_S)
            is_ready = bool(os.read(handle, 1))
        except TimeoutError:
            is_ready = False
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        if is_ready:
            return
        await self._end_process(process)
        assert process.stderr is not None
        said = (await process.stderr.read(WORDS)).decode("utf-8", "replace").strip()
        raise ServerError(f"no sandbox for server {self._what.name}: {said or 'not made in time'}", hint=bubblewrap.advice(said))

    async def _read_messages(self, process: Process, to: MemoryObjectSendStream[Item]) -> None:
        """Messages, one a line; what is none, such as a greeting that some servers print, is passed over."""
        assert process.stdout is not None
        async with to:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for line in _read_lines(process.stdout):
                    try:
                        message = types.jsonrpc_message_adapter.validate_json(repair.mended(line), by_name=False)
                    except ValueError:
                        if (answer := repair.salvaged(repair.mended(line))) is not None:
                            await to.send(SessionMessage(answer))
                        self._remember_stderr(f"not a message: {line[:200].decode('utf-8', 'replace')}\n")
                        continue
                    await to.send(SessionMessage(message))
            self.gone.set()

    async def _write_messages(self, process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert process.stdin is not None
        async with outgoing:
            with contextlib.suppress(OSError, anyio.ClosedResourceError):
                async for item in outgoing:
                    process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await process.stdin.drain()

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(4096):
            self._remember_stderr(data.decode("utf-8", "replace"))

    def _remember_stderr(self, text: str) -> None:
        self._said = (self._said + text)[-WORDS:]

    async def _end_process(self, process: Process) -> None:
        """Its input ends, and so should it; when it does not, it is killed with everything it started."""
        if process.stdin is not None:
            process.stdin.close()
        for wait_s in (LEAVE_S, KILLED_S):
            if process.returncode is not None:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), wait_s)
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()


async def _read_lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines; one that is too long ends them, because nobody knows where the next one begins."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            return
        if not line:
            return
        if line.strip():
            yield line
