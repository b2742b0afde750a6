"""Commands made from definitions: how arguments are typed, what is sent, how a result is told."""

import argparse
from typing import Any

import pytest

from appliance.cli import main
from appliance.console import verbs
from appliance.console.verbs import Noun, Verb
from appliance.errors import BadInput


def parsed(*words: str, verb: Verb | None = None) -> argparse.Namespace:
    """What a command line is read as; a verb of one's own stands under `owlbox test`."""
    if verb is None:
        return main.parser(list(words)).parse_args(list(words))
    root, command, _ = main.root_parser(lambda args, home: 0)
    verbs.add(command, Noun("test", "a test", (verb,)))
    return root.parse_args(["test", *words])


def sent(*words: str, verb: Verb | None = None) -> dict[str, Any]:
    """The parameters that a command line sends."""
    return verbs.parameters(parsed(*words, verb=verb))


def told(verb: Verb, found: Any, **given: Any) -> verbs.Told:
    """What people are told of a result."""
    return verbs.tell(argparse.Namespace(**given), verb, found)


def test_arguments_of_a_definition_are_typed_without_a_word_about_them() -> None:
    verb = Verb("list", "login.list")
    assert sent("list", verb=verb) == {}
    assert sent("list", "--person", "ann", verb=verb) == {"person": "ann"}
    assert sent("activate", "ann", "--active", verb=Verb("activate", "people.activate")) == {"person": "ann", "is_active": False}


def test_an_argument_may_be_called_and_placed_otherwise() -> None:
    assert sent("people", "link", "ann", "matrix/@ann:x.org") == {"person": "ann", "identity": "matrix/@ann:x.org"}
    assert sent("people", "deactivate", "ann") == {"person": "ann", "is_active": False}
    assert sent("list", "ann", "b", verb=Verb("list", "login.list", "person*")) == {"person": "ann b"}
    assert sent("list", verb=Verb("list", "login.list", "--person@ben")) == {"person": "ben"}


def test_an_argument_that_the_definition_has_not_is_a_fault_of_the_verb() -> None:
    with pytest.raises(ValueError, match="--limit is no parameter of login.list"):
        sent("list", verb=Verb("list", "login.list", "--limit"))


def test_a_word_too_many_and_a_missing_one_are_bad_usage() -> None:
    for words in (("people", "show"), ("people", "show", "ann", "ben"), ("people", "keys", "--persona", "ann")):
        with pytest.raises(BadInput):
            parsed(*words)


def test_records_are_told_as_a_table_by_columns_or_by_all_that_is_short() -> None:
    rows = [{"name": "ann", "seen_ms": 0, "is_active": True, "groups": ["a", "b"], "more": {"x": 1.5}}]
    some = told(Verb("list", rows="person=name groups~ last_seen=seen_ms x=more.x more", empty="none"), rows)
    heads = ["person", "groups", "last seen", "x", "more"]
    assert some == verbs.Table([["ann", "a, b", "", "1.5", '{"x": 1.5}']], heads, ["groups"], "none")
    every = told(Verb("list"), rows)
    assert isinstance(every, verbs.Table) and (list(every.heads), every.rows) == (["name", "seen", "active"], [["ann", "", "yes"]])


def test_a_record_is_told_as_lines_without_what_is_empty_and_a_sentence_by_its_fields() -> None:
    found = {"name": "ann", "note": "", "until_ms": 86_400_000 * 365, "tags": ("x", "y")}
    assert told(Verb("show"), found) == ["name: ann", f"until: {verbs.cell(found, 'until_ms', {})}", "tags: x, y"]
    assert told(Verb("show", says="{name} by {person}\nuntil {until_ms}"), found, person="ben")[0] == "ann by ben"
    assert told(Verb("show"), "text\n") == "text"
    assert told(Verb("show", cells={"name": lambda one: one["name"].upper()}, fields="who=name"), found) == ["who: ANN"]
