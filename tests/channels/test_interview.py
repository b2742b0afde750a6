"""The first questions: one at a time, written down at once, gone on with after an interruption, ended by one word."""

import io
from pathlib import Path
from typing import Any

import pytest

from appliance.channels.interview import QUESTIONS, Interview
from appliance.console import line_talk
from appliance.errors import ConfigError, NotFound, Refused
from appliance.ingest import prompt_documents


@pytest.fixture
def box(tmp_path: Path) -> Path:
    prompt_documents.install(tmp_path)
    return tmp_path


def told(box: Path, name: str) -> str:
    return next((part.text for part in prompt_documents.documents(box)[0] if part.name == name), "")


def interview_in(box: Path) -> Interview:
    """The questions about a folder, whose configuration takes every zone but UTC."""

    def set_timezone(name: str) -> None:
        if name == "UTC":
            raise ConfigError("the file is not ours")
        (box / "zone").write_text(name)

    return Interview(box, set_timezone)


class Way:
    """The methods of an interview, called as over a socket."""

    def __init__(self, interview: Interview, *, is_refused: bool = False) -> None:
        self.interview, self.is_refused = interview, is_refused

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        if self.is_refused:
            raise Refused("not for you")
        asked = getattr(self.interview, method.removeprefix("interview."))(**(params or {}))
        return {name: getattr(asked, name) for name in asked.__struct_fields__}


