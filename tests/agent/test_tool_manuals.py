"""Manuals of tools: every tool has one, its examples are calls, and what it costs is what docs/reference/tools.md says."""

import re
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import model_file, model_home  # noqa: F401

from appliance import tools
from appliance.agent import tool_manuals
from appliance.agent.tool_manuals import ManualIndex, ToolAlias, only_meanings, parse, read, read_aliases, syntax
from appliance.agent.toolbox import Caller, Toolbox, ToolRules, read_tool, tool
from appliance.errors import ConfigError
from appliance.policy.policy_file import Policy
from appliance.prompt.packet import tool_line
from appliance.records import Terms, ToolCall
from appliance.reference import docs
from appliance.text.tokens import estimate

TOOLS = {one.mark.name: one for one in map(read_tool, tools.load())}
SHELF = ManualIndex()
ROOT = Path(__file__).parents[2]


@pytest.mark.covers("R-196")
@pytest.mark.parametrize("name", sorted(TOOLS))
def test_every_tool_has_a_manual_and_its_examples_are_calls(name: str) -> None:
    one = TOOLS[name]
    manual = SHELF.of(name, one.mark.group)
    assert manual.problems() == [], f"write appliance/tools/manuals/{one.mark.group}.toml [{name}]"
    for example in manual.examples:
        one.signature.bind(example.arguments)


def test_no_manual_is_of_a_tool_that_is_not_there() -> None:
    written = {(group, name) for group in tool_manuals.groups() for name in read(group)}
    assert written == {(one.mark.group, name) for name, one in TOOLS.items()}


@pytest.mark.covers("R-196")
@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "no reason for its header"),
        ({"examples": [[{}, "why"]]}, "1 examples, 2 are needed"),
        ({"rules": [["You must.", "why"]]}, "1 rules, 2 are needed"),
        ({"rules": [["Do it.", "why"], ["You must.", "why"]]}, "no must, should or may: Do it."),
        ({"rules": [["You must.", ""]]}, "no reason: ManualRule(text='You must.', why='')"),
    ],
)
def test_what_is_missing_is_named(table: dict[str, object], problem: str) -> None:
    assert problem in parse("thing", table).problems()


@pytest.mark.parametrize("table", [5, {"reason": "x"}, {"why": 5}, {"examples": [["x", "why"]]}, {"rules": [["only a line"]]}])
def test_a_table_that_is_none_is_refused_with_its_name(table: object) -> None:
    with pytest.raises(ConfigError, match="the manual of thing"):
        parse("thing", table)


@pytest.mark.covers("R-196")
def test_help_has_its_parts_in_one_order() -> None:
    text = TOOLS["create_task"].told(SHELF.of("create_task", "planning"))
    assert text.startswith("create_task(name, [description, priority, blocked_by, deadline, context_ids]): Have work done later")
    places = [text.index(part) for part in ("- name: ", "Examples:\ncreate_task {", "Rules:\n- ", "Schema of its arguments: ")]
    assert places == sorted(places)
    assert "as discussed" not in text, "reasons are for people"


def test_syntax_tells_what_may_be_left_out() -> None:
    wanted = {"think": "([body])", "list_dir": "([path, brief])", "grep": "(pattern, path, [ignore_case])"}
    assert {name: syntax("", TOOLS[name].signature) for name in wanted} == wanted


@pytest.mark.covers("B-066")
def test_tools_that_work_like_a_shell_command_name_it_first() -> None:
    files = [one for one in TOOLS.values() if one.mark.group == "files" or one.mark.name.startswith("context_")]
    about = {one.mark.name: one.description.partition(":")[0] for one in files}
    like = {name for name, words in about.items() if re.fullmatch(r"Like [a-z][a-z -]*", words)}
    not_like = {"context_search", "context_reembed", "context_refresh"}
    assert set(about) - like == not_like and about["read_file"] == "Like cat" and about["context_copy"] == "Like cp -r"


# -- other names -------------------------------------------------------------------------------------


@tool(group="web", name="fetch_url")
def fetch(url: str) -> str:
    """Fetch."""
    return f"fetched {url}"


@pytest.mark.covers("R-196")
def test_a_tool_answers_to_the_name_that_one_of_the_designs_has_for_it() -> None:
    from appliance.tools import calling

    box = Toolbox([fetch, calling.use], {}, rules=ToolRules(Policy()))
    try:
        plain, detour = {"url": "u"}, {"tool": "web_fetch", "arguments": {"url": "u"}}
        for call in (ToolCall("1", "web_fetch", plain), ToolCall("1", "use", detour)):
            assert box.meant(call) == ToolCall("1", "fetch_url", {"url": "u"})
        assert box.dispatch(ToolCall("1", "web_fetch", {"url": "u"}), "", _never()).message == "fetched u"
        box.use(Policy(tools_deny=("fetch_url",)))
        assert box.dispatch(ToolCall("1", "web_fetch", {"url": "u"}), "", _never()).status == 403
        assert box.dispatch(ToolCall("1", "shell", {"command": "ls"}), "", _never()).status == 404
    finally:
        box.close()


