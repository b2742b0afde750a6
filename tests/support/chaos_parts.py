"""What people and programs do with the other parts of a box while `chaos.py` goes on.

They ask by the web, keep things in memory and take back what a run did, make backups, set keys of the configuration and type
commands. What was promised to them is kept in `Promises`; a backup that is said to be made is looked through at once.
"""

import http.client
import json
import random
import shutil
from pathlib import Path

from chaos_arena import SET_FROM, SETTING, Arena
from chaos_traffic import ask_until_accepted, call, call_tool

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import OwlError
from appliance.store.database import Store
from appliance.upkeep import backups

COMMANDS = (
    ("status",),
    ("doctor",),
    ("task", "list"),
    ("thread", "list"),
    ("schedule", "list"),
    ("memory", "list"),
    ("backup", "list"),
    ("worker", "list"),
    ("search", "owls"),
    ("maintain", "--now"),
    ("mcp", "list"),
)
ANSWER_S = 30.0


def browse(arena: Arena, seed: str) -> None:
    """Ask as a program does by the port of the web page."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(0.5 + dice.random()):
        number += 1
        text = f"say by the web {number}"
        body = json.dumps({"model": "owl", "messages": [{"role": "user", "content": text}]})
        wire = http.client.HTTPConnection("127.0.0.1", arena.port, timeout=ANSWER_S)
        try:
            headers = {"Authorization": f"Bearer {arena.token}", "Content-Type": "application/json"}
            wire.request("POST", "/v1/chat/completions", body, headers)
            answer = wire.getresponse()
            told = json.loads(answer.read())
            if answer.status == 200:
                arena.promises.questions.append(text)
            else:
                arena.hear(str(told["error"]["message"]))
        except (OSError, ValueError, http.client.HTTPException):
            continue  # the web process is away, or the core behind it
        finally:
            wire.close()


def change_minds(arena: Arena, seed: str) -> None:
    """Have the assistant remember something, and take back what that run did."""
    dice = random.Random(seed)
    while not arena.is_over.wait(1 + dice.random()):
        number = arena.count("asked to keep")
        text = f"keep {number}"
        ask_until_accepted(arena, text, dice)
        if text not in arena.promises.messages:
            return
        run, loop = arena.promises.messages[text]
        end_s = monotonic_s() + ANSWER_S
        while not _is_kept(arena, run) and monotonic_s() < end_s and not arena.is_over.is_set():
            sleep_s(0.1)
        if not _is_kept(arena, run):
            continue
        arena.promises.kept[f"kept {number}"] = False
        if dice.random() < 0.5:
            del arena.promises.kept[f"kept {number}"]  # nobody knows, until it is said
            told = call(arena, "run.undo", run=run)
            if told is not None and told["by"]:
                arena.promises.kept[f"kept {number}"] = True


def _is_kept(arena: Arena, run: str) -> bool:
    try:
        sql = "SELECT 1 FROM events WHERE run = ? AND kind = 'tool_result' AND tool = 'remember' AND status = 200"
        return bool(arena.rows(sql, (run,))) and not arena.rows(
            "SELECT 1 FROM loops WHERE run = ? AND status IN (100, 102)", (run,)
        )
    except OwlError:
        return False


def remember(arena: Arena, seed: str) -> None:
    """Keep facts."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(1 + dice.random()):
        number += 1
        text = f"Barn {number} has {dice.randrange(100)} owls."
        told = call_tool(arena, "remember", {"text": text, "title": f"barn {number}"})
        if told.get("status") == 200:
            arena.promises.memories[str(told["message"]).rpartition(" ")[2]] = text


def save(arena: Arena, seed: str) -> None:
    """Make backups, and look at what is said to be one."""
    dice = random.Random(seed)
    while not arena.is_over.wait(4 + 4 * dice.random()):
        known = list(arena.promises.messages)[-50:]
        told = call(arena, "backup.make") if dice.random() < 0.5 else json.loads(arena.run("backup") or "null")
        if told is not None:
            look_through(arena, Path(told["file"]), known if told["is_new"] else [])


def look_through(arena: Arena, path: Path, known: list[str]) -> None:
    """A backup is whole, and has what was acknowledged before it was asked for."""
    folder = arena.runtime / "restored"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with arena.reading:
            copy = shutil.copy(path, arena.runtime / "copy.zip")
        backups.verify(backups.read(Path(copy)), backups.unheard, folder)
        store = Store.open(folder / backups.DATABASE)
        try:
            found = {str(row[0]) for row in store.rows("SELECT content FROM events WHERE kind = 'message' AND role = 'user'")}
        finally:
            store.close()
        missing = [text for text in known if text not in found]
    except (OwlError, OSError) as error:
        arena.broken[f"backup {path.name} is none: {error}"] = None
        return
    arena.promises.backups += 1
    if missing:
        arena.broken[f"backup {path.name} lacks {missing[:3]}"] = None


def configure(arena: Arena, seed: str) -> None:
    """Set a key, and have the configuration read again."""
    dice = random.Random(seed)
    while not arena.is_over.wait(4 + 4 * dice.random()):
        arena.promises.setting_tried += 1
        number = arena.promises.setting_tried
        if arena.run("config", "set", SETTING, str(SET_FROM + number)) is not None:
            arena.promises.setting = number
        if dice.random() < 0.3:
            call(arena, "core.reload")


def type_commands(arena: Arena, seed: str) -> None:
    """Look around at the command line, with or without a core."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(3 + 3 * dice.random()):  # a command takes a core for half a second
        if dice.random() < 0.4:
            number += 1
            arena.run("ask", f"say at the command line {number}")
        else:
            arena.run(*dice.choice(COMMANDS))
