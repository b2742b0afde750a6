"""Fetching over real servers on loopback: limits, redirects, packing, TLS, the cache, what is noted.

Loopback is not the public web, so each Fetch here is made with an exception for it, as only code and the person's
configuration can. What happens without that exception is in test_ssrf.
"""

import gzip
import socket
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import HERE, Authority, Request, Server, raw_serving, serving
from stores import new_store

from appliance.clock import CancelToken, monotonic_s, sleep_s
from appliance.errors import Cancelled, DeadlineExceeded, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.policy.audit_log import AuditQuery, Ledger
from appliance.web import hosts
from appliance.web.fetch import CachedPage, Fetch, FetchCaps, Visits, Want, check_found

LOCAL = hosts.rules(networks=[HERE])
FILE = Want(kind="file")


@pytest.fixture(scope="module")
def site() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def fetch() -> Fetch:
    return Fetch(LOCAL)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


# -- an ordinary page -----------------------------------------------------------------------------


@pytest.mark.covers("A-205")
def test_a_page_comes_with_status_headers_and_body(site: Server, fetch: Fetch) -> None:
    url = site.page("/plain", "Grüße", "Text/HTML; charset=ISO-8859-15", x_owl="hoot")
    found = fetch.get(url, session="s")
    assert (found.status, found.url, found.body.decode()) == (200, url, "Grüße")
    assert (found.content_type, found.charset, found.headers["x-owl"]) == ("text/html", "iso-8859-15", "hoot")
    assert (found.is_cut, found.from_cache, found.hops) == (False, False, (url,))


