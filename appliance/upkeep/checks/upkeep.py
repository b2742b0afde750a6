"""The doctor's look at what keeps an installation alive: the disk, saved prompts, channels, backups, updates."""

import json
import os
import shutil
import socket
import struct
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from appliance import __version__
from appliance.clock import now_ms
from appliance.errors import OwlError, Unavailable
from appliance.http.site import page_address
from appliance.runtime.paths import Home
from appliance.runtime.settings import DAY_MS, Backups, Config, WebSettings
from appliance.store import disk_faults
from appliance.upkeep import backup_target, backups, sealed_backups
from appliance.upkeep.checks.finding import Finding
from appliance.upkeep.updates.journal import JournalFile, Step
from appliance.upkeep.updates.last_check import order, read_check

MB = 1_000_000
WARN_DAYS = 7  # a newest backup that is older is warned about
PAGE_S, PAGE_BYTES = 2.0, 20_000
STATE_MAGIC, HEADER_BYTES = b"OWLSTATE1\n", 4096  # of `providers.prefix_cache`


def check_disk(home: Home, settings: Config) -> Finding:
    """Report how full the disk of the home is, and whether it can be written."""
    usage, keys = shutil.disk_usage(home.root), settings.orchestrator
    part, free = usage.used / usage.total, usage.free // MB
    text = f"{part:.0%} used, {free} MB free"
    root = next(one for one in (home.root, *home.root.parents) if one.is_mount())
    hint = f"largest first: du -xh --max-depth=2 {root} | sort -rh | head; owlbox backup list, owlbox model list"
    if fault := disk_faults.write_fault(home.root):
        return Finding("disk", "problem", fault.message, hint if disk_faults.is_full(home.root) else fault.hint)
    if part >= keys.disk_refuse:
        return Finding("disk", "problem", f"{text}: no new conversations and no tools until there is room", hint)
    return Finding("disk", "warning" if part >= keys.disk_warn else "ok", text, hint if part >= keys.disk_warn else "")


def check_prefix(home: Home, settings: Config, *, is_repairing: bool) -> Finding:
    """Saved beginnings of prompts: damaged ones cost a start the time that they were to save."""
    files = sorted((home.models / "prefix").glob("*.state"))
    if unreadable := [path for path in files if not os.access(path, os.R_OK)]:
        return Finding("prefix", "ok", f"{len(unreadable)} belong to the broker")
    damaged = [path for path in files if not _is_whole(_read_start(path), path.stat().st_size)]
    if damaged and is_repairing:
        for path in damaged:
            path.unlink(missing_ok=True)
        return Finding("prefix", "ok", f"{len(damaged)} damaged ones were removed; they are made again")
    total = sum(path.stat().st_size for path in files)
    said = f"{len(files)} saved beginnings of prompts, {total // MB} MB"
    if damaged:
        return Finding("prefix", "warning", f"{said}; {len(damaged)} are damaged", "owlbox doctor --repair removes them")
    return Finding("prefix", "ok", said)


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)


def _is_whole(start: bytes, size: int) -> bool:
    """Whether a state's header is one and the file as long as it says."""
    try:
        (length,) = struct.unpack_from("<I", start, len(STATE_MAGIC))
        begin = len(STATE_MAGIC) + 4 + length
        facts = json.loads(start[len(STATE_MAGIC) + 4 : begin])
        expected = begin + int(facts["tokens"]) * 4 + int(facts["payload"])
    except (struct.error, ValueError, KeyError, TypeError):
        return False
    return start.startswith(STATE_MAGIC) and size == expected


def check_channels(settings: Config, status: dict[str, Any], failed: int) -> Finding:
    """Whether the channels that are switched on are open, as a running core says, and everything was delivered."""
    states = status.get("channels", {})
    own = settings.channels
    is_asked = bool(status and own.web.enabled and own.web.port)  # the page itself: what the core knows of it may be over
    broken = [f"{name}: {state}" for name, state in states.items() if isinstance(state, str) and not (is_asked and name == "web")]
    if is_asked and (fault := find_page_fault(own.web)):
        said = states.get("web")  # why it ended, where the core began it
        hint = "logs/web/output.log of the home says why; where systemd runs it: systemctl status owlbox-web"
        if "another program" in fault:
            hint = "owlbox config set channels.web.port NUMBER, then restart the core"
        return Finding("channels", "problem", f"web page: {said if isinstance(said, str) else fault}", hint)
    enabled = [name for name, table in own.connectors.items() if table.enabled]
    enabled += [name for name in ("email", "matrix", "slack") if getattr(own, name).enabled]
    if broken:
        return Finding(
            "channels",
            "problem",
            "; ".join(broken),
            "it is tried again; if its table in owlbox.toml is wrong, fix it, then restart the core",
        )
    if status and (closed := [name for name in enabled if states.get(name) is False]):
        return Finding("channels", "warning", f"not open: {', '.join(closed)}", "restart the core; its log says why")
    if failed:
        hint = "owlbox call outbox.list status=failed shows their texts, owlbox logs why"
        return Finding("channels", "warning", f"{failed} notifications could not be delivered", hint)
    return Finding("channels", "ok", f"open: {', '.join(name for name, on in states.items() if on) or 'only this machine'}")


