"""JSON schemas of tools as providers take them: without references for all, as a small subset for Gemini.

Pure. A reference that leads back to itself becomes a free object. What a subset cannot say goes into the description.
"""

import json
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 24
FREE: dict[str, Any] = {"type": "object"}
# What Gemini's own form of a schema may hold.
SUBSET = (
    *("type", "format", "title", "description", "nullable", "enum", "items", "properties", "required", "anyOf"),
    *("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "pattern", "propertyOrdering"),
)
FORMATS = ("enum", "date-time", "int32", "int64", "float", "double")
TOLD = ("const", "default", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems")


def flat(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema with every reference replaced by what it means."""
    definitions = {**_table_or_empty(schema.get("definitions")), **_table_or_empty(schema.get("$defs"))}
    found = _inline_references({k: v for k, v in schema.items() if k not in ("$defs", "definitions")}, definitions, ())
    return (
        found if isinstance(found, dict) and found.get("type") else {"type": "object", "properties": {}, **_table_or_empty(found)}
    )


def subset(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as Gemini takes it: types in capitals, null as a flag, choices as texts."""
    return _reduce_schema(flat(schema), 0)


def has_arguments(schema: Mapping[str, Any]) -> bool:
    """True when a call may have any."""
    return bool(schema.get("properties"))


def _inline_references(value: Any, definitions: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_inline_references(item, definitions, path) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        beside = {k: v for k, v in value.items() if k != "$ref"}
        if name in path or name not in definitions or len(path) > MAX_DEPTH:
            return {**FREE, **beside}
        meant = _inline_references(definitions[name], definitions, (*path, name))
        return {**_table_or_empty(meant), **_table_or_empty(_inline_references(beside, definitions, path))}
    whole = value.get("allOf")
    if isinstance(whole, list) and len(whole) == 1:
        inner = _table_or_empty(_inline_references(whole[0], definitions, path))
        return {**inner, **_table_or_empty(_inline_references({k: v for k, v in value.items() if k != "allOf"}, definitions, path))}
    return {k: _inline_references(v, definitions, path) for k, v in value.items() if k != "$schema"}


def _reduce_schema(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {"type": "OBJECT"} if isinstance(schema, dict) else {"type": "STRING"}
    schema = _join_options(schema)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        if len(others) > 1:
            return _reduce_schema(
                {**{k: v for k, v in schema.items() if k != "type"}, "anyOf": [{"type": k} for k in kinds]}, depth
            )
        schema = {**schema, "type": others[0] if others else "string", "nullable": len(others) < len(kinds)}
    options = schema.get("anyOf")
    if isinstance(options, list):
        return _reduce_options(schema, options, depth)
    found = {k: v for k, v in schema.items() if k in SUBSET and v is not None and v is not False}
    found["type"] = str(
        schema.get("type") or ("array" if "items" in schema else "object" if "properties" in schema else "string")
    ).upper()
    if found.get("format") not in FORMATS:
        found.pop("format", None)
    _reduce_choices(schema, found)
    if found["type"] == "ARRAY":
        found["items"] = _reduce_schema(
            schema.get("items") if isinstance(schema.get("items"), dict) else {"type": "string"}, depth + 1
        )
    else:
        found.pop("items", None)
    _reduce_members(found, depth)
    return _describe_rest(schema, found)


def _join_options(schema: dict[str, Any]) -> dict[str, Any]:
    """oneOf is anyOf here; several of allOf are put together."""
    if "oneOf" in schema and "anyOf" not in schema:
        schema = {**{k: v for k, v in schema.items() if k != "oneOf"}, "anyOf": schema["oneOf"]}
    whole = schema.get("allOf")
    if isinstance(whole, list):
        properties: dict[str, Any] = {}
        required: list[Any] = []
        rest = {k: v for k, v in schema.items() if k != "allOf"}
        for part in map(_table_or_empty, [*whole, rest]):
            properties |= _table_or_empty(part.get("properties"))
            required += part.get("required") or []
            rest = {**part, **rest}
        schema = {**rest, **({"properties": properties} if properties else {}), **({"required": required} if required else {})}
    return schema


def _reduce_options(schema: dict[str, Any], options: list[Any], depth: int) -> dict[str, Any]:
    """One of several: null is a flag, and a single one that is left stands for itself."""
    others = [
        option
        for option in options
        if _table_or_empty(option).get("type") != "null" and _table_or_empty(option).get("const", "") is not None
    ]
    beside = {k: v for k, v in schema.items() if k in ("description", "title", "default")}
    if len(others) == 1:
        found = _reduce_schema({**_table_or_empty(others[0]), **beside}, depth + 1)
    else:
        found = _describe_rest(
            schema, {**{k: v for k, v in beside.items() if k in SUBSET}, "anyOf": [_reduce_schema(o, depth + 1) for o in others]}
        )
    return {**found, "nullable": True} if len(others) < len(options) or schema.get("nullable") else found


def _reduce_choices(schema: dict[str, Any], found: dict[str, Any]) -> None:
    values = [schema["const"]] if "const" in schema else found.pop("enum", None)
    if not isinstance(values, list):
        return
    found.pop("enum", None)
    if None in values:
        found["nullable"] = True
    kept = [value for value in values if value is not None]
    if kept and all(isinstance(value, str) for value in kept):
        found |= {"type": "STRING", "enum": kept}
    elif kept:  # numbers cannot be enumerated there
        is_whole = all(isinstance(value, int) for value in kept)
        found["type"] = "INTEGER" if is_whole else "NUMBER" if "type" not in schema else found["type"]
        found["description"] = _add_sentence(found.get("description"), f"One of {json.dumps(kept)}.")


def _reduce_members(found: dict[str, Any], depth: int) -> None:
    properties = _table_or_empty(found.pop("properties", None))
    if found["type"] != "OBJECT":
        properties = {}
    if properties:
        found["properties"] = {name: _reduce_schema(value, depth + 1) for name, value in properties.items()}
    required = [name for name in found.pop("required", None) or [] if name in properties]
    if required:
        found["required"] = required


def _describe_rest(schema: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The parts of a schema that the subset cannot express, as text."""
    notes = [f"{name}: {json.dumps(schema[name], ensure_ascii=False)}" for name in TOLD if name in schema and name != "const"]
    if notes:
        found["description"] = _add_sentence(found.get("description"), f"({', '.join(notes)})")
    return found


def _add_sentence(before: Any, more: str) -> str:
    return f"{before} {more}" if isinstance(before, str) and before else more


def _table_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
