"""What the web page is sent: characters that nobody sees arrive as escapes, whatever text they stand in."""

import json

import pytest

from appliance.channels.http.page_routes import show_unseen

UNSEEN = "\u202e\u2066\u200b\u2060\ufeff\u00ad\u2028\u2029\u0085\U000e0034"


@pytest.mark.parametrize("char", UNSEEN, ids=[f"{ord(char):x}" for char in UNSEEN])
def test_titles_names_and_headings_show_what_nobody_sees(char: str) -> None:
    said = {"subject": f"pay{char}bob", "title": char, "options": [f"a{char}"], "text": f"line\n{char}", f"n{char}": 1}
    shown = f"\\u{{{ord(char):x}}}"
    told = json.loads(show_unseen(json.dumps(said, ensure_ascii=False)))
    assert told == {"subject": f"pay{shown}bob", "title": shown, "options": [f"a{shown}"], "text": f"line\n{shown}", f"n{shown}": 1}


@pytest.mark.parametrize("text", ["plain", "Grüße, 日本語", "👩\u200d🚀 ❤\ufe0f", "می\u200cخواهم", 'a\\u202eb \\\\ "c" \x1b'])
def test_what_is_seen_or_spelling_stays_as_it_is(text: str) -> None:
    for is_ascii in (True, False):
        assert json.loads(show_unseen(json.dumps({"text": text}, ensure_ascii=is_ascii))) == {"text": text}


def test_a_sign_that_comes_in_pieces_stays_whole() -> None:
    pieces = [json.loads(show_unseen(json.dumps({"text": one}, ensure_ascii=False)))["text"] for one in "👩\u200d🚀"]
    assert "".join(pieces) == "👩\u200d🚀"
