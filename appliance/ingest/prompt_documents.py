"""Prompt documents: which Markdown files of box/ a model is told in every prompt, in which order, and whom each is for.

Owns the table of documents that ship and how front matter is read: `loading: always | contextual`, `agent-modification: true |
false`, `title`. USER.md of `users/ID/` and GROUP.md of `groups/ID/` are for that person or group alone, SOUL.md and IDENTITY.md
of `roles/NAME/` for that role. Files are read for every prompt; one of headings and comments alone is left out, so an unused one
costs nothing. A file that others than the box's own user could have written is not read. Writes nothing but what ships.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from appliance.errors import BadInput
from appliance.ingest.box_refs import OWNERS, ref_of
from appliance.knowledge.search import words_of
from appliance.records import Part
from appliance.runtime import trusted_files
from appliance.store import visibility
from appliance.text import markdown

LOG = logging.getLogger(__name__)
# In the order of docs/requirements/overlaps.md section 9; BOOTSTRAP comes after the tools.
ORDER = ("SOUL", "IDENTITY", "USER", "GROUP", "AGENTS", "ENVIRONMENT", "BELIEFS", "GOALS", "CAPABILITIES", "MEMORY")
GROUP = "GROUP"  # lies in the folder of its group alone
LAST = "BOOTSTRAP"
ALWAYS = tuple(name for name in ORDER if name != GROUP)
SHIPPED = (*ALWAYS, "HEARTBEAT", LAST)
OF_CONTEXTS = {"users": "USER", "groups": GROUP}  # the document that a person's or group's own folder may have
# Lines that the first interview writes, of USER and of IDENTITY.
OF_ROLES = ("SOUL", "IDENTITY")  # the documents that a role's own folder may have
ROLES = "roles"
# Never the assistant's to change, whatever front matter says; the first interview alone writes IDENTITY and removes BOOTSTRAP.
PROTECTED = ("SOUL", "IDENTITY", "BOOTSTRAP")
MEMORY_HEADING = "# Your Memory\n\n"  # in the place of its own, so that a model takes it for what it knows (S-039)
TITLE = re.compile(r"\A# .*\n+")
OPEN = ("BELIEFS", "GOALS", "CAPABILITIES", "MEMORY")  # the assistant's to change unless front matter says no
DEFAULT = Part("SOUL", "You are Owlbox, a helpful AI assistant.")  # where no document says anything
LOADING, MODIFICATION = "loading", "agent-modification"
KEYS = (LOADING, MODIFICATION, "title")
MAX_CHARS = 20_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
SAFE_ID = re.compile(r"(?!\.)[^/\x00-\x1f]{1,128}")  # a folder's name below users/ or groups/


def shipped(name: str) -> str:
    """The text of a document as it ships."""
    return (resources.files("appliance") / "box" / f"{name}.md").read_text(encoding="utf-8")


def install(box: Path) -> list[Path]:
    """Write the shipped documents that are missing; never touches one that is there."""
    box.mkdir(parents=True, exist_ok=True)
    made = []
    for name in SHIPPED:
        path = box / f"{name}.md"
        if not path.exists():
            path.write_text(shipped(name), encoding="utf-8")
            made.append(path)
    return made


# -- which file is what ------------------------------------------------------------------------------


def is_shipped(name: str) -> bool:
    """Whether a file, by its path in box/, is one of the documents named here."""
    return is_in_prompts(name) or name == "HEARTBEAT.md"


def is_in_prompts(name: str) -> bool:
    """Whether a file, by its path in box/, is in prompts anyway and need not be found for one: somebody's, if not everybody's."""
    *folders, last = name.split("/")
    stem, dot, _ = last.rpartition(".md")
    if not dot or last != f"{stem}.md":
        return False
    if not folders:
        return stem in (*ALWAYS, LAST)
    return len(folders) == 2 and (OF_CONTEXTS.get(folders[0]) == stem or (folders[0] == ROLES and stem in OF_ROLES))


def own_path(box: Path, context: str) -> Path | None:
    """Where the document of a person or group lies, such as users/ada/USER.md for `user:ada`; None where there can be none."""
    kind, _, owner = context.partition(":")
    folder = next((folder for folder, name in OWNERS.items() if name == kind), "")
    return box / folder / owner / f"{OF_CONTEXTS[folder]}.md" if folder and SAFE_ID.fullmatch(owner) else None


def find(box: Path, name: str) -> Path | None:
    """Where a document lies that is called so: `USER`, `user.md`, `house` of house.md, `users/ada/USER`, `roles/coder/SOUL`.

    `GROUP` is that of the group for which the present call works. The file need not be there; None for a name that no prompt
    document can have.
    """
    *folders, last = name.removesuffix(".md").split("/")
    if not NAME.fullmatch(last):
        return None
    if not folders:
        known = last.upper() if last.upper() in SHIPPED else last
        if known.upper() == GROUP:
            return own_path(box, context) if (context := visibility.current()).startswith("group:") else None
        return box / f"{known}.md" if known.upper() != "README" else None
    path = "/".join((*folders, f"{last.upper()}.md"))
    is_one = len(folders) == 2 and SAFE_ID.fullmatch(folders[1]) and is_in_prompts(path)
    return box / path if is_one else None


def name_of(box: Path, path: Path) -> str:
    """The name of a document: its path in box/ without the ending."""
    return path.relative_to(box).as_posix().removesuffix(".md")


def listing(box: Path) -> list[Path]:
    """The files that are prompt documents: those that ship, others of box/ itself that say when they are loaded, then the
    documents of persons, groups and roles."""
    others = [path for path, _ in _marked_files(box) if path.stem not in SHIPPED]
    own = [found for folder, name in OF_CONTEXTS.items() for found in sorted((box / folder).glob(f"*/{name}.md"))]
    roles = [found for name in OF_ROLES for found in sorted((box / ROLES).glob(f"*/{name}.md"))]
    return [*(box / f"{name}.md" for name in SHIPPED), *others, *own, *roles]


def may_modify(name: str, front: Mapping[str, Any]) -> bool:
    """Whether the assistant may change a document of box/ itself: by its name, then by its front matter (B-112)."""
    if name in PROTECTED:
        return False
    said = markdown.truth(front.get(MODIFICATION))
    return said is not False if name in OPEN else said is True


# -- reading -----------------------------------------------------------------------------------------


def documents(box: Path, context: str = "") -> tuple[list[Part], list[str]]:
    """The documents for every prompt of a context, in order, and what is wrong with those that could not be read.

    Front matter decides: `loading: contextual` leaves one out here, `loading: always` takes any other Markdown
    file of the folder itself in, after ours. A person's own USER.md takes the place of the one for everybody.
    """
    parts, problems = [], []
    extra = [path.stem for path, loading in _marked_files(box) if loading == "always" and path.stem not in SHIPPED]
    own = own_path(box, context)
    for name in (*ORDER, *extra, LAST):
        paths = [own] if own is not None and own.stem == name else []
        paths += [box / f"{name}.md"] if name != GROUP else []
        for path in paths:
            try:
                front, text = _read_document(path, box)
            except BadInput as error:
                problems.append(f"{path.relative_to(box)}: {error.message}")
                continue
            if text and front.get(LOADING) != "contextual":
                parts.append(Part(name, MEMORY_HEADING + TITLE.sub("", text) if name == "MEMORY" else text))
                break
    return parts, problems


def of_role(box: Path, role: str) -> list[Part]:
    """SOUL and IDENTITY of a role, which take the place of those for all; none where it has no folder of its own."""
    parts = []
    for name in OF_ROLES:
        path = box / ROLES / role / f"{name}.md"
        try:
            _, text = _read_document(path, box)
        except BadInput as error:
            LOG.warning("prompt document left out: %s: %s", path.relative_to(box), error.message)
            continue
        if text:
            parts.append(Part(name, text))
    return parts


def contextual(box: Path, about: str) -> list[Part]:
    """The documents marked `loading: contextual` that hold a word of what is asked or to be done, named by reference.

    Words of three letters and fewer, and those that carry no meaning, do not count; without any there is none.
    """
    words = [word for word in words_of(about, 500) if len(word) > 3]
    parts = []
    for path, loading in _marked_files(box) if words else ():
        if loading != "contextual":
            continue
        try:
            _, text = _read_document(path, box)
            ref = ref_of(box, path)
        except BadInput as error:
            LOG.warning("prompt document left out: %s: %s", path.name, error.message)
            continue
        known = text.lower()
        if any(word in known for word in words):
            parts.append(Part(ref, text))
    return parts


class ShownDocuments:
    """The documents of a box as a packet asks for them; what cannot be read is logged and left out."""

    def __init__(self, box: Path) -> None:
        self._box = box

    def present(self) -> Sequence[Part]:
        """Those of the person or group that this thread works for; one sentence where none says anything (S-044)."""
        parts, problems = documents(self._box, visibility.current())
        for problem in problems:
            LOG.warning("prompt document left out: %s", problem)
        return parts or [DEFAULT]

    def of_role(self, role: str) -> Sequence[Part]:
        """The documents of a role."""
        return of_role(self._box, role)

    def contextual(self, about: str) -> Sequence[Part]:
        """The contextual documents that contain a word of the message."""
        return contextual(self._box, about)


def _marked_files(box: Path) -> Iterator[tuple[Path, str]]:
    """The Markdown files of the folder itself that say when they are loaded, by name; HEARTBEAT is loaded elsewhere."""
    try:
        found = [entry for entry in os.scandir(box) if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False)]
    except OSError:
        return
    for name in sorted(entry.name for entry in found):
        path = box / name
        if path.stem == "HEARTBEAT":
            continue
        try:
            with path.open("rb") as file:
                if file.read(6).removeprefix(b"\xef\xbb\xbf")[:3] != b"---":
                    continue
            loading = _split_front_matter(path)[0].get(LOADING)
        except (OSError, BadInput):
            continue
        if isinstance(loading, str):
            yield path, loading


def _read_document(path: Path, box: Path) -> tuple[dict[str, Any], str]:
    """Front matter and the document's visible text, "" when there is nothing to say; BadInput when it is unreadable.

    What others than the box's own user could have written is not read: it would speak with the core's authority.
    """
    if why := trusted_files.problem(path, home=box.parent):
        raise BadInput(f"not taken: {why}")
    return _split_front_matter(path)


def _split_front_matter(path: Path) -> tuple[dict[str, Any], str]:
    """The same of any file, whoever wrote it."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            raw = file.read(MAX_CHARS + 1)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_CHARS:
        raw = raw[:MAX_CHARS] + f"\n[cut: only the first {MAX_CHARS} characters of this document are read]"
    front, body = markdown.split(raw)
    return front, markdown.visible(body) if markdown.has_text(body) else ""
