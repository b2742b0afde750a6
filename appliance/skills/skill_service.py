"""What people and models do with skills: look at them, write, install, trust and remove them, and call them by name.

Whose skill it is: with one person on the box everything is written to `box/skills`. Where several people talk, what is
written in a person's conversation is that person's; a group's and everybody's are written by admins alone. Every change is
noted in the audit log with who made it. What a skill is called with is put into its text here, so that every client does the same.
"""

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, TypedDict

from appliance.errors import BadInput, Conflict, NotFound, Refused
from appliance.ingest.workspace_files import WorkspaceFiles
from appliance.policy.audit_log import Ledger
from appliance.runtime import paths
from appliance.runtime.methods import Call, method
from appliance.runtime.users import caller_name
from appliance.sandbox import folder_tree
from appliance.skills import editing, front_matter
from appliance.skills.arguments import render, short_form, usage_of
from appliance.skills.catalog import FoundSkill, SkillCatalog, SkillLine, hash_skill
from appliance.skills.environments import remove_unused
from appliance.skills.package import PackageFile, SkillPackage, check_files, choose
from appliance.skills.review import ReviewFinding, review
from appliance.skills.skill_file import RESERVED, Argument, Skill, find_field_faults, name_of, parse_skill
from appliance.store import visibility
from appliance.text.edits import LinePatch

Name = Annotated[str, "the skill's name, as `skill list` shows it"]
Whose = Annotated[str, "whose to look among: user:ID or group:ID; empty for those that you see"]
Owner = Annotated[str, "whose it is to be: user:ID or group:ID; empty for everybody's, or your own where several people talk"]
PROGRAM_MODE = 0o755
PLAIN_MODE = 0o644


class SkillView(TypedDict):
    """A skill with its text and the names of its other files."""

    skill: SkillLine
    text: str
    files: list[str]
    usage: str
    hash: str  # of its text and its scripts


class Short(TypedDict):
    """What is asked in place of the text of a model that cannot follow steps: the first of the sentences that it can."""

    sentences: list[str]
    instruction: str


class Called(TypedDict):
    """The text that a model receives for `/name words`."""

    name: str
    text: str
    is_trusted: bool
    short: Short


class Reviewed(TypedDict):
    """A package, read and judged but not installed."""

    name: str
    description: str
    findings: list[ReviewFinding]
    files: dict[str, int]
    replaces: str


