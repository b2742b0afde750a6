"""Servers of tools over a real bridge: a server in its sandbox that does what no server should, one behind an address."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mcp_hubs import Stand, log_in, standing, stub, website
from needs import needs
from process import until
from record_tools import replace

from appliance.clock import CancelToken, monotonic_s, sleep_s
from appliance.errors import ConfigError, NotFound, OwlError, Refused, ServerError
from appliance.runtime.settings import Config
from appliance.runtime.tool_settings import ToolSettings

pytestmark = [needs("bwrap", "perl", "python3")]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("mcp")) as made:
        made.add_stub("stub", env={"COLOUR": "grey", "API_TOKEN": "hush-hush-hush"})
        made.hub.tools("stub")
        yield made


def gone(stand: Stand, pid: int) -> None:
    """Wait until a process is no more."""
    end_s = monotonic_s() + 60
    while os.path.exists(f"/proc/{pid}") and monotonic_s() < end_s:
        sleep_s(0.02)


@pytest.mark.covers("B-140", "S-096", "E-243")
def test_blocks_of_every_kind_become_text(stand: Stand) -> None:
    reply = stand.hub.call("stub", "parts", {})
    assert reply.text.splitlines() == [
        "one",
        "[picture 1, image/png, 1 kB]",
        "[note://1, text/plain]",
        "inside",
        "[note://2, application/x-y, 1 kB]",
        "[link to note://3: third]",
        "[sound, audio/wav, 1 kB]",
        "two[31m",
    ]
    assert [(image.media_type, image.data) for image in reply.images] == [("image/png", "aGVsbG8=")]


@pytest.mark.covers("E-241", "E-242", "E-243", "B-139", "S-096")
@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("connect ECONNREFUSED 127.0.0.1:80", "retryable"),
        ("getaddrinfo ENOTFOUND example.test", "retryable"),
        ("request timed out", "retryable"),
        ("429: invalid pace", "retryable"),
        ("HTTP 503", "retryable"),
        ("HTTP 401", "auth_error"),
        ("you are unauthorized", "auth_error"),
        ("403", "auth_error"),
        ("invalid date", "input_error"),
        ("field is required", "input_error"),
        ("does not fit the schema", "input_error"),
        ("the moon is full", "permanent"),
        ("", "permanent"),
    ],
)
def test_errors_of_servers_are_told_apart(stand: Stand, words: str, kind: str) -> None:
    reply = stand.hub.call("stub", "fail", {"text": words})
    assert (reply.is_error, reply.kind, bool(reply.hint), bool(reply.text)) == (True, kind, True, True)


def test_an_error_of_the_protocol_is_told_apart_as_well(stand: Stand) -> None:
    with pytest.raises(ServerError, match="server stub: quota 429") as caught:
        stand.hub.call("stub", "refuse", {"text": "quota 429"})
    assert (caught.value.outcome, caught.value.status) == ("retryable", 503)
    assert stand.text("stub", "echo", "still here") == "echo: still here"


@pytest.mark.covers("A-170")
def test_a_server_sees_what_is_named_for_it_and_nothing_else(stand: Stand) -> None:
    seen = json.loads(stand.text("stub", "environment"))
    assert seen["env"]["COLOUR"] == "grey" and seen["env"]["API_TOKEN"] == "hush-hush-hush"
    ours = {name for name in os.environ if name not in ("PATH", "HOME", "USER", "LANG", "TMPDIR", "PWD", "LC_CTYPE")}
    assert not ours & set(seen["env"]) and seen["cwd"] == "/work"
    assert not {"root", "home", "srv", "opt"} & set(seen["root"])
    for path in (stand.home.database, stand.home.root / "servers.json", Path("/etc/shadow"), Path(__file__)):
        assert stand.text("stub", "read", str(path)).startswith("FileNotFoundError")
    for path in ("/usr/mine", "/servers/stub.py", "/etc/mine", "/mine"):
        assert "Error: " in stand.text("stub", "write", path)
    assert stand.text("stub", "write", "/work/mine") == "done: 4"
    assert (stand.home.root / "servers/stub/mine").read_text() == "mine"


@pytest.mark.covers("B-137")
def test_secrets_of_a_server_are_in_the_vault_and_not_in_the_file(stand: Stand) -> None:
    assert stand.vault["mcp/stub-API_TOKEN"] == "hush-hush-hush"
    written = (stand.home.root / "servers.json").read_text()
    assert "hush" not in written and '"secret:mcp/stub-API_TOKEN"' in written and '"grey"' in written
    assert (stand.home.root / "servers.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.covers("A-170")
def test_the_network_is_there_for_those_alone_that_were_given_it(stand: Stand) -> None:
    with website() as site:
        port = site.url.split(":")[2].removesuffix("/mcp")
        assert "Error: " in stand.text("stub", "reach", port)
        stand.add_stub("outgoing", network=True)
        assert stand.text("outgoing", "reach", port) == f"done: {port}"
        assert "Error: " in stand.text("outgoing", "write", "/etc/mine")


@pytest.mark.covers("A-170")
def test_folders_are_seen_as_they_are_named(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> None:
    shown, own = tmp_path_factory.mktemp("shown"), tmp_path_factory.mktemp("own")
    (shown / "note").write_text("look")
    stand.add_stub("reader", mounts=[f"{shown}:/books"], writable=[f"{own}:/shelf"])
    assert stand.text("reader", "read", "/books/note") == "done: look"
    assert "Error: " in stand.text("reader", "write", "/books/note")
    assert stand.text("reader", "write", "/shelf/made") == "done: 4" and (own / "made").read_text() == "mine"


@pytest.mark.covers("A-057")
def test_no_server_is_shown_the_home_of_the_owl(stand: Stand) -> None:
    home = stand.home.root
    (home / "box").mkdir()
    inner = {"mounts": [f"{home}/box:/box"]}
    for keys in ({"mounts": [f"{home.parent}:/data"]}, {"writable": [str(home)]}, inner, {"cwd": str(home)}):
        with pytest.raises(Refused, match="holds the home of owlbox"):
            stand.add_stub("nosy", **keys)
        assert "nosy" not in stand.hub.servers()


def test_what_a_server_asks_back_is_refused_or_harmless(stand: Stand) -> None:
    roots = json.loads(stand.text("stub", "ask", "roots/list"))
    assert [root["uri"] for root in roots["roots"]] == ["file:///work"]
    assert json.loads(stand.text("stub", "ask", "elicitation/create")) == {"action": "decline"}
    refused = json.loads(stand.text("stub", "ask", "sampling/createMessage"))
    assert refused["code"] < 0 and "content" not in refused


def test_greetings_between_messages_are_passed_over(stand: Stand) -> None:
    assert stand.text("stub", "garbage", "x") == "garbage: x"


def test_very_long_answers_are_cut_and_say_so(stand: Stand) -> None:
    text = stand.text("stub", "huge", "2500000")
    assert len(text) < 2_000_100 and text.endswith("[cut: 1999920 of 2500000 characters kept]")


@pytest.mark.covers("A-170", "B-139")
def test_a_server_that_dies_in_a_call_is_started_again_by_the_next(stand: Stand) -> None:
    with pytest.raises(ServerError, match=r"server stub ended: it ended with 3: .*I am going") as caught:
        stand.hub.call("stub", "die", {})
    assert (caught.value.outcome, caught.value.hint) == ("retryable", "it is started again by the next call")
    assert stand.text("stub", "echo", "again") == "echo: again"


def test_a_server_that_dies_while_nobody_asks_costs_nobody_anything(stand: Stand) -> None:
    stand.text("stub", "echo")
    pid = stand.kill("stub")
    until(lambda: not stand.hub.status()["servers"]["stub"]["is_open"], "the bridge has seen its end")
    assert stand.text("stub", "echo", "x") == "echo: x"
    assert stand.pid("stub") != pid


def test_a_bridge_that_is_killed_is_started_again(stand: Stand) -> None:
    stand.text("stub", "echo")
    child = stand.ferry._child
    assert child is not None
    child.kill()
    child.wait()
    assert stand.text("stub", "echo", "y") == "echo: y"


def test_a_call_can_be_stopped_and_takes_no_other_with_it(stand: Stand) -> None:
    stand.add_stub("slow")
    stand.hub.tools("slow")
    stop, done = CancelToken(), []

    def call() -> None:
        try:
            stand.hub.call("slow", "hang", {}, cancel=stop)
        except OwlError as error:
            done.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert stand.text("stub", "echo", "meanwhile") == "echo: meanwhile"
    stop.set()
    thread.join(60)
    assert len(done) == 1 and not thread.is_alive()
    stand.hub.remove("slow")


@pytest.mark.covers("B-139")
def test_a_call_that_takes_too_long_is_retryable(stand: Stand) -> None:
    stand.add_stub("sleeper")
    with pytest.raises(ServerError, match="did not answer in time") as caught:
        stand.hub.call("sleeper", "hang", {}, timeout_s=0.3)
    assert caught.value.outcome == "retryable"
    assert stand.text("sleeper", "echo", "up") == "echo: up"  # it hung, so it was ended and started again
    stand.hub.remove("sleeper")


@pytest.mark.covers("S-097", "E-244")
def test_a_server_that_cannot_be_reached_costs_a_warning(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    stand.hub.add("away", {"url": "http://127.0.0.1:1/mcp"})
    stand.add_stub("broken", args=["--late"])
    with caplog.at_level(logging.WARNING, "appliance.mcp.hub"):
        found = stand.hub.listing()
    stand.hub.remove("away")
    stand.hub.remove("broken")
    assert "stub/echo" in [f"{ware.server}/{ware.name}" for ware in found.wares]
    assert "away: server away" in found.note and "broken: server broken ended: it ended with 1: cannot start" in found.note
    assert sum("gives no tools" in record.message for record in caplog.records) == 2


def test_a_server_that_goes_on_failing_is_left_alone_for_longer(stand: Stand) -> None:
    stand.add_stub("crashing", args=["--late"])
    said = [""]
    while "is tried again in" not in said[-1] and len(said) < 12:  # a pause is over before a slow machine asks again
        with pytest.raises(ServerError) as caught:
            stand.hub.ping("crashing")
        said.append(caught.value.message)
    stand.hub.remove("crashing")
    assert "cannot start" in said[1] and "is tried again in" in said[-1]


def test_lists_are_asked_anew_when_the_server_says_that_they_changed(stand: Stand) -> None:
    stand.add_stub("growing")
    assert "late" not in [ware.name for ware in stand.hub.tools("growing")]
    stand.text("growing", "grow")
    stand.text("growing", "echo", "so that it is told")
    assert "late" in [ware.name for ware in stand.hub.tools("growing")]


@pytest.mark.covers("B-138")
def test_looking_needs_no_living_server(stand: Stand) -> None:
    stand.hub.listing()
    stand.ferry.stop()
    assert stand.ferry.pid is None
    stand.ferry._is_closed = False
    assert [ware.name for ware in stand.hub.search("louder words again", keyword_only=True).wares][:1] == ["echo"]
    assert stand.hub.info("stub", "echo").schema["required"] == ["text"]
    assert len(stand.hub.tools("stub")) > 10
    assert stand.ferry.pid is None


def test_a_tool_that_is_not_there_is_not_even_asked_for(stand: Stand) -> None:
    with pytest.raises(ServerError, match="no tool 'ecko'") as caught:
        stand.hub.call("stub", "ecko", {})
    assert caught.value.outcome == "input_error" and "echo" in caught.value.hint
    with pytest.raises(NotFound, match="no server stubb"):
        stand.hub.call("stubb", "echo", {})


@pytest.mark.covers("A-170")
def test_every_call_is_on_record(stand: Stand) -> None:
    stand.hub.call("stub", "fail", {"text": "429"}, run="r1", session="tui:me")
    kind, about = stand.notes[-1]
    assert (kind, about["actor"], about["run"], about["session"]) == ("server_call", "mcp:stub", "r1", "tui:me")
    assert about["detail"]["tool"] == "fail" and about["detail"]["outcome"] == "retryable" and "429" not in str(about["detail"])


def test_resources_and_prompts_are_text(stand: Stand) -> None:
    assert stand.hub.read("stub", "resource", "note://1")["text"] == "[note://1]\na note"
    assert stand.hub.read("stub", "prompt", "greet", {"who": "Ada"})["text"] == "user: Hello Ada"
    about = stand.hub.offer("stub").about
    assert about["instructions"] == "be kind" and about["prompts"][0]["name"] == "greet"
    with pytest.raises(ServerError):
        stand.hub.task("stub", "get", "t1")


# -- behind an address --------------------------------------------------------------------------------


@pytest.mark.covers("S-095", "B-137")
def test_a_server_behind_an_address_gets_its_headers(stand: Stand) -> None:
    with website(header=("X-Api-Key", "open-sesame")) as site:
        stand.hub.add("site", {"url": site.url, "headers": {"X-Api-Key": "open-sesame"}})
        assert stand.text("site", "shout", "hi") == "HI"
        assert stand.vault["mcp/site-X-Api-Key"] == "open-sesame"
        stand.hub.remove("site")
        assert "mcp/site-X-Api-Key" not in stand.vault


@pytest.mark.covers("B-139", "E-241")
@pytest.mark.parametrize(("status", "kind"), [(401, "auth_error"), (403, "auth_error"), (429, "retryable"), (503, "retryable")])
def test_refusals_by_http_are_told_apart(stand: Stand, status: int, kind: str) -> None:
    with website(status=status) as site:
        stand.hub.add("site", {"url": site.url})
        try:
            with pytest.raises(ServerError) as caught:
                stand.hub.call("site", "shout", {})
            assert (caught.value.outcome, bool(caught.value.hint)) == (kind, True)
        finally:
            stand.hub.remove("site")


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """Another service of this machine, and what it was asked for."""
    heard: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def answer(self) -> None:
            heard.append(f"{self.command} {self.path}")
            self.send_error(404)

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", heard
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.covers("B-142")
@pytest.mark.parametrize("way", ["metadata", "issuer", "register", "token", "redirect"])
def test_a_login_leads_nowhere_but_to_the_public_web(stand: Stand, way: str) -> None:
    with listening() as (inside, heard), website(wants_login=True, leads={way: inside}) as site:
        stand.hub.add("club", {"url": site.url})

        def open_it(name: str, about: dict[str, str]) -> None:
            threading.Thread(target=log_in, args=(about["address"],), daemon=True).start()

        try:
            if way == "redirect":  # is not followed, and the server's own login page is found without it
                stand.hub.login("club", open_it)
            else:
                with pytest.raises(OwlError, match="is this machine"):
                    stand.hub.login("club", open_it)
            assert heard == []
        finally:
            stand.hub.remove("club")


@pytest.mark.covers("B-142")
def test_a_login_is_kept_renewed_and_forgotten(stand: Stand) -> None:
    with website(wants_login=True, lifetime_s=1) as site:
        stand.hub.add("club", {"url": site.url})
        with pytest.raises(ServerError) as caught:
            stand.hub.tools("club")
        assert caught.value.outcome == "auth_error" and "owlbox mcp auth club" in caught.value.hint
        told: list[str] = []

        def open_it(name: str, about: dict[str, str]) -> None:
            told.append(name)
            threading.Thread(target=log_in, args=(about["address"],), daemon=True).start()

        assert stand.hub.login("club", open_it)["is_needed"] and told == ["mcp.authorize"]
        assert json.loads(stand.vault["mcp/club-login"])["tokens"]["access_token"] in site.tokens
        assert stand.text("club", "shout", "hi") == "HI"
        site.tokens.clear()  # the token is no longer taken: it is renewed without a person
        sleep_s(1.1)
        stand.ferry.call("close", {"name": "club"}, deadline_s=30)
        assert stand.text("club", "shout", "you") == "YOU" and site.refreshes >= 1
        assert json.loads(stand.vault["mcp/club-login"])["tokens"]["access_token"] in site.tokens
        assert stand.hub.logout("club")["is_changed"] and "mcp/club-login" not in stand.vault
        assert not stand.hub.logout("club")["is_changed"]
        with pytest.raises(ServerError):
            stand.hub.call("club", "shout", {})
        stand.hub.remove("club")


def test_a_name_that_was_given_to_us_is_used_at_the_login(stand: Stand) -> None:
    with website(wants_login=True) as site:
        stand.hub.add("known", {"url": site.url, "client_id": "owl-7", "client_secret": "between-us"})
        assert stand.vault["mcp/known-client_secret"] == "between-us"
        assert "between-us" not in (stand.home.root / "servers.json").read_text()

        def open_it(name: str, about: dict[str, str]) -> None:
            assert "client_id=owl-7" in about["address"]
            threading.Thread(target=log_in, args=(about["address"],), daemon=True).start()

        assert stand.hub.login("known", open_it)["is_needed"] and site.registrations == 0
        assert stand.text("known", "shout", "hi") == "HI"
        stand.hub.remove("known")
        assert "mcp/known-client_secret" not in stand.vault


def test_a_program_may_log_in_by_itself_where_it_was_given_a_secret(stand: Stand) -> None:
    with website(wants_login=True) as site:
        given = {"url": site.url, "client_id": "owl-8", "client_secret": "between-us"}
        stand.hub.add("robot", {**given, "issuer": site.root})
        assert stand.text("robot", "shout", "hi") == "HI" and site.grants == ["owl-8:between-us"]
        site.tokens.clear()  # no longer taken: it logs in anew
        assert stand.text("robot", "shout", "you") == "YOU" and len(site.grants) == 2 and site.registrations == 0
        stand.hub.remove("robot")
        assert not [name for name in stand.vault if name.startswith("mcp/robot")]
        stand.hub.add("misled", {**given, "issuer": "https://elsewhere.example"})
        with pytest.raises(ServerError):
            stand.hub.tools("misled")
        assert len(site.grants) == 2, "the secret goes to who gave it and to nobody else"
        stand.hub.remove("misled")
    with pytest.raises(ConfigError, match="client_secret"):
        stand.hub.add("half", {"url": "https://x.example", "client_id": "owl-9", "issuer": "https://x.example"})


def test_a_login_can_be_answered_with_a_pasted_address(stand: Stand) -> None:
    with website(wants_login=True) as site:
        stand.hub.add("afar", {"url": site.url})

        def paste(name: str, about: dict[str, str]) -> None:
            import http.client
            from urllib.parse import urlsplit

            place = urlsplit(about["address"])
            line = http.client.HTTPConnection(place.netloc, timeout=180)
            line.request("GET", f"{place.path}?{place.query}")
            where = line.getresponse().headers["Location"]
            line.close()
            threading.Thread(target=stand.hub.answer, args=("afar", where), daemon=True).start()

        assert stand.hub.login("afar", paste)["is_needed"]
        stand.hub.remove("afar", keep_auth=True)
        assert "mcp/afar-login" in stand.vault
        with pytest.raises(NotFound, match="nobody is logging in"):
            stand.hub.answer("afar", "http://x/?code=1")


# -- beginning and end ----------------------------------------------------------------------------------


@pytest.mark.covers("S-098", "E-245", "B-141")
def test_closing_is_safe_before_after_and_twice(tmp_path: Path) -> None:
    with standing(tmp_path) as made:
        made.hub.close()
        made.hub.close()
        made.add_stub("stub")
        with pytest.raises(ServerError, match="shutting down"):
            made.hub.tools("stub")


@pytest.mark.covers("E-245")
@pytest.mark.parametrize("what", ["server", "bridge"])
def test_closing_is_safe_when_the_other_end_is_gone(tmp_path: Path, what: str) -> None:
    with standing(tmp_path) as made:
        made.add_stub("stub")
        assert made.text("stub", "echo", "hoot")
        if what == "server":
            made.kill("stub")
        else:
            made.ferry._child.kill()  # type: ignore[union-attr]
        made.hub.close()
        made.hub.close()
        with pytest.raises(ServerError, match="shutting down"):
            made.hub.tools("stub")


@pytest.mark.covers("S-098", "B-141")
def test_servers_end_with_the_core_and_when_they_are_idle(tmp_path: Path) -> None:
    tools = [ToolSettings()]
    with standing(tmp_path, settings=lambda: replace(Config(), tools=tools[0]), OWLBOX_LINGER_S="0.2") as made:
        made.add_stub("stub")
        made.text("stub", "echo")
        server, bridge = made.pid("stub"), made.ferry.pid
        tools[0] = replace(tools[0], mcp_idle_s=1)
        made.text("stub", "echo")
        gone(made, server)
        assert not os.path.exists(f"/proc/{server}")
        end_s = monotonic_s() + 60
        while made.ferry.pid is not None and monotonic_s() < end_s:
            sleep_s(0.05)
        assert made.ferry.pid is None and bridge is not None
        tools[0] = ToolSettings()
        assert made.text("stub", "echo", "back") == "echo: back"  # and it comes again when it is needed
        server = made.pid("stub")
        made.hub.close()
        gone(made, server)
        assert not os.path.exists(f"/proc/{server}")


def test_a_bridge_answers_no_other_core(tmp_path: Path) -> None:
    from appliance.errors import Refused
    from appliance.runtime.rpc_client import Client

    with standing(tmp_path) as made:
        made.add_stub("stub")
        made.text("stub", "echo")
        with pytest.raises(Refused):
            Client(str(made.ferry._path), name="other", token="guessed")


@pytest.mark.covers("B-137", "E-240")
def test_without_servers_everything_says_how_to_add_one(tmp_path: Path) -> None:
    with standing(tmp_path) as made:
        hub = made.hub
        for ask in (hub.listing, lambda: hub.search("x"), lambda: hub.info("a", "b"), lambda: hub.call("a", "b", {})):
            with pytest.raises(ServerError, match="there are no servers") as caught:
                ask()
            assert caught.value.outcome == "permanent" and "owlbox mcp add" in caught.value.hint
        assert not made.hub.has_servers and made.hub.entries() == [] and made.ferry.pid is None


def test_names_of_entries_and_their_keys_are_checked(tmp_path: Path) -> None:
    with standing(tmp_path) as made:
        for name, entry in (
            ("a/b", stub()),
            ("x", {"command": "/does/not/exist"}),
            ("x", {"command": "no-such-program"}),
            ("x", {"url": "ftp://x"}),
            ("x", {"command": "python3", "transport": "smoke"}),
            ("x", {"command": "python3", "colour": "red"}),
            ("x", {}),
        ):
            with pytest.raises(OwlError):
                made.hub.add(name, entry)
        assert not (made.home.root / "servers.json").exists()
