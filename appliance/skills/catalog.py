"""The skills that are there: found in folders, watched, mirrored as entries, and listed for prompts and people.

Folders in this order, the first with a name wins: those of the configuration, a person's own (`box/users/ID/skills`), a
group's (`box/groups/ID/skills`), `box/skills`, and those that ship. What is a person's or a group's is seen in that context
alone. Texts are kept as entries (`skill://NAME`, a person's below `skill://user/ID/`), so that the read tool reaches them
wherever they lie. An unchanged file is not read again. Knows nothing about running scripts or installing.
"""

import hashlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

import appliance
from appliance.errors import BadInput, Conflict, NotFound, Refused, TooLarge
from appliance.ingest import watcher
from appliance.knowledge.entries import MAX_BODY_BYTES, Draft, Entries
from appliance.records import Part
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.skills import ranking
from appliance.skills.arguments import has_placeholders, usage_of
from appliance.skills.skill_file import FILE, SCRIPTS, Skill, name_of, parse_skill
from appliance.skills.skill_records import SkillRecord, SkillRecords
from appliance.store import visibility
from appliance.text import markdown
from appliance.text.fences import is_plain

LOG = logging.getLogger(__name__)
SCHEME = "skill://"
WRITER = "skills"
OWN_FOLDER = "skills"
OWNERS = {"users": "user", "groups": "group"}
MOST_LOGGED = 10  # broken files that a log names; `problems` has them all
HINT_CHARS = 72  # of a description in the prompt
LIST_CHARS = 400  # of the whole list in the prompt: with what is always there, at most 150 tokens
MAX_FILE_BYTES = 256 << 10  # of a file beside SKILL.md that is read by path

Mark = tuple[int, int, int]
LEAST_HASH = 16  # digits that a person gives of what they were shown


class FoundSkill(msgspec.Struct, frozen=True):
    """A skill and where it was found. `owner` is "" for everybody's, else `user:ID` or `group:ID`."""

    skill: Skill
    owner: str = ""
    is_bundled: bool = False
    shadows: tuple[str, ...] = ()  # files of the same name that lose against it

    @property
    def ref(self) -> str:
        """The entry that holds its text."""
        kind, _, name = self.owner.partition(":")
        return f"{SCHEME}{kind}/{name}/{self.skill.name}" if self.owner else SCHEME + self.skill.name

    def missing(self, environ: Mapping[str, str]) -> str:
        """What it needs and this box has not, such as "CLI: gh, git; env: TOKEN"; "" when it can be used."""
        path = environ.get("PATH", os.defpath)
        bins = [name for name in self.skill.bins if shutil.which(name, path=path) is None]
        env = [name for name in self.skill.env if not environ.get(name)]
        parts = [f"CLI: {', '.join(bins)}"] if bins else []
        return "; ".join([*parts, f"env: {', '.join(env)}"] if env else parts)


class SkillLine(msgspec.Struct, frozen=True):
    """A skill as lists show it."""

    name: str
    ref: str
    description: str
    always: bool
    missing: str
    path: str
    is_bundled: bool
    is_trusted: bool
    owner: str
    is_reserved: bool
    shadows: tuple[str, ...]
    uses: int
    source: str
    notes: tuple[str, ...] = ()  # lines of its front matter that were read as text
    is_to_prepare: bool = False  # trusted, and its scripts declare packages or variables
    usage: str = ""  # how it is called as `/name`
    waits: bool = False  # it takes words after its name


class LoadCounts(msgspec.Struct, frozen=True):
    """The counts of the last scan of the skill folders."""

    total: int
    loaded: int
    shadowed: int
    failed: int


def bundled() -> Path:
    """Where the skills that ship lie: beside the package in a checkout, else share/owlbox of the environment."""
    checkout = Path(appliance.__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "skills").is_dir():
        return checkout / "skills"
    return Path(sys.prefix) / "share/owlbox/skills"


def read_skill(root: Path, path: Path) -> Skill | None:
    """The skill in a file of `root`, None when there is none; BadInput says why it cannot be used."""
    found = watcher.read_text(root, path, MAX_BODY_BYTES)
    return None if found is None else parse_skill(path, found)


def find_problems(box: Path) -> list[str]:
    """Files of the box that should be skills and why they are not; changes nothing."""
    top, found = box.resolve(), []
    for _, root in _own_roots(top):
        for path in _files(root):
            try:
                read_skill(root, path)
            except (BadInput, Conflict) as error:
                found.append(f"{path.relative_to(top)}: {error.message}")
    return found


