"""Ways in which a page, a name server or a model may try to make the owl reach what is not the public web.

Real servers listen where nobody may look; each attack is told from an accident by what they were asked: nothing.
"""

import ipaddress
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import HERE, Authority, Names, Server, naming, serving
from needs import leave_out, needs

from appliance.errors import NotFound, OwlError, Refused
from appliance.web import addresses, hosts
from appliance.web.fetch import Fetch, Want

LOCAL = hosts.rules(networks=[HERE])
PUBLIC = "93.184.216.34"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def inside() -> Iterator[Server]:
    """A server of the house: nobody outside may reach it."""
    with serving() as server:
        server.page("/", "the secrets of the house", "text/plain")
        yield server


@pytest.fixture
def names() -> Iterator[Names]:
    with naming() as server:
        yield server


@pytest.mark.covers("S-085", "A-142")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0", "[::ffff:127.0.0.1]", "127.0.0.1.", "[::]"])
def test_nobody_reaches_a_server_of_this_machine(inside: Server, host: str) -> None:
    before = len(inside.asked)
    with pytest.raises(OwlError):
        Fetch(hosts.HostRules()).get(inside.url("/", host), session="s")
    assert len(inside.asked) == before


@pytest.mark.covers("A-142", "S-085", "A-208")
@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        [PUBLIC, "127.0.0.1"],
        ["10.0.0.1", PUBLIC],
        [PUBLIC, "::1"],
        ["::ffff:192.168.0.1"],
        ["169.254.169.254"],
        ["0.0.0.0"],
        ["100.64.1.1"],
        ["fe80::1"],
        ["64:ff9b::7f00:1"],
        ["224.0.0.1"],
    ],
)
def test_one_private_address_among_those_of_a_name_is_enough(inside: Server, names: Names, addresses: list[str]) -> None:
    names.answers["evil.example.org"] = [addresses]
    before = len(inside.asked)
    with pytest.raises(Refused, match=r"evil\.example\.org is at .*, which"):
        Fetch(hosts.HostRules(), resolve=names.resolve).get(inside.url("/", "evil.example.org"), session="s")
    assert len(inside.asked) == before and names.asked == ["evil.example.org"]


@pytest.mark.covers("E-282", "S-086")
def test_a_name_that_turns_private_after_the_check_is_not_asked_again(names: Names) -> None:
    """The classic: public while it is judged, private when it is connected to. There is no second question."""
    with serving() as outside:
        outside.page("/", "public", "text/plain")
        names.answers["twice.example.org"] = [["127.0.0.1"], ["127.0.0.2"]]  # what the second answer names, nobody may reach
        rules = hosts.rules(networks=["127.0.0.1/32"])
        found = Fetch(rules, resolve=names.resolve).get(outside.url("/", "twice.example.org"), session="s")
        assert found.body == b"public" and names.asked == ["twice.example.org"]
        with pytest.raises(Refused, match=r"is at 127\.0\.0\.2, which is this machine"):
            Fetch(rules, resolve=names.resolve).get(outside.url("/", "twice.example.org"), session="s")
        assert len(outside.asked) == 1


@pytest.mark.covers("E-282", "A-208")
def test_every_hop_is_resolved_and_judged_anew(names: Names) -> None:
    with serving() as outside:
        outside.redirect("/", "/again")
        names.answers["hop.example.org"] = [["127.0.0.1"], ["10.0.0.9"]]
        rules = hosts.rules(networks=["127.0.0.1/32"])
        with pytest.raises(Refused, match=r"is at 10\.0\.0\.9, which is in a private network"):
            Fetch(rules, resolve=names.resolve).get(outside.url("/", "hop.example.org"), session="s")
        assert [request.path for request in outside.asked] == ["/"]


