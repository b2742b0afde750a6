"""The six verbs: what they write, what a run sees afterwards, what waits for a decision, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_views import Bench as Rows

from appliance.errors import BadInput, NotFound, OwlError
from appliance.knowledge.entries import PROJECT, Content, Entry
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.selection import window
from appliance.knowledge.verb_arguments import Look, Write, rewrite
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor, View
from appliance.records import Outcome
from appliance.text import edits

PERSON = Actor("client")
LIMIT = 1024  # characters of one piece of knowledge


class Bench(Rows):
    """Two models' runs and a person, over one database."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.verbs = Verbs(self.store, self.entries, self.views, Schemes())

    def set(self, ref: str, body: str | None = None, actor: Actor | None = None, **more: Any) -> Outcome:
        content = more.pop("content", Content())
        return self.verbs.set(actor or self.me, ref, Write(body, content=content, **more))

    def find(self, ref: str, actor: Actor | None = None) -> Entry | None:
        run = (actor or self.me).run
        return self.entries.find(ref, scope=f"run:{run}") or self.entries.find(ref)

    def body(self, ref: str, actor: Actor | None = None) -> str:
        found = self.find(ref, actor)
        assert found is not None, ref
        return found.body

    def view(self, ref: str, actor: Actor | None = None) -> View:
        return self.views.get((actor or self.me).run, ref)

    def log(self, actor: Actor | None = None) -> list[View]:
        return self.views.views_of((actor or self.me).run, prefix="log://")

    def rows(self) -> list[object]:
        return [
            self.store.rows("SELECT scope, path, body, attributes, title FROM entries WHERE path NOT LIKE 'log://%' ORDER BY 1, 2"),
            self.store.rows(
                "SELECT v.run, e.path, visibility, writes FROM views v JOIN entries e ON e.id = v.entry "
                "WHERE path NOT LIKE 'log://%' ORDER BY 1, 2"
            ),
        ]

    def fork(self, parent: Actor) -> Actor:
        child = Actor(parent.tier, self.run(parent.run), 1, parent.turn + 1)
        self.views.fork(parent.run, child.run)
        return child


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "owlbox.db")
    yield made
    made.store.close()


def told(outcome: Outcome, status: int, label: str, *words: str) -> None:
    assert (outcome.status, outcome.outcome) == (status, label), outcome
    for word in words:
        assert word in f"{outcome.message} {outcome.hint}", outcome
    if outcome.is_error:
        assert outcome.message and outcome.hint


# -- set --------------------------------------------------------------------------------------------


@pytest.mark.covers("R-110", "R-013", "R-014", "R-028", "E-109")
def test_setting_again_replaces_the_body_keeps_the_rest_and_counts(bench: Bench) -> None:
    told(bench.set("known://owl", "hoot", content=Content(attributes={"wings": 2}, title="Owl")), 200, "ok", "known://owl: written")
    told(bench.set("known://owl", "tu-whit"), 200, "ok", "changed")
    entry = bench.find("known://owl")
    assert entry is not None
    assert (entry.body, entry.attributes, entry.title, entry.writer) == ("tu-whit", {"wings": 2}, "Owl", "model")
    assert bench.view("known://owl").writes == 2
    bench.set("known://owl", "tu-whit", content=Content(attributes={"legs": 2}))
    assert bench.find("known://owl").attributes == {"legs": 2}  # type: ignore[union-attr]
    assert bench.view("known://owl").writes == 3


@pytest.mark.covers("R-030")
def test_blank_text_is_content_and_only_rm_removes(bench: Bench) -> None:
    bench.set("known://owl", "hoot")
    told(bench.set("known://owl", ""), 200, "ok")
    assert bench.body("known://owl") == ""
    told(bench.verbs.get(bench.me, "known://owl"), 200, "ok")
    bench.verbs.rm(bench.me, "known://owl")
    assert bench.find("known://owl") is None


@pytest.mark.covers("R-111", "E-069", "E-118", "R-050")
@pytest.mark.parametrize("visibility", ["visible", "summarized", "archived"])
def test_visibility_alone_changes_only_the_view(bench: Bench, visibility: Any) -> None:
    bench.set("known://owl", "hoot")
    before = bench.find("known://owl")
    told(bench.set("known://owl", visibility=visibility), 200, "ok")
    assert bench.find("known://owl") == before
    assert (bench.view("known://owl").visibility, bench.view("known://owl").writes) == (visibility, 1)
    bench.set("known://owl", "tu-whit")  # a write honours what was set
    assert bench.view("known://owl").visibility == visibility


@pytest.mark.covers("R-111", "E-070")
def test_summary_is_cut_at_a_word_with_a_warning(bench: Bench) -> None:
    text = "owl " * 22 + "ab"
    outcome = bench.set("known://owl", "hoot", summary=text)
    told(outcome, 200, "ok", "warning", "90")
    assert bench.view("known://owl").summary == ("owl " * 20).strip()
    bench.set("known://owl", summary=f"{'a' * 39} {'b' * 40} c")
    assert bench.view("known://owl").summary == f"{'a' * 39} {'b' * 40}"
    bench.set("known://owl", summary="x" * 90)
    assert bench.view("known://owl").summary == "x" * 80
    outcome = bench.set("known://owl", summary="y" * 80)
    assert outcome.data["warnings"] == [] and bench.view("known://owl").summary == "y" * 80
    bench.set("known://owl", visibility="archived")
    assert bench.view("known://owl").summary == "y" * 80


@pytest.mark.covers("R-112", "E-105")
def test_a_pattern_sets_every_match_and_a_filter_narrows_it(bench: Bench) -> None:
    for name, body in (("a", "owl"), ("b", "oak"), ("c/d", "owl")):
        bench.set(f"known://{name}", body)
    told(bench.set("known://*", "x", wanted="owl"), 200, "ok")
    assert [bench.body(f"known://{n}") for n in ("a", "b", "c/d")] == ["x", "oak", "owl"]
    bench.set("known://**", visibility="archived")
    assert {view.visibility for view in bench.views.views_of(bench.me.run, prefix="known://")} == {"archived"}
    outcome = bench.set("known://**", "s/o/0/", wanted="/o/")
    assert outcome.data["paths"] == ["known://b", "known://c/d"]
    assert bench.body("known://b") == "0ak"
    told(bench.set("known://z*", "x"), 404, "not_found", "known://z*")
    told(bench.set("known://a", "x", wanted="heron"), 404, "not_found", "heron")


