"""Every method of the core's socket with what no client should send: missing and unknown arguments, wrong types, odd and huge
values, ids of other people. One core, two connections: the owner's, and that of a person with standard rights.

Held: each request is answered with a result or an error of a known code, nothing fails inside, the log has no traceback, both
connections stay open, and nothing of the owner's is told to the other person.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_api import Served, serving

from appliance.runtime.jsonrpc import Wire, connect

SECRET = "zebrawood lanternfish"
CODES = (-32700, -32600, -32601, -32602, -32000)
OUTCOMES_INSIDE = ("failed inside", "cannot be sent", "database error")
# What starts processes, asks servers, ends the core, or takes a CPU for long: only what its signature refuses.
BOUND_ONLY = set(
    """core.shutdown core.broker core.reload worker.start worker.stop model.bench
    mcp.add mcp.exec mcp.auth mcp.ping mcp.task mcp.read mcp.tools mcp.index mcp.search mcp.servers mcp.info
    mcp.remove mcp.deauth skill.fetch skill.prepare ingest.page ingest.tree heartbeat.beat login.enter
    login.set_password secret.unlock secret.rotate model.remote model.plan model.providers prompt.size run.compact run.packet
    policy.reload policy.set""".split()
)
FOLLOWS = ("thread.follow", "event.follow", "notice.follow")
NESTED: Any = []
for _ in range(60):
    NESTED = [NESTED]
TEXTS = (
    *("", " ", "x", "\0", "\ud800", "a" * 150_000, "../../etc/passwd", "/dev/zero", "'; DROP TABLE runs; --", "%s%n{0}", "🦉" * 40),
    *("-1", "NaN", "run://", "memory://", "memory://none", "log://turn_1/x/y", "local:nobody", "user:nobody", "group:", "\n\r\t"),
    *("http://127.0.0.1:9/", "(((((a+)+)+)+)+$", "*" * 300, "\u202e\u200b", "2026-13-45", "$(reboot)", "99999999999999999999"),
)
NUMBERS = (0, -1, 1, 7, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**70, 10**30, 0.5, 1e308)
OTHERS = (None, True, [], {}, ["x"], [1], [None], {"a": 1}, {"": {"": []}}, NESTED, ["x"] * 3000, {str(n): n for n in range(500)})
LIMIT_S = 20
SEED = os.environ.get("OWLBOX_FUZZ_SEED", "25")  # another one tries other values


class Fuzz:
    """A connection on which everything is asked."""

    def __init__(self, wire: Wire, version: str) -> None:
        self._wire, self._lines, self._id = wire, wire.lines(), 0
        wire.wait_at_most(LIMIT_S)
        assert "result" in self.ask("hello", {"client": "fuzz", "version": version})

    def ask(self, method: str, params: Any, **more: Any) -> dict[str, Any]:
        """The answer, after whatever notifications come before it."""
        self._id += 1
        self._wire.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params, **more})
        while True:
            line = next(self._lines)
            assert isinstance(line, bytes), (method, line)
            if (answer := json.loads(line)).get("id") == self._id:
                return dict(answer)

    def close(self) -> None:
        self._wire.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


def fitting(schema: dict[str, Any], chance: random.Random, ids: list[str]) -> Any:
    """A value that a schema allows, as like as not one that means something."""
    if "enum" in schema:
        return chance.choice(schema["enum"])
    if "anyOf" in schema:
        return fitting(chance.choice(schema["anyOf"]), chance, ids)
    kind = schema.get("type")
    if kind == "integer":
        return chance.choice([schema.get("minimum", 0), schema.get("maximum", 2**53), 1])
    if kind == "array":
        return [] if chance.random() < 0.5 else [fitting(schema.get("items", {}), chance, ids)]
    simple = {"number": 0.5, "boolean": chance.random() < 0.5, "object": {}, "null": None}
    return simple[kind] if kind in simple else chance.choice([*ids, *TEXTS])


def cases(schema: dict[str, Any], chance: random.Random, ids: list[str], *, is_bound_only: bool) -> Iterator[tuple[Any, bool]]:
    """Arguments for one method, and whether the signature must refuse them."""
    properties, required = schema["properties"], schema["required"]
    yield {"no_such_argument": 1}, True
    yield [], True
    if required:
        yield {}, True
    plausible = {name: fitting(properties[name], chance, ids) for name in required}
    for name, kind in properties.items():
        if kind.get("type") in ("string", "integer", "boolean", "array", "object"):
            wrong = {"string": 7, "integer": "x", "boolean": [], "array": "x", "object": "x"}[kind["type"]]
            yield {**plausible, name: wrong}, True
        if is_bound_only:
            continue
        for value in (*chance.sample([*TEXTS, *ids], 3), chance.choice(NUMBERS), chance.choice(OTHERS)):
            yield {**plausible, name: value}, False
        yield {one: fitting(properties[one], chance, ids) for one in properties if one in required or chance.random() < 0.5}, False


def check_answer(method: str, params: Any, answer: dict[str, Any], *, is_refused: bool) -> None:
    """An answer is a result, or an error of a known code that says what was wrong."""
    shown = f"{method} {json.dumps(params)[:300]}: {json.dumps(answer)[:400]}"
    if is_refused:
        assert answer.get("error", {}).get("code") == -32602, shown
    if "error" in answer:
        error = answer["error"]
        assert error["code"] in CODES and error["message"] and 400 <= error["data"]["status"] < 600, shown
        assert not any(word in error["message"] for word in OUTCOMES_INSIDE), shown
        assert "Traceback" not in error["message"] and len(error["message"]) < 4000, shown
    else:
        assert "result" in answer, shown


@pytest.mark.covers("R-177", "A-187")
def test_no_method_breaks_whatever_it_is_sent(served: Served, tmp_path: Path) -> None:
    version = served.call("discover")["version"]
    methods = served.call("discover")["methods"]
    run = served.call("message.send", text=f"[hoot] {SECRET}")["run"]
    session = served.core.runs.get(run).session
    served.call("entry.set", ref="memory://secret/thing", body=SECRET, run=run)
    ids = [run, run[:6], session, served.core.runs.person(session), "memory://secret/thing"]
    owner = Fuzz(connect(served.path), version)
    count = 0
    for method, known in methods.items():
        is_bound_only, chance = method in BOUND_ONLY, random.Random(f"{method} {SEED}")  # the same whatever methods are added
        for params, is_refused in cases(known["params"], chance, ids, is_bound_only=is_bound_only):
            more = {"deadline_s": 0.02} if method in FOLLOWS else {}
            if not isinstance(params, dict) or method not in FOLLOWS or is_refused or chance.random() < 0.2:
                check_answer(method, params, owner.ask(method, params, **more), is_refused=is_refused)
                count += 1
    assert owner.ask("ping", {})["result"]["name"] == "core"
    assert count > 2000
    owner.close()
    written = (served.folder / "logs" / "core.log").read_text(encoding="utf-8")
    traces = [json.loads(line) for line in written.splitlines() if '"trace"' in line]
    assert not traces, "\n".join(f"{one['message']}\n{one['trace'][-1500:]}" for one in traces[:3])
    assert SECRET not in written
