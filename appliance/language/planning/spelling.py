"""Typing errors of a text mended word by word, for a tiny model that would write another text.

A word that the dictionary of its language (pyspellchecker's, by how often words are used) does not have is read as the most
usual word one letter away, or two where none is. Words with a capital letter inside a sentence are names, words with digits stay.
Sentences stay as they are: no grammar is known. The dictionary is read for each text and forgotten: it takes 0.2 s, and 30 MB
while it is needed.
"""

import re
from collections.abc import Callable, Collection, Mapping

from appliance.language.edit_distance import distance
from appliance.language.languages import Language

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
LEAST = 3  # letters of a word that is looked up


def mended(
    text: str, language: Language, preferred: Collection[str] = (), is_known: Callable[[str], bool] = lambda word: False
) -> str:
    """A text with its typing errors mended; the same text where there are none, or no dictionary has its language.

    `preferred` are written as they are here, `is_known` tells words that are no typing errors, such as those of the notes.
    """
    words = _dictionary(language.name)
    if not words:
        return text
    has_capitals = "nouns" in language.words.get("capitals", ())  # written with capital letters inside a sentence
    usual = {one.lower(): one for one in preferred}

    def replaced(match: "re.Match[str]") -> str:
        word = match[0]
        before = text[: match.start()].rstrip()
        begins = not before or before[-1] in ".!?:\n"
        is_name = word[0].isupper() and not begins
        if len(word) < LEAST or word.lower() in words or word.isupper() or (is_name and not has_capitals):
            return word
        if "'" in word or "’" in word or text[match.end() : match.end() + 1].isdigit() or is_known(word.lower()):
            return word
        found = _nearest(word.lower(), words, usual, 1 if is_name else 2)
        return usual.get(found) or (found.capitalize() if word[0].isupper() else found) or word

    return WORD.sub(replaced, text)


def _dictionary(language: str) -> Mapping[str, int]:
    """How often each word of a language is used; {} for a language without a dictionary."""
    from spellchecker import SpellChecker

    try:
        return SpellChecker(language=language, distance=1).word_frequency.dictionary
    except ValueError:
        return {}


def _nearest(word: str, words: Mapping[str, int], usual: Collection[str], most_errors: int) -> str:
    """The word that is meant, "" for none within so many letters. A first letter is hardly ever wrong."""
    for most in range(1, most_errors + 1):
        near = [one for one in (*usual, *words) if one[0] == word[0] and abs(len(one) - len(word)) <= most]
        found = [one for one in near if distance(word, one, most) <= most]
        if found:
            return max(found, key=lambda one: (one in usual, sorted(one) == sorted(word), words.get(one, 0)))
    return ""
