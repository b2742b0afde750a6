"""Requests as people type them, and sentences that ask for nothing: which effect each one leads to, if any.

`requests/asking.jsonl` has 400 requests in four languages, with reasons around them, typing errors and things they point to, and
words that what is asked for must hold. `requests/not_asking.txt` has 1,000 sentences that ask for no effect, many of which speak
of reminders, tasks and notes. Both were written without knowledge of the sentences of the language files.
"""

import json
from pathlib import Path

import pytest
from proof import part

from appliance.language import typing_errors
from appliance.language.languages import Languages
from appliance.language.router import COURTESIES, EFFECTS, LAST, ORDER, POINTING, REMINDING, Router
from appliance.language.word_forms import distance

FOLDER = Path(__file__).parent / "requests"
LANGUAGES = Languages()
ROUTER = Router(LANGUAGES, lambda texts: ())
REMINDERS = {*REMINDING, "remind_it", "remind_before", "recurring"}
INTENTS = {
    "task": {"task", "task_it"},
    "remind": REMINDERS,
    "recurring": REMINDERS,
    "remember": {"remember", "remember_it"},
    "note": {"note", "note_it"},
    "done": {"done", "done_it", "done_maybe"},
    "cancel": {"cancel", "cancel_it"},
    "forget": {"forget", "forget_it"},
    "priority": {"priority", "priority_up", "priority_down", "priority_it"},
}
MOST_MISSED = 14  # of 400


def test_no_sentence_that_asks_for_nothing_leads_to_an_effect() -> None:
    said = [line for line in (FOLDER / "not_asking.txt").read_text(encoding="utf-8").splitlines() if line]
    found = [(text, one.name) for text in part(said, 4) if (one := ROUTER.cue(text)) is not None and one.name in EFFECTS]
    assert len(said) == 1000 and found == []


def test_hardly_any_request_is_missed_and_what_it_is_about_is_kept() -> None:
    rows = [json.loads(line) for line in (FOLDER / "asking.jsonl").read_text(encoding="utf-8").splitlines()]
    missed = []
    for row in part(rows, 4):
        found = ROUTER.cue(row["text"])
        said = "" if found is None else " ".join((*found.parts.values(), found.context, found.text)).lower()
        if found is None or found.name not in INTENTS[row["effect"]] or not all(word.lower() in said for word in row["words"]):
            missed.append(row["text"])
    assert len(rows) == 400 and len(missed) <= MOST_MISSED, missed


@pytest.mark.parametrize(
    ("text", "name", "parts", "context"),
    [
        ("I keep forgetting the plumber, can you put that on my list?", "task_it", {}, "I keep forgetting the plumber"),
        ("remnid me tomorrow at 8 to ring Marc", "remind", {"when": "tomorrow at 8 to ring Marc"}, ""),
        ("add a taks to water the rosse", "task", {"task": "water the rosse"}, ""),
        ("The ferry is booked. You can tick that off, thanks.", "done_it", {}, "The ferry is booked."),
        ("It rains. Remind me at 7:30 to take the umbrella.", "remind", {"when": "at 7:30 to take the umbrella"}, "It rains."),
        ("Unser Tor klemmt, setz das bitte auf die Liste.", "task_it", {}, "Unser Tor klemmt"),
    ],
)
def test_a_request_is_read_with_what_is_said_around_it(text: str, name: str, parts: dict[str, str], context: str) -> None:
    found = ROUTER.cue(text)
    assert found is not None and (found.name, dict(found.parts), found.context) == (name, parts, context)


@pytest.mark.parametrize(
    "text",
    [
        "If it rains, remind me at 7:30 to take the umbrella.",
        "She said, remember that the key is with Ada.",
        "Can you tell me who has the key? Ada said to add milk to the list.",
        "cancel that",
        "make it 9 instead",
        "never mind",
        "yes",
        "Translate this: add a task to call mum.",
    ],
)
def test_what_is_conditional_told_or_points_to_nothing_asks_for_no_effect(text: str) -> None:
    found = ROUTER.cue(text)
    assert found is None or found.name not in EFFECTS


def test_two_requests_in_one_message_are_both_found() -> None:
    found = ROUTER.cue("Add a task to buy flour. Remind me tomorrow at 9 to bake.")
    assert found is not None and found.also is not None
    assert [found.name, found.also.name] == ["task", "remind"]
    assert [dict(found.parts), dict(found.also.parts)] == [{"task": "buy flour"}, {"when": "tomorrow at 9 to bake"}]


def test_what_points_back_is_found_where_something_was_done() -> None:
    order = (*LAST, *ORDER)
    said = {"cancel that": "cancel_it", "make it 9 instead": "change_it", "mark it done": "done_it", "never mind": "undo_now"}
    said |= {"and one for tomorrow too": "more_it", "make it urgent": "change_it", "mach das wieder rückgängig": "cancel_it"}
    assert {text: getattr(ROUTER.cue(text, order, can_point=True), "name", "") for text in said} == said
    assert set(said.values()) <= {*POINTING, *LAST}


