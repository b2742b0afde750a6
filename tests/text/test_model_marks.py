"""Marks of models: thoughts and ends in every form they are written in, and calls of formats that models were trained on."""

from typing import Any

import pytest

from appliance.clock import monotonic_s
from appliance.providers.token_stream import StreamedAnswer
from appliance.records import ToolSpec
from appliance.text import answer_parser, answer_stream

TEXT = {"type": "string"}
PROPERTIES: dict[str, Any] = {"text": TEXT, "count": {"type": "integer"}, "is_new": {"type": "boolean"}, "tags": {"type": "array"}}
SAVE = ToolSpec("save", "Save it.", {"type": "object", "properties": PROPERTIES, "required": ["text"]})
THOUGHTS = [
    ("<think>", "</think>"),
    ("<THINK>", "</THINK>"),
    ("<Thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ('<think type="deep" budget=10>', "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
]
ENDS = ["</s>", "<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<｜end▁of▁sentence｜>", "<|end_of_text|>", "<turn|>"]


def read(text: str) -> answer_parser.ParsedAnswer:
    return answer_parser.read(text, (), [SAVE])


@pytest.mark.parametrize(("opened", "closed"), THOUGHTS)
@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{o}He may mean owls.{c}\n\nOwls sleep by day.", "Owls sleep by day."),
        ("Owls{o}or bats?{c} sleep by day.", "Owls sleep by day."),
        ("He may mean owls.{c}\nOwls sleep by day.", "Owls sleep by day."),
        ("Owls sleep by day.{c}", "Owls sleep by day."),
    ],
)
def test_thoughts_never_reach_a_person_and_never_cost_the_answer(opened: str, closed: str, form: str, said: str) -> None:
    assert read(form.format(o=opened, c=closed)).text == said


@pytest.mark.parametrize(("opened", "closed"), THOUGHTS)
def test_thoughts_in_front_come_apart_in_a_stream_of_single_characters(opened: str, closed: str) -> None:
    answer = StreamedAnswer(())
    shown = "".join(answer.feed(char.encode()) for char in f"{opened}Hm, owls?{closed}\n\nBy day.") + answer.finish()
    assert (shown, answer.thoughts()) == ("By day.", "Hm, owls?")


def test_what_only_begins_like_a_mark_is_said() -> None:
    answer = StreamedAnswer(())
    assert "".join(answer.feed(char.encode()) for char in "<thin ice> [THIS] is") + answer.finish() == "<thin ice> [THIS] is"


@pytest.mark.parametrize("end", ENDS)
def test_nothing_behind_the_end_of_an_answer_is_read(end: str) -> None:
    answer = read(f'By day.{end}\nuser: and bats?\n<tool_call>{{"name": "save", "arguments": {{"text": "x"}}}}</tool_call>')
    assert (answer.text, answer.calls) == ("By day.", ())
    assert read(f"{end}By day.").text == "By day."


@pytest.mark.parametrize("text", ["It was <s>five</s> six euros.", "Write `<|im_end|>` at the end, then go on."])
def test_marks_that_are_somebodys_text_stay(text: str) -> None:
    assert read(text).text == text


def test_what_an_unmarked_thought_would_have_called_is_not_called() -> None:
    answer = read('<tool_call>{"name": "save", "arguments": {"text": "x"}}</tool_call> or not?</think>Nothing to save.')
    assert (answer.text, answer.calls) == ("Nothing to save.", ())


CALLS = {
    "glm": "<tool_call>save\n<arg_key>text</arg_key>\n<arg_value>an owl</arg_value>\n<arg_key>count</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    "deepseek v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>save\n```json\n"
    '{"text": "an owl", "count": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek v3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>save<｜tool▁sep｜>{"text": "an owl", "count": 2}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "deepseek v3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="save">\n<｜DSML｜parameter name="text" string="true">an owl'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="count" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜function_calls>",
    "minimax": '<minimax:tool_call>\n<invoke name="save">\n<parameter name="text">an owl</parameter>\n'
    '<parameter name="count">2</parameter>\n</invoke>\n</minimax:tool_call>',
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.save:0<|tool_call_argument_begin|>"
    '{"text": "an owl", "count": 2}<|tool_call_end|><|tool_calls_section_end|>',
    "seed": "<seed:tool_call><function=save><parameter=text>an owl</parameter><parameter=count>2</parameter></function>"
    "</seed:tool_call>",
    "python in a mark": "<tool_call>\n{'arguments': {'text': 'an owl', 'count': 2}, 'name': 'save'}\n</tool_call>",
    "half python": "<tool_call>\n{\"arguments\": {'text': \"an owl\", 'count': 2}, \"name\": 'save'}\n</tool_call>",
    "python as a text": '<tool_call>{"name": "save", "arguments": "{\'text\': \'an owl\', \'count\': 2}"}</tool_call>',
    "python behind a name": "[TOOL_CALLS]save{'text': 'an owl', 'count': 2}",
    "python for a function": "<function=save>{'text': 'an owl', 'count': 2}</function>",
    "python in a block": "```tool_call\n{'name': 'save', 'arguments': {'text': 'an owl', 'count': 2}}\n```",
}


@pytest.mark.parametrize("form", CALLS)
def test_a_call_is_read_in_the_form_a_model_was_trained_on(form: str) -> None:
    answer = read(f"I save it.\n{CALLS[form]}")
    assert [(call.name, call.arguments) for call in answer.calls] == [("save", {"text": "an owl", "count": 2})]
    assert answer.text == "I save it."


@pytest.mark.parametrize("form", CALLS)
def test_such_a_call_is_shown_to_nobody_while_it_comes(form: str) -> None:
    showing = answer_stream.Showing([SAVE])
    shown = "".join(map(showing.more, CALLS[form]))
    assert not shown.strip()


def test_truths_and_nothing_are_read_as_python_writes_them() -> None:
    answer = read(
        "<tool_call>{'name': 'save', 'arguments': {'text': 'caf\\u00e9', 'is_new': True, 'tags': [1e-6, None]}}</tool_call>"
    )
    assert answer.calls[0].arguments == {"text": "café", "is_new": True, "tags": [1e-6, None]}


@pytest.mark.parametrize(
    "inside",
    [
        "{'name': 'save', 'arguments': {'text': owl}}",
        "{'name': 'save' 'arguments': {}}",
        "{'name': 'save', 'arguments': {'text': 1*2}}",
    ],
)
def test_what_is_neither_json_nor_python_is_refused(inside: str) -> None:
    answer = read(f"<tool_call>{inside}</tool_call>")
    assert answer.calls == () and answer.is_malformed


@pytest.mark.parametrize(
    "unit", ["<tool_call>\n", "<|tool_call_begin|>", "<think ", "◁", "</think>", "<｜tool▁calls▁begin｜> a", "{'a':"]
)
def test_long_runs_of_marks_take_no_time(unit: str) -> None:
    began = monotonic_s()
    read(unit * (200_000 // len(unit)))
    assert monotonic_s() - began < 20  # cubic patterns took minutes
