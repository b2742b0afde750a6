"""What is done with a message before a tiny or small model: the program decides and acts, the model says only what needs it.

A message becomes a plan: say something, call a tool and say what it said, ask the model plainly, or have it put sentences of
notes into words that are checked against them. Effects go through the toolbox like any model's calls, so policy, approval,
audit and undo hold; the tool's own words are the answer. What the notes do not say is said so. An able model never comes here.
Thresholds were calibrated on about 300 questions in four languages (docs/small-models.md, 2026-11).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import new_id
from appliance.knowledge import evidence
from appliance.knowledge.entries import Entries
from appliance.knowledge.evidence import Evidence, Finder
from appliance.prompt.packet import strip_notes
from appliance.prompt.routing import arithmetic, foreign_times
from appliance.prompt.routing.languages import Language, words_in
from appliance.prompt.routing.router import COURTESIES, ORDER, Intent, Router
from appliance.prompt.routing.task_arguments import task_arguments
from appliance.records import Message, Outcome, Tier, ToolCall
from appliance.text import sentences
from appliance.text.references import display

SYSTEM: Mapping[Tier, str] = {
    # As the model was trained: any other form makes its greeting three times as long.
    "tiny": "You are a helpful AI assistant named Owlbox",
    "small": "You are Owlbox, a helpful assistant on a small computer at home. "
    "Answer in the language of the question, in one or two short sentences.",
}
# Least score of the best sentence, by what the nearest examples take the question for.
LEAST = {"notes": 0.44, "": 0.5, "talk": 0.62, "world": 0.78}
NEAR = {"notes": 0.2, "": 0.2, "talk": 0.45, "world": 0.45}  # and its least nearness to the question as a whole
SPECIFIC = 0.62  # least score where the question names something of the notes and no word of it is missing
WORDED = 0.8  # least coverage of what looks like talk and is answered in the words of the question
KNOWN = 0.4  # coverage by which a question is about something of the notes, though they may not answer it
SURE = 0.5  # least nearness to an example about the world where the notes know a name in the question
BESIDE = 0.9  # of the best score, for a second sentence of the same note
LOOKED_UP = ("time", "date", "tasks", "reminders", "memories", "search", "about")  # what may be asked again at its times
SAID = 0.6  # for what the person said before in the same conversation
LONG_TEXT = 400  # characters: more is a text to be worked on, unless it asks for something in so many words
SHORT_QUESTION = 7  # words of one that may follow up what was said before
MEMORIES = "memory://notes/"
MOST_LISTED = 30
SOURCE = re.compile(r"\s*\[[a-z]+:/{1,2}[^\[\]\n]+\]")
REF = re.compile(r"\[([a-z]+:/{1,2}[^\[\]\n]+)\]")
DEFINITION = re.compile(
    r"^\W*(?:and )?(?:what|was) (?:is|are|ist|sind) (?:an? |eine? |the word )?[\w-]+(?: [\w-]+)?\s*\?*$"
    r"|^what does an? \w+ (?:do|mean)\W*$",
    re.IGNORECASE,
)
DEFINITE = re.compile(r"\b(?:the|my|our|your|his|her|their|mein\w*|unser\w*|der|die|das)\b|['’]s\b|\d", re.IGNORECASE)
URGENCY = re.compile(
    r",?\s*(?:and |with |at |as |of |mit |avec |con |à |de )*(?:an? )?"
    r"(?P<level>[^\W\d_]+) (?:priority|priorität|priorité|prioridad)$",
    re.IGNORECASE,
)
COURTESY = re.compile(
    r"^(?:(?:please|now|ok|okay|hey|hi|hello|owl|owlbox|so|and|well|alright)[,!]?\s+)*"
    r"(?:(?:can|could|would|will)\s+you\s+(?:please\s+)?)?(?:(?:please|just|quickly)\s+)*",
    re.IGNORECASE,
)
WITHOUT_TIME = 400
POINTING = 80  # characters of a request that only points to the text it is about


class Chat(Struct, frozen=True):
    """The model is asked this and nothing more. `is_text`: it is to work on a text, so the answer may be longer."""

    system: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    repeat_penalty: float
    is_silent: bool = False  # nobody sees the answer before it is checked
    forbidden: str = ""  # an instruction that is no answer, beside `system`


class Say(Struct, frozen=True):
    """The program's own answer. Of work that nobody watches `outcome` says that it is not done: `unable` or `failed`."""

    text: str
    outcome: Literal["", "unable", "failed"] = ""


