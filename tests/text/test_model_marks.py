"""Marks of models: thoughts and ends in every form they are written in, and calls of formats that models were trained on."""

from typing import Any

import pytest

from appliance.clock import monotonic_s
from appliance.language.sentence_stream import SentenceStream
from appliance.providers.token_stream import StreamedAnswer
from appliance.records import ToolSpec
from appliance.text import answer_parser, answer_stream, json_calls

TEXT = {"type": "string"}
PROPERTIES: dict[str, Any] = {"text": TEXT, "count": {"type": "integer"}, "is_new": {"type": "boolean"}, "tags": {"type": "array"}}
SAVE = ToolSpec("save", "Save it.", {"type": "object", "properties": PROPERTIES, "required": ["text"]})
THINK = ToolSpec("think", "Think.", {"type": "object", "properties": {"body": TEXT}})
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
    ("<analysis>", "</analysis>"),
    ("<Scratchpad>", "</Scratchpad>"),
    ("<reflection>", "</reflection>"),
    ("<INNER_MONOLOGUE>", "</INNER_MONOLOGUE>"),
    ("<antThinking>", "</antThinking>"),
    ("<thought_process>", "</thought_process>"),
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
    # A tool `think` that this thread has not, and one that it has: its tag is that call, but an end alone is an end of thoughts.
    assert answer_parser.read(form.format(o=opened, c=closed), (), [SAVE], others=("think", "save")).text == said
    if not form.startswith("Owls{o}"):
        assert answer_parser.read(form.format(o=opened, c=closed), (), [SAVE, THINK]).text == said


@pytest.mark.parametrize(("opened", "closed"), THOUGHTS)
def test_thoughts_in_front_come_apart_in_a_stream_of_single_characters(opened: str, closed: str) -> None:
    answer = StreamedAnswer(())
    shown = "".join(answer.feed(char.encode()) for char in f"{opened}Hm, owls?{closed}\n\nBy day.") + answer.finish()
    assert (shown, answer.thoughts()) == ("By day.", "Hm, owls?")


def test_thoughts_with_elements_in_them_are_thoughts() -> None:
    text = "<thinking_process>\n<step>Owls?</step>\n<step>By day.</step>\n</thinking_process>\nOwls sleep by day."
    assert read(text).text == "Owls sleep by day." == "".join(stream(text)).strip()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ('"C:\\Users\\ann"', "C:\\Users\\ann"),
        ("'it\\'s \\\\ here'", "it's \\ here"),
        ("'a\\tb \\d+'", "a\tb \\d+"),
        ('"one\\/two"', "one/two"),
    ],
)
def test_a_backslash_that_escapes_nothing_stays(said: str, meant: str) -> None:
    found = read(f"<tool_call>{{'name': 'save', 'arguments': {{'text': {said}}}}}</tool_call>")
    assert [call.arguments for call in found.calls] == [{"text": meant}]


def test_a_tuple_is_a_list_and_a_body_of_elements_that_are_no_arguments_is_a_text() -> None:
    found = read("<tool_call>{'name': 'save', 'arguments': {'text': 'x', 'tags': ('a', 'b')}}</tool_call>")
    assert [call.arguments for call in found.calls] == [{"text": "x", "tags": ["a", "b"]}]
    for body in ("<p>an owl</p>", "<text>an owl</text> and more", "<count>2</count>"):
        assert [call.arguments for call in read(f"<save>{body}</save>").calls] == [{"text": body}]


def test_what_only_begins_like_a_mark_is_said() -> None:
    answer = StreamedAnswer(())
    assert "".join(answer.feed(char.encode()) for char in "<thin ice> [THIS] is") + answer.finish() == "<thin ice> [THIS] is"


