"""The configuration keys of looking after an installation, such as backups.

Part of the tree in `runtime.settings`.
"""

from appliance.runtime.config_keys import Keys, setting


class Backups(Keys):
    """Copies that `owlbox backup` makes: docs/guides/backup.md."""

    keep: int = setting(14, "Backups kept in one folder; older ones are removed.", within=(1, 10_000))
    keep_days: int = setting(60, "Backups older than this are removed, but for the newest; 0 keeps them.", within=(0, 36_500))
    warn_days: float = setting(
        7, "`owlbox doctor` warns when the newest backup is older than this; 0 does not.", within=(0, 36_500)
    )

    target: str = setting(
        "", "Where backups go that name no place: a folder, or `sftp://user@host/folder`; empty means backups/ of the home."
    )
    key_file: str = setting("", "File whose content encrypts backups; empty leaves them plain. Keep a copy elsewhere.")


class Retention(Keys):
    """What is forgotten by age. What was said is never dropped."""

    undo_days: int = setting(
        90, "What `owlbox undo` needs of a thread is kept this long after its last change; 0 keeps it.", within=(0, 36_500)
    )
    history_days: int = setting(
        365, "Changes of entries are listed this long, the newest of each entry always; 0 keeps them.", within=(0, 36_500)
    )


class Logs(Keys):
    """Files of logs, where no journal keeps them: docs/guides/watching.md."""

    file_mb: float = setting(
        5, "A file that has grown to this is turned over.", seed="A log rotation size", within=(0.01, 10_000), mark="restart"
    )
    files: int = setting(
        3, "Turned-over files that each process keeps.", seed="A log rotation files", within=(1, 9), mark="restart"
    )
    keep_days: int = setting(
        28, "Turned-over files older than this are removed; 0 keeps them.", seed="A log rotation age", within=(0, 36_500)
    )
    compress: bool = setting(True, "Turned-over files are compressed.", seed="A log rotation compress", mark="restart")


class Updates(Keys):
    """Signed bundles with another version: docs/guides/upgrade.md."""

    enabled: bool = setting(False, "Ask the source for a newer version, at most once a day. Nothing is applied by itself.")
    source: str = setting("", "Where bundles are: an https address, a folder or a file.")
    key: str = setting("", "Public key that must have signed a bundle, in base64; empty means the one that was installed.")
    folder: str = setting("/opt/owlbox", "Where the versions lie, with the link `current`.")


class Metrics(Keys):
    """Figures for Prometheus: docs/guides/watching.md."""

    port: int = setting(0, "Port of 127.0.0.1 that answers /metrics and /health; 0 opens none.", within=(0, 65_535))
