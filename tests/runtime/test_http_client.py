"""The one HTTP client, attacked as a hostile server, name server or proxy would: nothing holds it, floods it or learns a key."""

import gzip
import math
import select
import socket
import ssl
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from loopback import Authority, Server, raw_serving, serving

from appliance.clock import CancelToken, monotonic_s, sleep_s
from appliance.errors import BadInput, Cancelled, DeadlineExceeded, HttpError, OwlError, Refused, TooLarge
from appliance.models.download import VisitedHosts
from appliance.runtime.host_lookup import Deadline, look_up
from appliance.runtime.http_client import Answer, HttpSession, Judge
from appliance.text import urls

KEY = "sk-canary-12345678"
SOON_S = 10.0
OK = b"HTTP/1.1 200 OK\r\n"


def ask(session: HttpSession, url: str, by: Deadline, judge: Judge | None = None, **more: str) -> Answer:
    return session.ask(urls.parse(url), {"Authorization": f"Bearer {KEY}", **more}, by=by, judge=judge)


def until(seconds: float = 20, **more: object) -> Deadline:
    return Deadline(monotonic_s() + seconds, "asking", **more)  # type: ignore[arg-type]


def text(answer: Answer) -> bytes:
    with answer:
        return answer.body(1 << 20)[0]


@pytest.fixture
def site() -> Iterator[Server]:
    with serving() as server:
        server.page("/", "hoot", "text/plain")
        yield server


# -- time --------------------------------------------------------------------------------------------


def drip_status(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 ")
    while True:
        connection.sendall(b"2")
        sleep_s(0.02)


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(OK)
    while True:
        connection.sendall(b"X: 1")
        sleep_s(0.02)


def drip_chunks(connection: socket.socket) -> None:
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1\r\nx\r\n")
        sleep_s(0.02)


def drip_length(connection: socket.socket) -> None:
    """The size of a chunk that never ends."""
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"0")
        sleep_s(0.02)


@pytest.mark.parametrize("drip", [drip_status, drip_headers, drip_chunks, drip_length])
def test_a_drip_ends_with_the_deadline_in_every_phase(drip: object) -> None:
    began_s = monotonic_s()
    with raw_serving(drip) as url, pytest.raises(DeadlineExceeded):  # type: ignore[arg-type]
        text(ask(HttpSession(), url, until(0.5, silence_s=0.3)))
    assert monotonic_s() - began_s < SOON_S


def silent(connection: socket.socket) -> None:
    sleep_s(30)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("sign", [CancelToken, threading.Event])
def test_a_cancellation_interrupts_a_blocked_read(scheme: str, sign: type[threading.Event]) -> None:
    token = sign()
    threading.Timer(0.2, token.set).start()
    began_s = monotonic_s()
    with raw_serving(silent) as url, pytest.raises(Cancelled):
        ask(HttpSession(), url.replace("http:", f"{scheme}:"), until(cancel=token))
    assert monotonic_s() - began_s < SOON_S


def count_wakes(thread: int) -> int:
    lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_wait_of_minutes_wakes_nobody_and_a_cancellation_ends_it_at_once(tmp_path: Path, scheme: str) -> None:
    cancel, errors, authority = CancelToken(), list[OwlError](), Authority(tmp_path)
    client, context = HttpSession(authorities=authority.file, only_these=True), authority.context("127.0.0.1")

    def wait(token: CancelToken, seconds: float) -> None:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"
        try:
            ask(client, url, until(seconds, cancel=token, slice_s=math.inf))
        except OwlError as error:
            errors.append(error)

    def serve() -> None:
        near, _ = listener.accept()
        with suppress(OSError), context.wrap_socket(near, server_side=True) if scheme == "https" else near as line:
            while line.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        thread = threading.Thread(target=wait, args=(cancel, 60))
        thread.start()
        sleep_s(1)
        assert thread.native_id is not None
        before = count_wakes(thread.native_id)
        sleep_s(2)
        assert count_wakes(thread.native_id) == before
        began_s = monotonic_s()
        cancel.set()
        thread.join(5)
        assert isinstance(errors[0], Cancelled) and monotonic_s() - began_s < 1
        threading.Thread(target=serve, daemon=True).start()
        wait(CancelToken(), 0.5)
        assert isinstance(errors[1], DeadlineExceeded)


def test_a_server_that_takes_no_more_of_the_request_ends_with_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(DeadlineExceeded):
            HttpSession().ask(urls.parse(url), {}, b"x" * 50_000_000, by=until(0.5))


