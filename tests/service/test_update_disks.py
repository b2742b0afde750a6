"""An update on a disk that is full, read-only, without inodes or failing, from any moment on: named, and nothing is lost by it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from chaos_disk import LosingDisk
from needs import leave_out, needs
from test_disk_words import WORDS, break_disk
from test_failing_files import failing
from test_updates import NEW, OLD, PUBLIC, QuickHost, changed, installation, make_bundle, state

from appliance import __version__
from appliance.errors import OwlError
from appliance.runtime.paths import Home
from appliance.store import disk_faults, storage_errors
from appliance.upkeep.updates import bundle, host
from appliance.upkeep.updates.host import UpdateHost
from appliance.upkeep.updates.journal import JournalFile, Step
from appliance.upkeep.updates.updater import Updater

RAW = ("Errno", "No space left", "Read-only file", "Input/output")
MOMENTS = ("building", "built", "staged", "stopping", "saved", "switching", "switched", "migrating", "migrated")
MOMENTS += ("gated", "started", "tidied", "ended")


class ServedHost(QuickHost):
    """Knows which version serves the home."""

    serving = __version__

    def find_problems(self, python: Path, home: Home) -> set[str]:
        try:
            return super().find_problems(python, home)
        except apsw.Error as error:
            raise storage_errors.explain(error, home.database) from None

    def stop(self) -> None:
        super().stop()
        self.serving = ""

    def end(self) -> None:
        """Hold nothing open, as a process that is gone."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def start(self, python: Path) -> None:
        super().start(python)
        self.serving = python.parents[1].name


def tell(do: Callable[[], object]) -> str:
    """What a person reads when something is done, or not."""
    try:
        return str(getattr(do(), "said", ""))
    except (OwlError, OSError) as error:
        return str(disk_faults.explain_fault(error) or error)


def apply_until(place: Path, stick: Path, moment: str, break_it: Callable[[], None]) -> tuple[Path, Home, ServedHost, str]:
    """Begin an update whose disk breaks at a moment of it; what was said of it in the end."""
    versions, home = installation(place)
    served, left = ServedHost(home, {}), [moment]

    def passed(what: str) -> None:
        if left and what == left[0]:
            left.clear()
            break_it()

    said = tell(lambda: Updater(versions, home, served, passed=passed).apply(stick, PUBLIC, __version__))
    assert not left, "it never came to that"
    return versions, home, served, said


def assert_whole(versions: Path, home: Home, served: ServedHost) -> None:
    """What was begun is brought to an end once the disk is well, and a version serves what there was."""
    Updater(versions, home, served).recover()
    after = state(versions, home)
    assert after in (OLD, NEW) and (versions / after[0]).is_dir(), after
    assert served.serving in (after[0], __version__ if after == OLD else ""), (after, served.serving)
    assert JournalFile(versions).read().step == Step.IDLE


@pytest.fixture(name="small")
def a_small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)], capture_output=True).returncode:
        leave_out("cannot mount here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@needs(root=True)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fault", ["full", "inodes"])
def test_a_disk_that_takes_no_more_from_a_moment_on_is_named_and_a_version_serves(
    small: Path, tmp_path: Path, fault: str, moment: str
) -> None:
    stick = make_bundle(tmp_path / "stick")
    versions, home, served, said = apply_until(small, stick, moment, lambda: break_disk(small, fault))
    assert served.serving or "nothing runs" in said, said
    assert WORDS[fault] in said or said == "version 9.0.0 runs", said
    assert not any(raw in said for raw in RAW), said
    for name in ("fill", "rest"):
        (small / name).unlink(missing_ok=True)
    subprocess.run(["mount", "-o", "remount,nr_inodes=0", str(small)], check=True)
    if "has changed" in said:
        assert state(versions, home) == OLD
    assert_whole(versions, home, served)


@needs("mkfs.ext4", "losetup", root=True)
def test_a_disk_that_fails_from_a_moment_on_is_named_and_a_version_serves(tmp_path: Path) -> None:
    (place := tmp_path / "disk").mkdir()
    stick = make_bundle(tmp_path / "stick")
    try:
        disk = LosingDisk(place)
    except (OSError, subprocess.CalledProcessError) as error:
        leave_out(f"no disk of one's own: {error}")
    try:
        for moment in ("building", "staged", "saved", "migrated", "started"):
            versions, home, served, said = apply_until(place / moment, stick, moment, disk.fail)
            assert "the disk is failing" in said or "the disk is read-only" in said, (moment, said)
            assert served.serving or "nothing runs" in said, (moment, said)
            assert not any(raw in said for raw in RAW), (moment, said)
            served.end()
            disk.mend()
            assert_whole(versions, home, served)
    finally:
        disk.close()


@needs(root=True)
def test_a_read_only_disk_is_named_before_anything_begins(small: Path, tmp_path: Path) -> None:
    stick = make_bundle(tmp_path / "stick")
    versions, home = installation(small)
    break_disk(small, "read-only")
    for do in (
        lambda: host.find_host(home, {}, versions),
        lambda: Updater(versions, home, QuickHost(home, {})).apply(stick, PUBLIC, __version__),
        lambda: Updater(versions, home, QuickHost(home, {})).recover(),
    ):
        said = tell(do)
        assert said == "" or WORDS["read-only"] in said and "dmesg" in said, said


@needs(root=True)
def test_an_environment_that_does_not_fit_is_the_disks_fault(small: Path, tmp_path: Path) -> None:
    stick = make_bundle(tmp_path / "stick")
    versions, home = installation(small)

    def passed(what: str) -> None:
        if what == Step.BUILDING:
            break_disk(small, "full")

    done = Updater(versions, home, UpdateHost(home, {}), passed=passed).apply(stick, PUBLIC, __version__)
    assert not done.is_applied and "nothing has changed: disk full: " in done.said, done


@needs(root=True)
def test_a_file_of_an_update_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    stick = make_bundle(tmp_path / "stick")
    versions, home = installation(tmp_path)
    update = Updater(versions, home, QuickHost(home, {}))
    with failing(stick, tmp_path / "served"):
        for place in (stick, stick.parent):
            said = tell(lambda place=place: update.apply(place, PUBLIC, __version__))  # type: ignore[misc]
            assert said.startswith(f"the disk is failing: {stick} could not be read"), said
        well = make_bundle(stick.parent, "8.0.0")
        assert bundle.find(stick.parent, PUBLIC) == well, "one that fails hides no other"
    assert update.apply(stick, PUBLIC, __version__).is_applied
    with failing(versions / "update.json", tmp_path / "served"):
        said = tell(update.roll_back)
        assert said.startswith(f"the disk is failing: {versions / 'update.json'} could not be read"), said
    changed(stick, lambda data: data[:700])
    with pytest.raises(OwlError, match="cut off, damaged or no bundle"):
        update.apply(stick, PUBLIC, __version__)
