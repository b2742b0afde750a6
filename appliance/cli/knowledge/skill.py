"""The commands about skills: `owlbox skill`.

A package is read here, with the rights of whoever installs it, or fetched by the core from a URL; it is reviewed by the core,
shown, and sent to it after a yes. Each function takes the parsed arguments and the home and returns the exit code, as in
`cli.listings`.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.cli.console.connect import connected
from appliance.cli.console.terminal import complain, say, say_json, say_line, show
from appliance.cli.console.tool_command import once
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

NAME = "its name, as `skill list` shows it"
FOLDER = "the folder in it that holds SKILL.md, where there are several"
ADDRESS = re.compile(r"(?:git\+)?[A-Za-z][A-Za-z0-9.+-]*://")
INSTALL = {"apt": "sudo apt-get install", "apk": "sudo apk add"}
Command = Callable[..., argparse.ArgumentParser]
TEMPLATE = "1. Say what to do first.\n2. Say what to do next.\n"


def add(command: Command) -> None:
    """Add the group."""
    root = command("skill", choose, "what Owlbox knows how to do")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    _add_owner_options(command("list", skills, "every skill, and why one cannot be used", known))
    show = command("show", skill, "the text of one, or of a file beside it", known)
    show.add_argument("name", help=NAME)
    show.add_argument("file", nargs="?", default="", help="such as references/x.md")
    _add_owner_options(show)
    found = command("search", search, "skills that some words find, best first", known)
    found.add_argument("query", nargs="+", help="words")
    _add_owner_options(found)
    made = command("create", create, "write a new one, and open it in an editor", known)
    made.add_argument("name", help="one to three words")
    made.add_argument("--description", default="", help="one sentence: what it does and when to use it")
    made.add_argument("--file", default="", help="take its text from this file; - reads it from a pipe")
    made.add_argument("--force", action="store_true", help="in place of one that is there")
    _add_owner_options(made)
    checked = command("validate", validate, "whether skills are as the public format wants them", known)
    checked.add_argument("path", nargs="?", default="", help="a skill's folder or .md file; without one, all in box/skills")
    taken = command("install", install, "from a folder, a file, a zip, a tar or a Git URL, after a review", known)
    taken.add_argument("source", help="where it is; of a repository, #NAME at the end is a branch or tag")
    taken.add_argument("--folder", default="", help=FOLDER)
    taken.add_argument("--yes", action="store_true", help="ask nothing")
    taken.add_argument("--trust", action="store_true", help="trust it at once, as it is now")
    taken.add_argument("--force", action="store_true", help="in place of one that is there")
    _add_owner_options(taken)
    for name in ("remove", "delete"):
        gone = command(name, remove, "remove one with its files", known)
        gone.add_argument("name", help=NAME)
        _add_owner_options(gone)
    trusted = command("trust", trust, "show its description to models, until it changes", known)
    trusted.add_argument("name", help=NAME)
    trusted.add_argument("hash", nargs="?", default="", help="of what you have read, as `skill show` shows it")
    trusted.add_argument("--no", action="store_true", help="end that")
    _add_owner_options(trusted)
    prepared = command("prepare", prepare, "install the packages that a trusted one declares, for it alone", known)
    prepared.add_argument("name", help=NAME)
    _add_owner_options(prepared)


def _add_owner_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--user", default="", help="that person's alone")
    made.add_argument("--group", default="", help="that group's alone")


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint="list, show, search, create, validate, install, prepare, remove or trust")


def skills(args: argparse.Namespace, home: Home) -> int:
    """One line for each skill."""
    with connected(home) as way:
        found, skipped = way.call("skill.list", {"owner": _owner_of(args)}), way.call("skill.skipped")
    done = _print_lines(args, found, "No skills found.")
    for text in () if args.json else skipped:
        say_line(f"[!] skipped {text}")
    return done


def search(args: argparse.Namespace, home: Home) -> int:
    """The skills that words find."""
    words = " ".join(args.query)
    return _print_lines(
        args, once(home, "skill.search", {"query": words, "owner": _owner_of(args)}), f"No skill has {words!r} in it."
    )


def skill(args: argparse.Namespace, home: Home) -> int:
    """A skill's text and what is known about it."""
    found = once(home, "skill.view", {"name": args.name, "path": args.file, "owner": _owner_of(args)})
    if args.json:
        return say_json(found)
    if not args.file:
        one = found["skill"]
        facts = {
            "file": one["path"],
            "whose": one["owner"] or "everybody's",
            "called": "by name only: this is a command already" if one["is_reserved"] else found["usage"],
            "from": one["source"],
            "needs": one["missing"],
            "trusted": "" if one["is_trusted"] else f"no: owlbox skill trust {one['name']} {found['hash'][:16]}",
            "in place of": ", ".join(one["shadows"]),
            "note": "; ".join(one["notes"]),
            "beside it": ", ".join(found["files"]),
        }
        for name, fact in facts.items():
            if fact:
                say_line(f"{name}: {fact}")
        say("")
    say(found["text"].rstrip("\n"))
    return 0