def test_a_request_says_little_about_us(site: Server, fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")  # nobody is there: whoever asks it fails
    url = site.page("/quiet", "x", set_cookie="a=b")
    for _ in range(2):
        fetch.get(url, session="s")
    asked = site.asked[-1].headers
    assert set(asked) == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert asked["host"] == f"127.0.0.1:{site.port}" and "owlbox" in asked["user-agent"]


def test_an_error_of_the_server_is_an_answer_until_somebody_minds(site: Server, fetch: Fetch) -> None:
    site.pages["/broken"] = lambda request: request.answer(b"oh", 500, content_type="image/png")
    found = fetch.get(site.url("/broken"), session="s")
    assert (found.status, found.body) == (500, b"oh")
    with pytest.raises(Unavailable, match="answered 500"):
        check_found(found)
    with pytest.raises(NotFound, match="answered 404"):
        check_found(fetch.get(site.url("/nothing"), session="s"))


def test_a_body_may_end_with_the_connection_or_come_in_chunks(site: Server, fetch: Fetch) -> None:
    site.pages["/until"] = lambda request: request.answer(b"to the end", content_type="text/plain", length=False)
    assert fetch.get(site.url("/until"), session="s").body == b"to the end"

    def chunked(request: Request) -> None:
        request.answer(content_type="text/plain", transfer_encoding="chunked", length=False)
        for part in (b"one ", b"two"):
            request.raw(b"%x\r\n%s\r\n" % (len(part), part))
        request.raw(b"0\r\n\r\n")

    site.pages["/chunked"] = chunked
    assert fetch.get(site.url("/chunked"), session="s").body == b"one two"


@pytest.mark.parametrize("headers", [{"content_length": "99"}, {"transfer_encoding": "chunked"}])
def test_a_body_that_breaks_off_is_an_error(site: Server, fetch: Fetch, headers: dict[str, str]) -> None:
    site.pages["/short"] = lambda request: request.answer(b"5\r\nhello", length=False, content_type="text/plain", **headers)
    with pytest.raises(Unavailable, match="ended early"):
        fetch.get(site.url("/short"), session="s")


# -- how much --------------------------------------------------------------------------------------


@pytest.mark.covers("E-280", "S-085", "A-142")
def test_a_body_is_cut_while_it_comes(site: Server, fetch: Fetch) -> None:
    url = site.page("/large", b"x" * 1_000_000, "text/plain")
    found = fetch.get(url, session="s", max_bytes=1000)
    assert (len(found.body), found.is_cut) == (1000, True)
    exact = fetch.get(url, session="s", max_bytes=1_000_000)
    assert (len(exact.body), exact.is_cut) == (1_000_000, False)


@pytest.mark.covers("A-142", "A-206", "E-281")
def test_nobody_gets_more_than_the_service_gives_nor_less_than_a_byte(site: Server) -> None:
    assert FetchCaps() == FetchCaps(per_minute=60, max_redirects=5, max_bytes=1024 * 1024)
    url = site.page("/megabytes", b"x" * 3000, "text/plain")
    small = Fetch(LOCAL, caps=FetchCaps(max_bytes=2000))
    assert len(small.get(url, session="s", max_bytes=10**9).body) == 2000
    assert len(small.get(url, session="s", max_bytes=-5).body) == 1


def endless(request: Request) -> None:
    request.answer(content_type="text/plain", length=False)
    while request.raw(b"x" * 65536):
        pass


def test_an_endless_body_ends_at_the_limit(site: Server, fetch: Fetch) -> None:
    site.pages["/endless"] = endless
    found = fetch.get(site.url("/endless"), session="s", max_bytes=100_000)
    assert (len(found.body), found.is_cut) == (100_000, True)


WINDOWS = {"gzip": 31, "deflate": 15, "bare": -15}  # how zlib calls the three packings


def packed(data: bytes, form: str, times: int = 1) -> bytes:
    if form == "members":
        return gzip.compress(data[:10]) + gzip.compress(data[10:])
    squeeze = zlib.compressobj(wbits=WINDOWS[form])
    return b"".join(squeeze.compress(data) for _ in range(times)) + squeeze.flush()


@pytest.mark.parametrize(
    ("form", "named"), [("gzip", "gzip"), ("members", "GZIP"), ("deflate", "deflate"), ("bare", "deflate"), ("gzip", "x-gzip")]
)
def test_a_packed_page_is_unpacked(site: Server, fetch: Fetch, form: str, named: str) -> None:
    data = b"hoot " * 50_000
    url = site.page("/packed", packed(data, form), "text/plain", content_encoding=named)
    found = fetch.get(url, session="s")
    assert (found.body, found.is_cut) == (data, False)


@pytest.mark.parametrize("form", ["gzip", "deflate", "bare"])
def test_a_bomb_is_counted_as_it_unpacks(site: Server, fetch: Fetch, form: str) -> None:
    url = site.page(
        "/bomb", packed(bytes(200_000_000), form), "text/plain", content_encoding="gzip" if form == "gzip" else "deflate"
    )
    before = peak_kb()
    found = fetch.get(url, session="s", max_bytes=1_000_000)
    assert (len(found.body), found.is_cut) == (1_000_000, True)
    assert peak_kb() - before < 20_000


def test_members_may_be_torn_anywhere(site: Server, fetch: Fetch) -> None:
    first, second = gzip.compress(b"hoot "), gzip.compress(b"again")
    for at in (len(first) - 1, len(first), len(first) + 1, len(first) + 2):
        pieces = (first + second)[:at], (first + second)[at:]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))
        url = site.page(f"/torn-{at}", chunks, "text/plain", content_encoding="gzip", transfer_encoding="chunked")
        assert fetch.get(url, session="s").body == b"hoot again"


def peak_kb() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


def test_packed_bytes_that_unpack_to_nothing_end_too(site: Server, fetch: Fetch) -> None:
    member = gzip.compress(b"")

    def nothing(request: Request) -> None:
        request.answer(content_type="text/plain", content_encoding="gzip", length=False)
        while request.raw(member * 3000):
            pass

    site.pages["/nothing-packed"] = nothing
    with pytest.raises(TooLarge, match="sends more than it may"):
        fetch.get(site.url("/nothing-packed"), session="s", max_bytes=10_000)


@pytest.mark.parametrize(
    ("body", "named", "why"),
    [
        (b"not packed at all", "gzip", "cannot be unpacked"),
        (gzip.compress(b"x" * 900)[:-9], "gzip", "cannot be unpacked"),
        (b"?", "br", "packed as br"),
    ],
    ids=["not packed", "cut off", "packed another way"],
)
def test_a_page_that_cannot_be_unpacked_is_an_error(site: Server, fetch: Fetch, body: bytes, named: str, why: str) -> None:
    url = site.page("/odd", body, "text/plain", content_encoding=named)
    with pytest.raises(Unavailable, match=why):
        fetch.get(url, session="s")


