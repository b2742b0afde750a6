"""Which files a path means, what git ignores, and reading each of them without being led astray."""

import contextlib
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import pdf
from needs import needs
from record_tools import replace

from appliance.errors import BadInput, NotFound, OwlError, Refused, TooLarge
from appliance.ingest.file_reader import (
    FileRules,
    Gather,
    ItemToRead,
    KnownFile,
    ReadItem,
    SkippedCounts,
    absolute,
    expand,
    ref_of,
    walk,
)
from appliance.knowledge.contents import MAX_BODY_BYTES


@pytest.fixture
def gather() -> Iterator[Gather]:
    made = Gather(os.environ)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


def names(folder: Path, rules: FileRules | None = None, counts: SkippedCounts | None = None) -> list[str]:
    found = expand(str(folder), rules or FileRules(), counts or SkippedCounts())
    return [os.path.relpath(one.file, folder) for one in found if not one.problem]


def item(gather: Gather, path: Path) -> ReadItem:
    (wanted,) = expand(str(path), FileRules(), SkippedCounts())
    if wanted.problem:
        raise BadInput(wanted.problem)
    found = gather.item(wanted)
    assert found is not None
    return found


# -- walking ----------------------------------------------------------------------------------------


@pytest.mark.covers("B-085")
def test_a_folder_is_all_its_files_by_name(folder: Path):
    for name in ("b/2.md", "b/1.md", "a.md", "c/d/e/f.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    assert names(folder) == ["a.md", "b/1.md", "b/2.md", "c/d/e/f.md"]
    assert absolute("a/../b") == f"{os.path.realpath('.')}/b"
    assert ref_of("/home/ada/a b.md") == "disk://home/ada/a b.md"


def test_links_pipes_sockets_and_hidden_files_are_left_out_and_counted(folder: Path):
    (folder / "a.md").write_text("x")
    (folder / "self").symlink_to(".")
    (folder / "up").symlink_to("..")
    (folder / "file").symlink_to("a.md")
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as door, contextlib.chdir(folder):  # a short name: a socket's path has a limit
        door.bind("door")
    (folder / ".hidden").write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    counts = SkippedCounts()
    assert names(folder, counts=counts) == ["a.md"]
    assert (counts.links, counts.special, counts.hidden) == (4, 2, 1)
    assert names(folder, FileRules(has_hidden=True)) == [".hidden", "a.md"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("link", "links are not followed"), ("pipe", "a pipe"), ("gone", "no such file"), ("a.md/b", "cannot be read")],
)
def test_what_is_named_and_is_no_file_is_a_problem_of_its_own(folder: Path, name: str, problem: str):
    (folder / "a.md").write_text("x")
    (folder / "link").symlink_to("a.md")
    os.mkfifo(folder / "pipe")
    (found,) = expand(str(folder / name), FileRules(), SkippedCounts())
    assert problem in found.problem


@pytest.mark.parametrize("name", [b"line\nbreak.md", b"caf\xe9.md", b"escape\x1b.md", b"space ", b"x" * 250 + b"/" + b"y" * 250])
def test_names_that_cannot_be_references_are_told(folder: Path, name: bytes):
    path = os.path.join(os.fsencode(folder), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("x")
    (folder / "fine.md").write_text("x")
    found = list(expand(str(folder), FileRules(), SkippedCounts()))
    assert any(one.file.endswith("fine.md") and not one.problem for one in found)
    other = next(one for one in found if not one.file.endswith("fine.md"))
    assert other.problem if b"/" not in name else other.ref


def test_the_homes_of_owls_are_closed(folder: Path):
    home = folder / "home"
    home.mkdir()
    (home / "owlbox.db").write_text("x")
    (folder / "a.md").write_text("x")
    rules = FileRules(closed=(str(home),))
    assert names(folder, rules) == ["a.md"]
    (found,) = expand(str(home / "owlbox.db"), rules, SkippedCounts())
    assert "own home" in found.problem


# -- what git ignores -------------------------------------------------------------------------------

IGNORING = {
    ".gitignore": "*.log\n/build/\n!keep.log\ncache\n# comment\n\n\\#odd\nsub/*.tmp\n**/deep/x\ntrailing \n[ab].dat\n",
    "sub/.gitignore": "!b.log\nlocal.*\n/only\n",
    "sub/inner/.gitignore": "*\n!kept.md\n",
    ".git/info/exclude": "secret.md\n",
}
FILES = (
    "a.log keep.log b.md build/x.md sub/build/y.md cache sub/cache/z.md #odd sub/t.tmp sub/inner/t.tmp u/deep/x u/deep/y "
    "trailing a.dat c.dat sub/b.log sub/c.log sub/local.md sub/only sub/inner/only sub/inner/kept.md secret.md sub/secret.md"
).split()


@pytest.fixture
def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)
    for name, text in {**IGNORING, **dict.fromkeys(FILES, "x")}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@needs("git")
