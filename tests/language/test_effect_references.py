"""What points to the last effect, short answers to questions of the program, and claims of a model that did nothing."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.planning.effect_references import last_effect
from appliance.language.planning.plans import Do, ModelTalk, Plan, Say, ask_back
from appliance.language.program_or_model import MessagePlanner
from appliance.language.router import Router
from appliance.language.sentence_stream import ClaimGuard, SentenceStream
from appliance.records import Asked, Event, Message, Outcome, ThreadState, ToolCall
from appliance.sessions.events import as_messages

NINE_MS = int(datetime(2026, 11, 25, 8, 0, tzinfo=UTC).timestamp() * 1000)
SCHEDULE = {
    "id": "ab12cd34",
    "name": "water the cactus",
    "text": "water the cactus",
    "words": "once",
    "next_ms": NINE_MS,
    "kind": "once",
    "spec": "2026-11-25T08:00:00.000+00:00",
    "zone": "UTC",
    "condition": "",
}
TASKS = {"tasks": [{"id": 4, "name": "descale the kettle"}, {"id": 3, "name": "water the roses"}]}
LISTS = {"list_tasks": TASKS, "list_schedules": {"schedules": [SCHEDULE]}}
MADE = {
    "create_task": ({"name": "descale the kettle"}, "4"),
    "remind": ({"text": "remind me tomorrow at 8 to water the cactus"}, "ab12cd34"),
    "write_note": ({"text": "the key"}, "box://notes/spare-key.md"),
    "remember": ({"text": "The cat is called Figaro"}, "memory://notes/cat-called-figaro"),
}


TALK = ("Who wrote Hamlet?", "Shakespeare.")


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> MessagePlanner:
    store = new_store(Path(tmp_path_factory.mktemp("home")) / "owlbox.db")
    passages = Passages(store)
    entries, languages = Entries(store, passages.index), Languages()
    finder = Finder(Search(store, passages), entries, lambda texts: (), languages.function_words(), languages.pointing_words())
    return MessagePlanner(Router(languages, lambda texts: ()), finder, entries, lambda: datetime(2026, 11, 24, 9, 5, tzinfo=UTC))


def after(tool: str, *said: str) -> list[Message]:
    """A conversation in which a tool did something in words that nobody knows, and what the person and the program said since."""
    arguments, thing = MADE[tool]
    call = ToolCall("c1", tool, arguments)
    made = [Message("user", "please"), Message("assistant", "", tool_calls=(call,)), Message("tool", "fait", (), "c1", made=thing)]
    return [*made, Message("assistant", "fait"), *(Message("assistant" if n % 2 else "user", text) for n, text in enumerate(said))]


def calls_of(plan: Plan) -> list[tuple[str, Any]]:
    """The calls that a plan makes, each of which goes well."""
    found = []
    while isinstance(plan, Do):
        found.append((plan.call.name, dict(plan.call.arguments)))
        plan = plan.then(Outcome(200, "ok", "did it", data=LISTS.get(plan.call.name)))
    return [one for one in found if not one[0].startswith("list_")]


@pytest.mark.parametrize(
    ("tool", "said", "call"),
    [
        ("create_task", "cancel that", ("delete_task", {"id": 4})),
        ("create_task", "oh I did that already, mark it done please", ("finish_task", {"id": 4})),
        ("create_task", "make it high priority", ("update_task", {"id": 4, "priority": "high"})),
        ("create_task", "and also buy vinegar", ("create_task", {"name": "buy vinegar"})),
        ("remind", "actually cancel that, thanks", ("delete_schedule", {"id": "ab12cd34"})),
        ("remind", "never mind", ("delete_schedule", {"id": "ab12cd34"})),
        ("remind", "make it 9 instead", ("update_schedule", {"id": "ab12cd34", "frequency": "2026-11-25T09:00:00.000+00:00"})),
        ("remind", "make it an hour later", ("update_schedule", {"id": "ab12cd34", "frequency": "2026-11-25T09:00:00.000+00:00"})),
        ("remind", "better on friday", ("update_schedule", {"id": "ab12cd34", "frequency": "2026-11-27T08:00:00.000+00:00"})),
        ("remind", "every day at 9 please", ("update_schedule", {"id": "ab12cd34", "frequency": "0 9 * * *"})),
        ("remind", "cancel that reminder, I've just done it", ("delete_schedule", {"id": "ab12cd34"})),
        ("remind", "Lösch das wieder.", ("delete_schedule", {"id": "ab12cd34"})),
        ("remember", "no that was wrong, please forget it again", ("context_delete", {"path": "memory:/notes/cat-called-figaro"})),
    ],
)
def test_a_request_that_points_back_changes_what_was_done_last(guide: MessagePlanner, tool: str, said: str, call: Any) -> None:
    assert calls_of(guide.plan("tiny", after(tool, said))) == [call]


def test_nothing_is_taken_back_once_the_talk_went_on(guide: MessagePlanner) -> None:
    assert calls_of(guide.plan("tiny", after("remind", "Who wrote Hamlet?", "Shakespeare.", "never mind"))) == []
    assert calls_of(guide.plan("tiny", after("remind", "Who wrote Hamlet?", "Shakespeare.", "cancel that"))) != []
    talk = after("remind", *["What is iron?", "A metal."] * 4)
    assert last_effect(talk) is None and calls_of(guide.plan("tiny", [*talk, Message("user", "cancel that")])) == []


def test_the_one_reminder_is_cancelled_with_a_reason_though_the_talk_went_on(guide: MessagePlanner) -> None:
    said = "cancel that reminder, I've just spoken to him"
    assert calls_of(guide.plan("tiny", after("remind", *TALK, said))) == [("delete_schedule", {"id": "ab12cd34"})]


def test_a_note_that_is_to_be_taken_back_stays_and_the_answer_names_its_file(guide: MessagePlanner) -> None:
    plan = guide.plan("tiny", after("write_note", "undo that"))
    assert isinstance(plan, Say) and "delete the file box/notes/spare-key.md" in plan.text


@pytest.mark.parametrize(
    ("tool", "said", "calls"),
    [
        ("create_task", ["The ferry is booked. You can tick that off, thanks."], []),
        ("create_task", ["The roses are watered. You can tick that off, thanks."], [("finish_task", {"id": 3})]),
        ("create_task", ["The ferry is full. Cancel that."], [("delete_task", {"id": 4})]),
        ("create_task", [*TALK, "The ferry is full. Cancel that."], []),
        ("remind", [*TALK, "The ferry is full. Cancel that."], []),
        ("remind", [*TALK, "The cactus died. Cancel that."], [("delete_schedule", {"id": "ab12cd34"})]),
    ],
)
def test_what_is_said_around_a_request_tells_whether_the_last_effect_is_meant(
    guide: MessagePlanner, tool: str, said: list[str], calls: list[Any]
) -> None:
    assert calls_of(guide.plan("tiny", after(tool, *said))) == calls


def test_an_effect_that_failed_is_none() -> None:
    call = ToolCall("c1", "remind", {})
    failed = Message("tool", "no", tool_call_id="c1", is_error=True)
    assert last_effect([Message("user", "x"), Message("assistant", "", tool_calls=(call,)), failed]) is None


def answered(guide: MessagePlanner, *said: str) -> Plan:
    """The plan for the last of these messages; in between the program's own answers are given."""
    talk: list[Message] = []
    plan: Plan = Say("")
    for text in said:
        talk.append(Message("user", text))
        plan = guide.plan("tiny", talk)
        is_said = isinstance(plan, Say)
        talk.append(Message("assistant", plan.text if is_said else "…", state=plan.state if is_said else None))  # type: ignore[union-attr]
    return plan


