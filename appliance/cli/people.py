"""The commands about who is who: `owlbox people`, made from the definitions of their methods."""

import argparse
import sys
from typing import Any

from appliance.cli.secret import read_value
from appliance.console.inputs import read_text
from appliance.console.terminal import show
from appliance.console.tool_command import once
from appliance.console.verbs import Noun, Verb, call, cell, parameters, table
from appliance.errors import BadInput
from appliance.runtime.paths import Home

PERSON = "the name of a person; a user of this machine is the person of the same name"
MAX_KEY_BYTES = 16_384
ADDRESS = "address=identity"


def tell_person(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    """A person, a line for each thing."""
    lines = [f"{found['name']}: {found['rights']} rights" if found["is_active"] else f"{found['name']}: deactivated"]
    lines += [f"groups: {', '.join(found['groups'])}"] if found["groups"] else []
    return [*lines, *(f"address: {one}" for one in found["identities"])]


def _read_key(place: str) -> str:
    """The text of a key's file; a fingerprint as it is."""
    return place if place.startswith("SHA256:") else read_text(place, MAX_KEY_BYTES)


def _tell_invite(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    where = found["address"] or f"#invite={found['invite']} goes behind the address of the web page (channels.web.enabled is false)"
    return [where, f"for {found['person']}, once, until {cell(found, 'expires_ms', {})}", *args.new]


def _tell_token(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    return [found["token"], f"for {args.name}, as {found['person']}; nobody can show it again", *args.new]


def make_for(args: argparse.Namespace, home: Home) -> int:
    """Make an invite or a token, with what is to be known where its person is made by that."""
    args.new = _introduce(args, home)
    return call(args, home, args.verb, parameters(args))


def _introduce(args: argparse.Namespace, home: Home) -> list[str]:
    """What is to be known where a person is made that nobody added; at a terminal the owner is asked first who is meant."""
    from appliance.cli.onboard import ask_yes, name_owner
    from appliance.runtime.settings import LOCAL

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
        f"{args.person} is not {owner}, the owner, but another person. Once several use the box, all see box/, and Owlbox",
        "writes no notes there; what each has it remember stays theirs. For your own browser: owlbox people invite, without a name",
    ]


def _tell_rights(one: dict[str, Any]) -> str:
    return "owner" if one["is_owner"] else str(one["rights"]) if one["is_active"] else "deactivated"


def set_password(args: argparse.Namespace, home: Home) -> int:
    """Set or remove a password."""
    words = "" if args.remove else read_value(f"password of {args.person}: ")
    if not (words or args.remove):
        raise BadInput("no password was given", hint="type one, or owlbox people password NAME --remove")
    found = once(home, "login.set_password", {"person": args.person, "password": words})
    return show(args, found, [f"{'removed' if args.remove else 'set'}; {args.person} is logged out everywhere"])


def _add_password(made: argparse.ArgumentParser) -> None:
    made.add_argument("person", help=PERSON)
    made.add_argument("--remove", action="store_true", help="remove it: only invites are left")


def change_group(args: argparse.Namespace, home: Home) -> int:
    """All groups, or one that is made or changed."""
    return call(args, home, args.verb, parameters(args)) if args.group else call(args, home, GROUPS, {})


def _tell_members(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    return [f"removed group {args.group}" if args.remove else f"{args.group}: {' '.join(found['members']) or 'nobody'}"]


def _tell_groups(args: argparse.Namespace, found: dict[str, list[str]]) -> Any:
    return table([{"group": name, "members": " ".join(of)} for name, of in found.items()], "group members~", {}, "no groups")


GROUPS = Verb("group", "group.list", says=_tell_groups)
# fmt: off
NOUNS = (
    Noun("people", "people, their addresses, groups and logins", (
        Verb("list", "people.list", text="list people", rows="person=name rights groups addresses=identities~",
             cells={"rights": _tell_rights}, empty="nobody was added: owlbox people add NAME"),
        Verb("show", "people.show", says=tell_person),
        Verb("add", "people.add", says=tell_person, helps={"person": PERSON}),
        Verb("remove", "people.remove", text="remove a person; what was said stays",
             says="removed {name}; owlbox session list --user {name} shows what was said"),
        Verb("deactivate", "people.activate", text="stop serving a person; their data stays",
             fixed={"is_active": False},
             says="{name} is deactivated on every channel; owlbox people activate {name} undoes that"),
        Verb("activate", "people.activate", "person", text="serve a person again",
             says="{name} is served again, with the same addresses, keys, logins and tokens"),
        Verb("link", "people.link", "person address=identity", says=tell_person),
        Verb("unlink", "people.link", "address=identity", text="remove a link", says=tell_person),
        Verb("keys", "people.keys", "person?", text="list ssh keys",
             rows="person fingerprint kind comment~", empty="no keys: owlbox people add-key PERSON KEYFILE adds one"),
        Verb("add-key", "people.key", "person keyfile=key", text="add an ssh key for a person", reads={"keyfile": _read_key},
             helps={"keyfile": "the .pub file of their key; - reads it from a pipe"},
             says="{person} comes in with {fingerprint}\nthey type: ssh owl@this-box"),
        Verb("remove-key", "people.key", "key", text="remove an ssh key", reads={"key": _read_key},
             helps={"key": "its fingerprint as keys shows it, or the beginning of it, or the .pub file"},
             says="{person} does not come in with {fingerprint} any more"),
        Verb("invite", "login.invite", "person?",
             text="make a one-time invite to the web page; creates the person if needed",
             handler=make_for, says=_tell_invite, helps={"person": "the person; default: you"}),
        Verb("password", text="set a password for the web page; asks for it, or reads standard input",
             handler=set_password, adds=_add_password),
        Verb("token", "login.token", "name --person",
             text="make a token for a program; it is shown once",
             handler=make_for, says=_tell_token),
        Verb("logins", "login.list", "person?", rows="id person seen_ms address browser=agent~", empty="nobody is logged in",
             text="list logins of the web page and tokens of programs"),
        Verb("logout", "login.end", text="end a login of the web page, or a program's token", says="{person} is logged out there"),
        Verb("group", "group.change", "group? --add+ --leave=remove+ --remove=is_removed", handler=change_group, says=_tell_members,
             text="list groups; with a name, make or change one",
             helps={"group": "its name", "remove": "remove the group; what was said in it stays"}),
        Verb("room", "group.change", "room group", text="assign a room of a channel to a group",
             says="{room} is a room of {group}"),
        Verb("pause-group", "group.change", "group", text="take no messages of a group's rooms; its data stays",
             fixed={"is_active": False}, says="{group} is deactivated"),
        Verb("resume-group", "group.change", "group", text="take messages of a group's rooms again", fixed={"is_active": True},
             says="{group} takes messages"),
    )),
)
