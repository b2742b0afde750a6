"""Drives and folders over a real database: what they hold, how they are drawn, and that names count whole."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import new_store

from appliance.clock import sleep_s
from appliance.errors import BadInput, NotFound
from appliance.knowledge.drives import Drive, Drives, FolderChild, counted, formatted, is_id, line_count, stored_path
from appliance.knowledge.entries import Content, Entries
from appliance.knowledge.grep import GrepScope, Needle, Texts, folded
from appliance.knowledge.schemes import Schemes
from appliance.store.database import Store


@dataclass
class Shelf:
    """Entries, and the questions about them."""

    store: Store
    entries: Entries
    drives: Drives
    texts: Texts

    def put(self, *refs: str, body: str = "x") -> None:
        for ref in refs:
            self.entries.put(ref, Content(body=body))

    def names(self, folder: str, limit: int = 100) -> list[str]:
        return [child.name for child in self.drives.children(folder, limit)[0]]


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    store = new_store(tmp_path / "owlbox.db")
    entries, schemes = Entries(store), Schemes()
    yield Shelf(store, entries, Drives(store, entries, schemes), Texts(store, schemes))
    store.close()


# -- what a path means --------------------------------------------------------------------------------


@pytest.mark.covers("B-068", "B-069", "B-076", "E-189", "E-190")
@pytest.mark.parametrize(
    ("path", "drive", "stored"),
    [
        ("disk:/a", "", "disk://a"),
        ("/a/b.md", "disk", "disk://a/b.md"),
        ("a/b.md", "agent", "agent://a/b.md"),
        ("agent:/a/", "", "agent://a"),
        ("agent://a", "", "agent://a"),
        ("agent:/a", "disk", "agent://a"),
        ("/agent:/a", "disk", "disk://agent:/a"),
        ("https://x.com/a?b=c", "url", "url://https://x.com/a?b=c"),
        ("/https://x.com/a/", "url", "url://https://x.com/a/"),
        ("https://x.com/a", "", "url://https://x.com/a"),
        ("https://docs.google.com/document/d/abc/edit", "", "google-docs://abc"),
        ("https://github.com/o/r/blob/main/a.py", "", "github://o/r/a.py"),
        ("", "agent", "agent://"),
        ("/", "agent", "agent://"),
        ("agent:/", "", "agent://"),
    ],
)
def test_a_path_is_a_reference_or_stands_beside_its_drive(path: str, drive: str, stored: str) -> None:
    assert stored_path(path, drive) == stored


@pytest.mark.covers("B-068", "E-189", "E-192")
@pytest.mark.parametrize(
    ("path", "drive", "outcome"),
    [
        ("/a/b.md", "", "missing_drive"),
        ("disk:relative", "", "missing_drive"),
        ("BAD:/x", "", "missing_drive"),
        ("x", "Agent", "invalid_arguments"),
        ("x", "a b", "invalid_arguments"),
        ("x", "9lives", "invalid_arguments"),
        ("../x", "agent", "bad_input"),
    ],
)
def test_a_path_without_a_usable_drive_is_refused(path: str, drive: str, outcome: str) -> None:
    with pytest.raises(BadInput) as error:
        stored_path(path, drive)
    assert error.value.outcome == outcome and error.value.hint


def test_an_id_finds_its_item_only_in_its_own_scope(shelf: Shelf) -> None:
    kept = shelf.entries.put("agent:/a", Content(body="x"))
    other = shelf.entries.put("agent:/b", Content(body="x"), scope="project:2")
    assert shelf.drives.item(kept.uid).path == "agent://a" and is_id(kept.uid) and not is_id("agent:/a")
    assert shelf.drives.item(kept.uid.upper()).path == "agent://a"
    for unknown in (other.uid, "00000000-0000-0000-0000-000000000000"):
        with pytest.raises(NotFound, match="no item with the id"):
            shelf.drives.item(unknown)


def test_an_entry_kept_under_a_web_address_itself_is_found(shelf: Shelf) -> None:
    shelf.put("https://x.com/a")
    assert shelf.drives.item("https://x.com/a").path == "https://x.com/a"


# -- drives and folders -------------------------------------------------------------------------------


@pytest.mark.covers("B-072", "E-187")
def test_drives_are_listed_with_what_they_hold(shelf: Shelf) -> None:
    assert shelf.drives.list_drives() == []
    shelf.put("agent:/a", "agent:/b/c", "disk:/a", "bare.txt", "other/bare.txt", "agent-2:/a")
    assert shelf.drives.list_drives() == [Drive("agent", 2), Drive("agent-2", 1), Drive("disk", 1)]


def test_a_model_sees_no_drive_that_is_hidden_from_it(shelf: Shelf) -> None:
    shelf.put("system:/secret", "agent:/a", body="needle")
    assert [d.drive for d in shelf.drives.list_drives()] == ["agent", "system"]
    assert [d.drive for d in shelf.drives.list_drives(is_model=True)] == ["agent"]
    assert [i.ref for i in shelf.drives.items(is_model=True)[0]] == ["agent:/a"] and shelf.drives.items()[1] == 2
    assert [h.ref for h in shelf.texts.search("needle", is_model=True)] == ["agent:/a"]
    assert [m.ref for m in shelf.texts.grep(Needle("needle"), GrepScope(is_model=True))] == ["agent:/a"]
    with pytest.raises(NotFound, match="no drive system"):
        shelf.drives.find("system:/secret", is_model=True)
    with pytest.raises(NotFound):
        shelf.drives.find(shelf.entries.get("system:/secret").uid, is_model=True)


@pytest.mark.covers("B-079")
def test_names_count_whole(shelf: Shelf) -> None:
    shelf.put("agent:/a/1", "agent:/a/b/2", "agent:/ab/3", "agent:/a-b", "agent:/a.md", "agent:/a0")
    assert shelf.names("agent://") == ["a/", "ab/", "a-b", "a.md", "a0"]
    assert shelf.drives.count("agent://a") == 2 and shelf.drives.size("agent://a").bytes == 2
    assert [i.ref for i in shelf.drives.items("agent://a")[0]] == ["agent:/a/1", "agent:/a/b/2"]
    assert [i.ref for i in shelf.drives.items("agent://a", is_recursive=False)[0]] == ["agent:/a/1"]
    assert [m.ref for m in shelf.texts.grep(Needle("x"), GrepScope("agent://a"))] == ["agent:/a/1", "agent:/a/b/2"]
    assert not shelf.drives.is_folder("agent://a.md") and shelf.drives.is_folder("agent://a/b")


@pytest.mark.covers("B-074")
def test_a_folder_is_implied_or_made_and_listed_once(shelf: Shelf) -> None:
    shelf.entries.make_folder("agent:/empty")
    shelf.entries.make_folder("agent:/full")
    shelf.put("agent:/full/a", "agent:/implied/a", "agent:/file")
    found, total = shelf.drives.children("agent://", 100)
    assert total == 4 and found == [
        FolderChild("empty/", "agent://empty/", True, 0),
        FolderChild("full/", "agent://full/", True, 1),
        FolderChild("implied/", "agent://implied/", True, 1),
        FolderChild("file", "agent://file", False, 0),
    ]
    assert shelf.drives.is_folder("agent://empty") and shelf.drives.is_folder("agent://empty/")


def test_an_item_may_share_its_name_with_a_folder(shelf: Shelf) -> None:
    shelf.put("agent:/a", "agent:/a/b")
    assert shelf.names("agent://") == ["a/", "a"]


def test_web_addresses_are_drawn_by_host(shelf: Shelf) -> None:
    shelf.put("url:/https://x.com/a", "url:/https://x.com/", "url:/http://y.org/b?c=d/e")
    assert shelf.drives.tree("url://").tree.splitlines() == [
        "url:/",
        "  http://",
        "    y.org/",
        "      b?c=d/",
        "        e",
        "  https://",
        "    x.com/",
        "      a",
        "    x.com/",
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.sets(
        st.lists(st.sampled_from(["a", "ab", "a.b", "a-", "ß", "0"]), min_size=1, max_size=4).map("/".join), min_size=1, max_size=12
    )
)
def test_every_item_is_reached_by_walking_down(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    store = new_store(tmp_path_factory.mktemp("walk") / "owlbox.db")
    try:
        with store.write(durable=True):
            entries = Entries(store)
            for name in names:
                entries.put(f"agent:/{name}", Content(body="x"))
        drives = Drives(store, entries, Schemes())
        waiting, found = ["agent://"], set()
        while waiting:
            children, total = drives.children(waiting.pop(), 1000)
            assert total == len(children)
            waiting += [child.path for child in children if child.is_folder]
            assert all(child.items == drives.count(child.path) > 0 for child in children if child.is_folder)
            found |= {child.path for child in children if not child.is_folder}
        assert found == {f"agent://{name}" for name in names}
        assert drives.size("agent://").items == len(names) == drives.items("agent://")[1]
    finally:
        store.close()


@pytest.mark.covers("B-075", "E-199", "E-200")
def test_a_size_is_that_of_texts_and_bytes_in_bytes(shelf: Shelf) -> None:
    assert shelf.drives.size("agent://") == shelf.drives.size("agent://none") and shelf.drives.size("agent://").bytes == 0
    shelf.entries.make_folder("agent:/a")
    assert shelf.drives.size("agent://a").bytes == 0
    shelf.put("agent:/a/1", body="€")
    shelf.put("agent:/a/b/2", body="four")
    shelf.entries.put("agent:/a/b/3", Content(blob=b"\x00\xff\xfe"))
    assert shelf.drives.size("agent://a").bytes == 3 + 4 + 3
    assert shelf.drives.size("agent://a", is_recursive=False).bytes == 3
    assert shelf.drives.size("agent://a/1").bytes == 3 and shelf.drives.size("agent://").bytes == 10
    assert shelf.drives.bytes_of(shelf.entries.get("agent:/a/b/3")) == 3


@pytest.mark.covers("B-076", "E-192")
def test_siblings_are_those_of_the_nearest_folder_that_has_any(shelf: Shelf) -> None:
    assert shelf.drives.siblings("agent://a/b") == []
    shelf.put(*(f"agent:/a/{n}" for n in range(7)), "agent:/top")
    assert shelf.drives.siblings("agent://a/none") == [f"agent:/a/{n}" for n in range(5)]
    assert shelf.drives.siblings("agent://a/none/deeper/x") == [f"agent:/a/{n}" for n in range(5)]
    assert shelf.drives.siblings("agent://none/x") == ["agent:/a/", "agent:/top"]
    assert "nearby: agent:/a/0" in shelf.drives.missing("agent://a/none").hint
    assert shelf.drives.missing("agent://a").message == "agent:/a is a folder"


# -- trees --------------------------------------------------------------------------------------------


@pytest.mark.covers("B-073", "E-198")
def test_a_tree_shows_folders_first_and_says_what_it_leaves_out(shelf: Shelf) -> None:
    shelf.put(*(f"agent:/f{n:02}" for n in range(19)), "agent:/z/1", "agent:/z/y/2")
    tree = shelf.drives.tree("agent://")
    lines = tree.tree.splitlines()
    assert lines[:5] == ["agent:/", "  z/", "    y/", "      2", "    1"] and lines[-1] == "  … (+5 more)"
    assert len([line for line in lines if line.startswith("  f")]) == 14
    assert (tree.total_items, tree.truncated_dirs) == (21, ("agent:/",)) and "items_per_dir" in tree.hint
    whole = shelf.drives.tree("agent://", items_per_dir=20)
    assert whole.truncated_dirs == () and whole.hint == "" and "more" not in whole.tree


@pytest.mark.covers("B-073", "E-198")
def test_a_tree_of_limited_depth_counts_what_is_below(shelf: Shelf) -> None:
    shelf.put("agent:/a/b/1", "agent:/a/b/2", "agent:/a/c/3")
    shallow = shelf.drives.tree("agent://", max_depth=1)
    assert shallow.tree.splitlines() == ["agent:/", "  a/ (3 items)"] and shallow.truncated_dirs == ("agent:/a/",)
    assert shelf.drives.tree("agent://", max_depth=2).tree.splitlines()[2:] == ["    b/ (2 items)", "    c/ (1 item)"]
    assert shelf.drives.tree("agent://a/b").tree.splitlines() == ["agent:/a/b/", "  1", "  2"]


@pytest.mark.covers("B-073")
def test_a_tree_of_very_many_items_stays_small_and_quick(shelf: Shelf) -> None:
    with shelf.store.write() as execute:
        execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 29999) "
            "INSERT INTO entries (scope, path, title, body, hash, writer, created_ms, updated_ms, uid) "
            "SELECT 'project:1', printf('agent://%d/%d/a-rather-long-name-of-an-item-%d', i % 40, i / 40 % 30, i), '', 'x', 'h', "
            "'client', 1, 1, 'u' || i FROM n"
        )
    begun = time.monotonic()
    tree = shelf.drives.tree("agent://", items_per_dir=200)
    assert time.monotonic() - begun < 30
    assert len(tree.tree) < 40_000 and tree.total_items == 30_000 and tree.truncated_dirs
    assert [line for line in tree.tree.splitlines() if line.startswith("  0/")]  # the level below the drive is whole
    assert len([line for line in tree.tree.splitlines() if line[:3].strip()]) == 41


@pytest.mark.covers("B-073")
def test_without_a_drive_the_drives_are_the_tree(shelf: Shelf) -> None:
    assert shelf.drives.overview().tree == "" and "nothing is kept" in shelf.drives.overview().hint
    shelf.put("agent:/a", "disk:/a", "disk:/b")
    assert shelf.drives.overview().tree == "agent:/ (1 item)\ndisk:/ (2 items)" and shelf.drives.overview().total_items == 3


# -- texts --------------------------------------------------------------------------------------------


@pytest.mark.covers("B-082", "E-201")
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("STRASSE", "die straße"),
        ("straße", "DIE STRASSE"),
        ("É", "cafe\u0301"),
        ("é", "CAFE\u0301"),
        ("σ", "ΟΔΟΣ"),
        ("i", "TITANIC"),
    ],
)
def test_case_is_unicode_s(shelf: Shelf, query: str, text: str) -> None:
    shelf.put("agent:/a", body=text)
    shelf.put("agent:/b", body="nothng of t")
    assert [hit.ref for hit in shelf.texts.search(query)] == ["agent:/a"]
    assert [match.text for match in shelf.texts.grep(Needle(query, "literal", is_any_case=True), GrepScope())] == [text]


@pytest.mark.covers("B-082")
@pytest.mark.parametrize("sign", ["%", "_", "\\", "'", '"', "*", "[", "?"])
def test_signs_mean_themselves(shelf: Shelf, sign: str) -> None:
    shelf.put("agent:/with", body=f"a{sign}b")
    shelf.put("agent:/without", body="ab")
    assert [hit.ref for hit in shelf.texts.search(f"a{sign}B")] == ["agent:/with"]


@pytest.mark.covers("B-082", "E-201")
def test_a_search_shows_the_newest_first_with_a_short_preview(shelf: Shelf) -> None:
    for ref, body in (
        ("agent:/old", "owl " + "x" * 1000),
        ("agent:/far", "y" * 3000 + "ß OWL ß" + "z" * 3000),
        ("agent:/new", "Owl"),
    ):
        shelf.put(ref, body=body)
        sleep_s(0.002)
    hits = shelf.texts.search("oWl")
    assert [hit.ref for hit in hits] == ["agent:/new", "agent:/far", "agent:/old"]
    assert all(len(hit.preview) <= 500 for hit in hits)
    assert hits[2].preview == ("owl " + "x" * 1000)[:500] and "ß OWL ß" in hits[1].preview
    assert [hit.ref for hit in shelf.texts.search("owl", limit=1)] == ["agent:/new"]
    shelf.entries.put("agent:/titled", Content(body="no bird", title="The OWL"))
    assert shelf.texts.search("owl")[0].ref == "agent:/titled"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30), st.text(min_size=1, max_size=6))
def test_what_is_in_a_text_is_found_in_any_case(before: str, after: str, word: str) -> None:
    folded_once = folded(word)
    assert folded(folded_once) == folded_once
    if word.isascii() and before.isascii() and after.isascii():
        assert folded(word.swapcase()) in folded(before + word + after)


@pytest.mark.covers("E-202")
@pytest.mark.parametrize(
    ("pattern", "kind", "lines"),
    [
        ("^b", "regex", [2]),
        ("a$", "regex", [1, 2]),
        (r"\A.", "regex", [1, 2, 3]),
        ("(?i)BETA", "regex", [2]),
        ("a/b", "regex", [3]),
        (r"a\/b", "regex", [3]),
        ("a.b", "literal", []),
        ("a/b", "literal", [3]),
        ("a?b", "glob", []),
        ("g*a", "glob", []),
        ("b?ta", "glob", [2]),
        ("beta", "glob", [2]),
        (r"alpha\s+beta", "regex", []),
    ],
)
def test_a_pattern_is_looked_for_in_each_line(shelf: Shelf, pattern: str, kind: str, lines: list[int]) -> None:
    shelf.put("agent:/a", body="alpha\nbeta\na/b")
    assert [m.line for m in shelf.texts.grep(Needle(pattern, kind), GrepScope())] == lines  # type: ignore[arg-type]


@pytest.mark.covers("E-202")
@pytest.mark.parametrize("pattern", ["[", "(", "*a", "a\\", "a\nb", "(?P<x>"])
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput) as error:
        Needle(pattern)
    assert error.value.outcome == "invalid_arguments"


@pytest.mark.covers("E-202")
@pytest.mark.parametrize(
    ("glob", "refs"),
    [
        ("*.md", ["agent:/a.md", "agent:/sub/b.md"]),
        ("b.*", ["agent:/sub/b.md", "agent:/sub/b.txt"]),
        ("sub/*.txt", ["agent:/sub/b.txt"]),
        ("/sub/*", ["agent:/sub/b.md", "agent:/sub/b.txt"]),
        ("a.md", ["agent:/a.md"]),
        ("*.{txt,rs}", ["agent:/sub/b.txt"]),
        ("*.py", []),
    ],
)
def test_a_glob_limits_grep_to_file_names(shelf: Shelf, glob: str, refs: list[str]) -> None:
    shelf.put("agent:/a.md", "agent:/sub/b.md", "agent:/sub/b.txt")
    assert [m.ref for m in shelf.texts.grep(Needle("x"), GrepScope(glob=glob))] == refs


def test_a_stop_ends_a_search(shelf: Shelf) -> None:
    shelf.put("agent:/a", "agent:/b", body="x")
    assert shelf.texts.search("x", stop=lambda: True) == [] == shelf.texts.grep(Needle("x"), GrepScope(), lambda: True)


@pytest.mark.covers("B-075")
def test_numbers_are_written_for_people() -> None:
    sizes = [0, 1023, 1024, 1536, 1024**2, 5 * 1024**3]
    assert [formatted(size) for size in sizes] == ["0 B", "1023 B", "1.0 KB", "1.5 KB", "1.0 MB", "5.0 GB"]
    assert [counted(n) for n in (0, 1, 2)] == ["0 items", "1 item", "2 items"]
    assert [line_count(text) for text in ("", "a", "a\n", "a\nb", "\n", "a\n\n")] == [0, 1, 1, 2, 1, 2]
