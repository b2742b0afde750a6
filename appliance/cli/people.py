"""The commands about who is who: `owlbox people`.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from appliance.cli.console.terminal import Table, say_json, show
from appliance.cli.console.tool_command import once
from appliance.cli.onboard import ask_yes, name_owner
from appliance.cli.secret import read_value
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL

PERSON = "the name of a person; a user of this machine is the person of the same name"
ADDRESS = "CHANNEL/ADDRESS, such as matrix/@ann:example.org"
MAX_KEY_CHARS = 16_384
Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the group."""
    root = command("people", choose, "who is who: persons, their addresses in channels, groups")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    command("list", people, "everybody who was added", known)
    command("show", person, "one person: rights, groups, addresses", known).add_argument("person", help=PERSON)
    command("add", person_added, "add a person", known).add_argument("person", help=PERSON)
    command("remove", person_removed, "remove a person; what was said stays", known).add_argument("person", help=PERSON)
    made = command("deactivate", person_deactivated, "serve a person nowhere any more; what they have stays", known)
    made.add_argument("person", help=PERSON)
    command("activate", person_activated, "serve a person again", known).add_argument("person", help=PERSON)
    made = command("link", linked, "say whose an address is; all addresses of a person share one session", known)
    made.add_argument("person", help=PERSON)
    made.add_argument("address", help=ADDRESS)
    command("unlink", unlinked, "take back a link", known).add_argument("address", help=ADDRESS)
    made = command("keys", keys, "the keys with which people come over ssh", known)
    made.add_argument("person", nargs="?", default="", help=PERSON)
    made = command("add-key", key_added, "let a person in over ssh; makes the person where there is none", known)
    made.add_argument("person", help=PERSON)
    made.add_argument("keyfile", help="the .pub file of their key; - reads it from a pipe")
    made = command("remove-key", key_removed, "let nobody in with a key any more", known)
    made.add_argument("key", help="its fingerprint as keys shows it, or the beginning of it, or the .pub file")
    made = command("invite", invited, "make a one-time invite to the web page; makes the person where there is none", known)
    made.add_argument("person", nargs="?", default="", help="whom; without a name your own browser is let in")
    made = command("password", password_set, "set a password for the web page; asks for it, or reads standard input", known)
    made.add_argument("person", help=PERSON)
    made.add_argument("--remove", action="store_true", help="remove it: only invites are left")
    made = command("token", token_made, "make a token for a program; it is shown once. logins lists them, logout ends one", known)
    made.add_argument("name", help="the program, such as home-assistant")
    made.add_argument("--person", default="", help="as whom it works, else as you; made where there is none")
    made = command("logins", logins, "who is logged in to the web page and which programs have a token, and since when", known)
    made.add_argument("person", nargs="?", default="", help=PERSON)
    made = command("logout", logged_out, "end a login of the web page, or a program's token", known)
    made.add_argument("id", help="as logins shows it, or its beginning")
    made = command("group", group, "groups and who is in them; with a name, make or change one", known)
    made.add_argument("name", nargs="?", default="", help="the name of a group")
    made.add_argument("--add", nargs="+", default=[], metavar="PERSON", help="who joins it")
    made.add_argument("--leave", nargs="+", default=[], metavar="PERSON", help="who leaves it")
    made.add_argument("--remove", action="store_true", help="remove the group; what was said in it stays")
    made.add_argument("--room", default="", metavar="CHANNEL/ROOM", help="a room of a channel that is this group's from now on")
    made.add_argument("--deactivate", action="store_true", help="it keeps what it has and takes no messages of its rooms")
    made.add_argument("--activate", action="store_true", help="it takes messages again")


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint="owlbox people --help lists the actions")


def people(args: argparse.Namespace, home: Home) -> int:
    """A table of everybody."""
    found = once(home, "people.list", {})
    rows = [[one["name"], _rights(one), " ".join(one["groups"]), " ".join(one["identities"])] for one in found]
    heads = ["person", "rights", "groups", "addresses"]
    return show(args, found, Table(rows, heads, ["addresses"], empty="nobody was added: owlbox people add NAME"))


def person(args: argparse.Namespace, home: Home) -> int:
    """One person."""
    return _show_person(args, once(home, "people.show", {"person": args.person}))


def person_added(args: argparse.Namespace, home: Home) -> int:
    """Add a person."""
    return _show_person(args, once(home, "people.add", {"person": args.person}))


def person_removed(args: argparse.Namespace, home: Home) -> int:
    """Remove a person."""
    found = once(home, "people.remove", {"person": args.person})
    return show(args, found, [f"removed {found['name']}; owlbox session list --user {found['name']} shows what was said"])


def person_deactivated(args: argparse.Namespace, home: Home) -> int:
    """Serve a person nowhere any more."""
    found = once(home, "people.activate", {"person": args.person, "is_active": False})
    name = found["name"]
    return show(args, found, [f"{name} is deactivated at every way in; owlbox people activate {name} takes that back"])


def person_activated(args: argparse.Namespace, home: Home) -> int:
    """Serve a person again."""
    found = once(home, "people.activate", {"person": args.person})
    return show(args, found, [f"{found['name']} is served again, with the same addresses, keys, logins and tokens"])


def linked(args: argparse.Namespace, home: Home) -> int:
    """Link an address to a person."""
    return _show_person(args, once(home, "people.link", {"identity": args.address, "person": args.person}))


def unlinked(args: argparse.Namespace, home: Home) -> int:
    """Take back a link."""
    return _show_person(args, once(home, "people.unlink", {"identity": args.address}))


