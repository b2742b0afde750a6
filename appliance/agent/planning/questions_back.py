"""Questions that the program asks back, and what a short answer to one means: "yes", a time, or one of several things.

A question is one of the phrases of a language file, so the answer is understood from what the conversation recorded, and nothing
has to be kept. Only the message right behind a question answers it, from the person who was asked; anything else drops it.
"""

import re
from functools import lru_cache

from msgspec.structs import replace

from appliance.agent.planning.plans import Scene, is_of
from appliance.language import items
from appliance.language.languages import Language
from appliance.language.router import ANSWERS, COURTESIES, ORDER, REMINDING, Intent, Router

SURE = "sure_"  # phrases that ask whether something should be done; the rest of the name is the intent
WHICH = (
    "done",
    "done_maybe",
    "done_told",
    "drop_task",
    "priority",
    "cancel",
    "forget",
    "read_note",
    "append",
    "append_it",
    "append_bare",
)
CLOCK_BEHIND = re.compile(r",? (?P<when>(?:at|um|à|a las) \d{1,2}(?:[:.h]\d{2})?\s?(?:[ap]m|uhr|h)?)$", re.IGNORECASE)
MOST_WORDS = 12  # of an answer


def sure(intent: Intent) -> str:
    """The question whether this should be done; "" where the language has none for it."""
    phrase = intent.language.phrases.get(f"{SURE}{intent.name}", "")
    return phrase.format(**intent.parts) if phrase else ""


def answered(scene: Scene, router: Router) -> Intent | None:
    """What a message asks for as the answer to the question before it; None when there was none, or this is no answer.

    An intent named "no" says that nothing is to be done.
    """
    asked = scene.last_answer
    if not asked or len(scene.text.split()) > MOST_WORDS or not is_of(scene.sender, scene.before):
        return None
    for language in router.languages.all:
        for name, phrase in language.phrases.items():
            if name.startswith(SURE) and (found := _pattern(phrase, is_last=True).search(asked)):
                return _answer_sure(scene, router, Intent(name.removeprefix(SURE), language, found.groupdict()))
        if found := _pattern(language.phrases.get("when", "")).match(asked):
            return _answer_when(scene, router, language, found["text"])
        if found := _pattern(language.phrases.get("of_what", ""), is_last=True).match(asked):
            return _answer_of_what(scene, router, language, found["when"])
        if language.phrases.get("which") and asked.startswith(language.phrases["which"]):
            return _answer_which(scene, router)
    return None


def _answer_sure(scene: Scene, router: Router, asked: Intent) -> Intent | None:
    found = router.cue(scene.text, ANSWERS)
    if found is None or scene.text.endswith("?"):  # "sure?" asks back
        return None
    return asked if found.name == "yes" else Intent("no", asked.language)


def _answer_when(scene: Scene, router: Router, language: Language, text: str) -> Intent | None:
    """A time that answers when: the request is put again with it."""
    before = router.cue(scene.last_question, REMINDING)
    if before is None or not _is_time(scene.text, before.language):
        return None
    when = scene.text.strip(" .!?")
    if language.name == "en":
        when = when if when.split()[0].lower() in language.words["at"] else f"at {when}"
        return Intent("remind", language, {"when": f"{when} to {text.removeprefix('to ')}"}, scene.text)
    return Intent("remind", language, {"when": f"{when} {text}"}, scene.text)


def _answer_of_what(scene: Scene, router: Router, language: Language, when: str) -> Intent | None:
    """What one wants to be reminded of, maybe with a time of day: "about the trip, at 8am"."""
    text = scene.text.strip(" .!")
    if text.endswith("?") or router.cue(text, (*COURTESIES, *ANSWERS, *ORDER), can_point=True) is not None:
        return None
    if (clock := CLOCK_BEHIND.search(text)) is not None:
        text, when = text[: clock.start()], f"{when} {clock['when']}"
    link = "" if language.name != "en" or re.match(r"(?:to|about|of|that)\b", text, re.IGNORECASE) else "to "
    return Intent("remind", language, {"when": f"{when} {link}{text}"}, scene.text)


def _answer_which(scene: Scene, router: Router) -> Intent | None:
    """The words, the number or the place of one of those that were listed, or all of them: "the second one", "both"."""
    before = router.cue(scene.last_question, WHICH, can_point=True)
    if before is not None and before.name in ("done_maybe", "done_told"):
        before = replace(before, name="done", parts={"what": before.parts.get("what") or before.parts["deed"]})
    key = next((one for one in ("what", "query", "title") if before is not None and one in before.parts), "")
    if before is None or not key or scene.text.endswith("?"):
        return None
    lines = scene.last_answer.splitlines()[1:]
    places = items.ordinal(scene.text, before.language, len(lines))
    if places is None:
        text = re.sub(r"^(?:the|der|die|das|la|le|el) ", "", scene.text.strip(" .!"))
        return replace(before, parts={**before.parts, key: text})
    found: Intent | None = None
    for place in reversed(places):
        found = replace(before, parts={**before.parts, key: _listed(lines[place])}, also=found)
    return found


def _listed(line: str) -> str:
    """What names one of those that were listed: the number of a task, or the line."""
    number = re.match(r"(\d+)\. ", line)
    return number[1] if number else re.sub(r" \[[a-z]+:/.*\]$", "", line.removeprefix("- "))


def _is_time(text: str, language: Language) -> bool:
    words = re.findall(r"\w+", text.lower())
    return len(words) <= MOST_WORDS and (any(word[0].isdigit() for word in words) or bool(set(words) & language.words["timelike"]))


@lru_cache(maxsize=256)
def _pattern(phrase: str, *, is_last: bool = False) -> "re.Pattern[str]":
    """What a phrase comes to, with its parts; `is_last`: at the end of an answer."""
    made = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(phrase)) or r"(?!)"
    return re.compile(rf"{made}\Z" if is_last else made, re.DOTALL)
