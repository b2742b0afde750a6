"""A function's parameters as data: every problem named, schema whole, services nobody's argument."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import msgspec.inspect
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance import tools
from appliance.agent.toolbox import read_tool
from appliance.errors import BadInput
from appliance.records import Ask
from appliance.runtime.signatures import Range, schema_of, signature


@dataclass(frozen=True)
class Bed:
    """A part of a garden."""

    name: str
    rows: int = 1


def plant(
    what: Annotated[str, Range(1, 10), "seed"],
    count: Annotated[int, Range(1, 50), "how many"] = 5,
    where: Literal["bed", "pot"] = "bed",
    tags: list[str] | None = None,
    *,
    finder: object,
) -> str:
    """Plant something."""
    return what


PLANT = signature(plant)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "what: is required"),
        ({"what": 3}, "what: Expected `str`, got `int`"),
        ({"what": ""}, "what: Expected `str` of length >= 1, got ''"),
        ({"what": "a" * 11}, "what: Expected `str` of length <= 10, got 'aaaaaaaaaaa'"),
        ({"what": "a", "count": 0}, "count: Expected `int` >= 1, got 0"),
        ({"what": "a", "count": 51}, "count: Expected `int` <= 50, got 51"),
        ({"what": "a", "count": True}, "count: Expected `int`, got `bool`"),
        ({"what": "a", "count": "5"}, "count: Expected `int`, got `str`"),
        ({"what": "a", "where": "sea"}, "where: Invalid enum value 'sea', expected bed, pot"),
        ({"what": "a", "tags": ["x", 1]}, "tags[1]: Expected `str`, got `int`"),
        ({"what": "a", "color": 1}, "color: unknown argument, expected what, count, where, tags"),
        ({"what": "a", "finder": 1}, "finder: unknown argument, expected what, count, where, tags"),
        (
            {"count": 0, "tags": [1]},
            "what: is required; count: Expected `int` >= 1, got 0; tags[0]: Expected `str`, got `int`",
        ),
    ],
)
def test_every_problem_is_named_with_its_path(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        PLANT.bind(values)
    assert caught.value.message == message


@pytest.mark.parametrize("count", [1, 50])
def test_bounds_are_inclusive_and_defaults_are_filled_in(count: int) -> None:
    assert PLANT.bind({"what": "a", "count": count}) == {"what": "a", "count": count, "where": "bed", "tags": None}
    assert PLANT.bind({"what": "a" * 10})["count"] == 5


def test_a_nested_value_becomes_its_record_and_its_problems_carry_the_whole_path() -> None:
    def dig(beds: list[Bed]) -> None: ...

    assert signature(dig).bind({"beds": [{"name": "north"}]}) == {"beds": [Bed("north", 1)]}
    with pytest.raises(BadInput, match=r"beds\[0\]\.rows: Expected `int`, got `str`"):
        signature(dig).bind({"beds": [{"name": "north", "rows": "two"}]})


class Patch(msgspec.Struct, frozen=True):
    line: int
    text: str = ""


def edit(
    patches: Annotated[tuple[Patch, ...], "lines"],
    beds: Annotated[dict[str, Bed] | None, "by name"] = None,
    first: Annotated[Patch | None, "one"] = None,
    free: Annotated[dict[str, Any] | None, "anything"] = None,
) -> None:
    """Edit."""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"patches": [{"line": 1}, {"line": 2, "is_last": True}]}, "patches[1].is_last: unknown argument, expected line, text"),
        ({"patches": [], "beds": {"a": {"name": "a", "colour": 1}}}, "beds.a.colour: unknown argument, expected name, rows"),
        ({"patches": [], "first": {"line": 1, "lines": 2}}, "first.lines: unknown argument, expected line, text"),
        ({"patches": [{"line": 1, "text": "x"}], "free": {"what": {"ever": 1}}, "first": None}, ""),
    ],
)
def test_a_key_inside_a_value_is_known_or_refused(values: dict[str, Any], message: str) -> None:
    if not message:
        assert signature(edit).bind(values)["free"] == values["free"]
        return
    with pytest.raises(BadInput) as caught:
        signature(edit).bind(values)
    assert caught.value.message == message


def test_every_tool_refuses_what_it_does_not_know_inside_its_arguments() -> None:
    """A key beside those of a record, in whatever tool takes one."""
    tried = set()
    for one in map(read_tool, tools.load()):
        for field in one.signature.fields:
            sample = _sample(msgspec.inspect.type_info(field.type))
            if sample is None:
                continue
            with pytest.raises(BadInput, match="surplus"):
                one.signature.bind({field.name: sample})
            tried.add(one.mark.name)
    assert {"skill_write", "document_write", "context_edit"} <= tried


def _sample(kind: msgspec.inspect.Type) -> Any:
    """A value of a type in which a record has a key too many; None for a type without records."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _sample(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return next((made for one in kind.types if (made := _sample(one)) is not None), None)
    if isinstance(kind, (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)):
        return None if (inner := _sample(kind.item_type)) is None else [inner]
    if not isinstance(kind, (msgspec.inspect.StructType, msgspec.inspect.TypedDictType, msgspec.inspect.DataclassType)):
        return None
    return {field.encode_name: _plain(field.type) for field in kind.fields if field.required} | {"surplus": 1}


def _plain(kind: msgspec.inspect.Type) -> Any:
    if isinstance(kind, msgspec.inspect.UnionType):
        return _plain(kind.types[0])
    return 1 if isinstance(kind, msgspec.inspect.IntType) else [] if isinstance(kind, msgspec.inspect.VarTupleType) else "x"


def test_the_schema_lists_arguments_and_no_services() -> None:
    schema = PLANT.schema()
    assert list(schema["properties"]) == ["what", "count", "where", "tags"]
    assert schema["required"] == ["what"] and schema["additionalProperties"] is False
    assert schema["properties"]["count"] == {"type": "integer", "minimum": 1, "maximum": 50, "default": 5}
    assert schema["properties"]["where"] == {"enum": ["bed", "pot"], "default": "bed"}
    assert PLANT.services == ("finder",) and schema_of(PLANT.returns) == {"type": "string"}
    assert [f.help for f in PLANT.fields] == ["seed", "how many", "", ""]


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({}, "what: seed"),
        ({"what": "x", "count": 99}, "count: how many"),
        ({"what": "x", "odd": 1}, "correct it and call again"),
    ],
)
def test_what_is_wrong_comes_with_what_it_should_be(values: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        PLANT.bind(values)
    assert caught.value.hint == hint


def test_every_reference_in_a_schema_leads_somewhere() -> None:
    def ask(ask: Ask, bed: Bed) -> None: ...

    schema = signature(ask).schema()
    text = msgspec.json.encode(schema).decode()
    named = {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert {"Ask", "Bed", "Message"} <= named <= set(schema["$defs"])


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["what", "count", "where", "tags", "odd"]), ANYTHING))
def test_any_values_are_bound_or_refused_as_bad_input(values: dict[str, Any]) -> None:
    try:
        bound = PLANT.bind(values)
    except BadInput as error:
        assert error.message
    else:
        assert isinstance(bound["what"], str) and 1 <= bound["count"] <= 50
