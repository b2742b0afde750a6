"""One contract for every family of local models: what its template is given, how a call looks, how it is held and read.

The templates are our own, of the shape that the public ones of each family have; what is expected was compared with those.
"""

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from appliance.providers import families
from appliance.providers.call_signs import Sign, Signs
from appliance.providers.chat_template import CHATML, Template, find_family
from appliance.providers.families.harmony import Harmony
from appliance.providers.grammar_matcher import Grammar
from appliance.providers.token_stream import StreamedAnswer
from appliance.records import Ask, Message, Part, ToolCall, ToolSpec

FIELDS = {
    "query": {"type": "string"},
    "limit": {"type": "integer"},
    "exact": {"type": "boolean"},
    "kinds": {"type": "array", "items": {"type": "string", "enum": ["note", "task"]}},
}
SCHEMA = {"type": "object", "properties": FIELDS, "required": ["query"], "additionalProperties": False}
TOLD = {"type": "object", "properties": FIELDS, "required": ["query"]}
SEARCH, LIST = ToolSpec("search", "Find notes.", SCHEMA), ToolSpec("list_tasks", "Tasks.", {"type": "object"})
CALL = ToolCall("c1", "search", {"query": 'a "blue" key', "limit": 2, "exact": True, "kinds": ["note"]})
SHORT = ToolCall("c1", "search", {"query": "key"})
TOOL = {"type": "function", "function": {"name": "search", "description": "Find notes.", "parameters": TOLD}}
PLAIN_TOOL = json.dumps(TOOL)
LINE = "{{ '\\n' }}"
CHATML_TURN = "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
CHATML_END = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
JSON_SHOWN = '{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}'
RESULTS = (
    "{% elif m.role == 'tool' %}{{ '<|im_start|>user\\n<tool_response>\\n' ~ m.content ~ '\\n</tool_response><|im_end|>\\n' }}"
)


def hermes_like(shown: str, call: str) -> str:
    """System text and tools first, calls in the turn of the assistant, results in one of the user."""
    return (
        "{% if tools %}{{ '<|im_start|>system\\n' ~ messages[0].content ~ '\\n<tools>' }}"
        "{% for tool in tools %}{{ '\\n' ~ (tool | tojson) }}{% endfor %}"
        f'{{{{ "\\n</tools>\\n<tool_call>\\n{shown}\\n</tool_call><|im_end|>\\n" }}}}'
        "{% endif %}{% for m in messages %}{% if m.role == 'system' and tools %}"
        f"{{% elif m.tool_calls %}}{{{{ '<|im_start|>assistant' }}}}{{% for c in m.tool_calls %}}{call}{{% endfor %}}"
        f"{{{{ '<|im_end|>\\n' }}}}{RESULTS}{{% else %}}{CHATML_TURN}{{% endif %}}{{% endfor %}}{CHATML_END}"
    )


@dataclass(frozen=True)
class Kind:
    """A family with a template of its shape, and the words that a conversation must come out in."""

    template: str
    told: str
    called: str
    returned: str
    written: str  # CALL, up to where its grammar ends
    refused: tuple[str, ...]


