"""Changes one key of owlbox.toml in place: every other character of the file, comments above all, stays as it is.

Owns the edit and its safety: what comes out must be read as the old configuration with that one key changed,
must pass every check of `config`, and replaces the file whole or not at all. Not promised: every way to write
TOML; where none of our edits does it, the person is told which line to write.
"""

import copy
import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.errors import ConfigError, DiskFull
from appliance.runtime import config, paths
from appliance.runtime.paths import Home

MARK = "\ufeff"  # the byte order mark that Windows adds
HEADER = re.compile(r"\s*\[")
# A value on one line: text in either kind of quotes, or anything without a quote or comment sign.
VALUE = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^"'#]*?)(\s*(?:#.*)?)$""")


def set_text(home: Home, environ: Mapping[str, str], table: str, key: str, text: str) -> bool:
    """Give a key a text value; False when it had it already. ConfigError when the file cannot be changed or would be bad."""
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
    written = text.replace("${", "$${")
    if isinstance(raw.get(table), dict) and raw[table].get(key) == written:
        return False
    wanted = copy.deepcopy(raw)
    line = f"{key} = {json.dumps(written, ensure_ascii=False)}"
    try:
        wanted.setdefault(table, {})[key] = written
    except TypeError:
        raise ConfigError(f"{path}: {table} is no table", key=table) from None
    for new in _edits(old, table, key, line):
        if reads_as(new, wanted):
            replace(home, environ, path, whole[: len(whole) - len(old)] + new)
            return True
    raise ConfigError(
        f"{path} is written in a way that only a person can change", key=f"{table}.{key}", hint=f"in [{table}]: {line}"
    )


def _edits(old: str, table: str, key: str, line: str) -> Iterator[str]:
    """The file with the key changed, in one way after another: the best first, and any of them may be wrong."""
    newline = "\r\n" if "\r\n" in old else "\n"
    lines = old.split(newline)
    # More than one only when such a line stands inside a long text.
    for start in (i for i, text in enumerate(lines) if re.fullmatch(rf"\s*\[\s*{table}\s*\]\s*(#.*)?", text)):
        end = next((i for i in range(start + 1, len(lines)) if HEADER.match(lines[i])), len(lines))
        for begin in (rf"\s*(?:{key}|\"{key}\"|'{key}')\s*=\s*", rf"#\s?{key}\s*=\s*"):
            for i in range(start + 1, end):
                if found := re.match(begin, lines[i]):
                    rest = VALUE.match(lines[i][found.end() :])
                    indent = lines[i][: len(lines[i]) - len(lines[i].lstrip())]
                    yield newline.join([*lines[:i], indent + line + (rest[2] if rest else ""), *lines[i + 1 :]])
        yield newline.join([*lines[: start + 1], line, *lines[start + 1 :]])
    for i, text in enumerate(lines):
        if re.match(rf"\s*{table}\s*\.\s*{key}\s*=", text):
            yield newline.join([*lines[:i], f"{table}.{line}", *lines[i + 1 :]])
    gap = "" if not old or old.endswith(newline) else newline
    yield f"{old}{gap}{newline if old else ''}[{table}]{newline}{line}{newline}"
    yield f"{table}.{line}{newline}{old}"


def reads_as(text: str, wanted: dict[str, Any]) -> bool:
    """Whether a text is TOML that says just this."""
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def replace(home: Home, environ: Mapping[str, str], path: Path, text: str) -> None:
    """Put the text in place of the file once the whole configuration was read from it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    try:
        with open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        config.load(home, environ, path=part)
        os.replace(part, path)
        paths.flush(path.parent)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(f"no space left for {path}", hint="free some space and try again") from None
        raise
    finally:
        part.unlink(missing_ok=True)
