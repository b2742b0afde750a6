"""The result of one of the doctor's checks."""

from typing import Literal

from msgspec import Struct

State = Literal["ok", "warning", "problem"]


class Finding(Struct, frozen=True):
    """One check's result; `hint` is the next step when it is not ok. `details` is shown when this check alone is asked for."""

    name: str
    state: State
    message: str
    hint: str = ""
    details: dict[str, str] = {}