HERMES_CALL = (
    '{{ \'\\n<tool_call>\\n{"name": "\' ~ c.function.name }}'
    "{{ '\", \"arguments\": ' ~ (c.function.arguments | tojson) ~ '}\\n</tool_call>' }}"
)
TAGS_CALL = (
    "{{ '\\n<tool_call>\\n<function=' ~ c.function.name ~ '>\\n' }}{% for k, v in c.function.arguments | items %}"
    "{{ '<parameter=' ~ k ~ '>\\n' ~ v ~ '\\n</parameter>\\n' }}{% endfor %}{{ '</function>\\n</tool_call>' }}"
)
ELEMENTS_CALL = (
    "{{ '\\n<function name=\"' ~ c.function.name ~ '\">' }}{% for k, v in c.function.arguments | items %}"
    "{{ '<param name=\"' ~ k ~ '\">' ~ v ~ '</param>' }}{% endfor %}{{ '</function>' }}"
)
ARGUMENTS = json.dumps(CALL.arguments)
HERMES_WRITTEN = f'<tool_call>\n{{"name": "search", "arguments": {ARGUMENTS}}}'
HERMES_REFUSED = (
    '<tool_call>\n{"name": "find"',
    '<tool_call>\n{"name": "search", "arguments": {"words"',
    '<tool_call>\n{"name": "search", "arguments": {"query": 5',
)
MISTRAL_HEAD = (
    "{{ bos_token }}{% set asked = messages | selectattr('role', 'equalto', 'user') | list %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% if tools and m == asked[-1] %}"
    "{{ '[AVAILABLE_TOOLS]' ~ (tools | tojson) ~ '[/AVAILABLE_TOOLS]' }}{% endif %}{{ '[INST]' ~ m.content ~ '[/INST]' }}"
    "{% elif m.tool_calls %}{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
)
KINDS = {
    "hermes": Kind(
        hermes_like(JSON_SHOWN, HERMES_CALL),
        f"<tools>\n{PLAIN_TOOL}\n</tools>",
        '<|im_start|>assistant\n<tool_call>\n{"name": "search", "arguments": {"query": "key"}}\n</tool_call><|im_end|>\n',
        "<|im_start|>user\n<tool_response>\nWith Ada.\n</tool_response><|im_end|>\n",
        HERMES_WRITTEN,
        HERMES_REFUSED,
    ),
    "qwen_tags": Kind(
        hermes_like("<function=NAME>\\n<parameter=NAME>\\nVALUE\\n</parameter>\\n</function>", TAGS_CALL),
        f"<tools>\n{PLAIN_TOOL}\n</tools>",
        "<tool_call>\n<function=search>\n<parameter=query>\nkey\n</parameter>\n</function>\n</tool_call><|im_end|>\n",
        "<tool_response>\nWith Ada.\n</tool_response>",
        '<tool_call>\n<function=search>\n<parameter=query>\na "blue" key\n</parameter>\n<parameter=limit>\n2\n</parameter>\n'
        '<parameter=exact>\ntrue\n</parameter>\n<parameter=kinds>\n["note"]\n</parameter>\n</function>',
        ("<tool_call>\n<function=find", "<tool_call>\n<function=search>\n<parameter=words", "<tool_call>\n<function=search>\n</f"),
    ),
    "smollm3": Kind(
        "{{ '<|im_start|>system\\n' }}{% if xml_tools %}{{ '<tools>\\n' }}{% for tool in xml_tools %}{{ (tool | tojson) ~ '\\n' }}"
        f"{{% endfor %}}{{{{ \"</tools>\\n<tool_call>\\n{JSON_SHOWN}\\n</tool_call>\" }}}}{{% endif %}}{{{{ '<|im_end|>\\n' }}}}"
        "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_start|>user\\n' ~ m.content ~ '<|im_end|>\\n' }}"
        f"{{% else %}}{CHATML_TURN}{{% endif %}}{{% endfor %}}{CHATML_END}",
        f"<tools>\n{PLAIN_TOOL}\n</tools>",
        '<|im_start|>assistant\n<tool_call>\n{"name": "search", "arguments": {"query": "key"}}\n</tool_call><|im_end|>\n',
        "<|im_start|>user\nWith Ada.<|im_end|>\n",
        HERMES_WRITTEN,
        HERMES_REFUSED,
    ),
    "minicpm": Kind(
        hermes_like('<function name=\\"NAME\\"><param name=\\"NAME\\">VALUE</param></function>', ELEMENTS_CALL),
        f"<tools>\n{PLAIN_TOOL}\n</tools>",
        '<|im_start|>assistant\n<function name="search"><param name="query">key</param></function><|im_end|>\n',
        "<tool_response>\nWith Ada.\n</tool_response>",
        '<function name="search"><param name="query">a "blue" key</param><param name="limit">2</param>'
        '<param name="exact">true</param><param name="kinds">["note"]</param></function>',
        ('<function name="find', '<function name="search"><param name="words', '<function name="search"><param name="query"><b'),
    ),
    # As a GGUF file of Phi-4-mini has it: tools are a text of the system turn.
    "phi": Kind(
        "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content }}{% if m.tools %}{{ '<|tool|>' ~ m.tools ~ '<|/tool|>' }}"
        "{% endif %}{{ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
        f"<|system|>Be kind.<|tool|>{json.dumps([TOOL['function']])}<|/tool|><|end|>",
        '<|assistant|><|tool_call|>[{"name": "search", "arguments": {"query": "key"}}]<|/tool_call|><|end|>',
        "<|tool_response|>With Ada.<|end|>",
        f'<|tool_call|>[{{"name": "search", "arguments": {ARGUMENTS}}}]',
        ('<|tool_call|>[{"name": "find"', '<|tool_call|>[{"name": "search", "arguments": {"words"', "<|tool_call|>search"),
    ),
    "harmony": Kind(
        "{{ '<|start|>developer<|message|>' ~ messages[0].content }}{% for t in tools or [] %}"
        "{{ '\n// ' ~ t.function.description ~ '\ntype ' ~ t.function.name }}{% endfor %}{{ '<|end|>' }}"
        "{% set last = namespace(name='') %}{% for m in messages[1:] %}{% if m.tool_calls %}"
        "{% set last.name = m.tool_calls[0].function.name %}{{ '<|start|>assistant to=functions.' ~ last.name }}"
        "{{ '<|channel|>commentary json<|message|>' ~ (m.tool_calls[0].function.arguments | tojson) ~ '<|call|>' }}"
        "{% elif m.role == 'tool' %}{{ '<|start|>functions.' ~ last.name ~ ' to=assistant<|channel|>commentary<|message|>' }}"
        "{{ (m.content | tojson) ~ '<|end|>' }}{% else %}{{ '<|start|>' ~ m.role ~ '<|message|>' ~ m.content ~ '<|end|>' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
        "\n// Find notes.\ntype search<|end|>",
        '<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "key"}<|call|>',
        '<|start|>functions.search to=assistant<|channel|>commentary<|message|>"With Ada."<|end|>',
        f"<|channel|>commentary to=functions.search <|constrain|>json<|message|>{ARGUMENTS}",
        (
            "<|channel|>commentary to=functions.find",
            "<|channel|>commentary to=functions.search {",
            'to=functions.search<|channel|>commentary json<|message|>{"words"',
        ),
    ),
    "function_gemma": Kind(
        "{{ bos_token ~ '<start_of_turn>developer\\n' ~ messages[0].content }}{% for t in tools or [] %}"
        "{{ '<start_function_declaration>declaration:' ~ t.function.name ~ '{description:<escape>' ~ t.function.description }}"
        "{{ '<escape>}<end_function_declaration>' }}{% endfor %}{{ '<end_of_turn>\\n' }}{% for m in messages[1:] %}"
        "{% if m.tool_calls %}{{ '<start_of_turn>model\\n' }}{% for c in m.tool_calls %}"
        "{{ '<start_function_call>call:' ~ c.function.name ~ '{' }}{% for k, v in c.function.arguments | dictsort %}"
        "{{ k ~ ':<escape>' ~ v ~ '<escape>' }}{% endfor %}{{ '}<end_function_call>' }}{% endfor %}"
        "{% else %}{{ '<start_of_turn>' ~ m.role ~ '\\n' ~ m.content ~ '<end_of_turn>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}{# knows <start_function_call> #}",
        "<start_function_declaration>declaration:search{description:<escape>Find notes.<escape>}<end_function_declaration>",
        "<start_function_call>call:search{query:<escape>key<escape>}<end_function_call>",
        "With Ada.",
        '<start_function_call>call:search{query:<escape>a "blue" key<escape>,limit:2,exact:true,kinds:[<escape>note<escape>]}',
        ("<start_function_call>call:find", "<start_function_call>call:search{words", "<start_function_call>call:search{query:key"),
    ),
    "llama3": Kind(
        "{{ bos_token ~ '<|start_header_id|>system<|end_header_id|>\\n\\n' }}"
        "{% if tools is not none %}{{ 'Environment: ipython\\n' }}"
        "{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{% endif %}{{ '<|eot_id|>' }}{% for m in messages %}"
        "{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n{\"name\": \"' ~ m.tool_calls[0].function.name ~ '\", ' }}"
        "{{ '\"parameters\": ' ~ (m.tool_calls[0].function.arguments | tojson) ~ '}<|eot_id|>' }}{% elif m.role == 'tool' %}"
        "{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' ~ (m.content | tojson) ~ '<|eot_id|>' }}{% else %}"
        "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content ~ '<|eot_id|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
        json.dumps(TOOL, indent=4),
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "search", "parameters": {"query": "key"}}<|eot_id|>',
        '<|start_header_id|>ipython<|end_header_id|>\n\n"With Ada."<|eot_id|>',
        f'{{"name": "search", "parameters": {ARGUMENTS}}}',
        ('{"name": "find"', '{"name": "search", "arguments"', '{"name": "search", "parameters": {"limit": "'),
    ),
    "mistral": Kind(
        MISTRAL_HEAD
        + '{{ \'[TOOL_CALLS][{"name": "\' ~ c.function.name ~ \'", "arguments": \' ~ (c.function.arguments | tojson) }}'
        "{{ ', \"id\": \"' ~ c.id ~ '\"}]' ~ eos_token }}{% endfor %}{% elif m.role == 'tool' %}"
        "{{ '[TOOL_RESULTS]{\"content\": ' ~ m.content ~ ', \"call_id\": \"' ~ m.tool_call_id ~ '\"}[/TOOL_RESULTS]' }}"
        "{% elif m.role == 'assistant' %}{{ m.content ~ eos_token }}{% else %}{{ raise_exception('no such role') }}"
        "{% endif %}{% endfor %}",
        f"[AVAILABLE_TOOLS][{PLAIN_TOOL}][/AVAILABLE_TOOLS][INST]",
        '[TOOL_CALLS][{"name": "search", "arguments": {"query": "key"}, "id": "d0f631ca1"}]</s>',
        '[TOOL_RESULTS]{"content": With Ada., "call_id": "d0f631ca1"}[/TOOL_RESULTS]',
        f'[TOOL_CALLS][{{"name": "search", "arguments": {ARGUMENTS}}}]',
        ('[TOOL_CALLS][{"name": "find"', '[TOOL_CALLS][{"name": "search", "arguments": {"words"', "[TOOL_CALLS]search"),
    ),
    "ministral": Kind(
        MISTRAL_HEAD + "{{ '[TOOL_CALLS]' ~ c.function.name ~ '[CALL_ID]' ~ c.id ~ '[ARGS]' ~ (c.function.arguments | tojson) }}"
        "{% endfor %}{{ eos_token }}{% elif m.role == 'tool' %}"
        "{{ '[TOOL_RESULTS]' ~ m.tool_call_id ~ '[TOOL_CONTENT]' ~ m.content ~ '[/TOOL_RESULTS]' }}"
        "{% elif m.role == 'assistant' %}{{ m.content ~ eos_token }}{% else %}"
        "{{ '[SYSTEM_PROMPT]' ~ m.content ~ '[/SYSTEM_PROMPT]' }}"
        "{% endif %}{% endfor %}",
        f"[AVAILABLE_TOOLS][{PLAIN_TOOL}][/AVAILABLE_TOOLS][INST]",
        '[TOOL_CALLS]search[CALL_ID]d0f631ca1[ARGS]{"query": "key"}</s>',
        "[TOOL_RESULTS]d0f631ca1[TOOL_CONTENT]With Ada.[/TOOL_RESULTS]",
        f"[TOOL_CALLS]search[ARGS]{ARGUMENTS}",
        ("[TOOL_CALLS]find", "[TOOL_CALLS][", '[TOOL_CALLS]search[ARGS]{"words"'),
    ),
    "granite": Kind(
        "{% for m in messages %}{{ '<|start_of_role|>' ~ m.role ~ '<|end_of_role|>' ~ m.content ~ '<|end_of_text|>\\n' }}"
        "{% if loop.first and tools %}{{ '<|start_of_role|>available_tools<|end_of_role|>' ~ (tools | tojson(indent=4)) }}"
        "{{ '<|end_of_text|>\\n' }}{% endif %}{% endfor %}{# calls are <|tool_call|> and a list #}"
        "{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}",
        f"<|start_of_role|>available_tools<|end_of_role|>{json.dumps([TOOL], indent=4)}<|end_of_text|>\n",
        '<|end_of_role|><|tool_call|>[{"name": "search", "arguments": {"query": "key"}}]<|end_of_text|>\n',
        "<|start_of_role|>tool_response<|end_of_role|>With Ada.<|end_of_text|>\n",
        f'<|tool_call|>[{{"name": "search", "arguments": {ARGUMENTS}}}]',
        ('<|tool_call|>[{"name": "find"', '<|tool_call|>[{"name": "search", "arguments": {"words"', '<|tool_call|>{"'),
    ),
    "lfm": Kind(
        "{{ bos_token ~ '<|im_start|>system\\n' ~ messages[0].content }}"
        "{% if tools %}{{ '\\nList of tools: <|tool_list_start|>[' }}"
        "{% for t in tools %}{{ t | tojson }}{% endfor %}{{ ']<|tool_list_end|>' }}{% endif %}"
        "{{ '<|im_end|>\\n' }}{% for m in messages[1:] %}{% if m.role == 'tool' %}"
        "{{ '<|im_start|>tool\\n<|tool_response_start|>' ~ m.content ~ '<|tool_response_end|><|im_end|>\\n' }}"
        f"{{% else %}}{CHATML_TURN}{{% endif %}}{{% endfor %}}{CHATML_END}",
        f"List of tools: <|tool_list_start|>[{PLAIN_TOOL}]<|tool_list_end|><|im_end|>\n",
        '<|im_start|>assistant\n<|tool_call_start|>[search(query="key")]<|tool_call_end|><|im_end|>\n',
        "<|im_start|>tool\n<|tool_response_start|>With Ada.<|tool_response_end|><|im_end|>\n",
        '<|tool_call_start|>[search(query="a \\"blue\\" key", limit=2, exact=True, kinds=["note"])]',
        ("<|tool_call_start|>[find", "<|tool_call_start|>[search(words", "<|tool_call_start|>[search(query=key"),
    ),
    "gemma": Kind(
        "{{ bos_token ~ '<|turn>system\\n' ~ messages[0].content }}{% for t in tools or [] %}"
        "{{ '<|tool>declaration:' ~ t.function.name ~ '{description:<|\"|>' ~ t.function.description ~ '<|\"|>}<tool|>' }}"
        "{% endfor %}"
        "{{ '<turn|>\\n' }}{% for m in messages[1:] %}{% if m.tool_calls %}{{ '<|turn>model\\n' }}{% for c in m.tool_calls %}"
        "{{ '<|tool_call>call:' ~ c.function.name ~ '{' }}{% for k, v in c.function.arguments | dictsort %}"
        "{{ k ~ ':<|\"|>' ~ v ~ '<|\"|>' }}{% endfor %}{{ '}<tool_call|>' }}{% endfor %}{% elif m.role == 'tool' %}"
        "{{ '<|tool_response>response:' ~ m.name ~ '{value:<|\"|>' ~ m.content ~ '<|\"|>}<tool_response|>' }}"
        "{% else %}{{ '<|turn>' ~ m.role ~ '\\n' ~ m.content ~ '<turn|>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}",
        '<|tool>declaration:search{description:<|"|>Find notes.<|"|>}<tool|>',
        '<|tool_call>call:search{query:<|"|>key<|"|>}<tool_call|>',
        '<|tool_response>response:search{value:<|"|>With Ada.<|"|>}<tool_response|>',
        '<|tool_call>call:search{query:<|"|>a "blue" key<|"|>,limit:2,exact:true,kinds:[<|"|>note<|"|>]}',
        ("<|tool_call>call:find", "<|tool_call>call:search{words", "<|tool_call>call:search{query:key", "<|tool_call>search"),
    ),
}
TALK = (Message("user", "Where is the key?"), Message("assistant", "", (SHORT,)), Message("tool", "With Ada.", tool_call_id="c1"))
NATIVE = Ask((Part("persona", "Be kind."),), TALK, (SEARCH,), "native")


