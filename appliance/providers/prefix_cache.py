"""Prefix states on disk: what llama.cpp computed for the beginning of a prompt, read back in milliseconds.

One file a prefix: a line of JSON, the tokens, the state. A file appears complete and flushed or not at
all, and its length and SHA-256 are checked before llama.cpp sees a byte of it: a truncated state ends the
process, a flipped bit is believed (measured, 0.3.36). States hold prompt text: files are 0600 and the
folder is outside every backup. Bounded: the ones unused for longest go first. Knows nothing about llama.cpp;
`identity` names everything that must be the same for a state to mean the same.
"""

import contextlib
import hashlib
import json
import logging
import mmap
import os
import struct
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.clock import now_ms

LOG = logging.getLogger(__name__)
MAGIC = b"OWLSTATE1\n"
SUFFIX = ".state"
PART = ".part"
LONGEST_HEADER = 4096
TOKEN_BYTES = 4
USED_AGAIN_MS = 3600 * 1000  # a file's time of use is not written again within this: SD cards wear
KEEP_FREE_BYTES = 200_000_000


class CachedPrefix(Struct, frozen=True):
    """A saved state on disk: its file, and its tokens."""

    path: Path
    tokens: "array[int]"
    size_bytes: int


class States:
    """The states of one identity in one folder; other identities' files count towards the limit and age away."""

    def __init__(self, folder: Path, identity: str, limit_bytes: int) -> None:
        self._folder = folder
        self._identity = hashlib.sha256(identity.encode()).hexdigest()
        self._limit_bytes = limit_bytes
        self._guard = threading.Lock()
        self._writers: list[threading.Thread] = []
        self._known = {path.name: found for path in self._list_files() if (found := self._read_header(path)) is not None}

    def best(self, tokens: Sequence[int], window: int, *, is_whole: bool = False) -> tuple[CachedPrefix | None, int]:
        """The state that shares the longest beginning with these tokens, and how many they share.

        Only of those that fit into the window: it may have been larger when they were made. `is_whole`: only of those that they
        share all of.
        """
        wanted = array("I", tokens)
        with self._guard:
            shared = [
                (_common_length(known.tokens, wanted), known) for known in self._known.values() if len(known.tokens) <= window
            ]
        shared = [(length, known) for length, known in shared if not is_whole or length == len(known.tokens)]
        length, known = max(shared, key=lambda pair: pair[0], default=(0, None))
        return (known, length) if length else (None, 0)

    def has(self, tokens: Sequence[int]) -> bool:
        """True when exactly this beginning is kept."""
        with self._guard:
            return self._file_name(array("I", tokens)) in self._known

    def may_take(self, size_bytes: int) -> bool:
        """False for what is larger than all that may be kept."""
        return size_bytes <= self._limit_bytes

    def read(self, known: CachedPrefix) -> memoryview | None:
        """The verified state, or None: a file that is damaged or gone is forgotten and will be made anew.

        It is in memory once: a state of 2,000 tokens has 46 MB, and each copy of it takes as long as a token.
        """
        try:
            data = _allocate(known.size_bytes)
        except OSError as error:
            LOG.warning("prefix state is not read: %s", error.strerror, extra={"file": known.path.name})
            return None
        try:
            with known.path.open("rb", buffering=0) as file:
                size = file.readinto(data)
                if os.fstat(file.fileno()).st_size != known.size_bytes:
                    size = 0
        except OSError as error:
            self._forget_state(known, str(error.strerror))
            return None
        payload = self._verify_payload(data, known) if size == len(data) else None
        if payload is None:
            self._forget_state(known, "length or checksum is wrong")
            return None
        self._mark_used(known.path)
        return payload

    def keep(self, tokens: Sequence[int], payload: bytes) -> None:
        """Write a state in the background; whoever wants it before the next start has it in memory anyway."""
        writer = threading.Thread(target=self._write_state, args=(array("I", tokens), payload), name="prefix-state", daemon=True)
        with self._guard:
            self._writers = [w for w in self._writers if w.is_alive()] + [writer]
        writer.start()

    def settle(self, timeout_s: float = 30) -> None:
        """Wait until what was kept is on disk."""
        with self._guard:
            writers = list(self._writers)
        for writer in writers:
            writer.join(timeout_s)

    # -- files -------------------------------------------------------------------------------------

    def _list_files(self) -> list[Path]:
        try:
            return sorted(p for p in self._folder.iterdir() if p.suffix == SUFFIX)
        except OSError:
            return []

    def _file_name(self, tokens: "array[int]") -> str:
        return hashlib.sha256(self._identity.encode() + tokens.tobytes()).hexdigest()[:40] + SUFFIX

    def _read_header(self, path: Path) -> CachedPrefix | None:
        """What a file says it is, without reading the state; None for damaged ones and other identities'."""
        try:
            with path.open("rb") as file:
                start = file.read(len(MAGIC) + LONGEST_HEADER)
                facts = _parse_facts(start)
                if facts is None or facts.get("identity") != self._identity:
                    return None
                count, begin = facts["tokens"], facts["begin"]
                file.seek(begin)
                tokens = array("I")
                tokens.frombytes(file.read(count * TOKEN_BYTES))
                size = os.fstat(file.fileno()).st_size
        except (OSError, ValueError):
            return None
        if len(tokens) != count or size != begin + count * TOKEN_BYTES + facts["payload"]:
            LOG.warning("prefix state is incomplete and will be made again", extra={"file": path.name})
            _remove_file(path)
            return None
        return CachedPrefix(path, tokens, size)

    def _verify_payload(self, data: mmap.mmap, known: CachedPrefix) -> memoryview | None:
        facts = _parse_facts(data[: len(MAGIC) + LONGEST_HEADER])
        if facts is None or facts.get("identity") != self._identity:
            return None
        body = memoryview(data)[facts["begin"] :]
        length = len(known.tokens) * TOKEN_BYTES
        is_whole = len(body) == length + facts["payload"] and body[:length] == known.tokens.tobytes()
        if not is_whole or hashlib.sha256(body).hexdigest() != facts["sha256"]:
            return None
        return body[length:]

    def _write_state(self, tokens: "array[int]", payload: bytes) -> None:
        path = self._folder / self._file_name(tokens)
        part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{PART}")
        raw = tokens.tobytes()
        digest = hashlib.sha256(raw)
        digest.update(payload)
        facts = {
            "identity": self._identity,
            "tokens": len(tokens),
            "payload": len(payload),
            "sha256": digest.hexdigest(),
            "made_ms": now_ms(),
        }
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._make_room(len(payload), path):
                return
            handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(_pack_facts(facts))
                file.write(raw)
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            os.replace(part, path)
            _sync_folder(self._folder)
        except OSError as error:
            LOG.warning("prefix state not kept: %s", error.strerror, extra={"file": path.name})
            return
        finally:
            _remove_file(part)
        with self._guard:
            self._known[path.name] = CachedPrefix(path, tokens, size)
        LOG.info("prefix state kept", extra={"file": path.name, "tokens": len(tokens), "bytes": size})

    def _make_room(self, needed: int, path: Path) -> bool:
        """Delete the longest unused files until this one fits; False when it must not be written at all."""
        if not self.may_take(needed):
            return False
        for left in self._folder.glob(f".*{PART}"):  # of a process that was killed while it wrote
            if now_ms() - left.stat().st_mtime * 1000 > USED_AGAIN_MS:
                left.unlink(missing_ok=True)
        files = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in self._list_files() if p != path)
        total = sum(size for _, size, _ in files)
        for _, size, old in files:
            if total + needed <= self._limit_bytes:
                break
            old.unlink(missing_ok=True)
            total -= size
            with self._guard:
                self._known.pop(old.name, None)
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize > needed + KEEP_FREE_BYTES

    def _mark_used(self, path: Path) -> None:
        try:
            if now_ms() - path.stat().st_mtime * 1000 > USED_AGAIN_MS:
                os.utime(path)
        except OSError:
            pass  # another process removed it: it is in our memory now

    def _forget_state(self, known: CachedPrefix, reason: str) -> None:
        LOG.warning("prefix state cannot be used and will be made again: %s", reason, extra={"file": known.path.name})
        with self._guard:
            self._known.pop(known.path.name, None)
        _remove_file(known.path)