def test_one_bad_match_changes_none(bench: Bench) -> None:
    bench.set("known://a", "owl and oak")
    bench.set("known://b", "owl")
    told(bench.set("known://*", search="oak", replace="elm"), 409, "conflict")
    assert bench.body("known://a") == "owl and oak"


def test_a_name_with_brackets_can_be_made(bench: Bench) -> None:
    told(bench.set("pages/[id].tsx", "export", actor=PERSON), 200, "ok")
    assert bench.body("pages/[id].tsx") == "export"
    bench.set("pages/[id].tsx", "again", actor=PERSON)
    assert bench.body("pages/[id].tsx") == "again"
    told(bench.set("https://example.org/?q=owl", "page"), 200, "ok")
    assert bench.body("https://example.org/?q=owl") == "page"


@pytest.mark.covers("R-114")
@pytest.mark.parametrize(
    ("ref", "more", "path"),
    [
        ("garden", {}, "known://garden"),
        ("birds/owl", {}, "known://birds/owl"),
        ("known://owl", {}, "known://owl"),
        ("unknown://owl", {}, "unknown://owl"),
        ("", {"summary": "owls, night hunters"}, "known://owls/night_hunters"),
        ("", {}, "known://Owls_hunt_at_night."),
    ],
)
def test_knowledge_finds_its_path(bench: Bench, ref: str, more: dict[str, str], path: str) -> None:
    outcome = bench.set(ref, "Owls hunt at night.\nAnd day.", kind="known", **more)
    assert outcome.data["paths"] == [path]
    assert bench.body(path).startswith("Owls")


@pytest.mark.covers("R-114")
def test_knowledge_without_a_path_never_overwrites_another_piece(bench: Bench) -> None:
    first = bench.set("", "one", kind="known", summary="owls").data["paths"]
    again = bench.set("", "one", kind="known", summary="owls").data["paths"]
    other = bench.set("", "two", kind="known", summary="owls").data["paths"]
    assert (first, again, other) == (["known://owls"], ["known://owls"], ["known://owls_2"])


@pytest.mark.covers("R-115")
def test_knowledge_is_at_most_512_tokens(bench: Bench) -> None:
    told(bench.set("known://owl", "x" * LIMIT), 200, "ok", "512 tokens")
    told(bench.set("known://owl", "y" * (LIMIT + 1)), 413, "too_large", "513", "split")
    told(bench.set("known://owl", "<<APPEND more APPEND"), 413, "too_large")
    told(bench.set("known://oak", "y" * (LIMIT + 1)), 413, "too_large")
    assert bench.body("known://owl") == "x" * LIMIT and bench.find("known://oak") is None
    told(bench.set("unknown://oak", "y" * (LIMIT + 1)), 200, "ok")
    told(bench.verbs.cp(bench.me, "unknown://oak", "known://oak"), 413, "too_large")
    told(bench.verbs.mv(bench.me, "unknown://oak", "known://oak"), 413, "too_large")
    assert bench.find("unknown://oak") is not None


@pytest.mark.covers("R-110", "E-053", "E-055", "E-115")
@pytest.mark.parametrize(
    ("body", "more", "result"),
    [
        ("<<NEW fresh NEW", {}, "fresh"),
        ("<<REPLACE fresh REPLACE", {}, "fresh"),
        ("<<APPEND more APPEND", {}, "one\ntwo\nmore"),
        ("<<DELETE two DELETE", {}, "one\n"),
        ("<<SEARCH one SEARCH <<REPLACE 1 REPLACE", {}, "1\ntwo"),
        ("<<SEARCH one SEARCH <<REPLACE 1 REPLACE <<SEARCH 1 SEARCH <<REPLACE 2 REPLACE", {}, "2\ntwo"),
        ("s/two/zwei/", {}, "one\nzwei"),
        (None, {"search": "two", "replace": "zwei"}, "one\nzwei"),
        ("zwei", {"search": "two"}, "one\nzwei"),
        (None, {"search": "two", "replace": ""}, "one\n"),
        (None, {"search": "", "replace": "three"}, "one\ntwo\nthree"),
        (None, {"search": "s/two/2/"}, "one\n2"),
        (None, {"replace": "whole"}, "whole"),
        ("<<APPEND more APPEND", {"is_literal": True}, "<<APPEND more APPEND"),
    ],
)
def test_edits_apply_at_once(bench: Bench, body: str | None, more: dict[str, Any], result: str) -> None:
    bench.set("known://x", "one\ntwo")
    outcome = bench.set("known://x", body, **more)
    told(outcome, 200, "ok")
    assert bench.body("known://x").rstrip() == result.rstrip()
    assert bench.views.proposals(bench.me.run) == []
    assert bench.view("known://x").writes == 2  # several edits are one change
    assert len(bench.entries.changes("known://x", scope=f"run:{bench.me.run}")) == 2


@pytest.mark.covers("E-054")
def test_appending_to_nothing_makes_it(bench: Bench) -> None:
    told(bench.set("known://a", "<<APPEND more APPEND"), 200, "ok")
    told(bench.set("known://b", search="", replace="more"), 200, "ok")
    assert (bench.body("known://a"), bench.body("known://b")) == ("more", "more")


@pytest.mark.covers("E-055")
@pytest.mark.parametrize(
    ("body", "more", "status", "label"),
    [
        ("<<DELETE three DELETE", {}, 409, "conflict"),
        ("<<SEARCH three SEARCH <<REPLACE 3 REPLACE", {}, 409, "conflict"),
        ("<<SEARCH two SEARCH <<REPLACE 2 REPLACE <<DELETE three DELETE", {}, 409, "conflict"),
        ("<<SEARCH two SEARCH", {}, 400, "bad_input"),
        ("<<REPLACE two", {}, 400, "bad_input"),
        (None, {"search": "three", "replace": "3"}, 409, "conflict"),
        (None, {"search": "two"}, 400, "bad_input"),
        ("s/three/3/", {}, 409, "conflict"),
    ],
)
def test_an_edit_that_does_not_fit_changes_nothing(bench: Bench, body: str | None, more: Any, status: int, label: str) -> None:
    bench.set("known://x", "one\ntwo")
    before = bench.rows()
    told(bench.set("known://x", body, **more), status, label)
    assert bench.rows() == before
    told(bench.set("known://y", "fine"), 200, "ok")


