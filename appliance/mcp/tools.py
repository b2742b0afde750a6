"""Tools of servers as tools of ours: each by its own name, with its server's schema, called through the hub.

Owns which of them are offered so: all while there are few, none when there are many, else as their server's table says.
What they are called is made fit for models; what they are said to be for is their server's text, and marked as that.
Menus stand in prompts before anything is marked, so they show of a server's words only names too short for an order: of
tools, and of arguments. A tool with a longer name is reached through `mcp_exec` alone.
Not promised: that a name says what its tool does.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from appliance.agent.toolbox import Caller, Needs, Tool, Toolbox, ToolMark
from appliance.errors import BadInput, ConfigError, OwlError, Refused
from appliance.mcp import content
from appliance.mcp.content import ServerReply
from appliance.mcp.hub import Hub, ServersChanged
from appliance.mcp.offers import RemoteTool
from appliance.mcp.server_config import Server
from appliance.policy.taint import ToolReach
from appliance.records import Outcome, ToolSpec
from appliance.runtime.events import Events
from appliance.runtime.settings import ConfigReloaded
from appliance.runtime.signatures import MISSING, Field, Signature
from appliance.text.fences import is_plain

LOG = logging.getLogger(__name__)
GROUP = "mcp"  # of the tools that reach every server
MAX_NAME = 64
UNFIT = re.compile(r"[^A-Za-z0-9_]+")
TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
START_S = 90.0  # for a server that has to be started first


class Foreign(Signature, frozen=True):
    """Arguments as a server describes them; it checks them itself, we only see that those it requires are there."""

    given: Mapping[str, Any] = {}

    def bind(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Put all values into one argument object; BadInput names the missing ones."""
        required = self.given.get("required")
        missing = [name for name in required if name not in values] if isinstance(required, list) else []
        if missing:
            raise BadInput("; ".join(f"{name}: is required" for name in missing), hint="give it and call again")
        return {"arguments": dict(values)}

    def schema(self) -> dict[str, Any]:
        """The server's own."""
        return dict(self.given)


class DirectTools:
    """Keeps the toolbox in step with what servers offer."""

    def __init__(self, hub: Hub, toolbox: Toolbox, threshold: Callable[[], int], events: Events) -> None:
        """Up to `threshold` tools are offered each by its own name."""
        self._hub = hub
        self._toolbox = toolbox
        self._threshold = threshold
        self.offer()
        events.subscribe(ServersChanged, lambda changed: self.offer())
        events.subscribe(ConfigReloaded, lambda reloaded: self.offer())

    def offer(self) -> None:
        """Offer what is known now; asks no server."""
        try:
            known = self._hub.servers()
            wares = self._hub.list_known() if known else []
        except ConfigError as error:
            LOG.error("no servers of tools: %s", error)
            known, wares = {}, []
        is_few = len([ware for ware in wares if known[ware.server].keys.expose == "auto"]) <= self._threshold()
        wanted = [ware for ware in wares if known[ware.server].keys.expose == "direct" or (is_few and _is_auto(known[ware.server]))]
        wanted = [ware for ware in wanted if is_plain(ware.name)]
        is_there = any(server.keys.enabled for server in known.values())
        ours = {tool.mark.group for tool in self._toolbox.tools() if not tool.origin}
        # A server that is called like a group of ours must not get what roles and policies grant to that group.
        groups = {name: f"{name}_server" if name in ours else name for name in known}
        made = {tool.mark.name: tool for tool in (_build_tool(self._hub, w, known[w.server], groups[w.server]) for w in wanted)}
        for name in self._toolbox.lend(tuple(made.values()), () if is_there else (GROUP,)):
            LOG.warning("a tool of a server is called like one of ours and is left out: %s", name)


