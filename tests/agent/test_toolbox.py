"""One definition of a tool, many faces; and the one dispatch, which never raises."""

import ast
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from appliance import tools
from appliance.agent.tool_results import Reply, as_text
from appliance.agent.toolbox import Caller, Toolbox, ToolRules, read_tool, tool
from appliance.cli import main
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import BadInput, Conflict, NotFound
from appliance.policy.policy_file import Policy
from appliance.policy.rules import Lists
from appliance.records import Outcome, Terms, ToolCall
from appliance.runtime.signatures import Range
from appliance.runtime.tool_settings import ToolSettings
from appliance.tools import calling, mcp

ROOT = Path(__file__).parents[2]


@tool(group="test", is_read_only=True)
def add(a: int, b: Annotated[int, Range(0, 9), "small"] = 1) -> int:
    """Add two numbers.

    The model does not read this paragraph.
    """
    return a + b


@tool(group="test")
def weigh(what: str, *, scale: dict[str, int]) -> str:
    """Weigh something."""
    return f"{what}: {scale[what]} g"


@tool(group="test")
def wait_for_stop(seconds: float, *, caller: Caller) -> str:
    """Wait."""
    return f"stopped {caller.cancel.wait(seconds)} in {caller.run}"


@tool(group="test")
def stubborn(seconds: float, *, ended: threading.Event) -> str:
    """Wait without listening to anybody."""
    ended.wait(seconds)
    return "done"


@contextmanager
def box(*functions: Callable[..., Any], deadline_s: float = 60, policy: Policy | None = None, **services: Any) -> Iterator[Toolbox]:
    made = Toolbox(functions, services, rules=ToolRules(policy or Policy(), deadline_s=deadline_s))
    try:
        yield made
    finally:
        made.close()


def call(made: Toolbox, name: str, arguments: dict[str, Any] | None = None, cancel: CancelToken | None = None) -> Outcome:
    return made.dispatch(ToolCall("c1", name, arguments or {}), "run-1", cancel or CancelToken())


# -- definition -------------------------------------------------------------------------------------


def test_a_spec_says_what_a_model_needs() -> None:
    spec = read_tool(add).spec
    assert (spec.name, spec.description, spec.group) == ("add", "Add two numbers.", "test")
    assert spec.is_read_only and not spec.is_terminal and read_tool(add).result_schema() == {"type": "integer"}
    assert spec.schema["properties"]["b"] == {"type": "integer", "minimum": 0, "maximum": 9, "default": 1}


@pytest.mark.covers("B-058")
def test_one_definition_is_a_model_tool_a_command_and_a_function() -> None:
    shipped = {t.mark.name: t for t in map(read_tool, tools.load())}
    chosen = shipped["read"]
    args = main.parser(["read"]).parse_args(["read", "--limit", "3", "box://a", "door"])
    assert (args.verb.calls, args.ref, args.limit) == ("tool read", ["box://a", "door"], 3)
    assert {one.parameter.name for one in args.typed} == set(chosen.spec.schema["properties"])
    with pytest.raises(BadInput, match="nothing to search for"):
        shipped["search"].function("the", finder=None, caller=Caller("", CancelToken()))  # the same function, called directly


TYPED = {  # arguments that a command written by hand calls otherwise
    ("thread search", "max_results"): "limit",
    ("context write", "content"): "text",
    ("context write", "content_base64"): "file",
    ("context edit", "edits"): "patches",
}
OTHERS = {  # arguments for which there is another command
    **{("mcp list", name): "mcp search word" for name in ("query", "keyword_only", "semantic_only", "limit")},
    ("context write", "folder"): "context mkdir word",
    ("context copy", "move"): "context move word word",
    ("task update", "status"): "task cancel 7",
}


