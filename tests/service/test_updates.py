"""Updates: what is refused, what is applied and taken back, and a machine that stops at every moment of one."""

import base64
import gzip
import io
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from process import Box, a_box  # noqa: F401
from stores import new_home

from appliance import __version__
from appliance.clock import now_ms
from appliance.errors import OwlError, Refused, StoreError
from appliance.knowledge.entries import Entries
from appliance.runtime.paths import Home
from appliance.secrets import encryption
from appliance.store.database import Store
from appliance.store.migrations import LATEST
from appliance.text import tar_reader
from appliance.upkeep.updates import bundle, home_steps, last_check, source
from appliance.upkeep.updates.host import UpdateHost
from appliance.upkeep.updates.journal import Journal, JournalFile, Step
from appliance.upkeep.updates.updater import RECOVERY, TRIAL, Updater

PRIVATE, PUBLIC = encryption.new_signing_key()
WEEK_MS = 7 * 86_400_000
ROOT = Path(__file__).parents[2]

# A version that is small: its doctor brings the database to a later version, as a migration does, by the Python of the tests.
PROGRAM = """\
import json, subprocess, sys, time
BEHAVIOUR = {behaviour!r}
home = sys.argv[sys.argv.index("--home") + 1]
if "doctor" in sys.argv:
    code = "import apsw; db = apsw.Connection(" + repr(home + "/owlbox.db") + "); db.pragma('user_version', {database})"
    subprocess.run([{python!r}, "-c", code], check=True)
    print(json.dumps([{{"name": name, "state": "problem"}} for name in BEHAVIOUR.get("problems", [])]))
    time.sleep(BEHAVIOUR.get("doctor_s", 0))
elif "ask" in sys.argv:
    time.sleep(BEHAVIOUR.get("ask_s", 0))
    print(json.dumps({{"answer": BEHAVIOUR.get("answer", "Hoot.")}}))
"""


