"""Where things live: the home folder's layout, the runtime folder, the socket paths.

Standard library only and reads no configuration, so the command line can find a running core at once.
There is no global configuration: everything outside the home is a socket or a lock in the runtime
folder, which is made anew when it is missing (B-151, B-152).
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from appliance.errors import BadInput, NotFound, Unavailable

# The appliance: the core is a service there, and commands on its home use its sockets.
SERVICE_HOME = Path("/var/lib/owlbox")
SERVICE_RUNTIME = Path("/run/owlbox")
SERVICE_TOOL = Path("/run/owlbox-tool/tool.sock")
MAX_HOME_BYTES = 400  # SQLite opens no path of more than 504; the longest name below a home has some 80

FOLDERS = (
    "box/roles",
    "box/skills",
    "box/notes",
    "box/groups",
    "box/users",
    "models/prefix",
    "sessions",
    "logs",
    "backups",
    "drop",
    "drop/users",
    "drop/groups",
)


class Home(NamedTuple):
    """One data root (A-210); every path of it is derived here."""

    root: Path

    @property
    def config(self) -> Path:
        """The one configuration file."""
        return self.root / "owlbox.toml"

    @property
    def database(self) -> Path:
        """The one database file; only `store` opens it."""
        return self.root / "owlbox.db"

    @property
    def lock(self) -> Path:
        """Held by the core with flock for as long as it runs (A-009)."""
        return self.root / "owlbox.lock"

    @property
    def box(self) -> Path:
        """The folder people drop Markdown into."""
        return self.root / "box"

    @property
    def drop(self) -> Path:
        """Where programs of this box leave requests as files, one folder for each person and group."""
        return self.root / "drop"

    @property
    def models(self) -> Path:
        """Local models; prefix states under prefix/."""
        return self.root / "models"

    @property
    def vault(self) -> Path:
        """Secrets, encrypted; only the broker opens it. Made with the first one."""
        return self.root / "vault"

    @property
    def spend(self) -> Path:
        """The record of spending on remote models; only brokers write it."""
        return self.root / "spend/spend.jsonl"

    @property
    def ssh_keys(self) -> Path:
        """The keys that sshd lets in, written by the core."""
        return self.root / "ssh" / "authorized_keys"

    @property
    def logs(self) -> Path:
        """Logs of the core, and one folder per child process (A-211)."""
        return self.root / "logs"

    @property
    def backups(self) -> Path:
        """Snapshots, among them the ones taken before a migration."""
        return self.root / "backups"

    def require(self) -> "Home":
        """This home, or NotFound with the command that makes it."""
        try:
            is_there = self.config.exists() or self.database.exists()
            if is_there:
                os.listdir(self.root)
        except PermissionError:
            raise BadInput(
                f"home {self.root} cannot be read by user {os.getuid()}", hint="run as its owner, or choose another with --home"
            ) from None
        if not is_there:
            raise NotFound(
                f"no owlbox home at {self.root}", hint=f"make one: owlbox init --home {self.root}; or name where it is: --home DIR"
            )
        return self


def find_home(chosen: str | None, environ: Mapping[str, str]) -> Home:
    """The home named by --home, else OWLBOX_HOME, else the user's data folder; BadInput where no database could be in it."""
    name = chosen or environ.get("OWLBOX_HOME") or ""
    data = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    root = Path(name).expanduser().absolute() if name else Path(data) / "owlbox"
    size = max(len(os.fsencode(path)) for path in (root, os.path.realpath(root)))
    if size > MAX_HOME_BYTES:
        shown = f"{str(root)[:40]}…{str(root)[-20:]}"
        hint = "choose a folder with a shorter path: owlbox --home DIR, or OWLBOX_HOME"
        raise BadInput(f"the path of home {shown} has {size} bytes, at most {MAX_HOME_BYTES} can be used", hint=hint)
    return Home(root)


def runtime_folder(home: Home, environ: Mapping[str, str], *, make: bool = False) -> Path:
    """The folder of sockets for this home, on tmpfs where there is one.

    RUNTIME_DIRECTORY (systemd) is taken as it is, and on the service's home the service's folder; otherwise
    one named by a hash of the home under XDG_RUNTIME_DIR, else under /tmp, owned by us with mode 0700 (a
    foreign one is refused).
    """
    given = environ.get("RUNTIME_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    if home.root == SERVICE_HOME and SERVICE_RUNTIME.is_dir():
        return SERVICE_RUNTIME
    tag = hashlib.sha256(os.fsencode(home.root.resolve())).hexdigest()[:12]
    session = environ.get("XDG_RUNTIME_DIR")
    folder = Path(session) / f"owlbox-{tag}" if session else Path("/tmp") / f"owlbox-{os.getuid()}-{tag}"
    if make:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"runtime folder {folder}: {error.strerror}", hint="set XDG_RUNTIME_DIR to a writable folder") from None
    try:
        info = folder.lstat()  # a link that leads nowhere is there, and somebody else's
    except (FileNotFoundError, NotADirectoryError):
        return folder
    else:
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
            raise BadInput(
                f"runtime folder {folder} is not a private folder of user {os.getuid()}",
                hint="remove it, or set XDG_RUNTIME_DIR",
            )
    return folder


