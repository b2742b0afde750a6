"""What a run sees: rows of its own over shared content, constraints that hold, forks that copy no text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_store

from appliance.clock import now_ms, this_process
from appliance.errors import NotFound, OwlError
from appliance.knowledge.entries import Entries
from appliance.knowledge.views import Actor, Views
from appliance.records import Inbound
from appliance.sessions.runs import Runs

VISIBILITIES = ("visible", "summarized", "archived")
STATES = ("proposed", "streaming", "resolved", "failed", "cancelled")


class Bench:
    """A database with entries, views and two runs."""

    def __init__(self, path: Path) -> None:
        self.store = new_store(path)
        self.entries = Entries(self.store)
        self.views = Views(self.store)
        self.runs = Runs(self.store, this_process().encode())
        self.me, self.other = Actor("model", self.run(), 1, 3), Actor("model", self.run(), 1, 1)

    def run(self, parent: str | None = None) -> str:
        inbound = Inbound("local", "ada", "hi", "m", now_ms())
        with self.store.write():
            self.runs.touch_session(inbound)
        return self.runs.begin(inbound.session, "chat", parent=parent).id

    def entry(self, path: str, body: str = "hoot") -> int:
        return self.entries.set(path, body).id


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "owlbox.db")
    yield made
    made.store.close()


@pytest.mark.covers("R-008")
@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("state", STATES)
def test_visibility_and_state_vary_independently(bench: Bench, visibility: str, state: str) -> None:
    bench.views.show(bench.me, bench.entry("memory://owl"), visibility, state, 102)  # type: ignore[arg-type]
    view = bench.views.get(bench.me.run, "memory://owl")
    assert (view.visibility, view.state, view.status) == (visibility, state, 102)


@pytest.mark.covers("R-008", "R-009", "R-010", "E-101")
@pytest.mark.parametrize(
    ("visibility", "state", "status", "outcome"),
    [
        ("hidden", "resolved", 200, ""),
        ("visible", "done", 200, ""),
        ("visible", "resolved", 99, ""),
        ("visible", "resolved", 600, ""),
        ("visible", "resolved", "soon", ""),
        ("visible", "resolved", 200.5, ""),
        ("visible", "resolved", 404, "not_found"),
    ],
)
def test_the_database_refuses_what_no_view_can_be(bench: Bench, visibility: str, state: str, status: object, outcome: str) -> None:
    entry = bench.entry("memory://owl")
    with pytest.raises(OwlError):
        bench.views.show(bench.me, entry, visibility, state, status, outcome)  # type: ignore[arg-type]
    assert bench.views.views_of(bench.me.run) == []


@pytest.mark.covers("R-009", "R-010")
@pytest.mark.parametrize(("status", "outcome"), [(100, "aborted"), (403, "permission:403"), (599, "failed")])
def test_failed_views_say_why(bench: Bench, status: int, outcome: str) -> None:
    bench.views.show(bench.me, bench.entry("memory://owl"), "visible", "failed", status, outcome)
    view = bench.views.get(bench.me.run, "memory://owl")
    assert (view.status, view.outcome) == (status, outcome)


@pytest.mark.covers("R-012")
def test_an_entry_is_in_a_run_only_by_its_view_and_only_once(bench: Bench) -> None:
    entry = bench.entry("memory://owl")
    assert bench.views.find(bench.me.run, "memory://owl") is None
    with pytest.raises(NotFound):
        bench.views.get(bench.me.run, "memory://owl")
    for _ in range(3):
        bench.views.promote(bench.me, [entry])
    assert [view.path for view in bench.views.views_of(bench.me.run)] == ["memory://owl"]
    assert bench.views.views_of(bench.other.run) == []
    with pytest.raises(OwlError), bench.store.write() as execute:
        execute(
            "INSERT INTO views (run, entry, visibility, state, status, updated_ms) VALUES (?, ?, 'visible', 'resolved', 200, 0)",
            (bench.me.run, entry),
        )


@pytest.mark.covers("R-011")
def test_one_path_in_several_scopes_hides_nothing(bench: Bench) -> None:
    shared = bench.entry("memory://owl", "shared")
    own = bench.entries.set("memory://owl", "own", scope=f"run:{bench.me.run}").id
    bench.views.promote(bench.me, [shared, own])
    assert [view.scope for view in bench.views.views_of(bench.me.run)] == ["project:1", f"run:{bench.me.run}"]
    assert bench.views.get(bench.me.run, "memory://owl").entry == own


@pytest.mark.covers("E-103", "R-029")
def test_promotion_is_of_now_and_demotion_archives(bench: Bench) -> None:
    entry = bench.entry("memory://owl")
    bench.views.show(Actor("model", bench.me.run, 1, 1), entry, "summarized", "streaming", 102)
    bench.views.promote(bench.me, [entry])
    view = bench.views.get(bench.me.run, "memory://owl")
    assert (view.visibility, view.turn, view.state, view.status) == ("visible", 3, "streaming", 102)
    bench.views.demote(Actor("model", bench.me.run, 1, 9), [entry])
    view = bench.views.get(bench.me.run, "memory://owl")
    assert (view.visibility, view.turn, view.state, view.status) == ("archived", 3, "streaming", 102)


def test_demoting_what_is_not_seen_shows_nothing(bench: Bench) -> None:
    bench.views.demote(bench.me, [bench.entry("memory://owl")])
    assert bench.views.views_of(bench.me.run) == []


@pytest.mark.covers("R-111")
def test_summary_survives_every_change_of_visibility(bench: Bench) -> None:
    entry = bench.entry("memory://owl")
    bench.views.summarize(bench.me, [entry], "a bird")
    for visibility in (*VISIBILITIES, "visible"):
        bench.views.set_visibility(bench.me, [entry], visibility)  # type: ignore[arg-type]
        view = bench.views.get(bench.me.run, "memory://owl")
        assert (view.visibility, view.summary) == (visibility, "a bird")


@pytest.mark.covers("R-013", "R-050")
def test_writing_counts_and_keeps_the_visibility(bench: Bench) -> None:
    entry = bench.entry("memory://owl")
    bench.views.wrote(bench.me, entry)
    assert bench.views.get(bench.me.run, "memory://owl").visibility == "summarized"
    bench.views.promote(bench.me, [entry])
    bench.views.wrote(bench.me, entry)
    view = bench.views.get(bench.me.run, "memory://owl")
    assert (view.writes, view.visibility) == (2, "visible")


@pytest.mark.covers("R-041", "E-119")
def test_a_fork_copies_rows_with_their_turns_and_no_text(bench: Bench) -> None:
    ids = [bench.entry(f"memory://{n}", "x" * 1000) for n in range(5)]
    bench.views.promote(bench.me, ids)
    bench.views.show(bench.me, ids[0], "visible", "proposed", 202)
    child = bench.run(bench.me.run)
    before = bench.store.value("SELECT COUNT(*) FROM entries")
    assert bench.views.fork(bench.me.run, child) == 4
    assert bench.store.value("SELECT COUNT(*) FROM entries") == before
    assert {view.turn for view in bench.views.views_of(child)} == {3}
    bench.views.demote(Actor("model", child), ids)
    bench.views.remove_views(child, ids[1:2])
    assert {view.visibility for view in bench.views.views_of(bench.me.run)} == {"visible"}
    assert len(bench.views.views_of(bench.me.run)) == 5


@pytest.mark.covers("E-110", "E-111")
def test_only_what_waits_is_pending(bench: Bench) -> None:
    first, second, third = (bench.entry(f"memory://{n}") for n in "abc")
    bench.views.show(bench.me, first, "visible", "proposed", 202)
    bench.views.show(bench.me, second, "visible", "proposed", 202)
    bench.views.show(bench.me, third, "visible")
    assert [view.entry for view in bench.views.proposals(bench.me.run)] == [first, second]
    bench.views.resolve(bench.me.run, first, "resolved", 200)
    assert [view.entry for view in bench.views.proposals(bench.me.run)] == [second]
    bench.views.resolve(bench.me.run, second, "failed", 403, "rejected")
    assert bench.views.proposals(bench.me.run) == []


def test_listing_narrows(bench: Bench) -> None:
    a, b = bench.entry("memory://birds/owl"), bench.entry("memory://trees/oak")
    bench.views.promote(bench.me, [a])
    bench.views.set_visibility(bench.me, [b], "archived")
    paths = lambda **more: [view.path for view in bench.views.views_of(bench.me.run, **more)]  # noqa: E731
    assert paths() == ["memory://birds/owl", "memory://trees/oak"]
    assert paths(prefix="memory://birds/") == ["memory://birds/owl"]
    assert paths(visibility="archived") == ["memory://trees/oak"]
    assert paths(state="failed") == []


def test_a_run_sees_another_entry_in_the_place_of_one(bench: Bench) -> None:
    old, new = bench.entry("memory://old"), bench.entry("memory://new")
    bench.views.show(bench.me, old, "archived", "streaming", 102)
    bench.views.promote(bench.me, [new])
    bench.views.repoint(bench.me.run, old, new)
    assert [(view.path, view.visibility, view.state) for view in bench.views.views_of(bench.me.run)] == [
        ("memory://new", "archived", "streaming")
    ]
    bench.views.repoint(bench.other.run, old, new)
    assert bench.views.views_of(bench.other.run) == []


def test_a_deleted_run_or_entry_takes_its_views_along(bench: Bench) -> None:
    entry = bench.entry("memory://owl")
    bench.views.promote(bench.me, [entry])
    bench.views.promote(bench.other, [entry])
    assert bench.views.watchers(entry, beside=bench.me.run) == [bench.other.run]
    bench.runs.delete(bench.other.run)
    assert bench.views.watchers(entry) == [bench.me.run]
    bench.entries.remove("memory://owl")
    assert bench.store.value("SELECT COUNT(*) FROM views") == 0
