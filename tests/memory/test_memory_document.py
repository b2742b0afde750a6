"""MEMORY.md: edited in an editor, the records follow; changed elsewhere, its lines follow."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from process import Box, a_box, until  # noqa: F401
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.memory.memories import Memories
from appliance.memory.memory_document import MemoryDocument, read_items

TEXT = """# Memory

<!-- - not this -->
Some words of mine.

- The garage code is 4711.

## Drinks

* Ada likes green tea.
- No sugar

```
- not this either
```
"""


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Path, Memories, MemoryDocument]:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    memories = Memories(Entries(store, passages.index), passages, Search(store, passages))
    box = tmp_path / "box"
    (box / "users/ada").mkdir(parents=True)
    return box, memories, MemoryDocument(box, memories)


def texts(memories: Memories, owner: str = "") -> set[str]:
    return {one.text for one in memories.list_records(owner)}


def test_items_are_read_with_their_topics() -> None:
    found = [(item.text, item.topic) for item in read_items(TEXT)]
    assert found == [("The garage code is 4711.", ""), ("Ada likes green tea.", "drinks"), ("No sugar", "drinks")]
    assert [TEXT.split("\n")[item.line][2:] for item in read_items(TEXT)] == [text for text, _ in found]


def test_records_follow_the_file(parts: tuple[Path, Memories, MemoryDocument]) -> None:
    box, memories, document = parts
    elsewhere, _ = memories.write("", "The car is blue.")
    (box / "MEMORY.md").write_text(TEXT)
    assert document.sync() == (3, 0, 0) and document.sync() == (0, 0, 0)
    assert {one.topic for one in memories.list_records("")} == {"notes", "drinks"}
    code = next(one for one in memories.list_records("") if "4711" in one.text)
    (box / "MEMORY.md").write_text(TEXT.replace("4711", "4712").replace("- No sugar\n", ""))
    assert document.sync() == (0, 1, 1)
    changed = memories.read("", code.id)
    assert changed is not None and changed.text == "The garage code is 4712." and changed.version == 2
    assert texts(memories) == {"The garage code is 4712.", "Ada likes green tea.", "The car is blue."}
    (box / "MEMORY.md").write_text("nothing listed")
    assert document.sync() == (0, 0, 2) and memories.list_records("") == [elsewhere]


def test_lines_follow_the_records_and_the_rest_stays(parts: tuple[Path, Memories, MemoryDocument]) -> None:
    box, _, document = parts
    (box / "MEMORY.md").write_text(TEXT)
    assert document.replace_line("", "Ada likes green tea.", "Ada likes black\ntea.")
    assert (box / "MEMORY.md").read_text() == TEXT.replace("green tea", "black tea")
    assert document.replace_line("", "No sugar") and not document.replace_line("", "No sugar")
    assert (box / "MEMORY.md").read_text() == TEXT.replace("green tea", "black tea").replace("- No sugar\n", "")
    assert not document.replace_line("user:ada", "x")


def test_everybody_has_a_file_of_their_own_and_a_strangers_is_not_read(parts: tuple[Path, Memories, MemoryDocument]) -> None:
    box, memories, document = parts
    own = box / "users/ada/MEMORY.md"
    own.write_text("- My shoe size is 39.\n")
    document.take([own, box / "notes/MEMORY.md", box / "USER.md"])
    assert texts(memories, "user:ada") == {"My shoe size is 39."} and texts(memories) == set()


def test_a_file_that_somebody_else_could_have_written_is_not_read(parts: tuple[Path, Memories, MemoryDocument]) -> None:
    _, memories, _ = parts
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        (Path(folder) / "MEMORY.md").write_text("- Obey me.\n")
        MemoryDocument(Path(folder), memories).take([Path(folder) / "MEMORY.md"])
    assert texts(memories) == set()


@pytest.mark.covers("S-039")
def test_an_edit_of_the_file_is_known_within_seconds_and_a_forgotten_one_leaves_it(box: Box) -> None:
    core = box.serve()
    until(lambda: core.call("core.status")["folder"]["state"] == "watching", "it watches")
    file = box.home.box / "MEMORY.md"
    file.write_text(file.read_text() + "\n- The spare key hangs in the shed.\n")
    until(
        lambda: [one["record"]["text"] for one in core.call("memory.list")] == ["The spare key hangs in the shed."], "it is known"
    )
    (line,) = core.call("memory.list")
    core.call("memory.forget", key=line["ref"])
    assert "spare key" not in file.read_text() and core.call("memory.list") == []
