"""Where tests and their helpers lie: the folders that a process needs on its path to import them by name.

File names are unique among the folders, so that a test can use the stage of another one. `conftest` puts them on the
path of pytest; a program that a test starts with `python -c` begins with `USE_ROOMS`.
"""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = [
    str(TESTS.parent),
    *(str(path) for path in sorted(TESTS.iterdir()) if path.is_dir() and not path.name.startswith((".", "_"))),
]
# The first line of such a program.
USE_ROOMS = f"import sys; sys.path[:0] = {FOLDERS!r}\n"
