"""The openai and the anthropic format beside a real llama-server, with the bundled model."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import shallow_file, shallow_home
from peer import llama_server, needs_peer
from test_providers import CLASSES, ask, remote

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, TooLarge
from appliance.providers.http_provider import Hosted
from appliance.records import Ask, Finish, Message, Piece, Route, ToolCall, ToolSpec

__all__ = ["shallow_file", "shallow_home"]

pytestmark = [needs_peer, pytest.mark.model]
LAMP = ToolSpec(
    "house.lamp-switch",
    "Switches a lamp.",
    {
        "type": "object",
        "properties": {"lamp": {"$ref": "#/$defs/Lamp"}, "is_on": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}},
        "required": ["lamp", "is_on"],
        "$defs": {"Lamp": {"type": "string", "enum": ["kitchen", "garden"]}},
    },
)


@pytest.fixture(scope="module")
def server(shallow_file: Path) -> Iterator[str]:
    with llama_server(shallow_file) as url:
        yield url


@pytest.fixture(params=["openai", "anthropic"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def of(server: str, kind: str, **more: Any) -> Hosted:
    return CLASSES[kind](remote(f"{server}/v1", kind, **more))


def answers(made: Hosted, asked: Ask) -> tuple[list[Piece], Finish]:
    *pieces, finish = list(made.generate(Route("r", "", "", 1, "native"), asked, CancelToken()))
    return pieces, finish  # type: ignore[return-value]


@pytest.mark.covers("A-109", "A-110", "S-025")
def test_it_streams_and_counts(server: str, kind: str) -> None:
    made = of(server, kind)
    pieces, finish = answers(made, ask(max_tokens=24))
    assert len(pieces) >= finish.output_tokens / 4  # how much it says is its own affair
    assert finish.prompt_tokens > 10 and 0 < finish.output_tokens <= 24 and not finish.is_estimated
    _, again = answers(made, ask(max_tokens=4))
    assert again.cached_tokens > 0 and again.evaluated_tokens < again.prompt_tokens
    made.close()


def shown() -> tuple[Message, ...]:
    """A conversation in which lamps were switched."""
    found: list[Message] = []
    for n, (lamp, is_on) in enumerate([("garden", True), ("kitchen", False), ("garden", False)]):
        call = ToolCall(f"call_{n}", LAMP.name, {"lamp": lamp, "is_on": is_on})
        found += [
            Message("user", f"Switch the {lamp} lamp {'on' if is_on else 'off'}."),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "done", tool_call_id=call.id),
        ]
        found.append(Message("assistant", "Done."))
    return (*found, Message("user", "Switch the kitchen lamp on."))


def test_it_takes_tools_of_any_name_and_schema_and_their_results(server: str, kind: str) -> None:
    _, finish = answers(of(server, kind), Ask((), shown(), (LAMP,), "native", max_tokens=4))
    assert finish.prompt_tokens > 200  # its template has them all: the tools, three calls, three results
    lost = Message("assistant", "", tool_calls=(ToolCall("call_lost", LAMP.name, {}),))
    _, finish = answers(of(server, kind), Ask((), (*shown(), lost, Message("user", "And?")), (LAMP,), "native", max_tokens=4))
    assert finish.output_tokens > 0


def test_a_stop_frees_the_server(server: str, kind: str) -> None:
    made, token = of(server, kind), CancelToken()
    answer = made.generate(Route("r", "", "", 1, "native"), ask("Write a very long story.", max_tokens=1500), token)
    next(answer)
    token.set()
    with pytest.raises(Cancelled):
        list(answer)
    began_s = monotonic_s()
    answers(made, ask("Hi", max_tokens=4))
    assert monotonic_s() - began_s < 30


@pytest.mark.covers("R-167", "R-200")
def test_a_prompt_that_is_too_long_is_told_and_its_window_learned(server: str, kind: str) -> None:
    made = of(server, kind)
    with pytest.raises(TooLarge):
        answers(made, ask("owl " * 6000))
    assert made.window == 2048


@pytest.mark.covers("A-129", "R-200")
def test_its_model_is_listed_with_its_window(server: str) -> None:
    made = of(server, "openai")
    made.load(CancelToken())
    assert made.window == 2048
    (one,) = made.listing()
    assert "SmolLM2" in one.model and one.window == 2048


@pytest.mark.covers("A-122")
def test_two_answers_come_at_once(server: str, kind: str) -> None:
    made, found = of(server, kind), []
    threads = [threading.Thread(target=lambda: found.append(answers(made, ask(max_tokens=16)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