@pytest.mark.covers("E-279", "A-208", "A-142", "S-085")
@pytest.mark.parametrize("form", ["http://127.0.0.2:{}/", "http://localhost.:{}/", "//127.0.0.2:{}/", "http://0x7f000002:{}/"])
def test_a_redirect_into_the_house_is_refused(inside: Server, form: str) -> None:
    with serving() as outside:
        outside.redirect("/", form.format(inside.port))
        rules = hosts.HostRules(networks=(ipaddress.ip_network("127.0.0.1/32"),))
        before = len(inside.asked)
        with pytest.raises(Refused):
            Fetch(rules, resolve=lambda host: ["127.0.0.2"]).get(outside.url(), session="s")
        assert len(inside.asked) == before and len(outside.asked) == 1


@pytest.mark.covers("E-312", "A-144", "A-208")
def test_a_redirect_to_a_blocked_host_is_refused(names: Names) -> None:
    with serving() as outside:
        names.answers["sub.bad.org"] = [["127.0.0.1"]]
        outside.redirect("/", outside.url("/x", "sub.bad.org"))
        with pytest.raises(Refused, match=r"bad\.org is blocked"):
            Fetch(hosts.rules(["bad.org"], networks=[HERE]), resolve=names.resolve).get(outside.url(), session="s")
        assert names.asked == [] and len(outside.asked) == 1


@pytest.mark.covers("A-208")
@pytest.mark.parametrize(("place", "why"), [("http://evil.example.org:25/", "port 25"), ("http://router/", "no dot")])
def test_a_redirect_to_a_service_or_a_name_of_this_network_is_refused(names: Names, place: str, why: str) -> None:
    with serving() as outside:
        names.answers["evil.example.org"] = [[PUBLIC]]
        outside.redirect("/", place)
        own = Want(trusted=outside.url("").rstrip("/"))
        with pytest.raises(Refused, match=why):
            Fetch(hosts.rules(), resolve=names.resolve).get(outside.url(), session="s", want=own)
        assert names.asked == [] and len(outside.asked) == 1


def test_a_trusted_origin_is_one_origin_and_not_its_redirects(inside: Server) -> None:
    """A search engine at home may be asked although it is private; what it says may not lead further inside."""
    with serving() as engine:
        engine.page("/ok", "hits", "text/plain")
        engine.redirect("/out", inside.url())
        engine.redirect("/blocked", "http://bad.example.org/")
        fetch = Fetch(hosts.rules(blocked=["bad.example.org"]), resolve=lambda host: [PUBLIC])
        want = Want(trusted=engine.url())
        assert fetch.get(engine.url("/ok"), session="s", want=want).body == b"hits"
        before = len(inside.asked)
        for url in (engine.url("/out"), inside.url()):
            with pytest.raises(Refused, match="loopback"):
                fetch.get(url, session="s", want=want)
        with pytest.raises(Refused, match="is blocked"):
            fetch.get(engine.url("/blocked"), session="s", want=want)
        with pytest.raises(Refused, match="loopback"):
            fetch.get(engine.url("/ok"), session="s")
        assert len(inside.asked) == before


def test_a_line_break_in_a_path_or_a_header_adds_no_request(inside: Server) -> None:
    fetch = Fetch(LOCAL)
    count = len(inside.asked)
    with pytest.raises(Refused, match="line break"):
        fetch.get(inside.url("/a HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET /b"), session="s")
    fetch.get(inside.url("/a HTTP/1.1"), session="s", want=Want(headers={"X-Key": "k\r\nX-Evil: 1"}))
    assert len(inside.asked) == count + 1
    asked = inside.asked[-1]
    assert asked.path == "/a%20HTTP/1.1" and "x-evil" not in asked.headers


