"""Results that are too long: a stub in their place, pages on request, gone with the loop they belong to."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from test_budget import Desk

from appliance import tools
from appliance.agent.result_pages import Overflow
from appliance.agent.toolbox import Toolbox, ToolRules, tool
from appliance.clock import CancelToken
from appliance.errors import BadInput, NotFound
from appliance.knowledge.contents import MAX_BLOB_BYTES
from appliance.policy.policy_file import Policy
from appliance.records import Event, ToolCall
from appliance.runtime.paths import Home


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    made = Desk(home)
    yield made
    made.store.close()


def loop(desk: Desk) -> None:
    """One more prompt is begun."""
    event = desk.runs.append(Event(run=desk.run, kind="message", role="user", content="go"))
    for open_loop in desk.runs._select_loops("l.status = ?", 102):
        desk.runs.end_loop(open_loop, 200, "ok")
    desk.runs.start_loop(desk.runs.enqueue(desk.run, event.id, ""))


@tool(group="test", is_read_only=True)
def shout(count: int = 1) -> str:
    """Say so many letters."""
    return "".join(chr(97 + n % 26) for n in range(count))


def toolbox(desk: Desk) -> Toolbox:
    overflow = Overflow(desk.store, desk.entries)
    names = ("read_large_result",)
    functions = [f for f in tools.load() if f.tool.name in names]  # type: ignore[attr-defined]
    return Toolbox([shout, *functions], {"overflow": overflow}, rules=ToolRules(Policy()))


def call(box: Toolbox, desk: Desk, name: str, **given: Any) -> Any:
    return box.dispatch(ToolCall("c", name, given), desk.run, CancelToken())


@pytest.mark.covers("B-063", "E-231")
def test_ten_thousand_characters_stay_and_one_more_makes_a_stub(desk: Desk) -> None:
    box = toolbox(desk)
    loop(desk)
    assert len(call(box, desk, "shout", count=10_000).message) == 10_000
    stub = call(box, desk, "shout", count=10_001).message
    whole = shout(10_001)
    assert len(stub) < 800 and whole[:500] in stub and whole[:501] not in stub
    assert "10001 characters" in stub and "2 pages" in stub and "read_large_result" in stub and "lr_1" in stub
    first, second = (call(box, desk, "read_large_result", id="lr_1", page=n).message for n in (1, 2))
    assert first == f"[lr_1, page 1 of 2]\n{whole[:8000]}" and second == f"[lr_1, page 2 of 2]\n{whole[8000:]}"
    assert "lr_2" in call(box, desk, "shout", count=20_000).message
    box.close()


@pytest.mark.covers("B-063", "E-231")
@pytest.mark.parametrize(("given", "status"), [(("lr_1", 99), 404), (("lr_99", 1), 404), (("lr_1", 0), 400), (("x", 1), 400)])
def test_what_is_not_there_is_an_error(desk: Desk, given: tuple[str, int], status: int) -> None:
    box = toolbox(desk)
    loop(desk)
    call(box, desk, "shout", count=10_001)
    result = call(box, desk, "read_large_result", id=given[0], page=given[1])
    assert result.status == status and result.hint
    box.close()


@pytest.mark.covers("B-063")
def test_they_are_gone_when_the_next_loop_begins_and_stay_while_one_waits(desk: Desk) -> None:
    kept = Overflow(desk.store, desk.entries)
    loop(desk)
    kept.keep(desk.run, "x" * 20_000)
    waiting = desk.runs.append(Event(run=desk.run, kind="message", role="user", content="later"))
    desk.runs.enqueue(desk.run, waiting.id, "")
    assert kept.page(desk.run, "lr_1", 3).total_pages == 3
    for open_loop in desk.runs._select_loops("l.status = ?", 102):
        desk.runs.end_loop(open_loop, 200, "ok")
    desk.runs.start_loop(desk.runs.waiting()[0].id)
    with pytest.raises(NotFound):
        kept.page(desk.run, "lr_1", 1)
    assert "lr_2" in kept.keep(desk.run, "y" * 20_000) and kept.page(desk.run, "lr_2", 1).content[0] == "y"
    with pytest.raises(NotFound):  # what an earlier prompt was told about lr_1 is not answered with another result
        kept.page(desk.run, "lr_1", 1)
    assert kept.clear(desk.run) == 1


def test_a_result_that_is_too_long_to_keep_says_how_much_of_it_is_there(desk: Desk) -> None:
    loop(desk)
    kept, whole = Overflow(desk.store, desk.entries), MAX_BLOB_BYTES + 9_000
    stub = kept.keep(desk.run, "x" * whole)
    pages = -(-MAX_BLOB_BYTES // 8000)
    assert f"{whole} characters, of which the first {MAX_BLOB_BYTES} are kept, in {pages} pages" in stub
    assert kept.page(desk.run, "lr_1", pages).total_pages == pages
    with pytest.raises(NotFound):
        kept.page(desk.run, "lr_1", pages + 1)


def test_letters_of_any_language_come_back_whole_and_no_packet_or_search_shows_them(desk: Desk) -> None:
    kept = Overflow(desk.store, desk.entries)
    loop(desk)
    text = "Käuzchen 🦉 " * 2000
    kept.keep(desk.run, text)
    pages = [kept.page(desk.run, "lr_1", n) for n in range(1, kept.page(desk.run, "lr_1", 1).total_pages + 1)]
    assert "".join(page.content for page in pages) == text
    assert "Käuzchen" not in desk.packets.assemble(desk.scene(100_000)).messages[0].content
    assert desk.packets.relevant("Käuzchen") == "" and desk.store.value("SELECT COUNT(*) FROM changesets") == 0


def test_outside_of_a_run_results_are_cut_and_pages_refused(desk: Desk) -> None:
    box = toolbox(desk)
    result = box.dispatch(ToolCall("c", "shout", {"count": 10_001}), "", CancelToken())
    assert "[cut:" in result.message and json.dumps(result.message)
    refused = box.dispatch(ToolCall("c", "read_large_result", {"id": "lr_1"}), "", CancelToken())
    assert refused.status == 400
    box.close()


def test_a_strange_id_is_refused(desk: Desk) -> None:
    with pytest.raises(BadInput, match="lr_0"):
        Overflow(desk.store, desk.entries).page(desk.run, "lr_0", 1)