class SkillService:
    """Skills for people and models."""

    def __init__(self, skills: SkillCatalog, ledger: Ledger, people: Callable[[], int], environments: Path) -> None:
        """`people` says how many people and groups talk here; `environments` is where packages of skills are installed."""
        self._skills = skills
        self._ledger = ledger
        self._people = people
        self._environments = environments

    # -- looking ----------------------------------------------------------------------------------

    @method("skill.view", access="all")
    def view(
        self, name: Name, path: Annotated[str, "a file beside it, such as references/x.md"] = "", owner: Whose = ""
    ) -> SkillView:
        """A skill's text, or that of a file beside it."""
        with _seen_by(owner):
            one = self._skills.get(name)
            text = self._skills.read_file(name, path) if path else one.skill.text
        known = hash_skill(one.skill)
        return SkillView(skill=self._skills.describe(one), text=text, files=_files_of(one), usage=usage_of(one.skill), hash=known)

    @method("skill.call", access="all")
    def call(self, name: Name, words: Annotated[str, "what was typed after the name"] = "") -> Called:
        """The text that a model is given for `/name words`; the usage where a required word is missing."""
        if name.lower() in RESERVED:
            raise BadInput(f"/{name.lower()} is a command of its own", hint="rename the skill", outcome="reserved_name")
        one = self._skills.get(name.lower())
        if missing := self._skills.describe(one).missing:
            raise Refused(f"/{one.skill.name} cannot be used here: it needs {missing}", hint="install or set that first")
        text = render(one.skill, words)
        self._skills.count_use(one)
        form = short_form(one.skill, words)
        short = Short(sentences=list(form.sentences), instruction=form.instruction)
        return Called(name=one.skill.name, text=text, is_trusted=self._skills.is_trusted(one), short=short)

    def refresh(self) -> None:
        """Take what was edited a moment ago, before the watch tells of it; reads only what changed."""
        self._skills.rescan()

    def expand(self, message: str) -> Called | None:
        """What a message stands for that calls a skill; None for one that does not, or names none that there is."""
        word, _, words = (
            message[1:].partition(" ") if message.startswith("/") and "\n" not in message.split(" ")[0] else ("", "", "")
        )
        name = word.lower()
        if not name or name in RESERVED or all(one.skill.name != name for one in self._skills.visible()):
            return None
        return self.call(name, words)

    # -- changing ---------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        description: str,
        body: str,
        arguments: Sequence[Argument],
        *,
        is_overwriting: bool,
        by: str,
        owner: str = "",
    ) -> tuple[FoundSkill, bool]:
        """Write a skill and trust it as its author does; gives it and whether it is new."""
        owner = self._owner(owner)
        folder = self._skills.folder_of(owner)
        if not is_overwriting:
            self._skills.require_room(owner)
        folder.mkdir(parents=True, exist_ok=True)
        skill, is_new = editing.write_skill(folder, name, description, body, arguments, is_overwriting=is_overwriting)
        self._skills.sync()
        self._note("skill_written", skill.name, owner, by, is_new=is_new)
        with _seen_by(owner):
            return self._skills.get(skill.name), is_new

    def edit(self, name: str, patches: Sequence[LinePatch], *, by: str) -> FoundSkill:
        """Change lines of a skill's file."""
        one = self._own(name)
        was_trusted = self._skills.is_trusted(one)
        editing.edit_skill(self._skills.folder_of(one.owner), one.skill.name, patches)
        self._skills.sync()
        self._note("skill_edited", one.skill.name, one.owner, by, was_trusted=was_trusted)
        return self._skills.get(name)

    def delete(self, name: str, *, by: str) -> str:
        """Remove a skill with its files; gives where it was."""
        one = self._own(name)
        path = editing.delete_skill(self._skills.folder_of(one.owner), one.skill.name)
        self._skills.sync()
        remove_unused(self._environments, self._skills)
        self._note("skill_deleted", one.skill.name, one.owner, by)
        return str(path)

    @method("skill.create", access="all")
    def create_for_caller(
        self,
        call: Call,
        name: str,
        description: str,
        body: str,
        is_overwriting: bool = False,
        owner: Owner = "",
    ) -> SkillLine:
        """Write a skill; the person who writes it trusts it."""
        one, _ = self.create(name, description, body, (), is_overwriting=is_overwriting, by=caller_name(call), owner=owner)
        with _seen_by(one.owner):
            return self._skills.describe(self._skills.trust(one.skill.name, caller_name(call)))

    @method("skill.remove", access="all")
    def delete_for_caller(self, call: Call, name: Name, owner: Whose = "") -> str:
        """Remove a skill with its files; those that ship cannot be removed."""
        with _seen_by(owner):
            self._require_owner(name, owner)
            return self.delete(name, by=caller_name(call))

    @method("skill.trust", access="all")
    def trust(
        self,
        call: Call,
        name: Name,
        hash: Annotated[str, "what skill.view says, or its first 16 digits; of no use to end trust"] = "",
        is_trusted: bool = True,
        owner: Whose = "",
    ) -> SkillLine:
        """Trust a skill as you have read it, or end that. Any change of its text or scripts ends it, too."""
        by = caller_name(call)
        with _seen_by(owner):
            one = self._require_owner(name, owner)
            self._require_writable(one.owner)
            one = self._skills.trust(name, by, hash) if is_trusted else self._skills.distrust(name, by)
        self._note("skill_trusted" if is_trusted else "skill_distrusted", one.skill.name, one.owner, by)
        return self._skills.describe(one)

    # -- installing -------------------------------------------------------------------------------

    @method("skill.review", access="all")
    def review_files(self, files: Annotated[dict[str, str], "base64 by path"], folder: str, inner: str = "") -> Reviewed:
        """What a skill asks for and hides, before it is installed; nothing is written."""
        package = _package(files, folder, inner)
        skill = _skill_of(package)
        replaced = next((str(one.skill.path) for one in self._skills.visible() if one.skill.name == skill.name), "")
        sizes = {path: len(file.data) for path, file in sorted(package.files.items())}
        return Reviewed(
            name=skill.name, description=skill.description, findings=review(skill, package), files=sizes, replaces=replaced
        )

    @method("skill.install", access="all")
    def install(
        self,
        call: Call,
        files: Annotated[dict[str, str], "base64 by path; a path that ends in ! is a program"],
        folder: str,
        source: str = "",
        inner: str = "",
        owner: Owner = "",
        is_overwriting: bool = False,
        is_trusted: bool = False,
    ) -> SkillLine:
        """Put a skill where its owner's skills lie: whole or not at all. It stays a stranger's until it is trusted."""
        by = caller_name(call)
        package = _package(files, folder, inner)
        skill = _skill_of(package)
        owner = self._owner(owner)
        root = self._skills.folder_of(owner)
        place = editing.find_place(root, skill.name)
        if place and not is_overwriting:
            raise Conflict(f"{root / place} is there already", hint="remove it first, or use --force", outcome="path_conflict")
        if not place:
            self._skills.require_room(owner)
        _put(root, skill.name, package, place)
        self._skills.sync()
        self._note("skill_installed", skill.name, owner, by, source=source, files=len(package.files), is_trusted=is_trusted)
        with _seen_by(owner):
            one = self._skills.get(skill.name)
            remove_unused(self._environments, self._skills)
            self._skills.set_source(one, source)
            if is_trusted:
                one = self._skills.trust(skill.name, by)
        return self._skills.describe(one)

    # -- inside -----------------------------------------------------------------------------------

    def _owner(self, wanted: str) -> str:
        """Whose a new skill is; Refused where the caller may not write there."""
        context = visibility.current()
        if not wanted and context and self._people() > 1:
            wanted = context
        self._require_writable(wanted)
        return wanted

    def _require_writable(self, owner: str) -> None:
        contexts = visibility.asking()
        if contexts is not None and not (owner in contexts and owner.startswith("user:")):
            # The same words whether it exists or not.
            raise Refused("only an admin changes skills of groups and of everybody", hint="make one of your own")
        context = visibility.current()
        if owner and context and owner != context and contexts is not None:
            raise Refused("a skill of another is not yours to change", hint="make one of your own")

    def _require_owner(self, name: str, owner: str) -> FoundSkill:
        """The skill that is meant; NotFound where the owner that was named only sees it."""
        one = self._skills.get(name)
        if owner and one.owner != owner:
            whose = one.owner or "everybody's"
            raise NotFound(f"{owner} has no skill {one.skill.name}; there is one that is {whose}", hint="leave out whose it is")
        return one

    def _own(self, name: str) -> FoundSkill:
        """A skill that can be changed where it lies."""
        one = self._skills.get(name)
        root = self._skills.folder_of(one.owner)
        if not one.skill.path.is_relative_to(root):
            what = "it ships with the product" if one.is_bundled else f"it lies in {one.skill.path.parent}"
            raise Refused(
                f"the skill {one.skill.name} cannot be changed here: {what}",
                hint=f"write one of your own with this name: owlbox skill create {one.skill.name} --force",
            )
        self._require_writable(one.owner)
        return one

    def _note(self, kind: str, name: str, owner: str, by: str, **more: object) -> None:
        self._ledger.note(
            kind, actor=f"user:{by}" if ":" not in by else by, detail={"skill": name, "owner": owner or "all", **more}
        )


