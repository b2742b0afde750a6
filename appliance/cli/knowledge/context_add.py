"""The commands `owlbox context add` and `owlbox context refresh`: read files here, hand what they say to the core.

The files are read by this process, with the rights of whoever typed the command; a core, which may be another
user, gets texts and bytes over its socket in pieces. Pages are fetched by the core and read here. Without a core the
same is done in this process.
"""

import argparse
import base64
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import asdict

from appliance.clock import new_id
from appliance.console import terminal
from appliance.console.connect import Reach, reach
from appliance.console.terminal import say, say_json, say_line
from appliance.errors import Cancelled
from appliance.ingest.file_reader import Chosen, FileRules, Gather, Kept, KnownFile, ReadItem, absolute
from appliance.ingest.pipeline import WEB, FetchedPage, Ingest, Progress, Refreshed
from appliance.runtime.paths import Home
from appliance.text.references import DRIVE, display

INLINE_CHARS = 100_000  # a longer text goes in pieces: escaped, a character may take six bytes of a frame
PIECE_BYTES = 1_500_000
FRAME_CHARS = 500_000  # of the texts in one call together
SHOWN = 20  # items told one by one for each status
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

Call = Callable[[str, dict[str, Any]], Any]


class RemoteItemStore:
    """The shelf of a core, over whatever reaches it."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def find_known(self, refs: Sequence[str]) -> dict[str, KnownFile]:
        """What is kept under those of these stored paths that exist."""
        return {ref: KnownFile(**values) for ref, values in self._call("ingest.known", {"refs": list(refs)}).items()}

    def select_items(self, ref: str, after: str = "") -> Chosen:
        """A page of the items that a reference means."""
        page = self._call("ingest.chosen", {"ref": ref, "after": after})
        return Chosen(tuple(KnownFile(**values) for values in page["items"]), page["next_after"], page["folder"])

    def store_items(self, items: Sequence[ReadItem]) -> list[Kept]:
        """Make an entry of each of these."""
        done: list[Kept] = []
        parcels: list[dict[str, Any]] = []
        size = 0
        for item in items:
            parcel = self._item_as_json(item)
            if parcels and size + len(parcel.get("body", "")) > FRAME_CHARS:
                done += self._send_items(parcels)
                parcels, size = [], 0
            parcels.append(parcel)
            size += len(parcel.get("body", "")) + 2000
        return [*done, *self._send_items(parcels)]

    def tree(self, folder: str) -> str:
        """A picture of a folder."""
        return str(self._call("ingest.tree", {"folder": folder})["tree"])

    def _send_items(self, parcels: list[dict[str, Any]]) -> list[Kept]:
        return [Kept(**values) for values in self._call("ingest.keep", {"items": parcels})]

    def _item_as_json(self, item: ReadItem) -> dict[str, Any]:
        """An item as JSON; what is large goes ahead of it, in pieces."""
        given = {name: value for name, value in asdict(item).items() if isinstance(value, str) and value}
        if item.body is not None:
            given["body"] = item.body  # an empty text is one
        if item.body is not None and len(item.body) > INLINE_CHARS:
            given["body_key"] = self._upload_pieces(given.pop("body").encode())
        if item.blob is not None:
            given["blob_key"] = self._upload_pieces(item.blob)
        if item.original is not None:
            given["original_key"] = self._upload_pieces(item.original)
        return given

    def _upload_pieces(self, data: bytes) -> str:
        key = new_id()
        for start in range(0, max(1, len(data)), PIECE_BYTES):
            part = base64.b64encode(data[start : start + PIECE_BYTES]).decode()
            self._call("ingest.piece", {"key": key, "data": part})
        return key


def page(home: Home, way: Reach, url: str, addition: str = "") -> FetchedPage:
    """A page as the core fetched it; over a connection of its own, for several come at a time."""
    own = reach(home, os.environ) if way.is_remote else way
    try:
        # Listened to although it says nothing: an agent that loads it through servers may take long.
        told = own.call("ingest.page", {"url": url, "addition": addition}, lambda name, value: None)
        data = bytearray()
        while len(data) < told["size_bytes"] and (part := own.call("ingest.part", {"key": told["key"]})["data"]):
            data += base64.b64decode(part)
    finally:
        if own is not way:
            own.close()
    return FetchedPage(bytes(data), told["mime"], told["charset"], told["title"], told["server"])


# -- commands ---------------------------------------------------------------------------------------


def add(args: argparse.Namespace, home: Home) -> int:
    """Add what was named; 1 when nothing of it could be."""
    rules = FileRules(args.hidden, args.no_ignore, closed=(str(home.root.resolve()),))
    done = _run_with_core(args, home, lambda work: work.add(args.inputs, rules, args.on_conflict))
    counts = done.counts
    if args.json:
        items = [{"ref": display(i.ref), "status": i.status, "message": i.message} for i in done.items]
        say_json({**counts, "left_out": done.left_out, "items": items})
        return 1 if done.has_failed else 0
    for status, word, stream in (
        ("added", "note", sys.stdout),
        ("skipped", "skipped", sys.stdout),
        ("error", "failed", sys.stderr),
    ):
        _list_items([i for i in done.items if i.status == status and i.message], word, stream)
    words = {"added": "added", "updated": "updated", "unchanged": "unchanged", "skipped": "skipped", "error": "failed"}
    told = ", ".join(f"{count} {words[status]}" for status, count in counts.items() if count) or "nothing to add"
    left = ", ".join(f"{count} {name}" for name, count in done.left_out.items())
    say(told + (f" (left out: {left})" if left else ""))
    return 1 if done.has_failed else 0


def refresh(args: argparse.Namespace, home: Home) -> int:
    """Read again what was named; 1 when none of the references means anything, or nothing could be read."""
    refs = [ref if _is_reference(ref) else f"disk:{absolute(ref)}" for ref in args.refs]
    done: Refreshed = _run_with_core(args, home, lambda work: work.refresh(refs, is_all=args.is_all))
    for reason in done.unresolved:
        terminal.complain(f"not refreshed: {reason}")
    if args.json:
        items = [{"ref": display(i.ref), "status": i.status, "message": i.message} for i in done.items]
        say_json({**asdict(done), "items": items})
    elif not done.unresolved or len(done.unresolved) < len(refs):
        say(done.text())
    is_nothing = bool(refs) and len(done.unresolved) == len(refs)
    return 1 if is_nothing or (done.checked and done.errors == done.checked) else 0


def _run_with_core(args: argparse.Namespace, home: Home, act: Callable[[Ingest], Any]) -> Any:
    """Do something with a way to the core, a reader of files and a bar on a terminal; Ctrl+C keeps what was done."""
    bar = terminal.Progress(sys.stderr)
    tell: Progress = bar.show if sys.stderr.isatty() and not args.json else lambda stage, done, total: None
    addition = getattr(args, "prompt_addition", "")
    way = reach(home, os.environ)
    gather = Gather(os.environ, [home.database.with_name(home.database.name + end) for end in ("", "-wal", "-shm")])
    try:
        closed = [str(home.root.resolve())]
        return act(
            Ingest(RemoteItemStore(way.call), gather, fetch=lambda url: page(home, way, url, addition), tell=tell, closed=closed)
        )
    except KeyboardInterrupt:
        raise Cancelled("stopped; what was read until now is kept", hint="the same command goes on from there") from None
    finally:
        bar.end()
        gather.close()
        way.close()


def _is_reference(text: str) -> bool:
    return text.startswith(WEB) or DRIVE.match(text) is not None or IDENTIFIER.fullmatch(text) is not None


def _list_items(items: Sequence[Kept], word: str, stream: Any) -> None:
    for item in items[:SHOWN]:
        say_line(f"{word}: {display(item.ref)}: {item.message}", stream)
    if len(items) > SHOWN:
        say(f"{word}: … and {len(items) - SHOWN} more (--json names them all)", stream)
