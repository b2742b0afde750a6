"""What files say, in every form; what is wrong with them; and children that hang, crash or want all memory."""

import codecs
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import MAIL, locked_pdf, pdf
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import leave_out

from appliance.clock import monotonic_s, process, sleep_s
from appliance.errors import Unavailable
from appliance.ingest import extract
from appliance.ingest.extract import FileReading, form_of, is_current, read, reader_of
from appliance.ingest.extract_process import Clerk, Clerks
from appliance.knowledge.contents import MAX_BODY_BYTES, MAX_CHARACTERS
from appliance.text.html_text import is_refined, page


def reading(name: str, data: bytes) -> FileReading:
    return read(name, data, form_of(name, data[:8192]))


@pytest.fixture
def clerk() -> Iterator[Clerk]:
    made = Clerk(os.environ)
    yield made
    made.close()


def needs_pypdf() -> None:
    if reader_of("pdf") == "bytes/1":
        leave_out("needs pypdf")


# -- forms ------------------------------------------------------------------------------------------


@pytest.mark.covers("B-085")
@pytest.mark.parametrize(
    ("name", "data", "mime", "text"),
    [
        ("a.txt", b"plain", "text/plain", "plain"),
        ("README", "ünï".encode(), "text/plain", "ünï"),
        ("a.txt", codecs.BOM_UTF8 + b"bom", "text/plain", "bom"),
        ("a.txt", "zwei".encode("utf-16"), "text/plain", "zwei"),
        ("a.md", b"# Garden\n\nOwls.", "text/markdown", "# Garden\n\nOwls."),
        ("a.json", b'{"a": 1}', "application/json", '{"a": 1}'),
        ("a.csv", b"name,age\nada,36\n", "text/csv", "name,age\nada,36\n"),
        ("a.py", b"def f(): pass\n", "text/x-python", "def f(): pass\n"),
        (
            "old.py",
            "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
            "text/x-python",
            "# -*- coding: latin-1 -*-\nx = 'é'\n",
        ),
        ("empty.txt", b"", "text/plain", ""),
        ("a.html", b"<p>Hi", "text/html", "Hi"),
        ("page", b"<!doctype html><p>Hi", "text/html", "Hi"),
        ("owl.png", b"\x89PNG\r\n\x1a\n\0\0", "image/png", None),
        ("thing", b"\0\1\2", "application/octet-stream", None),
    ],
)
def test_a_file_is_read_by_its_form(name: str, data: bytes, mime: str | None, text: str | None):
    found = reading(name, data)
    assert found.text == text and not found.note
    assert mime is None or found.mime == mime


@pytest.mark.parametrize("data", [b"caf\xe9", b"\xc3", b"\xed\xa0\x80"])
def test_text_that_is_not_utf8_is_kept_as_bytes_and_says_so(data: bytes):
    found = reading("a.txt", data)
    assert found.text is None and "not UTF-8 text (byte" in found.note
    assert found.mime == "application/octet-stream"


def test_titles_and_descriptions():
    assert reading("a.md", b"---\ntitle: Barn\n---\n# Other\n").title == "Barn"
    assert reading("a.md", b"intro\n\n## Nest box ##\n").title == "Nest box"
    assert reading("a.md", b"---\nnot yaml: [\n---\n# Kept\n").title == "Kept"
    assert reading("a.csv", b'name,"full, age"\nada,36\nbob,2').description == "columns: name, full, age; 2 rows"
    assert reading("a.csv", b"name;age\nada;36\n").description == "columns: name, age; 1 row"
    assert reading("a.go", b"func Feed() {}\n").description == "func Feed"
    long = reading("a.md", f"# {'owl ' * 400}\n".encode())
    assert len(long.title) <= MAX_CHARACTERS["title"]


def test_markdown_full_of_openings_is_read_at_once():
    started_s = monotonic_s()
    assert reading("a.md", b"<!--" * 500_000).title == ""
    assert monotonic_s() - started_s < 20


def test_a_page_is_its_words_without_scripts():
    title, text = page(
        b"<html><head><title>Owls &amp; mice</title><style>p{}</style><script>var no = '<p>no</p>'</script></head><body>"
        b"<h1>Barn <b>owls</b></h1><p>They   eat<br>mice.</p><ul><li>one<li>two<ul><li>deep</ul></ul>"
        b"<table><tr><td>1<td>2</table><pre>  x\n  y</pre><noscript>no</noscript></body></html>"
    )
    assert title == "Owls & mice"
    for line in ("# Barn owls", "- one", "- two", "  x"):
        assert line in text.split("\n") or is_refined()
    assert "mice." in text and "no" not in text.split() and "var" not in text


