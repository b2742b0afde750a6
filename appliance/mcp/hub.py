"""Servers of tools, for everybody who wants something of them: lists, searches, calls, and who they are.

Owns the order of things: configuration (`servers`), what is known without asking (`mcp.offers`), the way to the servers
(`bridge_client`). Nothing is started before a server is really needed, and a server that cannot be reached costs a warning. What
servers say is handed on as theirs; who may call what is decided before it gets here. Methods are for people: whoever may open
the socket may add a server, which is to run a program in a sandbox of its own; no model can call any of them.
"""

import hashlib
import json
import logging
import re
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from msgspec import Struct

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import SERVER_CODES, BadInput, ConfigError, NotFound, OwlError, ServerError
from appliance.mcp import content, server_config
from appliance.mcp.bridge_client import BridgeClient, Listen
from appliance.mcp.content import ServerReply
from appliance.mcp.offers import Offers, RemoteTool, ServerOffer
from appliance.mcp.server_config import Server
from appliance.records import Cancel
from appliance.runtime.events import Events
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.runtime.signatures import Range
from appliance.web.fetch import Note

LOG = logging.getLogger(__name__)
LIST_S = 90.0  # for a server to start and to say what it has
LOGIN_S = 660.0
AT_A_TIME = 4  # servers that are asked side by side
QUERY_S, READ_S = 5.0, 300.0  # for the vector of a query; for those of many tools
BATCH = 16
SHARED = 0o770  # a folder that another user's bridge works in, whose group it inherits (tmpfiles.conf)
NAMED = re.compile(r"secret:([\w./-]+)")
INDEX = "owlbox mcp index"
KINDS = tuple(SERVER_CODES)

Name = Annotated[str, Range(1, 64), "the server's name"]
Embed = Callable[[Sequence[str], float, bool], tuple[str, Sequence[Sequence[float]]]]


class HubVault(Protocol):
    """Interface to the secrets; the real one asks the broker."""

    def get(self, name: str) -> str: ...
    def put(self, name: str, value: str) -> bool: ...
    def remove(self, name: str) -> object: ...


class ServersChanged(Struct, frozen=True):
    """Servers were added or removed, or one offers something else than before."""


class HubParts(Struct, frozen=True):
    """The parts that the hub is built from."""

    home: Home
    environ: Mapping[str, str]
    offers: Offers
    ferry: BridgeClient
    safe: HubVault
    note: Note
    events: Events


class FoundTools(Struct, frozen=True):
    """Tools that were found, and what was in the way of finding more; `blamed` are the servers whose words that may be."""

    wares: tuple[RemoteTool, ...]
    note: str = ""
    blamed: tuple[str, ...] = ()


class ServerEntry(Struct, frozen=True):
    """A server as people see it."""

    name: str
    transport: str
    where: str
    source: str
    is_enabled: bool
    tools: int
    state: str  # "ready" when it was listed, "new" when not, else why not
    listed_ms: int = 0
    title: str = ""
    protocol: str = ""
    has_login: bool = False
    left_out: tuple[str, ...] = ()  # tools that are none, each with the reason


