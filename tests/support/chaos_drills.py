"""What `chaos.py` does on purpose between what goes wrong by chance: for each promise the moment in which a broken one is seen.

Dice may miss for ten minutes the millisecond between a commit and its answer. So somebody else writes while files are dropped, the
power fails right after an answer, a byte changes while a backup is written, and so on; what must hold is looked for at once. A
drill that could not be held, as the core was away, comes again.
"""

import os
import signal
import threading
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from chaos_arena import Arena
from chaos_faults import Faults
from chaos_parts import look_through
from chaos_rules import look
from chaos_traffic import ask, ask_until_accepted, call, call_tool, leave_file
from process import send

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import OwlError
from appliance.store.database import Store
from appliance.upkeep import backups

PATIENCE_S = 20.0
INDEX_S = 60.0  # a server of tools is started for it
HELD_S = 0.5  # after a file was taken: so long what it asks for cannot be recorded
SPOILED_AT = 20_000  # bytes from the start of an archive
LARGE_BYTES = 3 << 20
STEP_S = 0.002  # for which who writes it may go on at a time


class Drills:
    """Each drill in turn, in an order by dice."""

    def __init__(self, arena: Arena, faults: Faults) -> None:
        self._arena, self._faults, self._number = arena, faults, 0
        self._is_indexed = False
        known: dict[str, tuple[bool, Callable[[str], bool]]] = {
            "everything once": (True, self._do_everything),
            "a file while another writes": (True, self._hold_database),
            "power fails after an answer": (arena.disk.can_lose, self._cut_after_answer),
            "a note that goes": (arena.has_vectors, self._forget_note),
            "a byte changes in a backup": (True, self._spoil_backup),
        }
        self._acts = {name: act for name, (is_possible, act) in known.items() if is_possible}
        self._waiting = list(self._acts)
        arena.dice.shuffle(self._waiting)

    def hold(self) -> None:
        """The next one, and a look at what must hold."""
        name = self._waiting.pop(0)
        self._number += 1
        self._arena.note(f"drill: {name}")
        try:
            is_held = self._until(self._arena.is_up) and self._acts[name](f"drill-{self._number}")
        except (OwlError, OSError):  # nothing can be written just now
            is_held = False
        self._waiting.append(name)
        self._arena.count(f"{name}: {'held' if is_held else 'not held'}")
        look(self._arena)

    def _until(self, is_so: Callable[[], object]) -> bool:
        end_s = monotonic_s() + PATIENCE_S
        while not is_so():
            if monotonic_s() > end_s or self._arena.is_over.is_set():
                return False
            sleep_s(0.05)
        return True

    def _do_everything(self, name: str) -> bool:
        """A question that is sent twice, a server's tool, a reminder, and tasks that last, fail and wait for a person."""
        arena = self._arena
        # What a server offers is known once it was asked; until then no model is told of it.
        self._is_indexed = self._is_indexed or bool((call(arena, "mcp.index", deadline_s=INDEX_S) or {}).get("tools"))
        tool = f"echo {arena.count('asked to echo')}"
        for text in (f"say {name}", f"say {name}", tool):
            ask(arena, text)
        told = call_tool(arena, "remind", {"text": name, "when": "in 1 second"})
        if told.get("status") == 200:
            arena.promises.reminders[told["data"]["schedule"]["id"]] = name
        tasks = []
        for kind in ("slow say", "fails", "waits"):
            told = call_tool(arena, "create_task", {"name": f"{kind} {name}", "priority": "high"})
            if told.get("status") == 200:
                tasks.append(int(told["data"]["id"]))
                arena.promises.tasks[tasks[-1]] = f"{kind} {name}"
        run, _ = arena.promises.messages.get(tool, ("", 0))
        used = "SELECT 1 FROM events WHERE run = ? AND kind = 'tool_result' AND tool = 'stub_echo' AND status = 200"
        ended = "SELECT 1 FROM tasks WHERE id = ? AND status NOT IN ('pending', 'in_progress')"
        is_used = self._until(lambda: arena.rows(used, (run,)))
        return self._until(lambda: all(arena.rows(ended, (task,)) for task in tasks)) and is_used and len(tasks) == 3

    def _hold_database(self, name: str) -> bool:
        """While another process writes nothing can be recorded: what is acknowledged meanwhile is acknowledged too early."""
        arena = self._arena
        store = Store.open(arena.box.home.database)
        try:
            with store.write():
                if not leave_file(arena, name, {"kind": "message", "text": f"letter {name}", "id": name}):
                    return False
                arena.promises.letters[f"drop:user:{arena.person}:id:{name}"] = f"letter {name}"
                is_taken = self._until(lambda: not (arena.folder / f"{name}.json").exists())
                sleep_s(HELD_S)
                look(arena)
        finally:
            store.close()
        return is_taken

    def _cut_after_answer(self, name: str) -> bool:
        """What was acknowledged a moment before the power fails is there when it comes back."""
        arena = self._arena
        ask_until_accepted(arena, f"say {name}", arena.dice)
        cuts = arena.counts.get("cut the power", 0)
        if f"say {name}" not in arena.promises.messages:
            return False
        self._faults.cut_power()
        return arena.counts.get("cut the power", 0) > cuts

    def _forget_note(self, name: str) -> bool:
        """A note goes when its vectors are made."""
        arena = self._arena
        path, ref = arena.box.home.box / "notes" / f"{name}.md", f"box://notes/{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {name}\n\nThe owl of {name} has a nest of moss.\n")
        made = "SELECT 1 FROM entries e JOIN chunks c ON c.entry = e.id WHERE e.path = ? AND c.embedder IS NOT NULL"
        is_made = self._until(lambda: arena.rows(made, (ref,)))
        path.unlink(missing_ok=True)
        return self._until(lambda: not arena.rows("SELECT 1 FROM entries WHERE path = ?", (ref,))) and is_made

    def _spoil_backup(self, _: str) -> bool:
        """A byte changes while an archive is written, by a core that goes on for a moment at a time; it may not say that it did."""
        arena, told = self._arena, []
        # Something new to save, and so much that it is not packed in a moment.
        (arena.box.home.box / "picture.bin").write_bytes(os.urandom(LARGE_BYTES))
        asking = threading.Thread(target=lambda: told.append(call(arena, "backup.make")), name="backup")
        asking.start()
        is_spoiled = False
        while asking.is_alive():
            if not is_spoiled:
                is_spoiled = any(map(self._spoil_part, arena.box.home.backups.glob(f".*{backups.PART}")))
            sleep_s(STEP_S)
        if made := told[0]:
            look_through(arena, Path(made["file"]), [])
        return is_spoiled

    def _spoil_part(self, part: Path) -> bool:
        """Change a byte of an archive while whoever writes it stands still; False when it is too short yet, or whole."""
        pid = int(part.name.removesuffix(backups.PART).rpartition(".")[2])
        try:
            send(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        try:
            sleep_s(STEP_S)  # until it does stand still
            if part.stat().st_size <= 2 * SPOILED_AT or zipfile.is_zipfile(part):
                return False
            with part.open("r+b", buffering=0) as file:
                file.seek(SPOILED_AT)
                [byte] = file.read(1)
                file.seek(SPOILED_AT)
                file.write(bytes([byte ^ 0xFF]))
            return True
        except OSError:
            return False  # it is gone
        finally:
            with suppress(ProcessLookupError):
                send(pid, signal.SIGCONT)
