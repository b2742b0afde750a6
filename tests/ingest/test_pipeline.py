"""Adding and reading again: through the program, through a socket in pieces, and as people type it."""

import base64
import json
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from documents import MAIL, locked_pdf, pdf, swollen_pdf
from needs import leave_out
from process import LIMIT_S, Box, a_box, until  # noqa: F401
from stores import new_store

from appliance.clock import sleep_s
from appliance.errors import BadInput, Cancelled, OwlError, PathConflict, TooLarge, Unavailable
from appliance.ingest import extract
from appliance.ingest.file_reader import FileRules, Gather, ReadItem
from appliance.ingest.pipeline import AT_ONCE, Added, FetchedPage, Ingest, Refreshed
from appliance.ingest.receiver import Intake, Staging
from appliance.ingest.sources import Desk, Sources
from appliance.knowledge.drives import Drives
from appliance.knowledge.entries import By, Content, Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.schemes import Schemes
from appliance.records import to_plain
from appliance.runtime.methods import LocalCall
from appliance.runtime.paths import Home
from appliance.store.database import Store


@dataclass
class Here:
    """A database, a folder of files, and what adds the one to the other."""

    store: Store
    entries: Entries
    sources: Sources
    home: Home
    folder: Path
    open: list[Gather] = field(default_factory=list)

    def work(self, **more: Any) -> Ingest:
        gather = Gather(os.environ, [self.home.database])
        self.open.append(gather)
        return Ingest(Desk(self.sources, By("client"), os.getuid()), gather, **more)

    def add(self, *inputs: object, on_conflict: Any = "skip", **more: Any) -> Added:
        return self.work(**more).add([str(one) for one in inputs or [self.folder]], FileRules(), on_conflict)

    def refresh(self, *refs: str, is_all: bool = False, **more: Any) -> Refreshed:
        return self.work(**more).refresh(refs, is_all=is_all)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        os.utime(path, (1_700_000_000, 1_700_000_000 + len(text)))  # long ago, so that its look is trusted at once
        return path

    def ref(self, name: str) -> str:
        return f"disk:/{self.folder}/{name}".replace("disk://", "disk:/")

    def body(self, name: str) -> str:
        return self.entries.get(self.ref(name)).body

    def writes(self) -> int:
        """How many commits there were, as another connection sees it."""
        return int(self.store.value("PRAGMA data_version")) * 1_000_000 + int(self.store.value("SELECT total_changes()"))


def aged(here: Here) -> None:
    """What was just written looks racy to a reader for a moment."""
    sleep_s(0.12)


@pytest.fixture
def here(home: Home, tmp_path: Path) -> Iterator[Here]:
    store = new_store(home.database)
    entries = Entries(store, Passages(store).index)
    folder = Path(os.path.realpath(tmp_path)) / "files"
    folder.mkdir()
    made = Here(store, entries, Sources(store, entries, Drives(store, entries, Schemes())), home, folder)
    yield made
    for gather in made.open:
        gather.close()
    store.close()


def statuses(done: Added | Refreshed) -> dict[str, str]:
    return {item.ref.rpartition("/")[2]: item.status for item in done.items}


# -- adding -----------------------------------------------------------------------------------------


@pytest.mark.covers("B-085")
def test_files_and_folders_become_items_of_the_disk(here: Here):
    here.write("a.md", "# Garden\n\nOwls.")
    here.write("sub/owl.png", b"\x89PNG\r\n\x1a\n\0\0")
    here.write("sub/mail.eml", MAIL)
    here.write("code.py", '"""Feeds."""\ndef feed(owl): ...\n')
    one = here.write("alone.txt", "alone")
    done = here.add(here.folder / "a.md", here.folder / "sub", here.folder / "code.py", one)
    assert done.counts == {"added": 5, "updated": 0, "unchanged": 0, "skipped": 0, "error": 0}
    note = here.entries.get(here.ref("a.md"))
    assert (note.title, note.mime, note.body) == ("Garden", "text/markdown", "# Garden\n\nOwls.")
    picture = here.entries.get(here.ref("sub/owl.png"))
    assert picture.mime == "image/png" and not picture.is_textual and here.entries.blob(picture).startswith(b"\x89PNG")
    assert here.store.value("SELECT COUNT(*) FROM chunks WHERE entry = ?", (picture.id,)) == 0
    assert here.store.value("SELECT COUNT(*) FROM chunks WHERE entry = ?", (note.id,)) == 1
    mail = here.entries.get(here.ref("sub/mail.eml"))
    assert mail.title == "Grüße (Ada <ada@example.org>)" and here.entries.blob(mail) == MAIL
    assert here.entries.get(here.ref("code.py")).description == "Feeds.\ndef feed(owl)"
    assert here.body("alone.txt") == "alone"


