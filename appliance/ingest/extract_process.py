"""Children that read documents: a file that crashes its parser, never ends or wants all memory costs one of them.

Owns starting, asking and ending them; what they do is `ingest.extract`. A child is asked one file at a time, over its
standard input; one that dies or is late is replaced for the next file. It has limits on memory, processor time
and files, and no environment beyond what Python needs. Not promised: a sandbox. It has the rights of its
parent, so what is read must not be able to run code, only to break a parser.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping

from appliance.clock import monotonic_s
from appliance.errors import Unavailable
from appliance.ingest.extract import FileReading, as_bytes

DEADLINE_S = 20.0  # for one file
START_S = 20.0  # more for the first one: Python and its libraries have to load
MAX_ANSWER = 32 * 1024 * 1024  # bytes: a text of 2 MiB, escaped
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONPATH", "VIRTUAL_ENV")


class Clerk:
    """One extraction process, started on first use."""

    def __init__(self, environ: Mapping[str, str], deadline_s: float = DEADLINE_S) -> None:
        self._environ = {name: environ[name] for name in KEPT if name in environ} | {"PYTHONSAFEPATH": "1"}
        self._deadline_s = deadline_s
        self._child: subprocess.Popen[bytes] | None = None

    def read(self, name: str, data: bytes, form: str, charset: str = "") -> FileReading:
        """What a file says; its bytes and the reason when the child died over it or was late."""
        limit_s = self._deadline_s
        if self._child is None:
            self._child = self._start_child()
            limit_s += START_S
        asked = {"name": name, "form": form, "charset": charset, "size": len(data)}
        try:
            line = self._exchange_messages(self._child, json.dumps(asked).encode() + b"\n" + data, monotonic_s() + limit_s)
        except TimeoutError:
            self.close()
            return as_bytes(name, f"took longer than {self._deadline_s:g} s to read as {form}: kept as bytes", reader="")
        except (BrokenPipeError, EOFError):
            self.close()
            return as_bytes(name, f"ended the program that read it as {form}: kept as bytes", reader="")
        return FileReading(**json.loads(line))

    def kill(self) -> None:
        """End the child from another thread: whoever waits for its answer gets none."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the child; the next file has another one."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _start_child(self) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "appliance.ingest.extract"],
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # Ctrl+C is the parent's to handle
                bufsize=0,
            )
        except OSError as error:
            raise Unavailable(
                f"no program to read documents with: {error.strerror}", hint="free some memory, then try again"
            ) from None

    @staticmethod
    def _exchange_messages(child: "subprocess.Popen[bytes]", question: bytes, end_s: float) -> bytes:
        """The child's answer in time; TimeoutError without one, EOFError or BrokenPipeError when it has gone."""
        if child.stdin is None or child.stdout is None:
            raise EOFError
        to, back, left, answer = child.stdin.fileno(), child.stdout.fileno(), memoryview(question), bytearray()
        os.set_blocking(to, False)
        while not answer.endswith(b"\n"):
            wait_s = end_s - monotonic_s()
            if wait_s <= 0 or len(answer) > MAX_ANSWER:
                raise TimeoutError
            readable, writable, _ = select.select([back], [to] if left else [], [], wait_s)
            if writable:
                left = left[os.write(to, left[: 1 << 16]) :]
            if readable:
                part = os.read(back, 1 << 16)
                if not part:
                    raise EOFError
                answer += part
        return bytes(answer)


class Clerks:
    """So many children for any number of threads; each waits for its turn."""

    def __init__(self, environ: Mapping[str, str], count: int = 2, deadline_s: float = DEADLINE_S) -> None:
        self._all = tuple(Clerk(environ, deadline_s) for _ in range(count))
        self._free = list(self._all)
        self._turn = threading.Condition()
        self._closed = threading.Event()

    def read(self, name: str, data: bytes, form: str, charset: str = "") -> FileReading:
        """What a file says, as soon as one of the children is free; Unavailable after `close`."""
        with self._turn:
            self._turn.wait_for(lambda: self._free or self._closed.is_set())
            self._check_open()
            clerk = self._free.pop()
        try:
            found = clerk.read(name, data, form, charset)
            self._check_open()  # what a child that was ended did not say is nothing about the file
            return found
        finally:
            with self._turn:
                self._free.append(clerk)
                if self._closed.is_set():
                    clerk.close()
                self._turn.notify()

    def close(self) -> None:
        """Kill every extraction process; waiting callers get an error."""
        with self._turn:
            self._closed.set()
            for clerk in self._free:
                clerk.close()
            for clerk in self._all:
                clerk.kill()
            self._turn.notify_all()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("reading was stopped", hint="the same command goes on where it was stopped")
