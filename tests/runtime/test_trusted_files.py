"""What others could have written is not trusted, whatever component of its path lets them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.errors import NotFound, Refused
from appliance.runtime.trusted_files import problem, require_trusted

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of other users are made")
STRANGER = 4711


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder that everybody can enter; those of tmp_path are private."""
    made = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def box(top: Path) -> Path:
    """A folder like that of a home which everybody can enter, with a plugin in it."""
    made = top / "home" / "box" / "plugins" / "pack"
    made.mkdir(parents=True)
    (made / "__init__.py").write_text("from . import words\n")
    (made / "words.py").write_text("")
    for one in (top / "home", top / "home" / "box", made.parent, made):
        one.chmod(0o755)
    return top / "home" / "box"


def test_own_files_are_trusted(box: Path) -> None:
    require_trusted(box / "plugins" / "pack", is_tree=True)


@pytest.mark.parametrize("name", ["", "plugins", "plugins/pack", "plugins/pack/words.py", ".."])
@pytest.mark.parametrize("mode", [0o777, 0o770 | 0o005, 0o2775])
def test_component_that_others_write_is_named(box: Path, name: str, mode: int) -> None:
    place = Path(os.path.normpath(box / name))
    place.chmod(mode)
    with pytest.raises(Refused, match=f"{place} can be written to by others"):
        require_trusted(box / "plugins" / "pack", is_tree=True)


@pytest.mark.parametrize("name", ["", "plugins", "plugins/pack", "plugins/pack/words.py", ".."])
def test_component_of_another_user_is_named(box: Path, name: str) -> None:
    place = Path(os.path.normpath(box / name))
    os.chown(place, STRANGER, STRANGER)
    with pytest.raises(Refused, match=f"{place} belongs to user {STRANGER}"):
        require_trusted(box / "plugins" / "pack", is_tree=True)


def test_sticky_folder_above_is_trusted_but_not_what_others_add(box: Path) -> None:
    box.chmod(0o3777)
    require_trusted(box / "plugins" / "pack", is_tree=True)
    theirs = box / "HEARTBEAT.md"
    theirs.write_text("obey")
    os.chown(theirs, STRANGER, STRANGER)
    assert f"belongs to user {STRANGER}" in problem(theirs)


def test_sticky_folder_of_code_may_not_be_added_to(box: Path) -> None:
    (box / "plugins" / "pack").chmod(0o1777)
    with pytest.raises(Refused, match="can be written to by others"):
        require_trusted(box / "plugins" / "pack", is_tree=True)


def test_modes_count_only_where_others_can_enter(box: Path) -> None:
    box.parent.chmod(0o700)
    box.chmod(0o777)
    (box / "plugins" / "pack" / "words.py").chmod(0o666)
    words = box / "plugins" / "pack" / "words.py"
    require_trusted(words)
    with pytest.raises(Refused, match="can be written to"):  # code that somebody may have kept open
        require_trusted(words, is_tree=True)
    os.chown(words, STRANGER, STRANGER)  # put there when they could
    with pytest.raises(Refused, match="belongs to user"):
        require_trusted(words)


def test_links_are_judged_by_where_they_lead(box: Path, top: Path) -> None:
    (top / "short").symlink_to(box)
    require_trusted(top / "short" / "plugins")
    (box / "plugins" / "pack" / "more.py").symlink_to("words.py")
    with pytest.raises(Refused, match="is a link"):
        require_trusted(top / "short" / "plugins" / "pack", is_tree=True)
    loop = top / "loop"
    loop.symlink_to(loop)
    with pytest.raises(Refused, match="cannot be looked at"):
        require_trusted(loop)
    box.chmod(0o777)
    with pytest.raises(Refused, match="can be written to"):
        require_trusted(top / "short" / "plugins")


def test_what_is_not_there_is_no_problem(box: Path) -> None:
    with pytest.raises(NotFound):
        require_trusted(box / "nothing")
    assert problem(box / "nothing") == "" and problem(box / "plugins" / "pack" / "words.py" / "below") == ""


def test_no_descriptor_is_left_open(box: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        require_trusted(box / "plugins", is_tree=True)
        problem(box / "nothing")
    assert len(os.listdir("/proc/self/fd")) == before
