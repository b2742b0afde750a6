"""How an entry is written, copied, moved and removed for whoever acts: its row, the file that it is, what its run sees.

The verbs and the tools over drives write through here. What is a file on the disk is changed there first. Checks of who
may write, proposals and log entries are the callers'.
"""

from typing import Literal

from msgspec.structs import asdict, replace

from appliance.errors import BadInput, NotFound
from appliance.knowledge.change_log import By, Verb
from appliance.knowledge.entries import Content, Entries, Entry
from appliance.knowledge.files import Files
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.verb_arguments import FIELDS
from appliance.knowledge.views import Actor, Views
from appliance.text.references import parse_ref, scheme_of


class EntryWrites:
    """Writes entries and the files that they are."""

    def __init__(self, entries: Entries, views: Views, schemes: Schemes, files: Files) -> None:
        self._entries = entries
        self._views = views
        self._schemes = schemes
        self._files = files

    def look_at(self, *refs: str) -> None:
        """Bring the entries of files in line with the disk before they are changed: a command may have written there."""
        if paths := [ref for ref in refs if scheme_of(ref.strip()) is None]:
            self._files.refresh_files([parse_ref(path) for path in paths])

    def put(
        self,
        actor: Actor,
        path: str,
        seen: Entry | None,
        content: Content,
        verb: Verb,
        *,
        scope: str = "",
        like: str = "",
        expected_hash: str | None = None,
        if_exists: Literal["overwrite", "error"] = "overwrite",
    ) -> Entry:
        """Write content where the path lives. What a fork sees of its parent's becomes its own, and what others see stays.

        A file is written before its entry, in the form of the file `like`, its own without one.
        """
        scope, by = scope or self.scope(actor, path), By(actor.tier, actor.run, verb)
        own = self._entries.find(path, scope=scope)
        if own is not None and scope.startswith("run:"):
            self.part(own, actor.run)
        if own is None and seen is not None and seen.scope.startswith("run:"):
            given = {name: value for name, value in asdict(content).items() if value is not None}
            kept = self.whole(seen)
            if "blob" in given or given.get("body", kept.body) != kept.body:
                kept = replace(kept, body=None, blob=None, original=None)  # bytes stay with the text that was read from them
            content = replace(kept, **given)
        given_text = content.body if content.body is not None else content.blob
        is_wanted = expected_hash in (None, own.hash if own else "") and not (own and if_exists == "error")
        noted = None
        if is_wanted and given_text is not None and self._files.has_file(path, scope):
            noted = self._files.write(path, given_text, like or path)
        stored = self._entries.put(path, content, by, scope=scope, expected_hash=expected_hash, if_exists=if_exists)
        if noted is not None:
            noted(stored)
        if actor.run:
            if seen is not None and seen.id != stored.id and seen.scope.startswith("run:"):
                self._views.repoint(actor.run, seen.id, stored.id)
            self._views.wrote(actor, stored.id)
        return stored

    def remove(self, actor: Actor, entry: Entry, verb: Verb = "rm") -> None:
        """Remove an entry for everybody, and the file that it is."""
        if self.is_on_disk(actor, entry.path, entry):
            self._files.remove(entry.path)
        self._entries.remove(entry.path, By(actor.tier, actor.run, verb), scope=entry.scope)

    def carry(self, actor: Actor, verb: Literal["cp", "mv"], source: Entry, target: str, *, is_overwrite: bool = False) -> Entry:
        """Copy or move an entry or a folder's row within its scope; PathConflict for a target that may not be overwritten."""
        by, scope = By(actor.tier, actor.run, verb), source.scope
        if self.is_on_disk(actor, source.path, source) or self._files.has_file(target, scope):
            made = self.put(
                *(actor, target, None, self.whole(source), verb),
                scope=scope,
                like=source.path,
                if_exists="overwrite" if is_overwrite else "error",
            )
            if verb == "mv":
                self.remove(actor, source, verb)
            return self._entries.marks.inherit(made, source)
        act = self._entries.copy if verb == "cp" else self._entries.move
        made = act(source.path, target, by, scope=scope, is_overwrite=is_overwrite)
        if actor.run:
            self._views.wrote(actor, made.id)
        return made

    def whole(self, entry: Entry) -> Content:
        """The whole entry, including the original bytes of its text."""
        known = {name: getattr(entry, name) for name in FIELDS}
        if not entry.is_textual:
            return Content(**known, blob=self._entries.blob(entry))
        try:
            original = self._entries.blob(entry)
        except NotFound:
            original = None
        return Content(**known, body=entry.body, original=original)

    def part(self, entry: Entry, run: str) -> None:
        """Runs that see a run's own entry keep what they saw, as an entry of their own."""
        for other in self._views.watchers(entry.id, beside=run):
            kept = self._entries.put(entry.path, self.whole(entry), By(entry.writer, run, "cp"), scope=f"run:{other}")
            self._views.repoint(other, entry.id, kept.id)

    def scope(self, actor: Actor, path: str) -> str:
        if not actor.run and self._schemes.find_scheme(path).scope == "run":
            raise BadInput(
                f"{path} belongs to a thread, and none is given", hint="name the thread, or use memory:// for what lasts"
            )
        return self._schemes.scope_for(path, actor.run, actor.project)

    def is_on_disk(self, actor: Actor, path: str, entry: Entry | None) -> bool:
        return self._files.has_file(path, entry.scope if entry is not None else self.scope(actor, path))
