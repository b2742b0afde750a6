"""What every test may use: a home, a short runtime folder, and choosing tests by requirement id.

Real folders, nothing pretended. Everything made here is gone when the test ends.
"""

import compileall
import functools
import gc
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import rooms

from appliance.__main__ import GC_THRESHOLD
from appliance.runtime import paths
from appliance.runtime.paths import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with its folders and nothing in them: no configuration, no database."""
    made = Home(tmp_path / "home")
    for folder in paths.FOLDERS:
        (made.root / folder).mkdir(parents=True)
    made.root.chmod(0o700)
    return made


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A private folder whose sockets stay under the 107 bytes a socket path may have; tmp_path is too long."""
    folder = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


# The slowest files, slowest first: begun late, the last of them would run alone while the others have nothing to do.
SLOW = tuple(
    f"test_{name}"
    for name in (
        "daemon tui units matrix tui_turns watcher tui_keys fault_screens folder chaos remote_end_to_end tui_terminal web_page "
        "worker crash matrix_encryption main owl scenarios crossing engine program_or_model pipeline bad_input mcp part_faults "
        "ssh tui_tabs backups programs schedules_live slack grammar steps providers_peer local_only socket_watch client exports "
        "email chat_template marked_surfaces workspace_sync launcher doctor disk_faults mcp_tools rpc_server tui_long captures "
        "model_check task_end_to_end repair layers context_tools secrets attacks taint answer_parser files_tools tui_schedules "
        "docs_commands gateway shell broker tui_live deactivation llama extract providers command_parts mcp_real command_list "
        "folder_turns hostile_files task docs_console first_use disk_words environments undo attacks_unit taint_names "
        "marked_files tool_unit injection isolation worker_command index updates skill_commands failing_files completion "
        "for_another heap surfaces router schedules_crash http_client verbs webhook idle language_files drop_folder disk_walk "
        "api_fuzz providers_faults fetch first_answer taint_travel sd_notify delegation heartbeat edits indexer mcp_zoo "
        "hostile_models tools search database inbox web_tools taint_ways grinder first_questions spec evidence requests toolbox "
        "real_turns prompt_lookup"
    ).split()
)


def hear() -> None:
    """A shell may have made us deaf to signals (`nohup`, `&`), and every process of ours with us."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache  # once for all files of `suite.py`, whose processes are forks of one
def compile_package() -> None:
    compileall.compile_dir(Path(paths.__file__).parent, quiet=2)


def pytest_configure(config: pytest.Config) -> None:
    """Compile once what hundreds of processes import: they write nothing themselves, and may be killed at any moment."""
    hear()
    gc.set_threshold(GC_THRESHOLD)
    sys.path[:0] = rooms.FOLDERS
    if not hasattr(config, "workerinput"):
        compile_package()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--covers", metavar="ID", help="run only the tests that cover this requirement, such as R-207")
    parser.addoption("--same-examples", action="store_true", help="hypothesis tries the same examples at every run")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """Before a file is imported that lets hypothesis look for examples: on a slow machine none of them fails for its time.

    A run of everything tries the same ones each time, so that it fails for what was changed; by hand there are always others.
    """
    if b"hypothesis" in module_path.read_bytes():
        from hypothesis import HealthCheck, settings  # a quarter of a second that most files do without

        if settings.get_current_profile_name() == "owlbox":
            return  # one more would fall back on this one, and so on, until nothing is found in them
        is_same = bool(parent.config.getoption("--same-examples"))
        slow = [HealthCheck.too_slow]
        settings.register_profile("owlbox", deadline=None, derandomize=is_same, suppress_health_check=slow)
        settings.load_profile("owlbox")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))
    wanted = config.getoption("--covers")
    if not wanted:
        return
    chosen = [item for item in items if any(wanted in mark.args for mark in item.iter_markers("covers"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
