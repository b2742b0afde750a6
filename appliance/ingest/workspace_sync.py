"""The files of the workspace as every run sees them: which ones are followed, and in step with the disk.

Owns the `constraints` table: per pattern of paths whether files are followed (`add`), followed and not to be changed
(`readonly`) or left alone (`ignore`); of several that fit, the one set last counts. A followed file is an entry with
a bare path, read with the rights of the core from the one folder that the configuration names. What a verb changes is
written there first, and only over what was read from there (`workspace_files`). Followed files are archived in a run
until it asks for them. Not followed: what is not text, what git ignores, hidden files, unless a
pattern adds them. Knows nothing about models; who begins a turn calls `before_turn` first.
"""

import codecs
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import BadInput, Conflict, NotFound, OwlError, Refused
from appliance.ingest.file_reader import FileRules, Gather, ItemToRead, KnownFile, ReadItem, SkippedCounts, is_within, walk
from appliance.ingest.sources import Sources
from appliance.ingest.watcher import mark_of
from appliance.ingest.workspace_files import WorkspaceFiles
from appliance.knowledge.action_log import since_proposed
from appliance.knowledge.contents import digest
from appliance.knowledge.entries import PROJECT, By, Content, Entry
from appliance.knowledge.views import Actor, Views
from appliance.store.database import Store
from appliance.text import patterns
from appliance.text.references import is_file_backed, parse_ref, scheme_of
from appliance.text.tokens import DIVISOR

LOG = logging.getLogger(__name__)
Kind = Literal["add", "readonly", "ignore"]
MANIFEST = "log://turn_0/repo/manifest"
MAX_FOLLOWED = 5000  # files
MAX_FILE_BYTES = 512 * 1024  # of a followed file: a longer one is no source
BATCH = 32  # files in one transaction
READER = By("plugin", verb="mirror")
READER_NAME = "written/1"  # of a file that was written here and not read yet


class Constraint(Struct, frozen=True):
    """A rule for paths that match a pattern."""

    pattern: str
    kind: Kind


class WorkspaceChange(Struct, frozen=True):
    """The numbers of files that a scan read and removed."""

    read: int = 0
    removed: int = 0


