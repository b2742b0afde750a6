"""The inventory of our processes: what the kernel knows decides, and nothing is written while nothing happens."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_store
from test_database import child, killed

from appliance.clock import now_ms, process, this_process
from appliance.errors import OwlError
from appliance.store.database import Store
from appliance.store.process_registry import KEEP_MS, Leases


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def leases(store: Store) -> Leases:
    return Leases(store)


def test_process_is_on_record_from_begin_to_end(leases: Leases) -> None:
    lease = leases.begin("core")
    [found] = leases.listing()
    assert (found.id, found.kind, found.process, found.ended_ms, found.reason) == (lease, "core", this_process(), None, "")
    leases.end(lease, "asked to")
    leases.end(lease, "too late")
    [found] = leases.listing()
    assert found.reason == "asked to" and found.ended_ms is not None and found.ended_ms >= found.started_ms


def test_killed_process_is_buried_once_by_the_next_one(store: Store, leases: Leases) -> None:
    code = """
        from appliance.store.process_registry import Leases
        Leases(Store.open(path)).begin("worker")
        print("begun", flush=True)
        sys.stdin.read()
    """
    living = leases.begin("core")
    killed(child(code, store.path), "begun")
    [buried] = leases.mark_dead()
    assert (buried.kind, buried.ended_ms) == ("worker", None)
    assert {lease.kind: lease.reason for lease in leases.listing()} == {"core": "", "worker": "killed"}
    assert [lease.id for lease in leases.listing() if lease.ended_ms is None] == [living]
    assert leases.mark_dead() == []


def test_process_of_an_earlier_boot_has_lost_its_power(leases: Leases) -> None:
    leases.begin("core", this_process()._replace(boot_id="an-earlier-boot"))
    leases.mark_dead()
    assert leases.listing()[0].reason == "power lost or restarted"


def test_process_that_died_before_it_was_written_down_is_buried(leases: Leases) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    leases.begin("broker", process(gone.pid))
    assert [lease.kind for lease in leases.mark_dead()] == ["broker"]


def test_nothing_is_written_while_everybody_lives(store: Store, leases: Leases) -> None:
    leases.begin("core")
    log = store.path.with_name("owlbox.db-wal")
    size = log.stat().st_size
    leases.mark_dead()
    leases.listing()
    assert log.stat().st_size == size


def test_ended_processes_are_forgotten_after_a_month(store: Store, leases: Leases) -> None:
    old, new, living = leases.begin("core"), leases.begin("core"), leases.begin("worker")
    leases.end(old, "long ago")
    leases.end(new, "lately")
    with store.write() as execute:
        execute("UPDATE processes SET ended_ms = ? WHERE id = ?", (now_ms() - KEEP_MS - 1, old))
    last = leases.begin("broker")
    assert {lease.id for lease in leases.listing()} == {new, living, last}


def test_living_ones_come_first(leases: Leases) -> None:
    living = leases.begin("core")
    for number in range(4):
        leases.end(leases.begin("worker"), str(number))
    assert leases.listing(2)[0].id == living
    assert len(leases.listing(2)) == 2


def test_unknown_kind_is_refused(leases: Leases) -> None:
    with pytest.raises(OwlError, match="CHECK constraint failed: kind"):
        leases.begin("owl")
    assert leases.listing() == []
