"""The process that speaks to servers of tools: the core's child, started by the first call, gone when it is idle.

Answers the core on a socket of its own with a handful of methods; each request carries the server's description, so that
nothing is configured here and nothing kept. A server stays connected while it is used. One that dies is started again by
the next call, after a pause that grows when it goes on dying. The protocol's library is loaded here and nowhere else.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import REQUEST_TIMEOUT

from appliance.clock import monotonic_s
from appliance.errors import BadInput, NotFound, OwlError, Refused, ServerError
from appliance.mcp.connection import ServerConnection, Spec, spec
from appliance.mcp.http_transport import Consent
from appliance.mcp.repair import LEFT_OUT
from appliance.runtime import jsonrpc, sd_notify

LOG = logging.getLogger(__name__)
IDLE_S = 300.0  # a server that was not asked for so long is ended
LINGER_S = 20.0  # how long a bridge without servers waits for the next call
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
PROGRAMS = "OWLBOX_PROGRAM_SOCKET"  # where systemd starts servers that are programs
PAGES = 50  # of one list
CALL_S = 3600.0
SIGN_S = 3.0  # for a sign of life of a server that failed

Params = Mapping[str, Any]
Tell = Callable[[str, dict[str, Any]], None]
Meet = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@dataclass
class Slot:
    """The state of one server while the bridge runs."""

    guard: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: ServerConnection | None = None
    failures: int = 0
    next_s: float = 0.0
    last_error: str = ""
    busy: int = 0
    used_s: float = 0.0
    starts: int = 0
    is_suspect: bool = False  # it was late: is it still there?


class Bridge:
    """The servers that are connected, and the methods that the core calls."""

    def __init__(self, idle_s: float = IDLE_S, linger_s: float = LINGER_S, unit: Path | None = None) -> None:
        """`unit` is the program unit's socket; without one servers are our children."""
        self._idle_s = idle_s
        self._linger_s = linger_s
        self._unit = unit
        self._slots: dict[str, Slot] = {}
        self._consents: dict[str, Consent] = {}
        self._callers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.over = asyncio.Event()
        self.methods: dict[str, Callable[[Params, Tell], Awaitable[Any]]] = {
            "list": self._list_offers,
            "call": self._call_tool,
            "ping": self._ping_server,
            "resource": self._read_resource,
            "prompt": self._get_prompt,
            "task": self._handle_task,
            "auth": self._authorize,
            "answer": self._answer_login,
            "close": self._close_server,
            "status": self._report_status,
        }

    # -- connections ------------------------------------------------------------------------------

    async def _open_connection(self, what: Spec, slot: Slot) -> ServerConnection:
        """A connection that can be used; ServerError while its pause after failures lasts."""
        async with slot.guard:
            found = slot.connection
            if found is not None and found.is_open and found.spec.key == what.key and await _is_well(found, slot):
                return found
            if found is not None:
                await found.close()
                slot.connection = None
            left_s = slot.next_s - monotonic_s()
            if left_s > 0:
                text = f"server {what.name} failed {slot.failures} times and is tried again in {left_s:.1f} s: {slot.last_error}"
                raise ServerError(text, outcome="retryable", hint="wait, or look at it with owlbox mcp ping " + what.name)
            made = ServerConnection(what, unit=self._unit)
            slot.starts += 1
            try:
                await made.open()
            except OwlError as error:
                _note_failure(slot, error.message)
                raise
            slot.connection = made
            return made

    async def _use_server(
        self, params: Params, work: Callable[[Client], Awaitable[Any]], *, is_safe: bool = True
    ) -> dict[str, Any]:
        """A server's response, with the facts that the core needs besides.

        What is safe to ask twice is asked once more when the server turns out to have died; a call of a tool is not.
        """
        what = spec(params["server"])
        self._idle_s = float(params.get("idle_s", self._idle_s))
        slot = self._slots.setdefault(what.name, Slot())
        slot.busy += 1
        try:
            for is_last in (not is_safe, True):
                connection = await self._open_connection(what, slot)
                try:
                    value = await work(connection.client)
                except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 whatever the library or the server raised
                    failure = await connection.failure(error)
                    slot.is_suspect = True
                    is_broken = connection.is_broken(error)
                    if is_broken:
                        _note_failure(slot, failure.message)
                        slot.connection = None
                        self._close_later(connection.close())
                    if is_last or not is_broken:
                        raise failure from None
                else:
                    slot.failures, slot.next_s, slot.last_error = 0, 0.0, ""
                    return self._wrap_answer(connection, value)
            raise AssertionError("unreachable")
        finally:
            slot.busy -= 1
            slot.used_s = monotonic_s()
            self.look_later()

    def _wrap_answer(self, connection: ServerConnection, value: Any) -> dict[str, Any]:
        tokens = connection.tokens
        told: dict[str, Any] = {"value": value, "is_stale": connection.is_stale}
        if tokens.is_changed:
            told["tokens"], tokens.is_changed = tokens.kept, False
        connection.is_stale = False
        return told

    # -- methods ----------------------------------------------------------------------------------

    async def _list_offers(self, params: Params, tell: Tell) -> dict[str, Any]:
        return await self._use_server(params, _list_everything)

    async def _call_tool(self, params: Params, tell: Tell) -> dict[str, Any]:
        limit_s = float(params.get("timeout_s") or CALL_S)

        async def work(client: Client) -> Any:
            return _dump_result(await client.call_tool(params["tool"], dict(params["arguments"]), limit_s))

        return await self._use_server(params, work, is_safe=False)

    async def _ping_server(self, params: Params, tell: Tell) -> dict[str, Any]:
        async def work(client: Client) -> Any:
            began_s = monotonic_s()
            await _send_ping(client)
            return {"ms": round(1000 * (monotonic_s() - began_s), 1), **_describe_server(client)}

        return await self._use_server(params, work)

    async def _read_resource(self, params: Params, tell: Tell) -> dict[str, Any]:
        async def work(client: Client) -> Any:
            return _dump_result(await client.read_resource(params["uri"], cache_mode="bypass"))

        return await self._use_server(params, work)

    async def _get_prompt(self, params: Params, tell: Tell) -> dict[str, Any]:
        async def work(client: Client) -> Any:
            return _dump_result(await client.get_prompt(params["name"], dict(params["arguments"])))

        return await self._use_server(params, work)

    async def _handle_task(self, params: Params, tell: Tell) -> dict[str, Any]:
        name, task = str(params["action"]), str(params.get("task", ""))

        async def work(client: Client) -> Any:
            if name == "list":
                return _dump_result(await client.session.send_request(types.ListTasksRequest(), types.ListTasksResult))
            asked: Any = {
                "get": (types.GetTaskRequest, types.GetTaskRequestParams, types.GetTaskResult),
                "result": (types.GetTaskPayloadRequest, types.GetTaskPayloadRequestParams, types.GetTaskPayloadResult),
                "cancel": (types.CancelTaskRequest, types.CancelTaskRequestParams, types.CancelTaskResult),
            }[name]
            request, about, result = asked
            return _dump_result(await client.session.send_request(request(params=about(task_id=task)), result))

        return await self._use_server(params, work, is_safe=name != "cancel")

    async def _authorize(self, params: Params, tell: Tell) -> dict[str, Any]:
        """Log in again; the person is shown an address to open."""
        what = spec({**params["server"], "tokens": {}})
        consent = Consent(lambda address: tell("mcp.authorize", {"server": what.name, "address": address}))
        await consent.open()
        self._consents[what.name] = consent
        connection = ServerConnection(what, consent)
        slot = self._slots.setdefault(what.name, Slot())
        slot.busy += 1
        try:
            await connection.open(CALL_S)
            return self._wrap_answer(connection, _describe_server(connection.client))
        finally:
            slot.busy -= 1
            self._consents.pop(what.name, None)
            await connection.close()
            self.look_later()

    async def _answer_login(self, params: Params, tell: Tell) -> dict[str, Any]:
        consent = self._consents.get(str(params["name"]))
        if consent is None:
            raise NotFound(f"nobody is logging in to {params['name']}", hint=f"owlbox mcp auth {params['name']}")
        consent.answer(str(params["address"]))
        return {}

    async def _close_server(self, params: Params, tell: Tell) -> dict[str, Any]:
        slot = self._slots.pop(str(params["name"]), None)
        if slot is not None and slot.connection is not None:
            await slot.connection.close()
        self.look_later()
        return {"is_closed": slot is not None}

    async def _report_status(self, params: Params, tell: Tell) -> dict[str, Any]:
        servers = {}
        for name, slot in self._slots.items():
            is_open = slot.connection is not None and slot.connection.is_open
            pid = slot.connection.pid if is_open and slot.connection is not None else 0
            known = {"failures": slot.failures, "starts": slot.starts, "error": slot.last_error}
            servers[name] = {"is_open": is_open, "pid": pid, **known}
        return {"pid": os.getpid(), "servers": servers}

    # -- the end ----------------------------------------------------------------------------------

    def came(self) -> None:
        """Somebody connected."""
        self._callers += 1

    def left(self) -> None:
        """Somebody hung up."""
        self._callers -= 1
        self.look_later()

    async def stop(self) -> None:
        """End every server."""
        found = [slot.connection for slot in self._slots.values() if slot.connection is not None]
        await asyncio.gather(*(one.close() for one in found), *self._ending, return_exceptions=True)

    def _close_later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def look_later(self) -> None:
        """Wake up when the next server is idle, or when there is nothing left to wait for."""
        if self._timer is not None:
            self._timer.cancel()
        used = [slot.used_s for slot in self._slots.values() if slot.connection is not None and not slot.busy]
        due_s = min(used) + self._idle_s - monotonic_s() if used else self._linger_s
        self._timer = asyncio.get_running_loop().call_later(max(0.05, due_s), self._close_idle)

    def _close_idle(self) -> None:
        now_s = monotonic_s()
        for slot in self._slots.values():
            if slot.connection is not None and not slot.busy and now_s - slot.used_s >= self._idle_s:
                self._close_later(slot.connection.close())
                slot.connection = None
        is_free = not self._callers and not any(slot.busy or slot.connection for slot in self._slots.values())
        if is_free:
            self.over.set()
        else:
            self.look_later()


