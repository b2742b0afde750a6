"""Fetching skills from real Git repositories and archives on loopback, and what is refused."""

import io
import os
import socket
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from git_server import GitServer, commit, git, make_repository, serving_git
from loopback import HERE, raw_serving, serving

from appliance.clock import CancelToken, monotonic_s, sleep_s
from appliance.errors import BadInput, Cancelled, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.skills.package import SkillPackage
from appliance.web import git_fetch, hosts
from appliance.web.fetch import Fetch
from appliance.web.git_fetch import SkillFetch, measure_pack

TEA = "---\nname: tea\ndescription: Make tea.\n---\nBoil water.\n"
LOCAL = hosts.rules(networks=[HERE])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[GitServer]:
    with serving_git(tmp_path / "served") as server:
        yield server


def read(url: str, inner: str = "") -> SkillPackage:
    return SkillFetch(Fetch(LOCAL)).read(url, inner, CancelToken())


def texts(package: SkillPackage) -> dict[str, bytes]:
    return {path: file.data for path, file in package.files.items()}


@pytest.mark.covers("A-165")
def test_a_repository_is_read_at_its_newest_commit_without_its_history(served: GitServer) -> None:
    folder = make_repository(served.root / "tea", {"SKILL.md": "old", "scripts/brew": "#!/bin/sh\n"})
    (folder / "scripts/brew").chmod(0o755)
    newest = commit(folder, {"SKILL.md": TEA, ".github/x": "left out"})
    for url in (served.url("tea/.git"), "git+" + served.url("tea/.git")):
        found = read(url)
        assert texts(found) == {"SKILL.md": TEA.encode(), "scripts/brew": b"#!/bin/sh\n"}
        assert found.files["scripts/brew"].is_executable and not found.files["SKILL.md"].is_executable
        assert found.source == f"{served.url('tea/.git')}#{newest[:12]}"
    assert [line.split("/")[0] for line in served.asked] == ["GET ", "POST "] * 2


def test_a_branch_a_tag_and_a_folder_can_be_named(served: GitServer) -> None:
    folder = make_repository(served.root / "many.git", {"skills/tea/SKILL.md": TEA, "skills/mate/SKILL.md": TEA})
    git("tag", "-a", "v1", "-m", "first", folder=folder)
    git("checkout", "-q", "-b", "next", folder=folder)
    commit(folder, {"skills/tea/SKILL.md": TEA + "Twice.\n"})
    git("checkout", "-q", "main", folder=folder)
    url = served.url("many.git/.git")
    assert b"Twice" in texts(read(url + "#next", "skills/tea"))["SKILL.md"]
    assert read(url + "#v1", "skills/mate").name == "mate"
    with pytest.raises(BadInput, match="2 skills") as several:
        read(url)
    assert "skills/mate, skills/tea" in several.value.hint
    with pytest.raises(NotFound, match="no branch or tag gone") as gone:
        read(url + "#gone")
    assert "main, next" in gone.value.hint
    with pytest.raises(NotFound, match=r"no SKILL\.md"):
        read(url, "skills/none")


@pytest.mark.covers("A-165")
def test_links_and_submodules_in_a_skill_are_refused(served: GitServer) -> None:
    link = make_repository(served.root / "link", {"SKILL.md": TEA})
    os.symlink("/etc/passwd", link / "notes.md")
    commit(link, {})
    with pytest.raises(BadInput, match=r"notes\.md is a link"):
        read(served.url("link/.git"))
    other = make_repository(served.root / "other", {"README.md": "x"})
    holder = make_repository(served.root / "holder", {"SKILL.md": TEA})
    git("submodule", "--quiet", "add", str(other), "inner", folder=holder)
    commit(holder, {})
    with pytest.raises(BadInput, match="inner is a repository within it"):
        read(served.url("holder/.git"))


@pytest.mark.covers("A-165")
def test_what_is_cut_or_no_repository_is_refused(served: GitServer) -> None:
    make_repository(served.root / "tea", {"SKILL.md": TEA})
    for cut_at in (0, 5, 60, 200):
        served.cut_at = cut_at
        with pytest.raises(OwlError) as cut:
            read(served.url("tea/.git"))
        assert cut.value.hint
    with pytest.raises(NotFound, match="404"):
        read(served.url("none.git"))
    git("init", "-q", str(served.root / "empty"), folder=served.root)
    with pytest.raises(NotFound, match="has no HEAD"):
        read(served.url("empty/.git"))
    with serving() as site, pytest.raises(NotFound, match="not a Git repository"):
        site.page("/page/info/refs", "hello")
        read(site.url("/page"))


