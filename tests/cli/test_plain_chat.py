"""`owlbox chat --plain` on a real terminal: lines that are written once, states in words, decisions typed as words."""

import os
import pty
from collections.abc import Iterator

import pytest
import quick
from process import ROOT, Box, Core, a_shared_box, script, until  # noqa: F401
from stores import let_chats_do_all

PLAY = """
[[turns]]
match = "write a plan"
tool_calls = [{name = "set", arguments = {path = "plan.md", body = "Beans in April.\\nPeas in May.\\n"}}]
[[turns]]
match = "write a plan"
text = "The plan is written."
[[turns]]
match = "change the plan"
tool_calls = [{name = "set", arguments = {path = "plan.md", search = "April", body = "March"}}]
[[turns]]
match = "change the plan"
text = "Changed."
[[turns]]
match = "where to"
tool_calls = [{name = "use", arguments = {tool = "ask_user", arguments = {question = "Which bed?", options = "north;south"}}}]
[[turns]]
match = "where to"
text = "South it is."
[[turns]]
match = "broken"
repeat = true
error = "too_large"
[[turns]]
repeat = true
text = "Hoot hoot,\\nsaid the owl."
chunk_size = 3
"""


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Iterator[Core]:
    let_chats_do_all(shared_box.home)
    (shared_box.home.box / "BOOTSTRAP.md").unlink()
    script(shared_box, PLAY)
    yield shared_box.serve()


class Line:
    """A command on a terminal of its own; everything that it wrote is kept."""

    def __init__(self, box: Box, *words: str, term: str = "xterm-256color") -> None:
        self._master, slave = pty.openpty()
        environ = {**box.environ, "TERM": term}
        self.child = quick.popen(box.command(*words), stdin=slave, stdout=slave, stderr=slave, env=environ, cwd=ROOT)
        os.close(slave)
        os.set_blocking(self._master, False)
        self.written = b""
        self._seen = 0

    def text(self) -> str:
        try:
            while more := os.read(self._master, 65536):
                self.written += more
        except OSError:
            pass  # nothing more now, or the end
        return self.written.decode().replace("\r\n", "\n")

    def says(self, *words: str) -> None:
        """Wait until all of these were written since the last line was typed."""
        until(lambda: all(word in self.text()[self._seen :] for word in words), f"{words} are written: {self.text()}")

    def type(self, text: str) -> None:
        self._seen = len(self.text())
        os.write(self._master, f"{text}\n".encode())

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self._master)


@pytest.fixture
def line(core: Core) -> Iterator[Line]:
    made = Line(core.box, "chat", "--plain")
    yield made
    made.close()


@pytest.mark.covers("S-099")
def test_states_are_said_in_words_and_nothing_is_drawn_twice(line: Line) -> None:
    line.says("You: ")
    line.type("")
    line.says("You: ")
    line.type("hello")
    line.says("Thinking.\nAnswer:\nHoot hoot,\nsaid the owl.\nEnd of the answer.\nYou: ")
    line.type("broken")
    line.says("too_large", "You: ")
    line.type(":q")
    line.says("Continue with: owlbox chat --thread")
    assert line.child.wait(30) == 0
    assert "\x1b" not in line.text() and "\r" not in line.text() and "\b" not in line.text()


def test_what_waits_is_decided_by_typed_words(line: Line, core: Core) -> None:
    line.says("You: ")
    line.type("accept")
    line.says("Hoot hoot")  # nothing waits: a message like any other
    line.type("write a plan")
    line.says("Working: set", "Needs your approval: ", "plan.md", "added: Beans in April.", "added: Peas in May.", "Type accept")
    line.type("Accept")
    line.says("Accepted.", "The plan is written.", "You: ")
    line.type("change the plan")
    line.says("removed: Beans in April.\nadded: Beans in March.", "as it is: Peas in May.")
    line.type("reject, it is too cold then")
    line.says("Rejected.", "You: ")
    line.type("where to")
    line.says("The owl asks: Which bed?", "Type the answer, or its number.")
    line.type("2")
    line.says("Accepted.", "South it is.", "You: ")
    line.type("exit")
    assert line.child.wait(30) == 0
    events = core.call("thread.view", id=core.call("thread.list", limit=1)[0]["id"])["events"]
    assert [e["content"] for e in events if e["kind"] == "tool_result"][-1:] == ["south"]


@pytest.mark.parametrize("begun", ["see CONTRIB", "/CONTRIB", "~root/"])
def test_no_key_completes_a_file_or_somebody_of_this_computer(begun: str, core: Core) -> None:
    line = Line(core.box, "chat", term="dumb")
    try:
        line.says("> ")
        line.type(f"{begun}\t\x1b\t\x1b?\x1b*\x1b=\x1b&")
        line.says("unknown command" if begun.startswith("/") else "Hoot hoot")
        line.type("exit")
        assert line.child.wait(30) == 0
        shown = line.text()
    finally:
        line.close()
    assert not any(word in shown for word in ("CONTRIBUTING", "/root/"))
