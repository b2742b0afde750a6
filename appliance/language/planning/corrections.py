"""A remembered fact that a person puts right: "actually it's Tulip-98", behind the fact itself or an answer that quoted it."""

import re
from collections.abc import Sequence

from appliance.language.language_files import all_words
from appliance.language.planning.effect_references import KEPT, Effect
from appliance.language.planning.plans import REF, Do, Plan, Say, Scene, answer_of, tool_call
from appliance.language.ports import Notes
from appliance.language.router import Intent
from appliance.records import Outcome
from appliance.text.references import display

MEMORIES = re.compile(r"^memory:/{1,2}")
MOST_WORDS = 8


def meant_fact(scene: Scene, effect: Effect | None) -> str:
    """The reference of the fact that the last turn kept or quoted; "" where it did neither."""
    if effect is not None and effect.turns == 1 and effect.tool == "remember" and (kept := KEPT.search(effect.result)):
        return MEMORIES.sub("memory://", kept[0].rstrip(".,)"))
    last = next((m.content for m in reversed(scene.before) if m.role == "assistant" and m.content), "")
    found = REF.findall(last)
    return MEMORIES.sub("memory://", found[0]) if len(found) == 1 and MEMORIES.match(found[0]) else ""


def make_plan(intent: Intent, ref: str, entries: Notes) -> Plan | None:
    """The fact is kept as it is now, and then what it was is forgotten; None where it cannot be told what is to be different."""
    entry = entries.find(ref)
    new = corrected(entry.body, intent.parts["change"]) if entry is not None else ""
    if not new:
        return None

    def kept(outcome: Outcome) -> Plan:
        if outcome.is_error:
            return answer_of(outcome, intent)
        said = Say(intent.language.say("corrected", text=new))
        return Do(tool_call("context_delete", path=display(ref)), lambda gone: answer_of(gone, intent) if gone.is_error else said)

    return Do(tool_call("remember", text=new), kept)


def corrected(fact: str, change: str) -> str:
    """A fact with its end put right: as many words as the change has; "" where those do not say the same kind of thing."""
    old, new = fact.strip(" .!").split(), change.strip(" .!").split()
    if not new or len(new) >= len(old) or len(new) > MOST_WORDS or " ".join(old[-len(new) :]) == " ".join(new):
        return ""
    kept, tail = old[: -len(new)], old[-len(new) :]
    is_link = kept[-1].lower().strip(":") in all_words("copulas")
    return " ".join([*kept, *new]) if is_link or kept[-1].endswith(":") or _are_alike(tail, new) else ""


def _are_alike(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether words may stand for each other: both have a number, or one of them is the same."""
    numbers = [any(char.isdigit() for word in words for char in word) for words in (old, new)]
    shared = {word.lower() for word in old} & {word.lower() for word in new}
    return all(numbers) or (bool(shared) and len(old) > 1)
