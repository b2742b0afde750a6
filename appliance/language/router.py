"""What a message asks for: an effect, a list, the time, a search, work on a text, or none of these.

Cues decide: a message either fits a sentence of a language file or it does not, so that an effect never rests on a guess. A
question asks for an effect only when it is put to the assistant ("can you ..."). What fits no sentence is told apart by the
nearest examples with the embedding model that is loaded anyway: talk, a question about the world, or about the person's own
things; without one, by words with which people mean themselves. Which request it likely is a linear classifier over words, letters
and the vector says: it decides only whether to ask back ("Shall I add the task ...?"), never an effect. Its weights are fitted by
`make train-language` from the sentences of the language files and from sets of requests and of sentences that ask for nothing, and
ship as one file. Writes nothing, and calls no language model.
"""

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from operator import mul

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language import arithmetic, message_parts, named_notes, sentences, typing_errors
from appliance.language.languages import TEXTS, Language, Languages, words_in
from appliance.language.message_parts import EDGE, Reading
from appliance.language.sentence_templates import SentenceTemplate, plain_words
from appliance.language.times import dates, time_expression
from appliance.language.times.reductions import reduced
from appliance.language.times.tokenizer import tokens
from appliance.language.typing_errors import Correction

# That point to what was said, before or around them, or to what was done last.
POINTING = (
    *("append_it", "task_it", "remember_it", "note_it", "done_it", "cancel_it", "priority_it", "remind_it", "remind_before"),
)
LAST = (
    *("forget_it", "undo_now", "did_it", "change_it", "more_it", "also_it", "and_fact"),
)  # that speak of what was done just before, and of nothing else
MORE = ("add_it",)  # after an effect, for what fits nothing else
ANSWERS = ("yes", "no")  # to a question of the program
BEYOND = ("beyond_web", "beyond_mail", "beyond_call", "beyond_buy", "beyond_home")  # what this box cannot do for a small model
OF_CALENDAR = ("agenda", "event_move", "event_gone")  # looked at first where there is a calendar
OF_DEVICES = ("device", "device_state")  # and where there is a house
LOOKED_UP = ("weather", "rain", "news", "rates", "briefing")  # elsewhere, or what one would say that it cannot be
REMINDING = ("remind_late", "remind_at", "remind", "alarm", "wake", "timer", "remember_to")
NAMED = ("named_level", "named_move", "named_drop")  # of the task or reminder that has the name
# Looked at in this order: the first that fits is taken.
ORDER = (
    *LOOKED_UP,
    *("time_in", "time", "date", "week", "day_of", "days_until", "days_since", "days_between", "spell", "help"),
    *("event", "my_name", "recurring", "list_note", "tasks", "reminders", "memories"),
    *POINTING,
    *("remind_when", "remind_late", "alarm", "wake", "remind_at", "remind", "timer", "units", "sum", "remember_to", "remember"),
    *("delete_note", "priority", "priority_up", "priority_down", "append", "task", "done", "cancel", "drop_task", "forget"),
    *("note", "append_bare", "all_notes", "send_file", "read_note", "search"),
    *("done_maybe", "beyond_web", "asking", "list_of", "tell_of", "polite", "spelling", "summary", "translation", "text"),
    *("about", "asking_for"),
    *BEYOND[1:],
    *("append_maybe", "done_told", *NAMED, "needed"),
)
COURTESIES = ("hello", "greeting", "thanks", "bye", "night", "how", "who", "outside")  # that ask for nothing but a word back
SPANNING = (
    "remember",
    "note",
    "append",
    "append_bare",
    "sum",
    "about",
    "read_note",
    "search",
    *TEXTS,
)  # of which several sentences may be one part
DATES = ("day_of", "days_until", "days_since", "days_between")
APPENDING = ("append", "append_bare", "append_it", "append_maybe")
EFFECTS = frozenset(
    (
        *POINTING,
        *LAST,
        *REMINDING,
        *("remind_when", "recurring", "delete_note", "remember", "task", "drop_task", "done", "cancel", "priority"),
        *("priority_up", "priority_down", "forget"),
        *("note", "append", "append_bare", "collect_note", "digest_note", "send_file"),
        *("event", "event_move", "event_gone", "device"),
    )
)
ASKING = ("remind_late", "remind_at", "remind")  # that are no deed of somebody's behind another request: "remind me to ..."
# Behind which such a one may stand.
JOINED = (*REMINDING, "task", "append", "remember", "note", "done", "cancel", "priority", "beyond_home")
MANIFOLD = ("task", "task_it", "append", "append_it", "append_bare")  # that may be asked of several things
LISTING = {"task": "task", "append": "items"}  # their parts that name a thing
CAREFUL = (
    "append_maybe",
    "add_it",
    "done_maybe",
    "done_told",
    *NAMED,
)  # that may lead to an effect, when something is there that they name
MAX_CHARS = 2000  # of a message that may ask for an effect
MAX_EXAMPLE_CHARS = 300
NEAREST = 3  # examples of a kind that count
ALIKE_WORDS = 0.75  # of the words of an example and a message, which both have, where no vectors tell
MARGIN = 0.04  # by which the kind of the nearest examples must lead
CLAUSE_WORDS = 3
OF_NAMED = ("list_of", "tell_of", "digest_named")  # work on what notes say about something that is named
MOST_NAMED = 9  # words of it
MOST_ASKED = 14  # words of what is asked for with its name alone, "tell me the code of the garage"
MOST_TITLE, MOST_BARE = 6, 4  # words that name a note, and one with nothing else said: "shopping list: milk"
MOST_CHANGED = 7  # words of what is to be different
QUOTED = (('"', '"'), ("'", "'"), ("“", "”"), ("„", "“"), ("«", "»"), ("‘", "’"))  # a message as a whole

