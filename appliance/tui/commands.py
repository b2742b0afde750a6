"""The commands of the chat: executed here, never sent to the model, also while an answer streams (E-325)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """What is typed, what may follow it (in brackets when it may be left out), and what it does."""

    name: str
    argument: str
    about: str
    needs_thread: bool = False

    @property
    def needs_argument(self) -> bool:
        """True when it means nothing alone."""
        return bool(self.argument) and not self.argument.startswith("[")


@dataclass(frozen=True)
class Offer:
    """A line that what is typed may become; with `has_more` something is still to follow it."""

    line: str
    about: str
    has_more: bool = False
    shown: str = ""


COMMANDS = (
    Command("help", "", "keys and commands"),
    Command("skills", "", "skills that can be called as /NAME"),
    Command("new", "", "start a new thread"),
    Command("clear", "", "end this thread and start a new one; /resume goes on with it"),
    Command("threads", "", "earlier threads"),
    Command("resume", "[ID]", "continue a thread, by id or name; without one the last"),
    Command("status", "", "what runs and what it is doing"),
    Command("backup", "", "save everything into a file in backups/ of the home"),
    Command("budget", "", "show or hide what fills the model's context"),
    Command("tree", "", "go back to an earlier message or another branch", needs_thread=True),
    Command("fork", "[NAME]", "copy this thread into a new one and go on there", needs_thread=True),
    Command("rename", "NAME", "give this thread a name of letters, digits and _", needs_thread=True),
    Command("compact", "", "summarize the older part of this thread for the model", needs_thread=True),
    Command("waiting", "", "go to what needs your approval, in any thread"),
    Command("approve", "[ANSWER]", "approve what waits here, or answer its question"),
    Command("reject", "[REASON]", "reject what waits here; this ends the answer"),
    Command("abort", "", "stop this answer; queued messages come next", needs_thread=True),
    Command("stop", "", "stop this answer and clear the queue", needs_thread=True),
    Command("inject", "TEXT", "say something to the owl while it works", needs_thread=True),
    Command("approval", "[MODE]", "what this thread may do without asking: ask, review, auto", needs_thread=True),
    Command("model", "[POOL]", "which models answer in this thread", needs_thread=True),
    Command("role", "[NAME]", "who answers in this thread: the assistant, or a role with its tools", needs_thread=True),
    Command("sessions", "", "conversations by channel, with the last message; Return opens one"),
    Command("notices", "", "past notifications; Return opens the thread of one"),
    Command("channels", "", "channels, and what is wrong with one"),
    Command("export", "[FILE]", "write this thread as a page of HTML", needs_thread=True),
    Command("copy", "", "copy something that was said, over SSH too; also Ctrl+S"),
    Command("mouse", "[ON]", "on: click and scroll here; off: the terminal selects text"),
    Command("group", "[ID]", "work for a group: its threads and memory; without one, for yourself again"),
    Command("archive", "", "archive this thread's session until you write again", needs_thread=True),
    Command("theme", "[NAME]", "colours of this screen: auto, dark, light, contrast, terminal"),
    Command("quit", "", "leave"),
)


def matching(text: str) -> tuple[Command, ...]:
    """The commands that what is typed may become; none once a space or a new line follows."""
    if not text.startswith("/") or any(c.isspace() for c in text):
        return ()
    return tuple(c for c in COMMANDS if c.name.startswith(text[1:].lower()))


def offers(text: str) -> tuple[Offer, ...]:
    """The same as lines for the menu."""
    return tuple(Offer(f"/{c.name}", c.about, bool(c.argument), f"/{c.name} {c.argument}") for c in matching(text))


def hint(text: str) -> str:
    """What may still follow a command that is typed with a blank behind it; "" for nothing, and for what is none."""
    word, space, rest = text.partition(" ")
    if not space or "\n" in text or not word.startswith("/") or rest.strip():
        return ""
    command = next((c for c in COMMANDS if f"/{c.name}" == word.lower()), None)
    return f"{command.argument}: {command.about}" if command is not None and command.argument else ""


def split(text: str) -> tuple[str, str] | None:
    """The command's name and its argument, or None when the text is a message."""
    if not text.startswith("/") or "\n" in text:
        return None
    word, _, rest = text[1:].partition(" ")
    word = word.removeprefix("skill:")
    return (word.lower(), rest.strip()) if word[:1].isalnum() and word.replace("-", "").isalnum() else None


def near(name: str) -> str:
    """The command that was probably meant, "" when none is near."""
    short = next((c.name for size in range(len(name), 1, -1) for c in COMMANDS if c.name.startswith(name[:size])), "")
    swapped = [c.name for c in COMMANDS if sorted(c.name) == sorted(name)]
    return swapped[0] if swapped else short
