"""What is remembered about skills beside their files: which text of one is trusted and by whom, and how often one was used.

The only writer of table `skills`. Trust is for a text: a skill whose files change is a stranger again.
"""

import msgspec

from appliance.clock import now_ms
from appliance.store.database import Store


class SkillRecord(msgspec.Struct, frozen=True):
    """What is remembered about one skill. `owner` is "" for everybody's, else `user:ID` or `group:ID`."""

    owner: str
    name: str
    trusted_hash: str = ""
    trusted_by: str = ""
    source: str = ""
    uses: int = 0
    used_ms: int = 0


class SkillRecords:
    """Reads and writes the table."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, owner: str, name: str) -> SkillRecord:
        """The record of a skill; an empty one where nothing is remembered."""
        sql = "SELECT owner, name, trusted_hash, trusted_by, source, uses, used_ms FROM skills WHERE owner = ? AND name = ?"
        row = self._store.row(sql, (owner, name))
        return SkillRecord(owner, name) if row is None else SkillRecord(*row)

    def trust(self, owner: str, name: str, text_hash: str, by: str) -> None:
        """Trust the text of a skill that has this hash; "" ends the trust. Durable."""
        with self._store.write(durable=True) as execute:
            execute(
                "INSERT INTO skills (owner, name, trusted_hash, trusted_by) VALUES (?1, ?2, ?3, ?4) "
                "ON CONFLICT (owner, name) DO UPDATE SET trusted_hash = ?3, trusted_by = ?4",
                (owner, name, text_hash, by),
            )

    def set_source(self, owner: str, name: str, source: str) -> None:
        """Keep where a skill was installed from. Durable."""
        with self._store.write(durable=True) as execute:
            execute(
                "INSERT INTO skills (owner, name, source) VALUES (?1, ?2, ?3) ON CONFLICT (owner, name) DO UPDATE SET source = ?3",
                (owner, name, source),
            )

    def count_use(self, owner: str, name: str) -> None:
        """Count that a skill was read or called. Not durable: a lost count harms nobody."""
        with self._store.write() as execute:
            execute(
                "INSERT INTO skills (owner, name, uses, used_ms) VALUES (?1, ?2, 1, ?3) "
                "ON CONFLICT (owner, name) DO UPDATE SET uses = uses + 1, used_ms = ?3",
                (owner, name, now_ms()),
            )

    def forget(self, owner: str, name: str) -> None:
        """Remove what is remembered about a skill that is gone. Durable."""
        with self._store.write(durable=True) as execute:
            execute("DELETE FROM skills WHERE owner = ? AND name = ?", (owner, name))
