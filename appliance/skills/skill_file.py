"""One skill as its file describes it: the Agent Skills format, single-file slash commands, and the rules of both.

`parse_skill` is tolerant: it takes what can be used and raises BadInput for what cannot. `find_faults` is strict: it
says what the public format does not allow, and agrees with the format's reference validator (`skills-ref`) on whether a
folder is valid. Knows nothing about where skills lie, who may see them or whether they are trusted.

What this loader reads beside the public fields (name, description, license, compatibility, allowed-tools, metadata), at the
top level or within `metadata`, where the reference validator allows anything:
- `always`: the whole text stands in every prompt.
- `requires`: `bins` and `env` that must be there.
- `addons`: `packages` and `env` for its scripts.
- `arguments`: name, description, required, default, for `/name` with words after it.
- `small`: the sentence, or several, that a model which cannot follow steps is given in place of the text.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from appliance.errors import BadInput
from appliance.skills import front_matter
from appliance.text import markdown

FILE = "skill.md"  # in any case
SCRIPTS = "scripts"  # folder beside SKILL.md whose programs commands may run
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
PUBLIC_FIELDS = frozenset(("name", "description", "license", "compatibility", "allowed-tools", "metadata"))
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SOURCES = ("apt", "npm", "pip", "apk")
# Names of commands: a skill of this name is listed and read, but `/name` is the command.
RESERVED = frozenset(
    """help skills clear exit quit new threads resume status budget tree fork rename compact waiting approve reject abort stop
    inject approval theme model sessions archive export skill session group
    backup copy mouse role channels notices""".split()
)
# What strict YAML turns down although other YAML readers take it: flow collections, anchors, aliases, tags, merge keys.
LOOSE_VALUE = re.compile(r"^(?:[\[{]|[&*!](?=\S))")
ENTRY = re.compile(r"^(\s*)(?:- )*(?:(?:\"[^\"]*\"|'[^']*'|[^\s#:'\"\[{][^#:]*?)\s*:(?=\s|$))?\s*(.*)$")


class Argument(msgspec.Struct, frozen=True):
    """A declared word after `/name`."""

    name: str
    description: str = ""
    is_required: bool = False
    default: str | None = None


class PackageNeed(msgspec.Struct, frozen=True):
    """A package that a skill's scripts need. `verify` is a command that succeeds once it is installed."""

    name: str
    source: str
    verify: str = ""


class Skill(msgspec.Struct, frozen=True):
    """One skill as its file describes it."""

    name: str
    description: str
    text: str
    path: Path
    is_always: bool = False
    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    packages: tuple[PackageNeed, ...] = ()
    script_env: tuple[str, ...] = ()
    license: str = ""
    agents: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    body_start: int = 0  # where the front matter is over
    notes: tuple[str, ...] = ()  # lines of it that are no YAML and were read as text

    @property
    def body(self) -> str:
        """The text without front matter."""
        return self.text[self.body_start :].strip()

    @property
    def is_reserved(self) -> bool:
        """Whether `/name` is a command of the assistant's own."""
        return self.name in RESERVED


def normalise_name(word: str) -> str:
    """The canonical name of a skill that is written here: lower case, `[a-z0-9-]` only; "" when nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:MAX_NAME].strip("-")


def name_of(word: str) -> str:
    """The name by which a skill is called: as the public format allows it, letters of any alphabet, lower case."""
    plain = unicodedata.normalize("NFKC", word).lower()
    kept = "".join(char if char.isalnum() else "-" for char in plain)
    return re.sub(r"-+", "-", kept).strip("-")[:MAX_NAME].strip("-")


@lru_cache(maxsize=64)  # those that ship are read by every core of a process
def parse_skill(path: Path, text: str) -> Skill:
    """The skill in a file's text; BadInput says why it cannot be used."""
    word = path.parent.name if path.name.lower() == FILE else path.stem
    name = name_of(word)
    if not name:
        raise BadInput(f"{word!r} has no letter or digit to name a skill by", outcome="invalid_name")
    front, body, notes = front_matter.read(text)
    if name_of(str(front.get("name") or name)) != name:
        raise BadInput(
            f"its front matter calls it {front['name']!r}, its folder {name!r}", hint="make them equal", outcome="invalid_skill"
        )
    if not body.strip():
        raise BadInput("it says nothing", hint="write below the front matter what is to be done", outcome="empty_body")
    needs = _table(front, "requires")
    addons = _table(front, "addons")
    return Skill(
        name=name,
        description=" ".join(_text(front.get("description")).split()),
        text=text,
        path=path,
        is_always=markdown.truth(_field(front, "always")) is True,
        bins=_names(needs, "requires", "bins"),
        env=_names(needs, "requires", "env"),
        arguments=_arguments(_field(front, "arguments")),
        packages=_packages(addons),
        script_env=_names(addons, "addons", "env"),
        license=_text(front.get("license")),
        agents=_names(front, "", "agents"),
        small=_sentences(_field(front, "small")),
        body_start=text.rindex(body.strip()),
        notes=notes,
    )


def find_faults(folder: Path) -> list[str]:
    """What the public format does not allow in a skill's folder, or in its one file: a sentence each, none if it is valid."""
    is_alone = folder.suffix.lower() == ".md" and folder.is_file()
    if not is_alone and not folder.is_dir():
        return [f"{folder} is neither a folder nor a .md file" if folder.exists() else f"there is no {folder}"]
    path = folder if is_alone else next((folder / name for name in ("SKILL.md", "skill.md") if (folder / name).exists()), None)
    if path is None:
        return ["SKILL.md is missing"]
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return [f"{path.name} is not UTF-8 text (byte {error.start})"]
    except OSError as error:
        return [f"{path.name} cannot be read: {error.strerror}"]
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.startswith("\ufeff"):
        return [f"{path.name} begins with a byte order mark before its front matter"]
    if not text.startswith("---"):
        return [f"{path.name} must begin with front matter (---)"]
    parts = text.split("---", 2)
    if len(parts) < 3:
        return ["the front matter begins with --- and never ends"]
    if faults := _find_loose_yaml(parts[1]):
        return faults
    try:
        front, _ = markdown.split(f"---\n{parts[1].strip(chr(10))}\n---\n")
    except BadInput as error:
        return [error.message]
    return find_field_faults(front, folder.stem if is_alone else folder.name)


