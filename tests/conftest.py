"""What every test may use: a home, a short runtime folder, and choosing tests by requirement id.

Real folders, nothing pretended. Everything made here is gone when the test ends.
"""

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


# Files of a minute and more: begun first, or the last of them would run alone while two of three wait.
SLOW = ("test_workers", "test_tui", "test_chaos", "test_steps", "test_shifts", "test_daemon", "test_crash", "test_ingest")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--covers", metavar="ID", help="run only the tests that cover this requirement, such as R-207")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in SLOW)
    wanted = config.getoption("--covers")
    if not wanted:
        return
    chosen = [item for item in items if any(wanted in mark.args for mark in item.iter_markers("covers"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
