"""Values of the configuration that can be read and cannot work: an unknown zone, a missing file or model, no disk.

Asked when a key is set, when a running core reads its file again, and by the doctor. A core starts with such values all the same: a
stick that was pulled out must cost the backup and nothing else. Servers and hosts are not asked whether they answer.
"""

import re
import ssl
from collections.abc import Collection, Iterator
from pathlib import Path

from appliance.errors import ConfigError, OwlError
from appliance.language.times import timezones
from appliance.models import catalogue
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config
from appliance.service import backup_target, sealed_backups

HOST = re.compile(r"(?!-)[A-Za-z0-9.:_-]{1,253}")


def find_unworkable(home: Home, settings: Config) -> Iterator[ConfigError]:
    """What cannot work now, each with its key."""
    yield from _check_zones(settings)
    yield from _check_backups(home, settings)
    yield from _check_files(home, settings)
    yield from _check_hosts(settings)
    yield from _check_models(home, settings)


def require_workable(home: Home, settings: Config, keys: Collection[str]) -> None:
    """ConfigError for the first of these keys whose value cannot work."""
    for error in find_unworkable(home, settings):
        if error.key in keys:
            raise error


def _check_zones(settings: Config) -> Iterator[ConfigError]:
    zones = {
        "system.timezone": settings.system.timezone,
        "heartbeat.timezone": settings.heartbeat.timezone,
        "notifications.timezone": settings.notifications.timezone,
    }
    for key, zone in zones.items():
        try:
            timezones.require(zone)
        except OwlError as error:
            yield _name_key(key, error)


def _check_backups(home: Home, settings: Config) -> Iterator[ConfigError]:
    keys = settings.backups
    try:
        if sealed_backups.is_remote(keys.target):
            sealed_backups.parse_place(keys.target)
        elif keys.target:
            backup_target.require_disk(home, backup_target.expand(keys.target))
    except OwlError as error:
        yield _name_key("backups.target", error)
    try:
        if keys.key_file:
            sealed_backups.read_key_file(Path(keys.key_file).expanduser())
    except OwlError as error:
        yield _name_key("backups.key_file", error)


def _check_files(home: Home, settings: Config) -> Iterator[ConfigError]:
    web = settings.channels.web
    if web.certificate:
        certificate, key = home.root / web.certificate, home.root / web.key if web.key else None
        named = "channels.web.certificate" if not certificate.is_file() or key is None or key.is_file() else "channels.web.key"
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:  # one of TLS is an OSError
            why = (
                "there is no such file" if isinstance(error, FileNotFoundError) else "it holds no certificate with its private key"
            )
            shown = web.certificate if named.endswith("certificate") else web.key
            yield ConfigError(f"{named} = {shown!r} cannot be used: {why}", key=named, hint="name files in PEM")
    for name, provider in settings.providers.items():
        if provider.ca_file:
            place = f"providers.{name}.ca_file"
            try:
                ssl.create_default_context(cafile=provider.ca_file)
            except (OSError, ValueError):
                hint = "name a file with certificates in PEM, or leave it empty"
                words = f"{place} = {provider.ca_file!r} cannot be used: no certificates can be read from it"
                yield ConfigError(words, key=place, hint=hint)


def _check_hosts(settings: Config) -> Iterator[ConfigError]:
    mail = settings.channels.email
    hosts = {
        "channels.email.imap_host": mail.imap_host,
        "channels.email.smtp_host": mail.smtp_host,
        "channels.web.host": settings.channels.web.host,
    }
    for key, host in hosts.items():
        if host and not HOST.fullmatch(host):
            hint = "such as mail.example.org, without https://"
            yield ConfigError(f"{key} = {host!r} is no name or address of a host", key=key, hint=hint)


def _check_models(home: Home, settings: Config) -> Iterator[ConfigError]:
    """Local models that no file has; what a provider offers only it knows."""
    if settings.models.script:
        return
    models = {"models.default": settings.models.default, "models.embedding": settings.models.embedding}
    models |= {f"routes.{name}.model": route.model for name, route in settings.routes.items() if route.provider == LOCAL}
    for key, model in models.items():
        if model and catalogue.in_use(home, model) is None:
            hint = f"owlbox model add {model}, when owlbox model list has it; or name one that is installed"
            yield ConfigError(f"{key} = {model!r} is no model in {home.models}", key=key, hint=hint)


def _name_key(key: str, error: OwlError) -> ConfigError:
    return ConfigError(f"{key} cannot work: {error.message}", key=key, hint=error.hint)
