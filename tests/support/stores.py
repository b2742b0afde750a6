"""New databases for tests, at the price of a copy: made by the product once a process, its bytes written ever after.

What making one itself does is proved in `test_store`.
"""

import functools
import tempfile
from pathlib import Path

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.runtime.paths import Home
from appliance.skills.catalog import SkillCatalog
from appliance.skills.skill_records import SkillRecords
from appliance.store.database import Store
from appliance.upkeep import home_setup


@functools.cache
def fresh() -> bytes:
    """A new database."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "owlbox.db"
        Store.create(path).close()
        return path.read_bytes()


@functools.cache
def with_skills() -> bytes:
    """A new database in which a first start has written the skills that ship; that is half of what such a start does."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        store = new_store(home.database)
        SkillCatalog(home.box, Entries(store, Passages(store).index), SkillRecords(store), {}).sync()
        store.close()
        return home.database.read_bytes()


def new_store(path: Path) -> Store:
    """What `Store.create` gives: a new, empty, private database with all tables; an existing one is opened."""
    return _copy(fresh(), path)


def new_home(home: Home) -> None:
    """What `owlbox init` makes, after a first start has written the skills that ship."""
    home.root.mkdir(0o700, parents=True)
    _copy(with_skills(), home.database).close()
    home_setup.init(home, is_forced=True)


def _copy(database: bytes, path: Path) -> Store:
    if not path.exists():
        path.touch(0o600)
        path.write_bytes(database)
    return Store.open(path)


def let_chats_do_all(home: Home) -> None:
    """Give files, commands and the web to the assistant itself, for tests of what guards them there."""
    folder = home.box / "roles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "assistant.md").write_text("---\npreset: open\n---\n", encoding="utf-8")