@pytest.mark.parametrize("made", [t for t in map(read_tool, tools.load()) if t.mark.command], ids=lambda t: t.mark.name)
def test_every_tool_with_a_command_takes_its_arguments_there(made: Any) -> None:
    parser = main.whole_parser()
    words = made.mark.command.split()
    schema = made.spec.schema["properties"]
    needed = [f.name for f in made.signature.fields if f.is_required]
    options = ("frequency",) if made.mark.name == "create_schedule" else ()  # B-049 writes it as an option
    values = ["7" if schema[name].get("type") == "integer" else "word" for name in needed if name not in options]
    args = parser.parse_args([*words, *values, *(word for name in options for word in (f"--{name}", "word"))])
    typed = {one.parameter.name: one.dest for one in getattr(args, "typed", ())}  # a command may call it otherwise
    for field in made.signature.fields:
        if other := OTHERS.get((made.mark.command, field.name)):
            assert parser.parse_args(other.split()).verb.calls == f"tool {made.mark.name}"
            continue
        name = TYPED.get((made.mark.command, field.name)) or typed.get(field.name, field.name)
        assert hasattr(args, name), field.name
        assert field.is_required or (getattr(args, name) or field.default) == field.default


def test_a_function_without_mark_or_words_is_no_tool() -> None:
    @tool(group="test")
    def silent() -> str:
        return ""

    with pytest.raises(BadInput, match="not marked"):
        read_tool(lambda: "")
    with pytest.raises(BadInput, match="silent has no docstring"):
        read_tool(silent)


@pytest.mark.covers("S-019")
def test_a_name_is_offered_once_and_a_later_tool_shows_in_the_specs() -> None:
    with box(add) as made:
        first = made.specs()
        assert made.specs() is first
        with pytest.raises(Conflict, match="add is offered twice"):
            made.add(add)
        made.add(weigh)
        assert [s.name for s in made.specs()] == ["add", "weigh"]
        unknown = call(made, "fly")
        assert (unknown.status, unknown.outcome, unknown.message) == (404, "not_found", "Unknown tool fly")
        assert "add, weigh" in unknown.hint


@pytest.mark.covers("B-065")
def test_a_new_file_in_the_folder_is_a_new_tool_and_a_new_command(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "appliance", tmp_path / "appliance", ignore=shutil.ignore_patterns("*.gguf"))
    (tmp_path / "appliance/tools/dice.py").write_text(
        "from appliance.agent.toolbox import tool\n\n\n"
        '@tool(group="games", command="dice")\ndef roll(sides: int = 6) -> str:\n    """Roll a die."""\n    return "4"\n'
    )
    renew = [sys.executable, "-m", "appliance", "docs", "--table"]
    subprocess.run(renew, cwd=tmp_path, capture_output=True, timeout=180, check=True)
    code = (
        "import appliance, json\nfrom appliance import tools\nfrom appliance.cli import main as cli\n"
        "from appliance.agent.toolbox import read_tool\n"
        "args = cli.parser(['dice']).parse_args(['dice', '--sides', '20'])\n"
        "print(json.dumps([appliance.__file__, [read_tool(f).mark.name for f in tools.load()], args.verb.calls, args.sides]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=True)
    file, names, name, sides = json.loads(done.stdout)
    assert file.startswith(str(tmp_path))
    assert "roll" in names and "search" in names and (name, sides) == ("tool roll", 20)


# -- dispatch ---------------------------------------------------------------------------------------


@pytest.mark.covers("B-059")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid input for add: a: is required"),
        ({"a": "1"}, "Invalid input for add: a: Expected `int`, got `str`"),
        (
            {"a": 1.5, "b": 10, "c": 0},
            "Invalid input for add: c: unknown argument, expected a, b; a: Expected `int`, got `float`; "
            "b: Expected `int` <= 9, got 10",
        ),
    ],
)
def test_bad_input_is_a_result_that_names_every_problem(arguments: dict[str, Any], text: str) -> None:
    with box(add) as made:
        result = call(made, "add", arguments)
        assert (result.status, result.outcome, result.message) == (400, "invalid_arguments", text)
        assert result.hint


class Garden(TypedDict):
    beds: int


@tool(group="test")
def garden() -> Reply[Garden]:
    """Show the garden."""
    return Reply({"beds": 3}, "3 beds")