def test_yes_to_a_question_does_it_once_and_no_or_anything_else_drops_it(guide: MessagePlanner) -> None:
    assert answered(guide, "Call the plumber").text.endswith('Shall I add the task "Call the plumber"? Say yes.')  # type: ignore[union-attr]
    assert calls_of(answered(guide, "Call the plumber", "yes please")) == [("create_task", {"name": "Call the plumber"})]
    assert answered(guide, "Call the plumber", "no") == Say("All right, nothing was changed.")
    assert calls_of(answered(guide, "Call the plumber", "yes", "yes")) == []
    assert calls_of(answered(guide, "Call the plumber", "What is iron?", "yes")) == []
    assert calls_of(answered(guide, "yes")) == []


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("mark the second one done", "finish_task"),
        ("the second one is done", "finish_task"),
        ("delete the second task", "delete_task"),
    ],
)
def test_a_place_in_the_list_that_was_shown_names_a_task(guide: MessagePlanner, said: str, call: str) -> None:
    shown = Message("assistant", "In words that nobody knows.", state=ThreadState(listed=("4", "3")))
    talk = [Message("user", "what is on my list?"), shown, Message("user", said)]
    assert calls_of(guide.plan("tiny", talk)) == [(call, {"id": 3})]


def test_a_time_answers_when(guide: MessagePlanner) -> None:
    when = ask_back(Languages().english, "when", text="call mum")
    talk = [Message("user", "Remind me to call mum"), Message("assistant", when.text, state=when.state)]
    assert calls_of(guide.plan("tiny", [*talk, Message("user", "tomorrow at 9")])) == [
        ("remind", {"text": "call mum", "when": "2026-11-25T09:00:00.000+00:00"})
    ]
    assert calls_of(guide.plan("tiny", [*talk, Message("user", "What is iron?")])) == []


