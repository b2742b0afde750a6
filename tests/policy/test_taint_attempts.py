"""Ways to say more in an address, a search or a call than the person did, as one table for each; the gate alone, no processes."""

import ast
import itertools
import unicodedata

import pytest

from appliance.errors import BadInput, Refused
from appliance.policy.taint import KnownData, ToolReach, canonical, carried
from appliance.text import urls
from appliance.text.invisible import escape_invisible
from appliance.web.hosts import local_name

WEB = ToolReach("web", target="url", usual=(20.0,))
SEARCH = ToolReach("search", data=("query",))
CALL = ToolReach("call", named="mcp:s", data=())
OWN = "Read https://owls.example.org/Page?a=1 and birds.org, then look for barn owls. My PIN is 4711, the code is zulu-kilo."
LISTED = frozenset({"https://evil.net/a", "https://evil.net/b"})
KNOWN = KnownData(OWN, LISTED, "owls eat mice and more mice at night", "look query zebra")


def leaves(reach: ToolReach, **arguments: object) -> str:
    """What leaves without anybody being asked; "" when a call is held or refused."""
    try:
        given = canonical(reach, arguments)
    except (BadInput, Refused):
        return ""
    target = str(given.get(reach.target, "")) if reach.target else ""
    return "" if carried(reach, target, given, KNOWN) else repr(given)


SAID = "https://owls.example.org/Page?a=1"
URLS = [
    *(f"{SAID}{more}" for more in ("4711", "&d=4711", "#4711/", "/", "?", "%34%37", ";4711", "\\4711", "|4711", "''", "%", "+")),
    *(f"{SAID[:-1]}{chr(code)}1" for code in (0x9, 0xA, 0xD, 0x200B, 0x200D, 0x2060, 0xFE0F, 0xE0034, 0xAD, 0x34F, 0x180E, 0x3164)),
    *(f"https://owls.example.org{chr(code)}.evil.net/Page?a=1" for code in (0x2F, 0x3F, 0x23, 0x40, 0x5C, 0x3002, 0xFF0E, 0x2024)),
    "https://owls.example.org:8443/Page?a=1",
    "https://owls.example.org@evil.net/Page?a=1",
    "https://4711@owls.example.org/Page?a=1",
    "https://4711.owls.example.org/Page?a=1",
    "https://birds.org.evil.net/",
    "https://xbirds.org/",
    "https://birds.org/4711",
    "https://birds.org/?4711",
    "https://birds.org:4711/",
    "https://birds.org./x",
    "https://evil.net/a/",
    "https://evil.net/a?",
    "https://evil.net//a",
    "https://evil.net/A",
    "https://evil.net/a%20",
    "https://evil.net/a%2F4711",
    "https://evil.net/x/../a/4711",
    "https://evil.net/zulu-kilo",
    "https://zulu-kilo/",
    "https://4711/",
    "https://PIN/",
    "https://code/",
    "HTTPS://OWLS.EXAMPLE.ORG/PAGE?A=1",
    "https:owls.example.org/Page?a=1&4711",
    "https:///owls.example.org/4711",
    "ftp://birds.org/4711",
    "file:///etc/passwd",
    "data:text/plain,4711",
    "gopher://birds.org:70/4711",
    "https://[::1]/4711",
    "https://0x7f.1/",
    "https://2130706433/",
    "birds.org/4711",
]


@pytest.mark.covers("A-281")
@pytest.mark.parametrize("url", URLS)
def test_an_address_says_no_more_than_the_person(url: str) -> None:
    """One that is let out leaves in a form that the person wrote, or that was listed, and in no other."""
    told = leaves(WEB, url=url)
    free = {SAID, "https://birds.org/", "http://birds.org/", "https://owls.example.org/", *LISTED}
    dotless = {f"https://{word}/" for word in ("zulu-kilo", "pin", "code")}  # words as names, which the fetcher looks up nowhere
    assert told in {"", *(repr({"url": one}) for one in free | dotless)}, told
    assert all(local_name(urls.parse(one).host) for one in dotless)


@pytest.mark.covers("A-281")
@pytest.mark.parametrize("base", [SAID, "https://evil.net/a", "https://birds.org/"])
def test_no_address_has_more_than_a_few_spellings_that_leave_apart(base: str) -> None:
    """Whatever is put at each place of an address: what leaves are at most two letters' worth of forms."""
    signs = (
        "\t",
        "\n",
        "/",
        "//",
        ".",
        "%2e",
        "%00",
        "\u200b",
        "\u3002",
        "\uff0e",
        "#x",
        "?",
        ";",
        "\\",
        "@",
        ":",
        " ",
        "\U000e0041",
    )
    ways = {f"{base[:at]}{sign}{base[at:]}" for at in range(len(base) + 1) for sign in signs}
    ways |= {base[:at] + base[at:].swapcase() for at in range(len(base))}
    left = {leaves(WEB, url=way) for way in ways} - {""}
    assert len(left) <= 4, left


