"""Whom the owl knows by name: from people's documents and from those who write to it."""

from pathlib import Path

import pytest

from appliance.clock import now_ms
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.known_names import KnownNames, spoken
from appliance.knowledge.search import Search
from appliance.records import Inbound
from appliance.sessions.runs import Runs
from appliance.store.database import Store


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("ada", "Ada"),
        ("@ada:matrix.org", "Ada"),
        ("ada.lovelace@example.org", "Ada Lovelace"),
        ("Ada Lovelace", "Ada Lovelace"),
        ("zoë", "Zoë"),
        ("1000", ""),
        ("U02ABC", ""),
        ("root", ""),
        ("owl", ""),
        ("info@example.org", ""),
        ("What Ada told me about the pump", ""),
        ("", ""),
        ("@", ""),
        ("a", ""),
    ],
)
def test_a_name_is_what_stands_in_a_text(known: str, name: str) -> None:
    assert spoken(known) == name


def test_names_come_from_documents_and_senders_and_search_knows_them(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries, runs = Entries(store, passages.index), Runs(store, "")
    entries.set("box://users/cleo/likes.md", "tea")
    entries.set("box://notes/people/dora.md", "likes cats", title="Dora Maar")
    entries.set("box://notes/people/eve.md", "What I know of her")
    entries.set("box://notes/pump.md", "Bertha")
    with store.write():
        runs.touch_session(Inbound("matrix", "@ada:example.org", "hello", "m1", now_ms()))
        runs.touch_session(Inbound("local", "root", "hello", "m2", now_ms()))
    entries.set("memory://talk", "Ada: I had tea\nBob: I had tea\n" * 20)
    familiar = KnownNames(store)
    assert set(familiar.names()) == {"Cleo", "Dora", "Dora Maar", "Eve", "Ada"}
    finder = Search(store, passages, familiar.names)
    assert finder.question("What did Dora Maar's cat and Bob do?") == "What did cat and do?"
    entries.set("box://users/ada/name.md", "Her full name", title="Ada Lovelace")
    ranked = finder.ranked("What did Ada have with her tea?")
    speakers = dict(store.rows("SELECT id, who FROM chunks"))
    assert {speakers[key] for key, _ in ranked[:10]} == {"Ada"}
    store.close()