def talk(box: Path, *lines: str, is_refused: bool = False) -> str:
    """What a person at a line by line talk is shown who types these lines."""
    left, aside = list(lines), io.StringIO()

    def read_line(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    line_talk.interview(Way(interview_in(box), is_refused=is_refused), read_line, aside)  # type: ignore[arg-type]
    return aside.getvalue()


@pytest.mark.covers("S-046")
def test_one_question_at_a_time_language_first_and_the_file_is_gone_at_the_end(box: Path) -> None:
    shown = talk(box, "Deutsch, bitte", "Ada", "Hedwig", "Berlin", "Garten", "kurz").splitlines()
    assert len(shown) == len(QUESTIONS) + 2 and "Which language" in shown[0] and "dich nennen" in shown[1]
    assert shown[4] == "Zeitzone: Europe/Berlin." and (box / "zone").read_text() == "Europe/Berlin"
    assert not (box / "BOOTSTRAP.md").exists()
    user = told(box, "USER")
    for line in ("- Language: Deutsch, bitte", "- To be called: Ada", "- Place or time zone: Berlin", "- Wants help with: Garten"):
        assert line in user
    assert "- Your name: Hedwig" in told(box, "IDENTITY") and "- How to speak: kurz" in told(box, "SOUL")
    assert "You are Owlbox" in told(box, "SOUL"), "what stood there stays"
    assert talk(box, "Hello") == "" and interview_in(box).answer().text == ""
    with pytest.raises(NotFound):
        interview_in(box).answer("more")


@pytest.mark.covers("S-046")
def test_an_interview_that_was_interrupted_goes_on_with_the_next_question(box: Path) -> None:
    assert "the other questions next time" in talk(box, "English", "I am Ada.")
    assert "- To be called: Ada\n" in f"{told(box, 'USER')}\n" and told(box, "BOOTSTRAP").startswith("# First days")
    again = talk(box, "Hedwig").splitlines()
    assert again[0].startswith("(3/6) And what would you like to call me?") and "- Your name: Hedwig" in told(box, "IDENTITY")


@pytest.mark.parametrize(
    "said", ["ich weiss es noch nicht", "Weiß ich noch nicht", "i do not know", "je ne sais pas", "no lo sé", "whatever you like"]
)
def test_a_short_sentence_is_no_name(box: Path, said: str) -> None:
    assert "Only the name, please: at most four words." in talk(box, "English", "Ada", said).splitlines()
    assert "Your name" not in told(box, "IDENTITY")


@pytest.mark.parametrize(
    "name", ["Frau von der Leyen", "Owl of the Night", "die weise eule", "You Know Who", "Oma und Opa", "Dr. No"]
)
def test_a_name_may_have_little_words(box: Path, name: str) -> None:
    talk(box, "English", "Ada", name)
    assert f"- Your name: {name}" in told(box, "IDENTITY")


def test_one_goes_back_and_a_sentence_is_no_name(box: Path) -> None:
    shown = talk(
        box,
        "Deutsch",
        "ich bin die, die immer alles wissen will",
        "Ich heiße Ada Lovelace",
        "/back",
        "Ben",
        "/back",
        "/back",
        "/back",
    )
    lines = shown.splitlines()
    assert lines[2] == "Bitte nur den Namen: höchstens vier Wörter." and "(3/6) Wie soll ich heißen?" in lines
    assert [line[:6] for line in lines if line.startswith("(")] == [
        "(1/6) ",
        "(2/6) ",
        "(2/6) ",
        "(3/6) ",
        "(2/6) ",
        "(3/6) ",
        "(2/6) ",
    ] + ["(1/6) "] * 2
    assert lines[-1] == "I will ask the other questions next time." and told(box, "USER") == ""
    assert talk(box, "de", "Ada").splitlines()[-1] == "Die übrigen Fragen kommen beim nächsten Mal."


def test_one_word_ends_it_and_an_empty_answer_leaves_out_one_question(box: Path) -> None:
    shown = talk(box, "", "", "/skip")
    assert "no questions" in shown.splitlines()[-1] and not (box / "BOOTSTRAP.md").exists()
    assert told(box, "USER") == "" and told(box, "IDENTITY") == ""


@pytest.mark.parametrize("said", ["hello", "hi, es tut mir leid", "12345", "/help", "???", "asdf", "what do you mean?"])
def test_what_names_no_language_is_asked_again_with_a_hint(box: Path, said: str) -> None:
    shown = talk(box, said, said, "Italiano per favore").splitlines()
    for again in (shown[1:3], shown[3:5]):
        assert again[0].startswith("I don't know that language") and again[1].startswith("(1/6) Which language")
    assert shown[5].startswith("(2/6) What would you like me to call you?")
    assert "- Language: Italiano per favore" in told(box, "USER")
    assert said not in told(box, "USER")


@pytest.mark.parametrize(
    ("said", "language"),
    [("de", "nennen"), ("en español por favor", "llamarte"), ("日本語", "me to call you"), ("Français!", "t'appeler")],
)
def test_a_language_is_known_by_its_name_or_code(box: Path, said: str, language: str) -> None:
    assert language in talk(box, said).splitlines()[1]


@pytest.mark.parametrize("step", range(1, len(QUESTIONS)))
def test_what_answers_no_question_is_not_written_down_and_is_asked_again(box: Path, step: int) -> None:
    wrong = ("/help", "Hello!", "...", "Was heißt das?", "ja")
    shown = talk(box, *["Deutsch", *[""] * (step - 1)], *wrong, "", *[""] * 5).splitlines()[step:]
    assert shown[0].startswith(f"({step + 1}/6)") and shown[1:11] == [
        "Das ist keine Antwort auf die Frage. Return überspringt sie, /skip überspringt alle.",
        shown[0],
    ] * len(wrong)
    assert not any(word in told(box, name) for word in wrong for name in ("USER", "IDENTITY", "SOUL"))
    assert not (box / "BOOTSTRAP.md").exists(), "an empty answer leaves it out"


def test_an_answer_is_one_line_and_takes_the_place_of_the_one_before(box: Path) -> None:
    bootstrap = (box / "BOOTSTRAP.md").read_text()
    for wanted in ("work", "work <!-- x --> and rest\n# Heading " + "x" * 999):
        (box / "BOOTSTRAP.md").write_text(bootstrap)
        talk(box, "English", "", "", "", wanted)
    lines = [line for line in told(box, "USER").splitlines() if line.startswith("- Wants help")]
    assert len(lines) == 1 and lines[0].startswith("- Wants help with: work and rest # Heading") and len(lines[0]) < 350


def test_whoever_may_not_answer_is_asked_nothing(box: Path) -> None:
    assert talk(box, "English", is_refused=True) == "" and (box / "BOOTSTRAP.md").exists()


@pytest.mark.parametrize(
    ("place", "said"), [("at home", "I found no time zone"), ("UTC", "was not changed: the file is not ours"), ("", "")]
)
def test_a_place_without_a_zone_or_with_one_that_is_not_taken_is_noted_all_the_same(box: Path, place: str, said: str) -> None:
    shown = talk(box, "English", "", "", place).splitlines()
    assert said in shown[4] and ("What would you like help with" in shown[-3]) and not (box / "zone").exists()
    assert ("- Place or time zone" in told(box, "USER")) is bool(place)
