"""Tool calls under a grammar: schemas as grammars, what they let through, drawing under them, thoughts."""

import json
import math
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_calls
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_fixtures import model_file, model_home  # noqa: F401
from proof import IS_WHOLE

from appliance.prompt.packet import CALLING, tool_line
from appliance.providers.grammar import MANY_ITEMS, Sampler, call_grammar, read_call
from appliance.providers.grammar_matcher import Grammar
from appliance.providers.llama import Llama, Options
from appliance.providers.sampling import Writing
from appliance.providers.token_stream import StreamedAnswer
from appliance.records import Ask, Message, Part, Piece, Route, ToolSpec

POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x", "y"]}
TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
            "required": ["value"],
        }
    },
}


def fields(required: str = "", /, **parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts, "required": required.split(), "additionalProperties": False}


# Schema, arguments that pass, arguments that do not.
ODD: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "none": ({}, [{}, {"a": [1, {"b": None}]}], [[], 1, "a"]),
    "no object": (None, [{}, {"a": 1}], [[]]),
    "empty": ({"type": "object", "properties": {}}, [{}, {"a": 1}], []),
    "nothing": ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
    "optional": (fields("b", a={"type": "string"}, b={"type": "integer"}), [{"b": 1}, {"b": -0, "a": "x"}], [{}, {"a": "x"}]),
    "only optional": (
        fields("", a={"type": "null"}, b={"type": "boolean"}),
        [{}, {"b": True}, {"a": None, "b": False}],
        [{"c": 1}],
    ),
    "undeclared": ({"type": "object", "required": ["a"]}, [{"a": [1]}, {"a": {}}], [{}]),
    "enum": (fields("a", a={"enum": ["x y", 'é"\\', 3, None]}), [{"a": "x y"}, {"a": 'é"\\'}, {"a": 3}, {"a": None}], [{"a": "z"}]),
    "enum of a kind": (fields("a", a={"type": "integer", "enum": ["1", 2]}), [{"a": 2}], [{"a": "1"}, {"a": 3}]),
    "enum of no kind": (fields("a", a={"type": "array", "enum": ["b"]}), [{"a": ["b"]}], [{"a": "b"}]),
    "empty enum": (fields("a", a={"type": "string", "enum": []}), [{"a": "b"}], [{"a": 1}]),
    "const": (fields("a", a={"const": {"k": [1.5]}}), [{"a": {"k": [1.5]}}], [{"a": {}}]),
    "types": (fields("a", a={"type": ["integer", "null"]}), [{"a": 1}, {"a": None}], [{"a": "1"}]),
    "union": (fields("a", a={"anyOf": [{"type": "integer"}, POINT]}), [{"a": 1}, {"a": {"x": 1, "y": 2.5}}], [{"a": {"x": 1}}]),
    "one of": (fields("a", a={"oneOf": [{"const": "s"}, {"type": "boolean"}]}), [{"a": "s"}, {"a": True}], [{"a": "t"}]),
    "all of": (
        {"allOf": [fields("a", a={"type": "integer"}), fields("b", b={"type": "string"})]},
        [{"a": 1, "b": "x"}],
        [{"a": 1}, {"b": "x"}],
    ),
    "nested lists": (
        fields("a", a={"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        [{"a": []}, {"a": [[], [1, 2]]}],
        [{"a": [1]}, {"a": [["b"]]}],
    ),
    "tuple": (
        fields("a", a={"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}),
        [{"a": [1, "b"]}],
        [{"a": [1]}, {"a": ["b", 1]}, {"a": [1, "b", 2]}],
    ),
    "lengths": (
        fields("a b", a={"type": "string", "minLength": 1, "maxLength": 3}, b={"type": "array", "minItems": 1, "maxItems": 2}),
        [{"a": "éé\U0001f989", "b": [1]}, {"a": "x", "b": [1, 2]}],
        [{"a": "", "b": [1]}, {"a": "xxxx", "b": [1]}, {"a": "x", "b": []}, {"a": "x", "b": [1, 2, 3]}],
    ),
    "no items": (fields("a", a={"type": "array", "maxItems": 0}), [{"a": []}], [{"a": [1]}]),
    "senseless lengths": (fields("a", a={"type": "string", "minLength": 5, "maxLength": 2}), [{"a": "xxxxx"}], [{"a": "x"}]),
    "many": (fields("a", a={"type": "array", "minItems": 40, "items": {"type": "null"}}), [{"a": [None] * 40}], [{"a": [None]}]),
    "map": (
        fields("a", a={"type": "object", "additionalProperties": {"type": "integer"}}),
        [{"a": {}}, {"a": {"b c": 1, "d": 2}}],
        [{"a": {"b": "c"}}],
    ),
    "tree": (
        TREE,
        [{"root": {"value": "a", "children": [{"value": "b"}, {"value": "c", "children": []}]}}],
        [{"root": {"children": []}}],
    ),
    "lost reference": (fields("a", a={"$ref": "#/$defs/Gone"}), [{"a": 1}, {"a": [{}]}], [{}]),
    "foreign reference": (fields("a", a={"$ref": "https://example.org/a.json"}), [{"a": 1}], []),
    "list reference": ({**fields("a", a={"$ref": "#/$defs/a~1b"}), "$defs": {"a/b": {"const": 1}}}, [{"a": 1}], [{"a": 2}]),
    "names": (fields('a"b é\n', **{'a"b': {"const": 1}, "é\n": {"const": 2}, "é": {"const": 3}}), [], []),
    "unknown type": (fields("a", a={"type": "float32"}), [{"a": 1.5}, {"a": "b"}], []),
    "odd type": (fields("a", a={"type": {"type": "string"}}), [{"a": 1.5}], []),
    "ranges": (fields("a", a={"type": "integer", "minimum": 1, "maximum": 3, "pattern": "["}), [{"a": 2}, {"a": 9}], [{"a": 0.5}]),
    "numbers": (
        fields("a", a={"type": "number"}),
        [{"a": 0}, {"a": -0.5}, {"a": 12e20}, {"a": 1e-05}, {"a": 10}],
        [{"a": float("inf")}, {"a": float("nan")}, {"a": 10**40}],
    ),
}


def tool(schema: Any, name: str = "do") -> ToolSpec:
    return ToolSpec(name, "Does it", schema)


def passes(grammar: Grammar, text: str) -> bool:
    place = grammar.walk(grammar.begin, text.encode())
    return place is not None and place.is_over


def call(arguments: Any, name: str = "do") -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


@pytest.mark.covers("R-208")
@pytest.mark.parametrize("case", ODD)
def test_a_grammar_holds_what_the_schema_says(case: str) -> None:
    schema, good, bad = ODD[case]
    grammar = Grammar(call_grammar((tool(schema),)))
    assert [a for a in good if not passes(grammar, call(a))] == []
    assert [a for a in bad if passes(grammar, call(a))] == []
    assert not passes(grammar, call({}, "other")) and not passes(grammar, call({}) + "}")


def test_only_the_tools_offered_can_be_named() -> None:
    names = ("math.hypot", "weather/today", 'say "hi"', "été", "two\u2028lines\x85", "search", "search_all")
    grammar = Grammar(call_grammar([tool(fields(), name) for name in names]))
    assert all(passes(grammar, call({}, name)) for name in names)
    assert not any(passes(grammar, call({}, name)) for name in ("math_hypot", "sear", "search_", "other"))


def test_strings_hold_text_that_can_be_stored() -> None:
    grammar = Grammar(call_grammar((tool(fields("a", a={"type": "string"})),)))
    start, end = '{"name": "do", "arguments": {"a": "', '"}}'
    for inside in ("", "é\U0001f989", r"\n\t\"\\\/", r"\u00e9\ud7ff", "{}[]"):
        assert passes(grammar, start + inside + end), inside
    for inside in ("\n", "\x00", '"', "\\", r"\x41", r"\u12", r"\ud83e", r"\u0000", r"\u001b"):
        assert not passes(grammar, start + inside + end), inside
    for data in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"):
        place = grammar.walk(grammar.begin, start.encode() + data + end.encode())
        assert place is None


def test_a_schema_too_large_for_a_grammar_allows_any_object() -> None:
    huge = fields("", **{f"f{i}": {"type": "string", "maxLength": i} for i in range(3000)})
    grammar = Grammar(call_grammar((tool(huge, "big"), tool(fields("a", a={"type": "null"}), "small"))))
    assert passes(grammar, call({"anything": [1]}, "big")) and passes(grammar, call({"a": None}, "small"))
    assert not passes(grammar, call({"anything": [1]}, "small"))


def test_references_that_branch_at_every_level_cost_little() -> None:
    children = {f"c{i}": {"$ref": "#/$defs/N"} for i in range(40)}  # 40 ** 4 if each were looked at alone
    schema = {"properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": "object", "properties": children}}}
    grammar = Grammar(call_grammar((tool(schema),)))
    assert passes(grammar, call({"n": {"c0": {"c39": {}}}})) and not passes(grammar, call({"n": {"c0": {"c40": {}}}}))


def test_what_must_follow_is_known() -> None:
    schema = fields("query limit", query={"type": "string"}, limit={"enum": [10, 15]})
    grammar = Grammar(call_grammar((tool(schema, "search"),)), "call")
    known, place = grammar.must(grammar.begin)
    assert known == b'{"name": "search", "arguments": {"query": "'
    after = grammar.walk(place, b'owl"')
    assert after is not None
    known, after = grammar.must(after)
    assert known == b', "limit": 1'
    after = grammar.walk(after, b"5")
    assert after is not None and grammar.must(after)[0] == b"}}" and grammar.must(after)[1].is_over


# -- whatever is drawn --------------------------------------------------------------------------------

SCALAR = st.sampled_from([{"type": k} for k in ("string", "integer", "number", "boolean", "null")])
SCHEMA = st.recursive(
    SCALAR
    | st.builds(lambda v: {"enum": v}, st.lists(st.text(max_size=4) | st.integers() | st.booleans(), min_size=1, max_size=3)),
    lambda inner: st.one_of(
        st.builds(lambda i, n: {"type": "array", "items": i, "minItems": n}, inner, st.integers(0, 2)),
        st.builds(lambda o: {"anyOf": o}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda parts, n: {"type": "object", "properties": parts, "required": list(parts)[:n]},
            st.dictionaries(st.text(min_size=1, max_size=3), inner, min_size=1, max_size=3),
            st.integers(0, 3),
        ),
    ),
    max_leaves=6,
)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is what the schema says; the few words of JSON schema that SCHEMA uses."""
    if "anyOf" in schema:
        return any(fits(value, option) for option in schema["anyOf"])
    if "enum" in schema:
        return any(value == option and type(value) is type(option) for option in schema["enum"])
    kinds = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
        "array": list,
        "object": dict,
    }
    kind = schema["type"]
    if not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean"):  # type: ignore[arg-type]
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    if kind == "array":
        return len(value) >= schema["minItems"] and all(fits(item, schema["items"]) for item in value)
    if kind == "object":
        parts = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(parts) and all(fits(v, parts[k]) for k, v in value.items())
    return True


@settings(max_examples=600 if IS_WHOLE else 50, deadline=None)
@given(SCHEMA, st.integers(0, 2**32))
def test_any_way_through_a_grammar_is_a_valid_call(schema: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    grammar = Grammar(call_grammar((tool(fields("a", a=schema)),)))
    data, place = bytearray(), grammar.begin
    while not place.is_over:
        allowed = [b for b in range(256) if grammar.step(place, b)]
        closing = [b for b in allowed if b in b'"]}']
        data.append(dice.choice(closing if closing and dice.random() < 0.5 else allowed))
        after = grammar.step(place, data[-1])
        assert after is not None
        place = after
    found = read_call(data.decode())
    assert found is not None and json.loads(data.decode()) and fits(found.arguments["a"], schema), data


# -- with the model -----------------------------------------------------------------------------------

ROUTE = Route("local", "llama", "smollm2", 2048, "grammar")
model = pytest.mark.model


@pytest.fixture(scope="module")
def llama(model_file: Path) -> Iterator[Llama]:  # noqa: F811
    loaded = Llama(model_file, Options(context=1024, seed=7))
    yield loaded
    loaded.close()


def request(text: str, *tools: ToolSpec, **more: Any) -> Ask:
    system = (Part("tools", "\n".join([CALLING, *(tool_line(t) for t in tools)])),)
    return Ask(system, (Message("user", text),), tools, **{"slot": "g", "temperature": 0.0, "max_tokens": 200, **more})


def forced(llama: Llama, ask: Ask, seed: int = 1) -> tuple[Writing, list[Piece]]:
    """An answer that has to be a call; the writer is closed, and can still be asked."""
    list(llama.generate(ROUTE, Ask(ask.system, ask.messages, max_tokens=1, slot=ask.slot), threading.Event()))
    ready = llama._ready
    assert ready is not None
    prompt = ready.prompt(ask)
    held = ready.sequences.place(ask.slot, prompt, False)
    writing = Writing(ready, ask, held, seed, must_call=True)
    try:
        ready.sequences.extend(held, prompt[len(held.tokens) :], lambda: False)
        return writing, list(writing.pieces(lambda: False))
    finally:
        writing.close()
        ready.sequences.release(held)


@model
@pytest.mark.parametrize("case", ODD)
def test_llama_cpp_reads_the_same_grammar(llama: Llama, case: str) -> None:
    """Not needed to run; it shows that the text is GBNF, and that both agree about what it means."""
    llama.load(threading.Event())
    loaded = llama._ready.loaded  # type: ignore[union-attr]
    schema, good, bad = ODD[case]
    gbnf = call_grammar((tool(schema),))
    for arguments in good[:2] + bad[:2]:
        theirs = loaded.api.llama_sampler_init_grammar(loaded.vocabulary, gbnf.encode(), b"root")
        assert theirs, gbnf
        is_allowed = True
        for token in [*loaded.tokens(call(arguments)), loaded.api.llama_vocab_eos(loaded.vocabulary)]:
            one = (loaded.api.llama_token_data * 1)(loaded.api.llama_token_data(token, 1.0, 0.0))
            row = loaded.api.llama_token_data_array(data=one, size=1, selected=-1, sorted=False)
            loaded.api.llama_sampler_apply(theirs, row)
            is_allowed = math.isfinite(one[0].logit)
            if not is_allowed:
                break
            loaded.api.llama_sampler_accept(theirs, token)
        loaded.api.llama_sampler_free(theirs)
        assert is_allowed == passes(Grammar(gbnf), call(arguments)), arguments


@model
@pytest.mark.covers("R-208")
@pytest.mark.parametrize("case", ["union", "nested lists", "tuple", "lengths", "enum", "map", "numbers", "only optional"])
def test_whatever_the_model_draws_is_a_call_of_that_shape(llama: Llama, case: str) -> None:
    grammar = Grammar(call_grammar((tool(ODD[case][0]),)))
    for seed in (1, 2):
        writing, pieces = forced(llama, request("Do something wild.", tool(ODD[case][0]), temperature=2.0, slot="w"), seed)
        assert not any(piece.text for piece in pieces) and {piece.tool for piece in pieces} <= {"do"}
        for found in writing.calls():
            assert found.name == "do" and passes(grammar, call(found.arguments)), found
        if not writing.calls():
            assert writing.reason == "length" and writing.count >= 200


@model
def test_a_list_that_repeats_itself_or_counts_on_comes_to_an_end(llama: Llama) -> None:
    words = tool(fields("words", words={"type": "array", "items": {"type": "string", "maxLength": 12}}), "say")
    numbers = tool(fields("numbers", numbers={"type": "array", "items": {"type": "integer"}}), "count")
    for text, one in (("Say chicken chicken chicken chicken chicken.", words), ("Count: 100, 200, 300, 400, 500.", numbers)):
        writing, _ = forced(llama, request(text, one, max_tokens=800))
        (found,) = writing.calls()  # at the latest, the grammar ends it
        assert all(len(items) <= MANY_ITEMS for items in found.arguments.values()), found


@model
def test_known_text_is_read_at_once_and_changes_nothing(llama: Llama) -> None:
    """Each evaluation after the prompt takes a decision; punctuation and names of fields take none."""
    ask = request(
        "Find the area of a triangle with a base of 10 and a height of 5.",
        tool(fields("base height", base={"type": "integer"}, height={"type": "integer"}), "area"),
    )
    writing, _ = forced(llama, ask)
    (found,) = writing.calls()
    assert {name: type(value) for name, value in found.arguments.items()} == {"base": int, "height": int}
    ready = llama._ready
    assert ready is not None
    sampler = Sampler(ready.loaded, 0.0, 1)
    sampler.constrain(call_grammar(ask.tools), "call")
    known = b"".join(map(ready.loaded.piece, sampler.skip()))
    assert known == b'{"name": "area", "arguments": {"base":' and sampler.skip() == []
    sampler.close()


@model
def test_a_model_that_wants_to_end_inside_a_text_closes_it(llama: Llama) -> None:
    ask = request("Search for owls.", tool(fields("query", query={"type": "string"}), "search"), max_tokens=1)
    list(llama.generate(ROUTE, ask, threading.Event()))
    ready = llama._ready
    assert ready is not None
    sampler = Sampler(ready.loaded, 0.0, 1)
    sampler.constrain(call_grammar(ask.tools))
    end = ready.loaded.api.llama_vocab_eos(ready.loaded.vocabulary)
    for part in ready.loaded.tokens('{"name": "search", "arguments": {"query": "owl'):
        assert sampler.settle(part) == part
    assert ready.loaded.piece(sampler.settle(end)).startswith(b'"')
    sampler.close()


@model
def test_a_prompt_that_has_begun_the_thoughts_yields_thoughts_which_take_half_of_the_room(llama: Llama) -> None:
    list(llama.generate(ROUTE, request("Why do owls hoot?", max_tokens=1, slot="t"), threading.Event()))
    ready = llama._ready
    assert ready is not None
    ask = request("Why do owls hoot?", max_tokens=40, slot="t")
    prompt = [*ready.prompt(ask), *ready.loaded.tokens("[THINK]\n")]
    held = ready.sequences.place("t", prompt, False)
    ready.sequences.extend(held, prompt[len(held.tokens) :], lambda: False)
    writing = Writing(ready, ask, held, 1)
    pieces = list(writing.pieces(lambda: False))
    writing.close()
    said = b"".join(map(ready.loaded.piece, held.tokens[len(prompt) :])).decode("utf-8", "replace")
    ready.sequences.release(held)
    thoughts = [piece.is_reasoning for piece in pieces]
    assert thoughts == sorted(thoughts, reverse=True) and thoughts[0]
    assert said.count("[/think]") == 1 and not thoughts[-1] and writing.count <= 40 + 4, said
    assert not any("think" in piece.text.lower() for piece in pieces)


# -- thoughts -----------------------------------------------------------------------------------------


def read(parts: list[bytes], *, may_call: bool = False, is_thinking: bool = False) -> tuple[str, str, str]:
    """Thoughts (a line break at their end is nobody's concern), what was shown, and the call."""
    answer = StreamedAnswer((), may_call=may_call, is_thinking=is_thinking)
    thoughts = shown = ""
    for part in parts:
        shown += answer.feed(part)
        thoughts += answer.thoughts()
    call = answer.call_text
    shown += answer.finish()
    return (thoughts + answer.thoughts()).rstrip(), shown, call


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nA bird?\n</think>\n\nAn owl.", ("A bird?", "An owl.", "")),
        ("\n<think>\n\n</think>\n\nAn owl.", ("", "An owl.", "")),
        ("<think>never ends </th", ("never ends </th", "", "")),
        ("<thin air>", ("", "<thin air>", "")),
        ("An owl <think>no</think>", ("", "An owl <think>no</think>", "")),
        (" <th", ("", " <th", "")),
        ("", ("", "", "")),
    ],
)
def test_thoughts_come_apart_from_the_answer(text: str, expected: tuple[str, str, str]) -> None:
    data = text.encode()
    for size in (1, 3, len(data) or 1):
        assert read([data[i : i + size] for i in range(0, len(data), size)]) == expected


