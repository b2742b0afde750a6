"""Measurements of adding files: Python's own library and 2,000 notes, killed midway, resumed, and added once more.

    python tests/bench/bench_ingest.py [--notes N] [--quick] [--json FILE]

Beside it stand reading and hashing every file, and writing every text as a plain row of another SQLite file in one
transaction: what no way of keeping files can do without. Prints one table and writes the numbers as JSON. Knows
nothing about what is good enough.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import figures
from process import Box, clean_environ, end

from appliance.clock import monotonic_s, sleep_s
from appliance.runtime.paths import Home
from appliance.store.database import Store
from appliance.upkeep import home_setup

WORDS = "heron stork crane ibis spoonbill egret bittern plover curlew snipe".split()
ROWS = (("CREATE TABLE rows (path TEXT PRIMARY KEY, body TEXT, hash TEXT) STRICT",),)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--notes", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="a part of the library and 200 notes, to see that it works")
    parser.add_argument("--json", default="build/bench-ingest.json", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder:
        top = Path(os.path.realpath(folder))
        files = corpus(top / "files", 200 if args.quick else args.notes, args.quick)
        numbers: dict[str, Any] = {
            "files": len(files),
            "mb": round(sum(path.stat().st_size for path in files) / 1e6, 1),
            "plain": plain(top / "plain.db", files),
            "alone": course(top / "alone", top / "files", len(files), has_core=False),
            "with_core": course(top / "core", top / "files", len(files), has_core=True),
        }
    figures.write(args.json, numbers)
    show(numbers)
    return 0


def corpus(folder: Path, notes: int, is_small: bool) -> list[Path]:
    """The library's source and notes about birds; every file of it."""
    library = Path(sysconfig.get_paths()["stdlib"])
    skip = shutil.ignore_patterns(
        "site-packages", "__pycache__", "*.so", "*.exe", "*.pyc", "config-*", *(["[b-z]*"] if is_small else [])
    )
    shutil.copytree(library, folder / "library", ignore=skip, symlinks=True)
    for number in range(notes):
        path = folder / "notes" / f"{number % 40:02}" / f"{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"# Note {number}", ""]
        lines += [" ".join(WORDS[(number * 7 + line * 3 + word) % 10] for word in range(12)) for line in range(40)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in list(folder.rglob(".*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def plain(database: Path, files: Sequence[Path]) -> dict[str, float]:
    """Seconds to read and hash, and to write every text as a plain row."""
    start_s = monotonic_s()
    read = [(str(path), data, hashlib.sha256(data).hexdigest()) for path in files if (data := path.read_bytes()) is not None]
    hashed_s = monotonic_s() - start_s
    store = Store.create(database, migrations=ROWS)
    with store.write(durable=True) as execute:
        for path, data, digest in read:
            execute("INSERT INTO rows VALUES (?, ?, ?)", (path, data.decode("utf-8", "replace"), digest))
    store.close()
    return {"read_s": hashed_s, "rows_s": monotonic_s() - start_s - hashed_s, "db_mb": database.stat().st_size / 1e6}


def course(top: Path, folder: Path, count: int, *, has_core: bool) -> dict[str, Any]:
    """One clean add, then on a fresh home: killed midway, resumed, added once more."""
    found: dict[str, Any] = {}
    with standing(top / "clean", has_core) as box:
        found["add"] = timed(box, folder)
        found["db_mb"] = box.home.database.stat().st_size / 1e6
        found["again"] = unwritten(box, folder)
        found["overwrite"] = unwritten(box, folder, "--on-conflict", "overwrite")
    with standing(top / "killed", has_core) as box:
        store = Store.open(box.home.database)
        child = box.start("context", "add", str(folder))
        while store.value("SELECT COUNT(*) FROM sources") < count / 2:
            sleep_s(0.02)
        child.kill()
        child.wait()
        found["kept_when_killed"] = store.value("SELECT COUNT(*) FROM sources")
        found["resume"] = timed(box, folder)
        found["duplicates"] = store.value("SELECT COUNT(*) - COUNT(DISTINCT path) FROM entries WHERE path GLOB 'disk:*'")
        found["third"] = unwritten(box, folder)
        found["problems"] = store.problems()
        store.close()
    return found


@contextmanager
def standing(top: Path, has_core: bool) -> Iterator[Box]:
    """A fresh home, with a core or without."""
    home = Home(top / "home")
    home_setup.init(home)
    runtime = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    box = Box(home, clean_environ(top, runtime))
    try:
        if has_core:
            box.serve()
        yield box
    finally:
        for child in box.children:
            end(child)
        shutil.rmtree(runtime, ignore_errors=True)


def timed(box: Box, folder: Path, *options: str) -> dict[str, Any]:
    """Seconds, peak memory of the command and of its largest child, and what it says it did."""
    start_s = monotonic_s()
    script = (
        "import json, resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True)\n"
        "print(done.stdout.decode() or done.stderr.decode())\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = box.command("context", "add", str(folder), "--json", *options)
    done = subprocess.run([sys.executable, "-c", script, *command], env=box.environ, capture_output=True, text=True, check=True)
    report, peak_kb = done.stdout.rsplit("\n", 2)[:2]
    counts = json.loads(report)
    return {
        "seconds": monotonic_s() - start_s,
        "peak_mb": int(peak_kb) / 1024,
        **{name: counts[name] for name in ("added", "updated", "unchanged", "skipped", "error")},
    }


def unwritten(box: Box, folder: Path, *options: str) -> dict[str, Any]:
    """The same, and whether anything at all was written to the database meanwhile."""
    store = Store.open(box.home.database)
    before = store.value("PRAGMA data_version")
    found = timed(box, folder, *options)
    found["has_written"] = store.value("PRAGMA data_version") != before
    store.close()
    return found


def show(numbers: dict[str, Any]) -> None:
    """One table."""
    base_s = numbers["plain"]["read_s"] + numbers["plain"]["rows_s"]
    print(f"{numbers['files']} files, {numbers['mb']} MB; reading, hashing and plain rows: {base_s:.2f} s (1 x)\n")
    print(f"{'':<28}{'seconds':>9}{'ratio':>8}{'peak MB':>9}  what it did")
    for course_name, title in (("alone", "no core"), ("with_core", "a core")):
        found = numbers[course_name]
        steps = ("add", "again", "overwrite", "resume", "third")
        for step in steps:
            one = found[step]
            did = ", ".join(f"{one[name]} {name}" for name in ("added", "updated", "unchanged", "skipped", "error") if one[name])
            wrote = "" if "has_written" not in one else ", wrote something" if one["has_written"] else ", wrote nothing"
            after = f" (killed at {found['kept_when_killed']})" if step == "resume" else ""
            sizes = f"{one['seconds']:>9.2f}{one['seconds'] / base_s:>8.1f}{one['peak_mb']:>9.0f}"
            print(f"{title + ': ' + step:<28}{sizes}  {did}{wrote}{after}")
        print(f"{title}: {found['duplicates']} duplicates, {len(found['problems'])} problems, database {found['db_mb']:.0f} MB\n")


if __name__ == "__main__":
    sys.exit(main())
