"""What every test may use: a home, a short runtime folder, and choosing tests by requirement id.

Real folders, nothing pretended. Everything made here is gone when the test ends.
"""

import compileall
import shutil
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


# The slowest files, slowest first: begun late, the last of them would run alone while two of three workers wait.
SLOW = (
    *("test_attacks", "test_attacks_unit"),
    *("test_bad_input", "test_tui", "test_chaos", "test_daemon", "test_context", "test_cli", "test_agenda", "test_workers"),
    *(
        "test_engine",
        "test_llama",
        "test_first_use",
        "test_qualify",
        "test_units",
        "test_indexer",
        "test_task_end_to_end",
        "test_sql",
    ),
    *("test_real_turns", "test_tui_turns", "test_grinder", "test_secrets", "test_remote_end_to_end", "test_ssh"),
    *("test_ingest", "test_crash", "test_shifts", "test_steps", "test_scenarios", "test_patterns", "test_outbox", "test_drops"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Compile once what hundreds of processes import: they write nothing themselves, and may be killed at any moment."""
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
