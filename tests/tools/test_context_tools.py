"""The tools over drives and folders through a real toolbox, and the commands `owlbox context ...` end to end."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from process import Box, a_box  # noqa: F401
from stores import new_store
from test_database import child, finished, until

from appliance import tools
from appliance.agent.tool_results import MAX_CHARS, as_text
from appliance.agent.toolbox import Toolbox, ToolRules
from appliance.clock import CancelToken, now_ms, sleep_s, this_process
from appliance.knowledge.contents import digest
from appliance.knowledge.drives import Drives
from appliance.knowledge.entries import Content, Entries
from appliance.knowledge.grep import Texts
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.search import Search
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Views
from appliance.policy.policy_file import Policy
from appliance.records import Inbound, Outcome, ToolCall
from appliance.runtime.paths import Home
from appliance.sessions.runs import Runs
from appliance.store.database import Store

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


@dataclass
class Bench:
    """The tools with everything they work on."""

    store: Store
    entries: Entries
    runs: Runs
    toolbox: Toolbox

    def call(self, name: str, run: str = "", **arguments: Any) -> Outcome:
        return self.toolbox.dispatch(ToolCall("c1", name, arguments), run, CancelToken())

    def data(self, name: str, run: str = "", **arguments: Any) -> Any:
        """What a call returns; it must succeed."""
        outcome = self.call(name, run, **arguments)
        assert outcome.status == 200, outcome
        return json.loads(json.dumps(outcome.data))  # as a client gets it

    def fails(self, name: str, run: str = "", **arguments: Any) -> str:
        """The outcome of a call that must fail, in the shape that the model reads (B-062)."""
        outcome = self.call(name, run, **arguments)
        assert outcome.is_error, outcome
        shape = json.loads(as_text(outcome))
        assert shape["is_error"] is True and shape["message"] and shape["next_action_hint"], shape
        return str(shape["error_type"])

    def body(self, ref: str) -> str:
        return self.entries.get(ref).body

    def run(self) -> str:
        """A run, so that a call is the model's."""
        inbox = Inbound("local", "ada", "hi", f"m-{now_ms()}", now_ms())
        with self.store.write():
            self.runs.touch_session(inbox)
        return self.runs.begin(inbox.session, "chat").id


def bench_of(store: Store) -> Bench:
    """The tools on this database."""
    entries, runs, schemes = Entries(store), Runs(store, this_process().encode()), Schemes()
    services = {"entries": entries, "finder": Search(store), "runs": runs}
    services |= {"drives": Drives(store, entries, schemes), "texts": Texts(store, schemes)}
    services |= {"verbs": Verbs(store, entries, Views(store), schemes)}
    return Bench(store, entries, runs, Toolbox(tools.load(), services, rules=ToolRules(Policy()), store=store))


@pytest.fixture
def bench(home: Home) -> Iterator[Bench]:
    made = bench_of(new_store(home.database))
    yield made
    made.toolbox.close()
    made.store.close()


# -- what they are ------------------------------------------------------------------------------------


NAMES = """context_tree context_read context_write context_edit context_delete context_copy
context_info context_search context_grep context_list""".split()


@pytest.mark.covers("B-084")
def test_they_can_all_be_called_but_are_not_in_the_menu(bench: Bench) -> None:
    assert set(NAMES) <= {t.mark.name for t in bench.toolbox.tools()}
    assert not set(NAMES) & {spec.name for spec in bench.toolbox.specs()}


# -- writing and reading ------------------------------------------------------------------------------


@pytest.mark.covers("B-068", "E-187", "E-188", "B-077", "E-193")
def test_a_path_is_kept_once_a_drive_and_never_overwritten_unasked(bench: Bench) -> None:
    first = bench.data("context_write", path="/a.md", content="one")
    other = bench.data("context_write", path="/a.md", drive="disk", content="else")
    assert first["ref"] == "agent:/a.md" and other["ref"] == "disk:/a.md" and first["id"] != other["id"]
    conflict = bench.call("context_write", path="agent:/a.md", content="two")
    assert conflict.outcome == "path_conflict" and first["id"] in conflict.message + conflict.hint
    assert bench.fails("context_write", path="agent:/a.md", content="two") == "path_conflict"
    assert bench.body("agent:/a.md") == "one"
    before = bench.entries.get("agent:/a.md")
    sleep_s(0.002)
    again = bench.data("context_write", path="/a.md", content="two", on_conflict="overwrite")
    after = bench.entries.get("agent:/a.md")
    assert again["id"] == first["id"] and after.body == "two"
    assert (after.id, after.created_ms) == (before.id, before.created_ms) and after.updated_ms > before.updated_ms


@pytest.mark.covers("B-077")
def test_a_write_shows_the_tree_of_its_drive_and_a_model_the_folder_it_wrote_into(bench: Bench) -> None:
    bench.data("context_write", path="plans/deep/a.md", content="one")
    bench.data("context_write", path="notes/a.md", content="one")
    made = bench.call("context_write", path="notes/b.md", content="two")
    assert made.data["tree"] == "agent:/\n  notes/\n    a.md\n    b.md\n  plans/\n    deep/\n      a.md"
    assert made.message == "Wrote agent:/notes/b.md (3 B)\nagent:/notes/\n  a.md\n  b.md"
    bench.data("context_write", path="/b.md", drive="disk", content="else")
    moved = bench.data("context_move", src_path="agent:/notes/a.md", dst_path="disk:/notes/a.md")
    assert moved["tree"] == "disk:/\n  notes/\n    a.md\n  b.md"
    found = Search(bench.store).find("two")
    assert [hit.ref for hit in found] == ["agent://notes/b.md"]  # searchable at once


