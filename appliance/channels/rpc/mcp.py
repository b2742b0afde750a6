"""Servers of tools at the local socket: what people do with them, beside what models may call.

Whoever may open the socket may add a server, which is to run a program in a sandbox of its own. No model can call any of
this. Beside `rpc` because one table would pass 600 lines.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Name = Annotated[str, Range(1, 64), "the server's name"]


@dataclass(frozen=True)
class Acts:
    """What the core does for these methods; `hub` is its hub, `call` a call in the shape that tools answer in."""

    hub: Any
    call: Callable[[str, str, dict[str, Any], Call], dict[str, Any]]


class Hubs:
    """The method table of servers of tools."""

    def __init__(self, acts: Acts) -> None:
        self._hub = acts.hub
        self._call = acts.call

    @method("mcp.servers", access="all")
    def servers(self, call: Call) -> dict[str, Any]:
        """Every server with what is known of it, and which run; asks and starts none."""
        return {"servers": [asdict(one) for one in self._hub.entries()], "running": self._hub.status()}

    @method("mcp.tools", access="all", is_long=True)
    def tools(
        self, call: Call, server: Annotated[str, "only of this server"] = "", fresh: Annotated[bool, "ask anew"] = False
    ) -> dict[str, Any]:
        """Tools of servers, and a note about those that could not be asked; one that was never asked is started."""
        return asdict(self._hub.listing(server, is_fresh=fresh))

    @method("mcp.search", access="all", is_long=True)
    def search(
        self,
        call: Call,
        query: str,
        keyword_only: bool = False,
        semantic_only: bool = False,
        limit: Annotated[int, Range(1, 100), "how many"] = 10,
    ) -> dict[str, Any]:
        """Tools for a purpose out of the index, best first."""
        return asdict(self._hub.search(query, keyword_only=keyword_only, semantic_only=semantic_only, limit=limit))

    @method("mcp.info", access="all", is_long=True)
    def info(self, call: Call, server: Name, tool: Annotated[str, "empty for the server itself"] = "") -> dict[str, Any]:
        """A tool with its schema, or what a server says of itself, its resources and prompts."""
        return asdict(self._hub.info(server, tool) if tool else self._hub.offer(server))

    @method("mcp.exec", access="own", is_long=True)
    def execute(self, call: Call, server: Name, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """What a tool of a server answers, whole."""
        return self._call(server, tool, arguments or {}, call)

    @method("mcp.ping", access="all", is_long=True)
    def ping(self, call: Call, server: Name) -> dict[str, Any]:
        """How long a server takes to answer; it is started if need be."""
        return dict(self._hub.ping(server))

    @method("mcp.add")
    def add(
        self,
        call: Call,
        name: Name,
        entry: Annotated[dict[str, Any], "command, args, env, or url, headers; and what [tools.mcp.NAME] knows besides"],
        replace: bool = False,
    ) -> dict[str, Any]:
        """Configure a server; keys and tokens among its values go into the vault."""
        made = self._hub.add(name, entry, is_replacing=replace)
        return {"name": made.name, "transport": made.transport, "where": made.where}

    @method("mcp.remove")
    def remove(self, call: Call, name: Name, dry_run: bool = False, keep_auth: bool = False) -> dict[str, Any]:
        """Forget a server with its index and its secrets."""
        return {"name": name, "removed": self._hub.remove(name, is_trial=dry_run, keeps_login=keep_auth), "is_dry_run": dry_run}

    @method("mcp.index", is_long=True)
    def index(self, call: Call) -> dict[str, Any]:
        """Ask every server anew and make what searching by meaning needs."""
        return dict(self._hub.index())

    @method("mcp.resource", access="all", is_long=True)
    def resource(self, call: Call, server: Name, uri: str) -> dict[str, Any]:
        """The text of a resource."""
        return {"server": server, "uri": uri, "text": self._hub.resource(server, uri)}

    @method("mcp.prompt", access="all", is_long=True)
    def prompt(self, call: Call, server: Name, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """A prompt of a server, filled in."""
        return {"server": server, "name": name, "text": self._hub.prompt(server, name, arguments or {})}

    @method("mcp.task", access="all", is_long=True)
    def task(self, call: Call, server: Name, action: Literal["list", "get", "result", "cancel"], task: str = "") -> dict[str, Any]:
        """Long pieces of work that a server does: all of them, one, its result, or its end."""
        return dict(self._hub.task(server, action, task))

    @method("mcp.auth", is_long=True)
    def login(self, call: Call, server: Name) -> dict[str, Any]:
        """Log in to a server; tells `mcp.authorize` with the address that a person has to open."""
        return dict(self._hub.login(server, call.notify))

    @method("mcp.answer")
    def answer(self, call: Call, server: Name, address: str) -> dict[str, Any]:
        """The address to which a login led, where it could not come back to this machine by itself."""
        self._hub.answer(server, address)
        return {"server": server}

    @method("mcp.deauth")
    def logout(self, call: Call, server: Name) -> dict[str, Any]:
        """Forget a login."""
        return {"server": server, "is_changed": self._hub.logout(server)}
