"""What a prompt asks for in so many words, and what it does not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_agent import PlayedModel, PlayedTools, Quiet

from appliance.agent.agent import CHAT, Agent, Limits, Role, Work
from appliance.clock import CancelToken
from appliance.prompt.intents import Cue, narrowed, plain
from appliance.prompt.packet import Packets
from appliance.records import Event, Finish, LoopEnded, Message, Outcome, Route, Step, ToolCall, ToolSpec


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Add a task to water the roses.", "water the roses"),
        ("add a task: call the plumber on Monday", "call the plumber on Monday"),
        ("Please create a new task to send Bob the invoice!", "send Bob the invoice"),
        ("Can you please add a to-do for the bread?", "the bread"),
        ("Owl, put a task on my list: 'feed the cat'", "feed the cat"),
        ("todo: buy milk", "buy milk"),
        ("NEW TASK: buy milk", "buy milk"),
        ("add another todo item called paint the fence", "paint the fence"),
    ],
)
def test_a_task_is_asked_for(prompt: str, name: str) -> None:
    assert plain(prompt) == Cue("create_task", {"name": name})


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Remember that Bob likes tea.", "Bob likes tea."),
        ("please remember: the key is behind the barn", "the key is behind the barn"),
        ("Don't forget that the shop closes at six", "the shop closes at six"),
    ],
)
def test_something_is_to_be_kept(prompt: str, text: str) -> None:
    assert plain(prompt) == Cue("remember", {"text": text})


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("remind me to call mom tomorrow at noon.", "remind me to call mom tomorrow at noon"),
        ("Could you remind me every Monday at 9 to put the bins out?", "remind me every Monday at 9 to put the bins out"),
        ("In 20 minutes, remind me to stretch", "In 20 minutes, remind me to stretch"),
        ("Wake me at 6:30.", "Wake me at 6:30"),
        ("Please wake me up in 20 minutes", "wake me up in 20 minutes"),
        ("Can you wake me tomorrow at 7?", "wake me tomorrow at 7"),
        ("tell me to leave at 5pm", "tell me to leave at 5pm"),
        ("Could you tell me in 5 minutes to turn the roast?", "tell me in 5 minutes to turn the roast"),
        ("ping me in 10 minutes", "ping me in 10 minutes"),
        ("Set a timer for 10 minutes!", "Set a timer for 10 minutes"),
        ("set an alarm for 7am", "set an alarm for 7am"),
    ],
)
def test_a_reminder_is_asked_for(prompt: str, text: str) -> None:
    assert plain(prompt) == Cue("remind", {"text": text})


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "remind me of the milk",
        "Remind me what we said at noon",
        "What reminds me of tomorrow?",
        "Tell me about the meeting on Friday",
        "Tell me what to do tomorrow",
        "tell me a joke",
        "tell me to whom the letter goes",
        "In which year was the first alarm set?",
        "wake me when the oven is done",
        "set a good example",
        "How do I add a task to the list?",
        "What tasks are there?",
        "Did you add a task to water the roses?",
        "The manual says: add a task to the list",
        "Add two numbers",
        "Add a task",
        "add a task manager to the plan",
        "Do you remember that Bob likes tea?",
        "Remember that Bob likes tea. What does Ada like?",
        "Remember that Bob likes tea.\nWrite him a letter.",
        "remember me",
        "Task force: who is in it?",
    ],
)
def test_anything_else_is_left_to_the_model(prompt: str) -> None:
    assert plain(prompt) is None


def test_a_long_request_has_a_short_name_and_is_whole_in_the_description() -> None:
    text = "water the roses " * 20
    found = plain(f"Add a task to {text}\nand the tulips.")
    assert found is not None and len(found.arguments["name"]) <= 100 and found.arguments["name"].endswith(" …")
    assert found.arguments["description"] == f"{text}\nand the tulips."
    one = plain(f"todo: {'x' * 300}")
    assert one is not None and one.arguments["name"] == "x" * 100 and one.arguments["description"] == "x" * 300


def test_a_model_is_held_to_the_persons_own_words() -> None:
    spec = ToolSpec("create_task", "Have work done.", {"type": "object", "properties": {"name": {}, "priority": {}}})
    made = narrowed(spec, {"name": "water the roses"})
    assert made.schema["properties"] == {"name": {"const": "water the roses"}} and made.schema["required"] == ["name"]
    assert (made.name, made.description) == (spec.name, spec.description)


# -- a loop that is held to it --------------------------------------------------------------------------

SMALL = Route("local", "llama", "tiny", 8192, "grammar")
CALL = Finish("tool_calls", (ToolCall("c", "create_task", {"name": "water the roses"}),))


def asked(
    prompt: str, *answers: Any, route: Route = SMALL, act: Callable[[ToolCall], Outcome] | None = None, **work: Any
) -> tuple[list[Step], PlayedModel]:
    said: Any = Quiet(Message("user", prompt))
    tools: Any = PlayedTools(
        act or (lambda call: Outcome(200, "ok", "Added task 1: water the roses")), names=("create_task", "look")
    )
    model = PlayedModel(list(answers))
    limits = Limits(is_small=lambda route: route.model == "tiny")
    mind = Agent(model, tools, Packets(lambda: (), said, said), said, limits)
    return list(mind.loop("run", (route,), CancelToken(), **work)), model


def test_a_small_model_is_held_to_the_call_and_what_the_tool_says_is_the_answer() -> None:
    steps, model = asked("Add a task to water the roses.", [CALL], ["never said"])
    ((_, ask),) = model.asked
    assert ask.must_call and [tool.name for tool in ask.tools] == ["create_task"]
    assert ask.tools[0].schema["properties"] == {"name": {"const": "water the roses"}}
    assert steps[-1] == LoopEnded(200, "ok", "Added task 1: water the roses")
    assert [s.content for s in steps if isinstance(s, Event) and s.role == "assistant" and s.kind == "message"] == [
        "Added task 1: water the roses"
    ]


def test_what_it_is_held_to_changes_no_byte_of_its_prompt() -> None:
    _, model = asked("Add a task to water the roses.", [CALL])
    _, free = asked("Add a task to water the roses.", ["Well."], route=replace(SMALL, model="large"))
    assert model.asked[0][1].system == free.asked[0][1].system and not free.asked[0][1].must_call


@pytest.mark.parametrize(
    ("prompt", "route", "role"),
    [
        ("Where is the owl?", SMALL, CHAT),
        ("Add a task to water the roses.", replace(SMALL, model="large"), CHAT),
        ("Add a task to water the roses.", replace(SMALL, dialect="native"), CHAT),
        ("Add a task to water the roses.", SMALL, Role("worker")),
        ("Remember that Bob likes tea.", SMALL, CHAT),  # there is no such tool here
    ],
)
def test_anybody_else_is_free(prompt: str, route: Route, role: Role) -> None:
    _, model = asked(prompt, ["Well."], route=route, role=role)
    assert not model.asked[0][1].must_call and len(model.asked[0][1].tools) == 2


def test_a_call_that_failed_is_told_to_the_model_which_is_free_then() -> None:
    steps, model = asked("todo: buy milk", [CALL], ["It did not work."], act=lambda call: Outcome(409, "conflict", "no room"))
    assert [ask.must_call for _, ask in model.asked] == [True, False] and steps[-1] == LoopEnded(200, "ok")


def test_a_loop_that_goes_on_is_not_held_again() -> None:
    _, model = asked("todo: buy milk", ["Well."], work=Work(turns=1, turn=1))
    assert not model.asked[0][1].must_call
