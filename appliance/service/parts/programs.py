"""Builds the HTTP server at the core's own Unix socket for programs of this machine.

A login that was ended, a person who was removed or deactivated is hung up on, and what the connection has running ends with it.
"""

import logging
from collections.abc import Callable

from appliance.errors import OwlError
from appliance.http.ollama_routes import OllamaRoutes
from appliance.http.openai_routes import OpenAiRoutes
from appliance.http.program_calls import DirectCalls, Gate, HookRoutes, no_token
from appliance.http.server import HttpServer
from appliance.http.site import build_local_site
from appliance.runtime import paths
from appliance.runtime.jsonrpc import Peer
from appliance.runtime.rpc_server import listen
from appliance.service.core import Core
from appliance.sessions.logins import LoginsEnded
from appliance.sessions.people import PersonActivated, PersonRemoved

LOG = logging.getLogger(__name__)
MAX_CONNECTIONS = 32


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


def open_programs(core: Core, gate: Gate) -> HttpServer | None:
    """The server, listening and not yet accepting; None where its socket cannot be made, which costs nothing else."""
    path = paths.programs_socket(core.runtime)
    try:
        sock = listen(path)
    except (OwlError, OSError) as error:
        LOG.error("programs cannot be served at %s: %s", path, error)
        return None
    calls = DirectCalls(core.table, gate)
    hang_up_on_ended(core, calls.hang_up)
    openai = OpenAiRoutes(calls)
    routes = [openai, OllamaRoutes(openai), HookRoutes(calls.call)]
    site, most = build_local_site(), MAX_CONNECTIONS
    return HttpServer(sock, site, routes, check_login=_refuse_login, max_connections=most, max_of_one=most)


def _refuse_login(session: str) -> str:
    """Nobody logs in here: the kernel says who asks, or a token does."""
    raise no_token()