@pytest.mark.covers("B-085")
def test_a_pdf_is_found_by_its_text_and_keeps_its_bytes(here: Here):
    if extract.reader_of("pdf") == "bytes/1":
        leave_out("needs pypdf")
    here.write("a.pdf", pdf("barn owls eat mice", title="Owls"))
    assert here.add().counts["added"] == 1
    entry = here.entries.get(here.ref("a.pdf"))
    assert (entry.body, entry.title, entry.mime) == ("barn owls eat mice", "Owls", "application/pdf")
    assert here.entries.blob(entry) == pdf("barn owls eat mice", title="Owls")
    here.entries.put(entry.path, Content(title="Mine"))
    assert here.entries.blob(here.entries.get(entry.path)).startswith(b"%PDF")  # a new title is no new text
    copy = here.entries.copy(entry.path, "agent:/copy.pdf")
    assert here.entries.blob(copy).startswith(b"%PDF")
    here.entries.put(entry.path, Content(body="something else"))
    with pytest.raises(OwlError, match="holds no bytes"):
        here.entries.blob(here.entries.get(entry.path))


def test_the_bytes_of_a_text_come_with_the_text(here: Here):
    with pytest.raises(BadInput, match="without the text"):
        here.entries.put("agent:/x", Content(original=b"x"))
    with pytest.raises(TooLarge):
        here.entries.put("agent:/x", Content(body="x", original=b"x" * (17 << 20)))


@pytest.mark.covers("B-086")
def test_error_fails_before_any_work(here: Here):
    here.write("a.md", "one")
    here.add()
    here.write("a.md", "two")
    here.write("b.md", "new")
    before = here.writes()
    with pytest.raises(PathConflict, match=r"there already: .*a\.md"):
        here.add(on_conflict="error")
    assert here.writes() == before and here.entries.find(here.ref("b.md")) is None
    assert here.add(here.folder / "b.md", on_conflict="error").counts["added"] == 1


@pytest.mark.covers("B-086")
def test_skip_leaves_what_is_there_and_says_so(here: Here):
    here.write("a.md", "one")
    here.add()
    here.write("a.md", "another")
    here.write("b.md", "new")
    assert statuses(here.add()) == {"a.md": "skipped", "b.md": "added"}
    assert here.body("a.md") == "one"


@pytest.mark.covers("B-086")
def test_overwrite_reads_again_and_indexes_anew(here: Here):
    here.write("a.md", "mice")
    here.add()
    first = here.entries.get(here.ref("a.md"))
    here.write("a.md", "voles")
    done = here.add(on_conflict="overwrite")
    assert statuses(done) == {"a.md": "updated"} and here.body("a.md") == "voles"
    second = here.entries.get(here.ref("a.md"))
    assert second.uid == first.uid and second.created_ms == first.created_ms
    found = here.store.rows("SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH 'voles'")
    assert len(found) == 1 and not here.store.rows("SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH 'mice'")


@pytest.mark.covers("B-087")
@pytest.mark.parametrize("on_conflict", ["skip", "overwrite"])
def test_what_did_not_change_is_not_written(here: Here, on_conflict: str):
    for name, data in (
        ("a.md", "one"),
        ("b.png", b"\0x"),
        ("c.eml", MAIL),
        ("d.html", "<p>x"),
        ("e.txt", b"caf\xe9"),
        ("f.py", "x=1"),
    ):
        here.write(name, data)
    here.write("g.pdf", pdf("text"))
    aged(here)
    assert here.add().counts["added"] == 7
    before = here.writes()
    assert set(statuses(here.add(on_conflict=on_conflict)).values()) == {"unchanged"}
    for path in here.folder.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))  # touched: it has to be read, and says the same
    aged(here)
    assert set(statuses(here.add(on_conflict=on_conflict)).values()) == {"unchanged"}
    assert set(statuses(here.refresh(is_all=True)).values()) == {"unchanged"}
    assert here.writes() == before


