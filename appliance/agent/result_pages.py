"""Results of tools that are too long to be shown at once: kept whole for a while, and read on by page.

Owns the entries `content://lr_N` of runs, which no packet shows and no search finds. What a call gives back
instead is a stub with the size, the beginning and how to read on. They are kept for the loop in which they were
made: in the next one they are gone, and the next one that keeps any drops them. An id that an earlier prompt was told
never comes to mean another result. Knows nothing about tools.
"""

import re

from msgspec import Struct

from appliance.errors import BadInput, NotFound
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import MAX_BLOB_BYTES, Content
from appliance.knowledge.entries import Entries
from appliance.store.database import Store

INLINE_CHARS = 10_000
PAGE_CHARS = 8_000
PREVIEW_CHARS = 500
WRITER = "system"
NAME = re.compile(r"lr_([1-9][0-9]{0,8})")
FOLDER = "content://"
ENDED = "SELECT MAX(seq) FROM loops WHERE run = ? AND status <> 100"  # the loop that runs, or the last one


class Page(Struct, frozen=True):
    """A part of a long result; pages count from 1."""

    content: str
    page: int
    total_pages: int
    origin: str = ""


class Overflow:
    """Keeps long results of runs."""

    def __init__(self, store: Store, entries: Entries) -> None:
        self._store = store
        self._entries = entries

    def shorten(self, run: str, text: str, origin: str = "") -> str:
        """The text itself while it is short enough, else a stub for the kept whole."""
        return text if len(text) <= INLINE_CHARS else self.keep(run, text, origin)

    def keep(self, run: str, text: str, origin: str = "") -> str:
        """Keep a result, and where it came from when that is not us; the stub to show instead."""
        data = text.encode("utf-8", "replace")[:MAX_BLOB_BYTES]
        loop, scope = self._current_loop(run), f"run:{run}"
        with self._store.write(durable=True):  # of no run: they are nothing that an undo should bring back
            kept = self._stored_results(run)
            name = f"lr_{max(kept, default=0) + 1}"
            for number in [number for number, of in kept.items() if of < loop]:
                self._drop_result(run, number)
            content = Content(blob=data, mime="text/plain", attributes={"loop": loop, "origin": origin})
            self._entries.put(FOLDER + name, content, By(WRITER), scope=scope)
        size = len(data.decode("utf-8", "ignore"))
        part = "" if size == len(text) else f", of which the first {size} are kept"
        pages = -(-size // PAGE_CHARS)
        return (
            f"[{name}: this result has {len(text)} characters{part}, in {pages} pages of {PAGE_CHARS}. It begins:]\n"
            f"{text[:PREVIEW_CHARS]}\n[read on: read_large_result with id {name} and page 1 to {pages}]"
        )

    def page(self, run: str, name: str, page: int) -> Page:
        """A page of a kept result; NotFound for one that is not there any more."""
        if not NAME.fullmatch(name):
            raise BadInput(
                f"{name!r} is not an id of a large result", hint="use the id that the shortened result names, such as lr_1"
            )
        loop = self._current_loop(run)
        numbers = sorted(number for number, of in self._stored_results(run).items() if of >= loop)
        if int(name[3:]) not in numbers:
            known = ", ".join(f"lr_{n}" for n in numbers) or "none"
            raise NotFound(f"there is no large result {name}", hint=f"there are: {known}; call the tool again")
        found = self._entries.get(FOLDER + name, scope=f"run:{run}")
        text = self._entries.blob(found).decode("utf-8", "ignore")
        total = max(1, -(-len(text) // PAGE_CHARS))
        if not 1 <= page <= total:
            raise NotFound(f"{name} has no page {page}", hint=f"pages go from 1 to {total}")
        return Page(text[(page - 1) * PAGE_CHARS : page * PAGE_CHARS], page, total, str(found.attributes.get("origin") or ""))

    def clear(self, run: str) -> int:
        """Drop every kept result of a run; how many."""
        numbers = self._stored_results(run)
        for number in numbers:
            self._drop_result(run, number)
        return len(numbers)

    def _stored_results(self, run: str) -> dict[int, int]:
        """The numbers of the kept results, with the loop of each."""
        found = self._entries.attributes(f"{FOLDER}lr_", scope=f"run:{run}")
        named = {NAME.fullmatch(path.removeprefix(FOLDER)): given for path, given in found.items()}
        return {int(name[1]): int(given.get("loop", 0)) for name, given in named.items() if name}

    def _drop_result(self, run: str, number: int) -> None:
        self._entries.remove(f"{FOLDER}lr_{number}", By(WRITER), scope=f"run:{run}")

    def _current_loop(self, run: str) -> int:
        return int(self._store.value(ENDED, (run,)) or 0)
