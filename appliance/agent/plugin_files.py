"""Where a plugin is: its file in box/, or an installed package; and what keeps it from being loaded.

Runs nothing of a plugin and imports none, so that a check of all is quick.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.errors import BadInput, NotFound, OwlError, Refused
from appliance.runtime.trusted_files import require_trusted

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FOLDER, GROUP = "plugins", "owlbox.plugins"
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def check(box: Path, enabled: Sequence[str]) -> list[str]:
    """What keeps plugins from being loaded, as far as that can be told without running them."""
    problems = []
    for name in dict.fromkeys(enabled):
        try:
            path = source(box, name)
            if path is None:
                find_installed(box, name)
            else:
                compile(path.read_bytes(), str(path), "exec")
        except (OwlError, OSError, SyntaxError, ValueError) as error:
            problems.append(f"{name}: {describe_error(error)}")
    return problems


def source(box: Path, name: str) -> Path | None:
    """The file with which a plugin of box/ begins; None for none, Refused for one that others than our user could have written."""
    if not NAME.fullmatch(name):
        raise BadInput(f"{name!r} cannot be a plugin", hint="use small letters, digits and _")
    for path in (box / FOLDER / f"{name}.py", box / FOLDER / name / "__init__.py"):
        if not path.is_file():
            continue
        if path.is_symlink():
            raise Refused(f"{path} is a link", hint="put the file itself there")
        require_trusted(path.parent if path.name == "__init__.py" else path, is_tree=True)
        return path
    return None


def find_installed(box: Path, name: str) -> "EntryPoint":
    from importlib import metadata  # slow to import, and seldom wanted

    for point in metadata.entry_points(group=GROUP):
        if point.name == name:
            return point
    raise NotFound(f"there is no plugin {name}", hint=f"put it at {box / FOLDER / name}.py")


def describe_error(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the process: {error} (leave that to the core)"
    hint = getattr(error, "hint", "")
    if isinstance(error, ImportError) and (error.name or "").startswith("appliance"):
        hint = "a plugin imports from appliance.plugin alone"
    text = str(error) or type(error).__name__
    kind = "" if hasattr(error, "outcome") else f"{type(error).__name__}: "
    return " ".join(f"{kind}{text}{f' ({hint})' if hint and hint not in text else ''}".split())[:500]