def test_an_edit_of_the_item_is_overwritten_only_when_asked(here: Here):
    here.write("a.md", "of the disk")
    here.add()
    here.entries.put(here.ref("a.md"), Content(body="of a person"))
    assert statuses(here.add()) == {"a.md": "skipped"} and here.body("a.md") == "of a person"
    assert statuses(here.add(on_conflict="overwrite")) == {"a.md": "updated"} and here.body("a.md") == "of the disk"


@pytest.mark.covers("B-088")
def test_one_failing_input_stops_no_other(here: Here):
    here.write("a.md", "fine")
    here.write("big.txt", b"x" * (3 << 20))
    here.write("caf\udce9.md", "name")
    os.mkfifo(here.folder / "pipe")
    done = here.add(here.folder, here.folder / "gone", here.folder / "pipe", "http://")
    assert done.counts == {"added": 1, "updated": 0, "unchanged": 0, "skipped": 0, "error": 5}
    assert not done.has_failed
    reasons = [item.message for item in done.items if item.status == "error"]
    assert [
        sum(word in reason for reason in reasons) for word in ("the limit for a text", "not UTF-8", "no such file", "a pipe")
    ] == [1] * 4
    assert here.add(here.folder / "gone").has_failed


@pytest.mark.covers("B-088")
def test_ten_inputs_are_read_at_once_and_no_more(here: Here):
    at_once, most, guard, gate = 0, 0, threading.Lock(), threading.Barrier(AT_ONCE)

    def fetch(url: str) -> FetchedPage:
        nonlocal at_once, most
        with guard:
            at_once += 1
            most = max(most, at_once)
        gate.wait(LIMIT_S)  # goes on when ten have come, and not before
        with guard:
            at_once -= 1
        return FetchedPage(b"page", "text/plain")

    done = here.add(*(f"http://example.org/{n}" for n in range(30)), fetch=fetch)
    assert done.counts["added"] == 30 and most == AT_ONCE == 10


def test_being_stopped_keeps_what_was_read_and_the_next_time_goes_on(here: Here):
    for number in range(200):
        here.write(f"{number:03}.md", f"note {number}")
    asked = 0

    def is_stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 100

    with pytest.raises(Cancelled):
        here.add(is_stopped=is_stopped)
    kept = here.entries.count()
    assert 0 < kept < 200
    done = here.add()
    assert done.counts["added"] == 200 - kept and done.counts["unchanged"] == kept
    assert here.entries.count() == 200


def test_the_same_file_named_twice_is_one_item(here: Here):
    path = here.write("a.md", "x")
    assert here.add(path, here.folder, path.parent / "." / "a.md").counts["added"] == 1


def test_a_file_that_goes_before_it_is_read_is_a_failure(here: Here):
    path = here.write("a.md", "x")
    here.write("b.md", "x")
    done = here.add(is_stopped=lambda: path.unlink(missing_ok=True) is not None)  # asked after the files were found
    assert statuses(done) == {"a.md": "error", "b.md": "added"} and done.counts["error"] == 1


def test_private_keys_are_skipped_and_one_that_came_later_is_an_error(here: Here):
    here.write("key.pem", "-----BEGIN PRIVATE KEY-----\nMIIE\n")
    path = here.write("a.md", "x")
    (key, _) = sorted(here.add().items, key=lambda item: item.status, reverse=True)
    assert key.status == "skipped" and "private key" in key.message
    path.write_text("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n")
    assert statuses(here.refresh(is_all=True)) == {"a.md": "error"} and here.body("a.md") == "x"


