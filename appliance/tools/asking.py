"""Tools towards oneself and towards a person: think, ask_user."""

from typing import Annotated

from msgspec.structs import replace

from appliance.agent.dispatch import actor_of
from appliance.agent.toolbox import Caller, tool
from appliance.errors import BadInput
from appliance.knowledge.verbs import Verbs
from appliance.records import Outcome
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs

MAX_OPTIONS = 20


@tool(group="run", is_read_only=True, menu=("run",))
def think(body: Annotated[str, Range(0, 100_000), "thoughts; nobody else reads them"] = "") -> str:
    """Think before you act."""
    return "Go on."


@tool(group="run", menu=("run",))
def ask_user(
    question: Annotated[str, Range(1, 2000), "one question"],
    options: Annotated[str, Range(0, 2000), "answers to choose from, divided by ; or ,"] = "",
    *,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Ask the person, and wait for the answer."""
    if not caller.run:
        raise BadInput("nobody to ask: this is no run", hint="a model asks from its run")
    choices = split(options)
    lines = [question, *(f"{number}. {choice}" for number, choice in enumerate(choices, 1))]
    asked = verbs.record(actor_of(runs, caller), "ask_user", question, "\n".join(lines), {"options": choices})
    return replace(asked, message=question)


def split(options: str) -> list[str]:
    """Answers to choose from, divided by ; or, where there is none, by commas."""
    parts = options.split(";" if ";" in options else ",")
    return [part.strip() for part in parts if part.strip()][:MAX_OPTIONS]
