"""Programs that speak OpenAI's interface, the official client and the command llm: over the core's socket, and at a port."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from mcp_hubs import real
from needs import leave_out
from test_api import Served, serving

from appliance.errors import Refused
from appliance.http.core_link import CoreLink
from appliance.http.ollama_routes import OllamaRoutes
from appliance.http.openai_routes import OpenAiRoutes
from appliance.http.program_calls import TokenCalls
from appliance.http.server import HttpServer, listen
from appliance.http.site import build_site
from appliance.runtime import paths
from appliance.service.daemon import build_gate
from appliance.service.parts.programs import open_programs

SLOW = {"text": "one two three four five six seven eight nine ten", "chunk_size": 4, "chunk_delay_s": 0.02, "repeat": True}
SAID = {"hoot": "Hoot.", "more": "And more.", "raw": "As it is."}
ANSWERS: dict[str, Any] = {"slow": [SLOW], **{name: [{"text": text, "repeat": True}] for name, text in SAID.items()}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("programs"), ANSWERS) as made:
        server = open_programs(made.core, build_gate(made.core))
        assert server is not None
        server.start()
        yield made
        server.close()


@pytest.fixture(scope="module")
def port(served: Served) -> Iterator[int]:
    sock = listen("127.0.0.1", 0)
    number = int(sock.getsockname()[1])
    routes = OpenAiRoutes(TokenCalls(CoreLink(lambda: Path(served.path))))
    server = HttpServer(sock, build_site("127.0.0.1", number, has_tls=False), [routes, OllamaRoutes(routes)], check_login=_refuse)
    server.start()
    yield number
    server.close()


def _refuse(session: str) -> str:
    raise Refused("nobody logs in here")


def local_client(served: Served) -> openai.OpenAI:
    path = str(paths.programs_socket(served.core.runtime))
    http = httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=60)
    return openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def test_models_are_the_assistant_and_the_local_ones(served: Served) -> None:
    with local_client(served) as client:
        assert [one.id for one in client.models.list()] == ["owl", "local", "embed"]


def test_an_answer_of_the_assistant_is_a_thread_that_goes_on(served: Served) -> None:
    with local_client(served) as client:
        first = client.chat.completions.create(model="owl", messages=[user("[hoot] who?")])
        said = first.choices[0].message.content
        assert (said, first.choices[0].finish_reason, first.object) == ("Hoot.", "stop", "chat.completion")
        talk = [user("[hoot] who?"), {"role": "assistant", "content": said}, user("[more] and then?")]
        second = client.chat.completions.create(model="owl", messages=talk)
        thread = first.to_dict()["thread"]
        assert second.choices[0].message.content == "And more." and second.to_dict()["thread"] == thread
        other = client.chat.completions.create(model="owl", messages=[user("[hoot] who?")])
        assert other.to_dict()["thread"] != thread
        named = client.chat.completions.create(
            model="owl", messages=[user("[more] again")], extra_headers={"X-Owlbox-Thread": thread}
        )
        assert named.to_dict()["thread"] == thread
    events = served.core.runs.events(str(thread))
    assert [e.content for e in events if e.role == "user"] == ["[hoot] who?", "[more] and then?", "[more] again"]


def test_a_history_with_calls_of_the_programs_own_tools_is_read(served: Served) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    talk: list[Any] = [
        user("what time is it?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
        {"role": "assistant", "content": "It is noon."},
        user("[hoot] and now?"),
    ]
    with local_client(served) as client:
        found = client.chat.completions.create(model="owl", messages=talk)
        raw = client.chat.completions.create(model="local", messages=[*talk[:3], user("[raw] and now?")])
        with pytest.raises(openai.BadRequestError, match="needs its content"):
            client.chat.completions.create(model="owl", messages=[*talk[:1], {"role": "assistant", "content": None}, *talk[4:]])
    thread = found.to_dict()["thread"]
    event = next(e for e in served.core.runs.events(str(thread)) if e.role == "user")
    said = "user: what time is it?\nassistant: [called clock with {}]\ntool: noon\nassistant: It is noon."
    assert event.content == f"[hoot] and now?\n\n[said before]\n{said}"
    assert raw.choices[0].message.content == "As it is."


def test_what_was_said_elsewhere_stands_behind_the_question_as_a_document(served: Served) -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        user("tea?"),
        {"role": "assistant", "content": "Green."},
        user("[hoot] who?"),
    ]
    with local_client(served) as client:
        found = client.chat.completions.create(model="owl", messages=talk)  # type: ignore[arg-type]
    event = next(e for e in served.core.runs.events(found.to_dict()["thread"]) if e.role == "user")  # type: ignore[arg-type]
    text = "[hoot] who?\n\n[from the program that asks]\nBe brief.\n\n[said before]\nuser: tea?\nassistant: Green."
    assert event.content == text and (event.input or {})["own"] == len("[hoot] who?")


def ollama(served: Served) -> httpx2.Client:
    path = str(paths.programs_socket(served.core.runtime))
    return httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=60, base_url="http://localhost")


def test_ollamas_interface_lists_the_models_and_says_its_version(served: Served) -> None:
    with ollama(served) as client:
        models = client.get("/api/tags").json()["models"]
        assert [one["model"] for one in models] == ["owl:latest", "local:latest"] and models[0]["details"]["format"] == "gguf"
        assert client.get("/api/version").json()["version"]


@pytest.mark.parametrize("model", ["owl", "owl:latest", "local:latest"])
def test_ollamas_chat_comes_in_lines_or_whole(served: Served, model: str) -> None:
    asked = {"model": model, "messages": [user("[slow] tell")], "options": {"temperature": 0, "num_predict": -1}}
    with ollama(served) as client, client.stream("POST", "/api/chat", json=asked) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    text = "".join(one["message"]["content"] for one in lines)
    assert text == SLOW["text"] and len(lines) > 3
    assert [one["done"] for one in lines] == [False] * (len(lines) - 1) + [True] and lines[-1]["done_reason"] == "stop"
    with ollama(served) as client:
        whole = client.post("/api/chat", json={**asked, "stream": False}).json()
    assert whole["message"] == {"role": "assistant", "content": SLOW["text"]} and whole["done"] and whole["total_duration"] > 0


def test_ollamas_chat_goes_on_in_its_thread(served: Served) -> None:
    talk = [{"role": "system", "content": "You are a voice assistant."}, user("[hoot] who?")]
    with ollama(served) as client:
        answer = client.post("/api/chat", json={"model": "owl", "messages": talk, "stream": False}).json()["message"]
        more = [*talk, answer, user("[more] and then?")]
        client.post("/api/chat", json={"model": "owl", "messages": more, "stream": False}).raise_for_status()
    run = str(served.core.store.value("SELECT run FROM events WHERE content = '[more] and then?' ORDER BY id DESC"))
    said = [e.content for e in served.core.runs.events(run) if e.role == "assistant" and e.kind == "message"]
    assert said == ["Hoot.", "And more."]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 400),
        ({"model": "owl", "messages": []}, 400),
        ({"model": "owl", "messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, 400),
        ({"model": "owl", "messages": [{"role": "user", "content": "x"}], "options": 3}, 400),
        ({"model": ["owl"], "messages": [{"role": "user", "content": "x"}]}, 400),
        ({"model": "nobody", "messages": [{"role": "user", "content": "x"}], "stream": False}, 404),
    ],
)
def test_ollamas_chat_refuses_what_is_wrong(served: Served, port: int, asked: dict[str, Any], status: int) -> None:
    with ollama(served) as client:
        assert client.post("/api/chat", json=asked).status_code == status
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as stranger:
        assert stranger.post("/api/chat", json=asked).status_code in (400, 401)
        assert stranger.get("/api/tags").status_code == 401


@pytest.mark.parametrize("model", ["owl", "local"])
def test_an_answer_is_streamed_in_pieces(served: Served, model: str) -> None:
    with local_client(served) as client:
        told = client.chat.completions.create(
            model=model, messages=[user("[slow] count")], stream=True, stream_options={"include_usage": True}
        )
        chunks = list(told)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(texts) == "one two three four five six seven eight nine ten" and len(texts) > 1
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None


def test_a_local_model_answers_as_it_is_and_nothing_is_recorded(served: Served) -> None:
    before = len(served.core.runs.list_runs(limit=1000))
    talk = [{"role": "system", "content": "Be brief."}, user("[raw] who?")]
    with local_client(served) as client:
        found = client.chat.completions.create(model="local", messages=talk, temperature=0.2, max_tokens=20, stop="\n")  # type: ignore[arg-type]
    assert found.choices[0].message.content == "As it is." and found.model == "local"
    assert len(served.core.runs.list_runs(limit=1000)) == before
    assert found.usage is not None and found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens > 0


def test_a_program_that_hangs_up_stops_the_model_it_borrowed(served: Served) -> None:
    with local_client(served) as client:
        told = client.chat.completions.create(model="local", messages=[user("[slow] count")], stream=True)
        assert next(iter(told)).choices[0].delta.role == "assistant"
        told.close()
        begun = time.monotonic()
        assert (
            client.chat.completions.create(model="local", messages=[user("[raw] who?")]).choices[0].message.content == "As it is."
        )
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("given", "status", "word"),
    [
        ({"model": "gpt-9"}, 404, "no local model gpt-9"),
        ({"messages": []}, 400, "messages must be"),
        ({"messages": [user("x")] * 2 + [{"role": "assistant", "content": "y"}]}, 400, "last message"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}, 400, "only texts"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "role"),
        ({"n": 3}, 400, "n must be 1"),
        ({"model": "local", "temperature": 9.0}, 400, "temperature"),
        ({"model": "local", "tools": [{"type": "function", "function": {"name": "x", "parameters": {}}}]}, 400, "tools"),
        ({"max_tokens": -3}, 400, "max_tokens"),
    ],
)
def test_what_is_wrong_is_told_with_its_status(served: Served, given: dict[str, Any], status: int, word: str) -> None:
    with local_client(served) as client, pytest.raises(openai.APIStatusError, match=word) as failed:
        client.chat.completions.create(**{"model": "owl", "messages": [user("x")], **given})
    assert failed.value.status_code == status


def test_a_port_takes_requests_with_a_token_alone_and_works_as_its_person(served: Served, port: int) -> None:
    made = served.call("login.token", name="kitchen", person="cook")
    assert made["token"].startswith("owl-")
    rows = served.core.store.rows("SELECT agent, token_hash FROM logins WHERE person = 'cook'")
    assert rows[0][0] == "program: kitchen" and made["token"].encode() not in bytes(rows[0][1])

    def client(token: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=token, max_retries=0, timeout=60)

    with client(made["token"]) as cook:
        found = cook.chat.completions.create(model="owl", messages=[user("[hoot] who?")])
        run = served.core.runs.get(str(found.to_dict()["thread"]))
        assert found.choices[0].message.content == "Hoot." and served.core.runs.person(run.session) == "cook"
        told = cook.chat.completions.create(model="local", messages=[user("[slow] count")], stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in told).endswith("ten")
    mine = served.call("message.send", text="[hoot] for my eyes only")["run"]
    headers = {"X-Owlbox-Thread": mine}
    with client(made["token"]) as cook, pytest.raises(openai.NotFoundError):
        cook.chat.completions.create(model="owl", messages=[user("[more] tell")], extra_headers=headers)
    for wrong in ("owl-nothing", "none", made["token"][:-1]):
        with client(wrong) as stranger, pytest.raises(openai.AuthenticationError):
            stranger.models.list()
    login = next(one for one in served.call("login.list") if one["agent"] == "program: kitchen")
    served.call("login.end", id=login["id"])
    with client(made["token"]) as cook, pytest.raises(openai.AuthenticationError):
        cook.models.list()


def test_a_wrong_token_at_the_unix_socket_is_refused_and_none_is_whoever_the_kernel_says(served: Served) -> None:
    path = str(paths.programs_socket(served.core.runtime))
    for token, status in (("owl-wrong", "401"), ("anything else", "200")):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(path)
            sock.sendall(f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.split(b" ")[1].decode() == status, answer
        assert json.loads(answer.rpartition(b"\r\n\r\n")[2])


# -- the command llm ----------------------------------------------------------------------------------

MODELS = """
- model_id: {name}
  model_name: {model}
  api_base: "http://127.0.0.1:{port}/v1"
  api_key_name: owlbox
