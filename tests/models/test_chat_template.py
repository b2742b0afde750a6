"""Chat templates of model files, which are programs by strangers: within bounds, without files, and cheap."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from appliance.clock import monotonic_s
from appliance.errors import BadInput
from appliance.providers.chat_template import CHATML, Template
from appliance.providers.template_process import Renderer
from appliance.records import Ask, Message

TALK = "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"
BOMBS = {
    "loop": "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    "product": "{{ 'a' * 400000000 }}",
    "power": "{% set n = messages | length + 8 %}{{ n ** (n ** n) }}",
    "center": "{{ 'a' | center(400000000) }}",
    "recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "format": "{{ '%0400000000d' % 1 }}",
    "doubling": "{% set n = namespace(s='a') %}{% for a in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "replace": "{{ ('a' * 9999).replace('', 'a' * 99999) }}",
    "long": "{{ 'a' * 9000000 }}",
}
# Those that are ended for their processor time take more than two seconds of it, whether at once or later.
AT_ONCE = {name: bomb for name, bomb in BOMBS.items() if name != "loop"}
LATER = {name: bomb for name, bomb in BOMBS.items() if name != "power"}
ESCAPES = {
    "cycler": "{{ cycler.__init__.__globals__.os.popen('touch FILE').read() }}",
    "lipsum": "{{ lipsum.__globals__['os'].system('touch FILE') }}",
    "include": "{% include '/etc/passwd' %}",
    "format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "mutation": "{{ messages.append('x') }}",
}


def asked(*words: str) -> Ask:
    return Ask((), tuple(Message("user" if i % 2 == 0 else "assistant", word) for i, word in enumerate(words)))


@pytest.mark.parametrize("bomb", AT_ONCE.values(), ids=AT_ONCE)
def test_a_template_without_end_is_refused(bomb: str) -> None:
    began_s = monotonic_s()
    with pytest.raises(BadInput, match="the model's chat template cannot be used") as caught:
        Template(TALK + bomb, start="", end="", controls=())
    assert monotonic_s() - began_s < 60 and len(str(caught.value)) < 900


@pytest.mark.parametrize("bomb", LATER.values(), ids=LATER)
def test_one_that_begins_later_costs_its_process_and_no_more(bomb: str) -> None:
    template = Template(f"{TALK}{{% if messages | length > 2 %}}{bomb}{{% endif %}}", start="", end="", controls=())
    with pytest.raises(BadInput, match="refuses the conversation"):
        template.render(asked("a", "b", "c"))
    assert template.render(asked("a")) == "usera", "other conversations go on"
    template.close()


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_a_template_gets_nowhere(escape: str, tmp_path: Path) -> None:
    try:
        template = Template(TALK + escape.replace("FILE", str(tmp_path / "made")), start="", end="", controls=())
    except BadInput:
        return
    text = template.render(asked("a"))
    template.close()
    assert not (tmp_path / "made").exists() and "root:" not in text and "class" not in text


def test_what_templates_use_is_there() -> None:
    source = (
        "{{ bos_token }}{% generation %}{{ messages | tojson }}{% endgeneration %}{{ strftime_now('%Y') | length }}"
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m['content'] | trim }}{% endfor %}{{ eos_token }}"
    )
    template = Template(source, start="<s>", end="</s>", controls=())
    assert template.render(asked(" ä ", "b")).replace(" ", "") == (
        '<s>[{"role":"user","content":"ä"},{"role":"assistant","content":"b"}]4ä</s>'
    )
    template.close()
    assert template.render(asked("x")).endswith("4x</s>"), "a process that was ended is started again"
    template.close()


def test_a_process_that_ended_by_itself_is_started_again() -> None:
    renderer = Renderer(TALK, {})
    assert renderer.render([{"role": "user", "content": "a"}]) == "usera"
    assert renderer._child is not None
    renderer._child.kill()
    renderer._child.wait()
    assert renderer.render([{"role": "user", "content": "b"}]) == "userb"
    renderer.close()


def test_a_message_costs_little() -> None:
    template = Template(CHATML, start="", end="", controls=())
    talk = asked(*["hello " * 30] * 41)
    template.render(talk)
    began_s = monotonic_s()
    for _ in range(50):
        template.render(talk)
    assert (monotonic_s() - began_s) / 50 < 0.02  # 0.2 ms on an idle machine, 2026-11-23
    template.close()


QWEN_END = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
GEMMA_BEGIN = "{% if enable_thinking %}<|think|>{% endif %}"
GRANITE_BEGIN = "{% if thinking %}Respond with your thoughts.{% endif %}"
EFFORT_BEGIN = "Reasoning: {{ reasoning_effort or 'medium' }}\n"
EFFORTS = "['no_think', 'low', 'high']"
EFFORT_REFUSED = f"{{% if reasoning_effort | default('low') not in {EFFORTS} %}}{{{{ raise_exception('no') }}}}{{% endif %}}"
WORD = "{% set words = messages | map(attribute='content') | join %}"
WORD_END = "{% if '/no_think' in words %}<think></think>{% endif %}"


@pytest.mark.parametrize(
    ("source", "off", "on"),
    [
        (CHATML + QWEN_END, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "<|im_start|>assistant\n"),
        (GEMMA_BEGIN + TALK, "usera", "<|think|>usera"),
        (GRANITE_BEGIN + TALK, "usera", "Respond with your thoughts.usera"),
        (EFFORT_BEGIN + TALK, "Reasoning: low\nusera", "Reasoning: medium\nusera"),
        (EFFORT_REFUSED + EFFORT_BEGIN + TALK, "Reasoning: no_think\nusera", "Reasoning: high\nusera"),
        (WORD + TALK + WORD_END, "</think>", "usera"),
        ("{# enable_thinking is not used #}" + TALK, "usera", "usera"),
    ],
)
def test_thoughts_are_switched_off_until_they_are_asked_for(source: str, off: str, on: str) -> None:
    template = Template(source, start="", end="", controls=())
    quiet = asked("a")
    assert template.render(quiet).endswith(off)
    loud = template.render(replace(quiet, may_think=True))
    assert loud.endswith(on) and (off == on or loud != template.render(quiet))
    template.close()
