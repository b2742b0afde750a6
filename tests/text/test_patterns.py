"""Patterns: which kind one is, what it fits, finds and replaces, and that none outstays its timeout."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, DeadlineExceeded, OwlError, TooLarge
from appliance.text import jsonpaths, pattern_limits, patterns, xpaths
from appliance.text.jsonpaths import JsonPathSelector
from appliance.text.pattern_limits import PatternWatch
from appliance.text.patterns import Pattern, PatternHit, compiled, kind_of

JSON = '{"name": "owl", "a": [{"id": 1}, {"id": 2}], "b": {"c": {"deep": null}}}'
XML = "<root><item id='3'>x</item><item id='4'>y</item></root>"
TIMEOUT_S = 0.02
PATIENCE_S = 20.0  # a machine shared with other work; without the timeouts these would take hours


@pytest.mark.covers("R-130")
@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("regex", ["/a/", "/a+b/gi", "/[/]/", r"/a\/b/", "/^(a|b)/"]),
        ("jsonpath", ["$.name", "$..deep", "$.*", "$..*", "$.a[0].id", "$[0]", "$['a b']", "$[?@.id]", "$[*]"]),
        ("xpath", ["//item", "//*", "//@id", "/root/item[1]", "/root/item[position()>1]/b", "/root/child::item", "/a[b[1]]"]),
        ("glob", ["*.js", "a?", "[abc]", "{a,b}", "!(a)", "**/x", "a (copy)/*", "/src/[ab]*.js", "/src/a[bc]/*.js", r"\*"]),
        ("literal", ["plain", "", "/path/to/x", "/usr/lib/", "// TODO", "$", "$x", "$.50", "a{b}", "f()", "{}", "[]"]),
    ],
)
def test_kind_is_read_from_the_shape(kind: str, texts: list[str]):
    assert [(text, kind_of(text)) for text in texts] == [(text, kind) for text in texts]


@pytest.mark.covers("R-130", "E-090", "E-091")
def test_kinds_that_look_like_another():
    assert kind_of("/$.+/") == "regex" and Pattern("/$.+/").kind == "regex"
    assert not Pattern("/$.+/").matches('{"a": 1}')
    assert kind_of("/path/to/std::x.html") == "literal"
    assert Pattern("/path/to/std::x.html").matches("/path/to/std::x.html")
    assert not Pattern("/path/to/std::x.html").matches("<path><to/></path>")


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        pytest.param("*.js", ["index.js", ".js"], ["a/index.js", "index.jsx", "index.js\n"], marks=pytest.mark.covers("E-078")),
        pytest.param("????.ts", ["test.ts"], ["index.ts", "a/b.ts"], marks=pytest.mark.covers("E-079")),
        pytest.param(
            "src/**/*.ts", ["src/a/b.ts", "src/b.ts", "src/a/b/c.ts"], ["lib/a.ts", "src/a.js"], marks=pytest.mark.covers("E-080")
        ),
        pytest.param("[abc]*.js", ["alpha.js", "c.js"], ["delta.js"], marks=pytest.mark.covers("E-081")),
        pytest.param(
            "**/*.test.*", ["src/x.test.js", "x.test.js", "/a/x.test.ts"], ["src/x.js"], marks=pytest.mark.covers("E-083")
        ),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a"]),
        ("a**b", ["ab", "a/x/b"], ["ba"]),
        ("[!a-c]x", ["dx"], ["ax", "bx", "/x"]),
        ("[^a]", ["b"], ["a", "/"]),
        ("[[:digit:]_-]", ["7", "_", "-"], ["a", ":"]),
        ("[z-a]", [], ["z", "a", "-"]),
        ("{a,b*}.ts", ["a.ts", "b.ts", "bc.ts"], ["c.ts", "{a,b}.ts"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"], ["b", "d"]),
        ("x{9..11}", ["x9", "x10", "x11"], ["x8", "x12"]),
        ("!(*.js)", ["a.ts", "js"], ["a.js", "a/b"]),
        ("!(a|b).ts", ["c.ts", "ab.ts"], ["a.ts", "b.ts"]),
        ("src/!(test)/*.ts", ["src/lib/a.ts"], ["src/test/a.ts"]),
        ("{!(a),b}c", ["xc", "bc"], ["ac"]),
        (r"\*", ["*"], ["a", r"\*"]),
    ],
)
@pytest.mark.covers("R-131")
def test_globs(pattern: str, fits: list[str], others: list[str]):
    assert kind_of(pattern) == "glob"
    assert [text for text in fits + others if Pattern(pattern).matches(text)] == fits


@pytest.mark.covers("R-131", "E-082", "E-084", "E-092")
@pytest.mark.parametrize(
    ("pattern", "text", "other"),
    [
        ("file+name.txt", "file+name.txt", "fileename.txt"),
        ("c++", "c++", "ccc"),
        ("dir (copy)/*", "dir (copy)/a", "dir copy/a"),
        (":AI[]", ":AI[]", ":AI[x]"),
        (r"\d+", r"\d+", "123"),
        (r"\\server\share", r"\\server\share", r"\server\share"),
        ("[a", "[a", "a"),
        ('{"a":1,"b":2}', '{"a":1,"b":2}', '"a":1'),
    ],
)
def test_what_only_looks_special_means_itself(pattern: str, text: str, other: str):
    assert Pattern(pattern).matches(text)
    assert not Pattern(pattern).matches(other)


@pytest.mark.covers("E-084", "E-085")
def test_regular_expressions_look_anywhere_and_need_slashes():
    assert Pattern("/^(a|b)/").matches("apple") and not Pattern("/^(a|b)/").matches("cab")
    assert not Pattern(r"/\d+/").matches("abc")
    assert Pattern("/APPLE/i").matches("an apple") and not Pattern("/APPLE/").matches("an apple")
    assert Pattern("/^b.c$/ms").matches("a\nb\nc")
    assert Pattern("/a b # c/x").matches("ab")
    assert kind_of("/a/ii") == kind_of("/a/q") == "literal"


@pytest.mark.covers("R-132", "E-086")
@pytest.mark.parametrize("pattern", ["*.js", "*", "/a*/", "", "a", "$.a", "//a"])
def test_null_never_matches(pattern: str):
    assert Pattern(pattern).matches(None) is False
    assert Pattern(pattern).search(None) is None
    assert Pattern(pattern).replace(None, "x") is None


@pytest.mark.covers("E-087", "E-088")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("//item", True),
        ("//item[@id='3']", True),
        ("//item[@id='5']", False),
        ("/root/item[1]", True),
        ("/root/item[3]", False),
        ("/root/item[position()>1]", True),
        ("/root/item[position()>2]", False),
        ("/root/child::item", True),
        ("/root/child::other", False),
        ("//item = 'y'", True),
        ("//item = 'z'", False),
        ("//item[. = //item]", True),
    ],
)
def test_xpath(pattern: str, expected: bool):
    assert Pattern(pattern).matches(XML) is expected
    assert not Pattern(pattern).matches("plain text with an item")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("//price[. < 5]", ["4"]),
        ("//price[. >= 4]", ["4", "12"]),
        ("//price[not(. < 5)]", ["12", "free"]),
        ("//price[. = 4]", ["4"]),
        ("//price[. = '4.0']", []),
        ("//price[. != 4]", ["12", "free"]),
        ("//price[-1 < .]", ["4", "12"]),
        ("//price[. < //limit]", ["4"]),
        ("//price[. < 'x']", []),
        ("//price[. < //none]", []),
        ("//price[true() = .]", ["4", "12", "free"]),
    ],
)
def test_xpath_compares_numbers_and_what_is_none(pattern: str, expected: list[str]):
    prices = ["4", "12", "free"]
    found = [one for one in prices if Pattern(pattern).matches(f"<r><price>{one}</price><limit>5</limit></r>")]
    assert found == expected


def test_xpath_reads_names_without_namespaces():
    assert Pattern("//entry/@term").search('<f:feed xmlns:f="urn:f"><entry xmlns="urn:e" f:term="a"/></f:feed>') == PatternHit(
        "a", None
    )
    with pytest.raises(BadInput, match="//f:entry"):
        Pattern("//f:entry")


@pytest.mark.covers("E-089")
@pytest.mark.parametrize("pattern", ["$.name", "$.a[0].id", "$.a[*].id", "$..deep", "$.a[?@.id == 2]", "$.a[?match(@.x, 'y')] "])
def test_jsonpath(pattern: str):
    assert Pattern(pattern.strip()).matches(JSON) is ("match" not in pattern)
    assert not Pattern(pattern.strip()).matches('{"other": [NaN]}')
    for text in ("plain $.name", '{"name": ', "[NaN]", "7", ""):
        assert not Pattern(pattern.strip()).matches(text)


def test_jsonpath_filters_may_match_with_regular_expressions():
    assert Pattern("$[?match(@.n, 'o.l')].n").search('[{"n": "howl"}, {"n": "owl"}]') == PatternHit("owl", None)
    assert Pattern("$[?search(@.n, 'w')].n").search('[{"n": "howl"}, {"n": "owl"}]') == PatternHit("howl", None)
    assert not Pattern("$[?search(@.n, '(')]").matches('[{"n": "("}]')


@pytest.mark.covers("R-129", "E-093")
@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("30", "port = 3000", PatternHit("30", 7)),
        ("/3(0+)/", "port = 3000", PatternHit("3000", 7)),
        ("31", "port = 3000", None),
        ("/x/", "port = 3000", None),
        ("p??t", "the port", PatternHit("port", 4)),
        ("f*r", "/a/far/b\nor", PatternHit("far", 3)),
        ("a[0]", "a0 a[0]", PatternHit("a[0]", 3)),
        ("$.a", JSON, PatternHit('[{"id": 1}, {"id": 2}]', None)),
        ("$.name", JSON, PatternHit("owl", None)),
        ("//item[2]", XML, PatternHit("y", None)),
        ("//item[2]/@id", XML, PatternHit("4", None)),
    ],
)
def test_search_says_what_was_found_and_where(pattern: str, text: str, found: PatternHit | None):
    assert Pattern(pattern).search(text) == found


@pytest.mark.covers("R-129", "E-094")
@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "result"),
    [
        ("a", "bb", "a.a", "bb.bb"),
        ("x", "y", "a.a", None),
        ("/x/", "y", "a.a", None),
        ("x*", "y", "a.a", None),
        ("/a/", "b", "a.a", "b.a"),
        ("/a/g", "b", "a.a", "b.b"),
        (r"/(a)\.(?<z>b)/", r"\g<z>-$1-\1-$&-\0", "a.b", "b-a-a-a.b-a.b"),
        ("/a/", r"$5.00 \7 \g<no> $$ \\ \n", "a", "$5.00 \\7 \\g<no> $ \\ \n"),
        ("a", r"\1$1", "a", r"\1$1"),
        ("a?", "-", "ab ac", "- -"),
        ("a?", "-", "a? ab", "- ab"),
    ],
)
def test_replace(pattern: str, replacement: str, text: str, result: str | None):
    assert Pattern(pattern).replace(text, replacement) == result


def test_replace_takes_the_number_of_places_as_an_option():
    assert Pattern("a").replace("aa", "b", is_all=False) == "ba"
    assert Pattern("/a/").replace("aa", "b", is_all=True) == "bb"
    assert Pattern("/a/g").replace("aa", "b", is_all=False) == "ba"
    assert Pattern("a?").replace("ab ac", "-", is_all=False) == "- ac"


@pytest.mark.parametrize("pattern", ["$.a", "//a"])
def test_paths_cannot_replace(pattern: str):
    with pytest.raises(BadInput, match="cannot replace"):
        Pattern(pattern).replace("{}", "x")


NESTED = ["/" + "(" * 900 + ")" * 900 + "/", "!(" * 500 + ")" * 500, "$[?" + "(" * 900 + "@" + ")" * 900 + "]"]


@pytest.mark.parametrize("pattern", ["/(/", "/a{2,1}/", "$.a[", "$..[?f(@)]", "//a[", "//a[f()]", "/a[@]", *NESTED])
def test_invalid_pattern_is_bad_input(pattern: str):
    with pytest.raises(BadInput) as caught:
        Pattern(pattern)
    assert caught.value.message and caught.value.hint


def test_sizes_are_bounded():
    Pattern("a" * patterns.PATTERN_LIMIT)
    with pytest.raises(BadInput, match="2,049 characters"):
        Pattern("a" * (patterns.PATTERN_LIMIT + 1))
    for pattern, limit, before in (
        ("/x/", patterns.TEXT_LIMIT, ""),
        ("x*", patterns.TEXT_LIMIT, ""),
        ("$.x", jsonpaths.TEXT_LIMIT, "{"),
        ("//x", xpaths.TEXT_LIMIT, "<"),
    ):
        assert not Pattern(pattern).matches((before + "a" * limit)[:limit])
        with pytest.raises(TooLarge):
            Pattern(pattern).matches((before + "a" * limit)[:limit] + "a")


@pytest.mark.parametrize(
    ("pattern", "replacement"), [("a", "b" * 4096), ("/a/g", "b" * 4096), ("/(a+)/", r"\1" * 4096), ("a?", "b" * 4096)]
)
def test_replacing_cannot_fill_the_memory(pattern: str, replacement: str):
    with pytest.raises(TooLarge):
        Pattern(pattern, 30.0).replace("a" * 10_000, replacement)


@pytest.mark.parametrize(
    "pattern",
    ["{1..9999}", "{!(a),!(b)}" * 40, "//a[concat(" + ".," * 40 + ".)]", "/(?R)/", "/(?<a>x)(?&a)/"],
    ids=["range", "choices", "concat", "recursion", "call"],
)
def test_patterns_that_would_grow_are_refused(pattern: str):
    with pytest.raises(BadInput):
        Pattern(pattern)


def test_documents_that_declare_entities_are_not_read():
    bomb = "<!DOCTYPE a [<!ENTITY b 'bbbb'><!ENTITY c '&b;&b;'>]><a>&c;</a>"
    assert not Pattern("//a").matches(bomb)
    assert Pattern("//a").matches("<!DOCTYPE a SYSTEM 'a.dtd'><a/>")
    assert not Pattern("//a").matches("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>")


def test_depth_is_bounded():
    deep = pattern_limits.DEPTH_LIMIT + 1
    with pytest.raises(TooLarge, match="elements inside each other"):
        Pattern("//b").matches("<a>" * deep + "</a>" * deep)
    with pytest.raises(TooLarge, match="nested too deeply"):
        Pattern("$..b").matches('{"a":' * deep + "1" + "}" * deep)
    assert not Pattern("$.b").matches("[" * 100_000 + "]" * 100_000)


ROWS = json.dumps([{"x": i, "y": [1, 2, 3]} for i in range(20_000)])
NODES = "<r>" + "<a b='1'>t</a>" * 15_000 + "</r>"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("/(a|aa)+$/", "a" * 60 + "b"),
        ("/(?:(?:a?){50}){50}$/", "a" * 3000 + "b"),
        ("*a" * 300 + "*b", "a" * 100_000),
        ("$[?count($..*..*..*) > 1]", ROWS),
        ("$[?count(@..*..*..*..*) > 1000000]", ROWS),
        ("$[?" + "||".join(["@ == -1"] * 200) + "]", json.dumps(list(range(100_000)))),
        ("$..zz" + "..*" * 300, ROWS.replace("x", "zz")),
        ("$[?match(@, '(a|aa)+$')]", json.dumps(["a" * 60 + "b"] * 100)),
        ("$[?search(@, '(a|aa)+$')]", json.dumps(["a" * 60 + "b"] * 100)),
        ("//a[. != //a]", NODES),
        ("//a[not(//a < //a)]", NODES),
        ("//*[//*[//*[@c]]]", NODES),
        ("//a[following::a[preceding::a[@c]]]", NODES),
        ("//a[preceding-sibling::a[last()] = 'z']", NODES),
        ("//*[contains(/, 'zz')]", NODES),
        ("//@*[..//@*[..//@*[. = 'z']]]", NODES),
    ],
)
def test_no_kind_runs_longer_than_its_timeout(pattern: str, text: str):
    slow = Pattern(pattern, TIMEOUT_S)
    Pattern("$.a").matches("{}"), Pattern("//a").matches("<a/>")  # the libraries are imported by now
    begin = time.monotonic()
    with pytest.raises((DeadlineExceeded, TooLarge)) as caught:
        slow.matches(text)
    assert time.monotonic() - begin < PATIENCE_S
    assert pattern[:20] in caught.value.message and caught.value.hint


def test_evaluation_looks_at_so_many_nodes_only():
    path, text = JsonPathSelector("$[?count($..*..*) < 0]"), json.dumps([[[[1] * 10] * 10] * 10] * 10)
    assert list(path.values(text, PatternWatch("$", 60.0))) == []
    with pytest.raises(TooLarge, match="5,000 nodes"):
        list(path.values(text, PatternWatch("$", 60.0, 5_000)))


def test_compiled_remembers():
    assert compiled("*.js") is compiled("*.js")
    assert compiled("*.js", 0.5).timeout_s == 0.5


PIECES = st.sampled_from(
    "a b ab * ** ? / // [ ] [a-z] [!a] { } , | ( ) ! !( {a,b} {1..3} \\ \\d + ^ $ $. $.. $[ @ . .. = == < > && || # ' \" 1 0 -1 "
    ": :: child:: ancestor:: following:: preceding-sibling::* text() last() position() count( sum( concat( string( not( id( "
    "number( round( translate( substring( length( match( search( value( (?R) (?<=a+) (a|aa)+ {2,} &x; ~ ; \n \0 \ud800 é".split(" ")
)
PATTERNS = st.tuples(st.sampled_from(["", "/", "//", "//a", "$.", "$..", "$[?", "!("]), st.lists(PIECES, max_size=12)).map(
    lambda parts: parts[0] + "".join(parts[1])
)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
SUBJECTS = st.one_of(
    st.none(),
    st.text(max_size=60),
    st.lists(PIECES, max_size=20).map("".join),
    st.sampled_from([JSON, XML, "a" * 2000 + "b", "a/" * 500, ROWS[:3000] + "]", "<a>" * 50 + "</a>" * 50]),
    st.recursive(SCALARS, lambda one: st.lists(one) | st.dictionaries(st.text(max_size=3), one), max_leaves=9).map(json.dumps),
)


@settings(max_examples=250, deadline=None)
@given(pattern=PATTERNS | st.text(max_size=30), subject=SUBJECTS, replacement=st.text(max_size=5))
def test_nothing_raises_but_our_errors_and_nothing_hangs(pattern: str, subject: str | None, replacement: str):
    begin = time.monotonic()
    try:
        made = Pattern(pattern, TIMEOUT_S)
        assert made.kind in ("regex", "jsonpath", "xpath", "glob", "literal")
        assert made.matches(subject) in (True, False)
        made.search(subject)
        made.replace(subject, replacement)
    except OwlError as error:
        assert error.message
    assert time.monotonic() - begin < 3 * PATIENCE_S


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="ab+().$^#-_ 1", max_size=20).filter(lambda text: kind_of(text) == kind_of("plain")))
def test_plain_text_finds_itself(text: str):
    assert Pattern(text).search(f"x{text}y") == PatternHit(text, 0 if not text else f"x{text}y".index(text))