# -- how long --------------------------------------------------------------------------------------


def drip(request: Request) -> None:
    """A byte now and then, each well within any patience with a silence."""
    request.answer(content_type="text/plain", length=False)
    while request.raw(b"."):
        sleep_s(0.02)


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-Drip: 1\r\n")
        sleep_s(0.05)


def silent(connection: socket.socket) -> None:
    sleep_s(20)


@pytest.mark.covers("S-085")
@pytest.mark.parametrize("how", ["drip", "headers", "silent"])
def test_the_deadline_is_of_the_whole_request(site: Server, fetch: Fetch, how: str) -> None:
    site.pages["/drip"] = drip
    started_s = monotonic_s()
    with raw_serving(drip_headers if how == "headers" else silent) as raw, pytest.raises(DeadlineExceeded, match="took too long"):
        fetch.get(site.url("/drip") if how == "drip" else raw, session="s", timeout_s=0.3)
    assert monotonic_s() - started_s < 10


def test_a_stop_ends_a_request_at_once(site: Server, fetch: Fetch) -> None:
    site.pages["/drip"] = drip
    cancel = CancelToken()
    threading.Timer(0.2, cancel.set).start()
    started_s = monotonic_s()
    with pytest.raises(Cancelled, match="was stopped"):
        fetch.get(site.url("/drip"), session="s", timeout_s=20, cancel=cancel)
    assert monotonic_s() - started_s < 10


def test_a_look_up_that_never_ends_holds_nobody() -> None:
    over = threading.Event()

    def never(host: str) -> list[str]:
        over.wait(30)
        return []

    with pytest.raises(DeadlineExceeded):
        Fetch(LOCAL, resolve=never).get("http://slow.example.org/", session="s", timeout_s=0.2)
    over.set()


def test_a_handshake_that_never_ends_holds_nobody(fetch: Fetch) -> None:
    with raw_serving(silent) as raw, pytest.raises(DeadlineExceeded):
        fetch.get(raw.replace("http://", "https://"), session="s", timeout_s=0.3)


def test_no_more_time_is_given_than_there_is_for_anybody(site: Server) -> None:
    site.pages["/drip"] = drip
    with pytest.raises(DeadlineExceeded):
        Fetch(LOCAL, caps=FetchCaps(max_s=0.3)).get(site.url("/drip"), session="s", timeout_s=3600)


# -- how often -------------------------------------------------------------------------------------


@pytest.mark.covers("A-206")
def test_the_61st_request_of_a_minute_is_refused_in_its_session_alone(site: Server, fetch: Fetch) -> None:
    url = site.page("/often", "x")
    for _ in range(60):
        fetch.get(url, session="ann")
    before = len(site.asked)
    with pytest.raises(Unavailable, match="more than 60 web requests in a minute") as caught:
        fetch.get(url, session="ann")
    assert caught.value.outcome == "rate_limited" and "wait" in caught.value.hint
    assert len(site.asked) == before
    assert fetch.get(url, session="bob").status == 200


def test_what_is_refused_anyway_costs_nothing_of_the_minute(site: Server) -> None:
    fetch = Fetch(LOCAL, caps=FetchCaps(per_minute=1))
    for _ in range(3):
        with pytest.raises(Refused):
            fetch.get("http://10.0.0.1/", session="s")
    assert fetch.get(site.page("/once", "x"), session="s").status == 200


