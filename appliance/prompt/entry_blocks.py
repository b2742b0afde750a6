"""Entries as a model reads them: one line each in the summary, whole where they are visible, in stable bytes.

Owns the rendering of what a run sees. An entry's line changes only when the entry or what the run says of it
does, never because it was opened, and lines stand in the order of their last change, so that what comes before
the newest change is the same text as in the turn before. What did not change is not read or rendered again.
Writes nothing; several threads may ask.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from appliance.knowledge.contents import Entry
from appliance.knowledge.entries import Entries
from appliance.knowledge.schemes import BARE, Category, Schemes
from appliance.runtime.hook_points import SUMMARIZED, VISIBLE
from appliance.runtime.hooks import Hooks
from appliance.store.database import Row, Store
from appliance.text.fences import exact, foreign, is_origin, quoted, safe
from appliance.text.references import scheme_of
from appliance.text.tokens import DIVISOR, Share, of_chars

PROJECTED = 500  # characters of a summarized text
OUTLINED = 2000  # characters of what a file defines
RUNS_HELD = 8  # runs whose renderings are kept in memory
FILES = frozenset({BARE, "disk", "github"})
PAGES = frozenset({"http", "https", "url"})
CHANNELS = frozenset({"sh", "env"})
SHOWN = """SELECT v.entry, e.path, v.visibility, v.status, v.outcome, v.summary, v.turn, v.since_turn,
        MAX(e.updated_ms, v.since_ms), v.id, e.hash
    FROM views v JOIN entries e ON e.id = v.entry
    WHERE v.run = ? AND v.visibility <> 'archived' AND v.state <> 'proposed' AND v.status <> 202"""


class BlockItem(Struct, frozen=True):
    """An entry that a run sees. `summary` and `full` are its renderings, `full` only of one that is visible.

    `turn` is the one in which the view was last touched; `changed` orders the summary, `view` the log.
    """

    entry: int
    path: str
    scheme: str
    category: Category
    is_visible: bool
    is_failed: bool
    turn: int
    changed: tuple[int, int]
    view: int
    share: Share
    summary: str
    full: str = ""


class RenderCounts(Struct):
    """The numbers of renderings, for measurements."""

    rendered: int = 0
    reused: int = 0


class SeenEntries(Struct, frozen=True):
    """The entries that a run sees, by block, each in its order."""

    data: list[BlockItem] = []
    log: list[BlockItem] = []
    unknowns: list[BlockItem] = []

    def all(self) -> Iterator[BlockItem]:
        yield from self.data
        yield from self.log
        yield from self.unknowns


class Blocks:
    """Renders what runs see, and remembers it as long as it stays true."""

    def __init__(
        self, store: Store, entries: Entries, schemes: Schemes, divisor: float = DIVISOR, hooks: Hooks | None = None
    ) -> None:
        self._store = store
        self._entries = entries
        self._schemes = schemes
        self.divisor = divisor
        self._hooks = hooks or Hooks()
        self.counts = RenderCounts()
        self._guard = threading.Lock()
        self._held: OrderedDict[str, dict[int, tuple[Row, float, BlockItem]]] = OrderedDict()

    def configure(self, divisor: float) -> None:
        """Set the number of characters that count as one token."""
        self.divisor = divisor

    def visible_items(self, run: str) -> SeenEntries:
        """What the run sees now: neither archived nor waiting for a decision, and of no scheme that is hidden."""
        with self._guard:
            before = self._held.get(run, {})
        rows = {int(row[0]): row for row in self._store.rows(SHOWN, (run,))}
        divisor = self.divisor
        now = {key: known for key, row in rows.items() if (known := before.get(key)) and known[:2] == (row, divisor)}
        late = [key for key, row in rows.items() if key not in now and self._schemes.find_scheme(str(row[1])).is_visible_to_model]
        self.counts.reused += len(now)
        for key, item in self._render_items(rows, late).items():
            now[key] = rows[key], divisor, item
            self.counts.rendered += 1
        with self._guard:
            self._held[run] = now
            self._held.move_to_end(run)
            while len(self._held) > RUNS_HELD:
                self._held.popitem(last=False)
        found = SeenEntries()
        for _, _, item in now.values():
            blocks = {"data": found.data, "unknown": found.unknowns}
            blocks.get(item.category, found.log).append(item)
        found.data.sort(key=lambda item: item.changed)
        found.log.sort(key=lambda item: item.view)
        found.unknowns.sort(key=lambda item: item.changed)
        return found

    def _render_items(self, rows: Mapping[int, Row], keys: Sequence[int]) -> dict[int, BlockItem]:
        """Entries rendered anew, each read by itself, since many texts at once are cut; folders are none."""
        read = (entry for key in keys for entry in self._entries.by_ids([key]).values())
        return {entry.id: self._render_item(rows[entry.id], entry) for entry in read if not entry.is_folder}

    def _render_item(self, row: Row, entry: Entry) -> BlockItem:
        scheme = scheme_of(entry.path) or BARE
        category = self._schemes.find_scheme(entry.path).category
        short = self._hooks.filter(f"{SUMMARIZED}{scheme}", projection(entry, str(row[5]), scheme), entry)
        entry = replace(entry, body=self._hooks.filter(f"{VISIBLE}{scheme}", entry.body, entry))
        more = of_chars(len(entry.body) + (_frame_chars(entry, scheme) if category == "data" else 0), self.divisor)
        if category != "data":  # there once, long or short: open data keeps its line in the summary beside its text
            more = max(0, more - of_chars(len(short), self.divisor))
        line, full = _render_entry(entry, scheme, row, short, more, is_data=category == "data")
        cost = of_chars(len(line), self.divisor)
        return BlockItem(
            entry=int(row[0]),
            path=entry.path,
            scheme=scheme,
            category=category,
            is_visible=row[2] == "visible",
            is_failed=int(row[3]) >= 400,
            turn=int(row[6]),
            changed=(int(row[8]), int(row[9])),
            view=int(row[9]),
            share=Share(cost + more, cost),
            summary=line,
            full=full,
        )


def _render_entry(entry: Entry, scheme: str, row: Row, short: str, more: int, *, is_data: bool) -> tuple[str, str]:
    """An entry's line in a summary, and its whole text where it is visible."""
    _, _, visibility, status, outcome, summary, turn, since_turn, *_ = row
    head = f'<{scheme} path="{quoted(entry.path)}"'
    state = "" if status == 200 and is_data else f' status="{status}"'
    if outcome:
        state += f' outcome="{quoted(str(outcome))}"'
    note = f' summary="{quoted(str(summary))}"' if summary else ""
    line = f'{head} visibility="summarized"{state} turn="{since_turn}" tokens="{more}"{note}'
    line = f"{line}>{safe(short)}</{scheme}>" if short else f"{line}/>"
    if visibility != "visible":
        return line, ""
    opened = f'{head} visibility="visible"{state} turn="{turn}" tokens="{more}"'
    origin = origin_of(entry, scheme)
    body = foreign(origin, entry.body) if origin else exact(entry.path, entry.body)
    return line, f"{opened}>{body}</{scheme}>" if entry.body else f"{opened}/>"


