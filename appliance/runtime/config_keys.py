"""What a configuration key is: a field of a frozen table of keys with a type, a default, a range and what it means.

Owns the shape of such a field, for `runtime.settings` and `runtime.tool_settings`, which list the keys. Knows no key. Units are in
the names of keys. Seeds are written B (botholomew), R (rummy), A (baaaht), S (squidbot).
"""

import re
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Never, dataclass_transform

DAY_S = 86_400
DAY_MS = DAY_S * 1000
# A name of a variable or key whose value is most likely a secret.
TELLING = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class About:
    """The facts about a key besides its type and default.

    `is_needed`: may not be empty, in a table with an `enabled` switch only when it is on.
    `is_shown`: `owlbox init` writes it into a new file, as a comment.
    `is_broker`: the broker reads it at its start, so a change waits until the broker was renewed.
    `is_restart`: parts are built with it once, so a change waits for the next start. Both hold for all of a table.
    `is_rest`: a table of names that stand beside the other keys of its table, not below a name of its own.
    `folder`: the value, or each name of a table, is the name of a module in this folder of the package: a new file there is
    a new choice.
    A key with neither `is_broker` nor `is_restart` is in force as soon as a reload has taken it.
    """

    doc: str = ""
    seed: str = ""
    within: tuple[float, float] | None = None
    is_needed: bool = False
    is_secret: bool = False
    is_shown: bool = False
    is_broker: bool = False
    is_restart: bool = False
    is_rest: bool = False
    folder: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The modules in `folder`, found without importing any of them; none for a key without a folder."""
        files = (PACKAGE / self.folder).glob("*.py") if self.folder else ()
        return tuple(sorted(file.stem for file in files if not file.stem.startswith("_")))

    def within_table(self, table: "About") -> "About":
        """The same for a key of a table: what holds for all of it holds for the key."""
        return replace(
            self,
            is_broker=self.is_broker or table.is_broker,
            is_restart=self.is_restart or table.is_restart,
        )


@dataclass_transform(frozen_default=True)
class Keys:
    """A table of the configuration: each class below this is a frozen dataclass for `fields`, `replace` and `is_dataclass`.

    What `dataclass` would write and compile for each of 45 classes stands here once: that took 25 ms of every start.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    own_fields: ClassVar[tuple[Field[Any], ...]]  # `fields` makes them anew for each of a thousand times that one start asks

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
        cls.own_fields = fields(cls)

    def __init__(self, *values: Any, **named: Any) -> None:
        known = self.__dataclass_fields__
        given = dict(zip(known, values, strict=False))
        if len(values) > len(known) or given.keys() & named or named.keys() - known:
            raise TypeError(f"{type(self).__name__} has the keys {', '.join(known)}; got {len(values)} values, {', '.join(named)}")
        given |= named
        for name, item in known.items():
            vars(self)[name] = given[name] if name in given else default_of(item)

    def __setattr__(self, name: str, value: Any) -> Never:
        raise FrozenInstanceError(f"cannot assign to {name} of {type(self).__name__}")

    def __delattr__(self, name: str) -> Never:
        raise FrozenInstanceError(f"cannot delete {name} of {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = (f"{name}={vars(self)[name]!r}" for name, item in self.__dataclass_fields__.items() if item.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def default_of(item: Field[Any]) -> Any:
    """The value of a key that nobody set."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def setting(
    default: Any, doc: str, *, seed: str = "", within: tuple[float, float] | None = None, mark: str = "", folder: str = ""
) -> Any:
    """A dataclass field with its description; `mark` holds any of the words needed, secret, shown, broker, restart, rest."""
    marks = {f"is_{word}": True for word in mark.split()}
    known = About(doc, seed, within, folder=folder, **marks)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata={"about": known}, repr=not known.is_secret)
    return field(default=default, metadata={"about": known}, repr=not known.is_secret)


@cache  # of a fixed number of fields; one start asks two thousand times
def about(item: Field[Any]) -> About:
    """The description of a field."""
    found = item.metadata.get("about", About())
    assert isinstance(found, About)
    return found


def rest_of(table: Any) -> Field[Any] | None:
    """The field of a dataclass that takes the names which are no key of it."""
    return next((item for item in table.own_fields if about(item).is_rest), None)
