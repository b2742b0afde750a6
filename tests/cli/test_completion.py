"""Completion in the three shells, as far as each is here, with the scripts that the command makes; and the man page."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import leave_out, needs
from process import ROOT, Box, a_shared_box  # noqa: F401

from appliance.cli import completion, main
from appliance.reference import docs, shells

DRIVERS = {
    "bash": """
source "$1"; COMP_LINE=$2; COMP_POINT=${#2}; read -ra COMP_WORDS <<<"$2"; [[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_WORDBREAKS=$' \\t\\n"><=;|&(:'; _owlbox; printf '%s\\n' "${COMPREPLY[@]}"
""",
    # Completion itself wants a terminal: its functions are stood in for, the walk over the words is the script's own.
    "zsh": """
compdef() { : }; _files() { ls }; compadd() { shift; print -l -- ${(M)@:#$last*} }
_describe() { local -a all=("${(@P)2}"); print -l -- ${(M)${all%%:*}:#$last*} }
source $1; words=(${(z)2}); [[ $2 == *' ' ]] && words+=(''); CURRENT=$#words; last=$words[-1]; _owlbox
""",
    "fish": """source $argv[1]; complete -C $argv[2] | string replace -r '\\t.*' ''""",
}


@pytest.fixture(name="box", scope="module")
def a_served_box(shared_box: Box) -> Iterator[Box]:
    folder = Path(shared_box.environ["HOME"]) / "bin"
    folder.mkdir(parents=True)
    (folder / "owlbox").write_text(f'#!/bin/sh\nexec {sys.executable} -m appliance --home {shared_box.home.root} "$@"\n')
    (folder / "owlbox").chmod(0o755)
    shared_box.environ["PATH"] = f"{folder}:{shared_box.environ['PATH']}"
    for shell in shells.SHELLS:
        (folder / f"owlbox.{shell}").write_text(shared_box.run("completion", shell).stdout)
    shared_box.serve()
    for words in (("task", "add", "water the plants"), ("people", "add", "ann"), ("remember", "tea is green")):
        assert shared_box.run(*words).returncode == 0
    yield shared_box


def offered(box: Box, shell: str, line: str) -> list[str]:
    """What a shell offers behind a line."""
    if not shutil.which(shell):
        leave_out(f"no {shell} here")
    plain = ["--norc"] if shell == "bash" else ["-f"] if shell == "zsh" else ["--no-config"]
    script = str(Path(box.environ["HOME"], "bin", f"owlbox.{shell}"))
    command = [shell, *plain, "-c", DRIVERS[shell], *([] if shell == "fish" else ["driver"]), script, line]
    done = subprocess.run(command, env=box.environ, capture_output=True, text=True, timeout=60, cwd=ROOT / "systemd")
    assert done.stderr == ""
    return done.stdout.split()


LINES: tuple[tuple[str, list[str]], ...] = (
    ("owlbox stat", ["status"]),
    ("owlbox task a", ["add"]),
    ("owlbox task list --pri", ["--priority"]),
    ("owlbox task list --priority h", ["high"]),
    ("owlbox --home /x schedule pre", ["preview"]),
    ("owlbox --json thread vi", ["view"]),
    ("owlbox task view ", ["1"]),
    ("owlbox ask --user a", ["ann"]),
    ("owlbox role view assist", ["assistant"]),
    ("owlbox entry view memory:", ["memory://notes/tea-green"]),
    ("owlbox config set heartbeat.ena", ["heartbeat.enabled"]),
    ("owlbox call session.exp", ["session.export"]),
    ("owlbox help com", ["completion"]),
    ("owlbox people add-key ann sysusers-", ["sysusers-owl.conf"]),
    ("owlbox qqq", []),
)


@pytest.mark.parametrize("shell", shells.SHELLS)
def test_a_shell_completes_words_options_values_and_names(box: Box, shell: str) -> None:
    wrong = {}
    for line, wanted in LINES:
        found = offered(box, shell, line)
        if shell == "bash" and ":" in line:  # bash puts back what stood before the colon
            found = [f"{line.split()[-1].rpartition(':')[0]}:{one}" for one in found]
        if shell == "zsh" and "add-key" in line:
            found = [one for one in found if one.startswith(line.split()[-1])]
        if found != wanted:
            wrong[line] = found
    assert wrong == {}


def test_what_stands_in_a_name_is_not_run(box: Box, tmp_path: Path) -> None:
    names = ("$(touch mark)a", "`touch mark`b", "${IFS}c", "*")
    (tmp_path / "owlbox").write_text("#!/bin/sh\nprintf '%s\\tabout\\n' " + " ".join(f"'{name}'" for name in names))
    (tmp_path / "owlbox").chmod(0o755)
    there = Box(box.home, {**box.environ, "PATH": f"{tmp_path}:{box.environ['PATH']}"})
    for shell in shells.SHELLS:
        if shutil.which(shell):
            offered(there, shell, "owlbox task view ")
    assert not (ROOT / "systemd/mark").exists()


def test_names_are_told_without_a_core_as_none(box: Box, tmp_path: Path) -> None:
    away = box.run("completion", "names", "thread", OWLBOX_HOME=str(tmp_path))
    assert box.run("completion", "names", "task").stdout == "1\twater the plants\n" and away.returncode == 0
    nobody = subprocess.run(
        [sys.executable, "-m", "appliance", "--home", str(tmp_path), "completion", "names", "thread"],
        env=box.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (nobody.returncode, nobody.stdout, nobody.stderr) == (0, "", "")


def test_every_kind_of_names_that_a_script_asks_for_is_known(box: Box) -> None:
    assert completion.SHELLS == shells.SHELLS
    assert set(shells.KINDS.values()) - {shells.FILE} <= set(completion.KINDS)
    assert [kind for kind in completion.KINDS if box.run("completion", "names", kind).returncode] == []


@needs("groff")
def test_the_man_page_names_every_command_and_no_formatter_complains(box: Box, tmp_path: Path) -> None:
    page = tmp_path / "owlbox.1"
    page.write_text(box.run("completion", "man").stdout)
    done = subprocess.run(["groff", "-man", "-ww", "-z", str(page)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    if shutil.which("mandoc"):
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, timeout=60)
        assert (lint.returncode, lint.stdout) == (0, "")
    named = {
        line.removeprefix(".SS owlbox ").replace("\\-", "-") for line in page.read_text().splitlines() if line.startswith(".SS")
    }
    assert named == set(re.findall(r"^## `owlbox ([^`]+)`", docs.pages(main.whole_parser())["reference/commands.md"], re.MULTILINE))
