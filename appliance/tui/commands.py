"""The commands of the chat: executed here, never sent to the model, also while an answer streams (E-325)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """What is typed, what may follow it, and what it does."""

    name: str
    argument: str
    about: str


COMMANDS = (
    Command("help", "", "keys and commands"),
    Command("new", "", "start a new thread"),
    Command("threads", "", "earlier threads"),
    Command("resume", "ID", "continue a thread; without ID the last one"),
    Command("compact", "", "summarize the older part of this thread for the model"),
    Command("status", "", "what runs and what it is doing"),
    Command("quit", "", "leave"),
)


def matching(text: str) -> tuple[Command, ...]:
    """The commands that what is typed may become; none once a space or a new line follows."""
    if not text.startswith("/") or any(c.isspace() for c in text):
        return ()
    return tuple(c for c in COMMANDS if c.name.startswith(text[1:].lower()))


def split(text: str) -> tuple[str, str] | None:
    """The command's name and its argument, or None when the text is a message."""
    if not text.startswith("/") or "\n" in text:
        return None
    word, _, rest = text[1:].partition(" ")
    return (word.lower(), rest.strip()) if word.isalpha() else None
