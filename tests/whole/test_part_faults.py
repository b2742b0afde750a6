"""Faults that cost a part and not the whole: the core starts without it, and doctor, status and the failing command name it."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home
from needs import needs
from process import Box, Core, a_box, until

__all__ = ["a_box", "model_file", "model_home"]
EMBEDDING = Path("~/.cache/owlbox/models/all-MiniLM-L6-v2.Q8_0.gguf").expanduser()
# Modes hold for this user again: root without what lets it pass them.
BOUND = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")


def run(box: Box, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*BOUND, *box.command(*words)], env=box.environ, capture_output=True, text=True, timeout=240)


def finding(box: Box, name: str) -> dict[str, str]:
    found: list[dict[str, str]] = json.loads(run(box, "doctor", "--json").stdout)
    return next(f for f in found if f["name"] == name)


@needs("setpriv", root=True)
@pytest.mark.parametrize(
    ("name", "effect"), [("drop", "requests of other programs"), ("box", "documents, notes"), ("box/notes", "notes")]
)
def test_a_closed_folder_costs_only_what_it_is_for(box: Box, name: str, effect: str) -> None:
    folder = box.home.root / name
    box.run("entry", "list")
    folder.chmod(0)
    try:
        child = subprocess.Popen([*BOUND, *box.command("serve")], env=box.environ, stderr=subprocess.PIPE)
        box.children.append(child)
        core = Core(box, child)
        until(core.is_up, "the core listens")
        assert run(box, "ask", "hi").stdout == "Hoot hoot.\n"
        told = run(box, "status").stdout
        assert f"problem      {folder} is closed to user {os.getuid()} (mode 0)" in told and effect in told
        home = finding(box, "home")
        assert home["state"] == "problem" and str(folder) in home["message"] and "chmod" in home["hint"]
        assert core.stop() == 0
        assert child.stderr is not None and b"Traceback" not in child.stderr.read()
    finally:
        folder.chmod(0o700)
    assert box.run("entry", "view", "box://SOUL.md").returncode == 0  # what it held stays known


def test_an_emptied_vault_is_named_and_costs_only_the_secrets(box: Box) -> None:
    assert box.run("secret", "set", "llm/openai", text="hush-hush-hush").returncode == 0
    [secrets] = [path for path in box.home.vault.iterdir() if not path.name.startswith("key-")]
    os.truncate(secrets, 0)
    core = box.serve()
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    until(lambda: core.call("core.status")["broker"]["state"] == "running", "the broker runs")
    lines = dict(line.split(maxsplit=1) for line in box.run("status").stdout.splitlines())
    assert lines["vault"].startswith("problem: ") and str(secrets) in lines["vault"]
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}["vault"]
    assert found["state"] == "problem" and str(secrets) in found["message"]
    failed = box.run("secret", "list")
    assert failed.returncode == 1 and str(secrets) in failed.stderr
    assert core.stop() == 0
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}["vault"]
    assert found["state"] == "problem" and "is empty" in found["message"]


@pytest.mark.skipif(not EMBEDDING.exists(), reason="no embedding model here")
def test_an_embedding_model_is_never_talked_to(box: Box) -> None:
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    os.link(EMBEDDING, box.home.models / EMBEDDING.name) if os.stat(EMBEDDING).st_dev == os.stat(
        box.home.models
    ).st_dev else shutil.copy(EMBEDDING, box.home.models)
    for environ in ({}, {"OWLBOX__MODELS__DEFAULT": "all-minilm"}):
        done = box.run("ask", "hi", **environ)
        assert done.returncode == 5 and "only makes vectors" in done.stderr and "owlbox model add" in done.stderr, done.stderr
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}["model"]
    assert found["state"] == "problem" and "no model that can talk" in found["message"]


@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct.Q4_1.gguf", "copied-by-hand.gguf"])
def test_damaged_weights_are_named(box: Box, model_file: Path, name: str) -> None:
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    path = box.home.models / name
    shutil.copyfile(model_file, path)
    with path.open("r+b") as file:
        file.seek(50_000_000)
        file.write(os.urandom(20_000_000))
    done = box.run("ask", "hi")
    assert done.returncode == 5 and name in done.stderr and "weights are damaged" in done.stderr, done.stderr
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}["model"]
    if name.startswith("copied"):
        assert "content unknown to us" in found["message"]
    else:
        assert found["state"] == "problem" and "is damaged" in found["message"] and "model add smollm2" in found["hint"]


@contextmanager
def memory_limit(pid: int, size_bytes: int) -> Iterator[Path]:
    """A control group with a limit and this process in it; its children are born there."""
    version_1 = Path("/sys/fs/cgroup/memory")
    folder = (version_1 if version_1.is_dir() else version_1.parent) / f"owlbox-test-{pid}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")).write_text(str(size_bytes))
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"this machine gives no right to make a control group with a memory limit: {error}")
    try:
        yield folder
    finally:
        for left in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(left)
        folder.rmdir()


@needs(root=True)
def test_a_broker_that_the_kernel_kills_for_memory_is_said_to_be_killed_and_the_core_stays(box: Box, model_file: Path) -> None:
    """A limit set after the model was loaded ends nothing: its pages are charged elsewhere, and those of a file are given back."""
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    box.environ["LANG"] = "C"  # no fork of the tests: a broker that was forked elsewhere is under no limit of its parent
    shutil.copyfile(model_file, box.home.models / model_file.name)
    core = box.serve()
    first = core.broker_pid()
    with memory_limit(core.child.pid, 70_000_000):
        os.kill(first, signal.SIGKILL)  # the next one is born within the limit
        done = box.run("ask", "hello, I like owls")
        assert done.returncode == 5 and "the model process was killed, because memory ran out" in done.stderr, done.stderr
        assert "smaller model" in done.stderr and done.stderr.count("\n") == 1
        assert "problem      the model process was killed, because memory ran out" in box.run("status").stdout
        found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}["model"]
        assert found["state"] == "warning" and "memory ran out" in found["message"]
        assert box.run("remember", "the core stays").returncode == 0
        assert core.stop() == 0


def test_a_broker_that_is_killed_in_an_answer_is_said_to_be_killed(box: Box) -> None:
    core = box.serve()
    child = box.start("ask", "endless")
    pid = core.broker_pid()
    until(lambda: bool(core.call("core.status")["answering"]), "it answers")
    assert child.stdout is not None
    child.stdout.read(3)  # the answer has begun
    os.kill(pid, signal.SIGKILL)
    _, said = child.communicate(timeout=120)
    text = said.decode()
    assert child.returncode == 5 and "the model process was killed" in text and "memory ran out" in text, text
    assert "smaller model" in text and "connection lost" not in text
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    assert "problem      the model process was killed" in box.run("status").stdout
    assert core.stop() == 0