@pytest.mark.parametrize("below", ["", "sub", "sub/inner"])
def test_what_is_left_out_is_what_git_leaves_out(repository: Path, below: str):
    root = repository / below
    command = ["git", "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard", "."]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    assert names(root) == sorted(name for name in said if name and not Path(name).name.startswith(".git"))


@needs("git")
def test_an_ignored_folder_that_is_named_is_taken_and_ignoring_can_be_turned_off(repository: Path):
    assert names(repository / "build") == ["x.md"]
    assert "a.log" in names(repository, FileRules(has_ignored=True))
    counts = SkippedCounts()
    names(repository, counts=counts)
    assert counts.ignored > 5


def test_a_strange_ignore_file_ignores_nothing(folder: Path):
    (folder / "a.md").write_text("x")
    (folder / ".gitignore").write_bytes(b"\xff\xfe\n!\n" + b"*" * 2000 + b"\n")
    assert names(folder) == ["a.md"]
    (folder / ".gitignore").unlink()
    os.mkfifo(folder / ".gitignore")
    assert names(folder) == ["a.md"]


@needs("git")
@pytest.mark.parametrize("seed", range(6))
def test_any_patterns_mean_what_they_mean_to_git(folder: Path, seed: int):
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)
    folders = [folder]
    for _ in range(12):
        made = chance.choice(folders) / chance.choice(NAMES)
        if not made.exists():
            made.mkdir()
            folders.append(made)
    for _ in range(60):
        path = chance.choice(folders) / chance.choice(NAMES)
        if not path.exists():
            path.write_text("x")
    for one in [folder, *chance.sample(folders, 3)]:
        (one / ".gitignore").write_text("\n".join(chance.choices(PATTERNS, k=3)) + "\n")
    command = ["git", "-C", str(folder), "ls-files", "-z", "--others", "--exclude-standard"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    assert sorted(names(folder, FileRules(has_hidden=True))) == sorted(name for name in said if name)


NAMES = [
    "a",
    "b",
    "ab",
    "a b",
    "x.log",
    "y.tmp",
    "foo",
    "bar",
    ".hid",
    "a[b]",
    "#c",
    "!d",
    "back\\s",
    "q?",
    "build",
    "A1",
    "é",
    "aé",
    "dà",
]
PATTERNS = (
    "*|*.log|/a|a/|b|a/b|**/foo|foo/**|a/**/b|!x.log|!a|!*/|*/|[ab]|[!a]|[a-z]*|\\#c|\\!d|a\\ b|foo |foo\\ |a?|/*|!/a|**|**/|"
    "*.[tl]*|back\\\\s|q\\?|a\\[b\\]|[[:alpha:]]*|[[:digit:]]|build/|!build/|!foo/bar|.*|!.hid|foo/*|x.log\r|\fb|{a,b}|f*/**|"
    "!**/b|/foo/*/b|a**b|foo/**/|a/**/|/**/|!foo/**/|**/foo/**/|foo/**/ |é/|a?|a??|d?|[é]|[à-ÿ]*|*é|dà"
).split("|")


@needs("git")
@pytest.mark.parametrize("pattern", ["?", "a?b", "a??b", "caf?", "[!a]b", "*\udce9", "d\udcc3?", "foo/**/", "/**/", "!foo/**/"])
def test_a_letter_outside_of_ascii_is_its_bytes_as_it_is_to_git(folder: Path, pattern: str):
    subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)
    for name in (
        b"e",
        b"\xc3\xa9",
        b"a\xc3\xa9b",
        b"a\xffb",
        b"\xff",
        b"caf\xe9",
        b"d\xc3\xa0",
        b"\xffb",
        b"foo/f",
        b"foo/g/f",
        b"foo/g/h/f",
    ):
        path = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"x")
    (folder / ".gitignore").write_bytes(os.fsencode(pattern) + b"\n")
    command = ["git", "-C", str(folder), "ls-files", "-z", "--others", "--exclude-standard"]
    said = subprocess.run(command, check=True, capture_output=True).stdout.split(b"\0")
    counts = SkippedCounts()
    found = [*walk(str(folder), FileRules(has_hidden=True), counts), *counts.problems]
    assert sorted(os.fsencode(one.file) for one in found) == sorted(
        os.path.join(os.fsencode(folder), name) for name in said if name
    )