@given(st.text(max_size=80), st.text(max_size=80), st.one_of(st.none(), st.text(max_size=30)))
@settings(max_examples=200, deadline=None)
def test_rewriting_raises_only_our_errors(text: str, body: str, search: str | None) -> None:
    for words in (body, f"<<SEARCH {body} SEARCH <<REPLACE {text} REPLACE", f"s/{body}/{text}/", f"<<DELETE {body} DELETE"):
        try:
            done = rewrite("known://x", text, Write(words, search))
        except OwlError as error:
            assert error.message
        else:
            assert isinstance(done, edits.EditedText)


def test_compare_and_set(bench: Bench) -> None:
    told(bench.set("known://x", "one", expected_hash=""), 200, "ok")
    told(bench.set("known://x", "two", expected_hash=""), 409, "conflict", "known://x", "read it again")
    known = bench.verbs.get(bench.me, "known://x").data["hash"]
    told(bench.set("known://x", "two", expected_hash=known), 200, "ok")
    told(bench.set("known://x", "three", expected_hash=known), 409, "conflict")
    told(bench.set("known://y", "three", expected_hash=known), 409, "conflict", "not there")
    told(bench.set("known://*", "three", expected_hash=known), 400, "bad_input")
    assert bench.body("known://x") == "two"


# -- get --------------------------------------------------------------------------------------------


@pytest.mark.covers("R-029", "R-104", "E-103")
def test_get_promotes_to_the_present_turn_and_records_it(bench: Bench) -> None:
    bench.entry("memory://owl", "hoot")
    outcome = bench.verbs.get(bench.me, "memory://owl")
    assert outcome.message == "hoot"
    assert (outcome.data["paths"], outcome.data["tokens"]) == (["memory://owl"], 2)
    view = bench.view("memory://owl")
    assert (view.visibility, view.turn, view.loop) == ("visible", 3, 1)
    [log] = bench.log()
    assert log.path == "log://turn_3/get/memory%3A/owl" and (log.state, log.status) == ("resolved", 200)
    assert bench.body(log.path) == "* memory://owl - 2 tokens"


@pytest.mark.covers("R-104")
def test_a_missing_entry_is_told_in_the_record(bench: Bench) -> None:
    told(bench.verbs.get(bench.me, "memory://none"), 404, "not_found", "memory://none")
    [log] = bench.log()
    assert (log.state, log.status, log.outcome) == ("failed", 404, "not_found")
    assert "memory://none" in bench.body(log.path)


@pytest.mark.covers("R-105", "R-109", "E-104")
def test_a_pattern_promotes_all_matches_archived_ones_included(bench: Bench) -> None:
    for name, body in (("a", "owl"), ("b", "an oak"), ("c", "owls")):
        bench.set(f"known://{name}", body, visibility="archived")
    outcome = bench.verbs.get(bench.me, "known://*", Look("owl"))
    assert outcome.message == "* known://a - 2 tokens\n* known://c - 2 tokens"
    assert [v.visibility for v in bench.views.views_of(bench.me.run, prefix="known://")] == ["visible", "archived", "visible"]
    assert bench.body("log://turn_3/get/known%3A/*") == outcome.message
    bench.verbs.get(bench.me, "known://{a,b}")
    assert [v.visibility for v in bench.views.views_of(bench.me.run, prefix="known://")] == ["visible"] * 3


@pytest.mark.covers("R-106")
def test_preview_lists_without_promoting(bench: Bench) -> None:
    bench.set("known://a", "owl")
    outcome = bench.verbs.get(bench.me, "known://*", Look(is_preview=True))
    assert outcome.message == "PREVIEW\n* known://a - 2 tokens"
    assert bench.view("known://a").visibility == "summarized"
    assert bench.body("log://turn_3/get/known%3A/*").startswith("PREVIEW")


