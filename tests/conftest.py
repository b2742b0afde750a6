"""What every test may use: a home, a short runtime folder, and choosing tests by requirement id.

Real folders, nothing pretended. Everything made here is gone when the test ends.
"""

import compileall
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import places
from appliance.places import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with its folders and nothing in them: no configuration, no database."""
    made = Home(tmp_path / "home")
    for folder in places.FOLDERS:
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
        "engine tui attacks_unit units workers mcp_tools mcp bad_input daemon steps llama qualify tui_live cli schedules_live "
        "tui_turns scenarios mcp_serve_process mcp_real schedules_crash taint_travel taint crossing loading delegation "
        "task_end_to_end tui_terminal watch folder real_turns grammar remote_end_to_end ssh first_use layers crash "
        "indexer chaos first_answer ingest secrets shifts attacks tools undo surfaces race tasks broker transcripts "
        "answers providers_peer store sandbox tool_unit drops verbs patterns edits local_only readers vault toolbox"
    ).split()
)


def pytest_configure(config: pytest.Config) -> None:
    """Compile once what hundreds of processes import: they write nothing themselves, and may be killed at any moment.

    A shell may have made us deaf to signals (`nohup`, `&`), and every process of ours with us.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(places.__file__).parent, quiet=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--covers", metavar="ID", help="run only the tests that cover this requirement, such as R-207")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))
    wanted = config.getoption("--covers")
    if not wanted:
        return
    chosen = [item for item in items if any(wanted in mark.args for mark in item.iter_markers("covers"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
