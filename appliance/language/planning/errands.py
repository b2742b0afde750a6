"""What is only likely a request and asked back, what a short answer to a question of the program means, and people's own tasks.

What a person does themselves, such as "call the bank", stays on the list, and nobody is told that it waits. A question is kept
with the answer that ended with it (`records.Asked`), so what a model wrote is never taken for one. Only the message right behind a
question answers it, from the person who was asked, and only with what can answer it: any other request is done, and the question
dropped.
"""

import textwrap
from typing import Any

from msgspec.structs import replace

from appliance.language import items
from appliance.language.languages import Language, words_in
from appliance.language.planning.plans import Plan, Say, Scene, ask_back
from appliance.language.planning.reminders_and_events import Reminders
from appliance.language.router import ANSWERS, COURTESIES, ORDER, Intent, Router, is_question, says_when
from appliance.records import Asked, Outcome

MAX_NAME = 100
QUOTES = "\"'“”‘’«»"


def task_arguments(text: str) -> dict[str, Any]:
    """Name and description of a task, as `create_task` takes them."""
    whole = " ".join(text.rstrip(" .!?\n").split()).strip(QUOTES)
    name = textwrap.shorten(whole, MAX_NAME, placeholder=" …") if " " in whole[:MAX_NAME] else whole[:MAX_NAME]
    return {"name": name} if name == whole and "\n" not in text else {"name": name, "description": text}


MOST_CHARS = 120
MOST_NEEDED = 10  # words of what somebody has to do
MOST_BEFORE = 4  # words before a colon that only introduce what is meant
OF_PEOPLE = ("beyond_call", "beyond_buy", "beyond_mail", "done_maybe")  # what a person does, though it may be asked of the box


def is_errand(text: str, router: Router) -> bool:
    """Whether a task is none for the program, and none in which a model would only work with words."""
    text = text.strip()
    if len(text) > MOST_CHARS or "\n" in text or text.endswith("?"):
        return False
    words = words_in(text)
    if any(set(words[:1]) & language.words["work"] for language in router.languages.detect(text)[:1]):
        return False
    intent = router.cue(text, ORDER)
    return intent is None or intent.name in OF_PEOPLE


def with_hint(said: Say, outcome: Outcome) -> Say:
    """What is said of a new task, with the last line of the tool where that names the worker that would do it."""
    is_alone = (outcome.data or {}).get("has_worker") is False
    return replace(said, text=f"{said.text}\n\n{outcome.message.rpartition(chr(10))[2]}") if is_alone else said


def ask_whether_needed(scene: Scene, intent: Intent, reminders: Reminders) -> Plan | None:
    """What somebody says they have to do, or to get: asked back whether it should become a reminder or a task."""
    language, parts = intent.language, intent.parts
    if scene.text.endswith("?") or len(words_in(next(iter(parts.values())))) > MOST_NEEDED:
        return None
    task = language.say("get", text=parts["thing"]) if "thing" in parts else parts["task"].strip(" .!")
    if says_when(task, language):
        return reminders.ask_whether(task, language)
    return ask_back(language, "sure_task", task=task)


def ask_whether_likely(scene: Scene, router: Router, reminders: Reminders) -> Plan | None:
    """What fits no sentence and is likely a request all the same: asked back whether it is one."""
    language = router.languages.detect(scene.text, scene.last_question)[0]
    if is_question(scene.text, language) or "\n" in scene.text:
        return None
    kind = router.likely(scene.text, language, reminders.now_ms())
    said = language.without_opening(scene.text).strip(" .!")
    before, mark, rest = said.partition(":")
    if mark and len(words_in(before)) <= MOST_BEFORE and len(words_in(rest)) > 1 and not says_when(before, language):
        said = rest.strip()  # "save this: ..."
    if kind == "remind":
        return reminders.ask_whether(said, language)
    if kind == "task":
        return ask_back(language, "sure_task", task=said)
    return ask_back(language, "sure_remember", fact=said) if kind == "remember" else None


MOST_WORDS = 12  # of an answer


def answered(scene: Scene, router: Router, reminders: Reminders) -> Intent | None:
    """What a message asks for as the answer to the question before it; None when there was none, or this is no answer.

    An intent named "no" says that nothing is to be done.
    """
    asked = scene.asked
    if asked is None or len(scene.text.split()) > MOST_WORDS or scene.text.endswith("?"):  # "sure?" asks back
        return None
    language = next((one for one in router.languages.all if one.name == asked.language), router.languages.english)
    if asked.kind == "sure":
        found = router.cue(scene.text, ANSWERS)
        meant = Intent(asked.intent, language, asked.parts)
        if found is None:
            return reminders.at_other_time(scene.text, meant) if "rule" in asked.parts else None
        return meant if found.name == "yes" else Intent("no", language)
    if router.cue(scene.text, (*COURTESIES, *ANSWERS, *ORDER), can_point=True) is not None:
        return None  # a request of its own
    if asked.kind == "when":
        timed = _answer_when(scene, language, asked.parts["text"])
        return timed if timed is not None and reminders.is_understood(timed) else None
    if asked.kind == "of_what":
        is_change = router.cue(scene.text, ("change_it",)) is not None  # "better at 9" says when
        return None if is_change else _answer_of_what(scene, language, asked.parts["when"])
    return _answer_which(scene, language, asked)


def _answer_when(scene: Scene, language: Language, text: str) -> Intent | None:
    """A time that answers when: the request is put again with it."""
    if not _is_time(scene.text, language):
        return None
    when, plain = scene.text.strip(" .!?"), language.expression("links_deed").sub("", text).strip()
    when = when if words_in(when)[0] in language.lexicon.leading else language.phrases.get("at_time", "{time}").format(time=when)
    link = language.phrases.get("to_do", "{text}")
    return Intent("remind", language, {"when": f"{when} {link.format(text=plain)}"}, scene.text)


def _answer_of_what(scene: Scene, language: Language, when: str) -> Intent:
    """What one wants to be reminded of, maybe with a time of day: "about the trip, at 8am"."""
    text = scene.text.strip(" .!")
    if (clock := language.expression("clock_behind").search(text)) is not None:
        text, when = text[: clock.start()], f"{when} {clock['when']}"
    is_linked = language.expression("links_deed").match(text) is not None
    link = "{text}" if is_linked else language.phrases.get("to_do", "{text}")
    return Intent("remind", language, {"when": f"{when} {link.format(text=text)}"}, scene.text)


def _answer_which(scene: Scene, language: Language, asked: Asked) -> Intent | None:
    """The words, the number or the place of one of those that were listed, or all of them: "the second one", "both"."""
    before = Intent(asked.intent, language, asked.parts)
    if before.name in ("done_maybe", "done_told"):
        before = replace(before, name="done", parts={"what": before.parts.get("what") or before.parts["deed"]})
    key = next((one for one in ("what", "query", "title") if one in before.parts), "")
    if not key:
        return None
    places = items.ordinal(scene.text, language, len(asked.options))
    if places is None:
        text = language.expression("article").sub("", scene.text.strip(" .!"))
        return replace(before, parts={**before.parts, key: text})
    found: Intent | None = None
    for place in reversed(places):
        found = replace(before, parts={**before.parts, key: asked.options[place]}, also=found)
    return found


def _is_time(text: str, language: Language) -> bool:
    """Whether a text is a time and tells nothing else: "tomorrow I am in Berlin" is none."""
    words = set(words_in(text))
    if words & (language.words["verbs"] | language.words["own"] | language.words["you"] | language.words["question"]):
        return False
    return any(word[0].isdigit() for word in words) or bool(words & language.lexicon.naming)