def create(args: argparse.Namespace, home: Home) -> int:
    """Write a skill from a file, a pipe, or an editor."""
    body = TEMPLATE
    if args.file == "-" or (not args.file and not sys.stdin.isatty()):
        body = sys.stdin.read()
    elif args.file:
        try:
            body = Path(args.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{args.file} cannot be read: {error}", hint="name a text file, or - for standard input") from None
    elif not args.json:
        body = _edit_text(body)
    given = {
        "name": args.name,
        "description": args.description or f"Do {args.name} as it is done here.",
        "body": body,
        "is_overwriting": args.force,
        "owner": _owner_of(args),
    }
    one = once(home, "skill.create", given)
    return show(args, one, [f"wrote {one['path']}; /{one['name']} uses it from the next message on"])


def validate(args: argparse.Namespace, home: Home) -> int:
    """Judge skills by the public format; 1 when one of them is not as it wants it."""
    from appliance.skills.skill_file import find_faults

    own = (path for path in (home.box / "skills").glob("*") if path.is_dir() or path.suffix.lower() == ".md")
    folders = [Path(args.path)] if args.path else sorted(own)
    folders = [folder.parent if folder.name.lower() == "skill.md" else folder for folder in folders]
    found = {str(folder): find_faults(folder.resolve()) for folder in folders}
    lines = []
    for folder, faults in found.items():
        lines += [f"{'[-]' if faults else '[+]'} {folder}", *(f"    {fault}" for fault in faults)]
    show(args, found, lines or "No skills found.")
    return int(any(found.values()))


def install(args: argparse.Namespace, home: Home) -> int:
    """Read a package, show what it asks for, and install it after a yes."""
    if ADDRESS.match(args.source):
        fetched = once(home, "skill.fetch", {"url": args.source, "folder": args.folder})
        source, given = fetched["source"], {"files": fetched["files"], "folder": fetched["folder"]}
    else:
        from appliance.skills.package import read_package
        from appliance.skills.skill_service import encode_files

        path = Path(args.source).expanduser()
        package = read_package(path, args.folder)
        source, given = str(path.resolve()), {"files": encode_files(package), "folder": package.name}
    found = once(home, "skill.review", given)
    if not args.json:
        _print_review(found)
    if not args.yes and not _says_yes(f"Install {found['name']}{' and trust it' if args.trust else ''}?"):
        raise BadInput("nothing was installed", hint="--yes installs it without asking")
    given |= {"source": source, "owner": _owner_of(args), "is_overwriting": args.force, "is_trusted": args.trust}
    one = once(home, "skill.install", given)
    lines = [f"installed {one['path']}"]
    if not one["is_trusted"]:
        lines.append(f"models are told its name alone until you trust it: owlbox skill show {one['name']} says how")
    lines += _next_steps(one)
    return show(args, {"skill": one, "findings": found["findings"]}, lines)


def remove(args: argparse.Namespace, home: Home) -> int:
    """Remove a skill."""
    path = once(home, "skill.remove", {"name": args.name, "owner": _owner_of(args)})
    return show(args, {"removed": path}, [f"removed {path}"])


def trust(args: argparse.Namespace, home: Home) -> int:
    """Trust a skill, or end that."""
    given = {"name": args.name, "hash": args.hash, "is_trusted": not args.no, "owner": _owner_of(args)}
    one = once(home, "skill.trust", given)
    lines = [f"{one['name']} is {'trusted as it is now' if one['is_trusted'] else 'not trusted'}"]
    return show(args, one, lines + _next_steps(one))


def prepare(args: argparse.Namespace, home: Home) -> int:
    """Install and verify the packages that a skill declares; 1 when one of them is missing."""
    done = once(home, "skill.prepare", {"name": args.name, "owner": _owner_of(args)})
    lines = []
    for one in done["packages"]:
        sign = {"installed": "[+]", "missing": "[-]"}.get(one["state"], "[?]")
        lines.append(f"{sign} {one['name']} ({one['source']}): {one['state']}{', ' + one['said'] if one['said'] else ''}")
        if one["state"] != "installed" and one["source"] in ("apt", "apk"):
            lines.append(f"    a person installs it: {INSTALL[one['source']]} {one['name']}")
    lines += [f"variable {name}: owlbox secret set skill/{name}" for name in done["variables"]]
    show(args, done, lines or f"{done['name']} declares no packages and no variables.")
    return int(any(one["state"] == "missing" for one in done["packages"]))


def _next_steps(one: dict[str, Any]) -> list[str]:
    """What is still to be done for a trusted skill whose scripts need something."""
    return [f"its scripts need packages or variables: owlbox skill prepare {one['name']}"] if one["is_to_prepare"] else []


def _print_lines(args: argparse.Namespace, found: list[dict[str, Any]], none: str) -> int:
    lines = []
    for one in found:
        words = ["[-]" if one["missing"] else "[+]", one["name"], "[always]" if one["always"] else "", one["description"]]
        notes = [one["missing"], "" if one["is_trusted"] else "not trusted", one["owner"]]
        lines.append(" ".join(word for word in [*words, *(f"({note})" for note in notes if note)] if word))
    return show(args, found, lines or none)


def _print_review(found: dict[str, Any]) -> None:
    size = sum(found["files"].values())
    say_line(f"{found['name']}: {found['description']}")
    say_line(f"{len(found['files'])} files, {size} bytes: {', '.join(list(found['files'])[:12])}")
    if found["replaces"]:
        say_line(f"It takes the place of {found['replaces']}")
    for kind, head in (("hides", "What a reader does not see"), ("asks", "What it asks for"), ("format", "Against the format")):
        lines = [one["text"] for one in found["findings"] if one["kind"] == kind]
        if lines:
            say_line(f"{head}:")
            for line in lines:
                say_line(f"  {line}")


def _owner_of(args: argparse.Namespace) -> str:
    if args.user and args.group:
        raise BadInput("it is either a person's or a group's", hint="give --user or --group, not both")
    return f"user:{args.user}" if args.user else f"group:{args.group}" if args.group else ""


def _says_yes(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _edit_text(text: str) -> str:
    """What the person makes of a text in an editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "nano"
    with tempfile.NamedTemporaryFile("w+", suffix=".md", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            code = subprocess.run([*editor.split(), file.name], check=False).returncode
        except OSError as error:
            raise NotFound(f"{editor} cannot be started: {error.strerror}", hint="set EDITOR, or give --file") from None
        if code:
            complain(f"{editor} ended with {code}; what was written is taken")
        return Path(file.name).read_text(encoding="utf-8")
