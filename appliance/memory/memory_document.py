"""MEMORY.md as the face of memory: what is a list item there is a record, and the records follow when it is edited.

Each owner has one: `box/MEMORY.md` for everybody, `box/users/ID/MEMORY.md`, `box/groups/ID/MEMORY.md`. A line `- text` below a
heading is a record of that topic. An item that is new is remembered, one that was changed brings its record up to date,
one that was removed is forgotten; records that were never in the file stay as they are. When such a record is changed or
forgotten elsewhere, its line follows. Headings, other text and comments are the person's and are never touched. Nothing is
read from a file that somebody else could have written.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from msgspec import Struct

from appliance.errors import BadInput, Conflict, OwlError
from appliance.ingest import watcher
from appliance.ingest.workspace_files import WorkspaceFiles
from appliance.knowledge.change_log import By
from appliance.memory.memories import EVERYBODY, Memories
from appliance.memory.memory_record import MemoryRecord, topic_folder
from appliance.runtime import trusted_files
from appliance.text import markdown

LOG = logging.getLogger(__name__)
NAME = "MEMORY.md"
SOURCE = "MEMORY.md"
LISTED = "is_listed"  # of a record's attributes: it stands in the file
MAX_BYTES = 256 << 10
ITEM = re.compile(r"^(\s{0,3}[-*+]\s+)(\S.*)$")
HEADING = re.compile(r"^#{1,6}\s+(.*)$")
NEAR = 0.6  # share of equal text from which a changed line is the same record
KINDS = {"users": "user", "groups": "group"}


class DocumentItem(Struct, frozen=True):
    """A list item of the file. `line` counts from 0."""

    text: str
    topic: str
    line: int


class MemoryDocument:
    """Keeps files and records in line."""

    def __init__(self, box: Path, memories: Memories) -> None:
        self._box = box.resolve()
        self._memories = memories
        self._files = WorkspaceFiles(self._box)

    def take(self, paths: Sequence[Path]) -> None:
        """Look at the files of memory among these paths that changed."""
        for owner in dict.fromkeys(owner for path in paths if (owner := self.owner_of(path)) is not None):
            try:
                self.sync(owner)
            except OwlError as error:
                LOG.warning("memory of %s is left as it is: %s", owner or "everybody", error)

    def owner_of(self, path: Path) -> str | None:
        """The owner of a memory file, None for any other file."""
        parts = path.relative_to(self._box).parts if path.is_relative_to(self._box) else ()
        if parts == (NAME,):
            return EVERYBODY
        if len(parts) == 3 and parts[0] in KINDS and parts[2] == NAME:
            return f"{KINDS[parts[0]]}:{parts[1]}"
        return None

    def sync(self, owner: str = EVERYBODY) -> tuple[int, int, int]:
        """Bring the records in line with the file; how many are new, changed and forgotten. Nothing without the file."""
        path = self._path_of(owner)
        if why := trusted_files.problem(path, home=self._box.parent):
            raise BadInput(f"{path} is not read: {why}")
        try:
            found = watcher.read_text(self._box, path, MAX_BYTES)
        except Conflict:
            return 0, 0, 0  # it is told again when it rests
        if found is None:
            return 0, 0, 0
        items = list(read_items(found))
        records = {one.id: one for one in self._memories.listed(owner, LISTED)}
        left = dict(records)
        unmatched: list[DocumentItem] = []
        for item in items:
            same = next((one for one in left.values() if one.text == item.text), None)
            if same is not None:
                del left[same.id]
            else:
                unmatched.append(item)
        added = changed = 0
        for item in unmatched:
            before = _nearest(item, list(left.values()))
            if before is not None:
                del left[before.id]
                self._memories.rewrite(owner, before.id, item.text, By("folder"))
                changed += 1
            else:
                more = {LISTED: True}
                self._memories.write(owner, item.text, topic=item.topic, source=SOURCE, by=By("folder"), attributes=more)
                added += 1
        for gone in left.values():
            self._memories.forget(owner, gone.id)
        return added, changed, len(left)

    def replace_line(self, owner: str, before: str, after: str = "") -> bool:
        """Change the line of a record that was changed elsewhere, remove it with `after` ""; whether there was one."""
        path = self._path_of(owner)
        place = str(path.relative_to(self._box))
        seen = self._files.read(place)
        if seen is None:
            return False
        text = seen[0].decode("utf-8", "strict")
        lines = text.split("\n")
        item = next((one for one in read_items(text) if one.text == before), None)
        if item is None:
            return False
        found = ITEM.match(lines[item.line].rstrip("\r"))
        lines[item.line : item.line + 1] = [f"{found[1] if found else '- '}{' '.join(after.split())}"] if after else []
        self._files.write(place, "\n".join(lines).encode(), seen[0], seen[1].st_mode)
        return True

    def _path_of(self, owner: str) -> Path:
        kind, _, name = owner.partition(":")
        return self._box / f"{kind}s" / name / NAME if owner else self._box / NAME


def read_items(text: str) -> Iterator[DocumentItem]:
    """The list items of a document with their topics; those of comments, code and front matter are left out."""
    plain = text.replace("\r\n", "\n")
    # The same number of lines, so that an item's line is that of the file.
    plain = markdown.COMMENT.sub(lambda found: "\n" * found[0].count("\n"), plain)
    topic, is_code, is_front = "", False, plain.startswith("---\n")
    for number, line in enumerate(plain.split("\n")):
        if is_front:
            is_front = number == 0 or line.strip() != "---"
        elif line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif is_code:
            continue
        elif found := HEADING.match(line):
            topic = topic_name(found[1].rstrip("#").rstrip())
        elif found := ITEM.match(line):
            yield DocumentItem(" ".join(found[2].split()), topic, number)


def topic_name(heading: str) -> str:
    """The topic that a heading names, "" for the title of the document itself."""
    try:
        folder = topic_folder(heading.replace("/", " ").replace("\\", " ").replace("..", " ")[:100])
    except BadInput:
        return ""
    return "" if folder == "memory" else folder


def _nearest(item: DocumentItem, records: Sequence[MemoryRecord]) -> MemoryRecord | None:
    """The record of which an item is most likely a change."""
    rated = [(SequenceMatcher(None, item.text, one.text, autojunk=False).ratio(), one.id, one) for one in records[:200]]
    best = max(rated, default=None, key=lambda row: row[:2])
    return best[2] if best is not None and best[0] >= NEAR else None