def test_silence_is_told_apart_from_slowness() -> None:
    with raw_serving(silent) as url, pytest.raises(HttpError, match=r"silent for 0\.2 s") as caught:
        ask(HttpSession(), url, until(silence_s=0.2))
    assert caught.value.stage == "silence"


# -- size --------------------------------------------------------------------------------------------


def many_headers(connection: socket.socket) -> None:
    connection.sendall(OK)
    while True:
        connection.sendall(b"X-More: " + b"y" * 4000 + b"\r\n")


def endless_line(connection: socket.socket) -> None:
    connection.sendall(OK + b"X-More: ")
    while True:
        connection.sendall(b"y" * 4000)


def going_on(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


@pytest.mark.parametrize("flood", [many_headers, endless_line, going_on])
def test_endless_headers_end(flood: object) -> None:
    with raw_serving(flood) as url, pytest.raises((TooLarge, HttpError)):  # type: ignore[arg-type]
        ask(HttpSession(), url, until())


def test_a_bomb_comes_in_small_parts(site: Server) -> None:
    bomb = gzip.compress(bytes(100_000_000))
    with ask(HttpSession(), site.page("/bomb", bomb, content_encoding="gzip"), until()) as answer:
        sizes = [len(next(parts)) for parts in [answer.iter_content()] for _ in range(20)]
    assert max(sizes) <= 1 << 16


# -- places -------------------------------------------------------------------------------------------


def test_a_name_is_looked_up_once_and_the_judged_address_is_connected_to(site: Server) -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    judged: list[list[str]] = []
    client = HttpSession(resolve=lambda host: next(answers))
    answer = ask(client, site.url("/", "rebind.example.org"), until(), judged.append)
    assert text(answer) == b"hoot" and judged == [["127.0.0.1"]] and next(answers) == ["127.0.0.2"]


def test_nothing_is_connected_to_when_an_address_is_refused(site: Server) -> None:
    def refuse(found: list[str]) -> None:
        raise Refused("no")

    with pytest.raises(Refused):
        ask(HttpSession(resolve=lambda host: ["127.0.0.1"]), site.url("/", "a.example.org"), until(), refuse)
    assert site.asked == []


def test_a_redirect_is_an_answer_and_the_key_goes_nowhere_else(site: Server) -> None:
    with serving() as other:
        for status in (301, 302, 303, 307, 308):
            with ask(HttpSession(), site.redirect("/go", other.url(), status), until()) as answer:
                assert (answer.status_code, answer.location) == (status, other.url())
        assert other.asked == []


@pytest.mark.parametrize(
    "near", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "fe80::1%1"]
)
def test_a_download_is_not_led_from_the_internet_into_the_house(near: str) -> None:
    places = VisitedHosts()
    places.judge(["93.184.216.34"])
    places.came_from(urls.parse("https://models.example.org/owl"))
    with pytest.raises(Refused, match="leads to"):
        places.judge(["93.184.216.34", near])
    home = VisitedHosts()
    home.judge([near])
    home.came_from(urls.parse("https://nas.local/owl"))
    home.judge([near])  # a server of the house may send on within it


def test_addresses_of_a_link_keep_its_number() -> None:
    assert "127.0.0.1" in look_up("127.0.0.1") and look_up("fe80::1%1") == ["fe80::1%1"]


# -- what is told ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [b"", b"SSH-2.0-x\r\n", OK + b"Content-Length: 9\r\n\r\nhoot", OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_a_failure_shows_no_header_of_the_request(said: bytes) -> None:
    with raw_serving(lambda connection: connection.sendall(said)) as url, pytest.raises(HttpError) as caught:
        text(ask(HttpSession(), url, until()))
    assert caught.value.__context__ is None
    assert KEY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.hint)


def test_a_header_that_would_be_two_is_one_line(site: Server) -> None:
    text(ask(HttpSession(), site.url(), until(), **{"X-Key": "k\r\nX-Evil: 1"}))
    assert "x-evil" not in site.asked[0].headers


# -- connections that rest ---------------------------------------------------------------------------------


def test_what_a_server_says_unasked_is_not_the_next_answer() -> None:
    """An answer that nobody asked for lies on the connection: a new one is opened."""
    count = [0]

    def two_answers(connection: socket.socket) -> None:
        count[0] += 1
        connection.sendall(OK + b"Content-Length: 4\r\n\r\nhoot")
        sleep_s(0.1)
        connection.sendall(OK + b"Content-Length: 4\r\n\r\nEVIL")
        sleep_s(5)

    with raw_serving(two_answers) as url:
        client = HttpSession(kept=2)
        assert text(ask(client, url, until())) == b"hoot"
        sleep_s(0.5)
        assert text(ask(client, url, until())) == b"hoot" and count == [2]
        client.close()


