"""Values of the configuration that can be read and cannot work: an unknown zone, a missing file, model or secret, no disk.

Asked when a key is set, when a running core reads its file again, and by the doctor. A core starts with such values all the same: a
stick that was pulled out must cost the backup and nothing else. Servers and hosts are not asked whether they answer.
"""

import pwd
import re
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from appliance.agent import plugin_files
from appliance.channels.connections import read_tables
from appliance.errors import BadInput, ConfigError, NotFound, OwlError
from appliance.language.times import timezones
from appliance.mcp import sandbox as mcp_sandbox
from appliance.models import catalogue
from appliance.runtime import config
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config
from appliance.secrets.process_secrets import HANDED
from appliance.upkeep import backup_target, sealed_backups
from appliance.upkeep.updates import bundle
from appliance.web import hosts as web_hosts

HOST = re.compile(r"(?!-)[A-Za-z0-9.:_-]{1,253}")
Check = tuple[str, Callable[..., object], tuple[Any, ...]]  # a key, what raises an OwlError, and what that is given


class Known(Protocol):
    """Tells what the configuration names and only a core knows; asked once a key needs it. None when nobody can say."""

    def list_secrets(self) -> Collection[str] | None: ...
    def list_people(self) -> Collection[str] | None: ...
    def list_groups(self) -> Collection[str] | None: ...


def find_unworkable(
    home: Home, settings: Config, known: Known | None = None, keys: Collection[str] | None = None
) -> Iterator[ConfigError]:
    """What cannot work now, each with its key; with `keys` only these and what is in these tables."""
    checks = (
        *_list_named(settings, known),
        *_list_files(home, settings),
        *_list_hosts(settings),
        *_list_models(home, settings),
    )
    for key, check, given in checks:
        if keys is None or any(key == one or key.startswith((f"{one}.", f"{one}[")) for one in keys):
            try:
                check(*given)
            except OwlError as error:
                yield ConfigError(f"{key} cannot work: {error.message}", key=key, hint=error.hint)


def require_workable(home: Home, settings: Config, keys: Collection[str], known: Known | None = None) -> None:
    """ConfigError for the first of these keys whose value cannot work."""
    for error in find_unworkable(home, settings, known, keys):
        raise error


def _list_named(settings: Config, known: Known | None) -> Iterator[Check]:
    """Zones, secrets, persons, groups and channels."""
    for table in ("system", "heartbeat"):
        yield f"{table}.timezone", timezones.require, (getattr(settings, table).timezone,)
    for key, secret in config.named_secrets(settings):
        yield key, _require_secret, (secret, key.startswith("providers."), known)
    for i, name in enumerate(settings.system.admin_users):
        yield f"system.admin_users[{i}]", _require_person, (name, known)
    for group, people in settings.sandbox.groups.items():
        for i, name in enumerate(people):
            yield f"sandbox.groups.{group}[{i}]", _require_person, (name, known)
    for i, mount in enumerate(settings.sandbox.mounts):
        yield f"sandbox.mounts[{i}].user", _require_person, (mount.user, known)
        yield f"sandbox.mounts[{i}].group", _require_group, (mount.group, settings.sandbox.groups, known)
    channels = (*read_tables(settings.channels), "local", "web")
    for i, alias in enumerate(settings.people.owner_aliases):
        yield (
            f"people.owner_aliases[{i}].channel",
            _require_among,
            (alias.channel, channels, "channel", f"one of {', '.join(channels)}"),
        )


