"""The sandbox of a server that stays: what of this machine it sees, as the words bubblewrap needs.

A server of tools is held as a call is (`sandbox.bubblewrap`): namespaces, system calls, Landlock, limits. What differs: it lives as
long as it is used, so no time limit; its folder is its own and stays; it has this machine's network when its
configuration says so; and it sees the folders named for it. Pure but for looking at paths; starts nothing.

Not promised: a bound on the memory of all its processes together, only on each, and none on its share of the processor.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from appliance.errors import BadInput, NotFound
from appliance.sandbox import bubblewrap, landlock, seccomp
from appliance.sandbox.bubblewrap import Bind, Limits, SandboxOrder
from appliance.sandbox.landlock import AllowedPath, Ceiling

SEARCHED = "/usr/local/bin:/usr/bin:/bin"  # where a command without a slash is looked for, inside as outside
HOME_OF_PYTHON = "home = "  # the line of pyvenv.cfg that names the Python a virtual environment was made with
# What a program with network needs of /etc: names of hosts, and who may vouch for them.
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/ca-certificates", "/etc/gai.conf")
FILES = 1024
NICE = 5


class Enclosure(Struct, frozen=True):
    """One server as it is started: `folder` is its own and is seen at /work; binds are what is named for it besides."""

    name: str
    argv: tuple[str, ...]
    folder: Path
    environ: Mapping[str, str] = {}
    binds: tuple[Bind, ...] = ()
    has_network: bool = False
    memory_bytes: int = 512 << 20
    pids: int = 128
    disk_bytes: int = 1 << 30  # of one file

    @property
    def order(self) -> SandboxOrder:
        """The same as an order of `jail`, which checks it and knows most of the words."""
        limits = Limits(memory_bytes=self.memory_bytes, pids=self.pids, disk_bytes=self.disk_bytes)
        return SandboxOrder(self.name, "", self.argv, folder=self.folder, binds=self.binds, environ=self.environ, limits=limits)


def options(enclosure: Enclosure) -> list[bubblewrap.Word]:
    """The arguments of bubblewrap. BadInput as `bubblewrap.check`."""
    order = enclosure.order
    bubblewrap.check(order)
    words = bubblewrap.options(order)
    if not enclosure.has_network:
        return words
    words.remove("--unshare-net")
    words[-1] = seccomp.tool_filter(has_network=True)
    end = words.index("--remount-ro")
    return [*words[:end], *_network_binds(), *words[end:]]


def command(enclosure: Enclosure, ready_fd: int, abi: int) -> list[str]:
    """What bubblewrap runs: the server behind its entry, which says on `ready_fd` that it begins."""
    ceiling = Ceiling(2 * enclosure.memory_bytes, enclosure.disk_bytes, 0, enclosure.pids, FILES, NICE)
    places = [AllowedPath(bubblewrap.WORK), AllowedPath("/tmp"), AllowedPath("/dev/shm")]
    places += [AllowedPath(bind.inside, bind.source.is_dir()) for bind in enclosure.binds if bind.is_writable]
    entry = landlock.entry(ceiling, places, ready_fd, abi, has_network=enclosure.has_network)
    return [*entry, *enclosure.argv]


def _network_binds() -> Iterator[str]:
    for name in NETWORK_FILES:
        # A link such as resolv.conf often leads to /run, which is not there inside: what it leads to is shown in its place.
        yield from ("--ro-bind-try", os.path.realpath(name), name)


def bind(text: str, *, is_writable: bool = False) -> Bind:
    """A folder as the configuration names it: a path, or two with a colon between them, outside and inside."""
    outside, _, inside = text.partition(":")
    path = Path(outside).expanduser()
    if not path.is_absolute():
        raise BadInput(f"{outside} is not an absolute path", hint="name a folder from / on")
    found = path.resolve()
    if not found.exists():
        raise NotFound(f"{outside} does not exist", hint="make it, or remove it from the server's folders")
    return Bind(found, inside or str(path), is_writable)


def program(text: str) -> str:
    """The command of a server as an absolute path; NotFound where there is none."""
    if "/" in text:
        path = os.path.normpath(os.path.expanduser(text))
        if not os.path.isabs(path):
            raise BadInput(f"{text} is neither a program's name nor an absolute path", hint="write its whole path")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
        raise NotFound(f"there is no program {path}", hint="is it installed, and may it be run?")
    found = shutil.which(text, path=SEARCHED)
    if found is None:
        hint = f"install it, or name its whole path; looked in {SEARCHED}"
        raise NotFound(f"there is no program {text}", hint=hint)
    return found


def words_of(path: str) -> list[str]:
    """What starts a program inside: one of a virtual environment that is seen elsewhere has the old place of its Python in it."""
    inside = bubblewrap.place_of_program(path)
    python = Path(path).with_name("python")
    if inside == path or not (python.parent.parent / "pyvenv.cfg").is_file() or not python.exists():
        return [inside]
    with open(path, "rb") as file:
        return [bubblewrap.place_of_program(str(python)), inside] if file.read(2) == b"#!" else [inside]


def needed(path: str) -> list[Bind]:
    """What must be seen for a program to start: nothing for one of the system's, else what it was installed with.

    Of a virtual environment that is the environment and the Python it was made with, of a node package the folder with
    all its packages, else the program's own file.
    """
    if path.startswith(("/usr/", "/bin/", "/sbin/")):
        return []
    if "/node_modules/" in path:
        return [_readable_bind(Path(path[: path.index("/node_modules/")]) / "node_modules")]
    for folder in Path(path).parents:
        if (folder / "pyvenv.cfg").is_file():
            return [_readable_bind(folder), *_python_binds(folder / "pyvenv.cfg")]
    return [_readable_bind(Path(path))]


def _python_binds(written: Path) -> list[Bind]:
    for line in written.read_text("utf-8", "replace").splitlines():
        if line.startswith(HOME_OF_PYTHON):
            home = Path(line.removeprefix(HOME_OF_PYTHON).strip())
            place = home.parent  # at its own path, which is written in the environment
            return [] if str(home).startswith(("/usr/", "/bin")) else [Bind(place.resolve(), str(place))]
    return []


def _readable_bind(path: Path) -> Bind:
    return Bind(path.resolve(), bubblewrap.place_of_program(str(path)))
