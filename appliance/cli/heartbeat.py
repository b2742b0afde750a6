"""The commands about what the assistant does and says unasked: heartbeat and mute."""

import argparse
import re
from datetime import datetime
from typing import Any

from appliance.clock import now_ms
from appliance.console.connect import connected
from appliance.console.parser import Command
from appliance.console.terminal import Table, show
from appliance.console.verbs import table
from appliance.errors import BadInput
from appliance.runtime.paths import Home

UNITS_S = {"m": 60, "min": 60, "h": 3600, "d": 86_400}
LENGTH = re.compile(r"(\d{1,5})\s*(m|min|h|d)")
CELLS = {
    "next_ms": lambda one: _format_moment(one["next_ms"]) if one["next_ms"] else "never",
    "name": lambda one: one["name"].removeprefix("Heartbeat: "),
}


def add(command: Command) -> None:
    """Add the commands."""
    beat = command("heartbeat", heartbeat, "check what HEARTBEAT.md says, if it is due")
    beat.add_argument("--now", action="store_true", help="check everything now")
    beat.add_argument("--list", action="store_true", help="show what is checked when, and errors in the file")
    made = command("mute", mute, "mute notifications for a while")
    made.add_argument("length", nargs="*", help="30m, 2h, 1d or off; default: show until when")


def heartbeat(args: argparse.Namespace, home: Home) -> int:
    with connected(home) as way:
        method, params = ("heartbeat.view", {}) if args.list else ("heartbeat.beat", {"is_now": args.now})
        found = way.call(method, params, lambda name, value: None)  # listened to, because it may take long
    if args.list:
        return show(args, found, _tell_schedules(found))
    told = (f"{beat['section'] or 'heartbeat'}: {beat['outcome']}\n{beat['text']}".rstrip() for beat in found["beats"])
    show(args, found, "\n".join(told) or "nothing to check")
    return 1 if any(beat["outcome"] == "failed" for beat in found.get("beats", ())) else 0


def _tell_schedules(found: dict[str, Any]) -> Table:
    """What is checked when, and what is wrong with the file."""
    empty = "nothing to check: write it into HEARTBEAT.md" if found["enabled"] else ""
    rows = table(found["schedules"], "id next=next_ms check=name~ when=frequency", CELLS, empty)
    lead = [] if found["enabled"] else ["the heartbeat is off (heartbeat.enabled)"]
    return rows._replace(lead=lead, foot=[f"problem: {one}" for one in found["problems"]])


def mute(args: argparse.Namespace, home: Home) -> int:
    words = " ".join(args.length).strip().lower()
    params: dict[str, int] | None = None
    if words == "off":
        params = {"until_ms": 0}
    elif words:
        found = LENGTH.fullmatch(words)
        if not found:
            raise BadInput(f"mute for {words!r}", hint="use 30m, 2h, 1d, or off")
        params = {"until_ms": now_ms() + int(found[1]) * UNITS_S[found[2]] * 1000}
    with connected(home) as way:
        until_ms = way.call("heartbeat.view")["muted_until_ms"] if params is None else way.call("notify.mute", params)["until_ms"]
    return show(
        args,
        {"until_ms": until_ms},
        f"notifications are muted until {_format_moment(until_ms)}; owlbox mute off ends it"
        if until_ms
        else "notifications are not muted",
    )


def _format_moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).strftime("%a %d %b %H:%M")
