"""What the core keeps in memory: nothing grows with what it is asked, and what is free is given back after use."""

import gc
import sys
import threading
from collections import Counter, deque
from contextlib import closing
from pathlib import Path
from typing import Any

from process import until
from stores import new_store
from test_api import Served, serving

from appliance.runtime.rpc_client import Client
from appliance.service.heap import HeapCare, free_unused
from appliance.store.database import MOST_IDLE

EACH = 12  # calls of each kind
MOST = 10  # objects that may come to be of a type or in a place, where one a call would be EACH


def fill_free_lists() -> None:
    """Have Python keep freed tuples of many sizes."""
    for size in range(2, 18):
        rows = [tuple(range(size)) for _ in range(2000)]
        del rows


def test_what_python_keeps_of_freed_rows_is_given_back() -> None:
    free_unused()
    fill_free_lists()
    before = sys.getallocatedblocks()
    free_unused()
    assert before - sys.getallocatedblocks() > 20_000


def test_unused_memory_is_freed_after_use_alone(tmp_path: Path) -> None:
    with closing(new_store(tmp_path / "owlbox.db")) as store:
        care = HeapCare(store, every_s=0.0)
        fill_free_lists()
        first = sys.getallocatedblocks()
        care.start()
        until(lambda: first - sys.getallocatedblocks() > 20_000, "it looks at once")
        fill_free_lists()
        before = sys.getallocatedblocks()
        store.rows("SELECT 1")
        threading.Event().wait(0.1)
        assert before - sys.getallocatedblocks() < 10_000, "nobody is woken up for nothing"
        with store.write() as execute:
            execute("UPDATE wall_clock SET held_until_ms = held_until_ms")
        until(lambda: before - sys.getallocatedblocks() > 20_000, "it is given back")
        care.stop()


def ask(client: Client, number: int) -> None:
    """A call of each kind."""
    client.call("message.send", {"text": f"owl {number}"}, deadline_s=60)
    client.call("tool.call", {"name": "remember", "arguments": {"title": f"note {number}", "text": f"barn {number} " * 9}})
    client.call("tool.call", {"name": "search", "arguments": {"query": f"owl {number}"}})
    client.call("tool.call", {"name": "create_task", "arguments": {"name": f"sweep {number}"}})
    client.call("tool.call", {"name": "list_tasks", "arguments": {}})
    client.call("entry.list", {"limit": 20})
    client.call("thread.list", {"limit": 20})
    client.call("core.status", {})


def counted(served: Served, first: int) -> tuple[Counter[str], list[Any], list[int]]:
    """After calls of each kind: how many objects of each type there are, all places that hold some, and how many each holds."""
    for number in range(first, first + EACH):
        with Client(served.path, name="test", timeout_s=60) as client:  # a new connection each time
            ask(client, number)
    until(lambda: not served.call("core.status")["answering"], "all is answered")
    gc.collect()
    gc.unfreeze()
    objects = gc.get_objects()
    types = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in objects)
    places = {id(one): one for one in objects}
    places |= {id(one): one for made in objects for one in gc.get_referents(made)}  # what holds only texts is not listed
    kept = [one for one in places.values() if isinstance(one, dict | list | set | deque)]
    return types, kept, [len(one) for one in kept]


def test_nothing_grows_with_what_a_core_is_asked(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        with Client(served.path, name="test", timeout_s=60) as client:  # what is made once is there
            ask(client, 0)
        before, places, sizes = counted(served, 100)
        own = {id(places), id(sizes), id(served.core.calls._waiting)}  # the last is written, and begun anew, from time to time
        after, _, _ = counted(served, 200)
        assert len(served.core.store._idle) <= MOST_IDLE
        made = {name: count - before[name] for name, count in after.items() if count - before[name] > MOST}
        made.pop("builtins.list", None)  # our own
        assert not made, made
        grown = [(len(one) - size, repr(one)[:300]) for one, size in zip(places, sizes) if id(one) not in own]
        assert not [found for found in grown if found[0] > MOST]
