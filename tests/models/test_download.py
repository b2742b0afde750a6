"""Large files come whole through bad networks: a real server on loopback with one fault after another."""

import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from process import until
from record_tools import replace

from appliance.errors import BadInput, Busy, Cancelled, DiskFull, NotFound, Refused, Unavailable
from appliance.models import download
from appliance.models.download import DownloadPatience, WantedFile
from appliance.runtime.http_client import CHUNK_BYTES

DATA = os.urandom(1 << 16) * 12 + b"the end"
SHA256 = hashlib.sha256(DATA).hexdigest()
QUICK = DownloadPatience(connect_s=60, stall_s=60, attempts=3, pause_s=0.01, longest_pause_s=0.05, reserve_bytes=0)
PACKAGE = Path(__file__).parents[2]


class Handler(BaseHTTPRequestHandler):
    """Serves DATA the way `server.faults` says, one entry a request; well once they are used up."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        self.server.asked.append(dict(self.headers))
        faults = self.server.faults
        (faults.pop(0) if faults else Handler.well)(self)

    def well(self, cut: int = 0, pad: int = 0, tag: str = '"one"', data: bytes = DATA) -> None:
        """Answer a range when it is of this version; `cut` bytes are missing, the length lies by `pad`."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        is_same = self.headers.get("If-Range", tag) == tag
        start = int(asked[1]) if asked and is_same else 0
        body = data[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body) + pad))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])
        self.close_connection = bool(cut or pad)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """The server, what it was asked and what it will do wrong."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, str]] = []
        self.faults: list[Callable[[Handler], None]] = []
        self.hold = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is what some tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/owl.bin"


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


def cut(missing: int) -> Callable[[Handler], None]:
    return lambda handler: handler.well(cut=missing)


def without_ranges(handler: Handler) -> None:
    del handler.headers["Range"]
    handler.well()


def silent(handler: Handler) -> None:
    handler.well(cut=len(DATA) // 2)
    handler.wfile.flush()
    handler.server.hold.wait(120)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.hold.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "owl.bin"


def quiet(stage: str, done: int, total: int) -> None:
    pass


def fetch(
    server: Server, target: Path, *faults: Callable[[Handler], None], size: int = len(DATA), patience: DownloadPatience = QUICK
) -> None:
    server.faults += faults
    download.fetch(WantedFile(server.url, SHA256, size), target, quiet, patience)


def test_a_file_comes_whole_with_progress_and_nothing_is_left_behind(server: Server, target: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    download.fetch(WantedFile(server.url, SHA256), target, lambda *line: seen.append(line), QUICK)
    assert target.read_bytes() == DATA and os.listdir(target.parent) == [target.name]
    assert seen[-1] == ("download", len(DATA), len(DATA)) and [s[1] for s in seen] == sorted(s[1] for s in seen)
    assert target.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("faults", "requests"),
    [
        ([cut(200_000)], 2),
        ([cut(600_000), cut(300_000), cut(1)], 4),
        ([silent], 2),
        ([status(500), status(503)], 3),
        ([status(429, Retry_After="0")], 2),
        ([cut(200_000), without_ranges], 2),
        ([cut(200_000), status(416)], 3),
    ],
    ids=["cut", "cut thrice", "silent", "500 and 503", "429", "no ranges", "416"],
)
def test_trouble_on_the_way_is_ridden_out(
    server: Server, target: Path, faults: list[Callable[[Handler], None]], requests: int
) -> None:
    fetch(server, target, *faults, patience=replace(QUICK, stall_s=2) if silent in faults else QUICK)
    assert target.read_bytes() == DATA and len(server.asked) == requests


def test_what_came_is_not_asked_for_again(server: Server, target: Path) -> None:
    fetch(server, target, cut(200_000))
    start = int(server.asked[1]["Range"].removeprefix("bytes=").removesuffix("-"))
    assert len(DATA) - 200_000 - 2 * CHUNK_BYTES <= start <= len(DATA) - 200_000
    assert server.asked[1]["If-Range"] == '"one"'


def test_another_version_at_the_source_starts_again(server: Server, target: Path) -> None:
    old = bytes(len(DATA))
    fetch(server, target, lambda h: h.well(cut=1000, tag='"zero"', data=old))
    assert target.read_bytes() == DATA


def test_an_ended_attempt_is_taken_up_by_the_next_run(server: Server, target: Path) -> None:
    with pytest.raises(Unavailable, match="failed") as caught:
        fetch(server, target, cut(100_000), *[status(500)] * 3)
    assert "goes on where it stopped" in caught.value.hint and not target.exists()
    kept = download.part_of(target).stat().st_size
    assert kept > len(DATA) // 2
    seen: list[tuple[str, int, int]] = []
    download.fetch(WantedFile(server.url, SHA256), target, lambda *line: seen.append(line), QUICK)
    assert server.asked[-1]["Range"] == f"bytes={kept}-" and seen[0][0] == "check what came before"
    assert target.read_bytes() == DATA


def test_a_part_of_another_file_is_not_taken_up(server: Server, target: Path) -> None:
    download.part_of(target).write_bytes(b"x" * 1000)
    target.with_name(".owl.bin.part.json").write_text(json.dumps({"url": "u", "sha256": "s", "validator": "", "total": 5}))
    fetch(server, target)
    assert "Range" not in server.asked[0] and target.read_bytes() == DATA


def test_a_damaged_part_is_found_out_and_deleted(server: Server, target: Path) -> None:
    with pytest.raises(Unavailable):
        fetch(server, target, cut(100_000), *[status(500)] * 3)
    with download.part_of(target).open("r+b") as part:
        part.write(b"damage")
    with pytest.raises(BadInput, match=f"expected {SHA256}"):
        fetch(server, target)
    assert os.listdir(target.parent) == []
    fetch(server, target)
    assert target.read_bytes() == DATA


def test_a_wrong_file_is_deleted_and_both_hashes_are_told(server: Server, target: Path) -> None:
    wrong = bytes(len(DATA))
    with pytest.raises(BadInput) as caught:
        fetch(server, target, lambda h: h.well(data=wrong))
    assert hashlib.sha256(wrong).hexdigest() in caught.value.message and SHA256 in caught.value.message
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize("pad", [-1000, 50_000])
def test_a_length_that_lies_is_refused_when_the_size_is_known(server: Server, target: Path, pad: int) -> None:
    with pytest.raises(BadInput, match=f"offers {len(DATA) + pad} bytes, owl.bin has {len(DATA)}"):
        fetch(server, target, lambda h: h.well(pad=pad))
    assert not target.exists()


def test_a_length_that_lies_never_passes_when_the_size_is_not_known(server: Server, target: Path) -> None:
    with pytest.raises(BadInput, match="SHA-256"):
        fetch(server, target, lambda h: h.well(pad=-1000), size=0)
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize(
    ("code", "kind"), [(404, NotFound), (410, NotFound), (403, Unavailable), (401, Unavailable), (206, Unavailable)]
)
def test_a_plain_no_is_final_and_said_at_once(server: Server, target: Path, code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=str(code)):
        fetch(server, target, status(code))
    assert len(server.asked) == 1 and os.listdir(target.parent) == []


def test_a_server_that_is_not_there_is_tried_a_few_times(target: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/x"
        with pytest.raises(Unavailable, match="no connection") as caught:
            download.fetch(WantedFile(url, SHA256), target, quiet, QUICK)
    assert "network" in caught.value.hint


def test_redirects_are_followed_up_to_a_limit(server: Server, target: Path) -> None:
    there = status(302, Location="/elsewhere")
    fetch(server, target, *[there] * 5)
    assert target.read_bytes() == DATA
    target.unlink()
    with pytest.raises(Unavailable, match="redirects more than 5 times"):
        fetch(server, target, *[there] * 6)


@pytest.mark.parametrize("place", ["file:///etc/passwd", "http://example.com/owl", "ftp://127.0.0.1/x", "http://[::2]/x"])
def test_a_redirect_to_an_unsafe_place_is_refused(server: Server, target: Path, place: str) -> None:
    with pytest.raises(Refused, match="leads to"):
        fetch(server, target, status(301, Location=place))


@pytest.mark.parametrize(
    "url", ["http://example.com/x", "file:///etc/passwd", "ftp://a/b", "owl", "https://", "http://127.0.0.1.nip.io/x"]
)
def test_only_https_or_this_machine_is_asked(url: str, target: Path) -> None:
    with pytest.raises(Refused, match="only https"):
        download.fetch(WantedFile(url, SHA256), target, quiet, QUICK)


def test_a_secure_start_may_not_lead_to_this_machine() -> None:
    download.require_safe("https://example.com/a")
    download.require_safe("http://localhost:1/a", "http://127.0.0.1/b")
    with pytest.raises(Refused):
        download.require_safe("http://127.0.0.1:8080/admin", "https://example.com/a")


def test_a_disk_without_room_is_refused_before_the_transfer(server: Server, target: Path) -> None:
    huge = DownloadPatience(reserve_bytes=1 << 60)
    with pytest.raises(DiskFull, match=r"lacks \d+ MB for owl.bin"):
        download.fetch(WantedFile(server.url, SHA256), target, quiet, huge)
    assert os.listdir(target.parent) == []


LIMITED = """
import resource, signal, sys
from pathlib import Path
from appliance.models import download
from appliance.errors import OwlError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    wanted = download.WantedFile(*sys.argv[1:3])
    download.fetch(wanted, Path(sys.argv[3]), lambda *_: None, download.DownloadPatience(reserve_bytes=0))
