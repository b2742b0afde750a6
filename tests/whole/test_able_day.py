"""A day with an able model, played through the real core: what the model is sent at each step is what it needs, once.

Its answers are in the forms of `tests/agent/recorded_answers.toml`. `OWLBOX_SHOW_PACKETS=1 pytest -s` prints each
request, for reading.
"""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from process import clean_environ
from stores import new_home
from test_database import until
from test_scenarios import CHAT, Stage, Told, script

from appliance.clock import new_id, now_ms
from appliance.prompt.sections import AS_ABOVE
from appliance.records import Ask, Delta, Inbound, Message
from appliance.runtime import hook_points
from appliance.runtime.paths import Home
from appliance.service.core import Core

STEPS = ("Collect the quotes", "Compare the prices", "Ask Ines about the date", "Order the pump", "Note what was decided")
PUMP, GARDEN = "Hahn wants 120 euros, Weber 95.", "The pond needs a quiet pump before May."
MANUAL = "\n\n".join(f"Part {n}: turn the valve by {n} degrees and wait until the needle stands still." for n in range(400))
DAY: dict[str, list[Any]] = {
    "plan": [
        '<tool_call>\n{"name": "use", "arguments": {"tool": "add_task", "arguments": {"name": "Quotes"}}}\n</tool_call>',
        "\n".join(
            f'<tool_call>\n{{"name": "create_task", "arguments": {json.dumps(json.dumps({"name": name}))}}}\n</tool_call>'
            for name in STEPS
        ),
        "Five steps are on the list.",
    ],
    "read": [
        '[read(ref="notes/pump.md"), read(ref="box://notes/garden.md")]',
        "<|channel|>analysis<|message|>Wrong place.<|end|><|start|>assistant<|channel|>commentary to=functions.read json<|message|>"
        '{"ref": "box:/notes/pump.md"}',
        "Hahn wants 120 euros, Weber 95.",
    ],
    "write": [
        "<tool_call>\n<function=use>\n<parameter=tool>\nwrite_note\n</parameter>\n<parameter=arguments>\n"
        "{'title': 'Decision', 'text': 'We take Weber.'}\n</parameter>\n</function>\n</tool_call>",
        "Noted.",
    ],
    "remind": [
        '[TOOL_CALLS]use[ARGS]{"tool": "remind", "arguments": {"when": "friday at 9", "text": "order the pump"}}',
        "I will remind you.",
    ],
    "research": [
        '<|tool_call>call:use{tool:<|"|>delegate<|"|>,arguments:{agent:<|"|>researcher<|"|>,task:<|"|>[helper] Quiet pumps?<|"|>}}',
        "Both are quiet.",
    ],
    "helper": ["Hahn and Weber are both quiet."],
    "count": [{"text": "One two three four five six seven eight nine ten.", "chunk_size": 4, "chunk_delay_s": 0.3}],
    "letter": [
        '{"name": "use", "parameters": {"tool": "set", "arguments": {"path": "letter.txt", "body": "Dear Weber"}}}',
        "never said",
    ],
    "why": ["You did not want it."],
    "manual": [
        "<tool_call>read<arg_key>ref</arg_key><arg_value>box://notes/manual.md</arg_value></tool_call>",
        "It is about valves.",
    ],
    "left": ["<tool_call>use<arg_key>tool</arg_key><arg_value>list_tasks</arg_value></tool_call>", "All five are open."],
}