def keys(args: argparse.Namespace, home: Home) -> int:
    """A table of keys."""
    found = once(home, "people.keys", {"person": args.person})
    rows = [[one["person"], one["fingerprint"], one["kind"], one["comment"]] for one in found]
    heads = ["person", "fingerprint", "kind", "comment"]
    return show(args, found, Table(rows, heads, ["comment"], empty="no keys: owlbox people add-key PERSON KEYFILE adds one"))


def key_added(args: argparse.Namespace, home: Home) -> int:
    """Let a person in with a key."""
    found = once(home, "people.add_key", {"person": args.person, "key": _read_key(args.keyfile)})
    return show(args, found, [f"{found['person']} comes in with {found['fingerprint']}", "they type: ssh owl@this-box"])


def key_removed(args: argparse.Namespace, home: Home) -> int:
    """Let nobody in with a key."""
    key = args.key if args.key.startswith("SHA256:") else _read_key(args.key)
    found = once(home, "people.remove_key", {"key": key})
    return show(args, found, [f"{found['person']} does not come in with {found['fingerprint']} any more"])


def _read_key(path: str) -> str:
    """The text of a key's file, as long as one may be."""
    if path == "-":
        return sys.stdin.read(MAX_KEY_CHARS)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_KEY_CHARS)
    except FileNotFoundError:
        raise NotFound(f"no file {path}", hint="it is the .pub file on the computer that they come from") from None


def invited(args: argparse.Namespace, home: Home) -> int:
    """Make an invite."""
    new = _introduce(args, home)
    found = once(home, "login.invite", {"person": args.person})
    until = _format_time(found["expires_ms"])
    where = found["address"] or f"#invite={found['invite']} behind the address of the page (channels.web.enabled is false)"
    return show(args, found, [where, f"for {found['person']}, once, until {until}", *new])


def password_set(args: argparse.Namespace, home: Home) -> int:
    """Set or remove a password."""
    words = "" if args.remove else read_value(f"password of {args.person}: ")
    if not (words or args.remove):
        raise BadInput("no password was given", hint="type one, or owlbox people password NAME --remove")
    found = once(home, "login.set_password", {"person": args.person, "password": words})
    return show(args, found, [f"{'removed' if args.remove else 'set'}; {args.person} is logged out everywhere"])


def token_made(args: argparse.Namespace, home: Home) -> int:
    """Make a token for a program."""
    new = _introduce(args, home)
    found = once(home, "login.token", {"name": args.name, "person": args.person})
    return show(args, found, [found["token"], f"for {args.name}, as {found['person']}; nobody can show it again", *new])


def _introduce(args: argparse.Namespace, home: Home) -> list[str]:
    """What is to be known where a person is made that nobody added; at a terminal the owner is asked first who is meant."""
    found = once(home, "people.list", {}) if args.person else []
    owner = next((one["name"] for one in found if one["is_owner"]), "")
    if not owner or any(
        args.person in (one["name"], *(str(said).removeprefix(f"{LOCAL}/") for said in one["identities"])) for one in found
    ):
        return []
    if sys.stdin.isatty() and not args.json and ask_yes(f"Is {args.person} you, {owner}, the owner of this installation?", False):
        name_owner(home, args.person)
        args.person = owner
        return []
    return [
        f"{args.person} is a person beside {owner}, the owner. Where several talk, all see box/, and Owlbox writes no notes there;",
        "what each has it remember is their own. To let your own browser in: owlbox people invite, without a name",
    ]


def logins(args: argparse.Namespace, home: Home) -> int:
    """A table of sessions."""
    found = once(home, "login.list", {"person": args.person})
    rows = [[one["id"], one["person"], _format_time(one["seen_ms"]), one["address"], one["agent"]] for one in found]
    heads = ["id", "person", "seen", "address", "browser"]
    return show(args, found, Table(rows, heads, ["browser"], empty="nobody is logged in"))


def logged_out(args: argparse.Namespace, home: Home) -> int:
    """End a session."""
    found = once(home, "login.end", {"id": args.id})
    return show(args, found, [f"{found['person']} is logged out there"])


def group(args: argparse.Namespace, home: Home) -> int:
    """All groups, or one that is made or changed."""
    if not args.name:
        found = once(home, "group.list", {})
        rows = [[name, " ".join(members)] for name, members in found.items()]
        return show(args, found, Table(rows, ["group", "members"], ["members"], empty="no groups"))
    if args.activate and args.deactivate:
        raise BadInput("--activate and --deactivate contradict each other", hint="give one of them")
    if args.room:
        found = once(home, "group.room", {"group": args.name, "room": args.room})
        return show(args, found, [f"{args.room} is a room of {args.name}"])
    if args.activate or args.deactivate:
        found = once(home, "group.activate", {"group": args.name, "is_active": args.activate})
        return show(args, found, [f"{args.name} {'takes messages' if args.activate else 'is deactivated'}"])
    given = {"group": args.name, "add": args.add, "remove": args.leave, "is_removed": args.remove}
    changed = once(home, "group.change", given)
    if args.remove:
        return show(args, changed, [f"removed group {args.name}"])
    return show(args, changed, [f"{args.name}: {' '.join(changed['members']) or 'nobody'}"])


def _show_person(args: argparse.Namespace, found: dict[str, Any]) -> int:
    if args.json:
        return say_json(found)
    lines = [f"{found['name']}: {found['rights']} rights" if found["is_active"] else f"{found['name']}: deactivated"]
    lines += [f"groups: {', '.join(found['groups'])}"] if found["groups"] else []
    return show(args, found, [*lines, *(f"address: {one}" for one in found["identities"])])


def _rights(found: dict[str, Any]) -> str:
    return "owner" if found["is_owner"] else str(found["rights"]) if found["is_active"] else "deactivated"


def _format_time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000).astimezone():%Y-%m-%d %H:%M}"
