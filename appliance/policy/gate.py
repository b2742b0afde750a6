"""The policy that holds now: for everybody, or for one conversation; asked before every call and every sandbox.

Owns the `session_policies` table, the reload and the audit of every verdict. A reload that fails, also in one of those who
have to be told, leaves everything as it was. Groups are somebody else's: whoever fails to say them has none. Knows nothing
about tools and sandboxes. Not promised: that a process which was not told of a new policy file has read it.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import BadInput, ConfigError, DeadlineExceeded, NotFound, OwlError, Unavailable
from appliance.policy import policy_file as files
from appliance.policy.audit_log import Ledger, Severity
from appliance.policy.mounts import Who
from appliance.policy.rules import Judgement, Network, Policy, PolicyRequest, PolicyVerdict, RuleFinding, Runtime, laid_over
from appliance.store import visibility
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
State = Literal["idle", "reloading", "stopped"]
RELOAD_S = 30.0
KEPT = 64  # conversations whose policy is kept made up
# Asking for what is never to be had, not merely for what is not listed.
GRAVE = ("mount.bind.blocked", "mount.bind.denied")
Groups = Callable[[str], Iterable[str]]
Told = Callable[[Policy], None]


class SessionPolicy(Struct, frozen=True):
    """A conversation's own policy: the text, and who set it when."""

    session: str
    document: str
    set_by: str
    set_ms: int


def nobody(user: str) -> Iterable[str]:
    """Nobody is in any group."""
    return ()