# Blocks in front of an answer under names that stand in no table, and what may look like one and is the answer.
NAMES = ["plan", "Rationale", "brainstorm", "chain-of-thought", "step.1", "antml:reason", "self_check"]
ANSWERS = [
    "<config><size>3. It is large.</size></config>\n\nThis is the file.",
    "<p>Owls sleep by day. They hunt at night.</p>\n\nThis is a paragraph.",
    "<details>\n<summary>Owls</summary>\nThey hunt at night.\n</details>\nMore below.",
    '<note to="Ann">Owls sleep by day. Really.</note>\n\nThis is the note.',
    "<plant>Acer palmatum</plant>\n\nThat is the element.",
    "<note>Owls sleep by day. They hunt at night.</note>",
    "```xml\n<plan>First this. Then that.</plan>\n```\nThat is it.",
    "<plan>First this. Then that is never closed.",
    "So: <plan>First this. Then that.</plan> is an element.",
    "<!-- a page. -->\n<html></html>\nDone.",
    "<3 owls. They hunt at night.",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_block_before_the_answer_is_a_thought_whatever_it_is_called(name: str) -> None:
    block = f"<{name}>\nHe may mean owls. I look.\n</{name}>\n\n"
    for before in ("", "<think>hm</think>\n", f"<{name}>It is short. But whole.</{name}>\n"):
        text = f"{before}{block}Owls sleep by day."
        assert read(text).text == "Owls sleep by day." == "".join(stream(text)).strip()


def stream(text: str) -> list[str]:
    showing = answer_stream.Showing([SAVE])
    said = [showing.more(char) for char in text]
    return [*said, showing.rest(read(text).text)]


@pytest.mark.parametrize("text", ANSWERS)
def test_markup_and_data_before_words_are_the_answer(text: str) -> None:
    assert read(text).text == text and "".join(stream(text)) == text
    sentences = SentenceStream()
    if not text.startswith(("```", "<")):
        assert sentences.feed(text) + sentences.finish(is_cut=False) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<answer>Owls sleep by day.</answer>", "Owls sleep by day."),
        ("<thinking>hm</thinking>\n<output>\nBy day.\n</output>", "By day."),
        ("<plan>I say when they sleep. Then why.</plan>\n<told_to_user>By day.</told_to_user>", "By day."),
        ("<final_answer>By day.</final_answer>\n\nAnd bats too.", "By day.\n\nAnd bats too."),
        ("<response>By day.", "By day."),
        ("<response>I save it.\n<save>an owl</save></response>", "I save it."),
    ],
)
def test_an_answer_loses_the_marks_around_it(text: str, said: str) -> None:
    assert read(text).text == said and "".join(stream(text)) == said


def test_a_tag_of_a_tool_is_no_block_before_the_answer() -> None:
    text = "<save>Owls sleep by day. They do.</save>\n\nI saved it."
    assert [call.arguments for call in read(text).calls] == [{"text": "Owls sleep by day. They do."}]
    off = answer_parser.read(text, (), [], others=("save",))
    assert (off.calls, off.warnings) == ((), ("the tool save is not offered",))


def test_a_small_model_s_block_before_the_answer_costs_nothing() -> None:
    sentences = SentenceStream()
    text = "<plan>He may mean owls. I say it.</plan>\nOwls sleep by day. They hunt at night."
    said = "".join(map(sentences.feed, text)) + sentences.finish(is_cut=False)
    assert said == "Owls sleep by day. They hunt at night."


