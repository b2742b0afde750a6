"""One large file by HTTP: resumed where it stopped, verified, and there only when it is whole.

Owns the transfer: https (plain http to this machine alone), redirects, time limits, room on the disk, the
unfinished part and the small file of facts beside it. A redirect from the internet leads to the internet alone. One
process at a time works on a part. Knows nothing about models. Not promised: anything about a slow server that keeps
sending a byte now and then.
"""

import errno
import fcntl
import hashlib
import ipaddress
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import (
    BadInput,
    Busy,
    Cancelled,
    DeadlineExceeded,
    DiskFull,
    HttpError,
    NotFound,
    OwlError,
    Refused,
    Unavailable,
)
from appliance.runtime import paths
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import Answer, HttpSession
from appliance.runtime.special_addresses import special
from appliance.text import urls
from appliance.text.urls import Target

MB = 1_000_000
HASH_BYTES = 1 << 20
PART, FACTS = ".part", ".part.json"
REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5
FIRST_ATTEMPTS = 3  # while nothing has come: most likely there is no network
AGAIN = "the same command goes on where it stopped"

Progress = Callable[[str, int, int], None]


class WantedFile(Struct, frozen=True):
    """A file and how to know that it is the right one; `size_bytes` 0 means that only the server knows."""

    url: str
    sha256: str
    size_bytes: int = 0


class DownloadPatience(Struct, frozen=True):
    """How long a server may take: a stall ends an attempt, an attempt that brought nothing counts as failed."""

    connect_s: float = 15
    stall_s: float = 30
    attempts: int = 6
    pause_s: float = 1
    longest_pause_s: float = 30
    reserve_bytes: int = 200 * MB


