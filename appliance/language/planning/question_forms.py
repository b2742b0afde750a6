"""What a message is by its form: whether it asks, orders, only names what is looked up, or points back to the last answer. Pure."""

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec.structs import replace

from appliance.language import message_parts
from appliance.language.answer_kinds import holds_clock, kind_of
from appliance.language.evidence import Evidence
from appliance.language.language_files import all_words, expression
from appliance.language.languages import Language, words_in
from appliance.language.planning.answer_thresholds import WORDED, is_definite
from appliance.language.planning.plans import Scene
from appliance.language.word_forms import has_word

FEW_NAMED = 14  # words of a question that names a kind of thing
SHORT_WORD = 4  # letters, of a word in "ed" that is no past: "need"
FEW_WORDS = 7  # of a message that only names something
WORD = re.compile(r"[^\W\d_]+")
Form = Literal["question", "order", "name", "talk"]


def form_of(words: Sequence[str], kind: str, scene: Scene, language: Language) -> Form:
    """Whether a message asks, asks for what a sentence orders ("list ..."), names what is looked for, or only talks.

    `kind` is what its nearest examples are.
    """
    text = scene.text
    if text.endswith("?") or (message_parts.asks(words, language) and not text.endswith("!")):
        return "question"
    first = words_in(language.without_opening(text))[:1]
    if first and first[0] in language.words["work"] | language.words["tell"]:
        return "order"
    if names_fact(words, kind, scene, language):
        return "question"
    is_short = len(words) <= FEW_WORDS and not text.endswith(("!", "."))
    if not is_short or kind == "talk":
        return "talk"
    if set(words) & language.words["question"] - language.words["verbs"]:  # "stopcock where"
        return "question"
    tells = language.words["verbs"] | language.words["past"] | language.words["you"]
    return "talk" if set(words) & tells else "name"


def names_fact(words: Sequence[str], kind: str, scene: Scene, language: Language) -> bool:
    """Whether something is only named, of a kind that one looks up: "first name of Mrs. Keller", "I need our policy number"."""
    tells = language.words["question"] | language.words["past"]
    is_told = (
        bool(set(words) & tells)
        or any(word.endswith("ed") and len(word) > SHORT_WORD for word in words)
        or scene.text.endswith("!")
    )
    # "I want a password" asks nothing.
    names_one = not set(words[:1]) & language.words["own"] or is_definite(scene.text)
    return names_one and kind != "talk" and len(words) <= FEW_NAMED and not is_told and kind_of(scene.text) is not None


def of_same(found: Evidence, scene: Scene, ignored: Collection[str]) -> Evidence:
    """What was found about whom the talk was about, where that has a name: the number of somebody else answers no "his number?"."""
    said = [*WORD.findall(scene.last_question)[1:], *WORD.findall(scene.last_answer)]
    names = {word.lower() for word in said if word[0].isupper() and len(word) > 1} - {*ignored, *all_words("titles")}
    names = {name for name in names if expression("month").fullmatch(name) is None}
    own = {word.lower() for word in WORD.findall(scene.text)[1:] if word[0].isupper()} - set(ignored)
    if own or not names:
        return found
    best = tuple(one for one in found.best if not one.ref or any(has_word(name, f"{one.names} {one.whole}") for name in names))
    return replace(found, best=best)


def without_equal_numbers(found: Evidence, question: str) -> Evidence:
    """What was found without what has nothing but the number of a time: "dose: 5 mg" says nothing about who called at 5."""
    if not holds_clock(question):
        return found
    words = [[word for word in found.words if word not in one.missing] for one in found.best]
    best = [one for one, held in zip(found.best, words) if holds_clock(one.text) or not all(word.isdigit() for word in held)]
    return replace(found, best=tuple(best))


def is_of_last(found: Evidence, words: Sequence[str], language: Language) -> bool:
    """Whether a question that points back ("its disks") names what the best sentence holds."""
    best = found.best[0] if found.best else None
    return best is not None and not best.missing and best.coverage >= WORDED and bool(set(words) & language.words["again"])
