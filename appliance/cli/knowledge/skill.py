"""The commands about skills: `owlbox skill`.

A package is read here, with the rights of whoever installs it, or fetched by the core from a URL; it is reviewed by the core,
shown, and sent to it after a yes.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from appliance.console.connect import connected
from appliance.console.inputs import edit_text, read_text
from appliance.console.terminal import say_line, says_yes, show
from appliance.console.tool_command import once
from appliance.console.verbs import Noun, Verb, call, parameters, takes
from appliance.errors import BadInput
from appliance.runtime.paths import Home
from appliance.text.invisible import escape_invisible

FOLDER = "the folder in it that holds SKILL.md, where there are several"
ADDRESS = re.compile(r"(?:git\+)?[A-Za-z][A-Za-z0-9.+-]*://")
INSTALL = {"apt": "sudo apt-get install", "apk": "sudo apk add"}
TEMPLATE = "1. Say what to do first.\n2. Say what to do next.\n"


def _add_owner(made: argparse.ArgumentParser) -> None:
    made.add_argument("--user", default="", help="of this person only")
    made.add_argument("--group", default="", help="of this group only")


def of_owner(args: argparse.Namespace, home: Home) -> int:
    """What a verb does, among the skills of a person or a group."""
    return call(args, home, args.verb, {**parameters(args), "owner": _owner_of(args)})


def list_skills(args: argparse.Namespace, home: Home) -> int:
    """One line for each skill, and why others are none."""
    with connected(home) as way:
        found, skipped = way.call("skill.list", {"owner": _owner_of(args)}), way.call("skill.skipped")
    return show(args, found, [*_tell_skills(args, found), *(f"[!] skipped {text}" for text in skipped)])


def _tell_skill(args: argparse.Namespace, found: dict[str, Any]) -> str:
    """A skill's text and what is known about it."""
    if args.file:
        return str(found["text"]).rstrip("\n")
    one = found["skill"]
    facts = {
        "file": one["path"],
        "whose": one["owner"] or "everybody's",
        "called": "by name only: this is a command already" if one["is_reserved"] else found["usage"],
        "from": one["source"],
        "needs": one["missing"],
        "trusted": "" if one["is_trusted"] else f"no: owlbox skill trust {one['name']} {found['hash'][:16]}{_option(one)}",
        "in place of": ", ".join(one["shadows"]),
        "note": "; ".join(one["notes"]),
        "beside it": ", ".join(found["files"]),
    }
    known = [escape_invisible(f"{name}: {fact}", "line") for name, fact in facts.items() if fact]
    return "\n".join([*known, "", found["text"].rstrip("\n")])


def create(args: argparse.Namespace, home: Home) -> int:
    """Write a skill from a file, a pipe, or an editor."""
    body = TEMPLATE
    if args.file or not sys.stdin.isatty():
        body = read_text(args.file or "-")
    elif not args.json:
        body = edit_text(body, f"{args.name}.md")
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
    if not args.yes and not says_yes(f"Install {found['name']}{' and trust it' if args.trust else ''}?"):
        raise BadInput("nothing was installed", hint="--yes installs it without asking")
    given |= {"source": source, "owner": _owner_of(args), "is_overwriting": args.force, "is_trusted": args.trust}
    one = once(home, "skill.install", given)
    lines = [f"installed {one['path']}"]
    if not one["is_trusted"]:
        lines.append(f"models see only its name until you trust it: owlbox skill show {one['name']}{_option(one)} says how")
    lines += _next_steps(one)
    return show(args, {"skill": one, "findings": found["findings"]}, lines)


def _tell_trust(args: argparse.Namespace, one: dict[str, Any]) -> list[str]:
    return [f"{one['name']} is {'trusted as it is now' if one['is_trusted'] else 'not trusted'}", *_next_steps(one)]


