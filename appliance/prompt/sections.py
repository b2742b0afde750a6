"""The blocks of a packet in the `knowledge.entries` layout, each made from what a run sees at one moment.

Words and order within a block, no more: which blocks there are and in what order, `prompt.packet` says. What changes with
every turn (time, figures) is in the last two blocks alone. Pure but for the clock.

A message of a person says when it was written and once for whom, where and on what it runs. Times are those of the messages, in the
box's zone, so that a conversation stays the same to the byte and what was evaluated of it is used again.
"""

import platform
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from appliance import __version__
from appliance.clock import now_ms
from appliance.language.request_texts import NOTE, NOTES, QUESTION
from appliance.language.times import timezones
from appliance.prompt import entry_blocks
from appliance.prompt.entry_blocks import BlockItem
from appliance.prompt.packet_types import Figures, PacketScene, Stage
from appliance.prompt.run_log import DONE, LogLine, Place
from appliance.records import Message, Part
from appliance.text.fences import fenced, quoted
from appliance.text.tokens import PromptTable

AS_ABOVE = "(shown above)"
PROMPT_CHARS = 500  # of a prompt that is too long for now
TURN = re.compile(r"^[a-z]+://turn_(\d+)/")

Section = Callable[[tuple[Part, ...], Stage], tuple[Part, ...]]


def shown_once(messages: Sequence[Message]) -> list[Message]:
    """The messages, each passage of the notes in full with the first that shows it, by its reference alone with later ones."""
    seen: set[str] = set()
    found = []
    for message in messages:
        notes, mark, question = message.content.partition(QUESTION)
        lines = notes.split("\n")
        if message.role == "user" and mark and NOTES in lines:
            told = [_shorten_known(line, seen) for line in lines]
            seen.update(lines)
            message = replace(message, content="\n".join(dict.fromkeys(told)) + mark + question)
        found.append(message)
    return found


def _shorten_known(line: str, seen: Collection[str]) -> str:
    note = NOTE.fullmatch(line) if line in seen else None
    return f"- {AS_ABOVE} [{note[2]}]" if note is not None and len(note[1]) > len(AS_ABOVE) else line


def dated(messages: Sequence[Message], person: str, folder: str, zone: str) -> list[Message]:
    """The messages, those of a person with a line before them; the first of these says more."""
    about = [f"on {platform.system()}", *([f"notes in {folder}"] if folder else []), *([f"for {quoted(person)}"] if person else [])]
    found: list[Message] = []
    for message in messages:
        if message.role == "user" and message.at_ms:
            line = ", ".join([tell_time(message.at_ms, zone), *about])
            message, about = replace(message, content=f"[{line}]\n{message.content}"), []
        found.append(message)
    return found


def tell_time(at_ms: int, zone: str) -> str:
    """A moment with its day and its zone: Friday 2026-03-06 09:00 Europe/Berlin."""
    at = datetime.fromtimestamp(at_ms / 1000, timezones.find(zone))
    name = zone if zone != timezones.LOCAL else getattr(at.tzinfo, "key", None)
    return f"{at:%A %Y-%m-%d %H:%M} {name or f'{at:%z}'}"


def section(name: str, text: Callable[[Stage], str]) -> Section:
    """A filter that adds a block, unless it is empty."""

    def add(parts: tuple[Part, ...], stage: Stage) -> tuple[Part, ...]:
        inner = text(stage)
        return (*parts, Part(name, f"<{name}>\n{inner}\n</{name}>")) if inner else parts

    return add


def summary(stage: Stage) -> str:
    """Every entry of knowledge that is not archived, a line each, the one that changed last at the end."""
    return entry_blocks.render_block(stage.seen.data)


def visible(stage: Stage) -> str:
    """The open entries in full, the last opened one at the end."""
    shown = sorted((item for item in stage.seen.data if item.is_visible), key=lambda item: (item.turn, item.changed))
    return "\n".join(item.full for item in shown)


def log(stage: Stage) -> str:
    """The messages and actions so far."""
    return "\n".join(stage.log)


def unknowns(stage: Stage) -> str:
    return entry_blocks.render_block(stage.seen.unknowns, is_full=True)


def relevant(stage: Stage) -> str:
    """The search hits for the prompt that are not open."""
    open_now = {item.path for item in stage.seen.data if item.is_visible}
    return "\n".join(f"- {part.text} [{part.name}]" for part in stage.found if part.name not in open_now)


def instructions(stage: Stage) -> str:
    """Where and when this turn is, and what is to be done now."""
    scene = stage.scene
    where = f", notes in {stage.folder}" if stage.folder else ""
    now = tell_time(now_ms(), stage.zone)
    about = [f"{now}, owlbox {__version__} on {platform.system()}{where}, turn {scene.turn}"]
    about += ["Mode ask: answer, and change no files."] if scene.mode == "ask" else []
    # Tried on the bundled model, which goes on with whatever stands here instead of answering (2026-11-22).
    return "\n".join([*about, f"Now answer {quoted(scene.person)}'s prompt." if scene.person else "Now answer the prompt."])


def prompt(scene: PacketScene, figures: Figures) -> Part:
    """The prompt with the figures of its loop's first turn, so that what follows it can stay the same to the byte."""
    turn, usage, free = figures
    text, mark = scene.prompt, ""
    if scene.recovery.is_prompt_short and len(text) > PROMPT_CHARS:
        text = f"{text[:PROMPT_CHARS]}…\n[{len(text)} characters are too many beside what is open: close something]"
        mark = ' visibility="summarized"'
    text = fenced("prompt", text) if "<" in text else text
    room = "unlimited" if free is None else str(free)
    return Part("prompt", f'<prompt turn="{turn}" tokenUsage="{usage}" tokensFree="{room}"{mark}>\n{text}\n</prompt>')


def budget(table: PromptTable) -> Part:
    """The sizes of the packet's parts; last, because they change with every turn."""
    room = "unlimited" if table.free is None else str(table.free)
    return Part("budget", f'<budget tokenUsage="{table.usage}" tokensFree="{room}">\n{table.text()}\n</budget>')


def joined(items: Sequence[BlockItem], lines: Sequence[LogLine]) -> tuple[str, ...]:
    """Log entries and what was said, in the order in which it happened."""
    placed: list[tuple[Place, str]] = [(line.place, line.text) for line in lines]
    for item in items:
        found = TURN.match(item.path)
        placed.append(((int(found[1]) if found else item.turn, DONE, 0, item.view), item.full or item.summary))
    return tuple(text for _, text in sorted(placed, key=lambda one: one[0]))