@pytest.mark.covers("B-071", "B-077", "B-081")
def test_title_and_description_are_kept_when_a_text_is_replaced(bench: Bench) -> None:
    bench.data("context_write", path="/a.md", content="one", title="Title", description="What it is")
    bench.data("context_write", path="/a.md", content="two", on_conflict="overwrite")
    info = bench.data("context_info", path="agent:/a.md")
    assert (info["title"], info["description"]) == ("Title", "What it is")
    bench.data("context_write", path="/dir/b.md", content="x")
    assert bench.data("context_info", path="agent:/dir/b.md")["title"] == "b.md"


@pytest.mark.covers("B-077", "E-193", "E-192", "B-076")
def test_bytes_are_given_in_base64_and_are_not_text(bench: Bench) -> None:
    bench.data("context_write", path="/a.png", content_base64=base64.b64encode(PNG).decode())
    entry = bench.entries.get("agent:/a.png")
    assert bench.entries.blob(entry) == PNG and not entry.is_textual
    info = bench.data("context_info", path="agent:/a.png")
    assert (info["mime"], info["is_textual"], info["size_bytes"]) == ("image/png", False, len(PNG))
    assert bench.fails("context_read", path="agent:/a.png") == "no_text_content"
    assert bench.fails("context_info", path="agent:/a.png", passages=True) == "no_text_content"
    assert (
        bench.fails("context_edit", path="agent:/a.png", patches=[{"start_line": 1, "end_line": 1, "content": "x"}])
        == "no_text_content"
    )
    assert bench.fails("context_write", path="/b", content_base64="§") == "invalid_arguments"
    assert bench.fails("context_write", path="/b", content="x", content_base64="eA==") == "invalid_arguments"


@pytest.mark.covers("B-083")
@pytest.mark.parametrize(
    "text",
    ["", "\n", "one", "one\n", "\r\ntwo\r\n\r\n", "x" * 1_500_000, "Ärger\n日本語 🦉\ne\u0301\n", "\n" * 1_000_005, "\ttab\n \n"],
)
def test_any_text_comes_back_unchanged(bench: Bench, text: str) -> None:
    bench.data("context_write", path="/a", content=text)
    parts, offset = [], 1
    while offset:
        data = bench.data("context_read", path="agent:/a", offset=offset)
        parts.append(data["content"])
        offset = data["next_offset"]
    assert "\n".join(parts) == text == bench.body("agent:/a")


@pytest.mark.covers("B-076", "E-191")
@pytest.mark.parametrize(
    ("arguments", "content", "following"),
    [
        ({}, "1\n2\n3", 0),
        ({"offset": 2, "limit": 1}, "2", 3),
        ({"offset": 2}, "2\n3", 0),
        ({"limit": 2}, "1\n2", 3),
        ({"offset": 3, "limit": 5}, "3", 0),
        ({"offset": 4}, "", 0),
        ({"offset": 99, "limit": 5}, "", 0),
    ],
)
def test_lines_are_read_from_an_offset(bench: Bench, arguments: dict[str, Any], content: str, following: int) -> None:
    bench.data("context_write", path="/a", content="1\n2\n3")
    data = bench.data("context_read", path="/a", drive="agent", **arguments)
    assert (data["content"], data["next_offset"], data["total_lines"]) == (content, following, 3)


def version(number: int) -> list[str]:
    """The lines of a text's nth version: how many they are, and how long, tells which one it is."""
    return [f"{number:06d} line {n:03d}" for n in range(100 + number % 7)]


EDITING = """
    import select
    from test_context_tools import bench_of, version

    bench = bench_of(Store.open(path))
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        patch = {"start_line": 1, "end_line": len(version(number)), "content": chr(10).join(version(number + 1))}
        bench.data("context_edit", path="agent:/a", patches=[patch])
        number += 1
    print(number)
"""


@pytest.mark.covers("E-234")
def test_what_is_read_while_another_process_edits_it_is_one_version_or_another(bench: Bench) -> None:
    bench.data("context_write", path="agent:/a", content="\n".join(version(0)))
    numbers = set[int]()
    sizes = {(len("\n".join(version(n))), len(version(n))) for n in range(7)}

    def look() -> bool:
        assert editor.poll() is None, editor.communicate()[1]
        lines = bench.data("context_read", path="agent:/a")["content"].split("\n")
        assert lines == version(int(lines[0][:6]))
        numbers.add(int(lines[0][:6]))
        info = bench.data("context_info", path="agent:/a")
        assert (info["size_bytes"], info["lines"]) in sizes
        found = bench.entries.get("agent://a")
        assert found.hash == digest(found.body.encode()) and found.body.split("\n") == version(int(found.body[:6]))
        return len(numbers) >= 20

    with child(EDITING, bench.store.path) as editor:
        until(look)
        assert int(finished(editor)) >= max(numbers)


@pytest.mark.covers("B-076", "E-191")
def test_what_a_model_reads_fits_and_says_how_to_go_on(bench: Bench) -> None:
    lines = [f"{n} " + "x" * 90 for n in range(1, 401)]
    bench.data("context_write", path="/a", content="\n".join(lines))
    seen: list[str] = []
    offset = 1
    while offset:
        page = bench.call("context_read", path="agent:/a", offset=offset).message
        assert len(page) <= MAX_CHARS
        text, _, hint = page.partition("\n[more lines: offset=")
        seen += text.split("\n")
        offset = int(hint.split(",")[0].rstrip("]")) if hint else 0
    assert seen == lines
    assert bench.call("context_read", path="agent:/a", offset=500).message == "[nothing at line 500: agent:/a has 400 lines]"


