"""A small model's thread is tainted by what the program quotes to it in its place, though no tool read it."""

import pytest
from process import Box, a_box, script, until  # noqa: F401

from appliance.policy.taint import Mark
from appliance.policy.taint_marks import Marks
from appliance.store.database import Store


@pytest.mark.parametrize(("question", "said"), [("Who do we rent from?", "Mr Brown"), ("Which notes do I have?", "Landlord")])
def test_a_quoted_note_of_a_stranger_marks_the_thread(box: Box, question: str, said: str) -> None:
    script(box, '[[turns]]\nrepeat = true\ntext = "Hoot."\n')
    box.environ |= {"OWLBOX__MODELS__TIER": "tiny"}
    notes = box.home.box / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "landlord.md").write_text("# Landlord\n\nThe landlord is Mr Brown.\n")
    (notes / "plants.md").write_text("# Plants\n\nThe fern is watered on Mondays.\n")
    core = box.serve()
    until(lambda: all("notes/" in box.run("search", word).stdout for word in ("landlord", "fern")), "the notes are read in")
    store = Store.open(box.home.database)
    (number,) = (row[0] for row in store.rows("SELECT id FROM entries WHERE path = 'box://notes/landlord.md'"))
    Marks(store).add(f"entry:{number}", "web", "https://example.org/")
    told = [box.json("ask", text) for text in (question, "When is the fern watered?")]
    assert said in told[0]["answer"], told
    marks = [Marks(store).of(f"run:{one['run']}") for one in told]
    store.close()
    assert marks == [(Mark("web", "https://example.org/"),), ()]
    assert core.stop() == 0
