"""Each row of docs/reference/faults.md: the fault is made, and what the program says is what stands there, word for word."""

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest
from loopback import raw_serving
from needs import needs
from stores import new_home

from appliance.clock import now_ms
from appliance.errors import OwlError, Refused
from appliance.http.process import build_server
from appliance.models.pool import Pool
from appliance.runtime import config, jsonrpc, paths
from appliance.runtime.paths import Home
from appliance.runtime.settings import Backups, Channels, Config, WebSettings
from appliance.secrets.vault import Vault
from appliance.service.core import Core
from appliance.sessions.outbox import DeliveryPatience, Notification, Outbox
from appliance.store import disk_faults, storage_errors
from appliance.store.database import Store
from appliance.store.disk_room import DiskRoom
from appliance.upkeep import backup_target, backups, doctor, exports, home_faults, restore, sealed_backups
from appliance.upkeep.checks import machine, upkeep
from appliance.upkeep.checks.finding import Finding
from appliance.upkeep.checks.unworkable import find_unworkable
from appliance.upkeep.home_lock import Lock

PAGE = Path(__file__).parents[2] / "docs/reference/faults.md"
HOLES = re.compile(r"\b(?:PATH|PLACE|WHY|WHAT|N)\b")
ROW = re.compile(r"^\| ([^|]+?) \| (.+) \| ([\w, ]+) \|$", re.MULTILINE)
Said = OwlError | Finding | str


class Nobody:
    """Knows that there are no secrets and no persons."""

    def list_secrets(self) -> list[str]:
        return []

    list_people = list_groups = list_secrets


@dataclass
class Rig:
    """A home, an empty folder beside it, and what ends with the test."""

    home: Home
    place: Path
    stack: ExitStack = field(default_factory=ExitStack)

    def file(self, name: str, data: bytes = b"") -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def settings(self, text: str) -> Config:
        self.home.config.write_text(text)
        return config.load(self.home, {})

    def unworkable(self, text: str) -> OwlError:
        """The first value of a configuration that cannot work."""
        return next(iter(find_unworkable(self.home, self.settings(text), Nobody())))

    def hold(self, named: str, pid: int = 0) -> None:
        """A core holds the home: its process, and where it says that it listens."""
        lock = Lock(self.home.lock)
        self.stack.callback(lock.release)
        lock.tell(named)
        if pid:
            self.home.lock.write_text(f"{pid}\n{named}")

    def checked(self, keys: Backups) -> Finding:
        return upkeep.check_backups(self.home, Config(backups=keys), rows=1)

    def save(self) -> Path:
        return backups.make(self.home, Config(), self.home.backups, backups.unheard).backup.path

    def vault(self) -> Vault:
        made = Vault(self.home.vault, iterations=1)
        made.set("llm/openai", "sk-example")
        return made


def told(do: Callable[..., object], *given: Any) -> OwlError:
    """The error that it raises, as the boundaries tell it."""
    try:
        do(*given)
    except (OwlError, OSError) as error:
        found = disk_faults.explain_fault(error) or error
        assert isinstance(found, OwlError), found
        return found
    raise AssertionError("nothing was wrong")


def fault(number: int, path: Path | None = Path("/srv/owl/x")) -> Callable[[Rig], Said]:
    """What is made of an error of the system."""
    return lambda rig: told(_fail, OSError(number, os.strerror(number), *([str(path)] if path else [])))


def _fail(error: Exception) -> None:
    raise error


def no_inodes(rig: Rig) -> Said:
    place = rig.place / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=1", "tmpfs", str(place)], check=True)
    rig.stack.callback(lambda: subprocess.run(["umount", str(place)], check=True))
    return told((place / "x").write_text, "x")


def full_home(rig: Rig) -> Said:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(rig.home.root)], check=True)
    rig.stack.callback(lambda: subprocess.run(["umount", str(rig.home.root)], check=True))
    return upkeep.check_disk(rig.home, Config())


def damaged(rig: Rig) -> Said:
    rig.home.database.write_bytes(b"no database" * 1000)
    return told(Store.open, rig.home.database)


