"""What a person asked for is on the disk when it is acknowledged: every method of the table that writes, on watched files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import quick
from process import Box, a_box

from appliance.clock import Alarms
from appliance.runtime import methods
from appliance.runtime.rpc_client import Client
from appliance.runtime.rpc_server import Listener, listen
from appliance.store import durability

__all__ = ["a_box"]
PROGRAM = Path(__file__).parents[1] / "support" / "synced.py"


@pytest.mark.covers("A-019", "A-218")
def test_every_method_that_writes_is_durable_when_it_answers(box: Box) -> None:
    done = quick.run([sys.executable, str(PROGRAM), str(box.home.root)], timeout_s=240, env=box.environ)
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["missing"] == [], "methods that nobody has sorted: they write or they read"
    assert told["gone"] == []
    assert [name for name, one in told["found"].items() if not one["is_synced"]] == []
    wrote = {name for name, one in told["found"].items() if one["writes"]}
    assert {
        "session.create",
        "notify.mute",
        "notice.seen",
        "message.send",
        "tool.call",
    } <= wrote and len(wrote) > 30


def test_a_call_over_the_socket_is_served_as_asked_and_what_it_leaves_to_others_is_not(runtime: Path) -> None:
    seen: list[bool] = []

    class Table:
        @methods.method("look")
        def look(self, call: methods.Call) -> None:
            """Note it."""
            seen.append(durability.is_asked())

    listener = Listener(listen(runtime / "s"), name="core", gate=lambda peer, params: None, alarms=Alarms())
    listener.offer(Table())
    listener.start()
    try:
        with Client(str(runtime / "s"), name="test") as client:
            client.call("look")
    finally:
        listener.close()
    assert seen == [True] and not durability.is_asked()