def test_what_a_small_model_cannot_do_is_said_so(guide: MessagePlanner) -> None:
    for text, says in (
        ("Fetch https://example.org and say its title", "cannot open web pages"),
        ("turn on the light in the kitchen", "cannot control"),
        ("move my reminder thing around somehow", "I have done nothing"),
    ):
        plan = answered(guide, text)
        assert isinstance(plan, Say) and says in plan.text, text


@pytest.mark.parametrize(
    ("tool", "arguments", "made", "number"),
    [
        ("create_task", {"name": "12"}, "4", 4),
        ("create_task", {"name": "tea"}, "3", 3),
        ("update_task", {"id": 3, "name": "tea"}, "3", 3),
        ("update_task", {"id": "3"}, "", 3),
    ],
)
def test_a_task_is_meant_by_its_number_whatever_another_is_called(
    guide: MessagePlanner, tool: str, arguments: dict[str, Any], made: str, number: int
) -> None:
    call = ToolCall("c1", tool, arguments)
    said = [Message("user", "please"), Message("assistant", "", tool_calls=(call,)), Message("tool", "ok", (), "c1", made=made)]
    plan = guide.plan("tiny", [*said, Message("assistant", "ok"), Message("user", "make it high priority")])
    assert isinstance(plan, Do)
    named = {"tasks": [{"id": 12, "name": "tea"}, {"id": 5, "name": "12"}, {"id": 4, "name": "12"}, {"id": 3, "name": "tea"}]}
    meant = plan.then(Outcome(200, "ok", "", data=named))
    assert isinstance(meant, Do) and dict(meant.call.arguments) == {"id": number, "priority": "high"}


FINE = "A very fine day indeed my friend. HONEST"


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (("Sure! ", "I have added ", "it to your list. ", "Anything else? "), "HONEST"),
        (("I'll remind you ", "tomorrow. "), "HONEST"),
        (("Done!",), "HONEST"),
        (("That is a good idea. ", "I have set a reminder for you. ", "Bye. "), "That is a good idea. HONEST"),
        (("Hello! ", "How are you today? "), "Hello! How are you today?"),
        (("I have a dream. ", "It is a nice one. "), "I have a dream. It is a nice one."),
        (("Ich habe die Aufgabe hinzugefügt. ",), "HONEST"),
        (("Hello! ", "I have added ", "it to your list. "), "Hello! HONEST"),
        (("Hi", ",", " I", " have", " added", " it", "."), "Hi, HONEST"),
        (("Hello", ",", " I", " have", " added", " it", "."), "Hello, HONEST"),
        (("Hello", ", I have", " added", " it", "."), "Hello HONEST"),
        (("Well then my dear friend, ", "I have added it."), "Well then my dear friend, HONEST"),
        (("What", " a", " day", ".", " I", " have", " added", " it", ".", " So", " there", "."), "What a day. HONEST"),
        (("A", " very", " fine", " day", " indeed", " my", " friend", ".", " I", " have", " set", " it", ".", " So", "."), FINE),
    ],
)
def test_no_claim_of_a_model_reaches_a_person(guide: MessagePlanner, pieces: tuple[str, ...], said: str) -> None:
    guard = ClaimGuard(SentenceStream(), guide.claims_effect, "HONEST")
    shown = "".join(guard.feed(piece) for piece in pieces if not guard.is_over) + guard.finish(is_cut=False)
    assert " ".join(shown.split()) == said and shown == guard.said


