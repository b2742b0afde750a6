"""A llama-server of its own for as long as a block lasts: the real peer of the openai and the anthropic format.

It is the one inside of xllamacpp, llama.cpp's own server code as a wheel, in a process of its own.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# The bundled model's own template knows no tools, and then the server leaves them out.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}You may call these functions:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each call return a JSON object with name and arguments within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CHILD = """
import json, sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.chat_template = sys.argv[1:3]
for name, value in json.loads(sys.argv[3]).items():
    part, _, last = name.rpartition(".")
    setattr(getattr(p, part) if part else p, last, value)
server = xllamacpp.Server(p)
print(server.listening_address, flush=True)
sys.stdin.read()
"""

SETTINGS: dict[str, Any] = {"n_ctx": 4096, "n_parallel": 2, "port": 0, "cpuparams.n_threads": 1, "use_jinja": True}
SETTINGS |= {"warmup": False, "verbosity": 0, "endpoint_props": True}

HAS_PEER = importlib.util.find_spec("xllamacpp") is not None
needs_peer = pytest.mark.skipif(not HAS_PEER and not os.environ.get("CI"), reason="needs xllamacpp (make dev)")


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """The address of a server with this model; two answers at once, 2048 tokens each."""
    with llama_process(model) as (url, _):
        yield url


@contextmanager
def llama_process(model: Path, **settings: Any) -> "Iterator[tuple[str, subprocess.Popen[str]]]":
    """The same, with its process; `settings` are more of the server's parameters, those of a part as "part.name"."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(model), TEMPLATE, json.dumps(SETTINGS | settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        url = child.stdout.readline().strip()
        assert url.startswith("http"), f"the server ended with {child.poll()}"
        yield url, child
    finally:
        child.stdin.close()  # it ends when its input does
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()
