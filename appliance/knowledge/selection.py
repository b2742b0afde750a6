"""Which entries a reference or a pattern means to an actor, and the parts of a text that are shown.

An actor in a run sees what the run's views name, its own entries, those of the project and the global ones;
a person outside of a run sees the last two. The same path may exist in several scopes, and a pattern finds
all of them. Knows nothing about changing anything.
"""

import json
from collections.abc import Iterator, Sequence

from msgspec import Struct

from appliance.clock import monotonic_s
from appliance.errors import BadInput, DeadlineExceeded, NotFound
from appliance.knowledge.entries import Entries, Entry
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.views import MAX_CODE, Actor, Views
from appliance.store import visibility
from appliance.store.database import Store
from appliance.text import patterns
from appliance.text.references import parse_ref, scheme_of
from appliance.text.tokens import estimate

MATCH_S = 10  # for all entries together; each text has its own limit
MAX_TOLD = 300_000  # characters about many entries in one answer
BATCH = 200  # texts in memory at a time
WILD = "*?[{!\\"  # where the plain beginning of a glob ends
AS_WRITTEN = ("http", "https", "url")  # a question mark in an address is no wildcard


class SelectedEntry(Struct, frozen=True):
    """One matching entry, without its text."""

    id: int
    scope: str
    path: str
    tokens: int


class Window(Struct, frozen=True):
    """Some lines of a text, counted from 1, both ends included."""

    first: int
    last: int
    total: int
    text: str

    def header(self) -> str:
        """The range of the shown lines and their total."""
        return f"[lines {self.first}–{self.last} / {self.total} total]"


class Selection:
    """Finds entries for an actor."""

    def __init__(self, store: Store, entries: Entries, views: Views, schemes: Schemes) -> None:
        self._store = store
        self._entries = entries
        self._views = views
        self._schemes = schemes

    def find(self, actor: Actor, path: str) -> Entry | None:
        """The entry with this stored path as the actor sees it, or None."""
        if not self._may_see(actor, path):
            return None
        view = self._views.find(actor.run, path) if actor.run else None
        if view is not None:
            return self._entries.find(path, scope=view.scope)
        return next((e for scope in self._visible_scopes(actor) if (e := self._entries.find(path, scope=scope)) is not None), None)

    def get(self, actor: Actor, path: str) -> Entry:
        """The entry with this stored path as the actor sees it; NotFound names what is near."""
        found = self.find(actor, path)
        if found is not None:
            return found
        near = next((n for scope in self._visible_scopes(actor) if (n := self._entries.neighbours(path, scope))), [])
        near = [path for path in near if self._may_see(actor, path)]
        raise NotFound(f"no entry {path}", hint=f"nearby: {', '.join(near)}" if near else "search finds entries by their words")

    def is_many(self, actor: Actor, ref: str) -> bool:
        """Whether a reference is a pattern here: it has the shape of one, and no entry has it as its name."""
        path = parse_ref(ref)
        if patterns.kind_of(path) != "glob":
            return False
        if scheme_of(path) in AS_WRITTEN and not any(c in path for c in "*{["):
            return False
        return self.find(actor, path) is None

    def matching(self, actor: Actor, pattern: str, wanted: str = "") -> list[SelectedEntry]:
        """Entries whose path matches a pattern, or is it, and whose text matches `wanted`; by path."""
        path, until_s = patterns.compiled(pattern), monotonic_s() + MATCH_S
        start = plain_start(pattern) if patterns.kind_of(pattern) == "glob" else ""
        rows = self._store.rows(
            "SELECT e.id, e.path FROM entries e WHERE (e.scope IN (SELECT value FROM json_each(?1)) "
            f"OR e.id IN (SELECT entry FROM views WHERE run = ?2)) AND e.path >= ?3 AND e.path < ?4{visibility.only('e')} "
            "ORDER BY e.path, e.scope",
            (json.dumps(self._visible_scopes(actor)), actor.run, start, start + MAX_CODE),
        )
        chosen = []
        for entry, name in rows:
            if self._may_see(actor, name) and (name == pattern or path.matches(name)):
                chosen.append(int(entry))
            _check_time(until_s)
        batches = (chosen[i : i + BATCH] for i in range(0, len(chosen), BATCH))
        return [match for batch in batches for match in self._with_text(batch, wanted, until_s)]

    def select_matches(self, actor: Actor, ref: str, wanted: str = "") -> tuple[list[SelectedEntry], bool]:
        """What a reference or a pattern means, and whether it was a search, which may find many; NotFound for nothing."""
        if is_many := self.is_many(actor, ref):
            found = self.matching(actor, parse_ref(ref), wanted)
        else:
            entry = self.get(actor, parse_ref(ref))
            is_wanted = not wanted or patterns.compiled(wanted).search(entry.body) is not None
            found = [SelectedEntry(entry.id, entry.scope, entry.path, estimate(entry.body))] if is_wanted else []
        if not found:
            what = f"no entry matches {ref}" + (f" with {wanted!r} in its text" if wanted else "")
            raise NotFound(what, hint="search finds entries by their words")
        return found, is_many or bool(wanted)

    def _with_text(self, ids: Sequence[int], wanted: str, until_s: float) -> Iterator[SelectedEntry]:
        text = patterns.compiled(wanted) if wanted else None
        rows = self._store.rows(
            "SELECT id, scope, path, body FROM entries WHERE id IN (SELECT value FROM json_each(?)) ORDER BY path, scope",
            (json.dumps(list(ids)),),
        )
        for entry, scope, path, body in rows:
            if text is None or text.search(body):
                yield SelectedEntry(int(entry), str(scope), str(path), estimate(body))
            _check_time(until_s)

    def _may_see(self, actor: Actor, path: str) -> bool:
        return actor.tier != "model" or self._schemes.find_scheme(path).is_visible_to_model

    @staticmethod
    def _visible_scopes(actor: Actor) -> list[str]:
        scopes = [f"run:{actor.run}"] if actor.run else []
        return [*scopes, *([f"project:{actor.project}"] if actor.project is not None else []), "global"]


