"""Secrets for a tool's process: what a variable is called, and files that cannot leave their folder.

For whoever starts the process. Knows neither the vault nor any process. Not promised: that a process to which a secret
was given keeps it.
"""

import os
import re
from pathlib import Path

from appliance.errors import BadInput, Refused

HANDED = ("channel", "search", "mcp", "skill")  # secrets of these kinds are handed to the core
OTHER = re.compile(r"[^A-Za-z0-9]")


def variable(kind: str, name: str) -> str:
    """The usual name of the variable that holds a secret: CRED_<TYPE>_<NAME>."""
    if not kind or not name:
        raise BadInput(f"secret {kind}/{name} has no full name", hint="KIND/NAME")
    return OTHER.sub("_", f"CRED_{kind}_{name}").upper()


def target(base: Path, path: str) -> Path:
    """Where a secret's file lies below `base`, a leading / meaning base; Refused when it would be anywhere else."""
    if "\0" in path:
        raise BadInput("a path cannot hold a NUL")
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise Refused(f"{path[:200]!r} leaves the folder {base}", hint="name a file inside")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        raise BadInput(f"{path[:200]!r} names no file", hint="such as token or keys/api")
    root, found = base.resolve(), base.resolve().joinpath(*parts)
    if not found.resolve().is_relative_to(root):
        raise Refused(f"{path[:200]!r} leaves the folder {base} through a link", hint="name a file inside")
    return found


def write(base: Path, path: str, value: str) -> Path:
    """Put a value into a private file below `base`, whole or not at all; links are not followed on the way."""
    found = target(base, path)
    *folders, name = found.relative_to(base.resolve()).parts
    handle = os.open(base.resolve(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            handle = _enter_folder(handle, folder, path)
        part = f".{name}.{os.getpid()}.part"
        file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=handle)
        try:
            with open(file, "wb") as out:
                out.write(value.encode())
            os.replace(part, name, src_dir_fd=handle, dst_dir_fd=handle)
        except OSError:
            os.unlink(part, dir_fd=handle)
            raise
    finally:
        os.close(handle)
    return found


def _enter_folder(handle: int, folder: str, path: str) -> int:
    """The folder below an open one, made when it is missing; the one above is closed."""
    try:
        os.mkdir(folder, 0o700, dir_fd=handle)
    except FileExistsError:
        pass
    try:
        below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
    except OSError:
        raise Refused(f"{path[:200]!r} goes through {folder}, which is not a folder", hint="name a file inside") from None
    os.close(handle)
    return below