def newer(rig: Rig) -> Said:
    with closing(apsw.Connection(str(rig.home.database))) as db:
        db.execute("PRAGMA user_version = 9999")
    return told(Store.open, rig.home.database)


def moved(rig: Rig) -> Said:
    return storage_errors.explain(apsw.CantOpenError("unable to open database file"), rig.place / "gone/owlbox.db")


def open_home(rig: Rig) -> Said:
    rig.home.root.chmod(0o755)
    return doctor._home(rig.home, False)


def no_folder(rig: Rig) -> Said:
    shutil.rmtree(rig.home.box)
    return doctor._home(rig.home, False)


def another_disk(rig: Rig) -> Said:
    place = str(rig.place)
    backup_target.record(rig.home, place)
    record = rig.home.backups / backup_target.RECORD
    disk = backup_target.find_disk(rig.place)
    record.write_text(record.read_text().replace(f'"disk":"{disk}"', '"disk":"1234-ABCD"'))
    return told(backup_target.require_same_disk, rig.home, place)


def failed_try(rig: Rig) -> Said:
    backup_target.record(rig.home, str(rig.place), Refused("the disk said no"))
    return rig.checked(Backups(target=str(rig.place)))


def own_disk(rig: Rig) -> Said:
    backup_target.record(rig.home, str(rig.home.root.parent))
    return rig.checked(Backups(target=str(rig.home.root.parent)))


