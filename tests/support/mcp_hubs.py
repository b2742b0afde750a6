"""A hub of one's own for tests: database, bridge and servers that are real processes, without a core around them.

`stub` is a server in plain Python in its sandbox, `website` one behind an address with a login of its own (OAuth), both
written for tests. `real` names the servers that `tests/servers/fetch.sh` fetches.
"""

import base64
import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

from stores import new_store

from appliance.errors import NotFound, Unavailable
from appliance.mcp.bridge_client import BridgeClient
from appliance.mcp.hub import Embed, Hub, HubParts
from appliance.mcp.offers import Offers
from appliance.runtime.events import Events
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config

SERVERS = Path(__file__).parents[1] / "servers"
STUB = SERVERS / "stub.py"


def no_model(texts: Any, deadline_s: float, is_background: bool) -> Any:
    raise Unavailable("no embedding model")


@dataclass
class Stand:
    """A hub with what it wrote down and what its vault holds."""

    hub: Hub
    ferry: BridgeClient
    home: Home
    offers: Offers
    notes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    vault: dict[str, str] = field(default_factory=dict)

    def add_stub(self, name: str, **more: Any) -> None:
        self.hub.add(name, stub(**more))

    def text(self, server: str, tool: str, text: str = "", **more: Any) -> str:
        return self.hub.call(server, tool, {"text": text}, **more).text

    def pid(self, server: str) -> int:
        return int(self.hub.status()["servers"][server]["pid"])

    def kill(self, server: str) -> int:
        """Kill a server and wait for its end; the process id that it had."""
        pid = self.pid(server)
        handle = os.pidfd_open(pid)
        try:
            # The number may be another's by now; what the handle holds is not.
            assert f"tool-{server}-".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            assert select.select([handle], [], [], 60)[0]
        finally:
            os.close(handle)
        return pid


def stub(**more: Any) -> dict[str, Any]:
    """The entry of a stub."""
    mounts = [f"{STUB}:/servers/stub.py", *more.pop("mounts", [])]
    return {"command": "/usr/bin/python3", "args": ["/servers/stub.py", *more.pop("args", [])], "mounts": mounts, **more}


@contextmanager
def standing(folder: Path, embed: Embed = no_model, settings: Callable[[], Config] = Config, **environ: str) -> Iterator[Stand]:
    """A hub; its bridge and servers end with the block."""
    home = Home(folder / "h")
    home.root.mkdir(parents=True, exist_ok=True)
    store = new_store(home.database)
    runtime = Path(f"/tmp/owl-{os.getpid()}-{hashlib.sha1(str(folder).encode()).hexdigest()[:8]}")
    runtime.mkdir(mode=0o700, exist_ok=True)
    vault: dict[str, str] = {}
    notes: list[tuple[str, dict[str, Any]]] = []

    def get(name: str) -> str:
        if name not in vault:
            raise NotFound(f"no secret {name}")
        return vault[name]

    def put(name: str, value: str) -> bool:
        vault[name] = value
        return True

    known = {**os.environ, **environ}
    ferry = BridgeClient(runtime / "b.sock", known, home.logs / "bridge", lambda: settings().tools.mcp_idle_s)
    offers = Offers(store)
    safe: Any = SimpleNamespace(get=get, put=put, remove=lambda name: void(vault.pop(name)))
    note = lambda kind, **about: notes.append((kind, about))  # noqa: E731
    hub = Hub(HubParts(home, known, offers, ferry, safe, note, Events()), settings, embed)
    try:
        yield Stand(hub, ferry, home, offers, notes, vault)
    finally:
        hub.close()
        store.close()
        (runtime / "b.sock").unlink(missing_ok=True)
        runtime.rmdir()


def void(value: object) -> None:
    """Take a value and give none."""