except OwlError as error:
    print(error.outcome, error)
"""


def test_a_disk_that_fills_up_keeps_what_came(server: Server, target: Path) -> None:
    command = [sys.executable, "-c", LIMITED, server.url, SHA256, str(target)]
    said = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, timeout=180)
    assert "disk_full" in said.stdout and "lacks 1 MB" in said.stdout, said.stderr
    assert download.part_of(target).stat().st_size == 300_000
    fetch(server, target)
    assert server.asked[-1]["Range"] == "bytes=300000-" and target.read_bytes() == DATA


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_download_keeps_its_part(server: Server, target: Path, number: signal.Signals) -> None:
    server.faults.append(silent)
    program = (
        "import sys; from pathlib import Path; from appliance.models import download\n"
        "download.fetch(download.WantedFile(*sys.argv[1:3]), Path(sys.argv[3]), lambda *_: None)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, server.url, SHA256, str(target)], cwd=PACKAGE, stderr=subprocess.PIPE, text=True
    )
    part = download.part_of(target)
    until(lambda: part.exists() and part.stat().st_size > 200_000, "some of it is there")
    child.send_signal(number)
    _, said = child.communicate(timeout=180)
    if number == signal.SIGINT:
        assert Cancelled.__name__ in said and "goes on where it stopped" in said
    fetch(server, target)
    assert "Range" in server.asked[-1] and target.read_bytes() == DATA


def test_two_at_once_do_not_share_a_part(server: Server, target: Path) -> None:
    with download.part_of(target).open("wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(Busy, match=r"another process is downloading owl\.bin"):
            fetch(server, target)
        with pytest.raises(Busy):
            download.discard(target)
    fetch(server, target)
    assert target.read_bytes() == DATA


def test_a_kept_part_can_be_discarded(server: Server, target: Path) -> None:
    assert download.discard(target) == 0
    with pytest.raises(Unavailable):
        fetch(server, target, cut(100_000), *[status(500)] * 3)
    assert download.discard(target) > 0 and os.listdir(target.parent) == []


def test_a_folder_that_is_not_there_is_an_ordinary_error(server: Server, tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        download.fetch(WantedFile(server.url, SHA256), tmp_path / "none/owl.bin", quiet, QUICK)
    assert caught.value.errno == errno.ENOENT