@pytest.mark.covers("B-063", "B-076")
def test_a_long_line_is_read_on(bench: Bench) -> None:
    line = "".join(f"{n:07d}," for n in range(4000))
    bench.data("context_write", path="/a", content=f"first\n{line}\nlast")
    seen, given = "", {"offset": 2}
    while True:
        page = bench.call("context_read", path="agent:/a", **given).message
        assert len(page) <= MAX_CHARS
        text, _, hint = page.partition("\n[")
        seen += text
        if "column=" not in hint:
            break
        given = {"offset": 2, "column": int(hint.partition("column=")[2].rstrip("]"))}
    assert seen == f"{line}\nlast" or (seen == line and "offset=3" in hint)
    assert (
        bench.call("context_read", path="agent:/a", offset=1, column=9, limit=1).message == "[line 1 has fewer than 9 characters]"
    )


@pytest.mark.covers("B-076", "E-192")
def test_an_unknown_path_names_what_is_near(bench: Bench) -> None:
    for n in range(7):
        bench.data("context_write", path=f"/notes/{n}.md", content="x")
    assert bench.fails("context_read", path="/notes/1.md") == "missing_drive"
    missing = bench.call("context_read", path="agent:/notes/deep/er/x.md")
    assert missing.outcome == "not_found" and missing.hint == "nearby: " + ", ".join(f"agent:/notes/{n}.md" for n in range(5))
    for name in ("context_read", "context_info", "context_count_lines", "context_dir_size", "context_delete"):
        assert bench.fails(name, path="agent:/none") == "not_found"
    assert bench.fails("context_read", path="agent:/notes") == "not_found"  # a folder that nobody made
    bench.data("context_create_dir", path="/made")
    assert bench.fails("context_read", path="agent:/made") == "no_text_content"


@pytest.mark.covers("B-076", "B-081")
def test_an_item_is_named_by_its_id_its_reference_or_beside_its_drive(bench: Bench) -> None:
    made = bench.data("context_write", path="notes/a.md", content="one")
    for way in (
        {"path": made["id"]},
        {"path": "agent:/notes/a.md"},
        {"path": "agent://notes/a.md"},
        {"path": "notes/a.md", "drive": "agent"},
    ):
        assert bench.data("context_read", **way)["content"] == "one"
        found = bench.data("context_exists", **way)
        assert (found["exists"], found["ref"], found["is_folder"]) == (True, "agent:/notes/a.md", False)
        assert bench.data("context_info", **way)["id"] == made["id"]
    assert bench.data("context_exists", path="00000000-0000-0000-0000-000000000000")["exists"] is False
    assert bench.data("context_exists", path="agent:/no")["exists"] is False
    folder = bench.data("context_exists", path="agent:/notes")
    assert (folder["exists"], folder["ref"], folder["is_folder"]) == (True, "agent:/notes", True)


@pytest.mark.covers("B-081", "E-200")
def test_info_counts_bytes_and_lines(bench: Bench) -> None:
    bench.data("context_write", path="/euro.txt", content="€")
    info = bench.data("context_info", path="agent:/euro.txt")
    assert (info["size_bytes"], info["lines"], info["ref"], info["mime"]) == (3, 1, "agent:/euro.txt", "text/plain")
    assert info["created_ms"] == info["updated_ms"] > 0 and info["is_textual"] is True
    bench.data("context_write", path="/lines", content="a\nb\nc\n")
    assert bench.data("context_count_lines", path="agent:/lines")["lines"] == 3


# -- editing ------------------------------------------------------------------------------------------


@pytest.mark.covers("B-078", "E-194", "E-195")
@pytest.mark.parametrize(
    ("text", "patches", "result"),
    [
        ("1\n2\n3\n4", [(2, 3, "new")], "1\nnew\n4"),
        ("1\n2\n3", [(2, 0, "new")], "1\nnew\n2\n3"),
        ("1\n2\n3", [(2, 2, "")], "1\n3"),
        ("1\n2\n3\n4", [(1, 1, "one\nuno"), (3, 3, "three")], "one\nuno\n2\nthree\n4"),
        ("1", [(10, 10, "end")], "1\nend"),
        ("1\n", [(10, 0, "end")], "1\nend\n"),
        ("", [(1, 1, "begin")], "begin"),
    ],
)
def test_lines_are_edited_as_they_were_counted(bench: Bench, text: str, patches: list[tuple[int, int, str]], result: str) -> None:
    made = bench.data("context_write", path="/a", content=text)
    given = [{"start_line": start, "end_line": end, "content": content} for start, end, content in patches]
    assert bench.data("context_edit", drive="agent", path="/a", patches=given)["id"] == made["id"]
    assert bench.body("agent:/a") == result


