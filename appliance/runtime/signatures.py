"""A function's parameters as data: validation that names every problem, JSON schema, defaults.

Used for tools and for socket methods, so both reject bad input in the same words. Positional
parameters are arguments from outside; keyword-only ones are services that the caller injects by
name and no schema mentions. Help and ranges are annotations: `Annotated[int, Range(1, 50), "help"]`.
Knows nothing about tools, sockets or models.
"""

import inspect
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import msgspec.inspect
from msgspec import Struct

from appliance.errors import BadInput

MISSING = inspect.Parameter.empty
RECORDS = (msgspec.inspect.StructType, msgspec.inspect.TypedDictType, msgspec.inspect.DataclassType)
NESTED = (*RECORDS, msgspec.inspect.DictType, msgspec.inspect.ListType, msgspec.inspect.VarTupleType, msgspec.inspect.Metadata)


class Range(Struct, frozen=True):
    """Inclusive bounds of a number, or of the length of a text."""

    low: int
    high: int


class Field(Struct, frozen=True):
    """One argument from outside."""

    name: str
    type: Any
    default: Any
    help: str

    @property
    def is_required(self) -> bool:
        """True when the caller must give it."""
        return self.default is MISSING


class Signature(Struct, frozen=True):
    """What a function takes from outside (`fields`) and from us (`services`), and what it returns."""

    fields: tuple[Field, ...]
    services: tuple[str, ...]
    returns: Any

    def bind(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Checked arguments with defaults filled in; BadInput lists every problem as "path: message; ..."."""
        problems, bound = [], {}
        known = [f.name for f in self.fields]
        for name in values:
            if name not in known:
                problems.append(f"{name}: unknown argument, expected {', '.join(known) or 'none'}")
        for f in self.fields:
            if f.name not in values:
                if f.is_required:
                    problems.append(f"{f.name}: is required")
                else:
                    bound[f.name] = f.default
                continue
            try:
                bound[f.name] = msgspec.convert(values[f.name], f.type)
                if isinstance(values[f.name], (dict, list, tuple)):
                    problems += _list_unknown(values[f.name], msgspec.inspect.type_info(f.type), f.name)
            except msgspec.ValidationError as error:
                message, _, path = str(error).partition(" - at `$")
                if (choices := _choices_of(f.type)) and not path:
                    message = f"Invalid enum value {reprlib.repr(values[f.name])}, expected {', '.join(map(str, choices))}"
                elif message.startswith("Expected") and ", got " not in message and not path:  # a bound was broken: say by what
                    message = f"{message}, got {reprlib.repr(values[f.name])}"
                problems.append(f"{f.name}{path.rstrip('`')}: {message}")
            except UnicodeError:  # half of a surrogate pair, where it would have to be compared with a known text
                problems.append(f"{f.name}: {reprlib.repr(values[f.name])} is not a text that could be meant")
        if problems:
            raise BadInput("; ".join(problems), hint=self._hint_for(problems))
        return bound

    def _hint_for(self, problems: Sequence[str]) -> str:
        """What the arguments are that were wrong, as far as there are words about them."""
        wrong = {re.split(r"[:.\[]", problem, maxsplit=1)[0] for problem in problems}
        known = [f"{f.name}: {f.help}" for f in self.fields if f.help and f.name in wrong]
        return "; ".join(known) or "correct it and call again"

    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments, without descriptions of types that name themselves."""
        properties: dict[str, Any] = {}
        parts, definitions = msgspec.json.schema_components([f.type for f in self.fields], ref_template="#/$defs/{name}")
        for f, part in zip(self.fields, parts, strict=True):
            if not f.is_required and f.default is not None:
                part = {**part, "default": msgspec.to_builtins(f.default)}
            properties[f.name] = part
        required = [f.name for f in self.fields if f.is_required]
        made = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {**made, "$defs": definitions} if definitions else made


def signature(function: Callable[..., Any], *, skip: tuple[str, ...] = ("self",)) -> Signature:
    """Read a function's signature; parameters named in `skip` are nobody's argument."""
    hints = get_type_hints(function, include_extras=True)
    fields, services = [], []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in skip:
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            services.append(parameter.name)
            continue
        kind, text = _read_annotation(hints[parameter.name])
        fields.append(Field(parameter.name, kind, parameter.default, text))
    return Signature(tuple(fields), tuple(services), hints.get("return", Any))


def schema_of(returns: Any) -> dict[str, Any]:
    """JSON schema of what a function returns; of records that msgspec could not tell apart when reading, each by itself."""
    try:
        return msgspec.json.schema(returns)
    except TypeError:
        inner = get_args(returns)
        if get_origin(returns) in (Union, UnionType):
            return {"anyOf": [schema_of(one) for one in inner]}
        if get_origin(returns) in (list, tuple, Sequence) and inner:
            return {"type": "array", "items": schema_of(inner[0])}
        return {"type": "object"}


def _list_unknown(value: Any, kind: msgspec.inspect.Type, path: str) -> list[str]:
    """The keys inside a checked value that none of its records has: what is left out silently would be taken for done."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _list_unknown(value, kind.type, path)
    if isinstance(kind, msgspec.inspect.UnionType):
        tries = [_list_unknown(value, one, path) for one in kind.types if isinstance(one, NESTED)]
        return min(tries, key=len, default=[])
    if isinstance(value, Mapping):
        if isinstance(kind, msgspec.inspect.DictType):
            return [told for key, one in value.items() for told in _list_unknown(one, kind.value_type, f"{path}.{key}")]
        if not isinstance(kind, RECORDS):
            return []
        fields = {field.encode_name: field for field in kind.fields}
        unknown = [f"{path}.{key}: unknown argument, expected {', '.join(fields)}" for key in value if key not in fields]
        known = (_list_unknown(one, fields[key].type, f"{path}.{key}") for key, one in value.items() if key in fields)
        return [*unknown, *(told for inner in known for told in inner)]
    if isinstance(value, (list, tuple)) and isinstance(kind, (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)):
        return [told for n, one in enumerate(value) for told in _list_unknown(one, kind.item_type, f"{path}[{n}]")]
    return []


def _choices_of(kind: Any) -> tuple[Any, ...]:
    """The values that are allowed for a parameter that takes no others, beside none; () for any other parameter."""
    if get_origin(kind) is Literal:
        return tuple(value for value in get_args(kind) if value != "")
    members = [member for member in get_args(kind) if member is not type(None)] if get_origin(kind) in (Union, UnionType) else []
    return _choices_of(members[0]) if len(members) == 1 else ()


def _read_annotation(hint: Any) -> tuple[Any, str]:
    """The msgspec type and the help text of an annotation."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    base, *extras = get_args(hint)
    text = next((e for e in extras if isinstance(e, str)), "")
    bounds = next((e for e in extras if isinstance(e, Range)), None)
    if bounds is None:
        return base, text
    if base is str:
        return Annotated[base, msgspec.Meta(min_length=bounds.low, max_length=bounds.high)], text
    return Annotated[base, msgspec.Meta(ge=bounds.low, le=bounds.high)], text