Possible = Sequence[tuple[str, Sequence[SentenceTemplate]]]  # sentences by intent
Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


class Intent(Struct, frozen=True):
    """What is asked for, with the parts of the sentence that say what exactly, in the person's own words."""

    name: str
    language: Language
    parts: Mapping[str, str] = {}
    text: str = ""
    context: str = ""  # what is said around it in the same message
    also: "Intent | None" = None  # another effect that the message asks for after this one
    is_guess: bool = False  # a typing error was mended to understand it

    @property
    def each(self) -> "list[Intent]":
        """It, and what the message asks for after it."""
        return [self, *(self.also.each if self.also is not None else ())]


class Router:
    """Tells what a message asks for."""

    def __init__(self, languages: Languages, embed: Embed) -> None:
        """`embed` gives unit vectors of texts, or none when there is no model for it."""
        self.languages = languages
        self._embed = embed
        self._guard = threading.Lock()
        self._examples: dict[str, list[tuple[str, Sequence[float]]]] = {}
        self._mended: tuple[str, dict[str, Sequence[Correction]]] = ("", {})

    def cue(self, text: str, order: Sequence[str] = ORDER, *, can_point: bool = False) -> Intent | None:
        """What a message asks for in so many words, of these; None when it does not.

        `can_point`: it may mean what was said or done before it, such as "cancel that". A pasted mail asks for no effect.
        """
        said = text.strip()
        if message_parts.is_pasted(said):
            order = [name for name in order if name not in EFFECTS]
        if len(said) > 2 and (said[0], said[-1]) in QUOTED and said[0] not in said[1:-1]:
            said = said[1:-1].strip()
        languages = self.languages.detect(said)
        for language in languages:
            if (found := self._read_message(said, language, order, can_point)) is not None:
                return found
        for language in languages if len(said) <= MAX_CHARS else ():
            for mended in self._mend_errors(said, language):
                if (found := self._read_message(mended.text, language, order, can_point)) is not None:
                    parts = {key: mended.as_typed(part) for key, part in found.parts.items()}
                    is_guess = any(typed.lower() not in language.short for *_, typed in mended.places)
                    return replace(found, parts=parts, context=mended.as_typed(found.context), is_guess=is_guess)
        return None

    def duty(self, text: str, language: Language, *, is_whole: bool = False) -> str:
        """What a text says that somebody has to do, "call mum" of "I keep forgetting to call mum"; else the text itself.

        `is_whole`: of all of the text, which names several things.
        """
        for clause in (text,) if is_whole else reversed(message_parts.clauses(text)):
            for sentence in language.patterns.get("duty", ()):
                if (found := sentence.match(clause, plain_words(clause))) is not None:
                    return found["task"].strip(" ,.!")
        return text

    def likely(self, text: str, language: Language, now_ms: int) -> str:
        """Which of `ASKED` a message likely is, "" for none."""
        vectors = self._embed([text[:MAX_EXAMPLE_CHARS]]) if len(text) <= MOST_CHARS else ()
        return likely_request(with_time_marked(text, language, now_ms), vectors[0] if vectors else ())

    def kind(self, text: str, language: Language, least: float = 0.0) -> str:
        """`talk`, `world` or `notes` by the nearest examples; "" where they do not tell, or none is as near as `least`.

        Without vectors talk alone is told, by the words of its examples: "tell me a story" asks no note.
        """
        known = self._example_vectors(language)
        vectors = self._embed([text[:MAX_EXAMPLE_CHARS]]) if known else ()
        if not vectors:
            return "talk" if _is_nearly(text, language.examples.get("talk", ())) else ""
        near: dict[str, list[float]] = {}
        for name, vector in known:
            near.setdefault(name, []).append(sum(map(mul, vector, vectors[0])))
        scores = sorted(((sum(sorted(all_, reverse=True)[:NEAREST]) / NEAREST, name) for name, all_ in near.items()), reverse=True)
        if max(near[scores[0][1]]) < least:
            return ""
        return scores[0][1] if len(scores) < 2 or scores[0][0] - scores[1][0] >= MARGIN else ""

    def _mend_errors(self, said: str, language: Language) -> Sequence[Correction]:
        """What a message may mean whose typing errors are mended; kept for the message that is looked at, often more than once."""
        text, known = self._mended
        if text != said:
            known = {}
            self._mended = (said, known)
        if language.name not in known:
            known[language.name] = typing_errors.mended(said, language, self.languages.real_words())
        return known[language.name]

    def _read_message(self, said: str, language: Language, order: Sequence[str], can_point: bool) -> Intent | None:
        """What a message asks for as a whole, or in one of its parts with the rest around it."""
        read_two = self._read_with_more(said, language, order, can_point) or self._read_joined(said, language, order)
        if read_two is not None:
            return read_two
        bare = message_parts.without_courtesies(said, language) if len(said) <= MAX_CHARS else said
        possible = language.possible(plain_words(said), order)
        if not possible:
            return None
        named = possible if can_point else [one for one in possible if one[0] not in POINTING]
        whole = self._cue_intent(Reading(bare), said, language, named)
        if len(said) > MAX_CHARS or (whole is not None and (whole.name in SPANNING or _is_one(whole))):
            return whole
        for reading in message_parts.readings(bare, language):
            found = self._cue_intent(reading, reading.request, language, possible)
            if found is None or found.name in TEXTS or (found.name not in SPANNING and _has_sentence_end(found.parts)):
                continue
            if found.name not in (*EFFECTS, *NAMED, "asking") and not message_parts.is_courtesy(reading.context, language):
                continue  # what is asked for may need what is said before it
            context = "" if message_parts.is_courtesy(reading.context, language) else reading.context
            if not context and not can_point and found.name in POINTING:
                continue
            around = self._cue_intent(Reading(context), context, language, named) if context else None
            if around is None:
                return replace(found, context=context)
            if around.name in TEXTS:
                continue  # it belongs to the text
            if around.name in EFFECTS and not {found.name, around.name} & {*POINTING, *LAST}:
                return replace(found, also=around) if reading.is_first else replace(around, also=found)
            return replace(found, context=context)
        return whole

    def _read_with_more(self, said: str, language: Language, order: Sequence[str], can_point: bool) -> Intent | None:
        """A request whose last sentence only names another thing for it: "add it to the list. Milk too."."""
        ends = sentences.boundaries(said) if len(said) <= MAX_CHARS else []
        if len(ends) < 2 or said.endswith("?"):
            return None
        last = said[ends[-2] :].strip(" .!")
        plain = plain_words(last)
        fitting = (one.match(last, plain) for one in language.patterns.get("too", ()))
        more = next((match["more"] for match in fitting if match is not None), "")
        if (
            not more
            or len(more.split()) > MOST_CHANGED
            or set(words_in(more)) & language.words["verbs"]
            | (set(words_in(more)[:1]) & (language.words["own"] | language.words["you"] | language.words["question"]))
        ):
            return None
        found = self._read_message(said[: ends[-2]].strip(), language, order, can_point)
        if found is None or found.also is not None or found.name not in MANIFOLD:
            return None
        kind = found.name.removesuffix("_it").removesuffix("_bare")
        return replace(found, also=Intent(kind, language, {**found.parts, LISTING[kind]: more}, last))

    def _read_joined(self, said: str, language: Language, order: Sequence[str]) -> Intent | None:
        """Two requests that a word links, each of which is one by itself: "add milk to the list and remind me at 5 to buy it"."""
        names, asking = ([name for name in order if name in some] for some in (JOINED, ASKING))
        if not asking or len(said) > MOST_CHARS or said.endswith("?"):
            return None
        for joint in language.linked.finditer(said):
            second = self._read_message(said[joint.end() :].strip(EDGE), language, asking, False)
            if second is None or second.context:
                continue
            first = self._read_message(said[: joint.start()].strip(EDGE), language, names, False)
            if first is not None and first.also is None:
                return replace(first, also=second)
        return None

    def _cue_intent(self, reading: Reading, said: str, language: Language, possible: Possible) -> Intent | None:
        """What one reading of a message asks for, of the sentences that are possible."""
        bare = reading.request
        plain = plain_words(said)
        is_asked = is_question(bare, language)
        for name, sentences_ in possible:
            if name in (*EFFECTS, *CAREFUL) and (is_asked or len(said) > MAX_CHARS):
                continue
            text = said if name in TEXTS and not reading.context else bare
            for sentence in sentences_:
                if (found := sentence.match(text, plain)) is None:
                    continue
                if any(one.match(text, plain) for one in language.refusals.get(name, ())):
                    break
                parts = {key: value.strip(" ,\"'“”„«»") for key, value in found.groupdict().items() if value is not None}
                if name not in TEXTS and not all(any(map(str.isalnum, part)) for part in parts.values()):
                    continue  # a part is no more than its full stop
                if _is_meant(name, parts, language, text):
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


