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
    definitions = {**_table(schema.get("definitions")), **_table(schema.get("$defs"))}
    found = _flat({k: v for k, v in schema.items() if k not in ("$defs", "definitions")}, definitions, ())
    return found if isinstance(found, dict) and found.get("type") else {"type": "object", "properties": {}, **_table(found)}


def subset(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as Gemini takes it: types in capitals, null as a flag, choices as texts."""
    return _small(flat(schema), 0)


def has_arguments(schema: Mapping[str, Any]) -> bool:
    """True when a call may have any."""
    return bool(schema.get("properties"))


def _flat(value: Any, definitions: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_flat(item, definitions, path) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        beside = {k: v for k, v in value.items() if k != "$ref"}
        if name in path or name not in definitions or len(path) > MAX_DEPTH:
            return {**FREE, **beside}
        meant = _flat(definitions[name], definitions, (*path, name))
        return {**_table(meant), **_table(_flat(beside, definitions, path))}
    whole = value.get("allOf")
    if isinstance(whole, list) and len(whole) == 1:
        inner = _table(_flat(whole[0], definitions, path))
        return {**inner, **_table(_flat({k: v for k, v in value.items() if k != "allOf"}, definitions, path))}
    return {k: _flat(v, definitions, path) for k, v in value.items() if k != "$schema"}


def _small(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {"type": "OBJECT"} if isinstance(schema, dict) else {"type": "STRING"}
    schema = _joined(schema)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        if len(others) > 1:
            return _small({**{k: v for k, v in schema.items() if k != "type"}, "anyOf": [{"type": k} for k in kinds]}, depth)
        schema = {**schema, "type": others[0] if others else "string", "nullable": len(others) < len(kinds)}
    options = schema.get("anyOf")
    if isinstance(options, list):
        return _options(schema, options, depth)
    found = {k: v for k, v in schema.items() if k in SUBSET and v is not None and v is not False}
    found["type"] = str(
        schema.get("type") or ("array" if "items" in schema else "object" if "properties" in schema else "string")
    ).upper()
    if found.get("format") not in FORMATS:
        found.pop("format", None)
    _choices(schema, found)
    if found["type"] == "ARRAY":
        found["items"] = _small(schema.get("items") if isinstance(schema.get("items"), dict) else {"type": "string"}, depth + 1)
    else:
        found.pop("items", None)
    _members(found, depth)
    return _told(schema, found)


def _joined(schema: dict[str, Any]) -> dict[str, Any]:
    """oneOf is anyOf here; several of allOf are put together."""
    if "oneOf" in schema and "anyOf" not in schema:
        schema = {**{k: v for k, v in schema.items() if k != "oneOf"}, "anyOf": schema["oneOf"]}
    whole = schema.get("allOf")
    if isinstance(whole, list):
        properties: dict[str, Any] = {}
        required: list[Any] = []
        rest = {k: v for k, v in schema.items() if k != "allOf"}
        for part in map(_table, [*whole, rest]):
            properties |= _table(part.get("properties"))
            required += part.get("required") or []
            rest = {**part, **rest}
        schema = {**rest, **({"properties": properties} if properties else {}), **({"required": required} if required else {})}
    return schema


def _options(schema: dict[str, Any], options: list[Any], depth: int) -> dict[str, Any]:
    """One of several: null is a flag, and a single one that is left stands for itself."""
    others = [option for option in options if _table(option).get("type") != "null" and _table(option).get("const", "") is not None]
    beside = {k: v for k, v in schema.items() if k in ("description", "title", "default")}
    if len(others) == 1:
        found = _small({**_table(others[0]), **beside}, depth + 1)
    else:
        found = _told(schema, {**{k: v for k, v in beside.items() if k in SUBSET}, "anyOf": [_small(o, depth + 1) for o in others]})
    return {**found, "nullable": True} if len(others) < len(options) or schema.get("nullable") else found


def _choices(schema: dict[str, Any], found: dict[str, Any]) -> None:
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
        found["description"] = _sentence(found.get("description"), f"One of {json.dumps(kept)}.")


def _members(found: dict[str, Any], depth: int) -> None:
    properties = _table(found.pop("properties", None))
    if found["type"] != "OBJECT":
        properties = {}
    if properties:
        found["properties"] = {name: _small(value, depth + 1) for name, value in properties.items()}
    required = [name for name in found.pop("required", None) or [] if name in properties]
    if required:
        found["required"] = required


def _told(schema: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What the subset has no word for, as words."""
    notes = [f"{name}: {json.dumps(schema[name], ensure_ascii=False)}" for name in TOLD if name in schema and name != "const"]
    if notes:
        found["description"] = _sentence(found.get("description"), f"({', '.join(notes)})")
    return found


def _sentence(before: Any, more: str) -> str:
    return f"{before} {more}" if isinstance(before, str) and before else more


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
