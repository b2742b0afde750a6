"""A message taken apart: courtesies at its ends, the part that asks for something, and what is said around that part.

People say why before or after they ask: "I keep forgetting the plumber, can you put that on my list?" Each place where a sentence
or a clause ends is a place where the request may begin or end. What is said around a request is its context, which the request may
point to. A context that asks, sets a condition or reports what somebody said makes it none. What is pasted with the marks of a mail
is somebody else's words: it asks for nothing. Pure.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from appliance.language import sentences
from appliance.language.languages import Language, says, words_in
from appliance.language.sentence_templates import plain_words

AROUND = ("hello", "greeting", "thanks", "bye", "night", "aside")  # sentences that may stand before and after what is asked for
CLAUSE_END = re.compile(r"[,;:](?=\s)|\s[-–—]+(?=\s)")
PASTED = re.compile(r"^[ \t]*(?:>|-{3,}[ \t]*\w)", re.MULTILINE)  # quoted lines, the mark of a mail that is passed on
MOST_PLACES = 16
MOST_INNER = 5  # places between which a request may stand
LEAST_WORDS = 3
EDGE = " \t\n,;:-–—"


class Reading(Struct, frozen=True):
    """One way to read a message: what may ask for something, and what is said before or after it."""

    request: str
    context: str = ""
    is_first: bool = False  # the request stands before its context


def readings(said: str, language: Language) -> Iterator[Reading]:
    """The ways to read a message, the whole first, then those with the longest request."""
    places = _clause_ends(said)
    if (joint := language.joint) is not None:
        begun = [found.start() for found in joint.finditer(said)]
        places += [(at, at) for at in begun if _is_clause_end(said[:at], language)]
    places = sorted(place for place in set(places) if place[1] < len(said))[:MOST_PLACES]
    made = []
    for start, end in places:
        first, last = said[:end], said[end:]
        is_sentence = first.rstrip().endswith((".", "!", "?", "…"))
        head = first if is_sentence else said[:start]
        if _is_context(head, language):
            made.append(Reading(last.strip(EDGE), head.strip(EDGE)))
        if _is_context(last, language):
            made.append(Reading(head.strip(EDGE), last.strip(EDGE), True))
    for n, (start, end) in enumerate(places[:MOST_INNER]):  # a request between what is said before and after it
        for later, after in places[n + 1 : MOST_INNER]:
            around = f"{said[:start].strip(EDGE)} {said[after:].strip(EDGE)}"
            if _is_context(said[:start], language) and _is_context(said[after:], language):
                made.append(Reading(said[end:later].strip(EDGE), around.strip()))
    yield from sorted((one for one in made if one.request and one.context), key=lambda one: -len(one.request))


def is_pasted(said: str) -> bool:
    """Whether a message holds a mail or lines of one, as people paste and forward them."""
    return PASTED.search(said) is not None or says("pasted", said)


def without_courtesies(said: str, language: Language) -> str:
    """A message without the greetings in front of it and the thanks behind it; the whole, when there is nothing else."""
    ends = sentences.boundaries(said)
    starts = [0, *ends[:-1]]
    asking = [at for at, (start, end) in enumerate(zip(starts, ends)) if not _is_courtesy(said[start:end].strip(), language)]
    return said[starts[asking[0]] : ends[asking[-1]]].strip() if asking else said


def clauses(text: str) -> list[str]:
    """The clauses of a text, in order."""
    found, last = [], 0
    for start, end in _clause_ends(text):
        found.append(text[last:start])
        last = end
    return [clause for one in (*found, text[last:]) if (clause := one.strip(EDGE))]


def question_in(text: str, language: Language) -> tuple[str, str]:
    """The question of a message that says something else as well, and the rest; ("", "") where it is nothing but a question."""
    bare = language.without_opening(without_courtesies(text, language)).strip()
    found = [language.without_opening(one) for one in clauses(bare)]
    for at in range(len(found) - 1, -1, -1):
        words = words_in(found[at])
        while words and words[0] in language.words["again"]:
            words = words[1:]
        if asks(words, language) and len(words) > 1:
            question = found[at].strip(" ?.!") + "?"
            rest = ", ".join([*found[:at], *found[at + 1 :]]).strip(" ?.!")
            return ("", "") if not rest and bare == text else (question, rest)
    return "", ""


def two_questions(text: str, language: Language) -> tuple[str, str] | None:
    """The two questions of "who is the vet and what is her number?"; None for one, or for one with two question words."""
    for joint in language.linked.finditer(text):
        halves = [text[: joint.start()].strip(EDGE), text[joint.end() :].strip(f"{EDGE}?")]
        if all(len(words_in(half)) >= LEAST_WORDS and asks(words_in(half), language) for half in halves):
            return f"{halves[0]}?", f"{halves[1]}?"
    return None


def asks(words: Sequence[str], language: Language) -> bool:
    """Whether words begin as a question does: "whose ...", "until when ..."."""
    first = words[1:2] if words and words[0] in language.words["leading"] else words[:1]
    return bool(first) and first[0] in language.words["question"]


def is_courtesy(text: str, language: Language) -> bool:
    """Whether each sentence of a text greets, thanks, or says nothing that could be meant."""
    start = 0
    for end in sentences.boundaries(text):
        if not _is_courtesy(text[start:end].strip(), language):
            return False
        start = end
    return True


def _clause_ends(text: str) -> list[tuple[int, int]]:
    """Where clauses and sentences end, as the spans of the marks between them."""
    return sorted([*(found.span() for found in CLAUSE_END.finditer(text)), *((at, at) for at in sentences.boundaries(text))])


def _is_clause_end(text: str, language: Language) -> bool:
    """Whether a clause may end here without a mark: after three words, the last of them one that carries meaning, or points."""
    words = words_in(text)
    return len(words) >= LEAST_WORDS and (words[-1] not in language.words["common"] or words[-1] in language.words["again"])


def _is_courtesy(sentence: str, language: Language) -> bool:
    plain = plain_words(sentence)
    return any(one.match(sentence, plain) for name in AROUND for one in language.patterns.get(name, ()))


def _is_context(text: str, language: Language) -> bool:
    """Whether a text can stand around a request: it asks nothing, sets no condition, and nobody says the request in it."""
    if "?" in text and not is_courtesy(text, language):
        return False
    plain = plain_words(text)
    return not any(one.match(text.strip(EDGE), plain) for one in language.refusals.get("context", ()))