@pytest.mark.covers("B-078", "E-195")
def test_an_edit_that_cannot_be_made_changes_nothing(bench: Bench) -> None:
    bench.data("context_write", path="/a", content="1\n2")
    one = [{"start_line": 1, "end_line": 1, "content": "x"}]
    assert bench.fails("context_edit", path="agent:/none", patches=one) == "not_found"
    assert bench.fails("context_edit", path="agent:/a") == "invalid_arguments"
    assert bench.fails("context_edit", path="agent:/a", patches=[{"start_line": 0, "end_line": 1, "content": "x"}]) == "bad_input"
    assert bench.fails("context_edit", path="agent:/a", patches=[{"start_line": 1, "content": "x"}]) == "invalid_arguments"
    assert bench.fails("context_edit", path="agent:/a", patches=one, edits=[{"old": "7", "new": "8"}]) == "conflict"
    assert bench.body("agent:/a") == "1\n2"


@pytest.mark.covers("B-078")
def test_exact_text_is_replaced_wherever_it_stands(bench: Bench) -> None:
    bench.data("context_write", path="/a", content="tea, Tea, tea")
    assert bench.data("context_edit", path="agent:/a", edits=[{"old": "tea", "new": "rum"}])["applied"] == 2
    assert bench.body("agent:/a") == "rum, Tea, rum"


def test_an_edit_of_a_text_that_changed_meanwhile_is_a_conflict(bench: Bench) -> None:
    bench.data("context_write", path="/a", content="1")
    real = bench.toolbox.tools()
    edit = next(t for t in real if t.mark.name == "context_edit").function
    drives, entries = Drives(bench.store, Late(bench.store), Schemes()), Entries(bench.store)
    verbs = Verbs(bench.store, entries, Views(bench.store), Schemes())
    services = {"drives": drives, "entries": entries, "verbs": verbs, "runs": bench.runs}
    box = Toolbox([edit], services, rules=ToolRules(Policy()))
    try:
        call = ToolCall("c", "context_edit", {"path": "agent:/a", "patches": [{"start_line": 1, "end_line": 1, "content": "x"}]})
        outcome = box.dispatch(call, "", CancelToken())
    finally:
        box.close()
    assert outcome.status == 409 and outcome.hint and bench.body("agent:/a") == "somebody else's"


class Late(Entries):
    """Somebody else writes right after an entry was read."""

    def find(self, ref: str, **where: Any) -> Any:
        found = super().find(ref, **where)
        Entries(self._store).put(ref, Content(body="somebody else's"))
        return found


# -- removing, copying, moving ------------------------------------------------------------------------


@pytest.mark.covers("B-079", "E-196")
def test_delete_takes_a_folder_but_not_its_namesakes(bench: Bench) -> None:
    bench.data("context_create_dir", path="/a")
    for path in ("/a/1", "/a/b/2", "/ab", "/ab/3", "/a.md"):
        bench.data("context_write", path=path, content="x")
    assert bench.fails("context_delete", path="agent:/a") == "invalid_arguments"
    done = bench.data("context_delete", path="/a", drive="agent", recursive=True)
    assert done == {"deleted": 3, "refs": ["agent:/a", "agent:/a/1", "agent:/a/b/2"]}
    left = [item["ref"] for item in bench.data("context_list", drive="agent")["items"]]
    assert left == ["agent:/a.md", "agent:/ab", "agent:/ab/3"]


@pytest.mark.covers("B-079", "E-196")
def test_deleting_nothing_is_an_error_unless_forced(bench: Bench) -> None:
    ways: list[dict[str, Any]] = [{}, {"recursive": True}]
    for more in ways:
        assert bench.fails("context_delete", path="agent:/none", **more) == "not_found"
        assert bench.data("context_delete", path="agent:/none", force=True, **more)["deleted"] == 0
    unknown = "00000000-0000-0000-0000-000000000000"
    assert bench.fails("context_delete", path=unknown) == "not_found"
    assert bench.data("context_delete", path=unknown, force=True)["deleted"] == 0
    bench.data("context_write", path="/a", content="x")
    assert bench.data("context_delete", path="agent:/a") == {"deleted": 1, "refs": ["agent:/a"]}
    assert bench.entries.find("agent:/a") is None


@pytest.mark.covers("B-079")
def test_a_whole_drive_is_deleted_only_recursively(bench: Bench) -> None:
    bench.data("context_write", path="/a", content="x")
    bench.data("context_write", path="/a", drive="agent2", content="x")
    assert bench.fails("context_delete", path="agent:/") == "invalid_arguments"
    assert bench.data("context_delete", path="agent:/", recursive=True)["deleted"] == 1
    assert bench.data("context_list_drives")["tree"].startswith("agent2:/ (")


@pytest.mark.covers("B-080", "E-197")
@pytest.mark.parametrize("name", ["context_copy", "context_move"])
def test_nothing_is_copied_or_moved_over_another_item_unasked(bench: Bench, name: str) -> None:
    bench.data("context_write", path="/a", content="one")
    bench.data("context_write", path="/b", content="two")
    assert bench.fails(name, src_path="agent:/none", dst_path="agent:/c") == "not_found"
    assert bench.fails(name, src_path="agent:/a", dst_path="agent:/b") == "path_conflict"
    assert bench.fails(name, src_path="agent:/a", dst_path="/b") == "missing_drive"
    assert (bench.body("agent:/a"), bench.body("agent:/b")) == ("one", "two")
    bench.data(name, src_drive="agent", src_path="/a", dst_drive="agent", dst_path="/b", overwrite=True)
    assert bench.body("agent:/b") == "one" and (bench.entries.find("agent:/a") is None) == (name == "context_move")


