"""What a person told in a conversation without asking to keep it, as they put it right and without what they took back. Pure."""

from collections.abc import Callable, Collection, Sequence

from appliance.language import message_parts, word_forms
from appliance.language.languages import words_in
from appliance.language.planning.corrections import corrected
from appliance.language.planning.plans import Say, Scene, own_words
from appliance.language.router import ORDER, Intent, Router

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
        elif intent.name == "correct" and found and (mended := corrected(found[-1], intent.parts["change"])):
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
    new = corrected(before[-1], intent.parts["change"])
    return Say(intent.language.say("corrected", text=new)) if new else None


def told_again(scene: Scene, cue: Cue, intent: Intent) -> Say | None:
    """What was told about what is asked for, though it has a name that says nothing elsewhere; None where nothing was."""
    words = intent.language.words
    found = meant(scene.text, told(scene, cue), words["question"] | words["own"] | words["verbs"])
    return Say(intent.language.say("said", text=found[-1])) if found else None
