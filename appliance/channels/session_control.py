"""What people do with sessions and runs: begin, prompt, fork, rename, set, stop, put away, write out and read in.

One meaning for the socket, the command line and writes to `run://NAME`. Everything is asked of the tables' owners; what
is decided here is only what goes together: a question needs a model that exists, a closed session has no one working in
it, a session is deleted with everything said in it. Knows nothing about sockets or files.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from appliance.channels.inbox import AcceptedMessage, Inbox
from appliance.clock import correlation_id, new_id, now_ms
from appliance.errors import BadInput, Conflict, NotFound, Refused, Unavailable
from appliance.knowledge.views import Views
from appliance.memory.session_review import SessionReview
from appliance.records import Inbound, Mode, Outcome, RunSettings
from appliance.runtime import log
from appliance.runtime.methods import method
from appliance.runtime.settings import Config, PeopleSettings
from appliance.runtime.users import user_name
from appliance.sessions.branches import Branches
from appliance.sessions.history import History, Owner
from appliance.sessions.runs import PROPOSED, RUNNING, STOPPED, WAITING, Run, Runs
from appliance.sessions.sessions import IDLE_S, Session, SessionFilter, SessionRules, Sessions, session_data
from appliance.sessions.transcripts import Transcripts
from appliance.store.database import Store
from appliance.text.references import parse_ref

LOG = logging.getLogger(__name__)
CHANNEL = "local"
RUN = "run://"
Named = Annotated[str, "its name or id, or the beginning or end of the id"]
SETTINGS = tuple(RunSettings.__struct_fields__)
WORDS = ("noRepo", "noWeb", "noInteraction", "noProposals", "yolo", "contextLimit")  # what other clients call them
FLAGS = dict(zip(WORDS, ("no_repo", "no_web", "no_interaction", "no_proposals", "is_yolo", "context_limit"), strict=True))


class Prompt(Struct, frozen=True):
    """One ask or act request (R-174): `run` continues that one, with `is_fork` a fork of it; else a new one begins."""

    text: str
    mode: Mode = "act"
    run: str = ""
    alias: str = ""
    is_fork: bool = False
    settings: RunSettings = RunSettings()
    message_id: str = ""


class SessionDeleted(Struct, frozen=True):
    """A session was deleted with everything said in it."""

    session: str


class Control:
    """Does what people ask."""

    def __init__(
        self,
        runs: Runs,
        inbox: Inbox,
        branches: Branches,
        transcripts: Transcripts,
        history: History,
        plan: Callable[[str], Sequence[object]],
        *,
        is_served: bool = True,
        review: SessionReview | None = None,
    ) -> None:
        """`review` remembers what one says before it is archived."""
        self.runs = runs
        self.inbox = inbox
        self.branches = branches
        self.transcripts = transcripts
        self.history = history
        self._plan = plan
        self._is_served = is_served
        self._review = review

    @property
    def sessions(self) -> Sessions:
        """The table of sessions."""
        return self.runs.people

    # -- runs ---------------------------------------------------------------------------------------

    def prompt(self, user: str, prompt: Prompt, correlation: str) -> AcceptedMessage:
        """Record a prompt durably, in a new run or one that is there; nothing is started. The model must be one that exists."""
        settings = prompt.settings
        if not settings.model:
            raise BadInput("no model is given", hint="owlbox model list shows local ones; a pool or route will do")
        self._plan(settings.model)  # nobody may ask later: one that cannot be asked now is refused as well
        message_id = f"{user}/{prompt.message_id}" if prompt.message_id else new_id()
        inbound = Inbound(CHANNEL, user, prompt.text, message_id, now_ms(), mode=prompt.mode)
        if prompt.run:
            known = replace(inbound, thread=self.runs.get(prompt.run).id)
            return self.inbox.accept(known, correlation, partial(self._continue_run, prompt))
        return self.inbox.accept(replace(inbound, alias=prompt.alias, settings=replace(settings, layout="entries")), correlation)

    def require_model(self, name: str) -> None:
        """Refuse what is no pool, route or model, or may not be asked; "" is the default, and what is away now may answer later."""
        try:
            if name:
                self._plan(name)
        except Unavailable as error:
            LOG.info("model %s is not asked now: %s", name, error)

    def _continue_run(self, prompt: Prompt) -> str:
        """The run that a prompt continues, or a fork of it, set as it wants; its id."""
        run = self.branches.fork(prompt.run, alias=prompt.alias) if prompt.is_fork else self.runs.get(prompt.run)
        given = {name: value for name, value in asdict(prompt.settings).items() if value != getattr(RunSettings(), name)}
        return self.runs.configure(run.id, {**given, "layout": run.settings.layout}).id

    def send_message(self, user: str, ref: str, text: str, correlation: str) -> AcceptedMessage:
        """Hand a message to a run that is there: an idle one begins with it, a busy one has it next (R-175)."""
        run = self.runs.get(ref)
        return self.inbox.accept(Inbound(CHANNEL, user, text, new_id(), now_ms(), run.id, is_injected=True), correlation)

    def abort(self, ref: str) -> bool:
        """End only what is being answered in a run, or waits there for a decision; what is queued comes next (R-038)."""
        return self.inbox.abort(self.runs.get(ref).id)

    @method("run.view", access="own")
    def view(self, run: Named) -> dict[str, Any]:
        """A run: what it is set to, what waits in it, its newest turns, its forks."""
        found = self.runs.get(run)
        loop, turn = self.runs.moment(found.id)
        forks = [{"id": fork.id, "alias": fork.alias} for fork in self.runs.forks(found.id)]
        return {
            "run": found,
            "queue": self.runs.queue(found.id),
            "loop": loop,
            "turn": turn,
            "turns": self.runs.turns(found.id)[-20:],
            "forks": forks,
        }

    def write(
        self, user: str, ref: str, body: str, attributes: Mapping[str, Any], correlation: str
    ) -> tuple[Outcome, AcceptedMessage | None]:
        """A write to `run://NAME` (R-031): a state of cancelled aborts it, a text is a prompt for it, new or not."""
        alias = parse_ref(ref).removeprefix(RUN)
        if attributes.get("state") == "cancelled":
            was_busy = self.abort(alias)
            return Outcome(200, "ok", f"run {alias} {'stops' if was_busy else 'had nothing to stop'}"), None
        if not body.strip():
            raise BadInput(
                f"nothing to do for run {alias}", hint='write a prompt as its body, or the attribute {"state": "cancelled"}'
            )
        try:
            is_known = bool(self.runs.get(alias))
        except NotFound:
            is_known = False
        given = {FLAGS.get(name, name): value for name, value in attributes.items()}
        settings = read_settings({name: value for name, value in given.items() if name in SETTINGS})
        if is_known and not settings.model:
            settings = replace(settings, model=self.runs.get(alias).settings.model)
        mode: Mode = "ask" if given.get("mode") == "ask" else "act"
        prompt = Prompt(body, mode, run=alias if is_known else "", alias="" if is_known else alias, settings=settings)
        accepted = self.prompt(user, prompt, correlation)
        return Outcome(100, "queued", f"run {alias} has a prompt", data={"run": accepted.run, "loop": accepted.loop}), accepted

    def start(self, ref: str, body: str, attributes: Mapping[str, Any]) -> Outcome:
        """The same on behalf of this process's user, and begun at once."""
        outcome, accepted = self.write(user_name(os.getuid()), ref, body, attributes, log.correlation() or correlation_id())
        if accepted is not None:
            self.begin(accepted)
        return outcome

    def begin(self, accepted: AcceptedMessage) -> None:
        """Have a prompt answered that nobody waits for; a command without a core leaves it to the next core."""
        if accepted.is_new and self._is_served:
            self.inbox.start(accepted.loop)
        elif accepted.is_new:
            self.runs.release(accepted.loop)

    # -- sessions -----------------------------------------------------------------------------------

    def list_sessions(self, wanted: SessionFilter, limit: int, offset: int) -> list[dict[str, Any]]:
        """Sessions as they are now with the number of messages in each, the newest activity first."""
        found = self.sessions.list_sessions(wanted, limit=limit, offset=offset)
        counts = self.runs.record.count_messages([one.id for one in found])
        return [{**session_data(one), "messages": counts.get(one.id, 0)} for one in found]

    @method("session.view", access="own")
    def session(self, id: Annotated[str, "channel:sender, or the sender of the only one"]) -> dict[str, Any]:
        """One session with its runs and the processes that work in it."""
        found = self.sessions.get(id)
        runs = self.runs.list_runs(session=found.id, limit=1000)
        return {**session_data(found), "processes": self.sessions.attached(found.id), "runs": runs}

    def create(self, channel: str, sender: str, group: str = "") -> Session:
        """A session before its first message; Conflict when there is one."""
        if not channel or not sender or ":" in channel:
            raise BadInput(f"a session needs a channel and a sender, not {channel!r} and {sender!r}", hint="such as local and ann")
        name = f"{channel}:{sender}"
        if self.sessions.find(name) is not None:
            raise Conflict(f"there is a session {name} already", hint="owlbox session list shows them")
        context = f"group:{group}" if group else f"user:{sender}"
        now = now_ms()
        self.sessions.add(Session(name, channel, sender, sender, context, "created", created_ms=now, last_active_ms=now))
        return self.sessions.get(name)

    def archive(self, ref: str) -> Session:
        """Put a session away; the next message in it, or `resume`, brings it back. Conflict while it is answered."""
        found = self.sessions.get(ref)
        self._require_rest(found)
        if self._review is not None and found.status != "archived":
            self._review.review(found, now_ms())
        return self.sessions.move(found.id, "archived")

    def resume(self, ref: str) -> Session:
        """A session that was idle or archived is active again (A-229)."""
        return self.sessions.move(self.sessions.get(ref).id, "active")

    def close(self, ref: str, by: str = "", *, is_final: bool = False) -> Session:
        """Let a session take no more messages; what is answered or waits in it is stopped first, and then it is closed.

        Refused for that in which everything lies that the caller says here, unless `is_final`.
        """
        found = self.sessions.get(ref)
        if found.id == f"{CHANNEL}:{by}" and not is_final and found.status != "closed":
            raise Refused(
                f"{found.id} is your own conversation: closed, it takes nothing more that you say",
                hint=f"owlbox session archive {found.id} archives it; owlbox session close {found.id} --final closes it",
            )
        if found.status != "closing":
            if not self._busy_runs(found, PROPOSED):
                return self.sessions.move(found.id, "closed")
            found = self.sessions.move(found.id, "closing")
        self.inbox.clear(found.id)
        for run in self._busy_runs(found, PROPOSED):
            try:
                self.inbox.stop(run.id)
            except Conflict:
                continue  # another process works there, which closes it when it is done
            for loop in self.runs.queue(run.id):
                if loop.status == WAITING:  # a task's, which no worker has taken up
                    self.runs.end_loop(loop, STOPPED, "cancelled")
        if not self._busy_runs(found, PROPOSED):
            self.sessions.rest(found.id)
        return self.sessions.get(found.id)

    def delete(self, ref: str) -> int:
        """Delete a closed session with everything said in it; how many events that were."""
        found = self.sessions.get(ref)
        if found.status != "closed":
            self.sessions.delete(found.id)  # says what to do first
        count = 0
        while runs := self.runs.list_runs(session=found.id, limit=100):
            count += sum(self.runs.delete(run.id) for run in runs)  # forks first: they are younger
        self.sessions.delete(found.id)
        self.runs.news.publish(SessionDeleted(found.id))
        return count

    def _busy_runs(self, session: Session, until: int = RUNNING) -> list[Run]:
        """The runs of a session with prompts that are open: waiting, or as far as this status."""
        runs = self.runs.list_runs(session=session.id, limit=100_000)
        return [run for run in runs if any(loop.status <= until for loop in self.runs.queue(run.id))]

    def _require_rest(self, session: Session) -> None:
        if busy := self._busy_runs(session):
            raise Conflict(f"thread {busy[0].id} of session {session.id} is being answered", hint="wait for it, or stop it first")


