"""What a command gets of the skills that it names: their scripts, the packages installed for them, and their variables.

Scripts are handed over as files, packages as a folder that is shown read-only where it lies. Variables go to a command that is
nothing but one script of one skill, so that no other program is handed them. Knows nothing about how packages are installed,
which skills are trusted, or where secrets are kept.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from appliance.errors import TooLarge
from appliance.policy import mounts, shell_parser
from appliance.sandbox.bubblewrap import SCRIPTS, Bind, place_of_program

MAX_SCRIPTS, MAX_SCRIPTS_BYTES = 100, 4 << 20  # of the skills that one command names
SCRIPT = re.compile(rf"{SCRIPTS}/([A-Za-z0-9_][\w.-]{{0,63}})/scripts(?![\w.-])")
PLAIN_SCRIPT = re.compile(rf"{SCRIPTS}/([A-Za-z0-9_][\w.-]{{0,63}})/scripts(?:/(?!\.\.?(?:/|$))[\w.-]+)+")
SHELLS = ("bash", "sh", "python3", "python", "node", "perl")
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


class SkillScripts(Struct, frozen=True):
    """The scripts of a skill. `environment` holds its packages; `variables` are the names of those it wants."""

    folder: Path
    environment: Path | None = None
    variables: tuple[str, ...] = ()

    def binds(self) -> tuple[Bind, ...]:
        """The packages, at the path that is written in their programs."""
        return (Bind(self.environment, place_of_program(str(self.environment)), is_own=True),) if self.environment else ()


def find_skill_names(command: str) -> list[str]:
    """The skills whose scripts a command names."""
    return list(dict.fromkeys(SCRIPT.findall(command)))


def find_only_skill(command: str) -> str:
    """The skill of which a command runs one script and nothing else; "" for any other command."""
    pipelines = shell_parser.read(command).pipelines
    if len(pipelines) != 1 or len(pipelines[0]) != 1:
        return ""
    simple = pipelines[0][0]
    program = simple.words[1:2] if simple.words[:1] and simple.words[0] in SHELLS else simple.words[:1]
    found = PLAIN_SCRIPT.fullmatch(program[0]) if program else None
    if found is None or simple.made or simple.targets or simple.texts or set(find_skill_names(command)) != {found[1]}:
        return ""
    return found[1]


def environment_variables(found: Mapping[str, SkillScripts]) -> dict[str, str]:
    """The variables by which scripts find the packages of these skills."""
    folders = [place_of_program(str(one.environment)) for one in found.values() if one.environment]
    if not folders:
        return {}
    programs = [f"{folder}/{part}" for folder in folders for part in ("bin", "node_modules/.bin")]
    return {"PATH": ":".join([*programs, USUAL_PATH]), "NODE_PATH": ":".join(f"{folder}/node_modules" for folder in folders)}


def read_scripts(found: Mapping[str, SkillScripts]) -> Iterator[tuple[str, bytes]]:
    """Every file of these skills' scripts as a sandbox is handed it: no links, and nothing that is never shown."""
    count = size = 0
    for name, scripts in found.items():
        inside = place_of(name)
        for folder, names, files in os.walk(scripts.folder):
            names[:] = [name for name in names if not mounts.is_blocked(name)]
            for file in sorted(files):
                path = Path(folder, file)
                if mounts.is_blocked(file) or path.is_symlink() or not path.is_file():
                    continue
                count, size = count + 1, size + path.stat().st_size
                if count > MAX_SCRIPTS or size > MAX_SCRIPTS_BYTES:
                    most = f"{MAX_SCRIPTS} files or {MAX_SCRIPTS_BYTES >> 20} MB"
                    raise TooLarge(f"{inside} holds more than {most}", hint="keep large files elsewhere")
                yield f"{inside}/{path.relative_to(scripts.folder)}", path.read_bytes()


def place_of(name: str) -> str:
    """Where a command sees the scripts of a skill."""
    return f"{SCRIPTS}/{name}/scripts"
