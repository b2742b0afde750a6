"""Roles as files: what ships, what a home adds, what is refused, and what each makes of a prompt."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import needs
from process import boxed
from record_tools import replace
from stores import new_home
from test_delegation import opened
from test_scenarios import CHAT, ENTRIES, Stage

from appliance.clock import CancelToken
from appliance.errors import BadInput, NotFound
from appliance.policy import modes, policy_file
from appliance.prompt import roles
from appliance.prompt.packet_types import PacketScene
from appliance.prompt.roles import DELEGATING, DIRECT, SHIPPED, Roles
from appliance.records import Inbound, Route, Terms, ToolCall
from appliance.runtime.methods import LocalCall, find_methods
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, RoleSettings
from appliance.sessions.runs import Start
from appliance.upkeep import doctor

FILES = ("read_file", "list_dir", "grep", "find")
WEB = ("web_search", "fetch_url")


@pytest.fixture
def box(tmp_path: Path) -> Path:
    (tmp_path / "box" / "roles").mkdir(parents=True)
    return tmp_path / "box"


def write(box: Path, name: str, text: str) -> None:
    path = box / "roles" / f"{name}.md"
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))  # a clock may be coarser than a test is quick


# -- what ships --------------------------------------------------------------------------------------------


@pytest.mark.covers("A-005", "A-080", "A-081", "A-082", "A-083", "A-084")
def test_the_roles_that_ship_have_exactly_these_tools(box: Path) -> None:
    found = {one.name: one.tools for one in Roles(box, Config).list_roles()}
    assert tuple(found) == SHIPPED == ("assistant", "worker", "researcher", "coder", "memory", "heartbeat")
    # The last three: "every morning at 9 ..." is handed to a worker, which stores the schedule.
    planned = {"remind", "create_schedule", "list_schedules"}
    assert set(found["worker"] or ()) == {*FILES, *WEB, "message", "write_file", *planned}
    assert set(found["researcher"] or ()) == {*FILES, *WEB, "write_file"}
    assert set(found["coder"] or ()) == {*FILES, "write_file", "edit_file", "exec"}
    assert set(found["memory"] or ()) == {"remember", "search_history", "view_thread"}
    assert set(found["heartbeat"] or ()) == {"read_file", *WEB, "message", "remember"}  # which writes no file (S-076)
    assert [name for name, tools in found.items() if tools is None] == ["assistant"]


@pytest.mark.covers("A-086", "A-087")
def test_caps_pools_and_temperature_come_from_the_configuration(box: Path) -> None:
    known = Roles(box, Config)
    turns = {name: known.get(name).max_turns for name in SHIPPED}
    assert turns == {"assistant": 20, "worker": 15, "researcher": 50, "coder": 30, "memory": 10, "heartbeat": 15}
    assert {name for name in SHIPPED if known.get(name).pool == "small"} == {"memory", "heartbeat"}
    assert known.get("assistant").temperature == 0.7
    config = replace(Config(), agents={**Config().agents, "coder": RoleSettings(model="anthropic/claude", max_iterations=7)})
    changed = Roles(box, lambda: config).get("coder")
    assert (changed.pool, changed.max_turns) == ("anthropic/claude", 7)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_role_that_ships_says_what_it_is_for(box: Path, name: str) -> None:
    found = Roles(box, Config).get(name)
    assert found.description and found.is_chat is (name == "assistant")
    assert found.is_chat or "information" in found.text and "Never" in found.text or name == "memory"


# -- files of a home ---------------------------------------------------------------------------------------


def test_a_file_of_the_home_goes_over_the_one_that_ships_and_holds_at_once(box: Path) -> None:
    known = Roles(box, Config)
    assert known.get("coder").max_turns == 30
    front = "tools: [read_file]\nmax_iterations: 3\ntemperature: 1\npool: small\ntimeout_s: 9"
    write(box, "coder", f"---\n{front}\n---\nYou only look.\n")
    found = known.get("coder")
    assert (found.tools, found.max_turns, found.temperature, found.pool) == (("read_file",), 3, 1.0, "small")
    assert (found.timeout_s, found.text, found.is_own) == (9, "You only look.", True)
    (box / "roles" / "coder.md").unlink()
    assert known.get("coder").max_turns == 30 and not known.get("coder").is_own


def test_a_broken_file_leaves_what_was_there_and_is_named(box: Path) -> None:
    known = Roles(box, Config)
    write(box, "coder", "---\ntools: 7\n---\n")
    assert known.get("coder").max_turns == 30
    assert known.problems == ["roles/coder.md: tools: '7' is not a list of names"]
    write(box, "coder", "---\nmax_iterations: 3\n---\n")
    assert known.get("coder").max_turns == 3 and known.problems == []
    write(box, "coder", "---\nmax_iterations: 3\ncolour: red\n---\n")
    assert known.get("coder").max_turns == 3
    assert known.problems == ["roles/coder.md: unknown key colour"]


@pytest.mark.covers("E-286")
def test_a_pool_that_there_is_not_is_an_error_of_configuration(box: Path) -> None:
    known = Roles(box, Config)
    write(box, "poet", "---\npool: grand\n---\nYou write verses.\n")
    assert known.problems == ["roles/poet.md: pool grand is not configured"]
    with pytest.raises(NotFound, match="no role poet"):
        known.get("poet")
    write(box, "poet", "---\npool: local\n---\nYou write verses.\n")
    assert known.get("poet").pool == "local" and [one.name for one in known.profiles()] == ["poet"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("poet", "---\ntemperature: 3\n---\n", "temperature: 3 is out of range"),
        ("poet", "---\nmax_iterations: 0\n---\n", "max_iterations: 0 is out of range"),
        ("poet", "---\nmax_iterations: true\n---\n", "max_iterations: 'true' is not a valid value"),
        ("poet", "---\npreset: wild\n---\n", "preset: 'wild'"),
        ("poet", "---\nsandbox: none\n---\n", "sandbox: 'none'"),
        ("poet", "---\nskills: 1\n---\n", "skills: '1' is not a valid value"),
        ("poet", "---\ntools: [1, 2]\n---\n", "tools: ['1', '2'] is not a list of names"),
        ("poet", "---\n: : :\n---\n", "front matter is not YAML"),
        ("poet", "---\ntools: [read_file]\n", "front matter starts with --- and never ends"),
        ("Poet", "", "'Poet' cannot be a role's name"),
        ("child", "", "child is the plain helper"),
        ("poet", "x" * 20_001, "it has more than 20000 characters"),
    ],
)
def test_what_cannot_be_a_role_is_said(name: str, text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        roles.parse(name, text)
    assert error.value.message.startswith(said)


def test_names_may_be_written_in_two_ways_and_all_means_all() -> None:
    assert roles.parse("poet", "---\ntools: read_file, web\n---\n").tools == ("read_file", "web")
    assert roles.parse("poet", "---\ntools: [read_file, web]\n---\n").tools == ("read_file", "web")
    assert roles.parse("poet", "---\ntools: all\n---\n").tools is None
    assert roles.parse("poet", "").documents == ("AGENTS", "ENVIRONMENT")
    assert roles.parse("poet", "---\ndocuments: all\n---\n").documents is None


def test_a_link_is_no_role(box: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.md").write_text("---\ntools: all\n---\n")
    (box / "roles" / "spy.md").symlink_to(tmp_path / "elsewhere.md")
    known = Roles(box, Config)
    assert known.problems == ["roles/spy.md: it is a link"]
    with pytest.raises(NotFound):
        known.get("spy")


@pytest.mark.covers("E-287")
def test_a_prompt_file_is_read_anew_and_never_outside_of_the_folder(box: Path) -> None:
    write(box, "poet", "---\nprompt_file: verse.md\n---\nInline.\n")
    write(box, "spy", "---\nprompt_file: ../secret.md\n---\nInline.\n")
    (box.parent / "secret.md").write_text("secret")
    known = Roles(box, Config)
    assert known.get("poet").text == "Inline." and known.get("spy").text == "Inline."
    (box / "verse.md").write_text("Rhyme.")
    assert known.get("poet").text == "Rhyme.\n\nInline."


# -- the assistant's presets -------------------------------------------------------------------------------


@pytest.mark.covers("A-078", "A-087")
def test_the_assistant_only_delegates_where_several_people_talk(box: Path) -> None:
    alone, together = Roles(box, Config), Roles(box, Config, lambda: True)
    assert (alone.assistant().tools, alone.assistant().preset, alone.assistant().temperature) == (DIRECT, "direct", 0.7)
    assert (together.assistant().tools, together.assistant().temperature) == (DELEGATING, 0.7)
    write(box, "assistant", "---\npreset: direct\n---\n")
    assert together.assistant().tools == DIRECT
    write(box, "assistant", "---\npreset: delegating\n---\n")
    assert alone.assistant().tools == DELEGATING and alone.assistant().unkept is None
    write(box, "assistant", "---\npreset: open\n---\n")
    assert together.assistant().tools is None and together.assistant().preset == "open"


@pytest.mark.covers("A-087")
def test_the_assistants_temperature_is_what_the_home_says(box: Path) -> None:
    assert not Roles(box, Config).assistant().is_temperature_set
    config = replace(Config(), agents={**Config().agents, "assistant": RoleSettings(temperature=1.3)})
    assert Roles(box, lambda: config).assistant().temperature == 1.3 and Roles(box, lambda: config).assistant().is_temperature_set
    write(box, "assistant", "---\ntemperature: 0.2\n---\n")
    known = Roles(box, lambda: config).assistant()
    assert known.temperature == 0.2 and known.is_temperature_set


@pytest.mark.covers("A-078", "A-082")
def test_what_a_home_gives_the_assistant_is_kept_from_it_unless_the_home_says_open(box: Path) -> None:
    known = Roles(box, Config)
    write(box, "assistant", "---\ntools: [knowledge, exec]\n---\n")
    assert known.assistant().tools == ("knowledge", "exec", *DIRECT) and known.assistant().unkept == ("knowledge", "exec")
    assert not modes.has(known.assistant().tools, "exec", "shell") and modes.has(known.assistant().tools, "search", "knowledge")
    write(box, "assistant", "---\npreset: open\ntools: [knowledge, exec]\n---\n")
    assert known.assistant().tools == ("knowledge", "exec")
    write(box, "assistant", "---\ntools: []\n---\n")
    assert known.assistant().tools == () and not modes.has((), "search", "knowledge")


KEPT = (
    ("exec", {"command": "ls"}),
    ("sh", {"command": "ls"}),
    ("read_file", {"path": "a.txt"}),
    ("write_file", {"path": "a.txt", "content": "x"}),
    ("web_fetch", {"url": "http://127.0.0.1:1/"}),
    ("web_search", {"query": "owls"}),
)
WORK = {"agent": "coder", "task": "[of-asks] Run it."}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    told = {
        "tries": [
            {"tool_calls": [{"name": "search", "arguments": {"query": "owls"}}]},
            {"tool_calls": [{"name": "use", "arguments": {"tool": "exec", "arguments": {"command": "ls"}}}]},
            "I may not.",
        ],
        "reaches": [
            {"tool_calls": [{"name": "use", "arguments": {"tool": name, "arguments": arguments}}]} for name, arguments in KEPT
        ]
        + [{"tool_calls": [{"name": name, "arguments": arguments}]} for name, arguments in KEPT]
        + ["I may not."],
        "asks": [{"tool_calls": [{"name": "use", "arguments": {"tool": "delegate", "arguments": WORK}}]}, "It ran."],
        "of-asks": [{"tool_calls": [{"name": "exec", "arguments": {"command": "echo ran > here.txt; cat here.txt"}}]}, "Ran it."],
        "spawns": [
            {"tool_calls": [{"name": "use", "arguments": {"tool": "spawn", "arguments": arguments}}]}
            for arguments in ({"task": "[helps-1] Look."}, {"task": "[helps-2] Look.", "tools": "exec, search"})
        ]
        + [{"tool_calls": [{"name": "use", "arguments": {"tool": "spawn_await", "arguments": {"job_ids": "*"}}}]}, "Both."],
        **{f"helps-{n}": [{"tool_calls": [{"name": "exec", "arguments": {"command": "ls"}}]}, "I may not."] for n in (1, 2)},
        "talks": ["Hoot."] * 9,
    }
    with opened(tmp_path_factory.mktemp("roles"), told, DELEGATION__SPAWN="true") as made:
        yield made


def menu(stage: Stage) -> list[str]:
    return [spec.name for spec in stage.core.role_service.menu(stage.core.roles.assistant())]


@pytest.mark.covers("A-078", "A-079", "A-085")
def test_a_delegating_assistant_is_offered_one_tool_and_can_call_no_other(stage: Stage) -> None:
    assert len(menu(stage)) == 6 and "delegate" not in menu(stage)
    write(stage.core.home.box, "assistant", "---\npreset: delegating\n---\n")
    assert menu(stage) == ["delegate"]
    told = stage.ask("[tries] Look.", CHAT)
    results = [event.content for event in told.events("tool_result")]
    assert told.deeds == "search:403 use:403"
    assert "search is not a tool of role assistant" in results[0] and "exec is not a tool of role assistant" in results[1]
    write(stage.core.home.box, "assistant", "---\npreset: auto\n---\n")
    assert "search" in menu(stage)


@pytest.mark.covers("A-078", "A-082", "A-085")
def test_a_direct_assistant_has_no_files_commands_or_web_and_is_told_who_has(stage: Stage) -> None:
    write(stage.core.home.box, "assistant", "---\npreset: direct\n---\n")
    had = set(stage.core.toolbox.allowed(stage.core.roles.assistant().tools))
    groups = {tool.mark.group for tool in stage.core.toolbox.tools() if tool.mark.name in had}
    assert {"knowledge", "planning", "context", "mcp", "delegation", "schedules"} <= groups
    assert not groups & {"files", "shell", "web"}
    (use,) = [spec for spec in stage.core.role_service.menu(stage.core.roles.assistant()) if spec.name == "use"]
    assert "files, shell, web: not yours; delegate to coder" in use.description and "read_file" not in use.description
    told = stage.ask("[reaches] Look.", CHAT)
    results = [event.content for event in told.events("tool_result")]
    assert told.end.status == 499 or told.said == "I may not."
    assert results and all(status == 403 for status in [event.status for event in told.events("tool_result")])
    assert "exec is not a tool of role assistant" in results[0] and "delegate with agent coder" in results[0]
    run, terms = told.run, Terms(role="assistant", tools=DIRECT)
    for name, given in KEPT:
        for call in (ToolCall("c", name, given), ToolCall("c", "use", {"tool": name, "arguments": given})):
            outcome = stage.core.toolbox.dispatch(call, run, CancelToken(), "local:ada", terms=terms)
            assert outcome.status == 403 and "is not a tool of role assistant" in outcome.message, name
            assert "hand it over: delegate with agent" in outcome.hint
    piped = {"tool": "exec", "arguments": {"command": "ls"}, "path": "kept.md"}
    outcome = stage.core.toolbox.dispatch(ToolCall("c", "pipe_to_context", piped), run, CancelToken(), "local:ada", terms=terms)
    assert outcome.is_error and "exec is not a tool of role assistant" in outcome.message
    found = stage.core.toolbox.dispatch(ToolCall("c", "search", {"query": "owls"}), run, CancelToken(), "local:ada", terms=terms)
    assert found.status == 200


@needs("bwrap", "perl")
@pytest.mark.covers("A-078", "A-079", "A-082")
def test_a_direct_assistant_has_the_coder_run_a_command_and_sees_the_result_alone(stage: Stage) -> None:
    told = stage.ask("[asks] Run it.", CHAT)
    assert (told.said, told.deeds) == ("It ran.", "use:200")
    (result,) = told.events("tool_result")
    assert result.content.endswith("Ran it.") and "exit code" not in result.content
    (job,) = stage.core.jobs.jobs_of(told.run)
    (done,) = [event for event in stage.core.runs.events(job.run) if event.kind == "tool_result"]
    assert (done.tool, done.status) == ("exec", 200) and "ran" in done.content


@pytest.mark.covers("A-082")
def test_a_helper_of_a_direct_assistant_has_no_more_than_it_has(stage: Stage) -> None:
    told = stage.ask("[spawns] Look.", CHAT)
    jobs = stage.core.jobs.jobs_of(told.run)
    results = [event for job in jobs for event in stage.core.runs.events(job.run) if event.kind == "tool_result"]
    assert told.said == "Both." and len(jobs) == 2 and len(results) == 2
    assert all(one.status == 403 and "exec is not a tool of role child" in one.content for one in results)


@pytest.mark.covers("A-082")
def test_what_the_home_gives_and_the_preset_keeps_is_named(stage: Stage) -> None:
    write(stage.core.home.box, "assistant", "---\ntools: [knowledge, exec, web]\n---\n")
    said = [f"roles/assistant.md: preset direct keeps {name} from it; open would not" for name in ("exec", "web")]
    assert stage.core.role_service.problems == said
    write(stage.core.home.box, "assistant", "---\npreset: open\ntools: [knowledge, exec, web]\n---\n")
    assert stage.core.role_service.problems == [] and "exec" in stage.core.toolbox.allowed(stage.core.roles.assistant().tools)
    write(stage.core.home.box, "assistant", "---\npreset: auto\n---\n")


@pytest.mark.covers("A-078")
def test_the_preset_follows_who_talks_with_the_box(stage: Stage) -> None:
    core = stage.core
    (core.home.box / "roles" / "assistant.md").unlink(missing_ok=True)
    stage.ask("[talks] Hi.", CHAT)
    with core.store.write():
        core.runs.touch_session(Inbound("local", "bob", "hi", "1", 1))  # another login of the same box
    assert core.roles.assistant().tools == DIRECT
    with core.store.write():
        core.runs.touch_session(Inbound("mail", "eve@example.org", "hi", "2", 1))
    assert core.roles.assistant().tools == DELEGATING


def test_a_policy_that_names_the_role_chat_still_holds_for_the_assistant(tmp_path: Path) -> None:
    found = policy_file.parse("[roles.chat]\ndeny = ['exec']\n", "x.toml")
    assert not found.check("exec", "assistant").allowed and not found.check("exec", "chat").allowed
    assert found.check("exec", "coder").allowed


# -- personas ----------------------------------------------------------------------------------------------


@pytest.mark.covers("R-186", "R-187")
def test_a_run_without_a_persona_gets_one_that_teaches_seven_steps_behind_its_tools(stage: Stage) -> None:
    core = stage.core
    scene = PacketScene("", Route("", "", "", 8192, "grammar"), tuple(core.toolbox.specs("run")), layout="entries")
    parts = {part.name: part.text for part in core.packets._system_parts(scene)}
    assert list(parts).index("persona") > list(parts).index("tools")
    assert re.findall(r"\b(\d)\. ", parts["persona"]) == list("1234567")
    own = {part.name: part.text for part in core.packets._system_parts(replace(scene, persona="You are a poet."))}
    assert own["persona"] == "You are a poet."
    assert all(part.name != "persona" for part in core.packets._system_parts(replace(scene, layout="chat")))
    run = core.runs.begin("local:ada", "chat", start=Start(settings=replace(ENTRIES, persona="You are a poet.")))
    with pytest.raises(BadInput, match="keeps the persona"):
        core.runs.configure(run.id, {"persona": "You are a judge."})


def test_a_tool_that_there_is_not_is_named(stage: Stage) -> None:
    write(stage.core.home.box, "smith", "---\ntools: [read_file, hammer, web]\n---\nYou mend things.\n")
    said = ["roles/smith.md: there is no tool or group hammer"]
    assert stage.core.role_service.problems == said and stage.core.status()["roles"]["problems"] == said
    shown = find_methods(stage.core.role_service)["role.view"].call(LocalCall(), name="smith")
    assert shown["problems"] == said and "read_file" in shown["menu"]
    (stage.core.home.box / "roles" / "smith.md").unlink()


def test_doctor_names_a_broken_role(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    new_home(home)
    write(home.box, "coder", "---\ncolour: red\n---\n")
    (found,) = [one for one in doctor.examine(home, {"XDG_RUNTIME_DIR": str(tmp_path)}) if one.name == "roles"]
    assert (found.state, found.message) == ("warning", "roles/coder.md: unknown key colour")


def test_a_task_of_the_queue_is_done_with_more_tools_than_work_that_was_handed_over(box: Path) -> None:
    known = Roles(box, Config)
    assert known.queue().tools is None and known.child("worker").tools is not None
    assert (known.queue().max_turns, known.queue(7).max_turns, known.queue().menu) == (15, 7, "worker")
    write(box, "worker", "---\ntools: [read_file]\ntasks: [planning]\nmax_iterations: 4\n---\nYou work.\n")
    found = known.queue()
    assert (found.tools, found.max_turns, found.text) == (("read_file", "planning"), 4, "You work.")
    assert found.is_background and not found.is_child and known.child("worker").is_child


def test_a_role_reaches_no_further_than_its_sandbox(stage: Stage) -> None:
    terms = Terms(role="smith", sandbox="files")
    run = stage.ask("[talks] Hi.", CHAT).run
    outcome = stage.core.toolbox.dispatch(ToolCall("c", "exec", {"command": "ls"}), run, CancelToken(), "local:ada", terms=terms)
    assert (outcome.status, outcome.message) == (403, "exec needs the sandbox exec, role smith has files")
    outcome = stage.core.toolbox.dispatch(ToolCall("c", "search", {"query": "owls"}), run, CancelToken(), "local:ada", terms=terms)
    assert outcome.status == 200


def test_a_role_with_more_tools_than_fit_reaches_the_rest_through_use(stage: Stage) -> None:
    box = stage.core.home.box
    write(box, "smith", "---\ntools: [files, knowledge, planning]\n---\nYou mend things.\n")
    shown = [spec.name for spec in stage.core.role_service.menu(stage.core.roles.child("smith"))]
    assert len(shown) == 8 and {"use", "tool_help", "search"} <= set(shown)
    terms = Terms(role="smith", tools=("files", "knowledge", "planning"))
    run = stage.ask("[talks] Hi.", CHAT).run
    via = ToolCall("c", "use", {"tool": "list_tasks", "arguments": {}})
    assert stage.core.toolbox.dispatch(via, run, CancelToken(), "local:ada", terms=terms).status == 200
    via = ToolCall("c", "use", {"tool": "list_threads", "arguments": {}})
    refused = stage.core.toolbox.dispatch(via, run, CancelToken(), "local:ada", terms=terms)
    assert (refused.status, refused.message) == (403, "list_threads is not a tool of role smith")
    (box / "roles" / "smith.md").unlink()


def test_roles_and_jobs_at_the_command_line(tmp_path: Path, runtime: Path) -> None:
    with boxed(tmp_path, runtime) as box:
        write(box.home.box, "poet", "---\ndescription: Writes verses\ntools: [read_file]\n---\nFour lines.\n")
        assert [one["name"] for one in box.json("role", "list")] == [*SHIPPED, "poet"]
        shown = box.run("role", "view", "poet").stdout
        assert shown.startswith("name: poet\ndescription: Writes verses\nfile: box/roles/poet.md\n")
        assert shown.rstrip().endswith("Four lines.")
        assert box.json("job", "list") == [] and box.run("job", "list").stdout == "no jobs\n"
        for words, code in (("role view nobody", 3), ("role", 0), ("job view 0a1b2c3d", 3), ("job view x", 2)):
            assert box.run(*words.split()).returncode == code, words