def plain_start(pattern: str) -> str:
    """The part of a glob before its first wildcard: what every match begins with."""
    return pattern[: next((i for i, letter in enumerate(pattern) if letter in WILD), len(pattern))]


def _check_time(until_s: float) -> None:
    if monotonic_s() > until_s:
        raise DeadlineExceeded(f"reading the entries took longer than {MATCH_S} s", hint="name fewer entries at once")


def render_matches(matches: Sequence[SelectedEntry]) -> str:
    """One line an entry, with what it costs; of very many the first ones, and how many there are beside them."""
    return "\n".join(render_lines([f"* {match.path} - {match.tokens} tokens" for match in matches]))


def limit_lines(lines: Sequence[str]) -> list[str]:
    """As many of these lines as can be sent at once: a client that gets an error would think that nothing was done."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line) + 1
        if size > MAX_TOLD:
            return list(lines[:count])
    return list(lines)


def render_lines(lines: Sequence[str]) -> list[str]:
    """As many lines as can be sent at once, and one that says how many more there are."""
    some = limit_lines(lines)
    return [*some, *([f"… and {len(lines) - len(some)} more"] if len(some) < len(lines) else [])]


def window(text: str, line: int | None, limit: int | None) -> Window:
    """Lines of a text from `line` on, at most `limit`; a negative line counts from the end."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    total = len(lines)
    first = 1 if line is None else line
    if first == 0 or (limit is not None and limit < 1):
        raise BadInput(f"line {first}, limit {limit}", hint="lines count from 1, or from the end with a negative line")
    if first < 0:
        first = max(1, total + 1 + first)
    if first > total:
        raise BadInput(f"line {first} is past the end", hint=f"it has {total} lines")
    last = total if limit is None else min(total, first + limit - 1)
    return Window(first, last, total, "\n".join(lines[first - 1 : last]))