def in_future(rig: Rig) -> Said:
    path = rig.save()
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    kept["manifest.json"] = re.sub(rb'("made_ms": ?)\d+', rb"\g<1>%d" % (now_ms() * 2), kept["manifest.json"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
    return rig.checked(Backups())


def old_backup(rig: Rig) -> Said:
    path = rig.save()
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    kept["manifest.json"] = re.sub(rb'("made_ms": ?)\d+', rb"\g<1>%d" % (now_ms() - 20 * 86_400_000), kept["manifest.json"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
    return rig.checked(Backups())


def sealed(rig: Rig) -> Said:
    made = rig.place / "x.owlbackup"
    sealed_backups.seal(rig.save(), made, "four words nobody knows", backups.unheard)
    return told(sealed_backups.unseal, made, rig.place / "out", "other words nobody knows", backups.unheard)


def cut_export(rig: Rig) -> Said:
    rig.file(f"export/{exports.UNFINISHED}", exports.SAYS.encode())
    return told(exports.read, Home(rig.place / "new"), rig.place / "export")


def second_core(rig: Rig) -> Said:
    rig.hold("")
    return told(Lock, rig.home.lock)


def stopped_core(rig: Rig, *, is_second: bool = False) -> Said:
    child = subprocess.Popen(["sleep", "60"])
    rig.stack.callback(child.wait)
    rig.stack.callback(child.kill)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    rig.hold("/run/owlbox/core.sock", child.pid)
    return told(Lock, rig.home.lock) if is_second else paths.silent_core(rig.home) or "answers"


def silent(named: str) -> Callable[[Rig], Said]:
    def make(rig: Rig) -> Said:
        rig.hold(named and str(rig.place / "core.sock"))
        if named == "there":
            rig.file("core.sock")
        return paths.silent_core(rig.home) or "answers"

    return make


def foreign_folder(rig: Rig) -> Said:
    environ = {"XDG_RUNTIME_DIR": str(rig.place)}
    folder = paths.runtime_folder(rig.home, environ)
    folder.write_text("in the way")
    return told(paths.runtime_folder, rig.home, environ)


def closed_runtime(rig: Rig) -> Said:
    return told(lambda: paths.runtime_folder(rig.home, {"XDG_RUNTIME_DIR": str(rig.file("file"))}, make=True))


def full_queue(rig: Rig) -> Said:
    with closing(Store.open(rig.home.database)) as store:
        outbox = Outbox(store, "", DeliveryPatience(max_waiting=1))
        outbox.put(Notification("key", "ann", "hoot"))
        return told(outbox.require_room)


def taken_port(rig: Rig) -> Said:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return told(
            lambda: build_server(rig.home, {}, WebSettings(enabled=True, port=taken.getsockname()[1]), folder=rig.home.root)
        )


def page(answer: bytes) -> Callable[[Rig], Said]:
    def make(rig: Rig) -> Said:
        with raw_serving(lambda sock: sock.sendall(answer)) as url:
            port = int(url.rpartition(":")[2].strip("/")) if answer else 9
            settings = Config(channels=Channels(web=WebSettings(enabled=True, port=port)))
            return upkeep.check_channels(settings, {"channels": {"web": True}}, 0)

    return make


def failed_delivery(rig: Rig) -> Said:
    return upkeep.check_channels(Config(), {"channels": {}}, 3)


def closed_channel(rig: Rig) -> Said:
    return upkeep.check_channels(Config(), {"channels": {"email": "nas.invalid:993 cannot be reached: timed out"}}, 0)


def broken_file(rig: Rig) -> Said:
    rig.home.config.write_text("not toml [\n")
    return home_faults.next_start(rig.home, {})[0]


def bad_reload(rig: Rig) -> Said:
    core = Core(rig.home, {"XDG_RUNTIME_DIR": str(rig.place), "HOME": str(rig.place)}, process="cli", is_shared=False)
    rig.stack.callback(lambda: core.close("test"))
    rig.home.config.write_text('[system]\ntimezone = "Mars/Base"\n')
    return told(core.reload)


def waiting_clock(rig: Rig) -> Said:
    with closing(Store.open(rig.home.database)) as store:
        with store.write() as execute:
            execute("UPDATE wall_clock SET held_until_ms = 9000000000000")
        return home_faults.listing(rig.home, store)[0]


def expired(rig: Rig) -> Said:
    vault = rig.vault()
    vault.expire("llm/openai", 1)
    return told(vault.get, "llm/openai")


def locked(rig: Rig) -> Said:
    rig.vault().rotate("passphrase", "four words nobody knows")
    return told(Vault(rig.home.vault, iterations=1).get, "llm/openai")


def lost_key(rig: Rig) -> Said:
    rig.vault()
    next(rig.home.vault.glob("key-*")).unlink()
    return told(Vault(rig.home.vault).get, "llm/openai")


def emptied(rig: Rig) -> Said:
    rig.vault()
    (rig.home.vault / "secrets").write_bytes(b"")
    return home_faults.emptied_vault(rig.home)


def tampered(rig: Rig) -> Said:
    rig.vault()
    path = rig.home.vault / "secrets"
    head, line = path.read_text().splitlines()
    path.write_text(f"{head}\n{line.replace('sealed', 'sealed', 1)[:-12]}AAAAAAAA{line[-4:]}\n")
    return told(Vault(rig.home.vault, iterations=1).get, "llm/openai")


def sign(name: str, text: str, check: Callable[[Path], Finding]) -> Callable[[Rig], Said]:
    """What the doctor makes of a file of the kernel."""

    def make(rig: Rig) -> Said:
        path = rig.place / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        (path.with_name("type")).write_text("cpu-thermal\n")
        return check(rig.place)

    return make


def low_memory(rig: Rig) -> Said:
    rig.file("proc/meminfo", b"MemTotal: 1000000 kB\nMemAvailable: 10000 kB\n")
    rig.file("proc/vmstat", b"oom_kill 0\n")
    return machine.check_memory(rig.place)


def bad_value(text: str) -> Callable[[Rig], Said]:
    return lambda rig: rig.unworkable(text)


def bad_file(text: str) -> Callable[[Rig], Said]:
    return lambda rig: told(rig.settings, text)


def bad_backup(data: bytes) -> Callable[[Rig], Said]:
    return lambda rig: told(restore.is_archive, rig.file("owlbox-20260101T000000Z.zip", data))


THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
CASES: dict[str, Callable[[Rig], Said]] = {
    "full": fault(errno.ENOSPC, Path("/nowhere/x")),
    "full, no file is known": fault(errno.ENOSPC, None),
    "full, seen by doctor": full_home,
    "out of inodes": no_inodes,
    "over its quota": fault(errno.EDQUOT),
    "read-only": fault(errno.EROFS),
    "failing": fault(errno.EIO),
    "failing under a file that was being read": lambda rig: told(sealed_backups.read_key_file, Path("/proc/self/mem")),
    "nearly full": lambda rig: told(DiskRoom(rig.place, lambda: (0.0, 0.0)).require, "no session was opened"),
    "database damaged": damaged,
    "database of another user": lambda rig: storage_errors.explain(
        apsw.CantOpenError("unable to open database file"), rig.home.database
    ),
    "database of a newer owlbox": newer,
    "database in use for too long": lambda rig: storage_errors.explain(apsw.BusyError("database is locked"), rig.home.database),
    "no home there": lambda rig: told(Home(rig.place / "none").require),
    "home moved under a running core": moved,
    "home with too long a path": lambda rig: told(paths.find_home, f"/{'x' * 600}", {}),
    "home open to others": open_home,
    "folders of the home are gone": no_folder,
    "the disk of a target is not mounted": lambda rig: told(backup_target.require_disk, rig.home, Path("/media/nostick")),
    "another disk than before": another_disk,
    "a server does not answer": lambda rig: told(
        sealed_backups.require_answer, sealed_backups.parse_place("sftp://owl@127.0.0.1:9/b")
    ),
    "a target that is no place": lambda rig: told(sealed_backups.parse_place, "ftp://nas/b"),
    "a target as scp names a server": lambda rig: told(backup_target.expand, "nas:/b"),
    "a target that is a file": lambda rig: told(backups.make, rig.home, Config(), rig.file("stick"), backups.unheard),
    "the last try failed": failed_try,
    "no backup came to the target yet": lambda rig: rig.checked(Backups(target=str(rig.place))),
    "none at all": lambda rig: rig.checked(Backups()),
    "the newest is old": old_backup,
    "a target on the home's own disk": own_disk,
    "dates in the future": in_future,
    "a key file that is gone": lambda rig: told(sealed_backups.read_key_file, rig.place / "key"),
    "a key file that is too short": lambda rig: told(sealed_backups.read_key_file, rig.file("key", b"short\n")),
    "a wrong passphrase": sealed,
    "restore of a file that is not there": lambda rig: told(restore.find, rig.home, "nothing.zip"),
    "restore of a folder": lambda rig: told(restore.find, rig.home, str(rig.place)),
    "restore of an empty file": bad_backup(b""),
    "restore of zeros": bad_backup(bytes(8192)),
    "restore of an archive that was cut off": bad_backup(b"PK\x03\x04" + b"x" * 100),
    "restore of another program's file": bad_backup(b"hello, this is a letter\n"),
    "import of an export that was cut off": cut_export,
    "a second core": second_core,
    "a second core, the first is stopped": lambda rig: stopped_core(rig, is_second=True),
    "the socket of a core is gone": silent("gone"),
    "a core that is starting": silent(""),
    "a core that is stopped": stopped_core,
    "a core that does not answer": silent("there"),
    "nobody listens at a socket": lambda rig: told(jsonrpc.connect, str(rig.place / "core.sock"), 1.0),
    "the folder of sockets is not ours": foreign_folder,
    "the folder of sockets cannot be made": closed_runtime,
    "too many prompts wait": full_queue,
    "no model": lambda rig: told(Pool(rig.home, Config()).plan),
    "the port of the web page is taken": taken_port,
    "the web page is dead": page(b""),
    "another program answers for the web page": page(b"HTTP/1.0 200 OK\r\n\r\na printer"),
    "a channel that is closed": closed_channel,
    "notifications that failed": failed_delivery,
    "an unknown time zone": bad_value('[system]\ntimezone = "Mars/Base"\n'),
    "a target without its disk": bad_value('[backups]\ntarget = "/media/nostick"\n'),
    "a key file": bad_value('[backups]\nkey_file = "/nowhere/key"\n'),
    "a certificate": bad_value('[channels.web]\ncertificate = "nowhere.pem"\n'),
    "authorities": bad_value('[providers.acme]\nbase_url = "http://127.0.0.1:9"\nca_file = "/nowhere/ca.pem"\n'),
    "a host": bad_value('[channels.email]\nimap_host = "https://mail.example.org/"\n'),
    "an address": bad_value('[tools.web_search]\nurl = "http://two words/"\n'),
    "an address that is not this machine's": bad_value('[channels.web]\nhost = "192.0.2.7"\n'),
    "a model": bad_value('[models]\ndefault = "no-such-model"\n'),
    "a secret": bad_value('[channels.email]\npassword = "secret:channel/email"\n'),
    "a secret for a provider, elsewhere": bad_value('[channels.email]\npassword = "secret:llm/openai"\n'),
    "a person": bad_value('[system]\nadmin_users = ["nobody-here"]\n'),
    "a channel": bad_value('[[people.owner_aliases]]\naddress = "x@example.org"\nchannel = "pigeon"\n'),
    "a program": bad_value('[tools.mcp.own]\ncommand = "no-such-program"\n'),
    "a folder": bad_value('[sandbox]\nworkspace = "/nowhere"\n'),
    "a plugin": bad_value('[plugins]\nenabled = ["no-such-plugin"]\n'),
    "an unknown key": bad_file("[system]\ntimezon = 1\n"),
    "a value of the wrong kind": bad_file("[backups]\nkeep = 0\n"),
    "no TOML": bad_file("system = [\n"),
    "a variable that is not set": bad_file('[system]\ntimezone = "${NOT_SET}"\n'),
    "a file broken under a running core": broken_file,
    "a reload of what cannot work": bad_reload,
    "no such secret": lambda rig: told(rig.vault().get, "llm/acme"),
    "a secret that has expired": expired,
    "a locked vault": locked,
    "the key of the vault is gone": lost_key,
    "the vault was emptied": emptied,
    "never set": lambda rig: machine.describe_clock(60_000, None),
    "follows no time server": lambda rig: machine.describe_clock(now_ms(), False),
    "schedules wait for it": waiting_clock,
    "hot": sign("sys/class/thermal/thermal_zone0/temp", "86000\n", machine.check_temperature),
    "too little supply": sign(THROTTLED, "0x1\n", machine.check_throttling),
    "too little supply before": sign(THROTTLED, "0x10000\n", machine.check_throttling),
    "little memory": low_memory,
}


def rows() -> dict[str, tuple[str, str]]:
    """The table: the words and where they are read, by the fault."""
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {name: (words.replace("\\|", "|"), where) for name, words, where in found if name not in ("fault")}


def say(said: Said) -> tuple[str, str]:
    """What a person reads, and the exit code or the command that says it."""
    if isinstance(said, OwlError):
        return str(said), str(said.exit_code)
    if isinstance(said, Finding):
        assert said.state in ("problem", "warning"), said
        return f"{said.message} ({said.hint})" if said.hint else said.message, "doctor"
    return str(said), "status"


@pytest.fixture(name="rig")
def a_rig(tmp_path: Path) -> Iterator[Rig]:
    new_home(home := Home(tmp_path / "home"))
    (place := tmp_path / "place").mkdir()
    rig = Rig(home, place)
    with rig.stack:
        yield rig


def test_the_table_and_the_cases_are_the_same() -> None:
    assert list(rows()) == list(CASES) and len(CASES) >= 60


@needs(root=True)
@pytest.mark.parametrize("name", CASES)
def test_the_words_are_those_of_the_table(rig: Rig, name: str) -> None:
    said, where = say(CASES[name](rig))
    words, places = rows()[name]
    wanted = "".join(".+?" if hole else re.escape(text) for text, hole in zip(*_cut(words), strict=True))
    assert re.fullmatch(wanted, said, re.DOTALL), f"\n{said}\n{words}"
    assert where in places.split(", "), (where, places)


def _cut(words: str) -> tuple[list[str], list[bool]]:
    """The words, and which of them stand for what is different each time."""
    parts = re.split(r"(\b(?:PATH|PLACE|WHY|WHAT|N)\b)", words)
    return parts, [HOLES.fullmatch(part) is not None for part in parts]
