"""Tasks that a person does themselves, such as "call the bank", and what is likely one, or a reminder, or to be remembered.

What a person does themselves stays on the list, and nobody is told that it waits. What is only likely is asked back.
"""

from msgspec.structs import replace

from appliance.language.languages import words_in
from appliance.language.planning.plans import Plan, Say, Scene, ask_back
from appliance.language.request_classifier import likely_request
from appliance.language.router import ORDER, Intent, Router, is_question, says_when
from appliance.records import Outcome

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


def without_hint(said: Say, outcome: Outcome) -> Say:
    """What a tool said of a new task, without the last line, which names the worker that would do it."""
    return replace(said, text=said.text.rpartition("\n")[0]) if (outcome.data or {}).get("has_worker") is False else said


def ask_whether_needed(scene: Scene, intent: Intent) -> Plan | None:
    """What somebody says they have to do, or to get: asked back whether it should become a reminder or a task."""
    language, parts = intent.language, intent.parts
    if scene.text.endswith("?") or len(words_in(next(iter(parts.values())))) > MOST_NEEDED:
        return None
    task = language.say("get", text=parts["thing"]) if "thing" in parts else parts["task"].strip(" .!")
    if says_when(task, language):
        return ask_back(language, "sure_remind", when=task)
    return ask_back(language, "sure_task", task=task)


def ask_whether_likely(scene: Scene, router: Router) -> Plan | None:
    """What fits no sentence and is likely a request all the same: asked back whether it is one."""
    language = router.languages.detect(scene.text)[0]
    if is_question(scene.text, language) or "\n" in scene.text:
        return None
    kind, said = likely_request(scene.text), language.without_opening(scene.text).strip(" .!")
    before, mark, rest = said.partition(":")
    if mark and len(words_in(before)) <= MOST_BEFORE and len(words_in(rest)) > 1 and not says_when(before, language):
        said = rest.strip()  # "save this: ..."
    if kind == "remind":
        has_time = says_when(said, language)
        return ask_back(language, "sure_remind", when=said) if has_time else ask_back(language, "when", text=said)
    if kind == "task":
        return ask_back(language, "sure_task", task=said)
    return ask_back(language, "sure_remember", fact=said) if kind == "remember" else None
