"""What is done with a piece of work where the model is tiny or small: a task, a job that was handed over, a list to look after.

The same sentences and rules as for a person's messages, and less: what reads, collects, summarises, writes a note or reminds.
A summary of a small model counts when its text supports it, otherwise sentences of the text are the summary. Work that fits no
sentence, has more to it than one, or finds nothing is never done: it ends `unable` or `failed`, with a sentence that says why.
Nothing is tried twice. An able model never comes here.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from appliance.language import request_texts, router, word_forms
from appliance.language.languages import Language
from appliance.language.planning import errands, results
from appliance.language.planning.answers import LEAST, is_definite
from appliance.language.planning.plans import (
    SAMPLING,
    SOURCE,
    Do,
    Grounded,
    ModelTalk,
    Plan,
    Say,
    Scene,
    answer_of,
    closed,
    own_words,
    tool_call,
)
from appliance.language.program_or_model import MessagePlanner
from appliance.language.router import EFFECTS, Intent
from appliance.records import Message, Outcome, ShortForm, ThreadState, Tier

OF_NOTES = ("digest_talk", "collect_note", "collect", "digest_note", "digest", "digest_named")
REPORTS = ("standup", "todos")
# What work may ask for, in the order in which it is looked for. Nothing that ends or deletes what a person made.
ORDER = (
    *(
        "collect_note",
        "collect",
        "digest_text",
        "digest_note",
        "digest",
        *REPORTS,
        "tasks",
        "reminders",
        "memories",
        "remind_late",
        "alarm",
        "remind",
        "remember_to",
    ),
    *("remember", "append", "task", "note", "read_note", "search", "about"),
    *("week", "day_of", "days_until", "days_since", "days_between", "units", "sum", "find"),
)
LISTS = {
    "tasks": ("list_tasks", "tasks", {"status": "pending"}),
    "reminders": ("list_schedules", "schedules", {"status": "active"}),
}
# What a skill may ask for: nothing that changes anything.
OF_SKILLS = tuple(name for name in (*OF_NOTES, *REPORTS, *router.ORDER) if name not in (*EFFECTS, *router.CAREFUL))
QUIET = "HEARTBEAT_OK"
MOST_LINES = 60  # of a collection
TEXT_CHARS = 4000  # of a text that a model is shown
FOUND = 0.75  # of what a question names, so that a sentence is a result without anybody having looked at it
OWN_TITLE = 0.6  # of what names a note, so that it is the one meant
LEAST_TEXT = 60  # characters of a text that can be summarised


class WorkPlanner(MessagePlanner):
    """Makes plans for work, and those for conversations that work on notes."""

    def _plan_scene(self, scene: Scene, prompt: Message) -> Plan:
        """As for any message; "collect everything about ... into a note" and "summarise the note about ..." come first."""
        if prompt.short_form is not None:
            return self._follow_skill(scene, prompt.short_form)
        if prompt.own_chars is None and (intent := self._router.cue(scene.text, (*OF_NOTES, *REPORTS))) is not None:
            plan = self._plan_intent(scene, intent, "")
            if not (isinstance(plan, Say) and plan.outcome):
                return plan
        return super()._plan_scene(scene, prompt)

    def plan_work(self, tier: Tier, text: str, *, is_list: bool = False) -> Plan:
        """What to do about a piece of work that nobody watches; `is_list`: it is the list that is looked after at intervals."""
        if is_list:
            return self._look_after(tier, text)
        request = request_texts.read(text)
        return self._plan_one(tier, request) if not request.has_more else self._say_unable(text)

    # -- one request ------------------------------------------------------------------------------

    def _plan_one(self, tier: Tier, request: request_texts.WorkRequest) -> Plan:
        for wording, texts in request.wordings:
            intent = self._router.cue(wording, ORDER)
            scene = Scene(tier, wording, ())
            if intent is not None:
                return self._plan_intent(scene, intent, texts)
            if wording.endswith("?") and "\n" not in wording:
                return self._answer_question(scene, self._router.languages.detect(wording)[0], wording)
        is_bare = request.is_task and not request.description and not request.texts
        if is_bare and errands.is_errand(request.name, self._router):
            return Say(self._router.languages.detect(request.name)[0].say("for_you"), "unable")
        return self._say_unable(request.name)

    def _plan_intent(self, scene: Scene, intent: Intent, texts: str) -> Plan:
        if intent.name in REPORTS:
            return self._report(intent, texts)
        if intent.name == "digest_talk":
            return self._digest_talk(scene, intent)
        if intent.name == "digest_text":
            return self._digest_text(scene, intent, texts)
        if intent.name in OF_NOTES:
            return self._of_notes(scene, intent)
        if intent.name == "find":
            return self._answer_question(scene, intent.language, intent.parts["query"])
        if intent.name in ("search", "about"):
            return self._collect_sentences(intent)
        plan = self.make(scene, intent) or self._say_unable(scene.text)
        return watched(plan) if intent.name in EFFECTS else plan

    def _say_unable(self, text: str) -> Say:
        return Say(self._router.languages.detect(text)[0].say("unable"), "unable")

    def _digest_talk(self, scene: Scene, intent: Intent) -> Plan:
        """What was said so far, in its own sentences: the person's words, and answers without their sources."""
        told = [m for m in scene.before if m.role in ("user", "assistant") and m.short_form is None]
        said = [own_words(m) if m.role == "user" else SOURCE.sub("", m.content) for m in told]
        text = "\n\n".join(closed(one.strip()) for one in said if one.strip())
        return Say(results.summary(text, self.ignored) or intent.language.say("which_text"))

    # -- skills and reports ------------------------------------------------------------------------

    def _follow_skill(self, scene: Scene, form: ShortForm) -> Plan:
        """What a skill asks for that was called by its name: the first of its sentences that comes to something."""
        said: Say | None = None
        for sentence in form.sentences:
            if not sentence:
                return Say(self._router.languages.english.say("skill_words"))
            intent = self._router.cue(sentence, OF_SKILLS)
            if intent is None:
                continue
            plan = self._plan_intent(replace(scene, text=sentence), intent, "")
            if not (isinstance(plan, Say) and plan.outcome):
                return replace(plan, forbidden=form.instruction) if isinstance(plan, ModelTalk) else plan
            said = replace(plan, outcome="")
        if said is not None or not form.sentences:
            return said or Say(self._router.languages.detect(scene.text)[0].say("skill_unable"))
        plain = self._build_chat(replace(scene, text=form.sentences[-1]), is_text=True)
        return replace(plain, forbidden=form.instruction) if isinstance(plain, ModelTalk) else plain

    def _report(self, intent: Intent, texts: str) -> Plan:
        """A report that the program writes itself."""
        if intent.name == "todos":
            return Say(results.write_todos(intent.parts.get("text") or texts, intent.language))

        def told(outcome: Outcome) -> Plan:
            if outcome.is_error:
                return answer_of(outcome, intent)
            return Say(results.write_standup((outcome.data or {}).get("tasks", ()), self._now(), intent.language))

        return Do(tool_call("list_tasks", limit=1000), told)

    # -- notes ------------------------------------------------------------------------------------

    def _of_notes(self, scene: Scene, intent: Intent) -> Plan:
        return self._collect_sentences(intent) if intent.name.startswith("collect") else self._digest_note(scene, intent)

    def _collect_sentences(self, intent: Intent) -> Plan:
        """The sentences of all notes that speak of something, with their sources, as the result or as a new note."""
        query, language = intent.parts["query"], intent.language
        found = self._finder.collect(query)[:MOST_LINES]
        if not found:
            return self._say_missing(query, language)
        lines = "\n".join(f"- {closed(one.quoted)} [{one.ref}]" for one in found)
        if intent.name != "collect_note":
            refs = tuple(dict.fromkeys(one.ref for one in found))
            return Say(f"{language.say('found')}\n{lines}", state=ThreadState(quoted=refs, said=lines))
        return self._store_note(intent, lines, query)

    def _digest_note(self, scene: Scene, intent: Intent) -> Plan:
        """A summary of the note that is meant."""
        query, language = intent.parts["query"], intent.language
        note = self._find_named(query)
        if note is None:
            return self._say_missing(query, language)
        ref, body = note

        def become(said: Say) -> Plan:
            return self._store_note(intent, said.text, f"{query} summary") if intent.name == "digest_note" else said

        return then(self._summed_up(scene, body, ref), become)

    def _digest_text(self, scene: Scene, intent: Intent, texts: str) -> Plan:
        text = intent.parts.get("text") or texts
        return self._summed_up(scene, text, "") if len(text) >= LEAST_TEXT else self._say_unable(scene.text)

    def _summed_up(self, scene: Scene, text: str, ref: str) -> Plan:
        extract, source = results.summary(text, self.ignored), f"[{ref}]" if ref else ""
        if not extract:
            return self._say_unable(scene.text)
        said, state = f"{extract} {source}".rstrip(), ThreadState(quoted=(ref,), said=extract) if ref else None
        if scene.tier == "tiny":
            return Say(said, state=state)
        prompt = f"{text[:TEXT_CHARS]}\n\nSummarise this text in two short sentences. Use only what it says."
        sampling = SAMPLING[scene.tier]
        chat = ModelTalk("", (Message("user", prompt),), sampling.max_tokens, 0.0, sampling.repeat_penalty, is_silent=True)
        return Grounded(chat, "", (text,), source, said, state=state)

    def _find_named(self, query: str) -> tuple[str, str] | None:
        """The note that a text names: its reference and its body."""
        stems = [word_forms.stem(word) for word in word_forms.content_words(query, self.ignored)]
        best: tuple[float, str, str] | None = None
        for ref in dict.fromkeys(one.ref for one in self._finder.collect(query, least=0.4)):
            entry = self._entries.find(ref)
            if entry is None or not entry.body.strip():
                continue
            title = {word_forms.stem(word) for word in word_forms.content_words(entry.title or "", ())}
            share = sum(stem in title for stem in stems) / len(stems) if stems else 0.0
            if best is None or share > best[0]:
                best = (share, ref, entry.body)
        if best is None:
            return None
        is_meant = best[0] >= OWN_TITLE or bool(self._finder.collect(query, least=FOUND))
        return (best[1], best[2]) if is_meant else None

    def _answer_question(self, scene: Scene, language: Language, query: str) -> Plan:
        """What the notes answer a question with; nobody looks at it, so all that is asked for must be there."""
        kind = self._router.kind(query, language)
        found = self._finder.find_evidence(query)
        least = LEAST["world"] if kind == "world" and not is_definite(query) else LEAST["notes"]
        if not found.best or found.score < least or found.best[0].coverage < FOUND:
            return self._say_missing(query, language)
        return self._quote_best(replace(scene, tier="tiny"), found, language)

    def _say_missing(self, query: str, language: Language) -> Say:
        words = word_forms.content_words(query, self.ignored)
        said = language.say("nothing", words=", ".join(words[:6])) if words else language.say("nothing_plain")
        return Say(said, "failed")

    def _store_note(self, intent: Intent, body: str, title: str) -> Plan:
        words = title.split()
        while len(words) > 1 and words[0].lower() in self.ignored:  # "the garden"
            words = words[1:]
        title = intent.parts.get("title") or " ".join(words)
        made = tool_call("write_note", text=body, title=title[:1].upper() + title[1:])
        return watched(Do(made, lambda outcome: answer_of(outcome, intent)))

    # -- a list to look after ---------------------------------------------------------------------

    def _look_after(self, tier: Tier, text: str) -> Plan:
        """A section is one request; of a list each line that only reads is looked at, and what it finds is told."""
        lines = request_texts.listed(text)
        if not lines:
            request = text.rpartition("\n\n")[0] or text
            return self._plan_one(tier, request_texts.WorkRequest(request.strip()))
        plans: list[Plan] = []
        for line in lines:
            intent = self._router.cue(line, ("tasks", "reminders", "search", "about", "collect"))
            if intent is None:
                return Say(f"{line}: {self._say_unable(line).text}", "unable")
            plans.append(self._read_line(intent))
        return joined(plans, ())

    def _read_line(self, intent: Intent) -> Plan:
        """What a line of the list finds; "" for nothing."""
        if intent.name not in LISTS:
            said = self._collect_sentences(intent)
            return Say("") if isinstance(said, Say) and said.outcome else said
        tool, rows, more = LISTS[intent.name]

        def listed(outcome: Outcome) -> Plan:
            return answer_of(outcome, intent) if outcome.is_error or (outcome.data or {}).get(rows) else Say("")

        return Do(tool_call(tool, limit=30, **more), listed)


def then(plan: Plan, after: Callable[[Say], Plan]) -> Plan:
    """A plan that goes on with what another one came to, unless that failed."""
    if isinstance(plan, Do):
        return Do(plan.call, lambda outcome: then(plan.then(outcome), after))
    if isinstance(plan, Grounded):
        return replace(plan, after=lambda text: after(Say(text)))
    if isinstance(plan, Say) and not plan.outcome:
        return after(plan)
    return plan


def watched(plan: Plan, is_done: bool = False) -> Plan:
    """A plan that has failed unless it changed something: a question back is no result where nobody answers."""
    if isinstance(plan, Do):
        is_effect = not plan.call.name.startswith("list_")
        return Do(plan.call, lambda outcome: watched(plan.then(outcome), is_done or (is_effect and not outcome.is_error)))
    if isinstance(plan, Say) and not plan.outcome and not is_done:
        return replace(plan, outcome="failed")
    return plan


def joined(plans: Sequence[Plan], texts: Sequence[str]) -> Plan:
    """What several plans come to, one after the other; quiet when none of them found anything."""
    if not plans:
        return Say("\n".join(filter(None, texts)) or QUIET)
    return then(plans[0], lambda said: joined(plans[1:], (*texts, said.text)))