@pytest.mark.parametrize(
    ("pieces", "first"),
    [
        (("Hello", "!", " How", " can", " I"), "Hello"),
        (("Hallo", ", ", "ich"), "Hallo"),
        (("Hi", "story", " is"), ""),
        (("How", " are", " you"), "How are"),
        (("I", "'m", " sorry", " for", " that"), "I'm sorry for"),
        (("Good", " morning", ",", " Ada"), "Good morning,"),
        (("Sure", ",", " what", " is", " it"), ""),
        (("How", "ever", ",", " I", " did"), ""),
    ],
)
def test_a_greeting_or_a_question_is_passed_on_as_it_comes(guide: MessagePlanner, pieces: tuple[str, ...], first: str) -> None:
    guard = ClaimGuard(SentenceStream(), guide.claims_effect, "HONEST")
    assert next(filter(None, map(guard.feed, pieces)), "").strip() == first


def test_a_near_request_is_checked_for_claims_and_a_text_is_not(guide: MessagePlanner) -> None:
    plan: Callable[[str], Plan] = lambda text: guide.plan("tiny", [Message("user", text)])  # noqa: E731
    near, text = plan("Such a long day and the garden is a mess."), plan("Write a short message to Ada about the garden")
    assert isinstance(near, ModelTalk) and near.may_claim and isinstance(text, ModelTalk) and not text.may_claim


def test_nobody_answers_for_another_person_or_takes_their_effect_back(guide: MessagePlanner) -> None:
    asked = [
        Message("user", "Call the plumber", sender_id="ann"),
        Message("assistant", "Shall I?", state=ThreadState(Asked("sure", "task", "en", {"task": "call the plumber"}))),
    ]
    assert calls_of(guide.plan("tiny", [*asked, Message("user", "yes", sender_id="bob")])) == []
    assert calls_of(guide.plan("tiny", [*asked, Message("user", "yes", sender_id="ann")])) == [
        ("create_task", {"name": "call the plumber"})
    ]
    for sender, calls in (("bob", []), ("ann", [("delete_task", {"id": 4})])):
        done = [replace(m, sender_id="ann") if m.role == "user" else m for m in after("create_task")]
        assert calls_of(guide.plan("tiny", [*done, Message("user", "cancel that", sender_id=sender)])) == calls


def test_nothing_is_removed_on_a_word_that_had_to_be_mended(guide: MessagePlanner) -> None:
    plan = guide.plan("tiny", [Message("user", "cancle the reminder about the cactus")])
    assert isinstance(plan, Say) and plan.text == 'Shall I cancel the reminder about "the cactus"? Say yes.'
    said = [Message("user", "cancle the reminder about the cactus"), Message("assistant", plan.text, state=plan.state)]
    said.append(Message("user", "yes"))
    assert calls_of(guide.plan("tiny", said)) == [("delete_schedule", {"id": "ab12cd34"})]
    assert calls_of(guide.plan("tiny", [Message("user", "pls cancel the reminder about the cactus")])) == [
        ("delete_schedule", {"id": "ab12cd34"})
    ]


@pytest.mark.parametrize("said", ["note that down", "remember that"])
def test_a_summary_of_what_was_said_is_not_taken_for_the_words_of_the_person(guide: MessagePlanner, said: str) -> None:
    summary = Event("r", "compaction", "system", "The person asked about a kettle.")
    answer = Event("r", "message", "assistant", "Is there anything else?")
    prompt = Message("user", said)
    assert calls_of(guide.plan("tiny", [*as_messages([summary, answer]), prompt])) == []
    own = Message("user", "The kettle is green.")
    assert calls_of(guide.plan("tiny", [own, Message("assistant", "I see."), prompt]))[0][0] in ("remember", "write_note")


def test_a_weekday_moves_a_reminder_and_does_not_repeat_it(guide: MessagePlanner) -> None:
    plan = guide.plan("tiny", [*after("remind"), Message("user", "make that wednesday")])
    assert calls_of(plan)[-1] == ("update_schedule", {"id": "ab12cd34", "frequency": "2026-11-25T08:00:00.000+00:00"})