def find_field_faults(front: Mapping[str, Any], folder: str) -> list[str]:
    """What is wrong with the fields of a front matter for a skill in a folder of this name."""
    faults = []
    if extra := sorted(str(key) for key in front if key not in PUBLIC_FIELDS):
        faults.append(f"the public format knows no {', '.join(extra)}: put it below metadata")
    if "name" not in front:
        faults.append("name is missing")
    else:
        faults += _name_faults(_text(front["name"]), folder)
    if "description" not in front:
        faults.append("description is missing")
    else:
        text = _text(front["description"])
        if not text.strip():
            faults.append("description must say something")
        elif len(text) > MAX_DESCRIPTION:
            faults.append(f"description has {len(text)} characters, the limit is {MAX_DESCRIPTION}")
    if "compatibility" in front:
        value = front["compatibility"]
        if isinstance(value, dict | list):
            faults.append("compatibility must be text")
        elif len(text := _text(value)) > MAX_COMPATIBILITY:
            faults.append(f"compatibility has {len(text)} characters, the limit is {MAX_COMPATIBILITY}")
    return faults


def _name_faults(name: str, folder: str) -> list[str]:
    if not name.strip():
        return ["name must not be empty"]
    name, faults = unicodedata.normalize("NFKC", name.strip()), []
    if len(name) > MAX_NAME:
        faults.append(f"name {name!r} has {len(name)} characters, the limit is {MAX_NAME}")
    if name != name.lower():
        faults.append(f"name {name!r} must be lower case")
    if name.startswith("-") or name.endswith("-"):
        faults.append(f"name {name!r} must not begin or end with a hyphen")
    if "--" in name:
        faults.append(f"name {name!r} must not have two hyphens side by side")
    if not all(char.isalnum() or char == "-" for char in name):
        faults.append(f"name {name!r} may hold letters, digits and hyphens only")
    if unicodedata.normalize("NFKC", folder) != name:
        faults.append(f"the folder is called {folder!r}, the skill {name!r}: they must be equal")
    return faults


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _find_loose_yaml(source: str) -> list[str]:
    """The first line that the strict reader of the public format turns down."""
    keys: dict[tuple[int, int], set[str]] = {}
    block_indent: int | None = None
    for number, line in enumerate(source.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if block_indent is not None:
            if indent > block_indent:
                continue
            block_indent = None
        if "\t" in line[: len(line) - len(line.lstrip())]:
            return [f"line {number} is indented with a tab"]
        found = ENTRY.match(line)
        value = found[2] if found else ""
        if LOOSE_VALUE.match(value) or re.match(r"\s*[&*!](?=\S)", line):
            return [f"line {number}: {line.strip()[:30]!r} is YAML that the public format does not take; write one line each"]
        if re.fullmatch(r"[|>][+-]?\d?[+-]?(?:\s+#.*)?", value):
            block_indent = indent
        key = re.match(r"^\s*([\w-]+)\s*:(?:\s|$)", line)
        if key and not line.lstrip().startswith("- "):
            for deeper in [at for at in keys if at[0] > indent]:
                del keys[deeper]
            seen = keys.setdefault((indent, 0), set())
            if key[1] in seen:
                return [f"line {number}: {key[1]} is there twice"]
            seen.add(key[1])
    if not source.strip():
        return ["the front matter is empty"]
    return []


def _field(front: Mapping[str, Any], key: str) -> Any:
    """A field of the top level, or of `metadata`."""
    inner = front.get("metadata")
    return front[key] if key in front else inner.get(key) if isinstance(inner, dict) else None


def _sentences(value: object) -> tuple[str, ...]:
    """One sentence or a list of them; what is no text is left out."""
    given = value if isinstance(value, list) else [value]
    return tuple(" ".join(one.split()) for one in given if isinstance(one, str) and one.strip())


def _table(front: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = _field(front, key)
    if value in markdown.NOTHING or value == "":
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{key} must be a table, not {value!r}", outcome="invalid_skill")
    return value


def _names(table: Mapping[str, Any], place: str, key: str) -> tuple[str, ...]:
    value = table.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise BadInput(f"{place}{'.' if place else ''}{key} must be a list of names, not {value!r}", outcome="invalid_skill")
    return tuple(value)


def _arguments(value: object) -> tuple[Argument, ...]:
    """Declared arguments; entries that cannot be read are left out, as are names given twice."""
    found: dict[str, Argument] = {}
    for item in value if isinstance(value, list) else ():
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name.strip() or name in found:
            continue
        default = item.get("default")
        found[name] = Argument(
            name.strip(),
            " ".join(str(item.get("description") or "").split()),
            markdown.truth(item.get("required")) is True,
            None if default in markdown.NOTHING else str(default),
        )
    return tuple(found.values())


def _packages(addons: Mapping[str, Any]) -> tuple[PackageNeed, ...]:
    value: Sequence[object] = addons.get("packages") or []
    found = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str) or item.get("source") not in SOURCES:
            raise BadInput(f"addons.packages needs name and source ({', '.join(SOURCES)}), not {item!r}", outcome="invalid_skill")
        found.append(PackageNeed(item["name"], item["source"], str(item.get("verify") or "")))
    return tuple(found)
