"""What waits for a decision in a talk line by line: told whole, and decided by typed words (accept, reject, reject and why).

The words are taken for a decision only while something waits; else they are a message like any other. What was shown is what is
decided: a change of it meanwhile is a conflict, and it is told again.
"""

from dataclasses import dataclass
from typing import Any, TextIO

from appliance.console.connect import Reach
from appliance.console.terminal import AnswerPrinter, say
from appliance.errors import OwlError
from appliance.text.invisible import escape_invisible

QUESTION = "ask_user"
HOW = "Type accept, reject, or reject and a reason."
ANSWER = "Type the answer, or its number."
WORDS = {"accept": "accept", "yes": "accept", "reject": "reject", "no": "reject"}
IN_WORDS = {"+": "added: ", "-": "removed: "}


@dataclass(frozen=True)
class WaitingDecision:
    """A request that was shown to the person; `full` is the result of `run.proposal`."""

    thread: str
    full: dict[str, Any]

    @property
    def is_question(self) -> bool:
        """Whether the assistant asks, so that any text is an answer."""
        return bool(self.full["action"] == QUESTION)

    def read(self, text: str) -> tuple[str, str] | None:
        """The decision that a text is, with an answer or a reason; None for a message."""
        if self.is_question:
            options = list(self.full["options"])
            is_number = text.isdecimal() and 1 <= int(text) <= len(options)
            return ("reject", "") if text.lower() == "reject" else ("accept", options[int(text) - 1] if is_number else text)
        word, _, rest = text.partition(" ")
        action = WORDS.get(word.lower().strip(",.:"))
        return None if action is None or (action == "accept" and rest) else (action, rest.strip())


def tell_waiting(reach: Reach, thread: str, aside: TextIO, *, is_plain: bool) -> WaitingDecision | None:
    """Say what waits in a thread and how it is decided; None when nothing does."""
    if not thread:
        return None
    found = [one for one in reach.call("entry.waiting", {"run": thread, "limit": 100}) if one["run"] == thread]
    if not found:
        return None
    full: dict[str, Any] = reach.call("run.proposal", {"ref": found[0]["ref"], "run": thread})
    waiting = WaitingDecision(thread, full)
    if waiting.is_question:
        say(f"The owl asks: {full['text'].rstrip()}", aside)
    else:
        number = f" (1 of {len(found)})" if len(found) > 1 else ""
        what = " ".join(escape_invisible(word, "exact") for word in (full["action"], full["source"], full["subject"]) if word)
        say(f"Needs your approval{number}: {what}", aside)
        for line in _change_lines(full, is_plain):
            say(line, aside)
        if full.get("because"):
            say(f"It is held because of {escape_invisible(full['because'], 'exact')}.", aside)
    say(ANSWER if waiting.is_question else HOW, aside)
    return waiting


def resolve_waiting(
    reach: Reach, waiting: WaitingDecision, decision: tuple[str, str], answer: AnswerPrinter, aside: TextIO
) -> None:
    """Decide, and write how the answer goes on as `answer` does; an error says why it was not decided."""
    action, output = decision
    params = {"ref": waiting.full["ref"], "run": waiting.thread, "action": action, "output": output, "wait": True}
    digest = {"digest": waiting.full["digest"]} if waiting.full.get("digest") else {}

    def listen(name: str, value: dict[str, Any]) -> None:
        if name == "resolved":
            _say_outcome(action, value["outcome"], aside)
        else:
            answer.listen(name, value)

    done = reach.call("run.resolve", {**params, **digest}, listen)
    answer.end_line()
    if "end" not in done:  # more waits, or a worker goes on with it: nothing was followed
        _say_outcome(action, done["outcome"], aside)
    elif int(done["status"]) >= 400 and (message := (done["end"] or {}).get("message")):
        raise OwlError(str(message))


def _say_outcome(action: str, outcome: dict[str, Any], aside: TextIO) -> None:
    if action == "accept" and int(outcome["status"]) >= 400:
        say(f"Not done: {outcome['message']}", aside)
    else:
        say("Accepted." if action == "accept" else "Rejected.", aside)


def _change_lines(full: dict[str, Any], is_plain: bool) -> list[str]:
    """What would change, a line each; a difference in words where signs would be read out."""
    if not full["patch"]:
        return [f"  {line}" for line in full["text"].rstrip("\n").split("\n")]
    lines = full["patch"].rstrip("\n").split("\n")[2:]  # the first two name the file
    if not is_plain:
        return [f"  {line}" for line in lines]
    return [IN_WORDS.get(line[:1], "as it is: ") + line[1:] for line in lines if not line.startswith("@@")]
