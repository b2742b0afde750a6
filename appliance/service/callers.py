"""Who asks at the socket, and what they may: the one place where admins and other people are told apart.

Without `system.admin_users` everybody who may open the socket may do everything, as on a box of one's own. With it, the
core's own user, root and those named are admins; everybody else calls the methods that are marked for them, and is shown the
sessions and runs of their own and of their groups. What entries they are shown follows the same context. Tasks, schedules
and notes without an owner are the house's, and everybody's.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from appliance.errors import Refused
from appliance.runtime.methods import Mark
from appliance.runtime.users import user_name
from appliance.sessions.runs import Runs
from appliance.store import visibility

RUNS, SESSIONS, PEOPLE = ("run", "thread"), ("session",), ("person", "user", "context")  # arguments, by what they name


class Callers:
    """Says which calls a caller may make. `admins` are the names as configured now, `groups` says in which groups a person is."""

    def __init__(self, runs: Runs, admins: Callable[[], Iterable[str]], groups: Callable[[str], Iterable[str]]) -> None:
        self._runs = runs
        self._admins = admins
        self._groups = groups

    @contextmanager
    def entitled(self, uid: int, mark: Mark, arguments: dict[str, Any]) -> Iterator[None]:
        """For as long as a call lasts: restrict what it is shown; Refused when this caller may not make it."""
        admins, name = tuple(self._admins()), user_name(uid)
        if not admins or uid in (os.getuid(), 0) or name in admins:
            yield
            return
        if mark.access == "admin":
            raise Refused(f"{mark.name} is for admins of this box, not for {name}", hint=f"ask {', '.join(admins)}")
        contexts = frozenset({f"user:{name}", *(f"group:{group}" for group in self._groups(name))})
        with visibility.showing(f"user:{name}"), visibility.restricted(contexts):
            self._require_own(name, contexts, mark, arguments)
            yield

    def _require_own(self, name: str, contexts: frozenset[str], mark: Mark, arguments: dict[str, Any]) -> None:
        """Refused or NotFound when an argument names what is somebody else's."""
        for key in RUNS:
            if given := arguments.get(key):
                self._runs.get(str(given).removeprefix("run://"))
        for key in SESSIONS:
            if given := arguments.get(key):
                self._runs.people.get(str(given))
        others = [arguments[key] for key in PEOPLE if arguments.get(key) and arguments[key] not in (name, *contexts)]
        if others or arguments.get("everybody"):
            about = str(others[0]) if others else "everybody"
            raise Refused(f"{mark.name} about {about} is for admins of this box, not for {name}", hint="ask about yourself")
