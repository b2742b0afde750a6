"""Which tasks are a person's own, and what is said when one is written down."""

from typing import Any

import pytest
from test_program_or_model import ask, text_of  # noqa: F401

from appliance.language.languages import Languages
from appliance.language.planning.errands import is_errand, with_hint
from appliance.language.planning.plans import Say
from appliance.language.router import Router
from appliance.records import Outcome

ROUTER = Router(Languages(), lambda texts: ())
HINT = "It waits until a worker runs. To start one: owlbox worker start --persist"


@pytest.mark.parametrize(
    "text", ["call the bank", "water the roses", "oats", "Brot kaufen", "appeler maman", "comprar pan", "book a flight"]
)
def test_a_persons_errand(text: str) -> None:
    assert is_errand(text, ROUTER)


@pytest.mark.parametrize(
    "text",
    [
        *("Collect everything about the garden into a note", "Summarise the note about Lisbon", "write a poem", "who has the key?"),
        *("Research heat pumps", "list my tasks", "Fasse die Notiz über Lissabon zusammen", "a\nb", "x" * 121),
    ],
)
def test_what_the_box_may_do_is_none(text: str) -> None:
    assert not is_errand(text, ROUTER)


def test_it_is_not_said_again_of_one_more() -> None:
    made = Outcome(200, "ok", f"Added task 1: x (medium)\n{HINT}", data={"has_worker": False})
    assert with_hint(Say("On your list: x"), made).text == f"On your list: x\n\n{made.message.splitlines()[-1]}"
    assert with_hint(Say("Added."), Outcome(200, "ok", "Added.", data={"has_worker": True})).text == "Added."


@pytest.mark.parametrize(
    ("text", "has_worker", "said"),
    [
        ("Add a task to call the bank", False, "On your list: x"),
        ("Add a task to call the bank", True, "On your list: x"),
        ("Add a task: collect everything about the garden into a note", False, f"On your list: x\n\n{HINT}"),
    ],
)
def test_that_no_worker_runs_is_said_where_one_would_do_it(ask: Any, text: str, has_worker: bool, said: str) -> None:  # noqa: F811
    message = "Added task 1: x (medium)" + ("" if has_worker else f"\n{HINT}")
    steps, _, _ = ask(text, act=lambda call: Outcome(200, "ok", message, data={"name": "x", "has_worker": has_worker}))
    assert text_of(steps) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("i need to call mum tomorrow at 5", 'Shall I remind you of "call mum" (Tuesday, 24 November 2026, 17:00)? Say yes.'),
        ("I have to get up at 6 tomorrow", 'Shall I remind you of "get up" (Tuesday, 24 November 2026, 06:00)? Say yes.'),
        ("I should paint the fence.", 'Shall I add the task "paint the fence"? Say yes.'),
        ("im out of milk", 'Shall I add the task "buy milk"? Say yes.'),
        ("We have no eggs left", 'Shall I add the task "buy eggs"? Say yes.'),
        ("Die Butter ist alle", "Butter kaufen"),
        ("Ich muss morgen um 9 zum Zahnarzt", "an „zum Zahnarzt“ erinnern (Dienstag, 24. November 2026, 09:00)"),
        ("Je dois appeler le plombier", "appeler le plombier"),
        ("Tengo que comprar pan", "comprar pan"),
    ],
)
def test_what_somebody_has_to_do_is_asked_back(ask: Any, text: str, said: str) -> None:  # noqa: F811
    steps, model, tools = ask(text)
    assert said in text_of(steps) and tools.called == [] and model.asked == []
    _, _, tools = ask(text, text_of(steps), "yes")
    assert [call.name for call in tools.called] == ["remind" if "remind" in text_of(steps) or "9" in text else "create_task"]


@pytest.mark.parametrize(
    "text",
    [
        *("I have to go", "I must say that is nice", "we need to talk", "I need more time", "I have to admit I was wrong"),
        *("What do I need to do?", "I must be dreaming", "I need help", "I had to wait for the bus"),
    ],
)
def test_talk_is_not_asked_back(ask: Any, text: str) -> None:  # noqa: F811
    steps, _, tools = ask(text, answers=[["I see."]])
    assert "Shall I" not in text_of(steps) and all(call.name == "list_tasks" for call in tools.called)


@pytest.mark.parametrize(
    ("answer", "when"),
    [
        ("make it 6:30", "2026-11-24T18:30"),
        ("hm 6:30 rather", "2026-11-24T18:30"),
        ("every tuesday i mean", "0 17 * * 2"),
        ("on wednesday", "2026-11-25T17:00"),
    ],
)
def test_another_time_answers_whether_one_is_to_be_reminded(ask: Any, answer: str, when: str) -> None:  # noqa: F811
    steps, _, _ = ask("i need to call mum tomorrow at 5")
    _, _, tools = ask("i need to call mum tomorrow at 5", text_of(steps), answer)
    [call] = tools.called
    assert call.name == "remind" and call.arguments["text"] == "call mum" and str(call.arguments["when"]).startswith(when)


@pytest.mark.parametrize("answer", ["evening, not morning", "not at that hour! say ten", "it was lovely"])
def test_what_names_no_time_is_not_glued_to_what_was_asked(ask: Any, answer: str) -> None:  # noqa: F811
    steps, _, _ = ask("remind me to call mum")
    steps, _, tools = ask("remind me to call mum", text_of(steps), answer, answers=[["I see."]])
    assert tools.called == [] and f"{answer} to" not in text_of(steps)
