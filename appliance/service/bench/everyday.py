"""The everyday requests, put one after the other to a whole core in a home of its own, and judged by program.

A process by itself, started by `everyday_runs`: it reads one line of JSON from its standard input, which says how the model is
reached, and writes one for each answer. What the requests ask for is in `everyday.toml`. No answer is judged by another model.
"""

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from appliance.channels.rpc.command_output import ToolMethods
from appliance.channels.rpc.threads import ThreadMethods
from appliance.clock import monotonic_s, now_ms, sleep_s
from appliance.errors import OwlError
from appliance.runtime.methods import LocalCall
from appliance.runtime.paths import Home
from appliance.service.bench.everyday_runs import Answered
from appliance.service.broker_process import ExternalBroker
from appliance.service.core import Core
from appliance.upkeep import home_setup

ITEMS = Path(__file__).with_name("everyday.toml")
MOST_WORDS = 100
BUSY = "busy"  # how an answer ends that had to make way
PAUSE_S = 5.0
RAW = re.compile(r'<tool_call|"is_error"|\{\s*"(id|name|tool|function)"\s*:|<\|im_|\[cut at|<think')
ADMITS = re.compile(
    r"\bnothing\b|\bno (note|notes|information|mention|record|details|entry)\b|\bunknown\b|\bunable\b"
    r"|(do not|don['’]?t|does not|doesn['’]?t|did not|can ?not|can['’]?t|could not|is not|isn['’]?t|are not) "
    r"(know|have|say|mention|find|contain|specify|provide|tell|see|mentioned|known|given|specified|stated|in (the|your))",
    re.IGNORECASE,
)


class Trial:
    """One core, one model, and what is in the home before and after each request."""

    def __init__(self, home: Home, core: Core) -> None:
        self._home = home
        self._core = core

    def ask(self, item: Mapping[str, Any]) -> Answered:
        """Put one request in a thread of its own, and judge what came of it; again when somebody else's question went before."""
        while (found := self._answered(item)).problem == BUSY:
            sleep_s(PAUSE_S)  # whoever started us ends us when the time is up
        return found

    def _answered(self, item: Mapping[str, Any]) -> Answered:
        before, began_s, first_s = self._state(), monotonic_s(), 0.0
        said: list[str] = []

        def listen(name: str, value: dict[str, Any]) -> None:
            nonlocal first_s
            if name == "delta" and not first_s:
                first_s = monotonic_s() - began_s
            if name == "event" and value["kind"] == "message" and value["role"] == "assistant":
                said.append(value["content"])

        try:
            end = ThreadMethods(self._core.inbox, self._core.runs).send(LocalCall(listen), item["prompt"], kind="ask")
            trouble = "" if end.get("status", 200) == 200 else str(end["outcome"])
        except OwlError as error:
            trouble = error.message
        total_s = monotonic_s() - began_s
        text = said[-1] if said else ""
        problem = trouble or wrong_with(text, item) or self._wrong_effect(item, before)
        count = len(re.findall(r"[\w'’-]+", text))
        return Answered(item["category"], item["prompt"], text, problem, round(first_s or total_s, 3), round(total_s, 3), count)

    def _state(self) -> dict[str, dict[Any, str]]:
        """All that a request may change, by kind."""
        core = self._core
        notes = {p: p.read_text(encoding="utf-8") for p in self._home.box.glob("**/notes/*.md")}
        memory = {line.ref: str(line.updated_ms) for line in core.entries.list_lines("memory:", limit=1000)}
        tasks = core.tasks.list_tasks(limit=1000)
        return {
            "task": {t.id: f"{t.name} {t.description}" for t in tasks},
            "done": {t.id: t.name for t in tasks if t.status == "complete"},
            "schedule": {
                s.id: f"{s.name} {s.description}"
                for s in core.schedules.timetable.rows.list_schedules(limit=1000)
                if s.type != "system"
            },
            "memory": memory,
            "note": {str(path): text for path, text in notes.items()},
        }

    def _wrong_effect(self, item: Mapping[str, Any], before: dict[str, dict[Any, str]]) -> str:
        """What is wrong with what was done, "" for nothing."""
        after = self._state()
        new = {kind: {key: text for key, text in found.items() if before[kind].get(key) != text} for kind, found in after.items()}
        wanted = item.get("effect", "")
        if others := [kind for kind, found in new.items() if found and kind != wanted]:
            return f"did what was not asked for: {', '.join(others)}"
        if not wanted:
            return ""
        if len(new[wanted]) != 1:
            return f"{len(new[wanted])} of {wanted} instead of one"
        ((key, text),) = new[wanted].items()
        held = self._core.entries.get(key).body if wanted == "memory" else text
        if missing := [word for word in item.get("holds", ()) if word.lower() not in held.lower()]:
            return f"{wanted} without {', '.join(missing)}"
        if "due" in item:
            due_ms = next(s.state.next_ms for s in self._core.schedules.timetable.rows.list_schedules(limit=1000) if s.id == key)
            if due_ms is None or datetime.fromtimestamp(due_ms / 1000).strftime("%H:%M") != item["due"]:
                return "due at another time"
        return ""