def outcome(reply: ServerReply) -> Outcome:
    """A server's response as the result of a call."""
    origin, source = f"mcp:{reply.server}", f"{reply.server}/{reply.tool}"
    if not reply.is_error:
        return Outcome(200, "ok", reply.text, data=reply.data, origin=origin, source=source)
    error = OwlError(reply.text)
    return Outcome(_status_of(reply.kind), reply.kind, error.message, reply.hint, origin=origin, source=source)


def failed(error: OwlError, server: str, tool: str = "") -> Outcome:
    """The reason why a server could not be called; may contain the server's own text."""
    return Outcome(error.status, error.outcome, error.message, error.hint, origin=f"mcp:{server}", source=f"{server}/{tool}")


def call(hub: Hub, server: str, tool: str, arguments: Mapping[str, Any], caller: Caller) -> Outcome:
    """Call a tool of a server on behalf of a run."""
    if not caller.terms.has_web:
        raise Refused("this run stays away from the web, and from servers of tools", hint="do without it")
    known = hub.servers()
    if server not in known:
        hub.info(server, tool)  # says what is wrong with that
    limit_s = min(known[server].keys.timeout_s, caller.deadline_s)
    about = {"run": caller.run, "session": caller.session}
    try:
        return outcome(hub.call(server, tool, arguments, cancel=caller.cancel, timeout_s=limit_s, **about))
    except OwlError as error:
        return failed(error, server, tool)


def _is_auto(server: Server) -> bool:
    return server.keys.expose == "auto"


def _status_of(kind: str) -> int:
    return {"retryable": 503, "auth_error": 401, "input_error": 400}.get(kind, 500)


def _build_tool(hub: Hub, ware: RemoteTool, server: Server, group: str) -> Tool:
    name = UNFIT.sub("_", f"{ware.server}_{ware.name}")[:MAX_NAME].strip("_")

    def function(arguments: dict[str, Any], *, caller: Caller) -> Outcome:
        return call(hub, ware.server, ware.name, arguments, caller)

    reach = ToolReach("call", named=f"mcp:{ware.server}")
    needs = Needs(deadline_s=server.keys.timeout_s + START_S, network="proxy", is_waiting=True, reach=reach)
    mark = ToolMark(name, group, "", False, False, menu=(), needs=needs)
    schema = _narrow_schema(ware.schema)
    said = " ".join(content.printable(ware.description).split())[:1000] or ware.title or ware.name
    function.__doc__ = said
    given = Foreign(_argument_fields(schema), ("caller",), Outcome, given=schema)
    shown = ToolSpec(name, f"A tool of the server {server.name}, see tool_help {name}", _bare_arguments(schema), group=group)
    return Tool(mark, function, given, said, origin=f"mcp:{ware.server}", shown=shown)


def _bare_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name and type, without a word about them; none of them where one has a name that might be an order."""
    known, required = schema.get("properties"), schema.get("required")
    if not isinstance(known, dict) or not all(is_plain(name) for name in known):
        return {"type": "object"}
    types = {name: part.get("type") if isinstance(part, dict) else None for name, part in known.items()}
    made = {name: {"type": kind} if isinstance(kind, str) and kind in TYPES else {} for name, kind in types.items()}
    needed = [name for name in required if name in made] if isinstance(required, list) else []
    return {"type": "object", "properties": made, "required": needed}


def _argument_fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The arguments by name, for a manual; the schema says the rest."""
    known, required = schema.get("properties"), schema.get("required")
    required = required if isinstance(required, list) else ()
    if not isinstance(known, dict):
        return ()
    about = {name: part if isinstance(part, dict) else {} for name, part in known.items()}
    helps = {name: str(part.get("description", ""))[:200] for name, part in about.items()}
    return tuple(Field(name, Any, MISSING if name in required else None, helps[name]) for name in about)


def _narrow_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as models read it: without what only a program wants to know."""
    kept = {name: value for name, value in schema.items() if not name.startswith("$sch")}
    made: dict[str, Any] = json.loads(content.printable(json.dumps(kept)))
    return {"type": "object", **made}
