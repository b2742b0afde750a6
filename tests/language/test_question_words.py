"""The words of a question as notes write them."""

from collections.abc import Mapping, Sequence

import pytest

from appliance.language.languages import Languages
from appliance.language.typing_errors import QuestionWords
from appliance.language.word_forms import content_words, has_stem, has_word, stem

NOTES = {"fritzi": 2, "garage": 1, "code": 3, "spare": 1, "torvald": 1, "camper": 1, "wohnung": 1}
IGNORED = frozenset("what is the who should a of".split())


def count(words: Sequence[str]) -> Mapping[str, int]:
    return {word: NOTES[word] for word in words if word in NOTES}


READER = QuestionWords(count, IGNORED, frozenset())


def test_a_genitive_a_compound_and_a_hyphen_are_taken_apart_to_what_notes_have() -> None:
    assert READER.with_parts("what is Fritzis code") == "what is fritzi code"
    assert READER.with_parts("garagencode") == "garage code"
    assert READER.with_parts("Camper-Wohnung") == "camper wohnung"


def test_a_word_one_letter_away_is_mended_and_a_name_only_where_letters_changed_places() -> None:
    def mended(question: str) -> list[str]:
        return READER.without_errors(question, content_words(question, IGNORED), ["garage", "spare", "torvald"])[1]

    assert mended("what is the garqge") == ["garage"]
    assert mended("who is Tovrald") == ["torvald"]
    assert mended("who is Torvalt") == ["torvalt"]
    assert mended("who shuold spare") == ["spare"]


@pytest.mark.parametrize(
    ("word", "text", "is_there"),
    [
        ("mum", "Mum's birthday: 14 March", True),
        ("mum", "Mum’s birthday: 14 March", True),
        ("bo", "Bo's school bag", True),
        ("lena", "Lena's shoes", True),
        ("jess", "Jess' room", True),
        ("child", "the child's passport", True),
        ("mum", "Dad's birthday: 2 September", False),
        ("mum", "Mumbai's airport", False),
        ("velotek", "Your order (Jonas <jonas@velotek.example>)", True),
    ],
)
def test_what_is_somebody_s_names_them(word: str, text: str, is_there: bool) -> None:
    assert has_stem(stem(word), text) is is_there and has_word(word, text) is is_there
    assert has_stem(stem(content_words(text, IGNORED)[0]), text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour in Nell's bedroom", ["colour", "nell", "bedroom"]),  # "nell'" opens a word in Italian
        ("where is Mia's passport", ["mia", "passport"]),
        ("which bin goes out this week", ["bin", "week"]),
        ("where is dad's red hat", ["dad", "red", "hat"]),
        ("tickets for the war museum", ["tickets", "war", "museum"]),
        ("wo ist der rote Hut", ["rote", "hut"]),
        ("qu'est-ce que l'assurance rembourse", ["assurance", "rembourse"]),
    ],
)
def test_a_word_is_left_out_only_where_the_language_of_the_text_has_no_meaning_for_it(text: str, words: list[str]) -> None:
    assert content_words(text, Languages().function_words()) == words


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("wecker 6 uhr 15", "de"),
        ("haircut sat 2 o clock", "en"),
        ("bin day", "en"),
        ("jeudi 15h dentiste", "fr"),
        ("martes 10:30 pediatra", "es"),
        ("mon-fri 7.10 except wednesdays", "en"),
    ],
)
def test_short_texts_are_told_by_words_with_a_meaning_too(text: str, language: str) -> None:
    assert Languages().detect(text)[0].name == language