def wrong_with(text: str, item: Mapping[str, Any]) -> str:
    """What is wrong with an answer's words, "" for nothing."""
    lowered = text.lower()
    if not text.strip():
        return "no answer"
    if RAW.search(text):
        return "a raw call, or markup"
    if goes_in_circles(text):
        return "goes in circles"
    if len(text.split()) > item.get("most", MOST_WORDS):
        return "too long"
    if item.get("any") and not any(word.lower() in lowered for word in item["any"]):
        return f"without {' or '.join(item['any'])}"
    if item.get("admits") and not ADMITS.search(text):
        return "made something up"
    if item.get("is_weekday") and datetime.fromtimestamp(now_ms() / 1000).strftime("%A") not in text:
        return "another day"
    return ""


def goes_in_circles(text: str) -> bool:
    """Whether a sentence comes three times, or the same few words over and over."""
    sentences = Counter(s.strip().lower() for s in re.split(r"[.!?\n]+", text) if len(s.split()) > 2)
    if sentences and sentences.most_common(1)[0][1] > 2:
        return True
    words = text.lower().split()
    runs = list(zip(words, words[1:], words[2:], words[3:]))
    return len(runs) > 30 and len(set(runs)) / len(runs) < 0.7


def answers(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What is to be said for each request, first how many there are."""
    with ITEMS.open("rb") as file:
        wanted = tomllib.load(file)
    folder, items = Path(given["folder"]), wanted["items"]
    yield {"items": len(items), "next": "set-up"}
    home = Home(folder / "home")
    home_setup.init(home)
    for name, text in wanted["notes"].items():
        (home.box / "notes" / name).write_text(text, encoding="utf-8")
    home.config.write_text(f"[models]\ntier = {json.dumps(given['tier'])}\n", encoding="utf-8")
    home.models.joinpath("prefix").rmdir()
    home.models.rmdir()
    home.models.symlink_to(given["models"])
    environ = {"XDG_RUNTIME_DIR": str(folder), "HOME": str(folder), "PATH": ""}
    lent = ExternalBroker(Path(given["socket"]), given["token"], f"local/{given['stem']}", is_background=given["is_background"])
    core = Core(home, environ, process="bench", is_shared=False, broker=lent)
    try:
        core.recover()
        core.box_folder.compare()
        try:
            core.indexer.index_pending()
        except OwlError:
            pass  # without vectors words must do, as they would in the home itself
        ToolMethods(core.toolbox).call_tool("create_task", {"name": wanted["task"]}, call=LocalCall())
        trial = Trial(home, core)
        for place, item in enumerate(items):
            following = items[place + 1]["category"] if place + 1 < len(items) else "end"
            yield {"items": len(items), "next": following, "answer": asdict(trial.ask(item))}
    finally:
        core.close("the everyday set is through")


def main() -> int:
    """Read what to do, do it, say it line by line."""
    try:
        for line in answers(json.loads(sys.stdin.readline())):
            print(json.dumps(line, ensure_ascii=False), flush=True)
    except OwlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
