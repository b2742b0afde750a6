"""A real server of tools that gives orders, a core with a model that obeys: held, let pass once, let pass for a while."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from border import NOTE, SECRET, Border, calls, opened, using
from loopback import Server, serving
from mcp_hubs import SERVERS
from needs import needs

from appliance.policy.audit_log import AuditQuery
from appliance.runtime.methods import LocalCall, find_methods

pytestmark = needs("bwrap", "perl")
READ = {"name": "read", "arguments": {"ref": NOTE}}
HELP = {"name": "tool_help", "arguments": {"name": "bazaar_look"}}
LOOK = using("bazaar_look", query="Please")
SEARCH = using("mcp_search", query="look things up", keyword_only=True)
DIRECT = using("bazaar_keep", text=SECRET)
META = using("mcp_exec", server="bazaar", tool="keep", args={"text": SECRET})
INFO = using("mcp_info", server="bazaar", tool="look")
SAID = using("mcp_exec", server="bazaar", tool="look", args={"query": "look it up"})
ANSWERS: dict[str, Any] = {
    "described": [calls(HELP), calls(READ), calls(DIRECT), "Done."],
    "searched": [calls(SEARCH), calls(READ), calls(META), "Done."],
    "answered": [calls(LOOK), calls(READ), calls(META), "Done."],
    "named": [calls(LOOK), calls(READ), calls(using("bazaar_keep", **{"text": "look", SECRET: True})), "Done."],
    "misused": [calls(using("bazaar_keep", query="Please")), calls(READ), calls(META), "Done."],
    "approved": [calls(LOOK), calls(READ), calls(DIRECT), "Done."],
    "granted": [calls(LOOK), calls(READ), calls(META), "Done."],
    "spelled": [
        calls(INFO),
        calls(SAID),
        calls(using("bazaar_look", query="look it up")),
        calls(SAID),
        "Nothing there.",
    ],
    "unspelled": [calls(using("mcp_info", server="bazaar", tool="look")), calls(SAID | {"name": "use"}), calls(META), "Done."],
    "ordinary": [calls(LOOK), "Nothing there."],
}


@pytest.fixture(scope="module")
def site() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def border(tmp_path_factory: pytest.TempPathFactory, site: Server) -> Iterator[Border]:
    with opened(tmp_path_factory.mktemp("bazaar"), site, ANSWERS) as made:
        mounts = [f"{SERVERS / 'hostile.py'}:/servers/hostile.py"]
        made.core.servers.hub.add("bazaar", {"command": sys.executable, "args": ["/servers/hostile.py"], "mounts": mounts})
        made.core.servers.hub.refresh("bazaar")
        yield made


def kept(border: Border) -> list[str]:
    """What the server was given."""
    path: Path = border.core.home.root / "servers/bazaar/kept"
    return path.read_text().split() if path.exists() else []


@pytest.mark.covers("A-281")
@pytest.mark.parametrize("way", ["described", "searched", "answered", "named", "misused"])
def test_what_a_real_server_orders_waits_for_a_person(border: Border, way: str) -> None:
    told = border.say(f"[{way}] Please look it up.", way)
    assert told.end.status == 202, [event.content for event in told.events("tool_result")]
    (because,) = border.because(told.run)
    assert "the server bazaar" in because and kept(border) == []
    after, _ = border.decide(told, "reject")
    assert after.end.outcome == "rejected" and kept(border) == []


def test_what_is_approved_is_done_once_and_a_grant_lets_the_next_pass(border: Border) -> None:
    resolve = find_methods(*border.core.offered)["run.resolve"]
    told = border.say("[approved] Please look it up.", "owner")
    (ref,) = border.waiting(told.run)
    assert told.end.status == 202 and kept(border) == []
    resolve.call(LocalCall(), ref=ref, run=told.run, wait=True, remember="7d")
    assert kept(border) == [SECRET]
    (grant,) = border.core.taint.grants.listing("owner")
    assert (grant.kind, grant.target, grant.origins) == ("call", "mcp:bazaar", ("mcp:bazaar",))
    told = border.say("[granted] Please look it up.", "owner")
    assert told.said == "Done." and kept(border) == [SECRET, SECRET]
    (line,) = border.core.policy.ledger.listing(AuditQuery(kind="call_granted"))
    assert line.detail["grant"] == grant.id


def test_an_ordinary_question_needs_nobodys_word(border: Border) -> None:
    assert border.say("[ordinary] Please look it up.", "asker").said == "Nothing there."


@pytest.mark.covers("A-281")
def test_what_the_person_said_may_be_told_through_either_tool(border: Border) -> None:
    """Also after the long description of a tool: the names of its arguments say nothing."""
    assert border.say("[spelled] Please look it up.", "speller").said == "Nothing there."
    told = border.say("[unspelled] Please look it up.", "speller")
    assert told.end.status == 202 and border.core.approvals.waiting(told.run)[0].action == "mcp_exec"
    assert "in text" in border.core.approvals.show(border.waiting(told.run)[0], told.run).text
    assert border.inbox.stop(told.run)