@functools.cache
def template(name: str) -> Template:
    """That of a family, with one process for all tests."""
    return Template(KINDS[name].template, start="<s>", end="</s>", controls=("<|im_start|>", "<|im_end|>", "<s>", "</s>"))


def test_every_family_has_a_contract() -> None:
    assert {family.name for family in families.load()} == set(KINDS)


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    yield
    for name in KINDS:
        template(name).close()


@pytest.mark.parametrize("name", KINDS)
def test_a_template_belongs_to_one_family(name: str) -> None:
    assert [family.name for family in families.load() if family.is_meant(KINDS[name].template)] == [name]


@pytest.mark.parametrize("source", [CHATML, "", "{{ '<start_of_turn>' }}", "{{ tools }} <tool_call>NAME\\n<arg_key>", "[TOOL]"])
def test_a_template_without_tools_of_ours_belongs_to_none(source: str) -> None:
    assert families.find(source) is None


@pytest.mark.parametrize("name", KINDS)
def test_tools_calls_and_results_are_in_the_models_own_words(name: str) -> None:
    kind, made = KINDS[name], template(name)
    text = made.render(NATIVE)
    assert made.family is not None and made.family.name == name
    assert kind.told in text and kind.called in text and kind.returned in text
    assert text.index(kind.called) < text.index(kind.returned)


