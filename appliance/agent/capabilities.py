"""What this installation can do, as text for CAPABILITIES.md: by subject, in words of people, without names of tools.

An able model words it, any other is spared it and a static text is written; the same holds where a model fails or names tools
all the same. Of servers of tools only names and counts are told: what they say of themselves would stand in every prompt.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from appliance.errors import Cancelled, OwlError
from appliance.models import failover
from appliance.records import Ask, Cancel, Finish, Message, Model, Part, Route

LOG = logging.getLogger(__name__)
MAX_CHARS, LEAST_CHARS = 2500, 40
DEADLINE_S = 120.0
HEADING = "# Capabilities\n\n"
# Each subject with the groups of tools it speaks of; a test compares these with the groups that ship.
SUBJECTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Notes": ("remember facts, find and read notes by words or meaning, write new ones", ("knowledge", "notes", "entries")),
    "Stored documents": ("browse, search, edit and file what was added", ("context", "results")),
    "About itself": ("keep what it has learnt, goals and other standing documents", ("memory", "documents")),
    "Tasks": ("plan work and do it later in the background", ("planning", "workers")),
    "Time": ("reminders, appointments, repeated work and messages at their times", ("schedules", "calendar", "waiting")),
    "Conversations": ("look up earlier talks, send messages", ("threads", "messages")),
    "Files and commands": ("read and write files, run commands, closed off from the rest", ("files", "shell")),
    "Web": ("search it and read pages", ("web",)),
    "Home": ("say the weather, the news and exchange rates, control devices of the house, where that is switched on", ("lookups",)),
    "Helpers": ("hand work to others who are good at it", ("delegation",)),
    "Skills": ("follow, write and change instructions for recurring work", ("skills",)),
}
BESIDE = ("run", "tools", "mcp")  # groups that serve the others
ASKED = (
    "Below are the abilities of an assistant by subject. Write what it can do for a person in 5 to 10 lines of Markdown, each "
    "`- **Subject**: what it can do`. Name no tool and no function. Promise nothing that is not listed. "
    "Answer with the lines alone."
)


class Ability(Struct, frozen=True):
    """A tool's name, the group it is listed under, and its description."""

    name: str
    group: str
    description: str


class Summary(Struct, frozen=True):
    """The text, and whether a model or the program worded it; `note` says why not the model."""

    text: str
    by: str
    note: str = ""


class Capabilities:
    """Words what an assistant can do; `is_able` says of a route whether its model is worth asking."""

    def __init__(self, model: Model, pool: Callable[[], str], is_able: Callable[[Route], bool]) -> None:
        self._model = model
        self._pool = pool
        self._is_able = is_able

    def summary(self, abilities: Sequence[Ability], servers: Mapping[str, int], cancel: Cancel) -> Summary:
        """The text about these tools, and about servers with so many tools each."""
        others = server_lines(servers)
        listed = _join_lines([*static_lines(abilities), *others])
        try:
            routes = self._model.plan(self._pool())
            if not self._is_able(routes[0]):
                return Summary(listed, "program", "the model is too small to word it")
            text = self._ask_model(routes, abilities, cancel)
        except Cancelled:
            raise
        except OwlError as error:
            LOG.info("capabilities are listed as they are: %s", error)
            return Summary(listed, "program", f"no model was asked: {error.message}")
        if problem := fault(text, abilities):
            return Summary(listed, "program", f"the model's words were not taken: {problem}")
        return Summary(_join_lines([text.strip(), *others]), "model")

    def _ask_model(self, routes: Sequence[Route], abilities: Sequence[Ability], cancel: Cancel) -> str:
        lines = []
        for subject, (_, groups) in SUBJECTS.items():
            told = [one.description.split("\n")[0] for one in abilities if one.group in groups]
            lines += [f"{subject}:", *(f"- {text}" for text in told)] if told else []
        ask = Ask(
            system=(Part("instructions", "You describe what an assistant can do."),),
            messages=(Message("user", "\n".join([ASKED, "", *lines])),),
            dialect=routes[0].dialect,
            slot="capabilities",
            purpose="capabilities",
            is_background=True,
            max_tokens=600,
            deadline_s=DEADLINE_S,
        )
        text = ""
        for piece in failover.generate(self._model, routes, ask, cancel):
            if not isinstance(piece, Finish) and not piece.is_reasoning:
                text += piece.text
        return text


def static_lines(abilities: Sequence[Ability]) -> list[str]:
    """A line for each subject of which there is a tool."""
    groups = {one.group for one in abilities}
    return [f"- **{subject}**: {text}" for subject, (text, of) in SUBJECTS.items() if groups & set(of)]


def server_lines(servers: Mapping[str, int]) -> list[str]:
    """A line for all servers of tools together; none where there are none."""
    if not servers:
        return []
    counted = ", ".join(f"{name} ({count} tool{'s' if count != 1 else ''})" for name, count in sorted(servers.items()))
    return [f"- **Other programs**: {counted}"]


def fault(text: str, abilities: Sequence[Ability]) -> str:
    """The reason to reject a model's text, "" to accept it."""
    if not LEAST_CHARS <= len(text.strip()) <= MAX_CHARS:
        return f"{len(text.strip())} characters"
    named = [one.name for one in abilities if "_" in one.name and re.search(rf"\b{re.escape(one.name)}\b", text)]
    return f"they name {named[0]}" if named else ""


def _join_lines(lines: Sequence[str]) -> str:
    return HEADING + "\n".join(lines)
