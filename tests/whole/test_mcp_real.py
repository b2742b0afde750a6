"""Real servers of tools, each in its sandbox: listed, searched, called, killed and started again."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_hubs import Stand, real, standing
from needs import needs

from appliance.clock import sleep_s
from appliance.errors import ServerError

pytestmark = [needs("bwrap", "perl")]
# Each with what it has, a purpose that leads there, and a call with what the answer holds.
SERVERS = {
    "time": ("venv/bin/mcp-server-time", [], "convert_time", "time in another timezone", "convert_time"),
    "git": ("venv/bin/mcp-server-git", [], "git_log", "commits of a repository", "git_log"),
    "every": ("node_modules/.bin/mcp-server-everything", [], "echo", "echoes the input string", "echo"),
    "files": ("node_modules/.bin/mcp-server-filesystem", ["/work"], "write_file", "create a new file with content", "write_file"),
    "memory": ("node_modules/.bin/mcp-server-memory", [], "create_entities", "entities in the knowledge graph", "create_entities"),
}
CALLS: dict[str, tuple[str, dict[str, object], str]] = {
    "time": ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "21:00"),
    "git": ("git_log", {"repo_path": "/repository", "max_count": 1}, "the first of all"),
    "every": ("echo", {"message": "owls"}, "owls"),
    "files": ("write_file", {"path": "/work/note.txt", "content": "mice"}, "note.txt"),
    "memory": (
        "create_entities",
        {"entities": [{"name": "Ada", "entityType": "person", "observations": ["likes owls"]}]},
        "likes owls",
    ),
}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    root = real()
    repository = tmp_path_factory.mktemp("repository")
    who = "-c user.name=Ada -c user.email=ada@example.test -c init.defaultBranch=main"
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the first of all"]):
        subprocess.run(["git", "-C", str(repository), *who.split(), *words], check=True)
    with standing(tmp_path_factory.mktemp("real")) as made:
        for name, (program, args, *_) in SERVERS.items():
            if not (root / program).exists():
                continue
            more = {"mounts": [f"{repository}:/repository"]} if name == "git" else {}
            more |= {"env": {"MEMORY_FILE_PATH": "/work/memory.jsonl"}} if name == "memory" else {}
            made.hub.add(name, {"command": str(root / program), "args": args, **more})
        assert made.hub.listing().note == ""
        yield made


def require(stand: Stand, name: str) -> None:
    """Leave the test out when its server could not be fetched, in CI too: registries are no part of what is tested."""
    if name not in stand.hub.names():
        pytest.skip(f"{SERVERS[name][0]} could not be fetched from its registry")


@pytest.mark.covers("A-170", "B-138", "S-095", "S-096")
@pytest.mark.parametrize("name", SERVERS)
def test_a_real_server_is_listed_searched_called_killed_and_started_again(stand: Stand, name: str) -> None:
    require(stand, name)
    _, _, tool, purpose, found = SERVERS[name]
    called, arguments, holds = CALLS[name]
    assert tool in [ware.name for ware in stand.hub.tools(name)]
    assert (name, found) in [(ware.server, ware.name) for ware in stand.hub.search(purpose, keyword_only=True).wares]
    assert stand.hub.info(name, tool).schema["type"] == "object"
    reply = stand.hub.call(name, called, arguments)
    assert not reply.is_error and holds in reply.text, reply
    stand.kill(name)
    assert stand.hub.ping(name)[0]["protocol"]
    assert not stand.hub.call(name, called, arguments).is_error


def test_a_real_server_that_is_killed_in_a_call_says_so(stand: Stand) -> None:
    require(stand, "every")
    said: list[str] = []

    def call() -> None:
        try:
            stand.hub.call("every", "trigger-long-running-operation", {"duration": 60, "steps": 60})
        except ServerError as error:
            said.append(error.outcome)

    stand.hub.ping("every")
    thread = threading.Thread(target=call)
    thread.start()
    for _ in range(60):  # a call that had not come so far starts another one
        sleep_s(0.5)
        if said:
            break
        if stand.pid("every"):
            stand.kill("every")
    thread.join(60)
    assert said == ["retryable"]
    assert stand.hub.call("every", "echo", {"message": "back"}).text == "Echo: back"


@pytest.mark.covers("B-140")
def test_pictures_links_and_structure_of_a_real_server(stand: Stand) -> None:
    require(stand, "every")
    picture = stand.hub.call("every", "get-tiny-image", {})
    assert len(picture.images) == 1 and "[picture 1, image/png" in picture.text
    links = stand.hub.call("every", "get-resource-links", {"count": 2}).text
    assert links.count("[link to demo://resource") == 2
    structured = stand.hub.call("every", "get-structured-content", {"location": "Chicago"})
    assert isinstance(structured.data, dict) and json.loads(structured.text) == structured.data


def test_what_a_real_server_keeps_stays_in_its_own_folder(stand: Stand) -> None:
    require(stand, "files")
    require(stand, "time")
    stand.hub.call("files", "write_file", {"path": "/work/kept.txt", "content": "kept"})
    folder = Path(stand.home.root / "servers")
    assert (folder / "files/kept.txt").read_text() == "kept"
    refused = stand.hub.call("files", "read_text_file", {"path": "/etc/passwd"})
    assert refused.is_error and "outside" in refused.text
    assert not list((folder / "time").iterdir())