def build(
    store: Store,
    runs: Runs,
    inbox: Inbox,
    views: Views,
    plan: Callable[[str], Sequence[object]],
    *,
    history: History | None = None,
    is_served: bool = True,
    review: SessionReview | None = None,
) -> Control:
    """All of this for one core, or with `is_served` False for one command."""
    history = history or History(store, owners(PeopleSettings()))
    parts = Branches(store, runs, views), Transcripts(store, runs), history
    return Control(runs, inbox, *parts, plan, is_served=is_served, review=review)


def owners(people: PeopleSettings) -> tuple[Owner, ...]:
    """The addresses of the owner: the user of this machine whose box it is, and those in the configuration."""
    named = (Owner(alias.address, alias.channel) for alias in people.owner_aliases)
    return (Owner(user_name(os.getuid()), CHANNEL), *named)


def rules(settings: Config, *, is_full: bool = False) -> SessionRules:
    """The rules of sessions out of the configuration; while the disk is full, those of archiving what is idle at once."""
    archival, limits = settings.sessions.archival, settings.orchestrator
    archive_s = archival.inactivity_s if archival.enabled else 0
    if is_full:
        archive_s = min(archive_s or IDLE_S, IDLE_S)
    return SessionRules(archive_s, limits.disk_warn, limits.disk_refuse)


def read_settings(given: Mapping[str, Any]) -> RunSettings:
    """Settings from outside; BadInput names what cannot be."""
    kinds: dict[str, tuple[type, ...]] = {"temperature": (int, float, type(None)), "context_limit": (int, type(None))}
    kinds |= dict.fromkeys(("model", "persona", "approval", "layout"), (str,))
    for name, value in given.items():
        if name not in SETTINGS:
            raise BadInput(f"a run has no setting {name}", hint=f"it has {', '.join(SETTINGS)}")
        if not isinstance(value, kinds.get(name, (bool,))) or (isinstance(value, bool) and name in kinds):
            raise BadInput(f"{name} cannot be {value!r}", hint="owlbox thread config --help says what it may be")
    return RunSettings(**given)
