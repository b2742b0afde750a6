"""The parts of the adapters for themselves: events out of bytes, schemas, and conversations in order."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, ProviderError
from appliance.providers import formats, sse
from appliance.providers.conversation import GO_ON, LEFT_OUT, NAME, NO_RESULT, ToolNames, read
from appliance.providers.http_provider import Hosted
from appliance.providers.sse import SseEvent, SseEvents
from appliance.providers.tool_schemas import flat, subset
from appliance.records import Ask, Dialect, Message, Part, ToolCall, ToolSpec
from appliance.runtime.config_keys import About

# -- events --------------------------------------------------------------------------------------------------


def events(*parts: bytes) -> list[SseEvent]:
    reader = SseEvents()
    return [sent for part in parts for sent in reader.feed(part)] + reader.close()


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"data: a\n\n", [SseEvent("", "a")]),
        (b"data:a\n\n", [SseEvent("", "a")]),
        (b"data:  a\n\n", [SseEvent("", " a")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [SseEvent("", "a"), SseEvent("", "b")]),
        (b"data: a\r\rdata: b\r\r", [SseEvent("", "a"), SseEvent("", "b")]),
        (b"data: a\ndata: b\n\n", [SseEvent("", "a\nb")]),
        (b"data: a\r\ndata: b\r\n\r\n", [SseEvent("", "a\nb")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [SseEvent("x", "a"), SseEvent("", "b")]),
        (b": comment\n\ndata: a\n\n: ping\n\n", [SseEvent("", "a")]),
        (b"id: 7\nretry: 10\nodd\ndata: a\n\n", [SseEvent("", "a")]),
        (b"event: nothing\n\ndata: a\n\n", [SseEvent("", "a")]),
        (b"data\n\n", [SseEvent("", "")]),
        (b"data: a", [SseEvent("", "a")]),
        (b"data: a\n", [SseEvent("", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SseEvent("", "a")]),
        ("data: Käuzchen 🦉\n\n".encode(), [SseEvent("", "Käuzchen 🦉")]),
        (b"data: \xff\n\n", [SseEvent("", "\ufffd")]),
        (b"", []),
    ],
)
def test_events_are_read(data: bytes, want: list[SseEvent]) -> None:
    assert events(data) == want
    assert events(*(bytes([byte]) for byte in data)) == want


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from([b"data: a", b"data: \xf0\x9f\xa6\x89", b"event: e", b": c", b"\n", b"\r\n", b"\r", b"\n\n"]), max_size=30
    ),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_where_bytes_are_cut_changes_nothing(words: list[bytes], cuts: list[int]) -> None:
    data = b"".join(words)
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    assert events(*(data[a:b] for a, b in zip(places, places[1:]))) == events(data)


def test_a_line_or_an_event_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    reader = SseEvents()
    with pytest.raises(ProviderError, match="no answer"):
        for _ in range(sse.MAX_LINE_BYTES // 65536 + 2):
            reader.feed(b"x" * 65536)
    reader = SseEvents()
    with pytest.raises(ProviderError, match="no answer"):
        for _ in range(sse.MAX_EVENT_BYTES // 65536 + 2):
            reader.feed(b"data: " + b"x" * 65536 + b"\n")


# -- schemas -------------------------------------------------------------------------------------------------

NESTED = {
    "type": "object",
    "properties": {
        "place": {"$ref": "#/$defs/Place", "description": "Where."},
        "tree": {"$ref": "#/$defs/Tree"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "level": {"enum": [1, 2, 3]},
        "mode": {"const": "fast"},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "free": {"type": "object", "additionalProperties": True},
        "names": {"type": ["array", "null"], "items": {"type": "string", "format": "uri"}},
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9},
    },
    "required": ["place", "gone"],
    "additionalProperties": False,
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
        "Place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "Tree": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}},
    },
}


def test_references_are_replaced_by_what_they_mean() -> None:
    found = flat(NESTED)
    assert "$ref" not in json.dumps(found) and "$defs" not in found
    assert found["properties"]["place"] == {**NESTED["$defs"]["Place"], "description": "Where."}  # type: ignore[index]
    assert found["properties"]["tree"]["properties"]["children"]["items"] == {"type": "object"}
    assert found["additionalProperties"] is False
    assert flat({}) == {"type": "object", "properties": {}}


def test_a_subset_has_only_what_gemini_takes() -> None:
    found = subset(NESTED)["properties"]
    assert found["place"] == {
        "type": "OBJECT", "properties": {"x": {"type": "NUMBER"}}, "required": ["x"], "description": "Where."
    }  # fmt: skip
    assert found["limit"] == {"type": "INTEGER", "nullable": True, "description": "(default: null)"}
    assert found["level"] == {"type": "INTEGER", "description": "One of [1, 2, 3]."}
    assert found["mode"] == {"type": "STRING", "enum": ["fast"]}
    assert found["either"] == {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}
    assert found["free"] == {"type": "OBJECT"}
    assert found["names"] == {"type": "ARRAY", "nullable": True, "items": {"type": "STRING"}}
    assert found["count"] == {"type": "INTEGER", "minimum": 1, "description": "(exclusiveMaximum: 9)"}
    assert subset(NESTED)["required"] == ["place"]


SCHEMAS = st.recursive(
    st.sampled_from(
        [{"type": "string"}, {"type": "null"}, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"enum": [None, 1]}, {}, True]
    ),
    lambda inner: st.one_of(
        st.builds(lambda s: {"type": "array", "items": s}, inner),
        st.builds(lambda s: {"anyOf": s}, st.lists(inner, max_size=3)),
        st.builds(lambda s: {"allOf": s}, st.lists(inner, max_size=2)),
        st.builds(
            lambda s: {"type": "object", "properties": s, "required": ["a"]},
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        ),
    ),
    max_leaves=8,
)


def test_what_belongs_to_another_type_is_left_out() -> None:
    both = {"allOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}]}
    assert subset({"type": "object", "properties": {"a": both}})["properties"]["a"] == {"type": "STRING"}


@settings(max_examples=200)
@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_any_schema_becomes_one_that_is_taken(whole: Any, first: Any, second: Any) -> None:
    schema = {"type": "object", "properties": {"a": whole}, "$defs": {"A": first, "B": second}}
    assert "$ref" not in json.dumps(flat(schema))
    found = json.dumps(subset(schema))
    assert not any(f'"{word}":' in found for word in ("$ref", "oneOf", "allOf", "const", "additionalProperties"))


# -- conversations -------------------------------------------------------------------------------------------


def talk(*messages: Message, dialect: Dialect = "native", **more: Any) -> list[tuple[str, Any]]:
    found = read(Ask((), messages, dialect=dialect), has_images=False, **more).turns
    return [(turn.role, [*(r.text for r in turn.results), *turn.texts, *(c.id for c in turn.calls)]) for turn in found]


def user(text: str) -> Message:
    return Message("user", text)


def called(*ids: str, text: str = "") -> Message:
    return Message("assistant", text, tool_calls=tuple(ToolCall(id, "add", {}) for id in ids))


def result(id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=id)


def test_what_one_side_said_in_a_row_is_one_turn() -> None:
    assert talk(user("a"), user("b"), Message("assistant", "c"), Message("assistant", "d"), user("e")) == [
        ("user", ["a", "b"]),
        ("assistant", ["c", "d"]),
        ("user", ["e"]),
    ]


def test_each_call_is_followed_by_its_result_or_by_one_that_says_there_is_none() -> None:
    assert talk(user("a"), called("x", "y"), user("wait"), result("x", "5"), called("z")) == [
        ("user", ["a"]),
        ("assistant", ["x", "y"]),
        ("user", ["5", NO_RESULT, "wait"]),
        ("assistant", ["z"]),
        ("user", [NO_RESULT]),
    ]


@pytest.mark.covers("E-327")
def test_calls_and_results_are_words_where_calls_are_made_in_words() -> None:
    line = '{"name": "add", "arguments": {}}'
    assert talk(user("a"), called("x", text="I add."), result("x", "5"), called("y"), dialect="tags") == [
        ("user", ["a"]),
        ("assistant", ["I add.", line]),
        ("user", ["Result of add:\n5"]),
        ("assistant", [line]),
        ("user", ["Go on."]),
    ]


def test_a_result_whose_call_is_gone_is_told_in_words() -> None:
    assert talk(result("x", "5")) == [("user", ["Result of x:\n5"])]


def test_ids_are_used_once_and_fit_every_provider() -> None:
    messages = (
        user("a"),
        called("call_1"),
        result("call_1", "5"),
        called("call_1"),
        result("call_1", "6"),
        called("süß!"),
        user("b"),
    )
    ids = [id for role, words in talk(*messages) if role == "assistant" for id in words]
    assert len(set(ids)) == 3 and ids[0] == "call_1"
    assert all(id.isascii() and id.replace("_", "").isalnum() for id in ids)
    assert [words[0] for role, words in talk(*messages) if role == "user"][1:3] == ["5", "6"]
    assert talk(*messages) == talk(*messages)
    assert {len(id) for role, words in talk(*messages, id_size=9) if role == "assistant" for id in words} == {9}


def test_the_user_begins_and_speaks_last() -> None:
    assert talk(Message("assistant", "c")) == [("user", [LEFT_OUT]), ("assistant", ["c"]), ("user", [GO_ON])]
    assert talk(Message("assistant", "c"), must_alternate=False) == [("assistant", ["c"])]


def test_nothing_said_is_nothing_sent() -> None:
    assert talk(user("a"), Message("assistant", " \n"), user("b")) == [("user", ["a", "b"])]
    with pytest.raises(BadInput, match="empty"):
        read(Ask((), (user(""),)), has_images=False)
    assert read(Ask((Part("instructions", "x"),), ()), has_images=False).turns[0].texts == [GO_ON]


def test_words_of_the_system_come_first_or_are_the_users() -> None:
    found = read(Ask((Part("a", "A"),), (Message("system", "B"), user("c"), Message("system", "D"))), has_images=False)
    assert found.system == "A\n\nB" and found.turns[0].texts == ["c", "D"]


def test_the_part_that_conversations_share_ends_where_they_differ() -> None:
    parts = (Part("SOUL", "a"), Part("skills", "b"), Part("override", "c"), Part("style", "d"))
    found = read(Ask(parts, (user("x"),)), has_images=False)
    assert (found.stable, found.system) == ("a\n\nb", "a\n\nb\n\nc\n\nd")


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.builds(user, st.sampled_from(["", "a", " "])),
            st.builds(called, st.sampled_from("xyz"), st.sampled_from("xyzw"), text=st.sampled_from(["", "t"])),
            st.builds(result, st.sampled_from("xyzw"), st.just("r")),
        ),
        max_size=12,
    )
)
def test_any_messages_become_turns_that_alternate_with_a_result_for_each_call(messages: list[Message]) -> None:
    try:
        turns = read(Ask((Part("p", "p"),), tuple(messages)), has_images=False).turns
    except BadInput:
        return
    assert [turn.role for turn in turns] == [("user", "assistant")[i % 2] for i in range(len(turns))] and len(turns) % 2
    for before, after in zip(turns, turns[1:]):
        assert [call.id for call in before.calls] == sorted((r.id for r in after.results), key=[c.id for c in before.calls].index)
    ids = [call.id for turn in turns for call in turn.calls]
    assert len(ids) == len(set(ids))


@settings(max_examples=100)
@given(st.lists(st.text(max_size=80), max_size=6, unique=True))
def test_any_names_of_tools_are_told_apart_there_and_come_back(names: list[str]) -> None:
    found = ToolNames(Ask((), (), tuple(ToolSpec(name, "", {}) for name in names)))
    theirs = [found.theirs(name) for name in names]
    assert len(set(theirs)) == len(names) and all(NAME.fullmatch(name) for name in theirs)
    assert [found.ours(name) for name in theirs] == names


# -- formats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", About(folder="providers/formats").choices)
def test_every_file_of_formats_has_one_class_for_providers_of_its_kind(kind: str) -> None:
    assert issubclass(formats.load(kind), Hosted)