def test_thoughts_begun_by_the_template_and_before_a_call() -> None:
    assert read([b"Hm.", b"</think>", b"\n", b"Yes."], is_thinking=True) == ("Hm.", "Yes.", "")
    assert read([b"<think>I", b" call.</think>\n", b'{"na', b"me"], may_call=True) == ("I call.", "", '{"name')
    answer = StreamedAnswer((), may_call=True)
    answer.feed(b"<think>a ")
    assert not answer.begins_call(b'{"')
    answer.feed(b"b</think>\n")
    assert answer.begins_call(b'\n{"') and not answer.begins_call(b"So {")


# -- the judge of tests/bench/bench_calls.py ----------------------------------------------------------------


def test_the_judge_knows_the_leaderboards_rules() -> None:
    truth = {"book": {"city": ["New York", "NYC"], "nights": [2], "price": ["", 99.5], "tags": [["a", "b"]]}}
    one = bench_calls.Item("multiple", "1", "?", (), truth)
    good = {"city": "new york.", "nights": 2, "tags": ["A", "b"]}
    assert bench_calls.is_correct(one, "book", good) and bench_calls.is_correct(one, "book", {**good, "price": 99.5})
    for wrong in ({"nights": 2}, {**good, "nights": "2"}, {**good, "price": 1}, {**good, "more": 1}, {**good, "tags": ["b", "a"]}):
        assert not bench_calls.is_correct(one, "book", wrong)
    assert not bench_calls.is_correct(one, "look", good) and not bench_calls.is_correct(one, "", None)
    nothing = bench_calls.Item("irrelevance", "2", "?", (), None)
    assert bench_calls.is_correct(nothing, "", None) and not bench_calls.is_correct(nothing, "book", good)


def test_the_judge_finds_what_breaks_a_schema() -> None:
    schema = bench_calls.normal(
        {
            "type": "dict",
            "properties": {"n": {"type": "float"}, "l": {"type": "tuple", "items": {"type": "integer"}}, "e": {"enum": [1]}},
            "required": ["n"],
        }
    )
    assert list(bench_calls.faults({"n": 1, "l": [2], "e": 1}, schema)) == []
    for wrong in ({}, {"n": "1"}, {"n": True}, {"n": float("inf")}, {"n": 1, "l": [2.5]}, {"n": 1, "e": 2}, {"n": 1, "x": 1}, []):
        assert list(bench_calls.faults(wrong, schema)), wrong
