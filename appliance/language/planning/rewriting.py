"""A message put politely, or spelled rightly, before a tiny model: by the program where it can.

Asked for a friendlier wording of ten everyday messages the bundled model kept two: it answered them, or said the opposite ("I'm
going to park in front of your garage"). So orders and refusals get the words that make them polite; the model's wording of any
other text is taken when `support.is_same_message` finds all of it again, else it is said that this model cannot do it.

Typing errors are mended word by word: a word that the dictionary of its language (pyspellchecker's, by how often words are used)
does not have is read as the most usual word one letter away, or two where none is. Words with a capital letter inside a sentence
are names, words with digits stay. No grammar is known. The dictionary is read for each text and forgotten: it takes 0.2 s, and
30 MB while it is needed.
"""

import re
from collections.abc import Callable, Collection, Mapping

from appliance.language import sentences
from appliance.language.items import is_deed
from appliance.language.languages import Language, words_in
from appliance.language.planning.plans import Grounded, ModelTalk, Plan, Say, closed
from appliance.language.router import Intent
from appliance.language.word_forms import distance

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


SHORT = 240  # characters of a text that the program puts politely


def polite(intent: Intent, chat: ModelTalk) -> Plan:
    """What is done about a text that is to be polite; `chat` asks the model for it."""
    text, language = intent.parts["text"].strip(), intent.language
    if "no_talk" in language.phrases:
        return Say(language.say("no_rewrite"))  # a language that the model has not learned
    if said := politely(text, language):
        return Say(said)
    asked = ModelTalk(
        chat.system, chat.messages, chat.max_tokens, chat.temperature, chat.repeat_penalty, is_silent=True, forbidden=chat.forbidden
    )
    return Grounded(asked, "", (text,), "", language.say("no_rewrite"), is_rewording=True)


def politely(text: str, language: Language) -> str:
    """A text of orders and refusals in polite words; "" where a sentence of it is neither."""
    bare = text.strip(" \"'“”")
    parts = sentences.split(bare)
    if not parts or len(bare) > SHORT or "politely" not in language.phrases:
        return ""
    made = [_sentence(one.strip(" .!"), language, is_alone=len(parts) == 1) for one in parts]
    return " ".join(made) if all(made) else ""


def _sentence(said: str, language: Language, *, is_alone: bool) -> str:
    if (found := language.expression("refusing").match(said)) is not None:
        rest = found["rest"]
        return closed(language.say("refusing", text=rest if rest[:2] in ("I ", "I'", "I’") else rest[:1].lower() + rest[1:]))
    if language.expression("forbidding").match(said) is not None and "," not in said:
        return language.say("politely_not", text=language.expression("forbidding").sub("", said))
    first = words_in(said)[:1]
    is_plain = bool(first) and first[0] not in language.words["common"] - language.words["tell"]
    is_usual = language.expression("plain_order").match(said) is not None
    is_order = is_deed(said) or is_usual or (is_alone and is_plain and "," not in said)
    if not first or said.endswith("?") or not is_order or not (is_plain or is_usual):
        return ""
    return language.say("politely", text=f"{said[:1].lower()}{said[1:]}")
