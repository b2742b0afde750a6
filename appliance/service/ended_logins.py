"""Hangs up on those who may not go on: a login that was ended, a person who was removed or deactivated.

What a connection has running ends with it. Whoever comes again is judged anew (`daemon.build_gate`, `callers`).
"""

from collections.abc import Callable

from appliance.runtime.jsonrpc import Peer
from appliance.service.core import Core
from appliance.sessions.logins import LoginsEnded
from appliance.sessions.people import PersonActivated, PersonRemoved


def hang_up_on_ended(core: Core, hang_up: Callable[[Callable[[Peer], bool]], object]) -> None:
    """From now on, have a server hang up on those for whom it is over."""
    callers = core.callers

    def end_person(decided: PersonActivated) -> None:
        if not decided.is_active:
            hang_up(lambda peer: callers.name_of(peer) == decided.person)

    core.events.subscribe(LoginsEnded, lambda ended: hang_up(lambda peer: peer.login in ended.ids))
    # A user of this machine who was removed is still the person of that name; a login was the person's alone.
    core.events.subscribe(PersonRemoved, lambda removed: hang_up(lambda peer: bool(peer.login) and peer.person == removed.person))
    core.events.subscribe(PersonActivated, end_person)
