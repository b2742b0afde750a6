"""Adding files and pages to what the assistant knows, and reading them again: many at a time, one failure alone.

Owns the two courses `add` and `refresh`. Reading happens in threads of this process, with the rights of its user;
what was read goes to a shelf in small batches, from the calling thread alone, so that being killed loses at most
one batch and the same command goes on from there. What did not change is not written. Pages come from `fetch`,
which is given; knows nothing about sockets, commands or the database.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput, Cancelled, NotFound, OwlError, PathConflict, Refused, TooLarge, Unavailable
from appliance.ingest import extract
from appliance.ingest.extract import MAX_FILE_BYTES
from appliance.ingest.file_reader import (
    MAX_FILES,
    FileRules,
    Gather,
    ItemStore,
    ItemToRead,
    Kept,
    KnownFile,
    ReadItem,
    SkippedCounts,
    expand,
    is_within,
    item_of,
    shown,
)
from appliance.ingest.watcher import mark_of
from appliance.runtime.users import user_name
from appliance.text.references import display, locator_of, parse_ref, route_url, scheme_of

AT_ONCE = 10  # inputs read at a time (B-088)
BATCH = 32  # items in one transaction
AHEAD = 2 * AT_ONCE  # inputs that are read before somebody takes them
AHEAD_BYTES = 64 * 1024 * 1024  # of those together, unless one alone is larger
BATCH_BYTES = 400_000  # of a batch, unless one item alone is larger
ASKED = 500  # paths asked about at a time
PAGE_CHARS = 500_000  # of the text of a page
WEB = ("http://", "https://")
THERE = "is there already, and not the same: --on-conflict overwrite takes the file as it is now"
NAMED = 5  # items named in a message about many

OnConflict = Literal["error", "overwrite", "skip"]
Progress = Callable[[str, int, int], None]


class FetchedPage(Struct, frozen=True):
    """A page as it came: its bytes, what they are, the encoding that was said of them, and the MCP server that had it."""

    data: bytes
    mime: str = ""
    charset: str = ""
    title: str = ""
    server: str = ""


Fetch = Callable[[str], FetchedPage]


def no_fetch(url: str) -> FetchedPage:
    """Stands where nothing can fetch pages."""
    raise Unavailable(f"{url} cannot be fetched: this version does not fetch pages", hint="save the page, then add the file")


class Added(Struct, frozen=True):
    """The outcome of everything that was to be added; `left_out` counts what folders hold besides."""

    items: tuple[Kept, ...]
    left_out: dict[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """The number of items in each status."""
        found = Counter(item.status for item in self.items)
        return {status: found[status] for status in ("added", "updated", "unchanged", "skipped", "error")}

    @property
    def has_failed(self) -> bool:
        """Whether nothing came of anything."""
        return bool(self.items) and all(item.status == "error" for item in self.items)


class Refreshed(Struct, frozen=True):
    """The outcome of the items that were read again; `tree` shows what they lie in as it is now."""

    items: tuple[Kept, ...]
    checked: int
    updated: int
    unchanged: int
    missing: int
    errors: int
    skipped: int
    reembedded: int
    chunks: int
    tree: str
    unresolved: tuple[str, ...] = ()

    def text(self) -> str:
        """A line of counts, what is not as it was, then the tree."""
        counts = [("updated", self.updated), ("unchanged", self.unchanged), ("missing", self.missing), ("failed", self.errors)]
        told = ", ".join(f"{count} {word}" for word, count in counts if count) or "nothing to read again"
        lines = [f"{display(i.ref)}: {i.status}" + (f": {i.message}" if i.message else "") for i in self.items]
        lines = [line for line, i in zip(lines, self.items, strict=True) if i.status != "unchanged"][:100]
        return "\n".join([f"Checked {self.checked}: {told}.", *lines, self.tree])


class Ingest:
    """Adds and refreshes, for one asker. `closed` are folders in which nothing is read again."""

    def __init__(
        self,
        shelf: ItemStore,
        gather: Gather,
        *,
        fetch: Fetch = no_fetch,
        tell: Progress = lambda stage, done, total: None,
        is_stopped: Callable[[], bool] = lambda: False,
        closed: Sequence[str] = (),
    ) -> None:
        self._shelf = shelf
        self._gather = gather
        self._fetch = fetch
        self._tell = tell
        self._is_stopped = is_stopped
        self._closed = tuple(closed)

    # -- adding -------------------------------------------------------------------------------------

    def add(self, inputs: Sequence[str], rules: FileRules, on_conflict: OnConflict = "skip") -> Added:
        """Make an item of every file and page; PathConflict before anything is done where `on_conflict` is error."""
        counts = SkippedCounts()
        wanted, failed = self._plan_inputs(inputs, rules, counts)
        known = self._find_known(list(wanted))
        if on_conflict == "error" and known:
            names = ", ".join(display(ref) for ref in list(known)[:NAMED])
            more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
            raise PathConflict(f"there already: {names}{more}", hint="--on-conflict skip leaves them, overwrite reads them again")
        items, todo, doubtful = list(failed), [], []
        for one in wanted.values():
            there = known.get(one.ref)
            if there is not None and _is_same(one, there):
                items.append(Kept(one.ref, "unchanged"))
            elif there is None or on_conflict == "overwrite":
                todo.append((one, there))
            elif one.url or not there.kept_hash:
                is_same = bool(one.url) and there.source_url == one.url
                items.append(Kept(one.ref, "unchanged") if is_same else Kept(one.ref, "skipped", THERE))
            else:
                doubtful.append((one, there))
        items += self._compare_doubtful(doubtful)
        items += self._ingest_items("adding", todo)
        items = [replace(item, status="error", message="is gone") if item.status == "missing" else item for item in items]
        left_out = {what: getattr(counts, what) for what in ("hidden", "ignored", "secret", "links", "special")}
        return Added(tuple(items), {name: count for name, count in left_out.items() if count})

    def _compare_doubtful(self, doubtful: Sequence[tuple[ItemToRead, KnownFile]]) -> list[Kept]:
        """Whether files that look otherwise than when they were read say the same; nothing is kept."""
        done = []
        for wanted, known, found in self._read_ahead(doubtful):
            if isinstance(found, ReadItem):
                is_same = known is not None and known.is_as_read and found.sha256 == known.sha256
                found = Kept(wanted.ref, "unchanged") if is_same else Kept(wanted.ref, "skipped", THERE)
            done.append(found)
        return done

    def _plan_inputs(
        self, inputs: Sequence[str], rules: FileRules, counts: SkippedCounts
    ) -> tuple[dict[str, ItemToRead], list[Kept]]:
        """Everything that is wanted, each once, and what is not even a file."""
        wanted: dict[str, ItemToRead] = {}
        failed: list[Kept] = []
        for text in dict.fromkeys(inputs):
            found: Iterable[ItemToRead] = [_wanted_page(text)] if text.startswith(WEB) else expand(text, rules, counts)
            for one in found:
                if one.problem:
                    failed.append(Kept(one.ref or shown(one.file), "error", one.problem))
                else:
                    wanted.setdefault(one.ref, one)
                if len(wanted) > MAX_FILES:
                    raise TooLarge(f"more than {MAX_FILES} files", hint="add the folders in it one by one, or ignore some")
            self._check_stopped()
        failed += [Kept(shown(one.file), "error", one.problem) for one in counts.problems]
        return wanted, failed

    def _find_known(self, refs: Sequence[str]) -> dict[str, KnownFile]:
        found: dict[str, KnownFile] = {}
        for start in range(0, len(refs), ASKED):
            found |= self._shelf.find_known(refs[start : start + ASKED])
            self._check_stopped()
        return found

    # -- reading again ------------------------------------------------------------------------------

    def refresh(self, refs: Sequence[str], *, is_all: bool = False) -> Refreshed:
        """Read the items of these references again, or every item; `unresolved` names the references that mean nothing."""
        if is_all == bool(refs):
            raise BadInput(
                "give either ref or all", hint="ref names an item or folder, all is everything", outcome="invalid_arguments"
            )
        done: dict[str, Kept] = {}
        unresolved: list[str] = []
        folders: list[str] = []
        todo: list[tuple[ItemToRead, KnownFile]] = []
        skipped = 0
        for ref in [""] if is_all else dict.fromkeys(refs):
            try:
                for known, folder in self._iterate_chosen(ref):
                    folders += [folder] if folder not in folders else []
                    if known.ref in done:
                        continue
                    if not known.is_copy:
                        skipped += 1
                        continue
                    verdict = self._check_item(known)
                    if isinstance(verdict, ItemToRead):
                        todo.append((verdict, known))
                    done[known.ref] = verdict if isinstance(verdict, Kept) else Kept(known.ref, "error")
            except (NotFound, BadInput) as error:
                unresolved.append(f"{ref}: {error.message}")
        for kept in self._ingest_items("reading", todo):
            done[kept.ref] = replace(kept, status="error") if kept.status == "skipped" else kept
        return self._summarize_refresh(tuple(done.values()), skipped, folders, tuple(unresolved))

    def _summarize_refresh(
        self, items: tuple[Kept, ...], skipped: int, folders: list[str], unresolved: tuple[str, ...]
    ) -> Refreshed:
        counts = Counter(item.status for item in items)
        updated = [item for item in items if item.status == "updated"]
        return Refreshed(
            items,
            checked=len(items),
            updated=len(updated),
            unchanged=counts["unchanged"],
            missing=counts["missing"],
            errors=counts["error"],
            skipped=skipped,
            reembedded=sum(item.chunks > 0 for item in updated),
            chunks=sum(item.chunks for item in updated),
            tree="\n".join(self._shelf.tree(folder) for folder in folders[:20]),
            unresolved=unresolved,
        )

    def _iterate_chosen(self, ref: str) -> Iterator[tuple[KnownFile, str]]:
        after = ""
        while True:
            page = self._shelf.select_items(ref, after)
            yield from ((known, page.folder) for known in page.items)
            self._check_stopped()
            if not page.next_after:
                return
            after = page.next_after

    def _check_item(self, known: KnownFile) -> ItemToRead | Kept:
        """Decide whether an item has to be read again; its result when not."""
        if scheme_of(known.ref) != "disk":
            if not known.source_url:
                return Kept(known.ref, "error", "nobody noted which URL it came from: add it again by its URL")
            return ItemToRead(known.ref, url=known.source_url)
        if why := self._why_not(known):
            return Kept(known.ref, "error", why)
        file = known.file
        try:
            info = os.lstat(file)
        except (FileNotFoundError, NotADirectoryError):
            return Kept(known.ref, "missing")
        except OSError as error:
            return Kept(known.ref, "error", f"cannot be read: {error.strerror}")
        wanted = ItemToRead(known.ref, file, size_bytes=info.st_size, mark=mark_of(info))
        return Kept(known.ref, "unchanged") if _is_same(wanted, known) else wanted

    def _why_not(self, known: KnownFile) -> str:
        """The reason why a file is not read again for this user, "" when it is.

        Who added it counts, as the kernel told the core: otherwise what somebody else put there could have this
        user's own files read and shown to everybody.
        """
        if known.uid < 0 or not known.file:
            return "was not read from a file: nothing to read again"
        if known.uid != os.getuid():
            return f"was added by user {user_name(known.uid)}: owlbox context refresh as {user_name(known.uid)} reads it again"
        return "is in Owlbox's own home" if any(is_within(known.file, folder) for folder in self._closed) else ""

    # -- the work -----------------------------------------------------------------------------------

    def _ingest_items(self, stage: str, todo: Sequence[tuple[ItemToRead, KnownFile | None]]) -> list[Kept]:
        """Read everything, some at a time, and keep what is new; the outcome of each, in no particular order."""
        total, read = sum(_estimate_weight(wanted) for wanted, _ in todo), 0
        done: list[Kept] = []
        basket: list[ReadItem] = []
        for wanted, known, found in self._read_ahead(todo):
            read += _estimate_weight(wanted)
            if isinstance(found, Kept):
                done.append(found)
            elif known is not None and known.is_as_read and (found.sha256, found.reader) == (known.sha256, known.reader):
                done.append(Kept(found.ref, "unchanged"))
            else:
                if basket and sum(item.size_bytes for item in basket) + found.size_bytes > BATCH_BYTES:
                    done += self._shelf.store_items(basket)
                    basket.clear()
                basket.append(found)
                if len(basket) >= BATCH:
                    done += self._shelf.store_items(basket)
                    basket.clear()
            self._tell(stage, read, total)
        if basket:
            done += self._shelf.store_items(basket)
        return done

    def _read_ahead(
        self, todo: Sequence[tuple[ItemToRead, KnownFile | None]]
    ) -> Iterator[tuple[ItemToRead, KnownFile | None, ReadItem | Kept]]:
        """Each thing with what was read of it, or the reason that nothing was; a few ahead of whoever takes them."""
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ingest")
        begun: deque[tuple[ItemToRead, KnownFile | None, Future[ReadItem | Kept]]] = deque()
        left = deque(todo)
        is_whole, ahead_bytes = False, 0
        try:
            while left or begun:
                while left and len(begun) < AHEAD and (not begun or ahead_bytes + _estimate_weight(left[0][0]) <= AHEAD_BYTES):
                    wanted, known = left.popleft()
                    ahead_bytes += _estimate_weight(wanted)
                    begun.append((wanted, known, pool.submit(self._read_item, wanted, known)))
                self._check_stopped()
                wanted, known, future = begun.popleft()
                yield wanted, known, future.result()
                ahead_bytes -= _estimate_weight(wanted)
            is_whole = True
        finally:
            if not is_whole:
                self._gather.close()  # or the threads would finish their files first
            pool.shutdown(cancel_futures=True)

    def _read_item(self, wanted: ItemToRead, known: KnownFile | None) -> ReadItem | Kept:
        """An item for what is wanted; an error is its own and nobody else's."""
        try:
            found = self._fetch_page(wanted, known) if wanted.url else self._gather.item(wanted, known)
            return found or Kept(wanted.ref, "unchanged")
        except NotFound as error:
            is_missing = bool(wanted.file) and not os.path.lexists(wanted.file)
            return Kept(wanted.ref, "missing" if is_missing else "error", str(error) if wanted.url else "is gone")
        except Refused as error:
            return Kept(wanted.ref, "error" if wanted.url else "skipped", str(error))
        except OwlError as error:
            return Kept(wanted.ref, "error", str(error))

    def _fetch_page(self, wanted: ItemToRead, known: KnownFile | None) -> ReadItem:
        page = self._fetch(wanted.url)
        name = "page.md" if page.server else locator_of(wanted.ref).rstrip("/").rpartition("/")[2] or "page"
        form = "html" if page.mime.partition(";")[0].strip() in ("text/html", "application/xhtml+xml") else ""
        found = self._gather.reading(name, page.data, form or extract.form_of(name, page.data[:8192]), page.charset)
        # A server named after a service speaks for addresses that do not show it; what is there keeps its place.
        ref = parse_ref(route_url(wanted.url, page.server)) if page.server and known is None else wanted.ref
        item = item_of(ref, found, page.data)
        if item.body is not None and len(item.body) > PAGE_CHARS:
            note = f"{PAGE_CHARS} of {len(item.body)} characters kept"
            item = replace(item, body=item.body[:PAGE_CHARS], note="; ".join(filter(None, (item.note, note))))
        item = replace(item, note="; ".join(filter(None, (item.note, page.server and f"through MCP server {page.server}"))))
        title = (page.server and page.title) or found.title or page.title or wanted.url[:200]
        return replace(item, title=title, source_url=wanted.url, mime=page.mime.partition(";")[0].strip() or item.mime)

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise Cancelled("stopped", hint="the same command goes on where it was stopped")


def _wanted_page(url: str) -> ItemToRead:
    try:
        return ItemToRead(parse_ref(route_url(url)), url=url)
    except OwlError as error:
        return ItemToRead("", url, problem=error.message)


def _estimate_weight(wanted: ItemToRead) -> int:
    """The bytes of a file, for the progress; 1 for one that is too large to be read."""
    return max(1, wanted.size_bytes) if wanted.size_bytes <= MAX_FILE_BYTES else 1


def _is_same(wanted: ItemToRead, known: KnownFile) -> bool:
    """Whether a file looks as it did when it was read, so that reading it would bring nothing new."""
    if not wanted.mark or wanted.mark != known.mark or not known.is_as_read:
        return False
    return extract.is_current(wanted.file, known.reader)
