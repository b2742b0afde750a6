"""Texts that others write take time in proportion to their length: what took minutes, or froze every thread, in 4,000 letters."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from appliance.channels.connectors.slack import plain_text
from appliance.errors import BadInput
from appliance.knowledge import indexer
from appliance.language import sentences, support
from appliance.language.languages import Languages
from appliance.language.times import time_expression
from appliance.memory import memory_document
from appliance.sessions import preferred_channel
from appliance.text import markdown

N = 20_000
LANGUAGES = Languages()
GAP = " " * N
URGENCY = LANGUAGES.english.expression("urgency")
TEXTS: dict[str, tuple[Callable[[str], Any], str]] = {
    "a heading of a note": (sentences.read, f"# a{GAP}b #"),
    "a heading of a document": (markdown.title, f"# a{GAP}b"),
    "a heading of a memory": (lambda text: list(memory_document.read_items(text)), f"# a{GAP}b\n- a{GAP}b"),
    "an urgency": (URGENCY.search, f",{GAP}x"),
    "an urgency of words": (URGENCY.search, ", " + "and " * (N // 4) + "x"),
    "an urgency of letters": (URGENCY.search, "a" * N),
    "clauses": (support.clauses, f"{GAP}x"),
    "numbers of entities": (indexer.RANGES.search, f"[[1,1]{GAP}x"),
    "full stops": (sentences.boundaries, "." * N + "x"),
    "sentences": (sentences.split, "a. " * N),
    "a channel": (preferred_channel.PREFERRED.search, "\n" * N + "x"),
    "marks of Slack": (plain_text, "<" * N + "<a|" * N),
}


@pytest.mark.parametrize(
    ("language", "words"),
    [("fr", "rappelle-moi " + "le " * 60), ("es", "recuérdame " + "el " * 60), ("de", "erinnere mich " + "der " * 60),
     ("en", "remind me " + "the " * 2000), ("en", "remind me " + "@" * 2000)],
)  # fmt: skip
def test_a_word_of_two_kinds_said_often_does_not_double_the_work_of_reading_a_time(language: str, words: str) -> None:
    lexicon = next(one for one in LANGUAGES.all if one.name == language).lexicon
    began_s = time.process_time()
    with contextlib.suppress(BadInput):
        time_expression.split(words, lexicon, 1_772_704_800_000)
    assert time.process_time() - began_s < 2.0  # 15 of them took minutes


@pytest.mark.parametrize("name", TEXTS)
def test_a_long_text_takes_no_long_time(name: str) -> None:
    read, text = TEXTS[name]
    began_s = time.process_time()
    read(text)
    assert time.process_time() - began_s < 1.0