class Gate:
    """Judges requests by the policy in force."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        load: Callable[[], Policy],
        *,
        groups: Groups = nobody,
        limit_s: float = RELOAD_S,
    ) -> None:
        """Loads the policy; ConfigError when it cannot be used. `groups` says what groups a person belongs to."""
        self._store, self._ledger = store, ledger
        self._load, self._groups = load, groups
        self._limit_s = limit_s
        self._guard = threading.Lock()
        self._told: list[Told] = []
        self._hashes: dict[Path, tuple[tuple[int, ...], bytes]] = {}
        self._made: dict[str, tuple[str, Policy]] = {}
        self._state: State = "idle"
        self._policy = load()

    # -- asking -------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        return self._policy

    def of(self, session: str, base: Policy | None = None) -> Policy:
        """The policy of one conversation; `base` stands in for the one for everybody."""
        base = base or self._policy
        found = self._store.value("SELECT document FROM session_policies WHERE session = ?", (session,)) if session else None
        if found is None:
            return base
        document, kept = str(found), self._made.get(session)
        if base is not self._policy:
            return laid_over(base, self._parse_document(session, document))
        if kept is None or kept[0] != document:
            kept = document, laid_over(base, self._parse_document(session, document))
            with self._guard:
                if base is self._policy:  # else it is made anew the next time
                    while len(self._made) >= KEPT:
                        self._made.pop(next(iter(self._made)))
                    self._made[session] = kept
        return kept[1]

    def check(
        self,
        base: Policy,
        tool: str,
        role: str = "",
        session: str = "",
        run: str = "",
        network: Network = "none",
        also: Sequence[str] = (),
    ) -> PolicyVerdict:
        """The verdict on one tool, with its other names; a rule against it is written down. `base` is the policy for everybody."""
        policy = self.of(session, base)
        verdict = policy.check(tool, role, network, also)
        if verdict.rule:
            detail, request = {"role": role, "mode": policy.mode}, PolicyRequest(tool, session=session, run=run, network=network)
            self._note_event(*_weigh_violation(verdict.allowed), request, verdict.rule, detail)
        return verdict

    def judge(self, request: PolicyRequest) -> Judgement:
        """What the policy says to a request, written down; before anything is started."""
        request, warnings = self._with_groups(request)
        judgement = self.of(request.session).judge(request)
        judgement = replace(judgement, warnings=(*warnings, *judgement.warnings))
        with self._store.write():
            self._audit_judgement(request, judgement)
        return judgement

    def measure(self, name: str, version: str, files: Iterable[Path]) -> Runtime:
        """A runtime as it is on the disk now: the hash is over its files in this order, read again when one has changed."""
        total = hashlib.sha256()
        for path in files:
            try:
                found = path.stat()
                stamp = found.st_mtime_ns, found.st_size, found.st_ino
                if self._hashes.get(path, ((), b""))[0] != stamp:
                    with open(path, "rb") as file:
                        self._hashes[path] = stamp, hashlib.file_digest(file, "sha256").digest()
            except OSError as error:
                raise Unavailable(f"{name} cannot be used: {path}: {error.strerror}", hint="owlbox doctor") from None
            total.update(self._hashes[path][1])
        return Runtime(name, version, total.hexdigest())

    def groups_of(self, user: str) -> tuple[str, ...]:
        """The groups that a person is in; none when nobody can say."""
        return self._with_groups(PolicyRequest("", Who(user)))[0].who.groups

    def _with_groups(self, request: PolicyRequest) -> tuple[PolicyRequest, tuple[RuleFinding, ...]]:
        """The request with the groups of its person; none, and a warning, when nobody can say them."""
        user = request.who.user
        if not user or request.who.groups:
            return request, ()
        try:
            return replace(request, who=replace(request.who, groups=tuple(self._groups(user)))), ()
        except (OwlError, OSError, LookupError, ValueError, RuntimeError) as error:
            LOG.warning("the groups of %s are not known: %s", user, error)
            return request, (RuleFinding("groups.unknown", request.component, f"the groups of {user} are not known: {error}"),)

    # -- writing down -------------------------------------------------------------------------------

    def _audit_judgement(self, request: PolicyRequest, judgement: Judgement) -> None:
        for finding in (*judgement.violations, *judgement.warnings):
            decision = "allowed" if judgement.is_allowed else "refused"
            detail = {"message": finding.message, "mode": judgement.mode, "decision": decision}
            is_against = finding in judgement.violations
            if finding.rule == "mount.bind.downgraded":
                self._note_event("policy_warning", "info", request, finding.rule, detail)
            elif finding.rule in GRAVE or finding.rule.startswith("mount.") and is_against and judgement.is_allowed:
                self._note_event("mount_violation", "error", request, finding.rule, detail)
            elif finding.rule.startswith("mount."):
                self._note_event("mount_denied", "warning", request, finding.rule, detail)
            elif not is_against:
                self._note_event("policy_warning", "warning", request, finding.rule, detail)
            else:
                detail |= {"command": request.command, "target": request.target}
                self._note_event(*_weigh_violation(judgement.is_allowed), request, finding.rule, detail)
        for mounted in (one for one in judgement.mounts if one.kind == "bind"):
            what = {"source": mounted.source, "inside": mounted.inside, "is_writable": mounted.is_writable}
            self._note_event("mount_allowed", "info", request, "", what)
        if judgement.is_allowed:
            facts: dict[str, Any] = {"mode": judgement.mode, "network": judgement.network}
            if request.runtime is not None:
                facts |= {"runtime": request.runtime.name, "version": request.runtime.version, "sha256": request.runtime.sha256}
            if request.command:
                facts["command"] = request.command
            self._note_event("policy_allowed", "info", request, "", facts)

    def _note_event(self, kind: str, severity: Severity, request: PolicyRequest, rule: str, detail: dict[str, Any]) -> None:
        self._ledger.note(
            kind, severity=severity, session=request.session, run=request.run, actor=request.component, rule=rule, detail=detail
        )

    # -- one conversation ---------------------------------------------------------------------------

    def sessions(self) -> list[SessionPolicy]:
        """Conversations with a policy of their own."""
        own = visibility.own_sessions("session")
        rows = self._store.rows(f"SELECT session, document, set_by, set_ms FROM session_policies WHERE 1{own} ORDER BY session")
        return [SessionPolicy(*row) for row in rows]

    def is_known(self, session: str) -> bool:
        """Whether anybody has talked in a conversation: a policy may wait for the first word, or be for a misspelt one."""
        return self._store.value("SELECT 1 FROM sessions WHERE id = ?", (session,)) is not None

    def set_session(self, session: str, document: str, by: str) -> Policy:
        """Give a conversation a policy of its own, as the text of a policy file; the one that holds there now."""
        if not session:
            raise BadInput("a policy without a conversation would hold nowhere", hint="owlbox session list")
        own = self._parse_document(session, document)
        with self._store.write(durable=True) as execute:
            execute(
                "INSERT INTO session_policies (session, document, set_by, set_ms) VALUES (?1, ?2, ?3, ?4) "
                "ON CONFLICT (session) DO UPDATE SET document = ?2, set_by = ?3, set_ms = ?4",
                (session, document, by, now_ms()),
            )
            self._ledger.note("policy_changed", session=session, actor=by, detail={"document": document}, durable=True)
        return laid_over(self._policy, own)

    def lift_session(self, session: str, by: str) -> None:
        """Let the policy for everybody hold in a conversation again; NotFound when it has none of its own."""
        with self._store.write(durable=True) as execute:
            if not execute("DELETE FROM session_policies WHERE session = ? RETURNING 1", (session,)):
                raise NotFound(f"session {session} has no policy of its own", hint="owlbox policy show lists those that have")
            self._ledger.note("policy_changed", session=session, actor=by, detail={"document": ""}, durable=True)

    def _parse_document(self, session: str, document: str) -> Policy:
        return files.parse(document, f"policy of session {session}")

    # -- reloading ----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Whether the policy is being read again, or never will be."""
        return self._state

    def tell(self, told: Told) -> None:
        """Call this with every new policy. When it raises, the old one stays, and whoever was told before is told that."""
        self._told.append(told)

    def reload(self) -> str:
        """Read the policy again: "reloaded", "unchanged", or "skipped" while another reload runs.

        An error keeps the old one; so does one that takes longer than its time.
        """
        with self._begin_reload() as is_mine:
            if not is_mine:
                return "skipped"
            attempt = _Reload()
            pool = ThreadPoolExecutor(1, thread_name_prefix="policy reload")
            future = pool.submit(self._try_reload, attempt)
            pool.shutdown(wait=False)
            error = self._await_reload(future, attempt)
            if error is not None:
                LOG.error("policy not reloaded, the old one stays: %s", error)
                self._log_reload("error", {"error": str(error)})
                raise error
            new = future.result()
            old, is_same = attempt.old or self._policy, attempt.is_same
            self._log_reload("info", {"mode": new.mode, "before": old.mode, "is_changed": not is_same})
            return "unchanged" if is_same else "reloaded"

    def stop(self) -> None:
        """Reload no more."""
        self._state = "stopped"

    @contextmanager
    def _begin_reload(self) -> Iterator[bool]:
        with self._guard:
            if self._state == "stopped":
                raise Unavailable("the policy is not read again: the core is shutting down")
            is_mine, self._state = self._state == "idle", "reloading"
        try:
            yield is_mine
        finally:
            if is_mine and self._state == "reloading":
                self._state = "idle"

    def _log_reload(self, severity: Severity, detail: dict[str, Any]) -> None:
        """Record the outcome of a reload; a failure to record does not undo it."""
        try:
            self._ledger.note("policy_reload", severity=severity, detail=detail)
        except OwlError as error:
            LOG.error("a reload of the policy was not written down: %s", error)

    def _await_reload(self, future: "Future[Policy]", attempt: "_Reload") -> OwlError | None:
        """The reason why the reload failed; None when it did not."""
        try:
            error = future.exception(self._limit_s)
        except FutureTimeout:
            if attempt.give_up():
                return DeadlineExceeded(f"the policy was not read again within {self._limit_s:g} s; the old one stays")
            error = future.exception()  # it was done at the last moment
        if error is None or isinstance(error, OwlError):
            return error
        return ConfigError(f"the new policy was not accepted: {error}; the old one stays")

    def _try_reload(self, attempt: "_Reload") -> Policy:
        """Load, tell everybody, take into use; or leave everything as it was."""
        old = attempt.old = self._policy
        told: list[Told] = []
        is_taken = False
        try:
            new = self._load()
            attempt.is_same = new == old
            for one in self._told:
                told.append(one)
                one(new)
            with self._guard:
                is_taken = attempt.take()
                if is_taken:
                    self._policy, self._made = new, {}
            return new
        finally:
            if not is_taken:
                self._tell_again(told, old)

    @staticmethod
    def _tell_again(told: list[Told], old: Policy) -> None:
        for one in reversed(told):
            try:
                one(old)
            except (OwlError, OSError, RuntimeError, ValueError, LookupError, TypeError):
                LOG.exception("could not go back to the old policy")


def _weigh_violation(is_allowed: bool) -> tuple[str, Severity]:
    """The event name and severity of a violation: an error where the call ran all the same."""
    return ("policy_violation", "error") if is_allowed else ("policy_denied", "warning")


class _Reload:
    """One reload, which is either taken into use or given up."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._fate = ""
        self.old: Policy | None = None
        self.is_same = False

    def take(self) -> bool:
        """True when nobody has given it up."""
        return self._decide_fate("taken")

    def give_up(self) -> bool:
        """True when it has not been taken into use."""
        return self._decide_fate("given up")

    def _decide_fate(self, fate: str) -> bool:
        with self._guard:
            self._fate = self._fate or fate
            return self._fate == fate