@pytest.mark.parametrize(
    ("data", "charset", "expected"),
    [
        ("<p>é".encode("latin-1"), "", "é"),
        ('<meta charset="iso-8859-2"><p>ł'.encode("iso-8859-2"), "", "ł"),
        ("<p>ж".encode("koi8-r"), "koi8-r", "ж"),
        ("<p>é".encode(), "no-such-charset", "é"),
        ("<p>é".encode("utf-16"), "", "é"),
    ],
)
def test_a_page_says_its_encoding_or_is_guessed(data: bytes, charset: str, expected: str):
    assert page(data, charset)[1] == expected


def test_a_title_that_never_ends_ends_with_the_next_tag():
    assert page(b"<title>Owls<p>Text")[0] == "Owls"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<p>", "</p>", "<title>", "<head>", "<script>", "</script>", "<li>", "<pre>", "&#0;", "x", "<h1>", "<!--", "\n"]
        )
    )
)
def test_any_page_has_a_text(parts: list[str]):
    title, text = page("".join(parts).encode())
    assert isinstance(title, str) and "\n\n\n" not in text


def test_mail_is_its_heads_its_text_and_the_names_of_what_is_attached():
    found = reading("a.eml", MAIL)
    assert found.title == "Grüße (Ada <ada@example.org>)" and found.mime == "message/rfc822"
    assert "From: Ada <ada@example.org>" in (found.text or "")
    assert "The owl ate fünf mice." in (found.text or "")
    assert "Attachment: mice.zip (application/zip, 4 bytes)" in (found.text or "")
    html = b"Subject: x\nContent-Type: text/html; charset=utf-8\n\n<p>Only <b>HTML</b></p>"
    assert "Only HTML" in (reading("b.eml", html).text or "")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b"Subject: a\n", b"Content-Type: multipart/mixed; boundary=B\n", b"--B\n", b"\n", b"=?x?q?", b"\xff", b"--B--"]
        )
    )
)
def test_broken_mail_never_breaks_the_reader(parts: list[bytes]):
    try:
        found = read("a.eml", b"".join(parts), "mail")
    except extract.FAULTS:
        return  # the child turns these into a note
    assert found.text is not None


# -- PDF --------------------------------------------------------------------------------------------


def test_a_pdf_is_its_pages(clerk: Clerk):
    needs_pypdf()
    found = clerk.read("a.pdf", pdf("Barn owls", "eat mice", title="Owls"), "pdf")
    assert (found.text, found.title, found.mime) == ("Barn owls\n\neat mice", "Owls", "application/pdf")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"%PDF-1.4 junk", "cannot be read"),
        (pdf("", ""), "without any text"),
        (pdf("x" * 50)[:300], "cannot be read"),
        (b"%PDF-1.7\n" + b"<<" * 100_000, "kept as bytes"),
    ],
)
def test_a_pdf_that_says_nothing_is_kept_as_bytes_with_a_reason(clerk: Clerk, data: bytes, reason: str):
    needs_pypdf()
    found = clerk.read("a.pdf", data, "pdf")
    assert found.text is None and reason in found.note and found.mime == "application/pdf"


def test_an_encrypted_pdf_says_so(clerk: Clerk):
    needs_pypdf()
    assert "encrypted" in clerk.read("a.pdf", locked_pdf(), "pdf").note


