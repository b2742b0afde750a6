"""Answers that are worked out from rows of notes: counted, added up, compared, next in time, ticked or not."""

from collections.abc import Callable
from datetime import datetime

from appliance.language.evidence import Finder
from appliance.language.languages import Language
from appliance.language.planning.plans import Say, Scene, shown_source
from appliance.language.rows import row_questions
from appliance.language.rows.row_questions import RowAnswer, RowOperation
from appliance.language.rows.tables import read_tables

PHRASES = {RowOperation.COUNT: "rows_count", RowOperation.SUM: "rows_sum", RowOperation.AVERAGE: "rows_average"}


class RowPlans:
    """Makes them from the notes that a finder offers; a question that asks nothing of rows costs no search."""

    def __init__(self, finder: Finder, now: Callable[[], datetime]) -> None:
        self._finder = finder
        self._now = now

    def make(self, scene: Scene, language: Language) -> Say | None:
        """What the rows say, with its source; None where they do not answer."""
        month_of = language.lexicon.month_of
        ignored = language.words["common"] | language.words["question"]
        request = row_questions.read_request(scene.text, language, ignored, month_of)
        if request is None:
            return None
        notes = self._finder.notes_about(scene.text)
        tables = [table for ref, note in notes for table in read_tables(ref, note.title or "", note.body)]
        found = row_questions.answer(request, tables, self._now().date(), month_of, self._finder.nearness)
        return Say(_write_answer(found, language)) if found is not None else None


def _write_answer(found: RowAnswer, language: Language) -> str:
    source, lines = f"[{shown_source(found.ref)}]", found.lines
    listed = f"{lines[0]} {source}" if len(lines) == 1 else "".join(f"\n- {line}" for line in lines) + f"\n{source}"
    if found.operation is RowOperation.WHETHER:
        return language.say("rows_yes" if found.is_ticked else "rows_no", rows=listed)
    if found.operation not in PHRASES:
        return listed.strip()
    return language.say(PHRASES[found.operation], value=found.value, rows=listed if listed.startswith("\n") else f" {listed}")