def test_only_so_many_requests_run_at_once(site: Server) -> None:
    guard, now, most = threading.Lock(), [0], [0]

    def slow(request: Request) -> None:
        with guard:
            now[0] += 1
            most[0] = max(most[0], now[0])
        sleep_s(0.05)
        with guard:
            now[0] -= 1
        request.answer(b"x", content_type="text/plain")

    site.pages["/slow"] = slow
    fetch = Fetch(LOCAL, caps=FetchCaps(at_once=3))
    threads = [threading.Thread(target=fetch.get, args=(site.url("/slow"),), kwargs={"session": "s"}) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 3


# -- redirects -------------------------------------------------------------------------------------


@pytest.mark.covers("S-085", "E-279", "A-142", "A-206")
def test_five_redirects_are_followed_and_a_sixth_is_not(site: Server, fetch: Fetch) -> None:
    site.page("/r0", "there")
    for number in range(1, 7):
        site.redirect(f"/r{number}", f"/r{number - 1}", 300 + (number % 2) + 1)
    found = fetch.get(site.url("/r5"), session="s")
    assert (found.body, found.url, len(found.hops)) == (b"there", site.url("/r0"), 6)
    with pytest.raises(Unavailable, match="redirects more than 5 times") as caught:
        fetch.get(site.url("/r6"), session="s")
    assert caught.value.outcome == "too_many_redirects"


@pytest.mark.covers("S-085", "E-279")
def test_a_redirect_to_nowhere_is_an_error(site: Server, fetch: Fetch) -> None:
    with pytest.raises(Unavailable, match="without saying where"):
        fetch.get(site.redirect("/lost", None), session="s")


@pytest.mark.parametrize(
    "location", ["ftp://example.org/", "file:///etc/passwd", "http://u:p@127.0.0.1/", "//[bad", "http://0x7f.1/"]
)
@pytest.mark.covers("A-208")
def test_a_redirect_is_judged_like_a_url(site: Server, fetch: Fetch, location: str) -> None:
    site.redirect("/away", location)
    with pytest.raises(OwlError) as caught:
        fetch.get(site.url("/away"), session="s")
    assert caught.value.status in (400, 403)


def test_secrets_of_a_request_do_not_follow_a_redirect_to_another_host(site: Server, fetch: Fetch) -> None:
    with serving() as other:
        there = other.page("/there", "x")
        site.redirect("/leak", there)
        site.redirect("/stay", "/leak2")
        site.page("/leak2", "x")
        fetch.get(site.url("/leak"), session="s", want=Want(headers={"X-Key": "k"}))
        assert site.asked[-1].headers["x-key"] == "k" and "x-key" not in other.asked[-1].headers
        fetch.get(site.url("/stay"), session="s", want=Want(headers={"X-Key": "k"}))
        assert site.asked[-1].path == "/leak2" and site.asked[-1].headers["x-key"] == "k"


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.covers("S-085", "E-280")
@pytest.mark.parametrize("mime", ["image/png", "image/svg+xml", "application/pdf", "application/octet-stream", "video/mp4"])
def test_what_is_no_text_is_refused_by_its_type(site: Server, fetch: Fetch, mime: str) -> None:
    with pytest.raises(Refused, match=f"is {mime.replace('+', '.')}, not a text"):
        fetch.get(site.page("/thing", b"\x00\x01", mime), session="s")


@pytest.mark.parametrize("mime", ["text/csv", "application/json", "application/ld+json", "application/rss+xml", "application/yaml"])
def test_every_kind_of_text_is_taken(site: Server, fetch: Fetch, mime: str) -> None:
    assert fetch.get(site.page("/text", "x", mime), session="s").content_type == mime


def test_a_type_that_is_not_said_is_looked_for(site: Server, fetch: Fetch) -> None:
    site.pages["/untold"] = lambda request: request.answer(b"plain words")
    assert fetch.get(site.url("/untold"), session="s").body == b"plain words"
    site.pages["/untold-bytes"] = lambda request: request.answer(b"GIF\0\0")
    with pytest.raises(Refused, match="no known type"):
        fetch.get(site.url("/untold-bytes"), session="s")


def test_a_file_that_a_person_adds_is_of_any_type_and_whole_or_not_at_all(site: Server) -> None:
    fetch = Fetch(LOCAL, caps=FetchCaps(file_bytes=5000))
    url = site.page("/doc.pdf", b"%PDF-" + bytes(4000), "application/pdf")
    assert len(fetch.get(url, session="s", max_bytes=1 << 30, want=FILE).body) == 4005
    site.page("/doc.pdf", bytes(5001), "application/pdf")
    with pytest.raises(TooLarge, match="more than 5000 bytes"):
        fetch.get(url, session="s", max_bytes=1 << 30, want=FILE)


# -- servers that do not speak HTTP ------------------------------------------------------------------


def many_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"y" * 4000 + b"\r\n")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_an_error(fetch: Fetch, said: bytes) -> None:
    with (
        raw_serving(lambda connection: connection.sendall(said)) as raw,
        pytest.raises(Unavailable, match="answer of|no connection"),
    ):
        fetch.get(raw, session="s")