@pytest.mark.covers("R-107", "R-102", "E-112", "E-113")
@pytest.mark.parametrize(
    ("line", "limit", "header", "first", "last"),
    [
        (10, 5, "[lines 10–14 / 100 total]", "10", "14"),
        (None, 3, "[lines 1–3 / 100 total]", "1", "3"),
        (99, 999, "[lines 99–100 / 100 total]", "99", "100"),
        (98, None, "[lines 98–100 / 100 total]", "98", "100"),
        (-2, None, "[lines 99–100 / 100 total]", "99", "100"),
        (-5, 2, "[lines 96–97 / 100 total]", "96", "97"),
        (-500, 1, "[lines 1–1 / 100 total]", "1", "1"),
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_are_shown_without_promotion(
    bench: Bench, line: int | None, limit: int | None, header: str, first: str, last: str, end: str
) -> None:
    bench.entry("notes/long", "\n".join(map(str, range(1, 101))) + end)
    outcome = bench.verbs.get(bench.me, "notes/long", Look(line=line, limit=limit))
    lines = outcome.message.split("\n")
    assert (lines[0], lines[1], lines[-1]) == (header, first, last)
    assert bench.views.find(bench.me.run, "notes/long") is None
    bench.set("notes/long", visibility="archived")
    bench.verbs.get(bench.me, "notes/long", Look(line=line, limit=limit))
    assert bench.view("notes/long").visibility == "archived"


@pytest.mark.covers("R-107", "R-108", "E-113", "E-114")
def test_lines_that_cannot_be(bench: Bench) -> None:
    bench.set("known://a", "1\n2\n3")
    assert bench.verbs.get(bench.me, "known://a", Look(line=2, limit=999)).message == "[lines 2–3 / 3 total]\n2\n3"
    told(bench.verbs.get(bench.me, "known://*", Look(line=1)), 400, "bad_input", "known://*")
    told(bench.verbs.get(bench.me, "known://a", Look("1", limit=2)), 400, "bad_input")
    told(bench.verbs.get(bench.me, "known://none", Look(line=1)), 404, "not_found", "known://none")
    told(bench.verbs.get(bench.me, "known://a", Look(line=0)), 400, "bad_input", "0")
    told(bench.verbs.get(bench.me, "known://a", Look(line=4)), 400, "bad_input", "3 lines")
    told(bench.verbs.get(bench.me, "known://a", Look(limit=0)), 400, "bad_input")
    assert bench.view("known://a").visibility == "summarized"


@given(st.text(alphabet="ab\n", max_size=30), st.integers(-40, 40), st.one_of(st.none(), st.integers(-3, 40)))
@settings(max_examples=200, deadline=None)
def test_a_window_is_always_within_the_text(text: str, line: int, limit: int | None) -> None:
    try:
        part = window(text, line, limit)
    except BadInput:
        return
    assert 1 <= part.first <= part.last <= part.total
    assert part.text.count("\n") == part.last - part.first
    assert part.text in text


def test_a_person_reads_and_writes_without_a_run(bench: Bench) -> None:
    told(bench.set("memory://owl", "hoot", actor=PERSON), 200, "ok")
    with_run, without = bench.verbs.get(bench.me, "memory://owl"), bench.verbs.get(PERSON, "memory://owl")
    assert with_run == without
    assert bench.store.value("SELECT COUNT(*) FROM views v JOIN entries e ON e.id = v.entry WHERE scope = 'project:1'") == 1
    told(bench.verbs.get(PERSON, "memory://*"), 200, "ok", "* memory://owl - 2 tokens")
    told(bench.set("memory://owl", visibility="visible", actor=PERSON), 400, "bad_input", "thread")
    told(bench.set("memory://owl", summary="a bird", actor=PERSON), 400, "bad_input", "thread")
    told(bench.verbs.update(PERSON, "done", 200), 400, "bad_input", "thread")
    told(bench.set("known://owl", "hoot", actor=PERSON), 400, "bad_input", "known://owl", "thread", "memory://")


def test_what_holds_no_text_says_what_it_is(bench: Bench) -> None:
    bench.entries.put("agent://a.png", Content(blob=b"\x89PNG", mime="image/png"))
    told(bench.verbs.get(bench.me, "agent:/a.png"), 200, "ok", "agent://a.png holds no text: image/png")
    bench.verbs.cp(bench.me, "agent://a.png", "agent://b.png")
    copied = bench.find("agent://b.png")
    assert copied is not None and bench.entries.blob(copied) == b"\x89PNG"


# -- rm ---------------------------------------------------------------------------------------------


@pytest.mark.covers("R-117", "E-107")
def test_removing_by_pattern_leaves_one_log_entry(bench: Bench) -> None:
    for name in "abc":
        bench.set(f"known://{name}", name)
    count = len(bench.log())
    outcome = bench.verbs.rm(bench.me, "known://*")
    told(outcome, 200, "ok")
    assert outcome.data["paths"] == ["known://a", "known://b", "known://c"]
    [log] = [view for view in bench.log() if "/rm/" in view.path]
    assert len(bench.log()) == count + 1
    assert all(f"known://{name}" in bench.body(log.path) for name in "abc")
    assert bench.views.views_of(bench.me.run, prefix="known://") == []
    told(bench.verbs.rm(bench.me, "known://*"), 404, "not_found", "known://*")
    told(bench.verbs.rm(bench.me, "known://a"), 404, "not_found", "known://a")


@pytest.mark.covers("R-118", "E-106")
def test_removal_takes_a_filter_and_a_preview(bench: Bench) -> None:
    for name, body in (("a", "owl"), ("b", "oak"), ("c", "owl")):
        bench.set(f"known://{name}", body)
    outcome = bench.verbs.rm(bench.me, "known://**", Look("owl", is_preview=True))
    assert outcome.message == "PREVIEW\n* known://a - 2 tokens\n* known://c - 2 tokens"
    assert len(bench.views.views_of(bench.me.run, prefix="known://")) == 3
    bench.verbs.rm(bench.me, "known://**", Look("owl"))
    assert [view.path for view in bench.views.views_of(bench.me.run, prefix="known://")] == ["known://b"]


@pytest.mark.covers("R-015", "E-119")
def test_what_others_see_stays(bench: Bench) -> None:
    bench.set("known://owl", "hoot")
    child = bench.fork(bench.me)
    assert bench.verbs.get(child, "known://owl").message == "hoot"
    told(bench.verbs.rm(child, "known://owl"), 200, "ok", "others still see it")
    assert bench.views.find(child.run, "known://owl") is None
    assert bench.verbs.get(bench.me, "known://owl").message == "hoot"
    told(bench.verbs.get(child, "known://owl"), 404, "not_found")
    bench.verbs.rm(bench.me, "known://owl")
    assert bench.find("known://owl") is None


@pytest.mark.covers("R-015", "E-119")
@pytest.mark.parametrize("verb", ["rm", "mv"])
def test_a_fork_keeps_what_its_parent_takes_away(bench: Bench, verb: str) -> None:
    bench.set("known://owl", "hoot", content=Content(title="T"), visibility="visible")
    child = bench.fork(bench.me)
    done = bench.verbs.rm(bench.me, "known://owl") if verb == "rm" else bench.verbs.mv(bench.me, "known://owl", "known://bird")
    told(done, 200, "ok")
    told(bench.verbs.get(bench.me, "known://owl"), 404, "not_found")
    told(bench.verbs.get(bench.me, "known://*owl"), 404, "not_found")
    assert bench.verbs.get(child, "known://owl").message == "hoot"
    assert bench.view("known://owl", child).visibility == "visible"
    assert bench.find("known://owl", child).title == "T"  # type: ignore[union-attr]


@pytest.mark.covers("R-015")
def test_shared_content_goes_with_its_last_reader_and_a_person_ends_it_for_all(bench: Bench) -> None:
    bench.entry("memory://owl")
    bench.verbs.get(bench.me, "memory://owl")
    bench.verbs.get(bench.other, "memory://owl")
    bench.verbs.rm(bench.me, "memory://owl")
    assert bench.find("memory://owl") is not None
    bench.verbs.rm(bench.other, "memory://owl")
    assert bench.find("memory://owl") is None
    bench.entry("memory://oak")
    bench.verbs.get(bench.me, "memory://oak")
    bench.verbs.rm(PERSON, "memory://oak")
    assert bench.find("memory://oak") is None and bench.views.find(bench.me.run, "memory://oak") is None


@pytest.mark.covers("R-041", "E-119")
def test_later_writes_of_parent_and_fork_do_not_change_each_other(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.set(f"known://{name}", "old", content=Content(title="T"), visibility="visible")
    child = bench.fork(bench.me)
    bench.set("known://a", "parent's")
    bench.set("known://b", "s/old/child's/", actor=child)
    assert bench.verbs.get(child, "known://a").message == "old"
    assert bench.verbs.get(bench.me, "known://a").message == "parent's"
    assert bench.verbs.get(child, "known://b").message == "child's"
    assert bench.verbs.get(bench.me, "known://b").message == "old"
    assert bench.view("known://b", child).visibility == "visible"
    assert bench.find("known://b", child).title == "T"  # type: ignore[union-attr]
    assert len(bench.views.views_of(child.run, prefix="known://")) == 3


# -- cp, mv -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["known://paper", "disk://paper.pdf"])
def test_the_bytes_that_a_text_was_read_from_go_with_its_copy(bench: Bench, ref: str) -> None:
    read = Content(body="owls", original=b"%PDF", mime="application/pdf")
    bench.entries.put(ref, read, scope=f"run:{bench.me.run}" if ref.startswith("known") else PROJECT)
    bench.verbs.get(bench.me, ref)
    bench.verbs.cp(bench.me, ref, "memory://copy")
    copy = bench.entries.get("memory://copy")
    assert (copy.body, bench.entries.blob(copy)) == ("owls", b"%PDF")


def test_a_fork_that_renames_its_own_keeps_the_bytes_and_one_that_rewrites_it_does_not(bench: Bench) -> None:
    bench.entries.put("known://paper", Content(body="owls", original=b"%PDF"), scope=f"run:{bench.me.run}")
    bench.verbs.get(bench.me, "known://paper")
    renaming, rewriting = bench.fork(bench.me), bench.fork(bench.me)
    bench.set("known://paper", None, renaming, content=Content(title="Paper"))
    bench.set("known://paper", "cats", rewriting)
    named, written = bench.find("known://paper", renaming), bench.find("known://paper", rewriting)
    assert named and written and (named.title, named.body, bench.entries.blob(named)) == ("Paper", "owls", b"%PDF")
    assert written.body == "cats"
    with pytest.raises(NotFound):
        bench.entries.blob(written)


@pytest.mark.covers("R-119")
@pytest.mark.parametrize("verb", ["cp", "mv"])
@pytest.mark.parametrize("target", ["known://b", "memory://b"])
def test_copies_and_moves_are_immediate(bench: Bench, verb: str, target: str) -> None:
    bench.set("known://a", "hoot", content=Content(title="T", attributes={"n": 1}))
    do = bench.verbs.cp if verb == "cp" else bench.verbs.mv
    outcome = do(bench.me, "known://a", target, "archived")
    told(outcome, 200, "ok", "known://a", target)
    assert outcome.data == {"paths": [target], "count": 1, "proposals": [], "warnings": []}
    entry = bench.find(target)
    assert entry is not None and (entry.body, entry.title, entry.attributes) == ("hoot", "T", {"n": 1})
    assert bench.view(target).visibility == "archived"
    assert (bench.find("known://a") is None) == (verb == "mv")


@pytest.mark.covers("R-119")
@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_overwriting_gives_a_warning(bench: Bench, verb: str) -> None:
    bench.set("known://a", "new")
    bench.set("known://b", "old", visibility="visible")
    do = bench.verbs.cp if verb == "cp" else bench.verbs.mv
    outcome = do(bench.me, "known://a", "known://b")
    told(outcome, 200, "ok", "warning", "known://b was there")
    assert bench.body("known://b") == "new" and len(outcome.data["warnings"]) == 1
    assert bench.view("known://b").visibility == "visible"


@pytest.mark.covers("R-119")
def test_a_move_removes_its_source_only_on_success(bench: Bench) -> None:
    bench.set("known://a", "hoot")
    for target, status in (
        ("system://1", 403),
        ("../up", 400),
        ("known://a", 400),
        ("", 400),
        ("known://*", 400),
        ("box://x", 403),
    ):
        assert bench.verbs.mv(bench.me, "known://a", target).status == status, target
        assert bench.body("known://a") == "hoot"
    told(bench.verbs.mv(bench.me, "known://none", "known://b"), 404, "not_found")
    told(bench.verbs.cp(bench.me, "known://*", "known://b"), 400, "bad_input", "known://*")
    told(bench.verbs.mv(bench.me, "known://a", "known://birds/"), 200, "ok")
    assert bench.body("known://birds/a") == "hoot"


@pytest.mark.covers("R-115", "R-202")
def test_how_long_a_piece_of_knowledge_may_be_is_set(bench: Bench) -> None:
    verbs = Verbs(bench.store, bench.entries, bench.views, Schemes(), knowledge_tokens=4)
    told(verbs.set(bench.me, "known://long", Write("x" * 9)), 413, "too_large", "at most 4")
    told(verbs.set(bench.me, "known://short", Write("x" * 8)), 200, "ok")


@pytest.mark.covers("R-119", "R-120")
@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_all_that_a_pattern_matches_goes_below_a_folder(bench: Bench, verb: str) -> None:
    for name, body in (("paris", "Seine"), ("lyon/old", "Rhone"), ("nice", "sea")):
        bench.set(f"known://france/{name}", body)
    do = bench.verbs.cp if verb == "cp" else bench.verbs.mv
    told(do(bench.me, "known://france/**", "known://archive/fr", None), 400, "bad_input", "known://archive/fr/")
    listed = do(bench.me, "known://france/**", "known://archive/fr/", None, Look("Seine|sea", is_preview=True))
    told(listed, 404, "not_found", "Seine|sea")
    listed = do(bench.me, "known://france/**", "known://archive/fr/", None, Look("/Seine|sea/", is_preview=True))
    assert listed.message.splitlines() == [
        "PREVIEW",
        "* known://france/nice -> known://archive/fr/nice",
        "* known://france/paris -> known://archive/fr/paris",
    ]
    assert bench.find("known://archive/fr/nice") is None
    count = len(bench.log())
    outcome = do(bench.me, "known://france/**", "known://archive/fr/", None, Look("/Seine|Rhone/"))
    told(outcome, 200, "ok")
    assert outcome.data["paths"] == ["known://archive/fr/lyon/old", "known://archive/fr/paris"]
    assert len(bench.log()) == count + 1
    assert bench.body("known://archive/fr/lyon/old") == "Rhone" and bench.find("known://archive/fr/nice") is None
    assert (bench.find("known://france/paris") is None) == (verb == "mv")
    assert bench.body("known://france/nice") == "sea"
    bench.set("known://a/x", "1")
    bench.set("known://a/b/x", "2")
    told(do(bench.me, "known://a/**", "known://a/b/", None), 400, "bad_input", "known://a/b/x is source and target")
    assert bench.body("known://a/b/x") == "2"


def test_what_would_be_set_is_listed(bench: Bench) -> None:
    for name in "ab":
        bench.set(f"known://{name}", "owl")
    outcome = bench.set("known://*", visibility="archived", is_preview=True)
    assert outcome.message == "PREVIEW\n* known://a - 2 tokens\n* known://b - 2 tokens"
    assert {bench.view(f"known://{name}").visibility for name in "ab"} != {"archived"}


def test_moving_what_others_see_leaves_it_to_them(bench: Bench) -> None:
    bench.set("known://a", "hoot")
    child = bench.fork(bench.me)
    bench.verbs.mv(child, "known://a", "known://b")
    assert bench.verbs.get(bench.me, "known://a").message == "hoot"
    told(bench.verbs.get(child, "known://a"), 404, "not_found")
    assert bench.verbs.get(child, "known://b").message == "hoot"


# -- update -----------------------------------------------------------------------------------------


@pytest.mark.covers("R-027", "R-068")
@pytest.mark.parametrize("status", [102, 200, 204, 422])
def test_update_records_how_it_stands(bench: Bench, status: int) -> None:
    outcome = bench.verbs.update(bench.me, "looking for owls", status)
    [view] = bench.views.views_of(bench.me.run, prefix="update://")
    assert (view.path, view.status, view.turn) == ("update://turn_3/looking_for_owls", status, 3)
    assert outcome.data["paths"] == [view.path] and bench.body(view.path) == "looking for owls"
    bench.verbs.update(bench.me, "looking for owls", status)
    assert len(bench.views.views_of(bench.me.run, prefix="update://")) == 2
    told(bench.verbs.update(bench.me, "x", 500), 400, "bad_input", "500", "422")


def test_an_answer_about_very_many_entries_can_be_sent(bench: Bench) -> None:
    long = "x" * 1900
    with bench.store.write(durable=True):
        for n in range(320):
            bench.entries.set(f"memory://{n:03}{long}", "hoot")
    preview = bench.verbs.rm(PERSON, "memory://*", Look(is_preview=True))
    removed = bench.verbs.rm(PERSON, "memory://*")
    for outcome in (preview, removed):
        assert len(outcome.message) < 310_000 and outcome.message.endswith(" more"), outcome.message[-80:]
        assert outcome.data["count"] == 320 and 0 < len(outcome.data["paths"]) < 320
    assert bench.entries.list_lines("memory://") == []


# -- files wait -------------------------------------------------------------------------------------


@pytest.mark.covers("R-113", "R-090", "R-085", "E-115")
def test_a_models_change_of_a_file_waits(bench: Bench) -> None:
    bench.entry("src/owl.py", "hoot = 1\n")
    outcome = bench.set("src/owl.py", search="hoot = 1", replace="hoot = 2")
    told(outcome, 202, "proposed", "src/owl.py")
    assert bench.body("src/owl.py") == "hoot = 1\n"
    [view] = bench.views.proposals(bench.me.run)
    assert [view.path] == outcome.data["proposals"] and (view.state, view.status) == ("proposed", 202)
    proposal = bench.verbs.actions.proposal(view)
    assert proposal is not None and (proposal.before, proposal.after) == ("hoot = 1\n", "hoot = 2\n")
    stored = bench.find(view.path)
    assert stored is not None and "-hoot = 1\n+hoot = 2\n" in stored.attributes["patch"]
    assert "hoot = 1" in stored.body and "hoot = 2" in stored.body and "=======" in stored.body


@pytest.mark.covers("E-116", "R-090")
def test_two_edits_of_one_file_are_one_proposal(bench: Bench) -> None:
    bench.entry("src/owl.py", "a\nb\nc\n")
    bench.set("src/owl.py", search="a", replace="A")
    (shown,) = (bench.verbs.actions.show(one) for one in bench.verbs.waiting(bench.me.run))
    second = bench.set("src/owl.py", search="c", replace="C")
    [view] = bench.views.proposals(bench.me.run)
    (now,) = (bench.verbs.actions.show(one) for one in bench.verbs.waiting(bench.me.run))
    assert now.ref == shown.ref and now.digest != shown.digest  # who was shown the first edit does not accept the second
    assert second.data["proposals"] == [view.path]
    told(bench.verbs.resolve(person_in(bench), view.path, True), 200, "ok", "accepted")
    assert bench.body("src/owl.py") == "A\nb\nC\n"
    entry = bench.find("src/owl.py")
    assert entry is not None and entry.writer == "model"


def person_in(bench: Bench) -> Actor:
    return Actor("client", bench.me.run, 1, 4)


@pytest.mark.covers("E-108", "R-117", "R-089")
def test_removing_files_waits_one_by_one(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.entry(f"src/{name}.py", name)
    outcome = bench.verbs.rm(bench.me, "src/*.py")
    told(outcome, 202, "proposed")
    assert len(bench.views.proposals(bench.me.run)) == len(outcome.data["proposals"]) == 2
    first, second = outcome.data["proposals"]
    person = person_in(bench)
    told(bench.verbs.resolve(person, first, False), 200, "ok", "rejected")
    assert bench.find("src/a.py") is not None
    assert [view.path for view in bench.views.proposals(bench.me.run)] == [second]
    told(bench.verbs.resolve(person, second, True), 200, "ok")
    assert bench.find("src/b.py") is None
    told(bench.verbs.resolve(person, second, True), 409, "conflict", "resolved")
    assert (bench.view(first).state, bench.view(first).status, bench.view(first).outcome) == ("failed", 403, "rejected")
    assert (bench.view(second).state, bench.view(second).status) == ("resolved", 200)


def test_a_proposal_does_not_overwrite_what_changed_meanwhile(bench: Bench) -> None:
    bench.entry("src/owl.py", "one")
    [path] = bench.set("src/owl.py", "two").data["proposals"]
    bench.set("src/owl.py", "three", actor=PERSON)
    told(bench.verbs.resolve(person_in(bench), path, True), 409, "conflict", "src/owl.py", "changed")
    assert bench.body("src/owl.py") == "three"
    assert (bench.view(path).state, bench.view(path).status, bench.view(path).outcome) == ("failed", 409, "conflict")
    assert bench.views.proposals(bench.me.run) == []


@pytest.mark.covers("R-050")
@pytest.mark.parametrize("visibility", ["visible", "summarized", "archived"])
def test_accepting_never_lowers_visibility(bench: Bench, visibility: Any) -> None:
    bench.entry("src/owl.py", "one")
    bench.set("src/owl.py", visibility=visibility)
    [path] = bench.set("src/owl.py", "two").data["proposals"]
    bench.verbs.resolve(person_in(bench), path, True)
    assert bench.view("src/owl.py").visibility == visibility and bench.body("src/owl.py") == "two"


@pytest.mark.covers("R-119", "R-113")
@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_copying_onto_a_file_waits_and_works_once_accepted(bench: Bench, verb: str) -> None:
    bench.set("known://a", "hoot")
    do = bench.verbs.cp if verb == "cp" else bench.verbs.mv
    outcome = do(bench.me, "known://a", "notes/a.md", "visible")
    told(outcome, 202, "proposed", "notes/a.md")
    assert bench.find("notes/a.md") is None and bench.find("known://a") is not None
    [path] = outcome.data["proposals"]
    told(bench.verbs.resolve(person_in(bench), path, True), 200, "ok")
    assert bench.body("notes/a.md") == "hoot" and bench.view("notes/a.md").visibility == "visible"
    assert (bench.find("known://a") is None) == (verb == "mv")


def test_a_change_that_changes_nothing_does_not_wait(bench: Bench) -> None:
    bench.entry("src/owl.py", "one")
    told(bench.set("src/owl.py", "one"), 200, "ok", "already")
    assert bench.views.proposals(bench.me.run) == []


def test_folders_are_not_moved_by_verbs(bench: Bench) -> None:
    bench.entries.make_folder("agent://notes")
    told(bench.verbs.mv(bench.me, "agent://notes", "agent://more"), 400, "bad_input", "folder")
    told(bench.verbs.get(bench.me, "agent://notes"), 200, "ok", "holds no text")


def test_a_new_file_of_any_size_can_wait(bench: Bench) -> None:
    text = "".join(f"line {n}\n" for n in range(60_000))
    [path] = bench.set("data/big.txt", text).data["proposals"]
    assert bench.verbs.resolve(person_in(bench), path, True).status == 200
    assert bench.body("data/big.txt") == text
    assert bench.store.rows("SELECT path FROM entries WHERE path LIKE 'content:%'") == []


@pytest.mark.covers("E-117")
def test_a_command_waits_until_it_is_resolved(bench: Bench) -> None:
    outcome = bench.verbs.record(bench.me, "sh", "make check", "make check")
    told(outcome, 202, "proposed")
    [view] = bench.views.proposals(bench.me.run)
    assert (view.path, view.status) == ("log://turn_3/sh/make_check", 202)
    told(bench.verbs.resolve(bench.me, view.path, True), 403, "permission:403", "model")
    told(bench.verbs.resolve(person_in(bench), view.path, True), 200, "ok")
    assert bench.views.proposals(bench.me.run) == [] and bench.view(view.path).status == 200
    told(bench.verbs.resolve(person_in(bench), "log://none", True), 404, "not_found", "log://none")


@pytest.mark.covers("E-117", "R-024")
@pytest.mark.parametrize("verb", ["set", "rm", "cp", "mv"])
def test_a_model_cannot_decide_by_writing_to_what_waits(bench: Bench, verb: str) -> None:
    [waits] = bench.verbs.record(bench.me, "sh", "make check", "make check").data["proposals"]
    bench.set("known://other", "make clean")
    before = bench.body(waits)
    given = {"ref": "known://other" if verb in ("cp",) else waits, "target": waits if verb == "cp" else "known://b", "body": "x"}
    told(bench.verbs.perform(bench.me, verb, given), 409, "conflict", waits, "decision")
    assert [view.path for view in bench.views.proposals(bench.me.run)] == [waits] and bench.body(waits) == before
    told(bench.set(waits, visibility="archived"), 200, "ok")  # how it is seen decides nothing
    assert len(bench.views.proposals(bench.me.run)) == 1
    told(bench.verbs.perform(bench.me, "resolve", {"ref": waits, "is_accepted": True}), 403, "permission:403")


@pytest.mark.covers("E-110")
def test_what_waits_is_listed_for_a_thread_and_for_all(bench: Bench) -> None:
    first = bench.set("src/a.py", "x").data["proposals"]
    second = bench.verbs.record(bench.other, "sh", "make", "make").data["proposals"]
    assert [(w.ref, w.run, w.action, w.subject) for w in bench.verbs.waiting()] == [
        (first[0], bench.me.run, "set", "src/a.py"),
        (second[0], bench.other.run, "sh", "make"),
    ]
    assert [w.ref for w in bench.verbs.waiting(bench.other.run)] == second
    assert len(bench.verbs.waiting(limit=1)) == 1
    done = bench.verbs.perform(person_in(bench), "resolve", {"ref": first[0], "is_accepted": False})
    told(done, 200, "ok", "rejected")
    assert [w.ref for w in bench.verbs.waiting()] == second


@pytest.mark.covers("R-113")
def test_a_file_waits_under_its_whole_address_too(bench: Bench) -> None:
    told(bench.set("file://src/owl.py", "x"), 202, "proposed")
    assert bench.find("file://src/owl.py") is None


@pytest.mark.parametrize("ref", ["memory://", "known:/"])
def test_a_drive_is_no_entry(bench: Bench, ref: str) -> None:
    told(bench.set(ref, "x"), 400, "bad_input", "names no entry", "add a name")
    bench.set("known://a", "x")
    told(bench.verbs.cp(bench.me, "known://a", "unknown://"), 200, "ok", "unknown://a")


@pytest.mark.covers("E-119", "R-015")
def test_what_a_deleted_thread_leaves_goes_on_in_its_forks(bench: Bench) -> None:
    bench.set("known://shared", "both")
    bench.set("known://mine", "own")
    first, second = bench.fork(bench.me), bench.fork(bench.me)
    bench.set("known://mine", "first's own", actor=first)
    bench.set("known://late", "nobody else sees it")
    bench.runs.delete(bench.me.run)
    for child in (first, second):
        assert bench.verbs.get(child, "known://shared").message == "both"
    assert bench.verbs.get(first, "known://mine").message == "first's own"
    assert bench.verbs.get(second, "known://mine").message == "own"
    assert bench.store.rows("SELECT path FROM entries WHERE scope = ? OR path = 'known://late'", (f"run:{bench.me.run}",)) == []
    bench.set("known://shared", "changed by one", actor=first)
    assert bench.verbs.get(second, "known://shared").message == "both"
    bench.runs.delete(first.run)
    assert bench.verbs.get(second, "known://shared").message == "both"
    bench.runs.delete(second.run)
    assert bench.store.rows("SELECT path FROM entries WHERE scope LIKE 'run:%' AND path LIKE 'known:%'") == []


@pytest.mark.covers("E-111")
def test_what_is_done_at_once_never_waits(bench: Bench) -> None:
    bench.set("known://a", "x")
    bench.verbs.get(bench.me, "known://a")
    bench.verbs.rm(bench.me, "known://none")
    bench.set("src/a.py", "x", actor=PERSON)
    assert bench.views.proposals(bench.me.run) == []
    plain = Verbs(bench.store, bench.entries, bench.views, Schemes(), is_file_change_proposed=False)
    told(plain.set(bench.me, "src/a.py", Write("y")), 200, "ok")
    assert bench.body("src/a.py") == "y"


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.covers("R-024", "R-021", "R-025")
@pytest.mark.parametrize(
    ("tier", "ref"), [("model", "system://1"), ("model", "box://SOUL.md"), ("model", "skill://x"), ("client", "log://x")]
)
def test_a_refused_write_changes_nothing_and_is_noted(bench: Bench, tier: Any, ref: str) -> None:
    bench.entries.set(ref, "original", scope=Schemes().scope_for(ref, bench.me.run, 1))
    actor = Actor(tier, bench.me.run, 1, 3)
    before = bench.rows()
    outcome = bench.set(ref, "mine", actor=actor)
    told(outcome, 403, "permission:403")
    assert bench.rows() == before
    [log] = [view for view in bench.log() if "/set/" in view.path]
    assert (log.state, log.status, log.outcome) == ("failed", 403, "permission:403")
    assert outcome.message in bench.body(log.path)


@pytest.mark.covers("R-025")
def test_a_run_cannot_override_what_is_the_same_for_all(bench: Bench) -> None:
    bench.entries.set("known://law", "global", scope="global")
    told(bench.set("known://law", "mine"), 403, "permission:403", "known://law")
    assert bench.entries.find("known://law", scope=f"run:{bench.me.run}") is None
    assert bench.verbs.get(bench.me, "known://law").message == "global"


@pytest.mark.covers("R-023")
def test_a_project_write_without_a_project_fails_loudly(bench: Bench) -> None:
    lost = Actor("model", bench.me.run, 1, 3, project=None)
    told(bench.set("memory://owl", "hoot", actor=lost), 400, "bad_input", "project")
    assert bench.find("memory://owl") is None


def test_a_model_never_reads_hidden_schemes(bench: Bench) -> None:
    bench.entries.set("reasoning://1", "secret thoughts", scope=f"run:{bench.me.run}")
    told(bench.verbs.get(bench.me, "reasoning://1"), 404, "not_found")
    told(bench.verbs.get(bench.me, "reasoning://*"), 404, "not_found")
    told(bench.verbs.get(person_in(bench), "reasoning://1"), 200, "ok", "secret")


def test_a_run_never_reaches_anothers_own_entries(bench: Bench) -> None:
    bench.set("known://owl", "mine")
    told(bench.verbs.get(bench.other, "known://owl"), 404, "not_found")
    told(bench.verbs.get(bench.other, "known://*"), 404, "not_found")
    told(bench.verbs.rm(bench.other, "known://owl"), 404, "not_found")
    bench.set("known://owl", "theirs", actor=bench.other)
    assert bench.body("known://owl") == "mine"


@pytest.mark.covers("R-026")
def test_unknown_schemes_have_defaults(bench: Bench) -> None:
    told(bench.set("zzz://a", "x"), 200, "ok")
    assert bench.verbs.get(bench.me, "zzz://a").message == "x"
    assert bench.view("zzz://a").scope == f"run:{bench.me.run}"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "get", "rm", "cp", "mv", "update", "nonsense"]),
            st.one_of(st.sampled_from(["known://a", "known://b", "known://*", "src/a", "a\0b", "../x", ""]), st.text(max_size=12)),
            st.one_of(st.sampled_from(["x", "<<APPEND y APPEND", "s/x/y/", "/(a+)+$/"]), st.text(max_size=12)),
        ),
        max_size=6,
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_verbs_never_raise_anything_but_our_errors(bench: Bench, calls: list[tuple[str, str, str]]) -> None:
    for verb, ref, text in calls:
        try:
            outcome = bench.verbs.perform(bench.me, verb, {"ref": ref, "target": text, "body": text, "wanted": text, "text": text})
        except BadInput as error:
            assert verb == "nonsense" and error.hint
        else:
            assert outcome.message or verb == "get"
            assert not outcome.is_error or outcome.hint, outcome