async def _is_well(connection: ServerConnection, slot: Slot) -> bool:
    """Whether a server that failed a call still answers: one that hangs is ended and started again."""
    if not slot.is_suspect or slot.busy > 1:
        return True
    slot.is_suspect = False
    try:
        await asyncio.wait_for(_send_ping(connection.client), SIGN_S)
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 whatever the library or the server raised
        return isinstance(error, MCPError) and not connection.is_broken(error) and error.code != REQUEST_TIMEOUT
    return True


async def _send_ping(client: Client) -> None:
    if client.protocol_version < "2026":
        await client.session.send_request(types.PingRequest(), types.EmptyResult)
    else:  # where there is no such request any more, a list says the same
        await client.list_tools(cache_mode="bypass")


def _note_failure(slot: Slot, why: str) -> None:
    slot.failures += 1
    slot.last_error = why[:500]
    # The first failure costs no pause: a server that died once is started again at once.
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (slot.failures - 2)) if slot.failures > 1 else 0.0
    slot.next_s = monotonic_s() + pause_s


def _dump_result(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return found


def _describe_server(client: Client) -> dict[str, Any]:
    info = client.server_info
    return {
        "protocol": client.protocol_version,
        "title": info.name if info is not None else "",
        "version": info.version if info is not None else "",
        "instructions": (client.instructions or "")[:4000],
    }


async def _list_everything(client: Client) -> dict[str, Any]:
    """All tools, resources and prompts of a server."""
    able = client.server_capabilities
    found: dict[str, Any] = {**_describe_server(client), "tools": [], "resources": [], "templates": [], "prompts": []}
    left_out: list[str] = []
    found["left_out"] = left_out
    if able.tools is not None:
        found["tools"] = await _list_pages(client.list_tools, "tools", left_out)
    if able.resources is not None:
        found["resources"] = await _list_pages(client.list_resources, "resources", left_out)
        with contextlib.suppress(MCPError):  # many servers have resources and know no templates
            found["templates"] = await _list_pages(client.list_resource_templates, "resourceTemplates", left_out)
    if able.prompts is not None:
        found["prompts"] = await _list_pages(client.list_prompts, "prompts", left_out)
    return found


async def _list_pages(ask: Callable[..., Awaitable[Any]], key: str, left_out: list[str]) -> list[Any]:
    """All of a list, page by page; what was taken out of it is added to `left_out`."""
    rows: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = _dump_result(await ask(cursor=cursor, cache_mode="bypass"))
        rows += page.get(key, [])
        left_out += page.get("_meta", {}).get(LEFT_OUT, [])
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return rows


# -- the socket -------------------------------------------------------------------------------------


class Door:
    """One connection of the core: greeted, then a request at a time or several; hanging up cancels them."""

    def __init__(self, bridge: Bridge, token: str, writer: asyncio.StreamWriter) -> None:
        self._bridge = bridge
        self._token = token
        self._writer = writer
        self._is_greeted = False
        self._tasks: dict[Any, asyncio.Task[None]] = {}

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer until the other end hangs up."""
        self._bridge.came()
        try:
            while line := await reader.readline():
                self._handle_frame(jsonrpc.decode(line))
        except (OSError, ValueError, BadInput) as error:
            LOG.debug("hung up: %s", error)
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._writer.close()
            self._bridge.left()

    def _handle_frame(self, frame: dict[str, Any]) -> None:
        number = frame.get("id")
        if frame.get("method") == "cancel":
            if (task := self._tasks.get((frame.get("params") or {}).get("id"))) is not None:
                task.cancel()
            return
        task = asyncio.create_task(self._answer_request(number, str(frame.get("method")), frame.get("params") or {}))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer_request(self, number: Any, name: str, params: dict[str, Any]) -> None:
        try:
            self._send_frame({"jsonrpc": "2.0", "id": number, "result": await self._call_method(name, params)})
        except OwlError as error:
            self._send_frame(jsonrpc.error_frame(number, error))
        except asyncio.CancelledError:
            self._send_frame(jsonrpc.error_frame(number, ServerError("stopped", outcome="permanent")))
        except (KeyError, TypeError, ValueError) as error:
            self._send_frame(jsonrpc.error_frame(number, BadInput(f"{name}: {error}")))

    async def _call_method(self, name: str, params: dict[str, Any]) -> Any:
        if name == "hello":
            if params.get("token", "") != self._token:
                raise Refused("this bridge works for another core")
            self._is_greeted = True
            return {"server": "bridge"}
        if not self._is_greeted or name not in self._bridge.methods:
            raise NotFound(f"no method {name}")
        return await self._bridge.methods[name](params, self._send_notification)

    def _send_notification(self, name: str, params: dict[str, Any]) -> None:
        self._send_frame({"jsonrpc": "2.0", "method": name, "params": params})

    def _send_frame(self, frame: dict[str, Any]) -> None:
        try:
            data = jsonrpc.encode(frame)
        except OwlError as error:
            data = jsonrpc.encode(jsonrpc.error_frame(frame.get("id"), error))
        if not self._writer.is_closing():
            self._writer.write(data)


async def serve(path: str, environ: Mapping[str, str]) -> None:
    """Listen until idle, told to end, or disconnected by the core."""
    unit = Path(environ[PROGRAMS]) if PROGRAMS in environ else None
    bridge = Bridge(linger_s=float(environ.get("OWLBOX_LINGER_S", LINGER_S)), unit=unit)
    token = environ.get("OWLBOX_TOKEN", "")
    users = {os.getuid()}
    if core := environ.get("OWLBOX_CORE_USER", ""):
        users.add(sd_notify.user_id(core))
    loop = asyncio.get_running_loop()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", raw)[1] not in users:
            writer.close()
            return
        await Door(bridge, token, writer).serve(reader)

    given = sd_notify.given_socket(environ)
    sock = _listen_on(path) if given is None else given
    sock.setblocking(False)
    accepting = asyncio.create_task(_accept_clients(sock, meet))
    loop.add_signal_handler(signal.SIGTERM, bridge.over.set)
    loop.add_signal_handler(signal.SIGINT, bridge.over.set)
    if environ.get("OWLBOX_CHILD"):
        loop.add_reader(0, _exit_with_core, bridge)
        os.write(1, b"!")
    bridge.look_later()
    await bridge.over.wait()
    if given is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # first, so that the next call starts another bridge
    accepting.cancel()
    await bridge.stop()
    sock.close()


def _listen_on(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(128)
    return sock


async def _accept_clients(sock: socket.socket, meet: Meet) -> None:
    """Greet who connects. Not asyncio's own server: that listens anew, and callers would no more see that systemd did."""
    loop = asyncio.get_running_loop()
    met: set[asyncio.Task[None]] = set()
    while True:
        line, _ = await loop.sock_accept(sock)
        task = asyncio.create_task(meet(*await asyncio.open_unix_connection(sock=line, limit=jsonrpc.MAX_FRAME_BYTES)))
        met.add(task)
        task.add_done_callback(met.discard)


def _exit_with_core(bridge: Bridge) -> None:
    """Our input is the core's life: when it ends, so do we."""
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        bridge.over.set()


def main() -> int:
    """Run the bridge at the socket that the first argument names."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(serve(sys.argv[1] if len(sys.argv) > 1 else "", os.environ))
    return 0


if __name__ == "__main__":
    sys.exit(main())
