"""Ten builds that are broken in one line each, to see that `chaos.py` notices: a copy of the product with one text replaced.

A text that is not there exactly once is an error: the code has moved, and the sabotage has to be found again.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Sabotage(NamedTuple):
    """A file of the package, what stands in it, and what stands there instead."""

    file: str
    old: str
    new: str


SABOTAGES = {
    "double accept": Sabotage(
        "channels/rpc/threads.py", 'key = f"{user}/{message_id}" if message_id else new_id()', "key = new_id()"
    ),
    "lost ack": Sabotage(
        "channels/rpc/threads.py", 'call.notify("accepted", known)', 'accepted.is_new or call.notify("accepted", known)'
    ),
    "early ack": Sabotage(
        "channels/drop_folder.py",
        "self._perform_request(context, request, mark)",
        "os.unlink(claimed, dir_fd=handle), self._perform_request(context, request, mark)",
    ),
    "unsynced commit": Sabotage("store/database.py", '"full" if durable else "normal"', '"off"'),
    "claim without condition": Sabotage(
        "work/tasks.py", "READY = f\"status = 'pending' AND", "READY = f\"status <> 'complete' AND"
    ),
    "reminder sent twice": Sabotage(
        "work/effects.py",
        "        self.outbox.put(self.notification(known, due.key, text, NOW), sources=",
        "        for key in (due.key, f'{due.key}:again'): self.outbox.put(self.notification(known, key, text, NOW), sources=",
    ),
    "mark dropped": Sabotage(
        "policy/taint_marks.py", 'execute("INSERT INTO marks VAL', 'subject.startswith("run:") or execute("INSERT INTO marks VAL'
    ),
    "outbox skipped": Sabotage(
        "work/outcomes.py", "if not is_told or is_own:  # what a person does", "if True:  # what a person does"
    ),
    "vector orphaned": Sabotage("store/schema.sql", "    DELETE FROM chunks_vec WHERE rowid = old.id;\n", ""),
    "backup unverified": Sabotage("upkeep/backups.py", "            verify(read(part), progress)\n", "            pass\n"),
}


def sabotaged(name: str, folder: Path) -> Path:
    """A folder in `folder` with the package, broken so."""
    chosen, target = SABOTAGES[name], folder / "product"
    shutil.copytree(ROOT / "appliance", target / "appliance", ignore=shutil.ignore_patterns("__pycache__"))
    path = target / "appliance" / chosen.file
    source = path.read_text("utf-8")
    if source.count(chosen.old) != 1:
        raise SystemExit(f"sabotage {name!r}: {chosen.file} has {source.count(chosen.old)} times {chosen.old!r}")
    path.write_text(source.replace(chosen.old, chosen.new), "utf-8")
    return target
