"""Reminders and events of calendars, as plans: what a person asks for in so many words, and what they ask about them.

What has no time in it, or no thing, is asked back in the person's language; a time that is not understood is said so. A time may be
so long before or after something that calendars or notes date, or a day that is said around the request, or was just answered. The
time is read once here, and handed to the tool as a rule.

What is on a day are its events and the reminders of that day. An event that is named is the next one with all the words in its
title or place; where none has them, the notes are asked. An event that is added happens once. Knows no servers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.language import word_forms
from appliance.language.answer_kinds import kind_of
from appliance.language.evidence import Sentence
from appliance.language.languages import Language, words_in
from appliance.language.planning import results
from appliance.language.planning.plans import Do, Plan, Say, Scene, all_of, answer_of, ask_back, ask_which, shown_source, tool_call
from appliance.language.ports import EventCalendar, NamedEvent
from appliance.language.router import Intent, Router
from appliance.language.times import dates, recurrence, time_expression, timezones
from appliance.language.times.recurrence import Rule
from appliance.language.times.reductions import UnclearTime
from appliance.language.times.time_expression import TimeExpression
from appliance.language.times.timezones import LOCAL
from appliance.language.times.tokenizer import tokens
from appliance.language.word_forms import without_possessive
from appliance.records import Outcome, ThreadState

REFUSED = 400
ASIDES = ("no", "aside")
MOST_SEVERAL, MOST_JOINTS = 4, 6  # reminders in one sentence, and places at which it may be parted
EARLY = ("alarm", "wake")  # in which a bare hour is in the morning
MOST_THING = 12  # words of what a pronoun means
PARTS = ("rest", "when", "moment", "what")  # of a sentence that say when and of what


class Reminders:
    """Makes the plans of reminders; `ignored` are words that name nothing, `collect` and `events` find what notes and calendars
    have."""

    def __init__(
        self,
        router: Router,
        now: Callable[[], datetime],
        ignored: Collection[str],
        collect: Callable[[str], Sequence[Sentence]],
        events: Callable[[str], Sequence[NamedEvent]],
    ) -> None:
        self._router = router
        self._collect = collect
        self._events = events
        self._now = now
        self._ignored = frozenset(ignored)

    def set(self, scene: Scene, intent: Intent) -> Plan:
        """A reminder of what the request names, or of what is said around it; one that was asked back as it was read then."""
        if "rule" in intent.parts:
            return self._call(intent.parts["text"], "", recurrence.read_written(intent.parts["rule"], self._zone()), intent)
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
            is_timed = bool(set(words_in(found.text)) & intent.language.lexicon.naming)  # "mid January", which is not understood
            if found.rule is None and found.shift is None and intent.context and not is_timed:
                found = self._read_context(found, intent)
            if found.event:
                return self._set_beside(found, intent)
            rule, about = self._rule(self._on_that_day(found, intent.language), scene, intent.context)
            rule = rule or found.rule
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

    def ask_whether(self, said: str, language: Language) -> Say:
        """Whether somebody is to be reminded, with the time as it was read; what is not clear about that is asked instead."""
        intent = Intent("remind", language, {"when": said}, said)
        try:
            found = self.read(said, intent)
        except BadInput as error:
            return refused(error, intent)
        if found.rule is None:
            return ask_back(language, "when", text=found.text)
        ahead = recurrence.upcoming(found.rule, self.now_ms(), 1)
        zone = LOCAL if found.rule.zone == self._zone() else found.rule.zone
        time = " ".join([results.spelled_time(ms, zone, language) for ms in ahead])
        again = f" {language.say('and_again')}" if found.rule.kind in recurrence.REPEATED else ""
        return ask_back(language, "sure_remind", rule=recurrence.written(found.rule), time=f"{time}{again}", text=found.text)

    def is_understood(self, intent: Intent) -> bool:
        """Whether a request says when."""
        try:
            found = self.read(_sentence(intent), intent)
        except BadInput:
            return True  # it is said what is wrong with it
        return found.rule is not None or found.shift is not None

    def at_other_time(self, said: str, asked: Intent) -> Intent | None:
        """A reminder that was asked back, at another time: "make it 9:30"; None where that is none."""
        intent = self._router.cue(said, ("change_it",))
        change = said if intent is None else intent.parts.get("change") or intent.parts["moment"]
        rule = recurrence.read_written(asked.parts["rule"], self._zone())
        if rule is None or (intent is not None and intent.context):
            return None
        try:
            next_ms = next(iter(recurrence.upcoming(rule, self.now_ms(), 1)), self.now_ms())
            made = time_expression.changed(change, asked.language.lexicon, rule, next_ms, self.now_ms())
        except BadInput:
            return None
        return replace(asked, parts={**asked.parts, "rule": recurrence.written(made)})

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
            rule = time_expression.changed(said, intent.language.lexicon, known.rule, next_ms, self.now_ms())
        except BadInput as error:
            return refused(error, intent)
        return self._call(known.text, "", rule, intent)

    def move(self, one: Mapping[str, Any], change: str, intent: Intent) -> Plan:
        """A schedule as it is listed, at another time: its clock, its day or both."""
        now_ms = self.now_ms()
        try:
            rule = time_expression.changed(change, intent.language.lexicon, rule_of(one), one.get("next_ms") or now_ms, now_ms)
        except BadInput as error:  # the change is no time that is understood
            return refused(error, intent)
        return results.do(tool_call("update_schedule", id=one["id"], frequency=recurrence.written(rule)), intent)

    def now_ms(self) -> int:
        """The time by the clock, in milliseconds since 1970."""
        return int(self._now().timestamp() * 1000)

    # -- inside -------------------------------------------------------------------------------------

    def _zone(self) -> str:
        return timezones.name_of(self._now().tzinfo)

    def read(self, said: str, intent: Intent) -> TimeExpression:
        """The time in a text."""
        is_ahead, is_early = intent.name in ("timer", "alarm"), intent.name in EARLY
        lexicon = intent.language.lexicon
        return time_expression.split(said, lexicon, self.now_ms(), self._zone(), is_ahead=is_ahead, is_early=is_early)

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
                is_whole = is_whole and all(self._router.cue(one.text, ASIDES) is None for one in read)  # "tomorrow, no wait, at 5"
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
            later = time_expression.changed(found.when, intent.language.lexicon, rule, before_ms, self.now_ms())
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

    def _on_that_day(self, found: TimeExpression, language: Language) -> TimeExpression:
        """A time of day with a word that points to a day, "wake me then at six", as one on the day that is said around it."""
        if found.rule is None or not found.is_clock or language.words["then"].isdisjoint(words_in(found.text)):
            return found
        at = datetime.fromtimestamp(recurrence.at(found.rule) / 1000, timezones.find(found.rule.zone))
        return replace(found, rule=None, shift=(0.0, 0), clock=(at.hour, at.minute))

    def _rule(self, found: TimeExpression, scene: Scene, context: str) -> tuple[Rule | None, str]:
        """When it is to be, and the text that names the day beside which it is."""
        if found.shift is None:
            return found.rule, ""
        for text in filter(None, (context, scene.last_answer, scene.last_question)):
            is_answer = text == scene.last_answer
            rule = self._beside(found, text, scene.last_question if is_answer else "", needs_day=is_answer)
            if rule is not None and recurrence.at(rule) > self.now_ms():
                return rule, text
        return None, ""

    def _set_beside(self, found: TimeExpression, intent: Intent) -> Plan:
        """A reminder so long before something that is named: its next time in a calendar, else the one day that the notes have."""
        events = self._events(found.event)
        if len({event.title for event in events}) > 1:
            return self.ask_instead(replace(intent, parts={"task": found.text}))
        for event in events[:1]:
            base = dates.Moment(event.start, not event.is_day)
            is_clock = found.shift is not None and found.shift[0] % time_expression.DAY_S != 0
            rule = time_expression.beside(found, base, self._zone()) if base.has_clock or not is_clock else None
            if rule is not None and recurrence.at(rule) > self.now_ms():
                when = results.spelled_time(int(event.start.timestamp() * 1000), LOCAL, intent.language)
                source = Sentence(f"{event.title}: {when}", event.ref, "")
                return self._call(found.text, found.when, rule, intent, source)
        dated = [(self._beside(found, one.text, found.event), one) for one in self._collect(found.event)]
        ahead = {recurrence.at(rule): (rule, one) for rule, one in dated if rule and recurrence.at(rule) > self.now_ms()}
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


# -- calendars ----------------------------------------------------------------------------------------

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
YEAR = timedelta(days=366)
SUNDAY = 6
MOST_SHOWN = 30
MOST_ASKED = 8
SPANS = ("span_week", "span_next_week", "span_weekend", "span_month")


class NoCalendar:
    """Where there is no calendar."""

    def is_known(self) -> bool:
        return False

    def has_account(self) -> bool:
        return False

    def between(self, first: datetime, last: datetime) -> Sequence[NamedEvent]:
        return ()

    def coming(self) -> Sequence[NamedEvent]:
        return ()


NO_CALENDAR = NoCalendar()


class CalendarPlans:
    """Makes them; `ignored` are words that name nothing."""

    def __init__(self, calendar: EventCalendar, now: Callable[[], datetime], ignored: Collection[str]) -> None:
        self._calendar = calendar
        self._now = now
        self._ignored = frozenset(ignored)

    def is_known(self) -> bool:
        """Whether there is a calendar to be asked."""
        return self._calendar.is_known()

    # -- questions ------------------------------------------------------------------------------------

    def show_days(self, scene: Scene, intent: Intent) -> Plan | None:
        """What is on: events, and what the person is reminded of; None for days that are not understood."""
        span = self.span(intent.parts.get("day", ""), intent.language)
        if span is None:
            return None
        first, last = span
        events = self._calendar.between(max(first, self._now()) if first.date() == self._now().date() else first, last)
        is_one = last - first <= DAY + HOUR

        def told(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            starts, ends = int(first.timestamp() * 1000), int(last.timestamp() * 1000)
            due = [one for one in (outcome.data or {}).get("schedules", ()) if starts <= (one["next_ms"] or 0) < ends]
            due = [one for one in due if one["action"] == "reminder"]
            language = intent.language
            day = dates.spelled(first, language)
            day = day if is_one else f"{day} – {dates.spelled(last - HOUR, language)}"
            lines = [self._line(one, language, is_one=is_one) for one in events[:MOST_SHOWN]]
            lines += ["…"] if len(events) > MOST_SHOWN else []
            lines += [
                language.say("calendar_reminder", text=line.removeprefix("- ")) for line in results.reminder_lines(due, language)
            ]
            if not lines:
                return Say(language.say("calendar_empty", day=day))
            state = ThreadState(quoted=tuple(dict.fromkeys(one.ref for one in events[:MOST_SHOWN])))
            return Say("\n".join([language.say("calendar_day", day=day), *lines]), state=state)

        return Do(tool_call("list_schedules", status="active", soonest=True, limit=100), told)

    def answer(self, question: str, language: Language) -> Say | None:
        """What events say to a question in any words, None for nothing: those of the day it names which share a word with it, else
        the next one that has all its words, behind the day that it is said to be after."""
        if not self.is_known():
            return None
        kind, lexicon = kind_of(question), language.lexicon
        words = (
            set(word_forms.content_words(question, self._ignored)) - lexicon.naming - (kind.words if kind is not None else set())
        )
        stems = [word_forms.stem(word_forms.without_possessive(word)) for word in sorted(words)]
        day = dates.nearest(question, lexicon, self._now())
        start = None if day is None else day.at.replace(hour=0, minute=0, second=0, microsecond=0)
        is_after = any("after" in token.kinds for token in tokens(question, lexicon))
        if start is not None and not is_after:
            held = [(one, _count_stems(one, stems)) for one in self._calendar.between(start, start + DAY)]
        elif stems and kind is not None and kind.name in ("time", "place"):
            known = self._calendar.coming() if start is None else self._calendar.between(start + DAY, start + YEAR)
            held = [(one, len(stems)) for one in known if _count_stems(one, stems) == len(stems)][:1]
        else:
            return None
        found = [one for one, count in held if count]
        if not found:
            return None
        is_near = any(count < len(stems) for _, count in held if count)
        lines = "\n".join(self._line(one, language) for one in found[:MOST_ASKED])
        lines = lines if len(found) > 1 else lines.removeprefix("- ")
        text = language.say("nearest", text=f"\n{lines}" if len(found) > 1 else lines).replace(" \n", "\n") if is_near else lines
        return Say(text, is_near=is_near, state=ThreadState(quoted=tuple(dict.fromkeys(one.ref for one in found))))

    def find(self, what: str) -> list[NamedEvent]:
        """The coming events that have all the words which name one, soonest first."""
        words = [word_forms.without_possessive(word) for word in word_forms.content_words(what, self._ignored)]
        stems = [word_forms.stem(word) for word in words]
        known = self._calendar.coming() if stems and self._calendar.is_known() else ()
        return [one for one in known if all(word_forms.has_stem(stem, f"{one.title} {one.place}") for stem in stems)]

    # -- requests -------------------------------------------------------------------------------------

    def add(self, scene: Scene, intent: Intent) -> Plan:
        """An event of what is named, at the time that is named with it."""
        language, said = intent.language, intent.parts["what"].strip(" .!")
        if not self._calendar.has_account():
            return Say(language.say("no_calendar"))
        try:
            found = self._read(said, language)
        except BadInput as error:
            return refused(error, intent)
        if found.rule is None:
            return Say(language.say("calendar_when", text=said))
        if found.rule.kind != "once":
            return Say(language.say("calendar_once"))
        if not words_in(found.text):
            return Say(language.say("calendar_what", when=found.when))
        start, is_day = self._start(found.when, recurrence.at(found.rule), language)
        title = found.text[:1].upper() + found.text[1:]
        call = tool_call("add_event", title=title, start=f"{start:%Y-%m-%d}" if is_day else f"{start:%Y-%m-%d %H:%M}")
        when = _spelled(start, language, is_day=is_day)
        return results.do(call, intent, said=Say(language.say("calendar_added", text=title, when=when)))

    def move(self, scene: Scene, intent: Intent) -> Plan | None:
        """Another time for an event of the calendar; None where no event is named."""
        language = intent.language
        found = self.find(intent.parts["what"])
        if len(found) != 1:
            return self._ask_which(found, intent)
        try:
            read = self._read(f"x {intent.parts['when'].strip(' .!')}", language)
        except BadInput as error:
            return refused(error, intent)
        if read.rule is None or read.rule.kind != "once":
            return None
        start, is_day = self._start(read.when, recurrence.at(read.rule), language)
        if is_day and not found[0].is_day:  # another day, the same hour
            start, is_day = found[0].start.replace(year=start.year, month=start.month, day=start.day), False
        if read.is_clock:  # another hour, the same day
            start = found[0].start.replace(hour=start.hour, minute=start.minute)
        given = f"{start:%Y-%m-%d}" if is_day else f"{start:%Y-%m-%d %H:%M}"
        call = tool_call("change_event", ref=found[0].ref, start=given)

        when = _spelled(start, language, is_day=is_day)
        return results.do(call, intent, said=Say(language.say("calendar_moved", text=found[0].title, when=when)))

    def remove(self, scene: Scene, intent: Intent) -> Plan | None:
        """Take an event out of the calendar; None where no event is named."""
        found = self.find(intent.parts["what"])
        if len(found) != 1:
            return self._ask_which(found, intent)
        said = Say(intent.language.say("calendar_removed", text=found[0].title))
        return results.do(tool_call("remove_event", ref=found[0].ref), intent, said=said)

    def _ask_which(self, found: Sequence[NamedEvent], intent: Intent) -> Plan | None:
        if not found:
            return None
        return ask_which(intent, {one.title: self._line(one, intent.language) for one in found[:MOST_ASKED]})

    # -- inside ---------------------------------------------------------------------------------------

    def _read(self, said: str, language: Language) -> TimeExpression:
        now = self._now()
        return time_expression.split(said, language.lexicon, int(now.timestamp() * 1000), timezones.name_of(now.tzinfo))

    def _start(self, when: str, at_ms: int, language: Language) -> tuple[datetime, bool]:
        """When an event begins, and whether only its day was said."""
        moment = dates.read(when, language, self._now())
        at = datetime.fromtimestamp(at_ms / 1000, self._now().tzinfo)
        return at, moment is not None and not moment.has_clock

    def span(self, said: str, language: Language) -> tuple[datetime, datetime] | None:
        """The days that a text names: one, a week, a weekend, a month; today where it says nothing."""
        now = self._now()
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        text = " ".join(words_in(said))
        monday = today - today.weekday() * DAY
        spans = {
            "span_week": (today, monday + (14 if today.weekday() == SUNDAY else 7) * DAY),  # on a Sunday the one that begins
            "span_next_week": (monday + 7 * DAY, monday + 14 * DAY),
            "span_weekend": (max(today, monday + 5 * DAY), monday + 7 * DAY),
            "span_month": (today, (today.replace(day=1) + 32 * DAY).replace(day=1)),
        }
        if not text:
            return today, today + DAY
        for name in SPANS:
            if text in language.phrases.get(name, "").split("|"):
                return spans[name]
        moment = dates.read(said, language, now)
        if moment is None:
            return None
        day = moment.at.replace(hour=0, minute=0, second=0, microsecond=0)
        return day, day + DAY

    def _line(self, one: NamedEvent, language: Language, *, is_one: bool = False) -> str:
        """An event on a line with the calendar that it is from."""
        clock = "" if one.is_day else f"{one.start:%H:%M}" + (f"–{one.end:%H:%M}" if one.end > one.start else "")
        last = one.end - HOUR if one.is_day else one.end
        day = dates.spelled(one.start, language) + (f" – {dates.spelled(last, language)}" if last.date() > one.start.date() else "")
        when = (clock or language.say("all_day")) if is_one else ", ".join(filter(None, (day, clock)))
        where = f" ({one.place})" if one.place else ""
        waits = f" {language.say('calendar_waiting')}" if one.state else ""
        return f"- {when}: {one.title}{where}{waits} [{shown_source(one.ref)}]"


def _count_stems(one: NamedEvent, stems: Sequence[str]) -> int:
    """How many of them an event has in its title or place."""
    return sum(word_forms.has_stem(stem, f"{one.title} {one.place}") for stem in stems)


def _spelled(at: datetime, language: Language, *, is_day: bool) -> str:
    """When an event begins, in words."""
    return dates.spelled(at, language) + ("" if is_day else f", {at:%H:%M}")
