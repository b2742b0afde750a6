"""When sentences of notes answer a question, are shown as the nearest to it, or are neither, by what it looks like. Pure.

What a question looks like (one's own things, the world, talk, or none of them) comes from its nearest examples, how well sentences
speak to it from `evidence`, whose weights are fitted. The numbers here were calibrated on about 700 questions of three
households (docs/background/small-models.md).
"""

from collections.abc import Sequence

from appliance.language.evidence import Evidence
from appliance.language.language_files import says
from appliance.language.languages import Language
from appliance.language.planning.plans import Scene

LEAST = {"notes": 0.44, "": 0.5, "talk": 0.62, "world": 0.78}
NEAR = {"notes": 0.2, "": 0.2, "talk": 0.45, "world": 0.45}  # and its least nearness to the question as a whole
SURE = 0.62  # from which a sentence is said to answer; below it stands as the nearest, from NEAREST on
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
