"""`replace`, `asdict` and `fields` for records of both kinds: Structs of msgspec, and the dataclasses of the configuration."""

import dataclasses
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def replace(record: T, **changes: Any) -> T:
    """The record with some fields changed."""
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]


def asdict(record: Any) -> dict[str, Any]:
    """The fields of a record by name, records in them left as they are."""
    return {item.name: getattr(record, item.name) for item in fields(record)}


def fields(record: Any) -> tuple[Any, ...]:
    """The fields of a record or of its class, each with a `name`."""
    kind = record if isinstance(record, type) else type(record)
    return msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else dataclasses.fields(kind)
