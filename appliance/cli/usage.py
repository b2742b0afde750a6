"""The commands about what models cost: `owlbox usage`, and of `owlbox model` those about providers.

Each function takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from appliance.cli.console import terminal
from appliance.cli.console.terminal import Table, say, say_json, show
from appliance.cli.console.tool_command import once
from appliance.clock import local_time
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]
BY = ("day", "person", "session", "model", "provider")
MICROS = 1_000_000
OWN = "(the box itself)"
LATELY = 500


def add(command: Command) -> None:
    """Add `owlbox usage`."""
    made = command("usage", usage, "what requests to models took and cost")
    made.add_argument("--by", default="day", choices=BY, help="what to add up by")
    made.add_argument("--days", type=int, default=31, metavar="N", help="how many days back, today included (31)")
    made.add_argument("--person", default="", metavar="NAME", help="only this person's")
    made.add_argument("--session", default="", metavar="NAME", help="only this session's")
    made.add_argument("--requests", action="store_true", help="the newest requests one by one")
    made.add_argument("--limit", type=int, default=50, metavar="N", help="how many of those (50)")


def add_remote(command: Command, known: Any) -> None:
    """Add the parts of `owlbox model` that are about providers."""
    command("providers", providers, "how each configured provider is doing, and what is spent", known)
    command("remote", remote, "every model that the configured providers offer; asks them", known)
    made = command("reset", reset, "ask a provider again at once that is left alone after failures", known)
    made.add_argument("provider", nargs="?", default="", help="its name; default: all")


def usage(args: argparse.Namespace, home: Home) -> int:
    """Sums, or requests one by one."""
    if args.requests:
        return _show_requests(args, home)
    found = once(home, "usage.sums", {"by": args.by, "days": args.days, "person": args.person, "session": args.session})
    heads = [args.by, "requests", "prompt", "cached", "output", "cost"]
    rows = [_usage_row(one, one["name"] or OWN) for one in found]
    if len(found) > 1:
        total = {name: sum(one[name] for one in found) for name in found[0] if name != "name"}
        rows.append(_usage_row(total, "together"))
    return show(args, found, Table(rows, heads, empty="no requests"))


def _usage_row(one: dict[str, Any], name: str) -> list[str]:
    return [name, *(str(one[key]) for key in ("requests", "prompt", "cached", "output")), _format_cost(one)]


def _format_cost(one: dict[str, Any]) -> str:
    unknown = f" and {one['unpriced']} of unknown price" if one["unpriced"] else ""
    return f"{dollars(one['cost_micros'])}{unknown}"


def _show_requests(args: argparse.Namespace, home: Home) -> int:
    found = once(home, "usage.requests", {"person": args.person or None, "limit": max(1, min(args.limit, LATELY * 2))})
    rows = []
    for one in found:
        cost = "?" if one["cost_micros"] is None else dollars(one["cost_micros"])
        tokens = f"{'~' if one['is_estimated'] else ''}{one['prompt']}+{one['output']}"
        answered = f"{one['provider']}/{one['model']}"
        rows.append([local_time(one["at_ms"])[:19], one["person"] or OWN, one["purpose"], answered, tokens, cost])
    return show(args, found, Table(rows, ["at", "person", "for", "answered by", "tokens", "cost"], ["person", "answered by"]))


def providers(args: argparse.Namespace, home: Home) -> int:
    """Health, limits and spending."""
    found = once(home, "model.providers", {})
    if args.json:
        return say_json(found)
    if found["is_local_only"]:
        say("models.local_only is true: no provider is ever asked")
        return 0
    if not found["providers"]:
        say("no provider is configured; docs/models.md tells how")
        return 0
    rows = [
        [one["name"], state(one), f"{one['minute']} of {one['per_minute']}", str(one["open"]), str(one["waiting"])]
        for one in found["providers"]
    ]
    terminal.table(rows, ["provider", "state", "last minute", "open", "waiting"], sys.stdout, cut=["state"])
    say(spent(found["spending"]))
    return 0


def remote(args: argparse.Namespace, home: Home) -> int:
    """Models of providers."""
    found = once(home, "model.remote", {})
    if args.json:
        return say_json(found)
    problems = [one for one in found if one.get("problem")]
    rows = [
        [one["name"], str(one["window"] or "?"), _format_price(one["input_usd"]), _format_price(one["output_usd"])]
        for one in found
        if not one.get("problem")
    ]
    if rows:
        terminal.table(rows, ["model", "window", "read, $/M", "written, $/M"], sys.stdout)
    elif not problems:
        say("no provider is configured, or models.local_only is true; docs/models.md tells how")
    for one in problems:
        say(f"{one['provider']}: {one['problem']}", sys.stderr)
    return 0


def reset(args: argparse.Namespace, home: Home) -> int:
    """Forget a provider's failures."""
    done = once(home, "model.reset", {"provider": args.provider})
    return show(args, done, f"{args.provider or 'every provider'} is asked again")


def state(one: dict[str, Any]) -> str:
    """How a provider is doing, in words."""
    if one["state"] == "skipped":
        return f"left alone for {one['retry_s']:.0f} s after {one['failures']} failures: {one['problem']}"
    return f"failed {one['failures']} times: {one['problem']}" if one["state"] == "failing" else "ok"


def spent(found: dict[str, Any]) -> str:
    """What is spent, beside its limits, in words."""
    limits = found.get("limits", {})
    parts = []
    for key, words in (("day_usd", "today"), ("month_usd", "this month")):
        limit = f" of {dollars(round(limits[key] * MICROS))}" if key in limits else ""
        parts.append(f"{dollars(round(found[key] * MICROS))}{limit} {words}")
    limit = f" of {limits['day_tokens']}" if "day_tokens" in limits else ""
    return f"spent {', '.join(parts)}, {found['day_tokens']}{limit} tokens today"


def dollars(micros: int) -> str:
    """An amount for people, as `prices` has it; a test compares the two."""
    value = micros / MICROS
    return f"${value:.2f}" if micros == 0 or value >= 0.1 else f"${value:.4f}"


def _format_price(usd: float | None) -> str:
    return "?" if usd is None else f"{usd:g}"
