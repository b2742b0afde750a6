"""A remembered fact that is put right: behind the fact itself, or behind an answer that quoted it."""

from typing import Any

import pytest
from test_program_or_model import ask, text_of  # noqa: F401

from appliance.language.languages import Languages
from appliance.language.planning.conversation import corrected
from appliance.language.planning.effect_references import References, last_effect
from appliance.language.planning.plans import Do, Scene
from appliance.language.router import Router
from appliance.records import Message, Outcome, ToolCall

QUOTED = ("What is the locker PIN?", "The locker PIN is 8215. [memory:/notes/locker-pin-8215]")


@pytest.mark.parametrize(
    ("fact", "change", "new"),
    [
        ("The wifi password is Tulip-99.", "Tulip-98", "The wifi password is Tulip-98"),
        ("My sister's birthday is on 4 May", "5 May", "My sister's birthday is on 5 May"),
        ("The spare key is with Ada", "with Bob", "The spare key is with Bob"),
        ("Petra's favourite colour is red", "blue", "Petra's favourite colour is blue"),
        ("Wifi: Tulip", "Rose", "Wifi: Rose"),
        ("The plumber comes on the 9th at 2", "the 10th", "The plumber comes on the 10th at 2"),
        ("The plumber comes on the 9th at 2", "at 3", "The plumber comes on the 9th at 3"),
        ("Der Schlüssel bei Derya liegt", "bei Lena", "Der Schlüssel bei Lena liegt"),
        ("The spare key is with Ada", "Bob", "The spare key is with Bob"),
        ("The plumber comes on the 9th", "the blue one", ""),
        ("Salim likes nuts", "olives", ""),  # nuts may be what he likes, or what he is
        ("The spare key is with Ada", "with Ada", ""),
        ("Short", "much longer than that", ""),
    ],
)
def test_the_end_of_a_fact_is_put_right(fact: str, change: str, new: str) -> None:
    assert corrected(fact, change) == new


@pytest.mark.parametrize(
    "text",
    [
        *(
            "actually it's 8216",
            "no, it's 8216",
            "sorry, I meant 8216",
            "sorry, 8216",
            "nee, 8216",
            "it's 8216 now",
            "Change it to 8216.",
        ),
        *("Nein, es ist 8216", "Es ist jetzt 8216", "En fait c'est 8216", "En realidad es 8216"),
    ],
)
def test_a_quoted_fact_is_kept_anew_and_the_old_one_forgotten(ask: Any, text: str) -> None:  # noqa: F811
    steps, model, tools = ask(*QUOTED, text, act=lambda call: Outcome(200, "ok", "Kept as memory://notes/locker-pin-8216"))
    assert [(call.name, call.arguments) for call in tools.called] == [
        ("remember", {"text": "The locker PIN is 8216"}),
        ("context_delete", {"path": "memory:/notes/locker-pin-8215"}),
    ]
    assert text_of(steps).endswith("The locker PIN is 8216") and model.asked == []


def test_nothing_is_forgotten_when_the_new_fact_was_not_kept(ask: Any) -> None:  # noqa: F811
    steps, _, tools = ask(*QUOTED, "actually it's 8216", act=lambda call: Outcome(403, "permission", "not allowed"))
    assert [call.name for call in tools.called] == ["remember"]


def test_behind_anything_else_it_corrects_nothing(ask: Any) -> None:  # noqa: F811
    for before in ((), ("What is the garage code?", "The garage code is 4471. [box://notes/garage.md]"), ("hello", "Hello!")):
        _, _, tools = ask(*before, "actually it's 8216", answers=[["I see."]])
        assert tools.called == []


ADDED = (
    ToolCall("1", "create_task", {"name": "flour"}),
    ToolCall("2", "create_task", {"name": "eggs"}),
)


def test_one_of_two_things_is_taken_back_by_its_name() -> None:
    entries: Any = None
    calls = (Message("assistant", "", tool_calls=(ADDED[0],)), Message("tool", "x", tool_call_id="1", made="1"))
    calls += (Message("assistant", "", tool_calls=(ADDED[1],)), Message("tool", "x", tool_call_id="2", made="2"))
    scene = Scene("tiny", "no wait, not the eggs", (Message("user", "add flour and eggs to my list"), *calls))
    router = Router(Languages(), lambda texts: ())
    effect = last_effect(scene.before)
    assert effect is not None and [one.arguments["name"] for one in (effect, *effect.before)] == ["eggs", "flour"]
    references = References(entries, entries)
    for text, named in (
        ("no wait, not the eggs", 2),
        ("Nein, doch keine eggs", 2),
        ("hm, not flour after all", 1),
        ("no, not today", 0),
    ):
        intent = router.cue(text, ("cancel_it",), can_point=True)
        assert intent is not None, text
        plan = references.make(scene, intent, effect)
        assert (plan is None) == (named == 0), text
        if isinstance(plan, Do):
            tasks = {"tasks": [{"id": 1, "name": "flour"}, {"id": 2, "name": "eggs"}]}
            gone = plan.then(Outcome(200, "ok", "", data=tasks)) if plan.call.name == "list_tasks" else plan
            assert isinstance(gone, Do) and (gone.call.name, gone.call.arguments) == ("delete_task", {"id": named}), text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("how do you spell necesary", "necessary: n-e-c-e-s-s-a-r-y"),
        ("spell necessary", "necessary: n-e-c-e-s-s-a-r-y"),
        ("How is rhythm spelled?", "rhythm: r-h-y-t-h-m"),
        ("Wie schreibt man Rhythmus?", "Rhythmus: R-h-y-t-h-m-u-s"),
    ],
)
def test_a_word_is_spelled_by_the_program(ask: Any, text: str, said: str) -> None:  # noqa: F811
    steps, model, _ = ask(text)
    assert text_of(steps) == said and model.asked == []
