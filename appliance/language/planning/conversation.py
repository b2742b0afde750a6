"""What a person told in a conversation and puts right, and which turns before a message a small model is shown.

"Actually it's Tulip-98" puts a remembered fact right, behind the fact itself or an answer that quoted it, or what was told without
asking to keep it. Pure but for looking the fact up.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from appliance.language import message_parts, word_forms
from appliance.language.languages import Language, all_words, words_in
from appliance.language.planning.effect_references import Effect
from appliance.language.planning.plans import Do, Plan, Say, Scene, answer_of, own_words, tool_call
from appliance.language.ports import Notes
from appliance.language.router import COURTESIES, ORDER, Intent, Router
from appliance.records import Message, Outcome
from appliance.text.references import display

MEMORIES = "memory://"
MOST_WORDS = 8


def meant_fact(scene: Scene, effect: Effect | None) -> str:
    """The reference of the fact that the last turn kept or quoted; "" where it did neither."""
    if effect is not None and effect.turns == 1 and effect.tool == "remember":
        return effect.made
    last = next((m.state for m in reversed(scene.before) if m.role == "assistant" and m.content), None)
    found = last.quoted if last is not None else ()
    return found[0] if len(found) == 1 and found[0].startswith(MEMORIES) else ""


def make_plan(intent: Intent, ref: str, entries: Notes) -> Plan | None:
    """The fact is kept as it is now, and then what it was is forgotten; None where it cannot be told what is to be different."""
    entry = entries.find(ref)
    new = corrected(entry.body, _change_of(intent)) if entry is not None else ""
    if not new:
        return None

    def kept(outcome: Outcome) -> Plan:
        if outcome.is_error:
            return answer_of(outcome, intent)
        said = Say(intent.language.say("corrected", text=new))
        return Do(tool_call("context_delete", path=display(ref)), lambda gone: answer_of(gone, intent) if gone.is_error else said)

    return Do(tool_call("remember", text=new), kept)


def _change_of(intent: Intent) -> str:
    """What is to be put instead: "sorry, it's 43", "no, the 10th"."""
    return intent.parts.get("change") or intent.parts["instead"]


def corrected(fact: str, change: str) -> str:
    """A fact with a part of it put right: from a word that both have, such as "at", or its end; "" where those differ in kind."""
    old, new = fact.strip(" .!").split(), change.strip(" .!").split()
    if not new or len(new) >= len(old) or len(new) > MOST_WORDS:
        return ""
    shared = [at for at in range(1, len(old) - len(new) + 1) if old[at].lower() == new[0].lower()]
    at = shared[-1] if shared and len(new) > 1 else len(old) - len(new)
    tail = old[at : at + len(new)]
    if tail == new:
        return ""
    is_link = at == len(old) - len(new) and (old[at - 1].lower().strip(":") in all_words("copulas") or old[at - 1].endswith(":"))
    is_same = all(_is_number(a) == _is_number(b) for a, b in zip(tail, new)) if shared else _are_alike(tail, new)
    return " ".join([*old[:at], *new, *old[at + len(new) :]]) if is_link or is_same else ""


def _is_number(word: str) -> bool:
    return any(char.isdigit() for char in word)


def _are_alike(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether words may stand for each other: both have a number, or are one name, or one of them is the same."""
    numbers = [any(map(_is_number, words)) for words in (old, new)]
    shared = {word.lower() for word in old} & {word.lower() for word in new}
    is_name = len(new) == 1 and old[0][0].isupper() and new[0][0].isupper()
    return all(numbers) or is_name or (bool(shared) and numbers[0] == numbers[1] and len(old) > 1)


Cue = Callable[[str], Intent | None]
TAKING_BACK = ("correct", "forget")


def cue(router: Router, text: str) -> Intent | None:
    """What a message did to what was told: None where it told something itself, an intent without a name where it asked."""
    intent = router.cue(text, (*TAKING_BACK, *ORDER))
    language = router.languages.detect(text)[0]
    return Intent("", language) if intent is None and message_parts.asks(words_in(text), language) else intent


def told(scene: Scene, cue: Cue) -> list[str]:
    """What they said, the newest last, without what they asked."""
    found: list[str] = []
    for message in scene.before:
        text = own_words(message).strip() if message.role == "user" else ""
        if not text or text.endswith("?"):
            continue
        intent = cue(text)
        if intent is None:
            found.append(text)
        elif intent.name == "correct" and found and (mended := corrected(found[-1], _change_of(intent))):
            found[-1] = mended
        elif intent.name == "forget":
            gone = meant(intent.parts["what"], found, intent.language.words["common"])
            found = [one for one in found if one not in gone]
    return found


def meant(what: str, facts: Sequence[str], ignored: Collection[str]) -> list[str]:
    """Those of the facts that hold every word of what names one."""
    stems = [word_forms.stem(word) for word in word_forms.content_words(what, ignored)]
    return [one for one in facts if stems and all(word_forms.has_stem(stem, one) for stem in stems)]


def mended(scene: Scene, cue: Cue) -> Say | None:
    """What was told just before, as a message puts it right ("sorry, it's 43"); None where it does not."""
    intent = cue(scene.text)
    if intent is None or intent.name != "correct" or not (before := told(scene, cue)) or before[-1] != scene.last_question.strip():
        return None
    new = corrected(before[-1], _change_of(intent))
    return Say(intent.language.say("corrected", text=new)) if new else None


def told_again(scene: Scene, cue: Cue, intent: Intent) -> Say | None:
    """What was told about what is asked for, though it has a name that says nothing elsewhere; None where nothing was."""
    words = intent.language.words
    found = meant(scene.text, told(scene, cue), words["question"] | words["own"] | words["verbs"])
    return Say(intent.language.say("said", text=found[-1])) if found else None


def with_names(scene: Scene, language: Language, ignored: Collection[str]) -> Scene:
    """A question about "him" behind a request with the name that stood there: "what's his number again?"."""
    said = scene.named.split() if not set(words_in(scene.text)).isdisjoint(language.words["theirs"]) else []
    names = [word for word in said if word[0].isupper() and not {*words_in(word)} & {*ignored, *language.lexicon.naming}]
    return replace(scene, text=f"{scene.text.rstrip(' .!?')} {' '.join(names)}?") if names else scene


LOOKED_AT = 8  # messages: a tiny model is shown fewer, and each of the person's is compared with all sentences


def for_model(scene: Scene, spoken: Sequence[Message], router: Router) -> Sequence[Message]:
    """What was spoken, and for a tiny model only what it can go on from: its own talk, in the language that it knows.

    After a page of the program's own words, or words in another language, it says nothing that makes sense.
    """
    if scene.tier != "tiny":
        return spoken
    found: list[Message] = []
    is_kept = False
    for message in spoken[-LOOKED_AT:]:
        if message.role == "user":
            text = own_words(message).strip()
            intent = router.cue(text, (*COURTESIES, *ORDER))
            is_kept = "no_talk" not in router.languages.detect(text)[0].phrases and (intent is None or intent.name == "hello")
        elif is_kept and message.state is not None and message.state.quoted:
            is_kept, found = False, found[:-1]
        if is_kept:
            found.append(message)
    return found