class Hub:
    """The servers of one core; safe to call from many threads."""

    def __init__(self, given: HubParts, settings: Callable[[], Config], embed: Embed) -> None:
        self._settings = settings
        self._embed = embed
        self._given = given
        self._offers = given.offers
        self._guard = threading.Lock()
        self._stale: set[str] = set()  # servers that said that their lists have changed
        self._read: tuple[object, object, dict[str, Server]] | None = None  # what was read, and from what

    # -- who there is -----------------------------------------------------------------------------

    def servers(self) -> dict[str, Server]:
        """Every server that is configured, by name; ConfigError for files that cannot be used."""
        given = self._given
        settings, stamp = self._settings().tools.mcp, server_config.stamp(given.home)
        if self._read is None or self._read[0] is not settings or self._read[1] != stamp:
            self._read = settings, stamp, server_config.read(given.home, settings, given.environ)
        return dict(self._read[2])

    @property
    def has_servers(self) -> bool:
        """Whether there is one to ask; starts nothing."""
        try:
            return bool(self.names())
        except ConfigError:
            return False

    def names(self) -> list[str]:
        """The servers that are switched on."""
        return [name for name, server in self.servers().items() if server.keys.enabled]

    def entries(self) -> list[ServerEntry]:
        """Every server with what is known of it; asks none of them."""
        counts, rows = self._offers.counts(), []
        for name, server in self.servers().items():
            offer = self._offers.find_offer(name)
            is_new = offer is None or offer.key != server.key
            state = "off" if not server.keys.enabled else offer.error if offer and offer.error else "new" if is_new else "ready"
            about = offer.about if offer is not None else {}
            rows.append(
                ServerEntry(
                    *(name, server.transport, server.where, server.source, server.keys.enabled, counts.get(name, 0), state),
                    listed_ms=offer.listed_ms if offer is not None else 0,
                    title=f"{about.get('title') or ''} {about.get('version') or ''}".strip(),
                    protocol=str(about.get("protocol") or ""),
                    has_login=offer is not None and offer.has_login,
                    left_out=tuple(about.get("left_out") or ()),
                )
            )
        return rows

    @method("mcp.servers", access="all")
    def overview(self) -> dict[str, Any]:
        """Every server with what is known of it, and which run; asks and starts none."""
        return {"servers": self.entries(), "running": self.status()}

    def offer(self, name: str) -> ServerOffer:
        """What a server said of itself, its resources and prompts; asked when it never was."""
        server = self._pick_server(name)
        if self._is_old(server):
            self.refresh(name)
        found = self._offers.find_offer(name)
        assert found is not None
        return found

    # -- what they offer --------------------------------------------------------------------------

    def tools(self, server: str = "") -> list[RemoteTool]:
        """Tools of one server or of all; one that was never asked is asked now."""
        return list(self.listing(server).wares)

    def listing(
        self, server: Annotated[str, "only of this server"] = "", fresh: Annotated[bool, "ask again"] = False
    ) -> FoundTools:
        """Tools of servers, and a note about those that could not be asked; one that was never asked is started."""
        if server:  # alone it raises instead of being noted
            if fresh or self._is_old(self._pick_server(server)):
                self.refresh(server)
            return FoundTools(tuple(self._offers.wares(server)), *self._describe_left_out([server]))
        known = self._require_servers()
        old = [one.name for one in known.values() if fresh or self._is_old(one)]
        notes = self._refresh_all(old)
        wares = [ware for ware in self._offers.wares() if ware.server in known]
        said = [f"{name}: {why}" for name, why in notes.items()]
        left_out, whose = self._describe_left_out([name for name in known if name not in notes])
        return FoundTools(tuple(wares), "; ".join(filter(None, [*said, left_out])), (*notes, *whose))

    def _describe_left_out(self, servers: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """What these servers offer that is no tool of MCP, in their words, and which of them do."""
        offers = [offer for offer in map(self._offers.find_offer, servers) if offer is not None and offer.about.get("left_out")]
        found = [f"{offer.server}/{one}" for offer in offers for one in offer.about["left_out"]]
        return (f"left out, no tools of MCP: {content.names(found)}" if found else ""), tuple(offer.server for offer in offers)

    def list_known(self) -> list[RemoteTool]:
        """Tools that need no asking: of servers that are switched on and are as they were when they were listed."""
        keys = self._offers.keys()
        current = {name for name, one in self.servers().items() if one.keys.enabled and keys.get(name) == one.key}
        return [ware for ware in self._offers.wares() if ware.server in current]

    def info(self, server: str, tool: str) -> RemoteTool:
        """One tool; NotFound names similar ones."""
        wares = {ware.name: ware for ware in self.tools(server)}
        if tool not in wares:
            near = content.names(get_close_matches(tool, wares, 3) or list(wares))
            raise NotFound(f"server {server} has no tool {tool!r}", hint=f"there are {near}" if near else "it has none")
        return wares[tool]

    def search(self, query: str, keyword_only: bool = False, semantic_only: bool = False, limit: int = 10) -> FoundTools:
        """Tools for a purpose out of the index, best first."""
        if keyword_only and semantic_only:
            raise BadInput("keyword_only and semantic_only at once leave nothing", hint="give one of them, or none")
        known = self._require_servers()
        if not query.strip():
            raise BadInput("the query is empty", hint="say what the tool should do")
        if not self._offers.counts():
            return FoundTools((), f"there is no index of tools yet: {INDEX} builds it")
        lists: list[list[RemoteTool]] = [] if semantic_only else [self._offers.by_words(query, 4 * limit)]
        note = ""
        if not keyword_only:
            meant, note = self._by_meaning(query, 4 * limit)
            lists.append(meant)
            note = note if semantic_only or (note and not lists[0]) else ""
        ranks: dict[int, float] = {}
        wares = {ware.id: ware for found in lists for ware in found if ware.server in known}
        for found in lists:
            for place, ware in enumerate(found):
                ranks[ware.id] = ranks.get(ware.id, 0) + 1 / (60 + place)
        best = sorted(wares.values(), key=lambda ware: -ranks[ware.id])[:limit]
        return FoundTools(tuple(best), note)

    def _by_meaning(self, query: str, limit: int) -> tuple[list[RemoteTool], str]:
        model = self._offers.embedder()
        if not model:
            return [], f"tools have no vectors yet: {INDEX} makes them, with an embedding model"
        try:
            made, vectors = self._embed([query], QUERY_S, False)
        except OwlError as error:
            return [], f"found by words alone: {error.message}"
        if made != model:
            return [], f"the vectors are another model's: {INDEX} makes them again"
        return self._offers.by_meaning(model, vectors[0], limit), ""

    @method("mcp.index", is_long=True)
    def index(self) -> dict[str, Any]:
        """Query every server again and build the index for search by meaning."""
        found = self.listing(fresh=True)
        made, note = 0, ""
        try:
            if found.wares:
                model, _ = self._embed(["tools"], READ_S, False)
                unread = self._offers.unread(model)
                for start in range(0, len(unread), BATCH):
                    batch = unread[start : start + BATCH]
                    texts = [f"{ware.name.replace('_', ' ')}: {ware.title} {ware.description[:1000]}" for ware in batch]
                    _, vectors = self._embed(texts, READ_S, False)
                    self._offers.learn(model, {ware.id: vector for ware, vector in zip(batch, vectors)})
                    made += len(batch)
        except OwlError as error:
            note = f"searching goes by words alone: {error.message}"
        notes = "; ".join(filter(None, (found.note, note)))
        return {"servers": len(self.names()), "tools": len(found.wares), "vectors": made, "note": notes}

    # -- asking them ------------------------------------------------------------------------------

    def call(
        self,
        server: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        cancel: Cancel | None = None,
        timeout_s: float = 0,
        run: str = "",
        session: str = "",
    ) -> ServerReply:
        """What a tool of a server answers, whole; ServerError when the server could not be asked or refuses."""
        found = self._pick_server(server)
        known = [ware.name for ware in self._offers.wares(server)]
        if known and not self._is_old(found) and tool not in known:
            near = content.names(get_close_matches(tool, known, 3) or known)
            raise ServerError(f"server {server} has no tool {tool!r}", hint=f"there are {near}", outcome="input_error")
        limit_s, began_s, outcome = timeout_s or found.keys.timeout_s, monotonic_s(), "ok"
        asked = {"tool": tool, "arguments": dict(args), "timeout_s": limit_s}
        try:
            reply = content.reply(self._ask_bridge(found, "call", asked, limit_s, cancel), server, tool)
            outcome = reply.kind or "ok"
            return reply
        except OwlError as error:
            outcome = error.outcome
            raise
        finally:
            detail = {"server": server, "tool": tool, "ms": round(1000 * (monotonic_s() - began_s)), "outcome": outcome}
            self._given.note("server_call", severity="info", session=session, run=run, actor=f"mcp:{server}", detail=detail)

    @method("mcp.ping", access="all", is_long=True)
    def ping(self, server: Annotated[str, Range(0, 64), "only this one, whose error is raised"] = "") -> list[dict[str, Any]]:
        """Whether servers answer, and how fast; starts those that do not run."""

        def one(name: str) -> dict[str, Any]:
            try:
                return {"server": name, **self._ask_bridge(self._pick_server(name), "ping", {}, LIST_S)}
            except OwlError as error:
                if server:
                    raise
                return {"server": name, "error": error.message, "outcome": error.outcome, "hint": error.hint}

        return [one(name) for name in ([server] if server else self.names())]

    def _list_offers(self, server: str, *kinds: str) -> dict[str, Any]:
        """What a server offers of some kinds, by the names that it is asked for."""
        about = self.offer(server).about
        found = [one for kind in kinds for one in about.get(kind) or ()]
        names = [one.get("uri") or one.get("uriTemplate") or one.get("name") or "?" for one in found]
        texts = [one.get("description") or one.get("title") or "" for one in found]
        return {"server": server, "text": "", "offers": [{"name": name, "about": text} for name, text in zip(names, texts)]}

    @method("mcp.read", access="all", is_long=True)
    def read(
        self,
        server: Name,
        kind: Literal["resource", "prompt"],
        name: Annotated[str, "its name there, or a resource's address; without one those there are are listed"] = "",
        arguments: Annotated[dict[str, str] | None, "of a prompt"] = None,
    ) -> dict[str, Any]:
        """The text of a resource, or of a prompt, filled in."""
        is_prompt = kind == "prompt"
        if not name:
            return self._list_offers(server, *(("prompts",) if is_prompt else ("resources", "templates")))
        found = self._pick_server(server)
        asked = {"name": name, "arguments": arguments or {}} if is_prompt else {"uri": name}
        told = self._ask_bridge(found, kind, asked, found.keys.timeout_s)
        return {"server": server, "name": name, "text": content.prompt(told) if is_prompt else content.resource(told)}

    @method("mcp.task", access="all", is_long=True)
    def task(self, server: Name, action: Literal["list", "get", "result", "cancel"], task: str = "") -> dict[str, Any]:
        """Long pieces of work that a server does: all of them, one, its result, or its end."""
        if action != "list" and not task:
            raise BadInput(f"{action} needs the id of a task", hint=f"owlbox mcp task list {server}")
        found = self._pick_server(server)
        return self._ask_bridge(found, "task", {"action": action, "task": task}, found.keys.timeout_s)

    def refresh(self, server: str) -> bool:
        """Query a server's tools again; True when they have changed."""
        found = self._pick_server(server)
        try:
            is_changed = self._offers.store_offer(server, found.key, self._ask_bridge(found, "list", {}, LIST_S))
        except OwlError as error:
            self._offers.failed(server, error.message)
            LOG.warning("server %s gives no tools: %s", server, error)
            raise
        with self._guard:
            self._stale.discard(server)
        if is_changed:
            self._given.events.publish(ServersChanged())
        return is_changed

    def status(self) -> dict[str, Any]:
        """Which servers run, "not running" when even the bridge does not; starts nothing."""
        if not self._given.ferry.is_up:
            return {"state": "not running", "servers": {}}
        return {"state": "running", **self._given.ferry.call("status", {}, deadline_s=10)}

    def close(self) -> None:
        """End the bridge and every server; safe at any time, also twice."""
        self._given.ferry.stop()

    # -- managing them ----------------------------------------------------------------------------

    @method("mcp.add")
    def add(
        self,
        name: Name,
        entry: Annotated[dict[str, Any], "command, args, env, or url, headers; and what [tools.mcp.NAME] knows besides"],
        replace: bool = False,
    ) -> dict[str, Any]:
        """Configure a server; keys and tokens among its values go into the vault."""
        entries = server_config.load(self._given.home)
        if (name in entries and not replace) or name in self._settings().tools.mcp:
            raise BadInput(f"there is a server {name} already", hint=f"owlbox mcp remove {name} first, or choose another name")
        server = server_config.check(name, entry, self._given.environ)
        if server.transport == "stdio":
            server_config.binds(server, self._given.home.root)  # says what is missing
        held: dict[tuple[str, str], str] = {}
        for table, key, secret, value in server_config.plain_secrets(name, entry):
            self._given.safe.put(secret, value)
            held[(table, key)] = secret
        server_config.save(self._given.home, {**entries, name: server_config.without(entry, held)})
        self._given.events.publish(ServersChanged())
        return {"name": server.name, "transport": server.transport, "where": server.where}

    @method("mcp.remove")
    def remove(self, name: Name, dry_run: bool = False, keep_auth: bool = False) -> dict[str, Any]:
        """Forget a server with its index and its secrets."""
        entries = server_config.load(self._given.home)
        if name not in entries:
            if name in self._settings().tools.mcp:
                raise BadInput(f"server {name} stands in {self._given.home.config.name}", hint=f"remove [tools.mcp.{name}] there")
            server_config.pick_server(self.servers(), name)
        offer = self._offers.find_offer(name)
        lines = [f"{name} in {server_config.FILE}"]
        lines += [f"{count} tools in the index"] if (count := self._offers.counts().get(name, 0)) else []
        gone = [] if keep_auth else self._secrets_of(name, entries[name], has_login=offer is not None and offer.has_login)
        lines += [f"secret {secret}" for secret in gone]
        if dry_run:
            return {"name": name, "removed": lines, "is_dry_run": True}
        server_config.save(self._given.home, {key: value for key, value in entries.items() if key != name})
        self._offers.forget(name)
        for secret in gone:
            self._remove_secret(secret)
        if self._given.ferry.is_up:
            self._given.ferry.call("close", {"name": name}, deadline_s=30)
        self._given.events.publish(ServersChanged())
        return {"name": name, "removed": lines, "is_dry_run": False}

    @method("mcp.auth", is_long=True)
    def log_in_caller(
        self,
        server: Name,
        address: Annotated[str, "for a login that waits: where it led, if it could not come back to this machine by itself"] = "",
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Log in to a server; tells `mcp.authorize` with the address that a person has to open."""
        return self.answer(server, address) if address else self.login(server, call.notify)

    def login(self, name: str, listen: Listen) -> dict[str, Any]:
        """Log in to a server with a person's help, who is told an address; keeps what that brings in the vault."""
        server = self._pick_server(name)
        if server.transport != "http":
            raise BadInput(f"server {name} is a program and wants no login", hint="its keys are variables: owlbox mcp add --env")
        told = self._given.ferry.call("auth", {"server": self._build_spec(server, {})}, deadline_s=LOGIN_S, listen=listen)
        if "tokens" not in told:
            return {**told["value"], "is_needed": False}
        self._keep_login(server, told["tokens"])
        self._given.ferry.call("close", {"name": name}, deadline_s=30)
        return {**told["value"], "is_needed": True}

    def answer(self, server: str, address: str) -> dict[str, Any]:
        """Hand over the address to which a login led, where it could not come back to this machine by itself."""
        self._given.ferry.call("answer", {"name": server, "address": address}, deadline_s=30)
        return {"server": server}

    @method("mcp.deauth")
    def logout(self, server: Name) -> dict[str, Any]:
        """Forget a login."""
        found, offer = self._pick_server(server), self._offers.find_offer(server)
        has_login = offer is not None and offer.has_login
        if has_login:
            self._remove_secret(found.tokens)
            self._offers.logged_in(server, False)
            if self._given.ferry.is_up:
                self._given.ferry.call("close", {"name": server}, deadline_s=30)
        return {"server": server, "is_changed": has_login}

    # -- within -----------------------------------------------------------------------------------

    def _require_servers(self) -> dict[str, Server]:
        """The servers that are switched on; ServerError with the next step when there is none."""
        found = {name: server for name, server in self.servers().items() if server.keys.enabled}
        if not found:
            raise ServerError("there are no servers of tools", hint=server_config.NONE)
        return found

    def _pick_server(self, name: str) -> Server:
        known = self.servers()
        if not known:
            self._require_servers()
        server = server_config.pick_server(known, name)
        if not server.keys.enabled:
            raise ServerError(f"server {name} is switched off", hint=f"set enabled of {name} in {server.source}")
        return server

    def _is_old(self, server: Server) -> bool:
        offer = self._offers.find_offer(server.name)
        return offer is None or offer.key != server.key or server.name in self._stale

    def _refresh_all(self, names: Sequence[str]) -> dict[str, str]:
        """Ask several at once; which of them could not be, and why."""

        def one(name: str) -> str:
            try:
                self.refresh(name)
            except OwlError as error:
                return error.message
            return ""

        if not names:
            return {}
        with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="server") as pool:
            return {name: why for name, why in zip(names, pool.map(one, names)) if why}

    def _ask_bridge(
        self, server: Server, method: str, params: Mapping[str, Any], limit_s: float, cancel: Cancel | None = None
    ) -> dict[str, Any]:
        offer = self._offers.find_offer(server.name)
        tokens = self._stored_tokens(server) if offer is not None and offer.has_login else {}
        stop = cancel if isinstance(cancel, CancelToken) else None
        asked = {**params, "server": self._build_spec(server, tokens)}
        told = self._given.ferry.call(method, asked, deadline_s=limit_s + LIST_S, cancel=stop)
        if told.get("is_stale"):
            with self._guard:
                self._stale.add(server.name)
        if "tokens" in told:
            self._keep_login(server, told["tokens"])
        value: dict[str, Any] = told["value"]
        return value

    def _build_spec(self, server: Server, tokens: Mapping[str, Any]) -> dict[str, Any]:
        """The server's definition with its secrets, as the bridge receives it."""
        keys = server.keys
        made: dict[str, Any] = {"name": server.name, "transport": server.transport, "timeout_s": keys.timeout_s}
        if server.transport == "http":
            headers = {name: NAMED.sub(lambda m: self._given.safe.get(m[1]), value) for name, value in keys.headers.items()}
            client = (
                {"client_id": keys.client_id, "client_secret": self._resolve_value(keys.client_secret)} if keys.client_id else {}
            )
            client |= {"issuer": keys.issuer} if keys.issuer else {}
            web = self._settings().tools.web
            reach = {"blocked": web.block_hosts, "allowed": web.allow_hosts, "networks": web.private_networks}
            made |= {"url": keys.url, "headers": headers, "client": client, "reach": reach}
        else:
            words, binds = server_config.binds(server, self._given.home.root)
            environ = {name: self._resolve_value(value) for name, value in keys.env.items()}
            made |= {
                "argv": [*words, *keys.args],
                "folder": str(self._working_folder(server)),
                "environ": environ,
                "binds": [[str(bind.source), bind.inside, bind.is_writable] for bind in binds],
                "has_network": keys.network,
                "memory_bytes": keys.memory_mb << 20,
            }
        key = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
        return {**made, "key": key, "tokens": dict(tokens)}

    def _resolve_value(self, text: str) -> str:
        return self._given.safe.get(text.removeprefix(server_config.PREFIX)) if text.startswith(server_config.PREFIX) else text

    def _working_folder(self, server: Server) -> Path:
        """Where a server works: a folder of its own that stays, or the one that is named for it."""
        if server.keys.cwd:
            return Path(server.keys.cwd).expanduser().resolve()
        folder = self._given.home.root.resolve() / server_config.OWN / server.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._given.ferry.is_given and stat.S_IMODE(folder.stat().st_mode) != SHARED:
            folder.chmod(SHARED)
        return folder

    def _stored_tokens(self, server: Server) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._given.safe.get(server.tokens))
        except (NotFound, ValueError):
            self._offers.logged_in(server.name, False)
            return {}
        return found

    def _keep_login(self, server: Server, tokens: Mapping[str, Any]) -> None:
        self._given.safe.put(server.tokens, json.dumps(tokens))
        self._offers.logged_in(server.name, True)

    def _secrets_of(self, name: str, entry: Mapping[str, Any], *, has_login: bool) -> list[str]:
        """Secrets that belong to a server alone: those named after it."""
        server = server_config.check(name, entry, self._given.environ)
        own = [secret for secret in server_config.named(server) if secret.startswith(f"mcp/{name}-")]
        return [*own, *([server.tokens] if has_login else [])]

    def _remove_secret(self, secret: str) -> None:
        try:
            self._given.safe.remove(secret)
        except NotFound:
            LOG.info("secret %s was gone already", secret)
