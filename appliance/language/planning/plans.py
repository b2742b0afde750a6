"""What may be done about a message or a piece of work before a tiny or small model, and what a message comes with. Pure.

A plan says something, calls a tool, asks the model plainly, or has it put sentences of notes into words that are checked against
them. Plans are made by `program_or_model`, `work_planner` and `effect_plans`, and carried out by `agent.agent`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import new_id
from appliance.language import support
from appliance.language.languages import Language
from appliance.language.request_texts import strip_notes
from appliance.language.router import Intent
from appliance.records import Asked, Message, Outcome, ThreadState, Tier, ToolCall
from appliance.text.references import display

SYSTEM: Mapping[Tier, str] = {
    # As the model was trained: any other form makes its greeting three times as long.
    "tiny": "You are a helpful AI assistant named Owlbox",
    "small": "You are Owlbox, a helpful assistant on a small computer at home. "
    "Answer in the language of the question, in one or two short sentences.",
}
SOURCE = re.compile(r"\s*\[[a-z]+:/{1,2}[^\[\]\n]+\]")

SURE = "sure_"  # phrases that ask whether something should be done; the rest of the name is the intent
MOST_SUBJECTS = 2  # notes that one answer can speak of


class ModelTalk(Struct, frozen=True):
    """The model is asked this and nothing more. `is_text`: it is to work on a text, so the answer may be longer."""

    system: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    repeat_penalty: float
    is_silent: bool = False  # nobody sees the answer before it is checked
    may_claim: bool = False  # its answer may say that something was done, which is looked for
    forbidden: str = ""  # an instruction that is no answer, beside `system`
    beside: str = ""  # what the program says after the model
    echo: str = ""  # what the person said, which is no answer when it is said again
    instead: str = ""  # what the program says when the model said nothing that can be shown
    least_sure: float = 0.0  # of general knowledge: how likely the model must hold each token, so that its first sentence is shown
    as_general: str = ""  # with what says whose it is
    state: ThreadState | None = None

    @property
    def stop(self) -> tuple[str, ...]:
        """Where an answer ends: of general knowledge behind its first sentence."""
        return ("\n", ". ") if self.least_sure else ()

    def completed(self, text: str, sureness: float, no_answer: str) -> tuple[str, str]:
        """The whole answer, and what of it the program says behind the model's text or in its place."""
        if not self.least_sure:
            rest = "" if text else self.instead or no_answer
        else:  # nobody has seen it so far
            is_ours = self.instead.startswith(text.strip(" ."))  # it says again what the program said before, or nothing
            is_sure = not is_ours and sureness >= self.least_sure
            text, rest = "", self.as_general.format(text=closed(text)) if is_sure else self.instead
        rest += self.beside and f"\n\n{self.beside}"
        return text + rest, rest


class Say(Struct, frozen=True):
    """The program's own answer. Of work that nobody watches `outcome` says that it is not done: `unable` or `failed`.

    `is_near`: sentences of notes that come near what was asked, and may not answer it.
    """

    text: str
    outcome: Literal["", "unable", "failed"] = ""
    is_near: bool = False
    state: ThreadState | None = None

    @property
    def quoted(self) -> tuple[str, ...]:
        """References of the notes that it quotes."""
        return self.state.quoted if self.state is not None else ()


class Grounded(Struct, frozen=True):
    """The model is asked for one sentence; `otherwise` is the answer when `texts` do not support it. `after` goes on with it.

    Without a question it is to sum the texts up.
    """

    chat: ModelTalk
    question: str
    texts: tuple[str, ...]
    sources: str
    otherwise: str
    after: "Callable[[str], Plan] | None" = None
    is_rewording: bool = False  # it says the same as the texts, in other words
    quote: str = ""  # the sentence that answers, of which an answer may leave out no fact that it needs
    state: ThreadState | None = None

    def is_held(self, answer: str, ignored: Collection[str]) -> bool:
        """Whether the texts say what an answer says."""
        if self.is_rewording:
            return support.is_same_message(answer, "\n".join(self.texts), ignored)
        if not self.question:
            return support.is_fair_summary(answer, "\n".join(self.texts), ignored)
        is_whole = not self.quote or support.keeps_fact(answer, self.quote, self.question, ignored)
        is_same = is_whole and support.keeps_relations(answer, self.texts, self.question, ignored)
        return is_same and support.is_supported(answer, self.texts, self.question, ignored)


class Do(Struct, frozen=True):
    """A tool is called; what is done next depends on its result."""

    call: ToolCall
    then: "Callable[[Outcome], Plan]"


Plan = ModelTalk | Say | Grounded | Do


class Sampling(Struct, frozen=True):
    """How a tier's model is asked; measured with lab questions at 135M and 0.5B parameters (2026-11-23)."""

    temperature: float
    repeat_penalty: float
    max_tokens: int
    text_tokens: int
    history: int  # messages of the conversation that it is shown


SAMPLING: Mapping[Tier, Sampling] = {"tiny": Sampling(0.0, 1.1, 120, 160, 2), "small": Sampling(0.0, 1.05, 180, 320, 6)}


def is_of(sender: str, messages: Sequence[Message]) -> bool:
    """Whether the newest prompt of a conversation is this sender's, as far as both are known."""
    prompt = next((m for m in reversed(messages) if m.role == "user"), None)
    return prompt is None or not sender or not prompt.sender_id or prompt.sender_id == sender


