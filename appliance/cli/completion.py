"""`owlbox completion`: the script that completes command lines in a shell, and the man page, both made from the command line."""

import argparse
from pathlib import Path

from appliance.console.parser import Command
from appliance.console.terminal import say
from appliance.runtime.paths import Home

SHELLS = ("bash", "zsh", "fish")


def add(command: Command) -> None:
    """Add the command."""
    made = command("completion", complete, "completion script for bash, zsh or fish, and the man page")
    made.add_argument("what", choices=[*SHELLS, "man"], help="a shell; man for the page of `man`")


def complete(args: argparse.Namespace, home: Home) -> int:
    """Print a script or the man page."""
    say(make_texts()[args.what].rstrip("\n"))
    return 0


def make_texts() -> dict[str, str]:
    """The script of each shell, and the man page under `man`."""
    from appliance.cli import main
    from appliance.reference import man_page, shells

    whole = main.whole_parser()
    return {**shells.scripts(whole), "man": man_page.man_page(whole)}


def write_texts(folder: str) -> None:
    """Write all of them into a folder, for `systemd/install.sh`."""
    for name, text in make_texts().items():
        Path(folder, name).write_text(text, encoding="utf-8")
