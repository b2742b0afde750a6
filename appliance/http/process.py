"""The process of the HTTP server: `owlbox web`. Reads the configuration, listens, and serves until it is told to end.

It opens no database and holds no secret but the key of its certificate; what people may do is the core's business. Off unless
`channels.web.enabled`; on loopback unless told otherwise, and then only with a certificate or behind a proxy.
"""

import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from appliance import __version__
from appliance.errors import ConfigError, Refused
from appliance.http.core_link import CoreLink
from appliance.http.ollama_routes import OllamaRoutes
from appliance.http.openai_routes import OpenAiRoutes
from appliance.http.page_routes import LoginRoutes, PageRoutes
from appliance.http.program_calls import HookRoutes, TokenCalls
from appliance.http.server import HttpServer, listen
from appliance.http.site import build_site, is_loopback
from appliance.runtime import config, log, paths, sd_notify
from appliance.runtime.paths import Home
from appliance.runtime.settings import WebSettings
from appliance.runtime.signals import Signals

LOG = logging.getLogger(__name__)
CHILD = "OWLBOX_WEB_CHILD"  # set by a core that has started us


def build_server(
    home: Home, environ: Mapping[str, str], keys: WebSettings, *, folder: Path, has_programs: bool = False
) -> HttpServer:
    """A server as configured, listening and not yet accepting; `folder` has its certificate. Further routes go into the list."""
    if not is_loopback(keys.host) and not keys.certificate and not keys.address.startswith("https:"):
        raise ConfigError(
            f"channels.web.host is {keys.host}, which others reach, and nothing is encrypted",
            key="channels.web.host",
            hint="set channels.web.certificate and key, or channels.web.address to that of an https proxy before it",
        )
    tls = _load_certificate(folder, keys) if keys.certificate else None
    sock = listen(keys.host, keys.port)
    site = build_site(keys.host, int(sock.getsockname()[1]), has_tls=tls is not None, address=keys.address)
    core = CoreLink(lambda: paths.find_core(home, environ))
    routes: list[object] = [LoginRoutes(site, core), PageRoutes(core)]
    if has_programs:
        openai = OpenAiRoutes(TokenCalls(core))
        routes += [openai, OllamaRoutes(openai), HookRoutes(lambda request, method, given: core.call(method, given))]
    return HttpServer(sock, site, routes, check_login=core.check_login, tls=tls)


def serve(home: Home, environ: Mapping[str, str]) -> int:
    """Serve until a signal; returns the exit code."""
    given = Path(environ["CREDENTIALS_DIRECTORY"]) if environ.get("CREDENTIALS_DIRECTORY") else None
    settings = config.load(home.require(), environ) if given is None else config.load(home, environ, path=given / "owlbox.toml")
    keys = settings.channels.web
    if not keys.enabled:
        raise Refused("the web page is switched off", hint="owlbox config set channels.web.enabled true")
    is_service = sd_notify.is_service(environ)
    redactor = log.Redactor(config.secrets(settings))
    log.start("web", home.logs / "web", settings.system.level, redactor, is_service=is_service)
    logging.getLogger("websockets").setLevel(logging.WARNING)  # it tells of each connection and its end
    notifier = sd_notify.Notifier(environ)
    signals = Signals((signal.SIGTERM, signal.SIGINT))
    has_programs = settings.channels.programs.enabled
    server = build_server(home, environ, keys, folder=given or home.root, has_programs=has_programs)
    server.start()
    if environ.get(CHILD):
        threading.Thread(target=_end_with_parent, name="web-parent", daemon=True).start()
    print(f"owlbox {__version__} web page at {server.site.address}", file=sys.stderr, flush=True)
    notifier.ready(f"serves {server.site.address}")
    signals.wait(None)
    notifier.stopping("asked to")
    server.close()
    log.stop()
    return 0


def _end_with_parent() -> None:
    """Ask this process to end when standard input does: the core at the other end of the pipe is gone."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _load_certificate(folder: Path, keys: WebSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(folder / keys.certificate, folder / (keys.key or keys.certificate))
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise ConfigError(f"channels.web.certificate cannot be used: {why}", key="channels.web.certificate") from None
    return context
