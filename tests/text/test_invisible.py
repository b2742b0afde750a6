"""What cannot be seen is shown as an escape, and spelling stays spelling."""

import unicodedata

import pytest

from appliance.text.invisible import UNSEEN, escape_invisible, unfinished

TAGS = "".join(chr(0xE0000 + ord(c)) for c in "4711")
HIDDEN = (
    "\x00 \x07 \x1b \x7f \x85 \x9b \xad \u034f \u061c \u115f \u1160 \u17b4 \u180e \u200b \u200c \u200d \u200e \u200f \u2028 \u2029 "
    "\u202a \u202e \u2060 \u2064 \u2066 \u2069 \u206f \u3164 \ufe00 \ufe0f \ufeff \uffa0 \ufff9 \ufffe \ud800 \U0001bca0 "
    "\U0001d159 \U0001d173 \U000e0001 \U000e0041 \U000e007f \U000e0100 \U000e0fff"
).split(" ")
SPELT = (
    "👩\u200d🚀 ❤\ufe0f 1\ufe0f\u20e3 👨🏽\u200d👩\u200d👧",
    "❤\ufe0f\u200d🔥",
    "می\u200cخواهم",
    "क्\u200dष",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "Grüße, 日本語, עברית, ﷺ",
)


@pytest.mark.parametrize("char", HIDDEN)
@pytest.mark.parametrize("form", ["text", "line", "exact"])
def test_hidden_character_is_shown_by_its_number(char: str, form: str) -> None:
    assert escape_invisible(f"a{char}b", form) == f"a\\u{{{ord(char):x}}}b"  # type: ignore[arg-type]


@pytest.mark.parametrize("text", SPELT)
def test_spelling_with_joiners_stays_readable_in_words(text: str) -> None:
    assert escape_invisible(text) == text
    assert escape_invisible(text, "line") == text


@pytest.mark.parametrize("text", SPELT[:5])
def test_no_joiner_passes_in_a_target(text: str) -> None:
    assert not UNSEEN.search(escape_invisible(text, "exact"))


def test_flag_of_tags_carries_nothing_else() -> None:
    told = escape_invisible(f"\U0001f3f4{TAGS}\U000e007f")
    assert not any(0xE0000 <= ord(c) <= 0xE0FFF for c in told)


def test_line_breaks_stay_in_words_alone() -> None:
    assert escape_invisible("a\n\tb\r\nc\rd") == "a\n\tb\r\nc\\rd"
    assert escape_invisible("a\n\tb", "line") == r"a\n\tb"
    assert escape_invisible("https://a.b/\nAccept?", "exact") == r"https://a.b/\nAccept?"


def test_target_shows_odd_spaces_and_private_letters() -> None:
    assert escape_invisible("a\u00a0b\u3000c\ue000d\u0378e\u2800f g", "exact") == r"a\u{a0}b\u{3000}c\u{e000}d\u{378}e\u{2800}f g"


def test_every_ignorable_character_is_escaped_in_a_target() -> None:
    # Every character of the planes that have any, and some of those that are empty or private throughout.
    for number in (*range(0x34000), *range(0x34000, 0xE0000, 61), *range(0xE0000, 0xE1000), *range(0xE1000, 0x110000, 61)):
        char = chr(number)
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn"):
            assert escape_invisible(char, "exact") != char, hex(number)


def test_pieces_of_a_sequence_are_judged_together() -> None:
    whole, shown, held, before = "x👩\u200d🚀❤\ufe0f", "", "", ""
    for piece in whole:
        text = held + piece
        cut = len(text) - unfinished(text)
        shown += escape_invisible(text[:cut], before=before)
        held, before = text[cut:], (before + text[:cut])[-8:]
    assert shown + escape_invisible(held, before=before) == whole