def _is_meant(name: str, parts: Mapping[str, str], language: Language, text: str) -> bool:
    """Whether the parts of a sentence are what they have to be."""
    if "clause" in parts and not _is_clause(parts["clause"], language):
        return False
    if name in EFFECTS and any("?" in part for part in parts.values()):
        return False  # somebody asks something as well: that must not be lost
    if "\n" in parts.get("fact", "") + parts.get("clause", ""):
        return False
    if name == "sum":
        return bool(arithmetic.result(parts["sum"], language.signs))
    if name == "units":
        return bool(arithmetic.converted(parts["units"], language)[0])
    if name == "rates":
        return (arithmetic.money if "money" in parts else arithmetic.rate)([*parts.values()][0], language) is not None
    if name in LOOKED_UP and "day" in parts:
        return is_days(parts["day"], language)
    if name in DATES:
        is_named = name == "days_until"
        return all(dates.is_moment(parts[key], language, may_be_named=is_named) for key in ("date", "second") if key in parts)
    if name == "task" and set(words_in(parts["task"])) <= language.words["several"] | language.words["again"]:
        return False  # "add them to the list" points
    if name == "list_note":
        title = parts["title"]
        return "," not in title and named_notes.names_list(title, language) and named_notes.is_meant(title, language)
    if name in APPENDING:
        return _is_addition(name, parts, language)
    if name == "asking_for":
        first = words_in(parts["query"])[:3]
        is_definite = bool(set(first[:1]) & language.words["definite"]) or any(word.endswith(("'s", "’s")) for word in first)
        return is_definite and len(parts["query"].split()) <= MOST_ASKED
    if name in OF_NAMED:
        return names_thing(parts["query"], language) and ":" not in text
    if name == "asking":
        return bool(set(words_in(parts["query"])[:1]) & language.words["question"])
    if "instead" in parts:
        return _names_one(parts["instead"], language)
    if name in NAMED and not _names_one(parts["what"], language):
        return False
    if name == "forget" and set(words_in(parts["what"])) <= language.words["common"] | language.words["again"]:
        return False
    if len(parts.get("why", "").split()) > MOST_CHANGED or "," in parts.get("why", ""):
        return False
    facts = [parts[key] for key in ("clause", "fact") if key in parts]
    if any(one.startswith(":") or language.expression("no_fact").match(one) for one in facts):
        return False
    if name == "remind_at":
        first = words_in(parts["when"])[:1]
        return parts["when"][:1].isdigit() or bool(first and first[0] in language.lexicon.leading)
    if name == "remind_when":  # "when it is 5 pm" is a time; in "when I get home to start dinner" dinner is none
        return not any(says_when(parts[key], language) for key in list(parts)[: 1 + ("event" != next(iter(parts)))])
    if "moment" in parts:  # a time and nothing else
        if name != "timer":
            return dates.is_time(parts["moment"], language)
        is_length = any("length" in token.kinds for token in reduced(tokens(parts["moment"], language.lexicon)))
        return is_length and _is_all_time(parts["moment"], language)
    if name == "timer":
        return says_when(parts["when"], language)
    if name in ("change_it", "more_it", "also_it", "named_move"):
        said = parts.get("change") or parts["more"]
        if len(said.split()) > MOST_CHANGED or set(words_in(said)) & (language.words["own"] | language.words["you"]):
            return False
        is_time = says_when(said, language) and (name == "named_move" or _is_all_time(said, language))
        return is_time if name == "named_move" else name != "change_it" or bool(language.level(said)) or is_time
    if "deed" in parts:  # what somebody did: "watered the roses"
        if "," in parts["deed"] or set(words_in(parts["deed"])) & language.words["again"]:
            return False
        did = words_in(parts["deed"])[:1]
        is_past = bool(did) and language.expression("participle").fullmatch(did[0]) is not None
        most = 1 if "what" in parts else MOST_CHANGED
        return (is_past or bool(set(did) & language.words["past"])) and len(words_in(parts["deed"])) <= most
    if name == "note" and "title" in parts and ":" in text:
        words = words_in(parts["title"])
        return len(words) <= MOST_BARE and not set(words[:1]) & (language.words["about"] | language.words["that"])
    return "level" not in parts or bool(language.level(parts["level"]))