@pytest.mark.parametrize("size", [1, 4, 99])
@pytest.mark.parametrize("end", [*ENDS, "<|im_start|>", "\n<start_of_turn>", "[INST]", "<|User|>"])
def test_a_small_model_s_answer_ends_with_its_mark(end: str, size: int) -> None:
    for first in ("Owls", "Owls sleep.", "Owls sleep by day. At night they hunt."):
        sentences, text = SentenceStream(), f"{first}{end}user\nand bats? They do too. I think so."
        said = "".join(sentences.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert (said + sentences.finish(is_cut=False)).strip() == first and sentences.is_over
    struck, text = SentenceStream(), "It was <s>five</s> six euros, or a <b less."
    assert "".join(map(struck.feed, text)) + struck.finish(is_cut=False) == text


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
    "python's own call in a mark": "<tool_call>\nsave(text='an owl', count=2)\n</tool_call>",
    "a granite": '<function_call> {"name": "save", "arguments": {"text": "an owl", "count": 2}}',
    "a glaive": '<functioncall> {"name": "save", "arguments": \'{"text": "an owl", "count": 2}\'} </functioncall>',
    "a function gemma": "<start_function_call>call:save{text:<escape>an owl<escape>,count:2}<end_function_call>",
    "an old openai": '{"function_call": {"name": "save", "arguments": "{\\"text\\": \\"an owl\\", \\"count\\": 2}"}}',
    "a prefix": '<tool_call>{"name": "functions.save", "arguments": {"text": "an owl", "count": 2}}</tool_call>',
    "elements": "<save>\n<text>an owl</text>\n<count>2</count>\n</save>",
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


TABLE = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
TEST = ToolSpec("chi", "Test.", {"type": "object", "properties": {"table": TABLE, "unit": TEXT}, "required": ["table"]})
WANTED = {"table": [[10, 20], [30, 40]], "unit": "cm, mm"}
JSON = '{"name": "chi", "arguments": {"table": [[10, 20], [30, 40]], "unit": "cm, mm"}}'
GIVEN = '{"table": [[10, 20], [30, 40]], "unit": "cm, mm"}'
HOLED = [  # a mark is taken out of what stands in the middle
    ("<tool_call>\n", JSON, "\n</tool_call>"),
    ("<tool_call>", JSON.replace('"', "'"), "</tool_call>"),
    ("", f'{{"tool_calls": [{JSON}]}}', ""),
    ("[TOOL_CALLS]", f"[{JSON}]", ""),
    ("[TOOL_CALLS]chi", GIVEN, ""),
    ("<function=chi>", GIVEN, "</function>"),
    ("<|tool_call_begin|>functions.chi:0<|tool_call_argument_begin|>", GIVEN, "<|tool_call_end|>"),
    ("<|channel|>commentary to=functions.chi<|message|>", GIVEN, "<|call|>"),
    ("<|python_tag|>chi", '(table=[[10, 20], [30, 40]], unit="cm, mm")', "<|eom_id|>"),
    ("```tool_call\n", JSON, "\n```"),
]


@pytest.mark.parametrize(("before", "call", "after"), HOLED)
def test_a_call_that_lost_a_bracket_or_a_quotation_mark_is_that_call_or_none(before: str, call: str, after: str) -> None:
    found = []
    for at, char in enumerate(call):
        if char in "{}[]()\"'":
            answer = answer_parser.read(f"{before}{call[:at]}{call[at + 1 :]}{after}", (), [TEST])
            found.append([(one.name, one.arguments) for one in answer.calls])
            assert found[-1] in ([], [("chi", WANTED)])
    assert found.count([]) <= 3, found


@pytest.mark.parametrize(
    ("inside", "calls"),
    [
        # What was lost stands in the middle, where other places are as good: the schema says which was meant.
        ("{\"arguments\": {\"table\": [10, 20], [30, 40]], 'unit': 'cm'}, \"name\": 'chi'}", 1),
        ('{"name": "chi", "arguments": {"table": [[1, 2], [3, 4]], "unit": "cm}}', 1),
        ('{"name": "chi", "arguments": {"table": [[1, 2]], "unit": "cm"', 1),
        ('{"name": "chi", "arguments": {"table": [[1, 2]], "unit": "cm"}}}}', 1),
        ('{"name": "chi", "arguments": {"table": [[1, 2]], "unit": 5}', 0),  # not of the schema
        ('{"name": "chi", "arguments": {"unit": "cm"}', 0),  # required
        ('{"name": "other", "arguments": {"table": [[1, 2]]}', 0),
        ('{"name": "chi", "arguments": {"table": [[1, 2], [3, 4}', 0),  # three marks
        ('{"name": "chi", "arguments": {"table": [[1, 2]] "unit": "cm}', 0),  # two marks
        ('{"name": "save", "arguments": {"text": "a", "tags": [1, 2, [3, 4]]}', 1),
        ('{"name": "save", "arguments": {"text": "a", "tags": 1, 2], [3, 4]]}}', 0),  # several are as good
    ],
)
def test_what_a_broken_call_was_is_decided_by_the_schema(inside: str, calls: int) -> None:
    answer = answer_parser.read(f"<tool_call>{inside}</tool_call>", (), [TEST, SAVE])
    assert len(answer.calls) == calls and answer.is_malformed is not bool(calls)
    assert (json_calls.MENDED in answer.warnings) is bool(calls) or inside.endswith("}}}}")


def test_what_was_cut_or_shown_is_not_mended() -> None:
    call = f"<tool_call>{JSON[:-1]}"
    assert answer_parser.read(call, (), [TEST]).calls and not answer_parser.read(call, (), [TEST], is_cut=True).calls
    assert answer_parser.read(call, (), [TEST], data=[JSON]).calls == ()
    assert answer_parser.read(f"<think>{call}</tool_call>", (), [TEST]).calls == ()
    assert answer_parser.read(f"> {call}</tool_call>", (), [TEST]).calls == ()


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
    "unit",
    [
        "<plan>It is so. It is.</plan>",
        "<plan>",
        "<answer>",
        "<tool_call>\n",
        "<|tool_call_begin|>",
        "<think ",
        "◁",
        "</think>",
        "<｜tool▁calls▁begin｜> a",
        "{'a':",
    ],
)
def test_long_runs_of_marks_take_no_time(unit: str) -> None:
    began = monotonic_s()
    read(unit * (200_000 // len(unit)))
    assert monotonic_s() - began < 20  # cubic patterns took minutes