def find_page_fault(keys: WebSettings) -> str:
    """Why nobody is served the web page, "" while somebody is: asks for it; behind TLS only whether somebody is there."""
    where = page_address(keys)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(keys.host, keys.host)
    asked, said = f"GET / HTTP/1.1\r\nHost: {urlsplit(where).netloc}\r\nConnection: close\r\n\r\n", b""
    try:
        with socket.create_connection((host, keys.port), timeout=PAGE_S) as sock:
            if keys.certificate:
                return ""
            sock.sendall(asked.encode())
            while len(said) < PAGE_BYTES and (piece := sock.recv(PAGE_BYTES)):
                said += piece
    except OSError as error:
        return f"nobody answers at {where}: {error.strerror or error}"
    return "" if b"owlbox" in said.lower() else f"another program answers at {where}"


def check_updates(home: Home, settings: Config) -> Finding:
    """Whether an update was cut off or taken back, and whether a newer version is known."""
    journal, last = JournalFile(Path(settings.updates.folder)).read(), read_check(home)
    if journal.step != Step.IDLE:
        hint = "sudo owlbox update recover"
        return Finding("updates", "problem", f"version {journal.new}: cut off while {journal.step}", hint)
    if last and last.version and order(last.version) > order(__version__):
        return Finding("updates", "warning", f"version {last.version} is at {last.place}", "sudo owlbox update apply")
    if settings.updates.enabled and last and last.problem:
        return Finding("updates", "warning", f"the last check failed: {last.problem}", "owlbox update check")
    if journal.results and not journal.results[0].is_applied and journal.results[0].said.startswith("taken back:"):
        newest = journal.results[0]
        return Finding("updates", "warning", f"version {newest.version} was {newest.said}", "owlbox update status")
    said = "checked once a day" if settings.updates.enabled else "not checked (updates.enabled)"
    return Finding("updates", "ok", f"version {__version__}, newer ones are {said}")


def check_backups(home: Home, settings: Config, rows: int) -> Finding:
    """Whether backups arrive where they are to go, and how old the newest is, if there is anything to lose."""
    keys, now = settings.backups, now_ms()
    known = backups.listing(home.backups)
    if fault := _target_fault(home, keys):
        return Finding("backups", "problem", fault.message, fault.hint)
    ahead = [one for one in known if one.made_ms > now + DAY_MS]
    if ahead:
        said = f"{len(ahead)} of {len(known)} backups are dated in the future, such as {ahead[0].path.name}"
        hint = "the clock was wrong then, or is now: look at it (timedatectl), then make a new one: owlbox backup"
        return Finding("backups", "warning", said, hint)
    sent = backup_target.read(home, keys.target) if keys.target else None
    nightly = "by night the timer should: systemctl status owlbox-backup.timer, elsewhere cron"
    hint = f"owlbox backup makes one now; {nightly}; on another disk: owlbox config set backups.target /media/STICK"
    what, made_ms = f"no backup in {home.backups}", known[0].made_ms if known else 0
    if keys.target:
        hint = f"owlbox backup makes one there now; {nightly}"
        what, made_ms = f"no backup has reached {keys.target} yet", sent.at_ms if sent is not None else 0
    if not made_ms:
        return Finding("backups", "warning", what, hint) if rows else Finding("backups", "ok", f"{what}, and nothing to lose yet")
    days = (now - made_ms) / DAY_MS
    said = (
        f"the last backup reached {keys.target} {days:.1f} days ago" if keys.target else f"the newest backup is {days:.1f} days old"
    )
    if days > WARN_DAYS or days < -1:
        return Finding("backups", "warning", said, hint)
    if keys.target and not sealed_backups.is_remote(keys.target) and backup_target.is_same_disk(home, keys.target):
        return Finding(
            "backups",
            "warning",
            f"{said}; that is the home's own disk, and is lost with it",
            "owlbox config set backups.target /media/STICK",
        )
    return Finding("backups", "ok", said)


def _target_fault(home: Home, keys: Backups) -> OwlError | None:
    """Why the next backup would not come to where it is to go, as far as that shows from here."""
    try:
        if keys.key_file:
            sealed_backups.read_key_file(Path(keys.key_file).expanduser())
        if not keys.target:
            return None
        if sealed_backups.is_remote(keys.target):
            sealed_backups.require_answer(sealed_backups.parse_place(keys.target))
        else:
            backup_target.require_disk(home, backup_target.expand(keys.target))
            backup_target.require_same_disk(home, keys.target)
    except OwlError as error:
        return error
    sent = backup_target.read(home, keys.target)
    if sent is None or not sent.problem:
        return None
    return Unavailable(f"the last backup did not reach {keys.target}: {sent.problem}", hint="owlbox backup tries again")
