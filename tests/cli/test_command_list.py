"""What a command imports before it begins, and the table that answers --help without importing any command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.cli import main
from appliance.console import help_pages, tool_command
from appliance.errors import BadInput
from appliance.reference import docs

ROOT = Path(__file__).parents[2]
# What every command line loads. A module more is start-up time of each command: add one only where none will do.
ALWAYS = """
__init__ cli.__init__ console.__init__ console.connect console.garbage console.help_pages console.parser
console.terminal console.tool_command console.watch cli.main cli.talk clock errors
runtime.__init__ runtime.jsonrpc runtime.paths runtime.rpc_client store.__init__ store.durability text.__init__ text.fences
text.invisible text.references
""".split()
# These work without a core, in the process that was started.
ALONE = {"backup", "restore", "config", "onboard", "model", "channel"}
ROOMS_OF_THE_CORE = {"agent", "prompt", "knowledge", "sessions", "work", "tools", "service", "web", "mcp", "ingest", "sandbox"}
HEAVY = {"msgspec", "apsw", "yaml", "asyncio", "urllib.request", "tomlkit", "appliance.runtime.config"}
PROGRAM = """
import sys
from appliance.cli import main
try:
    main.main(sys.argv[1:])
except SystemExit:
    pass
print("\\n".join(["", "loaded", *sys.modules]))
"""


def loaded(*words: str) -> set[str]:
    """The modules that a command line has imported when it is done."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60)
    return set(done.stdout.rpartition("\nloaded\n")[2].split())


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("--home", "x", "--help")], ids=" ".join)
def test_no_command_is_imported_to_answer_for_all(words: tuple[str, ...]) -> None:
    found = loaded(*words)
    own = {name.removeprefix("appliance.") for name in found if name.startswith("appliance.")}
    assert own - {name.removesuffix(".__init__") for name in ALWAYS} == set()
    assert found & HEAVY == set()


def test_help_of_a_command_imports_that_command_alone() -> None:
    found = loaded("schedule", "--help")
    assert "appliance.cli.schedule" in found
    assert not found & {"appliance.cli.model", "appliance.cli.session", "appliance.models.catalogue", "appliance.tools.finding"}


def test_a_wrong_word_is_answered_with_the_nearest_of_all_commands() -> None:
    for wrong, near in (("stauts", "status"), ("serach", "search"), ("schedul", "schedule")):
        with pytest.raises(BadInput) as error:
            main.parser([wrong]).parse_args([wrong])
        assert f"did you mean {near}?" in error.value.hint


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    again = "run `make docs`, or `owlbox docs --table --write docs/`"
    assert tool_command.commands() == docs.command_rows(main.whole_parser()), again
    written = json.loads(tool_command.TABLE.read_text())
    assert written["tools"] == json.loads(json.dumps(docs.tool_rows())), again
    assert written["methods"] == json.loads(json.dumps(docs.method_rows(main.called_methods()))), again
    assert docs.command_rows(main.parser(["--help"])) == tool_command.commands()


def run(*words: str) -> str:
    """What a command line prints."""
    command = [sys.executable, "-m", "appliance", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=60).stdout


def test_the_first_page_fits_one_screen_with_the_ten_commands_that_people_need_first() -> None:
    lines = help_pages.first_page().splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [name for _, names in help_pages.FIRST for name in names]
    assert sum(len(names) for _, names in help_pages.FIRST) == 10
    assert run("--help") == run("help") == help_pages.first_page()


def test_every_command_stands_in_one_group_of_all_pages() -> None:
    groups = json.loads(run("help", "--json"))
    assert sorted(name for names in groups.values() for name in names) == sorted({*dict(tool_command.commands())} - {"help"})
    text = run("help", "--all")
    assert [name for names in groups.values() for name in names if f"\n  {name} " not in text] == []
    assert max(map(len, text.splitlines())) <= 80


def test_help_of_a_command_is_what_the_command_says() -> None:
    assert run("help", "task", "add") == run("task", "add", "--help")


@pytest.mark.covers("S-103")
def test_how_much_is_logged_is_said_in_any_case_and_a_wrong_level_ends_with_1() -> None:
    for word, level in (("debug", "debug"), ("Info", "info"), ("WARNING", "warn"), ("error", "error"), ("CRITICAL", "silent")):
        assert main.parser(["serve"]).parse_args(["serve", "--log-level", word]).log_level == level
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "serve", "--log-level", "LOUD"], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "") and "'LOUD' (use DEBUG, INFO, WARNING, ERROR, CRITICAL)" in done.stderr


WRONG = (
    ("task lst", "did you mean list?"),
    ("task add x --priorty high", "did you mean --priority?"),
    ("task list --status pendng", "did you mean pending?"),
    ("shedule", "did you mean schedule?"),
    ("config lsit", "did you mean list?"),
    ("config li", "did you mean list?"),
    ("help stauts", "did you mean status?"),
    ("--jsn status", "did you mean --json?"),
    ("status --hom=x y", "unexpected word: y"),
    ("qqqq", "owlbox --help lists them"),
)


@pytest.mark.parametrize(("line", "said"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_word_is_answered_with_the_one_that_was_meant(line: str, said: str) -> None:
    command = [sys.executable, "-m", "appliance", *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and said in done.stderr


@pytest.mark.parametrize("name", [names[0] for names, _ in main.GROUPS if names[0] not in ALONE] + ["search"])
def test_a_command_of_the_core_is_read_without_the_core(name: str) -> None:
    """What asks a running core needs no database, no model, no tool and no checking of types in its own process."""
    found = loaded(name, "--help")
    own = {name for name in found if name.startswith("appliance.")}
    assert {name for name in own if name.split(".")[1] in ROOMS_OF_THE_CORE} == set()
    assert found & (HEAVY - {"msgspec"}) == set()
    assert len(own) <= 26


def test_a_group_that_can_list_lists_where_no_action_is_named() -> None:
    for name in ("memory", "people", "role", "job", "document", "skill"):
        bare, listed = (main.parser(words).parse_args(words) for words in ([name], [name, "list"]))
        assert bare.handler is listed.handler and vars(bare) == vars(listed)
    assert main.parser(["people"]).parse_args(["people", "--json"]).json


def test_help_shows_what_is_a_commands_own_and_what_is_missing_is_said_with_how_it_is_called() -> None:
    lines = run("task", "add", "--help").splitlines()
    assert not [line for line in lines[:-1] if "--home" in line] and lines[-1] == "Every command takes --json and --home DIR."
    with pytest.raises(BadInput, match="--frequency is missing") as error:
        main.parser(["schedule"]).parse_args(["schedule", "add", "tea"])
    assert "owlbox schedule add NAME --frequency FREQUENCY" in error.value.hint
