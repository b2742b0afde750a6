"""Normal forms, and that many combining marks in a row cost no more than their number."""

import unicodedata

import pytest

from appliance.text import word_hashes
from appliance.text.invisible import MOST_MARKS, normalized

TEXTS = [
    "plain",
    "Crème brûlée",
    "e\u0301a\u0323\u0302",
    "ﬁne Ｆｕｌｌ",
    "日本語",
    "한국어",
    "— — ———————————————————————————————————————————",
    "नमस्ते",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_texts_that_people_write_are_normalized_as_unicode_says(form: str, text: str) -> None:
    assert normalized(form, text) == unicodedata.normalize(form, text)  # type: ignore[arg-type]


def test_of_many_marks_in_a_row_few_are_kept() -> None:
    iota, grave = "\u0345", "\u0300"
    text = f"a{iota * 200_000}{grave * 200_000}b"  # sorting them would take an hour
    made = normalized("NFKD", text)
    assert made == f"a{iota * MOST_MARKS}b"
    assert list(word_hashes.pieces(text * 9)) == list(word_hashes.pieces(made * 9))


def test_two_ligatures_that_stand_for_sentences_do_not_grow() -> None:
    assert normalized("NFKD", "x\ufdfa\ufdfby") == "xy" and normalized("NFC", "\ufdfa") == "\ufdfa"


@pytest.mark.parametrize("title", ["Shopping", "2026", "Anna", "買い物", "Things to buy on Saturday"])
def test_an_answer_as_short_as_a_title_marks_nothing(title: str) -> None:
    assert word_hashes.kept(title) == set()