@pytest.mark.covers("B-080", "E-197")
def test_an_item_moves_between_drives_as_itself_and_is_still_found(bench: Bench) -> None:
    made = bench.data("context_write", path="/a.md", content="the barn owl")
    moved = bench.data("context_move", src_path="agent:/a.md", dst_path="/owls/barn.md", dst_drive="disk")
    assert moved["id"] == made["id"] and moved["ref"] == "disk:/owls/barn.md"
    assert [hit.ref for hit in Search(bench.store).find("barn owl")] == ["disk://owls/barn.md"]
    assert [hit["ref"] for hit in bench.data("context_search", query="BARN OWL")["hits"]] == ["disk:/owls/barn.md"]
    copied = bench.data("context_copy", src_path=made["id"], dst_path="agent:/copy.md")
    assert copied["id"] != made["id"] and bench.body("agent:/copy.md") == "the barn owl"


@pytest.mark.covers("B-080", "B-083")
def test_bytes_are_copied_and_moved_too(bench: Bench) -> None:
    bench.data("context_write", path="/a.png", content_base64=base64.b64encode(PNG).decode())
    bench.data("context_copy", src_path="agent:/a.png", dst_path="agent:/b.png")
    bench.data("context_move", src_path="agent:/a.png", dst_path="agent:/c.png")
    assert [bench.entries.blob(bench.entries.get(f"agent:/{n}.png")) for n in "bc"] == [PNG, PNG]


@pytest.mark.covers("B-080")
@pytest.mark.parametrize("name", ["context_copy", "context_move"])
def test_a_folder_goes_with_everything_in_it_or_not_at_all(bench: Bench, name: str) -> None:
    bench.data("context_create_dir", path="/a")
    for path in ("/a/1", "/a/b/2", "/ab"):
        bench.data("context_write", path=path, content="x")
    assert bench.fails(name, src_path="agent:/a", dst_path="agent:/a/b/c") == "invalid_arguments"
    assert bench.fails(name, src_path="agent:/a", dst_path=f"agent:/{'c' * 2040}") == "bad_input"  # too long for /b/2
    assert bench.data("context_list")["total"] == 4
    done = bench.data(name, src_path="agent:/a", dst_path="notes:/c")
    assert (done["ref"], done["size_bytes"]) == ("notes:/c", 2)
    kept = [] if name == "context_move" else ["agent:/a", "agent:/a/1", "agent:/a/b/2"]
    listed = [item["ref"] for item in bench.data("context_list")["items"]]
    assert listed == [*kept, "agent:/ab", "notes:/c", "notes:/c/1", "notes:/c/b/2"]
    bench.data("context_write", path="/d/1", content="y")
    assert bench.fails(name, src_path="agent:/d", dst_path="notes:/c") == "path_conflict"
    assert bench.body("notes:/c/1") == "x"
    bench.data(name, src_path="agent:/d", dst_path="notes:/c", overwrite=True)
    assert (bench.body("notes:/c/1"), bench.body("notes:/c/b/2")) == ("y", "x")
    assert bench.fails(name, src_path="agent:/ab", dst_path="other:/") == "invalid_arguments"
    bench.data(name, src_path="notes:/", dst_path="other:/")
    bench.data(name, src_path="other:/", dst_path="third:/in")
    listed = [item["ref"] for item in bench.data("context_list", drive="third")["items"]]
    assert listed == ["third:/in/c", "third:/in/c/1", "third:/in/c/b/2"]


# -- folders and drives -------------------------------------------------------------------------------


@pytest.mark.covers("B-074")
def test_a_folder_is_made_once(bench: Bench) -> None:
    first = bench.data("context_create_dir", path="/notes")
    assert (first["ref"], first["created"]) == ("agent:/notes", True)
    again = bench.data("context_create_dir", path="notes/")
    assert (again["id"], again["ref"], again["created"]) == (first["id"], first["ref"], False)
    assert bench.data("context_create_dir", path="/notes", drive="disk")["ref"] == "disk:/notes"
    bench.data("context_write", path="/file", content="x")
    assert bench.fails("context_create_dir", path="/file") == "path_conflict"
    assert bench.fails("context_create_dir", path="/") == "invalid_arguments"
    assert bench.fails("context_write", path="/x", content="x", folder=True) == "invalid_arguments"


@pytest.mark.covers("B-072")
def test_drives_come_with_counts_or_a_hint(bench: Bench) -> None:
    empty = bench.call("context_list_drives")
    assert not empty.data["tree"] and empty.data["hint"] and empty.data["hint"] in empty.message
    bench.data("context_write", path="/a", content="x")
    assert bench.data("context_list_drives")["tree"] == "agent:/ (1 item)"


@pytest.mark.covers("B-073", "E-198")
def test_a_tree_of_a_drive_a_folder_or_everything(bench: Bench) -> None:
    for n in range(20):
        bench.data("context_write", path=f"/many/{n:02}", content="x")
    bench.data("context_write", path="/many/sub/deep/x", content="x")
    tree = bench.data("context_tree", drive="agent", path="/many")
    assert tree["tree"].splitlines()[1] == "  sub/" and tree["tree"].endswith("  … (+6 more)")
    assert tree["total_items"] == 21 and tree["truncated_dirs"] == ["agent:/many"] and tree["hint"]
    shallow = bench.data("context_tree", path="agent:/", max_depth=1)
    assert shallow["tree"] == "agent:/\n  many/ (21 items)"
    assert bench.data("context_tree")["tree"] == "agent:/ (21 items)"
    assert bench.data("context_tree", drive="empty") == {"tree": "empty:/", "total_items": 0, "truncated_dirs": [], "hint": ""}
    assert bench.data("context_tree", path="agent:/many/00")["hint"].startswith("it is an item")
    assert bench.fails("context_tree", path="agent:/many/none") == "not_found"
    assert bench.fails("context_tree", path="/many") == "missing_drive"