def names_thing(text: str, language: Language) -> bool:
    """Whether a text names something that notes may be about, rather than being itself what is to be worked on."""
    words = words_in(text)
    is_this = bool(set(words[:2]) & (language.words["again"] - language.words["definite"])) or not words
    return not is_this and len(words) <= MOST_NAMED and "\n" not in text and len(sentences.boundaries(text)) < 2


def _names_one(text: str, language: Language) -> bool:
    """Whether a text may be the name of a task or reminder: a few words, and no clause."""
    words = set(words_in(text))
    tells = language.words["verbs"] | language.words["own"] | language.words["you"] | language.words["question"]
    return len(words) <= MOST_CHANGED and "," not in text and words.isdisjoint(tells) and not words <= language.words["common"]


def _is_addition(name: str, parts: Mapping[str, str], language: Language) -> bool:
    """Whether a sentence adds something to a note or a list that it names."""
    title, words = parts["title"], set(words_in(parts.get("items", "")))
    if name == "append_maybe":
        return (
            len(title.split()) <= MOST_TITLE and not words & language.words["tasks"] and not named_notes.says_note(title, language)
        )
    if name == "append_bare" and (words & (language.words["verbs"] | language.words["own"] | language.words["question"])):
        return False  # "milk is on the shopping list" tells
    if name == "append_bare" and (len(title.split()) > MOST_BARE or not named_notes.names_list(title, language)):
        return False
    if name == "append" and words <= language.words["several"] | language.words["again"]:
        return False  # "add them to ..." points
    return len(title.split()) <= MOST_TITLE + 2 and named_notes.is_meant(title, language)


