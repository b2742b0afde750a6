"""Every method and every tool on a disk that is full, read-only, without inodes or failing; from the tables: none is missed.

Held: what needs no write is answered; whatever fails because of the disk says what is wrong with it and what to do, and nothing
fails inside. Commands are in `test_disk_words`.
"""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from needs import leave_out, needs
from process import clean_environ
from proof import IS_WHOLE, part
from stores import new_home
from test_disk_words import WORDS as FAULTS
from test_disk_words import break_disk
from test_isolation import BY_METHOD, LEFT_OUT, OBJECTS, SECRETS, WORDS, A, House, furnish

from appliance.errors import OwlError
from appliance.runtime.methods import LocalCall
from appliance.runtime.paths import Home
from appliance.service.core import Core
from appliance.store import disk_faults

# Not called: what goes on until its caller leaves, asks a model, starts a process of its own or ends this one.
NOT_HERE = {
    *LEFT_OUT,
    "core.shutdown",
    "core.reload",
    "worker.start",
    "run.ask",
    "run.act",
    "message.send",
    "skill.fetch",
    "tool.call",
}
NOT_HERE |= {
    "secret.set",
    "secret.rotate",
    "secret.unlock",
    "secret.reveal",
    "secret.address",
    "model.bench",
    "model.plan",
    "prompt.size",
    "run.packet",
}
RAW = [os.strerror(number) for number in (errno.ENOSPC, errno.EROFS, errno.EIO)] + ["failed inside", "internal error", "Traceback"]
OURS = ("no such", "there is no", "not found", "no ", "is not", "already", "unknown", "must be", "expected")


class Failing:
    """A disk under SQLite that gives an error for each read and write, once it is told to."""

    is_failing = False


@contextmanager
def failing_disk(state: Failing) -> Iterator[None]:
    class File(apsw.VFSFile):
        def xRead(self, amount: int, offset: int) -> bytes:
            return self._checked(super().xRead, amount, offset)

        def xWrite(self, data: Any, offset: int) -> None:
            self._checked(super().xWrite, data, offset)

        def xSync(self, flags: int) -> None:
            self._checked(super().xSync, flags)

        def _checked(self, do: Callable[..., Any], *given: Any) -> Any:
            if state.is_failing:
                failed = apsw.IOError("disk I/O error")
                failed.extendedresult = apsw.SQLITE_IOERR_READ
                raise failed
            return do(*given)

    class Disk(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("failing-later", "unix", makedefault=True)

        def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
            return File("unix", name, flags)

    disk = Disk()
    try:
        yield
    finally:
        disk.unregister()


@pytest.fixture(name="furnished", params=[*FAULTS, "failing"])
def a_house_whose_disk_breaks(request: pytest.FixtureRequest, tmp_path: Path, runtime: Path) -> Iterator[tuple[str, House]]:
    """A home with an object of each kind; its disk has the fault when the test begins."""
    fault, place, state = request.param, runtime / "disk", Failing()
    place.mkdir()
    with ExitStack() as stack:
        if fault == "failing":
            stack.enter_context(failing_disk(state))
        else:
            if subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "tmpfs", str(place)], capture_output=True
            ).returncode:
                leave_out("cannot mount here")
            stack.callback(lambda: subprocess.run(["umount", "-l", str(place)], check=True))
        new_home(home := Home(place / "home"))
        environ = clean_environ(tmp_path, runtime) | {"OWLBOX__SYSTEM__ADMIN_USERS": '["root"]'}
        core = Core(home, environ, process="cli", is_shared=False)
        stack.callback(lambda: core.close("test"))
        core.recover()
        core.base.people.add_person(A)
        ids = {context: furnish(core, context, A) for context in [next(iter(SECRETS))]}
        if fault == "failing":
            state.is_failing = True
        elif fault == "read-only":
            core.close("its files are in the way of being mounted anew")
            break_disk(place, fault)
            core = Core(home, environ, process="cli", is_shared=False)
        else:
            break_disk(place, fault)
        yield fault, House(core, ids)
        state.is_failing = False


def ask(house: House, name: str, given: dict[str, Any]) -> str:
    """What a caller is told of an error; "" when there is none. As `rpc_server` and the command line tell it."""
    try:
        answer = house.core.table.call(LocalCall(uid=0), name, given)
    except (OwlError, OSError) as error:
        told = disk_faults.explain_fault(error) or error
        return f"{told.outcome}: {told}" if isinstance(told, OwlError) else f"failed inside: {type(told).__name__}: {told}"
    if name == "tool.call" and answer["status"] >= 400:
        return "{outcome}: {message} ({hint})".format(**answer)
    return ""


@needs(root=True)
def test_every_method_and_tool_names_the_fault(furnished: tuple[str, House]) -> None:
    fault, house = furnished
    [ids] = house.ids.values()
    words = FAULTS.get(fault, "the disk is failing")
    tools = {made.mark.name: made.signature for made in house.core.toolbox.tools()}
    wrong, named = [], 0
    for name, signature in part([*((name, one.signature) for name, one in house.methods.items()), *tools.items()], 2):
        if name in NOT_HERE:
            continue
        kinds = {field.name: BY_METHOD.get(f"{name}.{field.name}", OBJECTS.get(field.name, "")) for field in signature.fields}
        given = {f.name: ids.get(kinds[f.name], WORDS.get(f.name, "x")) for f in signature.fields if f.is_required}
        given = {
            key: [value] if isinstance(WORDS.get(key), list) and not isinstance(value, list) else value
            for key, value in given.items()
        }
        said = ask(house, name, given) if name in house.methods else ask(house, "tool.call", {"name": name, "arguments": given})
        named += words in said
        is_ours = said.split(":")[0] in ("failed", "store", "unavailable", "database error", "internal", "busy")
        if (
            any(raw in said.replace(words, "") for raw in RAW if words not in said)
            or (is_ours and words not in said)
            or (words in said and " (" not in said)
        ):
            wrong.append(f"{name} {given}: {said}")
    assert not wrong, f"{len(wrong)}, {named} right:\n" + "\n".join(wrong)
    assert named > (15 if fault == "inodes" else 40) // (1 if IS_WHOLE else 3), named  # the database needs no new file
