"""The Agent Client Protocol (version 1): the assistant for editors, one JSON-RPC object a line on two descriptors.

Serves what an editor asks: `initialize`, `session/new`, `session/load`, `session/list`, `session/prompt`, and the notification
`session/cancel`. A session is a chat with the person who runs the editor, and a thread like any other: its id is the thread's name.
What the assistant says and does is streamed as `session/update`; what waits for a decision is asked with
`session/request_permission`. Not done: the editor's files and terminals are never used, servers that it offers are not taken, and
pictures are refused. Knows nothing about how the core is reached.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from appliance import __version__
from appliance.clock import new_id
from appliance.errors import BadInput, NotFound, OwlError
from appliance.runtime.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, SERVER_ERROR
from appliance.text.invisible import escape_invisible

LOG = logging.getLogger(__name__)
VERSION = 1
PREFIX = "acp_"  # of the names of threads that editors begin
ANSWER_S = 3600.0  # for a person to decide in the editor
MAX_REPLAYED = 400  # messages of a session that is loaded
OPTIONS = (
    {"optionId": "accept", "name": "Allow this once", "kind": "allow_once"},
    {"optionId": "reject", "name": "Do not allow it", "kind": "reject_once"},
)
WAITING = 202
Listen = Callable[[str, dict[str, Any]], None]


class CoreCalls(Protocol):
    """The way to the core; calls of several threads at a time."""

    def call(self, method: str, params: dict[str, Any], listen: Listen | None = None) -> Any:
        """The result; notifications go to `listen`."""
        ...


class _Session:
    """One conversation of an editor: the thread's name, and what is being answered in it."""

    def __init__(self, name: str, *, is_begun: bool) -> None:
        self.name = name
        self.is_begun = is_begun  # there is a thread of that name
        self.run = ""  # what is being answered
        self.is_cancelled = False
        self.busy = threading.Lock()
        self.asked: list[str] = []  # ids of requests to the editor that wait


