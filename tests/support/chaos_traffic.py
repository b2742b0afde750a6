"""What people and programs ask for while `chaos.py` goes on: each promise that was made to them is kept in `Promises`."""

import json
import os
import random
from pathlib import Path
from typing import Any

from chaos_arena import Arena

from appliance.errors import DeadlineExceeded, OwlError

MESSAGES = ("say", "say", "say", "slow say", "fails", "breaks", "plan", "plan", "echo")
CALL_S = 20.0
SENT_AGAIN = 0.3  # of the messages: a program that heard no answer sends the same id once more
TASKS = ("call", "call", "call", "say", "slow call", "slow say", "fails", "breaks", "waits", "splits")


def talk(arena: Arena, name: str, seed: str) -> None:
    """Ask one question after the other, each until it is acknowledged, and listen to the answer."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.is_set():
        number += 1
        text = f"{dice.choice(MESSAGES)} {name}{number}"
        if text.startswith(("plan", "echo")):
            what = text.partition(" ")[0]
            text = f"{what} {arena.count(f'asked to {what}')}"
        ask_until_accepted(arena, text, dice)
        if dice.random() < SENT_AGAIN:
            ask(arena, text)


def ask_until_accepted(arena: Arena, text: str, dice: random.Random) -> None:
    """Ask, and ask again as long as nobody says that it was accepted."""
    while not arena.is_over.is_set() and text not in arena.promises.messages:
        ask(arena, text)
        arena.is_over.wait(dice.random() * 0.3)


def ask(arena: Arena, text: str) -> None:
    """Ask once, and listen to the answer; a promise when it was accepted."""
    is_told = False
    try:
        with arena.client() as client:
            for what, told in client.stream("message.send", {"text": text, "message_id": text}, deadline_s=CALL_S):
                if what != "accepted":
                    continue
                is_told = True
                if text not in arena.promises.messages and not told["is_new"]:
                    arena.count("acknowledgements lost")
                kept = arena.promises.messages.setdefault(text, (told["run"], told["loop"]))
                if kept != (told["run"], told["loop"]):
                    arena.broken[f"message {text!r} was accepted twice: as {kept} and as {told}"] = None
        if not is_told:
            arena.broken[f"message {text!r} was answered, and nobody said that it was accepted"] = None
    except OwlError as error:
        if isinstance(error, DeadlineExceeded) and not is_told:
            arena.count("calls that lasted too long")
        arena.hear(error.message, error.hint)
    except OSError:
        pass  # the core is away


def plan(arena: Arena, seed: str) -> None:
    """Add tasks, some after others, and change one's mind now and then."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(0.1 + dice.random() * 0.3):
        if arena.has_enough():
            continue
        number += 1
        name, known = f"{dice.choice(TASKS)} number {number}", list(arena.promises.tasks)
        after = [dice.choice(known[-8:])] if known and dice.random() < 0.3 else []
        try:
            with arena.client() as client:
                given = {"name": name, "blocked_by": after, "priority": dice.choice(("low", "medium", "high"))}
                told = client.call("tool.call", {"name": "create_task", "arguments": given}, deadline_s=CALL_S)
                if told["status"] == 200:
                    arena.promises.tasks[int(told["data"]["id"])] = name
                if known and dice.random() < 0.05:
                    client.call(
                        "tool.call", {"name": "cancel_task", "arguments": {"id": dice.choice(known[-3:])}}, deadline_s=CALL_S
                    )
        except OwlError as error:
            arena.hear(error.message, error.hint)
        except OSError:
            continue


