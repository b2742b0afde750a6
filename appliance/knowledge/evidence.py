"""The sentences of notes that speak to a question, and how well: for an answer that is right, or for saying that there is none.

Search ranks notes against each other; its scores say nothing about whether the best one answers anything. Here each sentence
of the best notes is weighed by itself: how much of what the question names it holds (rare words count more, the note's title
counts, near words count a little by their vectors), how near it is to the question as a whole, and whether it holds what kind
of thing is asked for, such as a number or a time. Thresholds are in `agent.guide`. Works on words alone where no vectors come.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from appliance.knowledge.entries import Entries
from appliance.knowledge.search import Looks, Search
from appliance.text import markdown, sentences

HITS = 6  # notes that are looked at
MOST_NOTES = 20  # from which sentences are collected
ALL_OF_IT = 0.8  # of what is looked for, which a collected sentence or its title names
PASSAGE_CHARS = 1500  # of a long note: the passage that was found
WHOLE_CHARS = 6000  # a note up to this length is looked at whole
MOST_SENTENCES = 18  # that are embedded
MOST_WORDS = 24
TITLE, NEARBY = 0.9, 0.45  # what a word counts that stands in the title, or in another sentence of the same note
NEAR_WORD = 0.62  # cosine from which another word counts for one of the question
NEAR_SHARE = 0.75
FIRST = 1.1  # what the first sentence of a text is worth more
BY_WORDS, BY_MEANING = 0.6, 0.4
PLAIN = 0.85  # coverage from which nothing has to be looked for among near words
UNNAMED = 0.15  # taken off for each thing that "what is ..." names and the sentence does not
NAMELESS = 0.3  # taken off for a name in the question that the sentence and its note do not have
MISFIT = 0.18  # taken off when the kind of thing that is asked for is missing
NOBODY = 0.5  # taken off when it is asked who, and the sentence adds nothing but numbers and times to the question
SUBJECT = 0.12  # for the note that the talk is about
ENDINGS = (
    *(
        "ungen",
        "ments",
        "ment",
        "ings",
        "ing",
        "edly",
        "ungs",
        "ung",
        "ies",
        "ied",
        "ers",
        "est",
        "ness",
        "tion",
        "ern",
        "es",
        "ed",
    ),
    *("er", "en", "em", "ly", "e", "s", "n", "y", "t"),
)
WORD = re.compile(r"[^\W_]+(?:[-'’.@/][^\W_]+)*")
NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|hundred|thousand|dozen|half|none|"
    "once|twice|einmal|zweimal|dreimal|täglich|wöchentlich|monatlich|jährlich|une fois|deux fois|una vez|dos veces|"
    "eine?|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|douze|"
    "dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|doce"
)
TIMES = re.compile(
    r"\d|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:january|february|march|april|may|june|july|august|september|october|november|"
    r"december|spring|summer|autumn|winter|morning|noon|evening|night|daily|weekly|monthly|yearly|every|tomorrow|today|weekend|"
    r"montags?|dienstags?|mittwochs?|donnerstags?|freitags?|samstags?|sonntags?|januar|februar|märz|mai|juni|juli|oktober|dezember|jede[nrs]?|"
    r"lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre|chaque|"
    r"lunes|martes|miércoles|jueves|viernes|sábado|domingo|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre|cada)\b",
    re.IGNORECASE,
)
# What a question must find: a pattern of the question, and what a sentence must hold then.
KINDS: tuple[tuple["re.Pattern[str]", "re.Pattern[str]"], ...] = (
    (
        re.compile(r"\b(?:how old|what age|wie alt|quel âge|cuántos años)\b", re.IGNORECASE),
        re.compile(r"\b(?:years?|old|born|aged?|jahre|alt|geboren|ans|né|años|nació|birth)\b", re.IGNORECASE),
    ),
    (
        re.compile(
            r"\b(?:when|what time|wh(?:at|ich) day|wann|quand|à quelle heure|cuándo|a qué hora|um wie viel uhr)\b", re.IGNORECASE
        ),
        TIMES,
    ),
    (
        re.compile(
            r"\b(?:how (?:much|many|long|far|big|tall|heavy|hot|often|high|large)|number|code|pin|combination|port"
            r"|price|costs?|budget|size|wie (?:viele?|lange|hoch|groß|oft|teuer)|nummer|combien|numéro|cuánt[oa]s?|número)\b",
            re.IGNORECASE,
        ),
        re.compile(rf"{TIMES.pattern}|\b(?:{NUMBER_WORDS})\b", re.IGNORECASE),
    ),
    (
        re.compile(r"\b(?:phone|telephone|call|telefon\w*|téléphone|teléfono)\b", re.IGNORECASE),
        re.compile(r"\d{2,}[-/ .]\d{2,}|\d{5,}"),
    ),
)
WHO = re.compile(r"^\W*(?:and |so |und |et |y )?(?:who|wer|wem|wen|qui|quién|quiénes)\b", re.IGNORECASE)
# "What is the ... of ...": the thing itself must be there, while a verb such as "collected" may be left out.
NAMING = re.compile(
    r"^\W*(?:and |so |und |et |y )?(?:what|who|which|was|wer|wie|quel\w*|qui|cuál|quién|qué)"
    r"(?:['’]s| is| are| was| were| ist| sind| war| est| sont| es| son| lautet| heißt)\b",
    re.IGNORECASE,
)
OF = re.compile(r"['’]s? (\w[\w-]*)\W*$")  # what is asked of somebody: "when is Tom's birthday"
GENERIC = frozenset(
    "number name code address time date nummer adresse numero nom nombre direccion exact current full whole person contact".split()
)
NOBODYS = frozenset("next last first due new old".split())
MONTHS = frozenset(
    "january february march april may june july august september october november december januar februar marz mai juni juli "
    "oktober dezember".split()
)


class Sentence(Struct, frozen=True):
    """A sentence of a note and what speaks for it. `ref` is "" for what the person said in the same conversation."""

    text: str
    ref: str
    title: str
    score: float = 0.0
    coverage: float = 0.0
    nearness: float = 0.0
    missing: tuple[str, ...] = ()

    @property
    def quoted(self) -> str:
        """The sentence as it can stand alone: an item of a list with the title of its note."""
        is_item = len(self.text.split()) < 5 and self.title and self.title.lower() not in self.text.lower()
        return f"{self.title}: {self.text}" if is_item else self.text


class Evidence(Struct, frozen=True):
    """What was found for a question, best first; `words` are those that were looked for."""

    best: tuple[Sentence, ...] = ()
    words: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # names in the question that no note has

    @property
    def score(self) -> float:
        """How well the best sentence answers, 0 for nothing."""
        return self.best[0].score if self.best else 0.0


@dataclass
class _Question:
    """A question taken apart."""

    text: str
    words: list[str]
    stems: dict[str, str]
    weights: dict[str, float]
    vector: Sequence[float] = ()
    names: frozenset[str] = frozenset()
    is_naming: bool = False
    near: dict[str, dict[str, float]] = field(default_factory=dict)


class Finder:
    def __init__(
        self,
        search: Search,
        entries: Entries,
        embed: Callable[[Sequence[str]], Sequence[Sequence[float]]],
        ignored: Collection[str],
        least: Collection[str] = (),
    ) -> None:
        """`embed` gives no vectors where none can be had; `ignored` carry no meaning, `least` of them ask and point."""
        self._least = least
        self._search = search
        self._entries = entries
        self._embed = embed
        self._ignored = ignored

    def find_evidence(self, question: str, *, about: str = "", subjects: Sequence[str] = (), said: Sequence[str] = ()) -> Evidence:
        """The best sentences for a question. `about` is the question before one that follows it up, `subjects` are references
        of the notes that the talk is about, `said` what the person said before in it."""
        words = content_words(question, self._ignored)
        found = self._find_candidates(f"{about} {question}" if about else question, subjects) if words else []
        words = words or content_words(question, self._least)  # such as name, which says nothing about a note
        found = [*found, *(Sentence(one, "", "") for text in said for one in sentences.split(text) if not one.endswith("?"))]
        asked = self._taken_apart(question, words)
        if not found:
            return Evidence((), tuple(words), self._unknown_names(question, words, asked))
        roughly = sorted(found, key=lambda one: -self._measure_coverage(asked, one, found)[0])[:MOST_SENTENCES]
        self._add_vectors(asked, roughly)
        near = _measure_nearness(roughly, self._embed_sentences(question, roughly))
        weighed = [self._weigh_sentence(asked, one, number, found, subjects) for one, number in zip(roughly, near)]
        best = sorted(weighed, key=lambda one: -one.score)
        return Evidence(tuple(best[:6]), tuple(words), self._unknown_names(question, words, asked))

    def central(self, text: str) -> str:
        """The sentence of a text that is nearest to all of it, the first where nothing tells; "" for a text without any."""
        found = sentences.split(text)[:MOST_SENTENCES]
        vectors = self._embed(found) if len(found) > 1 else ()
        if len(vectors) != len(found):
            return found[0] if found else ""
        middle = [sum(column) for column in zip(*vectors)]
        # The first sentence of a text is its subject more often than any other.
        scores = [dot(middle, vector) * (FIRST if n == 0 else 1.0) for n, vector in enumerate(vectors)]
        return found[scores.index(max(scores))]

    def collect(self, query: str, least: float = ALL_OF_IT) -> list[Sentence]:
        """The sentences of all notes that speak of something, note by note, each in the order of its note."""
        words = content_words(query, self._ignored) or content_words(query, self._least)
        found = self._find_candidates(query, (), MOST_NOTES) if words else []
        asked = self._taken_apart(query, words)
        return [one for one in found if self._measure_coverage(asked, one, found)[0] >= least]

    # -- inside -----------------------------------------------------------------------------------

    def _find_candidates(self, query: str, subjects: Sequence[str], most: int = HITS) -> list[Sentence]:
        looks = Looks(snippet_chars=PASSAGE_CHARS, per_item=2, has_context=True)
        hits = self._search.find(query, limit=most, has_documents=False, looks=looks)
        texts: dict[str, tuple[str, str]] = {}
        for ref in subjects:
            if (entry := self._entries.find(ref)) is not None:
                texts[ref] = entry.title or "", entry.body[:WHOLE_CHARS]
        for hit in hits:
            if hit.ref.startswith(("skill://", "log://")) or (hit.ref in texts and len(texts[hit.ref][1]) < WHOLE_CHARS):
                continue
            entry = self._entries.find(hit.ref)
            if entry is None:
                continue
            text = entry.body if len(entry.body) <= WHOLE_CHARS else hit.snippet
            texts[hit.ref] = hit.title, "\n".join(filter(None, (texts.get(hit.ref, ("", ""))[1], text)))
        found: list[Sentence] = []
        for ref, (title, text) in texts.items():
            lines = sentences.split(markdown.split(text)[1] if text.startswith("---") else text)
            # A remembered fact is its own title; only a heading above other sentences says nothing by itself.
            below = [line for line in lines if line.strip().lower() != title.strip().lower()]
            found.extend(Sentence(line, ref, title) for line in below or lines)
        return list(dict.fromkeys(found))

    def _taken_apart(self, question: str, words: list[str]) -> _Question:
        counts = self._search.passages.frequencies(words)
        total = max(1, self._search.passages.counts().chunks)
        weights = {word: math.log(1 + total / (1 + counts.get(word, 0))) for word in words}
        names = frozenset(w for w in words if w not in MONTHS and _is_name(question, w))
        stems = {word: stem(word) for word in words}
        return _Question(question, words, stems, weights, (), names, bool(NAMING.match(question)))

    def _unknown_names(self, question: str, words: Sequence[str], asked: _Question) -> tuple[str, ...]:
        """Names that no note has: words with a capital letter inside a sentence, and words with digits."""
        counts = self._search.passages.frequencies(words)
        found = []
        for match in WORD.finditer(question):
            word = match[0].lower()
            if match.start() > 0 and match[0][0].isupper() and any(_strip_accents(word).startswith(w[:4]) for w in words):
                known = [w for w in words if _strip_accents(word).startswith(w)]
                if known and not counts.get(known[0], 0):
                    found.append(known[0])
        return tuple(dict.fromkeys(found))

    def _embed_sentences(self, question: str, found: Sequence[Sentence]) -> Sequence[Sequence[float]]:
        return self._embed([question, *(f"{one.title}: {one.text}" if one.title else one.text for one in found)])

    def _add_vectors(self, asked: _Question, found: Sequence[Sentence]) -> None:
        """How near the words of the question are to other words of the best sentences, where they do not stand there themselves."""
        if self._measure_coverage(asked, found[0], found)[0] >= PLAIN:
            return
        near = found[:6]
        missing = [w for w in asked.words if not any(_has_stem(asked.stems[w], one.text) for one in near[:2])]
        others = list(
            dict.fromkeys(w for one in near for w in content_words(f"{one.title} {one.text}", self._ignored) if w.isalpha())
        )[:MOST_WORDS]
        if not missing or not others:
            return
        vectors = self._embed([*missing, *others])
        if not vectors:
            return
        for word, vector in zip(missing, vectors):
            asked.near[word] = {other: dot(vector, theirs) for other, theirs in zip(others, vectors[len(missing) :])}

    def _measure_coverage(self, asked: _Question, one: Sentence, found: Sequence[Sentence]) -> tuple[float, tuple[str, ...]]:
        total, held, missing = sum(asked.weights.values()), 0.0, []
        theirs = content_words(f"{one.title} {one.text}", ()) if asked.near else []
        for word in asked.words:
            share = 0.0
            if _has_stem(asked.stems[word], one.text):
                share = 1.0
            elif _has_stem(asked.stems[word], one.title):
                share = TITLE
            else:
                near = max((asked.near.get(word, {}).get(other, 0.0) for other in theirs), default=0.0)
                if near >= NEAR_WORD:
                    share = near * NEAR_SHARE
                if one.ref and any(_has_stem(asked.stems[word], other.text) for other in found if other.ref == one.ref):
                    share = max(share, NEARBY)
            held += share * asked.weights[word]
            if share < NEARBY:
                missing.append(word)
        return (held / total if total else 0.0), tuple(missing)

    def _adds_somebody(self, asked: _Question, one: Sentence) -> bool:
        """Whether a sentence, or its title, has a word that may be somebody and that the question did not have."""
        words = content_words(f"{one.title} {one.text}", self._ignored)
        known = set(asked.stems.values())
        return any(stem(word) not in known and not TIMES.search(word) and word not in MONTHS | NOBODYS for word in words)

    def _weigh_sentence(
        self, asked: _Question, one: Sentence, nearness: float, found: Sequence[Sentence], subjects: Sequence[str]
    ) -> Sentence:
        coverage, missing = self._measure_coverage(asked, one, found)
        score = BY_WORDS * coverage + BY_MEANING * nearness if nearness >= 0 else coverage
        if any(kind.search(asked.text) and not wanted.search(f": {one.text}") for kind, wanted in KINDS):
            score -= MISFIT
        if WHO.match(asked.text) and not self._adds_somebody(asked, one):
            score -= NOBODY
        of = OF.search(asked.text)
        if asked.is_naming or (of is not None and _strip_accents(of[1].lower()) in missing):
            score -= UNNAMED * sum(word not in GENERIC and word not in asked.names for word in missing)
        score -= NAMELESS * sum(word in asked.names for word in missing)
        if one.ref and one.ref in subjects:
            score += SUBJECT
        return replace(one, score=score, coverage=coverage, nearness=max(0.0, nearness), missing=missing)


def _measure_nearness(found: Sequence[Sentence], vectors: Sequence[Sequence[float]]) -> list[float]:
    """How near each sentence is to the question, whose vector comes first; -1 where nobody knows."""
    return [max(0.0, dot(vectors[0], vector)) for vector in vectors[1:]] if len(vectors) == len(found) + 1 else [-1.0] * len(found)


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of two unit vectors."""
    return sum(x * y for x, y in zip(a, b))