@pytest.mark.covers("B-075", "E-199")
def test_a_size_in_bytes_and_for_people(bench: Bench) -> None:
    empty = bench.data("context_dir_size", drive="agent")
    assert (empty["size_bytes"], empty["formatted"]) == (0, "0 B")
    bench.data("context_write", path="/a/1", content="x" * 1024)
    bench.data("context_write", path="/a/b/2", content="€" * 512)
    found = bench.data("context_dir_size", drive="agent", path="/a")
    assert [found[name] for name in ("ref", "size_bytes", "formatted", "items")] == ["agent:/a", 2560, "2.5 KB", 2]
    assert bench.data("context_dir_size", path="agent:/a", recursive=False)["size_bytes"] == 1024


@pytest.mark.covers("B-084")
def test_items_are_listed_by_drive_folder_and_page(bench: Bench) -> None:
    for path in ("/a/1", "/a/b/2", "/c"):
        bench.data("context_write", path=path, content="x")
    bench.data("context_write", path="/x", drive="disk", content="x")

    def refs(**given: Any) -> list[str]:
        return [item["ref"] for item in bench.data("context_list", **given)["items"]]

    assert refs() == ["agent:/a/1", "agent:/a/b/2", "agent:/c", "disk:/x"]
    assert refs(drive="disk") == ["disk:/x"] and refs(drive="agent", recursive=False) == ["agent:/c"]
    assert refs(drive="agent", path="/a") == ["agent:/a/1", "agent:/a/b/2"] and refs(path="agent:/a", recursive=False) == [
        "agent:/a/1"
    ]
    assert refs(limit=2, offset=1) == ["agent:/a/b/2", "agent:/c"]
    assert bench.call("context_list", limit=1).message.endswith("[1 of 4 shown]")


@pytest.mark.covers("B-084")
def test_chunks_shows_the_passages_of_an_item(bench: Bench) -> None:
    bench.data("context_write", path="/a", content="the barn owl\nhunts")
    data = bench.data("context_info", path="agent:/a", passages=True)
    assert [(p["first_line"], p["last_line"], p["words"]) for p in data["passages"]] == [(1, 2, 4)]
    bench.data("context_write", path="/b", content="# Owls\n\n" + "The barn owl hunts.\n" * 100)
    found = bench.data("context_info", path="agent:/b", passages=True)["passages"]
    assert [p["number"] for p in found] == list(range(1, len(found) + 1)) and len(found) > 1
    assert (found[0]["first_line"], found[-1]["last_line"]) == (1, 102) and found[1]["first_line"] == found[0]["last_line"] + 1
    assert {p["heading"] for p in found} == {"Owls"}


# -- finding ------------------------------------------------------------------------------------------


@pytest.mark.covers("B-082", "E-201")
def test_search_is_case_insensitive_newest_first_and_bounded(bench: Bench) -> None:
    for n in range(25):
        bench.data("context_write", path=f"/{n:02}", content=f"An OWL {'x' * 2000}")
        sleep_s(0.002)
    hits = bench.data("context_search", query="owl")["hits"]
    assert [hit["ref"] for hit in hits] == [f"agent:/{n:02}" for n in range(24, 4, -1)]
    assert {len(hit["preview"]) for hit in hits} == {500}
    assert len(bench.data("context_search", query="an owl", limit=3)["hits"]) == 3
    shown = bench.call("context_search", query="owl").message
    assert len(shown) <= MAX_CHARS and all(f"agent:/{n:02} " in shown for n in range(5, 25))
    assert bench.fails("context_search", query=" ") == "invalid_arguments"
    assert bench.call("context_search", query="zebra").message == "Nothing holds 'zebra'."


@pytest.mark.covers("E-202", "B-110")
@pytest.mark.parametrize("name", ["context_grep", "search_grep"])
def test_grep_finds_lines_within_bounds(bench: Bench, name: str) -> None:
    for path, text in (("/a.md", "one\nTwo owls\nthree"), ("/sub/b.txt", "two owls\n" * 5), ("/c.md", "none")):
        bench.data("context_write", path=path, content=text)
    assert bench.fails(name, pattern="x", path="/sub") == "invalid_arguments"
    assert bench.fails(name, pattern="(") == "invalid_arguments"
    assert [m["ref"] for m in bench.data(name, pattern="Two")["matches"]] == ["agent:/a.md"]
    assert len(bench.data(name, pattern="t.o", ignore_case=True)["matches"]) == 6
    assert [m["ref"] for m in bench.data(name, pattern="(?i)two", glob="*.md")["matches"]] == ["agent:/a.md"]
    found = bench.data(name, pattern="two", max_results=3)
    assert len(found["matches"]) == 3 and found["has_more"]
    assert not bench.data(name, pattern="two", max_results=5)["has_more"]
    (match,) = bench.data(name, pattern="Two", context=1, drive="agent", path="/a.md")["matches"]
    assert (match["line"], match["before"], match["after"]) == (2, ["one"], ["three"])
    shown = bench.call(name, pattern="Two", context=1).message
    assert shown == "agent:/a.md-1- one\nagent:/a.md:2: Two owls\nagent:/a.md-3- three\n--"
    assert bench.data(name, pattern="owls", drive="disk")["matches"] == []


