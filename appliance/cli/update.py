"""`owlbox update`: check, apply, rollback, status; and recover, which the machine runs before anything else at its start."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.clock import local_time, use_zone
from appliance.console import terminal
from appliance.console.terminal import say, say_json, show
from appliance.errors import BadInput, Refused
from appliance.runtime import paths
from appliance.runtime.paths import Home

if TYPE_CHECKING:
    from appliance.upkeep.updates.host import UpdateHost
    from appliance.upkeep.updates.journal import UpdateResult

Command = Callable[..., argparse.ArgumentParser]
PUBLIC = "update.pub"
CHECK_S = 5.0  # that asking the source may take


def add(command: Command) -> None:
    """Add the command with its actions."""
    root = command("update", status, "install another version from a signed bundle, or go back")
    known = root.add_subparsers(metavar="ACTION")
    made = command("check", check, "is there a newer version at the source or on a plugged-in disk?", known)
    made.add_argument("--quiet", action="store_true", help="for the timer: only if updates.enabled, once a day, without output")
    made = command("apply", apply, "install a version; it is rolled back if it does not work", known)
    made.add_argument("place", nargs="?", default="", help="a file, a folder or an address; default: updates.source")
    command("rollback", rollback, "go back to the version before the last update", known)
    command("status", status, "the running version, the one to go back to, and past updates", known)
    command("recover", recover, "finish or revert an interrupted update", known)


def check(args: argparse.Namespace, home: Home) -> int:
    from appliance import __version__
    from appliance.clock import now_ms
    from appliance.service.maintenance import settings_of
    from appliance.upkeep.updates import source

    keys = settings_of(home.require(), os.environ).updates
    if args.quiet and not (keys.enabled and source.is_due(home, now_ms())):
        return 0
    found = source.check(home, keys.source, _key(home), __version__, CHECK_S)
    if args.quiet:
        return 0
    text = found.problem or (f"version {found.version} is at {found.place}: owlbox update apply" if found.version else "")
    show(args, {"version": found.version, "place": found.place, "problem": found.problem}, text or f"{__version__} is the newest")
    return 1 if found.problem else 0


def apply(args: argparse.Namespace, home: Home) -> int:
    from appliance import __version__
    from appliance.service.maintenance import settings_of
    from appliance.upkeep.updates import source
    from appliance.upkeep.updates.host import find_host
    from appliance.upkeep.updates.updater import Updater

    keys = settings_of(home.require(), os.environ).updates
    folder, key, place = Path(keys.folder), _key(home), args.place or keys.source
    host = find_host(home, os.environ, folder)
    if place.startswith(("https://", "http://")):
        with terminal.Progress() as progress:
            path = source.fetch(place, key, folder, progress.show, CHECK_S)
    else:
        path = Path(place).expanduser().absolute() if place else source.find_plugged(key)
    return _tell(args, Updater(folder, home, host, progress=_say_step(args)).apply(path, key, __version__))


def rollback(args: argparse.Namespace, home: Home) -> int:
    from appliance.upkeep.updates.updater import Updater

    folder, host = _installation(home)
    return _tell(args, Updater(folder, home, host, progress=_say_step(args)).roll_back(), is_asked=True)


def recover(args: argparse.Namespace, home: Home) -> int:
    from appliance.upkeep.updates.updater import Updater

    folder, host = _installation(home, is_boot=bool(os.environ.get("OWLBOX_BOOT")))
    said = Updater(folder, home, host, progress=_say_step(args)).recover()
    return show(args, {"said": said}, said or "no update was cut off")


def status(args: argparse.Namespace, home: Home) -> int:
    from appliance import __version__
    from appliance.service.maintenance import settings_of
    from appliance.upkeep.updates.journal import JournalFile
    from appliance.upkeep.updates.last_check import read_check

    settings = settings_of(home.require(), os.environ)
    use_zone(settings.system.timezone)
    keys = settings.updates
    journal, last = JournalFile(Path(keys.folder)).read(), read_check(home)
    told = {
        "version": __version__,
        "enabled": keys.enabled,
        "step": str(journal.step),
        "previous": journal.previous,
        "available": last.version if last and last.version != __version__ else "",
        "results": [{"version": r.version, "said": r.said, "applied": r.is_applied, "at_ms": r.at_ms} for r in journal.results],
    }
    if args.json:
        return say_json(told)
    say(f"version      {__version__}")
    say(f"checks       {'once a day' if keys.enabled else 'off (updates.enabled)'}")
    if told["available"]:
        say(f"available    {told['available']}: owlbox update apply")
    if told["step"] != "idle":
        say(f"under way    {journal.new}: {told['step']}")
    say(f"before       {journal.previous or 'nothing to go back to'}")
    for one in journal.results:
        say(f"{local_time(one.at_ms)[:16]}  {one.version:<8} {one.said}")
    return 0


def _installation(home: Home, *, is_boot: bool = False) -> "tuple[Path, UpdateHost]":
    from appliance.service.maintenance import settings_of
    from appliance.upkeep.updates.host import find_host

    folder = Path(settings_of(home.require(), os.environ).updates.folder)
    return folder, find_host(home, os.environ, folder, is_boot=is_boot)


def _key(home: Home) -> bytes:
    """The public key that bundles must be signed with."""
    from appliance.service.maintenance import settings_of
    from appliance.upkeep.updates import bundle

    keys = settings_of(home, os.environ).updates
    installed = Path(keys.folder) / PUBLIC
    if keys.key:
        return bundle.read_key(keys.key)
    try:
        with paths.naming(installed):
            return bundle.read_key(installed.read_text("ascii"))
    except FileNotFoundError:
        hint = "a checkout is upgraded with git pull: docs/guides/upgrade.md"
        raise Refused(f"no key for updates in updates.key or {installed}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{installed} cannot be read: {error}", hint="docs/guides/upgrade.md") from None


def _say_step(args: argparse.Namespace) -> Callable[[str], None]:
    return (lambda text: None) if args.json else (lambda text: say(f"{text} ..."))


def _tell(args: argparse.Namespace, result: "UpdateResult", *, is_asked: bool = False) -> int:
    show(args, {"version": result.version, "said": result.said, "applied": result.is_applied}, result.said)
    return 0 if result.is_applied or is_asked else 1
