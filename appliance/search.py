"""Finding entries by their words: full text with stop words dropped, best first, with a snippet.

Reads the index that `entries` keeps; writes nothing. Every query is limited to the scopes given.
Meaning (vectors) and passages (chunks) are not here yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.entries import PROJECT
from appliance.store import Store

STOP_WORDS = frozenset(
    """
    a about after all also am an and any are as at be been but by can could did do does for from get had has have he her
    him his how i if in into is it its just like me more my no not of off on or our out she so some tell than that the
    their them then there these they this to too up us was we were what when where which who why will with would you
    your hi hello hey please thanks
    """.split()
)
SNIPPET_TOKENS = 40


@dataclass(frozen=True)
class Hit:
    """An entry that was found; a higher score is better, comparable within one search only."""

    ref: str
    title: str
    score: float
    snippet: str


def words_of(query: str, limit: int = 32) -> list[str]:
    """The words of a query that carry meaning, in order, each once, at most `limit`."""
    words = "".join(c if c.isalnum() else " " for c in query).split()
    return list(dict.fromkeys(w.lower() for w in words if w.lower() not in STOP_WORDS and (len(w) > 1 or w.isdigit())))[:limit]


class Search:
    """Full-text search over entries."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(
        self,
        query: str,
        *,
        limit: int = 5,
        scopes: Sequence[str] = (PROJECT,),
        snippet_tokens: int = SNIPPET_TOKENS,
        has_documents: bool = True,
    ) -> list[Hit]:
        """The best entries that hold any of the query's words; nothing for a query of stop words only.

        Without `has_documents`, entries that have a place of their own in the prompt are left out. Those
        marked blank are never found: their words are hints for the person who fills them in.
        """
        words = words_of(query)
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        marks = ", ".join("?" * len(scopes))
        rows = self._store.rows(
            "SELECT e.path, e.title, -bm25(entries_fts, 4.0, 2.0, 1.0) AS score, "
            f"snippet(entries_fts, 2, '', '', ' … ', {int(snippet_tokens)}) "
            "FROM entries_fts JOIN entries e ON e.id = entries_fts.rowid "
            f"WHERE entries_fts MATCH ? AND e.scope IN ({marks}) AND (? OR e.attributes ->> 'is_document' IS NOT 1) "
            "AND e.attributes ->> 'is_blank' IS NOT 1 "
            "ORDER BY score DESC, e.updated_ms DESC LIMIT ?",
            (match, *scopes, has_documents, limit),
        )
        return [Hit(str(path), str(title), float(score), " ".join(str(text).split())) for path, title, score, text in rows]
