"""What a run did: the log entry that every verb of a run leaves, and those of them that wait for somebody's word.

An action's own entry `log://turn_N/VERB/NAME` carries its result, good or bad. Where an action would change a
file, the same entry is the proposal: state proposed, status 202, a body that shows both texts, and in its
attributes their difference. The texts themselves are two hidden entries of the run, gone once it is decided.
One file has one open proposal in a run. Applying an accepted one is the business of `knowledge.verbs`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict as struct_asdict

from appliance.errors import Conflict, NotFound
from appliance.knowledge import change_log
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import digest
from appliance.knowledge.entries import Content, Entries, Entry
from appliance.knowledge.schemes import Tier
from appliance.knowledge.views import Actor, State, View, Views, Visibility
from appliance.records import Outcome, ToolCall
from appliance.text import edits
from appliance.text.references import unique_slug

MAX_CHARS = 400_000  # of what a log entry repeats: every path that a pattern touched
MAX_SUBJECT = 500
SUBJECTS = ("path", "ref", "query", "command", "question", "name", "to", "body", "text")  # arguments, the first one counts
WRITER = "system"  # of what is recorded, whoever acted
CHANGE = "is_file_change"  # the attribute that tells a proposal from any other action that waits
REASON = "reason"  # the attribute that says why something that waited was not done
TEXTS = "content://"  # where a proposal's two texts are: no model sees this scheme


class Proposal(Struct, frozen=True):
    """A change of a file that waits: `after` is None for a removal, `before_hash` "" where there is no file yet."""

    verb: str
    target: str
    author: Tier
    before: str = ""
    before_hash: str = ""
    after: str | None = None
    source: str = ""  # of a copy or a move
    source_hash: str = ""
    content: Mapping[str, Any] = {}  # title, description, mime, source_url, attributes
    visibility: Visibility | None = None
    summary: str | None = None

    def is_done(self, now: str) -> bool:
        """Whether the target with this hash, "" for none, is as it is to become."""
        return now == ("" if self.after is None else digest(self.after.encode()))

    @property
    def patch(self) -> str:
        """The change as a unified difference; "" where it would be very long."""
        return change_log.patch(self.before, self.after or "", self.target)

    @property
    def merge(self) -> str:
        """Both texts in one, as a model reads them; a line about their size where they are very long."""
        after = self.after or ""
        if len(self.before) + len(after) > change_log.MAX_DIFFED:
            return f"{self.target}: {len(self.before)} characters become {len(after)}"
        return edits.merge_view(self.before, after)


class Waiting(Struct, frozen=True):
    """Something that waits for a decision: `ref` in the log of `run`, what is to be done, and to what."""

    ref: str
    run: str
    action: str
    subject: str
    updated_ms: int
    because: str = ""  # of a call that is held: whose text was read before


class ShownChange(Struct, frozen=True):
    """What a person has to know to decide about what waits: of a change of a file its difference, else what it asks.

    `patch` is "" for what is no change of a file and where it would be very long; `text` has both texts, or the words.
    """

    ref: str
    run: str
    action: str
    subject: str
    updated_ms: int
    text: str
    patch: str = ""
    source: str = ""  # of a copy or a move
    options: tuple[str, ...] = ()  # of a question
    because: str = ""  # of a call that is held: whose text was read before
    is_file_change: bool = False
    digest: str = ""  # of all that is decided about: another one means that it is not what was shown


class Actions:
    """Writes the log of runs and keeps their proposals."""

    def __init__(self, entries: Entries, views: Views) -> None:
        self._entries = entries
        self._views = views

    def record_action(
        self, actor: Actor, verb: str, subject: str, outcome: Outcome, attributes: Mapping[str, Any] | None = None
    ) -> str:
        """One log entry for an action of a run; returns its path. Call inside a transaction."""
        path = self._choose_log_path(actor, verb, subject)
        state: State = "failed" if outcome.is_error else "proposed" if outcome.status == 202 else "resolved"
        entry = self._write_entry(
            actor, path, _cut_text(outcome.message), {"action": verb, "subject": subject, **(attributes or {})}
        )
        self._views.show(actor, entry.id, "visible", state, outcome.status, outcome.outcome if state == "failed" else "")
        return path

    def begin(self, actor: Actor, name: str, subject: str, attributes: Mapping[str, Any]) -> str:
        """One log entry for an action that has not begun; returns its path, for the actor's `log`. Call inside a transaction."""
        path = self._find_free_path(actor, name, subject)
        entry = self._write_entry(actor, path, "", {"action": name, "subject": subject, **attributes})
        self._views.show(actor, entry.id, "visible", "streaming", 102)
        return path

    def is_open(self, actor: Actor) -> bool:
        """Whether the action recorded in the actor's `log` has no result yet."""
        view = self._views.find(actor.run, actor.log) if actor.log else None
        return view is not None and view.state == "streaming"

    def finish(self, actor: Actor, outcome: Outcome) -> None:
        """The outcome of the action recorded in the actor's `log`, which is open. Call inside a transaction."""
        given = self._entries.get(actor.log, scope=f"run:{actor.run}").attributes
        more = {**given, **(outcome.provenance or {})}
        self.record_action(actor, str(given.get("action", "")), str(given.get("subject", "")), outcome, more)

    def trouble(self, actor: Actor, kind: str, subject: str, outcome: Outcome) -> str:
        """One error entry for what failed and is no action; returns its path. Call inside a transaction."""
        path = self._find_free_path(actor, kind, subject, scheme="error")
        entry = self._write_entry(actor, path, outcome.message, {"action": kind, "subject": subject})
        self._views.show(actor, entry.id, "visible", "failed", outcome.status, outcome.outcome)
        return path

    def unfinished(self, run: str) -> list[str]:
        """Log entries of actions that have begun, or never did, and have no result."""
        open_ones = [
            view for view in self._views.views_of(run, prefix="log://", state="streaming") if view.path.startswith("log://")
        ]
        return [view.path for view in sorted(open_ones, key=lambda view: view.entry)]

    def recorded(self, run: str, call: ToolCall) -> str:
        """The log entry in which a call was recorded that has no result yet; "" when there is none."""
        for path in self.unfinished(run):
            given = self._entries.get(path, scope=f"run:{run}").attributes
            if (given.get("action"), given.get("subject")) == (call.name, subject_of(call)):
                return path
        return ""

    def propose(self, actor: Actor, proposal: Proposal) -> str:
        """Leave a change of a file to somebody's decision, in the open proposal for that file if there is one."""
        known = self.waiting(actor.run, proposal.target)
        path = self._choose_log_path(actor, proposal.verb, proposal.target) if known is None else known[0].path
        given = {name: value for name, value in struct_asdict(proposal).items() if name not in ("before", "after") and value}
        given |= {CHANGE: True, "action": proposal.verb, "subject": proposal.target, "patch": proposal.patch}
        entry = self._write_entry(actor, path, proposal.merge, given)
        self._remove_previews(actor, path)
        self._write_entry(actor, _text_path(path, "before"), proposal.before, {})
        if proposal.after is not None:
            self._write_entry(actor, _text_path(path, "after"), proposal.after, {})
        self._views.show(actor, entry.id, "visible", "proposed", 202)
        return path

    def waiting(self, run: str, target: str) -> tuple[View, Proposal] | None:
        """The open proposal of a run for a file."""
        for view in self._views.proposals(run):
            proposal = self.proposal(view)
            if proposal is not None and proposal.target == target:
                return view, proposal
        return None

    def list_waiting(self, run: str, limit: int) -> list[Waiting]:
        """The actions that wait for a decision, oldest first; `run` "" means all runs."""
        views = self._views.proposals(run)[:limit] if run else self._views.all_proposals(limit)
        found = []
        for view in views:
            given = self._entries.get(view.path, scope=view.scope).attributes
            action, subject = (str(given.get(name, "")) for name in ("action", "subject"))
            because = str(given.get("because") or "")
            found.append(Waiting(view.path, view.run, action, subject, view.updated_ms, because))
        return found

    def show(self, waiting: Waiting) -> ShownChange:
        """Everything about a waiting action; Conflict when it is decided."""
        view = self.open(waiting.run, waiting.ref)
        entry = self._entries.get(view.path, scope=view.scope)
        given, (patch, source) = entry.attributes, (str(entry.attributes.get(name) or "") for name in ("patch", "source"))
        options = tuple(map(str, given.get("options") or ()))
        return ShownChange(
            **struct_asdict(waiting),
            text=_cut_text(entry.body),
            patch=patch,
            source=source,
            options=options,
            is_file_change=bool(given.get(CHANGE)),
            digest=self._hash_proposal(entry),
        )

    def _hash_proposal(self, entry: Entry) -> str:
        """The SHA-256 of what is proposed: what is shown of it, the arguments that will be used, and both texts of a change."""
        kept = [self._entries.find(_text_path(entry.path, name), scope=entry.scope) for name in ("before", "after")]
        whole = [entry.body, dict(entry.attributes), *(one and one.body for one in kept)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode("utf-8", "surrogatepass")).hexdigest()

    def open_paths(self, run: str) -> frozenset[str]:
        """Where something waits in a run."""
        return frozenset(view.path for view in self._views.proposals(run))

    def proposal(self, view: View) -> Proposal | None:
        """The change that a view proposes, with both texts; None for what is no change of a file, such as a command."""
        given = self._entries.get(view.path, scope=view.scope).attributes
        if not given.get(CHANGE):
            return None
        before = self._entries.find(_text_path(view.path, "before"), scope=view.scope)
        after = self._entries.find(_text_path(view.path, "after"), scope=view.scope)
        known = {name: value for name, value in given.items() if name in Proposal.__struct_fields__}
        return Proposal(**known, before=before.body if before else "", after=after.body if after else None)

    def decide(self, actor: Actor, view: View, state: State, status: int, outcome: str = "", *, body: str | None = None) -> None:
        """A proposal is over; what it showed stays, or gives way to a body, and its texts go."""
        if body is not None:
            given = dict(self._entries.get(view.path, scope=view.scope).attributes)
            self._write_entry(actor, view.path, _cut_text(body), given | ({REASON: _cut_text(body)} if state == "failed" else {}))
        self._views.resolve(view.run, view.entry, state, status, outcome)
        self._remove_previews(actor, view.path)

    def result(self, run: str, path: str) -> tuple[View, str] | None:
        """The state of a run's proposal, with its outcome or the reason why it was not done; None for one that left no entry."""
        view = self._views.find(run, path)
        entry = None if view is None else self._entries.find(path, scope=view.scope)
        if view is None or entry is None:
            return None
        is_change = entry.attributes.get(CHANGE)  # whose body shows both texts
        if view.state == "failed":
            return view, str(entry.attributes.get(REASON, ""))
        return view, f"{entry.attributes.get('subject', '')}: accepted" if is_change else entry.body

    def open(self, run: str, path: str) -> View:
        """What waits under this path; NotFound when nothing ever did, Conflict when it is decided."""
        view = self._views.find(run, path)
        if view is None:
            raise NotFound(f"thread {run} has no proposal {path}", hint="give the path that the proposal has in the log")
        if view.state != "proposed":
            raise Conflict(f"{path} does not wait: it is {view.state} with {view.status}", hint="what is decided stays so")
        return view

    def _remove_previews(self, actor: Actor, path: str) -> None:
        scope = f"run:{actor.run}"
        for name in ("before", "after"):
            if self._entries.find(_text_path(path, name), scope=scope) is not None:
                self._entries.remove(_text_path(path, name), By(WRITER, actor.run), scope=scope)

    def _choose_log_path(self, actor: Actor, verb: str, subject: str) -> str:
        """Where an action is noted: where it was recorded, unless that has its result already."""
        return actor.log if self.is_open(actor) else self._find_free_path(actor, verb, subject)

    def _find_free_path(self, actor: Actor, verb: str, subject: str, scheme: str = "log") -> str:
        folder, scope = f"{scheme}://turn_{actor.turn}/{verb}/", f"run:{actor.run}"
        return folder + unique_slug(subject, lambda name: self._entries.find(folder + name, scope=scope) is not None)

    def _write_entry(self, actor: Actor, path: str, body: str, attributes: Mapping[str, Any]) -> Entry:
        content = Content(body=body, attributes=dict(attributes))
        return self._entries.put(path, content, By(WRITER, actor.run), scope=f"run:{actor.run}")


def subject_of(call: ToolCall) -> str:
    """What a call is about, in a few words: its target, or the beginning of what it says."""
    for name in SUBJECTS:
        value = call.arguments.get(name)
        if isinstance(value, str) and value.strip():
            first, _, rest = value.strip().partition("\n")
            return f"{first[:MAX_SUBJECT]} …" if rest or len(first) > MAX_SUBJECT else first
    return ""


def since_proposed(name: str, was: str, now: str) -> str:
    """Why what was proposed about a file is not done: its hash is another one, "" for no file."""
    return f"{name} has changed since it was proposed: its hash was {was or 'none'}, now it is {now or 'none'}"


def _cut_text(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}\n[cut: {MAX_CHARS} of {len(text)} characters kept]"


def _text_path(path: str, name: str) -> str:
    return f"{TEXTS}{path.partition('://')[2]}/{name}"