def test_a_connection_rests_for_its_own_place_alone(site: Server) -> None:
    with serving() as other:
        other.page("/", "other")
        client = HttpSession(kept=2)
        assert [text(ask(client, one.url(), until())) for one in (site, other, site)] == [b"hoot", b"other", b"hoot"]
        client.close()


# -- proxies ----------------------------------------------------------------------------------------------


@contextmanager
def proxy(monkeypatch: pytest.MonkeyPatch, seen: list[bytes], user: str = "", tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """A proxy of the environment that passes tunnels on to this machine and answers all else itself."""

    listener = socket.create_server(("127.0.0.1", 0))

    def copy(client: socket.socket, there: socket.socket) -> None:
        """Both ways in one thread: OpenSSL's connections are not for two."""
        with client, there, suppress(OSError):
            while True:
                pending = isinstance(client, ssl.SSLSocket) and client.pending()
                ready = [client] if pending else select.select([client, there], [], [])[0]
                for one in ready:
                    if not (data := one.recv(65536)):
                        return
                    (there if one is client else client).sendall(data)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if tls is not None:
                client = tls.wrap_socket(client, server_side=True)
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            seen.append(head)
            if not head.startswith(b"CONNECT"):
                client.sendall(OK + b"Content-Length: 5\r\nConnection: close\r\n\r\nproxy")
                client.close()
                continue
            port = int(head.split(b" ")[1].rpartition(b":")[2])
            there = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            threading.Thread(target=copy, args=(client, there), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"{'https' if tls else 'http'}://{user}127.0.0.1:{listener.getsockname()[1]}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    try:
        yield
    finally:
        listener.close()


def test_a_proxy_is_asked_only_by_who_wants_one(site: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    with proxy(monkeypatch, seen, "owl:night%20time@"):
        assert text(ask(HttpSession(), site.url(), until())) == b"hoot" and seen == []
        assert text(ask(HttpSession(is_proxied=True), site.url(), until())) == b"proxy"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert text(ask(HttpSession(is_proxied=True), site.url(), until())) == b"hoot"
    assert seen[0].startswith(b"GET " + site.url().encode()) and b"authorization: basic b3dsom5pz2h0ihrpbwu=" in seen[0].lower()
    assert "proxy-authorization" not in site.asked[-1].headers


@pytest.mark.parametrize("is_secure", [False, True])
def test_tls_goes_through_a_proxy_and_shows_it_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_secure: bool) -> None:
    authority = Authority(tmp_path)
    seen: list[bytes] = []
    tls = authority.context("127.0.0.1") if is_secure else None
    with serving(authority.context("far.example.org")) as server, proxy(monkeypatch, seen, tls=tls):
        server.page("/", "hoot")
        client = HttpSession(authorities=authority.file, is_proxied=True)
        assert text(ask(client, server.url("/", "far.example.org"), until())) == b"hoot"
        with pytest.raises(HttpError, match="certificate is not accepted"):
            ask(client, server.url("/", "other.example.org"), until())
    assert [head.split(b" ")[0] for head in seen] == [b"CONNECT", b"CONNECT"] and KEY.encode() not in b"".join(seen)


def test_a_proxy_of_another_kind_is_refused_without_its_password(site: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://owl:hunter22@127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(BadInput, match="proxy of the environment") as caught:
        ask(HttpSession(is_proxied=True), site.url(), until())
    assert "hunter22" not in "".join(traceback.format_exception(caught.value))


# -- certificates ------------------------------------------------------------------------------------------


def test_only_the_authorities_of_a_file_vouch_when_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    with serving(ours.context("127.0.0.1")) as server:
        server.page("/", "hoot")
        assert text(ask(HttpSession(authorities=ours.file, only_these=True), server.url(), until())) == b"hoot"
        for client in (HttpSession(authorities=other.file, only_these=True), HttpSession()):
            with pytest.raises(HttpError, match="certificate is not accepted"):
                ask(client, server.url(), until())


def test_a_file_of_authorities_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    for path in (bad, tmp_path / "gone.pem"):
        with serving() as server, pytest.raises(OwlError, match=path.name):
            ask(HttpSession(authorities=path), server.url().replace("http:", "https:"), until())
