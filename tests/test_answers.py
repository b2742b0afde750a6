"""A model's text becomes commands: what is a call, what is prose, what is neither."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance import answers
from appliance.clock import monotonic_s
from appliance.records import ToolCall

TOOLS = ("search", "remember")
CALL = '{"name": "search", "arguments": {"query": "garden"}}'


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\n  {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```",
        f"```tool_call\n{CALL}\n```",
        f"<tool_call>{CALL}</tool_call>",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>\n{CALL}",
        CALL.replace("arguments", "parameters"),
    ],
)
def test_a_call_written_as_text_becomes_a_command(text: str) -> None:
    answer = answers.read(text, (), TOOLS)
    assert answer.calls == (ToolCall("call_1", "search", {"query": "garden"}),)
    assert answer.text == "" and answer.warnings == ("a tool call was written as text",)


@pytest.mark.parametrize(
    "text",
    [
        "The garden is south.",
        f"You could write `{CALL}` yourself.",
        f"`{CALL}`",
        f"Use this: {CALL}",
        f"{CALL} would be a call.".replace('"name"', "'name'").replace('"arguments"', "args"),
        '{"colour": "red"}',
        '{"name": "Ada"}',
        "{not json at all}",
        "[1, 2]",
        '```python\nprint("hoot")\n```',
        "",
    ],
)
def test_prose_stays_prose(text: str) -> None:
    assert answers.read(text, (), TOOLS) == answers.Answer(text, ())


@pytest.mark.parametrize(
    "text",
    [
        CALL[:-1],
        CALL[:-12],
        '{"name": "sea',
        '{"arguments": {"query": "x"}, "name": }',
        '{"name": "search", "arguments": "garden"}',
        '{"name": "search", "arguments": {"n": 1' + "1" * 5000 + "}}",
        '{"name": "search", "arguments": ' + '{"a":' * 50_000,
        f"```json\n{CALL[:-1]}\n```",
        f"<tool_call>{CALL}</tool_call> and more",
    ],
)
def test_a_call_that_cannot_be_read_is_reported_and_never_shown(text: str) -> None:
    answer = answers.read(text, (), TOOLS)
    assert (answer.text, answer.calls) == ("", ())
    assert answer.warnings == ("a tool call could not be read",)


def test_an_unknown_tool_is_named_and_not_shown() -> None:
    answer = answers.read(CALL.replace("search", "format_disk"), (), TOOLS)
    assert answer == answers.Answer("", (), ("unknown tool format_disk",))


def test_a_provider_s_own_calls_win_and_prose_beside_them_is_kept() -> None:
    own = [ToolCall("a", "search", {"query": "x"}), ToolCall("b", "anything", {})]
    assert answers.read(" I will look. ", own, TOOLS) == answers.Answer("I will look.", tuple(own))
    twice = answers.read(CALL, own, TOOLS)
    assert twice.calls == tuple(own) and twice.text == "" and twice.warnings


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters()) | st.binary().map(lambda b: b.decode("utf-8", "surrogateescape")))
def test_any_text_is_read_without_an_error_and_never_dropped_silently(text: str) -> None:
    for shape in (text, "{" + text, f"```json\n{text}\n```", f"<tool_call>{text}", '{"name": "search", "arguments": ' + text):
        answer = answers.read(shape, (), TOOLS)
        assert answer.text == shape.encode("utf-8", "replace").decode().strip() or answer.calls or answer.warnings


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=20), max_size=4))
def test_arguments_come_through_unchanged(arguments: dict[str, Any]) -> None:
    text = json.dumps({"name": "remember", "arguments": arguments})
    assert answers.read(text, (), TOOLS).calls[0].arguments == arguments


def test_a_long_run_of_blanks_takes_no_time() -> None:
    started_s = monotonic_s()
    answers.read("<tool_call>x" + " " * 50_000 + "x", (), TOOLS)
    answers.read("{" + '"name" ' * 20_000, (), TOOLS)
    assert monotonic_s() - started_s < 1


@pytest.mark.parametrize("calls", [(), (ToolCall("c1", "search", {"query": "a\ud800", "more": ["\udfff"]}),)])
def test_half_a_surrogate_in_a_call_becomes_a_question_mark(calls):
    text = "" if calls else '{"name": "search", "arguments": {"query": "a\\ud800", "more": ["\\udfff"]}}'
    answer = answers.read(text, calls, ["search"])
    assert answer.calls[0].arguments == {"query": "a?", "more": ["?"]}