def _list_files(home: Home, settings: Config) -> Iterator[Check]:
    """Files, folders, programs, certificates and keys."""
    keys, web, updates = settings.backups, settings.channels.web, settings.updates
    yield "backups.target", _require_target, (home, keys.target)
    yield "backups.key_file", _require_key_file, (keys.key_file,)
    yield "channels.web.certificate", _require_certificate, (home, web.certificate, web.key)
    yield "channels.web.key", _require_file, (home.root, web.key, "name a file in PEM")
    for name, provider in settings.providers.items():
        yield f"providers.{name}.ca_file", _require_authorities, (provider.ca_file,)
    yield "models.script", _require_file, (home.root, settings.models.script, "it is looked for in the home")
    yield "policy.path", _require_parent, (home.root, settings.policy.path)
    yield "audit.file", _require_parent, (home.root, settings.audit.file)
    yield "sandbox.workspace", _require_folder, (home.root, settings.sandbox.workspace)
    for i, mount in enumerate(settings.sandbox.mounts):
        if mount.mode != "denied" and "*" not in mount.path:
            yield f"sandbox.mounts[{i}].path", _require_there, (mount.path,)
    for name, server in settings.tools.mcp.items():
        if server.command:
            yield f"tools.mcp.{name}.command", mcp_sandbox.program, (server.command,)
        yield f"tools.mcp.{name}.cwd", _require_folder, (home.root, server.cwd)
        for key in ("mounts", "writable"):
            for i, place in enumerate(getattr(server, key)):
                yield f"tools.mcp.{name}.{key}[{i}]", mcp_sandbox.bind, (place,)
    for i, folder in enumerate(settings.skills.folders):
        yield f"skills.folders[{i}]", _require_folder, (home.root, folder)
    for i, name in enumerate(settings.plugins.enabled):
        yield f"plugins.enabled[{i}]", _require_plugin, (home, name)
    if "://" not in updates.source:
        yield "updates.source", _require_there, (updates.source,)
    if updates.key:
        yield "updates.key", bundle.read_key, (updates.key,)
    if updates.folder != Config().updates.folder:  # the usual one is made by the appliance alone
        yield "updates.folder", _require_folder, (home.root, updates.folder)


def _list_hosts(settings: Config) -> Iterator[Check]:
    """Names and addresses of hosts, alone and within the address of a page."""
    mail, web, pages = settings.channels.email, settings.channels.web, settings.tools.web
    slack = settings.channels.slack
    hosts: dict[str, str] = {
        "channels.email.imap_host": mail.imap_host,
        "channels.email.smtp_host": mail.smtp_host,
        "channels.email.trusted_server": mail.trusted_server,
        **_number("channels.matrix.trusted_servers", settings.channels.matrix.trusted_servers),
    }
    for key, host in hosts.items():
        yield key, _require_host, (host,)
    for key, host in (
        _number("tools.web.allow_hosts", pages.allow_hosts) | _number("tools.web.block_hosts", pages.block_hosts)
    ).items():
        yield key, web_hosts.rules, ([host],)
    yield "channels.web.host", _require_own_address, (web.host,)
    addresses = {
        **{f"providers.{name}.base_url": provider.base_url for name, provider in settings.providers.items()},
        "tools.web_search.url": settings.tools.web_search.url,
        **{f"tools.mcp.{name}.url": server.url for name, server in settings.tools.mcp.items()},
        **{f"tools.mcp.{name}.issuer": server.issuer for name, server in settings.tools.mcp.items()},
        "channels.matrix.homeserver": settings.channels.matrix.homeserver,
        "channels.slack.api_url": slack.api_url,
        **{f"channels.slack.workspaces.{name}.api_url": one.api_url for name, one in slack.workspaces.items()},
        "channels.web.address": web.address,
        "updates.source": settings.updates.source if "://" in settings.updates.source else "",
    }
    for key, address in addresses.items():
        yield key, _require_address, (address,)


def _list_models(home: Home, settings: Config) -> Iterator[Check]:
    """Local models; what a provider offers only it knows."""
    if settings.models.script:
        return
    models = {"models.default": settings.models.default, "models.embedding": settings.models.embedding}
    models |= {f"routes.{name}.model": route.model for name, route in settings.routes.items() if route.provider == LOCAL}
    for key, model in models.items():
        yield key, _require_model, (home, model)


def _number(key: str, values: Collection[str]) -> dict[str, str]:
    return {f"{key}[{i}]": value for i, value in enumerate(values)}


# -- one value; "" is none ------------------------------------------------------------------------


def _require_secret(name: str, is_provider: bool, known: Known | None) -> None:
    kind = name.partition("/")[0]
    if not is_provider and kind not in HANDED:
        said = f"secret {name} never leaves the model broker" if kind == "llm" else f"{name!r} is not a name of a secret"
        raise BadInput(said, hint=f"name one of {', '.join(f'{one}/NAME' for one in HANDED)}")
    there = known.list_secrets() if known is not None else None
    if there is not None and name not in there:
        raise NotFound(f"there is no secret {name}", hint=f"owlbox secret set {name}, then try again")