class AcpServer:
    """Answers one editor."""

    def __init__(self, core: CoreCalls, write: Callable[[bytes], None]) -> None:
        self._core = core
        self._write = write
        self._guard = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._answers: dict[str, tuple[threading.Event, list[Any]]] = {}
        self._threads: list[threading.Thread] = []

    def handle_line(self, line: bytes) -> None:
        """Take one line: a request, a notification, or the editor's answer to what it was asked."""
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError):
            self._send({"id": None, "error": {"code": PARSE_ERROR, "message": "a line is one JSON object"}})
            return
        if not isinstance(frame, dict):
            self._send({"id": None, "error": {"code": INVALID_REQUEST, "message": "a line is one JSON object"}})
            return
        method, request_id, params = frame.get("method"), frame.get("id"), frame.get("params") or {}
        if method is None:
            self._take_answer(frame)
        elif not isinstance(method, str) or not isinstance(params, dict):
            self._send({"id": request_id, "error": {"code": INVALID_REQUEST, "message": "method is a name, params an object"}})
        elif method == "session/cancel":
            self._run_beside(lambda: self._cancel(str(params.get("sessionId"))))
        elif "id" not in frame:
            LOG.debug("a notification %s is not known", method)
        else:
            self._run_beside(lambda: self._serve(request_id, method, params))

    def finish(self, seconds: float) -> None:
        """The editor has gone: stop what is being answered, and wait for it a moment."""
        for session in list(self._sessions.values()):
            self._cancel(session.name)
        for thread in self._threads:
            thread.join(seconds)

    # -- requests -----------------------------------------------------------------------------------

    def _serve(self, request_id: Any, method: str, params: dict[str, Any]) -> None:
        methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "initialize": self._initialize,
            "authenticate": lambda given: {},
            "session/new": self._begin_session,
            "session/load": self._load_session,
            "session/list": self._list_sessions,
            "session/prompt": self._prompt,
        }
        try:
            if method not in methods:
                self._send({"id": request_id, "error": {"code": METHOD_NOT_FOUND, "message": f"there is no method {method[:80]}"}})
                return
            self._send({"id": request_id, "result": methods[method](params)})
        except OwlError as error:
            code = INVALID_PARAMS if isinstance(error, BadInput | NotFound) else SERVER_ERROR
            self._send({"id": request_id, "error": {"code": code, "message": str(error), "data": {"outcome": error.outcome}}})

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        can = {"image": False, "audio": False, "embeddedContext": True}
        return {
            "protocolVersion": VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": can,
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}},
            },
            "agentInfo": {"name": "owlbox", "title": "Owlbox", "version": __version__},
            "authMethods": [],
        }

    def _begin_session(self, params: dict[str, Any]) -> dict[str, Any]:
        name = f"{PREFIX}{new_id().replace('-', '')}"
        self._sessions[name] = _Session(name, is_begun=False)
        return {"sessionId": name}

    def _load_session(self, params: dict[str, Any]) -> dict[str, Any]:
        """Show the editor what was said in a thread, and go on with it."""
        name = str(params.get("sessionId") or "")
        view = self._core.call("thread.view", {"id": name, "only": ["user", "assistant"]})
        self._sessions[name] = _Session(name, is_begun=True)
        kinds = {"user": "user_message_chunk", "assistant": "agent_message_chunk"}
        said = [event for event in view["events"] if event["kind"] == "message" and event["content"]]
        for event in said[-MAX_REPLAYED:]:
            self._update(name, {"sessionUpdate": kinds[event["role"]], "content": _text(event["content"])})
        return {}

    def _list_sessions(self, params: dict[str, Any]) -> dict[str, Any]:
        """The threads that editors have begun."""
        found = [one for one in self._core.call("thread.list", {"type": "chat", "limit": 200}) if one["alias"].startswith(PREFIX)]
        cwd = str(params.get("cwd") or "/")
        return {
            "sessions": [
                {"sessionId": one["alias"], "cwd": cwd, "title": escape_invisible(one["title"], "line") or one["alias"]}
                for one in found
            ]
        }

    def _prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._sessions.get(str(params.get("sessionId")))
        if session is None:
            raise NotFound(f"no session {str(params.get('sessionId'))[:80]}", hint="session/new begins one")
        question, behind = read_prompt(params.get("prompt"))
        if not session.busy.acquire(blocking=False):
            raise BadInput("this session is answering already", hint="wait, or cancel it")
        try:
            session.is_cancelled, session.run = False, ""
            return {"stopReason": self._converse(session, question, behind)}
        finally:
            session.run = ""
            session.busy.release()

    def _converse(self, session: _Session, question: str, behind: str) -> str:
        """Hand in a prompt, tell what comes, ask for decisions; why it ended."""
        given: dict[str, Any] = {"text": f"{question}\n\n{behind}" if behind else question}
        given["thread"] = session.name if session.is_begun else ""
        if behind:
            given["own_chars"] = len(question)
        teller = _Teller(self, session)
        result = self._core.call("message.send", given, teller.tell)
        while int(result.get("status", 200)) == WAITING and teller.refs and not session.is_cancelled:
            ref = teller.refs.pop(0)
            action, digest = self._ask_permission(session, ref)
            if not action:
                break
            resolved = {"ref": ref, "run": session.run, "action": action, "wait": True, **({"digest": digest} if digest else {})}
            result = self._core.call("run.resolve", resolved, teller.tell)
        status = int(result.get("status", 200))
        if session.is_cancelled or result.get("outcome") == "cancelled" or status == 499:
            return "cancelled"
        if status >= 400:
            raise OwlError(str(result.get("message") or "the answer ended early"), outcome=str(result.get("outcome") or "failed"))
        teller.say_rest()
        return "end_turn"

    def _ask_permission(self, session: _Session, ref: str) -> tuple[str, str]:
        """What the person decides in the editor, and what they were shown; "" when nobody decides."""
        shown = self._core.call("run.proposal", {"ref": ref, "run": session.run})
        title = " ".join(str(shown["subject"] or shown["action"]).split())[:200]
        content = [{"type": "content", "content": _text(str(shown["patch"] or shown["text"] or title)[:20_000])}]
        title = escape_invisible(title, "exact")
        call = {"toolCallId": ref, "title": f"{shown['action']}: {title}", "kind": _kind(str(shown["action"])), "content": content}
        params = {"sessionId": session.name, "toolCall": {**call, "status": "pending"}, "options": list(OPTIONS)}
        answer = self._ask_editor(session, "session/request_permission", params)
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) and outcome.get("outcome") == "selected" else ""
        return (str(chosen) if chosen in ("accept", "reject") else ""), str(shown.get("digest") or "")

    def _cancel(self, name: str) -> None:
        """Stop what is being answered in a session, and let nobody wait for a decision about it."""
        session = self._sessions.get(name)
        if session is None or not session.busy.locked():
            return
        session.is_cancelled = True
        with self._guard:
            waiting = [self._answers[one] for one in session.asked if one in self._answers]
        for event, _ in waiting:
            event.set()
        if session.run:
            try:
                self._core.call("run.abort", {"run": session.run})
            except OwlError as error:
                LOG.warning("an answer could not be stopped: %s", error)

    # -- the editor's end ---------------------------------------------------------------------------

    def _ask_editor(self, session: _Session, method: str, params: dict[str, Any]) -> Any:
        """The editor's answer; None when it does not come, or is an error."""
        request_id, event, given = f"owl-{new_id()}", threading.Event(), list[Any]()
        with self._guard:
            self._answers[request_id] = (event, given)
            session.asked.append(request_id)
        self._send({"id": request_id, "method": method, "params": params})
        event.wait(ANSWER_S)
        with self._guard:
            self._answers.pop(request_id, None)
            session.asked.remove(request_id)
        return given[0] if given else None

    def _take_answer(self, frame: Mapping[str, Any]) -> None:
        with self._guard:
            found = self._answers.get(str(frame.get("id")))
        if found is not None:
            found[1].append(frame.get("result"))
            found[0].set()

    def _update(self, name: str, update: dict[str, Any]) -> None:
        self._send({"method": "session/update", "params": {"sessionId": name, "update": update}})

    def _send(self, frame: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **frame}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            with self._guard:
                self._write(data)
        except BrokenPipeError:
            LOG.debug("the editor has gone")

    def _run_beside(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="acp", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()


class _Teller:
    """Tells an editor what happens in an answer."""

    def __init__(self, server: AcpServer, session: _Session) -> None:
        self._server = server
        self._session = session
        self._has_said = False
        self._final = ""
        self.refs: list[str] = []

    def tell(self, name: str, value: dict[str, Any]) -> None:
        """One notification of the core."""
        session = self._session
        if name == "accepted":
            session.run = value["run"]
            if not session.is_begun:
                self._server._core.call("run.rename", {"run": value["run"], "alias": session.name})
                session.is_begun = True
            if session.is_cancelled:
                self._server._cancel(session.name)
        elif name == "delta" and value["text"]:
            self._has_said = True
            self._update({"sessionUpdate": "agent_message_chunk", "content": _text(value["text"])})
        elif name == "proposal":
            self.refs += [str(ref) for ref in value.get("refs", ()) if ref not in self.refs]
        elif name == "event":
            self._tell_event(value)

    def say_rest(self) -> None:
        """What was stored as the answer and never streamed, as answers are that no model was asked for."""
        if self._final and not self._has_said:
            self._update({"sessionUpdate": "agent_message_chunk", "content": _text(self._final)})

    def _tell_event(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "message" and event["role"] == "assistant":
            self._final = event["content"]
        elif kind == "thinking" and event["content"]:
            self._update({"sessionUpdate": "agent_thought_chunk", "content": _text(event["content"])})
        elif kind == "tool_use":
            call = {"toolCallId": event["call_id"] or str(event["seq"]), "title": event["tool"], "kind": _kind(event["tool"])}
            self._update({"sessionUpdate": "tool_call", **call, "status": "in_progress", "rawInput": event["input"] or {}})
        elif kind == "tool_result":
            status = "failed" if int(event["status"]) >= 400 else "completed"
            content = [{"type": "content", "content": _text(event["content"][:20_000])}]
            call = {"toolCallId": event["call_id"] or str(event["seq"]), "status": status, "content": content}
            self._update({"sessionUpdate": "tool_call_update", **call})

    def _update(self, update: dict[str, Any]) -> None:
        self._server._update(self._session.name, update)


def read_prompt(blocks: Any) -> tuple[str, str]:
    """The question of a prompt, and the documents that come with it; BadInput for what is not understood."""
    if not isinstance(blocks, Sequence) or isinstance(blocks, str) or not all(isinstance(one, dict) for one in blocks):
        raise BadInput("prompt is a list of content blocks")
    question, behind = [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            question.append(block["text"])
        elif kind == "resource_link":
            behind.append(f"[{block.get('name') or block.get('uri')}]({block.get('uri')})")  # a file's name is not what was typed
        elif kind == "resource" and isinstance(block.get("resource"), dict) and isinstance(block["resource"].get("text"), str):
            behind.append(f"[{block['resource'].get('uri')}]\n{block['resource']['text']}")
        else:
            raise BadInput(f"a block of type {str(kind)[:40]} is not understood", hint="send text, links and text resources")
    if not "".join(question).strip():
        raise BadInput("the prompt has no text", hint="write a question")
    return "\n".join(question), "\n\n".join(behind)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _kind(tool: str) -> str:
    """What kind of thing a tool does, in the protocol's words."""
    for kind, words in (
        ("search", ("search", "find", "grep")),
        ("read", ("read", "get", "view", "list")),
        ("edit", ("write", "edit", "set", "update", "note", "remember")),
        ("delete", ("delete", "rm", "forget")),
        ("execute", ("exec", "sh", "shell", "env")),
        ("fetch", ("fetch", "web")),
    ):
        if any(word == tool or tool.startswith(f"{word}_") or tool.endswith(f"_{word}") for word in words):
            return kind
    return "other"