def find_core(home: Home, environ: Mapping[str, str]) -> Path:
    """Where the core of a home listens: in our runtime folder, else where the core that holds the lock says.

    It may have been started with another XDG_RUNTIME_DIR than ours, which cron, su and ssh do not set.
    """
    path = core_socket(runtime_folder(home, environ))
    return path if path.exists() else _locked_socket(home) or path


def is_core_held(home: Home) -> bool:
    """True while a core holds the lock of a home: also one that is still starting, or has ended all but that."""
    try:
        with open(home.lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # no lock file, or not for us to read
    return False


def read_holder(home: Home) -> tuple[str, str]:
    """The pid of the core that holds the lock of a home, and the socket that it named; "" for what is not known."""
    try:
        pid, _, socket = home.lock.read_text(encoding="utf-8", errors="surrogateescape")[:4096].partition("\n")
    except OSError:
        return "", ""
    return pid.strip(), socket


def is_core_stopped(home: Home) -> bool:
    """Whether the core that holds a home is stopped by a signal, so that it answers nobody."""
    try:
        state = Path(f"/proc/{int(read_holder(home)[0])}/stat").read_text().rpartition(") ")[2][:1]
    except (OSError, ValueError):
        return False
    return state in ("T", "t") and is_core_held(home)


def silent_core(home: Home) -> Unavailable | None:
    """Why the core that holds a home does not answer, with its process and what to do; None where none holds it."""
    if not is_core_held(home):
        return None
    pid, named = read_holder(home)
    who = f"a core (pid {pid or '?'}) runs on {home.root}"
    again = (
        "sudo systemctl restart owlbox.socket owlbox" if home.root == SERVICE_HOME else f"kill {pid or 'PID'}, then start it again"
    )
    if is_core_stopped(home):
        said, hint = f"{who} and is stopped (Ctrl-Z, a debugger or kill -STOP)", f"kill -CONT {pid} lets it go on"
    elif not named:
        said, hint = f"a core is starting on {home.root} and does not answer yet", "try again; owlbox doctor checks it"
    elif not os.path.exists(named):
        said, hint = f"{who}, and its socket {named} is gone", f"it makes it again within seconds; if it does not: {again}"
    else:
        said, hint = f"{who} and does not answer", f"try again; if it still does not: {again}"
    return Unavailable(said, hint=hint)


def _locked_socket(home: Home) -> Path | None:
    """The socket named in the lock file, None unless a core holds the lock now."""
    _, socket = read_holder(home)
    return Path(socket) if socket and os.path.exists(socket) and is_core_held(home) else None


def core_socket(runtime: Path) -> Path:
    """Where the core listens."""
    return runtime / "core.sock"


def programs_socket(runtime: Path) -> Path:
    """Where programs of this machine ask by HTTP."""
    return runtime / "programs.sock"


def broker_socket(runtime: Path) -> Path:
    """Where the core's broker listens."""
    return runtime / "broker.sock"


def tool_socket(home: Home, environ: Mapping[str, str]) -> Path | None:
    """Where tools are run by a unit of their own: OWLBOX_TOOL_SOCKET, on the appliance its socket; None in a checkout."""
    given = environ.get("OWLBOX_TOOL_SOCKET")
    if given:
        return Path(given)
    return SERVICE_TOOL if home.root == SERVICE_HOME else None


def flush(folder: Path) -> None:
    """Make the names in a folder survive a power cut: a rename is only safe after this."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unused(folder: Path, stem: str, suffix: str = "") -> Path:
    """A name that nothing in a folder has yet: the stem and the suffix, with a number between them where it is taken."""
    path, number = folder / f"{stem}{suffix}", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}{suffix}"
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system name the file that somebody asked for, not the one beside it that is written first."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def put(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file whole or not at all, so that it is there with its mode after a power cut; without a mode a private one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with naming(path), open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)
            flush(path.parent)
    finally:
        part.unlink(missing_ok=True)
