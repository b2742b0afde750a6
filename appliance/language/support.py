"""Whether an answer says only what given texts say: every number and name of it, and nearly all of its other words.

A model that is too small to be trusted puts what it was shown into a sentence of its own; here it is checked word by word, so
that no made-up fact gets a source. Not promised: that the words stand in the same relation to each other as in the texts; an
answer that joins two sentences wrongly is found only where its words come from different ones. A summary is looked at clause by
clause: what one sentence says of somebody it names may not be said without that name.
"""

import re
from collections.abc import Collection, Sequence

from appliance.language import sentences
from appliance.language.languages import alternatives, expression, says, strip_accents
from appliance.language.word_forms import stem

WORD = re.compile(r"[^\W_]+(?:[-'’.,:@/][^\W_]+)*")
SHARE = 0.8  # of the words that are neither numbers nor names
BESIDE = 2  # words before a number, one of which says what it is a number of: "the code of the garage is 4471"


def is_supported(answer: str, texts: Sequence[str], question: str, ignored: Collection[str]) -> bool:
    """True when an answer adds something to the question, and all that it adds stands in one of the texts."""
    if says("admission", answer):
        return False
    asked = _stem_words(question)
    new = [match[0] for match in WORD.finditer(answer) if match[0].lower() not in ignored and _stem_word(match[0]) not in asked]
    return bool(new) and any(_holds_words(text, new) for text in texts)


def keeps_relations(answer: str, texts: Sequence[str], question: str, ignored: Collection[str]) -> bool:
    """Whether one of the sentences says of the same things what an answer says: who did what, denied or not, and of what how much.

    Names and numbers come in the order of the sentence, every other word is one of its note or of the question, each number stands
    beside a word that it stands beside there, and both deny something or neither does. A passive for an active is refused as well.
    """
    sources = [(text, one) for text in texts for one in (text, *sentences.split(text))]
    return any(_has_relations(answer, one, text, question, ignored) for text, one in sources)


def _has_relations(answer: str, sentence: str, text: str, question: str, ignored: Collection[str]) -> bool:
    if denies(answer) != denies(sentence):
        return False
    said, source = [[_stem_word(word) for word in _new_words(one, ignored)] for one in (answer, sentence)]
    asked, known = _stem_words(question), _stem_words(text)
    if any(word not in known and word not in asked for word in said):
        return False
    hard = {_stem_word(word) for word in _new_words(answer, ignored) if _is_hard(word)}
    places = iter(source)
    if not set(said) & set(source) or not all(word in places for word in said if word in hard and word in source):
        return False
    for number, before, after in _around(said, BESIDE):
        theirs = [found[1:] for found in _around(source, 1) if found[0] == number]
        is_beside = any(set(before) & set(one) if before and one else set(after[:1]) & set(other) for one, other in theirs)
        if theirs and (before or after) and not is_beside:
            return False
        if theirs and set(after[:1]) & set(source) and not any(set(after[:1]) & set(other) for _, other in theirs):
            return False  # an amount of something else
    return True


def _around(words: Sequence[str], most: int) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """The numbers of some words, each with the words before it and those behind it, so many of each."""
    numbers = (n for n, word in enumerate(words) if any(c.isdigit() for c in word))
    return [(words[n], words[max(0, n - most) : n], words[n + 1 : n + 1 + most]) for n in numbers]


def keeps_fact(answer: str, quote: str, question: str, ignored: Collection[str]) -> bool:
    """Whether an answer has each number that a quoted sentence adds to the question, and one of its names, where it adds some.

    "The room was painted white" says only words of "'Sea Lettuce' below, white above", and leaves out what it is about; "on 9
    April" is half of "9 April, 11:40", and nobody misses the other half.
    """
    asked, known = _stem_words(question), _stem_words(answer)
    added = {stem: word for word in _new_words(quote, ignored) if _is_hard(word) and (stem := _stem_word(word)) not in asked}
    numbers = {stem for stem, word in added.items() if any(letter.isdigit() for letter in word)}
    return numbers <= known and (not added or not known.isdisjoint(added))


