"""Grants, marks and the rule about texts of strangers by themselves: what covers what, what carries something, what lasts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from process import Box, a_box, script  # noqa: F401
from record_tools import replace
from stores import new_store

from appliance import tools
from appliance.agent.taint_gate import Checkpoint, HeldCalls
from appliance.agent.taint_tracking import Origins
from appliance.agent.toolbox import Caller, Toolbox, ToolRules, read_tool
from appliance.clock import CancelToken, now_ms, this_process
from appliance.errors import BadInput, NotFound
from appliance.knowledge.entries import By, Content, Entries
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Views
from appliance.policy import taint
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import DAY_MS, Grants, lasting
from appliance.policy.policy_file import Policy
from appliance.policy.taint import FREE_BITS, KnownData, Mark, ToolReach
from appliance.records import ToolCall
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.text.fences import foreign, is_origin, told
from appliance.work.tasks import NewTask, TaskRows

WEB = ToolReach("web", target="url", data=("url",))
CALL = ToolReach("call", named="mcp:x")
PAGE = Mark("web", "https://a.example/x")
MAIL = Mark("mail", "from mallory")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def runs(store: Store) -> Runs:
    made = Runs(store, this_process().encode())
    with store.write():
        made.open_session("local:ada", "ada", "user:ada")
    return made


# -- the rule ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "is_free"),
    [
        ("https://owls.example/", True),  # the person said the host
        ("owls.example", True),
        ("https://owls.example/barn", False),  # said, but not as a part of an address
        ("https://www.other.example/a/b?c=d", True),  # said letter by letter
        ("https://OTHER.example/a/b?c=d", True),
        ("https://other.example/A/b?c=d", False),  # another page, and a way to say something by capitals
        ("https://other.example/a/b?c=d#e", True),  # a fragment does not leave
        ("https://other.example/a/./x/../b?%63=d", True),  # other ways to write the same: what leaves is one
        ("https://other.example/a/b?c=d/", False),
        ("https://other.example/a//b?c=d", False),
        ("https://other.example/a\t/b?c=d", False),
        ("https://other.example/a/b?c=\nd", False),
        ("https://other.example/a/b?c=d\u200b", False),
        ("https://other.example/a/b?c=d\U000e0041", False),
        ("https://other.example\\a/b?c=d", False),
        ("https://other.example/a", False),  # a part of it: which one could say something
        ("https://example/", False),
        ("https://owls.example//", False),
        ("https://owls.example/?", False),
        ("http://owls.example/", True),
        ("https://xn--bcher-kva.example/", True),
        ("https://BÜCHER.example", True),
        ("https://other.example/a/b?c=de", False),
        ("https://owls.example/secret", False),
        ("https://owls.example:8443/", False),
        ("https://secret@owls.example/", False),
        ("https://secret.owls.example/", False),
        ("https://evil.example/", False),
        ("https://listed.example/a?b=c", True),  # a stranger listed exactly this
        ("https://listed.example/a?b=cd", False),
        ("https://listed.example/a", False),
        ("https://listed.example/a?b=c/", False),
        ("https://listed.example//a?b=c", False),
        ("https://listed.example/a?b=c" + "/" * 47, False),
        ("http://[broken", False),
    ],
)
def test_an_address_may_say_what_the_person_said_or_a_stranger_listed(url: str, is_free: bool) -> None:
    known = KnownData(
        "Is there a barn on owls.example, bücher.example or other.example/a/b?c=d ?",
        taint.links("See (https://listed.example/a?b=c)."),
    )
    assert (taint.carried(WEB, url, {"url": url, "timeout_seconds": 99}, known) == ()) is is_free


def test_the_more_links_there_are_the_fewer_may_be_followed() -> None:
    many = frozenset(f"https://a.example/{n}" for n in range(500))
    few = frozenset(f"https://a.example/{n}" for n in range(2))
    left = {len(links): 0 for links in (many, few)}
    for links in (many, few):
        while not taint.carried(WEB, "https://a.example/1", {}, KnownData("", links, followed=left[len(links)])):
            left[len(links)] += 1
    assert left == {500: 1, 2: 8} and all(count * len(str(bin(size))[2:]) <= FREE_BITS for size, count in left.items())


@pytest.mark.parametrize(
    ("arguments", "carried"),
    [
        ({"zone": "Europe/Paris"}, ()),
        ({"zone": "europe/paris", "list": ["7", 7, None]}, ()),
        ({"zone": "EUROPE/PARIS"}, ()),
        ({"zone": "eUrOpE/pArIs"}, ("zone",)),  # capitals may say something
        ({"zone": "Europe/Paris "}, ("zone",)),  # and so may blanks
        ({"zone": "time  is"}, ("zone",)),
        ({"list": ["7", "7", "7"]}, ()),
        ({"list": ["7"] * 47}, ("list", "tool")),
        ({"list": [None] * 47}, ("list", "tool")),
        ({"list": [[], [[]]]}, ()),
        ({"list": [[[[[[[[[]]]]]]]]]}, ("list", "tool")),
        ({"deep": {"What": "time", "is": "it", "in": "7", "at": "What"}}, ("deep", "tool")),
        ({"zone": "Europe/Berlin"}, ("zone",)),
        ({"zone": "Paris", "note": "4711"}, ("note",)),
        ({"zone": "Par"}, ("zone",)),  # not within a word
        ({"deep": {"Europe": "7"}}, ()),
        ({"deep": {"4711": "7"}}, ("deep",)),
        ({"a": True, "b": False, "c": 1}, ()),
        ({"list": [True] * 12}, ()),
        ({"list": [True] * 13}, ("list", "tool")),  # which tool it is was the first choice
        ({"numbers": [4, 7, 1, 1]}, ("numbers",)),
        ({}, ()),
    ],
)
def test_arguments_of_a_server_say_what_the_person_said(arguments: dict[str, object], carried: tuple[str, ...]) -> None:
    known = KnownData("What time is it in Europe/Paris, at 7?", names=frozenset(arguments))
    assert taint.carried(CALL, "mcp:x", arguments, known) == carried


def test_what_an_argument_is_called_says_something_where_the_tool_has_none_of_that_name() -> None:
    known = KnownData("What time is it?", theirs="it takes a zone", names=frozenset({"when"}))
    assert taint.carried(CALL, "mcp:x", {"when": "time", "zone": True, "it": "is"}, known) == ()
    assert taint.carried(CALL, "mcp:x", {"when": "time", "4711": True}, known) == ("4711",)
    book = replace(known, theirs=" ".join(f"w{n}" for n in range(1000)))
    assert taint.carried(CALL, "mcp:x", {"w471": True}, book) == ()
    assert taint.carried(CALL, "mcp:x", {"w47": 1, "w11": 1}, book)
    assert taint.carried(CALL, "mcp:x", {}, replace(known, tools=1000)) == ()
    assert taint.carried(CALL, "mcp:x", {}, replace(known, tools=1000, followed=1)) == ("tool",)


def test_what_is_asked_many_times_says_something_however_little_each_time_does() -> None:
    def most(reach: ToolReach, target: str, arguments: dict[str, object]) -> int:
        known = [KnownData("See https://a.example/1 of owls", followed=count, names=frozenset(arguments)) for count in range(100)]
        return next(n for n, one in enumerate(known) if taint.carried(reach, target, arguments, one))

    assert most(CALL, "mcp:x", {"query": "owls"}) == most(CALL, "mcp:x", {}) == 4
    assert most(WEB, "https://a.example/1", {}) == most(ToolReach("search", named="search"), "search", {"query": "owls"}) == 16


def test_how_an_address_is_asked_for_says_something() -> None:
    reach = ToolReach("web", target="url", data=("url", "wait"), usual=(20,))
    for wait, free in ((None, 16), (20, 16), (7, 16), (47, 1)):
        known = [KnownData("See https://a.example/1 in 7 seconds", followed=count) for count in range(20)]
        asked = {"url": "https://a.example/1", "wait": wait}
        assert [taint.carried(reach, "https://a.example/1", asked, one) for one in known].count(()) == free


def test_a_search_may_use_words_of_the_web_and_no_others() -> None:
    search, known = ToolReach("search", named="search", data=("query",)), KnownData("owls?", public="Strigidae live in barns")
    assert taint.carried(search, "search", {"query": "strigidae owls barns", "max_results": 7}, known) == ()
    assert taint.carried(search, "search", {"query": "owls 4711"}, known) == ("query",)
    listed = KnownData("owls?", public=" ".join(f"word{chr(97 + n)}" for n in range(26)) + " 4711 4712")
    assert taint.carried(search, "search", {"query": "owls 4711"}, listed) == ("query",), "a number is what a code looks like"
    many = " ".join(f"word{chr(97 + n)}" for n in range(9))
    assert taint.carried(search, "search", {"query": many}, listed) == ("query",), "and a page may be a book of codes"
    assert taint.carried(search, "search", {"query": many.removesuffix(" wordi")}, listed) == ()


@pytest.mark.parametrize(
    ("query", "is_free"),
    [
        ("what do barn owls eat, and where?", True),  # the person's own phrase
        ("barn owls eat", True),
        ("Barn owls eat mice", True),
        ("owls barn where", True),
        ("eat mice barn owls", True),
        ("BARN OWLS MICE", True),
        ("barn  \u3000 owls\n", True),  # how many blanks there are does not leave
        ("owls \u2837\u2831\u2831", False),  # Braille
        ("owls!!?! eat", False),
        ("owls! eat? barn!", False),
        ("owls . eat", False),
        ("owls owls eat", False),
        ("owls eat owls, eat", False),
        ("bArn oWls", False),
        ("barn Owls eAt mice", False),
        ("barn owl\u017f eat mice", False),  # a letter that is the same when it is folded
        ("ba\u200brn owls", False),
        ("barn owls\u200b eat", False),
        ("barn\U000e0034 owls", False),
        ("barn o\u0301wls", False),
        ("\uff42arn owls", False),
        ("mice \u2166 owls", False),  # a number, if not in digits
        ("what do barn owls eat and where is the mice of it all today", False),
    ],
)
def test_all_of_a_search_is_looked_at(query: str, is_free: bool) -> None:
    known = KnownData(
        "What do barn owls eat, and where? Is it all of today?", public="Mice! mice \u2837\u2831\u2831 \u2166 is the owls!!?!"
    )
    search = ToolReach("search", named="search", data=("query",))
    given = taint.canonical(search, {"query": query})
    assert (taint.carried(search, "search", given, known) == ()) is is_free
    assert given["query"] == " ".join(query.split())


def test_what_a_server_is_told_has_the_very_letters_of_the_person() -> None:
    known = KnownData("Please see to it", names=frozenset({"query"}))
    for said, carried in (("Please see", ()), ("please see", ()), ("PLEASE SEE", ()), ("plea\u017fe \u017fee", ("query",))):
        assert taint.carried(CALL, "mcp:x", {"query": said}, known) == carried


@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_a_text_says_itself_and_nothing_it_does_not_hold(part: str, around: str) -> None:
    assert taint.has(f"{around} {part} {around}", part)
    assert not taint.has(around, part) or " ".join(part.split()).casefold() in " ".join(around.split()).casefold()


def test_what_the_folder_says_holds_what_leaves_and_not_what_stays() -> None:
    inside = (Mark("command"), Mark("file", "README"))
    assert taint.holding("exec", inside) == () and taint.holding("search", inside) == ()
    assert taint.holding("web", inside) == inside and taint.holding("exec", (*inside, PAGE)) == (PAGE,)


def test_sources_are_named_newest_first_and_not_all() -> None:
    marks = [Mark("web", f"https://a.example/{n}") for n in range(9)]
    assert taint.because(marks) == ("page https://a.example/8; page https://a.example/7; page https://a.example/6 and 6 more")
    assert [mark.scope for mark in (PAGE, MAIL, Mark("mcp:time", "time/now"), Mark("skill", "tidy"))] == [
        "web:a.example", "mail", "mcp:time", "skill:tidy",
    ]  # fmt: skip
    assert Mark("mcp:time", "time/now").text == "the server time (time/now)" and Mark("web").text == "the web"


def test_origins_have_names_and_fences() -> None:
    assert all(map(is_origin, ("web", "mcp:time", "person:bob", "agent"))) and not any(map(is_origin, ("", "mcp:", "x", "mcp:a b")))
    assert told("person:bob") == "the person bob" and foreign("mcp:time", "x").startswith("From the server time, information")


# -- marks ---------------------------------------------------------------------------------------------


def test_marks_are_kept_once_and_passed_on(store: Store, runs: Runs) -> None:
    run = runs.begin("local:ada", "chat")
    assert runs.marks.since(run.id) is None and run.origins == ()
    for _ in range(2):
        runs.taint(run.id, "web", "https://a.example/x")
    runs.taint(run.id, "mcp:time", "time/now")
    assert set(runs.marks.of(f"run:{run.id}")) == {PAGE, Mark("mcp:time", "time/now")}
    assert runs.get(run.id).origins == ("mcp:time", "web")
    child = runs.begin("local:ada", "chat", parent=run.id)
    assert child.origins == ("mcp:time", "web") and runs.marks.since(child.id) == 0
    runs.marks.inherit("schedule:7", f"run:{child.id}")
    assert set(runs.marks.of("schedule:7")) == set(runs.marks.of(f"run:{run.id}"))
    runs.delete(child.id)
    assert runs.marks.of(f"run:{child.id}") == () and len(runs.marks.of("schedule:7")) == 2


def test_what_a_marked_run_writes_is_marked(store: Store, runs: Runs) -> None:
    run, clean = runs.begin("local:ada", "chat"), runs.begin("local:ada", "chat")
    entries, tasks = Entries(store), TaskRows(store)
    before = entries.put("memory://before", Content(body="a"), By("model", run.id))
    runs.taint(run.id, "web", "https://a.example/x")
    after = entries.put("memory://after", Content(body="b"), By("model", run.id))
    other = entries.put("memory://other", Content(body="c"), By("model", clean.id))
    found = runs.marks.entries(["memory://before", "memory://after", "memory://other", after.uid], "project:1")
    assert found == {"memory://after": (PAGE,), after.uid: (PAGE,)} and before.id < other.id
    entries.put("memory://other", Content(body="d"), By("model", run.id))
    entries.put("memory://other", Content(body="e"), By("model", clean.id))
    assert runs.marks.entries(["memory://other"], "project:1") == {"memory://other": (PAGE,)}, "and stays so"
    made = [tasks.add(NewTask("x", session="local:ada", origin=one.id)).id for one in (run, clean)]
    assert [runs.marks.of(f"task:{task}") for task in made] == [(PAGE,), ()]
    assert runs.begin("local:ada", "tick", task=made[0]).origins == ("web",)


# -- grants --------------------------------------------------------------------------------------------


def test_a_grant_covers_its_kind_its_target_and_its_sources(store: Store) -> None:
    grants = Grants(store)
    made = grants.add("ada", "web", "*.example", ["web:a.example"], lasting("7d"), "ada")
    assert made.covers("web", "b.example", [PAGE]) and not made.covers("web", "b.example", [PAGE, MAIL])
    assert not made.covers("exec", "b.example", [PAGE]) and not made.covers("web", "b.test", [PAGE])
    assert not made.covers("web", "b.example", [Mark("web", "https://c.example/")])
    assert grants.find("ada", "web", "b.example", [PAGE]) == made and grants.find("bob", "web", "b.example", [PAGE]) is None
    grants.add("ada", "web", "*", ["any"], DAY_MS, "ada")
    assert grants.find("ada", "web", "b.test", [PAGE, MAIL]) is not None
    assert made.is_open(now_ms()) and not made.is_open(made.expires_ms)
    make = grants.add("ada", "exec", "make *", ["any"], DAY_MS, "ada")
    assert make.covers("exec", "make all", [PAGE]) and not make.covers("exec", "make; rm -rf x", [PAGE])
    assert not any(make.covers("exec", f"make all{more}", [PAGE]) for more in ("; id", " && id", "\nid", " $(id)", " `id`", " > x"))
    assert grants.add("ada", "exec", "a | b*", ["any"], DAY_MS, "ada").covers("exec", "a | bc", [PAGE])


@pytest.mark.parametrize(
    ("kind", "target", "origins", "lasts_ms"),
    [("fly", "*", ["any"], 1), ("web", " ", ["any"], 1), ("web", "*", ["nowhere"], 1), ("web", "*", [], 1),
     ("web", "*", ["any"], 0), ("web", "*", ["any"], 400 * DAY_MS)],
)  # fmt: skip
def test_a_grant_that_cannot_be_is_refused(store: Store, kind: str, target: str, origins: list[str], lasts_ms: int) -> None:
    with pytest.raises(BadInput) as caught:
        Grants(store).add("ada", kind, target, origins, lasts_ms, "ada")
    assert caught.value.hint and Grants(store).listing(is_all=True) == []


def test_times_are_short_words() -> None:
    assert [lasting(text) for text in ("30m", "12h", "7d", " 2W ")] == [1_800_000, DAY_MS // 2, 7 * DAY_MS, 14 * DAY_MS]
    for text in ("", "7", "d", "-1d", "0d", "53w", "9999999d", "7 years"):
        with pytest.raises(BadInput):
            lasting(text)


def test_a_grant_is_taken_back_once(store: Store) -> None:
    grants = Grants(store)
    made = grants.add("ada", "exec", "make test", ["any"], DAY_MS, "ada")
    assert grants.revoke(made.id).revoked_ms and grants.listing() == []
    assert [one.id for one in grants.listing(is_all=True)] == [made.id]
    with pytest.raises(NotFound, match="no grant"):
        grants.revoke(made.id)


def test_grants_are_made_shown_and_revoked_by_commands(box: Box) -> None:
    script(box, '[[turns]]\nrepeat = true\ntext = "Hoot."\n')
    assert "no grants" in box.run("grants", "list").stdout
    made = box.json("grants", "add", "web", "owls.example", "--from", "web", "--from", "mail", "--for", "12h")
    assert (made["kind"], made["target"], made["origins"]) == ("web", "owls.example", ["mail", "web"])
    tool = box.json("grants", "add", "plugin", "post_card", "--from", "web")
    assert tool["kind"] == "plugin" and get_args(taint.Kind) == tuple(taint.KINDS)
    assert box.run("grants", "revoke", str(tool["id"])).returncode == 0
    shown = box.run("grants", "list")
    assert "owls.example" in shown.stdout and "mail, web" in shown.stdout
    assert box.run("grants", "revoke", str(made["id"])).returncode == 0
    assert box.run("grants", "revoke", str(made["id"])).returncode == 3
    assert "revoked" in box.run("grants", "list", "--all").stdout
    assert box.run("grants", "add", "web", "x", "--from", "nowhere").returncode == 2
    assert box.run("grants", "add", "fly", "x", "--from", "any").returncode == 2
    piped = box.run("ask", "Sum it up.", text="Hoot, said the stranger.")
    assert piped.returncode == 0
    with box.store() as opened:
        (row,) = opened.rows("SELECT origin, source FROM marks")
        assert row == ("document", "piped in with the message")


# -- cost ----------------------------------------------------------------------------------------------


class Counting(Store):
    """A store that knows how often it was read."""

    reads = 0

    def rows(self, sql: str, bindings: Any = ()) -> list[Any]:
        self.reads += 1
        return super().rows(sql, bindings)


def test_a_call_in_a_thread_without_marks_pays_one_read(tmp_path: Path) -> None:
    new_store(tmp_path / "owlbox.db").close()
    store = Counting.open(tmp_path / "owlbox.db")
    assert isinstance(store, Counting)
    runs, entries, views = Runs(store, this_process().encode()), Entries(store), Views(store)
    verbs = Verbs(store, entries, views, Schemes())
    origins = Origins(runs.marks)
    held_calls = HeldCalls(runs, verbs, Ledger(store), Outbox(store, runs.process))
    checkpoint, toolbox = Checkpoint(runs, Grants(store), origins, held_calls), Toolbox([], {}, rules=ToolRules(Policy()))
    with store.write():
        runs.open_session("local:ada", "ada", "user:ada")
        run = runs.begin("local:ada", "chat").id
    caller = Caller(run, CancelToken(), "local:ada")
    known = {made.mark.name: made.mark for made in map(read_tool, tools.load())}
    given = {
        "fetch_url": {"url": "https://owls.example/"},
        "message": {"target": "person:bob", "content": "hi"},
        "search": {"query": "owls"},
        "remember": {"text": "owls eat mice"},
        "create_task": {"name": "feed the owl"},
    }
    for name, arguments in given.items():
        store.reads = 0
        assert checkpoint.before(toolbox, known[name], ToolCall("c", name, arguments), caller) is None
        assert store.reads == 1, name
    store.close()
