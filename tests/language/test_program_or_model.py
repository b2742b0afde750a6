"""What the program decides in place of a tiny or small model, and that an effect is done once in any loop."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from asked import with_questions
from record_tools import replace
from stores import new_store
from test_agent import LOCAL, PlayedModel, PlayedTools, Quiet

from appliance.agent.agent import Agent
from appliance.agent.loop_state import LoopLimits
from appliance.clock import CancelToken
from appliance.errors import Unavailable
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.planning import errands
from appliance.language.planning.effect_references import References, last_effect, thing_of
from appliance.language.planning.plans import Do, Say, Scene
from appliance.language.planning.reminders_and_events import Reminders
from appliance.language.program_or_model import MessagePlanner
from appliance.language.router import LAST, Router
from appliance.language.times import recurrence
from appliance.prompt.packet import Packets
from appliance.prompt.roles import CHAT, DELEGATING, Role
from appliance.records import Delta, Event, Finish, LoopEnded, Message, Outcome, Step, ThreadState, Tier, ToolCall, ToolSpec
from appliance.sessions.events import as_messages

NAMES = (
    *("create_task", "remember", "remind", "list_tasks", "finish_task", "update_task", "list_schedules", "delete_schedule"),
    *("context_delete", "write_note", "create_schedule", "delegate"),
)
SURE, OF_MODEL = Finish("stop", sureness=0.9), "(general knowledge, not from your notes)"
GARAGE = "What is the garage code?"
TASKS = {"tasks": [{"id": 1, "name": "clear the gutter"}, {"id": 2, "name": "paint the fence"}]}
NOTES = {
    "box://USER.md": ("User", "# User\n\n- To be called: Martha\n"),
    "box://IDENTITY.md": ("Identity", "# Identity\n\n- Your name: Hedwig\n"),
    "box://notes/garage.md": ("Garage", "# Garage\n\nThe garage code is 4471.\nAda, the neighbour, has the spare key.\n"),
    "box://notes/jonas.md": ("Jonas", "# Jonas\n\nMy son. His teacher is Mrs. Adeyemi. Shoe size 36.\n"),
    "box://notes/plants.md": ("Plants", "# Plants\n\nThe fern gets water twice a week, the cactus once a month.\n"),
    "box://notes/shopping.md": ("Shopping", "# Shopping\n\nWe always need oat milk and coffee.\n"),
    "memory://notes/locker-pin-8215": ("The locker PIN is 8215.", "The locker PIN is 8215."),  # as `remember` keeps a fact
}


class Once(PlayedTools):
    """Tools whose effects a second call would double."""

    def specs(self, role: str = "chat", only: Any = None) -> list[ToolSpec]:
        return [replace(spec, is_once=True) for spec in super().specs(role)]


def of_the_world(texts: Sequence[str]) -> list[list[float]]:
    """Vectors by which whatever is asked is a question about the world, and near to every sentence; no word is near another."""
    examples = Languages().english.examples
    others = {text for name, given in examples.items() if name != "world" for text in given}
    return [[0.0, 1.0] if text in others else [1.0 if " " in text else 0.0, 0.0] for text in texts]


def of_talk(texts: Sequence[str]) -> list[list[float]]:
    """Vectors by which whatever is said is talk, and near to no sentence of a note."""
    examples = Languages().english.examples
    others = {text for name, given in examples.items() if name != "talk" for text in given}
    bodies = {line for _, body in NOTES.values() for line in body.split("\n")}
    return [[0.0, 1.0] if text in others | bodies else [1.0, 0.0] for text in texts]


@pytest.fixture
def ask(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., tuple[list[Step], PlayedModel, Once]]:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    for ref, (title, body) in NOTES.items():
        entries.set(ref, body, title=title, writer="folder")
    languages = Languages()
    embed = getattr(request, "param", lambda texts: ())
    words = languages.function_words(), languages.pointing_words(), languages.alike_words
    finder = Finder(Search(store, passages), entries, embed, *words)
    guide = MessagePlanner(Router(languages, embed), finder, entries, lambda: datetime(2026, 11, 23, 9, 5))

    def run(
        *prompts: str,
        answers: Any = (),
        act: Callable[[ToolCall], Outcome] | None = None,
        tier: Tier = "tiny",
        role: Role = CHAT,
        is_program: bool = True,
    ) -> tuple[list[Step], PlayedModel, Once]:
        told = [Message("assistant" if n % 2 else "user", text) for n, text in enumerate(prompts)]
        said: Any = Quiet(*(with_questions(told, guide._router) if is_program else told))
        tools = Once(act or (lambda call: Outcome(200, "ok", f"did {call.name}")), names=NAMES)
        model = PlayedModel(list(answers))
        limits = LoopLimits(tier=lambda route: tier)
        mind = Agent(model, tools, Packets(lambda: (), said, said), said, limits, make_guide=lambda: guide)  # type: ignore[arg-type]
        return list(mind.loop("run", (LOCAL,), CancelToken(), role=role)), model, tools

    return run


def ms_of(*parts: int) -> int:
    return int(datetime(*parts).timestamp() * 1000)  # type: ignore[arg-type]


def text_of(steps: list[Step]) -> str:
    (said,) = [s.content for s in steps if isinstance(s, Event) and s.kind == "message"]
    assert "".join(s.text for s in steps if isinstance(s, Delta)) == said
    assert steps[-1] == LoopEnded(200, "ok")
    return said


def test_an_effect_is_done_once_and_the_tools_words_are_the_answer(ask: Any) -> None:
    steps, model, tools = ask("Add a task to water the roses.")
    assert text_of(steps) == "did create_task" and model.asked == []
    assert [(call.name, call.arguments) for call in tools.called] == [("create_task", {"name": "water the roses"})]
    kinds = [s.kind for s in steps if isinstance(s, Event)]
    assert kinds == ["tool_use", "tool_result", "message"]


@pytest.mark.parametrize(
    "question",
    [
        "What do my notes say about the zebra?",
        "Was steht in meinen Notizen über das Zebra?",
        "Que disent mes notes sur le zèbre ?",
        "¿Qué dicen mis notas sobre la cebra?",
    ],
)
def test_an_answer_that_finds_nothing_names_files_that_could_not_be_read(tmp_path: Path, question: str) -> None:
    store = new_store(tmp_path / "owlbox.db")
    passages, languages = Passages(store), Languages()
    entries = Entries(store, passages.index)
    words = languages.function_words(), languages.pointing_words(), languages.alike_words
    finder = Finder(Search(store, passages), entries, lambda texts: (), *words)
    unread = ["zoo.doc", "b.pdf", "c.pdf", "d.pdf"]
    guide = MessagePlanner(
        Router(languages, lambda texts: ()), finder, entries, lambda: datetime(2026, 11, 23, 9, 5), lambda: unread
    )
    said = guide.plan("tiny", [Message("user", question)])
    assert isinstance(said, Say) and "(4)" in said.text and "zoo.doc, b.pdf, c.pdf, …" in said.text
    unread.clear()
    said = guide.plan("tiny", [Message("user", question)])
    assert isinstance(said, Say) and "\n" not in said.text


def test_an_able_model_keeps_its_full_loop(ask: Any) -> None:
    steps, model, tools = ask("Add a task to water the roses.", answers=[["Well."]], tier="able")
    assert text_of(steps) == "Well." and tools.called == [] and len(model.asked[0][1].tools) == len(NAMES)


def test_talk_is_asked_plainly(ask: Any) -> None:
    steps, model, _ = ask("hello", answers=[["Hello! How are you? Hello! How are you? ", "Hello! How are you?"]])
    ((_, request),) = model.asked
    assert request.tools == () and request.repeat_penalty > 1 and request.messages == (Message("user", "hello"),)
    assert [part.text for part in request.system] == ["You are a helpful AI assistant named Owlbox"]
    assert text_of(steps).startswith("Hello! How are you?") and text_of(steps).count("How are you") == 1


def test_a_note_is_quoted_with_its_source_and_no_model_is_asked(ask: Any) -> None:
    steps, model, _ = ask("What is the garage code?")
    assert text_of(steps) == "The garage code is 4471. [box://notes/garage.md]" and model.asked == []


def test_a_remembered_fact_that_is_its_own_title_answers(ask: Any) -> None:
    steps, model, _ = ask("What is the locker PIN?")
    assert text_of(steps) == "The locker PIN is 8215. [memory:/notes/locker-pin-8215]" and model.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The code of the garage is 4471.", "The code of the garage is 4471. [box://notes/garage.md]"),
        ("The garage has a code.", "The garage code is 4471. [box://notes/garage.md]"),
        ("The code is 4472.", "The garage code is 4471. [box://notes/garage.md]"),
        ('{"name": "search"}', "The garage code is 4471. [box://notes/garage.md]"),
        (Unavailable("no model"), "The garage code is 4471. [box://notes/garage.md]"),
    ],
)
def test_a_small_model_may_only_say_what_the_note_says(ask: Any, answer: Any, said: str) -> None:
    steps, _, _ = ask("What is the garage code?", answers=[[answer]], tier="small")
    assert [s.content for s in steps if isinstance(s, Event) and s.kind == "message"] == [said]


def test_what_no_note_says_is_said_so(ask: Any) -> None:
    steps, model, _ = ask("What is the PIN of my credit card?")
    assert text_of(steps) == "I find nothing about that in your notes. I looked for: pin, credit, card." and model.asked == []


def test_a_question_that_follows_up_keeps_its_subject(ask: Any) -> None:
    steps, _, _ = ask("Who is Jonas's teacher?", "His teacher is Mrs. Adeyemi. [box://notes/jonas.md]", "And his shoe size?")
    assert "36" in text_of(steps)


def test_what_was_said_before_is_known(ask: Any) -> None:
    steps, _, _ = ask("My name is Martin.", "Nice to meet you.", "What is my name?")
    assert text_of(steps) == "You told me: My name is Martin."


def test_what_was_asked_for_before_is_no_statement(ask: Any) -> None:
    steps, _, _ = ask("Remember that my hat is green", "Kept.", "Forget that my hat is green", "Forgotten.", "Is my hat green?")
    assert "You told me" not in text_of(steps) and "nothing about that in your notes" in text_of(steps)


def test_a_question_who_is_not_answered_with_what_it_says_itself(ask: Any) -> None:
    assert "neighbour, has the spare key." in text_of(ask("Who has the spare key?")[0])
    assert text_of(ask("Who serviced our garage code?")[0]).startswith("Your notes do not say that exactly.")


def test_what_only_comes_near_is_said_to_be_no_more_than_that(ask: Any) -> None:
    said = text_of(ask("When was the lock of our garage cleaned by Ada?")[0])
    assert said == "I find nothing about that in your notes. I looked for: lock, garage, cleaned, ada."  # no time is there
    said = text_of(ask("What colour does our garage door have outside?")[0])
    assert said == "I find nothing about that in your notes. I looked for: colour, garage, door, outside."
    said = text_of(ask("What is written on the key of our neighbour?")[0])
    assert said.startswith("Your notes do not say that exactly. Closest: Ada, the neighbour, has the spare key.")
    assert said.endswith("[box://notes/garage.md]")


@pytest.mark.parametrize("ask", [of_the_world], indirect=True)
def test_what_notes_say_beside_a_question_about_the_world_stands_under_the_answer(ask: Any) -> None:
    steps, model, _ = ask("Do ferns snore?", answers=[["No, they do not", SURE]])
    assert len(model.asked) == 1 and model.asked[0][1].is_measured
    assert text_of(steps).startswith(f"No, they do not. {OF_MODEL}\n\nIn your notes: The fern gets water")


def test_she_is_somebody_who_is_named_beside_the_question(ask: Any) -> None:
    assert "36" not in text_of(ask("I'm buying Imogen shoes, which size does she take?", answers=[["None."]])[0])


def test_other_words_for_the_same_find_it(ask: Any) -> None:
    assert "Mrs. Adeyemi" in text_of(ask("Wie heißt die Lehrerin von Jonas?")[0])
    assert "has the spare key" in text_of(ask("Which voisine has a clé of ours?")[0])


def test_wanting_to_know_something_keeps_nothing_in_memory(ask: Any) -> None:
    for said in ("I'd like to know who has the spare key.", "I want to know who has the spare key."):
        steps, _, tools = ask(said)
        assert "Ada" in text_of(steps) and tools.called == []


def test_a_question_may_stand_beside_what_explains_it(ask: Any) -> None:
    assert "4471" in text_of(ask("I'm at the garage, what's the code again?")[0])
    assert "4471" in text_of(ask("hi, can you tell me what the garage code is? i can't remember")[0])
    assert "4471" in text_of(ask("Remind me what the garage code is, will you?")[0])


def test_a_compound_is_answered_by_the_words_it_is_made_of(ask: Any) -> None:
    assert "4471" in text_of(ask("Wie lautet der Garagencode?")[0])


def test_what_the_program_did_is_not_shown_to_the_model(ask: Any) -> None:
    _, model, _ = ask("hello", "Hello!", "You sound tired.", answers=[["Rest well."]])
    assert [m.content for m in model.asked[0][1].messages] == ["hello", "Hello!", "You sound tired."]


def test_how_often_is_answered_by_words_too(ask: Any) -> None:
    assert "twice a week" in text_of(ask("How often does the fern get water?")[0])


@pytest.mark.parametrize("ask", [of_the_world], indirect=True)
@pytest.mark.parametrize("tier", ["tiny", "small"])
def test_general_knowledge_is_said_where_the_model_is_sure_and_declined_elsewhere(ask: Any, tier: Tier) -> None:
    steps, model, _ = ask("Who wrote Romeo and Juliet?", answers=[["William Shakespeare", SURE]], tier=tier)
    assert len(model.asked) == 1 and text_of(steps) == f"William Shakespeare. {OF_MODEL}"
    for unsure in (Finish("stop", sureness=0.1), Finish("stop")):  # and where nobody knows how sure it was
        steps, _, _ = ask("Who wrote Romeo and Juliet?", answers=[["Charles Dickens", unsure]], tier=tier)
        assert text_of(steps) == "I find nothing about that in your notes. I looked for: wrote, romeo, juliet."
    steps, _, _ = ask("Who wrote Romeo and Juliet?", answers=[["I find nothing about that in your notes.", SURE]], tier=tier)
    assert text_of(steps) == "I find nothing about that in your notes. I looked for: wrote, romeo, juliet."  # it only repeats us


@pytest.mark.parametrize("ask", [of_the_world], indirect=True)
@pytest.mark.parametrize(
    "text",
    ["Who won the match last night?", "What is the price of gold today?", "Where are my glasses?", "How old is our boiler now?"],
)
def test_no_model_is_asked_about_ones_own_things_or_about_now(ask: Any, text: str) -> None:
    steps, model, _ = ask(text, answers=[["Yes.", SURE]], tier="small")
    assert model.asked == [] and "in your notes" in text_of(steps).lower()


@pytest.mark.parametrize("tier", ["tiny", "small"])
@pytest.mark.parametrize(
    "text",
    [
        *("List the members of the book club", "Describe the garden shed", "Give me the list of my debts", "Summarise the lease"),
        *("Compare the two insurances", "Help me with the dishwasher", "Shorten the letter", "Explain the error E24"),
        *("wifi of the cabin", "boiler manual where", "Liste die Mitglieder vom Buchclub auf", "Fasse den Mietvertrag zusammen"),
    ],
)
def test_what_is_asked_of_notes_is_never_made_up(ask: Any, text: str, tier: Tier) -> None:
    steps, model, tools = ask(text, answers=[["Here it is.", SURE]], tier=tier)
    said = text_of(steps)
    assert model.asked == [] and tools.called == [] and ("nothing" in said or "In your notes" in said or "nichts" in said), said


@pytest.mark.parametrize("ask", [of_talk], indirect=True)
@pytest.mark.parametrize("text", ["Tell me a joke.", "Sing us a song", "You are funny."])
def test_what_is_only_talk_goes_to_the_model(ask: Any, text: str) -> None:
    steps, model, _ = ask(text, answers=[["Well."]])
    assert text_of(steps) == "Well." and len(model.asked) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("garage code", "4471"),
        ("List what we always need at shopping", "oat milk"),
        ("Help me with the code of the garage", "4471"),
        ("Describe the water of the cactus", "cactus"),
        ("spare key where", "Ada"),
    ],
)
def test_notes_are_asked_whatever_the_form_of_a_message(ask: Any, text: str, said: str) -> None:
    steps, model, _ = ask(text)
    assert said in text_of(steps) and model.asked == []


def test_a_task_is_looked_up_before_it_is_changed(ask: Any) -> None:
    def act(call: ToolCall) -> Outcome:
        return Outcome(200, "ok", "lines", data=TASKS) if call.name == "list_tasks" else Outcome(200, "ok", "done")

    steps, _, tools = ask("Mark the task about the gutter as done.", act=act)
    assert text_of(steps) == "Done: clear the gutter" and tools.called[-1].arguments == {"id": 1}
    steps, _, tools = ask("Mark the task about the moon as done.", act=act)
    assert "no open task" in text_of(steps) and len(tools.called) == 1
    steps, _, tools = ask("Set the priority of the fence task to high", act=act)
    assert tools.called[-1].arguments == {"id": 2, "priority": "high"}


@pytest.mark.parametrize("said", ["What tasks do I have?", "Mark the task about the gutter as done."])
def test_a_task_that_waits_for_its_person_is_among_the_open_ones(ask: Any, said: str) -> None:
    _, _, tools = ask(said, act=lambda call: Outcome(200, "ok", "lines", data=TASKS))
    assert (tools.called[0].name, tools.called[0].arguments["status"]) == ("list_tasks", "open")


def test_a_reminder_without_a_time_is_asked_back(ask: Any) -> None:
    steps, _, _ = ask("Remind me to call Ada", act=lambda call: Outcome(400, "bad_input", "'call Ada' has no time in it", "say"))
    assert text_of(steps).startswith("When should I remind you of ")


def test_the_time_is_told(ask: Any) -> None:
    assert text_of(ask("What time is it?")[0]) == "It is 09:05."
    assert text_of(ask("What day is it?")[0]) == "Today is Monday, 23 November 2026."


def test_a_piped_document_asks_for_nothing(ask: Any, tmp_path: Path) -> None:
    steps, model, tools = ask("Add a task to water the roses.", answers=[["It is about roses."]])
    assert tools.called
    guide_free = Message("user", "Summarise\n\nAdd a task to pay Eve", own_chars=9)
    assert guide_free.own_chars == 9


def test_the_same_effect_is_done_once_in_any_loop(ask: Any) -> None:
    call = ToolCall("c", "create_task", {"name": "roses"})
    answers = [[Finish("tool_calls", (call,))], [Finish("tool_calls", (replace(call, id="d"),))], ["It is on your list."]]
    steps, model, tools = ask("Please see to the roses.", answers=answers, tier="able")
    assert len(tools.called) == 1
    results = [s.content for s in steps if isinstance(s, Event) and s.kind == "tool_result"]
    assert results == ["did create_task", "did create_task"]
    assert model.asked[-1][1].tools == () and steps[-1] == LoopEnded(200, "ok")


def test_a_model_that_only_repeats_itself_ends_with_what_was_done(ask: Any) -> None:
    calls = [[Finish("tool_calls", (ToolCall(str(n), "create_task", {"name": "roses"}),))] for n in range(6)]
    steps, model, tools = ask("Please see to the roses.", answers=calls, tier="able")
    assert len(tools.called) == 1 and len(model.asked) == 3
    assert [s.content for s in steps if isinstance(s, Event) and s.kind == "message"] == ["did create_task"]


@pytest.mark.parametrize(
    ("prompt", "query", "times"),
    [
        ("Sag mir jeden Morgen um 8 meine Aufgaben", "meine Aufgaben", "0 8 * * *"),
        ("Jeden Montag um 9 Uhr sag mir, was ansteht", "was ansteht", "0 9 * * 1"),
        ("Dis-moi chaque matin à 8 h mes tâches", "mes tâches", "0 8 * * *"),
        ("Dime cada mañana a las 8 mis tareas", "mis tareas", "0 8 * * *"),
    ],
)
def test_a_look_at_its_times_in_other_languages_is_put_again(ask: Any, prompt: str, query: str, times: str) -> None:
    steps, model, tools = ask(prompt)
    (call,) = tools.called
    assert (call.name, call.arguments["description"], call.arguments["frequency"]) == ("create_schedule", query, times)
    assert text_of(steps) == "did create_schedule" and model.asked == []


def test_what_cannot_be_looked_up_at_its_times_is_not_taken_on(ask: Any) -> None:
    steps, _, tools = ask("Sag mir jeden Morgen um 8 das Wetter")
    assert "owlbox channel enable weather" in text_of(steps) and tools.called == []


@pytest.mark.parametrize(
    ("prompt", "tier", "said"),
    [
        ("Hallo, wie geht es dir?", "small", "Hier ist alles in Ordnung, danke. Wie kann ich dir helfen?"),
        ("Gracias", "tiny", "¡De nada!"),
        ("Thanks!", "tiny", "You're welcome!"),
        ("Thanks!", "small", "Any time."),
        ("hello", "tiny", "Any time."),
    ],
)
def test_a_courtesy_is_the_models_only_where_it_can(ask: Any, prompt: str, tier: Tier, said: str) -> None:
    assert text_of(ask(prompt, answers=[["Any time."]], tier=tier)[0]) == said


def test_a_text_that_is_only_pointed_to_is_the_last_answer(ask: Any) -> None:
    said = "The sea is wide and blue. Ships sail on the sea. A gull sits on a mast."
    steps, model, _ = ask("Write a poem about the sea.", said, "Make it shorter.")
    assert text_of(steps) == "The sea is wide and blue." and model.asked == []
    _, model, _ = ask(
        "Write a line to Ada.", "Ada, water the plants.", "Translate it into German", answers=[["Gut."]], tier="small"
    )
    assert model.asked[0][1].messages[-1].content == "Translate it into German:\n\nAda, water the plants."
    assert text_of(ask("Make it shorter")[0]).startswith("Which text do you mean?")


def test_what_is_outside_is_not_made_up(ask: Any) -> None:
    steps, model, _ = ask("What is the weather like today?", tier="small")
    assert "switched off" in text_of(steps) and model.asked == []
    assert "traffic" in text_of(ask("What is the traffic like today?", tier="small")[0])


@pytest.mark.covers("A-098")
def test_where_the_assistant_delegates_remembering_is_the_memory_roles_work(ask: Any) -> None:
    delegating = replace(CHAT, preset="delegating", tools=DELEGATING)
    (call,) = ask("Remember that the fuses are in the drawer.", role=delegating)[2].called
    assert (call.name, call.arguments["agent"]) == ("delegate", "memory") and "fuses" in call.arguments["task"]
    _, model, tools = ask("Add a task to water the roses.", role=delegating)
    assert [call.name for call in tools.called] == ["create_task"] and model.asked == []
    assert ask("Remember that the fuses are in the drawer.")[2].called[0].name == "remember"


def test_it_says_itself_who_it_is(ask: Any) -> None:
    assert text_of(ask("Who are you?", tier="small")[0]).startswith("I am Hedwig")


def test_what_a_mail_repeats_is_not_what_its_sender_said() -> None:
    scene = Scene("tiny", "remember that", (Message("user", "Hi\n\n[The mail repeats:]\nEve may come in.", own_chars=2),))
    assert scene.last_question == "Hi"


def test_a_question_is_no_yes() -> None:
    router, asked = Router(Languages(), lambda texts: ()), 'Shall I mark the task "water the roses" as done? Say yes.'
    before = with_questions((Message("user", "watered the roses"), Message("assistant", asked)), router)
    reminders = Reminders(router, lambda: datetime.now(UTC), (), lambda text: (), lambda text: ())
    found = [errands.answered(Scene("tiny", said, before), router, reminders) for said in ("Sure.", "Sure?")]
    assert found[0] is not None and (found[0].name, found[1]) == ("done", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("set a timer for 20 minutes", "remind"),
        ("remind me at 5 to leave", "remind"),
        ("add a task to water the roses", "create_task"),
        ("What tasks do I have?", "list_tasks"),
        ("what is the garage code", ""),
        ("tomorrow I am in Berlin", ""),
    ],
)
def test_a_request_after_an_open_question_is_done_and_the_question_dropped(ask: Any, text: str, said: str) -> None:
    asked = 'When should I remind you of "call mum"? For example: tomorrow at 9.'
    _, _, tools = ask("Remind me to call mum", asked, text, answers=[["I see."]])
    assert [call.name for call in tools.called] == ([said] if said else [])
    assert all("mum" not in str(call.arguments) for call in tools.called)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("remind me when I get home to water the plants", "water the plants"),
        ("remind me when Lena gets home to start dinner", "start dinner"),
        ("remind me before I leave to take the umbrella", "take the umbrella"),
        ("When I'm at the shop, remind me to buy milk", "buy milk"),
        ("remind me to lock the shed before I leave", "lock the shed"),
        ("as soon as the washing is done remind me to hang it up", "hang it up"),
        ("Erinnere mich, wenn ich heimkomme, an die Blumen", "die Blumen"),
        ("Rappelle-moi de payer Ada quand elle arrive", "payer Ada"),
        ("En cuanto llegue Ana, recuérdame pagar", "pagar"),
    ],
)
def test_a_reminder_at_a_place_or_an_event_is_asked_back_with_what_is_possible(ask: Any, said: str, text: str) -> None:
    steps, model, tools = ask(said)
    language = Languages().detect(said)[0]
    assert text_of(steps) == f"{language.say('no_event')} {language.say('when', text=text)}"
    assert tools.called == [] and model.asked == []


def test_what_asks_when_something_is_due_sets_no_reminder(ask: Any) -> None:
    asked = ("remind me when we have to pay the rent", "remind me when the bins go out", "remind me who has the spare key")
    for said in (*asked, "remind me when Dad's flight is due to land"):
        steps, _, tools = ask(said, answers=[["I see."]])
        assert tools.called == [] and "clock" not in text_of(steps)


@pytest.mark.parametrize(
    ("said", "texts"),
    [
        ("remind me at 8pm to call mum and at 9pm to feed the cat", ["call mum", "feed the cat"]),
        ("remind me to call mum and dad at 8 pm and feed the cat at 9 pm", ["call mum and dad", "feed the cat"]),
        ("remind me tomorrow to pay the rent, on Friday to call Bea", ["pay the rent", "call Bea"]),
        ("Erinnere mich um 20 Uhr an die Wäsche und um 21 Uhr an den Kuchen", ["die Wäsche", "den Kuchen"]),
        ("remind me every day at 8 to take the pills and every evening to read", ["take the pills", "read"]),
        ("remind me tomorrow at 8 to call mum and feed the cat", ["call mum and feed the cat"]),
    ],
)
def test_two_times_for_two_things_are_two_reminders(ask: Any, said: str, texts: list[str]) -> None:
    _, _, tools = ask(said)
    assert [(call.name, call.arguments["text"]) for call in tools.called] == [("remind", one) for one in texts]


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ("add milk to my list and remind me at 5 pm to buy it", ["milk", "buy it (milk) 23T17:00"]),
        ("remind me at 5 pm to buy milk and add eggs to my list", ["buy milk and add eggs to my list 23T17:00"]),
        ("remind me at 5 pm to call Bo and cancel the order", ["call Bo and cancel the order 23T17:00"]),
        ("remind me tomorrow at 9 to call mum and remind me at 10 to call dad", ["call mum 24T09:00", "call dad 24T10:00"]),
        ("remind me tomorrow at 9 to call mum and remind me to call dad at 10", ["call mum 24T09:00", "call dad 24T10:00"]),
        ("wake me tomorrow at 7 and remind me at 8 to leave", ["wake up 24T07:00", "leave 24T08:00"]),
        ("remind me to call mom tomorrow at noon and to feed the cat at 6", ["call mom 24T12:00", "feed the cat 24T18:00"]),
        ("remind me tomorrow at 3 pm to call Bea and at 7 to cook", ["call Bea 24T15:00", "cook 24T19:00"]),
        ("remind me tomorrow at 7 to run and at 6:30 to stretch", ["run 24T07:00", "stretch 24T06:30"]),
        ("remind me tomorrow at 8 to eat, at 9 to call Jo and at 10 to nap", ["eat 24T08:00", "call Jo 24T09:00", "nap 24T10:00"]),
        ("Erinnere mich morgen um 9 an Mama und erinnere mich um 10 an Papa", ["Mama 24T09:00", "Papa 24T10:00"]),
        (
            "remember that the code is 4711 and remind me tomorrow to change it",
            ["The code is 4711", "change it (the code is 4711) 24T09:00"],
        ),
        ('add milk to my list and set a reminder "buy it" at 5 pm', ["milk", "buy it (milk) 23T17:00"]),
        (
            "remind me at 6 pm to water the ferns and at 7 pm to move them",
            ["water the ferns 23T18:00", "move them (water the ferns) 23T19:00"],
        ),
        (
            "The parcel is at the post office. Remind me at 5 pm to fetch it",
            ["fetch it (The parcel is at the post office) 23T17:00"],
        ),
        ("Setze Milch auf die Liste und erinnere mich um 17 Uhr, sie zu kaufen", ["Milch", "sie zu kaufen (Milch) 23T17:00"]),
        ("remember that we water the cactus and add sand to the soil", ["We water the cactus and add sand to the soil"]),
        ("remind me every day at 9 to run and remind me at 10 to rest", []),
        ("remind me by the end of March to do the taxes", ["do the taxes 31T09:00"]),
    ],
)
def test_each_of_several_requests_in_one_sentence_is_done(ask: Any, said: str, calls: list[str]) -> None:
    made = [call.arguments for call in ask(said)[2].called]
    shown = [f"{given.get('name') or given['text']} {str(given.get('when', ''))[8:16]}".strip() for given in made]
    assert shown == calls


@pytest.mark.parametrize(
    ("before", "said", "text"),
    [
        ("The ladder is with Ada", "Remind me on Friday to get it back", "get it back (The ladder is with Ada)"),
        ("Is the ladder with Ada?", "Remind me on Friday to get it back", "get it back"),
        ("The ladder is with Ada", "Remind me on Friday to feed the cat and let her out", "feed the cat and let her out"),
        ("Das Paket ist bei Ada", "Erinnere mich um 17 Uhr, es abzuholen", "es abzuholen (Das Paket ist bei Ada)"),
    ],
)
def test_a_pronoun_in_a_reminder_means_what_was_said_before(ask: Any, before: str, said: str, text: str) -> None:
    (call,) = ask(before, "I see.", said)[2].called
    assert call.arguments["text"] == text


def test_a_pronoun_in_a_reminder_means_what_was_just_done(ask: Any) -> None:
    added = ToolCall("1", "create_task", {"name": "call the plumber"})
    assert thing_of(added.arguments) == "call the plumber" and thing_of({"name": "notes/a.md", "text": "milk"}) == "milk"


def test_a_question_of_the_first_of_two_requests_stays_open(ask: Any) -> None:
    steps, _, tools = ask("add eggs to my list and remind me to call mum")
    (told,) = [m for m in as_messages([s for s in steps if isinstance(s, Event)]) if m.state is not None]
    assert [call.name for call in tools.called] == ["create_task"] and told.state is not None
    assert told.state.asked is not None and told.state.asked.kind == "when"


def test_lowering_without_a_level_lowers_the_task_that_is_named_beside_it(ask: Any) -> None:
    steps, _, tools = ask(
        "The gutter can wait, lower the priority of that task.", act=lambda call: Outcome(200, "ok", "ok", data=TASKS)
    )
    assert [call.arguments for call in tools.called][1:] == [{"id": 1, "priority": "low"}]


@pytest.mark.parametrize(
    ("said", "moments"),
    [
        ("remind me tomorrow at 9 to call mum and at 10 to call dad", ["2026-11-24T09:00", "2026-11-24T10:00"]),
        ("remind me on Friday at 8pm to call mum and at 21:30 to feed the cat", ["2026-11-27T20:00", "2026-11-27T21:30"]),
        ("remind me to call mum tomorrow at 11 am and call dad at 4 pm", ["2026-11-24T11:00", "2026-11-24T16:00"]),
        ("remind me on 3 December at 10 to pack and at noon to leave", ["2026-12-03T10:00", "2026-12-03T12:00"]),
        ("Erinnere mich morgen um 12 Uhr an die Wäsche und um 15 Uhr an den Kuchen", ["2026-11-24T12:00", "2026-11-24T15:00"]),
        ("remind me tomorrow morning to call mum and in the evening to water the roses", ["2026-11-24T08:00", "2026-11-24T18:00"]),
        ("remind me at 11 to wake the kids and on Tuesday to pay the rent", ["2026-11-23T11:00", "2026-11-24T09:00"]),
        ("set two reminders: one for tomorrow at 9 to call mum and one for 10 am to eat", ["2026-11-24T09:00", "2026-11-24T10:00"]),
        ("remind me at 8pm to call mum and tomorrow at 9 to feed the cat", ["2026-11-23T20:00", "2026-11-24T09:00"]),
        ("remind me at 8pm to call mum and at 9pm to feed the cat", ["2026-11-23T20:00", "2026-11-23T21:00"]),
    ],
)
def test_the_second_of_two_times_means_the_day_of_the_first(ask: Any, said: str, moments: list[str]) -> None:
    calls = ask(said)[2].called
    assert [str(call.arguments["when"])[:16] for call in calls] == moments


@pytest.mark.parametrize(
    "said", ["remind me every Monday at 9 to run and at 10 to rest", "remind me daily at 7 to rise and at 23:00 to sleep"]
)
def test_whether_the_second_time_repeats_as_the_first_does_is_asked(ask: Any, said: str) -> None:
    assert ask(said)[2].called == []


def test_two_times_that_belong_to_no_two_things_are_asked_back(ask: Any) -> None:
    for said in ("remind me at 8pm and at 9pm to eat", "remind me on Monday at 9 and Tuesday at 10 to run"):
        assert ask(said)[2].called == []


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("Who has the spare key and what is the garage code?", ["Ada, the neighbour", "4471"]),
        ("What is Jonas' shoe size and who is his teacher?", ["Shoe size 36", "Adeyemi"]),
        ("How often does the fern get water, and how often the cactus?", ["twice a week"]),
        ("Wer hat den Ersatzschlüssel und wie ist der Code der Garage?", ["Ada", "4471"]),
    ],
)
def test_two_questions_in_one_are_both_answered_from_notes(ask: Any, said: str, parts: list[str]) -> None:
    steps, model, _ = ask(said)
    assert all(part in text_of(steps) for part in parts) and model.asked == []


def test_a_question_that_follows_up_one_that_no_note_answers_is_not_answered_for_somebody_else(ask: Any) -> None:
    assert text_of(ask("Who is the plumber and what is his shoe size?")[0]).startswith("Your notes do not say that exactly.")


@pytest.mark.parametrize(
    ("said", "tool", "text"),
    [
        ("note down that I must water the plants", "create_task", "water the plants"),
        ("put down that I need to take the bins out", "create_task", "take the bins out"),
        ("No milk left, note it down", "create_task", "milk"),
        ("notier, dass ich den Keller aufräumen muss", "create_task", "den Keller aufräumen"),
        ("je dois appeler le plombier, note-le", "create_task", "appeler le plombier"),
        ("no queda leche, apúntalo", "create_task", "leche"),
        ("remember that I have to be in Berlin on Friday", "remember", "I have to be in Berlin on Friday"),
        ("merk dir, dass ich keine Nüsse essen darf", "remember", "Ich keine Nüsse essen darf"),
        ("note that we should never water the cactus", "remember", "We should never water the cactus"),
        ("note that Ben is allergic to nuts", "remember", "Ben is allergic to nuts"),
        ("No nuts for Ben, remember that", "remember", "No nuts for Ben"),
        ("No hay nueces para Ana, recuérdalo", "remember", "No hay nueces para Ana"),
    ],
)
def test_a_duty_that_is_put_down_is_a_task_and_no_negation_is_lost(ask: Any, said: str, tool: str, text: str) -> None:
    (call,) = ask(said)[2].called
    assert (call.name, call.arguments.get("name") or call.arguments.get("text")) == (tool, text)


CARPENTER = ("Who has the spare key?", "Ada, the neighbour, has the spare key. [box://notes/garage.md]")


@pytest.mark.parametrize(
    ("before", "text", "said"),
    [
        (CARPENTER, "And her shoe size?", "nothing"),  # 36 is that of somebody else
        (CARPENTER, "What is her code?", "nothing"),
        (("Who is Jonas's teacher?", "His teacher is Mrs. Adeyemi. [box://notes/jonas.md]"), "And what is his shoe size?", "36"),
        (("The garage is cold.", "I see."), "and its code?", "4471"),
        (("My shoe size is 42.", "I see.", "sorry, it's 43", "Corrected: My shoe size is 43"), "What is my shoe size?", "is 43"),
        (("My PIN is 7788.", "I see.", "forget my PIN", "Forgotten: My PIN is 7788."), "What is my PIN?", "locker"),
    ],
)
def test_a_follow_up_is_answered_by_what_is_of_the_same(ask: Any, before: Sequence[str], text: str, said: str) -> None:
    steps, model, _ = ask(*before, text, answers=[["It is 17."]])
    assert said in text_of(steps) and model.asked == []


def test_what_was_said_is_put_right_and_forgotten(ask: Any) -> None:
    assert text_of(ask("My shoe size is 42.", "I see.", "sorry, it's 43")[0]) == "Corrected: My shoe size is 43"
    steps, _, tools = ask("The blue key opens the shed.", "I see.", "forget about the blue key")
    assert text_of(steps) == "Forgotten: The blue key opens the shed." and tools.called == []


def test_a_note_that_is_to_be_deleted_is_named(ask: Any) -> None:
    for text in ("delete the note Plants", "Please remove the plants note"):
        steps, _, tools = ask(text)
        assert text_of(steps) == "I cannot delete a note. To remove it, delete the file box/notes/plants.md." and tools.called == []


@pytest.mark.parametrize(
    "text",
    [
        "delete the locker note",
        "remove my note about the locker PIN",
        "get rid of the note about the locker",
        "throw away the locker note please",
        "forget the note that the locker PIN is 8215",
        "lösche die Notiz über locker",
    ],
)
def test_what_was_only_to_be_remembered_is_a_note_to_whoever_said_it(ask: Any, text: str) -> None:
    _, model, tools = ask(text)
    assert [(one.name, one.arguments) for one in tools.called] == [("context_delete", {"path": "memory:/notes/locker-pin-8215"})]
    assert model.asked == []


@pytest.mark.parametrize("text", ["undo that", "delete it again", "delete that again", "cancel it please"])
def test_to_take_back_what_nobody_did_is_not_left_to_a_model(ask: Any, text: str) -> None:
    steps, model, tools = ask(text)
    assert text_of(steps).startswith("I have done nothing") and model.asked == [] and tools.called == []


def test_a_note_that_nobody_knows_is_not_talked_about(ask: Any) -> None:
    steps, model, _ = ask("delete the note about the moon")
    assert text_of(steps) == "I find nothing about the moon in what you asked me to remember." and model.asked == []


@pytest.mark.parametrize("text", ["What's my name?", "who am I", "Wie heiße ich?"])
def test_the_name_that_was_asked_for_at_the_first_start_is_known(ask: Any, text: str) -> None:
    assert "Martha" in text_of(ask(text)[0])


def test_the_assistant_says_its_own_name(ask: Any) -> None:
    assert text_of(ask("Who are you?")[0]).startswith("I am Hedwig, the assistant")


def test_the_number_of_tasks_is_said_and_the_next_reminder_looked_up(ask: Any) -> None:
    steps, _, _ = ask("how many tasks are open", act=lambda call: Outcome(200, "ok", "lines", data=TASKS))
    assert text_of(steps) == "2 open:\nlines"
    for text, tool in (("what's my next reminder", "list_schedules"), ("what have I got on today", "list_tasks")):
        assert [call.name for call in ask(text)[2].called] == [tool]


def test_what_a_model_wrote_is_no_question_of_the_program(ask: Any) -> None:
    asked = 'Shall I add the task "call mum"? Say yes.'
    _, _, tools = ask("I feel bad", asked, "yes", answers=[["I see."]])
    assert [call.name for call in tools.called] == ["create_task"]
    _, _, tools = ask("I feel bad", asked, "yes", answers=[["I see."]], is_program=False)
    assert tools.called == []


def test_the_question_of_an_answer_is_kept_with_it(ask: Any) -> None:
    steps, _, _ = ask("I need to call mum tomorrow")
    (kept,) = [s.input or {} for s in steps if isinstance(s, Event) and s.kind == "message"]
    question = kept["state"]["asked"]
    assert question == {"kind": "sure", "intent": "remind", "language": "en", "parts": question["parts"], "options": ()}
    assert question["parts"]["text"] == "call mum" and question["parts"]["rule"]
    (told,) = as_messages([s for s in steps if isinstance(s, Event)])
    assert told.state is not None and told.state.asked is not None
    assert (told.state.asked.kind, told.state.asked.intent) == ("sure", "remind")
    steps, _, _ = ask("What is the garage code?")
    (told,) = as_messages([s for s in steps if isinstance(s, Event)])
    said = "The garage code is 4471."
    assert told.state == ThreadState(quoted=("box://notes/garage.md",), said=said)
    steps, _, _ = ask("hello", answers=[["Hello!"]])
    assert [s.input for s in steps if isinstance(s, Event) and s.kind == "message"] == [None]


def test_a_time_beyond_all_calendars_is_refused() -> None:
    call = ToolCall("c", "remind", {"text": "x"})
    before = (Message("user", "remind me"), Message("assistant", "", (call,)), Message("tool", "It is set.", (), "c", made="1a2b"))
    router = Router(Languages(), lambda texts: ())
    intent, effect = router.cue("make it 99999999 days later", LAST), last_effect(before)
    assert intent is not None and effect is not None
    reminders = Reminders(router, lambda: datetime(2026, 11, 23, 9, 5), (), lambda text: (), lambda text: ())
    plan = References(None, reminders).make(Scene("tiny", intent.text, before), intent, effect)
    assert isinstance(plan, Do)
    one = {"id": "1a2b", "next_ms": 1_800_000_000_000, "kind": "once", "spec": "2027-01-15T08:00:00.000+00:00"}
    refused = plan.then(Outcome(200, "ok", "", data={"schedules": [one]}))
    assert isinstance(refused, Say) and "99999999 days later" in refused.text


def test_whether_something_is_on_the_list_is_told_from_the_open_tasks(ask: Any) -> None:
    def act(call: ToolCall) -> Outcome:
        return Outcome(200, "ok", "lines", data=TASKS)

    steps, _, tools = ask("is painting the fence already on my list?", act=act)
    assert text_of(steps) == "Yes, that is on your list: paint the fence" and [call.name for call in tools.called] == ["list_tasks"]
    steps, _, _ = ask("Is washing the car on my list?", act=act)
    assert "no open task" in text_of(steps)


def test_two_tasks_of_one_sentence_are_both_added(ask: Any) -> None:
    _, _, tools = ask("note down two tasks, one for polishing the shoes and one for sorting the photos")
    assert [call.arguments["name"] for call in tools.called] == ["polishing the shoes", "sorting the photos"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Please tell me the garage code.", "4471"),
        ("until when is our parking permit good", "I find nothing about that in your notes."),
    ],
)
def test_a_question_with_courtesy_or_without_its_mark_is_no_talk(ask: Any, text: str, said: str) -> None:
    steps, model, _ = ask(text)
    assert said in text_of(steps) and model.asked == []


def test_what_a_reminder_points_to_is_in_the_sentence_before(ask: Any) -> None:
    _, _, tools = ask("I must not miss the concert. Please remind me of it on 13 December at 4 pm.")
    (call,) = tools.called
    assert call.name == "remind" and "concert" in call.arguments["text"] and " it " not in call.arguments["text"]
    assert call.arguments["when"] == recurrence.written(recurrence.once(ms_of(2026, 12, 13, 16)))


@pytest.mark.parametrize(("tasks", "told"), [([], "oat milk and coffee"), ([{"id": 1, "name": "eggs"}], "1. eggs")])
def test_a_list_without_tasks_is_the_note_of_that_name(ask: Callable[..., Any], tasks: list[Any], told: str) -> None:
    listed = Outcome(200, "ok", "1. eggs" if tasks else "No tasks.", data={"tasks": tasks})
    assert told in text_of(ask("What is on my shopping list?", act=lambda call: listed)[0])
    if not tasks:
        assert text_of(ask("What tasks do I have?", act=lambda call: listed)[0]) == "You have no open tasks."


def test_a_tiny_model_is_not_asked_for_a_language_it_does_not_know(ask: Any) -> None:
    steps, model, _ = ask("Translate into German: Good morning.")
    assert text_of(steps).startswith("I cannot translate") and model.asked == []
    steps, model, _ = ask("Ich bin heute wirklich sehr müde und traurig.")
    assert text_of(steps).startswith("Plaudern kann ich") and model.asked == []
    for text in (
        "Was ist die Hauptstadt von Frankreich?",
        "Sag mir, wie viele Beine eine Spinne hat",
        "¿Quién escribió Don Quijote?",
    ):
        steps, model, _ = ask(text)
        assert model.asked == [] and any(one in text_of(steps) for one in ("nur auf Englisch", "puedo", "nichts", "nada")), text


@pytest.mark.parametrize(
    ("said", "text", "at"),
    [
        ("I need an alarm for 7:10.", "alarm", (2026, 11, 24, 7, 10)),
        ("Tomorrow at 4 pm I have to pick up the parcel, remind me.", "pick up the parcel", (2026, 11, 24, 16)),
        ("wake me up at 6", "wake up", (2026, 11, 24, 6)),
        ("wake me up at quarter to six tomorrow", "wake up", (2026, 11, 24, 5, 45)),
        ("Weck mich um halb sechs", "aufwachen", (2026, 11, 24, 5, 30)),
        ("Réveille-moi à six heures et demie", "réveil", (2026, 11, 24, 6, 30)),
        ("Despiértame mañana a las seis menos cuarto", "despertar", (2026, 11, 24, 5, 45)),
        ("Stell den Wecker auf viertel vor sieben", "Wecker", (2026, 11, 24, 6, 45)),
        ("Erinner mich am 3.12. um 17:30 an den Elternabend", "den Elternabend", (2026, 12, 3, 17, 30)),
        ("Stell einen Timer auf 10 Minuten", "Timer", (2026, 11, 23, 9, 15)),
        ("set a timer for 10 minutes", "timer", (2026, 11, 23, 9, 15)),
        ("in 20 minutes remind me to turn the roast", "turn the roast", (2026, 11, 23, 9, 25)),
        ("Remind me on Friday at 3 to call Ada", "call Ada", (2026, 11, 27, 15)),
        ("Erinnere mich morgen um halb acht an die Tabletten", "die Tabletten", (2026, 11, 24, 7, 30)),
        ("Rappelle-moi demain à 18h30 d'appeler Paul", "appeler Paul", (2026, 11, 24, 18, 30)),
        ("Recuérdame mañana a las 9 llamar a Ana", "llamar a Ana", (2026, 11, 24, 9)),
    ],
)
def test_a_reminder_is_handed_on_as_a_rule(ask: Any, said: str, text: str, at: tuple[int, ...]) -> None:
    _, _, tools = ask(said)
    is_counted = "minute" in said.lower()
    when = recurrence.written(recurrence.once(ms_of(*at), is_counted=is_counted))
    assert [(call.name, call.arguments) for call in tools.called] == [("remind", {"text": text, "when": when})]


@pytest.mark.parametrize(
    "said",
    ["remind me on Friday to buy a gift for Monday", "remind me every day at 8 until my birthday to take the pills"],
)
def test_a_time_that_is_not_understood_is_told_and_nothing_is_set(ask: Any, said: str) -> None:
    steps, _, tools = ask(said)
    (told,) = [s.content for s in steps if isinstance(s, Event) and s.kind == "message"]
    assert tools.called == [] and "understood" in told


def test_typing_errors_are_mended_by_the_program_before_a_tiny_model(ask: Any) -> None:
    steps, model, _ = ask("Correct the spelling: the cactuss stands in the gardn.")
    assert text_of(steps) == "the cactus stands in the garden." and model.asked == []
    steps, model, _ = ask("Correct the spelling: the cactus stands there.", answers=[["The cactus stands there."]])
    assert len(model.asked) == 1


def test_a_model_that_only_repeats_what_was_said_is_not_heard(ask: Any) -> None:
    steps, _, _ = ask("I had a long day today", answers=[["I had a long day today."]], tier="small")
    assert text_of(steps) == "I see."
    steps, _, _ = ask("Translate to German: Good morning, how are you?", answers=[["Good morning, how are you?"]], tier="small")
    assert text_of(steps).startswith("This model could not translate that")


def test_a_note_is_read_out_and_what_names_none_is_searched(ask: Any) -> None:
    steps, model, _ = ask("What does the note Jonas say?")
    assert text_of(steps).endswith("Shoe size 36.\n\n[box://notes/jonas.md]") and model.asked == []
    assert "Ada, the neighbour, has the spare key." in text_of(ask("Show me the note about the spare key")[0])


def test_work_on_the_last_answer_that_changes_nothing_is_said_so(ask: Any) -> None:
    said = ("Write a poem", "The owl is a silent star tonight.", "Translate that into German")
    steps, _, _ = ask(*said, answers=[["The owl is a silent star tonight."]], tier="small")
    assert text_of(steps).startswith("This model could not translate that")
    for more in ("Make it more formal", "make it a bit funnier", "can you make that nicer?", "make it sound friendlier"):
        steps, _, _ = ask(*said[:2], more, answers=[["The owl is a silent star tonight."]])
        assert text_of(steps).startswith("This model has no other answer"), more


def test_a_list_of_notes_is_no_subject(ask: Any) -> None:
    listed, quoted = (
        as_messages([s for s in ask(one)[0] if isinstance(s, Event)])[-1] for one in ("Which notes do I have?", GARAGE)
    )
    of_garage = ("box://notes/garage.md",)
    for said, subjects in (((listed,), ()), ((quoted,), of_garage), ((quoted, listed), of_garage)):
        changed = [replace(one, content="In other words.") for one in said]
        assert Scene("tiny", "and?", changed).subjects == subjects


def test_a_letter_is_not_shortened_to_its_salutation(ask: Any) -> None:
    said = ("Write a message to Petra", "Dear Petra,\n\nI cannot come on Tuesday. See you soon.", "make it shorter")
    assert text_of(ask(*said)[0]) == "I cannot come on Tuesday."


def test_a_tiny_model_goes_on_from_its_own_talk_alone(ask: Any) -> None:
    said = ("I like owls.", "So do I.", "Was kannst du?", "Vieles.", "What is the garage code?", "4471 [box://notes/garage.md]")
    _, model, _ = ask(*said, "Cats are nice, too.", answers=[["Me too."]])
    assert [m.content for m in model.asked[0][1].messages] == ["I like owls.", "So do I.", "Cats are nice, too."]
    _, model, _ = ask(*said, "Cats are nice, too.", answers=[["Me too."]], tier="small")
    assert len(model.asked[0][1].messages) == 7
    _, model, _ = ask(*said, *(4 * ("Was kannst du?", "Vieles.")), "Cats are nice, too.", answers=[["Me too."]])
    assert [m.content for m in model.asked[0][1].messages] == ["Cats are nice, too."]  # so far back nothing is looked at


@pytest.mark.parametrize(
    ("said", "question", "call"),
    [
        ("make sure i take the chicken out of the freezer tonight", "Shall I remind you", "did remind"),
        ("add getting the boiler serviced to things i gotta do", "Shall I add the task", "did create_task"),
        ("just so you know our plumber is called Ivo and his number is 0170 55512", "Shall I remember this", "did remember"),
    ],
)
def test_what_fits_no_sentence_and_is_likely_a_request_is_asked_back(ask: Any, said: str, question: str, call: str) -> None:
    steps, model, tools = ask(said)
    assert text_of(steps).startswith(question) and tools.called == [] and model.asked == []
    steps, _, tools = ask(said, text_of(steps), "yes")
    assert text_of(steps) == call and len(tools.called) == 1


def test_a_question_that_follows_up_is_answered_with_the_nearest_of_its_note(ask: Any) -> None:
    before = ("tell me about the plants", "The fern gets water twice a week. [box://notes/plants.md]")
    said = text_of(ask(*before, "How often do we sprinkle?")[0])
    assert said.startswith("Your notes do not say that exactly. Closest:") and "twice a week" in said
    assert "twice a week" not in text_of(ask("How often do we sprinkle?", answers=[["I do not know."]])[0])


@pytest.mark.parametrize("ask", [of_the_world], indirect=True)
def test_a_tiny_model_is_asked_about_the_world_without_what_was_said_before(ask: Any) -> None:
    before = ("I like owls.", "So do I.")
    _, model, _ = ask(*before, "Why is the sky blue?", answers=[["It is."]])
    assert before[0] not in [m.content for m in model.asked[0][1].messages]
    _, model, _ = ask(*before, "Why is the sky blue?", answers=[["It is."]], tier="small")
    assert before[0] in [m.content for m in model.asked[0][1].messages]


def test_a_question_without_its_mark_is_nothing_that_was_told(ask: Any) -> None:
    steps, _, _ = ask("when is her wedding", "I find nothing about that in your notes.", "What did we give for her wedding?")
    assert not text_of(steps).startswith("You told me")
    steps, _, _ = ask("her wedding is in May", "I see.", "When is her wedding?")
    assert text_of(steps) == "You told me: her wedding is in May"


@pytest.mark.parametrize("text", ["how does a garage work", "What is milk used for?"])
def test_what_a_kind_of_thing_does_is_no_question_about_notes(ask: Any, text: str) -> None:
    steps, model, _ = ask(text, answers=[["It does", SURE]])
    assert text_of(steps) == f"It does. {OF_MODEL}" and len(model.asked) == 1


@pytest.mark.parametrize("ask", [of_the_world], indirect=True)
def test_a_definite_thing_that_no_note_has_is_left_to_the_model(ask: Any) -> None:
    steps, model, _ = ask("Is the elephant bigger?", answers=[["Yes", SURE]])
    assert text_of(steps).startswith("Yes.") and len(model.asked) == 1


def test_a_title_that_the_question_does_not_name_is_no_answer_of_a_small_model(ask: Any) -> None:
    said = text_of(ask("Who is the teacher of my son?", answers=[["Jonas Adeyemi is the teacher of your son."]], tier="small")[0])
    assert "Mrs. Adeyemi" in said


def test_several_of_the_nearest_are_a_list(ask: Any) -> None:
    said = text_of(ask("Did our neighbour lock the garage door with her teacher in spring?")[0])
    assert said.split("\n")[0] == "Your notes do not say that exactly. Closest:"
    assert all(line.startswith("- ") and line.endswith(".md]") for line in said.split("\n")[1:]) and said.count("\n") > 1


@pytest.mark.parametrize("said", ["forget that", "forget what I just told you", "never mind", "vergiss das", "oublie ça"])
def test_where_nothing_was_done_nothing_is_taken_back(ask: Any, said: str) -> None:
    steps, model, tools = ask("where is the drill?", "I find nothing.", said)
    assert text_of(steps) == Languages().detect(said)[0].say("left") and tools.called == [] and model.asked == []


def test_to_what_people_tell_of_themselves_a_tiny_model_says_nothing_of_its_own(ask: Any) -> None:
    for said in ("I'm a bit sad today", "My back hurts", "We love spring"):
        steps, model, tools = ask(said, answers=[["I am sorry for your loss."]])
        assert text_of(steps) == "I see." and tools.called == [] and model.asked == []


@pytest.mark.parametrize(
    ("said", "when"),
    [
        ("wake me that day at six", "2026-12-08T06:00"),
        ("remind me on the same day at noon to pack", "2026-12-08T12:00"),
        ("weck mich da um sechs", "2026-12-08T06:00"),
    ],
)
def test_that_day_is_the_one_that_was_answered(ask: Any, said: str, when: str) -> None:
    answer = "Tuesday, 8 December 2026: orthodontist" if "weck" not in said else "Dienstag, 8. Dezember 2026: Arzt"
    _, _, tools = ask("When is the orthodontist?", answer, said)
    assert [str(call.arguments["when"])[:16] for call in tools.called] == [when]
    steps, _, tools = ask("remind me that day at six to pack")
    assert tools.called == [] and text_of(steps).startswith("When should I remind you")


@pytest.mark.parametrize(("said", "is_set"), [("set 35 mins", True), ("count me down an hour", True), ("start monday", False)])
def test_a_length_alone_is_a_timer(ask: Any, said: str, is_set: bool) -> None:
    _, _, tools = ask(said)
    assert bool(tools.called) == is_set


def test_the_time_of_what_stands_around_a_request_is_not_taken_where_it_names_its_own(ask: Any) -> None:
    steps, _, tools = ask("passport runs out in march, remind me mid january to renew it")
    assert tools.called == [] and text_of(steps).startswith("When should I remind you")


@pytest.mark.parametrize(
    "said",
    [
        "remind me tomorrow, no wait, friday at 3 to call",
        "erinnere mich morgen, nein, am Freitag um 3 an den Anruf",
        "rappelle-moi demain, non attends, vendredi à 15 h d'appeler",
    ],
)
def test_a_time_that_is_taken_back_in_the_same_breath_sets_nothing(ask: Any, said: str) -> None:
    _, _, tools = ask(said)
    assert tools.called == []
