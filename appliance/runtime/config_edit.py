"""Changes keys of owlbox.toml in place: every other character of the file, comments above all, stays as it is.

Owns the edit and its safety: what comes out must be read as the old configuration with that one key changed,
must pass every check of `config`, and replaces the file whole or not at all. tomlkit changes what is there; a new key
goes where it stands as a comment, or directly below the name of its table. A file that is not there yet, or says nothing, is
written whole by tomli_w. Both are imported by an edit alone.
"""

import copy
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.errors import ConfigError
from appliance.runtime import config, paths
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config

MARK = "\ufeff"  # the byte order mark that Windows adds


def set_text(home: Home, environ: Mapping[str, str], table: str, key: str, text: str) -> bool:
    """Give a key a text value; False when it had it already. ConfigError when the file cannot be changed or would be bad."""
    return set_value(home, environ, (table, key), text.replace("${", "$${"))


def set_value(
    home: Home, environ: Mapping[str, str], place: Sequence[str], value: Any, check: Callable[[Config], None] | None = None
) -> bool:
    """The same for a value of any type at any place; `check` may refuse the configuration that it would be."""
    path = home.config.resolve()
    try:
        whole = path.read_bytes().decode("utf-8")
        old = whole.removeprefix(MARK)
        raw = tomllib.loads(old)
    except FileNotFoundError:
        whole, old, raw = "", "", {}
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        config.load(home, environ)  # says where it is broken
        raise
    wanted = copy.deepcopy(raw)
    put(wanted, place, value)
    if wanted == raw:
        return False
    text = edited(old, place, value, wanted, path) if old.strip() else written(wanted)
    replace(home, environ, path, whole[: len(whole) - len(old)] + text, check)
    return True


def written(wanted: Mapping[str, Any]) -> str:
    """A whole file."""
    import tomli_w  # for whoever writes one

    return tomli_w.dumps(wanted)


def edited(old: str, place: Sequence[str], value: Any, wanted: dict[str, Any], path: Path) -> str:
    """The text with the value at the place, which reads as wanted; ConfigError when none of our ways to write it does."""
    import tomlkit  # 40 ms that only an edit needs
    from tomlkit.exceptions import TOMLKitError

    line = f"{tomlkit.key(place[-1]).as_string()} = {tomlkit.item(value).as_string()}"

    def uncommented(text: str) -> str:
        """A key that stands as a comment, with the value; what is said behind it stays."""
        try:
            found = tomlkit.parse(text.removeprefix("#").removeprefix(" "))
            found[place[-1]] = value
            return found.as_string()
        except (TOMLKitError, ValueError):
            return line

    try:
        document = tomlkit.parse(old)
        put(document, place, value)
        changed = document.as_string()
    except (TOMLKitError, ValueError):
        changed = old  # nothing is changed that is not understood
    for new in _list_edits(old, changed, place, line, uncommented):
        if reads_as(new, wanted):
            return new
    text = f"{path} is written in a way that only a person can change"
    raise ConfigError(text, key=".".join(place), hint=f"in [{'.'.join(place[:-1])}]: {line}")


def put(node: Any, place: Sequence[str], value: Any) -> None:
    """Put a value into a tree of tables; those that are missing are made."""
    for depth, step in enumerate(place[:-1], 1):
        node = node.setdefault(step, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{'.'.join(place[:depth])} is not a table", key=".".join(place[:depth]))
    node[place[-1]] = value


def at(node: Any, place: Sequence[str]) -> Any:
    """The value at a place of a parsed file; None when there is none."""
    for step in place:
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _list_edits(old: str, changed: str, place: Sequence[str], line: str, uncommented: Callable[[str], str]) -> Iterator[str]:
    """The file with the line, in one way after another: the best first, and any of them may be wrong."""
    if at(tomllib.loads(old), place) is not None:
        yield changed
    newline = "\r\n" if "\r\n" in old else "\n"
    lines = old.split(newline)
    commented = re.compile(rf"#\s?{re.escape(place[-1])}\s*=")
    header = re.compile(rf"\s*\[\s*{re.escape('.'.join(place[:-1]))}\s*\]\s*(#.*)?")
    found = (i for i, text in enumerate(lines) if commented.match(text))
    yield from (newline.join([*lines[:i], uncommented(lines[i]), *lines[i + 1 :]]) for i in found)
    yield from (newline.join([*lines[: i + 1], line, *lines[i + 1 :]]) for i, text in enumerate(lines) if header.fullmatch(text))
    yield re.sub("(?<!\r)\n", newline, changed)


def reads_as(text: str, wanted: dict[str, Any]) -> bool:
    """Whether a text is TOML that says just this."""
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def replace(home: Home, environ: Mapping[str, str], path: Path, text: str, check: Callable[[Config], None] | None = None) -> None:
    """Put the text in place of the file once the whole configuration was read from it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    try:
        with paths.naming(path), open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        settings = config.load(home, environ, path=part)
        if check is not None:
            check(settings)
        os.replace(part, path)
        paths.flush(path.parent)
    finally:
        part.unlink(missing_ok=True)