def _is_nearly(text: str, examples: Sequence[str]) -> bool:
    """Whether a text has nearly the words of one of the examples."""
    said = set(words_in(text))
    return any(len(said & words) >= ALIKE_WORDS * len(said | words) for words in map(set, map(words_in, examples)))


def says_when(text: str, language: Language) -> bool:
    """Whether a text may name a time: it has a number or a word for one."""
    return any(letter.isdigit() for letter in text) or bool(set(words_in(text)) & language.lexicon.naming)


def is_days(text: str, language: Language) -> bool:
    """Whether a text names a day or several: a weekend, a week."""
    spans = {one for name, given in language.phrases.items() if name.startswith("span_") for one in given.split("|")}
    return " ".join(words_in(text)) in spans or dates.is_moment(text, language)


def _is_all_time(text: str, language: Language) -> bool:
    """Whether a text says when and names nothing else."""
    known = language.lexicon.naming | language.lexicon.leading | language.words["common"]
    return all(word in known or word[0].isdigit() for word in words_in(text)) or dates.is_time(text, language)


def is_question(text: str, language: Language) -> bool:
    """Whether a text asks for an answer, rather than the assistant to do something: "can you ...", "..., would you?"."""
    words = words_in(text[:200])
    return text.endswith("?") and not (set(words[:4]) & language.words["asks"] or set(words[-1:]) & language.words["tail"])


def _has_sentence_end(parts: Mapping[str, str]) -> bool:
    return any(len(sentences.boundaries(part)) > 1 for part in parts.values())


