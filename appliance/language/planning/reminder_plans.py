"""Reminders that a person asks for in so many words, as plans: the time is read once here, and handed to the tool as a rule.

What has no time in it, or no thing, is asked back in the person's language; a time that is not understood is said so. A time may be
so long before or after something that the notes date, or a day that is said around the request, or was just answered.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language import word_forms
from appliance.language.evidence import Sentence
from appliance.language.languages import words_in
from appliance.language.planning import results
from appliance.language.planning.plans import Do, Plan, Say, Scene, all_of, answer_of, ask_back, shown_source, tool_call
from appliance.language.router import Intent, Router
from appliance.language.times import dates, recurrence, time_expression, timezones
from appliance.language.times.recurrence import Rule
from appliance.language.times.reductions import UnclearTime
from appliance.language.times.time_expression import TimeExpression
from appliance.language.word_forms import without_possessive
from appliance.records import Outcome, ThreadState

REFUSED = 400
MOST_SEVERAL, MOST_JOINTS = 4, 6  # reminders in one sentence, and places at which it may be parted
EARLY = ("alarm", "wake")  # in which a bare hour is in the morning
MOST_THING = 12  # words of what a pronoun means
PARTS = ("rest", "when", "what")  # of a sentence that say when and of what


class Reminders:
    """Makes the plans of reminders; `ignored` are words that name nothing, `collect` finds what the notes say of something."""

    def __init__(
        self, router: Router, now: Callable[[], datetime], ignored: Collection[str], collect: Callable[[str], Sequence[Sentence]]
    ) -> None:
        self._router = router
        self._collect = collect
        self._now = now
        self._ignored = frozenset(ignored)

    def set(self, scene: Scene, intent: Intent) -> Plan:
        """A reminder of what the request names, or of what is said around it."""
        said = _sentence(intent)
        if "second" in intent.parts:
            return self._set_all([intent.parts["when"], intent.parts["second"]], (intent, intent))
        if several := self._several(said, intent):
            scenes = [replace(scene, named=before) for before in (scene.named, *(one.text for one in several))]
            texts = [self._with_thing(one.text, beside, intent) for one, beside in zip(several, scenes)]
            return all_of([partial(self._call, text, one.when, one.rule, intent) for text, one in zip(texts, several)])
        try:
            found = self.read(said, intent)
            if intent.name == "remind_late" and "what" not in intent.parts:
                found = replace(found, text=self._router.duty(found.text, intent.language))
            if found.rule is None and found.shift is None and intent.context:
                found = self._read_context(found, intent)
            if found.event:
                return self._set_beside(found, intent)
            rule, about = self._rule(found, scene, intent.context)
        except BadInput as error:
            return refused(error, intent)
        text = self._text(found.text, intent, about or (scene.last_question if found.shift is not None else ""))
        return self._call(self._with_thing(text, scene, intent), found.when, rule, intent)

    def set_each(self, intents: Sequence[Intent]) -> Plan:
        """Reminders that one message asks for, each in a request of its own."""
        return self._set_all([_sentence(one) for one in intents], intents)

    def _set_all(self, pieces: Sequence[str], intents: Sequence[Intent]) -> Plan:
        try:
            made = list(zip(self._read_each(pieces, intents[0]), intents))
        except BadInput as error:
            return refused(error, intents[0])
        texts = [self._text(one.text, by, "") for one, by in made]
        calls = [partial(self._call, text, one.when, one.rule, by) for text, (one, by) in zip(texts, made)]
        return all_of(calls)

    @staticmethod
    def ask_instead(intent: Intent) -> Say:
        """A time is asked for in place of something that happens, which no clock tells: "when I get home"."""
        language = intent.language
        return ask_back(language, "when", f"{language.say('no_event')} ", text=intent.parts["task"].strip(" .!?"))

    def set_that(self, scene: Scene, intent: Intent) -> Plan | None:
        """A reminder of what is said around it, with the time that is said there."""
        text = intent.language.without_opening(meant_text(scene, intent)).strip(" .!")
        if intent.name == "remind_before":
            return self.set(scene, replace(intent, name="remind", parts={"when": intent.text}, context=text))
        if not text:
            return None
        return self.set(scene, replace(intent, name="remind", parts={"when": text}, context=""))

    def again(self, said: str, intent: Intent, known: TimeExpression, next_ms: int) -> Plan:
        """Another reminder: of another thing, or of the same at another time."""
        try:
            found = self.read(said, intent)
        except BadInput:
            found = TimeExpression("")
        if found.text and found.rule is not None and words_in(found.text):
            return self._call(found.text, found.when, found.rule, intent)
        assert known.rule is not None
        try:
            rule = time_expression.changed(said, intent.language.lexicon, known.rule, next_ms, self._now_ms())
        except BadInput as error:
            return refused(error, intent)
        return self._call(known.text, "", rule, intent)

    def move(self, one: Mapping[str, Any], change: str, intent: Intent) -> Plan:
        """A schedule as it is listed, at another time: its clock, its day or both."""
        now_ms = self._now_ms()
        try:
            rule = time_expression.changed(change, intent.language.lexicon, rule_of(one), one.get("next_ms") or now_ms, now_ms)
        except BadInput as error:  # the change is no time that is understood
            return refused(error, intent)
        return results.do(tool_call("update_schedule", id=one["id"], frequency=recurrence.written(rule)), intent)

    # -- inside -------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._now().timestamp() * 1000)

    def _zone(self) -> str:
        return timezones.name_of(self._now().tzinfo)

    def read(self, said: str, intent: Intent) -> TimeExpression:
        """The time in a text."""
        is_ahead, is_early = intent.name in ("timer", "alarm"), intent.name in EARLY
        lexicon = intent.language.lexicon
        return time_expression.split(said, lexicon, self._now_ms(), self._zone(), is_ahead=is_ahead, is_early=is_early)

    def _several(self, said: str, intent: Intent) -> Sequence[TimeExpression]:
        """Reminders in one sentence, each with a time of its own at the same end: "at 5 to call Bea and at 6 to eat"."""
        joints = [*intent.language.parted.finditer(said)][:MOST_JOINTS]
        for count in range(min(len(joints), MOST_SEVERAL - 1), 0, -1):
            found: list[Sequence[TimeExpression]] = []
            for cuts in combinations(joints, count):
                starts, ends = [0, *(one.end() for one in cuts)], [*(one.start() for one in cuts), len(said)]
                pieces = [said[start:end].strip(" .!") for start, end in zip(starts, ends)]
                try:
                    read = self._read_each(pieces, intent)
                except BadInput:
                    continue
                sides = zip(*((piece.startswith(one.when), piece.endswith(one.when)) for piece, one in zip(pieces, read)))
                is_whole = all(one.rule is not None and self._names_anything(one.text, intent) for one in read)
                found += [read] if is_whole and any(map(all, sides)) else []
            if found:
                return found[0] if len(found) == 1 else ()
        return ()

    def _read_each(self, pieces: Sequence[str], intent: Intent) -> list[TimeExpression]:
        """The times of reminders that are said in one breath: a time of day alone is on the day of the one before it."""
        found: list[TimeExpression] = []
        for piece in pieces:
            one = self.read(piece, intent)
            before = found[-1] if found else None
            if before is not None and before.rule is not None and one.is_clock and not before.is_clock:
                one = self._on_day(before.rule, piece, one, intent)
            found.append(one)
        return found

    def _on_day(self, rule: Rule, said: str, found: TimeExpression, intent: Intent) -> TimeExpression:
        """A time of day that stands behind another with its day means that day; BadInput where the other repeats."""
        if rule.kind != "once":
            raise UnclearTime("once_or_again", said=found.when)
        before_ms = recurrence.at(rule)
        day = datetime.fromtimestamp(before_ms / 1000, timezones.find(rule.zone)).date().isoformat()
        made = replace(self.read(said.replace(found.when, f"{day} {found.when}", 1), intent), when=found.when)
        if made.rule is not None and recurrence.at(made.rule) <= before_ms:  # "tomorrow at noon, and at 6": in the evening
            later = time_expression.changed(found.when, intent.language.lexicon, rule, before_ms, self._now_ms())
            made = replace(made, rule=later) if recurrence.at(later) > before_ms else made
        return made

    def _read_context(self, found: TimeExpression, intent: Intent) -> TimeExpression:
        """The time that is said around a request which names none: that text is what it is about, unless it is a time alone."""
        context = intent.language.without_opening(intent.context).strip(" .!")
        around = self.read(context, intent)
        if around.rule is None:
            return found
        is_named = self._names_anything(found.text, intent)
        return replace(around, text=found.text if is_named else around.text or found.text)

    def _rule(self, found: TimeExpression, scene: Scene, context: str) -> tuple[Rule | None, str]:
        """When it is to be, and the text that names the day beside which it is."""
        if found.shift is None:
            return found.rule, ""
        for text in filter(None, (context, scene.last_answer, scene.last_question)):
            is_answer = text == scene.last_answer
            rule = self._beside(found, text, scene.last_question if is_answer else "", needs_day=is_answer)
            if rule is not None and recurrence.at(rule) > self._now_ms():
                return rule, text
        return None, ""

    def _set_beside(self, found: TimeExpression, intent: Intent) -> Plan:
        """A reminder so long before something that is named: on the one day to come at which the notes have it."""
        dated = [(self._beside(found, one.text, found.event), one) for one in self._collect(found.event)]
        ahead = {recurrence.at(rule): (rule, one) for rule, one in dated if rule and recurrence.at(rule) > self._now_ms()}
        if len(ahead) != 1:
            return self.ask_instead(replace(intent, parts={"task": found.text}))
        [(rule, one)] = ahead.values()
        return self._call(found.text, found.when, rule, intent, one)

    def _beside(self, found: TimeExpression, text: str, event: str, *, needs_day: bool = True) -> Rule | None:
        """The time beside the day of something that a text names in any language, the most complete reading first."""
        assert found.shift is not None
        languages = self._router.languages
        known = [*languages.detect(text), *languages.all]
        about = [word for word in map(without_possessive, words_in(event)) if word not in self._ignored]
        is_clock, now = found.shift[0] % time_expression.DAY_S != 0, self._now()
        bases = [dates.nearest(text, one.lexicon, now, is_clock=is_clock, about=about) for one in known]
        base = next((one for one in sorted(filter(None, bases), key=lambda one: (not one.has_day, not one.has_clock))), None)
        if base is None or needs_day and not base.has_day:
            return None
        if not {word for one in known for word in one.rows.get("yearly", ())}.isdisjoint(words_in(text)):
            base = dates.next_year_of(base, now)
        return time_expression.beside(found, base, self._zone())

    def _text(self, text: str, intent: Intent, about: str) -> str:
        """What it is about: what the request names, else what is said around it or stands beside the day."""
        if self._names_anything(text, intent):
            return text
        around = (about or intent.context).split("\n")[0].strip(" .!?")
        plain = text if set(words_in(text)) - intent.language.words["again"] else ""
        return around or plain or intent.language.lexicon.alarm_name(intent.text, intent.name)

    def _with_thing(self, text: str, scene: Scene, intent: Intent) -> str:
        """A text that names nothing but a pronoun, with what that means behind it: "buy it (milk)"."""
        language = intent.language
        pronouns = language.words["theirs"] | language.words["again"] - language.words["definite"]
        if not pronouns & set(words_in(text)) or len(word_forms.content_words(text, self._ignored)) > 1:
            return text
        last = scene.last_question.strip(" .!")
        thing = scene.named or intent.context.strip(" .!") or ("" if last.endswith("?") else last)
        return f"{text} ({thing})" if thing and thing not in text and len(thing.split()) <= MOST_THING else text

    def _names_anything(self, text: str, intent: Intent) -> bool:
        """Whether a text has a word that does not only point to something else."""
        language = intent.language
        pointing = language.words["again"] | language.lexicon.naming | self._ignored
        return any(word not in pointing for word in words_in(text))

    def _call(self, text: str, when: str, rule: Rule | None, intent: Intent, source: Sentence | None = None) -> Plan:
        if rule is None:
            return ask_back(intent.language, "when", text=text or intent.text.strip(" .!?¡¿"))
        if not text:
            return ask_back(intent.language, "of_what", when=when)
        zone = {} if rule.zone == self._zone() else {"timezone": rule.zone}
        call = tool_call("remind", text=text, when=recurrence.written(rule), **zone)

        def told(outcome: Outcome) -> Say:
            said = results.told(call, outcome, intent)
            if outcome.is_error or source is None:
                return said
            return Say(f"{said.text}\n\n{source.quoted} [{shown_source(source.ref)}]", state=ThreadState(quoted=(source.ref,)))

        return Do(call, told)


def rule_of(one: Mapping[str, Any]) -> Rule:
    """The rule of a schedule as it is listed."""
    return recurrence.make_rule(one["kind"], one["spec"], one.get("zone") or timezones.LOCAL, one.get("condition") or "")


def meant_text(scene: Scene, intent: Intent) -> str:
    """What a request points to: what is said around it, else what the person said just before, unless that was a question."""
    last = scene.last_question.strip()
    return intent.context or ("" if last.endswith("?") else last)


def refused(error: BadInput, intent: Intent) -> Say:
    """What was wrong, in the language of the request."""
    message, hint = error.said_in(intent.language) if isinstance(error, UnclearTime) else (error.message, error.hint)
    return answer_of(Outcome(REFUSED, "bad_input", message, hint), intent)


def _sentence(intent: Intent) -> str:
    """The words of a request that say when and of what, in the order in which they were said."""
    parts, text = intent.parts, intent.language.without_opening(intent.text)
    if intent.name == "remind_late" and "rest" in parts:
        end = text.find(parts["rest"]) + len(parts["rest"])
        return f"{text[:end]} {parts.get('what', '')}".strip()
    if intent.name == "remind_late" or "rest" in parts and (intent.name != "alarm" or "what" in parts):
        return text
    return " ".join(sorted((parts[name] for name in PARTS if name in parts), key=intent.text.find))
