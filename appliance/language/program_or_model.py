"""What is done with a message before a tiny or small model: the program decides and acts, the model says only what needs it.

A message becomes a plan: say something, call a tool and say what it said, ask the model plainly, or have it put sentences of
notes into words that are checked against them. Effects go through the toolbox like any model's calls, so policy, approval,
audit and undo hold; the tool's own words are the answer. What the notes do not say is said so. An able model never comes here.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial

from msgspec.structs import replace

from appliance.language import message_parts, sentences, word_forms
from appliance.language.answer_kinds import kind_of
from appliance.language.evidence import Evidence, Finder, Sentence
from appliance.language.languages import Language, all_words, expression, says, words_in
from appliance.language.planning import answers, computed, conversation, errands, note_plans, results, rewriting
from appliance.language.planning.computed import NO_LOOKUPS
from appliance.language.planning.effect_plans import Effects
from appliance.language.planning.effect_references import Effect, References, again, last_effect, last_thing, pointing, thing_of
from appliance.language.planning.note_plans import Files, Names, NotePlans
from appliance.language.planning.plans import (
    SAMPLING,
    SOURCE,
    SYSTEM,
    Do,
    Grounded,
    ModelTalk,
    Plan,
    Say,
    Scene,
    answer_of,
    ask_back,
    both,
    closed,
    nothing_done,
    shown_source,
    tool_call,
)
from appliance.language.planning.reminders_and_events import NO_CALENDAR
from appliance.language.planning.row_plans import RowPlans
from appliance.language.ports import EventCalendar, Notes, OutsideLookups
from appliance.language.request_texts import strip_notes
from appliance.language.router import BEYOND, COURTESIES, LAST, MORE, ORDER, REMINDING, Intent, Router, names_thing
from appliance.language.sentence_templates import plain_words
from appliance.records import Message, Outcome, ThreadState, Tier

BESIDE = 0.9  # of the best score, for a second sentence of the same note
LONG_TEXT = 400  # characters: more is a text to be worked on, unless it asks for something in so many words
SHORT_QUESTION = 7  # words of one that may follow up what was said before
TALK_TOKENS = 55  # of an answer to what asks nothing
POINTING_BACK = (*LAST, "list_it", "cancel_it", "done_it", "priority_it", "add_it")
POINTING = 80  # characters of a request that only points to the text it is about


class MessagePlanner:
    """Makes plans."""

    def __init__(
        self,
        router: Router,
        finder: Finder,
        entries: Notes,
        now: Callable[[], datetime],
        unread: Names = tuple,
        files: Files = tuple,
        calendar: EventCalendar = NO_CALENDAR,
        lookups: OutsideLookups = NO_LOOKUPS,
    ) -> None:
        """`unread` names the files that could not be read: an answer that finds nothing says so. `files` may be sent."""
        self._router = router
        self._finder = finder
        self._entries = entries
        self._now = now
        self.effects = Effects(router, entries, now, finder.collect, calendar, lookups)
        self._references = References(self.effects.additions, self.effects.reminders)
        self.ignored = router.languages.function_words()
        self._cue = lru_cache(maxsize=500)(partial(conversation.cue, router))
        self._notes = NotePlans(entries, self.effects.notes, finder, unread, files)
        self._rows = RowPlans(finder, now)

    def plan(self, tier: Tier, messages: Sequence[Message], extra: str = "") -> Plan:
        """What to do about the newest prompt of a conversation. `extra` is what the person put into the system text."""
        at = max((n for n, message in enumerate(messages) if message.role == "user"), default=len(messages))
        prompt = messages[at] if at < len(messages) else Message("user", "")
        text = strip_notes(prompt.content).strip()
        return self._plan_scene(Scene(tier, text, messages[:at], extra, prompt.sender_id), prompt)

    def _plan_scene(self, scene: Scene, prompt: Message) -> Plan:
        text, last = scene.text, tuple[str, ...]()
        if prompt.own_chars is not None and text[: max(0, prompt.own_chars)].strip() != text:
            return self._build_chat(scene, is_text=True)
        if scene.before:
            if (answer := errands.answered(scene, self._router, self.effects.reminders)) is not None:
                said = Say(answer.language.say("left")) if answer.name == "no" else self._make_all(scene, answer)
                if said is not None:
                    return said
            effect = last_effect(scene.before, scene.sender)
            last = pointing(effect)
            scene = replace(scene, named=last_thing(effect, scene.before)) if effect is not None and last else scene
            fact = conversation.meant_fact(scene, effect)
            intent = self._router.cue(text, ("correct",)) if fact else None
            if intent is not None and (plan := conversation.make_plan(intent, fact, self._entries)) is not None:
                return plan
            if not fact and (mended := conversation.mended(scene, self._cue)) is not None:
                return mended
        if (dated := self.effects.plan_dated(scene)) is not None:
            return dated
        intent = self._router.cue(text, (*COURTESIES, *last, *ORDER, *(MORE if last else ())), can_point=True)
        if intent is not None and (plan := self._make_all(scene, intent)) is not None:
            return plan
        if intent is not None and intent.name == "cancel_it":  # there is nothing that it could mean
            return nothing_done(intent.language)
        if not last and (undone := self._router.cue(text, ("forget_it", "undo_now", "no"), can_point=True)) is not None:
            return Say(undone.language.say("left"))
        if len(text) > LONG_TEXT:
            return self._build_chat(scene, is_text=True)
        if (asked := errands.ask_whether_likely(scene, self._router, self.effects.reminders)) is not None:
            return asked
        if (near := self._router.cue(text, ("near",))) is not None:
            return nothing_done(near.language)
        return self._in_known_language(scene, self._plan_question(scene))

    def _in_known_language(self, scene: Scene, plan: Plan) -> Plan:
        """A question that a tiny model would be asked in a language that it has not learned is not asked: it makes something up."""
        language = self._router.languages.detect(scene.text, scene.last_question)[0]
        if scene.tier != "tiny" or not isinstance(plan, ModelTalk) or "no_world" not in language.phrases:
            return plan
        return Say("\n\n".join(filter(None, (language.say("no_world"), plan.beside))))

    def _make_all(self, scene: Scene, intent: Intent) -> Plan | None:
        """The plan of an intent, and of what its message asks for beside it."""
        if intent.is_guess and intent.name in ("drop_task", "cancel", "forget") and "what" in intent.parts:
            return ask_back(intent.language, f"sure_{intent.name}", **intent.parts)
        if intent.also is not None and all(one.name in REMINDING for one in intent.each):
            return self.effects.reminders.set_each(intent.each)
        plan, also = self.make(scene, intent), intent.also
        if plan is None or also is None:
            return plan
        beside = replace(scene, named=thing_of(intent.parts) or scene.named)
        return both(plan, lambda: self._make_all(beside, also) or nothing_done(also.language))

    def make(self, scene: Scene, intent: Intent) -> Plan | None:
        """The plan of an intent, None for one that asks for nothing here."""
        if intent.name in POINTING_BACK and (effect := last_effect(scene.before, scene.sender)) is not None:
            intent = again(intent, effect)
            if self._means_last(scene, intent, effect) and (plan := self._references.make(scene, intent, effect)) is not None:
                return plan
        make = MAKERS.get(intent.name)
        return self.effects.make(scene, intent) if make is None else make(self, scene, intent)

    def _means_last(self, scene: Scene, intent: Intent, effect: Effect) -> bool:
        """Whether a request that points to something means the last effect, rather than what is said around it."""
        words = word_forms.content_words(intent.context, self.ignored)
        named = " ".join(map(str, effect.arguments.values()))
        if not words or any(word_forms.has_stem(word_forms.stem(word), named) for word in words):
            return True
        return effect.turns == 1 and intent.name != "done_it"

    def claims_effect(self, text: str) -> bool:
        """Whether a sentence of a model says that it did something, or will: it cannot, so nobody may read that."""
        claims, plain = self._router.languages.detect(text)[0].patterns.get("claim", ()), plain_words(text)
        return any(one.match(text.strip(), plain) for one in claims)

    def honest_answer(self, messages: Sequence[Message]) -> str:
        """What is said in place of such a sentence."""
        prompt = next((m for m in reversed(messages) if m.role == "user"), Message("user", ""))
        return nothing_done(self._router.languages.detect(strip_notes(prompt.content))[0]).text

    def no_answer(self, messages: Sequence[Message]) -> str:
        """What is said when the model said nothing that can be shown."""
        prompt = next((m for m in reversed(messages) if m.role == "user"), Message("user", ""))
        language = self._router.languages.detect(strip_notes(prompt.content))[0]
        return language.say("no_answer" if prompt.short_form is None else "skill_unable")

    # -- words ------------------------------------------------------------------------------------

    def _build_chat(self, scene: Scene, *, is_text: bool = False, shots: Sequence[str] = (), may_claim: bool = False) -> ModelTalk:
        """The model is asked; `shots` are requests and answers that show it the form of the answer."""
        sampling = SAMPLING[scene.tier]
        shown = tuple(Message("assistant" if n % 2 else "user", text) for n, text in enumerate(shots))
        spoken = scene.talked
        kept = [] if is_text else conversation.for_model(scene, spoken, self._router)[-sampling.history :]
        while kept and kept[0].role != "user":
            kept = kept[1:]
        history = [Message(m.role, SOURCE.sub("", strip_notes(m.content))[:600]) for m in kept]
        return ModelTalk(
            " ".join(filter(None, (SYSTEM[scene.tier], scene.extra))),
            (*(() if history else shown), *history, Message("user", scene.text)),
            sampling.text_tokens if is_text else sampling.max_tokens,
            sampling.temperature,
            sampling.repeat_penalty,
            may_claim=may_claim,
            echo="" if is_text else scene.text,
        )

    def _plan_question(self, scene: Scene) -> Plan:
        """A message that asks for nothing to be done: a question may stand beside what explains it."""
        language = self._router.languages.detect(scene.text, scene.last_question)[0]
        scene = conversation.with_names(scene, language, self.ignored)
        if (both := message_parts.two_questions(scene.text, language)) and (plan := self._answer_two(scene, *both, language)):
            return plan
        question, rest = message_parts.question_in(scene.text, language)
        if not question:
            return self._plan_answer(scene)
        kind = kind_of(question)
        named = set(word_forms.content_words(question, self.ignored)) - (kind.words if kind is not None else frozenset())
        named -= all_words("generic")
        texts = [question] if named or not rest else []
        texts += [f"{question.rstrip('?')}, {rest}?"] if rest else []
        if rest and set(words_in(question)) & language.words["again"]:
            texts = texts[-1:]  # "she" is somebody who is named beside it
        plans = []
        for text in texts:
            plans.append(self._plan_answer(replace(scene, text=text)))
            if self._is_found(plans[-1], language):
                return plans[-1]
        if near := next((one for one in plans if isinstance(one, Say) and one.is_near), None):
            return near
        is_whole = len(word_forms.content_words(question, self.ignored)) >= 2  # it says by itself what it is about
        if plans and is_whole and isinstance(plans[0], ModelTalk) and question == texts[0] and scene.tier == "tiny":
            return plans[0]  # what stands beside a question leads such a model astray
        if not plans or scene.text.endswith("?"):
            return self._plan_answer(scene)
        return plans[0]

    def _answer_two(self, scene: Scene, first: str, second: str, language: Language) -> Say | None:
        """What the notes say to two questions, of which the second may follow up the first; None where they say nothing to that."""
        one = self._plan_answer(replace(scene, text=first, tier="tiny"))
        points_back = bool(set(words_in(second)) & (language.words["again"] | language.words["theirs"]))
        if not isinstance(one, Say) or not one.quoted or (one.is_near and points_back):
            return None
        before = (*scene.before, Message("user", first), Message("assistant", one.text, state=one.state))
        other = self._plan_answer(replace(scene, text=second, before=before, tier="tiny"))
        if not isinstance(other, Say):
            other = self._say_nothing(self._finder.find_evidence(second), language)
        if answers.repeats(one, other):
            return one
        state = ThreadState(quoted=(*one.quoted, *other.quoted))
        return Say("\n".join(dict.fromkeys((one.text, other.text))), is_near=one.is_near or other.is_near, state=state)

    def _plan_answer(self, scene: Scene) -> Plan:
        """A message that asks for no effect: the notes are asked first, whatever its form.

        What they do not say no model makes up: it talks, or says what is general knowledge as far as it is sure.
        """
        language = self._router.languages.detect(scene.text, scene.last_question)[0]
        words = words_in(scene.text)
        kind = self._router.kind(scene.text, language)
        form = answers.form_of(words, kind, scene, language)
        asks = form != "talk"
        of_rows = self._rows.make(scene, language) or self._notes.read_day(scene.text, language, self._now()) if asks else None
        if asks and (worked_out := of_rows or self.effects.calendar.answer(scene.text, language)) is not None:
            return worked_out
        own = set(words_in(expression("asks_how_anybody").sub("", scene.text))) & language.words["own"]
        own -= language.words["tell"] if form == "order" else frozenset()  # "tell me a joke" speaks of nobody
        follows = asks and self._is_followup(scene, words, language)
        subjects = scene.subjects if follows else ()
        found = self._finder.find_evidence(
            scene.text,
            about=(scene.named or scene.last_question) if follows else "",
            subjects=subjects,
            # What was asked for is done, and may be undone since: it is no statement.
            said=conversation.told(scene, self._cue) if asks else (),
        )
        found = answers.without_equal_numbers(found, scene.text)
        if not asks:
            is_told = (
                found.certainty >= answers.SURE
                and found.best[0].coverage >= answers.WORDED
                and answers.is_answer(found, "talk", words, language)
            )
            return self._quote_best(scene, found, language) if is_told and not own else self._talk(scene, kind, language)
        is_own = bool(own and (kind != "world" or found.known or found.most_covered >= answers.KNOWN))
        is_past = bool(set(words) & language.words["past"])  # what we did is no matter of everybody
        is_own = is_own or bool(own - language.words["everybody"]) or bool(own and is_past)
        if follows and set(words) & language.words["theirs"]:
            found = answers.of_same(found, scene, self.ignored)
        if subjects and (meant := self._of_subject(scene.text, found, subjects[0])):
            return self._quote_best(scene, replace(found, best=meant), language)
        is_worded = found.most_covered >= answers.WORDED and found.nearest >= answers.LEAST_NEAR_WORDED
        is_worded = is_worded and answers.is_definite(scene.text)
        if kind == "world" and (found.known or is_worded):
            kind = self._router.kind(scene.text, language, 1.0 if not found.known else answers.SURE_WORLD)
        if follows and kind == "world" and answers.is_of_last(found, words, language):
            kind = ""
        is_you = not is_own and bool(set(words) & language.words["you"]) and not set(words[:4]) & language.words["asks"]
        kind = "talk" if is_you and not kind and language.lexicon.naming.isdisjoint(words) else kind
        kind = "notes" if is_own and kind != "talk" else kind
        kind = "world" if says("asks_definition", scene.text) and not answers.is_definite(scene.text) and not is_own else kind
        points_back = bool(set(words) & language.words["again"] - language.lexicon.leading)
        is_of_subject = bool(subjects and found.best) and found.best[0].ref in subjects and found.score >= answers.LEAST["notes"]
        if is_of_subject or answers.is_answer(found, kind, words, language):
            is_doubtful = answers.is_doubtful(found, scene.text) or (points_back and bool(subjects) and not is_of_subject)
            is_doubtful = is_doubtful or self._rows.is_unordered(found, scene.text, language)
            is_sure = (found.certainty >= answers.SURE and not is_doubtful) or not found.best[0].ref
            return self._quote_best(scene, found, language) if is_sure else answers.quote("nearest", found, language)
        if follows and (said := self._last_statement(scene)):
            return Say(language.say("said", text=said))
        if kind == "talk" and (is_you or form != "question") and not own:
            return self._talk(scene, kind, language)
        is_general = kind == "world" and not is_own and not set(words) & language.words["now"] and not (points_back and subjects)
        least = answers.least_near(scene, found, language) if is_general else answers.NEAREST
        is_near = found.note_score >= least
        if is_near and is_general:
            is_thing = answers.is_definite(scene.text) and (
                found.best[0].nearness >= answers.NEAR["world"] or (not found.best[0].missing and len(found.words) > 1)
            )
            is_near = bool(own or found.known or is_thing)
        if is_near:
            return answers.quote("nearest", found, language)
        if subjects and (meant := self._of_subject(scene.text, found, subjects[0], unknown=1)):
            return answers.quote("nearest", replace(found, best=meant), language)
        nothing = self._say_nothing(found, language)
        if not is_general and (named := found.naming):  # all of it is named there, but not what is asked about it
            return answers.quote("nearest", replace(found, best=named), language)
        if not is_general or form not in ("question", "order"):
            return nothing
        has_beside = found.note_score >= answers.NEAREST_WORLD and found.best[0].nearness >= answers.NEAR["world"]
        scene = scene if points_back or scene.tier != "tiny" else replace(scene, before=())  # it leads a tiny model astray
        chat = self._build_chat(scene, shots=language.shots.get("question", ()) if scene.tier == "tiny" else ())
        beside = answers.quote("beside", found, language) if has_beside else Say("")
        chat = replace(chat, is_silent=True, least_sure=answers.LEAST_SURE[scene.tier], as_general=language.phrase("of_model"))
        return replace(chat, instead=nothing.text, beside=beside.text, state=beside.state)

    def _talk(self, scene: Scene, kind: str, language: Language) -> Plan:
        """What asks for nothing, or only for a few words: a model answers it; of what people tell it a tiny one makes things up."""
        if scene.tier == "tiny" and "no_talk" in language.phrases:  # it answers in English, or in words that are none
            return Say(language.say("no_talk"))
        is_own = {word.partition("'")[0] for word in words_in(scene.text)[:1]} & language.words["own"]
        is_far = kind == "talk" and not self._router.kind(scene.text, language, answers.LEAST_TALK)
        if scene.tier == "tiny" and (is_own or is_far or kind in ("notes", "world")):
            return Say(language.say("heard"))
        chat = replace(self._build_chat(scene, may_claim=True), instead=language.say("heard"))
        return replace(chat, max_tokens=TALK_TOKENS) if kind == "talk" or scene.tier == "tiny" else chat

    def _of_subject(self, question: str, found: Evidence, subject: str, unknown: int = 0) -> tuple[Sentence, ...]:
        """What the note the talk is about answers to a question that names nothing, or but so much: "and his number?"."""
        kind = kind_of(question)
        if kind is None or len(set(word_forms.content_words(question, self.ignored)) - kind.words) > unknown:
            return ()
        return tuple(one for one in found.best if one.ref == subject and kind.holds(one.text))

    def _last_statement(self, scene: Scene) -> str:
        """What the person said just before, where a question that names nothing asks for the kind of thing it holds."""
        words = set(word_forms.content_words(scene.text, self.ignored))
        kind, last = kind_of(scene.text), scene.last_question.strip()
        is_meant = kind is not None and last and not last.endswith("?") and len(words) <= 1 and kind.holds(last)
        return last if is_meant and self._router.cue(last) is None else ""

    @staticmethod
    def _is_found(plan: Plan, language: Language) -> bool:
        """Whether a plan answers with what notes or the person said."""
        nothing = language.phrase("nothing_plain").rstrip(".")
        return isinstance(plan, Grounded) or (isinstance(plan, Say) and not plan.is_near and not plan.text.startswith(nothing))

    @staticmethod
    def _is_followup(scene: Scene, words: Sequence[str], language: Language) -> bool:
        return bool(scene.subjects or scene.last_question) and (
            len(words) <= SHORT_QUESTION or bool(set(words[:4]) & language.words["again"])
        )

    def _say_nothing(self, found: Evidence, language: Language) -> Say:
        said = language.say("nothing", words=", ".join(found.words[:6])) if found.words else language.say("nothing_plain")
        return Say("\n\n".join(filter(None, (said, self._notes.describe_unread(language)))))

    def _quote_best(self, scene: Scene, found: Evidence, language: Language) -> Plan:
        """The best sentence with its source; a small model may put it into words, as long as it adds nothing."""
        best = found.best[0]
        if not best.ref:
            return Say(language.say("said", text=best.text))
        beside = [
            one for one in found.best[1:] if one.ref == best.ref and one.whole != best.whole and one.score >= best.score * BESIDE
        ]
        beside = [] if best.items else beside[:1]
        chosen = sorted([best, *beside], key=lambda one: [*found.best].index(one))
        source = f"[{shown_source(best.ref)}]"
        said = " ".join(dict.fromkeys(closed(one.quoted) for one in chosen))
        quoted, state = f"{said} {source}", ThreadState(quoted=(best.ref,), said=said)
        if scene.tier == "tiny" or best.items:
            return Say(quoted, state=state)  # a model would leave out some of a list
        shown = [one for one in found.best[:4] if one.ref]
        lines = "\n".join(f"- {one.title}: {one.quoted}" for one in shown)
        question = f"Notes:\n{lines}\n\nUsing only the notes, answer in one short sentence.\nQuestion: {scene.text}"
        sampling = SAMPLING[scene.tier]
        chat = ModelTalk(SYSTEM[scene.tier], (Message("user", question),), 60, 0.0, sampling.repeat_penalty, is_silent=True)
        # A title that the question does not name is nobody who could be the answer: "Haus comes every year".
        asked = [word_forms.stem(word) for word in word_forms.content_words(scene.text, self.ignored)]
        named = [one.title if any(word_forms.has_stem(word, one.title) for word in asked) else "" for one in chosen]
        texts = tuple(f"{title} {one.quoted}".strip() for title, one in zip(named, chosen))
        return Grounded(chat, scene.text, texts, source, quoted, quote=best.spoken, state=state)

    # -- lists and the time -----------------------------------------------------------------------

    def _say_courtesy(self, scene: Scene, intent: Intent) -> Plan:
        """A greeting, thanks, who one is, the weather: by the program where the model knows too little of it."""
        is_english = intent.language.name == self._router.languages.english.name
        if intent.name not in ("who", "outside") and is_english and (scene.tier == "small" or intent.name == "hello"):
            return self._build_chat(scene)
        return Say(intent.language.say(intent.name))

    def _answer_asked(self, scene: Scene, intent: Intent) -> Plan:
        """A question inside a request: "remind me what the code was, will you?"."""
        query = f"{intent.parts['query'].strip(' .!?')}?"
        plan = self._in_known_language(scene, self._plan_answer(replace(scene, text=query)))
        if self._is_found(plan, intent.language) or not intent.context:
            return plan
        other = self._plan_answer(replace(scene, text=f"{query.rstrip('?')}, {intent.context.strip(' .!')}?"))
        return other if self._is_found(other, intent.language) else plan

    def _answer_named(self, scene: Scene, intent: Intent) -> Plan:
        """A question put as a request for what it names: "please tell me the code of the garage"."""
        question = intent.language.say("what_is", text=intent.parts["query"].strip(" .!?¿"))
        plan = self._plan_answer(replace(scene, text=question))
        is_talk = self._router.kind(scene.text, intent.language) == "talk"
        plan = self._talk(scene, "talk", intent.language) if is_talk and not self._is_found(plan, intent.language) else plan
        return self._in_known_language(scene, plan)

    def _say_beyond(self, scene: Scene, intent: Intent) -> Plan:
        """What no small model can do on this box; a deed may become a task."""
        language, said = intent.language, intent.language.say(intent.name)
        task = language.expression("for_me").sub(r"\1 ", language.without_opening(scene.text).strip(" .!?"))
        if intent.name == "beyond_web" or "?" in scene.text:
            return Say(said)
        return ask_back(language, "sure_task", f"{said} ", task=task)

    def _list_tasks(self, scene: Scene, intent: Intent) -> Plan:
        if "what" in intent.parts:
            return self.effects.is_listed(intent)

        def told(outcome: Outcome) -> Plan:
            if (tasks := (outcome.data or {}).get("tasks")) or outcome.is_error:
                kind = kind_of(scene.text)
                said = replace(answer_of(outcome, intent), state=ThreadState(listed=tuple(str(one["id"]) for one in tasks or ())))
                if not tasks or kind is None or kind.name != "number":
                    return said
                return replace(said, text=f"{intent.language.say('task_count', number=str(len(tasks)))}\n{said.text}")
            return self._quote_called(scene, intent.language) or Say(intent.language.say("no_tasks"))

        return Do(tool_call("list_tasks", status="open", limit=results.MOST_LISTED), told)

    def _list_note(self, scene: Scene, intent: Intent) -> Plan | None:
        """A list that is a note; the list of tasks where no note is called so."""
        if (said := self.effects.additions.read_list(intent.parts["title"], intent.language)) is not None:
            return said
        return None if (tasks := self._router.cue(scene.text, ("tasks",))) is None else self._list_tasks(scene, tasks)

    def _quote_called(self, scene: Scene, language: Language) -> Plan | None:
        """A note whose title stands in a message, "shopping" in "what is on my shopping list?", or "to-do"; None for none."""
        for name in sorted(name for name in language.words["tasks"] if name in scene.text.lower()):
            if (said := self.effects.additions.read_list(name.replace("-", " "), language)) is not None:
                return said
        found = self._finder.find_evidence(scene.text)
        for one in found.best:
            words = word_forms.content_words(one.title, self.ignored)
            if one.ref and words and all(word_forms.has_stem(word_forms.stem(word), scene.text) for word in words):
                return self._quote_best(scene, replace(found, best=(one,)), language)
        return None

    def _list_reminders(self, scene: Scene, intent: Intent) -> Plan:
        call = tool_call("list_schedules", status="active", soonest=True, limit=results.MOST_LISTED)
        return Do(call, partial(results.say_reminders, intent=intent))

    def _list_memories(self, scene: Scene, intent: Intent) -> Plan:
        if not (known := self.effects.stored_memories()):
            return Say(intent.language.say("no_memories"))
        lines = [f"- {' '.join(text.split())} [{shown_source(ref)}]" for ref, text in known[-results.MOST_LISTED :]]
        refs = tuple(ref for ref, _ in known[-results.MOST_LISTED :])
        return Say("\n".join([intent.language.say("memories"), *lines]), state=ThreadState(quoted=refs))

    # -- notes ------------------------------------------------------------------------------------

    def _describe_subject(self, scene: Scene, intent: Intent) -> Plan:
        """What the notes say about something: the sentences that name it, by note."""
        query, language = intent.parts["query"], intent.language
        found = self._finder.find_evidence(query)
        held = [one for one in found.best if one.coverage >= 0.5 or one.nearness >= 0.5]
        if not held:
            is_world = intent.name != "search" and self._router.kind(scene.text, language) == "world"
            return self._plan_answer(scene) if is_world else self._say_nothing(found, language)
        state = ThreadState(quoted=tuple(one.ref for one in held[:5]), said="\n".join(closed(one.quoted) for one in held[:5]))
        return Say("\n".join([language.say("found"), *(f"- {closed(one.quoted)} [{one.ref}]" for one in held[:5])]), state=state)

    def _list_of(self, scene: Scene, intent: Intent) -> Plan:
        """A list that notes hold, as a whole where it is one, else what they say about it."""
        found = self._finder.find_evidence(intent.parts["query"])
        if found.best and found.best[0].items and found.certainty >= answers.NEAREST:
            return self._quote_best(scene, found, intent.language)
        return self._describe_subject(scene, intent)

    def _translate_text(self, scene: Scene, intent: Intent) -> Plan:
        """A text in another language, which a tiny model has not learned: it makes one up."""
        if scene.tier == "tiny":
            return Say(intent.language.say("no_translation"))
        plan = self._write_text(scene, intent)
        if not isinstance(plan, ModelTalk):
            return plan
        text = scene.last_answer if self._points_back(intent) else intent.parts["text"].rpartition(":")[2]
        return replace(plan, echo=text, instead=intent.language.say("not_translated"))

    def _write_text(self, scene: Scene, intent: Intent) -> Plan:
        if (missing := self._missing_text(scene, intent)) is not None:
            return missing
        if self._points_back(intent):
            if not scene.last_answer:
                return Say(intent.language.say("which_text"))
            scene = replace(scene, text=f"{scene.text.rstrip(' .!?')}:\n\n{scene.last_answer}")
            if set(words_in(intent.text)) & intent.language.words["shorter"]:
                return self._shorten_text(scene, scene.last_answer, intent)
            chat = self._build_chat(scene, is_text=True)
            return replace(chat, echo=scene.last_answer, instead=intent.language.say("no_better"))
        return self._build_chat(scene, is_text=True)

    def _missing_text(self, scene: Scene, intent: Intent) -> Plan | None:
        """What notes say about a text that is only named, as in "shorten the lease"; None for one that is there."""
        text = intent.parts.get("text", "")
        words = words_in(text)
        is_named = intent.name == "summary" or bool(set(words[:1]) & intent.language.words["definite"])
        is_named = is_named or any(word[0].isdigit() for word in words)
        if ":" in intent.text or not is_named or not names_thing(text, intent.language):
            return None
        return self._describe_subject(scene, replace(intent, name="search", parts={"query": text}))

    @staticmethod
    def _points_back(intent: Intent) -> bool:
        """Whether the text that is to be worked on is not there but meant: "make it shorter", "translate that into German"."""
        words, again = words_in(intent.parts.get("text", "")), intent.language.words["again"]
        if len(words) > 1:
            again -= intent.language.words["definite"]  # "den Vertrag" is one that is named
        return bool(words) and words[0] in again and ":" not in intent.text and len(intent.text) < POINTING

    def _rewrite_text(self, scene: Scene, intent: Intent) -> Plan:
        """A text in other words, asked for in the form that the examples show; a tiny model is not asked for an order."""
        if self._points_back(intent) and not scene.last_answer:
            return Say(intent.language.say("which_text"))
        if self._points_back(intent):
            meant = intent.language.say(intent.name, text=closed(scene.last_answer))
            chat = self._build_chat(replace(scene, text=meant), is_text=True, shots=intent.language.shots.get(intent.name, ()))
            return replace(chat, echo=scene.last_answer, instead=intent.language.say("no_better"))
        if intent.name == "spelling" and scene.tier == "tiny":
            days = (intent.language.phrase(key).split() for key in ("weekdays", "months"))
            names = [day for one in days for day in one]
            right = rewriting.mended(intent.parts["text"], intent.language, names, self._finder.is_known)
            if right != intent.parts["text"]:
                return Say(closed(right))
        text = intent.language.say(intent.name, text=closed(intent.parts["text"]))
        chat = self._build_chat(replace(scene, text=text), is_text=True, shots=intent.language.shots.get(intent.name, ()))
        return rewriting.polite(intent, chat) if intent.name == "polite" and scene.tier == "tiny" else chat

    def _summarize_text(self, scene: Scene, intent: Intent) -> Plan:
        if self._points_back(intent):
            return self._write_text(scene, intent)
        return self._missing_text(scene, intent) or self._shorten_text(scene, intent.parts["text"], intent)

    def _shorten_text(self, scene: Scene, text: str, intent: Intent) -> Plan:
        """The sentence of a text that says most of it; a small model's own, when that adds nothing to the text."""
        if not (chosen := results.summary(text, self.ignored, most=1)) or len(sentences.split(text)) < 2:
            return self._build_chat(scene, is_text=True)
        if scene.tier == "tiny":
            return Say(chosen)
        scene = replace(scene, text=intent.language.say("summary", text=text))
        chat = replace(self._build_chat(scene, is_text=True), max_tokens=90, is_silent=True)
        return Grounded(chat, "", (text,), "", chosen)


