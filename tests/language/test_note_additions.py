"""What is added to a note or to the list of tasks: several things, pointing words, answers to what is asked back, and undo."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.planning.plans import Do, Plan, Say
from appliance.language.program_or_model import MessagePlanner
from appliance.language.router import Router
from appliance.records import Message, Outcome, ToolCall

NOTES = {
    "box://notes/shopping-list.md": ("Shopping list", "# Shopping list\n\n- oat milk\n"),
    "box://notes/coffee-machine.md": ("Coffee machine", "# Coffee machine\n\nDescaled in October.\n"),
    "box://notes/garden.md": ("Garden", "# Garden\n\nThe tap is behind the shed.\n"),
    "box://notes/garden-shed.md": ("Garden shed", "# Garden shed\n\nThe roof leaks.\n"),
    "box://notes/altos.md": ("Altos", "# Altos\n\n- Brenda\n"),
    "box://notes/liste-de-courses.md": ("Liste de courses", "# Liste de courses\n\n- pâtes\n"),
    "box://notes/cours.md": ("Cours", "# Cours\n\nLundi à 10 h.\n"),
    "box://notes/kaffeemaschine.md": ("Kaffeemaschine", "# Kaffeemaschine\n\nEntkalkt.\n"),
    "box://notes/caldera.md": ("Caldera", "# Caldera\n\nRevisada.\n"),
    "box://GOALS.md": ("GOALS", "# Goals\n"),
}
TASKS = [{"id": 4, "name": "call the dentist for Finn"}, {"id": 5, "name": "call the dentist"}]


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> MessagePlanner:
    store = new_store(Path(tmp_path_factory.mktemp("home")) / "owlbox.db")
    passages = Passages(store)
    entries, languages = Entries(store, passages.index), Languages()
    for ref, (title, body) in NOTES.items():
        entries.set(ref, body, title=title, writer="folder")
    finder = Finder(Search(store, passages), entries, lambda texts: (), languages.function_words(), languages.pointing_words())
    return MessagePlanner(Router(languages, lambda texts: ()), finder, entries, lambda: datetime(2026, 11, 24, 9, 5, tzinfo=UTC))


@pytest.fixture
def talk(guide: MessagePlanner) -> Callable[..., list[Any]]:
    """Says one thing after the other, and gives for each the calls that it led to, or what was said."""

    def run(*said: str) -> list[Any]:
        messages: list[Message] = []
        found: list[Any] = []
        for n, text in enumerate(said):
            messages.append(Message("user", text))
            plan: Plan = guide.plan("tiny", messages)
            calls: list[ToolCall] = []
            while isinstance(plan, Do):
                call = plan.call
                named = f"box://{call.arguments['name']}" if call.name == "append_note" else ""
                made = {"create_task": str(len(messages)), "write_note": "box://notes/garden.md"}.get(call.name, named)
                messages.append(Message("assistant", "", tool_calls=(call,)))
                messages.append(Message("tool", "did it", tool_call_id=call.id, made=made))
                calls.append(call)
                data = {"tasks": TASKS if n < 1 else [*TASKS, *_made(messages)]} if call.name == "list_tasks" else None
                plan = plan.then(Outcome(200, "ok", "did it", data=data))
            answer = plan.text if isinstance(plan, Say) else "<model>"
            messages.append(Message("assistant", answer, state=getattr(plan, "state", None)))
            shown = [(one.name, _shown(one.arguments)) for one in calls if not one.name.startswith("list_")]
            found.append(shown or answer)
        return found

    return run


def _made(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The tasks that the conversation added, under the numbers of the results."""
    found = []
    results = {m.tool_call_id: m.made for m in messages if m.role == "tool"}
    for call in (call for m in messages for call in m.tool_calls if call.name == "create_task"):
        found.append({"id": int(results[call.id]), "name": call.arguments["name"]})
    return found


def _shown(arguments: Any) -> str:
    given = dict(arguments)
    return f"{given['name']}: {given['text']}" if "text" in given and "name" in given else str(given.get("name") or given.get("id"))


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("Add 'buy a new filter' to my note about the coffee machine", "notes/coffee-machine.md: buy a new filter"),
        ("can you add to my note about the coffee machine that it drips", "notes/coffee-machine.md: it drips"),
        ("flour, milk and eggs on the shopping list", "notes/shopping-list.md: flour\nmilk\neggs"),
        ("put 'salt, but the coarse one' on the shopping list", "notes/shopping-list.md: salt, but the coarse one"),
        ("shopping list: butter, some jam", "notes/shopping-list.md: butter\njam"),
        ("put bread and oil on the garden shed note", "notes/garden-shed.md: bread and oil"),
        ("Add Philippa to the altos", "notes/altos.md: Philippa"),
        ("schreib in die notiz zur kaffeemaschine: neuen filter kaufen", "notes/kaffeemaschine.md: neuen filter kaufen"),
        ("Häng an die Kaffeemaschinennotiz an, dass sie tropft", "notes/kaffeemaschine.md: sie tropft"),
        ("ajoute du beurre, des œufs et de la farine à la liste de courses", "notes/liste-de-courses.md: beurre\nœufs\nfarine"),
        ("añade a la nota de la caldera que hace ruido", "notes/caldera.md: hace ruido"),
    ],
)
def test_what_is_named_is_added_to_the_note_that_is_named(talk: Callable[..., list[Any]], text: str, added: str) -> None:
    assert talk(text) == [[("append_note", added)]]