@pytest.mark.parametrize("name", KINDS)
def test_without_tools_or_in_our_own_words_nothing_is_added(name: str) -> None:
    made = template(name)
    plain = made.render(Ask(NATIVE.system, TALK[:1], (), "native"))
    ours = made.render(Ask(NATIVE.system, TALK, (SEARCH,)))
    assert KINDS[name].told not in plain + ours and KINDS[name].called not in ours
    assert '{"name": "search", "arguments": {"query": "key"}}' in ours


@pytest.mark.parametrize("name", KINDS)
def test_a_call_is_held_to_its_grammar_and_read_back(name: str) -> None:
    kind, made = KINDS[name], template(name)
    assert made.family is not None
    grammar = Grammar(made.family.grammar((SEARCH, LIST)))
    end = grammar.walk(grammar.begin, kind.written.encode())
    assert end is not None and end.is_over
    assert made.family.written((CALL,)).startswith(kind.written)
    found = made.family.read(kind.written, (SEARCH, LIST))
    assert found is not None and (found.name, found.arguments) == (CALL.name, CALL.arguments)
    for wrong in kind.refused:
        assert grammar.walk(grammar.begin, wrong.encode()) is None, wrong


@pytest.mark.parametrize("name", KINDS)
def test_free_arguments_are_held_and_read_too(name: str) -> None:
    made = template(name)
    assert made.family is not None
    written = made.family.written((ToolCall("c1", "list_tasks", {"level": "high"}),)).removesuffix(made.family.closing)
    grammar = Grammar(made.family.grammar((SEARCH, LIST)))
    assert grammar.walk(grammar.begin, written.encode()) is not None
    found = made.family.read(written, (SEARCH, LIST))
    assert found is not None and found.arguments == {"level": "high"}


