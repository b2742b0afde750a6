"""The commands about ways to people elsewhere: `owlbox channel`.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`. Which channels are on stands in
owlbox.toml; a running core takes a change up at once.
"""

import argparse
import os
from collections.abc import Callable
from datetime import datetime
from typing import Any

from appliance.cli.console.connect import connected, require_owner
from appliance.cli.console.terminal import Table, show
from appliance.cli.console.tool_command import once
from appliance.errors import BadInput, NotFound
from appliance.runtime import config, config_edit
from appliance.runtime.paths import Home

NAME = "the name of a channel: email, matrix, slack, slack-WORKSPACE, or a file in appliance/channels/connectors"
Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the group."""
    root = command("channel", choose, "ways to people elsewhere: mail, Matrix, Slack and others")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    command("list", channels, "every channel: whether it is on and connected, and why not", known)
    command("enable", enabled, "switch a channel on; a running core connects it at once", known).add_argument("name", help=NAME)
    command("disable", disabled, "switch a channel off; what waits to be sent stays", known).add_argument("name", help=NAME)
    command("test", tested, "try what a channel needs, on or off", known).add_argument("name", help=NAME)
    command("rooms", rooms, "rooms in which the assistant was addressed, and the group that each is", known)
    made = command("devices", devices, "devices that write in encrypted rooms, with their fingerprints", known)
    made.add_argument("address", nargs="?", default="", help="only of this one, such as matrix/@ann:example.org")
    made = command("verify", verified, "trust a device whose fingerprint you have compared, or a user's master key", known)
    made.add_argument("fingerprint", help="as the device itself shows it, in quotes")
    made.add_argument("--undo", action="store_true", help="trust it no longer")


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("say what to do", hint="owlbox channel --help lists the actions")


def channels(args: argparse.Namespace, home: Home) -> int:
    """A table of all channels."""
    with connected(home) as way:
        found = way.call("channel.list", {})
        is_served = way.is_remote
    rows = [_list_cells(one, is_served=is_served) for one in found]
    table = Table(rows, ["channel", "state", "since", "taken", "refused", "sent", "failed", "about"], ["about"])
    return show(args, found, table)


def _list_cells(one: dict[str, Any], *, is_served: bool) -> list[str]:
    state = one["state"] if is_served or one["state"] == "off" else "on, no core runs"
    since = datetime.fromtimestamp(one["since_ms"] / 1000).strftime("%m-%d %H:%M") if one["since_ms"] else ""
    about = "; ".join((*([one["problem"]] if one["problem"] else []), *one["warnings"]))
    counts = [str(one[name] or "") for name in ("taken", "refused", "sent", "failed")]
    return [one["name"], state, since, *counts, about]


def enabled(args: argparse.Namespace, home: Home) -> int:
    """Switch a channel on."""
    return _switch(args, home, is_on=True)


def disabled(args: argparse.Namespace, home: Home) -> int:
    """Switch a channel off."""
    return _switch(args, home, is_on=False)


def _switch(args: argparse.Namespace, home: Home, *, is_on: bool) -> int:
    require_owner(home)
    tables = {one["name"]: one["key"] for one in once(home, "channel.list", {})}
    known = config.described(f"channels.{args.name}").choices
    if args.name not in (*tables, *known):
        raise NotFound(f"no channel {args.name}", hint=f"there are {', '.join(tables)}")
    key = tables.get(args.name) or f"channels.{args.name}"
    is_changed = config_edit.set_value(home, os.environ, (*key.split("."), "enabled"), is_on)
    with connected(home) as way:
        if is_changed and way.is_remote:
            way.call("core.reload", {})
        found = next((one for one in way.call("channel.list", {}) if one["name"] == args.name), None)
        is_served = way.is_remote
    lines = [f"channel {args.name} is {'on' if is_on else 'off'}{'' if is_changed else ' already'}"]
    if is_on and not is_served:
        lines.append("it is connected when a core runs: owlbox serve")
    elif is_on and found is not None:
        lines.append(found["problem"] or f"{found['state']}: owlbox channel list shows it")
    return show(args, {"channel": args.name, "is_changed": is_changed, "state": found}, lines)


def tested(args: argparse.Namespace, home: Home) -> int:
    """Try a channel."""
    found = once(home, "channel.test", {"name": args.name})
    lines = [*found["tried"], *(f"warning: {one}" for one in found["warnings"])]
    return show(args, found, lines or [f"channel {args.name} has nothing to try"])


def rooms(args: argparse.Namespace, home: Home) -> int:
    """A table of all rooms."""
    found = once(home, "group.rooms", {})
    rows = [
        [f"{one['channel']}/{one['room']}", one["label"], one["group"], "" if one["is_active"] else "deactivated"] for one in found
    ]
    heads = ["room", "name", "group", ""]
    return show(args, found, Table(rows, heads, ["name", "room"], empty="nobody has addressed the assistant in a room yet"))


def devices(args: argparse.Namespace, home: Home) -> int:
    """A table of devices, after the master key of each user."""
    found = once(home, "channel.devices", {"address": args.address})
    rows = [[one["address"], one["device"] or "(all of them)", one["fingerprint"], _say_trust(one), one["name"]] for one in found]
    heads = ["address", "device", "fingerprint", "", "name"]
    return show(args, found, Table(rows, heads, ["name", "address"], empty="nobody has written in an encrypted room yet"))


def _say_trust(one: dict[str, Any]) -> str:
    return "logged out" if one["is_gone"] else "verified" if one["is_verified"] else ""


def verified(args: argparse.Namespace, home: Home) -> int:
    """Trust a device or a master key."""
    found = once(home, "channel.verify", {"fingerprint": args.fingerprint, "is_verified": not args.undo})
    what = f"device {found['device']}" if found["device"] else "every device that the master key vouches for"
    return show(args, found, [f"{what} of {found['address']} is {'verified' if found['is_verified'] else 'not verified'}"])
