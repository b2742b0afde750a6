"""The commands about secrets: `owlbox secret set`, `list`, `show`, `rm`, `expire`, `purge`, `rotate`, `unlock`.

A value is read from a pipe or from a prompt that does not show it, never from the command line, where other users and the
shell's history would see it. It leaves this process sealed for the broker.
"""

import argparse
import datetime
import getpass
import re
import sys
from typing import Any

from appliance.clock import local_time, now_ms
from appliance.console.connect import Reach, connected
from appliance.console.terminal import Table, show
from appliance.console.tool_command import once
from appliance.console.verbs import Noun, Verb, lines, table, takes
from appliance.errors import BadInput, NotFound, Refused
from appliance.runtime.paths import Home

NAME = "its name, as `secret list` shows it"
MAX_BYTES = 65_536
HIDDEN = "[hidden]"
SHOWN = "name value set=created_ms ends=expires_ms last_used=used_ms uses"
SPAN = re.compile(r"(\d{1,5})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}
HOUR_MS = 3_600_000
UNTIL = "90d, 12h or 2w from now, a date such as 2027-01-31, or never"


def _tell_secrets(args: argparse.Namespace, found: dict[str, Any]) -> Table:
    """Secrets as a table, without values."""
    lead = ["the vault is locked: owlbox secret unlock"] if found["is_locked"] else []
    columns = "name value set=created_ms ends=expires_ms last_used=used_ms uses"
    rows = table(found["secrets"], columns, {"expires_ms": _describe_end}, "")
    return rows._replace(lead=lead, empty="no secrets; owlbox secret set llm/openai keeps one")


def store_secret(args: argparse.Namespace, home: Home) -> int:
    """Keep a secret."""
    if args.value:
        raise BadInput(
            "a value is never given as an argument: other users and the shell's history see it",
            hint=f"owlbox secret set {args.name}, then type it, or pipe it in; if it was a real one, have a new one issued",
        )
    params = {"name": args.name, **_parse_end(args.expires)}
    with connected(home) as way:
        done = send_sealed(way, "secret.set", params, read_value(f"value of {args.name}: "), f"set {args.name}")
    return show(args, done, [f"{args.name} is kept" if done["is_changed"] else f"{args.name} is kept already"])


def show_secret(args: argparse.Namespace, home: Home) -> int:
    """One secret; with --yes also its value."""
    with connected(home) as way:
        secrets = way.call("secret.list")["secrets"]
        secret: dict[str, Any] | None = next((s for s in secrets if s["name"] == args.name), None)
        if secret is None:
            raise NotFound(f"no secret {args.name}", hint="owlbox secret list")
        secret = {**secret, "value": _reveal_secret(way, args.name) if args.yes else HIDDEN}
    return show(
        args,
        secret,
        lines(secret, SHOWN, {"expires_ms": _describe_end, "used_ms": lambda one: _format_date(one["used_ms"]) or "never"}),
    )


def rotate(args: argparse.Namespace, home: Home) -> int:
    """A new key for the vault."""
    with connected(home) as way:
        kind = args.to or way.call("secret.list")["key"]
        if kind == "passphrase":
            done = send_sealed(way, "secret.rotate", {"to": kind}, _new_passphrase(), "rotate")
        else:
            done = way.call("secret.rotate", {"to": kind})
    return show(args, done, f"{_count_secrets(done['count'])} under a new key ({done['key']})")


def unlock(args: argparse.Namespace, home: Home) -> int:
    """Give the passphrase to the running broker."""
    with connected(home) as way:
        if not way.is_remote:
            raise NotFound("no core is running", hint="the broker forgets a passphrase when it ends: owlbox serve first")
        done = send_sealed(way, "secret.unlock", {}, read_value("passphrase: "), "unlock")
    return show(args, done, f"unlocked: {_count_secrets(done['count'])}")


def send_sealed(way: Reach, method: str, params: dict[str, Any], text: str, about: str) -> dict[str, Any]:
    """Call a method with a text that only the broker can read."""
    from appliance.secrets.encryption import post

    done: dict[str, Any] = way.call(method, {**params, "sealed": post(way.call("secret.address"), text, about)})
    return done


def _reveal_secret(way: Reach, name: str) -> str:
    from appliance.secrets.encryption import Letterbox

    letterbox = Letterbox()
    return letterbox.open(way.call("secret.reveal", {"name": name, "address": letterbox.address}), f"reveal {name}")


def read_value(prompt: str) -> str:
    """A value from a pipe, without its line end, or typed unseen."""
    if sys.stdin.isatty():
        return getpass.getpass(prompt, stream=sys.stderr)
    data = sys.stdin.buffer.read(MAX_BYTES + 2)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput("the value is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")


def _new_passphrase() -> str:
    first = read_value("new passphrase: ")
    if sys.stdin.isatty() and getpass.getpass("again: ", stream=sys.stderr) != first:
        raise Refused("the two differ; the key is the old one", hint="owlbox secret rotate")
    return first


def expire_secret(args: argparse.Namespace, home: Home) -> int:
    """Let one end."""
    done = once(home, "secret.set", {"name": args.name, **_parse_end(args.when, is_past_fine=True)})
    end = done["expires_ms"]
    return show(args, done, [f"{args.name} {'never ends' if end is None else f'ends {_format_date(end)}'}"])


def _parse_end(text: str, *, is_past_fine: bool = False) -> dict[str, int]:
    """The parameter of the vault's methods that says when a secret ends; none for never."""
    if text == "never":
        return {}
    from appliance.store.wall_clock import CLOCKLESS_MS

    if span := SPAN.fullmatch(text):
        if now_ms() < CLOCKLESS_MS:
            hint = "give a date, such as 2030-01-31; or set the clock first: timedatectl"
            raise BadInput(f"the clock of this machine is not set, so {text} cannot be counted", hint=hint)
        return {"lasts_ms": int(span[1]) * HOURS[span[2]] * HOUR_MS}
    try:
        return {"expires_ms": int(datetime.datetime.fromisoformat(text).timestamp() * 1000)}
    except (ValueError, OverflowError):
        if is_past_fine and text == "now":
            return {"expires_ms": now_ms()}
        raise BadInput(f"{text[:40]!r} is not a time", hint=UNTIL) from None


def _count_secrets(count: int) -> str:
    return "1 secret" if count == 1 else f"{count} secrets"


def _format_date(at_ms: int) -> str:
    return local_time(at_ms)[:16] if at_ms else ""


def _describe_end(secret: dict[str, Any]) -> str:
    if secret["expires_ms"] is None:
        return "never"
    days = (secret["expires_ms"] - now_ms()) // (24 * HOUR_MS)
    note = " (expired)" if secret["is_expired"] else f" (in {days} days)" if secret["is_expiring"] else ""
    return f"{_format_date(secret['expires_ms'])}{note}"


def _tell_purged(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    return [f"removed {', '.join(done['removed'])}" if done["removed"] else "nothing has expired"]


def _add_value(made: argparse.ArgumentParser) -> None:
    made.add_argument("name", help="llm/PROVIDER for a provider's key, else channel/NAME, search/NAME, mcp/NAME or skill/NAME")
    made.add_argument("value", nargs="*", help=argparse.SUPPRESS)
    made.add_argument("--expires", default="never", metavar="WHEN", help=UNTIL)


def _add_end(made: argparse.ArgumentParser) -> None:
    made.add_argument("name", help=NAME)
    made.add_argument("when", help=UNTIL)


def _add_shown(made: argparse.ArgumentParser) -> None:
    made.add_argument("name", help=NAME)
    made.add_argument("--yes", action="store_true", help="print its value; not of llm/, which never leave the broker")


# fmt: off
NOUNS = (
    Noun("secret", "encrypted keys and passwords", (
        Verb("list", "secret.list", text="list names, never values", says=_tell_secrets),
        Verb("set", text="store a secret; the value comes from a prompt or a pipe",
             handler=store_secret, adds=_add_value),
        Verb("show", text="show one, without its value", handler=show_secret, adds=_add_shown),
        Verb("rm", "secret.remove", "name", text="delete a secret", says="{name} is gone", helps={"name": NAME}),
        Verb("expire", text="set when a secret expires", handler=expire_secret, adds=_add_end),
        Verb("purge", "secret.remove", "-", text="delete expired secrets", says=_tell_purged),
        Verb("rotate", text="encrypt all secrets with a new key", handler=rotate,
             adds=takes("--to", default="", choices=["file", "passphrase", "credential"], help="kind of the new key")),
        Verb("unlock", text="enter the passphrase of the vault", handler=unlock),
    )),
)