@tool(group="test")
def odd() -> object:
    """Return what no JSON can hold."""
    return object()


def _raises(error: BaseException) -> Callable[..., Any]:
    @tool(group="test")
    def broken() -> str:
        """Fail."""
        raise error

    return broken


def test_a_result_is_text_a_reply_s_own_text_or_json() -> None:
    with box(add, weigh, garden, scale={"egg": 55}) as made:
        assert read_tool(garden).result_schema()["$defs"]["Garden"]["properties"] == {"beds": {"type": "integer"}}
        assert call(made, "weigh", {"what": "egg"}).message == "egg: 55 g"
        assert call(made, "add", {"a": 2}) == Outcome(200, "ok", "3", data=3)
        assert call(made, "garden") == Outcome(200, "ok", "3 beds", data={"beds": 3})


@pytest.mark.covers("B-060")
@pytest.mark.parametrize(
    ("error", "status", "outcome", "part"),
    [
        (ValueError("no egg"), 500, "failed", "broken failed: ValueError: no egg"),
        (NotFound("no entry x", hint="look"), 404, "not_found", "no entry x"),
        (TimeoutError("its own"), 500, "failed", "TimeoutError: its own"),
        (SystemExit(3), 500, "failed", "SystemExit: 3"),
        (RecursionError("deep"), 500, "failed", "RecursionError"),
    ],
)
def test_what_a_tool_raises_becomes_a_result(error: BaseException, status: int, outcome: str, part: str) -> None:
    with box(_raises(error), add) as made:
        result = call(made, "broken")
        assert (result.status, result.outcome) == (status, outcome) and part in result.message
        assert result.hint == getattr(error, "hint", "try again with other input, or go on without it")
        assert call(made, "add", {"a": 1}).status == 200


def test_a_value_that_cannot_be_written_down_is_a_failed_call() -> None:
    with box(odd) as made:
        assert (call(made, "odd").status, call(made, "odd").outcome) == (500, "failed")


@pytest.mark.covers("B-062")
def test_an_error_has_the_shape_a_model_can_recover_from() -> None:
    with box(weigh, _raises(NotFound("no entry x", hint="search first"))) as made:
        for name, kind in (("broken", "not_found"), ("weigh", "invalid_arguments"), ("fly", "not_found")):
            outcome = call(made, name)
            shape = json.loads(as_text(outcome))
            assert shape == {"is_error": True, "error_type": kind, "message": outcome.message, "next_action_hint": outcome.hint}
            assert shape["message"] and shape["next_action_hint"]
    assert as_text(Outcome(200, "ok", "fine")) == "fine"


@pytest.mark.covers("B-067")
def test_a_tool_gets_the_services_it_names_and_no_others() -> None:
    got: list[object] = []

    @tool(group="test")
    def modest(*, scale: dict[str, int]) -> str:
        """Use the scale."""
        got.append(scale)
        return "ok"

    scale = {"egg": 1}
    with box(modest, scale=scale, secret="key", net=object()) as made:
        assert call(made, "modest").status == 200 and got == [scale] and got[0] is scale
        for name in ("secret", "net", "scale", "caller"):
            assert call(made, "modest", {name: 1}).message == f"Invalid input for modest: {name}: unknown argument, expected none"
        assert made.specs()[0].schema["properties"] == {}
    with box(weigh) as made:
        result = call(made, "weigh", {"what": "egg"})
        assert (result.status, result.outcome) == (503, "unavailable") and "no scale" in result.message


