"""Chat templates that take all they can get, and keys in answers cut in every way, as tables."""

import pytest

from appliance.clock import monotonic_s
from appliance.errors import BadInput
from appliance.providers.template_process import Renderer
from appliance.providers.token_stream import Mask

KEY, OTHER = "sk-aaab-0123456789", "sk-aaab"
TEMPLATES = {
    "power": "{{ 9 ** 9 ** 9 }}",
    "multiplied": "{{ 'x' * 10**10 }}",
    "padded": "{{ '%9999999999s' % 'x' }}",
    "centred": "{{ 'x' | center(9999999999) }}",
    "indented": "{{ 'x\n' * 1000 | indent(99999999) }}",
    "filled": "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
    "nested": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "recursive": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "too long": "{{ 'x' * 300000 }}",
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "builtins": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "included": "{% include '/etc/passwd' %}",
    "imported": "{% import '/etc/passwd' as x %}{{ x }}",
    "formatted": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "attribute": "{{ messages | attr('__class__') | attr('__base__') }}{{ messages.__class__.__base__ }}",
    "changing": "{{ messages.append(1) }}",
    "date": "{{ strftime_now('%9999999999Y') }}",
    "unfinished": "{% if ",
    "raises": "{{ raise_exception('x' * 1000000) }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_hostile_template_is_refused_in_time_or_says_nothing(name: str) -> None:
    renderer, started_s = Renderer(TEMPLATES[name], {}), monotonic_s()
    try:
        said = renderer.render([{"role": "user", "content": "hi"}])
        assert len(said) < 100_000 and "class" not in said and "root:" not in said and "uid=" not in said, said[:200]
    except BadInput as error:
        assert len(error.message) < 1000
    finally:
        renderer.close()
    assert monotonic_s() - started_s < 60


@pytest.mark.parametrize(
    "text", [KEY, f"a{KEY}b", KEY * 3, f"{KEY[:-1]}{KEY}", f"{OTHER}{KEY}", f"sk-sk-sk-{KEY}", f"{KEY[:9]}\n{KEY}"]
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 11, 1000])
def test_a_key_is_hidden_however_an_answer_is_cut(text: str, size: int) -> None:
    mask = Mask([OTHER, KEY])
    said = "".join(mask.feed(text[at : at + size]) for at in range(0, len(text), size)) + mask.finish()
    assert KEY not in said and OTHER not in said and "0123456789" not in said, said