@pytest.mark.parametrize("name", KINDS)
def test_text_from_outside_forges_no_call_and_no_result(name: str) -> None:
    made = template(name)
    assert made.family is not None
    marks = [mark for mark in (*made.family.marks, *made.family.more_marks) if mark]
    said = " and ".join(marks)
    odd = ToolSpec("search", f"Find {said}", SCHEMA)
    clean = made.render(NATIVE)
    forged = made.render(Ask(NATIVE.system, (Message("user", said), *TALK[1:]), (odd,), "native"))
    assert [forged.count(mark) for mark in marks] == [clean.count(mark) for mark in marks]


@pytest.mark.parametrize("name", KINDS)
def test_an_ask_that_must_call_ends_where_a_tool_is_named(name: str) -> None:
    made = template(name)
    ask = Ask(NATIVE.system, TALK[:1], (SEARCH,), "native", must_call=True)
    plain, begun = made.render(Ask(ask.system, ask.messages, ask.tools, "native")), made.render(ask)
    assert made.family is not None and begun == plain + made.family.opening
    assert KINDS[name].written.startswith(made.family.opening)


@pytest.mark.parametrize("name", KINDS)
def test_the_stream_shows_words_and_holds_back_the_call(name: str) -> None:
    family = template(name).family
    assert family is not None
    text = ("" if family.is_bare else "Let me look.\n") + KINDS[name].written
    for size in (1, 3, len(text)):
        answer = StreamedAnswer((), signs=Signs(family.marks, ["search"], is_bare=family.is_bare))
        shown = "".join(answer.feed(text[at : at + size].encode()) for at in range(0, len(text), size))
        assert answer.is_call and answer.call_text == KINDS[name].written
        assert (shown + answer.finish()).strip() == ("" if family.is_bare else "Let me look.")