@pytest.mark.parametrize(
    ("data", "made"),
    [
        ({"schedule": {"id": "ab12cd34"}, "verb": "Reminder"}, "ab12cd34"),
        ({"id": 4, "name": "tea"}, "4"),
        ({"path": "memory://notes/cat"}, "memory://notes/cat"),
        ({"tasks": []}, ""),
        (None, ""),
    ],
)
def test_a_result_says_what_was_made_by_its_data(data: Any, made: str) -> None:
    assert Outcome(200, "ok", "in any words", data=data).made == made
    assert Outcome(400, "bad_input", "no", data=data).made == ""


def test_a_time_does_not_say_of_what_one_wants_to_be_reminded(guide: MessagePlanner) -> None:
    asked = ask_back(Languages().english, "of_what", when="every month on the 2nd at 6 pm")
    talk = [Message("user", "remind me"), Message("assistant", asked.text, state=asked.state)]
    assert calls_of(guide.plan("tiny", [*talk, Message("user", "better at 7 pm")])) == []
    made = calls_of(guide.plan("tiny", [*talk, Message("user", "to pay the rent")]))
    assert [name for name, _ in made] == ["remind"] and made[0][1]["text"] == "pay the rent"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("put 'wrap the cups' on my list for the 11th", ["wrap the cups (11th)"]),
        ("put milk and eggs on the shopping list for Friday", ["milk (Friday)", "eggs (Friday)"]),
        ("setz Milch auf die Liste für Freitag", ["Milch (Freitag)"]),
        ("put milk on the shopping list", ["milk"]),
    ],
)
def test_the_day_behind_the_name_of_a_list_is_kept(guide: MessagePlanner, said: str, names: list[str]) -> None:
    made = calls_of(guide.plan("tiny", [Message("user", said)]))
    assert [(name, given["name"]) for name, given in made] == [("create_task", name) for name in names]


def test_what_may_be_in_two_languages_is_in_that_of_the_message_before(guide: MessagePlanner) -> None:
    languages = Languages()
    assert languages.detect("Xanten?")[0].name == "en"
    assert languages.detect("Xanten?", "setz Milch auf die Liste")[0].name == "de"


@pytest.mark.parametrize("said", ["I already have descale the kettle", "descale the kettle hab ich schon"])
def test_what_somebody_has_already_is_done(guide: MessagePlanner, said: str) -> None:
    assert calls_of(guide.plan("tiny", [Message("user", said)])) == [("finish_task", {"id": 4})]


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("scrap the kettle, we bought a new one", ("delete_task", {"id": 4})),
        ("lösch die roses", ("delete_task", {"id": 3})),
        ("push the cactus thing to friday", ("update_schedule", {"id": "ab12cd34", "frequency": "2026-11-27T08:00:00.000+00:00"})),
        ("verschieb den cactus auf 9 Uhr", ("update_schedule", {"id": "ab12cd34", "frequency": "2026-11-25T09:00:00.000+00:00"})),
        ("make the roses urgent", ("update_task", {"id": 3, "priority": "high"})),
        ("drop the mask", None),
        ("delete is a strong word", None),
        ("scrap the water", None),  # which both name
    ],
)
def test_what_has_the_name_of_one_open_task_or_reminder_is_changed(guide: MessagePlanner, said: str, call: Any) -> None:
    assert calls_of(guide.plan("tiny", [Message("user", said)])) == ([call] if call else [])


@pytest.mark.parametrize(
    ("tool", "said", "looked"),
    [
        ("create_task", "what's on it now?", "list_tasks"),
        ("create_task", "was steht drauf?", "list_tasks"),
        ("remind", "what's on it?", "list_schedules"),
    ],
)
def test_the_list_to_which_something_was_just_added_is_shown(guide: MessagePlanner, tool: str, said: str, looked: str) -> None:
    plan = guide.plan("tiny", after(tool, said))
    assert isinstance(plan, Do) and plan.call.name == looked
    plan = guide.plan("tiny", [Message("user", said)])
    assert not isinstance(plan, Do)


@pytest.mark.parametrize("said", ["good job", "great job!", "nice one", "well done"])
def test_praise_is_no_task(guide: MessagePlanner, said: str) -> None:
    before = (Message("user", "tell me a joke"), Message("assistant", "An owl walks into a barn."))
    assert calls_of(guide.plan("tiny", [*before, Message("user", said)])) == []