@pytest.mark.covers("B-067")
def test_the_tools_that_ship_reach_a_network_and_processes_through_services_alone() -> None:
    barred = {"socket", "ssl", "http", "urllib", "requests", "httpx2", "asyncio", "subprocess", "multiprocessing", "os", "ctypes"}
    allowed = {"urllib.parse", "os.path"}
    for path in Path(tools.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        named += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        assert not [name for name in named if name.partition(".")[0] in barred and name not in allowed], path.name


@pytest.mark.covers("B-067")
@pytest.mark.parametrize(
    ("function", "given"),
    [
        (mcp.mcp_list_tools, {}),
        (mcp.mcp_list_tools, {"query": "x"}),
        (mcp.mcp_info, {"server": "x", "tool": "x"}),
        (mcp.mcp_exec, {"server": "x", "tool": "x"}),
    ],
)
def test_a_tool_of_servers_without_a_client_for_them_is_not_available(
    function: Callable[..., object], given: dict[str, str]
) -> None:
    with box(function, scale={"egg": 1}) as made:
        result = call(made, function.__name__, given)
        assert (result.status, result.outcome) == (503, "unavailable") and "is not available here: no mcp" in result.message


def test_what_policy_denies_is_neither_shown_nor_run() -> None:
    with box(add, weigh, policy=Policy(tools_deny=("w*",)), scale={"egg": 1}) as made:
        assert [s.name for s in made.specs()] == ["add"]
        result = call(made, "weigh", {"what": "egg"})
        assert (result.status, result.outcome) == (403, "permission") and "tools.deny" in result.message


def test_a_tool_that_is_too_slow_is_told_and_left() -> None:
    with box(wait_for_stop, deadline_s=0.1) as made:
        started_s = monotonic_s()
        result = call(made, "wait_for_stop", {"seconds": 60.0})
        assert (result.status, result.outcome) == (504, "timeout") and "0.1 s" in result.message
        assert monotonic_s() - started_s < 20


def test_a_stop_reaches_the_tool_through_its_caller() -> None:
    cancel = CancelToken()
    with box(wait_for_stop) as made:
        threading.Timer(0.1, cancel.set).start()
        result = call(made, "wait_for_stop", {"seconds": 60.0}, cancel)
        assert result.message == "stopped True in run-1"


def test_a_stop_does_not_wait_for_a_tool_that_does_not_listen() -> None:
    cancel, ended = CancelToken(), threading.Event()
    with box(stubborn, ended=ended, deadline_s=120) as made:
        threading.Timer(0.1, cancel.set).start()
        started_s = monotonic_s()
        result = call(made, "stubborn", {"seconds": 60.0}, cancel)
        assert (result.status, result.outcome) == (499, "cancelled")
        assert monotonic_s() - started_s < 20
        ended.set()


def test_a_stop_interrupts_the_thread_the_tool_runs_in() -> None:
    hit, where, cancel = threading.Event(), [], CancelToken()

    class Interrupted:
        def interrupt(self, thread: int) -> None:
            where.append(thread)
            hit.set()

    @tool(group="test")
    def query() -> str:
        """Query for long."""
        where.append(threading.get_ident())
        cancel.set()
        return str(hit.wait(60))

    made = Toolbox([query], {}, rules=ToolRules(Policy()), store=Interrupted())  # type: ignore[arg-type]
    assert made.dispatch(ToolCall("c", "query"), "", cancel).message == "True"
    assert where[0] == where[1]
    made.close()


def test_a_long_result_is_cut_at_the_end_of_a_line_and_says_so() -> None:
    @tool(group="test")
    def talk(word: str, times: int) -> str:
        """Say a word many times."""
        return word * times

    with box(talk) as made:
        lines = call(made, "talk", {"word": "owl owl\n", "times": 5000}).message
        assert len(lines) <= 10_000 and "owl owl\n[cut: 99" in lines and lines.endswith("of 40000 characters shown; ask for less]")
        assert len(call(made, "talk", {"word": "x", "times": 20_000}).message) <= 10_000
        assert call(made, "talk", {"word": "x", "times": 10_000}).message == "x" * 10_000


def test_a_closed_toolbox_answers_unavailable() -> None:
    with box(add) as made:
        made.close()
        assert (call(made, "add", {"a": 1}).status, call(made, "add", {"a": 1}).outcome) == (503, "unavailable")


# -- tools beside the menu --------------------------------------------------------------------------


@tool(group="test", menu=())
def hidden(what: Annotated[str, "whatever"]) -> str:
    """Work unseen.

    Only whoever knows it calls it.
    """
    return f"hid {what}"


def use(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": name, "arguments": arguments}


@pytest.mark.covers("R-056", "R-057")
def test_use_runs_another_tool_and_says_what_is_wrong_with_it() -> None:
    with box(calling.use, calling.tool_help, hidden, add) as made:
        assert call(made, "use", use("hidden", what="it")) == Outcome(200, "ok", "hid it", data=None)
        assert call(made, "use", use("nothing")).status == 404
        assert call(made, "use", use("hidden")).status == 400 and call(made, "use", {"tool": 1}).status == 400
        assert call(made, "use", use("use", tool="hidden")).status == 400
        assert made.meant(ToolCall("c9", "use", use("add", a=1))) == ToolCall("c9", "add", {"a": 1})
        assert made.meant(ToolCall("c9", "add", {"a": 1})).name == "add"


def test_a_policy_that_forbids_a_tool_forbids_the_way_to_it() -> None:
    with box(calling.use, hidden, policy=Policy(tools_deny=("hidden",))) as made:
        assert call(made, "use", use("hidden", what="it")).status == 403
        assert "hidden" not in made.specs()[-1].description
    with box(calling.use, hidden, policy=Policy(tools_deny=("use",))) as made:
        assert call(made, "use", use("hidden", what="it")).status == 403 and call(made, "hidden", {"what": "it"}).status == 200


def test_a_menu_names_the_other_tools_by_group_and_help_explains_them() -> None:
    with box(calling.use, calling.tool_help, hidden, add) as made:
        assert [s.name for s in made.specs()] == ["tool_help", "add", "use"]
        assert made.specs()[-1].description.splitlines()[1:] == ["hidden"]
        text = call(made, "tool_help", {"name": "hidden"}).message
        assert "Only whoever knows it calls it." in text and "- what: whatever" in text and '"required": ["what"]' in text
        assert call(made, "tool_help", {"name": "test"}).message.splitlines()[0] == "hidden: Work unseen."
        assert call(made, "tool_help", {"name": "nothing"}).status == 404


def test_a_tool_that_is_removed_is_unknown() -> None:
    with box(add) as made:
        made.add(hidden)
        assert call(made, "hidden", {"what": "it"}).message == "hid it"
        made.remove("hidden")
        assert call(made, "hidden", {"what": "it"}).status == 404
        assert made.spec("hidden") is None and made.spec("add") is not None


@pytest.mark.parametrize("named", ["fetch_url", "web_fetch"])
def test_a_tool_may_be_named_as_the_designs_call_it_wherever_one_is_named(named: str) -> None:
    @tool(group="web")
    def fetch_url(url: str) -> str:
        """Read a page."""
        return f"fetched {url}"

    def asked(terms: Terms = Terms(), **rules: Any) -> Outcome:
        made = Toolbox([fetch_url, add], {}, rules=ToolRules(rules.pop("policy", Policy()), settings=lambda: ToolSettings(**rules)))
        try:
            return made.dispatch(ToolCall("1", "web_fetch", {"url": "u"}), "", CancelToken(), terms=terms)
        finally:
            made.close()

    assert (
        asked().message == asked(Terms(tools=(named,))).message == asked(policy=Policy(tools_allow=(named,))).message == "fetched u"
    )
    assert asked(disabled=(named,)).outcome == "unavailable"
    assert asked(Terms(tools=("web", f"-{named}"))).status == asked(Terms(tools=("add",))).status == 403
    for policy in (Policy(tools_deny=(named,)), Policy(tools_allow=("add",)), Policy(roles={"chat": Lists(deny=(named,))})):
        assert asked(Terms(role="chat"), policy=policy).status == 403
    made = Toolbox([fetch_url, add], {}, rules=ToolRules(Policy(), settings=lambda: ToolSettings(deadlines_s={named: 7})))
    assert made.allowed((named,)) == ("fetch_url",) == tuple(s.name for s in made.specs("chat", (named,)))
    (listed,) = (one for one in made.registry() if one["name"] == "fetch_url")
    assert (listed["aliases"], listed["deadline_s"]) == (["web_fetch"], 7)
    made.close()
