"""One meaning on every surface: a model's tool, the socket, the command line and code leave the same rows and errors."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from process import Box, Core, clean_environ, end
from stores import new_home

from appliance import tools
from appliance.agent.toolbox import Toolbox, ToolRules
from appliance.cli import main
from appliance.clock import CancelToken, now_ms, this_process
from appliance.errors import OwlError
from appliance.knowledge.entries import Entries
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor, Views
from appliance.policy.policy_file import Policy
from appliance.records import Inbound, Outcome, ToolCall
from appliance.runtime.paths import Home
from appliance.sessions.runs import Runs
from appliance.store.database import Store

Call = dict[str, Any]  # "verb" and its arguments as the socket names them
TOOL_NAMES = {"ref": "path", "target": "to", "wanted": "filter", "is_preview": "preview", "text": "body"}
TIER = re.compile(r"^(model|client|plugin)(?= may not)")
SURFACES = ("tool", "socket", "command", "code")


@dataclass
class Bench:
    """A running core, and beside it the same database for tools and code."""

    core: Core
    store: Store
    runs: Runs
    verbs: Verbs
    toolbox: Toolbox

    def run(self) -> str:
        """A new thread."""
        inbound = Inbound("local", "ada", "hi", "m", now_ms())
        with self.store.write():
            self.runs.touch_session(inbound)
        return self.runs.begin(inbound.session, "chat").id

    def do(self, surface: str, run: str, call: Call) -> int:
        """Do it over a surface; the status."""
        given = {name: value for name, value in call.items() if name != "verb"}
        action: Callable[[str, str, Call], int] = getattr(self, f"_by_{surface}")
        return action(run, call["verb"], given)

    def tool(self, name: str, run: str, arguments: Call) -> Outcome:
        """What a model gets."""
        return self.toolbox.dispatch(ToolCall("c1", name, arguments), run, CancelToken())

    def rpc(self, method: str, params: Call) -> OwlError | Any:
        """What a client gets, errors included."""
        try:
            return self.core.call(method, **params)
        except OwlError as error:
            return error

    def _by_tool(self, run: str, verb: str, given: Call) -> int:
        names = {**TOOL_NAMES, "wanted": "filter" if verb == "set" else "body"}
        return self.tool(verb, run, {names.get(name, name): value for name, value in given.items()}).status

    def _by_socket(self, run: str, verb: str, given: Call) -> int:
        done = self.rpc(f"entry.{verb}", {**given, "run": run})
        return done.status if isinstance(done, OwlError) else int(done["status"])

    def _by_command(self, run: str, verb: str, given: Call) -> int:
        words = ["--home", str(self.core.box.home.root), "--json", "entry", verb, f"--thread={run}"]
        plain = [given[name] for name in ("ref", "target", "body", "text") if name in given and (verb, name) != ("set", "text")]
        for name, value in given.items():
            if name in ("ref", "target", "body", "text"):
                continue
            option = {"is_preview": "preview"}.get(name, name.replace("_", "-"))
            text = json.dumps(value) if name == "attributes" else str(value)
            words += ([f"--{option}"] if value else []) if isinstance(value, bool) else [f"--{option}={text}"]
        return main.main([*words, *(["--yes"] if verb in ("rm", "set") else []), "--", *plain])

    def _by_code(self, run: str, verb: str, given: Call) -> int:
        return self.verbs.perform(Actor("plugin", run, *self.runs.moment(run)), verb, given).status

    def rows(self, run: str) -> list[Any]:
        """Everything stored for a thread, without ids, times and writers."""
        content = self.store.rows(
            "SELECT path, title, body, attributes, description, mime, source_url, is_textual FROM entries "
            "WHERE scope = 'run:' || ? ORDER BY path",
            (run,),
        )
        # A refusal names the tier that is refused.
        content = [(path, title, TIER.sub("", body), *rest) for path, title, body, *rest in content]
        seen = self.store.rows(
            "SELECT e.path, visibility, state, status, outcome, summary, loop, turn, writes FROM views v "
            "JOIN entries e ON e.id = v.entry WHERE v.run = ? ORDER BY e.path",
            (run,),
        )
        history = self.store.rows(
            "SELECT path, verb, before_hash, after_hash, size_bytes FROM changes "
            "WHERE scope = 'run:' || ? AND path NOT LIKE 'log:%' ORDER BY id",
            (run,),
        )
        return [content, seen, history]

    def writers(self, run: str) -> set[str]:
        """Who wrote what is no log entry."""
        rows = self.store.rows("SELECT writer FROM entries WHERE scope = 'run:' || ? AND path NOT LIKE 'log:%'", (run,))
        return {str(row[0]) for row in rows}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("surfaces")
    runtime = tmp_path_factory.mktemp("r", numbered=True)
    home = Home(folder / "home")
    new_home(home)
    box = Box(home, clean_environ(folder, runtime))
    core = box.serve()
    store = Store.open(home.database)
    entries, runs = Entries(store), Runs(store, this_process().encode())
    verbs = Verbs(store, entries, Views(store), Schemes())
    services = {"entries": entries, "runs": runs, "verbs": verbs}
    toolbox = Toolbox(tools.load(), services, rules=ToolRules(Policy()), store=store)
    yield Bench(core, store, runs, verbs, toolbox)
    toolbox.close()
    store.close()
    for child in box.children:
        end(child)


def agree(bench: Bench, calls: list[Call]) -> list[Any]:
    """Do the same in four fresh threads, one for each surface; the rows, which must be the same."""
    found: dict[str, list[Any]] = {}
    statuses: dict[str, list[int]] = {}
    for surface in SURFACES:
        run = bench.run()
        statuses[surface] = [bench.do(surface, run, call) for call in calls]
        found[surface] = bench.rows(run)
        tier = {"tool": "model", "code": "plugin"}.get(surface, "client")
        assert bench.writers(run) <= {tier}, surface
    for surface in SURFACES[1:]:
        assert found[surface] == found["tool"], surface
    assert statuses["tool"] == statuses["socket"] == statuses["code"]
    assert [status < 400 for status in statuses["tool"]] == [code == 0 for code in statuses["command"]]
    return found["tool"]


SAMPLES: list[Call] = [
    {"verb": "set", "ref": "known://owl", "body": "Owls hunt at night.", "attributes": {"wings": 2}, "summary": "a bird"},
    {"verb": "set", "ref": "known://owl", "search": "night", "replace": "dusk"},
    {"verb": "set", "ref": "known:/owl", "body": "<<APPEND They hoot. APPEND", "visibility": "visible"},
    {"verb": "set", "ref": "known://oak", "body": "A tree."},
    {"verb": "set", "ref": "known://**", "visibility": "archived"},
    {"verb": "get", "ref": "known://oak"},
    {"verb": "get", "ref": "known://*", "wanted": "hoot"},
    {"verb": "get", "ref": "known://owl", "line": -1},
    {"verb": "get", "ref": "known://none"},
    {"verb": "cp", "ref": "known://owl", "target": "unknown://owl", "visibility": "summarized"},
    {"verb": "mv", "ref": "unknown://owl", "target": "unknown://bird"},
    {"verb": "set", "ref": "system://1", "body": "no"},
    {"verb": "rm", "ref": "known://o*", "wanted": "tree"},
    {"verb": "rm", "ref": "known://none*"},
    {"verb": "update", "text": "all done", "status": 200},
]


@pytest.mark.covers("R-027", "R-028")
def test_every_surface_leaves_the_same_rows(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    content, seen, _ = agree(bench, SAMPLES)
    paths = {row[0]: row for row in content}
    assert paths["known://owl"][2].startswith("Owls hunt at dusk.") and "They hoot." in paths["known://owl"][2]
    assert "known://oak" not in paths and "unknown://bird" in paths
    assert sum(row[0].startswith("log://") for row in seen) == len(SAMPLES) - 1  # one each; an update is its own
    capsys.readouterr()


WORDS = st.text(alphabet="abc \n/<", min_size=1, max_size=12).filter(lambda text: text.strip() and text != "-")
REFS = st.sampled_from(["known://a", "known://b/c", "unknown://a", "known://*", "error://x", "user://1", "known://a/../b"])
CALLS = st.one_of(
    st.builds(lambda ref, body: {"verb": "set", "ref": ref, "body": body}, REFS, WORDS),
    st.builds(lambda ref, old, new: {"verb": "set", "ref": ref, "search": old, "replace": new}, REFS, WORDS, WORDS),
    st.builds(lambda ref, seen: {"verb": "set", "ref": ref, "visibility": seen}, REFS, st.sampled_from(["visible", "archived"])),
    st.builds(lambda ref, line: {"verb": "get", "ref": ref, "line": line}, REFS, st.integers(-3, 3)),
    st.builds(lambda verb, ref: {"verb": verb, "ref": ref}, st.sampled_from(["get", "rm"]), REFS),
    st.builds(lambda verb, ref, target: {"verb": verb, "ref": ref, "target": target}, st.sampled_from(["cp", "mv"]), REFS, REFS),
    st.builds(lambda text, status: {"verb": "update", "text": f"so {text}", "status": status}, WORDS, st.sampled_from([102, 204])),
)


@pytest.mark.covers("R-027", "R-028")
@given(st.lists(CALLS, min_size=1, max_size=4))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_done_surfaces_agree(bench: Bench, capsys: pytest.CaptureFixture[str], calls: list[Call]) -> None:
    agree(bench, calls)
    capsys.readouterr()


@pytest.mark.covers("R-028")
def test_a_person_without_a_thread_changes_content_alone(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--home", str(bench.core.box.home.root), "entry"]
    before = bench.store.value("SELECT COUNT(*) FROM views")
    text = "line one\nline two\n"
    assert main.main([*words, "set", "memory://by/command", text, "--title", "T"]) == 0
    assert capsys.readouterr().out == "memory://by/command: written, 9 tokens\n"
    assert main.main([*words, "get", "memory:/by/command"]) == 0
    assert capsys.readouterr().out == text
    assert main.main([*words, "get", "memory:/by/command", "--line", "-1"]) == 0
    assert capsys.readouterr().out == "[lines 2–2 / 2 total]\nline two\n"
    assert bench.rpc("entry.get", {"ref": "memory://by/command"})["message"] == text
    assert bench.tool("get", "", {"path": "memory://by/command"}).message == text
    assert main.main([*words, "cp", "memory://by/command", "memory://by/copy"]) == 0
    assert main.main([*words, "mv", "memory://by/copy", "memory://by/move"]) == 0
    capsys.readouterr()
    assert main.main([*words, "set", "memory://by/*", "all the same"]) == 2
    assert "matches 2 entries" in capsys.readouterr().err
    assert bench.rpc("entry.get", {"ref": "memory://by/command"})["message"] == text
    assert main.main([*words, "rm", "memory://by/*"]) == 2
    assert "matches 2 entries: memory://by/command, memory://by/move (--yes" in capsys.readouterr().err
    assert main.main([*words, "rm", "memory://by/*", "--preview"]) == 0
    assert capsys.readouterr().out.startswith("PREVIEW\n* memory://by/command - 9 tokens\n")
    assert main.main([*words, "rm", "memory://by/*", "--yes"]) == 0
    assert main.main([*words, "get", "memory://by/*"]) == 3
    assert bench.store.value("SELECT COUNT(*) FROM views") == before


def test_commands_work_without_a_core_and_take_text_from_a_pipe(tmp_path: Path, runtime: Path) -> None:
    home = Home(tmp_path / "home")
    new_home(home)
    box = Box(home, clean_environ(tmp_path, runtime))
    assert box.run("entry", "set", "memory://owl", "-", text="hoot\n").returncode == 0
    assert box.run("entry", "get", "memory://owl").stdout == "hoot\n"
    done = box.json("entry", "set", "memory://owl", "s/hoot/HOOT/")
    assert done["data"] == {"paths": ["memory://owl"], "count": 1, "proposals": [], "warnings": []}
    assert box.run("entry", "get", "memory://owl").stdout == "HOOT\n"


# -- bad input --------------------------------------------------------------------------------------

# name: (arguments of set, status, outcome, words of message or hint)
BAD: dict[str, tuple[Call, int, str, list[str]]] = {
    "path of 2,049 characters": ({"ref": "known://" + "x" * 2041, "body": ""}, 400, "bad_input", ["2049", "2048", "shorten"]),
    "path with NUL": ({"ref": "known://a\0b", "body": ""}, 400, "bad_input", ["control character", "remove"]),
    "path that goes up": ({"ref": "known://a/../../b", "body": ""}, 400, "bad_input", ["go up", "full path"]),
    "path of half a character": ({"ref": "known://\ud800", "body": ""}, 400, "bad_input", ["half a character"]),
    "empty path": ({"ref": " ", "body": ""}, 400, "bad_input", ["empty", "scheme://path"]),
    "text with half a character": ({"ref": "known://a", "body": "x\ud800"}, 400, "bad_input", ["half a character", "leave it out"]),
    "text of 3 MB": ({"ref": "unknown://a", "body": "x" * 3_000_000}, 413, "too_large", ["2097152", "split"]),
    "nothing to set": ({"ref": "known://a"}, 400, "bad_input", ["nothing to set", "body"]),
    "search without replacement": ({"ref": "known://there", "search": "x"}, 400, "bad_input", ["replacement", "replace"]),
    "regex that never ends": (
        {"ref": "known://**", "body": "", "wanted": r"/^(a|aa)+$/"}, 504, "timeout", ["took longer", "simpler"]),
    "regex that is none": ({"ref": "known://**", "body": "", "wanted": "/(/"}, 400, "bad_input", ["not valid", "fix it"]),
    "attributes too large": (
        {"ref": "known://a", "attributes": {"x": "y" * 70_000}}, 413, "too_large", ["attributes", "65536"]),
    "summary of half a character": ({"ref": "known://there", "summary": "\ud800"}, 400, "bad_input", ["half a character"]),
    "visibility of nothing": ({"ref": "known://a", "visibility": "visible"}, 404, "not_found", ["known://a", "body"]),
}  # fmt: skip


@pytest.mark.covers("R-028")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_alike(bench: Bench, case: str) -> None:
    given, status, label, words = BAD[case]
    told = []
    for surface in ("tool", "socket"):
        run = bench.run()
        assert bench.do("code", run, {"verb": "set", "ref": "known://there", "body": "a" * 200 + "!"}) == 200
        before = bench.rows(run)[0][-1:]
        if surface == "tool":
            named = {TOOL_NAMES.get(name, name): value for name, value in given.items()}
            done = bench.tool("set", run, named)
            told.append((done.status, done.outcome, done.message, done.hint))
        else:
            error = bench.rpc("entry.set", {**given, "run": run})
            assert isinstance(error, OwlError), error
            told.append((error.status, error.outcome, error.message, error.hint))
        rows = [row for row in bench.rows(run)[0] if not row[0].startswith("log://")]
        assert rows == [row for row in before if not row[0].startswith("log://")] or len(rows) == 1
    assert told[0] == told[1]
    assert told[0][:2] == (status, label)
    assert told[0][3] and all(word in f"{told[0][2]} {told[0][3]}" for word in words), told[0]


@pytest.mark.covers("R-026")
def test_an_unknown_scheme_needs_a_thread_and_then_works(bench: Bench) -> None:
    error = bench.rpc("entry.set", {"ref": "zzz://a", "body": "x"})
    assert (error.status, error.outcome) == (400, "bad_input") and "name the thread" in error.hint
    run = bench.run()
    assert bench.do("socket", run, {"verb": "set", "ref": "zzz://a", "body": "x"}) == 200
    assert bench.tool("get", run, {"path": "zzz://a"}).message == "x"


@pytest.mark.parametrize("wrong", [["a"], "text", 5])
def test_attributes_that_are_no_object(bench: Bench, wrong: Any, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = bench.tool("set", "", {"path": "memory://a", "attributes": wrong})
    assert (outcome.status, outcome.outcome) == (400, "invalid_arguments") and "attributes" in outcome.message and outcome.hint
    error = bench.rpc("entry.set", {"ref": "memory://a", "attributes": wrong})
    assert (error.status, error.outcome) == (400, "bad_input") and "attributes" in error.message
    words = ["--home", str(bench.core.box.home.root), "entry", "set", "memory://a", "--attributes"]
    assert main.main([*words, json.dumps(wrong)]) == 2
    assert main.main([*words, "{"]) == 2
    assert capsys.readouterr().err.count("give an object such as") == 2


def test_ten_megabytes_are_refused_in_one_line(bench: Bench) -> None:
    data = "x" * 10_000_000
    assert bench.tool("set", "", {"path": "memory://a", "body": data}).status == 413
    error = bench.rpc("entry.set", {"ref": "memory://a", "body": data})
    assert (error.status, error.outcome) == (413, "too_large") and "4194304" in error.message and error.hint
    done = bench.core.box.run("entry", "set", "memory://a", "-", text=data)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "2097152" in done.stderr and "split it" in done.stderr


def test_a_pipe_that_is_no_text_is_refused(bench: Bench) -> None:
    done = bench.core.box.run("entry", "set", "memory://a", "-", text=b"owl\xff")
    assert done.returncode == 2 and "not UTF-8 at byte 3 (convert it first)" in done.stderr
    assert bench.rpc("entry.get", {"ref": "memory://a"}).status == 404


@pytest.mark.covers("R-089", "E-110")
def test_a_person_decides_over_the_socket_and_the_command_line(bench: Bench) -> None:
    run, box = bench.run(), bench.core.box
    assert box.run("entry", "waiting", f"--thread={run}").stdout == "nothing waits\n"
    refs = [bench.tool("set", run, {"path": f"src/{n}.py", "body": n}).data["proposals"][0] for n in ("a", "b", "c")]
    waiting = bench.rpc("entry.waiting", {"run": run})
    assert [(w["ref"], w["run"], w["subject"]) for w in waiting] == [(r, run, f"src/{n}.py") for r, n in zip(refs, "abc")]
    shown = box.run("entry", "waiting").stdout
    assert all(f"{ref} --thread {run}" in shown for ref in refs) and "approve or reject decides" in shown
    assert bench.rpc("run.resolve", {"ref": refs[0], "run": run})["outcome"]["status"] == 200
    assert box.run("entry", "accept", refs[1].replace("://", ":/")).stdout.startswith(f"{refs[1]}: accepted")
    assert "src/c.py: rejected" in box.run("entry", "reject", refs[2], "--thread", run).stdout
    assert bench.rpc("entry.get", {"ref": "src/a.py"})["message"] == "a"
    assert bench.rpc("entry.get", {"ref": "src/b.py"})["message"] == "b"
    assert bench.rpc("entry.get", {"ref": "src/c.py"}).status == 404
    again = box.run("entry", "accept", refs[2])
    assert again.returncode == 3 and "entry waiting lists" in again.stderr
    assert box.run("entry", "reject", refs[1], "--thread", run).returncode == 1


@pytest.mark.parametrize("pattern", ["memory://sure/!(keep)", "memory://sure/[ab]", "memory://sure/{a,b}", "memory://sure/?"])
def test_a_pattern_is_not_removed_unasked(bench: Bench, pattern: str) -> None:
    for name in "ab":
        assert bench.tool("set", "", {"path": f"memory://sure/{name}", "body": name}).status == 200
    done = bench.core.box.run("entry", "rm", pattern)
    assert done.returncode == 2 and "matches 2 entries" in done.stderr and "--yes" in done.stderr
    assert bench.tool("get", "", {"path": "memory://sure/a"}).message == "a"


def test_an_entry_too_long_to_send_says_what_to_do(bench: Bench) -> None:
    body = "\x01" * 1_000_000  # escaped in JSON it is six times as long
    assert bench.tool("set", "", {"path": "memory://long", "body": body}).status == 200
    error = bench.rpc("entry.get", {"ref": "memory://long"})
    assert (error.status, error.outcome) == (413, "too_large") and error.hint
    bench.rpc("entry.rm", {"ref": "memory://long"})


@pytest.mark.covers("R-027")
def test_the_verbs_are_tools_outside_of_the_menu(bench: Bench) -> None:
    names = {tool.mark.name for tool in bench.toolbox.tools()}
    assert {"set", "get", "rm", "cp", "mv", "update"} <= names
    assert not {"set", "get", "rm", "cp", "mv", "update"} & {spec.name for spec in bench.toolbox.specs()}
    run = bench.run()
    assert bench.tool("set", run, {"path": "known://a", "body": ""}).status == 200
    assert bench.tool("get", run, {"path": "known://a"}).message == "known://a is empty"
    assert bench.tool("set", run, {"path": "notes/a.md", "body": "x"}).outcome == "proposed"


@pytest.mark.covers("R-120")
@pytest.mark.parametrize("verb", ["cp", "mv"])
@pytest.mark.parametrize("name", ["to", "body"])
def test_the_destination_is_attribute_or_body(bench: Bench, verb: str, name: str) -> None:
    run = bench.run()
    bench.tool("set", run, {"path": "known://a", "body": "hoot"})
    outcome = bench.tool(verb, run, {"path": "known://a", name: "known://b"})
    assert (outcome.status, outcome.data["paths"]) == (200, ["known://b"])
    assert bench.tool("get", run, {"path": "known://b"}).message == "hoot"
    both = bench.tool("cp", run, {"path": "known://b", "to": "known://c", "body": "owl"})  # beside it the text is a filter
    assert both.status == 404 and bench.tool("cp", run, {"path": "known://b", "to": "known://c", "body": "hoot"}).status == 200
    assert bench.tool(verb, run, {"path": "known://b"}).status == 400
