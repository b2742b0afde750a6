"""The core's side of adding: takes what clients have read, in pieces where it is large, and reads again for tools.

Owns the pieces that have come and the form of an item as JSON. A client reads files with its own rights and sends
what they say; nothing here opens a file because a client asked. `refresh` does read, for the tool: only files that
this very user's commands have read before, and nothing in the assistant's home. Pieces that nobody asks for make way
for others.
"""

import base64
import binascii
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from appliance.clock import monotonic_s, new_id
from appliance.errors import BadInput, TooLarge
from appliance.ingest.file_reader import DISK, Chosen, Gather, Kept, KnownFile, ReadItem, ref_of
from appliance.ingest.pipeline import Fetch, FetchedPage, Ingest, Refreshed, no_fetch
from appliance.ingest.sources import Desk, Sources
from appliance.knowledge.entries import By
from appliance.records import Cancel
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.text.references import parse_ref

MAX_STAGED = 96 * 1024 * 1024  # bytes of pieces of everybody together
PART_BYTES = 1_500_000  # in one answer
KEY_BYTES = 1024  # that a name costs, however little has come under it
STALE_S = 600.0  # what nobody asked for by then was sent by somebody who is gone
CLIENT, PLUGIN = "client", "plugin"
Load = Callable[[str, str, Cancel | None], FetchedPage]  # URL, what the person says about it, when to stop
# What an item has besides its ref, as a client sends it: texts, and names under which a text or bytes have come in pieces.
ABOUT = ("title", "description", "mime", "source_url", "file", "mark", "sha256", "reader", "note")
PIECES = ("body", "blob", "original")


class Staging:
    """Uploads in progress, by sender and name."""

    def __init__(self, limit_bytes: int = MAX_STAGED, stale_s: float = STALE_S) -> None:
        self._limit = limit_bytes
        self._stale_s = stale_s
        self._held: dict[tuple[str, str], bytearray] = {}  # the one that grew last at the end
        self._grown_s: dict[tuple[str, str], float] = {}
        self._guard = threading.Lock()

    def add(self, caller: str, key: str, data: bytes) -> int:
        """Put this after what has come under the name before; how many bytes there are now.

        What is old makes way, and where that is not enough the oldest of whoever has most, which is nobody's loss but theirs.
        """
        with self._guard:
            now_s = monotonic_s()
            whole = self._held.pop((caller, key), bytearray())
            whole += data
            if len(whole) > self._limit:
                self._grown_s.pop((caller, key), None)
                raise TooLarge(f"{len(whole)} bytes in pieces, the limit is {self._limit}", hint="send less")
            self._held[caller, key] = whole
            self._grown_s[caller, key] = now_s
            while self._grown_s[next(iter(self._held))] < now_s - self._stale_s:
                self._forget(next(iter(self._held)))
            sizes: Counter[str] = Counter()
            for (who, _), data_of in self._held.items():
                sizes[who] += len(data_of) + KEY_BYTES
            while sizes.total() > self._limit + KEY_BYTES:
                most = max(sizes, key=lambda who: (sizes[who], who == caller))
                oldest = next(one for one in self._held if one[0] == most)
                sizes[most] -= len(self._held[oldest]) + KEY_BYTES
                self._forget(oldest)
            if (caller, key) not in self._held:
                raise TooLarge(f"no room for {len(whole)} bytes in pieces beside others", hint="try again in a few minutes")
            return len(whole)

    def take_data(self, caller: str, key: str) -> bytes:
        """All that has come under a name, which is forgotten then; BadInput when nothing has."""
        with self._guard:
            whole = self._held.pop((caller, key), None)
            self._grown_s.pop((caller, key), None)
        if whole is None:
            raise BadInput(f"no pieces have come as {key!r}", hint="send them, then the item")
        return bytes(whole)

    def cut(self, caller: str, key: str, count: int) -> bytes:
        """The first bytes of what is held under a name, which are forgotten then; none when there are no more."""
        with self._guard:
            whole = self._held.get((caller, key), bytearray())
            part = bytes(whole[:count])
            del whole[:count]
            if not whole:
                self._held.pop((caller, key), None)
                self._grown_s.pop((caller, key), None)
        return part

    def _forget(self, held: tuple[str, str]) -> None:
        del self._held[held], self._grown_s[held]