def _is_one(intent: Intent) -> bool:
    """Whether the parts of a request are not what was said behind it: "cancel that, I have spoken to him"."""
    what = intent.parts.get("what", "")
    said = intent.text[: intent.text.find(what)] + what if what else ""
    reasons = [one for one in message_parts.clauses(said)[1:] if is_reason(one, intent.language)]
    return not reasons and not _has_sentence_end(intent.parts)


def is_reason(text: str, language: Language) -> bool:
    """Whether a text says of somebody who is not named here what they did: "I've just spoken to him"."""
    first = {word.partition("'")[0] for word in words_in(text)[:1]}
    return bool(first) and first <= language.words["own"] | language.words["theirs"]


def _is_clause(text: str, language: Language) -> bool:
    """Whether a text says something, rather than naming it."""
    words = words_in(text)
    return len(words) >= CLAUSE_WORDS and any(word in language.words["verbs"] or word.endswith(("'s", "'re")) for word in words[1:])


KINDS = ("none", "remind", "task", "remember", "other")  # `other`: an effect that cannot be asked back from its words alone
ASKED = ("remind", "task", "remember")
WORDS = (1, 3)  # least and most words of an n-gram
LETTERS = (3, 5)  # and letters of a word, its ends counted
MOST_CHARS = 200  # of a message that is a request in passing
TIME = "§"  # stands for the words that say when
TOKEN = re.compile(rf"[^\W_]+(?:['’][^\W_]+)?|[:?!,{TIME}]")
DIGIT = re.compile(r"\d")


class RequestWeights(Struct, frozen=True):
    """`ngrams` gives each a whole number for each of `KINDS`, in parts of `scale`, `meaning` one for each number of a vector of the
    embedding model that ships; `least` is the probability from which to ask."""

    scale: float
    least: float
    bias: tuple[int, ...]
    ngrams: Mapping[str, tuple[int, ...]]
    meaning: tuple[tuple[int, ...], ...] = ()


def ngrams(text: str) -> Iterator[str]:
    """The n-grams of a text, each digit read as 0: of its words, and of the letters of each word."""
    words = DIGIT.sub("0", text[:MOST_CHARS].lower().replace("’", "'"))
    found = ["^", *TOKEN.findall(words), "$"]
    least, most = WORDS
    for size in range(least, most + 1):
        for at in range(len(found) - size + 1):
            yield " ".join(found[at : at + size])
    least, most = LETTERS
    for word in found[1:-1]:
        ends = f"_{word}_"
        for size in range(least, min(most, len(ends) - 1) + 1):
            for at in range(len(ends) - size + 1):
                yield ends[at : at + size]


def with_time_marked(text: str, language: Language, now_ms: int) -> str:
    """A text with the words that say when as one mark, so that what is learned of one time holds for all."""
    said = " ".join(text[:MAX_CHARS].split())
    try:
        found = time_expression.split(said, language.lexicon, now_ms)
    except BadInput:
        return said
    if not found.when:
        return said
    return said.replace(found.when, TIME, 1) if found.when in said else f"{TIME} {found.text}"


def probabilities(text: str, weights: RequestWeights, vector: Sequence[float] = ()) -> list[float]:
    """How likely each of `KINDS` is; without a vector of another model than the one that ships its words tell alone."""
    found = set(ngrams(text))
    known = [weights.ngrams[one] for one in found if one in weights.ngrams]
    length = math.sqrt(len(found)) or 1.0
    meant = list(zip(vector, weights.meaning)) if len(vector) == len(weights.meaning) else []
    scores = [
        (sum(one[at] for one in known) / length + sum(part * one[at] for part, one in meant) + weights.bias[at]) * weights.scale
        for at in range(len(KINDS))
    ]
    shares = [math.exp(score - max(scores)) for score in scores]
    return [share / sum(shares) for share in shares]


def likely_request(text: str, vector: Sequence[float] = ()) -> str:
    """Which of `ASKED` a message likely is, its time marked and with its vector where there is one; "" for none."""
    if len(text) > MOST_CHARS:
        return ""
    weights = _read_weights()
    shares = dict(zip(KINDS, probabilities(text, weights, vector)))
    kind = max(ASKED, key=lambda one: shares[one])
    return kind if sum(shares[one] for one in ASKED) >= weights.least else ""


@lru_cache(maxsize=1)
def _read_weights() -> RequestWeights:
    """The weights that ship, read at the first message that needs them."""
    data = (resources.files("appliance") / "language" / "weights" / "requests.json").read_bytes()
    return msgspec.json.decode(data, type=RequestWeights)