@dataclass
class Day:
    """One thread of one person, and every request that a model got."""

    stage: Stage
    asks: list[Ask] = field(default_factory=list)
    thread: str = ""

    def say(self, name: str, text: str, *, is_stopped: bool = False) -> tuple[Told, list[Ask]]:
        """Say something; how it was answered, up to its first words with `is_stopped`, and what the model was sent for it."""
        first, inbox = len(self.asks), self.stage.inbox
        settings = None if self.thread else CHAT
        inbound = Inbound("local", "ada", f"[{name}] {text}", new_id(), now_ms(), self.thread, mode="act", settings=settings)
        accepted = inbox.accept(inbound, new_id())
        told = Told(accepted.run, accepted.loop)

        def stop() -> None:
            until(lambda: any(isinstance(item, Delta) for item in told.items))
            inbox.stop(told.run)

        stopping = threading.Thread(target=stop if is_stopped else lambda: None)
        stopping.start()
        self.stage.heard(told, lambda: inbox.start(accepted.loop))
        stopping.join()
        self.thread = self.thread or told.run
        if os.environ.get("OWLBOX_SHOW_PACKETS"):
            print("\n".join(f"{'-' * 100}\n{as_text(ask)}" for ask in self.asks[first:]))
        return told, self.asks[first:]


def as_text(ask: Ask) -> str:
    """A request as it is read by eye."""
    lines = [f"[[{part.name}]] {part.text}" for part in ask.system]
    lines += [f"[[tool]] {tool.name}: {tool.description} {json.dumps(tool.schema)}" for tool in ask.tools]
    for message in ask.messages:
        calls = [f"  CALL {call.name} {json.dumps(call.arguments)}" for call in message.tool_calls]
        lines += [f"--- {message.role}", message.content, *calls]
    return "\n".join(lines)


@pytest.fixture
def day(tmp_path: Path) -> Iterator[Day]:
    home, runtime = Home(tmp_path / "home"), Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir()
    new_home(home)
    notes = home.box / "notes"
    notes.mkdir(exist_ok=True)
    for name, text in (("pump", PUMP), ("garden", GARDEN), ("manual", MANUAL)):
        (notes / f"{name}.md").write_text(f"# {name.title()}\n\n{text}\n", encoding="utf-8")
    given = {"OWLBOX__MODELS__SCRIPT": script(tmp_path, DAY), "OWLBOX__MODELS__CONTEXT": "8000"}
    core = Core(home, clean_environ(tmp_path, runtime) | given, process="cli", is_shared=False)
    core.recover()
    core.knowledge.folder.sync_paths(sorted(notes.glob("*.md")))
    made = Day(Stage(core))
    core.hooks.add(hook_points.REQUEST_STARTED, lambda _run, ask: made.asks.append(ask))
    try:
        yield made
        assert core.close("the day is over") == []
    finally:
        shutil.rmtree(runtime)


def results(ask: Ask) -> list[Message]:
    """The results behind the last message of the person."""
    last = max(at for at, message in enumerate(ask.messages) if message.role == "user")
    return [message for message in ask.messages[last:] if message.role == "tool"]


def hint(result: Message) -> str:
    said = json.loads(result.content)
    assert said["is_error"] and said["message"]
    return str(said["next_action_hint"])