class Project:
    """Follows one folder; without one it follows nothing and says so."""

    def __init__(
        self,
        root: Path | None,
        store: Store,
        sources: Sources,
        gather: Callable[[], Gather],
        *,
        closed: Sequence[Path] = (),
    ) -> None:
        self.root = None if root is None else root.resolve()
        self._store = store
        self._entries = sources.entries
        self._views = Views(store)
        self._sources = sources
        self._gather = gather
        self._closed = tuple(str(folder.resolve()) for folder in closed)
        self._disk = None if self.root is None else WorkspaceFiles(self.root, self._closed)
        self._guard = threading.Lock()
        self._unread: dict[str, str] = {}  # files that hold no text, by path, as they looked
        self._away: tuple[str, ...] = ()  # folders that could not be read at the last look: what they hold may come back

    # -- constraints --------------------------------------------------------------------------------

    def constrain(self, pattern: str, kind: Kind) -> Constraint:
        """From now on this holds for the paths that fit the pattern, in every run."""
        if kind not in get_args(Kind):
            raise BadInput(f"there is no constraint {kind!r}", hint=f"use one of {', '.join(get_args(Kind))}")
        path = parse_ref(pattern)
        if scheme_of(path) is not None or path.startswith("/"):
            raise BadInput(f"{pattern} is not a path of the workspace", hint="give it as from the workspace, as in src/**/*.py")
        patterns.compiled(path)  # says what is wrong with it
        with self._store.write(durable=True) as execute:
            execute("DELETE FROM constraints WHERE scope = ? AND pattern = ?", (PROJECT, path))
            execute(
                "INSERT INTO constraints (scope, pattern, kind, created_ms) VALUES (?, ?, ?, ?)", (PROJECT, path, kind, now_ms())
            )
        return Constraint(path, kind)

    def release(self, pattern: str) -> None:
        """Forget what holds for a pattern; NotFound when nothing does."""
        with self._store.write(durable=True) as execute:
            sql = "DELETE FROM constraints WHERE scope = ? AND pattern = ? RETURNING id"
            if not execute(sql, (PROJECT, parse_ref(pattern))):
                raise NotFound(f"no constraint for {pattern}", hint="; ".join(c.pattern for c in self.constraints()[:10]))

    def constraints(self) -> list[Constraint]:
        """Every constraint, the one that was set last at the end."""
        rows = self._store.rows("SELECT pattern, kind FROM constraints WHERE scope = ? ORDER BY id", (PROJECT,))
        return [Constraint(*row) for row in rows]

    def kind_of(self, path: str) -> Kind | Literal[""]:
        """The constraint that counts for a path, "" for none."""
        return _kind_of(path, self.constraints())

    def veto(self, path: str) -> str:
        """The reason to refuse a change of this path; "" to accept it."""
        kind = self.kind_of(path) if is_file_backed(path) else ""
        if kind == "ignore" and self.has_file(path, PROJECT):
            return f"{path} is ignored in this project, so it would not be written"
        return f"{path} is read-only in this project" if kind == "readonly" else ""

    # -- in step with the disk ----------------------------------------------------------------------

    def before_turn(self, actor: Actor, *, has_repo: bool = True) -> WorkspaceChange:
        """Bring the entries in line with the disk, and the run's view of them; its manifest is written once.

        Without `has_repo` nothing is looked at, unless a person has added files to this run: those are followed.
        """
        if self.root is None:
            return WorkspaceChange()
        if not has_repo:
            seen = {view.path for view in self._views.views_of(actor.run) if is_file_backed(view.path)}
            return (
                WorkspaceChange()
                if not seen
                else self._sync_files(
                    {path: wanted for path, wanted in self._followed_files().items() if path in seen}, is_all=False
                )
            )
        followed = self._followed_files()
        change = self._sync_files(followed)
        self._show_files(actor, list(followed))
        self._write_manifest(actor)
        return change

    def refresh_files(self, paths: Sequence[str]) -> None:
        """Bring these files in line with the disk, as before something is decided about them; others stay as they are."""
        paths = [path for path in paths if self.has_file(path, PROJECT)]
        known = self._sources.find_known(paths) if paths else {}
        if all(self._is_as_known(path, known.get(path)) for path in paths):
            return
        followed = self._followed_files()
        self._sync_files({path: wanted for path, wanted in followed.items() if path in paths}, is_all=False)
        with self._guard:
            self._remove_gone(followed)

    # -- changes made here ---------------------------------------------------------------------------

    def has_file(self, path: str, scope: str) -> bool:
        """Whether an entry of this path and scope is a file of the workspace, or would be one."""
        return self._disk is not None and scope == PROJECT and _is_plain(path)

    def changed(self, path: str) -> str:
        """Why a file is not as its entry was read from it, also when it is there and not followed; "" when it is."""
        found = self._on_disk(path)
        known = self._sources.find_known([path]).get(path)
        was = known.sha256 if known is not None and known.kept_hash else ""
        now = digest(found[0]) if found is not None else ""
        return "" if was == now else since_proposed(path, was, now)

    def write(self, path: str, content: str | bytes, like: str) -> Callable[[Entry], None]:
        """The file holds this, durably; what notes that with its entry. Conflict when it is not as it was read from."""
        if reason := self.changed(path):
            raise Conflict(reason, hint="look at the file, then ask for the change again")
        like = like if self.has_file(like, PROJECT) else path
        there, model = self._on_disk(path), self._on_disk(like)
        data = content if isinstance(content, bytes) else self._encode_like(content, like, model)
        assert self._disk is not None
        if there is None or there[0] != data:
            looks = self._disk.write(path, data, None if there is None else there[0], model[1].st_mode if model else 0)
        else:
            looks = there[1]
        item = ReadItem(path, None, None, file=f"{self.root}/{path}", mark=mark_of(looks), sha256=digest(data), reader=READER_NAME)
        return lambda entry: self._sources.note_file(item, entry, os.getuid())

    def remove(self, path: str) -> None:
        """The file is gone, durably; nothing when it was. Conflict when it is not as its entry was read from it."""
        found = self._on_disk(path)
        if found is not None:
            if reason := self.changed(path):
                raise Conflict(reason, hint="look at the file, then ask for its removal again")
            assert self._disk is not None
            self._disk.remove(path, found[0])

    def restore(self, old: Entry | None, new: Entry | None) -> None:
        """Have the file of an entry that an undo brought back, changed or took away follow it; Conflict where it cannot."""
        if old is not None and self.has_file(old.path, old.scope) and (new is None or new.path != old.path):
            found = self._on_disk(old.path)
            if found is not None and found[0].removeprefix(codecs.BOM_UTF8) != old.body.encode():
                raise Conflict(since_proposed(old.path, old.hash, digest(found[0])), hint="remove the file yourself")
            if found is not None and self._disk is not None:
                self._disk.remove(old.path, found[0])
        if new is not None and self.has_file(new.path, new.scope) and new.is_textual:
            self.write(new.path, new.body, new.path)(new)

    def _on_disk(self, path: str) -> "tuple[bytes, os.stat_result] | None":
        return None if self._disk is None else self._disk.read(path)

    def _encode_like(self, text: str, like: str, model: "tuple[bytes, os.stat_result] | None") -> bytes:
        """A text as the file `like` has its own: with or without a mark at the beginning. Refused where text is all we know."""
        data, entry = text.encode(), self._entries.find(like, scope=PROJECT)
        if model is None or entry is None or not entry.is_textual or digest(model[0]) != self._source_hash(like):
            return data
        known = self._sources.find_known([like])[like]
        if not known.is_as_read:
            return data  # it was changed here before changes were written
        if model[0] == codecs.BOM_UTF8 + entry.body.encode():
            return codecs.BOM_UTF8 + data
        if model[0] != entry.body.encode():
            raise Refused(f"{like} is known here only as a text that was made of it", hint="change the file itself")
        return data

    def _source_hash(self, path: str) -> str:
        known = self._sources.find_known([path]).get(path)
        return known.sha256 if known is not None else ""

    # -- what a person wants followed ----------------------------------------------------------------

    def sync_fitting(self, path: str, *, is_all: bool) -> list[str]:
        """Bring the followed files in line with the disk, or with `is_all` False those alone that fit; the paths that fit."""
        followed = self._followed_files()
        fitting = {name: wanted for name, wanted in followed.items() if name == path or patterns.compiled(path).matches(name)}
        self._sync_files(followed if is_all else fitting, is_all=is_all)
        return list(fitting)

    def count_new_tokens(self, run: str, paths: Sequence[str]) -> int:
        """The tokens of those of these files that a run does not show yet."""
        shown = {view.path for view in self._views.views_of(run, visibility="visible")}
        return sum(tokens for name, tokens in self._file_sizes(paths) if name not in shown)

    # -- inside --------------------------------------------------------------------------------------

    def _followed_files(self) -> dict[str, ItemToRead]:
        """The files that are followed, by their path in the workspace."""
        if self.root is None or not os.path.isdir(self.root):  # or it may not be looked into
            self._away = (".",)
            return {}
        self._away, rules = (), self.constraints()
        found = dict(self._walk_rules(rules, FileRules(closed=self._closed)))
        if any(rule.kind != "ignore" for rule in rules):  # what would be left out may have been added by name
            everything = self._walk_rules(
                rules, FileRules(has_hidden=True, has_ignored=True, has_secrets=True, closed=self._closed)
            )
            found |= {path: wanted for path, wanted in everything if _kind_of(path, rules)}
        if len(found) > MAX_FOLLOWED:
            LOG.warning("%d files in %s, the first %d are followed", len(found), self.root, MAX_FOLLOWED)
        return dict(sorted(found.items())[:MAX_FOLLOWED])

    def _walk_rules(self, rules: Sequence[Constraint], how: FileRules) -> Iterator[tuple[str, ItemToRead]]:
        counts = SkippedCounts()
        for wanted in walk(str(self.root), how, counts):
            path = os.path.relpath(wanted.file, str(self.root))
            if wanted.problem or wanted.size_bytes > MAX_FILE_BYTES or not _is_plain(path):
                continue
            if _kind_of(path, rules) != "ignore":
                yield path, replace(wanted, ref=path)
        self._away += tuple(os.path.relpath(folder.file, str(self.root)) for folder in counts.problems)

    def _sync_files(self, followed: Mapping[str, ItemToRead], *, is_all: bool = True) -> WorkspaceChange:
        """Read what changed, remove what is gone; an unchanged file is not even opened."""
        with self._guard:
            known = self._sources.find_known(list(followed))
            todo = [wanted for path, wanted in followed.items() if self._is_new(wanted, known.get(path))]
            read = self._read_changed(todo, known) if todo else 0
            removed = self._remove_gone(followed) if is_all else 0
        return WorkspaceChange(read, removed)

    def _is_new(self, wanted: ItemToRead, known: KnownFile | None) -> bool:
        if known is None or not known.kept_hash:
            return not wanted.mark or self._unread.get(wanted.ref) != wanted.mark
        return not wanted.mark or wanted.mark != known.mark

    def _is_as_known(self, path: str, known: KnownFile | None) -> bool:
        """Whether a file looks as it did when it was read, without opening it; one that is not there was never read."""
        try:
            mark = mark_of(os.lstat(f"{self.root}/{path}"))
        except OSError:
            return known is None or not known.kept_hash
        return known is not None and known.mark == mark

    def _read_changed(self, todo: Sequence[ItemToRead], known: Mapping[str, KnownFile]) -> int:
        """Keep what has another content than when it was read; what somebody changed here and not on the disk stays."""
        gather, count = self._gather(), 0
        basket: list[ReadItem] = []
        try:
            for wanted in todo:
                before = known.get(wanted.ref)
                try:
                    item = gather.item(wanted)
                except OwlError as error:
                    LOG.info("not followed: %s: %s", wanted.ref, error)
                    self._unread[wanted.ref] = wanted.mark
                    continue
                if item is None or item.body is None:
                    self._unread[wanted.ref] = wanted.mark
                elif before is not None and before.sha256 == item.sha256:
                    self._sources.looked(item)
                else:
                    basket.append(replace(item, original=None))
                    count += 1
                if len(basket) == BATCH:
                    self._sources.store_items(basket, READER, os.getuid())
                    basket.clear()
            if basket:
                self._sources.store_items(basket, READER, os.getuid())
        finally:
            gather.close()
        return count

    def _remove_gone(self, followed: Mapping[str, ItemToRead]) -> int:
        """Entries of files that are not followed any more go; what never came from the disk, or is away, stays."""
        rows = self._store.rows(
            "SELECT e.path FROM entries e JOIN sources s ON s.entry = e.id "
            "WHERE e.scope = ?1 AND instr(e.path, '://') = 0 AND s.hash = e.hash AND s.file = ?2 || e.path ORDER BY e.path",
            (PROJECT, f"{self.root}/"),
        )
        gone = [str(path) for (path,) in rows if path not in followed and not any(is_within(path, folder) for folder in self._away)]
        for start in range(0, len(gone), BATCH):
            self._entries.mirror([], gone[start : start + BATCH], writer=READER.writer)
        return len(gone)

    # -- what a run sees ----------------------------------------------------------------------------

    def _show_files(self, actor: Actor, paths: Sequence[str]) -> None:
        """The run sees followed files as archived, unless it sees them in another way already."""
        seen = {view.entry for view in self._views.views_of(actor.run)}
        rows = self._store.rows(
            "SELECT id FROM entries WHERE scope = ? AND path IN (SELECT value FROM json_each(?))",
            (PROJECT, json.dumps(list(paths))),
        )
        if new := [int(entry) for (entry,) in rows if entry not in seen]:
            self._views.set_visibility(actor, new, "archived")

    def _write_manifest(self, actor: Actor) -> None:
        """A line for each followed file with what it costs; written once for a run, and never again."""
        scope = f"run:{actor.run}"
        if self._views.find(actor.run, MANIFEST) is not None or self._entries.find(MANIFEST, scope=scope) is not None:
            return
        rows = [view.path for view in self._views.views_of(actor.run) if is_file_backed(view.path) and view.scope == PROJECT]
        text = "".join(f"* {path} - {tokens} tokens\n" for path, tokens in self._file_sizes(rows))
        with self._store.write(run=actor.run, durable=True):
            made = self._entries.put(MANIFEST, Content(body=text), By("system", actor.run), scope=scope)
            self._views.set_visibility(actor, [made.id], "visible")

    def _file_sizes(self, paths: Sequence[str]) -> list[tuple[str, int]]:
        """Files with their tokens, by path; no text is loaded for it."""
        rows = self._store.rows(
            "SELECT path, length(body) FROM entries WHERE scope = ? AND path IN (SELECT value FROM json_each(?)) ORDER BY path",
            (PROJECT, json.dumps(list(paths))),
        )
        return [(str(path), -(-int(letters) // DIVISOR)) for path, letters in rows]


def _kind_of(path: str, rules: Sequence[Constraint]) -> Kind | Literal[""]:
    fitting = (rule.kind for rule in reversed(rules) if rule.pattern == path or patterns.compiled(rule.pattern).matches(path))
    return next(fitting, "")


def _is_plain(path: str) -> bool:
    """Whether a path of the workspace is its own stored path."""
    try:
        return parse_ref(path) == path and scheme_of(path) is None
    except BadInput:
        return False
