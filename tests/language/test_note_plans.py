"""Notes as wholes before a tiny or small model: which there are, and what one says."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from asked import with_questions
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.named_notes import NamedNotes
from appliance.language.planning import errands
from appliance.language.planning.note_plans import MOST_LISTED, SHOWN_CHARS, NotePlans
from appliance.language.planning.plans import Do, Say, Scene
from appliance.language.planning.reminders_and_events import Reminders
from appliance.language.router import Router
from appliance.records import Message

LANGUAGES = Languages()
ROUTER = Router(LANGUAGES, lambda texts: ())
REMINDERS = Reminders(ROUTER, lambda: datetime.now(UTC), (), lambda text: (), lambda text: ())
FILES = [
    *(("manuals/Boiler manual.pdf", "Vaillant"), ("manuals/boiler bill 2025.pdf", ""), ("garten.jpg", ""), ("x7.pdf", "Dryer")),
    *(("tax/2024.pdf", ""), ("tax/2025.pdf", ""), ("Heizung Anleitung.pdf", ""), ("chaudière notice.pdf", ""), ("USER.md", "")),
    *(("notes/boiler.md", "Boiler"), ("caldera.pdf", ""), ("notes/long.md", "Chronicle"), ("recipes/apple-cake.md", "")),
]
NOTES = {
    "box://notes/boiler.md": ("Boiler", "---\ntags: [home]\n---\n# Boiler\n\nThe pressure is 1.4 bar.\n"),
    "box://recipes/apple-cake.md": ("Grandmother's cake", "# Grandmother's cake\n\n4 eggs.\n"),
    "box://notes/meeting-2026-11-09.md": ("Meeting on 9 November", "Reports wait."),
    "box://notes/meeting-2026-11-16.md": ("Meeting on 16 November", "Reports are done."),
    "box://notes/long.md": ("Chronicle", "# Chronicle\n\n" + "A line of it.\n" * 300),
    "box://IDENTITY.md": ("Identity", "Who the assistant is."),
    "box://skills/summarize.md": ("Summarize", "A skill."),
}


@pytest.fixture
def entries(tmp_path: Path) -> Iterator[Entries]:
    store = new_store(tmp_path / "owlbox.db")
    made = Entries(store, Passages(store).index)
    for ref, (title, body) in NOTES.items():
        made.set(ref, body, title=title, writer="folder")
    yield made


def plans_of(entries: Entries) -> NotePlans:
    """Plans over these entries, with a folder of files."""
    words = LANGUAGES.function_words(), LANGUAGES.pointing_words(), LANGUAGES.alike_words
    finder = Finder(Search(entries._store, Passages(entries._store)), entries, lambda texts: (), *words)
    return NotePlans(entries, NamedNotes(entries, words[0]), finder, tuple, lambda: FILES)


def sent(entries: Entries, text: str, *before: Message) -> str:
    """The file that a message has sent, or the question back; "" for a message that has none sent."""
    intent = errands.answered(Scene("tiny", text, before), ROUTER, REMINDERS) or ROUTER.cue(text)
    plan = plans_of(entries).send_file(intent) if intent is not None and intent.name == "send_file" else None
    if isinstance(plan, Do):
        assert plan.call.name == "message" and list(plan.call.arguments) == ["file"]
        return str(plan.call.arguments["file"])
    return plan.text if isinstance(plan, Say) else ""


def said(entries: Entries, text: str, *before: Message) -> str | None:
    """What is answered to a message that asks for notes as wholes; None when it does not, or names none."""
    scene = Scene("tiny", text, before)
    intent = errands.answered(scene, ROUTER, REMINDERS) or ROUTER.cue(text)
    plans = plans_of(entries)
    made = {"all_notes": plans.list_notes, "read_note": plans.read_note}.get(intent.name if intent is not None else "")
    if made is None or intent is None or (plan := made(scene, intent)) is None:
        return None
    assert isinstance(plan, Say)
    return plan.text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "What does the note boiler say?",
            "show me the note about the boiler",
            "read me my boiler note",
            "What's in the boiler note?",
        ),
        *("Could you open the note called Boiler, please?", "Zeig mir die Notiz Boiler", "Que dit la note Boiler ?"),
        *("Was steht in der Notiz über Boiler?", "Muéstrame la nota Boiler"),
    ],
)
def test_a_note_is_read_out_by_its_name(entries: Entries, text: str) -> None:
    assert said(entries, text) == "tags: home\n\n# Boiler\n\nThe pressure is 1.4 bar.\n\n[box://notes/boiler.md]"


@pytest.mark.parametrize(
    "text", ["Show me the note about the apple cake", "can you read me the apple cake recipe", "Montre-moi la recette apple cake"]
)
def test_the_name_of_the_file_is_a_name_too(entries: Entries, text: str) -> None:
    told = said(entries, text)
    assert told is not None and told.endswith("4 eggs.\n\n[box://recipes/apple-cake.md]")


@pytest.mark.parametrize("text", ["Show me the note about the roof", "Show me the note", "Show me the notes about the boiler"])
def test_what_names_no_note_reads_none(entries: Entries, text: str) -> None:
    assert said(entries, text) is None


def test_of_several_notes_it_asks_back_which(entries: Entries) -> None:
    asked = "What's in the meeting note?"
    told = said(entries, asked)
    assert told is not None and told.count("box://notes/meeting") == 2 and told.startswith("Which one do you mean?")
    before = with_questions((Message("user", asked), Message("assistant", told)), ROUTER)
    assert said(entries, "the one on 16 November", *before) == "Reports are done.\n\n[box://notes/meeting-2026-11-16.md]"


def test_of_a_long_note_the_beginning_is_shown(entries: Entries) -> None:
    told = said(entries, "Read me the note Chronicle")
    assert told is not None and len(told) < SHOWN_CHARS + 120
    assert told.endswith("A line of it.\n…\nThe rest: owlbox context read box://notes/long.md\n\n[box://notes/long.md]")


@pytest.mark.parametrize(
    "text", ["Which notes do I have?", "list my notes", "Welche Notizen habe ich?", "Quelles notes ai-je ?", "¿Qué notas tengo?"]
)
def test_the_notes_are_listed_the_newest_first(entries: Entries, text: str) -> None:
    told = said(entries, text)
    assert told is not None
    first, *lines = told.split("\n")
    assert "5" in first and len(lines) == 5 and "skills" not in told and "IDENTITY" not in told
    assert "- Boiler [box://notes/boiler.md]" in lines


def test_a_long_list_says_how_many_more_there_are(entries: Entries) -> None:
    for number in range(30):
        entries.set(f"box://notes/more-{number}.md", "x", title=f"More {number}", writer="folder")
    told = said(entries, "Show me my notes")
    assert told is not None and told.startswith("You have 35 notes:") and told.count("\n- ") == MOST_LISTED
    assert told.split("\n")[-1] == "and 15 more: owlbox context list notes/"


def test_without_notes_it_says_how_to_write_one(tmp_path: Path) -> None:
    store = new_store(tmp_path / "empty.db")
    told = said(Entries(store, Passages(store).index), "Which notes do I have?")
    assert told is not None and told.startswith("You have no notes yet.")


@pytest.mark.covers("S-108")
@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("Send me the boiler manual", "manuals/Boiler manual.pdf"),
        ("could you send us the boiler manual, please?", "manuals/Boiler manual.pdf"),
        ("Please forward the boiler manual to me", "manuals/Boiler manual.pdf"),
        ("I need the boiler manual as a file", "manuals/Boiler manual.pdf"),
        ("give me the boiler bill as an attachment", "manuals/boiler bill 2025.pdf"),
        ("send me the manual of the dryer", "x7.pdf"),
        ("Send me the note with the pressure", "notes/boiler.md"),
        ("Schick mir bitte die Anleitung der Heizung", "Heizung Anleitung.pdf"),
        ("Kannst du mir die Heizungsanleitung schicken?", "Heizung Anleitung.pdf"),
        ("Schick uns das Foto vom Garten", "garten.jpg"),
        ("Envoie-moi la notice de la chaudière", "chaudière notice.pdf"),
        ("Peux-tu m'envoyer le manuel de la chaudière ?", "chaudière notice.pdf"),
        ("¿Puedes enviarme el manual de la caldera?", "caldera.pdf"),
    ],
)
def test_a_file_that_is_asked_for_is_sent(entries: Entries, text: str, file: str) -> None:
    assert sent(entries, text) == file


@pytest.mark.parametrize(
    "text",
    [
        *("Send me the manual of the oven", "Send the boiler manual to Bob", "Send Bob the boiler manual", "Send me the user"),
        *("Send me an email about the boiler", "Send me a reminder at 5pm", "Schick Bob die Anleitung der Heizung eine Mail"),
    ],
)
def test_what_names_no_file_or_is_for_others_sends_none(entries: Entries, text: str) -> None:
    assert sent(entries, text) == ""


@pytest.mark.covers("S-108")
def test_of_several_files_it_asks_back_which(entries: Entries) -> None:
    asked = "Send me the tax file"
    told = sent(entries, asked)
    assert told == "Which one do you mean?\n- tax/2024.pdf\n- tax/2025.pdf"
    before = with_questions((Message("user", asked), Message("assistant", told)), ROUTER)
    for answer, file in (("the second one", "tax/2025.pdf"), ("tax/2024.pdf", "tax/2024.pdf"), ("2024", "tax/2024.pdf")):
        assert sent(entries, answer, *before) == file


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("What did I do on 9 November?", "09"),
        ("What happened on 16 November 2026?", "16"),
        ("anything in my diary on the 9th of November?", "09"),
        ("What did we do on 2026-11-16?", "16"),
        ("Was habe ich am 9. November gemacht?", "09"),
        ("Qu'est-ce que j'ai fait le 16 novembre ?", "16"),
        ("¿Qué hice el 9 de noviembre?", "09"),
        ("What did I do yesterday?", "16"),
        ("What happened on 10 November?", ""),
        ("What happened on 9 November 2025?", ""),
        ("Who was ill on 9 November?", ""),
        ("What happened between 9 November and 16 November?", ""),
    ],
)
def test_what_was_on_a_day_is_what_its_note_says(entries: Entries, question: str, day: str) -> None:
    found = plans_of(entries).read_day(question, LANGUAGES.detect(question)[0], datetime(2026, 11, 17, 9))
    assert (found is not None and found.text.endswith(f"[box://notes/meeting-2026-11-{day}.md]")) is bool(day)


def test_of_the_notes_of_a_day_without_a_year_the_last_one_is_meant(entries: Entries) -> None:
    for name in ("2025-11-09", "2027-11-09"):
        entries.set(f"box://diary/{name}.md", f"In {name[:4]}.", title=name, writer="folder")
    for now, year in ((datetime(2026, 1, 1), "2025"), (datetime(2028, 1, 1), "2027"), (datetime(2024, 1, 1), "2025")):
        found = plans_of(entries).read_day("What happened on 9 November?", LANGUAGES.english, now)
        assert found is not None and found.text.startswith(f"In {year}.")
