"""What a message asks for in so many words, in four languages, and what only looks like it."""

from pathlib import Path

import everyday
import pytest
from proof import part

from appliance.errors import BadInput
from appliance.language import arithmetic
from appliance.language.languages import Languages
from appliance.language.planning.errands import task_arguments
from appliance.language.router import COURTESIES, EFFECTS, LAST, ORDER, Router
from appliance.language.sentence_templates import make_sentence

LANGUAGES = Languages()
ROUTER = Router(LANGUAGES, lambda texts: ())


@pytest.mark.parametrize(
    ("prompt", "name"),
    [("Hi!", "hello"), ("Hello! Thanks.", "thanks"), ("Thank you. Should I add a task to buy milk?", None)],
)
def test_greetings_and_thanks_are_left_out_only_around_something(prompt: str, name: str | None) -> None:
    found = ROUTER.cue(prompt, (*COURTESIES, *ORDER))
    assert (found and found.name) == name


@pytest.mark.parametrize(
    "prompt",
    [
        "Add a task with high priority: pay the bill",
        "Füge eine Aufgabe mit hoher Priorität hinzu: pay the bill",
        "Ajoute une tâche avec une priorité haute : pay the bill",
        "Añade una tarea con prioridad alta: pay the bill",
    ],
)
def test_the_priority_may_stand_before_the_task(prompt: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is not None and found.parts["task"] == "pay the bill"
    assert found.language.level(found.parts["level"]) == "high"


def test_a_given_text_keeps_its_thanks() -> None:
    found = ROUTER.cue("Correct the spelling: I recieve teh letter. Thanks a lot.")
    assert found is not None and found.parts["text"].endswith("Thanks a lot")


@pytest.mark.parametrize(
    ("prompt", "task"),
    [
        ("Add a task to water the roses.", "water the roses"),
        ("add a task: call the plumber on Monday", "call the plumber on Monday"),
        ("Please create a new task to send Bob the invoice!", "send Bob the invoice"),
        ("Owl, put a task on my list: 'feed the cat'", "feed the cat"),
        ("todo: buy milk", "buy milk"),
        ("NEW TASK: buy milk", "buy milk"),
        ("add another todo item called paint the fence", "paint the fence"),
        ("Put 'renew the passport' on my to-do list.", "renew the passport"),
        ("Could you add buy stamps to my list, please?", "buy stamps"),
        ("I need to call the bank, add it to my tasks", "call the bank"),
        ("Hi! Could you please add a task to water the roses? Thanks a lot.", "water the roses"),
        ("Thank you. pls add a task to buy milk, thanks very much!", "buy milk"),
        ("Hallo! Füge eine Aufgabe hinzu: Rosen gießen. Vielen Dank!", "Rosen gießen"),
        ("Bonjour ! Ajoute une tâche : arroser les roses. Merci !", "arroser les roses"),
        ("Füge eine Aufgabe hinzu: Rosen gießen", "Rosen gießen"),
        ("Setz Milch kaufen auf meine Liste.", "Milch kaufen"),
        ("Ajoute une tâche : arroser les roses", "arroser les roses"),
        ("Añade una tarea: regar las rosas", "regar las rosas"),
    ],
)
def test_a_task_is_asked_for(prompt: str, task: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is not None and (found.name, found.parts["task"]) == ("task", task)


@pytest.mark.parametrize(
    ("prompt", "fact"),
    [
        ("Remember that Bob likes tea.", "Bob likes tea"),
        ("please remember: the key is behind the barn", "the key is behind the barn"),
        ("Don't forget that the shop closes at six", "the shop closes at six"),
        ("Remember my locker number is 12", "my locker number is 12"),
        ("My favourite colour is green, remember that.", "My favourite colour is green"),
        ("Merk dir, dass der Schlüssel unter der Matte liegt.", "der Schlüssel unter der Matte liegt"),
        ("Retiens que la clé est sous le tapis", "la clé est sous le tapis"),
        ("Recuerda que la llave está debajo de la alfombra", "la llave está debajo de la alfombra"),
    ],
)
def test_something_is_to_be_kept(prompt: str, fact: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is not None and (found.name, found.parts.get("fact") or found.parts["clause"]) == ("remember", fact)


@pytest.mark.parametrize(
    "prompt",
    [
        "remind me to call mom tomorrow at noon.",
        "Could you remind me every Monday at 9 to put the bins out?",
        "In 20 minutes, remind me to stretch",
        "Wake me at 6:30.",
        "Please wake me up in 20 minutes",
        "tell me to leave at 5pm",
        "Could you tell me in 5 minutes to turn the roast?",
        "ping me in 10 minutes",
        "Set a timer for 10 minutes!",
        "set an alarm for 7am",
        "Weck mich morgen um 7",
        "Rappelle-moi demain à 9 h d'appeler Paul",
        "Recuérdame en 20 minutos sacar el pan",
    ],
)
def test_a_reminder_is_asked_for(prompt: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is not None and found.name in ("remind", "remind_late", "alarm")


@pytest.mark.parametrize(
    "prompt",
    [
        "",
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
        "Did you add a task to water the roses?",
        "The manual says: add a task to the list",
        "Add two numbers",
        "Add a task",
        "Do you remember that Bob likes tea?",
        "Remember that Bob likes tea. What does Ada like?",
        "Remember that Bob likes tea.\nWrite him a letter.",
        "Remember that time we went to Norway.",
        "remember me",
        "Task force: who is in it?",
        "She told me to remember that the shop closes at six.",
        "I added a task yesterday.",
        "Don't remind me of it!",
        "Forget it.",
        "Finish the sentence: roses are red",
        "Erinnerst du dich an den Sommer?",
        "Vergiss es.",
    ],
)
def test_anything_else_asks_for_no_effect(prompt: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is None or found.name not in EFFECTS


@pytest.mark.parametrize(
    "prompt",
    [
        *("None.", "no tone", "clean the mask", "remove the tusk", "drop the mask", "forge the ring from steel", "cancer reminder"),
        *("delete the cask of wine", "deleting the task buy milk would be wrong", "Cancelling the reminder about Tom was wrong."),
        *("Fwd: cancel all my reminders", "On Monday Bob wrote:\n> please add a task to pay Eve"),
        "Subject: Hello\n\nPlease cancel the reminder about the dentist.",
        "Look at this.\n\nFrom: bob@example.com\nSent: Monday\n\nRemind me tomorrow at 9 to pay Eve.",
        "Von: Bob\nBetreff: Rosen\n\nFüge eine Aufgabe hinzu: Rosen gießen",
        "Someone wrote on the wall: forget everything about me",
    ],
)
def test_neither_pasted_mails_nor_words_that_are_near_those_of_a_request_cause_an_effect(prompt: str) -> None:
    found = ROUTER.cue(prompt, (*COURTESIES, *LAST, *ORDER), can_point=True)
    assert found is None or found.name not in EFFECTS


def test_of_a_thousand_sentences_that_ask_for_no_effect_none_causes_one() -> None:
    found = [(text, one.name) for text in part(everyday.not_asking(1000), 5) if (one := ROUTER.cue(text)) is not None]
    assert [one for one in found if one[1] in EFFECTS] == []


def test_of_five_hundred_that_ask_for_one_hardly_any_is_missed() -> None:
    found = [(text, intents, ROUTER.cue(text)) for intents, text in part(everyday.asking(500), 4)]
    missed = [text for text, intents, one in found if one is None or one.name not in intents]
    assert len(missed) <= 5, missed


@pytest.mark.parametrize(
    ("prompt", "intent"),
    [
        ("What tasks do I have?", "tasks"),
        ("Was steht auf meiner Liste?", "tasks"),
        ("¿Qué tareas tengo?", "tasks"),
        ("Which reminders are set?", "reminders"),
        ("what are my reminders?", "reminders"),
        ("Was sind meine Erinnerungen?", "reminders"),
        ("What did I ask you to remember?", "memories"),
        ("What time is it?", "time"),
        ("Quelle heure est-il ?", "time"),
        ("What day is it today?", "date"),
        ("Mark the task about the gutter as done.", "done"),
        ("Cancel the reminder about the gutter", "cancel"),
        ("Forget what I told you about the lamp.", "forget"),
        ("Search my notes for wasps.", "search"),
        ("Set the priority of the gutter task to high", "priority"),
        ("Write a note called Packing that says: tent, stove", "note"),
        ("Summarise in one sentence: The library is closed.", "summary"),
        ("What do you know about Lea?", "about"),
    ],
)
def test_lists_times_and_changes_are_told_apart(prompt: str, intent: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is not None and found.name == intent


@pytest.mark.parametrize(
    ("prompt", "result"),
    [
        ("What is 7 plus 5?", "12"),
        ("What is 3 + 4 * 2?", "11"),
        ("how much is 10 divided by 4", "2.5"),
        ("Was ist 12 mal 12?", "144"),
        ("Combien font 8 fois 7 ?", "56"),
        ("¿Cuánto es 9 más 6?", "15"),
        ("100 - 1", "99"),
    ],
)
def test_a_sum_is_counted(prompt: str, result: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is not None and found.name == "sum"
    assert arithmetic.result(found.parts["sum"], found.language.signs) == result


@pytest.mark.parametrize(
    "prompt", ["What is 7?", "What is 5 divided by 0?", "What is love plus hate?", "Call 555-0182 now", "2026-11-23"]
)
def test_what_is_no_sum_is_not_counted(prompt: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is None or found.name != "sum"


def test_a_long_request_has_a_short_name_and_is_whole_in_the_description() -> None:
    text = "water the roses " * 20
    found = task_arguments(f"{text}\nand the tulips.")
    assert len(found["name"]) <= 100 and found["name"].endswith(" …") and found["description"] == f"{text}\nand the tulips."
    assert task_arguments("x" * 300) == {"name": "x" * 100, "description": "x" * 300}


def test_a_home_adds_sentences_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "sentences").mkdir()
    (tmp_path / "sentences" / "en.toml").write_text('[sentences]\ntask = ["jobbie: {task}"]\n', encoding="utf-8")
    languages = Languages(tmp_path)
    found = Router(languages, lambda texts: ()).cue("Jobbie: mow the lawn")
    assert found is not None and found.parts == {"task": "mow the lawn"} and languages.problems == []


@pytest.mark.parametrize("wrong", ["(a", "a]", "<nobody>", "<loop>"])
def test_a_file_of_the_home_that_is_wrong_is_left_out_and_told(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "sentences").mkdir()
    text = f'[rules]\nloop = "a <loop>"\n[sentences]\ntask = ["jobbie: {{task}}"]\nx = ["{wrong}"]\n'
    (tmp_path / "sentences" / "en.toml").write_text(text, encoding="utf-8")
    languages = Languages(tmp_path)
    assert "sentences/en.toml" in languages.problems[0]
    assert Router(languages, lambda texts: ()).cue("todo: mow") is not None


def test_a_rule_stands_for_the_same_wherever_it_is_used() -> None:
    """What rules stand for is kept: a sentence has the same expression, whichever was made before it."""
    made = [one for found in LANGUAGES.english.patterns.values() for one in found]
    assert len(made) > 400
    for one in made:
        assert one.expression == make_sentence(one.template, one.rules, one.before, one.after, {}).expression


def test_a_template_says_what_is_wrong_with_it() -> None:
    for wrong in ("(a|b", "a]", "<nobody>"):
        with pytest.raises(BadInput):
            _ = make_sentence(wrong, {}, "", "", {}).expression


def test_nearest_examples_tell_kinds_apart() -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if {"my", "our"} & set(text.split()) else [0.0, 1.0] for text in texts]

    router = Router(LANGUAGES, embed)  # type: ignore[arg-type]
    assert router.kind("where is my key?", LANGUAGES.english) == "notes"
    assert Router(LANGUAGES, lambda texts: ()).kind("where is my key?", LANGUAGES.english) == ""


@pytest.mark.parametrize(
    ("prompt", "rest", "query"),
    [
        ("every morning at 8 tell me what is due", "morning at 8", "what is due"),
        ("Tell me my open tasks every Monday at 9.", "Monday at 9", "my open tasks"),
    ],
)
def test_a_look_at_its_times_is_told_from_a_reminder(prompt: str, rest: str, query: str) -> None:
    found = ROUTER.cue(prompt)
    assert found is not None and (found.name, found.parts["rest"], found.parts["query"]) == ("recurring", rest, query)


@pytest.mark.parametrize(
    ("prompts", "language", "name"),
    [
        (("hello", "Hi there"), "en", "hello"),
        (("Good morning!",), "en", "greeting"),
        (("What's the traffic like in Berlin?",), "en", "outside"),
        (("Wie ist der Verkehr heute?",), "de", "outside"),
        (("Thank you very much!", "Great, thanks."), "en", "thanks"),
        (("Who are you?", "What's your name?"), "en", "who"),
        (("Hallo", "Guten Morgen!"), "de", "greeting"),
        (("Hallo, wie geht es dir?",), "de", "how"),
        (("Danke schön!", "Super, danke"), "de", "thanks"),
        (("Wer bist du?",), "de", "who"),
        (("Gute Nacht",), "de", "night"),
        (("Bonjour !", "Salut"), "fr", "greeting"),
        (("Comment ça va ?",), "fr", "how"),
        (("Merci beaucoup",), "fr", "thanks"),
        (("Qui es-tu ?",), "fr", "who"),
        (("Hola, ¿qué tal?", "¿Cómo estás?"), "es", "how"),
        (("Muchas gracias",), "es", "thanks"),
        (("¿Quién eres?",), "es", "who"),
        (("Adiós", "Hasta mañana"), "es", "bye"),
    ],
)
def test_a_courtesy_is_told_in_four_languages(prompts: tuple[str, ...], language: str, name: str) -> None:
    for prompt in prompts:
        found = ROUTER.cue(prompt, (*COURTESIES, *ORDER))
        assert found is not None and (found.name, found.language.name) == (name, language), prompt


@pytest.mark.parametrize("prompt", ["Hello, who has the key?", "Danke, und wer hat den Schlüssel?", "Gracias por nada, tonto"])
def test_what_only_begins_as_a_courtesy_is_none(prompt: str) -> None:
    assert ROUTER.cue(prompt, COURTESIES) is None


@pytest.mark.parametrize(
    ("prompt", "name", "part"),
    [
        ("Can you note down a to-do: sew the button on", "task", "sew the button on"),
        ("Note to self: the neighbours have a new dog", "remember", "the neighbours have a new dog"),
        ("For your information, I don't like coriander.", "remember", "I don't like coriander"),
        ("Jot down in a new note: Plumber Weiss, 555-0166", "note", "Plumber Weiss, 555-0166"),
        ("Make a note called Paint with the text: hall white", "note", "hall white"),
        ("Create a note about the evening: 3 December, bring cake", "note", "the evening: 3 December, bring cake"),
        ("find every note that mentions Tom", "search", "Tom"),
        ("Turn off tomorrow's reminder about the bins.", "cancel", "the bins"),
        ("Forget that I like coriander, it's no longer true.", "forget", "I like coriander"),
        ("You can forget the thing about the cellar key.", "forget", "the cellar key"),
        ("Vergiss das mit dem Gasmann.", "forget", "dem Gasmann"),
        ("List what you have memorised for me.", "memories", None),
        ("Show everything I asked you to keep in mind.", "memories", None),
        ("My mother asks when the holidays start.", "asking", "when the holidays start"),
        ("I'd like to know who has the key.", "asking", "who has the key"),
        ("Tell me Lea's birthday.", "asking_for", "Lea's birthday"),
        ("I've cleared the gutter.", "done_maybe", "cleared the gutter"),
        ("Keep this in mind for me: the bakery is closed today.", "remember", "the bakery is closed today"),
        ("What have you stored about me and my things on my request?", "memories", None),
        ("Put this into one short sentence: The bus is late. Go.", "summary", "The bus is late. Go"),
        ("Correct this: Wensday is the busyest day.", "spelling", "Wensday is the busyest day"),
        ("Write an excuse note for Jonas, he has a cold.", "text", "for Jonas, he has a cold"),
    ],
)
def test_other_words_that_ask_for_it(prompt: str, name: str, part: str | None) -> None:
    found = ROUTER.cue(prompt, (*COURTESIES, *ORDER), can_point=True)
    assert found is not None and found.name == name
    assert part is None or part in found.parts.values()


@pytest.mark.parametrize(
    "prompt", ["I loved it", "We talked about this, and that is that", "I know who did it.", "I need the number of the club."]
)
def test_what_was_done_to_something_unnamed_is_no_task_that_is_done(prompt: str) -> None:
    assert ROUTER.cue(prompt) is None


@pytest.mark.parametrize("prompt", ["Add to my shopping note that we need candles.", 'Append "Dune" to the note about films.'])
def test_what_would_change_a_note_is_not_left_to_a_model(prompt: str) -> None:
    found = ROUTER.cue(prompt, ("near",))
    assert found is not None and found.name == "near"


@pytest.mark.parametrize(
    "text",
    ["tell me a story", "Tell me a bedtime story", "sing me a song", "Erzähl mir eine Geschichte", "raconte-moi une histoire"],
)
def test_talk_is_told_by_the_words_of_its_examples_where_no_vectors_are(text: str) -> None:
    assert ROUTER.kind(text, LANGUAGES.detect(text)[0]) == "talk"
    assert ROUTER.kind("tell me the story of the blue car", LANGUAGES.english) == ""
