"""What a message is by its form, when sentences of notes answer it or are only the nearest, and how they are quoted. Pure.

What a question looks like (one's own things, the world, talk, or none of them) comes from its nearest examples, how well sentences
speak to it from `evidence`, whose weights are fitted. The numbers here were calibrated on about 700 questions of three
households (docs/background/small-models.md).
"""

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec.structs import replace

from appliance.language import message_parts, support
from appliance.language.answer_kinds import holds_clock, kind_of
from appliance.language.evidence import Evidence
from appliance.language.languages import Language, all_words, expression, says, words_in
from appliance.language.planning.plans import Say, Scene, closed, shown_source
from appliance.language.tables import is_data
from appliance.language.word_forms import has_stem, has_word, stem
from appliance.records import ThreadState

# Least score of a sentence that answers, by what the question likely is about: "" is undecided, and small talk and the world need
# more, since notes seldom answer them.
LEAST = {"notes": 0.44, "": 0.5, "talk": 0.62, "world": 0.78}
NEAR = {"notes": 0.2, "": 0.2, "talk": 0.45, "world": 0.45}  # and its least nearness to the question as a whole
SURE = 0.62  # from which a sentence is said to answer; below it stands as the nearest, from NEAREST on
LEAST_TALK = 0.45  # nearness to an example of talk from which a tiny model has a fitting word
NEAREST, NEAREST_WORLD = 0.25, 0.42  # for one's own things, and for what looks like a question about the world
LESS_DEFINITE = 0.08  # less is enough where the question names a definite thing: "the vet for the bird"
LEAST_NEAR_WORDED = 0.3  # nearness of a sentence to what looks like a question about the world, and has its words
SPECIFIC = 0.62  # least score where the question names something of the notes and no word of it is missing
WORDED = 0.8  # least coverage of what looks like talk and is answered in the words of the question
KNOWN = 0.4  # coverage by which a question is about something of the notes, though they may not answer it
SURE_WORLD = 0.5  # least nearness to an example about the world where the notes know a name in the question
LEAST_SURE = {"tiny": 0.5, "small": 0.5}  # of the least likely token of general knowledge: tests/bench/bench_sureness.py


def is_definite(text: str) -> bool:
    """Whether a text names a definite thing, "the ...", "our ...", or has a number."""
    return says("definite", text) or any(char.isdigit() for char in text)


def is_answer(found: Evidence, kind: str, words: Sequence[str], language: Language) -> bool:
    """Whether the best sentence answers a question of this kind: the world, one's own things, talk."""
    if not found.best:
        return False
    best, least, near = found.best[0], LEAST[kind], NEAR[kind]
    if kind == "talk" and best.coverage >= WORDED and not set(words) & language.words["you"]:
        near = NEAR[kind] / 2
    if kind == "world" and found.known and not best.missing:
        least = SPECIFIC
    has_vectors = any(one.nearness for one in found.best)
    return found.score >= least and (best.nearness >= near or (not has_vectors and kind in ("", "notes")))


def least_near(scene: Scene, found: Evidence, language: Language) -> float:
    """From which score a sentence is shown as the nearest to what looks like a question about the world.

    A tiny model can say nothing else in a language it does not know.
    """
    if scene.tier == "tiny" and "no_talk" in language.phrases:
        return NEAREST
    is_own = is_definite(scene.text) and bool(found.best) and not found.best[0].missing
    return NEAREST_WORLD - (LESS_DEFINITE if is_own else 0.0)


FIRST_WORDS = 5  # of a sentence, which say what it is about
ALIKE = 0.02  # coverage by which two rows speak of the same
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


def is_doubtful(found: Evidence, question: str) -> bool:
    """Whether the best sentence, however well it fits, may not answer: what is not so of rows only counting them tells."""
    is_negated_row = support.denies(question) and is_data(found.best[0].ref)
    return is_negated_row or is_one_of_several(found, question) or is_in_passing(found)


def repeats(one: Say, other: Say) -> bool:
    """Whether what is only near to one question has been quoted for the one before it."""
    said, nearest = (say.state.said.split("\n", 1)[0] if say.state is not None else "" for say in (one, other))
    return other.is_near and bool(said) and bool(nearest) and (nearest in said or said in nearest)


def is_one_of_several(found: Evidence, question: str) -> bool:
    """Whether one value is asked for, and several rows say another one each: "the price of the Brompton" of two repairs.

    What happened to a thing may be any of the sentences about it: no word tells which.
    """
    best, kind = found.best[0], kind_of(question)
    if kind is None or best.items:
        return False
    same = [one for one in found.best[1:] if one.ref == best.ref and one.text != best.text]
    if kind.name == "event":
        return any(one.score >= ALSO_NEAR * best.score for one in same)
    same = [one for one in same if one.is_item and (one.group == best.group or is_data(one.ref))]
    is_other = (kind.holds(one.text) and one.missing == best.missing and one.coverage >= best.coverage - ALIKE for one in same)
    return best.is_item and any(is_other)


def is_in_passing(found: Evidence) -> bool:
    """Whether the one thing a question names is only mentioned in the best sentence, which is about something else: "what did I
    have for breakfast?" and "Hotel Miradouro, booking number LX-5521, breakfast included"."""
    best = found.best[0]
    if len(found.words) != 1 or has_stem(stem(found.words[0]), f"{best.title} {best.heading}"):
        return False
    return not has_stem(stem(found.words[0]), " ".join(best.text.split()[:FIRST_WORDS]))


def is_of_last(found: Evidence, words: Sequence[str], language: Language) -> bool:
    """Whether a question that points back ("its disks") names what the best sentence holds."""
    best = found.best[0] if found.best else None
    return best is not None and not best.missing and best.coverage >= WORDED and bool(set(words) & language.words["again"])


MOST_NEAREST, ALSO_NEAR = 3, 0.6  # sentences that are shown as the nearest, and of the best score, for another one
FEW_SHOWN = 45  # words of all of them


def quote(phrase: str, found: Evidence, language: Language) -> Say:
    """A phrase with the best sentences, which may answer or not; several are a list below it."""
    best = [one for one in found.best if one.ref]
    shown = best[:1]
    for one in best[1:MOST_NEAREST]:
        if one.score < ALSO_NEAR * best[0].score:
            continue
        beside = [at for at, other in enumerate(shown) if one.ref == other.ref and one.whole == other.whole]
        if beside:
            shown[beside[0]] = replace(shown[beside[0]], needs_line=True)
        elif sum(len(other.quoted.split()) for other in (*shown, one)) <= FEW_SHOWN:
            shown.append(one)
    shown = [one if one.items else replace(one, needs_line=True) for one in shown]  # what is near is seen with its line
    quoted = [f"{closed(one.quoted)} [{shown_source(one.ref)}]" for one in shown]
    listed = "".join(f"\n- {one}" for one in quoted)
    text = language.say(phrase, text=quoted[0] if len(quoted) == 1 else listed).replace(" \n", "\n")
    state = ThreadState(quoted=tuple(one.ref for one in shown), said="\n".join(closed(one.quoted) for one in shown))
    return Say(text, is_near=True, state=state)
