"""The process in which a model's chat template is rendered: starting, asking and ending it.

One process for each template, started when it is first asked and again after it was ended: by the kernel, for its time or memory,
or by itself when nobody asked for a while. It knows no environment. What it does is `template_program`.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Unavailable

WALL_S = 60.0  # for an answer, on a machine that has other things to do; processor time is limited by itself
MAX_BYTES = 64 << 20
KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TZ")


class Renderer:
    """A template with its process; several threads may ask."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        self._source = json.dumps({"source": source, "tokens": dict(tokens)}).encode() + b"\n"
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """True while its process lives: not before it was asked, nor after a template took more than it may."""
        return self._child is not None

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None) -> str:
        """The text of a conversation; BadInput when the template refuses it, or takes more than it may.

        `variables` are what the template is given beside the messages, such as tools.
        """
        question = json.dumps({"messages": messages, "variables": variables or {}}).encode() + b"\n"
        with self._guard:
            if self._child is not None and self._child.poll() is not None:
                self._end_child()  # it had nothing to do for a while
            if self._child is None:
                self._child = self._start_child()
                self._ask_child(self._child, self._source)
            return self._ask_child(self._child, question)

    def close(self) -> None:
        """End the process; the next question starts another one."""
        with self._guard:
            self._end_child()

    def _ask_child(self, child: "subprocess.Popen[bytes]", question: bytes) -> str:
        try:
            answer = json.loads(_exchange_lines(child, question, monotonic_s() + WALL_S))
        except (BrokenPipeError, EOFError):
            self._end_child()
            raise BadInput("it takes more time or memory than a chat template may") from None
        except TimeoutError:
            self._end_child()
            raise BadInput(f"it took longer than {WALL_S:g} s") from None
        if "problem" in answer:
            raise BadInput(str(answer["problem"]))
        return str(answer["prompt"])

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    @staticmethod
    def _start_child() -> "subprocess.Popen[bytes]":
        environ = {name: os.environ[name] for name in KEPT if name in os.environ} | {"PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "appliance.providers.template_program"],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            text = f"no program to render a chat template with: {error.strerror}"
            raise Unavailable(text, hint="free some memory, then try again") from None


def _exchange_lines(child: "subprocess.Popen[bytes]", question: bytes, end_s: float) -> bytes:
    """A process's line in answer to one; TimeoutError when it is late, EOFError or BrokenPipeError when it has gone."""
    assert child.stdin is not None and child.stdout is not None
    to, back, left, answer = child.stdin.fileno(), child.stdout.fileno(), memoryview(question), bytearray()
    os.set_blocking(to, False)
    poll = select.poll()  # select() knows only the first 1024 descriptors
    poll.register(back, select.POLLIN)
    poll.register(to, select.POLLOUT)
    while not answer.endswith(b"\n"):
        wait_s = end_s - monotonic_s()
        if wait_s <= 0 or len(answer) > MAX_BYTES:
            raise TimeoutError
        for number, _ in poll.poll(wait_s * 1000):
            if number == to and left:
                left = left[os.write(to, left[: 1 << 16]) :]
                if not left:
                    poll.unregister(to)
            elif number == back:
                part = os.read(back, 1 << 16)
                if not part:
                    raise EOFError
                answer += part
    return bytes(answer)