def test_a_name_that_two_tools_answer_to_or_one_has_means_nothing_else() -> None:
    both = {
        "one": (ToolAlias("B", "thing"), ToolAlias("S", "alone")),
        "two": (ToolAlias("A", "thing"), ToolAlias("R", "one")),
    }
    assert {name: ours for name, (ours, _) in only_meanings(both).items()} == {"alone": "one"}


def test_others_names_are_of_tools_that_there_are_with_arguments_they_have() -> None:
    for name, theirs in read_aliases().items():
        taken = {one.name for one in TOOLS[name].signature.fields}
        for alias in theirs:
            assert alias.design in (*"ABRS", "earlier") and alias.name.isidentifier(), alias
            assert {*alias.arguments.values(), *alias.implied} <= taken, alias


def test_a_design_s_name_that_is_also_a_groups_means_the_whole_group() -> None:
    box = Toolbox(tools.load(), {}, rules=ToolRules(Policy()))
    try:
        shell = {"exec", "sh", "env"}
        assert {*box.allowed(("shell",))} == shell and not shell & {*box.allowed(("-shell",))}
        assert box.allowed(("list_files", "-spawn")) == ("list_dir",)
    finally:
        box.close()


@pytest.mark.parametrize(
    ("name", "given", "ours", "meant"),
    [
        ("cron_remove", {"job_id": "7"}, "delete_schedule", {"id": "7"}),
        ("cron_set_enabled", {"job_id": "7", "enabled": False}, "update_schedule", {"id": "7", "enabled": False}),
        ("disable_schedule", {"id": "7"}, "update_schedule", {"id": "7", "enabled": False}),
        ("memory_write", {"content": "x", "name": "GOALS"}, "document_write", {"content": "x", "name": "MEMORY"}),
        ("enable_schedule", {"id": "7"}, "update_schedule", {"id": "7", "enabled": True}),
    ],
)
def test_a_name_of_the_designs_has_arguments_of_its_own(name: str, given: dict[str, Any], ours: str, meant: dict[str, Any]) -> None:
    assert ManualIndex().translate(ToolCall("1", name, given)) == ToolCall("1", ours, meant)


@pytest.mark.covers("R-192")
def test_nothing_is_told_of_a_tool_that_is_excluded() -> None:
    from appliance.tools import asking, calling

    box = Toolbox([fetch, calling.tool_help, asking.think], {}, rules=ToolRules(Policy()))
    try:
        help_for = ToolCall("1", "tool_help", {"name": "fetch_url"})
        assert "fetch_url(url)" in box.dispatch(help_for, "", _never()).message
        assert box.dispatch(help_for, "", _never(), terms=Terms(has_web=False)).status == 403
        assert box.manual("web", Caller("", _never(), terms=Terms(has_web=False))) == ""
        box.use(Policy(tools_deny=("fetch_url",)))
        assert box.dispatch(help_for, "", _never()).status == 403
    finally:
        box.close()


def _never() -> "object":
    from appliance.clock import CancelToken

    return CancelToken()


# -- what it costs -------------------------------------------------------------------------------------


def test_tokens_in_the_documentation_are_those_of_the_bundled_model(model_file: Path) -> None:  # noqa: F811
    from llama_cpp import Llama

    model = Llama(str(model_file), vocab_only=True, verbose=False)
    lines, helps = 0, 0
    for name, one in TOOLS.items():
        for text in (tool_line(one.spec), one.told(SHELF.of(name, one.mark.group))):
            count, shown = len(model.tokenize(text.encode(), add_bos=False)), estimate(text, docs.DIVISOR)
            assert 0.6 < shown / count < 1.9, f"{name}: {shown} for {count}"
            lines, helps = (lines + count, helps + shown)
    model.close()
    assert 0.9 < helps / lines < 1.1, "set handbook.DIVISOR to what is measured"


@pytest.mark.covers("R-196")
def test_documentation_shows_each_example_and_rule_with_its_reason() -> None:
    page = (ROOT / "docs/reference/tools.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for name, one in TOOLS.items():
        manual = SHELF.of(name, one.mark.group)
        assert all(f"{rule.text} *({rule.why})*" in parts[name] for rule in manual.rules), "run: make docs"
        assert parts[name].count("\n- `{") >= len(manual.examples)
