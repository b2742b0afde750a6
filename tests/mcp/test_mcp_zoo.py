"""Servers with odd tools and odd answers: each oddity costs itself and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
from mcp_hubs import SERVERS, Stand, standing
from needs import needs

from appliance.clock import monotonic_s
from appliance.mcp.content import MAX_CHARS
from appliance.mcp.repair import mended, salvaged

pytestmark = needs("bwrap", "perl", "python3")
ZOO = SERVERS / "zoo.py"
GOOD = ["answer", "half", "extra", "any", "nullish"]
# What a result of the server says.
SAID = {
    "empty": "(the server answered with nothing)",
    "no content": "(the server answered with nothing)",
    "no blocks": "(the server answered with nothing)",
    "null": "(the server answered with nothing)",
    "words": "plain words",
    "block": "one block",
    "strings": "a\nb",
    "kind": "[a block of kind video that cannot be shown]\nafter",
    "no kind": "no kind",
    "no text": "[a block of kind text that cannot be shown]",
    "number": "[a block of kind int that cannot be shown]",
    "picture": "[a block of kind image that cannot be shown]",
    "array": "[1, 2]",
    "scalar": "7",
    "object": '{"a": 1}',
    "half": "half ? owl, whole 🦉",
    "low half": "?",
    "flag": "x",
    "list": "x",
    "text": "x",
}


def zoo(which: str) -> dict[str, Any]:
    return {"command": "/usr/bin/python3", "args": ["/servers/zoo.py", which], "mounts": [f"{ZOO}:/servers/zoo.py"]}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("zoo")) as made:
        made.hub.add("zoo", zoo("all"))
        yield made


def test_odd_tools_are_named_and_left_out_and_the_others_stay(stand: Stand) -> None:
    found = stand.hub.listing("zoo")
    assert [ware.name for ware in found.wares] == GOOD
    (entry,) = stand.hub.entries()
    named = [one.partition(":")[0] for one in entry.left_out]
    assert named == [*(f"odd{number}" for number in range(20)), "number 26", "number 27", "7", "answer", "number 30"]
    assert entry.left_out[0] == "odd0: inputSchema.type: Field required" and entry.state == "ready"
    assert found.note.startswith("left out, no tools of MCP: zoo/odd0: inputSchema.type") and found.blamed == ("zoo",)
    assert next(ware for ware in found.wares if ware.name == "half").description == "half a ? owl"


@pytest.mark.parametrize(("case", "text"), SAID.items(), ids=list(SAID))
def test_an_odd_result_is_read_at_once(stand: Stand, case: str, text: str) -> None:
    began_s = monotonic_s()
    reply = stand.hub.call("zoo", "answer", {"text": case})
    assert (reply.text, reply.is_error) == (text, False) and monotonic_s() - began_s < 20


@pytest.mark.parametrize(("case", "letter"), [("huge", "x"), ("wide", "€"), ("many", "y"), ("huge object", "")])
def test_a_result_that_is_too_large_is_cut_and_says_so(stand: Stand, case: str, letter: str) -> None:
    text = stand.hub.call("zoo", "answer", {"text": case}).text
    if letter:
        assert text.startswith(letter) and ("[cut: " in text) == (case != "many") and len(text.encode()) <= MAX_CHARS + 100
    else:
        assert text == "[a result of 5000009 bytes: too large]"


@pytest.mark.parametrize(
    ("which", "tools"), [("none", []), ("null", []), ("table", []), ("cursor", ["answer"]), ("twice", ["answer"]), ("result", [])]
)
def test_an_odd_list_is_what_can_be_read_of_it(stand: Stand, which: str, tools: list[str]) -> None:
    stand.hub.add(which, zoo(which))
    assert [ware.name for ware in stand.hub.listing(which).wares] == tools


@pytest.mark.parametrize(
    ("line", "made"),
    [
        (b'{"a": "\\ud83d\\ude00 x"}', '{"a": "😀 x"}'),
        (b'{"a": "\\ud83d x"}\n', '{"a": "? x"}\n'),
        (b'{"a": "\\\\ud83d"}', '{"a": "\\\\ud83d"}'),
        (b'data: {"a": "\\udc00"}\n', 'data:{"a": "?"}\n'),
        (b"not \\ud83d json", "not \\ud83d json"),
        (b'{"a": "\xf0\x9f x"}\n', '{"a": "\ufffd x"}\n'),
    ],
)
def test_half_characters_are_replaced_and_whole_ones_kept(line: bytes, made: str) -> None:
    assert mended(line).decode() == made


@pytest.mark.parametrize("line", [b"hello", b'{"id": 1, "method": "x"}', b"[1]", b'{"result": {}}', b"[" * 100_000])
def test_a_line_that_answers_nobody_is_no_answer(line: bytes) -> None:
    assert salvaged(line) is None


def test_an_answer_without_a_result_is_an_error_at_once() -> None:
    answer = salvaged(b'{"jsonrpc": "1.0", "id": 3, "value": 5}')
    assert answer is not None and answer.id == 3 and "no message of MCP" in answer.error.message  # type: ignore[union-attr]
