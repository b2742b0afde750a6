"""What the command of a tool prints: its message, or its outcome as data."""

import argparse

from appliance.cli.console.terminal import show
from appliance.cli.console.tool_command import as_commands, once
from appliance.errors import BadInput, from_outcome
from appliance.runtime.paths import Home


def tool(args: argparse.Namespace, home: Home) -> int:
    arguments = {}
    for name in args.fields:
        value = getattr(args, name)
        arguments[name] = " ".join(value) if isinstance(value, list) else value
    outcome = once(home, "tool.call", {"name": args.tool, "arguments": arguments})
    if outcome["status"] >= 400:
        hint = as_commands(outcome["hint"])
        if outcome["status"] == 400:
            raise BadInput(outcome["message"], hint=hint)
        raise from_outcome(outcome["outcome"], outcome["message"], hint)
    return show(args, outcome, outcome["message"])
