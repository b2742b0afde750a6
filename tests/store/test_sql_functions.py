"""The SQL functions, called from queries of a real store."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest
from stores import new_store

from appliance.clock import new_id
from appliance.errors import BadInput, DeadlineExceeded
from appliance.store.database import Store
from appliance.store.sql_functions import FUNCTIONS


@pytest.fixture
def store(tmp_path: Path):
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


def add(store: Store, **bodies: str) -> None:
    with store.write() as execute:
        for name, body in bodies.items():
            execute(
                "INSERT INTO entries (uid, scope, path, body, hash, writer, created_ms, updated_ms) "
                "VALUES (?, 's', ?, ?, '', 'w', 1, 1)",
                (new_id(), f"memory://{name}", body),
            )


@pytest.mark.covers("R-129", "R-206")
@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("hedmatch('*.js', 'index.js')", 1),
        ("hedmatch('*.js', 'a/index.js')", 0),
        ("HEDMATCH('/^a/', 'apple')", 1),
        ("hedmatch('$.a', '{\"a\": 1}')", 1),
        ("hedmatch('//b', '<a><b/></a>')", 1),
        ("hedmatch('30*', 3000)", 1),
        ("hedmatch('a', x'61')", 1),
        ("hedmatch('*', x'ff')", 0),
        ("hedsearch('30', 'port = 3000')", 8),
        ("hedsearch('31', 'port = 3000')", 0),
        ("hedsearch('/[0-9]+/', 'port = 3000')", 8),
        ("hedsearch('$.a', '{\"a\": 1}')", 1),
        ("hedfound('/[0-9]+/', 'port = 3000')", "3000"),
        ("hedfound('$.a', '{\"a\": \"\\ud800x\"}')", "?x"),
        ("hedfound('31', 'port = 3000')", None),
        ("hedreplace('30', '80', 'port = 3000')", "port = 8000"),
        ("hedreplace('/(3)(0)/', '$2$1', 'port = 3000')", "port = 0300"),
        ("heddiff('a', 'a')", ""),
        ("schemeOf('memory://a/b')", "memory"),
        ("schemeOf('a/b')", None),
        ("countTokens('')", 0),
        ("countTokens('a')", 1),
        ("slugify('Hello World')", "Hello_World"),
    ],
)
def test_functions_answer_queries(store: Store, call: str, result: object):
    assert store.value(f"SELECT {call}") == result


@pytest.mark.covers("E-093")
def test_search_says_where_as_instr_does(store: Store):
    assert store.value("SELECT hedsearch('30', t) = instr(t, '30') FROM (SELECT 'port = 3000' AS t)") == 1


@pytest.mark.covers("E-094")
def test_replace_of_missing_text_changes_nothing(store: Store):
    assert store.row("SELECT hedreplace('31', '80', 'port'), hedreplace('s/31/80/', 'port')") == ("port", "port")


@pytest.mark.covers("R-132", "E-086", "E-100")
def test_null_never_matches(store: Store):
    assert store.row("SELECT hedmatch('*.js', NULL), hedmatch('*', NULL), hedmatch(NULL, 'a'), NOT hedmatch('a', NULL)") == (
        0,
        0,
        0,
        1,
    )
    assert store.row("SELECT hedsearch('a', NULL), hedfound('a', NULL), hedreplace('a', 'b', NULL)") == (None, None, None)
    assert store.row("SELECT heddiff(NULL, 'a'), schemeOf(NULL), slugify(NULL), countTokens(NULL)") == (None, None, None, 0)


@pytest.mark.covers("E-100")
def test_tokens_grow_with_the_text(store: Store):
    counts = [store.value("SELECT countTokens(?)", ("a" * length,)) for length in range(50)]
    assert counts[0] == 0 and counts[1] >= 1
    assert counts == sorted(counts) and counts[-1] > counts[1]


@pytest.mark.covers("E-095")
def test_sed_is_read_as_sed(store: Store):
    assert store.row("SELECT hedmatch('s/b/x/', 'abc'), hedmatch('s/z/x/', 'abc')") == (1, 0)
    assert store.row("SELECT hedsearch('s/c/x/', 'abc'), hedfound('s/C/x/i', 'abc'), hedsearch('s/z/x/', 'abc')") == (3, "c", 0)
    assert store.row("SELECT hedsearch('s/b/b/', 'abc'), hedfound('s/b/b/g', 'abcb')") == (2, "b")
    assert store.value("SELECT hedreplace('s/a/x/g', 'unused', 'a.a')") == "x.x"
    assert store.value("SELECT hedreplace('s/a/x/; s/b/y/', 'a.b')") == "x.y"
    with pytest.raises(BadInput, match="not a sed command"):
        store.rows("SELECT hedreplace('plain', 'text')")


@pytest.mark.covers("R-129")
def test_diff_names_the_changed_lines(store: Store):
    lines = str(store.value("SELECT heddiff(?, ?)", ("a\nb\n", "a\nc\n"))).splitlines()
    assert "-b" in lines and "+c" in lines and " a" in lines


@pytest.mark.covers("R-206")
def test_functions_choose_entries(store: Store):
    add(store, one="port = 3000", two='{"port": 3000}', three="<a><port/></a>")

    def chosen(condition: str) -> list[str]:
        return [row[0] for row in store.rows(f"SELECT path FROM entries WHERE {condition} ORDER BY path")]

    assert chosen("hedmatch('$.port', body)") == ["memory://two"]
    assert chosen("hedmatch('//port', body)") == ["memory://three"]
    assert chosen("hedsearch('30', body)") == ["memory://one", "memory://two"]
    assert chosen("hedmatch('memory://t*', path) AND countTokens(body) > 0") == ["memory://three", "memory://two"]
    assert chosen("schemeOf(path) = 'memory' AND hedsearch('/^port/', body)") == ["memory://one"]


@pytest.mark.covers("R-206")
def test_functions_serve_every_thread_and_writes(store: Store):
    add(store, one="port = 3000")
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(store.value("SELECT hedsearch('30', body) FROM entries")))
    thread.start()
    thread.join()
    with store.write() as execute:
        execute("UPDATE entries SET body = hedreplace('s/3000/80/', body)")
    assert found == [8]
    assert store.value("SELECT body FROM entries") == "port = 80"


@pytest.mark.covers("R-206")
def test_pattern_that_is_not_valid_ends_the_query_with_its_message(store: Store):
    for sql in ("SELECT hedmatch('/(/', 'a')", "SELECT hedsearch('$.a[', '{}')", "SELECT hedmatch('//a[', '<a/>')"):
        with pytest.raises(BadInput, match="not valid") as caught:
            store.rows(sql)
        assert caught.value.hint
    with pytest.raises(BadInput), store.write() as execute:
        execute("SELECT hedmatch('/(/', 'a')")
    assert store.value("SELECT 1") == 1


def test_slow_pattern_ends_the_query(store: Store):
    add(store, one="a" * 60 + "b", two="a" * 60 + "b")
    begin = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="took longer than 1 s"):
        store.rows("SELECT hedmatch('/(a|aa)+$/', body) FROM entries")
    assert time.monotonic() - begin < 60


def test_every_function_is_known_to_a_connection(store: Store):
    wanted = {(f.name.lower(), f.value_count) for f in FUNCTIONS}
    known = {(name, count) for name, count in store.rows("SELECT lower(name), narg FROM pragma_function_list")}
    assert wanted <= known
    assert wanted.isdisjoint(apsw.Connection(":memory:").execute("SELECT lower(name), narg FROM pragma_function_list").fetchall())


def test_opening_a_store_brings_no_engine():
    code = "import appliance.store.database, sys\n"
    code += "print([m for m in ('regex', 'jsonpath', 'elementpath', 'difflib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_process_that_checks_tables_pays_for_no_msgspec():
    code = "import appliance.store.table_check, sys; print('msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