def origin_of(entry: Entry, scheme: str) -> str:
    """Where an entry's text came from when strangers may have written it: it says so, or is the channel of a command."""
    origin = "command" if scheme in CHANNELS else str(entry.attributes.get("origin"))
    return origin if is_origin(origin) else ""


def projection(entry: Entry, summary: str = "", scheme: str = "") -> str:
    """What stands for an entry that is not open: the beginning of a text, what a file defines, what a page is about."""
    scheme = scheme or scheme_of(entry.path) or BARE
    if not entry.is_textual:
        return summary or entry.description or f"[{entry.mime}]"
    if scheme in FILES:
        return _shorten_text(entry.description, OUTLINED) or summary or _shorten_text(entry.body)
    if scheme in PAGES:
        return _shorten_text(entry.description) or _shorten_text(_first_paragraph(entry.body)) or summary
    return _shorten_text(entry.body) or summary or _shorten_text(entry.description)


def _frame_chars(entry: Entry, scheme: str) -> int:
    """About how many characters stand around an open text: its tag, and its fence where it has several lines."""
    tags = len(f'<{scheme} path="{entry.path}" visibility="visible" turn="99" tokens="999"></{scheme}>\n')
    return tags + (2 * len(entry.path) + 10 if "\n" in entry.body else 0)


def render_block(items: Sequence[BlockItem], *, is_full: bool = False) -> str:
    """The items of a block as its text: whole where they are visible and `is_full`."""
    return "\n".join(item.full if is_full and item.full else item.summary for item in items)


def _first_paragraph(text: str) -> str:
    """The first part of a text that is long enough to say something."""
    for part in text.split("\n\n"):
        words = " ".join(part.split())
        if len(words) > 80 and not words.startswith("#"):
            return words
    return text


def _shorten_text(text: str, limit: int = PROJECTED) -> str:
    text = text.strip()
    if len(text) <= limit:
        return text
    end = max(text.rfind(" ", limit // 2, limit), text.rfind("\n", limit // 2, limit))
    return f"{text[: end if end > 0 else limit].rstrip()}…"
