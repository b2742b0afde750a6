"""What a URL means and which places may be reached: every way we know to write an address that is not public."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, ConfigError, OwlError, Refused
from appliance.text import urls
from appliance.text.urls import follow, parse
from appliance.web.hosts import HostRules, rules, special

OPEN = HostRules()
# A URL and words of the reason for which it is refused.
REFUSED = [
    # E-278
    ("http://127.0.0.1", "this machine (loopback)"),
    ("http://[::1]", "this machine (loopback)"),
    ("http://10.0.0.5", "private network"),
    ("http://169.254.1.1", "link-local"),
    ("http://localhost", "localhost is this machine"),
    ("http://sub.localhost", "sub.localhost is this machine"),
    ("ftp://x", "ftp cannot be fetched"),
    ("http://", "names no host"),
    # no URL, or another scheme
    ("example.com/page", "not a whole URL"),
    ("example.com:80/page", "not a whole URL"),
    ("//example.com/page", "not a whole URL"),
    ("http:example.com", "not a whole URL"),
    ("http:/example.com", "not a whole URL"),
    ("", "not a whole URL"),
    ("ht\ntp://example.com/", "not a whole URL"),
    ("file:///etc/passwd", "file cannot be fetched"),
    ("javascript:alert(1)", "javascript cannot be fetched"),
    ("gopher://127.0.0.1:70/_", "gopher cannot be fetched"),
    ("data:text/plain,hi", "data cannot be fetched"),
    ("unix:/run/owlbox.sock", "unix cannot be fetched"),
    ("http:///page", "names no host"),
    ("http://?q=1", "names no host"),
    # unusual forms of IPv4
    ("http://2130706433/", "2130706433 is an unusual form of 127.0.0.1"),
    ("http://0x7f000001/", "0x7f000001 is an unusual form of 127.0.0.1"),
    ("http://0x7f.0.0.1/", "0x7f.0.0.1 is an unusual form of 127.0.0.1"),
    ("http://0177.0.0.1/", "0177.0.0.1 is an unusual form of 127.0.0.1"),
    ("http://017700000001/", "017700000001 is an unusual form of 127.0.0.1"),
    ("http://127.1/", "127.1 is an unusual form of 127.0.0.1"),
    ("http://127.0.1/", "127.0.1 is an unusual form of 127.0.0.1"),
    ("http://0/", "0 is an unusual form of 0.0.0.0"),
    ("http://0x/", "0x is an unusual form of 0.0.0.0"),
    ("http://0xA9.0xFE.0xA9.0xFE/", "unusual form of 169.254.169.254"),
    ("http://2852039166/latest/meta-data", "unusual form of 169.254.169.254"),
    ("http://010.0.0.5/", "010.0.0.5 is an unusual form of 8.0.0.5"),
    ("http://134744072/", "unusual form of 8.8.8.8"),
    ("http://127.0.0.1./", "loopback"),
    ("http://256.1.1.1/", "256.1.1.1 is not an IPv4 address"),
    ("http://1.2.3.4.5/", "1.2.3.4.5 is not an IPv4 address"),
    ("http://08.1.1.1/", "08.1.1.1 is not an IPv4 address"),
    ("http://4294967296/", "4294967296 is not an IPv4 address"),
    ("http://evil.example.org.0x7f/", "no name ends with a number"),
    # other scripts
    ("http://１２７.０.０.１/", "127.0.0.1 is this machine"),
    ("http://①②⑦.⓪.⓪.①/", "127.0.0.1 is this machine"),
    ("http://127。0。0。1/", "127.0.0.1 is this machine"),
    ("http://127．0．0．1/", "127.0.0.1 is this machine"),
    ("http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "localhost is this machine"),
    ("http://LOCALHOST/", "localhost is this machine"),
    ("http://localhost./", "localhost is this machine"),
    ("http://loc\u00adalhost/", "invisible character"),
    ("http://example.com／@127.0.0.1/", "user name or password"),
    ("http://example.com％2f.org/", "its host is not a name"),
    ("http://example.com／x.org/", "its host is not a name"),
    ("http://\u200blocalhost/", "invisible character"),
    ("http://localhost\u202e/", "invisible character"),
    # disguises
    ("http://example.com@127.0.0.1/", "user name or password"),
    ("http://example.com:80@127.0.0.1/", "user name or password"),
    ("http://user:pass@example.com/", "user name or password"),
    ("http://example.com\\@127.0.0.1/", "backslash"),
    ("http:\\\\127.0.0.1/", "not a whole URL"),
    ("http://127.0.0.1\\.example.com/", "backslash"),
    ("http://127.0.0.1%2eexample.com/", "percent sign"),
    ("http://127%2e0%2e0%2e1/", "percent sign"),
    ("http://%6c%6f%63alhost/", "percent sign"),
    ("http://local\thost/", "space, a line break"),
    ("http://local\nhost/", "space, a line break"),
    ("http://exam ple.com/", "space, a line break"),
    ("http://example.com\x00.org/", "space, a line break"),
    ("http://exa_mple..com/", "not a name of a host"),
    ("http://-example.com/", "not a name of a host"),
    (f"http://{'a' * 64}.com/", "not a name of a host"),
    ("http://exa<mple.com/", "not a name of a host"),
    ("http://example.com:80:90/", "port is not a number"),
    ("http://example.com:٨٠/", "port is not a number"),
    ("http://example.com:99999/", "no port 99999"),
    ("http://example.com:25/", "port 25"),
    ("http://example.com:0/", "port 0"),
    ("http://example.com:6379/", "port 6379"),
    # what would be dropped by one reader and sent by another
    ("https://example.com/a\tb", "line break"),
    ("https://example.com/a\n/b", "line break"),
    ("https://example.com/?q=\r\nHost: x", "line break"),
    ("https://example.com/a\x00", "control character"),
    ("https://example.com/\u200b", "invisible"),
    ("https://example.com/\U000e0034", "invisible"),
    ("https://example.com/\u2028", "line break"),
    ("https://example.com/#\tx", "line break"),
    ("https://example.com/a\\b", "backslash"),
    # IPv6
    ("http://[::]/", "unspecified"),
    ("http://[0:0:0:0:0:0:0:1]/", "this machine (loopback)"),
    ("http://[::127.0.0.1]/", "form nobody uses"),
    ("http://[::ffff:127.0.0.1]/", "has 127.0.0.1 in it, which is this machine"),
    ("http://[::ffff:7f00:1]/", "has 127.0.0.1 in it"),
    ("http://[::ffff:a9fe:a9fe]/", "has 169.254.169.254 in it, which is a cloud's metadata"),
    ("http://[64:ff9b::10.0.0.1]/", "has 10.0.0.1 in it, which is in a private network"),
    ("http://[64:ff9b:1::1]/", "private translation"),
    ("http://[2002:7f00:1::]/", "6to4"),
    ("http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", "Teredo"),
    ("http://[2606:4700::5efe:192.168.1.1]/", "has 192.168.1.1 in it"),
    ("http://[fe80::1]/", "link-local"),
    ("http://[fe80::1%25eth0]/", "percent sign"),
    ("http://[fe80::1%eth0]/", "percent sign"),
    ("http://[fc00::1]/", "private network"),
    ("http://[fd00:ec2::254]/", "metadata"),
    ("http://[fd12:3456::1]/", "private network"),
    ("http://[fec0::1]/", "site-local"),
    ("http://[ff02::1]/", "multicast"),
    ("http://[2001:db8::1]/", "documentation"),
    ("http://[3fff::1]/", "documentation"),
    ("http://[100::1]/", "discard"),
    ("http://[2001:2::1]/", "benchmarks"),
    ("http://[2001:10::1]/", "reserved for protocols"),
    ("http://[5f00::1]/", "is reserved"),
    ("http://[4000::1]/", "is reserved"),
    ("http://[::1", "not an IPv6 address"),
    ("http://[nonsense]/", "not an IPv6 address"),
    ("http://[::1]x/", "port is not a number"),
    # IPv4 that is not public
    ("http://0.0.0.0/", "this host"),
    ("http://0.1.2.3/", "this host"),
    ("http://127.255.255.254/", "loopback"),
    ("http://172.16.0.1/", "private network"),
    ("http://172.31.255.255/", "private network"),
    ("http://192.168.1.1/", "private network"),
    ("http://100.64.0.1/", "address translation"),
    ("http://169.254.169.254/latest/", "metadata"),
    ("http://169.254.170.2/", "metadata"),
    ("http://168.63.129.16/", "metadata"),
    ("http://100.100.100.200/", "metadata"),
    ("http://192.0.0.8/", "reserved for protocols"),
    ("http://192.0.2.1/", "documentation"),
    ("http://198.51.100.7/", "documentation"),
    ("http://203.0.113.9/", "documentation"),
    ("http://192.88.99.1/", "6to4"),
    ("http://198.18.0.1/", "benchmarks"),
    ("http://198.19.255.255/", "benchmarks"),
    ("http://224.0.0.1/", "multicast"),
    ("http://239.255.255.250/", "multicast"),
    ("http://255.255.255.255/", "broadcast"),
    ("http://240.0.0.1/", "reserved"),
    # names of this network
    ("http://localhost.localdomain/", "this machine"),
    ("http://ip6-localhost/", "this machine"),
    ("http://broadcasthost/", "everybody on this network"),
    ("http://metadata.google.internal/", "metadata"),
    ("http://metadata/", "metadata"),
    ("http://owlbox.local/", "mDNS"),
    ("http://db.internal/", "private network"),
    ("http://nas.lan/", "private network"),
    ("http://router.home.arpa/", "private network"),
    ("http://wiki.corp/", "private network"),
    ("http://abc.onion/", "not on the public internet"),
    ("http://site.test/", "leads nowhere"),
    ("http://x.invalid/", "leads nowhere"),
    ("http://router/", "no dot"),
]
ALLOWED = [
    ("https://example.com", "https://example.com/"),
    ("http://example.com/", "http://example.com/"),
    ("HTTP://EXAMPLE.com:80/Path?Q=a+b#part", "http://example.com/Path?Q=a+b"),
    ("https://example.com:8443/x", "https://example.com:8443/x"),
    ("https://example.com./x", "https://example.com/x"),
    ("https://example.com?q=1", "https://example.com/?q=1"),
    ("https://sub.domain.example.co.uk/a/b", "https://sub.domain.example.co.uk/a/b"),
    ("https://de.wikipedia.org/wiki/Eule_(Vogel)", "https://de.wikipedia.org/wiki/Eule_(Vogel)"),
    ("https://de.wikipedia.org/wiki/Käuze", "https://de.wikipedia.org/wiki/K%C3%A4uze"),
    ("https://example.com/a b", "https://example.com/a%20b"),
    ("https://example.com/%20already", "https://example.com/%20already"),
    ("https://example.com/%7eann/%41%2f%2F%zz%", "https://example.com/~ann/A%2F%2F%25zz%25"),
    ("https://example.com/a/./b/../c/..", "https://example.com/a/"),
    ("https://example.com/../%2e%2E/a", "https://example.com/a"),
    ("https://example.com//a///", "https://example.com//a///"),
    ("https://example.com/?%61=../b", "https://example.com/?a=../b"),
    ("https://bücher.de/", "https://xn--bcher-kva.de/"),
    ("https://straße.de/", "https://xn--strae-oqa.de/"),
    ("https://日本語.jp/", "https://xn--wgv71a119e.jp/"),
    ("https://xn--bcher-kva.de/", "https://xn--bcher-kva.de/"),
    ("https://a_b.example.com/", "https://a_b.example.com/"),
    ("https://8.8.8.8/", "https://8.8.8.8/"),
    ("https://1.1.1.1:8080/dns", "https://1.1.1.1:8080/dns"),
    ("http://172.32.0.1/", "http://172.32.0.1/"),
    ("http://100.128.0.1/", "http://100.128.0.1/"),
    ("http://[2606:4700:4700::1111]/", "http://[2606:4700:4700::1111]/"),
    ("http://[2606:4700:4700:0:0:0:0:1111]:8080/x", "http://[2606:4700:4700::1111]:8080/x"),
    ("http://[::ffff:8.8.8.8]/", "http://[::ffff:808:808]/"),
    ("http://[64:ff9b::8.8.8.8]/", "http://[64:ff9b::808:808]/"),
    ("https://127.0.0.1.nip.io/", "https://127.0.0.1.nip.io/"),  # a name: what it resolves to decides
    ("https://localhost.example.com/", "https://localhost.example.com/"),
    ("https://mylocal.com/", "https://mylocal.com/"),
    ("https://0x7f.org/", "https://0x7f.org/"),
    (" https://example.com/ \n", "https://example.com/"),
]


def judged(url: str) -> str:
    target = parse(url)
    OPEN.check(target)
    return target.url


@pytest.mark.covers("E-278", "S-085", "A-142", "A-208")
@pytest.mark.parametrize(("url", "why"), REFUSED, ids=[ascii(url)[:50] for url, _ in REFUSED])
def test_what_is_not_the_public_web_is_refused_with_its_own_reason(url: str, why: str) -> None:
    with pytest.raises((Refused, BadInput)) as caught:
        judged(url)
    assert why in caught.value.message and caught.value.hint


def test_there_are_enough_of_both() -> None:
    assert len({url for url, _ in REFUSED}) == len(REFUSED) >= 60 and len(ALLOWED) >= 20


@pytest.mark.covers("S-085")
@pytest.mark.parametrize(("url", "meant"), ALLOWED, ids=[ascii(url)[:50] for url, _ in ALLOWED])
def test_ordinary_addresses_pass_in_their_one_form(url: str, meant: str) -> None:
    meant = meant.replace("[::ffff:808:808]", f"[{ipaddress.ip_address('::ffff:808:808')}]")  # newer Pythons write it with dots
    assert judged(url) == meant and judged(meant) == meant


@pytest.mark.covers("E-312", "A-142")
@pytest.mark.parametrize("url", ["example.com", "www.example.com/page", "http://", "https:///x"])
def test_a_url_without_scheme_or_host_is_an_invalid_argument(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(url)
    assert caught.value.outcome == "invalid_arguments"


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_no_spelling_of_an_ipv4_address_passes_when_the_address_would_not(number: int) -> None:
    address = ipaddress.IPv4Address(number)
    a, b, c, d = address.packed
    spellings = [f"{number}", f"0x{number:x}", f"0{number:o}", f"{a}.{(b << 16) | (c << 8) | d}", f"0x{a:x}.{b}.0{c:o}.{d}"]
    plain = [str(address), f"[::ffff:{address}]"]
    for host in spellings:
        if host != str(address):
            with pytest.raises(OwlError):
                judged(f"http://{host}/")
    for host in plain:
        if special(address):
            with pytest.raises(Refused):
                judged(f"http://{host}/")
        else:
            judged(f"http://{host}/")


@given(st.integers(0, 2**128 - 1) | st.integers(0, 2**32 - 1).map(lambda n: n | (0xFFFF << 32)))
@settings(max_examples=200)
def test_no_ipv6_address_that_python_calls_private_passes(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    inner = address.ipv4_mapped
    is_bad = address.is_private or address.is_loopback or address.is_multicast or address.is_link_local or address.is_unspecified
    if inner is not None:
        assert bool(special(address)) == bool(special(inner))
    elif is_bad:
        assert special(address)


@given(st.text(max_size=40))
@settings(max_examples=300)
def test_any_text_is_a_url_or_an_error_of_ours(text: str) -> None:
    for url in (text, f"http://{text}", f"https://example.com/{text}"):
        try:
            target = parse(url)
        except OwlError:
            continue
        assert target.url.isascii() and " " not in target.url and "\n" not in target.url
        assert parse(target.url) == target


@pytest.mark.covers("A-208")
@pytest.mark.parametrize(
    ("location", "meant"),
    [
        ("/next", "https://example.com/next"),
        ("next?x=1", "https://example.com/a/next?x=1"),
        ("//other.org/x", "https://other.org/x"),
        ("HTTP://other.org", "http://other.org/"),
        ("?y", "https://example.com/a/b?y"),
    ],
)
def test_a_redirect_is_read_from_where_it_was_given(location: str, meant: str) -> None:
    assert follow(parse("https://example.com/a/b"), location).url == meant


@pytest.mark.covers("A-208", "E-279")
@pytest.mark.parametrize(
    "location",
    ["\\\\127.0.0.1\\", "//127.1/", "ftp://x/", "http://[::1]/", "http://a@b/", "http://[bad", "/a\tb", "//ex\nample.com/"],
)
def test_a_redirect_cannot_lead_where_a_url_may_not(location: str) -> None:
    with pytest.raises((Refused, BadInput)):
        OPEN.check(follow(parse("https://example.com/"), location))


@pytest.mark.covers("A-144", "A-209", "E-312")
def test_a_blocked_host_blocks_what_lies_under_it_and_an_allowed_one_admits_it() -> None:
    blocking = rules(blocked=["Evil.example.org", "*.ads.com", ".trackers.net", "bücher.de", "9.9.9.9"])
    for host in (
        "evil.example.org",
        "a.b.evil.example.org",
        "x.ads.com",
        "ads.com",
        "trackers.net",
        "www.xn--bcher-kva.de",
        "9.9.9.9",
    ):
        with pytest.raises(Refused, match="is blocked"):
            blocking.check(parse(f"https://{host}/"))
    for host in ("example.org", "notevil.example.org", "badads.com"):
        blocking.check(parse(f"https://{host}/"))
    listing = rules(allowed=["wikipedia.org", "8.8.8.8"], blocked=["xx.wikipedia.org"])
    for host in ("wikipedia.org", "de.wikipedia.org", "8.8.8.8"):
        listing.check(parse(f"https://{host}/"))
    for host, why in (
        ("example.com", "not among the allowed"),
        ("notwikipedia.org", "not among"),
        ("xx.wikipedia.org", "is blocked"),
    ):
        with pytest.raises(Refused, match=why) as caught:
            listing.check(parse(f"https://{host}/"))
        assert caught.value.outcome == "blocked_host"


def test_an_allow_list_does_not_open_this_machine() -> None:
    with pytest.raises(Refused, match="loopback"):
        rules(allowed=["127.0.0.1"]).check(parse("http://127.0.0.1/"))
    with pytest.raises(Refused, match="this machine"):
        rules(allowed=["localhost"]).check(parse("http://localhost/"))


def test_a_person_may_open_a_private_network_and_no_other() -> None:
    opened = rules(networks=["192.168.1.0/24", "fd00:1::/32"])
    for url in ("http://192.168.1.7/", "http://[fd00:1::2]/", "http://nas.lan/"):
        opened.check(parse(url))
    for text in ("192.168.2.1", "127.0.0.1", "169.254.169.254", "fd00:2::1"):
        assert opened.why_not(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "given", [{"networks": ["192.168.1.0/33"]}, {"networks": ["lan"]}, {"blocked": ["a b"]}, {"allowed": [""]}]
)
def test_rules_that_are_none_are_a_configuration_error(given: dict[str, list[str]]) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(**given)
    assert caught.value.hint


def test_a_long_url_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadInput, match=f"the limit is {urls.MAX_URL}"):
        parse("https://example.com/" + "a" * urls.MAX_URL)
