"""Who asks, and what they may: the one place where admins and other people are told apart, for the socket and for commands.

Without `system.admin_users` everybody who may open the socket may do everything, as on a box of one's own. With it, the
core's own user, root and those named are admins; everybody else has standard rights: they call the methods that are marked for
them, and are shown the rows of their own context and of their groups (`store.visibility`). Somebody who does not come over the
socket, and was authenticated as a person by another server, is an admin only as the core's own user or by name in that list.
An admin is shown everything, or, acting for a person or a group, what those are shown. What a person with standard rights asks
about others is refused and noted in the audit log; whether it exists cannot be told from the answer.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from appliance.errors import BadInput, NotFound, Refused
from appliance.policy.audit_log import Ledger
from appliance.runtime.jsonrpc import Peer
from appliance.runtime.methods import Call, MethodMark
from appliance.runtime.users import user_name
from appliance.sessions.people import DEACTIVATED, LOCAL, People
from appliance.sessions.runs import Runs
from appliance.store import visibility

RUNS, SESSIONS = ("run", "thread"), ("session",)  # arguments, by what they name
PEOPLE, GROUPS = ("person", "user", "context", "owner"), ("group",)
KINDS = ("user", "group")


class Callers:
    """Says which calls a caller may make. `admins` are the names as configured now."""

    def __init__(self, runs: Runs, people: People, ledger: Ledger, admins: Callable[[], Iterable[str]]) -> None:
        self._runs = runs
        self._people = people
        self._ledger = ledger
        self._admins = admins

    def name_of(self, peer: Peer) -> str:
        """The person at the other end of a connection."""
        return self._people.resolve(LOCAL, peer.person or user_name(peer.uid))

    @contextmanager
    def entitled(self, call: Call, mark: MethodMark, arguments: dict[str, Any]) -> Iterator[None]:
        """For as long as a call lasts: restrict what it is shown; Refused when this caller may not make it."""
        admins, user = tuple(self._admins()), call.person or user_name(call.uid)
        name = self._people.resolve(LOCAL, user)
        if call.person:  # whoever may open the socket is trusted; one who comes from elsewhere is trusted by name alone
            is_admin = name in (user_name(os.getuid()), *admins)
        else:
            is_admin = not admins or call.uid in (os.getuid(), 0) or user in admins or name in admins
        is_own = not call.person and call.uid in (os.getuid(), 0)
        for context in (call.context, str(arguments.get("owner", ""))) if is_admin else ():
            if context.startswith(("user:", "group:")):
                self._people.require_known(context)
        if is_admin and not call.context and (is_own or self._people.is_active(name)):
            yield
            return
        try:
            if not is_own:
                self._people.require_active(name)
            if mark.access == "admin" and not is_admin:
                raise Refused(
                    f"{mark.name} is for admins of this box, not for {name}", hint=f"ask {', '.join(admins) or 'its owner'}"
                )
            with self._restricted(name, call.context, is_admin=is_admin) as person:
                self._require_own(person, mark, arguments)
                yield
        except (Refused, NotFound) as error:
            if not is_admin or error.outcome == DEACTIVATED:
                detail = {"method": mark.name, "outcome": error.outcome, "message": error.message}
                self._ledger.note("request_refused", severity="warning", actor=f"user:{name}", detail=detail)
            raise

    @contextmanager
    def _restricted(self, name: str, context: str, *, is_admin: bool) -> Iterator[str]:
        """Work as a person: in their own context, that of one of their groups, or for an admin in that of somebody else."""
        kind, _, wanted = context.partition(":")
        if context and (kind not in KINDS or not wanted):
            raise BadInput(f"context {context!r}", hint="write it as user:NAME or group:NAME")
        person = self._people.resolve(LOCAL, wanted) if kind == "user" and is_admin else name
        context = f"user:{person}" if kind == "user" and is_admin else context
        contexts = self._people.contexts_of(person)
        if is_admin and kind == "group":
            contexts = frozenset({context})
        elif context and context not in (f"user:{person}", *(own for own in contexts if own.startswith("group:"))):
            raise Refused(f"{context} is not a context of {name}", hint="leave it out, or name a group that you are in")
        with visibility.asked_by(person, context or f"user:{person}", contexts):
            yield person

    def _require_own(self, name: str, mark: MethodMark, arguments: dict[str, Any]) -> None:
        """Refused or NotFound when an argument names what is somebody else's."""
        for key in RUNS:
            if given := arguments.get(key):
                self._runs.get(str(given).removeprefix("run://"))
        for key in SESSIONS:
            if given := arguments.get(key):
                self._runs.people.get(str(given))
        contexts = visibility.asking() or frozenset()
        others = [arguments[key] for key in PEOPLE if arguments.get(key) and arguments[key] not in (name, *contexts)]
        others += [arguments[key] for key in GROUPS if arguments.get(key) and f"group:{arguments[key]}" not in contexts]
        if others or arguments.get("everybody"):
            about = str(others[0]) if others else "everybody"
            raise Refused(f"{mark.name} about {about} is for admins of this box, not for {name}", hint="ask about yourself")