"""


@dataclass
class Llm:
    """The command of llm.datasette.io, configured as docs/guides/programs.md says."""

    program: Path
    environ: dict[str, str]

    def run(self, *words: str) -> str:
        """What it prints."""
        done = subprocess.run([self.program, *words], env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stream(self, *words: str) -> list[str]:
        """What it prints, in the pieces in which it does."""
        command = [self.program, *words]
        with subprocess.Popen(command, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as child:
            assert child.stdout is not None
            return [piece.decode() for piece in iter(lambda: child.stdout.read(4096), b"")]  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def llm(served: Served, port: int, tmp_path_factory: pytest.TempPathFactory) -> Llm:
    program, folder = real() / "venv/bin/llm", tmp_path_factory.mktemp("llm")
    if not program.exists():
        leave_out("llm is not there: make servers")
    token = served.call("login.token", name="llm", person="cook")["token"]
    names = {"owl": "owl", "owl-local": "local"}
    (folder / "extra-openai-models.yaml").write_text(
        "".join(MODELS.format(name=name, model=model, port=port) for name, model in names.items())
    )
    made = Llm(program, {**os.environ, "LLM_USER_PATH": str(folder), "PYTHONUNBUFFERED": "1"})
    made.run("keys", "set", "owlbox", "--value", token)
    return made


def test_the_command_llm_asks_and_goes_on_in_the_same_thread(served: Served, llm: Llm) -> None:
    assert llm.run("-m", "owl", "--no-stream", "[hoot] who calls?") == "Hoot."
    assert llm.run("-c", "[more] and then?") == "And more.", "a conversation goes on, streamed or not"
    asked = {e.content: e.run for e in said_by(served, "cook")}
    runs = {asked[text] for text in ("[hoot] who calls?", "[more] and then?")}
    assert len(runs) == 1


@pytest.mark.parametrize("model", ["owl", "owl-local"])
def test_the_command_llm_shows_an_answer_as_it_is_written(llm: Llm, model: str) -> None:
    pieces = llm.stream("-m", model, "[slow] count")
    assert "".join(pieces).strip() == SLOW["text"] and len(pieces) > 3


def test_the_command_llm_borrows_the_local_model_and_is_told_of_a_wrong_token(served: Served, llm: Llm) -> None:
    before = len(served.core.runs.list_runs(limit=1000))
    words = (
        "-m",
        "owl-local",
        "-s",
        "Be brief.",
        "-o",
        "temperature",
        "0.2",
        "-o",
        "max_tokens",
        "20",
        "--no-stream",
        "[raw] who?",
    )
    assert llm.run(*words) == "As it is."
    assert len(served.core.runs.list_runs(limit=1000)) == before
    done = subprocess.run(
        [llm.program, "-m", "owl", "--key", "owl-wrong", "[hoot]"],
        env=llm.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "token" in done.stderr


def said_by(served: Served, person: str) -> list[Any]:
    """What a person said, in all threads."""
    runs = [one for one in served.core.runs.list_runs(limit=1000) if served.core.runs.person(one.session) == person]
    return [event for run in runs for event in served.core.runs.events(run.id) if event.role == "user"]
