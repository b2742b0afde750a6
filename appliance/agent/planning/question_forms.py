"""What a message is by its form: whether it only names what is looked up, and whether it points back to the last answer. Pure."""

from collections.abc import Sequence

from appliance.agent.planning.answer_thresholds import DEFINITE, WORDED
from appliance.agent.planning.plans import Scene
from appliance.knowledge.evidence import Evidence
from appliance.language.answer_kinds import kind_of
from appliance.language.languages import Language

FEW_NAMED = 14  # words of a question that names a kind of thing
SHORT_WORD = 4  # letters, of a word in "ed" that is no past: "need"


def names_fact(words: Sequence[str], kind: str, scene: Scene, language: Language) -> bool:
    """Whether something is only named, of a kind that one looks up: "first name of Mrs. Keller", "I need our policy number"."""
    tells = language.words["question"] | language.words["past"]
    is_told = (
        bool(set(words) & tells)
        or any(word.endswith("ed") and len(word) > SHORT_WORD for word in words)
        or scene.text.endswith("!")
    )
    # "I want a password" asks nothing.
    is_definite = not set(words[:1]) & language.words["own"] or bool(DEFINITE.search(scene.text))
    return is_definite and kind != "talk" and len(words) <= FEW_NAMED and not is_told and kind_of(scene.text) is not None


def is_of_last(found: Evidence, words: Sequence[str], language: Language) -> bool:
    """Whether a question that points back ("its disks") names what the best sentence holds."""
    best = found.best[0] if found.best else None
    return best is not None and not best.missing and best.coverage >= WORDED and bool(set(words) & language.words["again"])
