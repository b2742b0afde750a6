"""Folders that a tool filled: deep, shut, moved about."""

import contextlib
import os
from pathlib import Path

import pytest

from appliance.sandbox import folder_tree

MB = 1 << 20


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A folder whose path below `top` is longer than the kernel takes, with a file of a megabyte in it."""
    top = tmp_path / "top"
    top.mkdir()
    make_deep(top, 2000)
    return top


def make_deep(top: Path, levels: int) -> None:
    handle = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deep", dir_fd=handle)
        inner = os.open("deep", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=handle), "wb") as file:
        file.write(bytes(MB))
    os.close(handle)


def test_what_lies_deeper_than_a_path_may_be_long_is_measured_and_removed(deep: Path):
    before = set(os.listdir("/proc/self/fd"))
    size = folder_tree.measure(deep, 1 << 40)
    assert size.is_whole and 2000 * 4096 + MB <= size.seen_bytes < 2000 * 4096 + 2 * MB
    assert folder_tree.measure(deep, 100_000).seen_bytes < 200_000  # no further than enough
    assert folder_tree.remove(deep) == 0 and not deep.exists()
    assert set(os.listdir("/proc/self/fd")) == before


def test_removing_follows_no_link_and_takes_links_away(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "top/sub/lower").mkdir(parents=True)
    (tmp_path / "top/link").symlink_to("../kept")
    (tmp_path / "top/sub/link").symlink_to("../../kept")
    os.mkfifo(tmp_path / "top/sub/lower/pipe")
    assert folder_tree.remove(tmp_path / "top") == 0
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["kept", "kept/file"]
    assert folder_tree.remove(tmp_path / "top") == 0
    (tmp_path / "link").symlink_to("kept")
    assert folder_tree.remove(tmp_path / "link") == 1 and (tmp_path / "kept/file").exists()


def test_a_shut_folder_is_not_whole_until_it_is_opened(tmp_path: Path):
    (tmp_path / "top/shut/in").mkdir(parents=True)
    (tmp_path / "top/shut/in/file").write_bytes(bytes(MB))
    (tmp_path / "top/shut").chmod(0)
    with contextlib.chdir(tmp_path):  # the folders above are shut to others
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = look_from_outside()
            finally:
                os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0 and not (tmp_path / "top").exists()


def look_from_outside() -> int:
    """Measure and remove the shut folder as somebody whom a mode binds, which root is not; 0 when all was as it should be."""
    if os.geteuid() == 0:
        for path in (".", "top", "top/shut", "top/shut/in"):
            os.chown(path, 65534, 65534)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    shut = folder_tree.measure(Path("top"), 1 << 40)
    opened = folder_tree.measure(Path("top"), 1 << 40, is_opening=True)
    Path("top/shut").chmod(0)
    is_right = (shut.is_whole, opened.is_whole) == (False, True) and shut.seen_bytes < MB < opened.seen_bytes
    return 0 if is_right and folder_tree.remove(Path("top")) == 0 else 1
