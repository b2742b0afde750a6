"""A real Synapse on loopback, started once for a test file, and people who talk at it.

It is fetched by `make servers`; where it is not there, what needs it is left out.
"""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mail_servers import free_port
from needs import leave_out
from process import ROOT, end, until

from appliance.clock import new_id

SECRET = "for tests alone"
CONFIG = """
server_name: "{name}"
pid_file: {folder}/pid
listeners:
  - port: {port}
    type: http
    bind_addresses: ["127.0.0.1"]
    tls: false
    resources: [{{names: [client, media]}}]
database: {{name: sqlite3, args: {{database: {folder}/homeserver.db}}}}
media_store_path: {folder}/media
log_config: {folder}/log.yaml
registration_shared_secret: "{SECRET}"
signing_key_path: {folder}/signing.key
macaroon_secret_key: "{SECRET}"
form_secret: "{SECRET}"
report_stats: false
trusted_key_servers: []
suppress_key_server_warning: true
rc_message: {{per_second: 1000, burst_count: 1000}}
rc_registration: {{per_second: 1000, burst_count: 1000}}
rc_login: {{address: {{per_second: 1000, burst_count: 1000}}, account: {{per_second: 1000, burst_count: 1000}}}}
rc_invites: {{per_room: {{per_second: 1000, burst_count: 1000}}, per_user: {{per_second: 1000, burst_count: 1000}}}}
rc_joins: {{local: {{per_second: 1000, burst_count: 1000}}}}
"""
LOG = """
version: 1
handlers: {nowhere: {class: logging.NullHandler}}
root: {level: WARNING, handlers: [nowhere]}
"""


def python() -> Path | None:
    """The interpreter of the environment that `make servers` has made; None where it has not."""
    wanted = (ROOT / "tests/servers/synapse.txt").read_bytes()
    found = Path.home() / ".cache/owlbox/servers" / f"synapse-{hashlib.sha256(wanted).hexdigest()[:12]}" / "bin/python"
    return found if found.exists() else None


@dataclass
class Someone:
    """An account at the server."""

    server: "Synapse"
    user: str
    token: str

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call of the Client-Server API."""
        return self.server.call(method, f"/_matrix/client/v3/{path}", body, self.token)

    def room(self, *others: str, name: str = "", **more: Any) -> str:
        """Make a room and invite others."""
        given = {"invite": list(others), "preset": "private_chat", **({"name": name} if name else {}), **more}
        return str(self.call("POST", "createRoom", given)["room_id"])

    def join(self, room: str) -> None:
        """Go into a room."""
        self.call("POST", f"join/{quote(room)}", {})

    def say(self, room: str, text: str, kind: str = "m.room.message", **more: Any) -> str:
        """Say something; the id of the event."""
        body = {"msgtype": "m.text", "body": text, **more} if kind == "m.room.message" else more
        return str(self.call("PUT", f"rooms/{quote(room)}/send/{kind}/{new_id()}", body)["event_id"])

    def heard(self, room: str, sender: str) -> list[dict[str, Any]]:
        """The messages of somebody in a room, oldest first."""
        found = self.call("GET", f"rooms/{quote(room)}/messages?dir=b&limit=500")["chunk"]
        return [one for one in found[::-1] if one["sender"] == sender and one["type"] == "m.room.message"]

    def typing(self, room: str) -> list[str]:
        """Who writes in a room."""
        # Another filter each time: the server keeps what it answered for two minutes.
        only = {"room": {"rooms": [room], "timeline": {"limit": 0, "not_senders": [f"@{new_id()}:x"]}}}
        found = self.call("GET", f"sync?filter={quote(json.dumps(only))}")["rooms"].get("join", {}).get(room, {})
        events = found.get("ephemeral", {}).get("events", [])
        return [user for one in events if one["type"] == "m.typing" for user in one["content"]["user_ids"]]


@dataclass
class Synapse:
    """A server, which may be stopped and started again."""

    folder: Path
    program: Path
    port: int
    name: str = "home.test"
    child: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Until it answers."""
        words = [str(self.program), "-m", "synapse.app.homeserver", "-c", str(self.folder / "homeserver.yaml")]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if not (self.folder / "homeserver.yaml").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "log.yaml").write_text(LOG)
            (self.folder / "homeserver.yaml").write_text(
                CONFIG.format(name=self.name, folder=self.folder, port=self.port, SECRET=SECRET)
            )
            # What --generate-keys does, which takes a second of loading the server.
            key = base64.b64encode(os.urandom(32)).decode().rstrip("=")
            (self.folder / "signing.key").write_text(f"ed25519 a_test {key}\n")
        self.child = subprocess.Popen(words, cwd=self.folder, **quiet)  # type: ignore[call-overload]
        until(self._answers, "synapse answers")

    def _answers(self) -> bool:
        try:
            return bool(self.call("GET", "/_matrix/client/versions"))
        except OSError:
            return False

    def stop(self) -> None:
        """End it."""
        if self.child is not None:
            end(self.child)
            self.child = None

    def call(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """One call with JSON both ways."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def download(self, uri: str, token: str) -> bytes:
        """The bytes of a file, as the server keeps them."""
        path = f"/_matrix/client/v1/media/download/{uri.removeprefix('mxc://')}"
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def someone(self, name: str) -> Someone:
        """A new account."""
        nonce = self.call("GET", "/_synapse/admin/v1/register")["nonce"]
        said = "\0".join((nonce, name, "secret", "notadmin")).encode()
        mac = hmac.new(SECRET.encode(), said, hashlib.sha1).hexdigest()
        given = {"nonce": nonce, "username": name, "password": "secret", "admin": False, "mac": mac}
        made = self.call("POST", "/_synapse/admin/v1/register", given)
        return Someone(self, made["user_id"], made["access_token"])


@contextmanager
def synapse(folder: Path) -> Iterator[Synapse]:
    """A running server; left out where it was not fetched."""
    program = python()
    if program is None:
        leave_out("Synapse is not there: make servers")
        return
    made = Synapse(folder, program, free_port())
    made.start()
    try:
        yield made
    finally:
        made.stop()