MAKERS: Mapping[str, Callable[[MessagePlanner, Scene, Intent], Plan | None]] = {
    "help": lambda self, scene, intent: Say(intent.language.say("help")),
    **dict.fromkeys(computed.MAKERS, lambda self, scene, intent: computed.answer(intent, self._now())),
    **dict.fromkeys(COURTESIES, MessagePlanner._say_courtesy),
    "list_note": MessagePlanner._list_note,
    "tasks": MessagePlanner._list_tasks,
    "reminders": MessagePlanner._list_reminders,
    "memories": MessagePlanner._list_memories,
    **dict.fromkeys(BEYOND[:-1], MessagePlanner._say_beyond),
    "asking": MessagePlanner._answer_asked,
    "asking_for": MessagePlanner._answer_named,
    **dict.fromkeys(
        ("done_maybe", "done_told", "named_drop", "named_move", "named_level"),
        lambda self, scene, intent: self.effects.change_perhaps(scene, intent, lambda: self._plan_answer(scene)),
    ),
    "news": lambda self, scene, intent: self.effects.lookups.show_news(scene, intent, lambda: self._plan_answer(scene)),
    "needed": lambda self, scene, intent: errands.ask_whether_needed(scene, intent, self.effects.reminders),
    "send_file": lambda self, scene, intent: self._notes.send_file(intent) or self._describe_subject(scene, intent),
    "all_notes": lambda self, scene, intent: self._notes.list_notes(scene, intent),
    "delete_note": lambda self, scene, intent: self._notes.keep_note(scene, intent) or self.effects.forget(scene, intent),
    "my_name": lambda self, scene, intent: (
        conversation.told_again(scene, self._cue, intent)
        or note_plans.say_person(self._entries, intent)
        or self._plan_answer(scene)
    ),
    "who": lambda self, scene, intent: note_plans.say_assistant(self._entries, intent),
    "read_note": lambda self, scene, intent: self._notes.read_note(scene, intent) or self._describe_subject(scene, intent),
    **dict.fromkeys(("search", "about", "tell_of"), MessagePlanner._describe_subject),
    "list_of": MessagePlanner._list_of,
    "text": MessagePlanner._write_text,
    "translation": MessagePlanner._translate_text,
    **dict.fromkeys(("polite", "spelling"), MessagePlanner._rewrite_text),
    "summary": MessagePlanner._summarize_text,
}
