"""Processes that are forked and not loaded anew are what a person starts in every way that a test could see."""

import os
from pathlib import Path

import pytest
from process import Box, a_box, is_gone, until  # noqa: F401


def test_the_broker_of_a_forked_core_is_its_child_and_nothing_outlives_it(box: Box) -> None:
    core = box.serve()
    broker = core.broker_pid()
    number = core.child.pid
    children = [int(pid) for pid in Path(f"/proc/{number}/task/{number}/children").read_text().split()]
    assert broker in children
    words = Path(f"/proc/{broker}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    assert words[1:6] == ["-P", "-m", "appliance", "--home", str(box.home.root)] and "broker" in words
    if os.geteuid():
        with pytest.raises(PermissionError):  # it has keys in its memory, so no process of its user may look into it
            Path(f"/proc/{broker}/cwd").readlink()
    else:
        assert Path(f"/proc/{broker}/cwd").readlink() == Path("/")
        assert Path(f"/proc/{broker}/fd/0").readlink() == Path("/dev/null")
    core.kill()
    until(lambda: all(map(is_gone, children)), "they end with it")
