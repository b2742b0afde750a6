"""Skills: a folder with SKILL.md (or a lone NAME.md) that tells the owl how to do something.

Finds them in the configured folders, then in box/skills, then among the bundled ones: the first with a
name wins. Keeps their texts as `skill://NAME` entries, so that the read tool reaches them wherever they
lie, and gives the prompt one line each. Knows nothing about running scripts, arguments or people.
"""

import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import appliance
from appliance.errors import BadInput, Conflict
from appliance.ingest import watcher
from appliance.knowledge.entries import MAX_BODY_BYTES, Draft, Entries
from appliance.records import Part
from appliance.runtime.methods import method
from appliance.text import markdown
from appliance.text.fences import is_plain

LOG = logging.getLogger(__name__)
SCHEME = "skill://"
SCRIPTS = "scripts"  # of a skill, beside its text
WRITER = "skills"
FILE = "skill.md"  # any case
MAX_NAME = 64
HINT_CHARS = 72  # of a description in the prompt
LINES_CHARS = 420  # of all lines together: about 140 tokens


@dataclass(frozen=True)
class Skill:
    """One skill as its file describes it."""

    name: str
    description: str
    text: str
    path: Path
    is_always: bool = False
    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    is_bundled: bool = False

    @property
    def body(self) -> str:
        """The text without front matter."""
        return markdown.split(self.text)[1].strip()

    def missing(self, environ: Mapping[str, str]) -> str:
        """What it needs and this box has not, such as "CLI: gh, git; ENV: TOKEN"; "" when it can be used."""
        bins = [name for name in self.bins if shutil.which(name, path=environ.get("PATH", os.defpath)) is None]
        env = [name for name in self.env if not environ.get(name)]
        parts = [f"CLI: {', '.join(bins)}"] if bins else []
        return "; ".join([*parts, f"ENV: {', '.join(env)}"] if env else parts)


def bundled() -> Path:
    """Where the skills that ship lie: beside the package in a checkout, else share/owlbox of the environment."""
    checkout = Path(appliance.__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "skills").is_dir():
        return checkout / "skills"
    return Path(sys.prefix) / "share/owlbox/skills"


