"""Records of memory as files, and what conversations give."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, OwlError, TooLarge
from appliance.language.word_forms import find_same, is_same
from appliance.memory.memory_record import (
    MemoryRecord,
    check_topic,
    from_markdown,
    require_owner,
    to_markdown,
    topic_folder,
)
from appliance.memory.session_review import extract_candidates, title_of

FULL = MemoryRecord(
    id="m1",
    text="Tea with milk.\n\n- no sugar\n---\nat five",
    title='Tea: "milk" # no sugar',
    scope="group",
    owner="home",
    kind="preference",
    topic="User Preferences!",
    tags=("tea", "true", "7"),
    labels={"from": "chat", "n": "1"},
    importance=7,
    confidence=0.65,
    is_verified=True,
    version=3,
    source="session:s1",
    ttl_s=60,
    created_ms=1_795_000_000_123,
    updated_ms=1_795_000_000_456,
)


@pytest.mark.covers("A-232")
def test_a_record_survives_being_written_and_read() -> None:
    assert from_markdown(to_markdown(FULL)) == FULL
    least = MemoryRecord(id="x", text="a")
    assert from_markdown(to_markdown(least)) == least


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(
        st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\u2028\u2029\x85\ufeff"), min_size=1, max_size=200
    ),
    title=st.text(st.characters(whitelist_categories=("L", "N", "P", "S")), max_size=60),
    tag=st.text(st.characters(whitelist_categories=("L", "N", "P")), min_size=1, max_size=20),
)
def test_any_text_survives(text: str, title: str, tag: str) -> None:
    record = MemoryRecord(id="m", text=text.strip("\n"), title=title.strip(), tags=(tag,), created_ms=5, updated_ms=6)
    assert from_markdown(to_markdown(record)) == record


@pytest.mark.covers("A-232")
@pytest.mark.parametrize(
    ("broken", "outcome"),
    [
        (" \n", "empty"),
        ("# Tea\n", "no_metadata"),
        ("---\nid: x\n# Tea\n", "no_closing_fence"),
        ("---\ntype: note\ncreated: 2026-01-01\nupdated: 2026-01-01\n---\n# T\n", "no_id"),
        ("---\nid: x\ncreated: 2026-01-01\nupdated: 2026-01-01\n---\n# T\n", "no_type"),
        ("---\nid: x\ntype: note\nupdated: 2026-01-01\n---\n# T\n", "no_created"),
        ("---\nid: x\ntype: note\ncreated: 2026-01-01\n---\n# T\n", "no_updated"),
        ("---\nid: x\ntype: note\ncreated: soon\nupdated: 2026-01-01\n---\n# T\n", "bad_created"),
        ("---\nid: x\ntype: note\ncreated: 2026-01-01\nupdated: later\n---\n# T\n", "bad_updated"),
        ("---\nid: x\ntype: poem\ncreated: 2026-01-01\nupdated: 2026-01-01\n---\n# T\n", "bad_type"),
        ("---\nid: x\ntype: note\ncreated: 2026-01-01\nupdated: 2026-01-01\nscope: all\n---\n# T\n", "bad_scope"),
        ("---\nid: x\ntype: note\ncreated: 2026-01-01\nupdated: 2026-01-01\nimportance: high\n---\n# T\n", "bad_importance"),
        ("---\nid: x\ntype: note\ncreated: 2026-01-01\nupdated: 2026-01-01\ntags: tea\n---\n# T\n", "bad_tags"),
    ],
)
def test_each_fault_has_an_error_of_its_own(broken: str, outcome: str) -> None:
    with pytest.raises(OwlError) as caught:
        from_markdown(broken)
    assert caught.value.outcome == outcome


@pytest.mark.covers("A-234", "A-236", "E-318")
def test_owners_scopes_and_topics_are_checked() -> None:
    assert require_owner("user", "../../../etc") == ("user", "etc") and require_owner("group", "user@123!x") == (
        "group",
        "user-123-x",
    )
    assert require_owner("user", "ada.b") == ("user", "ada.b")
    for scope, owner in (("all", "ada"), ("", "ada"), ("user", ""), ("user", "../"), ("user", "///")):
        with pytest.raises(BadInput):
            require_owner(scope, owner)
    assert [topic_folder(t) for t in ("User Preferences!", "@#$", "Größe")] == ["user-preferences", "general", "größe"]
    for topic in ("../x", "a/b", "a\\b", "x" * 101):
        with pytest.raises(BadInput):
            check_topic(topic)
    with pytest.raises(TooLarge):
        to_markdown(MemoryRecord(id="x", text="y" * (101 << 10)))


@pytest.mark.covers("A-238", "E-319")
def test_phrases_give_candidates_within_their_bounds() -> None:
    assert extract_candidates(["i prefer"]) == []
    (one,) = extract_candidates(["Hello. I prefer tea with milk. Bye."])
    assert (one.kind, one.text, one.confidence, one.importance) == ("preference", "I prefer tea with milk.", 0.65, 5)
    assert len(extract_candidates(["I prefer tea and my favourite cup is blue."])) == 1
    assert [c.kind for c in extract_candidates(["We decided to move. My son is called Tom. I am working on the shed."])] == [
        *("decision", "fact", "context")
    ]
    assert [c.kind for c in extract_candidates(["I am working on the shed.", "I prefer tea at five."], least=0.62)] == [
        "preference"
    ]
    many = [f"I prefer number {n} over the others." for n in range(12)]
    assert len(extract_candidates(many)) == 10 and len(extract_candidates(many, most=3)) == 3
    assert extract_candidates(many, denied=["preferences"]) == extract_candidates(many, allowed=["facts"]) == []
    assert extract_candidates(["Do you know what I prefer?", "/tea I prefer tea"]) == []
    assert [
        c.kind for c in extract_candidates(["Ich bevorzuge Tee mit Milch.", "Je préfère le thé noir.", "Prefiero el té negro."])
    ] == [*("preference",) * 3]
    assert title_of("x" * 60, "fact") == "x" * 47 + "... (fact)" and title_of("short", "fact") == "short (fact)"


def test_what_says_the_same_is_one_memory_and_what_differs_in_what_matters_is_two() -> None:
    same = [("The garage code is 4711.", "the garage code is 4711"), ("I like green tea a lot", "I like a lot of green tea")]
    for first, second in same:
        assert is_same(first, second)
    other = [
        ("The garage code is 4711.", "The garage code is 4712."),
        ("I like green tea", "I do not like green tea"),
        ("The doctor of Tom is nice", "The doctor of Ann is nice"),
        ("I like tea", "The car is red"),
    ]
    for first, second in other:
        assert not is_same(first, second, 0.99)
    assert is_same("my sister lives in town now", "my sister lives in the city now", 0.93)
    assert not is_same("my sister lives in town now", "my sister lives in the city now", 0.5)
    assert find_same("Tea at five", ["Milk", "tea at five!"]) == 1 and find_same("Tea", []) is None