def test_two_at_once_add_the_same_folder_once(here: Here):
    for number in range(100):
        here.write(f"{number}.md", f"note {number}")
    gate = threading.Barrier(2)
    done: list[Added] = []

    def add() -> None:
        waited: list[int] = []

        def is_stopped() -> bool:
            if not waited:
                waited.append(gate.wait(LIMIT_S))  # both have found their files before one asks what is known
            return False

        done.append(here.add(is_stopped=is_stopped))

    others = [threading.Thread(target=add) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(LIMIT_S)
    assert [one.counts["added"] + one.counts["unchanged"] for one in done] == [100, 100]
    assert sum(one.counts["added"] for one in done) == 100 == here.entries.count()
    assert here.store.value("SELECT COUNT(*) FROM sources") == 100 and here.store.problems() == []


def test_progress_ends_with_everything(here: Here):
    here.write("a.md", "12345")
    here.write("b.md", "123")
    told: list[tuple[str, int, int]] = []
    here.add(tell=lambda *given: told.append(given))
    with open(here.folder / "huge.bin", "wb") as file:
        file.truncate(1 << 40)  # is not read, so it is no work
    here.write("c.md", "1")
    here.add(tell=lambda *given: told.append(given))
    assert told.pop() == ("adding", 2, 2) and told.pop() == ("adding", 1, 2)
    assert told[-1] == ("adding", 8, 8) and [done for _, done, _ in told] == sorted(done for _, done, _ in told)


# -- pages ------------------------------------------------------------------------------------------


@pytest.fixture
def site() -> Iterator[tuple[str, dict[str, bytes]]]:
    pages = {"/owls": b"<title>Owls</title><p>They hoot.", "/raw.txt": b"plain"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = pages.get(self.path)
            self.send_response(404 if known is None else 200)
            self.send_header("Content-Type", "text/plain" if self.path.endswith("txt") else "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(known or b"")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    server.server_close()


def fetch(url: str) -> FetchedPage:
    try:
        with urlopen(url, timeout=180) as answer:
            return FetchedPage(answer.read(), answer.headers["Content-Type"])
    except OSError as error:
        raise Unavailable(f"{url}: {error}") from None


@pytest.mark.covers("E-213", "B-085")
def test_the_same_page_twice_is_one_item(here: Here, site: tuple[str, dict[str, bytes]]):
    url, pages = site
    assert here.add(f"{url}/owls", f"{url}/raw.txt", f"{url}/gone", fetch=fetch).counts["added"] == 2
    first = here.entries.get(f"url:/{url}/owls")
    assert (first.title, first.body, first.mime, first.source_url) == ("Owls", "They hoot.", "text/html", f"{url}/owls")
    pages["/owls"] = b"<title>Owls</title><p>They sleep."
    assert here.add(f"{url}/owls", fetch=fetch).counts == {"added": 0, "updated": 0, "unchanged": 1, "skipped": 0, "error": 0}
    assert here.add(f"{url}/owls", fetch=fetch, on_conflict="overwrite").counts["updated"] == 1
    second = here.entries.get(f"url:/{url}/owls")
    assert second.id == first.id and second.body == "They sleep." and here.entries.count() == 2


def test_without_a_way_to_fetch_a_page_is_refused_by_name(here: Here):
    (item,) = here.add("https://example.org/owls").items
    assert (
        item.status == "error" and "https://example.org/owls cannot be fetched" in item.message and "save the page" in item.message
    )


# -- reading again ----------------------------------------------------------------------------------


@pytest.mark.covers("E-203", "B-102")
def test_refresh_tells_what_became_of_each_item(here: Here, site: tuple[str, dict[str, bytes]]):
    url, pages = site
    for name in ("changed.md", "same.md", "deleted.md"):
        here.write(name, name)
    here.add(here.folder, f"{url}/owls", f"{url}/raw.txt", fetch=fetch)
    here.entries.put("agent:/mine.md", Content(body="mine"))
    here.entries.put("wiki:/page", Content(body="from nowhere"))
    same = here.entries.get(here.ref("same.md"))
    here.write("changed.md", "it is something else now")
    (here.folder / "deleted.md").unlink()
    pages["/owls"] = b"<p>They sleep."
    done = here.refresh(is_all=True, fetch=fetch)
    assert statuses(done) == {
        "changed.md": "updated",
        "same.md": "unchanged",
        "deleted.md": "missing",
        "owls": "updated",
        "raw.txt": "unchanged",
        "page": "error",
    }
    assert (done.checked, done.updated, done.unchanged, done.missing, done.errors, done.skipped) == (6, 2, 2, 1, 1, 1)
    assert done.reembedded == 2 and done.chunks == 2
    assert next(item.message for item in done.items if item.status == "error").startswith("nobody noted which URL")
    assert here.body("changed.md") == "it is something else now"
    assert here.entries.get(here.ref("same.md")) == same  # not even indexed again
    assert here.entries.get(here.ref("deleted.md")).body == "deleted.md"  # what is known is not forgotten


@pytest.mark.covers("B-102")
@pytest.mark.parametrize(("refs", "is_all"), [((), False), (("disk:/a",), True)])
def test_refresh_takes_references_or_everything(here: Here, refs: tuple[str, ...], is_all: bool):
    with pytest.raises(BadInput, match="either ref or all"):
        here.refresh(*refs, is_all=is_all)


@pytest.mark.covers("B-103", "B-105")
def test_a_reference_is_an_id_an_item_or_a_folder(here: Here):
    for name in ("one/a.md", "one/b.md", "onemore/c.md"):
        here.write(name, name)
    here.add()
    uid = here.entries.get(here.ref("one/a.md")).uid
    assert statuses(here.refresh(uid)) == {"a.md": "unchanged"}
    assert statuses(here.refresh(here.ref("one/b.md"))) == {"b.md": "unchanged"}
    done = here.refresh(here.ref("one"))
    assert sorted(statuses(done)) == ["a.md", "b.md"]
    assert done.tree.splitlines() == [here.ref("one") + "/", "  a.md", "  b.md"]
    assert "disk:/ (3 items)" in here.refresh(is_all=True).tree
    twice = here.refresh(here.ref("one"), uid)
    assert twice.checked == 2


@pytest.mark.covers("B-104")
def test_references_that_mean_nothing_are_named_and_the_rest_proceeds(here: Here):
    here.write("a.md", "x")
    here.add()
    done = here.refresh(here.ref("gone.md"), here.ref("a.md"), "disk:/nowhere/b.md")
    assert statuses(done) == {"a.md": "unchanged"} and len(done.unresolved) == 2


def test_thousands_of_items_are_refreshed_page_by_page(here: Here):
    for number in range(1201):
        here.write(f"{number}.md", "x")
    here.add()
    assert here.refresh(is_all=True).checked == 1201


# -- at the core's side -----------------------------------------------------------------------------


@pytest.fixture
def intake(here: Here) -> Intake:
    return Intake(here.sources, here.home, os.environ)


def keep(intake: Intake, uid: int = 7, **item: str) -> dict[str, Any]:
    return to_plain(intake.keep([item], call=LocalCall(uid=uid))[0])


def test_large_things_come_in_pieces_and_from_one_user(here: Here, intake: Intake):
    data = os.urandom(3_000_000)
    for start in range(0, len(data), 1_000_000):
        intake.piece("k", base64.b64encode(data[start : start + 1_000_000]).decode(), call=LocalCall(uid=7))
    with pytest.raises(BadInput, match="no pieces"):
        keep(intake, uid=8, ref="disk:/x.bin", blob_key="k")
    assert keep(intake, ref="disk:/x.bin", blob_key="k")["status"] == "added"
    assert here.entries.blob(here.entries.get("disk:/x.bin")) == data
    with pytest.raises(BadInput, match="no pieces"):
        keep(intake, ref="disk:/y.bin", blob_key="k")
    with pytest.raises(BadInput, match="not base64"):
        intake.piece("k", "?", call=LocalCall(uid=7))


def test_pieces_that_nobody_asks_for_make_way():
    staging = Staging(limit_bytes=100)
    staging.add(1, "old", b"x" * 60)
    staging.add(1, "new", b"x" * 60)  # a name costs something too
    with pytest.raises(BadInput):
        staging.take_data(1, "old")
    assert len(staging.take_data(1, "new")) == 60
    with pytest.raises(TooLarge):
        staging.add(1, "huge", b"x" * 101)


def test_pieces_of_one_person_push_out_their_own_and_nobody_else_s():
    staging = Staging(limit_bytes=10 * 1024)
    staging.add("ann", "photo", b"x" * 2000)
    for number in range(50):
        staging.add("mallory", f"{number}", b"x" * 1000)
    assert staging.take_data("ann", "photo") == b"x" * 2000 and staging.take_data("mallory", "49") == b"x" * 1000
    with pytest.raises(BadInput):
        staging.take_data("mallory", "0")


def test_names_without_pieces_and_pieces_of_who_has_gone_are_forgotten():
    staging = Staging(limit_bytes=10 * 1024)
    for number in range(100):
        staging.add(1, f"{number}", b"")
    with pytest.raises(BadInput):
        staging.take_data(1, "80")
    assert staging.take_data(1, "95") == b""
    staging = Staging(stale_s=0)
    staging.add(1, "old", b"x")
    sleep_s(0.01)
    staging.add(2, "new", b"x")
    with pytest.raises(BadInput):
        staging.take_data(1, "old")
    assert staging.take_data(2, "new") == b"x"


@pytest.mark.parametrize(
    "item",
    [
        {"body": "no ref"},
        {"ref": "disk:/x"},
        {"ref": "disk:/x", "body": "a", "blob_key": "b"},
        {"ref": "disk:/x", "body": 5},
        {"ref": "disk:/x", "body": "a", "what": "b"},
        {"ref": "disk:/x", "body": "a", "file": "/etc/passwd"},
        {"ref": "disk:/x", "body": "a", "file": "x"},
        {"ref": "disk:/x", "body": "a", "file": "/x\0"},
        {"ref": "log://turn_0/x", "body": "not a client's"},
        {"ref": "box://x.md", "body": "not a client's"},
    ],
)
def test_items_that_cannot_be_are_refused_and_nothing_is_written(here: Here, intake: Intake, item: dict[str, Any]):
    before = here.writes()
    with pytest.raises(OwlError):
        intake.keep([{"ref": "disk:/fine", "body": "fine"}, item], call=LocalCall(uid=7))
    assert here.writes() == before


def test_what_is_wrong_with_one_item_does_not_stop_the_others(here: Here, intake: Intake):
    here.entries.make_folder("disk:/folder")
    done = intake.keep([{"ref": "disk:/folder", "body": "x"}, {"ref": "disk:/a", "body": "x"}], call=LocalCall(uid=7))
    assert [kept.status for kept in done] == ["error", "added"]


@pytest.mark.covers("B-102")
def test_the_core_reads_again_only_what_its_own_user_added(here: Here, intake: Intake):
    mine = here.write("mine.md", "x")
    here.add()
    here.sources.store_items([ReadItem("disk://etc/passwd", "theirs", None, file="/etc/passwd")], By("client"), os.getuid() + 1)
    here.entries.put("disk:/etc/hostname", Content(body="typed by hand"))
    secret = here.home.root / "owlbox.toml"
    secret.write_text("secret")
    here.sources.store_items([ReadItem(f"disk:/{secret}", "x", None, file=str(secret))], By("client"), os.getuid())
    mine.write_text("changed")
    done = intake.refresh([], True, "", lambda: False)
    assert statuses(done) == {"mine.md": "updated", "passwd": "error", "hostname": "error", "owlbox.toml": "error"}
    told = " ".join(item.message for item in done.items)
    assert "was added by user" in told and "was not read from a file" in told and "own home" in told
    assert "secret" not in here.entries.get(f"disk:/{secret}").body


def test_files_of_one_user_are_not_read_because_another_asked_for_it(here: Here):
    here.write("private.md", "private")
    path = str(here.folder / "private.md")
    here.sources.store_items([ReadItem(here.ref("private.md"), "x", None, file=path)], By("client"), os.getuid() + 1)
    here.entries.put(here.ref("other.md"), Content(body="typed"))
    done = here.refresh(is_all=True)
    assert statuses(done) == {"private.md": "error", "other.md": "error"}
    assert here.body("private.md") == "x"


@pytest.mark.covers("B-102")
def test_what_a_model_had_read_again_can_be_taken_back(here: Here, intake: Intake):
    path = here.write("a.md", "one")
    here.add()
    path.write_text("two")
    assert intake.refresh([here.ref("a.md")], False, "r1", lambda: False).updated == 1
    assert here.store.changed_by("r1") == {"entries": [here.entries.get(here.ref("a.md")).id]}
    (change, _) = here.entries.changes(here.ref("a.md"))
    assert (change.writer, change.run) == ("plugin", "r1")


# -- as people type it ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = Path(os.path.realpath(tmp_path)) / "notes"
    made.mkdir()
    for number in range(5):
        (made / f"{number}.md").write_text(f"# Note {number}\n")
    (made / "owl.bin").write_bytes(b"\0" * 4_000_000)
    (made / "long.md").write_text("owl\x01" * 400_000)
    return made


@pytest.mark.covers("B-085", "B-087")
@pytest.mark.parametrize("has_core", [False, True])
def test_add_and_refresh_with_and_without_a_core(box: Box, files: Path, has_core: bool):
    if has_core:
        box.serve()
    sleep_s(0.12)
    done = box.json("context", "add", str(files))
    assert (done["added"], done["error"]) == (7, 0), done
    assert box.json("context", "read", f"disk:/{files}/3.md")["content"] == "# Note 3\n"
    assert box.json("context", "info", f"disk:/{files}/owl.bin")["size_bytes"] == 4_000_000
    with box.store() as store:
        before = -1
        while before != (before := store.value("PRAGMA data_version")):
            sleep_s(1)  # a core that has just begun looks after things of its own
        assert box.json("context", "add", str(files))["unchanged"] == 7
        assert box.json("context", "add", "--on-conflict", "overwrite", str(files))["unchanged"] == 7
        assert box.json("context", "refresh", "--all")["unchanged"] == 7
        assert store.value("PRAGMA data_version") == before
    (files / "3.md").write_text("# Other\n")
    (files / "4.md").unlink()
    done = box.json("context", "refresh", str(files))
    assert (done["checked"], done["updated"], done["missing"], done["unchanged"]) == (7, 1, 1, 5)
    assert box.json("context", "read", f"disk:/{files}/3.md")["content"] == "# Other\n"


@pytest.mark.covers("B-086", "B-088", "B-104")
def test_exit_codes(box: Box, files: Path):
    def code(*words: str) -> int:
        return box.run("context", *words).returncode

    assert code("add", str(files / "0.md"), str(files / "gone.md")) == 0
    (files / "0.md").write_text("# Another\n")
    assert code("add", str(files / "0.md")) == 0
    kept = box.json("context", "read", f"disk:/{files}/0.md")["content"]
    assert "Another" not in kept, "what is there is skipped, unless something else is asked for"
    assert code("add", str(files / "gone.md")) == 1
    assert code("add", "https://example.org/") == 1
    conflict = box.run("context", "add", "--on-conflict", "error", str(files))
    assert conflict.returncode == 1 and "there already" in conflict.stderr
    with box.store() as store:
        assert store.value("SELECT COUNT(*) FROM sources") == 1
    assert code("add") == 2 and code("refresh") == 2 and code("refresh", "--all", str(files)) == 2
    unresolved = box.run("context", "refresh", str(files / "gone.md"), str(files / "0.md"))
    assert unresolved.returncode == 0 and "gone.md" in unresolved.stderr
    assert code("refresh", str(files / "gone.md"), "disk:/nowhere") == 1


def test_a_line_break_in_a_name_begins_no_line_of_ours(box: Box, files: Path):
    (files / "a\nsecret: sent").write_text("x")
    done = box.run("context", "add", str(files))
    assert done.returncode == 0 and done.stderr.splitlines() == [
        f"failed: {files}/a\\nsecret: sent: its name is too long, or holds a line break or another control character (rename it)"
    ]


def test_people_are_told_in_words(box: Box, files: Path):
    (files / "latin.txt").write_bytes(b"caf\xe9")
    (files / ".hidden.md").write_text("x")
    done = box.run("context", "add", str(files))
    assert done.stdout.splitlines()[-1] == "8 added (left out: 1 hidden)"
    assert "latin.txt: not UTF-8 text (byte 3)" in done.stdout
    (files / "0.md").write_text("changed")
    assert box.run("context", "add", str(files)).stdout.splitlines()[-1].startswith("7 unchanged, 1 skipped")
    (files / "1.md").unlink()
    told = box.run("context", "refresh", str(files)).stdout
    assert told.startswith("Checked 8: 1 updated, 6 unchanged, 1 missing.") and "1.md: missing" in told


@pytest.mark.covers("B-087", "B-088")
def test_a_folder_of_everything_that_is_wrong_stops_nothing_and_costs_little(box: Box, tmp_path: Path):
    folder = Path(os.path.realpath(tmp_path)) / "bad"
    folder.mkdir()
    for name, data in {
        "good.md": b"# Heron\n",
        "latin.txt": b"caf\xe9 " * 100,
        "locked.pdf": locked_pdf(),
        "broken.pdf": b"%PDF-1.7\n" + b"x" * 500,
        "swollen.pdf": swollen_pdf(),
        "empty.md": b"",
        "nul.txt": b"a\0b",
    }.items():
        (folder / name).write_bytes(data)
    with zipfile.ZipFile(folder / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("word/document.xml", b"\0" * 50_000_000)
    with open(folder / "huge.txt", "wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(1 << 30)
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe")
    os.mkdir(os.path.join(os.fsencode(folder), b"\xff"))
    child = box.start("context", "add", str(folder), "--json", PYTHONHASHSEED="random")  # a child of ours, its memory its own
    out = child.stdout.read() if child.stdout else b""
    _, state, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(state)
    done = json.loads(out)
    assert child.returncode == 0 and used.ru_maxrss < 700_000, used.ru_maxrss  # KB: a gigabyte was there to be read
    assert (done["error"], done["added"]) == (1, 8), done
    assert done["left_out"] == {"links": 1, "special": 1}
    told = {Path(item["ref"]).name: item["message"] for item in done["items"] if item["message"]}
    assert (
        "1073741824 bytes, the limit" in told["huge.txt"] and "encrypted" in told["locked.pdf"] and "not UTF-8" in told["latin.txt"]
    )
    assert "kept as bytes" in told["broken.pdf"] and "kept as bytes" in told["swollen.pdf"]
    assert [hit["ref"] for hit in box.json("context", "search", "heron")["hits"]] == [f"disk:{folder}/good.md"]
    with box.store() as store:
        before = store.value("PRAGMA data_version")
        again = box.json("context", "add", str(folder))
        assert (again["unchanged"], again["added"]) == (8, 0) and store.value("PRAGMA data_version") == before
        assert Passages(store).problems() == []


@pytest.mark.covers("B-102")
def test_the_tool_refreshes_for_models_and_programs(box: Box, files: Path):
    core = box.serve()
    box.json("context", "add", str(files / "0.md"))
    (files / "0.md").write_text("changed")
    done = core.call("tool.call", name="context_refresh", arguments={"ref": f"disk:/{files}"})
    assert done["status"] == 200 and done["data"]["updated"] == 1 and done["message"].startswith("Checked 1: 1 updated.")
    assert core.call("tool.call", name="context_refresh", arguments={"all": True})["data"]["unchanged"] == 1
    assert core.call("tool.call", name="context_refresh", arguments={})["status"] == 400
    assert core.call("tool.call", name="context_refresh", arguments={"ref": "disk:/nowhere"})["status"] == 404


@pytest.mark.parametrize("has_core", [False, True])
def test_killed_midway_the_same_command_goes_on(box: Box, tmp_path: Path, has_core: bool):
    folder = Path(os.path.realpath(tmp_path)) / "many"
    folder.mkdir()
    for number in range(1500):
        (folder / f"{number}.md").write_text(f"# Note {number}\n\nAbout owl number {number}.\n")
    if has_core:
        box.serve()
    with box.store() as store:

        def count() -> int:
            return int(store.value("SELECT COUNT(*) FROM sources"))

        child = box.start("context", "add", str(folder))
        until(lambda: count() > 50, "some are kept")
        child.kill()
        child.wait(LIMIT_S)
        kept = count()
        assert 50 < kept < 1500
        done = box.json("context", "add", str(folder))
        assert done["added"] + done["unchanged"] == 1500 and done["added"] >= 1500 - kept - 32
        assert store.value("SELECT COUNT(*), COUNT(DISTINCT path) FROM entries WHERE path GLOB 'disk:*'") == 1500 == count()
        before = store.value("PRAGMA data_version")
        assert box.json("context", "add", str(folder))["unchanged"] == 1500
        assert store.value("PRAGMA data_version") == before
        assert store.problems() == []


def test_control_c_ends_it_and_keeps_what_was_read(box: Box, tmp_path: Path):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(1500):
        (folder / f"{number}.md").write_text("x" * 100)
    child = box.start("context", "add", str(folder))
    with box.store() as store:
        until(lambda: int(store.value("SELECT COUNT(*) FROM sources")) > 50, "some are kept")
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=LIMIT_S)
        assert child.returncode == 1 and b"the same command goes on" in err, err
        assert box.json("context", "add", str(folder))["error"] == 0
        assert store.value("SELECT COUNT(*) FROM sources") == 1500
