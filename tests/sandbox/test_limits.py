"""What a call may not take from the user outside it: room on the disk, memory of the kernel, and what is counted for a user."""

import ctypes
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from needs import needs
from process import until

from appliance.sandbox import folder_tree, resource_usage
from appliance.sandbox.launcher import Execution, Limits, Sandbox, SandboxOrder

pytestmark = needs("bwrap", "perl")
MB = 1 << 20
DEEP = """
import os, sys
for i in range(30):
    os.mkdir("d" * 200); os.chdir("d" * 200)
for i in range(6):
    fd = os.open(f"f{i}", os.O_CREAT | os.O_WRONLY); os.posix_fallocate(fd, 0, 20 << 20); os.close(fd)
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def python(script: str, folder: Path | None = None, **limits: float) -> Execution:
    """Run a script with the system's Python; only what /usr has is there."""
    given = Limits(**{"timeout_s": 60.0, "disk_bytes": 50 * MB, **limits})  # type: ignore[arg-type]
    made = SandboxOrder("exec", "s1", ("/usr/bin/python3", "-I", "-S", "-c", script), folder=folder, limits=given)
    return Sandbox().run(made, threading.Event())


@pytest.mark.covers("A-069")
def test_files_deeper_than_a_path_may_be_long_count_and_can_be_removed(work: Path):
    done = python(DEEP + "import time; time.sleep(30)", work)
    assert (done.status, done.exit_code) == ("failed", -1) and "filled its folder with more than 50 MB" in done.error, done
    assert folder_tree.remove(work) == 0


@pytest.mark.covers("A-069")
def test_what_a_call_filled_its_folder_with_is_removed_however_quick_it_was(work: Path):
    (work / "old").mkdir()
    (work / "old/mine.txt").write_text("kept")
    (work / "incoming").mkdir()
    first = "import os; open('/work/incoming/mail.pdf', 'w').write('x'); os.rename('/work/old/mine.txt', '/work/moved.txt')"
    done = python(first + DEEP, work)
    assert done.status == "failed" and "more than 50 MB" in done.error and "were removed" in done.error, done
    assert (work / "moved.txt").read_text() == "kept" and (work / "incoming/mail.pdf").exists()
    assert folder_tree.measure(work, 1 << 40).seen_bytes < MB and folder_tree.remove(work) == 0


def test_what_was_too_full_before_is_left_as_it_is(work: Path):
    """It may still work and delete; where it adds it is ended, and nothing is removed that nobody could look at before."""
    for name in ("a", "b", "c"):
        (work / name).mkdir()
        with (work / name / "large").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 6 * MB)
        (work / name / "mine.txt").write_text("kept")
    done = python("import os; os.unlink('/work/a/large')", work, disk_bytes=5 * MB)
    assert done.status == "completed" and not (work / "a/large").exists(), done
    adding = "import time\nfor i in range(50): open(f'/work/new{i}', 'wb').write(bytes(1 << 20)); time.sleep(0.5)"
    done = python(adding, work, disk_bytes=5 * MB)
    assert done.status == "failed" and "filled its folder" in done.error and "removed" not in done.error, done
    left = sorted(path.name for path in work.rglob("*") if path.is_file())
    assert [name for name in left if "new" not in name] == ["large", "large", *["mine.txt"] * 3] and "new0" in left


@pytest.mark.parametrize("what", ["os.pipe()", "select.epoll()"])
def test_open_files_of_all_processes_are_counted_together(what: str):
    """Pages of pipes and watches of epoll are counted for the user outside: few files bound both."""
    script = f"""
import os, select, time
for _ in range(30):
    if os.fork() == 0:
        kept = []
        try:
            while True:
                kept.append({what})
        except OSError:
            time.sleep(30)
time.sleep(30)
"""
    done = python(script)
    assert done.status == "failed" and "opened more than 2000 files at once" in done.error, done


@pytest.mark.covers("A-069")
def test_areas_of_memory_without_pages_count():
    script = """
import ctypes, os, time
libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
for _ in range(60):
    if os.fork() == 0:
        start = libc.mmap(None, 65000 * 4096, 0, 0x4022, -1, 0)
        for i in range(0, 65000, 2):
            libc.mprotect(start + i * 4096, 4096, 1)
        time.sleep(30); os._exit(0)
time.sleep(30)
"""
    done = python(script, memory_bytes=64 * MB)
    assert done.status == "failed" and "64 MB" in done.error, done


def test_nothing_of_a_call_runs_while_its_areas_of_memory_are_counted(tmp_path: Path):
    """They would go on growing, and counting would wait for them: under load seconds, in which hundreds of megabytes were taken."""
    script = "import sys\nwhile True: open(sys.argv[1], 'a').write('.')"
    files = [tmp_path / f"{number}.txt" for number in range(2)]
    running = [subprocess.Popen(["/usr/bin/python3", "-I", "-S", "-c", script, str(file)]) for file in files]
    proc = tmp_path / "proc"
    proc.mkdir()
    for one in running:
        (proc / str(one.pid)).symlink_to(f"/proc/{one.pid}")
    try:
        until(lambda: all(file.exists() and file.stat().st_size for file in files), "both run")
        with resource_usage.stopped(str(proc)):
            until(lambda: all(state(one.pid) == "T" for one in running), "both stand")
            before = [file.stat().st_size for file in files]
            time.sleep(0.2)
            assert [file.stat().st_size for file in files] == before
        until(lambda: all(file.stat().st_size > size for file, size in zip(files, before, strict=True)), "both go on")
    finally:
        for one in running:
            one.kill()
            one.wait()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_others_can_still_watch_files_open_them_and_set_timers(work: Path):
    """Instances of inotify, leases, timers, message queues and asynchronous reads are counted for the user or the machine."""
    script = """
import ctypes, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
def failed(result):
    return os.strerror(ctypes.get_errno()) if result < 0 else "allowed"
print(failed(libc.inotify_init()), failed(libc.inotify_init1(0)), sep=",")
try:
    fcntl.fcntl(os.open("/work/leased", os.O_CREAT | os.O_RDWR), 1024, 1)
except OSError as error:
    print(error.strerror)
print(failed(libc.syscall(%d, 1, ctypes.byref(ctypes.c_ulong(0)))))
timer, count = ctypes.c_void_p(), 0
while count < 5000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0:
    count += 1
print(count)
"""
    number = {"x86_64": 206, "aarch64": 0}[os.uname().machine]
    done = python(script % number, work)
    absent = "Function not implemented"
    assert done.stdout.decode().splitlines()[:3] == [f"{absent},{absent}", "Operation not permitted", absent], done
    assert 0 < int(done.stdout.split()[-1]) <= 256
    assert ctypes.CDLL(None).inotify_init() >= 0