def hash_skill(skill: Skill) -> str:
    """The hash that trust in a skill is bound to: of its text and every file of its scripts."""
    digest = hashlib.sha256(skill.text.encode())
    folder = skill.path.with_name(SCRIPTS)
    if skill.path.name.lower() == FILE and folder.is_dir() and not folder.is_symlink():
        for path in sorted(folder.rglob("*")):
            if path.is_symlink():
                digest.update(b"link\0" + os.fsencode(path.relative_to(folder)) + b"\0" + os.fsencode(os.readlink(path)))
            elif path.is_file():
                digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class SkillCatalog:
    """The skills of a home, as the context sees them for which the thread works."""

    def __init__(
        self,
        box: Path,
        entries: Entries,
        records: SkillRecords,
        environ: Mapping[str, str],
        *,
        extra: Sequence[Path] = (),
        trusted: Sequence[str] = (),
        is_enabled: bool = True,
        most: int = 100,
    ) -> None:
        """`trusted` are names that the configuration trusts, whatever their text; `most` is how many one owner may have."""
        self.box = box.resolve()
        self.folder = self.box / OWN_FOLDER
        self.most = most
        self._is_enabled = is_enabled
        self._extra = [folder.resolve() for folder in extra]
        self._ships = bundled().resolve()
        self._entries = entries
        self._records = records
        self._environ = environ
        self._trusted = frozenset(map(name_of, trusted))
        self._guard = threading.Lock()
        self._files: dict[Path, tuple[Mark, Skill | str]] = {}  # what each file said when it looked like this
        self._found: dict[tuple[str, str], FoundSkill] = {}  # by owner and name
        self._hashes: dict[tuple[str, str], str] = {}  # of those that somebody trusts, until the files are looked at again
        self.counts = LoadCounts(0, 0, 0, 0)
        self.reads = 0  # files read so far: an unchanged one is not read again

    # -- files ------------------------------------------------------------------------------------

    def is_skill(self, path: Path) -> bool:
        """True for a file of the box that is a skill: it is mirrored here and not as a note."""
        for _, root in _own_roots(self.box, path):
            parts = path.relative_to(root).parts
            is_folder = len(parts) == 2 and parts[1].lower() == FILE
            return is_folder or (len(parts) == 1 and path.suffix.lower() == ".md")
        return False

    def take(self, paths: Sequence[Path]) -> None:
        """Look at the skills again when one of these paths may be of one."""
        if any(True for path in paths for _ in _own_roots(self.box, path)):
            self.sync()

    def sync(self) -> None:
        """Read what changed and bring the entries in line; reads and writes nothing when nothing changed."""
        # Whoever asks for it: the entries of all contexts are brought in line.
        with visibility.restricted(None), visibility.showing(""), self._guard:
            before, self._files = self._files, {}
            found: dict[tuple[str, str], FoundSkill] = {}
            for owner, root in self._roots():
                count = 0
                for path in _files(root):
                    skill = self._read(root, path, before)
                    if not isinstance(skill, Skill):
                        continue
                    count += root not in (self._ships, *self._extra)
                    if count > self.most:
                        said = f"{owner or 'box/skills'} has {self.most} skills already, the most that there may be"
                        self._files[path] = (self._files[path][0], said)
                        continue
                    key = (owner, skill.name)
                    if key in found:
                        found[key] = replace(found[key], shadows=(*found[key].shadows, str(path)))
                    else:
                        found[key] = FoundSkill(skill, owner, root == self._ships)
            self._found = dict(sorted(found.items()))
            failed = sum(isinstance(said, str) for _, said in self._files.values())
            lost = sum(len(one.shadows) for one in found.values())
            self.counts = LoadCounts(len(self._files), len(found), lost, failed)
            self._hashes = {}
            self._mirror()

    @property
    def has_outside(self) -> bool:
        """Whether there are folders outside of the box, which nobody watches."""
        return bool(self._extra) and self._is_enabled

    def rescan(self) -> bool:
        """Look at the folders again; whether a file of them changed. Only a changed one is read."""
        with self._guard:
            known = {path: mark for path, (mark, _) in self._files.items()}
            is_changed = known != {path: mark for _, root in self._roots() for path in _files(root) if (mark := _mark_of(path))}
            if not is_changed:
                self._hashes = {}  # scripts may have changed, which ends trust
        if is_changed:
            self.sync()
        return is_changed

    @property
    def problems(self) -> list[str]:
        """Files that should be skills and are not, and why."""
        with self._guard:
            return [f"{path}: {said}" for path, (_, said) in sorted(self._files.items()) if isinstance(said, str)]

    @method("skill.skipped", access="all")
    def skipped(self) -> list[str]:
        """Files that should be skills of the present context and are not, and why."""
        context = visibility.current()
        roots = [root for owner, root in self._roots() if not owner or owner == context]
        with self._guard:
            known = [(path, said) for path, (_, said) in sorted(self._files.items()) if isinstance(said, str)]
        return [f"{path}: {said}" for path, said in known if any(path.is_relative_to(root) for root in roots)]

    # -- what the present context sees -----------------------------------------------------------

    def visible(self) -> list[FoundSkill]:
        """The skills of the present context by name; its own ones shadow everybody's."""
        context = visibility.current()
        seen: dict[str, FoundSkill] = {}
        with self._guard:
            extra = {name for (owner, name), one in self._found.items() if not owner and self._is_extra(one)}
            for (owner, name), one in self._found.items():
                if owner and owner != context:
                    continue
                if owner and name in extra:
                    continue
                if owner and name in seen:
                    one = replace(one, shadows=(*one.shadows, str(seen[name].skill.path)))
                seen[name] = one
        return [seen[name] for name in sorted(seen)]

    def get(self, name: str) -> FoundSkill:
        """One skill by its name or reference; NotFound names those there are."""
        wanted = name_of(name.removeprefix(SCHEME).rpartition("/")[2])
        found = self.visible()
        for one in found:
            if one.skill.name == wanted:
                return one
        for said in self.skipped():
            path = Path(said.partition(": ")[0])
            if wanted and wanted == name_of(path.parent.name if path.name.lower() == FILE else path.stem):
                raise BadInput(f"the skill {wanted} is skipped: {said.partition(': ')[2]}", hint=f"mend {path}")
        names = ", ".join(one.skill.name for one in found[:30])
        hint = f"there are {names}{' and more' if len(found) > 30 else ''}" if names else "none exists yet: skill_write makes one"
        raise NotFound(f"no skill {wanted or name!r}", hint=hint)

    def read_file(self, name: str, path: str) -> str:
        """A text file beside a skill's SKILL.md; Refused for a path that leaves its folder."""
        one = self.get(name)
        root = one.skill.path.parent
        parts = path.split("/")
        if one.skill.path.name.lower() != FILE or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise Refused(f"{path} is not a file of the skill {one.skill.name}", hint="name one such as references/x.md")
        found = watcher.read_text(root, root.joinpath(*parts), MAX_FILE_BYTES)
        if found is None:
            raise NotFound(f"the skill {one.skill.name} has no file {path}")
        return found

    def search(self, query: str, top_k: int = 10) -> list[ranking.SkillHit]:
        """The best skills for some words, best first."""
        return ranking.search_skills([one.skill for one in self.visible()], query, top_k)

    def describe(self, one: FoundSkill) -> SkillLine:
        """A skill as lists show it."""
        skill, record = one.skill, self._record(one)
        return SkillLine(
            name=skill.name,
            ref=one.ref,
            description=skill.description,
            always=skill.is_always,
            missing=one.missing(self._environ),
            path=str(skill.path),
            is_bundled=one.is_bundled,
            is_trusted=self.is_trusted(one),
            owner=one.owner,
            is_reserved=skill.is_reserved,
            shadows=one.shadows,
            uses=record.uses,
            source=record.source,
            notes=skill.notes,
            is_to_prepare=bool(skill.packages or skill.script_env) and self.is_trusted(one),
            usage=usage_of(skill),
            waits=bool(skill.arguments) or has_placeholders(skill),
        )

    @method("skill.list", access="all")
    def listing(
        self,
        owner: Annotated[str, "as this one sees them: user:ID or group:ID; empty for you"] = "",
        query: Annotated[str, "only what these words find, best first"] = "",
        limit: Annotated[int, Range(1, 1000), "how many of those"] = 10,
    ) -> list[SkillLine]:
        """Every skill by name; `missing` says why one cannot be used."""
        with visibility.showing(owner or visibility.current()):
            found = [self.get(hit.skill.name) for hit in self.search(query, limit)] if query.strip() else self.visible()
            return [self.describe(one) for one in found]

    def is_ours(self, name: str) -> bool:
        """Whether a skill ships or is trusted: any other one, somebody else may have written."""
        return any(one.skill.name == name and self.is_trusted(one) for one in self.visible())

    def everybodys(self) -> list[Skill]:
        """Every skill, whoever may see it."""
        with self._guard:
            return [one.skill for one in self._found.values()]

    def scripts(self, name: str) -> Path | None:
        """The folder of a skill's scripts; None for a skill that is not there or has none."""
        one = next((one for one in self.visible() if one.skill.name == name), None)
        folder = one.skill.path.with_name(SCRIPTS) if one is not None and one.skill.path.name.lower() == FILE else None
        return folder if folder is not None and folder.is_dir() and not folder.is_symlink() else None

    def lines(self) -> list[str]:
        """The list for a prompt, as XML: the most used ones with a description, the rest by name, cut to fit together.

        A skill that nobody trusts is listed by its name, where that is too short for an order: what it says of itself
        would be a stranger's words in every prompt.
        """
        skills = [one for one in self.visible() if not one.skill.is_always]
        skills = [one for one in skills if self.is_trusted(one) or is_plain(one.skill.name)]
        # Those that can be used first, then what is used most, then what the person has over what ships.
        skills.sort(key=lambda one: (bool(one.missing(self._environ)), -self._record(one).uses, one.is_bundled, one.skill.name))
        elements: list[str] = []
        size = 0
        for one in skills:
            elements.append(self._element(one))
            size += len(elements[-1]) + 1
            if size > LIST_CHARS:  # whatever follows does not fit either
                break
        for whole in range(len(elements), -1, -1):
            lines = [*elements[:whole], *_names_element(skills[whole:])]
            if sum(map(len, lines)) + len(lines) <= LIST_CHARS:
                return lines
        room = LIST_CHARS - 60
        kept: list[FoundSkill] = []
        for one in skills:
            room -= len(one.skill.name) + 1
            if room < 0:
                break
            kept.append(one)
        return [*_names_element(kept), f"and {len(skills) - len(kept)} more: search finds them"]

    def always(self) -> list[Part]:
        """The skills that are in the prompt whole: those that can be used and are trusted."""
        return [
            Part(f"skill {one.skill.name}", one.skill.body)
            for one in self.visible()
            if one.skill.is_always and self.is_trusted(one) and not one.missing(self._environ)
        ]

    # -- trust and use ----------------------------------------------------------------------------

    def is_trusted(self, one: FoundSkill) -> bool:
        """Whether a skill ships, is named by the configuration, or has the text that somebody trusted."""
        if one.is_bundled or one.skill.name in self._trusted:
            return True
        if not (trusted := self._record(one).trusted_hash):
            return False
        key = (one.owner, one.skill.name)
        with self._guard:
            if key not in self._hashes:
                self._hashes[key] = hash_skill(one.skill)
            return self._hashes[key] == trusted

    def trust(self, name: str, by: str, shown: str | None = None) -> FoundSkill:
        """Trust a skill as it is now; any change of its text or scripts ends that.

        With `shown`, the hash of what a person saw or its first digits, a Conflict when it is another by now.
        """
        one = self.get(name)
        text_hash = hash_skill(one.skill)
        if shown is not None and (len(shown) < LEAST_HASH or not text_hash.startswith(shown)):
            hint = f"read it: owlbox skill show {name} says its hash"
            raise Conflict(f"{shown!r} is not the hash of {name} as it is now: it is not trusted", hint=hint)
        with self._guard:
            self._hashes[one.owner, one.skill.name] = text_hash
        self._records.trust(one.owner, one.skill.name, text_hash, by)
        return one

    def distrust(self, name: str, by: str) -> FoundSkill:
        """End the trust in a skill."""
        one = self.get(name)
        self._records.trust(one.owner, one.skill.name, "", by)
        return one

    def set_source(self, one: FoundSkill, source: str) -> None:
        """Remember where a skill came from."""
        self._records.set_source(one.owner, one.skill.name, source)

    def count_use(self, one: FoundSkill) -> None:
        """Remember that a skill was read or called."""
        self._records.count_use(one.owner, one.skill.name)

    def folder_of(self, owner: str) -> Path:
        """Where an owner's skills are written."""
        kind, _, name = owner.partition(":")
        if not owner:
            return self.folder
        if kind not in OWNERS.values() or not name or name.startswith(".") or "/" in name or not _is_owner(name):
            raise BadInput(f"{owner!r} is neither user:ID nor group:ID")
        return self.box / f"{kind}s" / name / OWN_FOLDER

    def require_room(self, owner: str) -> None:
        """Refused when an owner has as many skills as one may have."""
        with self._guard:
            count = sum(key[0] == owner and not one.is_bundled for key, one in self._found.items())
        if not self._is_enabled:
            raise Refused("skills are switched off", hint="set skills.enabled = true")
        if count >= self.most:
            raise Refused(f"{owner or 'the box'} has {count} skills already", hint="remove one: owlbox skill remove NAME")

    # -- inside -----------------------------------------------------------------------------------

    def _roots(self) -> list[tuple[str, Path]]:
        """Folders with their owners, those that win first."""
        if not self._is_enabled:
            return []
        own = [(owner, root) for owner, root in _own_roots(self.box) if owner]
        return [*(("", root) for root in self._extra), *own, ("", self.folder), ("", self._ships)]

    def _is_extra(self, one: FoundSkill) -> bool:
        return self._is_outside(one.skill.path)

    def _is_outside(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self._extra)

    def _record(self, one: FoundSkill) -> SkillRecord:
        """What is remembered of it now: another process may have changed it."""
        return self._records.get(one.owner, one.skill.name)

    def _element(self, one: FoundSkill) -> str:
        skill, missing = one.skill, one.missing(self._environ)
        text = _shortened(skill.description, HINT_CHARS) if self.is_trusted(one) else ""
        facts = {"available": "false" if missing else "true", "name": skill.name, "location": one.ref}
        if missing:
            facts["requires"] = missing
        head = "<skill" + "".join(f' {name}="{escape(value)}"' for name, value in facts.items())
        return f"{head}>{escape(text, quote=False)}</skill>" if text else f"{head}/>"

    def _read(self, root: Path, path: Path, before: "dict[Path, tuple[Mark, Skill | str]]") -> Skill | str | None:
        mark = _mark_of(path)
        if mark is None:
            return None
        said: Skill | str | None
        if path in before and before[path][0] == mark:
            said = before[path][1]
        else:
            self.reads += 1
            try:
                said = read_skill(root, path)
            except Conflict:
                said = None  # it is told again when it rests
            except (BadInput, TooLarge) as error:
                said = error.message
                if sum(isinstance(one, str) for _, one in self._files.values()) < MOST_LOGGED:
                    LOG.warning("not a skill: %s: %s", path, said)
        if said is not None:
            self._files[path] = (mark, said)
        return said

    def _mirror(self) -> None:
        """Entries for the skills there are; call with the guard held."""
        wanted = {one.ref: one for one in self._found.values()}
        before = self._entries.attributes(SCHEME)
        drafts = []
        for ref, one in wanted.items():
            skill = one.skill
            attributes = {"is_document": True, "path": str(skill.path), "mark": list(self._files[skill.path][0])}
            if before.get(ref) != attributes:
                drafts.append(Draft(ref, markdown.title(skill.body) or skill.name, skill.text, attributes, one.owner))
        gone = [ref for ref, given in before.items() if ref not in wanted and "mark" in given]
        if drafts or gone:
            self._entries.mirror(drafts, gone, writer=WRITER)
            LOG.info("skills read", extra={"changed": [d.path for d in drafts], "removed": gone})