@pytest.mark.covers("E-202", "B-110")
def test_a_hopeless_regular_expression_ends_in_time(bench: Bench) -> None:
    bench.data("context_write", path="/a", content="a" * 5000 + "!")
    outcome = bench.call("context_grep", pattern="(a|aa)+$")
    assert outcome.status in (200, 504)


# -- who may do what ----------------------------------------------------------------------------------


@pytest.mark.covers("B-077", "B-084")
def test_a_model_writes_as_the_model_and_a_person_as_a_client(bench: Bench) -> None:
    run = bench.run()
    bench.data("context_write", run, path="/model", content="x")
    bench.data("context_write", path="/person", content="x")
    assert [(e.writer, e.run) for e in map(bench.entries.get, ("agent:/model", "agent:/person"))] == [
        ("model", run),
        ("client", ""),
    ]
    bench.data("context_edit", run, path="agent:/person", patches=[{"start_line": 1, "end_line": 1, "content": "y"}])
    assert [c.verb for c in bench.entries.changes("agent:/person")] == ["edit", "set"]
    assert bench.entries.changes("agent:/person")[0].writer == "model"


@pytest.mark.covers("B-077", "B-079", "B-080")
def test_a_model_changes_nothing_on_a_drive_it_may_not_write(bench: Bench) -> None:
    run = bench.run()
    bench.data("context_write", path="disk:/a", content="mine")
    bench.data("context_write", path="agent:/a", content="own")
    one = [{"start_line": 1, "end_line": 1, "content": "x"}]
    for name, given in (
        ("context_write", {"path": "disk:/b", "content": "x"}),
        ("context_create_dir", {"path": "disk:/b"}),
        ("context_edit", {"path": "disk:/a", "patches": one}),
        ("context_delete", {"path": "disk:/a"}),
        ("context_move", {"src_path": "disk:/a", "dst_path": "agent:/b"}),
        ("context_copy", {"src_path": "agent:/a", "dst_path": "disk:/b"}),
        ("context_write", {"path": "system:/1", "content": "x"}),
    ):
        assert bench.fails(name, run, **given) == "permission", name
    assert bench.data("context_copy", run, src_path="disk:/a", dst_path="agent:/b")["ref"] == "agent:/b"
    assert bench.body("disk:/a") == "mine" and bench.entries.find("disk:/b") is None
    assert bench.fails("context_write", path="box:/SOUL.md", content="x", on_conflict="overwrite") == "permission"


@pytest.mark.covers("R-113")
@pytest.mark.parametrize("ref", ["src/owl.py", "file://src/owl.py"])
def test_a_model_changes_no_file_by_its_id(bench: Bench, ref: str) -> None:
    run, uid = bench.run(), bench.entries.set(ref, "hoot").uid
    assert bench.fails("context_edit", run, path=uid, edits=[{"old": "hoot", "new": "x"}]) == "permission"
    assert bench.fails("context_delete", run, path=uid) == "permission"
    assert bench.fails("context_move", run, src_path=uid, dst_path="agent:/x") == "permission"
    assert bench.body(ref) == "hoot" and bench.entries.find("agent:/x") is None
    assert bench.data("context_copy", run, src_path=uid, dst_path="agent:/x")["ref"] == "agent:/x"
    assert bench.data("context_edit", path=uid, edits=[{"old": "hoot", "new": "mine"}])["applied"] == 1  # a person may


@pytest.mark.covers("R-019", "R-011")
@pytest.mark.parametrize("ref", ["known:/a", "log:/turn_1/set/x", "error:/a", "session:/a"])
def test_what_belongs_to_threads_is_not_kept_for_all(bench: Bench, ref: str) -> None:
    bench.data("context_write", path="agent:/a", content="x")
    for run in (bench.run(), ""):
        label = "permission" if ref.startswith("log:") and not run else "invalid_arguments"
        assert bench.fails("context_write", run, path=ref, content="x") == label
        assert bench.fails("context_create_dir", run, path=ref) == label
        for name in ("context_copy", "context_move"):
            assert bench.fails(name, run, src_path="agent:/a", dst_path=ref) == label
    assert bench.entries.find(ref) is None and bench.body("agent:/a") == "x"


def test_a_reference_that_goes_up_is_told_as_it_was_given(bench: Bench) -> None:
    outcome = bench.call("context_write", path="agent:/../x", content="x")
    assert outcome.status == 400 and "agent://../x" in outcome.message and "agent://agent" not in outcome.message


# -- the commands -------------------------------------------------------------------------------------


@pytest.mark.covers("B-084")
@pytest.mark.parametrize("is_served", [False, True])
def test_the_commands_do_the_same_with_and_without_a_core(box: Box, is_served: bool) -> None:
    core = box.serve() if is_served else None
    try:
        assert box.run("context", "write", "agent:/notes/a.md", "one\ntwo\nthree").stdout.splitlines()[1] == "agent:/notes/"
        assert box.run("context", "read", "agent:/notes/a.md").stdout == "one\ntwo\nthree"
        assert box.run("context", "read", "agent:/notes/a.md", "--offset", "2", "--limit", "1").stdout == "two"
        assert box.run("context", "edit", "agent:/notes/a.md", "2", "2", "TWO").returncode == 0
        assert "lines: 3\n" in box.run("context", "info", "agent:/notes/a.md").stdout
        assert box.run("context", "tree", "agent:/").stdout == "agent:/\n  notes/\n    a.md\n"
        assert box.run("context", "tree", "agent").stdout == "agent:/\n  notes/\n    a.md\n"
        assert box.run("context", "grep", "t.o", "--ignore-case", "--drive", "agent").stdout == "agent:/notes/a.md:2: TWO\n"
        assert box.json("context", "info", "agent:/notes/a.md")["writer"] == "client"
        assert box.run("context", "move", "agent:/notes/a.md", "agent:/b.md").returncode == 0
        assert box.run("context", "read", "agent:/notes/a.md").returncode == 3
        assert box.run("context", "delete", "agent:/b.md").stdout == "Deleted 1 item\nagent:/b.md\n"
    finally:
        if core is not None:
            assert core.stop() == 0


