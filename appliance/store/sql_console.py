"""What a query that somebody typed may do: read, for a while, and nothing else.

Everything that is not known to be harmless is refused, by SQLite itself, before it runs: writing, attaching,
loading code, most pragmas. Knows nothing about our tables, and opens nothing: `store.database` gives it a connection
that can only read, with our SQL functions, for one query. Not promised: that a query needs little memory.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import apsw
from msgspec import Struct

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled, DeadlineExceeded, TooLarge

MAX_VALUE = 40_000_000  # bytes of one value or row
STEPS = 10_000  # instructions of SQLite between two looks at the clock
HINT = "owlbox sql, without a query, lists tables and columns"

TABLES = """
    SELECT t.name AS "table", t.type AS kind,
        (SELECT group_concat(c.name, ', ') FROM pragma_table_xinfo(t.name) AS c WHERE c.hidden <> 1) AS columns
    FROM pragma_table_list AS t
    WHERE t.schema = 'main' AND t.type <> 'shadow' AND t.name NOT GLOB 'sqlite_*'
        AND t.name NOT GLOB '*_vector_chunks[0-9]*' ORDER BY t.name -- which sqlite-vec does not call a shadow
"""

READING = (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE)
FORBIDDEN = ("load_extension", "fts3_tokenizer")  # functions
# Pragmas that only describe, and those that only tell as long as they are given no value.
DESCRIBING = (
    "table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list foreign_key_check "
    "function_list collation_list module_list pragma_list compile_options data_version"
).split()
TELLING = "user_version application_id page_count page_size freelist_count journal_mode encoding".split()


class QueryAnswer(Struct, frozen=True):
    """The result of a query; `has_more` when there were more rows than wanted."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    has_more: bool


def ask(db: apsw.Connection, sql: str, limit: int, deadline_s: float, is_stopped: Callable[[], bool]) -> QueryAnswer:
    """At most `limit` rows of one query; BadInput for one that is wrong or would change something.

    DeadlineExceeded when it takes too long, Cancelled when it is stopped.
    """
    if "\0" in sql:
        raise BadInput("a query holds no NUL character", hint="write it without")
    end_s, heads = monotonic_s() + deadline_s, list[tuple[str, ...]]()

    def count(cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if cursor.has_vdbe:
            heads.append(tuple(str(column[0]) for column in cursor.description))
        if len(heads) > 1:
            raise BadInput("more than one statement", hint="ask one query at a time")
        return True

    _make_read_only(db)
    db.set_progress_handler(lambda: monotonic_s() > end_s or is_stopped(), STEPS)
    db.exec_trace = count
    try:
        rows = list(islice(db.execute(sql), limit + 1))
    except apsw.InterruptError:
        if is_stopped():
            raise Cancelled("the query was stopped") from None
        raise DeadlineExceeded(f"the query took longer than {deadline_s:g} s", hint="narrow it down") from None
    except apsw.TooBigError:
        raise TooLarge(f"the query makes a value of more than {MAX_VALUE} bytes", hint="select less of it") from None
    except (apsw.AuthError, apsw.ReadOnlyError) as error:
        raise BadInput(f"only reading is possible here: {error}", hint=HINT) from None
    except apsw.BindingsError:
        raise BadInput("the query has a placeholder such as ?", hint="write the value in its place") from None
    except (apsw.SQLError, apsw.ConstraintError, apsw.MismatchError) as error:
        raise BadInput(str(error), hint=HINT) from None
    except UnicodeError:
        raise BadInput("the query or its result holds text that is not UTF-8", hint="select hex() of it") from None
    if not heads:
        raise BadInput("there is no query in it", hint=HINT)
    return QueryAnswer(heads[0], tuple(rows[:limit]), len(rows) > limit)


def _make_read_only(db: apsw.Connection) -> None:
    """Let a connection do nothing but read, whatever it is asked."""
    db.pragma("query_only", True)
    db.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    db.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)

    def may(action: int, one: str | None, two: str | None, database: str | None, trigger: str | None) -> int:
        is_fine = action in READING
        if action == apsw.SQLITE_PRAGMA:
            is_fine = one in DESCRIBING or (one in TELLING and two is None)
        elif action == apsw.SQLITE_FUNCTION:
            is_fine = two not in FORBIDDEN
        return apsw.SQLITE_OK if is_fine else apsw.SQLITE_DENY

    db.authorizer = may
