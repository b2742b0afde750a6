"""`thread.follow`: an open screen hears of a thread as it grows, whoever writes into it, and of what arrives for its person."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from process import Box, Core, a_shared_box, script, until  # noqa: F401

from appliance.clock import CancelToken
from appliance.errors import Cancelled, Lost, NotFound
from appliance.runtime.rpc_client import Client
from appliance.runtime.subscriptions import MAX_WAITING, Notice, Notices, Stir

PLAY = """
[[turns]]
match = "dig"
repeat = true
text = "I dig and dig and dig and dig."
chunk_size = 3
chunk_delay_s = 0.3
[[turns]]
repeat = true
text = "Hoot hoot."
"""


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Core:
    script(shared_box, PLAY)
    return shared_box.serve()


class Heard:
    """What one screen was told so far."""

    def __init__(self) -> None:
        self.items: list[tuple[str, dict[str, Any]]] = []
        self.is_over = False  # because the core said so

    def said(self) -> list[str]:
        return [value["content"] for name, value in self.items if name == "event" and value["kind"] == "message"]

    def states(self) -> list[int]:
        return [value["status"] for name, value in self.items if name == "thread"]


@contextmanager
def following(core: Core, thread: str, after: int = 0) -> Iterator[Heard]:
    heard, client = Heard(), core.client()

    def listen(client: Client) -> None:
        try:
            for item in client.stream("thread.follow", {"id": thread, "after": after}, deadline_s=120):
                heard.items.append(item)
            heard.is_over = True
        except (Lost, Cancelled):
            pass

    thread_of_it = threading.Thread(target=listen, args=(client,))
    thread_of_it.start()
    try:
        yield heard
    finally:
        client.close()
        thread_of_it.join(60)
        assert not thread_of_it.is_alive()


def asked(core: Core, text: str, thread: str = "") -> str:
    return str(core.call("message.send", text=text, thread=thread)["run"])


def test_every_event_comes_once_and_how_the_thread_stands(core: Core) -> None:
    thread = asked(core, "hello")
    with following(core, thread) as heard:
        until(lambda: heard.said() == ["hello", "Hoot hoot."], "what was said before")
        asked(core, "again", thread)
        until(lambda: heard.said() == ["hello", "Hoot hoot.", "again", "Hoot hoot."], "what is said now")
        until(lambda: heard.states()[-1] == 200, "it has ended")
    assert 102 in heard.states()
    seqs = [value["seq"] for name, value in heard.items if name == "event"]
    assert seqs == list(range(1, len(seqs) + 1))


def test_only_what_comes_after_an_event_is_told(core: Core) -> None:
    thread = asked(core, "hello")
    with following(core, thread, after=1) as heard:
        until(lambda: heard.said() == ["Hoot hoot."], "the answer")


def test_what_a_worker_s_process_writes_comes_while_it_works(core: Core) -> None:
    task = core.call("tool.call", name="create_task", arguments={"name": "dig"})["data"]["id"]
    core.call("worker.start")

    def thread() -> str:
        return str(core.call("tool.call", name="view_task", arguments={"id": task})["data"].get("run") or "")

    until(lambda: bool(thread()), "a worker has begun")
    with following(core, thread()) as heard:
        until(lambda: "I dig and dig and dig and dig." in heard.said(), "what it says")
        until(lambda: heard.states()[-1] == 200, "it has ended")


def test_a_thread_that_is_deleted_is_the_end_and_an_unknown_one_an_error(core: Core) -> None:
    thread = asked(core, "hello")
    with following(core, thread) as heard:
        until(lambda: heard.states()[-1:] == [200], "it is answered")  # before that it cannot be deleted
        core.call("thread.delete", id=thread)
        until(lambda: heard.is_over, "and the end is told")
    with core.client() as client, pytest.raises(NotFound):
        list(client.stream("thread.follow", {"id": "nowhere"}, deadline_s=5))


def test_a_core_that_ends_does_not_say_that_the_thread_is_gone(core: Core) -> None:
    """Stopped, it may answer before it hangs up: as the end of the thread, that would be the last a screen looks at it."""
    thread, stop = asked(core, "hello"), CancelToken()
    with core.client() as client:
        stream = client.stream("thread.follow", {"id": thread}, deadline_s=120, cancel=stop)
        next(stream)
        stop.set()
        with pytest.raises(Cancelled):
            list(stream)


def test_a_lookout_is_told_of_writing_once_and_of_its_own_notices() -> None:
    notices = Notices()
    box = notices.look_out("ann")
    notices.stir()
    notices.stir()
    notices.put(Notice("bob", "not hers"))
    notices.put(Notice("ann", "hers"))
    assert notices.has_screen("ann") and not notices.has_screen("bob") and notices.is_followed("ann")
    assert box.take(0) == Stir() and box.take(0) == Notice("ann", "hers") and box.take(0) is None
    for number in range(MAX_WAITING * 2):
        notices.put(Notice("ann", str(number)))
    assert sum(box.take(0) is not None for _ in range(MAX_WAITING * 2)) <= MAX_WAITING + 1
    notices.blink(box)
    assert box.is_closed and not notices.has_screen("ann")
