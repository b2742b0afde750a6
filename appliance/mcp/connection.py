"""One connection to a server of tools: opened, asked, watched and closed, and what the server asks of us in return.

A server that wants a model's text, or an answer of a person, is refused; of folders it is told those it sees anyway.
Opening and closing happen in one task of its own, as the protocol's library wants it. In the bridge process alone.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from msgspec import Struct
from pydantic import FileUrl

from appliance import __version__
from appliance.errors import OwlError, ServerError
from appliance.mcp import http_transport
from appliance.mcp.content import hint_of, kind_of
from appliance.mcp.http_transport import Consent, LoginTokens
from appliance.mcp.repair import Repair
from appliance.mcp.sandbox import Enclosure
from appliance.mcp.stdio_transport import Conduit
from appliance.sandbox.bubblewrap import Bind
from appliance.web import hosts

LOG = logging.getLogger(__name__)
START_S = 60.0  # servers that fetch themselves first are slow to begin
END_S = 12.0
# Errors of HTTP after which a connection is not asked again, by name: the library that raises them is one of its own.
ADDRESS = "see whether the address is right: it often ends in /mcp"
# What the library says of an answer that is no message of MCP.
NO_MESSAGE = re.compile(
    r"validation errors? for|Failed to parse JSON|Invalid JSON|Unexpected content type|not valid JSON-?RPC", re.IGNORECASE
)
BROKEN = ("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "WriteError", "RemoteProtocolError")


class Spec(Struct, frozen=True):
    """A server as the core describes it with every request, its secrets filled in; `key` changes when it does."""

    name: str
    transport: str
    key: str
    argv: tuple[str, ...] = ()
    folder: str = ""
    environ: Mapping[str, str] = {}
    binds: tuple[Bind, ...] = ()
    has_network: bool = False
    memory_bytes: int = 512 << 20
    url: str = ""
    headers: Mapping[str, str] = {}
    tokens: Mapping[str, Any] = {}
    client: Mapping[str, str] = {}  # our name at its login, where it is given
    timeout_s: float = 60.0
    reach: Mapping[str, Sequence[str]] = {}  # where it may send us besides, as `hosts.rules` takes it

    @property
    def enclosure(self) -> Enclosure:
        """The sandbox of a server that is started here."""
        return Enclosure(
            self.name, self.argv, Path(self.folder), self.environ, self.binds, self.has_network, memory_bytes=self.memory_bytes
        )


def spec(plain: Mapping[str, Any]) -> Spec:
    """The server that a request describes."""
    binds = tuple(Bind(Path(source), inside, is_writable) for source, inside, is_writable in plain.get("binds", ()))
    return Spec(**{**plain, "argv": tuple(plain.get("argv", ())), "binds": binds})


class ServerConnection:
    """A server that is connected to. `client` is the library's; `is_stale` when its lists have changed."""

    def __init__(self, what: Spec, consent: Consent | None = None, unit: Path | None = None) -> None:
        """`unit` is the program unit's socket, where systemd starts servers."""
        self.spec = what
        self.tokens = LoginTokens(dict(what.tokens))
        if what.client:
            self.tokens.name(what.client["client_id"], what.client["client_secret"], what.client.get("issuer", ""))
        self.is_stale = False
        self._consent = consent
        self._heard = http_transport.HttpRefusal()
        self._conduit = Conduit(what.enclosure, unit) if what.transport == "stdio" else None
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._owner: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process of a server that was started here, else 0."""
        return self._conduit.pid if self._conduit is not None else 0

    @property
    def is_open(self) -> bool:
        """Whether it can be asked; a server that died meanwhile cannot."""
        is_gone = self._conduit is not None and self._conduit.is_gone
        return self._owner is not None and not self._owner.done() and not is_gone

    @property
    def client(self) -> Client:
        """The library's, once it is open."""
        return self._opened.result()

    async def open(self, timeout_s: float = START_S) -> None:
        """Connect; ServerError says why not."""
        self._owner = asyncio.create_task(self._run_connection())
        try:
            await asyncio.wait_for(asyncio.shield(self._opened), timeout_s)
        except TimeoutError:
            await self.close()
            said = self._last_words() or "it did not answer"
            text = f"server {self.spec.name} did not start within {timeout_s:g} s: {said}"
            raise ServerError(text, outcome="retryable", hint=hint_of("retryable", self.spec.name)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Hang up; closing twice or before it was opened is safe, and errors at the end are nobody's concern."""
        self._stop.set()
        if self._consent is not None:
            self._consent.close()
        if self._owner is not None and self._owner is not asyncio.current_task():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._owner), END_S)
            self._owner.cancel()

    def is_broken(self, error: BaseException) -> bool:
        """Whether nothing more will come over this connection after that."""
        one = _first_error(error)
        return not self.is_open or type(one).__name__ in BROKEN or (isinstance(one, MCPError) and one.code == CONNECTION_CLOSED)

    async def failure(self, error: BaseException) -> OwlError:
        """The error in the words of this program."""
        if self._conduit is not None and self.is_broken(error):
            await self._conduit.wait_for_end()
        return self._translate_error(error)

    def _translate_error(self, error: BaseException) -> OwlError:
        name = self.spec.name
        one = _first_error(error)
        if isinstance(one, OwlError):
            hint = one.hint.replace("NAME", name) or hint_of(one.outcome, name) if isinstance(one, ServerError) else one.hint
            return type(one)(one.message, hint=hint, outcome=one.outcome)
        is_gone = self._conduit is not None and self._conduit.is_gone
        code = one.code if isinstance(one, MCPError) else 0
        if is_gone or code == CONNECTION_CLOSED:
            said = self._last_words()
            text = f"server {name} ended{f': {said}' if said else ''}"
            return ServerError(text, outcome="retryable", hint="it is started again by the next call")
        if code == REQUEST_TIMEOUT:
            return ServerError(f"server {name} did not answer in time", outcome="retryable", hint=hint_of("retryable", name))
        text = f"{type(one).__name__}: {one}" if not isinstance(one, MCPError) else str(one)
        if NO_MESSAGE.search(text):  # its answer, field by field, says less
            hint = ADDRESS if self.spec.url else "see whether its program is right"
            return ServerError(f"{name} is no MCP server: what it answers is no message of MCP", outcome="permanent", hint=hint)
        text = f"HTTP {self._heard.status}: {text}" if self._heard.status else text
        kind = "input_error" if code in (INVALID_PARAMS, METHOD_NOT_FOUND) else kind_of(text)
        if type(one).__name__ in BROKEN:
            kind = "retryable"
        if type(one).__name__.startswith("OAuth"):
            kind = "auth_error"
        hint = f"{name} knows nothing of that kind: do without it" if code == METHOD_NOT_FOUND else hint_of(kind, name)
        if self._heard.status == 404:
            hint = ADDRESS
        return ServerError(f"server {name}: {text[:2000]}", outcome=kind, hint=hint)

    async def _run_connection(self) -> None:
        """The task in which everything of this connection is opened and closed."""
        try:
            async with self._open_client() as client:
                if not self._opened.done():
                    self._opened.set_result(client)
                await self._until_over()
        except (Exception, asyncio.CancelledError, BaseExceptionGroup) as error:  # noqa: BLE001 the library's, of any kind
            if not self._opened.done():
                self._opened.set_exception(await self.failure(error))
                self._opened.exception()  # also when nobody waits any more
            else:
                LOG.debug("connection to %s ended: %s", self.spec.name, error)

    async def _until_over(self) -> None:
        waits = [asyncio.ensure_future(self._stop.wait())]
        if self._conduit is not None:
            waits.append(asyncio.ensure_future(self._conduit.gone.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _open_client(self) -> Client:
        if self._conduit is not None:
            transport: Any = self._conduit.transport()
        else:
            headers = dict(self.spec.headers)
            transport = http_transport.transport(
                *(self.spec.url, headers, self.tokens, self._consent, self.spec.timeout_s, self._heard),
                hosts.rules(**self.spec.reach),
            )
        repair = Repair(lambda: self.client.protocol_version if self._opened.done() else types.LATEST_PROTOCOL_VERSION)
        return Client(
            repair.around(transport),
            read_timeout_seconds=self.spec.timeout_s,
            list_roots_callback=self._list_roots,
            elicitation_callback=_decline_elicitation,
            message_handler=self._note_change,
            client_info=types.Implementation(name="owlbox", version=__version__),
            cache=None,
        )

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        """The folders that the server sees anyway; none for one that is elsewhere."""
        if self._conduit is None:
            return types.ListRootsResult(roots=[])
        seen = ["/work", *(bind.inside for bind in self.spec.binds if bind.is_writable)]
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(f"file://{path}")) for path in seen])

    async def _note_change(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.is_stale = True

    def _last_words(self) -> str:
        return self._conduit.last_words() if self._conduit is not None else ""


async def _decline_elicitation(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Nobody is asked on a server's behalf: what a person is shown must come from us."""
    return types.ElicitResult(action="decline")


def _first_error(error: BaseException) -> BaseException:
    """The first error of a group of them."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
