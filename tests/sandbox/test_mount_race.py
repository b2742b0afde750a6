"""What somebody renames between the check of a path and its mount."""

import os
import stat
import threading
from pathlib import Path

import pytest
from needs import needs

from appliance.errors import BadInput, Unavailable
from appliance.sandbox.descriptors import opened
from appliance.sandbox.launcher import Bind, Plan, Sandbox, SandboxOrder

pytestmark = needs("bwrap", "perl")


def swapping(folder: Path, script: str) -> Sandbox:
    """A sandbox in whose folder this happens after the order was checked and before bubblewrap mounts anything."""
    program = folder / "bwrap"
    program.write_text(f'#!/bin/bash\ncd {folder}\n{script}\nexec /usr/bin/bwrap "$@"\n')
    program.chmod(0o755)
    return Sandbox(Plan(bwrap=str(program)))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    real = tmp_path.resolve()
    for name in ("ws/sub", "home", "work"):
        (real / name).mkdir(parents=True)
    (real / "ws/sub/file").write_text("mine")
    (real / "home/file").write_text("secret")
    return real


@pytest.mark.covers("A-057", "A-066")
@pytest.mark.parametrize(
    "script",
    ["mv ws/sub ws/old; ln -s ../home ws/sub", "mv ws/sub ws/old; mv home ws/sub", "mv ws old; mkdir ws; ln -s ../home ws/sub"],
    ids=["a link", "another folder", "a link above"],
)
@pytest.mark.parametrize("is_work", [False, True])
def test_a_folder_that_is_swapped_before_the_mount_shows_no_other(place: Path, script: str, is_work: bool):
    sandbox = swapping(place, f"test -e old -o -e ws/old || {{ {script}; }}")
    inside = "/work" if is_work else "/project/sub"
    command = ("sh", "-c", f"cat {inside}/file; echo planted > {inside}/planted")
    folder, binds = (place / "ws/sub", ()) if is_work else (place / "work", (Bind(place / "ws/sub", inside, True),))
    try:
        done = sandbox.run(SandboxOrder("exec", "s1", command, folder=folder, binds=binds), threading.Event())
        assert b"secret" not in done.stdout, done
    except (BadInput, Unavailable) as error:
        assert "link" in error.message or "Race condition" in error.message, error
    assert not list(place.rglob("home/planted"))


def test_a_path_is_opened_without_following_a_link_anywhere(place: Path):
    (place / "last").symlink_to("home")
    (place / "above").symlink_to("ws")
    for name in ("last", "above/sub", "ws/sub/file/x"):
        with pytest.raises(BadInput, match="is a link or lies below one"):
            opened(place / name)
    with pytest.raises(BadInput, match="does not exist"):
        opened(place / "none/at/all")
    handle = opened(place / "ws/sub/file")
    assert stat.S_ISREG(os.fstat(handle).st_mode)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(handle, 1)
    os.close(handle)