def is_fair_summary(answer: str, text: str, ignored: Collection[str]) -> bool:
    """True when each clause of an answer says what one sentence of a text says, and of nobody else than that does."""
    said = [clause for one in sentences.split(answer) for clause in clauses(one) if _new_words(clause, ignored)]
    known, lines = _stem_words(text), sentences.split_markdown(text)
    return bool(said) and not says("admission", answer) and all(_is_told(clause, answer, lines, known, ignored) for clause in said)


def is_same_message(answer: str, text: str, ignored: Collection[str]) -> bool:
    """True when an answer says what a text says in other words: its numbers and names, nearly all other words, whose things they
    are and whether it denies them; and hardly anything else but courtesies."""
    said, meant = (_new_words(expression("courteous").sub(" ", one), ignored) for one in (answer, text))
    answered, known = {_stem_word(one) for one in said}, {_stem_word(one) for one in meant}
    hard = {_stem_word(one) for one in (*said, *meant) if any(letter.isdigit() for letter in one)}
    if not known or not hard <= answered & known:
        return False
    if len(answered & known) < SHARE * len(known) or len(answered & known) < SHARE * len(answered):
        return False
    return _whose(answer) == _whose(text) and _refuses(expression("mild_negation").sub("", answer)) == _refuses(text)


def _whose(text: str) -> set[str]:
    return {match[0].lower() for match in expression("whose").finditer(text)}


def denies(text: str) -> bool:
    """Whether a text says no to something."""
    return says("negation", text)


def _refuses(text: str) -> bool:
    return denies(text) or says("denial", text)


def clauses(sentence: str) -> list[str]:
    """The clauses of a sentence of a summary: at "and" and semicolons."""
    return re.split(rf"(?<!\s)\s*+(?:(?:[,;]\s*+)?\b{alternatives('and')}\b\s+|;\s*)", sentence, flags=re.IGNORECASE)


def _is_told(clause: str, answer: str, lines: Sequence[str], known: Collection[str], ignored: Collection[str]) -> bool:
    words = _new_words(clause, ignored)
    if any(_is_hard(word) and _stem_word(word) not in known for word in words):
        return False
    return any(_says_of_same(line, words, _stem_words(answer), ignored) for line in lines)


def _says_of_same(line: str, words: Sequence[str], answered: Collection[str], ignored: Collection[str]) -> bool:
    """Whether a line holds nearly all words, but for names that stand elsewhere, and names nobody before them that is left out."""
    found = [(match[0], _stem_word(match[0])) for match in WORD.finditer(line)]
    stems, wanted = _stem_words(line), [_stem_word(word) for word in words]
    soft = [_stem_word(word) for word in words if not word[0].isupper()] or wanted
    if sum(one in stems for one in soft) < SHARE * len(soft):
        return False
    first = next((at for at, (_, one) in enumerate(found) if one in wanted), len(found))
    return all(one in answered for word, one in found[:first] if word[0].isupper() and word.lower() not in ignored)


def _new_words(text: str, ignored: Collection[str]) -> list[str]:
    return [match[0] for match in WORD.finditer(text) if match[0].lower() not in ignored]


def _is_hard(word: str) -> bool:
    """Whether a word is a number or a name, which must be right."""
    return any(c.isdigit() for c in word) or word[0].isupper()


def _holds_words(text: str, words: Sequence[str]) -> bool:
    known = _stem_words(text)
    hard = [word for word in words if _is_hard(word)]
    soft = [word for word in words if word not in hard]
    if any(_stem_word(word) not in known for word in hard):
        return False
    return not soft or sum(_stem_word(word) in known for word in soft) >= SHARE * len(soft)


def _stem_words(text: str) -> set[str]:
    found = set()
    for match in WORD.finditer(text):
        found.add(_stem_word(match[0]))
        found.update(_stem_word(part) for part in re.split(r"[-'’/]", match[0]) if part)
    return found


def _stem_word(word: str) -> str:
    plain = strip_accents(word.lower()).strip(".,:")
    return stem(plain)
