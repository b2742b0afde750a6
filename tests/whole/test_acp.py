"""`owlbox acp` as an editor uses it: the official client of the Agent Client Protocol, a process of its own, a core behind it."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import acp
import pytest
from acp import schema
from needs import needs
from stores import let_chats_do_all
from test_api import Served, serving
from test_command_parts import native

from appliance.channels.acp_server import AcpServer, read_prompt
from appliance.errors import BadInput

SLOW = {"text": "one two three four five six seven eight nine ten " * 20, "chunk_size": 4, "chunk_delay_s": 0.05, "repeat": True}
ANSWERS: dict[str, Any] = {
    "hoot": [{"text": "Hoot.", "repeat": True}],
    "slow": [SLOW],
    "runs": [native("exec", command="echo from the editor"), "It said so."],
    "refused": [native("exec", command="echo never"), "It was not run."],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("acp"), ANSWERS, let_chats_do_all) as made:
        yield made


class Editor:
    """What an editor does with what it is told and asked."""

    def __init__(self, choice: str = "") -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self._choice = choice
        self.is_told = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(update)
        self.is_told.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
        self.asked.append((tool_call, [one.option_id for one in options]))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=self._choice))

    def on_connect(self, conn: Any) -> None:
        """Nothing to be done."""

    @property
    def said(self) -> str:
        return "".join(one.content.text for one in self.updates if isinstance(one, schema.AgentMessageChunk))


def converse(served: Served, editor: Editor, talk: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run a conversation with `owlbox acp` to its end."""
    command = [sys.executable, "-m", "appliance", "--home", str(served.core.home.root), "acp"]

    async def run() -> Any:
        async with acp.spawn_agent_process(editor, *command, env=dict(served.core.base.environ)) as (connection, process):  # type: ignore[arg-type]
            found = await asyncio.wait_for(talk(connection), 90)
        assert await asyncio.wait_for(process.wait(), 30) == 0
        return found

    return asyncio.run(run())


def test_an_editor_begins_a_session_is_answered_in_pieces_and_finds_it_again(served: Served) -> None:
    async def talk(connection: Any) -> str:
        known = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert known.protocol_version == 1 and known.agent_info.name == "owlbox" and known.agent_capabilities.load_session
        session = (await connection.new_session(cwd="/", mcp_servers=[])).session_id
        for _ in range(2):
            told = await connection.prompt(session_id=session, prompt=[acp.text_block("[hoot] who?")])
            assert told.stop_reason == "end_turn"
        assert [one.session_id for one in (await connection.list_sessions()).sessions] == [session]
        with pytest.raises(acp.RequestError, match="no thread nothing"):
            await connection.load_session(cwd="/", session_id="nothing", mcp_servers=[])
        with pytest.raises(acp.RequestError, match="no session"):
            await connection.prompt(session_id="nothing", prompt=[acp.text_block("x")])
        return str(session)

    editor = Editor()
    session = converse(served, editor, talk)
    assert editor.said == "Hoot.Hoot."
    run = served.core.runs.get(session)
    assert [e.content for e in served.core.runs.events(run.id) if e.role == "user"] == ["[hoot] who?"] * 2

    async def resume(connection: Any) -> None:
        await connection.load_session(cwd="/", session_id=session, mcp_servers=[])
        assert (await connection.prompt(session_id=session, prompt=[acp.text_block("[hoot] again")])).stop_reason == "end_turn"

    later = Editor()
    converse(served, later, resume)
    kinds = [one.session_update for one in later.updates[:4]]
    assert kinds == ["user_message_chunk", "agent_message_chunk"] * 2 and later.said.endswith("Hoot.")
    assert len([e for e in served.core.runs.events(run.id) if e.role == "user"]) == 3


def test_an_answer_is_cancelled(served: Served) -> None:
    editor = Editor()

    async def talk(connection: Any) -> str:
        session = (await connection.new_session(cwd="/", mcp_servers=[])).session_id
        asked = asyncio.create_task(connection.prompt(session_id=session, prompt=[acp.text_block("[slow] count")]))
        await asyncio.wait_for(editor.is_told.wait(), 60)
        await connection.cancel(session_id=session)
        told = await asked
        after = await connection.prompt(session_id=session, prompt=[acp.text_block("[hoot] who?")])
        return f"{told.stop_reason} {after.stop_reason}"

    assert converse(served, editor, talk) == "cancelled end_turn"
    assert editor.said.startswith("one") and editor.said.endswith("Hoot.")


@needs("bwrap")
@pytest.mark.parametrize(("choice", "name", "said"), [("accept", "runs", "It said so."), ("reject", "refused", "")])
def test_what_waits_for_a_decision_is_asked_in_the_editor(served: Served, choice: str, name: str, said: str) -> None:
    editor = Editor(choice)

    async def talk(connection: Any) -> str:
        session = (await connection.new_session(cwd="/", mcp_servers=[])).session_id
        return str((await connection.prompt(session_id=session, prompt=[acp.text_block(f"[{name}] Run it.")])).stop_reason)

    assert converse(served, editor, talk) == "end_turn"
    ((call, options),) = editor.asked
    assert options == ["accept", "reject"] and call.kind == "execute" and "echo" in call.title
    results = [one for one in editor.updates if isinstance(one, schema.ToolCallProgress)]
    assert [one.status for one in results] == [{"accept": "completed", "reject": "failed"}[choice]]
    assert editor.said == said
    if choice == "accept":
        assert "from the editor" in results[0].content[0].content.text


def test_a_document_stands_behind_the_question_and_a_picture_is_refused() -> None:
    document = {"type": "resource", "resource": {"uri": "file:///a.md", "text": "green tea"}}
    link = {"type": "resource_link", "name": "b", "uri": "file:///b.md"}
    assert read_prompt([{"type": "text", "text": "what tea?"}, document, link]) == (
        "what tea?",
        "[file:///a.md]\ngreen tea\n\n[b](file:///b.md)",
    )
    for wrong in ([], "x", [{"type": "image", "data": "", "mimeType": "image/png"}], [{"type": "text"}], [3], None):
        with pytest.raises(BadInput):
            read_prompt(wrong)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"no json", -32700),
        (b"[]", -32600),
        (b'{"id": 1, "method": 5}', -32600),
        (b'{"id": 1, "method": "session/new", "params": []}', None),
        (b'{"id": 1, "method": "no/such"}', -32601),
        (b'{"id": 1, "method": "session/prompt", "params": {"sessionId": {}, "prompt": 7}}', -32602),
    ],
)
def test_a_wrong_line_is_answered_with_its_error(line: bytes, code: int | None) -> None:
    written: list[bytes] = []

    class Nobody:
        def call(self, method: str, params: dict[str, Any], listen: Any = None) -> Any:
            raise AssertionError(f"{method} is asked of nobody")

    server = AcpServer(Nobody(), written.append)
    server.handle_line(line)
    server.finish(10)
    (answer,) = [json.loads(one) for one in written]
    assert answer.get("error", {}).get("code") == code, answer