def _allocate(size: int) -> mmap.mmap:
    """Memory to read a state into: in large pages where there are some, else getting it takes longer than reading the file."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # this kernel has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _pack_facts(facts: dict[str, Any]) -> bytes:
    """Magic, length of the JSON, the JSON."""
    text = json.dumps(facts).encode()
    return MAGIC + struct.pack("<I", len(text)) + text


def _parse_facts(start: bytes) -> dict[str, Any] | None:
    """The JSON at the start of a file, with "begin", the place of what follows it; None when it is not ours."""
    if not start.startswith(MAGIC) or len(start) < len(MAGIC) + 4:
        return None
    (length,) = struct.unpack_from("<I", start, len(MAGIC))
    begin = len(MAGIC) + 4 + length
    if length > LONGEST_HEADER - 4 or begin > len(start):
        return None
    try:
        facts = json.loads(start[len(MAGIC) + 4 : begin])
    except ValueError:
        return None
    if not isinstance(facts, dict):
        return None
    is_whole = all(isinstance(facts.get(k), int) for k in ("tokens", "payload"))
    is_whole = is_whole and all(isinstance(facts.get(k), str) for k in ("identity", "sha256"))
    return {**facts, "begin": begin} if is_whole else None


def _common_length(known: "array[int]", wanted: "array[int]") -> int:
    """Length of the common beginning, by halving: comparing slices is fast, comparing items is not."""
    low, high = 0, min(len(known), len(wanted))
    while low < high:
        middle = (low + high + 1) // 2
        if known[low:middle] == wanted[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _remove_file(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass  # a folder we may not write to: what lies there is not used, that is enough


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