class _Broken(Exception):
    """The transfer ended early; another attempt may succeed."""

    def __init__(self, why: str, wait_s: float = 0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


def fetch(wanted: WantedFile, target: Path, progress: Progress, patience: DownloadPatience | None = None) -> None:
    """Bring the file to `target`; every error keeps what came for the next time, a wrong SHA-256 excepted.

    `progress(stage, done_bytes, total_bytes)` is called often; a total of 0 is not known yet.
    """
    require_safe(wanted.url)
    with _claim_part(part_of(target)) as handle:
        part = _Part(handle, target, wanted, progress)
        try:
            _transfer_file(part, wanted, patience or DownloadPatience())
        except KeyboardInterrupt:
            raise Cancelled(f"download of {target.name} stopped at {part.done // MB} MB", hint=AGAIN) from None
        finally:
            if not part.done:
                part.forget()
        part.finish()


def part_of(target: Path) -> Path:
    """Where the unfinished file lies: always the same place, so that it is found again."""
    return target.with_name(f".{target.name}{PART}")


def discard(target: Path) -> int:
    """Forget what was kept of an unfinished download; returns its bytes. Busy while it is running."""
    path = part_of(target)
    if not path.exists():
        return 0
    with _claim_part(path) as handle:
        size = os.fstat(handle).st_size
        path.unlink(missing_ok=True)
        target.with_name(f".{target.name}{FACTS}").unlink(missing_ok=True)
    return size


def require_safe(url: str, before: str = "") -> None:
    """Refused unless the address is https, or http on this machine (after a redirect: if it began there)."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_here(url) and (not before or _is_here(before)):
        return
    where = f"{before} leads to {url}" if before else url
    raise Refused(f"{where}: only https is allowed", hint="use an https address")


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -- the part that is kept --------------------------------------------------------------------------


@contextmanager
def _claim_part(path: Path) -> Iterator[int]:
    """The open part, ours alone until the end of the with block."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have renamed it into place between our open and our lock.
            if path.exists() and os.stat(path).st_ino == os.fstat(handle).st_ino:
                yield handle
                return
        except BlockingIOError:
            raise Busy(f"another process is downloading {path.name[1:].removesuffix(PART)}", hint="wait for it to end") from None
        finally:
            os.close(handle)


class _Part:
    """The bytes so far, their running hash, and what the server said of the whole."""

    def __init__(self, handle: int, target: Path, wanted: WantedFile, progress: Progress) -> None:
        self._handle = handle
        self._target = target
        self._wanted = wanted
        self._facts = target.with_name(f".{target.name}{FACTS}")
        self._progress = progress
        self.done = 0
        self.total = wanted.size_bytes
        self.validator = ""
        self._digest = hashlib.sha256()
        self._restore_part()

    @property
    def is_whole(self) -> bool:
        """True when there is nothing left to ask for."""
        return 0 < self.total <= self.done

    def restart(self) -> None:
        """Begin with nothing."""
        os.ftruncate(self._handle, 0)
        self.done, self.total, self.validator, self._digest = 0, self._wanted.size_bytes, "", hashlib.sha256()

    def expect(self, total: int, validator: str, reserve_bytes: int) -> None:
        """Note the size and version the server announced; refuse another size than the known one, and a full disk."""
        wanted = self._wanted
        if total and wanted.size_bytes and total != wanted.size_bytes:
            message = f"{wanted.url} offers {total} bytes, {self._target.name} has {wanted.size_bytes}"
            raise BadInput(message, hint="it was changed at the source, or something in between answers for it")
        self.total = total or self.total
        self.validator = validator
        facts = {"url": wanted.url, "sha256": wanted.sha256, "validator": validator, "total": self.total}
        self._facts.write_text(json.dumps(facts), encoding="utf-8")
        disk = os.statvfs(self._target.parent)
        lacking = self.total - self.done + reserve_bytes - disk.f_bavail * disk.f_frsize
        if self.total and lacking > 0:
            raise self._disk_full(lacking)

    def add(self, data: bytes) -> None:
        """Append; what the disk took is counted even when it then refuses the rest."""
        left = memoryview(data)
        while left:
            try:
                written = os.pwrite(self._handle, left, self.done)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise self._disk_full(max(self.total - self.done, len(left))) from None
                raise
            self._digest.update(left[:written])
            self.done += written
            left = left[written:]
        self.tell("download")

    def forget(self) -> None:
        """Leave nothing behind."""
        self._facts.unlink(missing_ok=True)
        part_of(self._target).unlink(missing_ok=True)

    def tell(self, stage: str) -> None:
        """Report the progress."""
        self._progress(stage, self.done, self.total)

    def finish(self) -> None:
        """Verify and put in place; a wrong file is deleted."""
        found, wanted = self._digest.hexdigest(), self._wanted
        if found != wanted.sha256:
            self.forget()
            raise BadInput(
                f"{self._target.name}: SHA-256 is {found}, expected {wanted.sha256}; the file was deleted",
                hint="it was changed on the way or at the source; try again, and do not use it from there",
            )
        os.ftruncate(self._handle, self.done)
        os.fchmod(self._handle, 0o644)
        os.fsync(self._handle)
        os.replace(part_of(self._target), self._target)
        self._facts.unlink(missing_ok=True)
        paths.flush(self._target.parent)

    def _restore_part(self) -> None:
        """Take up what an earlier run left, if it is of the same file: its bytes are hashed again."""
        try:
            facts = json.loads(self._facts.read_text("utf-8"))
            is_same = (facts["url"], facts["sha256"]) == (self._wanted.url, self._wanted.sha256)
            validator, total = str(facts["validator"]), int(facts["total"])
        except (OSError, ValueError, LookupError, TypeError):
            is_same, validator, total = False, "", 0
        size = os.fstat(self._handle).st_size
        if not is_same or (total and size > total):
            self.restart()
            return
        self.validator, self.total = validator, self._wanted.size_bytes or total
        while data := os.pread(self._handle, HASH_BYTES, self.done):
            self._digest.update(data)
            self.done += len(data)
            self._progress("check what came before", self.done, size)

    def _disk_full(self, lacking: int) -> DiskFull:
        where, missing = self._target.parent, -(-lacking // MB)
        return DiskFull(f"{where} lacks {missing} MB for {self._target.name}", hint=f"free some space; {AGAIN}")


# -- the transfer -----------------------------------------------------------------------------------


def _transfer_file(part: _Part, wanted: WantedFile, patience: DownloadPatience) -> None:
    """Attempts until the part is whole; only attempts that bring nothing are counted."""
    failures, pause_s = 0, patience.pause_s
    # The proxy of the environment is for the world outside.
    session = HttpSession(is_proxied=not _is_here(wanted.url))
    while not part.is_whole:
        before = part.done
        try:
            _attempt_transfer(session, part, wanted, patience)
            return
        except _Broken as broken:
            is_moving = part.done > before
            failures, pause_s = (0, patience.pause_s) if is_moving else (failures + 1, pause_s)
            if failures >= (patience.attempts if part.done else min(FIRST_ATTEMPTS, patience.attempts)):
                raise _gave_up(part, wanted, str(broken)) from None
            part.tell("wait and try again")
            sleep_s(min(max(pause_s, broken.wait_s), patience.longest_pause_s))
            pause_s *= 2


def _gave_up(part: _Part, wanted: WantedFile, why: str) -> OwlError:
    host = urlsplit(wanted.url).netloc
    kept = f"{part.done // MB} MB are kept: {AGAIN}" if part.done else "check the network and try again"
    return Unavailable(f"download from {host} failed: {why}", hint=kept)


def _attempt_transfer(session: HttpSession, part: _Part, wanted: WantedFile, patience: DownloadPatience) -> None:
    """One request for what is missing, written as it comes; _Broken when it ended early."""
    with _open_answer(session, part, wanted, patience) as answer:
        is_part = answer.status_code == 206
        if not is_part and part.done:
            part.restart()  # the server knows no ranges, or has another version now
        part.expect(_total_size(answer, part.done if is_part else 0), _validator_of(answer), patience.reserve_bytes)
        answer.deadline = Deadline(math.inf, f"downloading {wanted.url}", silence_s=patience.stall_s)
        try:
            for data in answer.iter_content():
                part.add(data)
                if wanted.size_bytes and part.done > wanted.size_bytes:
                    return  # more than there can be: the hash will say so
        except HttpError as error:
            raise _Broken("the server fell silent" if error.stage == "silence" else "the connection broke off") from None
    if part.total and not part.is_whole:
        raise _Broken(f"the server stopped after {part.done} of {part.total} bytes")


@contextmanager
def _open_answer(session: HttpSession, part: _Part, wanted: WantedFile, patience: DownloadPatience) -> Iterator[Answer]:
    """The answer with the bytes, behind however many redirects are allowed."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "owlbox"}
    if part.done:
        headers["Range"] = f"bytes={part.done}-"
        if part.validator:
            headers["If-Range"] = part.validator
    target, places = urls.parse(wanted.url), VisitedHosts()
    for _ in range(MAX_REDIRECTS + 1):
        with _request_answer(session, target, headers, places, patience) as answer:
            if answer.status_code not in REDIRECTS or not answer.location:
                _judge_answer(answer, part, wanted, target)
                yield answer
                return
            before, location = target, answer.location
        require_safe(urljoin(before.url, location), before.url)
        places.came_from(before)
        target = urls.follow(before, location)
    raise Unavailable(f"{wanted.url} redirects more than {MAX_REDIRECTS} times", hint="the server is misconfigured; try later")


class VisitedHosts:
    """Where a download has been: from the internet nothing leads to what is nearer."""

    def __init__(self) -> None:
        self._before: Target | None = None
        self._is_near = self._was_far = False

    def came_from(self, before: Target) -> None:
        """A place that was asked redirects."""
        self._before, self._was_far, self._is_near = before, self._was_far or not self._is_near, False

    def judge(self, addresses: list[str]) -> None:
        """Refused for addresses at home after one of the internet. A proxy's are not judged: it leads outside."""
        near = [text for text in addresses if special(ipaddress.ip_address(text))]
        self._is_near = bool(near)
        if near and self._was_far and self._before:
            text = f"{self._before.url} leads to {near[0]}, which {special(ipaddress.ip_address(near[0]))}"
            raise Refused(text, hint="use the address of the file itself")


def _request_answer(
    session: HttpSession, target: Target, headers: dict[str, str], places: VisitedHosts, patience: DownloadPatience
) -> Answer:
    """The answer of one server; _Broken where trying again may help."""
    host = target.authority
    try:
        deadline = Deadline(monotonic_s() + patience.connect_s + patience.stall_s, f"asking {host}", silence_s=patience.stall_s)
        return session.ask(target, headers, by=deadline, judge=places.judge)
    except HttpError as error:
        if error.stage == "tls":
            why = f"{host}: its certificate is not accepted" if error.outcome == "bad_certificate" else error.message
            raise Unavailable(why, hint="check the clock of this machine") from None
        raise _Broken(
            {"connect": "no connection", "silence": "the server fell silent"}.get(error.stage, "the connection broke off")
        ) from None
    except DeadlineExceeded:
        raise _Broken("no connection in time") from None
    except (NotFound, Unavailable) as error:  # of the name
        raise _Broken(f"no connection: {error.message}") from None


def _judge_answer(answer: Answer, part: _Part, wanted: WantedFile, target: Target) -> None:
    """Raise unless the body is what was asked for."""
    code, host = answer.status_code, target.authority
    if code == 416 and part.done:
        part.restart()
        raise _Broken("the server has no such range")
    if code in (404, 410):
        raise NotFound(f"{wanted.url} is not there ({code})", hint="owlbox model list shows other models")
    if code in (408, 425, 429) or code >= 500:
        wait = answer.headers.get("retry-after", "")
        raise _Broken(f"{host} answered {code}", float(wait) if wait.isdecimal() else 0)
    if code not in (200, 206) or (code == 206 and not part.done):
        raise Unavailable(f"{host} answered {code} for {wanted.url}", hint="the server does not give this file away; try another")
    if code == 206 and _range_start(answer) != part.done:
        part.restart()
        raise _Broken("the server sent another range than the one asked for")
    if (coding := answer.headers.get("content-encoding", "identity")) != "identity":
        raise Unavailable(f"{host} sends the file packed ({coding})", hint="try another network")


def _range_start(answer: Answer) -> int:
    start = answer.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdecimal() else -1


def _total_size(answer: Answer, before: int) -> int:
    """The size of the whole file, as the server says; 0 when it does not."""
    whole = answer.headers.get("content-range", "").rpartition("/")[2]
    if answer.status_code == 206 and whole.isdecimal():
        return int(whole)
    length = answer.headers.get("content-length", "")
    return before + int(length) if length.isdecimal() else 0


def _validator_of(answer: Answer) -> str:
    """The validator of this version of the file for If-Range; weak tags do not count."""
    tag = answer.headers.get("etag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("last-modified", "")