def test_endless_headers_end(fetch: Fetch) -> None:
    with raw_serving(many_headers) as raw, pytest.raises((TooLarge, Unavailable)):
        fetch.get(raw, session="s")


def flood(connection: socket.socket) -> None:
    """Lines after the last chunk, as fast as they go: a server that is always ready."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    while True:
        connection.sendall(b"X-Trailer: 1\r\n" * 1000)


def test_a_server_that_is_always_ready_does_not_get_around_the_deadline(fetch: Fetch) -> None:
    with raw_serving(flood) as raw, pytest.raises(DeadlineExceeded):
        fetch.get(raw, session="s", timeout_s=0.3)


def go_on(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def test_a_server_that_never_begins_to_answer_is_cut_off(fetch: Fetch) -> None:
    with raw_serving(go_on) as raw, pytest.raises(TooLarge, match="sends more than it may"):
        fetch.get(raw, session="s")


def test_an_address_that_never_answers_ends_with_the_deadline(fetch: Fetch) -> None:
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for client in (first, second):  # whoever comes after these is left waiting
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        with pytest.raises(DeadlineExceeded):
            fetch.get(f"http://127.0.0.1:{server.getsockname()[1]}/", session="s", timeout_s=0.3)


def test_nobody_there_is_an_error(fetch: Fetch) -> None:
    with socket.socket() as held, pytest.raises(Unavailable, match="no connection to") as caught:
        held.bind(("127.0.0.1", 0))  # and listens to nobody
        fetch.get(f"http://127.0.0.1:{held.getsockname()[1]}/", session="s")
    assert "refused" in caught.value.message


# -- TLS -------------------------------------------------------------------------------------------


@pytest.mark.covers("S-087", "S-086")
def test_a_certificate_is_checked_against_the_name_although_the_address_is_pinned(authority: Authority) -> None:
    with serving(authority.context("good.example.org")) as server:
        server.page("/", "safe")
        fetch = Fetch(LOCAL, resolve=lambda host: ["127.0.0.1"], authorities=authority.file)
        assert fetch.get(server.url("/", "good.example.org"), session="s").body == b"safe"
        with pytest.raises(Unavailable, match="its certificate is not accepted: Hostname mismatch") as caught:
            fetch.get(server.url("/", "bad.example.org"), session="s")
        assert caught.value.outcome == "bad_certificate"


@pytest.mark.covers("S-087")
@pytest.mark.parametrize(("days", "is_known", "why"), [(30, False, "unable to get local issuer"), (-2, True, "expired")])
def test_a_bad_certificate_is_never_accepted(authority: Authority, days: int, is_known: bool, why: str) -> None:
    with serving(authority.context("a.example.org", "127.0.0.1", days=days)) as server:
        server.page("/", "unsafe")
        fetch = Fetch(LOCAL, resolve=lambda host: ["127.0.0.1"], authorities=authority.file if is_known else None)
        for host in ("a.example.org", "127.0.0.1"):
            with pytest.raises(Unavailable, match=why):
                fetch.get(server.url("/", host), session="s")
        assert server.asked == []


def test_an_address_needs_a_certificate_for_itself(authority: Authority) -> None:
    with serving(authority.context("127.0.0.1")) as server:
        server.page("/", "safe")
        assert Fetch(LOCAL, authorities=authority.file).get(server.url(), session="s").body == b"safe"


def test_a_server_without_tls_is_an_error(site: Server, fetch: Fetch) -> None:
    with pytest.raises(Unavailable, match="TLS failed"):
        fetch.get(site.url().replace("http://", "https://"), session="s")


# -- several addresses -------------------------------------------------------------------------------


def test_the_next_address_is_tried_when_one_does_not_answer(site: Server) -> None:
    site.page("/", "x")
    fetch = Fetch(LOCAL, resolve=lambda host: ["127.0.0.9", "127.0.0.1"])  # the server listens at the second alone
    assert fetch.get(site.url("/", "two.example.org"), session="s").status == 200


# -- the cache ---------------------------------------------------------------------------------------


def test_a_page_that_has_not_changed_comes_from_the_cache(site: Server, tmp_path: Path) -> None:
    def tagged(request: Request) -> None:
        if request.headers.get("if-none-match") == '"one"':
            request.answer(status=304, etag='"one"')
        else:
            request.answer(b"<p>first</p>", content_type="text/html; charset=utf-8", etag='"one"')

    site.pages["/tagged"] = tagged
    store = new_store(tmp_path / "owlbox.db")
    url = site.url("/tagged")
    first = Fetch(LOCAL, cache=Visits(store)).get(url, session="s")
    again = Fetch(LOCAL, cache=Visits(store)).get(url, session="t", max_bytes=8)  # as after a restart
    assert (first.from_cache, again.from_cache, again.status, again.hops) == (False, True, 200, (url,))
    assert (again.body, again.is_cut, again.content_type, again.charset) == (b"<p>first", True, "text/html", "utf-8")
    site.pages["/tagged"] = lambda request: request.answer(b"second", content_type="text/plain", etag='"two"')
    assert Fetch(LOCAL, cache=Visits(store)).get(url, session="s").body == b"second"
    assert site.asked[-1].headers["if-none-match"] == '"one"'
    store.close()


@pytest.mark.parametrize(
    ("headers", "is_kept"),
    [
        ({"last_modified": "Sat, 21 Nov 2026 10:00:00 GMT"}, True),
        ({}, False),
        ({"etag": '"x"', "cache_control": "private, No-Store"}, False),
    ],
)
def test_only_what_can_be_asked_about_again_is_kept(site: Server, tmp_path: Path, headers: dict[str, str], is_kept: bool) -> None:
    store = new_store(tmp_path / "owlbox.db")
    cache = Visits(store)
    url = site.page("/kept", "xyz", **headers)
    Fetch(LOCAL, cache=cache).get(url, session="s", max_bytes=1)
    assert cache.find(url) is None, "a part of a page is not the page"
    Fetch(LOCAL, cache=cache).get(url, session="s")
    assert (cache.find(url) is not None) == is_kept
    if is_kept:
        Fetch(LOCAL, cache=cache).get(url, session="s")
        assert site.asked[-1].headers["if-modified-since"] == headers["last_modified"]
    Fetch(LOCAL, cache=cache).get(url, session="s", want=Want(headers={"X-Key": "k"}))  # an answer for one key is nobody else's
    assert "if-modified-since" not in site.asked[-1].headers
    store.close()


def test_the_cache_stays_small_and_forgets(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    cache = Visits(store)
    for number in range(310):
        cache.store_copy(CachedPage(f"https://example.com/{number:03}", '"x"', "", "text/plain", "", b"x"))
    assert store.value("SELECT COUNT(*) FROM fetches") == 300
    never = Visits(store, days=0)
    never.store_copy(CachedPage("https://example.com/never", '"x"', "", "text/plain", "", b"x"))
    assert never.find("https://example.com/never") is None and cache.find("https://example.com/never") is None
    assert cache.forget() == 300 and cache.find("https://example.com/309") is None
    store.close()


# -- what is noted -----------------------------------------------------------------------------------


@pytest.mark.covers("A-207")
def test_every_request_is_noted_and_so_is_every_refusal(site: Server, tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    ledger = Ledger(store)
    fetch = Fetch(LOCAL, note=ledger.note)
    url = site.page("/noted", "12345")
    fetch.get(url, session="local:ann")
    fetch.get(site.redirect("/to-noted", "/noted"), session="local:ann")
    for bad in ("http://10.1.2.3/x", site.redirect("/to-private", "http://169.254.169.254/latest")):
        with pytest.raises(Refused):
            fetch.get(bad, session="local:bob")
    private, direct, redirected, plain = ledger.listing(AuditQuery(kind="fetch"))
    details: list[dict[str, Any]] = [dict(line.detail) for line in (plain, redirected)]
    assert plain.session == "local:ann" and plain.severity == "info"
    assert {key: details[0][key] for key in ("url", "status", "bytes")} == {"url": url, "status": 200, "bytes": 5}
    assert (details[1]["to"], details[1]["hops"]) == (url, 2)
    assert (direct.session, direct.severity, direct.rule) == ("local:bob", "warning", "permission")
    assert "private network" in direct.detail["error"] and "metadata" in private.detail["error"]
    store.close()