def test_a_private_repository_says_so() -> None:
    with serving() as site, pytest.raises(Refused, match="private, or not there") as private:
        site.pages["/secret/info/refs"] = lambda request: request.answer(b"", 401)
        read(site.url("/secret"))
    assert "git clone" in private.value.hint


@pytest.mark.covers("A-165")
def test_a_repository_that_unpacks_to_too_much_is_refused(served: GitServer) -> None:
    make_repository(served.root / "big", {"SKILL.md": TEA, "zeros.bin": bytes(git_fetch.MAX_OBJECT_BYTES + 1)})
    with pytest.raises(TooLarge, match="16 MiB"):
        read(served.url("big/.git"))
    # Just below for the repository, and above the limit of a file of a skill.
    make_repository(served.root / "wide", {"SKILL.md": TEA, "zeros.bin": bytes(3 << 20)})
    with pytest.raises(TooLarge, match=r"zeros\.bin has more than"):
        read(served.url("wide/.git"))
    make_repository(served.root / "beside", {"a/SKILL.md": TEA, "zeros.bin": bytes(3 << 20)})
    assert list(read(served.url("beside/.git")).files) == ["SKILL.md"]


def test_a_delta_that_lies_about_its_size_is_refused() -> None:
    copy_most = bytes([0x80 | 0x70, 0xFF, 0xFF, 0xFF])  # 16 MiB from the start, in four bytes
    delta = bytes([0x10, 0x10]) + copy_most * 1000
    pack = b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes([0x70]) + bytes(20) + zlib.compress(delta) + bytes(20)
    with pytest.raises(TooLarge):
        measure_pack(memoryview(pack))
    with pytest.raises(BadInput, match="was cut"):
        measure_pack(memoryview(pack[:40]))


@pytest.mark.covers("A-165")
def test_a_slow_server_ends_with_a_cancellation() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n")
        while True:
            connection.sendall(b"0")
            sleep_s(0.05)

    cancel = CancelToken()
    threading.Timer(0.3, cancel.set).start()
    started_s = monotonic_s()
    with raw_serving(drip) as url, pytest.raises(Cancelled):
        SkillFetch(Fetch(LOCAL)).read(url, "", cancel)
    assert monotonic_s() - started_s < 5


def test_what_is_offline_or_of_this_machine_says_what_to_do(served: GitServer) -> None:
    make_repository(served.root / "tea", {"SKILL.md": TEA})
    with pytest.raises(Refused, match="this machine"):
        SkillFetch(Fetch(hosts.rules())).read(served.url("tea/.git"), "", CancelToken())
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(OwlError) as offline:
        read(f"http://127.0.0.1:{port}/tea.git")
    assert "git clone" in offline.value.hint
    for url in ("file:///etc", "ssh://host/x", "http://me:word@example.org/x"):
        with pytest.raises((BadInput, Refused)):
            read(url)


@pytest.mark.parametrize("kind", ["tar.gz", "md"])
def test_an_archive_and_a_lone_file_are_read_from_their_url(kind: str) -> None:
    def tar() -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            entry = tarfile.TarInfo("tea-main/SKILL.md")
            entry.size = len(TEA)
            archive.addfile(entry, io.BytesIO(TEA.encode()))
        return file.getvalue()

    making: dict[str, Callable[[], bytes]] = {"tar.gz": tar, "md": TEA.encode}
    with serving() as site:
        found = read(site.page(f"/get/tea.{kind}", making[kind](), "application/octet-stream"))
    assert texts(found) == {"SKILL.md": TEA.encode()}
    assert found.source.endswith(f"tea.{kind}")


def test_a_moved_repository_is_followed(served: GitServer) -> None:
    make_repository(served.root / "tea", {"SKILL.md": TEA})
    with serving() as site:
        site.redirect("/old/info/refs", served.url("tea/.git/info/refs?service=git-upload-pack"), 301)
        assert "SKILL.md" in read(site.url("/old")).files
    with serving() as site, pytest.raises(Unavailable, match="did not answer as Git"):
        site.redirect("/old/info/refs", served.url("tea/.git/HEAD"), 301)
        site.redirect("/x", served.url("tea/.git/info/refs?service=git-upload-pack&x"), 301)
        site.redirect("/old/info/refs", site.url("/x"), 301)
        read(site.url("/old"))
