"""Everything that can go wrong between a provider and us: each has its class, its wait and its own first line, and no key."""

import email.utils
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import wire
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Authority
from test_providers import CLASSES, REMOTE, STORY, ask, asking, remote
from wire import Half, HangUp, Raw, Silence, Status

from appliance.clock import CancelToken, monotonic_s, now_ms
from appliance.errors import Cancelled, ConfigError, DeadlineExceeded, OwlError, ProviderError, TooLarge, from_outcome
from appliance.providers import error_mapping
from appliance.providers.error_mapping import Heard, clean, fault, wait_of, window_in
from appliance.records import Finish, Piece, Route

KEY = "sk-canary-12345678"
SOON_S = 20.0


@pytest.fixture(params=REMOTE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def failed(server: wire.Wire, kind: str, **more: Any) -> tuple[list[Piece], ProviderError]:
    """What came before an error, and the error."""
    made, route = asking(server, kind, **more)
    found: list[Any] = []
    with pytest.raises(OwlError) as caught:
        for piece in made.generate(route, ask(), CancelToken()):
            found.append(piece)
    made.close()
    assert isinstance(caught.value, ProviderError), repr(caught.value)
    assert KEY not in repr(caught.value) + str(caught.value)
    assert not any(isinstance(piece, Finish) for piece in found)
    return found, caught.value


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


TABLE = [
    (Status(401, said("Invalid API key provided: sk-canary-12345678")), "authentication_failed", ""),
    (Status(403, said("Your key may not use this model")), "authentication_failed", ""),
    (Status(402, said("Insufficient Balance")), "authentication_failed", ""),
    (Status(429, said("You exceeded your current quota, check billing", code="insufficient_quota")), "authentication_failed", ""),
    (Status(400, said("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT")), "authentication_failed", ""),
    (Status(429, said("Rate limit reached for requests")), "rate_limited", "rate"),
    (Status(429, said("Rate limit: 30000 input tokens per minute exceeded")), "rate_limited", "rate"),
    (Status(404, said("The model `x` does not exist")), "model_not_found", ""),
    (Status(400, said("Unknown model: x")), "model_not_found", ""),
    (Status(400, said("registry.ollama.ai/library/gemma:2b does not support tools")), "model_not_supported", ""),
    (Status(404, said("No endpoints found that support tool use. To learn more, visit")), "model_not_supported", ""),
    (Status(400, said('"auto" tool choice requires --enable-auto-tool-choice to be set')), "model_not_supported", ""),
    (Status(500, said("tools param requires --jinja flag")), "model_not_supported", ""),
    (Status(400, said("`tool calling` is not supported with this model")), "model_not_supported", ""),
    (Status(400, said("Function calling is not enabled for models/gemma-3-27b-it")), "model_not_supported", ""),
    (Status(400, said("tools.0.input_schema: Field required")), "invalid_request", ""),
    (Status(400, said("An assistant message with tool_calls must be followed by tool messages")), "invalid_request", ""),
    (Status(500, said("internal error while calling a function")), "upstream_error", "server"),
    (Status(400, said("messages.0.role: unexpected value")), "invalid_request", ""),
    (Status(422, said("Field required")), "invalid_request", ""),
    (Status(400, said("prompt is too long: 210000 tokens > 200000 maximum")), "context_too_long", ""),
    (Status(400, said("The input token count (9) exceeds the maximum number of tokens allowed (8).")), "context_too_long", ""),
    (Status(400, said("the request exceeds the available context size", type="exceed_context_size_error")), "context_too_long", ""),
    (Status(413, said("Request exceeds the maximum size", type="request_too_large")), "context_too_long", ""),
    (Status(500, said("Internal error")), "upstream_error", "server"),
    (Status(501, said("Not Implemented")), "upstream_error", ""),
    (Status(505, said("HTTP Version Not Supported")), "upstream_error", ""),
    (Status(502, "<html><title>502 Bad Gateway</title></html>", kind="text/html"), "upstream_error", "gateway"),
    (Status(504, "timeout"), "upstream_error", "gateway"),
    (Status(503, said("Loading model", type="unavailable_error")), "provider_not_available", "warm-up"),
    (Status(503, said("The service is overloaded")), "provider_not_available", "server"),
    (Status(529, said("Overloaded", type="overloaded_error")), "provider_not_available", "server"),
    (Status(302, "", {"Location": "https://elsewhere.example/"}), "invalid_request", ""),
    (HangUp(), "upstream_error", "gateway"),
    (Raw((b"data: {not json\n\n",)), "invalid_response", ""),
    (Raw((b"data: [1, 2]\n\n",)), "invalid_response", ""),
    (Raw((b"<html><title>Welcome to the hotel</title></html>",), kind="text/html"), "invalid_response", ""),
    (Raw((b"data: " + b"x" * 9_000_000,)), "invalid_response", ""),
    (Raw(()), "stream_error", "network"),
]


@pytest.mark.covers("A-127", "A-023", "R-167")
@pytest.mark.parametrize(("answer", "outcome", "trouble"), TABLE, ids=lambda value: value if isinstance(value, str) else None)
def test_every_fault_has_its_class(kind: str, answer: wire.Answer, outcome: str, trouble: str) -> None:
    with wire.playing() as server:
        server.always = answer
        pieces, error = failed(server, kind)
    assert (error.outcome, error.kind) == (outcome, trouble)
    assert pieces == []
    assert "\n" not in error.message and len(error.message) < 400
    again = from_outcome(error.outcome, error.message)
    assert type(again) is type(error) and again.status == error.status
    assert isinstance(error, TooLarge) is (outcome == "context_too_long")


@pytest.mark.covers("A-127")
def test_the_providers_own_first_line_is_told_and_where_the_key_is_set(kind: str) -> None:
    with wire.playing(Status(401, said(f"Incorrect key: {KEY}, or sk-ab***yz.\nSee the docs."))) as server:
        _, error = failed(server, kind)
    assert error.message == f"{kind} (m-1): HTTP 401: Incorrect key: [key], or [key]."
    assert error.hint == f"owlbox secret set llm/{kind} sets the key"


@pytest.mark.parametrize(
    ("headers", "body", "wait_s"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({"retry-after": "2.5"}, {}, 2.5),
        ({"Retry-After-Ms": "1500", "Retry-After": "2"}, {}, 1.5),
        ({"Retry-After": "90s"}, {}, 90.0),
        ({"Retry-After": "soon"}, {}, None),
        ({"Retry-After": "-3"}, {}, None),
        ({"Retry-After": "99999999"}, {}, 86400.0),
        ({}, {"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "31.5s"}]}}, 31.5),
        ({}, {"error": {"details": "none"}}, None),
        ({}, {}, None),
    ],
)
def test_how_long_to_wait_is_read_wherever_it_is_said(headers: dict[str, str], body: Any, wait_s: float | None) -> None:
    assert wait_of(headers, body) == wait_s


def test_a_date_to_come_back_at_becomes_seconds(kind: str) -> None:
    date = email.utils.formatdate(now_ms() / 1000 + 30, usegmt=True)
    with wire.playing(Status(429, said("slow down"), {"Retry-After": date})) as server:
        _, error = failed(server, kind)
    assert error.retry_after_s is not None and 20 < error.retry_after_s < 31
    past = email.utils.formatdate(now_ms() / 1000 - 3000, usegmt=True)
    assert wait_of({"retry-after": past}) == 0


@pytest.mark.parametrize("count", [1, 3, 5])
def test_half_a_stream_is_an_error_after_what_came(kind: str, count: int) -> None:
    with wire.playing(Half(STORY, count)) as server:
        pieces, error = failed(server, kind)
    assert error.outcome == "stream_error"
    assert "".join(piece.text for piece in pieces) in "".join(STORY.chunks)


def test_a_stream_that_never_says_why_it_ended_is_no_answer(kind: str) -> None:
    with wire.playing(wire.Turn(chunks=("And then",), finish="")) as server:
        pieces, error = failed(server, kind)
    assert [piece.text for piece in pieces] == ["And then"]
    assert error.outcome == "stream_error"


@pytest.mark.parametrize("answer", [Silence(), Half(STORY, 4, is_silent=True)], ids=["at once", "within"])
def test_silence_ends_after_its_limit(kind: str, answer: wire.Answer) -> None:
    began_s = monotonic_s()
    with wire.playing(answer) as server:
        _, error = failed(server, kind, timeout_s=0.3)
    assert error.outcome == "provider_timeout" and isinstance(error, ProviderError)
    assert monotonic_s() - began_s < SOON_S


def test_a_server_that_drips_is_ended_by_the_deadline(kind: str) -> None:
    dripped = tuple(bytes([letter]) for letter in b": still here\n" * 200)
    with wire.playing(Raw(dripped, pause_s=0.02)) as server:
        made, route = asking(server, kind)
        began_s = monotonic_s()
        with pytest.raises(DeadlineExceeded):
            list(made.generate(route, ask(deadline_s=0.3), CancelToken()))
        assert monotonic_s() - began_s < SOON_S


def test_a_stop_ends_the_wait_for_the_first_byte_and_the_connection(kind: str) -> None:
    with wire.playing(Silence()) as server:
        made, route = asking(server, kind)
        token = CancelToken()
        threading.Timer(0.2, token.set).start()
        began_s = monotonic_s()
        with pytest.raises(Cancelled):
            list(made.generate(route, ask(), token))
        assert monotonic_s() - began_s < SOON_S
        assert server.wait_broken()


@contextmanager
def deaf() -> Iterator[str]:
    """An address where connections are begun and never finished: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for filler in fillers:
                filler.close()


def test_a_stop_ends_the_wait_for_a_connection(kind: str) -> None:
    with deaf() as url:
        made = CLASSES[kind](remote(url, kind))
        token = CancelToken()
        threading.Timer(0.2, token.set).start()
        began_s = monotonic_s()
        with pytest.raises(Cancelled):
            list(made.generate(Route("r", "", "", 1, "native"), ask(), token))
        assert monotonic_s() - began_s < SOON_S


def test_nobody_there_is_told_with_the_place(kind: str) -> None:
    made = CLASSES[kind](remote("http://127.0.0.1:9", kind))
    with pytest.raises(ProviderError, match=r"nobody answers at 127\.0\.0\.1:9") as caught:
        list(made.generate(Route("r", "", "", 1, "native"), ask(), CancelToken()))
    assert (caught.value.outcome, caught.value.kind) == ("provider_not_available", "network")


def test_a_connection_that_was_closed_while_it_rested_is_not_noticed(kind: str) -> None:
    with wire.playing(STORY, HangUp(), STORY) as server:
        made, route = asking(server, kind)
        for _ in range(2):
            assert isinstance(list(made.generate(route, ask(), CancelToken()))[-1], Finish)
        made.close()
    assert len(server.seen) == 3


def test_the_key_does_not_follow_a_redirect(kind: str) -> None:
    with wire.playing(STORY) as other, wire.playing() as server:
        server.always = Status(307, "", {"Location": f"{other.url}/v1/chat/completions"})
        _, error = failed(server, kind)
    assert other.seen == []
    assert "redirects are not followed" in error.hint


# -- what comes as an event ----------------------------------------------------------------------------------

EVENTS = {
    "openai": (b'data: {"error": {"message": "%s", "code": %s}}\n\n', b"429", b"502"),
    "anthropic": (
        b'event: error\ndata: {"type": "error", "error": {"message": "%s", "type": %s}}\n\n',
        b'"rate_limit_error"',
        b'"api_error"',
    ),
    "gemini": (b'data: {"error": {"message": "%s", "code": %s}}\n\n', b"429", b"502"),
}


def test_an_error_within_the_stream_has_its_class(kind: str) -> None:
    form, limit, broken = EVENTS[kind]
    begun = wire.FORMATS[kind](STORY)
    start = [next(begun) for _ in range(4)]
    with wire.playing(
        Raw((*start, form % (b"too many tokens per minute", limit))), Raw((form % (b"behind us", broken),))
    ) as server:
        pieces, error = failed(server, kind)
        assert error.outcome == "rate_limited" and "too many tokens per minute" in error.message
        assert pieces != []
        assert failed(server, kind)[1].outcome == "upstream_error"


# -- TLS -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("S-087")
def test_certificates_are_verified(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with wire.playing(STORY, context=authority.context("127.0.0.1")) as server:
        _, error = failed(server, kind)
        assert error.outcome == "provider_not_available" and "no safe connection" in error.message
        assert server.seen == []
        made, route = asking(server, kind, verify=str(authority.file))
        assert isinstance(list(made.generate(route, ask(), CancelToken()))[-1], Finish)
        made.close()


@pytest.mark.covers("S-087")
@pytest.mark.parametrize(("name", "days"), [("other.example", 30), ("127.0.0.1", -1)])
def test_a_certificate_of_another_or_an_old_one_is_not_accepted(tmp_path: Path, name: str, days: int) -> None:
    authority = Authority(tmp_path)
    with wire.playing(STORY, context=authority.context(name, days=days)) as server:
        _, error = failed(server, "openai", verify=str(authority.file))
    assert server.seen == [] and error.outcome == "provider_not_available"


def test_a_server_without_tls_where_there_should_be_one(tmp_path: Path) -> None:
    with wire.playing(STORY) as server:
        server.url = server.url.replace("http:", "https:")
        _, error = failed(server, "openai")
    assert "no safe connection" in error.message
    assert server.seen == []


def test_a_stop_ends_a_handshake(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        made = CLASSES["openai"](remote(f"https://127.0.0.1:{listener.getsockname()[1]}", "openai"))
        token = CancelToken()
        threading.Timer(0.2, token.set).start()
        began_s = monotonic_s()
        with pytest.raises(Cancelled):
            list(made.generate(Route("r", "", "", 1, "native"), ask(), token))
        assert monotonic_s() - began_s < SOON_S


def test_verification_cannot_be_switched_off() -> None:
    with pytest.raises(ConfigError, match="always verified"):
        remote("https://127.0.0.1", "openai", verify=False)


# -- keys ------------------------------------------------------------------------------------------------------


def test_a_key_is_asked_for_at_each_request_and_sent_to_its_place_only(kind: str) -> None:
    keys = iter(["sk-first-11111111", "sk-second-2222222"])
    with wire.playing(STORY, STORY) as server:
        made, route = asking(server, kind, key=lambda: next(keys))
        for _ in range(2):
            list(made.generate(route, ask(), CancelToken()))
    shown = [json.dumps([seen.path, seen.headers, seen.body]) for seen in server.seen]
    assert "sk-first" in shown[0] and "sk-second" in shown[1] and "sk-first" not in shown[1]
    assert all("sk-" not in seen.path + json.dumps(seen.body) for seen in server.seen)
    assert "sk-" not in repr(made.remote)


def test_no_traceback_leads_to_the_key(kind: str) -> None:
    with wire.playing(HangUp(), HangUp()) as server:
        _, error = failed(server, kind)
    assert error.__cause__ is None and error.__context__ is None


@pytest.mark.parametrize("key", ["sk-bad key", "sk-bad\nkey", "sk-bäd-key", "\x00"])
def test_a_key_that_no_header_can_carry_is_told_without_showing_it(key: str) -> None:
    with wire.playing(STORY) as server:
        made, route = asking(server, "openai", key=lambda: key)
        with pytest.raises(ProviderError, match="characters that no key has") as caught:
            list(made.generate(route, ask(), CancelToken()))
    assert caught.value.outcome == "authentication_failed"
    assert key not in str(caught.value)
    assert server.seen == []


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://192.168.7.7:11434/v1", True),
        ("http://pi.local:11434/v1", True),
        ("http://ollama:11434/v1", True),
        ("https://api.example.com/v1", True),
        ("http://api.example.com/v1", False),
        ("http://93.184.215.14/v1", False),
    ],
)
def test_a_key_never_travels_in_the_clear_beyond_the_house(url: str, is_fine: bool) -> None:
    made = remote(url, "openai")
    if is_fine:
        assert made.signed("Authorization", "Bearer {key}") == {"Authorization": f"Bearer {KEY}"}
    else:
        with pytest.raises(ProviderError, match="for all to read"):
            made.signed("Authorization")
    assert remote(url, "openai", key=lambda: "").signed("Authorization") == {}


def test_a_proxy_is_not_asked_for_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with wire.playing(STORY) as server:
        made, route = asking(server, "openai")
        assert isinstance(list(made.generate(route, ask(), CancelToken()))[-1], Finish)


@pytest.mark.parametrize("url", ["", "api.example.com/v1", "ftp://x/", "https://", "https://me:hunter22@x.example/"])
def test_an_address_that_is_none_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match="not an address") as caught:
        remote(url, "openai")
    assert "hunter22" not in str(caught.value)


# -- texts -----------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=400),
        st.recursive(
            st.none() | st.integers() | st.text(),
            lambda s: st.lists(s) | st.dictionaries(st.sampled_from(["error", "message", "code", "details", "x"]), s),
            max_leaves=12,
        ),
    ),
    st.integers(300, 599),
)
def test_any_body_is_some_error(body: Any, status: int) -> None:
    found = fault(remote("http://127.0.0.1", "openai"), Heard(status, {}, body))
    assert found.message.isprintable() and len(found.message) < 400


@pytest.mark.parametrize(
    "answer",
    [
        Raw((b'data: {"error": {"message": "the key 0f1e2d3c4b5a is wrong"}}\n\n',)),
        Raw((b'{"error": {"message": "the key 0f1e2d3c4b5a is wrong"}}',), kind="application/json"),
        Raw((b"data: the key 0f1e2d3c4b5a is wrong\n\n",)),
        Raw((b"<html><title>the key 0f1e2d3c4b5a is wrong</title></html>",), kind="text/html"),
    ],
)
def test_a_key_that_is_said_within_an_answer_is_not_shown(kind: str, answer: wire.Answer) -> None:
    with wire.playing() as server:
        server.always = answer
        _, error = failed(server, kind, key=lambda: "0f1e2d3c4b5a")
    assert "[key] is wrong" in error.message and "0f1e2d" not in f"{error} {error.hint}"


def test_a_file_of_authorities_that_is_not_there_is_named(tmp_path: Path) -> None:
    with wire.playing(STORY) as server:
        server.url = server.url.replace("http:", "https:")
        _, error = failed(server, "openai", verify=str(tmp_path / "gone.pem"))
    assert error.outcome == "provider_not_available" and "gone.pem" in error.message
    assert error.hint == "is providers.openai.ca_file right?"


def test_keys_are_taken_out_of_what_is_shown() -> None:
    assert clean("the key my-secret-1 is bad", ("Bearer my-secret-1",)) == "the key [key] is bad"
    assert clean("gsk_abcdefghij and AIzaSyABCDEFGHIJ") == "[key] and [key]"
    assert clean("x" * 1000).endswith("…") and len(clean("x" * 1000)) == error_mapping.LINE_CHARS
    assert clean("<!DOCTYPE html><html><title>Sign in</title>") == "a page: Sign in"


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("This model's maximum context length is 8,192 tokens. However", 8192),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200000),
        ("the request exceeds the available context size (4096 tokens)", 4096),
        ("exceeds the maximum number of tokens allowed (1048576).", 1048576),
        ("nothing of the kind", 0),
    ],
)
def test_a_window_in_a_complaint_is_read(text: str, window: int) -> None:
    assert window_in(text) == window