def content_words(text: str, ignored: Collection[str]) -> list[str]:
    """The words that carry meaning, without accents and possessives, in order, each once."""
    found = []
    for match in WORD.finditer(text):
        word = match[0].lower().replace("’", "'")
        word = re.sub(r"^(?:[cdjlmnst]|qu)'(?=\w{2})", "", word)
        if word in ignored or word.removesuffix("'s") in ignored:
            continue
        word = _strip_accents(word.removesuffix("'s").removesuffix("'"))
        if len(word) > 1 or word.isdigit():
            found.append(word)
    return list(dict.fromkeys(found))


def stem(word: str) -> str:
    """A word without what is added to it, roughly, in any of the four languages."""
    if not word.isalpha():
        return word
    for ending in ENDINGS:
        if len(word) - len(ending) >= 4 and word.endswith(ending):
            return word[: -len(ending)]
    return word


def _has_stem(stemmed: str, text: str) -> bool:
    """Whether a text has a word of this stem."""
    for match in WORD.finditer(text):
        word = _strip_accents(match[0].lower())
        if stem(word) == stemmed or (len(stemmed) >= 4 and word.startswith(stemmed) and len(word) <= len(stemmed) + 5):
            return True
        if "-" in word and any(stem(part) == stemmed for part in word.split("-")):
            return True
        if len(stemmed) >= 6 and stem(word)[:6] == stemmed[:6] and abs(len(word) - len(stemmed)) <= 4 and word.isalpha():
            return True  # babysitter, babysits
        if len(stemmed) >= 5 and len(word) > len(stemmed) + 3 and word.endswith(stemmed):
            return True  # the last part of a compound
    return False


def _is_name(question: str, word: str) -> bool:
    """Whether a word has a capital letter inside a sentence."""
    found = [
        match for match in WORD.finditer(question) if _strip_accents(match[0].lower().removesuffix("'s").removesuffix("’s")) == word
    ]
    return any(match.start() > 0 and match[0][0].isupper() and not match[0].isupper() for match in found)


def _strip_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