def _tell_prepared(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    """The packages and variables that a skill declares, each with what became of it."""
    lines = []
    for one in done["packages"]:
        sign = {"installed": "[+]", "missing": "[-]"}.get(one["state"], "[?]")
        lines.append(f"{sign} {one['name']} ({one['source']}): {one['state']}{', ' + one['said'] if one['said'] else ''}")
        if one["state"] != "installed" and one["source"] in ("apt", "apk"):
            lines.append(f"    a person installs it: {INSTALL[one['source']]} {one['name']}")
    lines += [f"variable {name}: owlbox secret set skill/{name}" for name in done["variables"]]
    return lines or [f"{done['name']} declares no packages and no variables."]


def _option(one: dict[str, Any]) -> str:
    """Whose a skill is, as a command is told."""
    kind, _, owner = one["owner"].partition(":")
    return f" --{kind} {owner}" if owner else ""


def _next_steps(one: dict[str, Any]) -> list[str]:
    """What is still to be done for a trusted skill whose scripts need something."""
    return (
        [f"its scripts need packages or variables: owlbox skill prepare {one['name']}{_option(one)}"]
        if one["is_to_prepare"]
        else []
    )


def _tell_skills(args: argparse.Namespace, found: list[dict[str, Any]]) -> list[str]:
    """A line for each skill."""
    lines = []
    for one in found:
        words = ["[-]" if one["missing"] else "[+]", one["name"], "[always]" if one["always"] else "", one["description"]]
        notes = [one["missing"], "" if one["is_trusted"] else "not trusted", one["owner"]]
        lines.append(" ".join(word for word in [*words, *(f"({note})" for note in notes if note)] if word))
    query = " ".join(getattr(args, "query", ()))
    return lines or [f"No skill has {query!r} in it." if query else "No skills found."]


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


def _add_creating(made: argparse.ArgumentParser) -> None:
    made.add_argument("name", help="one to three words")
    made.add_argument("--description", default="", help="one sentence: what it does and when to use it")
    made.add_argument("--file", default="", help="take its text from this file; - reads it from a pipe")
    made.add_argument("--force", action="store_true", help="replace an existing one")
    _add_owner(made)


def _add_installing(made: argparse.ArgumentParser) -> None:
    made.add_argument("source", help="where it is; of a repository, #NAME at the end is a branch or tag")
    made.add_argument("--folder", default="", help=FOLDER)
    made.add_argument("--yes", action="store_true", help="ask nothing")
    made.add_argument("--trust", action="store_true", help="trust it at once, as it is now")
    made.add_argument("--force", action="store_true", help="replace an existing one")
    _add_owner(made)


NAMED = {
    "name": "its name, as `skill list` shows it",
    "file": "such as references/x.md",
    "no": "stop trusting it",
    "hash": "of what you have read, as `skill show` shows it",
    "query": "words",
}
SEARCH = Verb("search", "skill.list", "query+ --limit", text="search skills, best first", says=_tell_skills,
              handler=of_owner, helps=NAMED, adds=_add_owner)  # fmt: skip
# fmt: off
NOUNS = (
    Noun("skill", "skills: list, show, create, install, remove", (
        Verb("list", text="list skills, with the reason if one cannot be used", handler=list_skills, adds=_add_owner),
        Verb("show", "skill.view", "name file=path?", text="show a skill, or a file in its folder", handler=of_owner,
             says=_tell_skill, helps=NAMED, adds=_add_owner),
        SEARCH,
        Verb("create", text="write a new skill in an editor", handler=create, adds=_add_creating),
        Verb("validate", text="check skills against the public format", handler=validate,
             adds=takes("path", nargs="?", default="", help="a skill's folder or .md file; without one, all in box/skills")),
        Verb("install", text="install from a folder, file, zip, tar or Git URL, after a review",
             handler=install, adds=_add_installing),
        Verb("remove delete", "skill.remove", "name", text="remove a skill", handler=of_owner, says="removed {result}",
             helps=NAMED, adds=_add_owner),
        Verb("trust", "skill.trust", "name hash? --no=is_trusted", text="trust a skill as it is now: models see its description",
             handler=of_owner, says=_tell_trust, helps=NAMED, adds=_add_owner),
        Verb("prepare", "skill.prepare", "name", handler=of_owner, adds=_add_owner,
             text="install the packages that a trusted skill declares",
             says=_tell_prepared, helps=NAMED,
             code=lambda done: int(any(one["state"] == "missing" for one in done["packages"]))),
    )),
)