def drop(arena: Arena, seed: str) -> None:
    """Leave files, whether a core runs or not; some of them twice, as somebody does who does not know whether it worked."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(0.3 + dice.random() * 0.5):
        number += 1
        own = f"file-{number}"
        request: dict[str, Any] = {"kind": "message", "text": f"letter {number}", "id": own}
        runs = list(arena.promises.messages.values())
        if runs and dice.random() < 0.5:
            request["run"] = dice.choice(runs)[0]
        if dice.random() < 0.5 and not arena.has_enough():
            del request["text"]
            request |= {"kind": "task", "name": f"{dice.choice(TASKS)} dropped {number}"}
        if not leave_file(arena, own, request):
            continue
        key = f"drop:user:{arena.person}:id:{own}"
        if request["kind"] == "task":
            arena.promises.dropped[key] = request["name"]
        else:
            arena.promises.letters[key] = request["text"]
        if dice.random() < SENT_AGAIN:
            leave_file(arena, f"{own}-again", request)


def leave_file(arena: Arena, name: str, request: dict[str, Any]) -> bool:
    """Leave a file that no power cut takes; False when the disk does not take it: nobody looks at what is hidden."""
    hidden = arena.folder / f".{name}"
    try:
        with arena.reading:
            arena.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            hidden.write_text(json.dumps(request))
            _flush(hidden)
            hidden.rename(arena.folder / f"{name}.json")
            _flush(arena.folder)
    except OSError:
        return False
    return True


def run_commands(arena: Arena, seed: str) -> None:
    """Run commands in the sandbox, each of which leaves a line when it begins and lasts a while."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(dice.random()):
        number += 1
        text = f"echo command-{number} >> done.txt && sleep {dice.random() * 2:.1f}; : {arena.runtime.name};"
        told = call_tool(arena, "exec", {"command": text})
        if told.get("status") == 200 and told["data"]["exit_code"] == 0:
            arena.promises.commands.append(f"command-{number}")


def add_documents(arena: Arena, seed: str) -> None:
    """Have files read by the command that does so, with or without a core."""
    dice, number = random.Random(seed), 0
    folder = arena.runtime / "documents"
    folder.mkdir()
    while not arena.is_over.wait(2 + dice.random() * 2):
        number += 1
        path = folder / f"paper-{number}.md"
        path.write_text(f"# Paper {number}\n\n" + "Owls hunt at night, and this says how. " * dice.randrange(1, 200))
        if arena.run("context", "add", str(path)) is not None:
            arena.promises.documents[f"disk:/{path}"] = path.read_text()


def edit_notes(arena: Arena, seed: str) -> None:
    """Write, rename and remove notes in the folder, in place and at once."""
    dice, number = random.Random(seed), 0
    folder = arena.box.home.box / "notes"
    while not arena.is_over.wait(dice.random() * 0.4):
        number += 1
        with arena.reading:
            try:
                _edit(folder, dice, number)
            except OSError:
                continue  # the disk is full, or takes no writes


def _edit(folder: Path, dice: random.Random, number: int) -> None:
    known = sorted(folder.rglob("*.md"))
    path = folder / dice.choice(("", "wood", "wood/deep")) / f"note-{dice.randrange(30)}.md"
    what = dice.choice(("write", "write", "replace", "rename", "remove"))
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == "write":
        path.write_text(f"# Note\n\nversion {number}\n" + "Mice live in the wood. " * dice.randrange(100))
    elif what == "replace":
        hidden = path.with_suffix(".tmp")
        hidden.write_text(f"# Note\n\nversion {number}\n")
        hidden.rename(path)
    elif known:
        dice.choice(known).rename(path) if what == "rename" else dice.choice(known).unlink()


def ask_to_be_reminded(arena: Arena, seed: str) -> None:
    """Reminders that are due at once or in a moment."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(0.5 + dice.random()):
        number += 1
        given = {"text": f"nap {number}", "when": f"in {dice.randrange(1, 6)} seconds"}
        told = call_tool(arena, "remind", given)
        if told.get("status") == 200:
            arena.promises.reminders[told["data"]["schedule"]["id"]] = f"nap {number}"


def call_tool(arena: Arena, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a tool, {} when nobody could be asked."""
    told = call(arena, "tool.call", name=name, arguments=arguments) or {}
    if told.get("status", 200) >= 400:
        arena.hear(told["message"], told["hint"])
    return told


def call(arena: Arena, method: str, *, deadline_s: float = CALL_S, **params: Any) -> Any:
    """What a method of the core answers, None when nobody could be asked."""
    try:
        with arena.client() as client:
            return client.call(method, params, deadline_s=deadline_s)
    except OwlError as error:
        arena.hear(error.message, error.hint)
    except OSError:
        pass  # the core is away
    return None


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
