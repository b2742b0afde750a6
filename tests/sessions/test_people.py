"""Who is who: addresses and persons, groups, rights, and an admin who acts for somebody."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from process import Box, a_box  # noqa: F401
from stores import new_store

from appliance.errors import BadInput, Conflict, NotFound
from appliance.records import Inbound
from appliance.runtime.users import user_name
from appliance.sessions.history import Owner
from appliance.sessions.people import People, PersonRules
from appliance.sessions.runs import Runs
from appliance.store.database import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def people(store: Store) -> People:
    rules = PersonRules(("root",), "root", (Owner("@me:example.org", "matrix"),), {"crew": ["ann"]})
    return People(store, lambda: rules)


@pytest.mark.covers("A-265")
def test_each_address_is_a_person_of_its_own_until_it_is_linked(store: Store, people: People) -> None:
    runs = Runs(store, "", identities=people)
    people.add_person("ann")
    for channel, sender in (("local", "ann"), ("mail", "ann"), ("mail", "../ann"), ("matrix", "@me:example.org")):
        with store.write():
            runs.touch_session(Inbound(channel, sender, "hi", f"{channel}-{sender}", 1))
    contexts = {one.id: one.context for one in runs.people.list_sessions()}
    assert contexts == {
        "local:ann": "user:ann",
        "mail:ann": "user:mail:ann",
        "mail:../ann": "user:mail:..%2Fann",
        "matrix:@me:example.org": "user:root",
    }
    people.link_identity("mail/ben@example.org", "ann")
    with store.write():
        runs.touch_session(Inbound("mail", "ben@example.org", "hi", "b", 1))
    assert runs.people.get("mail:ben@example.org").context == "user:ann"


def test_address_is_found_by_its_primary_key(store: Store, people: People) -> None:
    people.add_person("ann")
    people.link_identity("matrix/@ann:example.org", "ann")
    assert people.resolve("matrix", "@ann:example.org") == "ann"
    assert people.resolve("matrix", "@Ann:example.org") == "matrix:@Ann%3Aexample.org"
    plan = store.rows("EXPLAIN QUERY PLAN SELECT person FROM identities WHERE channel = ? AND address = ?", ("a", "b"))
    assert "USING PRIMARY KEY" in str(plan)


def test_link_group_and_removal_refuse_what_cannot_be(people: People) -> None:
    for name in ("ann", "ben"):
        people.add_person(name)
    people.link_identity("mail/a@example.org", "ann")
    with pytest.raises(Conflict, match="linked to ann"):
        people.link_identity("mail/a@example.org", "ben")
    for wrong in ("mail", "/x", "a:b/c"):
        with pytest.raises(BadInput):
            people.link_identity(wrong, "ann")
    with pytest.raises(NotFound, match="no person zoe"):
        people.change_group("family", add=["zoe"])
    with pytest.raises(BadInput):
        people.add_person("user:ann")
    people.change_group("family", add=["ann", "ben"])
    people.change_group("family", remove=["ben"])
    assert people.groups_of("ann") == ("crew", "family") and people.list_groups() == {"crew": ["ann"], "family": ["ann"]}
    people.remove_person("ann")
    assert people.resolve("mail", "a@example.org") == "mail:a@example.org" and people.groups_of("ann") == ("crew",)


@pytest.mark.covers("A-269")
def test_rights_are_those_of_the_configuration(people: People) -> None:
    assert [people.add_person(name).rights for name in ("ann", "root")] == ["standard", "admin"]


def test_the_cores_own_user_is_an_admin_without_being_named(store: Store) -> None:
    people = People(store, lambda: PersonRules(admins=("ann",)))
    assert [people.add_person(name).rights for name in ("ann", "ben", user_name(os.getuid()))] == ["admin", "standard", "admin"]


@pytest.mark.covers("A-267")
def test_an_admin_acts_for_a_person(box: Box) -> None:
    for name in ("ann", "ben"):
        box.run("people", "add", name)
    box.run("task", "add", "water the garden", "--user", "ann")
    box.run("task", "add", "mow the lawn")
    assert [one["name"] for one in listed(box, "--user", "ann")] == ["water the garden"]
    assert len(listed(box)) == 2 and listed(box, "--user", "ben") == []


def test_a_deactivated_person_is_shown_as_such_until_they_are_active_again(box: Box) -> None:
    box.run("people", "add", "ann")
    assert "undoes that" in box.run("people", "deactivate", "ann").stdout
    assert "deactivated" in box.run("people", "list").stdout and "ann: deactivated" in box.run("people", "show", "ann").stdout
    assert "served again" in box.run("people", "activate", "ann").stdout
    assert "ann: standard rights" in box.run("people", "show", "ann").stdout
    assert box.run("people", "deactivate", "zoe").returncode == 3


def listed(box: Box, *more: str) -> list[dict[str, str]]:
    """The tasks that a command is shown."""
    return list(json.loads(box.run("task", "list", *more, "--json").stdout))


def test_who_is_known_is_one_who_was_added_talked_or_has_a_user_here(store: Store, people: People) -> None:
    people.add_person("bert")
    runs = Runs(store, "", identities=people)
    with store.write():
        runs.touch_session(Inbound("mail", "eve@x", "hi", "1", 1))
    for context in ("user:bert", "user:root", "user:ann", "user:mail:eve@x", "user:daemon", "group:crew"):
        people.require_known(context)
    for context, hint in (("user:brt", "did you mean bert?"), ("user:zoe", "people list"), ("group:crow", "did you mean crew?")):
        with pytest.raises(NotFound) as caught:
            people.require_known(context)
        assert hint in caught.value.hint


def test_the_owner_is_named_and_has_other_names(box: Box) -> None:
    me = user_name(os.getuid())
    terminal, end = os.openpty()
    os.write(terminal, b"yes\n")
    asked = subprocess.run(box.command("people", "invite", "ada"), env=box.environ, stdin=end, capture_output=True, text=True)
    assert f"Is ada you, {me}, the owner of this installation?" in asked.stderr and f"for {me}, once" in asked.stdout
    for name in ("", "ada"):
        invite = box.run("people", "invite", *filter(None, [name]))
        assert f"for {me}, once" in invite.stdout and "beside" not in invite.stdout
    token = box.run("people", "token", "lamp", "--person", "house")
    assert "as house" in token.stdout and f"house is not {me}, the owner, but another person" in token.stdout
    found = {one["name"]: one for one in box.json("people", "list")}
    assert set(found) == {me, "house"} and (found[me]["is_owner"], found["house"]["is_owner"]) == (True, False)
    assert found[me]["identities"] == ["local/ada"]
    assert f"owner        {me}" in box.run("status").stdout
