"""What a verb is asked to do: what to write, what to look at, and what of that cannot be.

Owns the orders and their checks, and what a write makes of a text. Knows nothing about where entries are kept.
"""

from typing import Literal, get_args

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from appliance.errors import BadInput, Conflict, NotFound, TooLarge
from appliance.knowledge.entries import Content, Entry
from appliance.knowledge.views import MAX_SUMMARY, Actor, Visibility
from appliance.text import edits
from appliance.text.references import scheme_of
from appliance.text.tokens import estimate

KNOWLEDGE_TOKENS = 512  # of a piece of knowledge, where nothing else is set
FIELDS = tuple(name for name in Content.__struct_fields__ if name not in ("body", "blob", "original"))


class Write(Struct, frozen=True):
    """What `set` shall do; None keeps what is there. `wanted` picks entries of a pattern by their text."""

    body: str | None = None
    search: str | None = None
    replace: str | None = None
    visibility: Visibility | None = None
    summary: str | None = None
    wanted: str = ""
    expected_hash: str | None = None
    kind: Literal["entry", "known"] = "entry"
    is_preview: bool = False  # only list what would be changed
    is_literal: bool = False  # the body is text, whatever it looks like
    content: Content = struct_field(default_factory=Content)  # its body and bytes are not looked at

    @property
    def has_content(self) -> bool:
        """True when it writes more than how a run sees the entry."""
        return any(v is not None for v in (self.body, self.search, self.replace, *(getattr(self.content, n) for n in FIELDS)))


class Look(Struct, frozen=True):
    """What `get`, `rm`, `cp` and `mv` shall look at: entries with a text, some lines, or only what would be found."""

    wanted: str = ""
    line: int | None = None
    limit: int | None = None
    is_preview: bool = False


WHOLE = Look()


def rewrite(path: str, text: str | None, write: Write) -> edits.EditedText | None:
    """What a write makes of a text, None when it does not touch it; `text` is None where there is none yet."""
    new = write.body if write.replace is None else write.replace
    if write.search is not None:
        if text is None and write.search.strip():
            raise NotFound(f"no entry {path} to search in", hint="create it first with a body")
        if edits.parse_sed(write.search) is not None:
            return edits.apply_markers(text, [edits.Operation("sed", write.search)])
        if new is None:
            raise BadInput(f"{path}: a search without a replacement", hint='give replace, "" to delete what is found')
        return edits.fuzzy(text or "", write.search, new)
    if new is None:
        return None
    if write.is_literal or write.replace is not None:
        return edits.EditedText(new, (), 1)
    return edits.apply_markers(text, edits.parse_markers(new))


def checked(actor: Actor, write: Write) -> tuple[Write, tuple[str, ...]]:
    """The write with a summary that fits, and what had to be said about it."""
    check_visibility(actor, write.visibility)
    if not write.has_content and write.visibility is None and write.summary is None and not write.is_preview:
        raise BadInput("nothing to set", hint="give a body, a search with a replacement, attributes, visibility or a summary")
    if write.summary is None:
        return write, ()
    if not actor.run:
        raise BadInput("a summary is what one thread notes about an entry, and none is given", hint="name the thread")
    summary = " ".join(write.summary.split())
    if len(summary) <= MAX_SUMMARY:
        return replace(write, summary=summary), ()
    short = summary[: MAX_SUMMARY + 1].rpartition(" ")[0] or summary[:MAX_SUMMARY]
    return replace(write, summary=short), (f"the summary was cut to {len(short)} of {len(summary)} characters",)


def check_visibility(actor: Actor, visibility: str | None) -> None:
    """BadInput for a visibility that does not exist, or that no run is named for."""
    if visibility is None:
        return
    if visibility not in get_args(Visibility):
        raise BadInput(f"visibility {visibility!r}", hint=f"use one of {', '.join(get_args(Visibility))}")
    if not actor.run:
        raise BadInput("visibility is how one thread sees an entry, and none is given", hint="name the thread")


def check_run(actor: Actor, verb: str) -> None:
    """BadInput for what only makes sense in a run."""
    if not actor.run:
        raise BadInput(f"{verb} outside of a thread", hint="name the thread")


def check_hash(path: str, entry: Entry | None, expected: str | None) -> None:
    """Conflict when an entry is not the one that the caller read; "" expects none."""
    if expected is not None and expected != (entry.hash if entry else ""):
        what = "is not there" if entry is None else "has changed since it was read"
        raise Conflict(f"{path} {what}", hint="read it again and repeat the change on what is there now")


def check_knowledge(path: str, text: str, most: int) -> None:
    """TooLarge for a piece of knowledge that should be several."""
    tokens = estimate(text)
    if scheme_of(path) == "known" and tokens > most:
        message = f"{path}: {len(text)} characters are {tokens} tokens, a piece of knowledge has at most {most}"
        raise TooLarge(message, hint="split it into several entries, one thing each")