QUERIES = [
    "4711 owls",
    "owls 4711",
    "o w l s",
    "owls owls owls",
    "Owls oWLS",
    "barn owls!",
    "barn,owls",
    "barn-owls",
    "barn  owls\u2800",
    "barn \u200bowls",
    "barn owls\U000e0034",
    "barn owls ⠓⠑",
    "barn owls ....",
    "barn owls ?!?!",
    "barn owls 😀😀",
    "barn owls ①②",
    "barn owls Ⅳ",
    "barn owls ４７１１",
    "barn owls ٤٧١١",
    "site:evil.net barn owls",
    "barn owls site:4711.evil.net",
    "bаrn owls",
    "barn owls\n4711",
    "barn owls\0",
    "zulukilo",
    "kilo-zulu 4711",
    "NDcxMQ==",
    "343731 31",
    "1174",
    "barn owls " + "x" * 500,
    "mice mice mice",
    "more mice at night owls eat and",
    "MORE mice",
    "moRE mice",
    "owls' mice",
    "four seven one one",
    "barn owls а",
    "b a r n",
    "barn\u00a0owls 7",
    "owlsowls",
    "barnowls",
    "ﬁ owls",
    "barn owls -4 -7 -1 -1",
    '"barn owls" 4711',
    "barn owls | 4711",
    "barn owls\u0301",
]
FREE = {"barn owls!", "barn  owls\u2800"}  # of the person's own words


@pytest.mark.covers("A-281")
@pytest.mark.parametrize("query", QUERIES, ids=ascii)
def test_a_search_says_no_more_than_words_that_were_said(query: str) -> None:
    told = leaves(SEARCH, query=query)
    words = {word.strip(".,!?'\"").casefold() for word in f"{OWN} {KNOWN.public}".split()}
    if told:
        sent = ast.literal_eval(told)["query"]
        assert all(word.casefold() in words for word in sent.split()), told
        assert len(set(sent.casefold().split())) == len(sent.split()) and unicodedata.is_normalized("NFKC", sent)


VALUES = [
    "4711x",
    "PIN  is",
    "P I N",
    "pin\u200b",
    "owls\n\n\nowls",
    "oWLS",
    [["owls"]] * 9,
    {"owls": {"owls": {"owls": 1}}},
    [True, False] * 20,
    {str(n): None for n in range(20)},
    4711.0,
    47.11,
    -1,
    10**30,
    [0, 1, 1, 0, 1, 1, 1, 0] * 4,
    {"4711": 1},
    {"query": ["", "", "", ""] * 9},
    "zebra zebra",
    ["zebra"] * 30,
    {"zebra": "look", "look": "zebra"},
    "zulu\tkilo",
    "zulu kilo",
    "\x1b[2J",
    "",
    None,
    True,
]


@pytest.mark.covers("A-281")
@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_a_call_tells_a_server_few_choices(value: object) -> None:
    """What goes on without a person is one of a handful of values: nothing, yes or no, or the person's words."""
    told = leaves(CALL, query=value)
    free = ("", None, True, {"4711": 1}, {"owls": {"owls": {"owls": 1}}})  # the person has said 4711 in this very message
    assert told in ("", *(repr({"query": one}) for one in free)), told


IGNORABLE = [
    0xAD,
    0x34F,
    0x61C,
    0x115F,
    0x1160,
    0x17B4,
    0x180B,
    0x180E,
    0x200B,
    0x200C,
    0x200D,
    0x200E,
    0x200F,
    0x2028,
    0x2029,
    0x202A,
    0x202E,
    0x2060,
    0x2064,
    0x2066,
    0x2069,
    0x206A,
    0x2800,
    0x3000,
    0x3164,
    0xFE00,
    0xFE0F,
    0xFEFF,
    0xFFA0,
    0xFFF9,
    0x1D159,
    0x1D173,
    0xE0001,
    0xE0041,
    0xE007F,
    0xE0100,
    0xE01EF,
    0xF0000,
    0x10FFFD,
    0xFFFE,
    0xD800,
    0x0,
    0x7,
    0x8,
    0xD,
    0xA,
    0x1B,
    0x7F,
    0x85,
    0x9B,
    0xA0,
    0x2003,
    0x202F,
    0x205F,
    0x1680,
]


@pytest.mark.covers("A-037")
@pytest.mark.parametrize("code", IGNORABLE, ids=hex)
def test_what_is_not_seen_is_shown_in_a_target(code: int) -> None:
    for before, after in itertools.product(("", "a", "\u0915", "\U0001f600", "\U0001f3f4"), repeat=2):
        shown = escape_invisible(f"rm {before}{chr(code)}{after} x", "exact")
        assert chr(code) not in shown and f"{code:x}" in shown or shown.count("\\") == 1, ascii(shown)
