"""The names that were asked for at the first start: what the person is called, and the assistant."""

from appliance.language.planning.plans import Say
from appliance.language.ports import Notes
from appliance.language.router import Intent

PRODUCT = "Owlbox"
PERSON_LINE, ASSISTANT_LINE = "- To be called: ", "- Your name: "  # of the documents that the first start writes


def say_person(entries: Notes, intent: Intent) -> Say | None:
    """What the person is called; None where they never said so."""
    name = _line(entries, "USER", PERSON_LINE)
    return Say(intent.language.say("my_name", name=name)) if name else None


def say_assistant(entries: Notes, intent: Intent) -> Say:
    """Who the assistant is, by its name."""
    name = _line(entries, "IDENTITY", ASSISTANT_LINE)
    return Say(intent.language.say("who", name=name or PRODUCT))


def _line(entries: Notes, document: str, beginning: str) -> str:
    """What a document of the box says behind the beginning of one of its lines."""
    entry = entries.find(f"box://{document}.md")
    lines = entry.body.splitlines() if entry is not None else []
    return next((line.removeprefix(beginning).strip(" .") for line in lines if line.startswith(beginning)), "")
