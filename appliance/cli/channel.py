"""The commands about ways to people elsewhere: `owlbox channel`, made from the definitions of their methods.

Which channels are on stands in owlbox.toml, which `enable` and `disable` change here; a running core takes a change up at once.
"""

import argparse
import os
from datetime import datetime
from typing import Any

from appliance.console.connect import connected, require_owner
from appliance.console.terminal import Table, show
from appliance.console.tool_command import once
from appliance.console.verbs import Noun, Verb, takes
from appliance.errors import NotFound
from appliance.runtime import config, config_edit
from appliance.runtime.paths import Home

NAME = "the name of a channel: email, matrix, slack, slack-WORKSPACE, or a file in appliance/channels/connectors"


def list_channels(args: argparse.Namespace, home: Home) -> int:
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


def switch(args: argparse.Namespace, home: Home) -> int:
    """Switch a channel on or off."""
    is_on: bool = args.chosen == "enable"
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


def _tell_tried(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    tried = [*found["tried"], *(f"warning: {one}" for one in found["warnings"])]
    return tried or [f"channel {args.name} has nothing to try"]


def _tell_subscribed(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    made = [f"subscribe to this topic in the app: {found['endpoint']}"] if found["endpoint"] else []
    return [f"{found['name']} shows notifications for {found['person']} ({found['id']})", *made]


def _say_trust(one: dict[str, Any]) -> str:
    return "logged out" if one["is_gone"] else "verified" if one["is_verified"] else ""


def _tell_verified(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    what = f"device {found['device']}" if found["device"] else "every device that the master key vouches for"
    return [f"{what} of {found['address']} is {'verified' if found['is_verified'] else 'not verified'}"]


# fmt: off
NOUNS = (
    Noun("channel", "channels: mail, Matrix, Slack and others", (
        Verb("list", text="list channels with their state", handler=list_channels),
        Verb("enable", text="switch a channel on; a running core connects it at once", handler=switch,
             adds=takes("name", help=NAME)),
        Verb("disable", text="switch a channel off; unsent messages stay", handler=switch, adds=takes("name", help=NAME)),
        Verb("test", "channel.test", text="test the connection of a channel", says=_tell_tried, helps={"name": NAME}),
        Verb("subscribe", "push.subscribe", "way endpoint? --key --auth --name --shows --person", alone="owlbox serve",
             says=_tell_subscribed, text="show notifications on a device, an app or a topic"),
        Verb("subscriptions", "push.list", "--person --everybody", text="list devices, apps and topics with notifications",
             rows="id way person name~ shows place~ since_ms", empty="nothing is subscribed: owlbox channel subscribe --help"),
        Verb("unsubscribe", "push.unsubscribe", "id --person", says="{name} shows no notifications any more",
             text="show no more notifications there"),
        Verb("rooms", "group.rooms", text="list rooms and their groups",
             rows="room~ name=label~ group state=is_active", empty="nobody has addressed the assistant in a room yet",
             cells={"room": lambda one: f"{one['channel']}/{one['room']}",
                    "is_active": lambda one: "" if one["is_active"] else "deactivated"}),
        Verb("devices", "channel.devices", "address?", text="list devices in encrypted rooms, with fingerprints",
             rows="address~ device fingerprint trust=is_verified name~", empty="nobody has written in an encrypted room yet",
             cells={"device": lambda one: one["device"] or "(all of them)", "is_verified": _say_trust}),
        Verb("verify", "channel.verify", "fingerprint --undo=is_verified", says=_tell_verified,
             text="trust a device, or a user's master key, after comparing fingerprints",
             helps={"fingerprint": "as the device itself shows it, in quotes", "undo": "stop trusting it"}),
    )),
)
