"""The configuration keys of looking after an installation, such as backups.

Part of the tree in `runtime.settings`.
"""

from appliance.runtime.config_keys import Keys, setting


class Backups(Keys):
    """Copies that `owlbox backup` makes: docs/guides/backup.md."""

    keep: int = setting(14, "Backups kept in one folder; older ones are removed.", within=(1, 10_000))

    target: str = setting(
        "", "Where backups go that name no place: a folder, or `sftp://user@host/folder`; empty means backups/ of the home."
    )
    key_file: str = setting("", "File whose content encrypts backups; empty leaves them plain. Keep a copy elsewhere.")


class Updates(Keys):
    """Signed bundles with another version: docs/guides/upgrade.md."""

    enabled: bool = setting(False, "Ask the source for a newer version, at most once a day. Nothing is applied by itself.")
    source: str = setting("", "Where bundles are: an https address, a folder or a file.")
    key: str = setting("", "Public key that must have signed a bundle, in base64; empty means the one that was installed.")
    folder: str = setting("/opt/owlbox", "Where the versions lie, with the link `current`.")


class Metrics(Keys):
    """Figures for Prometheus: docs/guides/watching.md."""

    port: int = setting(0, "Port of 127.0.0.1 that answers /metrics and /health; 0 opens none.", within=(0, 65_535))
