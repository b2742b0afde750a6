"""A command in a person's repository changes its files and commits, but nothing that git would run by itself afterwards."""

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from needs import needs
from test_files_tools import CODER, opened

HOOK = "printf '#!/bin/sh\\ntouch /tmp/owned\\n' > hooks/pre-commit && chmod +x hooks/pre-commit"
WAYS = {
    "a-hook": f"cd .git && {HOOK}",
    "another-hook": "echo x >> .git/hooks/post-checkout",
    "other-hooks": "git config core.hooksPath evil || printf '[core]\\nhooksPath = evil\\n' >> .git/config",
    "a-program": "printf '[core]\\nfsmonitor = touch /tmp/owned\\n' > new && mv new .git/config",
    "another-folder": "mv .git away && cp -r away .git && rm -rf .git/hooks && mkdir .git/hooks && touch .git/hooks/pre-commit",
    "a-link": "rm -rf .git/hooks; ln -s ../evil .git/hooks",
    "another-name": "mv .git/hooks .git/before && mkdir .git/hooks && touch .git/hooks/pre-commit",
}


def programs(repository: Path) -> dict[str, bytes]:
    """What git runs by itself there, or is told to run."""
    git = repository / ".git"
    assert git.is_dir() and not git.is_symlink() and not (git / "hooks").is_symlink()
    return {str(path.relative_to(git)): path.read_bytes() for path in [git / "config", *(git / "hooks").iterdir()]}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "p"
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    return made


def do(tmp_path: Path, *commands: str, written: str = "") -> str:
    """What the last of these commands in the repository says; then a file tool writes."""
    mounts, said = json.dumps([{"path": f"{tmp_path}/p", "mode": "readwrite", "kind": "project", "user": "ada"}]), ""
    with contextmanager(opened)(tmp_path, SANDBOX__MOUNTS=mounts) as desk:
        for command in commands:
            said = str(desk.do("exec", command=f"cd /project/p; {command}", terms=CODER).message)
        if written:
            desk.do("write_file", path=written, content="#!/bin/sh\n", terms=CODER)
    return said


@needs("bwrap", "perl")
@pytest.mark.parametrize("way", WAYS)
def test_a_command_leaves_nothing_that_git_runs(tmp_path: Path, repository: Path, way: str) -> None:
    before = programs(repository)
    do(tmp_path, WAYS[way])
    assert programs(repository) == before


@needs("bwrap", "perl")
def test_no_hook_is_made_where_there_are_none_and_no_file_tool_writes_one(tmp_path: Path, repository: Path) -> None:
    for path in (repository / ".git/hooks").iterdir():
        path.unlink()
    (repository / ".git/hooks").rmdir()
    do(tmp_path, "mkdir -p .git/hooks; touch .git/hooks/pre-commit", written="/project/p/.git/hooks/pre-commit")
    assert list((repository / ".git").glob("hooks/*")) == []


@needs("bwrap", "perl")
def test_a_command_still_commits(tmp_path: Path, repository: Path) -> None:
    who = "git -c user.name=ada -c user.email=ada@example.org"
    said = do(tmp_path, "echo owl > a.txt; git add a.txt", f"{who} commit -qm first && git log --oneline")
    assert "first" in said, said
    log = subprocess.run(["git", "-C", str(repository), "log", "--oneline"], capture_output=True, text=True, check=True)
    assert "first" in log.stdout


@needs("bwrap", "perl")
def test_the_file_of_a_worktree_stays(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "real").mkdir()
    (repository / ".git").rename(tmp_path / "real/git")
    (repository / ".git").write_text(f"gitdir: {tmp_path}/real/git\n")
    do(tmp_path, "echo 'gitdir: /project/p/evil' > .git; echo 'gitdir: x' > n; mv n .git; rm .git; mkdir .git")
    assert (repository / ".git").read_text() == f"gitdir: {tmp_path}/real/git\n"
