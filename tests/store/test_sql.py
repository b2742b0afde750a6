"""Queries that somebody types: they read, with our functions, for a while; they change nothing, whoever asks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process import Box, a_box  # noqa: F401
from stores import new_store
from test_database import COUNT_TO_A_BILLION, child, finished

from appliance.channels.rpc.sql import SqlMethods
from appliance.errors import BadInput, Cancelled, DeadlineExceeded, Refused, TooLarge
from appliance.knowledge.entries import By, Content, Entries
from appliance.knowledge.index import Passages
from appliance.runtime.methods import LocalCall
from appliance.store import sql_console
from appliance.store.database import Store
from appliance.store.sql_functions import FUNCTIONS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    entries = Entries(made, Passages(made).index)
    entries.set("memory://garden", "The tomatoes want water.", title="Garden")
    entries.put("agent:/owl.png", Content(blob=bytes(300)))
    yield made
    made.close()


def ask(store: Store, sql: str, limit: int = 100, deadline_s: float = 10) -> list[tuple[Any, ...]]:
    return list(store.query(sql, limit=limit, deadline_s=deadline_s).rows)


@pytest.mark.covers("R-206")
@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT path FROM entries WHERE hedmatch('/tom.*ter/', body)", "memory://garden"),
        ("SELECT hedsearch('want', body) FROM entries WHERE title = 'Garden'", 14),
        ("SELECT hedfound('/to[a-z]+/', body) FROM entries WHERE title = 'Garden'", "tomatoes"),
        ("SELECT hedreplace('s/want/have/', body) FROM entries WHERE title = 'Garden'", "The tomatoes have water."),
        ("SELECT schemeOf(path) FROM entries WHERE title = 'Garden'", "memory"),
        ("SELECT slugify('Two Words')", "Two_Words"),
        ("SELECT countTokens(body) > 3 FROM entries WHERE title = 'Garden'", 1),
        ("SELECT heddiff('a', 'b') LIKE '%+b%'", 1),
    ],
)
def test_every_function_of_ours_can_be_used(store: Store, sql: str, value: object) -> None:
    assert ask(store, sql)[0][0] == value


@pytest.mark.covers("R-206")
def test_all_functions_are_there(store: Store) -> None:
    there = {row[0].lower() for row in ask(store, "SELECT DISTINCT name FROM pragma_function_list", limit=1000)}
    assert {function.name.lower() for function in FUNCTIONS} <= there


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH 'tomatoes'", [(1,)]),
        ("SELECT vec_length(vec_int8(x'0102')), (SELECT COUNT(*) FROM chunks_vec)", [(2, 0)]),
        ("SELECT value FROM json_each('[1, 2]')", [(1,), (2,)]),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n", [(1,), (2,), (3,)]),
        ("VALUES (1, 'a')", [(1, "a")]),
        ("SELECT 1; -- the end", [(1,)]),
        ("PRAGMA journal_mode", [("wal",)]),
        ("SELECT name FROM pragma_table_info('blobs')", [("entry",), ("data",)]),
        ("SELECT 1 WHERE 0", []),
    ],
)
def test_what_reads_is_allowed(store: Store, sql: str, rows: list[tuple[Any, ...]]) -> None:
    assert ask(store, sql) == rows


CHANGING = [
    "DELETE FROM entries",
    "UPDATE entries SET body = ''",
    "INSERT INTO changes SELECT * FROM changes",
    "WITH x AS (SELECT 1) DELETE FROM entries",
    "INSERT INTO chunks_fts(chunks_fts) VALUES ('delete-all')",
    "CREATE TABLE x (y)",
    "CREATE TEMP TABLE x (y)",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE VIRTUAL TABLE temp.x USING fts5(y)",
    "DROP TABLE entries",
    "ALTER TABLE entries RENAME TO x",
    "ATTACH '/tmp/owlbox-attached.db' AS x",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO '/tmp/owlbox-vacuumed.db'",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "BEGIN IMMEDIATE",
    "SAVEPOINT x",
    "COMMIT",
    "PRAGMA user_version = 99",
    "PRAGMA journal_mode = delete",
    "PRAGMA query_only = 0",
    "PRAGMA writable_schema = 1",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA optimize",
    "PRAGMA incremental_vacuum",
    "PRAGMA temp_store_directory = '/tmp'",
    "PRAGMA mmap_size = 1",
    "SELECT * FROM pragma_wal_checkpoint",
    "SELECT load_extension('x')",
    "EXPLAIN DELETE FROM entries",
]


@pytest.mark.covers("R-206")
@pytest.mark.parametrize("sql", CHANGING)
def test_what_changes_anything_is_refused_before_it_runs(store: Store, sql: str) -> None:
    before = [store.rows("SELECT * FROM entries"), store.rows("SELECT * FROM sqlite_schema"), store.path.read_bytes()[:100]]
    with pytest.raises(BadInput) as caught:
        ask(store, sql)
    assert "only reading" in caught.value.message or "not authorized" in caught.value.message or "no such" in caught.value.message
    assert [store.rows("SELECT * FROM entries"), store.rows("SELECT * FROM sqlite_schema"), store.path.read_bytes()[:100]] == before
    assert not Path("/tmp/owlbox-attached.db").exists() and not Path("/tmp/owlbox-vacuumed.db").exists()


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT wings FROM entries", "no such column: wings"),
        ("SELECT", "incomplete input"),
        ("", "no query"),
        ("-- nothing", "no query"),
        (";", "no query"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("SELECT 1; DROP TABLE entries", "only reading"),
        ("SELECT ?", "placeholder"),
        ("SELECT CAST(x'ff' AS TEXT)", "not UTF-8"),
        ("SELECT '\ud800'", "not UTF-8"),
        ("SELECT json('x')", "malformed JSON"),
        ("SELECT hedmatch('/(/', 'x')", "("),
    ],
)
def test_wrong_query_is_told_in_a_line(store: Store, sql: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        ask(store, sql)
    assert says in caught.value.message and "\n" not in caught.value.message and caught.value.hint


def test_limit_of_rows_says_that_there_are_more(store: Store) -> None:
    numbers = "SELECT value FROM json_each('[1,2,3]')"
    for limit, has_more in ((2, True), (3, False), (4, False)):
        found = store.query(numbers, limit=limit, deadline_s=5)
        assert (len(found.rows), found.has_more, found.columns) == (min(limit, 3), has_more, ("value",))


def test_query_without_a_row_has_its_columns(store: Store) -> None:
    assert store.query("SELECT path, 1 AS one FROM entries WHERE 0", limit=1, deadline_s=5).columns == ("path", "one")


def test_query_that_takes_too_long_or_is_stopped_ends(store: Store) -> None:
    with pytest.raises(DeadlineExceeded, match=r"longer than 0.2 s"):
        ask(store, COUNT_TO_A_BILLION, deadline_s=0.2)
    with pytest.raises(Cancelled):
        store.query(COUNT_TO_A_BILLION, limit=1, deadline_s=60, is_stopped=lambda: True)
    with pytest.raises(TooLarge, match="40000000 bytes"):
        ask(store, "SELECT zeroblob(900000000)")
    assert ask(store, "SELECT 1") == [(1,)]


def test_writers_and_queries_do_not_disturb_each_other(store: Store) -> None:
    with store.write() as execute:
        execute("UPDATE entries SET title = 'Beds' WHERE title = 'Garden'")
        assert ask(store, "SELECT COUNT(*) FROM entries WHERE title = 'Garden'") == [(1,)]
    write = 'with store.write() as execute: execute("DELETE FROM blobs")'
    finished(child(f"store = Store.open(path)\n{write}\nprint('done')", store.path))
    assert ask(store, "SELECT COUNT(*) FROM blobs") == [(0,)]


def test_list_of_tables_names_all_but_the_inner_ones(store: Store) -> None:
    found = {row[0]: row for row in ask(store, sql_console.TABLES)}
    made = {
        row[0]
        for row in store.rows(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') "
            "AND name NOT GLOB 'chunks_*_*' AND name NOT GLOB 'server_words_*'"
        )
    }
    assert set(found) == {name for name in made if not name.startswith("sqlite_")}
    assert found["blobs"] == ("blobs", "table", "entry, data") and found["run_entries"][1] == "view"
    assert found["chunks_fts"][1:] == ("virtual", "head, text, near")


# -- at the door ------------------------------------------------------------------------------------


def test_only_the_user_of_the_core_may_ask(store: Store) -> None:
    call = LocalCall(lambda name, value: None)
    assert SqlMethods(store).query("SELECT 1", call=call)["rows"] == [[1]]
    call.uid += 1
    with pytest.raises(Refused, match="alone"):
        SqlMethods(store).query("SELECT 1", call=call)


def test_values_are_fit_to_be_sent(store: Store) -> None:
    call = LocalCall(lambda name, value: None)
    found = SqlMethods(store).query("SELECT data, 9e999, -9e999, NULL, 1.5, 9223372036854775807 FROM blobs", call=call)
    assert found["rows"] == [[{"size_bytes": 300}, "inf", "-inf", None, 1.5, 2**63 - 1]]
    long = SqlMethods(store).query("SELECT printf('%.*c', 300000, 'x') AS a, 'y' AS b UNION ALL SELECT 'z', 'z'", call=call)
    assert long["is_cut"] and long["rows"][0][0].endswith("[cut: 300000 characters]") and long["rows"][1] == ["z", "z"]
    many = SqlMethods(store).query(f"WITH n(i) AS ({NUMBERS}) SELECT printf('%.*c', 50000, x'01') FROM n", 1000, call=call)
    assert many["has_more"] and 4 < len(many["rows"]) < 30
    assert len(json.dumps(many)) < 4 * 1024 * 1024


NUMBERS = "SELECT value FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30]')"


@pytest.mark.covers("R-206")
@pytest.mark.parametrize("is_served", [False, True])
def test_sql_as_a_command(box: Box, is_served: bool) -> None:
    with box.store() as store:
        Entries(store).set("memory://owl", "one\ntwo", title="Owl")
        Entries(store).put("memory://bytes", Content(blob=b"12345"), By("client"))
    if is_served:
        box.serve()
    assert box.run("sql", "SELECT hedreplace('s/one/three/', body)", "FROM entries WHERE title = 'Owl'").stdout == "three\ntwo\n"
    table = box.run("sql", "SELECT path, data FROM entries LEFT JOIN blobs ON entry = id WHERE path GLOB 'memory:*' ORDER BY 1")
    assert table.stdout == "path            data\nmemory://bytes  (5 bytes)\nmemory://owl\n"
    assert box.json("sql", "SELECT path, 1 AS path FROM entries WHERE title = 'Owl'") == [{"path": "memory://owl", "path_2": 1}]
    cut = box.run("sql", "--limit", "1", "SELECT path FROM entries")
    assert len(cut.stdout.splitlines()) == 1 and "only the first row" in cut.stderr
    wrong = box.run("sql", "SELEC 1")
    assert (wrong.returncode, wrong.stdout) == (2, "") and wrong.stderr.startswith('owlbox: near "SELEC": syntax error (')
    assert box.run("sql", "DELETE FROM entries").returncode == 2 and box.run("entry", "view", "memory://owl").returncode == 0
    listed = box.run("sql").stdout
    assert (
        "chunks_fts " in listed and " virtual " in listed and "entry, data" in listed and all(f.name in listed for f in FUNCTIONS)
    )
    assert box.run("sql", "-", text="SELECT 1 + 1").stdout == "2\n"
    assert box.run("sql", "-", text="").returncode == 2
