"""What servers of tools offer, as they were last asked: tools with their schemas, and the index to find them by.

Owns the tables `server_offers`, `server_tools` and `server_words`, so that listing, searching and looking at a tool need
no living server. Every text here was written by strangers. Knows nothing about connections; `key` is what the server was
made of when it was asked, and offers under another key are old.
"""

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from appliance.clock import now_ms
from appliance.store.database import Row, Store

MAX_TOOLS = 1000  # of one server
MAX_LEFT_OUT = 50  # tools named that are none
MAX_TEXT = 8000  # characters of a description
MAX_SCHEMA = 64_000
COLUMNS = "t.id, t.server, t.name, t.title, t.description, t.schema, t.hints"
ABOUT = ("protocol", "title", "version", "instructions", "resources", "templates", "prompts", "left_out")
WORD = re.compile(r"[^\W_]+")


class RemoteTool(Struct, frozen=True):
    """One tool of a server, with the server's own description."""

    server: str
    name: str
    title: str = ""
    description: str = ""
    schema: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    id: int = 0

    @property
    def is_read_only(self) -> bool:
        """The server's own claim that the tool only reads; not verified."""
        return bool(self.hints.get("readOnlyHint"))

    @property
    def arguments(self) -> frozenset[str]:
        known = self.schema.get("properties")
        return frozenset(known) if isinstance(known, dict) else frozenset()

    @property
    def line(self) -> str:
        """The tool's name and the first line of its description."""
        first = next(iter(self.description.strip().splitlines()), "")
        return f"{self.server}/{self.name}: {first[:200]}" if first else f"{self.server}/{self.name}"

    def text(self) -> str:
        """Everything about it, for a reader."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"{self.server}/{self.name}{f' ({self.title})' if self.title else ''}\n{self.description}\nArguments: {schema}"


class ServerOffer(Struct, frozen=True):
    """The last stored response of one server."""

    server: str
    key: str
    listed_ms: int
    about: dict[str, Any]
    error: str = ""
    has_login: bool = False


class Offers:
    """Reads and writes what servers offer."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def store_offer(self, server: str, key: str, listed: Mapping[str, Any]) -> bool:
        """Take what a server has just said; False when nothing changed and so nothing was written."""
        wares = [_build_ware(server, one) for one in listed.get("tools", ())[:MAX_TOOLS] if isinstance(one.get("name"), str)]
        wares = list({ware.name: ware for ware in wares}.values())
        about = {name: listed.get(name) for name in ABOUT}
        about["left_out"] = list(listed.get("left_out", ()))[:MAX_LEFT_OUT]
        known = self.find_offer(server)
        is_same = known is not None and (known.key, known.about, known.error) == (key, about, "")
        if is_same and [_compared_fields(ware) for ware in self.wares(server)] == [_compared_fields(ware) for ware in wares]:
            return False
        with self._store.write() as execute:
            kept = {row[0]: row[1:] for row in execute(
                "SELECT name || char(10) || title || char(10) || description, embedder, vector FROM server_tools WHERE server = ?",
                (server,),
            )}  # fmt: skip
            execute("DELETE FROM server_tools WHERE server = ?", (server,))
            execute(
                "INSERT INTO server_offers (server, key, listed_ms, about) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (server) DO UPDATE SET key = excluded.key, listed_ms = excluded.listed_ms, about = excluded.about, "
                "error = ''",
                (server, key, now_ms(), json.dumps(about)),
            )
            for ware in wares:
                vector = kept.get(f"{ware.name}\n{ware.title}\n{ware.description}", (None, None))
                said = ware.name, ware.title, ware.description, json.dumps(ware.schema), json.dumps(ware.hints)
                execute(
                    "INSERT INTO server_tools (server, name, title, description, schema, hints, embedder, vector) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (server, *said, *vector),
                )
                words = f"{ware.name} {ware.title} {server}".replace("_", " ").replace("-", " ")
                sql = "INSERT INTO server_words (rowid, name, text) VALUES (last_insert_rowid(), ?, ?)"
                execute(sql, (words, ware.description))
        return True

    def failed(self, server: str, why: str) -> None:
        """Note why a server could not be asked; what it offered before stays known. Writes nothing that is noted already."""
        known = self.find_offer(server)
        if known is not None and known.error == why[:500]:
            return
        with self._store.write() as execute:
            execute(
                "INSERT INTO server_offers (server, key, listed_ms, about, error) VALUES (?, '', 0, '{}', ?) "
                "ON CONFLICT (server) DO UPDATE SET error = excluded.error",
                (server, why[:500]),
            )

    def logged_in(self, server: str, has_login: bool) -> None:
        """Note whether the vault keeps a login of ours to a server."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO server_offers (server, key, listed_ms, about, has_login) VALUES (?, '', 0, '{}', ?) "
                "ON CONFLICT (server) DO UPDATE SET has_login = excluded.has_login",
                (server, has_login),
            )

    def forget(self, server: str) -> None:
        """Drop what is known of a server."""
        with self._store.write() as execute:
            execute("DELETE FROM server_tools WHERE server = ?", (server,))
            execute("DELETE FROM server_offers WHERE server = ?", (server,))

    def find_offer(self, server: str) -> ServerOffer | None:
        """The stored description of a server besides its tools."""
        rows = self._store.rows("SELECT key, listed_ms, about, error, has_login FROM server_offers WHERE server = ?", (server,))
        if not rows:
            return None
        key, listed_ms, about, error, has_login = rows[0]
        return ServerOffer(server, key, listed_ms, json.loads(about), error, bool(has_login))

    def keys(self) -> dict[str, str]:
        """The key under which each known server was asked."""
        return dict(self._store.rows("SELECT server, key FROM server_offers"))

    def counts(self) -> dict[str, int]:
        """The number of tools of each server."""
        return dict(self._store.rows("SELECT server, COUNT(*) FROM server_tools GROUP BY server"))

    def count(self, server: str) -> int:
        """The number of tools of a server."""
        return self.counts().get(server, 0)

    def arguments(self, server: str, tool: str) -> frozenset[str]:
        """The arguments of a server's tool; none for one that is not known."""
        found = next((ware for ware in self.wares(server) if ware.name == tool), None)
        return found.arguments if found is not None else frozenset()

    def wares(self, server: str = "") -> list[RemoteTool]:
        """Tools of a server, or of all, in the order they were listed."""
        rows = self._store.rows(f"SELECT {COLUMNS} FROM server_tools t WHERE ?1 = '' OR t.server = ?1 ORDER BY t.id", (server,))
        return [_ware_from_row(row) for row in rows]

    # -- finding ----------------------------------------------------------------------------------

    def by_words(self, query: str, limit: int) -> list[RemoteTool]:
        """Tools with words of the query in them, best first."""
        words = " OR ".join(f'"{word}"' for word in WORD.findall(query)[:32])
        if not words:
            return []
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM server_words w JOIN server_tools t ON t.id = w.rowid WHERE server_words MATCH ? "
            "ORDER BY bm25(server_words, 4.0, 1.0) LIMIT ?",
            (words, limit),
        )
        return [_ware_from_row(row) for row in rows]

    def by_meaning(self, embedder: str, vector: Sequence[float], limit: int) -> list[RemoteTool]:
        """Tools that mean something close to the query, best first; only those that this model has read."""
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM server_tools t WHERE t.embedder = ? ORDER BY vec_distance_cosine(t.vector, ?) LIMIT ?",
            (embedder, array("f", vector).tobytes(), limit),
        )
        return [_ware_from_row(row) for row in rows]

    def unread(self, embedder: str) -> list[RemoteTool]:
        """Tools that have no vector of this model."""
        rows = self._store.rows(f"SELECT {COLUMNS} FROM server_tools t WHERE t.embedder IS NOT ? ORDER BY t.id", (embedder,))
        return [_ware_from_row(row) for row in rows]

    def embedder(self) -> str:
        """The model that made the vectors, "" when there are none."""
        rows = self._store.rows("SELECT embedder FROM server_tools WHERE embedder IS NOT NULL LIMIT 1")
        return str(rows[0][0]) if rows else ""

    def learn(self, embedder: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep the vectors of tools by their ids."""
        with self._store.write() as execute:
            for number, vector in vectors.items():
                packed = array("f", vector).tobytes()
                execute("UPDATE server_tools SET embedder = ?, vector = ? WHERE id = ?", (embedder, packed, number))


def _build_ware(server: str, said: Mapping[str, Any]) -> RemoteTool:
    schema = said.get("inputSchema")
    schema = schema if isinstance(schema, dict) and len(json.dumps(schema)) <= MAX_SCHEMA else {"type": "object"}
    hints = said.get("annotations") if isinstance(said.get("annotations"), dict) else {}
    title = str(said.get("title") or (hints or {}).get("title") or "")[:200]
    return RemoteTool(
        server, str(said["name"])[:200], title, str(said.get("description") or "")[:MAX_TEXT], schema, dict(hints or {})
    )


def _compared_fields(ware: RemoteTool) -> tuple[Any, ...]:
    return ware.name, ware.title, ware.description, ware.schema, ware.hints


def _ware_from_row(row: Row) -> RemoteTool:
    number, server, name, title, description, schema, hints = row
    return RemoteTool(server, name, title, description, json.loads(schema), json.loads(hints), number)