@pytest.mark.parametrize(
    ("word", "other", "count"), [("taks", "task", 1), ("remeber", "remember", 1), ("note", "nose", 1), ("abcd", "wxyz", 2)]
)
def test_typing_errors_are_counted(word: str, other: str, count: int) -> None:
    assert distance(word, other, 1) == count


def test_a_known_word_and_a_name_are_no_typing_errors() -> None:
    english = LANGUAGES.english
    assert typing_errors.mended("reminds tasks notes", english) == []
    assert typing_errors.mended("please ask Taks", english) == []
    (found, *_) = typing_errors.mended("remnid me of teh party", english)
    assert found.text == "remind me of the party" and found.as_typed("the party") == "teh party"


@pytest.mark.parametrize(
    "text",
    [
        *("Add a tank to the model railway.", "I lost the list", "We remained in town tomorrow at 8.", "Put an ad in the paper."),
        *(
            "The taste to remember is vanilla",
            "Make the mask for the party",
            "The ticket that cost more is done",
            "He was making up at 7",
        ),
        *(
            "A massage at 5 would be nice",
            "Send the remainder to the bank",
            "Der Sprecher kommt morgen um acht",
            "Wir verpassen den Zug",
        ),
        *("Die Scheibe an der Tür ist kaputt", "Il ressemble à ton rappeur", "Le monstre de la liste", "El borracho de las ocho"),
    ],
)
def test_a_real_word_one_letter_from_a_cue_makes_no_effect(text: str) -> None:
    found = ROUTER.cue(text)
    assert found is None or found.name not in EFFECTS


def test_common_words_near_a_cue_are_no_typing_errors() -> None:
    with_lists = [language for language in LANGUAGES.all if language.words["real"]]  # a small file may do without
    assert len(with_lists) >= 4
    for language in with_lists:
        assert [word for word in language.words["real"] if typing_errors.mended(word, language)] == []


@pytest.mark.parametrize(
    ("text", "name", "parts"),
    [
        ("Please tell me the phone number of the school.", "asking_for", {"query": "the phone number of the school"}),
        ("¿Me puedes decir la clave del wifi?", "asking_for", {"query": "la clave del wifi"}),
        ("Sag mir bitte die Nummer vom Zahnarzt", "asking_for", {"query": "die Nummer vom Zahnarzt"}),
        ("Would you memorise something for me? The locker is number 12.", "remember", {"fact": "The locker is number 12"}),
        ("i should call Ines, add it to my list with high priority", "task", {"task": "call Ines", "level": "high"}),
        ("remind me at noon tomorow to buy the teh", "remind", {"when": "at noon tomorow to buy the teh"}),
        ("Is washing the car on my list already?", "tasks", {"what": "washing the car"}),
        ("whats up tomorrow, anything I have to think of?", "reminders", {}),
        ("Read me everything on my list, I've lost track.", "tasks", {}),
        ("Jot this down as a note: the tap drips", "note", {"body": "the tap drips"}),
        ("you can cancel the bakery one, I have got it already", "cancel", {"what": "bakery"}),
        ("two tasks, one for the bike and one for the lamp", "task", {"task": "the bike", "second": "the lamp"}),
    ],
)
def test_everyday_wordings_are_read_as_they_are_meant(text: str, name: str, parts: dict[str, str]) -> None:
    found = ROUTER.cue(text, can_point=True)
    assert found is not None and (found.name, dict(found.parts)) == (name, parts)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Thanks, that was kind of you.", "thanks"),
        ("Is everything fine with you?", "how"),
        ("Guten Abend, wie war dein Tag?", "how"),
        ("gracias, eso es todo", "bye"),
        ("Enchanté !", "greeting"),
        ("Which day of the week is it today?", "date"),
        ("is it late already? what time have we got?", "time"),
        ("Which things have I told you to remember?", "memories"),
        ("I've asked you to keep a few things in mind. What were they?", "memories"),
        ("have I got anything left to do? I mean my list", "tasks"),
        ("is there anything you're going to remind me of tomorrow?", "reminders"),
        ("what's 8 and 8 together?", "sum"),
        ("Translate into German: Good morning.", "translation"),
        ("Wie sagt man danke auf Englisch?", "translation"),
        ("Can you put this right: I has a cat.", "spelling"),
        ("it'd be good if you remembered that Orbis prefers calls", "remember"),
        ("there was something about a ferry in my notes, can you look it up?", "search"),
        ("the gutter's finally clear, so you can mark that one as finished", "done_it"),
    ],
)
def test_everyday_words_are_told_by_what_they_ask_for(text: str, name: str) -> None:
    found = ROUTER.cue(text, (*COURTESIES, *ORDER), can_point=True)
    assert found is not None and found.name == name