@pytest.mark.covers("S-003")
def test_a_model_reads_what_it_needs_at_each_step_of_a_day(day: Day) -> None:
    # Plan: a wrong name is answered with the right ones, and five calls of one answer are five tasks.
    told, (first, second, third) = day.say("plan", "Plan the pond pump in five steps.")
    assert "create_task" in hint(results(second)[0]) and "fetch_url" not in hint(results(second)[0])
    made = [result.content for result in results(third)[1:]]
    assert [text.partition("\n")[0] for text in made] == [f"Added task {n}: {name} (medium)" for n, name in enumerate(STEPS, 1)]
    assert [len(text.splitlines()) for text in made] == [2, 1, 1, 1, 1]  # that no worker runs is said once
    static = sum(len(part.text) for part in first.system) + sum(
        len(t.name + t.description + json.dumps(t.schema)) for t in first.tools
    )
    assert static <= 1200 * 4, "about four characters a token"
    said = first.messages[-1].content
    assert re.match(r"\[\w+ \d{4}-\d\d-\d\d \d\d:\d\d \S+, on \w+, notes in \S+/box, for ada\]\nNotes:\n", said)
    assert said.count(PUMP) == said.count(GARDEN) == 1 and said.endswith("\n\nQuestion: [plan] Plan the pond pump in five steps.")

    # Read: where it remembers a name and not the place, it is told the place; what was shown already is not shown again.
    told, (first, second, third) = day.say("read", "What do the notes say about the pump?")
    assert f"- {AS_ABOVE} [box://notes/pump.md]" in first.messages[-1].content and PUMP not in first.messages[-1].content
    wrong, garden = results(second)
    assert hint(wrong) == "nearby: box:/notes/pump.md" and GARDEN in garden.content
    assert PUMP in results(third)[-1].content and told.said == "Hahn wants 120 euros, Weber 95. [box://notes/pump.md]"

    _, asks = day.say("write", "Note that we take Weber.")
    assert results(asks[-1])[0].content == "Wrote the note decision (box/notes/decision.md)"
    assert (day.stage.core.home.box / "notes" / "decision.md").read_text() == "# Decision\n\nWe take Weber.\n"
    _, asks = day.say("remind", "Remind me on Friday at 9 to order it.")
    assert re.fullmatch(r"Reminder \w+ \(order the pump\): once, on Fri [\d-]+ 09:00\.", results(asks[-1])[0].content)

    # Delegate: the helper gets its task alone, dated, and its end is named by who said it.
    _, (_, helper, last) = day.say("research", "Have somebody find out which pumps are quiet.")
    assert [message.content.partition("\n")[2] for message in helper.messages] == ["[helper] Quiet pumps?"]
    assert re.fullmatch(r"researcher finished in [\d.]+ s:\nHahn and Weber are both quiet\.", results(last)[0].content)

    # Interrupted: its half answer stands behind the question, and says that it was stopped.
    told, _ = day.say("count", "Count to ten.", is_stopped=True)
    assert (told.end.status, told.end.outcome) == (499, "cancelled") and told.said

    # Denied: the reason of the person is the result, and the next question is not taken for the old one.
    told, (first,) = day.say("letter", "Write a letter to Weber.")
    *_, asked, half, now = first.messages
    assert asked.content.endswith("Count to ten.") and half.role == "assistant" and now.content.endswith("a letter to Weber.")
    assert half.content.startswith("One ") and half.content.endswith("[it was stopped here]")
    day.stage.decide(told, "reject", "Not to Weber.")
    assert not (day.stage.core.home.root / "letter.txt").exists()
    _, (asked_why,) = day.say("why", "Why not?")
    assert "rejected: Not to Weber." in [m.content for m in asked_why.messages if m.role == "tool"][-1]

    # The context limit: a long note comes in part, what is told in short keeps what failed apart, and no call stands alone.
    told, asks = day.say("manual", "Read the manual.")
    (page,) = results(asks[-1])
    assert (
        page.content.startswith("# Manual") and len(page.content) < len(MANUAL) / 2 and told.said.startswith("It is about valves.")
    )
    runs = day.stage.core.runs
    until(lambda: runs.record.compaction(day.thread, runs.get(day.thread).head) is not None)  # it is made behind the answer
    told, asks = day.say("left", "What is left to do?")
    assert [line.split(" (")[0] for line in results(asks[-1])[0].content.splitlines()] == [
        f"{n}. {name}" for n, name in reversed(list(enumerate(STEPS, 1)))
    ]
    assert told.said == "All five are open."
    short = next(message.content for message in asks[-1].messages if "(What was said before, in short:" in message.content)
    assert '- did: create_task {"name": "Order the pump"}\n' in short and '- did not (not_found): use {"tool": "add_task"' in short
    assert '- did not (rejected): use {"tool": "set"' in short and "[it was stopped here]" in short
    for ask in day.asks:
        calls = [call.id for message in ask.messages for call in message.tool_calls]
        assert [message.tool_call_id for message in ask.messages if message.role == "tool"] == calls
        passages = re.findall(r"^- (.{20,}) \[box://", as_text(ask), re.MULTILINE)
        assert len(passages) == len(set(passages))