class Intake:
    """The methods of the core that processes call to add files."""

    def __init__(
        self,
        sources: Sources,
        home: Home,
        environ: Mapping[str, str],
        *,
        fetch: Fetch = no_fetch,
        load: Load | None = None,
        deadline_s: float = 20.0,
    ) -> None:
        """`load` fetches a page with a person's words on how, where there is more than one way to have it."""
        self._sources = sources
        self._home = home
        self._environ = environ
        self._fetch = fetch
        self._load = load
        self._deadline_s = deadline_s
        self.staging = Staging()

    @method("ingest.known", access="all", is_quiet=True)
    def known(self, refs: Annotated[list[str], "stored paths"]) -> dict[str, KnownFile]:
        """What is known of those that exist, by path: `hash`, and as it was read `kept_hash`, `sha256`, `mark`, `file`."""
        return self._sources.find_known(refs[:1000])

    @method("ingest.chosen", access="all", is_quiet=True)
    def chosen(
        self,
        ref: Annotated[str, "an id, drive:/path or a folder; empty means everything"] = "",
        after: Annotated[str, "only after this stored path"] = "",
    ) -> Chosen:
        """A page of the items a reference means, as `ingest.known` tells them; ask again with `next_after` until it is empty."""
        return self._sources.select_items(ref, after)

    @method("ingest.tree", access="all", is_quiet=True)
    def tree(self, folder: Annotated[str, "a stored path; empty is every drive"] = "") -> dict[str, Any]:
        """The content of a folder, drawn as a tree."""
        return {"tree": self._sources.tree(folder)}

    @method("ingest.piece", access="all", is_quiet=True)
    def piece(
        self, key: Annotated[str, Range(1, 64), "a name of the caller's choice"], data: Annotated[str, "base64"], *, call: Call
    ) -> dict[str, Any]:
        """Hand in a part of something large; parts of one name follow each other. `ingest.keep` takes them."""
        try:
            return {"size_bytes": self.staging.add(caller_name(call), key, base64.b64decode(data, validate=True))}
        except (binascii.Error, ValueError) as error:
            raise BadInput(f"a piece is not base64: {error}", hint="encode the bytes") from None

    @method("ingest.page", access="all", is_long=True)
    def page(
        self,
        url: Annotated[str, Range(1, 4096), "the whole address"],
        addition: Annotated[str, Range(0, 10_000), "the person's words for the agent that loads it through MCP servers"] = "",
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Fetch a page or document for the caller: `size_bytes`, `mime`, `charset`, and the `key` for `ingest.part`."""
        found = self._fetch(url) if self._load is None else self._load(url, addition, call.cancel)
        key = new_id()
        self.staging.add(caller_name(call), key, found.data)
        about = {name: getattr(found, name) for name in ("mime", "charset", "title", "server")}
        return {"key": key, "size_bytes": len(found.data), **about}

    @method("ingest.part", access="all", is_quiet=True)
    def part(self, key: Annotated[str, Range(1, 64), "of ingest.page"], *, call: Call) -> dict[str, Any]:
        """The next bytes of a fetched page in base64, which are forgotten then; empty after the last."""
        return {"data": base64.b64encode(self.staging.cut(caller_name(call), key, PART_BYTES)).decode()}

    @method("ingest.keep", access="all")
    def keep(
        self,
        items: Annotated[list[dict[str, Any]], "ref, body or body_key, blob_key, original_key, title, mime, ..."],
        *,
        call: Call,
    ) -> list[Kept]:
        """Keep what the caller has read, in one transaction: `ref`, `status` added, updated, unchanged or error, `message`."""
        checked = [_check_item(item) for item in items]
        for given in checked:
            self._sources.check_write(given["ref"], CLIENT)  # Refused for a path that clients may not write
        return self._sources.store_items([self._build_item(given, caller_name(call)) for given in checked], By(CLIENT), call.uid)

    def gather(self) -> Gather:
        """A reader of files with the rights of the core, which never opens the database; the caller closes it."""
        private = [self._home.database.with_name(self._home.database.name + end) for end in ("", "-wal", "-shm")]
        return Gather(self._environ, private, self._deadline_s)

    def refresh(self, refs: Sequence[str], is_all: bool, run: str, is_stopped: Callable[[], bool]) -> Refreshed:
        """Read items again with the rights of the core; for a model when there is a run."""
        gather = self.gather()
        desk = Desk(self._sources, By(PLUGIN if run else CLIENT, run), os.getuid(), is_model=bool(run))
        try:
            work = Ingest(desk, gather, fetch=self._fetch, is_stopped=is_stopped, closed=[str(self._home.root.resolve())])
            return work.refresh(refs, is_all=is_all)
        finally:
            gather.close()

    def _build_item(self, given: Mapping[str, str], caller: str) -> ReadItem:
        """The item with what has come in pieces under the names it gives."""
        came = {name: self.staging.take_data(caller, given[f"{name}_key"]) for name in PIECES if given.get(f"{name}_key")}
        try:
            body = came.pop("body").decode() if "body" in came else given.get("body")
        except UnicodeDecodeError as error:
            raise BadInput(f"{given['ref']}: the text is not UTF-8 (byte {error.start})", hint="send its bytes as blob") from None
        about = {name: given[name] for name in ABOUT if name in given}
        return ReadItem(given["ref"], body, came.get("blob"), came.get("original"), **about)


def _check_item(given: Mapping[str, Any]) -> dict[str, str]:
    """An item that came as JSON; BadInput names what is wrong with it."""
    known = {"ref", "body", *(f"{name}_key" for name in PIECES), *ABOUT}
    hint = f"an item has ref, and texts as {', '.join(sorted(known - {'ref'}))}"
    wrong = [name for name, value in given.items() if name not in known or not isinstance(value, str)]
    if wrong or not given.get("ref"):
        raise BadInput(f"an item cannot have {wrong[0]!r} so" if wrong else "an item without ref", hint=hint)
    ref, file = given["ref"], given.get("file", "")
    if sum(("body" in given, bool(given.get("body_key")), bool(given.get("blob_key")))) != 1:
        raise BadInput(f"{ref}: neither or more than one of body, body_key and blob_key", hint=hint)
    if file and (not file.startswith("/") or parse_ref(ref) != ref_of(file)):
        raise BadInput(f"{ref} cannot have been read from {file!r}", hint=f"a file is kept as {DISK} and its path")
    return dict(given)
