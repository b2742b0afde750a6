"""`owlbox call`: any method of the core's socket, with its arguments as words and what it says as JSON.

For what has no command of its own, and for scripts. Arguments are `key=value`, converted by the type that the method declares;
a single `-` reads an object from standard input. What a method sends before its result is printed as it comes, one JSON object a
line, so that `jq` reads all of it. Knows no method by itself: the core describes them.
"""

import argparse
import json
import sys
from typing import Any

from appliance.console.connect import connected
from appliance.console.parser import Command, did_you_mean
from appliance.console.terminal import Table, say, say_json, show
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

MAX_INPUT_CHARS = 4_000_000


def add(command: Command) -> None:
    """Add the command."""
    made = command("call", call, "call a method of the socket: owlbox call METHOD key=value; default: list them")
    made.add_argument("method", nargs="?", default="", help="as `owlbox call` lists it, such as thread.list")
    made.add_argument(
        "arguments", nargs="*", metavar="KEY=VALUE", help="text as it is, all else as JSON; - reads an object from a pipe"
    )
    made.add_argument("--describe", action="store_true", help="only describe it")
    made.add_argument("--quiet", action="store_true", help="only the result")


def call(args: argparse.Namespace, home: Home) -> int:
    """Call it, describe it, or list all of them."""
    with connected(home) as way:
        methods: dict[str, dict[str, Any]] = way.call("discover")["methods"]
        if not args.method:
            rows = [[name, one["access"], one["doc"].split("\n")[0]] for name, one in methods.items()]
            return show(args, methods, Table(rows, ["method", "who", "what it does"], ["what it does"]))
        if args.method not in methods:
            raise NotFound(f"unknown method {args.method}", hint=f"{did_you_mean(args.method, methods)}owlbox call lists them")
        found = methods[args.method]
        if args.describe:
            return _describe(args, found)
        params = read_params(args.arguments, found["params"])

        def tell(name: str, value: dict[str, Any]) -> None:
            if not args.quiet:
                say_json({"method": name, "params": value})

        result = way.call(args.method, params, tell)
    if args.json or not sys.stdout.isatty():
        return say_json(result)
    say(json.dumps(result, ensure_ascii=False, indent=2))
    return 0


def read_params(words: list[str], schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments from words; BadInput for one that the method has not, or that is not of its type."""
    if words == ["-"]:
        read: dict[str, Any] = _parse(sys.stdin.read(MAX_INPUT_CHARS), "standard input", dict)
        return read
    known: dict[str, Any] = schema.get("properties", {})
    params = {}
    for word in words:
        name, is_pair, text = word.partition("=")
        if not is_pair:
            raise BadInput(f"argument {word!r}", hint="write it as key=value")
        if name not in known:
            names = ", ".join(known) or "no arguments"
            raise BadInput(f"unknown argument {name}", hint=f"{did_you_mean(name, known)}it takes {names}")
        params[name] = text if _is_text(known[name]) else _parse(text, name, object)
    return params


def _is_text(schema: dict[str, Any]) -> bool:
    """Whether an argument is text: its value is taken as it is."""
    options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    return any(one.get("type") == "string" or isinstance((one.get("enum") or [None])[0], str) for one in options)


def _parse(text: str, what: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{what}: {text[:60]!r} is not JSON: {error}", hint='such as 5, true, ["a"] or {"a": 1}') from None
    if not isinstance(value, kind):
        raise BadInput(f"{what}: {text[:60]!r} is not an object", hint='such as {"limit": 5}')
    return value


def _describe(args: argparse.Namespace, found: dict[str, Any]) -> int:
    """What a method does, its arguments, and who may call it."""
    needed = found["params"].get("required", [])
    rows = []
    for name, one in found["params"].get("properties", {}).items():
        kind = one.get("type") or " or ".join(sorted({str(o.get("type", o.get("enum", "any"))) for o in one.get("anyOf", [one])}))
        default = "needed" if name in needed else json.dumps(one.get("default"), ensure_ascii=False)
        rows.append([name, kind, default, one.get("description", "")])
    if args.json:
        return say_json(found)
    say(f"{found['doc']}\n")
    return show(args, found, Table(rows, ["argument", "type", "default", "meaning"], ["meaning"], empty="It takes no arguments."))