def test_without_pypdf_a_pdf_is_kept_and_the_remedy_named(tmp_path: Path):
    (tmp_path / "pypdf.py").write_text("raise ImportError")  # stands before the real one
    without = Clerk({**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(extract.__file__).parents[2]}"})
    try:
        found = without.read("a.pdf", pdf("x"), "pdf")
        assert found.text is None and "run make" in found.note and found.reader == "bytes/1"
    finally:
        without.close()


def test_what_was_read_in_an_old_way_is_not_current():
    assert is_current("a.txt", reader_of("text")) and is_current("a.png", "bytes/1")
    assert not is_current("a.txt", "text/0") and not is_current("a.txt", "") and not is_current("a.txt", "scroll/1")
    needs_pypdf()
    assert not is_current("a.pdf", "bytes/1")  # there is something to read it with now


# -- children ---------------------------------------------------------------------------------------


def test_one_child_reads_many_files(clerk: Clerk):
    for number in range(50):
        assert clerk.read("a.html", f"<p>page {number}".encode(), "html").text == f"page {number}"
    large = ("<p>" + "owl " * 400_000).encode()
    assert len(clerk.read("a.html", large, "html").text or "") >= 1_599_999


def test_a_text_beyond_the_limit_is_kept_as_bytes(clerk: Clerk):
    found = clerk.read("a.html", b"<p>" + b"x" * (MAX_BODY_BYTES + 1), "html")
    assert found.text is None and "split it" in found.note


SLOW = """
import time
class PdfReader:
    def __init__(self, stream):
        {body}
class errors:
    class PyPdfError(Exception): pass
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("time.sleep(600)", "took longer than 1 s"),
        ("\n        while True: pass", "took longer than 1 s"),
        ("import os; os.abort()", "ended the program"),
        ("raise SystemExit", "ended the program"),
        ("x = bytearray(4 << 30)", "cannot be read"),
        ("print('{}'); raise ValueError('bad page')", "bad page"),
    ],
)
def test_a_parser_that_hangs_crashes_or_swells_costs_one_file(tmp_path: Path, body: str, reason: str):
    (tmp_path / "pypdf.py").write_text(SLOW.format(body=body))
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(extract.__file__).parents[2]}"}
    child = Clerk(environ, deadline_s=1.0 if "longer than 1 s" in reason else 60)
    try:
        child.read("a.html", b"<p>warm", "html")  # loading is not part of the deadline
        found = child.read("a.pdf", b"%PDF-", "pdf")
        assert found.text is None and reason in found.note
        assert child.read("a.html", b"<p>next", "html").text == "next"
    finally:
        child.close()


def test_closing_ends_a_child_at_work_and_who_waits_is_told(tmp_path: Path):
    (tmp_path / "pypdf.py").write_text(SLOW.format(body="time.sleep(600)"))
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(extract.__file__).parents[2]}"}
    clerks = Clerks(environ, count=1, deadline_s=600)
    told: list[str] = []

    def work() -> None:
        try:
            clerks.read("a.pdf", b"%PDF-", "pdf")
        except Unavailable as error:
            told.append(error.message)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while clerks._all[0]._child is None:
        sleep_s(0.01)
    clerks.close()
    for thread in threads:
        thread.join(60)
    assert told == ["reading was stopped"] * 3


def test_a_child_ends_with_its_parent(tmp_path: Path):
    (tmp_path / "pypdf.py").write_text(SLOW.format(body="time.sleep(0.1)"))
    script = (
        "import os, time\nfrom appliance.ingest.extract_process import Clerk\n"
        "c = Clerk(os.environ)\nc.read('a.html', b'<p>x', 'html')\n"
        "print(c._child.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(extract.__file__).parents[2])
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until_s = monotonic_s() + 30
    while process(child).is_alive():
        assert monotonic_s() < until_s
        sleep_s(0.05)


def test_a_child_is_the_first_to_go_when_memory_ends(clerk: Clerk):
    assert clerk.read("a.html", b"<p>x", "html").text == "x"
    assert clerk._child is not None
    assert Path(f"/proc/{clerk._child.pid}/oom_score_adj").read_text().strip() == "1000"


def test_a_child_starts_under_limits_that_are_narrower_than_its_own():
    script = (
        "import os, resource\nfrom appliance.ingest.extract_process import Clerk\n"
        "resource.setrlimit(resource.RLIMIT_AS, (900_000_000,) * 2)\nresource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "c = Clerk(os.environ)\nprint(c.read('a.html', b'<p>owls', 'html').text)\nc.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=Path(extract.__file__).parents[2]
    )
    assert done.stdout == "owls\n", done.stderr


def test_of_a_mail_with_very_many_parts_some_are_named():
    part = b"--b\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename=%d.txt\r\n\r\nhi\r\n"
    head = b"Subject: many\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    found = reading("a.eml", head + b"".join(part % number for number in range(210)) + b"--b--\r\n")
    assert found.text is not None and found.text.count("Attachment: ") == 201 and "Attachment: … and 10 more" in found.text


def test_what_is_told_of_a_file_can_be_sent():
    assert extract.as_bytes("a", "caf\udce9").note == "caf\\udce9"