ANALYSIS = "<|channel|>analysis<|message|>The person wants a key.<|end|><|start|>assistant"
CHANNELS = {
    "thoughts": (ANALYSIS + "<|channel|>final<|message|>With Ada.", "With Ada.", "The person wants a key.", ""),
    "none": ("<|channel|>final<|message|>With Ada.", "With Ada.", "", ""),
    "twice": (
        ANALYSIS + ANALYSIS.removeprefix("<|start|>assistant") + "<|channel|>final<|message|>Yes.",
        "Yes.",
        "The person wants a key." * 2,
        "",
    ),
    "call": (
        ANALYSIS + "<|channel|>commentary to=functions.search",
        "",
        "The person wants a key.",
        "<|channel|>commentary to=functions.search",
    ),
    "recipient": (ANALYSIS + " to=functions.search", "", "The person wants a key.", "to=functions.search"),
    "preamble": (
        "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant<|channel|>commentary to=functions.search",
        "Let me look.",
        "",
        "<|channel|>commentary to=functions.search",
    ),
    "gemma": ("<|channel>thought\nA key.\n<channel|>With Ada.", "With Ada.", "A key.", ""),
    "empty": ("<|channel>thought\n<channel|>With Ada.", "With Ada.", "", ""),
    "prose": ("<|channels|> and <|end|> are marks.", "<|channels|> and <|end|> are marks.", "", ""),
}