@needs("git")
def test_a_repository_in_a_folder_has_rules_of_its_own(folder: Path):
    inner = folder / "inner"
    subprocess.run(["git", "init", "-q", str(inner)], check=True, capture_output=True)
    (folder / ".gitignore").write_text("*.md\n")
    (inner / ".git" / "info" / "exclude").write_text("secret.txt\n")
    for name in ("a.md", "inner/b.md", "inner/secret.txt"):
        (folder / name).write_text("x")
    assert names(folder) == ["inner/b.md"]


# -- secrets ----------------------------------------------------------------------------------------


def test_keys_and_passwords_are_left_out_of_a_folder_and_counted(folder: Path):
    for name in (".env", ".env.local", "id_rsa", "sub/passwords.kdbx", ".ssh/config", ".env.example", "a.md", "id_rsa.pub", "env"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    counts = SkippedCounts()
    assert names(folder, FileRules(has_hidden=True), counts) == [".env.example", "a.md", "env", "id_rsa.pub"] and counts.secret == 5
    assert ".env" in names(folder, FileRules(has_hidden=True, has_secrets=True))
    assert not next(expand(str(folder / ".env"), FileRules(), SkippedCounts())).problem  # named: a person wants it


@pytest.mark.parametrize("kind", ["", "RSA ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_is_never_kept(folder: Path, gather: Gather, kind: str):
    path = folder / "server.pem"
    path.write_text(f"-----BEGIN {kind}PRIVATE KEY-----\nMIIE\n")
    with pytest.raises(Refused, match="private key"):
        item(gather, path)
    path.write_text("-----BEGIN PUBLIC KEY-----\nMIIE\n")
    assert item(gather, path).body


# -- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/proc/self/environ", "/sys/kernel", "/dev/null", "/proc"])
def test_what_the_kernel_makes_up_is_no_file(path: str):
    (found,) = expand(path, FileRules(), SkippedCounts())
    assert "kernel" in found.problem


def test_what_version_control_keeps_is_not_read_even_when_it_is_named(folder: Path):
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("token")
    for path in (folder / ".git", folder / ".git" / "config"):
        (found,) = expand(str(path), FileRules(has_hidden=True), SkippedCounts())
        assert ".git" in found.problem


def test_a_file_is_read_with_how_it_looked(folder: Path, gather: Gather):
    path = folder / "a.md"
    path.write_text("# Owls\n")
    os.utime(path, (1, 1))
    found = item(gather, path)
    assert (found.body, found.title, found.mime) == ("# Owls\n", "Owls", "text/markdown")
    assert found.file == str(path) and found.ref == f"disk:/{path}" and len(found.sha256) == 64
    (folder / "a.pdf").write_bytes(pdf("mice"))
    assert item(gather, folder / "a.pdf").original == pdf("mice")


def test_what_is_too_large_is_not_read(folder: Path, gather: Gather):
    for name in ("big.txt", "big.png"):
        with open(folder / name, "wb") as file:
            file.write(b"\x89PNG\0" if name.endswith("png") else b"text")
            file.truncate(1 << 30)
        if name == "big.txt":
            with open(folder / name, "r+b") as file:
                file.write(b"x" * 10_000)
        with pytest.raises(TooLarge, match=r"has 1073741824 bytes, the limit"):
            item(gather, folder / name)
    (folder / "long.txt").write_bytes(b"x" * (MAX_BODY_BYTES + 1))
    with pytest.raises(TooLarge, match="a text"):
        item(gather, folder / "long.txt")


def test_an_archive_is_bytes_and_never_opened(folder: Path, gather: Gather):
    bomb = b"PK\x03\x04" + b"\0" * 1000
    (folder / "bomb.docx").write_bytes(bomb)
    assert item(gather, folder / "bomb.docx").blob == bomb


def test_a_file_that_became_a_link_is_not_followed(folder: Path, gather: Gather):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.md").write_text("mine")
    (folder / "other").mkdir()
    (folder / "other" / "a.md").write_text("not mine")
    (wanted,) = expand(str(folder / "sub" / "a.md"), FileRules(), SkippedCounts())
    (folder / "sub").rename(folder / "was")
    (folder / "sub").symlink_to("other")
    with pytest.raises(BadInput, match="behind a link"):
        gather.item(wanted)
    (folder / "other" / "a.md").unlink()
    (folder / "other" / "a.md").symlink_to("../was/a.md")
    with pytest.raises(BadInput, match="a link"):
        gather.item(ItemToRead("disk://x", str(folder / "other" / "a.md")))
    with pytest.raises(NotFound):
        gather.item(ItemToRead("disk://x", str(folder / "gone")))


def test_a_database_in_use_is_never_opened_whatever_its_name(folder: Path):
    database = folder / "owlbox.db"
    database.write_bytes(b"x")
    os.link(database, folder / "other.txt")
    gather = Gather(os.environ, private=[database, folder / "owlbox.db-wal"])
    for name in ("owlbox.db", "other.txt"):
        with pytest.raises(BadInput, match="nobody else may open"):
            item(gather, folder / name)


def test_a_file_nobody_lets_us_read_is_told(folder: Path, gather: Gather):
    path = folder / "a.md"
    path.write_text("x")
    path.chmod(0)
    wanted = ItemToRead("disk://x", str(path))
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(OwlError, match="cannot be read: Permission denied"):
            gather.item(wanted)
    finally:
        os.seteuid(user)


def test_python_whose_parser_breaks_is_still_a_text(folder: Path, tmp_path: Path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "ast.py").write_text("import os; os._exit(1)")  # no child can start
    gather = Gather({**os.environ, "PYTHONPATH": str(broken)})
    try:
        (folder / "a.py").write_text("def f(): ...\n")
        found = item(gather, folder / "a.py")
        assert found.body == "def f(): ...\n" and "without an outline" in found.note and found.reader == ""
        (folder / "a.html").write_text("<p>x")
        assert item(gather, folder / "a.html").blob == b"<p>x"
    finally:
        gather.close()


def test_what_is_known_is_not_looked_into_again(folder: Path, gather: Gather):
    (folder / "a.md").write_text("x")
    first = item(gather, folder / "a.md")
    (wanted,) = expand(str(folder / "a.md"), FileRules(), SkippedCounts())
    known = KnownFile(first.ref, "h", "h", first.sha256, "another", first.reader)
    assert gather.item(wanted, known) is None
    assert gather.item(wanted, replace(known, hash="edited")) == gather.item(wanted)
    assert gather.item(wanted, replace(known, reader="text/0")) == gather.item(wanted)
    (folder / "a.md").write_text("y")
    assert gather.item(wanted, known) is not None