def real() -> Path:
    """The folder of the real servers and of the command llm; fetched the first time."""
    done = subprocess.run(["bash", str(SERVERS / "fetch.sh")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return Path(done.stdout.strip().splitlines()[-1])


# -- a server behind an address -----------------------------------------------------------------------


@dataclass
class Website:
    """What a server behind an address is asked to do: `status` answers everything with an error, `wants_login` needs a token."""

    wants_login: bool = False
    status: int = 0
    header: tuple[str, str] = ("", "")  # one that each request must have
    lifetime_s: int = 3600
    tokens: set[str] = field(default_factory=set)
    codes: dict[str, str] = field(default_factory=dict)
    refreshes: int = 0
    grants: list[str] = field(default_factory=list)  # names and secrets with which a program logged in by itself
    registrations: int = 0
    leads: Mapping[str, str] = field(default_factory=dict)  # where it sends a login instead of to itself, by step
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    url: str = ""
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def root(self) -> str:
        return self.url.removesuffix("/mcp")


@contextmanager
def website(**more: Any) -> Iterator[Website]:
    """A server of tools by HTTP on loopback, with an OAuth server beside it."""
    site = Website(**more)

    class Page(_Page):
        state = site

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def log_in(address: str) -> None:
    """What a person's browser does: opens the address and follows where it leads."""
    with urlopen(address, timeout=180) as page:
        page.read()


class _Page(BaseHTTPRequestHandler):
    state: Website
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        root, leads = self.state.root, self.state.leads
        if place.path.startswith("/.well-known/oauth-protected-resource"):
            if "redirect" in leads:
                self.say({}, 307, Location=f"{leads['redirect']}/inside")
                return
            self.say({"resource": self.state.url, "authorization_servers": [leads.get("issuer", root)]})
        elif place.path.startswith("/.well-known/"):
            self.say(
                {
                    "issuer": root,
                    "authorization_endpoint": f"{root}/authorize",
                    "token_endpoint": f"{leads.get('token', root)}/token",
                    "registration_endpoint": f"{leads.get('register', root)}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                }
            )
        elif place.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(place.query).items()}
            code = f"code-{len(self.state.codes)}"
            self.state.codes[code] = asked["code_challenge"]
            answer = urlencode({"code": code, "state": asked["state"]})
            self.say({}, 302, Location=f"{asked['redirect_uri']}?{answer}")
        else:
            self.say({}, 405)

    def do_DELETE(self) -> None:
        self.say({}, 200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/register":
            self.state.registrations += 1
            self.say({**json.loads(body), "client_id": f"client-{self.state.registrations}"}, 201)
        elif self.path == "/token":
            self.token({name: values[0] for name, values in parse_qs(body.decode()).items()})
        elif self.state.status:
            self.say({}, self.state.status)
        elif self.state.wants_login and self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.state.tokens:
            root = self.state.leads.get("metadata", self.state.root)
            about = f'Bearer resource_metadata="{root}/.well-known/oauth-protected-resource"'
            self.say({}, 401, **{"WWW-Authenticate": about})
        elif self.state.header[0] and self.headers.get(self.state.header[0]) != self.state.header[1]:
            self.say({}, 403)
        else:
            self.answer(json.loads(body))

    def token(self, asked: Mapping[str, str]) -> None:
        state = self.state
        with state.guard:
            if asked["grant_type"] == "authorization_code":
                challenge = state.codes.pop(asked["code"], "")
                made = base64.urlsafe_b64encode(hashlib.sha256(asked["code_verifier"].encode()).digest()).decode().rstrip("=")
                if made != challenge:
                    self.say({"error": "invalid_grant"}, 400)
                    return
            elif asked["grant_type"] == "client_credentials":
                state.grants.append(base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode())
            elif asked.get("refresh_token") != "again":
                self.say({"error": "invalid_grant"}, 400)
                return
            else:
                state.refreshes += 1
            token = f"token-{len(state.tokens)}-{state.refreshes}"
            state.tokens.add(token)
        self.say({"access_token": token, "token_type": "Bearer", "expires_in": state.lifetime_s, "refresh_token": "again"})

    def answer(self, message: Mapping[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            self.say({}, 202)
            return
        self.state.calls.append(message)
        result: Any = None
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "website", "version": "2"},
            }
        elif method == "tools/list":
            result = {"tools": [{"name": "shout", "description": "Say it louder", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": str(params["arguments"].get("text", "")).upper()}]}
        elif method == "ping":
            result = {}
        if result is None:
            self.say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": f"no method {method}"}})
        else:
            self.say({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def say(self, plain: Any, status: int = 200, **headers: str) -> None:
        data = json.dumps(plain).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        with contextlib.suppress(OSError):  # whoever asked may be gone
            self.end_headers()
            self.wfile.write(data)