@pytest.mark.parametrize(("text", "said", "thought", "call"), CHANNELS.values(), ids=CHANNELS)
def test_thoughts_in_a_channel_are_apart_and_headers_are_not_shown(text: str, said: str, thought: str, call: str) -> None:
    answer = StreamedAnswer((), signs=Signs(Harmony.marks, ["search"], is_bare=False))
    shown = "".join(answer.feed(piece.encode()) for piece in re.findall(r"<[^>]*>|[^<]", text))  # control tokens come whole
    assert answer.call_text == call
    assert ((shown + answer.finish()).strip(), answer.thoughts().strip()) == (said, thought)


# -- what every conversation may bring ------------------------------------------------------------------


def test_several_calls_come_one_by_one_where_only_that_is_known() -> None:
    made = template("llama3")
    two = (SHORT, ToolCall("c2", "search", {"query": "lock"}))
    results = (Message("tool", "With Ada.", tool_call_id="c1"), Message("tool", "At the door.", tool_call_id="c2"))
    text = made.render(Ask((), (Message("user", "?"), Message("assistant", "", two), *results), (SEARCH,), "native"))
    places = [text.index(part) for part in ('"key"}}', "With Ada.", '"lock"}}', "At the door.")]
    assert places == sorted(places)


def test_a_call_without_a_result_says_so_and_a_person_may_go_on() -> None:
    made = template("mistral")
    text = made.render(Ask((), (*TALK[:2], Message("user", "Go on.")), (SEARCH,), "native"))
    alone = made.render(Ask((), (TALK[2], Message("user", "Go on.")), (SEARCH,), "native"))
    assert "No result of this call was kept." in text and text.endswith("[INST]Go on.[/INST]")
    assert "Result of the tool:\nWith Ada.\n\nGo on." in alone


