"""The sentences of notes that speak to a question, and how well: for an answer that is right, or for saying that there is none.

Search ranks notes against each other; its scores say nothing about whether the best one answers anything. Here each sentence
of the best notes is weighed by itself: how much of what the question names it holds (rare words count more, the note's title and
headings count, words of the same meaning and near ones by their vectors count a little), how near it is to the question as a whole,
and whether it holds what kind of thing is asked for (`answer_kinds`). A list may be the answer as a whole. Thresholds are in
`language.planning.answers`. Works on words alone where no vectors come.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib import resources
from operator import mul
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from appliance.language import sentences
from appliance.language.answer_kinds import LABEL, MAIL, Kind, compiled, holds_time, kind_of, people
from appliance.language.languages import all_words, month_names, says, strip_accents
from appliance.language.ports import FoundPassage, Notes, NoteSearch, StoredNote
from appliance.language.support import denies
from appliance.language.tables import is_data, read_tables
from appliance.language.typing_errors import QuestionWords
from appliance.language.word_forms import (
    LEAST_PART,
    WORD,
    content_words,
    has_full_name,
    has_stem,
    has_word,
    is_compound,
    is_name,
    stem,
    with_spelled_dates,
    without_possessive,
)
from appliance.text import markdown

HITS = 6  # notes that are looked at
ALIKE_HITS = 8  # and those with words that mean the same
ALONE_HITS = 2  # and those with a word of the question that none of the others has
MOST_ALONE = 4  # such words, the rarest: each is a search of its own
MOST_NOTES = 20  # from which sentences are collected
ALL_OF_IT = 0.8  # of what is looked for, which a collected sentence or its title names
PASSAGE_CHARS = 1500  # of a long note: the passage that was found
WHOLE_CHARS = 6000  # a note up to this length is looked at whole
NO_NOTES = ("skill", "log")  # schemes of entries that answer nothing
MOST_SENTENCES, MOST_BESIDE = 24, 12  # that are embedded, by their words, and of the best notes besides
MOST_WORDS = 24  # of the best notes, compared by their vectors with what the question misses
TITLE, NEARBY = 0.9, 0.45  # what a word counts that stands in the title or heading, or in another sentence of the same note
LINE_WORDS = 34  # of a line that is quoted whole
LINE, SECTION = 0.85, 0.55  # or in another sentence of the same line, or below the same heading
NEAR_WORD = 0.62  # cosine from which another word counts for one of the question
NEAR_SHARE = 0.75  # of that cosine, which it counts: less than a word that means the same (LIKE)
PLAIN = 0.85  # coverage from which nothing has to be looked for among near words
TOLD = 0.35  # what a word counts that only says what kind of thing is asked for
NAMED, NAMED_NEAR = 0.95, 0.3  # coverage and nearness of a sentence that names all that is asked about
LIKE = 0.75  # what a word counts that means the same, or is one of what is asked about
TICK = "[x] "  # before an item whose box is ticked
LEAST_LISTED, MOST_LISTED = 2, 24  # items of a list that is an answer as a whole
LISTED = 0.5  # of what the question names, which title and heading of such a list have
OF = re.compile(r"['’]s? (\w[\w-]*)\W*$")  # what is asked of somebody: "when is Tom's birthday"
YEAR = re.compile(r"(?:19|20)\d\d$")
FILE_ENDING = re.compile(r"(?<=\w)\.[a-z]{2,5}$")  # of a title that is the name of a file

Fit = Literal["held", "doubtful", "missing"]


class Sentence(Struct, frozen=True):
    """A sentence of a note and what speaks for it. `ref` is "" for what the person said in the same conversation."""

    text: str
    ref: str
    title: str
    score: float = 0.0
    coverage: float = 0.0
    nearness: float = 0.0
    missing: tuple[str, ...] = ()
    afar: float = 0.0  # how much of what the question names stands only below its heading, in its note, in a near word or nowhere
    heading: str = ""
    whole: str = ""  # the line or item it stands in
    group: int = 0
    is_item: bool = False
    is_done: bool | None = None
    items: tuple[str, ...] = ()  # of a list that is the answer as a whole
    needs_line: bool = False  # whether what is asked about stands in another sentence of its line

    @property
    def spoken(self) -> str:
        """The sentence, or its whole line where another sentence of that says what it is about."""
        return self.whole if self.needs_line and len(self.whole.split()) <= LINE_WORDS else self.text

    @property
    def quoted(self) -> str:
        """The sentence as it can stand alone: below its heading, and an item of a list with the title of its note."""
        if self.items:
            return "\n- ".join([f"{self.heading or self.title}:", *self.items])
        said = self.spoken
        said = said if self.is_done is None else f"[{'x' if self.is_done else ' '}] {said}"
        if self.heading and self.heading.lower() not in said.lower():
            return f"{self.heading}: {said}"
        is_item = len(said.split()) < 5 and self.title and self.title.lower() not in said.lower()
        return f"{self.title}: {said}" if is_item else said

    @property
    def names(self) -> str:
        """What it is about and says: title, heading and text."""
        return f"{self.title} {self.heading} {self.text}"


class Evidence(Struct, frozen=True):
    """What was found for a question, best first; `words` are those that were looked for."""

    best: tuple[Sentence, ...] = ()
    words: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # names in the question that no note has
    known: tuple[str, ...] = ()  # and those that one of these sentences or its title has

    @property
    def score(self) -> float:
        """How well the best sentence answers, 0 for nothing."""
        return self.best[0].score if self.best else 0.0

    @property
    def certainty(self) -> float:
        """The same, less for what of the question stands only around the best sentence, and for a question of one word."""
        return self.score + weigh(self.around) if self.best else 0.0

    @property
    def around(self) -> dict[str, float]:
        """What speaks against the best sentence as an answer, though not against it as the best, by the names of the weights."""
        best, is_single = self.best[0], len(self.words) < 2
        is_inflected = is_single and not any(has_word(word, best.names) for word in self.words)  # "glass" for "glasses"
        return {
            "distant_context_penalty": best.afar,
            "single_word_penalty": float(is_single),
            "inflected_word_penalty": float(is_inflected),
        }

    @property
    def note_score(self) -> float:
        """The same where that is a sentence of a note, 0 for what the person said."""
        return self.score if self.best and self.best[0].ref else 0.0

    @property
    def naming(self) -> tuple[Sentence, ...]:
        """Those sentences of notes that have all that the question names, though not the kind of thing that is asked for."""
        return tuple(one for one in self.best if one.ref and one.coverage >= NAMED and one.nearness >= NAMED_NEAR)

    @property
    def nearest(self) -> float:
        """How near the best sentence is to the question as a whole."""
        return self.best[0].nearness if self.best else 0.0

    @property
    def most_covered(self) -> float:
        """How much of what the question names some sentence holds, though it may not be of the kind that is asked for."""
        return max((one.coverage for one in self.best), default=0.0)


class _Question(Struct):
    """A question taken apart."""

    text: str
    words: list[str]
    stems: dict[str, str]
    weights: dict[str, float]
    vector: Sequence[float] = ()
    names: frozenset[str] = frozenset()
    likely: frozenset[str] = frozenset()  # words typed in small letters that notes write as a name, and years
    is_naming: bool = False
    kind: Kind | None = None
    day: str = ""  # what matches the day that is asked about
    near: dict[str, dict[str, float]] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)  # of notes and their sections, by reference and heading


class Finder:
    def __init__(
        self,
        search: NoteSearch,
        entries: Notes,
        embed: Callable[[Sequence[str]], Sequence[Sequence[float]]],
        ignored: Collection[str],
        least: Collection[str] = (),
        alike: Callable[[], Mapping[str, frozenset[str]]] = dict,
    ) -> None:
        """`embed` gives no vectors where none can be had; `ignored` carry no meaning, `least` of them ask and point.

        `alike` gives the words that speak of the same as a word; it is asked at the first question.
        """
        self._alike_words = alike
        self._least = least
        self._search = search
        self._entries = entries
        self._embed = embed
        self.ignored = self._ignored = ignored

    @cached_property
    def _everyday(self) -> Mapping[str, frozenset[str]]:
        return self._alike_words()

    @cached_property
    def _alike(self) -> dict[str, frozenset[str]]:
        """The stems that speak of the same as a stem, built for the first question: it takes a fifth of the start of a core."""
        alike = self._everyday
        stems = {word: stem(strip_accents(word)) for word in frozenset(alike).union(*alike.values())}
        found: dict[str, frozenset[str]] = {}
        for word, others in alike.items():
            found[stems[word]] = found.get(stems[word], frozenset()).union(stems[other] for other in others)
        return found

    @cached_property
    def _reader(self) -> QuestionWords:
        return QuestionWords(self._search.frequencies, self._ignored, self._alike)

    @cached_property
    def _words_alike(self) -> dict[str, frozenset[str]]:
        """The words themselves that speak of the same as a stem, as a search takes them."""
        found: dict[str, frozenset[str]] = {}
        for word, others in self._everyday.items():
            key = stem(strip_accents(word))
            found[key] = found.get(key, frozenset()) | others
        return found

    def find_evidence(self, question: str, *, about: str = "", subjects: Sequence[str] = (), said: Sequence[str] = ()) -> Evidence:
        """The best sentences for a question. `about` is the question before one that follows it up, `subjects` are references
        of the notes that the talk is about, `said` what the person said before in it."""
        kind, question = kind_of(question), self._reader.with_parts(question)
        if kind is not None and kind.name == "person" and _names_only(question, content_words(question, self._ignored)):
            kind = None  # "who is Ada?" asks what she is
        words = content_words(question, self._ignored)
        if about and not words:  # "and from when to when?"
            question, about = f"{about} {question}", ""
            words = content_words(question, self._ignored)
        found = self._find_candidates(f"{about} {question}" if about else question, subjects) if words else []
        words = words or content_words(question, self._least)  # such as name, which says nothing about a note
        theirs = content_words(" ".join(one.names for one in found), self._ignored)
        question, words = self._reader.without_errors(question, words, theirs)
        told = [Sentence(one, "", "") for text in reversed(said) for one in sentences.split(text) if not one.endswith("?")]
        found = [*told, *found]  # of two that say as much, what was said last in this conversation comes first
        asked = self._taken_apart(question, words, kind, found)
        if not found:
            return Evidence((), tuple(words), self._unknown_names(question, words, asked))
        roughly = sorted(found, key=lambda one: -self._rank_roughly(asked, one))[:MOST_SENTENCES]
        roughly += [one for one in found if one not in roughly][:MOST_BESIDE]  # of the notes that are nearest, whatever their words
        self._add_vectors(asked, roughly)
        near = _measure_nearness(roughly, self._embed_sentences(f"{about} {question}".strip(), roughly))
        weighed = [self._weigh_sentence(asked, one, number, subjects) for one, number in zip(roughly, near)]
        best = self._with_list(asked, sorted(weighed, key=lambda one: -one.score), found)
        known = [one for one in sorted(asked.names) if any(has_stem(asked.stems[one], s.names) for s in best)]
        return Evidence(tuple(best[:6]), tuple(words), self._unknown_names(question, words, asked), tuple(known))

    def is_known(self, word: str) -> bool:
        """Whether a word stands in a note, or is one of everyday life."""
        return word in self._everyday or bool(self._search.frequencies([word]).get(word))

    def notes_about(self, query: str) -> list[tuple[str, StoredNote]]:
        """The notes that share a word with a query, or come near to it, each with its reference."""
        hits = self._search.find_passages(query, limit=HITS, without=NO_NOTES)
        return [(hit.ref, entry) for hit in hits if (entry := self._entries.find(hit.ref)) is not None]

    def nearness(self, one: str, other: str) -> float:
        """How near two texts are in meaning, 0 where nothing tells."""
        vectors = self._embed([one, other])
        return dot(*vectors) if len(vectors) == 2 else 0.0

    def collect(self, query: str, least: float = ALL_OF_IT) -> list[Sentence]:
        """The sentences of all notes that speak of something, note by note, each in the order of its note."""
        query = self._reader.with_parts(query)
        words = content_words(query, self._ignored) or content_words(query, self._least)
        found = self._find_candidates(query, (), MOST_NOTES) if words else []
        asked = self._taken_apart(query, words, kind_of(query), found)
        return [one for one in found if self._measure_coverage(asked, replace(one, whole="")).coverage >= least]

    # -- inside -----------------------------------------------------------------------------------

    def _find(self, query: str, most: int, *, has_meaning: bool = True) -> list[FoundPassage]:
        return [*self._search.find_passages(query, limit=most, without=NO_NOTES, has_meaning=has_meaning, chars=PASSAGE_CHARS)]

    def _find_candidates(self, query: str, subjects: Sequence[str], most: int = HITS) -> list[Sentence]:
        hits = self._find(query, most)
        if others := " ".join(word for one in content_words(query, self._ignored) for word in self._words_alike.get(stem(one), ())):
            known = {hit.ref for hit in hits}
            more = self._find(others, ALIKE_HITS, has_meaning=False)
            hits = [*hits, *(hit for hit in more if hit.ref not in known)]
        counts = self._search.frequencies(content_words(query, self._ignored))
        alone = [word for word, count in counts.items() if count and not _is_held(word, hits)]
        for word in sorted(alone, key=lambda one: counts[one])[:MOST_ALONE]:
            if not _is_held(word, hits):
                known = {hit.ref for hit in hits}
                more = self._find(word, ALONE_HITS, has_meaning=False)
                hits = [*hits, *(hit for hit in more if hit.ref not in known)]
        texts: dict[str, tuple[str, str]] = {}
        for ref in subjects:
            if (entry := self._entries.find(ref)) is not None:
                texts[ref] = entry.title or "", entry.body[:WHOLE_CHARS]
        for hit in hits:
            if hit.ref in texts and len(texts[hit.ref][1]) < WHOLE_CHARS:
                continue
            entry = self._entries.find(hit.ref)
            if entry is None:
                continue
            first = f"{entry.body.splitlines()[0]}\n" if is_data(hit.ref) else markdown.front(entry.body)
            text = entry.body if len(entry.body) <= WHOLE_CHARS else first + hit.snippet
            texts[hit.ref] = hit.title, "\n".join(filter(None, (texts.get(hit.ref, ("", ""))[1], text)))
        found: list[Sentence] = []
        for ref, (title, text) in texts.items():
            title = FILE_ENDING.sub("", title)
            lines = _row_lines(ref, title, text) if is_data(ref) else sentences.read(text, title)
            # A remembered fact is its own title; only a heading above other sentences says nothing by itself.
            below = [line for line in lines if line.text.strip().lower() != title.strip().lower()]
            found.extend(
                Sentence(
                    *(line.text, ref, title),
                    heading=line.heading,
                    whole=line.whole,
                    group=line.group,
                    is_item=line.is_item,
                    is_done=line.is_done,
                )
                for line in below or lines
            )
        return list(dict.fromkeys(found))

    def _taken_apart(self, question: str, words: list[str], kind: Kind | None, found: Sequence[Sentence]) -> _Question:
        counts = self._search.frequencies(words)
        total = max(1, self._search.count_passages())
        # What is asked for says some words of the question itself: an age says "old", an amount "cost".
        told = [word for word in words if (kind is None or word not in kind.words) and not says("still_open", word)]
        words = told if len(told) > 1 else words
        weights = {word: math.log(1 + total / (1 + counts.get(word, 0))) for word in words}
        if len(told) == 1 and counts.get(told[0]):  # "Fritzis phone number": what it is about counts most
            weights = {word: weight * (1.0 if word in told else TOLD) for word, weight in weights.items()}
        shouted = "" if question.isupper() else question  # in which capitals mean nothing
        acronyms = {w for w in words if counts.get(w) and len(w) > 1 and w.isalpha() and re.search(rf"\b{w.upper()}\b", shouted)}
        stems = {word: stem(word) for word in words}
        # A word of everyday life is no name, though German writes it with a capital letter.
        names = (
            frozenset(w for w in words if w not in month_names() and is_name(question, w) and stems[w] not in self._alike)
            | acronyms
        )
        likely = frozenset(w for w in words if w not in names and (YEAR.match(w) or self._is_always_name(w, stems[w], found)))
        asked = _Question(question, words, stems, weights, (), names, likely, says("asks_name_of", question), kind)
        said = [match[0].lower() for match in WORD.finditer(question)]
        pairs = [pair for one, two in zip(said, said[1:]) for pair in ((one, two), (two, one))]
        days = [(day, month) for day, month in pairs if day.isdigit() and strip_accents(month) in month_names()]
        asked.day = "|".join(rf"(?<!\d){day}\w{{0,2}}\.? {month}|{month} {day}(?!\d)" for day, month in days)
        parts: dict[tuple[str, str], list[str]] = {}
        for one in found:
            for key in ((one.ref, ""), (one.ref, one.heading)) if one.heading else ((one.ref, ""),):
                parts.setdefault(key, []).append(one.text)
        asked.texts.update((key, "\n".join(texts)) for key, texts in parts.items())
        return asked

    def _is_always_name(self, word: str, stemmed: str, found: Sequence[Sentence]) -> bool:
        """Whether the sentences found have a word with a capital letter only."""
        if not word.isalpha() or len(word) < LEAST_PART or stemmed in self._alike or word in month_names():
            return False
        forms = {word, word.removesuffix("s")}
        said = [match for one in found for match in WORD.finditer(one.names) if match[0][:1].lower() == word[0]]
        said = [match for match in said if strip_accents(without_possessive(match[0].lower())) in forms]
        return bool(said) and all(match[0][0].isupper() for match in said)

    def _unknown_names(self, question: str, words: Sequence[str], asked: _Question) -> tuple[str, ...]:
        """Names that no note has: words with a capital letter inside a sentence, and words with digits."""
        counts = self._search.frequencies(words)
        found = []
        for match in WORD.finditer(question):
            word = match[0].lower()
            if match.start() > 0 and match[0][0].isupper() and any(strip_accents(word).startswith(w[:4]) for w in words):
                known = [w for w in words if strip_accents(word).startswith(w)]
                if known and not counts.get(known[0], 0):
                    found.append(known[0])
        return tuple(dict.fromkeys(found))

    def _embed_sentences(self, question: str, found: Sequence[Sentence]) -> Sequence[Sequence[float]]:
        return self._embed([question, *(": ".join(filter(None, (one.title, one.heading, one.text))) for one in found)])

    def _add_vectors(self, asked: _Question, found: Sequence[Sentence]) -> None:
        """How near the words of the question are to other words of the best sentences, where they do not stand there themselves."""
        if self._measure_coverage(asked, found[0]).coverage >= PLAIN:
            return
        near = found[:6]
        # Of somebody a near word is somebody else: "Mum" is no answer about Dad.
        missing = [w for w in asked.words if w not in asked.names and asked.stems[w] not in self._alike]
        missing = [w for w in missing if not any(has_stem(asked.stems[w], one.text) for one in near[:2])]
        others = list(dict.fromkeys(w for one in near for w in content_words(one.names, self._ignored) if w.isalpha()))[:MOST_WORDS]
        if not missing or not others:
            return
        vectors = self._embed([*missing, *others])
        if not vectors:
            return
        for word, vector in zip(missing, vectors):
            asked.near[word] = {other: dot(vector, theirs) for other, theirs in zip(others, vectors[len(missing) :])}

    def _rank_roughly(self, asked: _Question, one: Sentence) -> float:
        """Which sentences are worth a vector: those with the words, of these with the kind of thing that is asked for."""
        return self._measure_coverage(asked, one).coverage + (0.5 if self._fit_with_heading(asked, one) != "missing" else 0.0)

    def _means_the_same(self, stemmed: str, text: str) -> bool:
        """Whether a text has a word that speaks of the same as this one."""
        others = self._alike.get(stemmed, frozenset())
        return any(stem(word) in others for word in content_words(text, ()))

    def _measure_coverage(self, asked: _Question, one: Sentence) -> Sentence:
        """How much of what the question names a sentence holds with what stands around it, and which words it does not hold."""
        total, held, missing, afar, needs_line = sum(asked.weights.values()), 0.0, [], 0.0, False
        names, theirs = one.names, content_words(one.names, ()) if asked.near else []
        for word in asked.words:
            share, stemmed, is_near = 0.0, asked.stems[word], False
            if word in asked.names and not has_word(word, f"{names} {one.whole}"):
                pass  # Piran is not Piranesi
            elif has_stem(stemmed, one.text):
                share = 1.0
            elif has_stem(stemmed, f"{one.title} {one.heading}") or is_compound(word, names):
                share = TITLE
            elif has_stem(stemmed, one.whole):
                share = LINE
            elif self._means_the_same(stemmed, names):
                share = LIKE
            elif self._means_the_same(stemmed, one.whole):
                share = LIKE * LINE
            else:
                near = max((asked.near.get(word, {}).get(other, 0.0) for other in theirs), default=0.0)
                if near >= NEAR_WORD:
                    share, is_near = near * NEAR_SHARE, True
                if one.heading and has_stem(stemmed, asked.texts.get((one.ref, one.heading), "")):
                    share = max(share, SECTION)
                elif one.ref and has_stem(stemmed, asked.texts.get((one.ref, ""), "")):
                    share = max(share, NEARBY)
            held += share * asked.weights[word]
            if share < NEARBY:
                missing.append(word)
            if share <= SECTION or is_near:
                afar += asked.weights[word]
            needs_line |= share in (LINE, LIKE * LINE)
        coverage, afar = (held / total, afar / total) if total else (0.0, 0.0)
        return replace(one, coverage=coverage, missing=tuple(missing), afar=afar, needs_line=needs_line and one.whole != one.text)

    def _with_list(self, asked: _Question, best: list[Sentence], found: Sequence[Sentence]) -> list[Sentence]:
        """The best sentences, with a whole list in place of its item that is the best, when the question asks for all of them.

        It does so when what it names stands in the title or the heading, and no item has more of it than another.
        """
        is_counting = asked.kind is not None and asked.kind.name == "number" and bool(says("counting", asked.text))
        no_kind = weigh({"missing_kind_penalty": 1.0})  # a list is counted, whose items hold no number
        pool = sorted(best, key=lambda one: -(one.score - (no_kind if is_counting and one.score < 0 else 0.0)))
        top = pool[0] if pool else None
        if top is None or not top.is_item or (asked.kind is not None and not is_counting):
            return best
        items = [one for one in found if one.ref == top.ref and one.group == top.group and one.is_item]
        wholes = list(dict.fromkeys(one.whole for one in items))
        if not LEAST_LISTED <= len(wholes) <= MOST_LISTED:
            return best
        for word in asked.words:
            holding = sum(has_stem(asked.stems[word], whole) or self._means_the_same(asked.stems[word], whole) for whole in wholes)
            if 0 < holding < len(wholes) and (word in top.missing or not has_stem(asked.stems[word], f"{top.title} {top.heading}")):
                return best  # one of them is meant
        about = f"{top.title} {top.heading}"
        said = sum(
            asked.weights[w] for w in asked.words if has_stem(asked.stems[w], about) or self._means_the_same(asked.stems[w], about)
        )
        if said < LISTED * sum(asked.weights.values()):
            return best
        states = {one.whole: one.is_done for one in items}
        if says("still_open", asked.text) and any(state is False for state in states.values()):
            wholes = [whole for whole in wholes if states[whole] is False]
        count = f"{len(wholes)} " if is_counting else ""
        score = top.score - (no_kind if top.score < 0 else 0.0)
        ticked = tuple(f"{TICK if states[whole] else ''}{whole}" for whole in wholes)
        listed = replace(top, items=ticked, heading=f"{count}{top.heading or top.title}", score=score)
        return [listed, *(one for one in best if one.ref != top.ref or one.group != top.group)]

    def _adds_somebody(self, asked: _Question, one: Sentence) -> bool:
        """Whether a sentence, or its title, has a word that may be somebody and that the question did not have."""
        known = set(asked.stems.values())
        known |= {stem(strip_accents(other)) for word in asked.words for other in self._everyday.get(word, ())}
        if any(stem(strip_accents(word.lower())) not in known for word in people(one.text)):
            return True
        words = (strip_accents(match[0].lower()) for match in WORD.finditer(one.names) if match[0][0].isupper())
        words = (word for word in words if word not in self._ignored and word not in all_words("nobodys"))
        return any(stem(word) not in known and stem(word) not in self._alike and not holds_time(word) for word in words)

    def _fit_with_heading(self, asked: _Question, one: Sentence) -> Fit:
        """The same with the heading above it, which may say when or who: "3 May", and below it "came 7th"."""
        if asked.kind is not None and asked.kind.name == "statement" and compiled(MAIL).search(one.title):
            return "held"  # a mail is what its sender says
        fit = self._fit_of_kind(asked, one.text)
        heading = YEAR.sub("", one.heading)  # "Birthday 2026" says when of nothing
        if fit != "missing" or not heading or self._fit_of_kind(asked, heading) == "missing":
            return fit
        return "held" if asked.kind is not None and asked.kind.name == "time" else "doubtful"

    @staticmethod
    def _fit_of_kind(asked: _Question, text: str) -> Fit:
        """Whether a sentence holds the kind of thing that is asked for; in doubt where only the question names it.

        Of a full name one word is in the question: "Ask Tom" is no answer to what else Tom is called.
        """
        if asked.kind is None:
            return "held"
        if asked.kind.name == "first name" and asked.names:
            return "held" if any(has_full_name(text, name) for name in asked.names) else "missing"
        if not asked.kind.holds(text):
            return "doubtful" if asked.kind.may_hold(text) else "missing"
        label = compiled(LABEL).match(text) if asked.kind.name == "place" else None
        if label is not None and _tells(text[label.end() :]) and not asked.kind.holds(text[label.end() :]):
            return "missing"  # "Fuse box: hall" says where, "Water: the pump will be switched off" does not
        named = {word for word in asked.words if word in asked.names or is_name(asked.text, word)}
        if asked.kind.name != "place" or not named:
            return "held"
        rest = WORD.sub(lambda at: " " if strip_accents(at[0].lower()) in named else at[0], text)
        return "held" if asked.kind.holds(rest) else "doubtful"

    def _weigh_sentence(self, asked: _Question, one: Sentence, nearness: float, subjects: Sequence[str]) -> Sentence:
        measured = replace(self._measure_coverage(asked, one), nearness=nearness)
        score = weigh(self._measure_features(asked, measured, one.ref in subjects))
        return replace(measured, score=score, nearness=max(0.0, nearness))

    def _measure_features(self, asked: _Question, one: Sentence, is_subject: bool) -> dict[str, float]:
        """What speaks for a sentence and against it, by the names of the weights."""
        fit = self._fit_with_heading(asked, one) if one.ref else "held"
        things = sum(word not in all_words("generic") and word not in asked.names for word in one.missing)
        kind, of = asked.kind.name if asked.kind is not None else "", OF.search(asked.text)
        is_naming = asked.is_naming or (of is not None and strip_accents(of[1].lower()) in one.missing)
        is_other_day = asked.day and not re.search(asked.day, with_spelled_dates(f"{one.names} {one.whole}"), re.IGNORECASE)
        return {
            "coverage": one.coverage,
            "similarity": one.nearness if one.nearness >= 0 else one.coverage,  # without vectors words must do
            "missing_kind_penalty": float(fit == "missing"),
            "doubtful_kind_penalty": float(fit == "doubtful"),
            "denial_match": float(denies(asked.text) and denies(one.text)),
            "missing_person_penalty": float(bool(kind) and says("asks_who", asked.text) and not self._adds_somebody(asked, one)),
            "missing_thing_penalty": float(things if is_naming else 0),
            "missing_word_penalty": float(things if not is_naming and kind in ("person", "place", "time") else 0),
            "missing_name_penalty": float(sum(word in asked.names for word in one.missing)),
            "missing_likely_name_penalty": float(sum(word in asked.likely for word in one.missing)),
            "other_day_penalty": float(bool(is_other_day)),
            "discussed_note": float(bool(one.ref) and is_subject),
        }


def weigh(features: Mapping[str, float]) -> float:
    """The sum of features, each with the weight that `make train-language` fitted."""
    weights = _read_weights()
    return sum(weights[name] * value for name, value in features.items())


@lru_cache(maxsize=1)
def _read_weights() -> dict[str, float]:
    data = (resources.files("appliance") / "language" / "weights" / "evidence.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, float])


def _row_lines(ref: str, title: str, text: str) -> list[sentences.Line]:
    """The rows of a file of values, each in words."""
    rows = (row.line for table in read_tables(ref, title, text) for row in table.rows)
    return [sentences.Line(row, "", row, number, is_item=True) for number, row in enumerate(dict.fromkeys(rows), 1)]


def _measure_nearness(found: Sequence[Sentence], vectors: Sequence[Sequence[float]]) -> list[float]:
    """How near each sentence is to the question, whose vector comes first; -1 where nobody knows."""
    return [max(0.0, dot(vectors[0], vector)) for vector in vectors[1:]] if len(vectors) == len(found) + 1 else [-1.0] * len(found)


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of two unit vectors."""
    return float(sum(map(mul, a, b)))


def _names_only(question: str, words: Sequence[str]) -> bool:
    """Whether a question names somebody and nothing else."""
    return bool(words) and all(word in all_words("titles") or is_name(question, word) for word in words)


def _tells(text: str) -> bool:
    """Whether a text has a verb."""
    return any(match[0].lower() in all_words("verbs") for match in WORD.finditer(text))


def _is_held(word: str, hits: Sequence[FoundPassage]) -> bool:
    """Whether a passage that was found has a word."""
    return any(has_stem(stem(word), f"{hit.title} {hit.snippet}") for hit in hits)