def _seen_by(owner: str) -> AbstractContextManager[None]:
    """Look as an owner does, as far as the caller may; "" looks as the caller."""
    return visibility.showing(owner) if owner else nullcontext()


def _files_of(one: FoundSkill) -> list[str]:
    folder = one.skill.path.parent
    if one.skill.path.name.lower() != "skill.md":
        return []
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path != one.skill.path)
    return [str(path.relative_to(folder)) for path in found[:200]]


def encode_files(package: SkillPackage) -> dict[str, str]:
    """A package's files as `skill.review` and `skill.install` take them."""
    return {
        f"{path}!" if file.is_executable else path: base64.b64encode(file.data).decode() for path, file in package.files.items()
    }


def _package(files: Mapping[str, str], folder: str, inner: str) -> SkillPackage:
    found = {}
    for path, text in files.items():
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadInput(f"{path} is not base64") from None
        found[path.removesuffix("!")] = PackageFile(data, path.endswith("!"))
    return choose(check_files(found), folder, inner, folder)


def _skill_of(package: SkillPackage) -> Skill:
    """The skill of a package, under the name that its front matter gives."""
    try:
        text = package.files[package.entry].data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"SKILL.md is not UTF-8 text (byte {error.start})", outcome="invalid_skill") from None
    front, _, _ = front_matter.read(text)
    name = name_of(str(front.get("name") or package.name))
    skill = parse_skill(Path(name) / "SKILL.md", text)
    if faults := [fault for fault in find_field_faults(front, name) if "is missing" in fault]:
        raise BadInput(f"{package.source} is not a skill: {'; '.join(faults)}", outcome="invalid_skill")
    return skill


def _put(root: Path, name: str, package: SkillPackage, place: str) -> None:
    """Write a package's files as the skill `name` of a folder, in place of what lies at `place`; whole or not at all."""
    root.mkdir(parents=True, exist_ok=True)
    mark = os.urandom(4).hex()
    new, old = f".{name}.{mark}.new", f".{name}.{mark}.removed"
    files = WorkspaceFiles(root)
    try:
        for path, file in package.files.items():
            target = "SKILL.md" if path == package.entry else path
            files.write(f"{new}/{target}", file.data, None, PROGRAM_MODE if file.is_executable else PLAIN_MODE)
        if place:
            os.rename(root / place.split("/")[0], root / old)
        os.rename(root / new, root / name)
        paths.flush(root)
    except OSError as error:
        raise Refused(f"{root / name} was not written: {error.strerror}", hint=f"see {root}") from None
    finally:
        for left in (root / new, root / old):
            if left.is_dir() and not left.is_symlink():
                folder_tree.remove(left)
            elif left.is_symlink() or left.exists():
                left.unlink()
