"""Writing skills: the text of a new one, changes of one that is there, and deleting it. Files only, in one folder.

Every text is parsed again before it replaces what is there, and it replaces it whole (temporary file, fsync, rename) or not
at all. Only skills of the given folder are changed: those that ship or come from elsewhere are copied there first. Knows
nothing about who may write, trust or the list in the prompt.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appliance.errors import BadInput, Conflict, NotFound
from appliance.ingest.workspace_files import WorkspaceFiles
from appliance.runtime import paths
from appliance.sandbox import folder_tree
from appliance.skills import front_matter
from appliance.skills.skill_file import FILE, RESERVED, Argument, Skill, normalise_name, parse_skill
from appliance.text.edits import LinePatch, patch_lines


def compose(name: str, description: str, body: str, arguments: Sequence[Argument] = ()) -> str:
    """The text of a SKILL.md. Quotes and line breaks of a description survive."""
    import yaml  # 10 ms that only writing a skill needs

    front: dict[str, Any] = {"name": name, "description": description.strip()}
    if arguments:
        front["metadata"] = {"arguments": [_argument(one) for one in arguments]}
    # One line for each field and no flow style, which the public format turns down.
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100_000)
    # The public format ends the front matter at the first "---", wherever it stands; text of several lines would take several.
    if "---" in head or description.strip() != " ".join(description.split()):
        head = yaml.safe_dump(front, sort_keys=False, default_flow_style=False, default_style='"', width=100_000)
        head = head.replace("---", "\\x2d--")
    return f"---\n{head}---\n{body.strip()}\n"


def write_skill(
    folder: Path, name: str, description: str, body: str, arguments: Sequence[Argument] = (), *, is_overwriting: bool = False
) -> tuple[Skill, bool]:
    """Write a skill; gives it and whether it is new.

    BadInput (invalid_name, reserved_name, empty_body, invalid_skill), Conflict (path_conflict) where one of the name is there.
    """
    wanted = normalise_name(name)
    if not wanted:
        raise BadInput(
            f"{name!r} has no letter or digit to name a skill by", hint="use a to z, 0 to 9 and hyphens", outcome="invalid_name"
        )
    if wanted in RESERVED:
        raise BadInput(f"/{wanted} is a command of the assistant's own", hint="choose another name", outcome="reserved_name")
    if not body.strip():
        raise BadInput("the body of a skill must say what is to be done", outcome="empty_body")
    files = WorkspaceFiles(folder)
    place = find_place(folder, wanted)
    if place and not is_overwriting:
        raise Conflict(
            f"there is a skill {wanted} already", hint="change lines of it with patches, or overwrite it", outcome="path_conflict"
        )
    text = compose(wanted, description, body, arguments)
    target = place or f"{wanted}/SKILL.md"
    skill = _parsed(folder / target, text)
    seen = files.read(target)
    files.write(target, text.encode(), seen[0] if seen else None)
    return skill, not place


def edit_skill(folder: Path, name: str, patches: Sequence[LinePatch]) -> Skill:
    """Change lines of a skill's file; BadInput (invalid_skill) and nothing changed when the result is no skill of that name."""
    place = require_place(folder, name)
    files = WorkspaceFiles(folder)
    seen = files.read(place)
    try:
        text = seen[0].decode("utf-8-sig").replace("\r\n", "\n") if seen else ""
    except UnicodeDecodeError as error:
        raise BadInput(f"{folder / place} is not UTF-8 text (byte {error.start})", outcome="invalid_skill") from None
    changed = patch_lines(text, patches)
    skill = _parsed(folder / place, changed)
    if text.lstrip().startswith("---") and not front_matter.read(changed)[0]:
        raise BadInput("the front matter would be gone", hint="keep the lines between --- and ---", outcome="invalid_skill")
    files.write(place, changed.encode(), seen[0] if seen else None)
    return skill


def delete_skill(folder: Path, name: str) -> Path:
    """Remove a skill with its folder; gives what was removed. It is renamed first, so that half of a skill is never seen."""
    place = require_place(folder, name)
    target = folder / place.split("/")[0]
    aside = folder / f".{target.name}.{os.urandom(4).hex()}.removed"
    os.rename(target, aside)
    if aside.is_dir() and not aside.is_symlink():
        folder_tree.remove(aside)
    else:
        aside.unlink()
    paths.flush(folder)
    return target


def find_place(folder: Path, name: str) -> str:
    """Where a skill's file lies below this folder, "" when it has none of that name."""
    inner = folder / name
    if inner.is_dir() and not inner.is_symlink():
        for path in sorted(inner.iterdir()):
            if path.name.lower() == FILE:
                return f"{name}/{path.name}"
    lone = folder / f"{name}.md"
    return lone.name if lone.is_file() and not lone.is_symlink() else ""


def require_place(folder: Path, name: str) -> str:
    """Where the file of a skill lies that can be changed; NotFound says where it may be changed instead."""
    found = find_place(folder, name) if name and "/" not in name and not name.startswith(".") else ""
    if not found:
        raise NotFound(
            f"{folder} holds no skill {name!r}", hint="one that ships is changed by writing one of its name: skill_write"
        )
    return found


def _parsed(path: Path, text: str) -> Skill:
    try:
        return parse_skill(path, text)
    except BadInput as error:
        outcome = error.outcome if error.outcome in ("empty_body", "invalid_name") else "invalid_skill"
        raise BadInput(error.message, hint=error.hint, outcome=outcome) from None


def _argument(one: Argument) -> dict[str, Any]:
    made: dict[str, Any] = {"name": one.name}
    if one.description:
        made["description"] = one.description
    if one.is_required:
        made["required"] = "true"  # as text: the public format knows no truth values
    if one.default is not None:
        made["default"] = one.default
    return made
