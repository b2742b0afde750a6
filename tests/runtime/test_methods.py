"""Marked functions: found on an object, given what they take, and their results made JSON-ready."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from appliance.errors import BadInput, OwlError
from appliance.runtime.methods import Call, LocalCall, find_methods, method
from appliance.runtime.signatures import Range


@dataclass(frozen=True)
class Cup:
    tea: str
    ml: int


class Kitchen:
    """A service with three marked functions and one that is not."""

    @method("tea.make")
    def make(self, ml: Annotated[int, Range(1, 500), "how much"] = 200) -> list[Cup]:
        """Tea for one."""
        return [Cup("green", ml)]

    @method("tea.ask", access="own")
    def ask(self, tea: str, *, call: Call) -> dict[str, Any]:
        call.notify("asked", {"tea": tea})
        return {"uid": call.uid, "cup": Cup(tea, 1)}

    @method("tea.odd")
    def odd(self) -> object:
        return object()

    def close(self) -> None: ...


def test_marks_are_read_from_the_class_and_register_nothing() -> None:
    found = find_methods(Kitchen())
    assert sorted(found) == ["tea.ask", "tea.make", "tea.odd"]
    assert (found["tea.make"].doc, found["tea.ask"].mark.access) == ("Tea for one.", "own")


def test_records_in_a_result_become_json_ready() -> None:
    assert find_methods(Kitchen())["tea.make"].call(LocalCall(), ml=5) == [{"tea": "green", "ml": 5}]


def test_who_asks_is_told_only_to_functions_that_take_it() -> None:
    heard: list[object] = []
    call = LocalCall(lambda name, params: heard.append((name, params)), uid=7)
    answer = find_methods(Kitchen())["tea.ask"].call(call, tea="mint")
    assert answer == {"uid": 7, "cup": {"tea": "mint", "ml": 1}} and heard == [("asked", {"tea": "mint"})]


@pytest.mark.parametrize("params", [{"ml": 0}, {"ml": "x"}, {"sugar": 1}, {"call": 1}, {"self": 1}])
def test_arguments_that_cannot_be_are_refused_by_name(params: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(params))):
        find_methods(Kitchen())["tea.make"].call(LocalCall(), **params)


def test_a_result_that_is_no_json_is_an_error_with_a_next_step() -> None:
    with pytest.raises(OwlError, match="cannot be sent") as caught:
        find_methods(Kitchen())["tea.odd"].call(LocalCall())
    assert caught.value.hint
