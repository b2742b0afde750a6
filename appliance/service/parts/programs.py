"""Builds the HTTP server at the core's own Unix socket for programs of this machine."""

import logging

from appliance.errors import OwlError
from appliance.http.hook_routes import HookRoutes
from appliance.http.openai_routes import OpenAiRoutes
from appliance.http.program_calls import DirectCalls, Gate, no_token
from appliance.http.server import HttpServer
from appliance.http.site import build_local_site
from appliance.runtime import paths
from appliance.runtime.rpc_server import listen
from appliance.service.core import Core
from appliance.service.ended_logins import hang_up_on_ended

LOG = logging.getLogger(__name__)
MAX_CONNECTIONS = 32


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
    routes = [OpenAiRoutes(calls), HookRoutes(calls.call)]
    site, most = build_local_site(), MAX_CONNECTIONS
    return HttpServer(sock, site, routes, check_login=_refuse_login, max_connections=most, max_of_one=most)


def _refuse_login(session: str) -> str:
    """Nobody logs in here: the kernel says who asks, or a token does."""
    raise no_token()