@pytest.mark.covers("S-086")
def test_tls_is_asked_for_the_name_at_the_judged_address(names: Names, tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    context = authority.context("pinned.example.org")
    seen: list[str | None] = []
    context.sni_callback = lambda sock, name, this: seen.append(name)
    with serving(context) as server:
        server.page("/", "x")
        names.answers["pinned.example.org"] = [["127.0.0.1"], ["10.0.0.1"]]
        fetch = Fetch(LOCAL, resolve=names.resolve, authorities=authority.file)
        fetch.get(server.url("/", "pinned.example.org"), session="s")
        assert seen == ["pinned.example.org"]
        assert server.asked[-1].headers["host"] == f"pinned.example.org:{server.port}"


@pytest.mark.parametrize("answer", [["not an address"], ["127.0.0.1.nip.io"], ["fe80::1%eth0"]])
def test_a_resolver_that_says_nonsense_is_not_believed(answer: list[str]) -> None:
    with pytest.raises(Refused):
        Fetch(hosts.HostRules(), resolve=lambda host: answer).get("http://odd.example.org/", session="s")


def test_a_name_without_addresses_is_not_found() -> None:
    with pytest.raises(NotFound, match=r"none\.example\.org has no address"):
        Fetch(hosts.HostRules(), resolve=lambda host: []).get("http://none.example.org/", session="s")


def test_this_machine_is_known_by_its_public_addresses_too() -> None:
    """A public address of this very machine leads inside, past whatever guards it from the outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((PUBLIC, 9))
        except OSError:
            leave_out("this machine has no way out, so no address of its own to try")
        own = str(probe.getsockname()[0])
    assert addresses.is_ours(f"::ffff:{own}") and addresses.is_ours("::ffff:7f00:1") and not addresses.is_ours(f"::ffff:{PUBLIC}")
    assert addresses.is_ours(own) and addresses.is_ours("127.0.0.1") and not addresses.is_ours(PUBLIC)
    with pytest.raises(Refused):
        Fetch(hosts.HostRules(), resolve=lambda host: [own]).get("http://own.example.org/", session="s")


OWN = """
import fcntl, socket, struct
from appliance.web import hosts
from appliance.errors import Refused
from appliance.web.fetch import Fetch

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:  # loopback gets a public address, and is up
    address = struct.pack("16sH2s4s8s", b"lo", socket.AF_INET, b"", socket.inet_aton("93.184.216.34"), b"")
    fcntl.ioctl(control, 0x8916, address)
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14s", b"lo", 0x49, b""))
with socket.create_server(("93.184.216.34", 8080)) as server:
    try:
        fetch = Fetch(hosts.HostRules(), resolve=lambda host: ["93.184.216.34"])
        fetch.get("http://own.example.org:8080/", session="s", timeout_s=2)
    except Refused as error:
        print(error.message)
    server.settimeout(0)
    try:
        server.accept()
        print("reached")
    except BlockingIOError:
        print("not reached")
"""


@needs("unshare")
def test_a_public_address_of_this_machine_is_not_reached() -> None:
    """In a network of its own, where this machine may have any address."""
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-c", OWN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT)
    if "unshare" in done.stderr:
        leave_out(f"no namespaces here: {done.stderr}")
    assert done.stdout.splitlines() == [
        "http://own.example.org:8080/: own.example.org is at 93.184.216.34, which is this machine",
        "not reached",
    ], done.stderr


def test_what_python_calls_global_and_is_not_is_known() -> None:
    """Addresses that the standard library lets pass, so that nobody replaces the table by `is_global`."""
    for text in ("fec0::1", "64:ff9b::7f00:1", "2002:7f00:1::", "::ffff:10.0.0.1", "5f00::1", "ff02::1", "192.88.99.1"):
        assert hosts.special(ipaddress.ip_address(text)), text


def test_the_public_addresses_of_the_house_are_known_by_its_links(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "2a010000123400010000000000000005 02 40 00 00     eth0\n"
        "fe800000000000000000000000000005 02 40 20 80     eth0\n"
    )
    house = addresses.neighbours(table)
    assert ipaddress.ip_network("2a01:0:1234:1::/64") in house and len(house) == 3
    assert addresses.neighbours(tmp_path / "none") == []
    assert all(isinstance(network, ipaddress.IPv6Network) for network in addresses.neighbours())