@pytest.mark.covers("B-084", "B-083")
def test_a_text_goes_in_by_a_pipe_and_comes_out_unchanged(box: Box) -> None:
    for n, content in enumerate((b"", b"one\n", "Ärger 🦉\r\n".encode(), b"x" * 300_000, b"\n" * 70_000)):
        assert box.run("context", "write", f"agent:/{n}", "-", text=content).returncode == 0
        assert box.run("context", "read", f"agent:/{n}").stdout.encode() == content


@pytest.mark.covers("B-084", "E-193")
def test_a_file_goes_in_as_text_or_as_bytes(box: Box) -> None:
    for name, data in (("a.txt", b"hello"), ("a.png", PNG)):
        path = box.home.root.parent / name
        path.write_bytes(data)
        assert box.run("context", "write", f"agent:/{name}", "--file", str(path)).returncode == 0
    assert [box.json("context", "info", f"agent:/{n}")["is_textual"] for n in ("a.txt", "a.png")] == [True, False]
    refused = box.run("context", "read", "agent:/a.png")
    assert refused.returncode == 2 and refused.stderr.startswith("owlbox: agent:/a.png is not text: image/png")


@pytest.mark.covers("B-084")
def test_errors_have_their_exit_codes_and_name_the_next_step(box: Box) -> None:
    box.run("context", "write", "agent:/a", "one")
    for words, code, part in (
        (("delete", "agent:/none"), 3, "no item agent:/none"),
        (("read", "/a"), 3, "no item disk:/a"),
        (("read", "a"), 3, "no item box:/a"),
        (("write", "agent:/a", "two"), 1, "agent:/a"),
        (("write", "box:/SOUL.md", "two"), 4, "may not write"),
        (("copy", "agent:/none", "agent:/b"), 3, "nearby: agent:/a"),
        (("read", "nothing://x"), 3, "(`owlbox context tree` shows what there is)"),
        (("grep", "("), 2, "("),
        (("edit", "agent:/a", "1"), 2, "last line"),
        (("edit", "agent:/a", "--patches", "{"), 2, "not JSON"),
        (("dance",), 2, "unknown command"),
    ):
        done = box.run("context", *words)
        assert done.returncode == code and part in done.stderr and done.stdout == "", (words, done)
    shape = json.loads(box.run("context", "write", "agent:/a", "two", "--json").stderr)["error"]
    assert shape["outcome"] == "path_conflict" and shape["hint"]
    assert box.run("context", "write", "agent:/a", "two", "--overwrite").returncode == 0
    assert box.run("context", "delete", "agent:/none", "--force").returncode == 0


@pytest.mark.covers("B-084")
def test_exists_answers_by_its_exit_code(box: Box) -> None:
    box.run("context", "write", "agent:/d/a", "one")
    asked = ("agent:/d/a", "agent:/d", "agent:/no")
    assert [box.run("context", "info", "--missing-ok", ref).returncode for ref in asked] == [0, 0, 3]


@pytest.mark.covers("B-084", "B-072")
def test_lists_are_tables_or_json(box: Box) -> None:
    for path in ("a/1", "a/b/2", "c"):
        box.run("context", "write", f"agent:/{path}", "some words")
    listed = box.run("context", "list", "--drive", "agent", "--path", "/a", "--non-recursive").stdout.splitlines()
    assert listed[0].split()[:2] == ["reference", "bytes"] and listed[1].split()[:2] == ["agent:/a/1", "10"] and len(listed) == 2
    assert [i["ref"] for i in box.json("context", "list", "--drive", "agent", "--limit", "1", "--offset", "1")["items"]] == [
        "agent:/a/b/2"
    ]
    assert "agent:/ (3 items)" in box.json("context", "tree")["tree"]
    assert "agent:/c" in box.run("context").stdout
    assert box.run("context", "info", "agent:/a").stdout == "ref: agent:/a (a folder)\nsize: 20 B (20 bytes) in 2 items\n"
    missing = box.run("context", "info", "agent:/nope")
    assert missing.returncode == 3 and "no item agent:/nope (nearby: agent:/" in missing.stderr
    below = box.run("context", "list", "--path", "/a", "--drive", "agent").stdout
    assert below == box.run("context", "list", "agent:/a").stdout and below.count("\n") == 3
    assert box.run("context", "list", "agent:/nope").returncode == 3
    assert [h["ref"] for h in box.json("context", "find", "some", "words", "--limit", "2")["hits"]] == [
        "agent:/c",
        "agent:/a/b/2",
    ]
    assert "1. lines 1-1, 2 words: some words" in box.run("context", "info", "--passages", "agent:/c").stdout
    assert box.run("context", "mkdir", "notes").stdout == "Made agent:/notes\n"
    assert box.run("context", "edit", "agent:/c", "--replace", "some", "many").returncode == 0
    assert box.run("context", "read", "agent:/c").stdout == "many words"