class Grounded(Struct, frozen=True):
    """The model is asked for one sentence; `otherwise` is the answer when `texts` do not support it. `after` goes on with it."""

    chat: Chat
    question: str
    texts: tuple[str, ...]
    sources: str
    otherwise: str
    after: "Callable[[str], Plan] | None" = None


class Do(Struct, frozen=True):
    """A tool is called; what is done next depends on its result."""

    call: ToolCall
    then: "Callable[[Outcome], Plan]"


Plan = Chat | Say | Grounded | Do


class Sampling(Struct, frozen=True):
    """How a tier's model is asked; measured with lab questions at 135M and 0.5B parameters (2026-11-23)."""

    temperature: float
    repeat_penalty: float
    max_tokens: int
    text_tokens: int
    history: int  # messages of the conversation that it is shown


SAMPLING: Mapping[Tier, Sampling] = {"tiny": Sampling(0.0, 1.1, 120, 160, 2), "small": Sampling(0.0, 1.05, 180, 320, 6)}


class Guide:
    """Makes plans."""

    def __init__(self, router: Router, finder: Finder, entries: Entries, now: Callable[[], datetime]) -> None:
        self._router = router
        self._finder = finder
        self._entries = entries
        self._now = now
        self.ignored = router.languages.function_words()

    def plan(self, tier: Tier, messages: Sequence[Message], extra: str = "") -> Plan:
        """What to do about the newest prompt of a conversation. `extra` is what the person put into the system text."""
        prompt = next((m for m in reversed(messages) if m.role == "user"), Message("user", ""))
        text = strip_notes(prompt.content).strip()
        own = text if prompt.own_chars is None else text[: max(0, prompt.own_chars)].strip()
        before = [m for m in messages[: _place_of(messages, prompt)] if m.role in ("user", "assistant")]
        scene = Scene(tier, text, before, extra)
        if own != text:
            return self._build_chat(scene, is_text=True)
        intent = self._router.cue(text, (*COURTESIES, *ORDER))
        if intent is not None and (make := MAKERS.get(intent.name)) is not None:
            return make(self, scene, intent)
        if len(text) > LONG_TEXT:
            return self._build_chat(scene, is_text=True)
        return self._plan_answer(scene)

    def no_answer(self, messages: Sequence[Message]) -> str:
        """What is said when the model said nothing that can be shown."""
        prompt = next((m for m in reversed(messages) if m.role == "user"), Message("user", ""))
        phrase = "no_answer" if prompt.short_form is None else "skill_unable"
        return self._router.languages.detect(strip_notes(prompt.content))[0].say(phrase)

    # -- words ------------------------------------------------------------------------------------

    def _build_chat(self, scene: "Scene", *, is_text: bool = False, shots: Sequence[str] = ()) -> Chat:
        """The model is asked; `shots` are requests and answers that show it the form of the answer."""
        sampling = SAMPLING[scene.tier]
        shown = tuple(Message("assistant" if n % 2 else "user", text) for n, text in enumerate(shots))
        kept = [] if is_text else scene.before[-sampling.history :]
        while kept and kept[0].role != "user":
            kept = kept[1:]
        history = [Message(m.role, SOURCE.sub("", strip_notes(m.content))[:600]) for m in kept if m.content.strip()]
        return Chat(
            " ".join(filter(None, (SYSTEM[scene.tier], scene.extra))),
            (*(() if history else shown), *history, Message("user", scene.text)),
            sampling.text_tokens if is_text else sampling.max_tokens,
            sampling.temperature,
            sampling.repeat_penalty,
        )

    def _plan_answer(self, scene: "Scene") -> Plan:
        """A message that asks for nothing in so many words: answered from notes, or talk."""
        language = self._router.languages.detect(scene.text)[0]
        words = words_in(scene.text)
        is_question = scene.text.endswith("?") or bool(words[:1] and words[0] in language.words["question"])
        is_short = len(words) <= 4 and not scene.text.endswith(("!", "."))
        kind = self._router.kind(scene.text, language)
        if not is_question and (kind == "talk" or not is_short):
            return self._build_chat(scene)
        is_own = bool(set(words) & language.words["own"])
        is_definition = bool(DEFINITION.match(scene.text)) and not DEFINITE.search(scene.text)
        follows = self._is_followup(scene, words, language)
        subjects = scene.subjects if follows else ()
        found = self._finder.find_evidence(
            scene.text,
            about=scene.last_question if follows else "",
            subjects=subjects,
            # What was asked for is done, and may be undone since: it is no statement.
            said=[text for text in scene.statements if self._router.cue(text) is None] if is_question else (),
        )
        if kind == "world" and (found.known or (DEFINITE.search(scene.text) and found.most_covered >= WORDED)):
            kind = self._router.kind(scene.text, language, 1.0 if not found.known else SURE)
        is_you = not is_own and bool(set(words) & language.words["you"]) and not set(words[:4]) & language.words["asks"]
        kind = "talk" if is_you and not kind else kind
        kind = "notes" if is_own and kind != "talk" else kind
        shots = language.shots.get("question", ()) if scene.tier == "tiny" and is_question and kind != "talk" else ()
        if is_definition and not is_own:
            return self._build_chat(scene, shots=shots)
        if self._is_answer(found, kind, words, language):
            return self._quote_best(scene, found, language)
        if subjects and found.best and found.best[0].ref in subjects and found.score >= LEAST["notes"]:
            return self._quote_best(scene, found, language)
        if (
            is_question
            and not is_you
            and (kind == "notes" or (kind != "world" and found.best and (is_own or self._is_about_known(found, scene.text))))
        ):
            return self._say_nothing(found, language)
        return self._build_chat(scene, shots=shots)

    @staticmethod
    def _is_about_known(found: Evidence, question: str) -> bool:
        """Whether a question names somebody or something that the notes know, but asks what they do not say."""
        is_definite = bool(DEFINITE.search(question)) and found.most_covered >= WORDED
        return bool(found.known) or is_definite or (found.score > 0 and found.best[0].coverage >= KNOWN)

    @staticmethod
    def _is_answer(found: Evidence, kind: str, words: Sequence[str], language: Language) -> bool:
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

    @staticmethod
    def _is_followup(scene: "Scene", words: Sequence[str], language: Language) -> bool:
        return bool(scene.subjects or scene.last_question) and (
            len(words) <= SHORT_QUESTION or bool(set(words[:4]) & language.words["again"])
        )

    @staticmethod
    def _say_nothing(found: Evidence, language: Language) -> Say:
        if not found.words:
            return Say(language.say("nothing_plain"))
        return Say(language.say("nothing", words=", ".join(found.words[:6])))

    def _quote_best(self, scene: "Scene", found: Evidence, language: Language) -> Plan:
        """The best sentence with its source; a small model may put it into words, as long as it adds nothing."""
        best = found.best[0]
        if not best.ref:
            return Say(language.say("said", text=best.text))
        beside = [one for one in found.best[1:] if one.ref == best.ref and one.score >= best.score * BESIDE][:1]
        chosen = sorted([best, *beside], key=lambda one: [*found.best].index(one))
        source = f"[{display(best.ref) if not best.ref.startswith('box://') else best.ref}]"
        quoted = f"{' '.join(dict.fromkeys(closed(one.quoted) for one in chosen))} {source}"
        if scene.tier == "tiny":
            return Say(quoted)
        shown = [one for one in found.best[:4] if one.ref]
        lines = "\n".join(f"- {one.title}: {one.text}" for one in shown)
        question = f"Notes:\n{lines}\n\nUsing only the notes, answer in one short sentence.\nQuestion: {scene.text}"
        sampling = SAMPLING[scene.tier]
        chat = Chat(SYSTEM[scene.tier], (Message("user", question),), 60, 0.0, sampling.repeat_penalty, is_silent=True)
        texts = tuple(f"{one.title} {one.text}" for one in chosen)
        return Grounded(chat, scene.text, texts, source, quoted)

    # -- lists and the time -----------------------------------------------------------------------

    def _say_time(self, scene: "Scene", intent: Intent) -> Plan:
        return Say(intent.language.say("time", time=self._now().strftime("%H:%M")))

    def _say_date(self, scene: "Scene", intent: Intent) -> Plan:
        now, phrases = self._now(), intent.language.phrases
        weekday, month = phrases["weekdays"].split()[now.weekday()], phrases["months"].split()[now.month - 1]
        return Say(intent.language.say("date", weekday=weekday, day=str(now.day), month=month, year=str(now.year)))

    def _say_sum(self, scene: "Scene", intent: Intent) -> Plan:
        said = intent.parts["sum"]
        return Say(intent.language.say("sum", sum=said, result=arithmetic.result(said, intent.language.signs)))

    def _say_courtesy(self, scene: "Scene", intent: Intent) -> Plan:
        """A greeting, thanks, who one is, the weather: by the program where the model knows too little of it."""
        is_english = intent.language.name == self._router.languages.english.name
        if intent.name not in ("who", "outside") and is_english and (scene.tier == "small" or intent.name == "hello"):
            return self._build_chat(scene)
        return Say(intent.language.say(intent.name))

    def _say_help(self, scene: "Scene", intent: Intent) -> Plan:
        return Say(intent.language.say("help"))

    def _list_tasks(self, scene: "Scene", intent: Intent) -> Plan:
        def told(outcome: Outcome) -> Plan:
            empty = not (outcome.data or {}).get("tasks") and not outcome.is_error
            return Say(intent.language.say("no_tasks")) if empty else answer_of(outcome, intent)

        return Do(tool_call("list_tasks", status="open", limit=MOST_LISTED), told)

    def _list_reminders(self, scene: "Scene", intent: Intent) -> Plan:
        return Do(
            tool_call("list_schedules", status="active", soonest=True, limit=MOST_LISTED),
            lambda outcome: answer_of(outcome, intent),
        )

    def _list_memories(self, scene: "Scene", intent: Intent) -> Plan:
        known = self._stored_memories()
        if not known:
            return Say(intent.language.say("no_memories"))
        lines = [f"- {' '.join(text.split())}" for _, text in known[-MOST_LISTED:]]
        return Say("\n".join([intent.language.say("memories"), *lines]))

    def _stored_memories(self) -> list[tuple[str, str]]:
        """What the person asked to be remembered, oldest first: references and texts."""
        lines = self._entries.list_lines(MEMORIES, limit=500)
        found = [entry for line in lines if (entry := self._entries.find(line.ref)) is not None and entry.body.strip()]
        return [(one.path, one.body) for one in sorted(found, key=lambda one: one.created_ms)]

    # -- effects ----------------------------------------------------------------------------------

    def _remember_fact(self, scene: "Scene", intent: Intent) -> Plan:
        text = intent.parts.get("fact") or intent.parts["clause"]
        return Do(tool_call("remember", text=text[:1].upper() + text[1:]), lambda outcome: answer_of(outcome, intent))

    def _add_task(self, scene: "Scene", intent: Intent) -> Plan:
        text, level = intent.parts["task"], intent.language.level(intent.parts.get("level", ""))
        if (found := URGENCY.search(text)) and (said := intent.language.level(found["level"])):
            text, level = text[: found.start()], said
        arguments = task_arguments(text) | ({"priority": level} if level else {})
        return Do(ToolCall(new_id(), "create_task", arguments), lambda outcome: answer_of(outcome, intent))

    def _set_reminder(self, scene: "Scene", intent: Intent) -> Plan:
        parts = intent.parts
        if intent.language.name != self._router.languages.english.name:
            return self._remind_abroad(intent)
        if intent.name == "remind":
            said = f"remind me {parts['when']}"
        elif intent.name == "remember_to":
            said = f"remind me to {parts['what']}"
        else:
            said = _without_courtesy(intent.text)
        subject = parts.get("what") or parts.get("when") or said

        def told(outcome: Outcome) -> Plan:
            if outcome.status == WITHOUT_TIME and "no time" in outcome.message:
                return Say(intent.language.say("when", text=_trim_subject(subject)))
            return answer_of(outcome, intent)

        return Do(tool_call("remind", text=said.rstrip(" .!?")), told)

    @staticmethod
    def _remind_abroad(intent: Intent) -> Plan:
        """A reminder in another language: its time is put into English, which the tool reads, its words stay."""
        said = next(intent.parts[key] for key in ("when", "rest", "what") if key in intent.parts)
        what, when = foreign_times.parted(said, intent.language)
        if not when:
            return Say(intent.language.say("when", text=what))
        call = tool_call("remind", text=what or intent.text.strip(" .!?¡¿"), when=when)
        return Do(call, lambda outcome: answer_of(outcome, intent))

    def _recurring(self, scene: "Scene", intent: Intent) -> Plan:
        """A request that is put again at its times; only one that the program itself answers then."""
        query, times = intent.parts["query"], f"every {intent.parts.get('rest', '')}"
        if intent.language.name != self._router.languages.english.name:
            query, times = foreign_times.parted(intent.text, intent.language)
            told = re.match(rf"(?:\W*\b(?:{'|'.join(intent.language.words['tell'])})\b)*[\s,:-]*", query, re.IGNORECASE)
            query = query[told.end() :] if told is not None else query
        if self._router.cue(query, LOOKED_UP) is None or not times.startswith("every"):
            return Say(intent.language.say("no_recurring"))
        call = tool_call("create_schedule", name=query[:60], frequency=times, description=query, action="message")
        return Do(call, lambda outcome: answer_of(outcome, intent))

    def _finish_task(self, scene: "Scene", intent: Intent) -> Plan:
        return self._with_task(intent, lambda task: tool_call("finish_task", id=task["id"]))

    def _drop_task(self, scene: "Scene", intent: Intent) -> Plan:
        return self._with_task(intent, lambda task: tool_call("delete_task", id=task["id"]))

    def _set_priority(self, scene: "Scene", intent: Intent) -> Plan:
        level = intent.language.level(intent.parts["level"])
        return self._with_task(intent, lambda task: tool_call("update_task", id=task["id"], priority=level))

    def _with_task(self, intent: Intent, make: Callable[[Mapping[str, Any]], ToolCall]) -> Plan:
        """The one open task that is meant, looked up first."""
        what = intent.parts["what"]

        def chosen(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            known = [(one["name"], one) for one in (outcome.data or {}).get("tasks", ())]
            found = self._find_meant(what, known, number="id")
            if not found:
                return Say(intent.language.say("no_task", text=what))
            if len(found) > 1:
                lines = [f"{one['id']}. {one['name']}" for one in found[:8]]
                return Say("\n".join([intent.language.say("which"), *lines]))
            return Do(make(found[0]), lambda done: answer_of(done, intent))

        return Do(tool_call("list_tasks", status="open", limit=1000), chosen)

    def _cancel_reminder(self, scene: "Scene", intent: Intent) -> Plan:
        what = intent.parts.get("what", "")

        def chosen(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            known = [(f"{one['name']} {one['text']} {one['words']}", one) for one in (outcome.data or {}).get("schedules", ())]
            found = self._find_meant(what, known) if what else [one for _, one in known]
            if not found:
                return Say(intent.language.say("no_reminder", text=what or "…"))
            if len(found) > 1:
                lines = [f"- {one['name']} ({one['words']})" for one in found[:8]]
                return Say("\n".join([intent.language.say("which"), *lines]))
            return Do(tool_call("delete_schedule", id=found[0]["id"]), lambda done: answer_of(done, intent))

        return Do(tool_call("list_schedules", status="active", limit=1000), chosen)

    def _forget_memory(self, scene: "Scene", intent: Intent) -> Plan:
        what = intent.parts["what"]
        found = self._find_meant(what, [(text, (ref, text)) for ref, text in self._stored_memories()])
        if not found:
            return Say(intent.language.say("no_memory", text=what))
        if len(found) > 1:
            return Say("\n".join([intent.language.say("which"), *(f"- {text}" for _, text in found[:8])]))
        ref, text = found[0]

        def told(outcome: Outcome) -> Plan:
            return answer_of(outcome, intent) if outcome.is_error else Say(intent.language.say("forgotten", text=text))

        return Do(tool_call("context_delete", path=display(ref)), told)

    def _find_meant(self, what: str, known: Sequence[tuple[str, Any]], number: str = "") -> list[Any]:
        """Those of the known things that hold most of the words that name one; several when nothing tells them apart."""
        if number and (found := re.fullmatch(r"(?:no\.?|nr\.?|number|#)?\s*(\d{1,9})", what.strip(), re.IGNORECASE)):
            return [one for _, one in known if one[number] == int(found[1])]
        words = [evidence.stem(word) for word in evidence.content_words(what, self.ignored)] or [
            evidence.stem(word) for word in evidence.content_words(what, ())
        ]
        counts = []
        for text, one in known:
            theirs = {evidence.stem(word) for word in evidence.content_words(text, ())}
            counts.append((sum(word in theirs for word in words), one))
        most = max((count for count, _ in counts), default=0)
        return [one for count, one in counts if count == most] if most and most >= len(words) / 2 else []

    def _write_note(self, scene: "Scene", intent: Intent) -> Plan:
        body, title = intent.parts["body"], intent.parts.get("title", "")
        return Do(tool_call("write_note", text=body, title=title), lambda outcome: answer_of(outcome, intent))

    # -- notes ------------------------------------------------------------------------------------

    def _search_notes(self, scene: "Scene", intent: Intent) -> Plan:
        return self._describe_subject(scene, intent)

    def _describe_subject(self, scene: "Scene", intent: Intent) -> Plan:
        """What the notes say about something: the sentences that name it, by note."""
        query, language = intent.parts["query"], intent.language
        found = self._finder.find_evidence(query)
        held = [one for one in found.best if one.coverage >= 0.5 or one.nearness >= 0.5]
        if not held:
            if intent.name == "about" and self._router.kind(scene.text, language) == "world":
                return self._build_chat(scene)
            return self._say_nothing(found, language)
        return Say("\n".join([language.say("found"), *(f"- {closed(one.quoted)} [{one.ref}]" for one in held[:5])]))

    def _write_text(self, scene: "Scene", intent: Intent) -> Plan:
        if self._points_back(intent):
            if not scene.last_answer:
                return Say(intent.language.say("which_text"))
            scene = replace(scene, text=f"{scene.text.rstrip(' .!?')}:\n\n{scene.last_answer}")
            if set(words_in(intent.text)) & intent.language.words["shorter"]:
                return self._shorten_text(scene, scene.last_answer, intent)
        return self._build_chat(scene, is_text=True)

    @staticmethod
    def _points_back(intent: Intent) -> bool:
        """Whether the text that is to be worked on is not there but meant: "make it shorter", "translate that into German"."""
        words = words_in(intent.parts.get("text", ""))[:1]
        return bool(words) and words[0] in intent.language.words["again"] and ":" not in intent.text and len(intent.text) < POINTING

    def _rewrite_text(self, scene: "Scene", intent: Intent) -> Plan:
        """A text in other words, asked for in the one form that the examples show."""
        text = intent.language.say(intent.name, text=closed(intent.parts["text"]))
        return self._build_chat(replace(scene, text=text), is_text=True, shots=intent.language.shots.get(intent.name, ()))

    def _summarize_text(self, scene: "Scene", intent: Intent) -> Plan:
        if self._points_back(intent):
            return self._write_text(scene, intent)
        return self._shorten_text(scene, intent.parts["text"], intent)

    def _shorten_text(self, scene: "Scene", text: str, intent: Intent) -> Plan:
        """The sentence of a text that says most of it; a small model's own, when that adds nothing to the text."""
        chosen = self._finder.central(text)
        if not chosen or len(sentences.split(text)) < 2:
            return self._build_chat(scene, is_text=True)
        if scene.tier == "tiny":
            return Say(chosen)
        asked_for = intent.language.say("summary", text=text)
        chat = replace(self._build_chat(replace(scene, text=asked_for), is_text=True), max_tokens=90, is_silent=True)
        return Grounded(chat, "", (text,), "", chosen)


Maker = Callable[[Guide, "Scene", Intent], Plan]
MAKERS: Mapping[str, Maker] = {
    "time": Guide._say_time,
    "date": Guide._say_date,
    "help": Guide._say_help,
    **dict.fromkeys(COURTESIES, Guide._say_courtesy),
    "sum": Guide._say_sum,
    "tasks": Guide._list_tasks,
    "reminders": Guide._list_reminders,
    "memories": Guide._list_memories,
    "remember": Guide._remember_fact,
    "task": Guide._add_task,
    "remind": Guide._set_reminder,
    "remind_late": Guide._set_reminder,
    "alarm": Guide._set_reminder,
    "recurring": Guide._recurring,
    "remember_to": Guide._set_reminder,
    "done": Guide._finish_task,
    "drop_task": Guide._drop_task,
    "priority": Guide._set_priority,
    "cancel": Guide._cancel_reminder,
    "forget": Guide._forget_memory,
    "note": Guide._write_note,
    "search": Guide._search_notes,
    "about": Guide._describe_subject,
    "text": Guide._write_text,
    "polite": Guide._rewrite_text,
    "spelling": Guide._rewrite_text,
    "summary": Guide._summarize_text,
}


class Scene(Struct, frozen=True):
    """A message with what was said before it."""

    tier: Tier
    text: str
    before: Sequence[Message]
    extra: str = ""

    @property
    def last_question(self) -> str:
        """What the person said last before this."""
        return next((strip_notes(m.content) for m in reversed(self.before) if m.role == "user"), "")

    @property
    def last_answer(self) -> str:
        """What was answered last, without its sources."""
        return next((SOURCE.sub("", m.content).strip() for m in reversed(self.before) if m.role == "assistant" and m.content), "")

    @property
    def statements(self) -> list[str]:
        """What the person said before in this conversation, the newest last, without what they asked."""
        return [text for m in self.before if m.role == "user" and not (text := strip_notes(m.content).strip()).endswith("?")]

    @property
    def subjects(self) -> tuple[str, ...]:
        """The notes that the last answers named."""
        said = [m.content for m in self.before if m.role == "assistant"][-2:]
        found = [ref for text in reversed(said) for ref in REF.findall(text)]
        return tuple(dict.fromkeys(ref if "://" in ref else ref.replace(":/", "://", 1) for ref in found))[:3]


def answer_of(outcome: Outcome, intent: Intent) -> Say:
    """What a tool said, in its own words; why it failed, in a sentence."""
    if not outcome.is_error:
        return Say(outcome.message)
    hint = f" ({outcome.hint})" if outcome.hint else ""
    return Say(intent.language.say("failed", text=f"{outcome.message}{hint}"), "failed")


def tool_call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(new_id(), tool, arguments)


def handed_over(call: ToolCall, preset: str, text: str) -> ToolCall:
    """A call as it is made: what is to be remembered is the memory role's work where an assistant delegates (A-098)."""
    is_theirs = preset == "delegating" and call.name == "remember"
    return tool_call("delegate", agent="memory", task=text) if is_theirs else call


def _without_courtesy(text: str) -> str:
    """A request without "please", "can you" and the like before it, which the reader of times does not know."""
    return COURTESY.sub("", text.strip())


def closed(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…", ":")) else f"{text}."


def _trim_subject(text: str) -> str:
    return re.sub(r"^(?:to|of|about|that)\s+", "", text.rstrip(" .!?"), flags=re.IGNORECASE)


def _place_of(messages: Sequence[Message], prompt: Message) -> int:
    return next((n for n in range(len(messages) - 1, -1, -1) if messages[n] is prompt), len(messages))
