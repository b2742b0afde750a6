"""Plugins: from the folder and from packages, all they may add, every moment, and what becomes of those that fail."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stores import new_home
from test_scenarios import CHAT, ENTRIES, Stage, opened, put, update

from appliance.agent.plugins import Plugins, PluginTargets, find
from appliance.clock import CancelToken
from appliance.errors import NotFound, Refused
from appliance.knowledge.entries import Content
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.views import Actor
from appliance.records import ToolCall
from appliance.runtime import hook_points
from appliance.runtime.hook_points import MOMENTS, EntryNews
from appliance.runtime.hooks import Hooks
from appliance.runtime.paths import Home
from appliance.runtime.settings import PluginSettings as Keys
from appliance.sessions.runs import RunCreated
from appliance.sessions.turns import RunStateChanged
from appliance.upkeep import doctor

ROOT = Path(__file__).parents[2]
EXAMPLE = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/plugins.md").read_text(encoding="utf-8"), re.DOTALL)[0]

RECORDER = '''
"""Hears everything, changes nothing."""
from appliance.plugin import MOMENTS
heard = []
def register(plugin):
    for one in MOMENTS:
        def hear(*given, name=one.name, kind=one.kind):
            heard.append((name, given))
            return given[0] if kind == "filter" else None
        if one.name.endswith("SCHEME"):
            plugin.filter(one.name.replace("SCHEME", "known"), hear)
        else:
            {"event": plugin.on, "filter": plugin.filter, "chain": plugin.handler}[one.kind](one.name, hear)
'''
CHANGER = '''
"""Changes what it is asked for by name."""
from appliance.plugin import replace
from appliance.plugin import Verdict
order = []
def register(plugin):
    plugin.filter("tool.after", after)
    plugin.handler("call.handling", lambda call, run: call.arguments.get("path") != "known://forbidden")
    plugin.filter("llm.messages", lambda given, run: tuple(replace(m, content=m.content.replace("teh", "the")) for m in given))
    plugin.filter("llm.response", lambda text, run: text.replace("colour", "color"))
    plugin.filter("run.config", lambda settings, run: replace(settings, temperature=0.9))
    plugin.filter("verdict", lambda verdict, run: (order.append("late"), verdict)[1], priority=30)
    plugin.filter("verdict", lambda verdict, run: (order.append("early"), verdict)[1], priority=1)
def after(outcome, call, run):
    return replace(outcome, message="(hidden)") if call.arguments.get("path") == "known://hidden" else outcome
'''
PACK = {
    "__init__.py": "from . import words\ndef register(plugin):\n    plugin.on('entry.created', words.note)\n",
    "words.py": "noted = []\ndef note(news):\n    noted.append(news.path)\n",
}
FAULTY = """
import sys
def register(plugin):
    plugin.on('run.created', lambda run: 1 / 0)
    plugin.on('turn.started', lambda *given: sys.exit(3))
    plugin.filter('llm.messages', lambda messages, run: 3)
"""
HALF = """
from appliance.plugin import tool
@tool(group="quotes")
def half_a_tool() -> str:
    \"\"\"Half.\"\"\"
    return ""
@tool(group="quotes")
def keep_quote() -> str:
    \"\"\"A name that is taken.\"\"\"
    return ""
def register(plugin):
    plugin.tool(half_a_tool)
    plugin.tool(keep_quote)
    plugin.on("run.created", print)