def test_a_template_that_only_looks_like_a_family_is_asked_in_our_own_words() -> None:
    source = KINDS["hermes"].template.replace("(tool | tojson)", "''")
    made = Template(source, start="", end="", controls=("<|im_start|>", "<|im_end|>"))
    text = made.render(NATIVE)
    made.close()
    assert families.find(source) is not None and made.family is None and find_family(source) == ""
    assert find_family(KINDS["hermes"].template) == "hermes"
    assert '{"name": "search", "arguments": {"query": "key"}}' in text


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ("{% for t in tools %}{{ t }}{% endfor %}", ""),
        ("{% if tools is defined %}{{ 'tools' ~ (tools | length) }}{% endif %}", ""),  # as one of Phi-4-mini has it
        ("{% if tools is not defined %}{{ raise_exception('no tools') }}{% endif %}{{ tools | length }}", "0"),
    ],
)
def test_a_template_that_takes_no_absence_of_tools_is_told_of_none(source: str, end: str) -> None:
    made = Template(CHATML + source, start="", end="", controls=("<|im_start|>",))
    assert made.render(Ask((), TALK[:1])).endswith(f"<|im_start|>assistant\n{end}")
    made.close()


def test_a_model_whose_template_lost_the_words_for_tools_is_told_of_them_in_its_own() -> None:
    # SmolLM3's template in most GGUF files: a header around the system text, and no tools.
    source = (
        "{{ '<|im_start|>system\\n## Custom Instructions\\n\\n' ~ messages[0].content ~ '<|im_end|>\\n' }}{# is named SmolLM #}"
        "{% for m in messages[1:] %}{% if m.role == 'tool' %}{{ m.content }}"
        f"{{% else %}}{CHATML_TURN}{{% endif %}}{{% endfor %}}"
    )
    made = Template(source, start="", end="", controls=("<|im_start|>", "<|im_end|>"))
    told, plain = made.render(NATIVE), made.render(Ask(NATIVE.system, TALK, (), "native"))
    made.close()
    assert made.family is not None and made.family.name == "smollm3"
    assert f"<tools>\n{PLAIN_TOOL}\n</tools>" in told.partition("<|im_end|>")[0]
    assert '<tool_call>\n{"name": "search", "arguments": {"query": "key"}}\n</tool_call>' in told
    assert "<tools>" not in plain


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ('```json\n{\n  "name": "search",', Sign.FENCE),
        ('{"name": "search"', Sign.FENCE),
        ('```json\n{"name": "sea', Sign.WAIT),
        ("```js", Sign.WAIT),
        ('```json\n{"name": "Ada", "age": 7}\n```', Sign.PROSE),
        ('{"colour": "blue"}', Sign.PROSE),
        ("```python\nprint()", Sign.PROSE),
        ("The tag `<tool_call>` begins a call.", Sign.PROSE),
        ("```\n<tool_call>\n```", Sign.PROSE),
        ("See:\n<tool_call>", Sign.MARK),
        ("See:\n<tool_c", Sign.WAIT),
    ],
)
def test_json_is_a_call_once_it_names_a_tool_and_a_mark_where_it_begins_a_line(text: str, sign: Sign) -> None:
    assert Signs(("<tool_call>",), ["search"], is_bare=False).of(text, "")[0] is sign


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{\n  "name": "search",\n  "arguments": {\n    "query": "key"\n  }\n}',
        '{"name": "search", "arguments": {"query": "key"}}',
    ],
)
def test_a_call_in_a_fence_is_held_to_its_arguments_and_read(text: str) -> None:
    family = template("hermes").family
    assert family is not None
    grammar = Grammar(family.loose_grammar((SEARCH, LIST)))
    end = grammar.walk(grammar.begin, text.encode())
    assert end is not None and end.is_over
    assert grammar.walk(grammar.begin, text.replace("query", "words").encode()) is None
    found = family.read(text, (SEARCH, LIST))
    assert found is not None and found.arguments == {"query": "key"}
