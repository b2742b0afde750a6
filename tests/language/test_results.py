"""What was done is told in the language of the person, with the day in words and without an id."""

from typing import Any

import pytest

from appliance.language.languages import Languages
from appliance.language.planning import results
from appliance.language.planning.plans import Say
from appliance.language.router import Intent
from appliance.records import Outcome, ToolCall

ONCE = {"kind": "once", "spec": "2026-11-30T09:00:00.000+00:00", "zone": "UTC", "condition": "", "next_ms": 1796029200000}
SCHEDULE = {**ONCE, "name": "the bins", "words": "once, on Mon 2026-11-30 09:00"}
WEEKLY = {**SCHEDULE, "kind": "cron", "spec": "0 9 * * 1"}
LANGUAGES = {one.name: one for one in Languages().all}


def told(tool: str, arguments: dict[str, Any], data: Any, language: str, name: str = "") -> str:
    intent = Intent("remind", LANGUAGES[language])
    said = results.told(ToolCall("1", tool, arguments), Outcome(200, "ok", "in the tool's words", data=data), intent, name)
    assert isinstance(said, Say)
    return said.text


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "I will remind you on Monday, 30 November 2026, 09:00 (UTC): the bins"),
        ("de", "Ich erinnere dich am Montag, 30. November 2026, 09:00 (UTC): the bins"),
        ("fr", "Je te le rappellerai le lundi 30 novembre 2026, 09:00 (UTC) : the bins"),
        ("es", "Te lo recordaré el lunes, 30 de noviembre de 2026, 09:00 (UTC): the bins"),
        ("it", "Te lo ricorderò lunedì 30 novembre 2026, 09:00 (UTC): the bins"),
    ],
)
def test_a_reminder(language: str, said: str) -> None:
    assert told("remind", {}, {"schedule": SCHEDULE, "verb": "Reminder"}, language) == said


def test_what_repeats_shows_its_next_times() -> None:
    head, times = told("remind", {}, {"schedule": WEEKLY, "verb": "Reminder"}, "de").split("\n\n")
    assert head == "Ich erinnere dich regelmäßig: the bins"
    assert times.startswith("Die nächsten Male: Montag, ") and times.count("Montag") == results.MOST_TIMES and "09:00" in times


@pytest.mark.parametrize(
    ("tool", "arguments", "data", "name", "said"),
    [
        ("create_task", {}, {"id": 4, "name": "paint the fence"}, "", "On your list: paint the fence"),
        ("finish_task", {"id": 4}, {"id": 4, "name": "paint the fence"}, "", "Done: paint the fence"),
        ("delete_task", {"id": 4}, {"id": 4, "blocking": []}, "paint the fence", "Taken off your list: paint the fence"),
        ("delete_schedule", {"id": "a"}, {"id": "a"}, "the bins", "I will not remind you of that any more: the bins"),
        ("remember", {"text": "The key is here."}, {"path": "memory://notes/key"}, "", "I will remember that: The key is here."),
        ("write_note", {"text": "x"}, {"path": "box://notes/tent.md"}, "", "Written into the note [box://notes/tent.md]."),
        (
            "append_note",
            {"text": "rope\nstove"},
            {"path": "box://notes/tent.md"},
            "",
            "Added to [box://notes/tent.md]: rope; stove",
        ),
        ("message", {}, {"file": "x"}, "", "in the tool's words"),
        ("remind", {}, {"held": "1"}, "", "in the tool's words"),  # it waits for a person's word
        ("remind", {}, None, "", "in the tool's words"),
    ],
)
def test_other_effects(tool: str, arguments: dict[str, Any], data: Any, name: str, said: str) -> None:
    assert told(tool, arguments, data, "en", name) == said