def make_wheel(folder: Path, version: str, behaviour: dict[str, object], database: int = LATEST + 1) -> Path:
    """A wheel of owlbox in this version."""
    path = folder / f"owlbox-{version}-py3-none-any.whl"
    info = f"owlbox-{version}.dist-info"
    program = PROGRAM.format(behaviour=behaviour, database=database, python=sys.executable)
    files = {
        "appliance/__init__.py": f'__version__ = "{version}"\n',
        "appliance/__main__.py": program,
        "appliance/behaviour.json": json.dumps({**behaviour, "database": database}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: owlbox\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path


def make_bundle(folder: Path, version: str = "9.0.0", *, private: bytes = PRIVATE, days: int = 7, **behaviour: object) -> Path:
    """A bundle of such a wheel."""
    folder.mkdir(exist_ok=True)
    wheel = make_wheel(folder, version, behaviour)
    told = bundle.describe(version, LATEST + 1, [wheel], bundle.this_target(), now_ms(), now_ms() + days * 86_400_000)
    path = bundle.build(folder, told, [wheel], private)
    wheel.unlink()
    return path


class QuickHost(UpdateHost):
    """A host whose environments are the unpacked wheel, and whose steps are taken in this process: for stopping at every one."""

    def build(self, folder: Path, wheels: list[Path]) -> None:
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(folder)

    def step(self, python: Path, step: str, place: Path) -> None:
        {"save": home_steps.save, "stage": home_steps.stage, "restore": home_steps.restore, "tidy": home_steps.tidy}[step](
            self.home, place
        )

    def find_problems(self, python: Path, home: Home) -> set[str]:
        told = self._behaviour(python)
        if told is None:
            Store.open(home.database).close()
            return set()
        if "only_live" in told and home.root.name == TRIAL:
            return set()
        db = apsw.Connection(str(home.database))
        db.pragma("user_version", told["database"])
        db.close()
        return set(told.get("problems", []))

    def ask(self, python: Path, home: Home) -> str:
        return str((self._behaviour(python) or {}).get("answer", "Hoot."))

    def start(self, python: Path) -> None:
        super().start(python)
        if (self._behaviour(python) or {}).get("is_stillborn"):
            raise StoreError("the core does not come up")

    def _behaviour(self, python: Path) -> "dict[str, object] | None":
        path = python.parents[1] / "appliance/behaviour.json"
        return json.loads(path.read_text()) if path.exists() else None


def installation(folder: Path, below: str = "") -> tuple[Path, Home]:
    """A home with something in it, and a folder of versions in which the present one is in use."""
    home = Home(folder / "home")
    new_home(home)
    store = Store.open(home.database)
    Entries(store).set("memory://notes/well", "the well is deep")
    store.close()
    versions = folder / "versions"
    python = versions / below / __version__ / "bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$1" = -I ] && shift\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (versions / "current").symlink_to(f"{below}{__version__}")
    return versions, home


def updater(versions: Path, home: Home, passed: Callable[[str], None] = lambda what: None) -> Updater:
    return Updater(versions, home, QuickHost(home, os.environ), passed=passed)


def state(versions: Path, home: Home) -> tuple[str, int, bool]:
    """The version in use, that of the database, and whether what was said is there."""
    db = apsw.Connection(str(home.database))
    [(number,)] = db.execute("PRAGMA user_version").fetchall()
    [(count,)] = db.execute("SELECT COUNT(*) FROM entries WHERE body = 'the well is deep'").fetchall()
    db.close()
    return os.readlink(versions / "current"), int(number), count == 1


OLD, NEW = (__version__, LATEST, True), ("9.0.0", LATEST + 1, True)


def test_an_update_is_applied_and_rolled_back_with_the_data(tmp_path: Path) -> None:
    versions, home = installation(tmp_path)
    done = updater(versions, home).apply(make_bundle(tmp_path / "stick").parent, PUBLIC, __version__)
    assert done.is_applied and state(versions, home) == NEW and not (home.root / TRIAL).exists()
    assert JournalFile(versions).read().previous == __version__
    done = updater(versions, home).roll_back()
    assert "as asked" in done.said and state(versions, home) == OLD and not (versions / "9.0.0").exists()
    assert len(list(home.backups.glob("taken-back*.db"))) == 1
    with pytest.raises(Refused, match="no version before"):
        updater(versions, home).roll_back()


BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "a doctor that finds something": ({"problems": ["database"]}, "nothing has changed: its doctor finds a problem"),
    "no answer": ({"answer": ""}, "nothing has changed: it has no answer"),
    "a database that is damaged only at home": ({"problems": ["database"], "only_live": True}, "taken back: its doctor finds"),
    "a core that does not come up": ({"is_stillborn": True}, "taken back: the core does not come up"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_version_that_is_not_well_is_taken_back(tmp_path: Path, name: str) -> None:
    versions, home = installation(tmp_path)
    behaviour, words = BROKEN[name]
    done = updater(versions, home).apply(make_bundle(tmp_path / "stick", **behaviour), PUBLIC, __version__)
    assert (done.is_applied, words in done.said) == (False, True), done
    assert state(versions, home) == OLD and not (versions / "9.0.0").exists() and not (home.root / TRIAL).exists()
    assert JournalFile(versions).read().step == Step.IDLE


def test_a_rollback_after_an_update_that_failed_brings_the_right_database_back(tmp_path: Path) -> None:
    versions, home = installation(tmp_path)
    assert updater(versions, home).apply(make_bundle(tmp_path / "stick"), PUBLIC, __version__).is_applied
    broken = make_bundle(tmp_path / "other", "9.0.1", problems=["database"], only_live=True)
    assert not updater(versions, home).apply(broken, PUBLIC, "9.0.0").is_applied
    updater(versions, home).roll_back()
    assert state(versions, home) == OLD


def test_a_rollback_whose_copy_is_gone_is_refused_before_anything_stops(tmp_path: Path) -> None:
    versions, home = installation(tmp_path)
    assert updater(versions, home).apply(make_bundle(tmp_path / "stick"), PUBLIC, __version__).is_applied
    [saved] = home.backups.glob("before-update-*.db")
    moved = saved.rename(tmp_path / saved.name)
    with pytest.raises(Refused, match=f"cannot open the present database.*{saved}"):
        updater(versions, home).roll_back()
    assert state(versions, home) == NEW and JournalFile(versions).read().step == Step.IDLE
    moved.rename(saved)
    updater(versions, home).roll_back()
    assert state(versions, home) == OLD


def test_only_the_copy_that_a_rollback_needs_is_kept(tmp_path: Path) -> None:
    versions, home = installation(tmp_path)
    home.backups.mkdir(exist_ok=True)
    (home.backups / "before-update-0.0.9-20261101T120000Z.db").write_bytes(b"of an earlier update")
    assert updater(versions, home).apply(make_bundle(tmp_path / "stick"), PUBLIC, __version__).is_applied
    [saved] = home.backups.glob("before-update-*.db")
    assert str(saved) == JournalFile(versions).read().previous_saved


class Bare(QuickHost):
    """On a copy of the home the doctor of every version misses what only services have."""

    def find_problems(self, python: Path, home: Home) -> set[str]:
        return super().find_problems(python, home) | ({"sandbox"} if home.root.name == TRIAL else set())


def test_what_every_version_misses_on_a_copy_is_not_held_against_the_new_one(tmp_path: Path) -> None:
    versions, home = installation(tmp_path)
    done = Updater(versions, home, Bare(home, os.environ)).apply(make_bundle(tmp_path / "stick"), PUBLIC, __version__)
    assert done.is_applied, done


def changed(path: Path, edit: Callable[[bytes], bytes]) -> None:
    path.write_bytes(edit(path.read_bytes()))


def add_file(path: Path) -> None:
    with tarfile.open(path, "a") as archive:
        archive.add(__file__, "wheels/extra-1.whl")


def other_platform(path: Path) -> None:
    """The same bundle, signed for another machine."""
    with tarfile.open(path) as archive:
        told = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
    data = json.dumps({**told, "platform": "linux_sparc64"}).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in (("manifest.json", data), ("manifest.sig", encryption.sign(PRIVATE, data))):
            (path.parent / name).write_bytes(content)
            archive.add(path.parent / name, name)


BAD: dict[str, tuple[dict[str, object], Callable[[Path], object] | None, str]] = {
    "signed by another": ({"private": encryption.new_signing_key()[0]}, None, "its signature is not that of updates.key"),
    "changed manifest": ({}, lambda path: changed(path, lambda data: data.replace(b'"9.0.0"', b'"9.9.9"', 1)), "signature"),
    "changed wheel": (
        {},
        lambda path: changed(path, lambda data: data.replace(b"appliance/__main__", b"appliance/__mein__")),
        "is not",
    ),
    "cut off in a wheel": ({}, lambda path: os.truncate(path, 3600), "cut off|not what was signed"),
    "cut off early": ({}, lambda path: os.truncate(path, 700), "cut off"),
    "empty": ({}, lambda path: os.truncate(path, 0), "cut off"),
    "no bundle": ({}, lambda path: path.write_bytes(b"hello" * 500), "no bundle"),
    "one file more": ({}, add_file, "was not signed"),
    "expired": ({"days": -1}, None, "it expired on"),
    "older": ({"version": "0.0.1"}, None, f"is older than {__version__}"),
    "the same": ({"version": __version__}, None, "is the one that runs"),
    "another machine": ({}, other_platform, "made for linux_sparc64"),
}


@pytest.mark.parametrize("name", BAD)
def test_bundles_that_cannot_be_trusted_are_refused_with_words(tmp_path: Path, name: str) -> None:
    versions, home = installation(tmp_path)
    given, spoil, words = BAD[name]
    path = make_bundle(tmp_path / "stick", **given)  # type: ignore[arg-type]
    if spoil is not None:
        spoil(path)
    said = ""
    try:
        said = updater(versions, home).apply(path, PUBLIC, __version__).said
    except OwlError as error:
        said = str(error)
    assert re.search(words, said), said
    assert state(versions, home) == OLD and [p.name for p in versions.iterdir() if p.name.startswith("9")] == []


def chained(kind: bytes, record: bytes, count: int) -> bytes:
    """Headers in a row, each of which announces another."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(record)
    return (info.tobuf() + record.ljust(512, b"\0")) * count


def announcing(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("manifest.json")
    info.type, info.size = kind, size
    return info.tobuf()


def test_a_bad_bundle_on_a_stick_hides_no_good_one(tmp_path: Path) -> None:
    good = make_bundle(tmp_path)
    bad = {
        "pax": chained(tarfile.XHDTYPE, b"14 comment=aa\n", 3000),
        "long": chained(tarfile.GNUTYPE_LONGNAME, b"a", 3000),
        "global": chained(tarfile.XGLTYPE, b"14 comment=aa\n", 3000),
        "record": announcing(tarfile.XHDTYPE, 7 << 30),
        "large": announcing(tarfile.REGTYPE, 10**6 + 1),
        "sparse": announcing(tarfile.GNUTYPE_SPARSE, 10),
        "size": chained(tarfile.XHDTYPE, b"10 size=0\n", 1) + chained(tarfile.XHDTYPE, b"14 comment=aa\n", 3000),
        "odd": chained(tarfile.XHDTYPE, b"99999 path=a\n", 1),
        "gzip": gzip.compress(good.read_bytes()),
        "deep": b"",
    }
    for name, data in bad.items():
        path = tmp_path / f"owlbox-9.9.9-linux_{name}.bundle"
        path.write_bytes(data)
        with pytest.raises(Refused), bundle.opened(path, PUBLIC):
            pass
    os.mkfifo(tmp_path / "owlbox-9.9.9-linux_pipe.bundle")
    assert bundle.find(tmp_path, PUBLIC) == good


def member(name: str, data: bytes = b"", **more: Any) -> bytes:
    """A member of an archive: its header and what it holds."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf() + data.ljust(-(-len(data) // 512) * 512, b"\0")


def mutated(good: bytes) -> Iterator[tuple[str, bytes]]:
    """A good bundle with bytes changed, cut off at places, and with members that are something else than their name says."""
    chance = random.Random(38)
    for number in range(40):
        spoilt = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            spoilt[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        yield f"changed {number}", bytes(spoilt)
    for size in range(0, len(good), len(good) // 12):
        yield f"cut at {size}", good[:size]
    with tarfile.open(fileobj=io.BytesIO(good)) as archive:
        wheel = archive.getnames()[2]
        parts = [member(one.name, archive.extractfile(one).read()) for one in archive]  # type: ignore[union-attr]
    body = parts[2][512:]
    head, evil = parts[0] + parts[1], member(wheel, b"evil")
    for name in (
        "../out.whl",
        "/tmp/out.whl",
        f"wheels/../../{wheel}",
        f"./{wheel}",
        f"{wheel}/",
        wheel.upper(),
        f"{wheel}\0.txt",
        "",
        ".",
    ):
        yield f"named {name!r}", head + member(name, body)
    for kind in (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.DIRTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.CONTTYPE,
    ):
        yield f"of kind {kind!r}", head + member(wheel, type=kind, linkname="/etc/passwd")
        yield f"of kind {kind!r} beside it", head + member(wheel, type=kind, linkname="../../out") + parts[2]
    for name, more in {"before": evil + parts[2], "behind": parts[2] + evil, "twice": parts[2] * 2, "none": b""}.items():
        yield f"another {name}", head + more
    yield "another in front", evil + head + parts[2]
    yield "signature first", parts[1] + parts[0] + parts[2]
    yield "manifest twice", parts[0] + head + parts[2]
    for record in (b"path=../out.whl", b"size=4", b"linkpath=/etc/passwd", b"GNU.sparse.realsize=9", b"SCHILY.xattr.security.x=y"):
        line = b"%d %s\n" % (len(record) + 4, record)
        yield f"record {record!r}", head + member("x", line, type=tarfile.XHDTYPE) + parts[2]
    yield "long name", head + member("././@LongLink", b"../out.whl\0", type=tarfile.GNUTYPE_LONGNAME) + parts[2]
    yield "long link", head + member("././@LongLink", b"/etc/passwd\0", type=tarfile.GNUTYPE_LONGLINK) + parts[2]
    yield "mode", head + member(wheel, body, mode=0o6777, uid=0)


def test_mutated_bundles_are_refused_or_harmless(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "stick")
    good, name = path.read_bytes(), path.name
    (tmp_path / "good").mkdir()
    with bundle.opened(path, PUBLIC) as (found, members):
        (wheel,) = bundle.unpack(found, members, tmp_path / "good", name)
    wanted, count, taken = bundle.digest_file(wheel), 0, []
    for what, data in mutated(good):
        path.write_bytes(data)
        folder = tmp_path / "place" / "inner"
        folder.mkdir(parents=True)
        try:
            with bundle.opened(path, PUBLIC) as (found, members):
                wheels = bundle.unpack(found, members, folder, name)
            taken.append(what)
            assert [bundle.digest_file(one) for one in wheels] == [wanted], what
            assert [one.stat().st_mode & 0o7022 for one in wheels] == [0], what
        except OwlError as error:
            assert error.message, what
        assert [one.name for one in (tmp_path / "place").iterdir()] == ["inner"] and not Path("/tmp/out.whl").exists(), what
        assert all(one.is_file() and not one.is_symlink() for one in folder.rglob("*") if not one.is_dir()), what
        shutil.rmtree(tmp_path / "place")
        count += 1
    assert count >= 90 and len(taken) < 40, taken


def test_a_signed_manifest_without_end_is_refused() -> None:
    data = b"[" * 100_000
    with pytest.raises(Refused, match="cannot be read"):
        bundle.read_manifest(data, encryption.sign(PRIVATE, data), PUBLIC, "x.bundle")


def test_names_longer_than_a_header_takes_are_read(tmp_path: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        name = "w/" * 30 + "n" * (90 if form == tarfile.USTAR_FORMAT else 300)
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as archive:
            info = tarfile.TarInfo(name)
            info.size = 700
            archive.addfile(info, io.BytesIO(b"ab" * 350))
            archive.addfile(tarfile.TarInfo("next"), io.BytesIO())
        with (tmp_path / "a.tar").open("rb") as file:
            read = [(one.name, one.read(3), one.size_bytes) for one in tar_reader.members(file, 1 << 20)]
        assert read == [(name, b"aba", 700), ("next", b"", 0)], form


@pytest.mark.parametrize("text", ["", "abc", base64.b64encode(bytes(31)).decode()])
def test_a_key_that_is_none_is_named(text: str) -> None:
    with pytest.raises(OwlError, match="not an Ed25519 key"):
        bundle.read_key(text)
    assert bundle.read_key(base64.b64encode(PUBLIC).decode()) == PUBLIC


def die_at(number: int, work: Callable[[Callable[[str], None]], object]) -> int:
    """Do some work in a child process that is gone, without any word, at its so-manieth moment; its exit code."""
    child = os.fork()
    if child == 0:
        left = [number]

        def passed(what: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(77)

        try:
            work(passed)
        except (OwlError, OSError, AssertionError):
            os._exit(99)
        finally:
            os._exit(98 if sys.exc_info()[0] else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("behaviour", [{}, {"problems": ["database"], "only_live": True}], ids=["well", "unwell"])
def test_a_machine_that_stops_at_any_moment_starts_with_a_version_that_works(tmp_path: Path, behaviour: dict[str, object]) -> None:
    stick = make_bundle(tmp_path / "stick", **behaviour)
    found: dict[str, int] = {}
    for number in range(100):
        versions, home = installation(tmp_path / f"n{number}")
        code = die_at(number, lambda passed, v=versions, h=home: updater(v, h, passed).apply(stick, PUBLIC, __version__))  # type: ignore[misc]
        if code == 0:
            break
        assert code == 77, (number, code)
        is_under_way = JournalFile(versions).read().step != Step.IDLE
        assert (versions / RECOVERY).is_symlink() or not is_under_way, "without the link nobody would mend it at the next start"
        # The power fails again while that is mended, at its third moment; then nothing more happens.
        assert die_at(2, lambda passed, v=versions, h=home: updater(v, h, passed).recover()) in (0, 77)  # type: ignore[misc]
        updater(versions, home).recover()
        after = state(versions, home)
        assert after in (OLD, NEW) and (versions / after[0]).is_dir(), (number, after)
        assert JournalFile(versions).read().step == Step.IDLE and not (home.root / TRIAL).exists()
        assert updater(versions, home).recover() == "" and state(versions, home) == after
        assert not (versions / RECOVERY).is_symlink()
        found[after[0]] = found.get(after[0], 0) + 1
        shutil.rmtree(tmp_path / f"n{number}")
    assert number > 15 and found[__version__] > 8 and bool(found.get("9.0.0")) == (not behaviour), (number, found)


def test_where_an_update_stands_can_be_read_by_everybody_at_any_moment_of_writing_it(tmp_path: Path) -> None:
    file = JournalFile(tmp_path)
    steps = ("open", "os.chmod", "os.rename", "os.remove")
    for number in range(20):
        file.write(Journal(step=Step.TIDYING))
        left = [number]

        def stop(event: str, values: object, left: list[int] = left) -> None:
            if event in steps:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(77)

        child = os.fork()
        if child == 0:
            sys.addaudithook(stop)
            file.write(Journal(step=Step.IDLE))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert stat.S_IMODE((tmp_path / "update.json").stat().st_mode) == 0o644, number
        assert file.read().step in (Step.TIDYING, Step.IDLE)
        if code == 0:
            break
    assert code == 0 and number > 3, (code, number)


def test_a_real_environment_is_built_and_asked(tmp_path: Path, runtime: Path) -> None:
    versions, home = installation(tmp_path, "versions/")
    stick = make_bundle(tmp_path / "stick")
    host = UpdateHost(home, {**os.environ, "XDG_RUNTIME_DIR": str(runtime)})
    done = Updater(versions, home, host).apply(stick, PUBLIC, __version__)
    assert done.is_applied, done
    assert state(versions, home) == (f"versions/{NEW[0]}", *NEW[1:])
    said = subprocess.run(
        [versions / "current/bin/python", "-I", "-c", "import appliance; print(appliance.__version__)"], capture_output=True
    )
    assert said.stdout.strip() == b"9.0.0"


def test_a_question_may_take_longer_on_a_machine_whose_doctor_takes_long(tmp_path: Path, runtime: Path) -> None:
    versions, home = installation(tmp_path)
    host = UpdateHost(home, {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}, answer_s=0.5)
    for version, doctor_s in (("9.0.0", 0.0), ("9.1.0", 0.2)):
        place = versions / version
        host.build(place, [make_wheel(tmp_path, version, {"ask_s": 3, "doctor_s": doctor_s})])
    quick, slow = (versions / version / "bin/python" for version in ("9.0.0", "9.1.0"))
    with pytest.raises(StoreError, match=r"ask did not end in 0.5 s"):
        host.ask(quick, home)
    host.find_problems(slow, home)
    assert host.ask(slow, home) == "Hoot."


@pytest.fixture
def stick(box: Box, tmp_path: Path) -> Iterator[Path]:
    """A folder with a bundle, and a home that knows its key."""
    path = make_bundle(tmp_path / "stick")
    box.environ["OWLBOX__UPDATES__KEY"] = base64.b64encode(PUBLIC).decode()
    box.environ["OWLBOX__UPDATES__FOLDER"] = str(tmp_path / "versions")
    yield path.parent


@pytest.mark.covers("B-153")
def test_nothing_is_asked_unless_it_is_enabled_and_then_once_a_day(box: Box, stick: Path) -> None:
    box.environ["OWLBOX__UPDATES__SOURCE"] = str(stick)
    assert box.run("update", "check", "--quiet").returncode == 0 and last_check.read_check(box.home) is None
    box.environ["OWLBOX__UPDATES__ENABLED"] = "true"
    done = box.run("update", "check", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    first = last_check.read_check(box.home)
    assert first is not None and first.version == "9.0.0"
    assert box.run("update", "check", "--quiet").returncode == 0 and last_check.read_check(box.home) == first
    assert not source.is_due(box.home, first.at_ms + 86_399_000) and source.is_due(box.home, first.at_ms + 86_400_001)
    box.environ["OWLBOX__UPDATES__SOURCE"] = "https://127.0.0.1:1/none"
    (box.home.root / last_check.FILE).unlink()
    done = box.run("update", "check", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")  # silent on failure
    kept = last_check.read_check(box.home)
    assert kept is not None and "127.0.0.1" in kept.problem


def test_the_command_names_what_it_lacks(box: Box, stick: Path) -> None:
    done = box.run("update", "apply", str(stick))
    assert done.returncode == 4 and "not updated by bundles" in done.stderr and "git pull" in done.stderr
    assert "nothing to go back to" in box.run("update", "status").stdout
    del box.environ["OWLBOX__UPDATES__KEY"]
    done = box.run("update", "check")
    assert done.returncode == 4 and "no key for updates" in done.stderr
