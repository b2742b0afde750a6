"""A real Radicale (CalDAV, CardDAV) on this machine, with one user, a calendar of events and an address book; asked over HTTP."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from mail_servers import free_port
from mcp_hubs import real
from process import until

USER, PASSWORD = "ada", "tawny-4711"
CALENDAR, CONTACTS = "home", "people"
RESOURCE = (
    '<?xml version="1.0"?><d:mkcol xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav" xmlns:a="urn:ietf:params:xml:ns:carddav">'
    "<d:set><d:prop><d:resourcetype><d:collection/>{kind}</d:resourcetype><d:displayname>{name}</d:displayname></d:prop></d:set>"
    "</d:mkcol>"
)


@dataclass
class CalendarServer:
    """The server and where it is."""

    url: str
    folder: Path

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> requests.Response:
        """One request as its user."""
        return requests.request(
            method, f"{self.url}/{USER}/{path}", data=body.encode(), headers=headers, auth=(USER, PASSWORD), timeout=30
        )

    def put(self, path: str, text: str) -> None:
        """Store an object, new or not."""
        assert self.ask("PUT", path, text).status_code in (201, 204)

    def objects(self, collection: str = CALENDAR) -> dict[str, str]:
        """Every object of a collection by the name of its file."""
        found = self.folder / "collections" / "collection-root" / USER / collection
        return {one.name: one.read_text() for one in found.iterdir() if one.is_file() and not one.name.startswith(".")}


@contextmanager
def serving(folder: Path) -> Iterator[CalendarServer]:
    """A server for as long as the block lasts."""
    folder.mkdir(parents=True)
    (folder / "users").write_text(f"{USER}:{PASSWORD}\n")
    port = free_port()
    (folder / "config").write_text(
        f"[server]\nhosts = 127.0.0.1:{port}\n[auth]\ntype = htpasswd\nhtpasswd_filename = {folder}/users\n"
        f"htpasswd_encryption = plain\ndelay = 0\n[storage]\nfilesystem_folder = {folder}/collections\n"
    )
    program = real() / "venv" / "bin" / "python"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-m", "radicale", "--config", folder / "config"], stdout=log, stderr=log)
    server = CalendarServer(f"http://127.0.0.1:{port}", folder)
    try:
        until(lambda: process.poll() is not None or _answers(server), lambda: (folder / "log").read_text()[-2000:])
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        for name, kind in ((CALENDAR, "<c:calendar/>"), (CONTACTS, "<a:addressbook/>")):
            body = RESOURCE.format(kind=kind, name=name.title())
            assert server.ask("MKCOL", f"{name}/", body).status_code == 201
        yield server
    finally:
        process.terminate()
        process.wait(10)


def _answers(server: CalendarServer) -> bool:
    try:
        return server.ask("PROPFIND", "", Depth="0").status_code in (207, 404)
    except requests.ConnectionError:
        return False
