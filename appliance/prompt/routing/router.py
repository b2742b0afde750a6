"""What a message asks for: an effect, a list, the time, a search, work on a text, or none of these.

Cues decide: a message either fits a sentence of a language file or it does not, so that an effect never rests on a guess. A
question asks for an effect only when it is put to the assistant ("can you ..."). What fits no sentence is told apart by the
nearest examples with the embedding model that is loaded anyway: talk, a question about the world, or about the person's own
things; without one, by words with which people mean themselves. Writes nothing, and calls no language model.
"""

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from appliance.prompt.routing import arithmetic
from appliance.prompt.routing.languages import TEXTS, Language, Languages, words_in

# Looked at in this order: the first that fits is taken.
ORDER = (
    *(
        "time",
        "date",
        "sum",
        "help",
        "recurring",
        "tasks",
        "reminders",
        "memories",
        "remind_late",
        "alarm",
        "remind",
        "remember_to",
        "remember",
    ),
    *(
        "priority",
        "task",
        "drop_task",
        "done",
        "cancel",
        "forget",
        "note",
        "search",
        "polite",
        "spelling",
        "summary",
        "text",
        "about",
    ),
)
COURTESIES = ("hello", "greeting", "thanks", "bye", "night", "how", "who", "outside")  # that ask for nothing but a word back
EFFECTS = frozenset(
    {
        "recurring",
        "remind_late",
        "alarm",
        "remind",
        "remember_to",
        "remember",
        "task",
        "drop_task",
        "done",
        "cancel",
        "priority",
        "forget",
        "note",
        "collect_note",
        "digest_note",
    }
)
AROUND = ("hello", "greeting", "thanks", "bye", "night")  # sentences that may stand before and after what is asked for
SENTENCE_END = re.compile(r"[.!?…]+\s+")
MAX_CHARS = 2000  # of a message that may ask for an effect
MAX_EXAMPLE_CHARS = 300
NEAREST = 3  # examples of a kind that count
MARGIN = 0.04  # by which the kind of the nearest examples must lead
CLAUSE_WORDS = 3
QUOTED = (('"', '"'), ("'", "'"), ("“", "”"), ("„", "“"), ("«", "»"), ("‘", "’"))  # a message as a whole

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


class Intent(Struct, frozen=True):
    """What is asked for, with the parts of the sentence that say what exactly, in the person's own words."""

    name: str
    language: Language
    parts: Mapping[str, str] = {}
    text: str = ""


class Router:
    """Tells what a message asks for."""

    def __init__(self, languages: Languages, embed: Embed) -> None:
        """`embed` gives vectors of texts, or none when there is no model for it."""
        self.languages = languages
        self._embed = embed
        self._guard = threading.Lock()
        self._examples: dict[str, list[tuple[str, Sequence[float]]]] = {}

    def cue(self, text: str, order: Sequence[str] = ORDER) -> Intent | None:
        """What a message asks for in so many words, of these; None when it does not."""
        said = text.strip()
        if len(said) > 2 and (said[0], said[-1]) in QUOTED and said[0] not in said[1:-1]:
            said = said[1:-1].strip()
        for language in self.languages.detect(said):
            if (found := self._cue_intent(said, language, order)) is not None:
                return found
        return None

    def kind(self, text: str, language: Language, least: float = 0.0) -> str:
        """`talk`, `world` or `notes` by the nearest examples; "" where they do not tell, or none is as near as `least`."""
        known = self._example_vectors(language)
        vectors = self._embed([text[:MAX_EXAMPLE_CHARS]]) if known else ()
        if not vectors:
            return ""
        near: dict[str, list[float]] = {}
        for name, vector in known:
            near.setdefault(name, []).append(cosine(vector, vectors[0]))
        scores = sorted(((sum(sorted(all_, reverse=True)[:NEAREST]) / NEAREST, name) for name, all_ in near.items()), reverse=True)
        if max(near[scores[0][1]]) < least:
            return ""
        return scores[0][1] if len(scores) < 2 or scores[0][0] - scores[1][0] >= MARGIN else ""

    def _cue_intent(self, said: str, language: Language, order: Sequence[str]) -> Intent | None:
        bare = _without_courtesies(said, language) if len(said) <= MAX_CHARS else said
        words = words_in(bare[:200])
        is_question = bare.endswith("?") and not set(words[:4]) & language.words["asks"]
        for name in order:
            if name in EFFECTS and (is_question or len(said) > MAX_CHARS):
                continue
            text = said if name in TEXTS else bare
            for pattern in language.patterns.get(name, ()):
                if (found := pattern.match(text)) is None:
                    continue
                if any(one.match(text) for one in language.refusals.get(name, ())):
                    break
                parts = {key: value.strip(" ,\"'“”„«»") for key, value in found.groupdict().items() if value is not None}
                if "clause" in parts and not _is_clause(parts["clause"], language):
                    continue
                if name in EFFECTS and any("?" in part for part in parts.values()):
                    continue  # somebody asks something as well: that must not be lost
                if "\n" in parts.get("fact", "") + parts.get("clause", ""):
                    continue
                if name == "sum" and not arithmetic.result(parts["sum"], language.signs):
                    continue
                if name == "priority" and not language.level(parts.get("level", "")):
                    continue
                return Intent(name, language, parts, text)
        return None

    def _example_vectors(self, language: Language) -> list[tuple[str, Sequence[float]]]:
        """The examples of a language with their vectors, made at the first need."""
        with self._guard:
            if language.name not in self._examples:
                given = [(name, text) for name, texts in language.examples.items() for text in texts]
                vectors = self._embed([text for _, text in given])
                if len(vectors) != len(given):
                    return []
                self._examples[language.name] = [(name, vector) for (name, _), vector in zip(given, vectors)]
            return self._examples[language.name]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """How near two vectors are, from -1 to 1."""
    size = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b)) / size if size else 0.0


def _without_courtesies(said: str, language: Language) -> str:
    """A message without the greetings in front of it and the thanks behind it; the whole, when there is nothing else."""
    starts = [0, *(found.end() for found in SENTENCE_END.finditer(said))]
    ends = [*starts[1:], len(said)]
    asking = [at for at, (start, end) in enumerate(zip(starts, ends)) if not _is_courtesy(said[start:end], language)]
    return said[starts[asking[0]] : ends[asking[-1]]].strip() if asking else said


def _is_courtesy(sentence: str, language: Language) -> bool:
    return any(pattern.match(sentence) for name in AROUND for pattern in language.patterns.get(name, ()))


def _is_clause(text: str, language: Language) -> bool:
    """Whether a text says something, rather than naming it."""
    words = words_in(text)
    return len(words) >= CLAUSE_WORDS and any(word in language.words["verbs"] or word.endswith(("'s", "'re")) for word in words[1:])