def test_a_note_that_could_be_several_is_asked_back_and_the_answer_adds(talk: Callable[..., list[Any]]) -> None:
    which, added = talk("put 'order seeds' in the machine shed note", "the first one")
    assert which == "Which one do you mean?\n- Coffee machine\n- Garden shed" and added == [
        ("append_note", "notes/coffee-machine.md: order seeds")
    ]


def test_a_note_that_is_not_there_is_offered_and_written_with_its_name_on_yes(talk: Callable[..., list[Any]]) -> None:
    asked, made = talk("Add 'wax' to my note about the skis", "yes please")
    assert asked == 'I find no note called "Skis". Shall I write it, with "wax"? Say yes.'
    assert made[0][0] == "write_note"


@pytest.mark.parametrize(
    "text", ["add salt to the soup", "The garden note is nice.", "milk is on the shopping list", "add my name to the GOALS"]
)
def test_what_names_no_note_or_asks_nothing_adds_nothing(talk: Callable[..., list[Any]], text: str) -> None:
    (said,) = talk(text)
    assert isinstance(said, str)


def test_what_may_be_a_note_is_asked_first(talk: Callable[..., list[Any]]) -> None:
    asked, done = talk("add compost to the garden", "yes")
    assert asked == 'Shall I add "compost" to the note "Garden"? Say yes.'
    assert done == [("append_note", "notes/garden.md: compost")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("We need flour, add it to the list. Milk too.", ["flour", "Milk"]),
        (
            "I must email the vicar, print the parts and book Mr Hill. Put all three on my list.",
            ["email the vicar", "print the parts", "book Mr Hill"],
        ),
        (
            "need wood glue, 220 grit paper and a box of screws. add em to the list",
            ["wood glue", "220 grit paper", "a box of screws"],
        ),
        ("Add a task to buy candles and a task to buy matches.", ["buy candles", "buy matches"]),
        ("Add call Anna, Ben and Carl to my list", ["call Anna, Ben and Carl"]),
        ("Add buy flour and milk to my list", ["buy flour and milk"]),
        ("Wir brauchen Mehl, setz das auf die Liste. Milch auch.", ["Mehl", "Milch"]),
    ],
)
def test_several_tasks_of_one_message_are_several_tasks(talk: Callable[..., list[Any]], text: str, names: list[str]) -> None:
    (calls,) = talk(text)
    assert calls == [("create_task", name) for name in names]


def test_more_goes_where_the_last_went(talk: Callable[..., list[Any]]) -> None:
    first, second, third = talk("put milk on the shopping list", "and eggs", "butter too")
    assert second == [("append_note", "notes/shopping-list.md: eggs")] and third == [
        ("append_note", "notes/shopping-list.md: butter")
    ]
    assert talk("add buy milk to my list", "and butter")[1] == [("create_task", "butter")]
    written = talk("Write a note called Garden that says: dig", "Add that the tap drips.")
    assert written[1] == [("append_note", "notes/garden.md: the tap drips")]


def test_an_undo_takes_back_all_that_the_last_turn_did(talk: Callable[..., list[Any]]) -> None:
    assert talk("put milk and eggs on the shopping list", "oops, undo that")[1] == [
        ("shorten_note", "notes/shopping-list.md: milk\neggs")
    ]
    made, gone = talk("Add a task to buy candles and a task to buy matches.", "undo that")
    assert [name for name, _ in gone] == ["delete_task", "delete_task"] and len({number for _, number in gone}) == 2


def test_both_and_the_second_one_answer_which(talk: Callable[..., list[Any]]) -> None:
    assert talk("the dentist is done", "the second one")[1] == [("finish_task", "5")]
    assert talk("the dentist is done", "both")[1] == [("finish_task", "4"), ("finish_task", "5")]
    assert talk("the dentist is done", "neither, thanks")[1] != [("finish_task", "4")]


def test_a_list_that_is_a_note_is_shown_whole(talk: Callable[..., list[Any]]) -> None:
    (said,) = talk("what's on my shopping list?")
    assert said == "- oat milk\n[box://notes/shopping-list.md]"


def test_a_fact_told_after_one_that_was_kept_is_asked_back(talk: Callable[..., list[Any]]) -> None:
    kept, asked, also = talk("Remember that Mr Pohl has the key", "and his number is 0171 445566", "yes")
    assert asked == 'Shall I remember this: "his number is 0171 445566"? Say yes.' and also[0][0] == "remember"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("got the dentist for Finn", 'Shall I mark the task "call the dentist for Finn" as done? Say yes.'),
        ("Forget about the dentist for Finn, he went already", 'Shall I delete the task "call the dentist for Finn"? Say yes.'),
        ("The dentist for Finn is called.", 'Shall I mark the task "call the dentist for Finn" as done? Say yes.'),
    ],
)
def test_what_is_told_of_a_task_is_asked_back(talk: Callable[..., list[Any]], said: str, asked: str) -> None:
    assert talk(said) == [asked]


@pytest.mark.parametrize("said", ["Brenda is tired", "The kids are excited.", "Forget about it all, I am tired", "I called Brenda"])
def test_what_names_no_task_changes_none(talk: Callable[..., list[Any]], said: str) -> None:
    assert isinstance(talk(said)[0], str)


def test_another_thing_is_done_with_as_the_last(talk: Callable[..., list[Any]]) -> None:
    first, second = talk("delete task 4", "number 5 too")
    assert first == [("delete_task", "4")] and second == [("delete_task", "5")]