def _require_person(name: str, known: Known | None) -> None:
    if not name:
        return
    there = known.list_people() if known is not None else None
    if there is not None and name not in there:
        try:
            pwd.getpwnam(name)  # a user of this machine is the person of the same name
        except KeyError:
            raise NotFound(
                f"there is no person {name!r}", hint=f"owlbox people list shows them; owlbox people add {name}"
            ) from None


def _require_group(name: str, configured: Collection[str], known: Known | None) -> None:
    there = known.list_groups() if name and name not in configured and known is not None else None
    if there is not None and name not in there:
        raise NotFound(f"there is no group {name!r}", hint=f"owlbox people group shows them; owlbox people group {name} --add NAME")


def _require_among(name: str, there: Collection[str], what: str, hint: str) -> None:
    if name and name not in there:
        raise NotFound(f"there is no {what} {name!r}", hint=hint)


def _require_target(home: Home, place: str) -> None:
    if sealed_backups.is_remote(place):
        sealed_backups.parse_place(place)
    elif place:
        backup_target.require_disk(home, backup_target.expand(place))


def _require_key_file(path: str) -> None:
    if path:
        sealed_backups.read_key_file(Path(path).expanduser())


def _require_certificate(home: Home, certificate: str, key: str) -> None:
    _require_file(home.root, certificate, "name a file in the PEM format")
    if certificate and (not key or (home.root / key).is_file()):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(home.root / certificate, home.root / (key or certificate))
        except (OSError, ValueError):  # one of TLS is an OSError
            raise BadInput(
                f"{certificate} holds no certificate with its private key", hint="name a file in the PEM format"
            ) from None


def _require_authorities(path: str) -> None:
    if path:
        try:
            ssl.create_default_context(cafile=path)
        except (OSError, ValueError) as error:
            why = "it holds none" if isinstance(error, ssl.SSLError | ValueError) else error.strerror
            hint = "name a file with certificates in the PEM format, or leave it empty"
            raise BadInput(f"no certificates can be read from {path}: {why}", hint=hint) from None


def _require_file(root: Path, path: str, hint: str) -> None:
    if path and not (root / path).is_file():
        raise NotFound(f"there is no file {root / path}", hint=hint)


def _require_folder(root: Path, path: str) -> None:
    if path and not (root / Path(path).expanduser()).is_dir():
        raise NotFound(f"there is no folder {root / Path(path).expanduser()}", hint="make it, or name another")


def _require_parent(root: Path, path: str) -> None:
    """A file that is made when it is missing needs a folder to be made in."""
    if path and (root / path).is_dir():
        raise BadInput(f"{root / path} is a folder", hint="name a file")
    if path:
        _require_folder(root, str((root / path).parent))


def _require_there(path: str) -> None:
    if path and not Path(path).expanduser().exists():
        raise NotFound(f"there is no {path}", hint="make it, or name another")


def _require_plugin(home: Home, name: str) -> None:
    if problems := plugin_files.check(home.box, [name]):
        raise NotFound(
            problems[0], hint="" if problems[0].endswith(")") else f"correct it in {home.box}, or take it out of the list"
        )


def _require_model(home: Home, model: str) -> None:
    if model and catalogue.in_use(home, model) is None:
        hint = f"owlbox model add {model}, when owlbox model list has it; or name one that is installed"
        raise NotFound(f"{model!r} is not a model in {home.models}", hint=hint)


def _require_host(host: str) -> None:
    if host and not HOST.fullmatch(host):
        raise BadInput(f"{host!r} is not a name or address of a host", hint="such as mail.example.org, without https://")


def _require_own_address(host: str) -> None:
    _require_host(host)
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as listening:
            listening.bind(found[0][4])
    except (OSError, UnicodeError):
        hint = "127.0.0.1 for this machine alone, 0.0.0.0 for every network; ip address shows others"
        raise BadInput(f"{host!r} is not an address of this machine", hint=hint) from None


def _require_address(text: str) -> None:
    """The address of a page or a server."""
    try:
        parts = urlsplit(text)
        is_fine = parts.scheme in ("http", "https") and HOST.fullmatch(parts.hostname or "") is not None and parts.port != 0
    except ValueError:
        is_fine = False
    if text and not is_fine:
        raise BadInput(f"{text!r} is not an address of a server", hint="such as https://mail.example.org")