def _mark_of(path: Path) -> Mark | None:
    """Inode, size and modification time of a file; None when it is gone."""
    try:
        info = path.lstat()
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns


def _shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 2].rsplit(" ", 1)[0] + " …"


def _names_element(skills: Sequence[FoundSkill]) -> list[str]:
    return [f"<skills>{' '.join(escape(one.skill.name, quote=False) for one in skills)}</skills>"] if skills else []


def _own_roots(box: Path, path: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Folders of skills below the box with their owners; with `path`, only the one that it lies in."""
    if path is not None:
        parts = path.relative_to(box).parts if path.is_relative_to(box) else ()
        if len(parts) > 1 and parts[0] == OWN_FOLDER:
            yield "", box / OWN_FOLDER
        elif len(parts) > 3 and parts[0] in OWNERS and parts[2] == OWN_FOLDER and _is_owner(parts[1]):
            yield f"{OWNERS[parts[0]]}:{parts[1]}", box.joinpath(*parts[:3])
        return
    for folder, kind in OWNERS.items():
        try:
            names = sorted(entry.name for entry in os.scandir(box / folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        for name in names:
            if not watcher.is_ignored(name) and _is_owner(name) and (box / folder / name / OWN_FOLDER).is_dir():
                yield f"{kind}:{name}", box / folder / name / OWN_FOLDER
    yield "", box / OWN_FOLDER


def _is_owner(name: str) -> bool:
    """Whether the name of a folder can be that of a person or group: it stands in references of what lies there."""
    return name.isprintable()


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