class Scene(Struct, frozen=True):
    """A message with what was said before it."""

    tier: Tier
    text: str
    before: Sequence[Message]
    extra: str = ""
    sender: str = ""
    named: str = ""  # what a pronoun may mean: what the request before it was about, in this message or in the last

    @property
    def talked(self) -> list[Message]:
        """What was said before, without the turns in which the program did something: a model would say that it did it again."""
        found: list[Message] = []
        for message in self.before:
            if message.tool_calls or message.role == "tool":
                while found and found[-1].role != "user":
                    found.pop()
                found = [*found[:-1], replace(found[-1], content="")] if found else found
            elif message.role == "user" or (message.content.strip() and found and found[-1].content):
                found.append(message)
        return [m for m in found if m.content.strip()]

    @property
    def last_question(self) -> str:
        """What the person said last before this, without what was quoted or attached there."""
        return next((own_words(m) for m in reversed(self.before) if m.role == "user"), "")

    @property
    def asked(self) -> Asked | None:
        """The question that the program asked just before, if it was this person who was asked."""
        last = self.before[-1] if self.before else None
        state = last.state if last is not None and is_of(self.sender, self.before) else None
        return state.asked if state is not None else None

    @property
    def last_answer(self) -> str:
        """What was answered last, of notes that were quoted their own words."""
        last = next((m for m in reversed(self.before) if m.role == "assistant" and m.content), None)
        return "" if last is None else (last.state.said if last.state is not None else "") or SOURCE.sub("", last.content).strip()

    @property
    def subjects(self) -> tuple[str, ...]:
        """The notes that the last answers quoted; one that quotes many, as a list of notes does, speaks of none."""
        said = [m.state.quoted if m.state is not None else () for m in self.before if m.role == "assistant"][-2:]
        found = [ref for refs in reversed(said) if len(set(refs)) <= MOST_SUBJECTS for ref in refs]
        return tuple(dict.fromkeys(found))[:3]

    @property
    def listed(self) -> tuple[str, ...]:
        """The numbers of the tasks that the last answer listed."""
        last = next((m for m in reversed(self.before) if m.role == "assistant" and m.content), None)
        return last.state.listed if last is not None and last.state is not None else ()


def shown_source(ref: str) -> str:
    """The reference under a quoted sentence, as it is shown."""
    return ref if ref.startswith("box://") else display(ref)


def own_words(message: Message) -> str:
    """What a person wrote in a message, without a mail that it repeats or a document that follows."""
    text = strip_notes(message.content)
    return text if message.own_chars is None else text[: max(0, message.own_chars)]


def answer_of(outcome: Outcome, intent: Intent) -> Say:
    """What a tool said, in its own words; why it failed, in a sentence."""
    if not outcome.is_error:
        return Say(outcome.message)
    hint = f" ({outcome.hint})" if outcome.hint else ""
    return Say(intent.language.say("failed", text=f"{outcome.message}{hint}"), "failed")


def nothing_done(language: Language) -> Say:
    """What asks for an effect and fits no sentence: a model would only claim to have done it."""
    return Say(language.say("did_nothing"))


def tool_call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(new_id(), tool, arguments)


def ask_back(language: Language, phrase: str, before: str = "", **parts: str) -> Say:
    """A question of the program; what it is for is kept beside its words."""
    kind, _, intent = phrase.partition("_") if phrase.startswith(SURE) else (phrase, "", "")
    return Say(f"{before}{language.say(phrase, **parts)}", state=ThreadState(Asked(kind, intent, language.name, parts)))


def ask_which(intent: Intent, options: Mapping[str, str]) -> Say:
    """Which of several things is meant: by what names each, the line that shows it."""
    text = "\n".join([intent.language.say("which"), *options.values()])
    return Say(text, state=ThreadState(Asked("which", intent.name, intent.language.name, dict(intent.parts), tuple(options))))


def closed(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…", ":")) or "\n- " in text else f"{text}."


def handed_over(call: ToolCall, preset: str, text: str) -> ToolCall:
    """A call as it is made: what is to be remembered is the memory role's work where an assistant delegates (A-098)."""
    is_theirs = preset == "delegating" and call.name == "remember"
    return tool_call("delegate", agent="memory", task=text) if is_theirs else call


def both(plan: Plan, other: Callable[[], Plan], first: Say | None = None) -> Plan:
    """A plan and then another one; what both say is the answer, a question of either stays open."""
    if isinstance(plan, Do):
        return Do(plan.call, lambda outcome: both(plan.then(outcome), other, first))
    if isinstance(plan, Say) and first is None:
        return both(other(), lambda: plan, plan)
    if not isinstance(plan, Say) or first is None:
        return plan
    ones = [one.state for one in (first, plan) if one.state is not None]
    asked = next((one.asked for one in reversed(ones) if one.asked is not None), None)
    state = ThreadState(asked, tuple(ref for one in ones for ref in one.quoted)) if ones else None
    return replace(plan, text=f"{first.text}\n{plan.text}", state=state)


def all_of(plans: Sequence[Callable[[], Plan]]) -> Plan:
    """Several plans, one after the other; what all of them say is the answer."""
    first, *rest = plans
    return both(first(), lambda: all_of(rest)) if rest else first()