"""
BAD = {
    "half": (HALF, "tool keep_quote is offered twice"),
    "broken": ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "leaves": ("import sys\nsys.exit(3)", "it ends the process: 3"),
    "quits": ("import sys\ndef register(plugin):\n    print('bye')\n    sys.exit(3)", "it ends the process: 3"),
    "moved": (
        "from appliance.toolbox import tool",
        "ModuleNotFoundError: No module named 'appliance.toolbox' (a plugin imports from appliance.plugin alone)",
    ),
    "syntax": ("def register(plugin:", "SyntaxError"),
    "silent": ("x = 1", "silent has no function register(plugin)"),
    "unknown": ("def register(plugin):\n    plugin.on('run.create', print)", "nothing happens under 'run.create' (run.created?)"),
    "kinds": ("def register(plugin):\n    plugin.on('verdict', print)", "verdict is a filter, no event"),
    "manual": (EXAMPLE.replace('"why": "quotes', '"because": "quotes'), "the manual of keep_quote has because"),
    "thin": (EXAMPLE.replace('"why": "quotes are found by who said them",', ""), "the manual of keep_quote: no reason"),
}
GOOD = ("quotes", "recorder", "changer", "pack", "faulty", "boxed")
KEEP = {"tool": "keep_quote", "arguments": {"text": "Hoot", "who": "owl"}}
WORK = [put("known://a") + put("known://hidden") + '<get path="known://a"/>', put("known://forbidden"), update(200, "The colour.")]
ANSWERS: dict[str, Any] = {
    "chat": [{"tool_calls": [{"name": "use", "arguments": KEEP}]}, "Kept."],
    "chat-again": [{"tool_calls": [{"name": "use", "arguments": KEEP}]}, "Kept."],
    "entries": WORK,
    "entries-again": WORK,
    "file": [put("plugin.txt", "hello"), "Written."],
    "no-file": [put("never.txt", "hello")],
    "ends": [{"tool_calls": [{"name": "search", "arguments": {"query": "owl"}}]}, "never said"],
    "ask": ["So it is."],
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("plugins")
    home = Home(folder / "home")
    new_home(home)
    box = home.box / "plugins"
    (box / "pack").mkdir(parents=True)
    texts = {"quotes": EXAMPLE, "recorder": RECORDER, "changer": CHANGER, "faulty": FAULTY, **{n: t for n, (t, _) in BAD.items()}}
    for name, text in texts.items():
        (box / f"{name}.py").write_text(text)
    for name, text in PACK.items():
        (box / "pack" / name).write_text(text)
    (box / "off.py").write_text("raise RuntimeError('it was not enabled')")
    packages = folder / "packages"  # an installed package, as far as Python can tell
    (packages / "boxed-1.0.dist-info").mkdir(parents=True)
    (packages / "boxed-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: boxed\nVersion: 1.0\n")
    (packages / "boxed-1.0.dist-info" / "entry_points.txt").write_text("[owlbox.plugins]\nboxed = boxed_plugin\n")
    (packages / "boxed_plugin.py").write_text("began = []\ndef register(plugin):\n    plugin.on('project.started', began.append)\n")
    enabled = [*GOOD, *BAD, "missing", "../evil"]
    home.config.write_text(f"[plugins]\nenabled = {json.dumps(enabled)}\n")
    sys.path.insert(0, str(packages))
    try:
        with opened(folder, ANSWERS) as made:
            yield made
    finally:
        sys.path.remove(str(packages))


def module(name: str) -> Any:
    return sys.modules[f"owlbox_plugin_{name}"]


def heard(name: str) -> list[tuple[Any, ...]]:
    return [given for told, given in module("recorder").heard if told == name]


@pytest.mark.covers("R-188", "R-194", "R-195")
def test_those_that_are_enabled_are_loaded_by_name_and_the_rest_is_reported(stage: Stage) -> None:
    known = {one["name"]: one for one in stage.core.status()["plugins"]}
    assert {name for name, one in known.items() if one["state"] == "loaded"} == set(GOOD)
    assert set(known) == {*GOOD, *BAD, "missing", "../evil"}, "off.py lies there, and nobody has read it"
    for name, (_, problem) in BAD.items():
        assert problem in known[name]["problem"]
    assert known["quotes"]["where"] == "plugins/quotes.py" and known["boxed"]["where"] == "package boxed"
    assert known["quotes"]["offers"][:2] == ("tool keep_quote", "scheme quote")
    problems = stage.core.status()["folder"]["problems"]
    assert any(text.startswith("plugin missing: there is no plugin missing (put it at") for text in problems)
    assert any("plugin ../evil: '../evil' cannot be a plugin" in text for text in problems)


@pytest.mark.covers("R-192", "R-194")
def test_one_that_fails_half_way_has_added_nothing(stage: Stage) -> None:
    assert stage.core.toolbox.spec("half_a_tool") is None
    assert stage.core.toolbox.spec("keep_quote").group == "quotes"  # type: ignore[union-attr]


@pytest.mark.covers("R-195")
def test_a_folder_has_modules_of_its_own_and_gets_no_files(stage: Stage) -> None:
    stage.core.entries.set("known://of-pack", "x")
    assert "known://of-pack" in module("pack").words.noted
    assert sorted(path.name for path in (stage.core.home.box / "plugins").rglob("*")) == sorted(
        [*(f"{n}.py" for n in ("quotes", "recorder", "changer", "faulty", "off", *BAD)), "pack", *PACK]
    )


@pytest.mark.covers("R-188", "R-192", "R-196")
def test_the_example_of_the_documentation_works(stage: Stage) -> None:
    told = stage.ask("[chat] Keep it.", CHAT)
    assert told.deeds == "use:200" and stage.entry("quote://owl") == "Hoot"
    shown = stage.core.toolbox.dispatch(ToolCall("1", "tool_help", {"name": "keep_quote"}), "", CancelToken()).message
    assert "Keep a quote." in shown and "keep_quote {" in shown and "- You must name who said it." in shown
    entry = stage.core.entries.get("quote://owl")
    run = told.run
    stage.core.views.promote(Actor("client", run), [entry.id])
    (item,) = [one for one in stage.core.blocks.visible_items(run).data if one.path == "quote://owl"]
    assert "“Hoot”" in item.full and "“Hoot”" not in item.summary


@pytest.mark.covers("R-193", "R-190")
def test_a_plugin_ends_a_loop_by_its_verdict(stage: Stage) -> None:
    module("quotes").seen.append("quote://enough")
    try:
        told = stage.ask("[ends] Look.", CHAT)
    finally:
        module("quotes").seen.remove("quote://enough")
    assert (told.end.status, told.said) == (200, "Enough for today.") and told.deeds == "search:200"
    assert module("changer").order[:2] == ["early", "late"]


@pytest.mark.covers("R-189", "R-194")
def test_a_handler_that_raises_is_told_of_and_the_others_are_called(stage: Stage) -> None:
    before = len(heard("run.created"))
    told = stage.ask("[ask] So?", ENTRIES, mode="ask")
    assert told.end.status == 200 and len(heard("run.created")) == before + 1
    problems = stage.core.status()["folder"]["problems"]
    assert "plugin faulty: run.created: ZeroDivisionError: division by zero" in problems
    assert "plugin faulty: turn.started: it ends the process: 3 (leave that to the core)" in problems
    assert any(one.startswith("plugin faulty: llm.messages: TypeError: it returned int, not tuple") for one in problems), problems


@pytest.mark.covers("R-190", "R-189")
def test_every_moment_comes_with_what_the_table_says(stage: Stage) -> None:
    stage.ask("[chat-again] Keep it.", CHAT)
    told = stage.ask("[entries] Work with teh entries.")
    assert told.deeds == "set:200 set:200 get:200 set:403 update:200", told.items
    stage.ask("[ask] So?", ENTRIES, mode="ask")
    written = stage.ask("[file] Write.")
    stage.decide(written, "accept")
    stage.decide(stage.ask("[no-file] Write."), "reject")
    names = {name.replace("known", "SCHEME") if name.startswith("view.") else name for name, _ in module("recorder").heard}
    assert {one.name for one in MOMENTS} == names
    kinds = {name: [type(value).__name__ for value in heard(name)[-1]] for name in {name for name, _ in module("recorder").heard}}
    wanted_kinds = {
        "loop.completed": ["Loop", "LoopEnded"],
        "request.completed": ["str", "Finish"],
        "proposal.accepted": ["Waiting", "Outcome"],
        "verdict": ["Verdict", "str"],
        "tool.after": ["Outcome", "ToolCall", "str"],
        "run.config": ["RunSettings", "Run"],
        "packet.user": ["tuple", "Stage"],
    }
    assert {name: kinds[name] for name in wanted_kinds} == wanted_kinds
    order = [name for name, given in module("recorder").heard if given and told.run in (given[0], getattr(given[0], "run", ""))]
    wanted = ["act.started", "turn.context", "turn.started", "request.started", "request.completed", "turn.dispatched"]
    wanted += ["turn.completed", "act.completed"]
    places = [order.index(name) for name in wanted]
    assert places == sorted(places), order


@pytest.mark.covers("R-189", "R-190")
def test_filters_change_what_is_sent_read_and_done(stage: Stage) -> None:
    told = stage.ask("[entries-again] Work with teh entries.")
    results = [event.content for event in told.events("tool_result")]
    assert results[1] == "(hidden)" and "a plugin says no" in results[3]
    assert stage.entry("known://forbidden", told.run) is None
    assert told.said == "The color."
    sent = [given[1] for given in heard("request.started") if given[0] == told.run]
    assert all("with the entries" in ask.messages[-1].content and ask.temperature == 0.9 for ask in sent)


@pytest.mark.covers("R-191")
def test_every_change_of_an_entry_is_told_once_it_is_committed(stage: Stage) -> None:
    entries, views, store = stage.core.entries, stage.core.views, stage.core.store
    run = stage.ask("[ask] So?", ENTRIES, mode="ask").run
    module("recorder").heard.clear()
    made = entries.set("memory://change", "one", run=run, writer="model")
    entries.set("memory://change", "two")
    entries.put("memory://change", Content(attributes={"a": 1}))
    views.promote(Actor("model", run), [made.id])
    views.show(Actor("model", run), made.id, "visible", "failed", 404)
    views.summarize(Actor("model", run), [made.id], "short")
    entries.move("memory://change", "memory://moved")
    entries.remove("memory://moved")
    with pytest.raises(RuntimeError), store.write(durable=True):
        entries.set("memory://never", "rolled back")
        raise RuntimeError("a power cut")
    told = [given[0] for name, given in module("recorder").heard if name in ("entry.created", "entry.changed")]
    assert [(one.path.rpartition("/")[2], one.kind) for one in told] == [
        ("change", "created"),
        ("change", "body"),
        ("change", "attributes"),
        ("change", "visibility"),
        ("change", "status"),
        ("change", "summary"),
        ("change", "moved"),
        ("moved", "created"),
        ("moved", "removed"),
    ]
    assert told[0] == EntryNews("memory://change", "created", run, "project:1", "model") and told[3].run == run


@pytest.mark.covers("R-194")
def test_a_file_that_anybody_can_write_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    path = tmp_path / "plugins" / "open.py"
    path.write_text("raise RuntimeError('it was run')")
    path.chmod(0o666)
    with pytest.raises(Refused, match="can be written to by others"):
        find(tmp_path, "open")
    path.chmod(0o644)
    (tmp_path / "plugins" / "link.py").symlink_to(path)
    with pytest.raises(Refused, match="a link"):
        find(tmp_path, "link")
    with pytest.raises(NotFound):
        find(tmp_path, "nothing")


def test_nobody_who_listens_costs_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, {}) as plain:
        assert plain.core.status()["plugins"] == [] and not plain.core.events.has(EntryNews)
        assert not plain.core.events.has(RunCreated) and not plain.core.events.has(RunStateChanged)


@pytest.mark.covers("R-194")
def test_doctor_names_plugins_that_cannot_be_loaded(stage: Stage, tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    (found,) = [one for one in doctor.examine(stage.core.home, environ) if one.name == "plugins"]
    assert found.state == "warning" and "missing" in found.message and "syntax" in found.message and "quotes" not in found.message


def test_what_a_plugin_prints_while_it_is_loaded_is_no_part_of_an_answer(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "loud.py").write_text("print('hello')\ndef register(plugin):\n    print('bye')\n")
    ground = PluginTargets(tmp_path, Hooks(), Schemes(), stage.core.toolbox)
    assert [one.state for one in Plugins(ground, Keys(("loud",))).loaded] == ["loaded"]
    said = capsys.readouterr()
    assert said.out == "" and "hello" in said.err and "bye" in said.err


@pytest.mark.covers("R-194")
@pytest.mark.parametrize("at", ["its first line", "register"])
def test_one_that_hangs_while_it_is_loaded_holds_nothing_up_and_adds_nothing_later(stage: Stage, tmp_path: Path, at: str) -> None:
    first = "GO.wait()" if at == "its first line" else ""
    hanging = (
        f"import threading\nfrom appliance.agent.toolbox import tool\nGO, DONE = threading.Event(), threading.Event()\n{first}\n"
    )
    hanging += '@tool(group="late")\ndef too_late() -> str:\n    """Late."""\n    return ""\n'
    hanging += "def register(plugin):\n    GO.wait()\n    plugin.tool(too_late)\n    DONE.set()\n"
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "hanging.py").write_text(hanging)
    (tmp_path / "plugins" / "next.py").write_text("def register(plugin):\n    plugin.on('run.created', print)\n")
    plugins = Plugins(PluginTargets(tmp_path, Hooks(), Schemes(), stage.core.toolbox), Keys(("hanging", "next")), load_s=0.5)
    (hanging_one, _) = plugins.loaded  # the next one had its turn
    assert (hanging_one.state, hanging_one.problem) == ("failed", "it took longer than 0.5 s to load")
    assert plugins.problems[0] == "plugin hanging: it took longer than 0.5 s to load"
    module("hanging").GO.set()
    assert module("hanging").DONE.wait(60) and stage.core.toolbox.spec("too_late") is None


@pytest.mark.covers("R-190")
def test_documentation_shows_every_moment() -> None:
    page = (ROOT / "docs/reference/moments.md").read_text(encoding="utf-8")
    assert all(f"| `{one.name}` | {one.kind} | {one.given} | {one.when} |" in page for one in MOMENTS)
    assert len({one.name for one in MOMENTS}) == len(MOMENTS) and hook_points.is_known("view.visible:quote")


def test_the_documented_surface_is_all_that_a_plugin_imports():
    from appliance import plugin

    page = (ROOT / "docs/guides/plugins.md").read_text(encoding="utf-8")
    listed = page.partition("## What a plugin imports")[2].partition("\n## ")[0]
    assert [name for name in plugin.__all__ if f"`{name}`" not in listed] == []
    assert "from appliance." not in EXAMPLE.replace("from appliance.plugin import", "")