def name_of(word: str) -> str:
    """The canonical name: lower case, `[a-z0-9-]` only; "" when nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:MAX_NAME].strip("-")


def read_skill(root: Path, path: Path) -> Skill | None:
    """The skill in a file of `root`, None when there is none; BadInput says why it cannot be used."""
    found = watcher.read_text(root, path, MAX_BODY_BYTES)
    if found is None:
        return None
    word = path.parent.name if path.name.lower() == FILE else path.stem
    name = name_of(word)
    if not name:
        raise BadInput(f"{word!r} has no letter or digit to name a skill by")
    front, body = markdown.split(found.text)
    if name_of(str(front.get("name", name))) != name:
        raise BadInput(f"its front matter calls it {front['name']!r}, its folder {name!r}", hint="make them equal")
    if not body.strip():
        raise BadInput("it says nothing")
    needs = front.get("requires") or {}
    if not isinstance(needs, dict):
        raise BadInput(f"requires must be a table with bins and env, not {needs!r}")
    return Skill(
        name=name,
        description=" ".join(str(front.get("description") or "").split()),
        text=found.text,
        path=path,
        is_always=front.get("always") is True,
        bins=_names(needs, "bins"),
        env=_names(needs, "env"),
    )


def _names(needs: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = needs.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise BadInput(f"requires.{key} must be a list of names, not {value!r}")
    return tuple(value)


def check(box: Path) -> list[str]:
    """Files of box/skills that should be skills and why they are not; changes nothing."""
    root = box.resolve() / "skills"
    found = []
    for path in _files(root):
        try:
            read_skill(root, path)
        except (BadInput, Conflict) as error:
            found.append(f"skills/{path.relative_to(root)}: {error.message}")
    return found


class Skills:
    """The skills of a home. Skills port: `lines`."""

    def __init__(
        self,
        box: Path,
        rows: Entries,
        environ: Mapping[str, str],
        *,
        more: Sequence[Path] = (),
        trusted: Sequence[str] = (),
        is_enabled: bool = True,
    ) -> None:
        """`trusted` are names of skills that count as the house's own, whoever wrote them."""
        self.folder = box.resolve() / "skills"
        self._ships = bundled().resolve()
        self._roots = [*(folder.resolve() for folder in more), self.folder, self._ships] if is_enabled else []
        self._entries = rows
        self._environ = environ
        self._trusted = frozenset(map(name_of, trusted))
        self._guard = threading.Lock()
        self._files: dict[Path, tuple[tuple[int, int, int], Skill | str]] = {}  # what each file said when it looked like this
        self._skills: dict[str, Skill] = {}
        self.reads = 0  # files read so far: an unchanged one is not read again

    def is_skill(self, path: Path) -> bool:
        """True for a file of box/skills that is a skill: it is mirrored here and not as a note."""
        if not path.is_relative_to(self.folder):
            return False
        parts = path.relative_to(self.folder).parts
        is_folder = len(parts) == 2 and parts[1].lower() == FILE
        return is_folder or (len(parts) == 1 and path.suffix.lower() == ".md")

    def take(self, paths: Sequence[Path]) -> None:
        """Look at the skills again when one of these paths may be of one."""
        if any(path.is_relative_to(self.folder) for path in paths):
            self.sync()

    def sync(self) -> None:
        """Read what changed and bring the entries in line; reads and writes nothing when nothing changed."""
        with self._guard:
            before, self._files = self._files, {}
            found: dict[str, Skill] = {}
            for root in self._roots:
                for path in _files(root):
                    skill = self._read(root, path, before)
                    if isinstance(skill, Skill):
                        found.setdefault(skill.name, skill)
            self._skills = dict(sorted(found.items()))
            self._mirror()

    @method("skill.list", access="all")
    def listing(self) -> list[dict[str, Any]]:
        """Every skill by name; `missing` says why one cannot be used."""
        with self._guard:
            skills = list(self._skills.values())
        return [
            {
                "name": s.name,
                "ref": SCHEME + s.name,
                "description": s.description,
                "always": s.is_always,
                "missing": s.missing(self._environ),
                "path": str(s.path),
                "is_bundled": s.is_bundled,
            }
            for s in skills
        ]

    def is_ours(self, name: str) -> bool:
        """Whether a skill came with the owl, or is trusted by name: any other one, somebody else may have written."""
        with self._guard:
            found = self._skills.get(name)
        return found is not None and self._is_ours(found)

    def scripts(self, name: str) -> Path | None:
        """The folder of a skill's scripts; None for a skill that is not there or has none."""
        with self._guard:
            found = self._skills.get(name)
        folder = found.path.with_name(SCRIPTS) if found is not None and found.path.name.lower() == FILE else None
        return folder if folder is not None and folder.is_dir() and not folder.is_symlink() else None

    def strange_always(self) -> tuple[str, ...]:
        """Skills from elsewhere whose text stands in every prompt."""
        with self._guard:
            return tuple(s.name for s in self._skills.values() if s.is_always and not self._is_ours(s))

    def _is_ours(self, skill: Skill) -> bool:
        return skill.is_bundled or skill.name in self._trusted

    @property
    def problems(self) -> list[str]:
        """Files that should be skills and are not, and why."""
        with self._guard:
            return [f"{path}: {said}" for path, (_, said) in sorted(self._files.items()) if isinstance(said, str)]

    def lines(self) -> list[str]:
        """One line for each skill that can be used and is not in the prompt whole, cut to fit together.

        Of one from elsewhere its name, where that is too short for an order: what it says of itself marks who reads it.
        """
        skills = [s for s in self._usable() if not s.is_always and (self._is_ours(s) or is_plain(s.name))]
        for chars in (HINT_CHARS, 48, 24, 0):
            lines = [_line(s, chars if self._is_ours(s) else 0) for s in skills]
            if sum(map(len, lines)) + len(lines) <= LINES_CHARS:
                return lines
        kept, room = [], LINES_CHARS
        for line in lines:
            room -= len(line) + 1
            if room < 40:
                break
            kept.append(line)
        return [*kept, f"and {len(lines) - len(kept)} more: search finds them"]

    def always(self) -> list[Part]:
        """The skills that are in the prompt whole."""
        return [Part(f"skill {s.name}", s.body) for s in self._usable() if s.is_always]

    def _usable(self) -> list[Skill]:
        with self._guard:
            skills = list(self._skills.values())
        return [s for s in skills if not s.missing(self._environ)]

    def _read(self, root: Path, path: Path, before: "dict[Path, tuple[tuple[int, int, int], Skill | str]]") -> Skill | str | None:
        try:
            info = path.lstat()
        except OSError:
            return None
        mark = (info.st_ino, info.st_size, info.st_mtime_ns)
        said: Skill | str | None
        if path in before and before[path][0] == mark:
            said = before[path][1]
        else:
            self.reads += 1
            try:
                said = read_skill(root, path)
            except Conflict:
                said = None  # it is told again when it rests
            except BadInput as error:
                said = error.message
                LOG.warning("not a skill: %s: %s", path, said)
        if isinstance(said, Skill) and root == self._ships:
            said = replace(said, is_bundled=True)
        if said is not None:
            self._files[path] = (mark, said)
        return said

    def _mirror(self) -> None:
        """Entries for the skills there are; call with the guard held."""
        wanted = {SCHEME + name: skill for name, skill in self._skills.items()}
        before = self._entries.attributes(SCHEME)
        drafts = []
        for ref, skill in wanted.items():
            attributes = {"is_document": True, "path": str(skill.path), "mark": list(self._files[skill.path][0])}
            if before.get(ref) != attributes:
                drafts.append(Draft(ref, markdown.title(skill.body) or skill.name, skill.text, attributes))
        gone = [ref for ref, given in before.items() if ref not in wanted and "mark" in given]
        if drafts or gone:
            self._entries.mirror(drafts, gone, writer=WRITER)
            LOG.info("skills read", extra={"changed": [d.path for d in drafts], "removed": gone})


def _line(skill: Skill, chars: int) -> str:
    """`name: description`, the description cut to so many characters."""
    text = skill.description
    if len(text) > chars:
        text = text[: max(0, chars - 2)].rsplit(" ", 1)[0] + " …" if chars else ""
    return f"- {skill.name}: {text}" if text else f"- {skill.name}"


def _files(root: Path) -> Iterator[Path]:
    """Files of a folder that may be skills, folders first: a folder shadows a lone file of its name."""
    lone = []
    try:
        found = sorted(root.iterdir())
    except OSError:
        return
    for path in found:
        if watcher.is_ignored(path.name) or not watcher.is_text(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            try:
                yield from (inner for inner in sorted(path.iterdir()) if inner.name.lower() == FILE)
            except OSError as error:
                LOG.warning("skill folder left out: %s", error)
        elif path.suffix.lower() == ".md" and path.stem.lower() != "readme":
            lone.append(path)
    yield from lone
