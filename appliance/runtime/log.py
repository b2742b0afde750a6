"""Logs: one JSON object a line, with correlation id, redacted when written; journald gets the same.

Owns the handlers on the package's logger and the secrets to hide. A full disk never raises out of a
log call. Knows nothing about what is worth logging. The correlation id lives in a context variable:
the one piece of ambient state we keep, because every log line of a request must carry it (A-271).
"""

import contextlib
import contextvars
import gzip
import hashlib
import hmac
import json
import logging
import logging.handlers
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.clock import iso

ROOT = "appliance"
LEVELS = {"silent": 100, "error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Shapes of common keys, so that one that was never handed to us is hidden too.
SHAPES = re.compile(
    # A digit within reach tells a key from hyphenated words such as sk-is-no-key-but-a-word.
    r"\b(?:(?:sk|pk|rk|gh[opsu]|github_pat|xox[abpr]|glpat)[-_]|AIza)(?=[-_A-Za-z]{0,64}[0-9])[-_A-Za-z0-9]{16,}"
    r"|(?<=Bearer )[-._~+/A-Za-z0-9]{8,}=*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?<=password=)[^\s&\"']+|(?<=token=)[^\s&\"']+|(?<=api_key=)[^\s&\"']+",
    re.DOTALL,
)
SHORTEST = 7  # characters of what one of these shapes can find
HIDDEN = "[hidden]"
FIELDS = ("PRIORITY", "SYSLOG_IDENTIFIER", "LOGGER", "THREAD_NAME", "CODE_FILE", "CODE_LINE", "CODE_FUNC")  # of a journal's entry
# A log file is turned over at this size, and so many compressed ones are kept: an SD card of 8 GB has room for 20 MB.
FILE_BYTES, FILES = 5_000_000, 3
HEAD, MARKED = 4, 16  # characters: of a secret that is known by a mark, how many are told, and how many it has at least

_CORRELATION: contextvars.ContextVar[str] = contextvars.ContextVar("correlation", default="")


def correlate(correlation: str) -> None:
    """Every later log line of this thread carries this id."""
    _CORRELATION.set(correlation)


def correlation() -> str:
    """The id of the request this thread works for, or ""."""
    return _CORRELATION.get()


@contextmanager
def correlated(value: str) -> Iterator[None]:
    """Carry an id for the length of a with block."""
    token = _CORRELATION.set(value)
    try:
        yield
    finally:
        _CORRELATION.reset(token)


class SecretMark(Struct, frozen=True):
    """Enough of a secret to find it in a text, and too little to know it: how it begins, how long it is, a salted digest."""

    head: str
    chars: int
    salt: str
    digest: str

    def hide(self, text: str) -> str:
        """The text without the secret."""
        at = text.find(self.head)
        while at >= 0:
            if hmac.compare_digest(_digest_text(self.salt, text[at : at + self.chars]), self.digest):
                text = text[:at] + HIDDEN + text[at + self.chars :]
                at += len(HIDDEN) - 1
            at = text.find(self.head, at + 1)
        return text


def marks(secret: str) -> list[SecretMark]:
    """What to find a secret by, as it is and as it would be quoted; nothing for one that is short enough to be guessed."""
    forms = _list_spellings(secret) if len(secret) >= MARKED else ()
    salted = [(form, os.urandom(16).hex()) for form in forms]
    return [SecretMark(form[:HEAD], len(form), salt, _digest_text(salt, form)) for form, salt in salted]


def _digest_text(salt: str, text: str) -> str:
    return hashlib.sha256((salt + text).encode("utf-8", "surrogatepass")).hexdigest()


class Redactor:
    """Hides known secret values, those known by their marks alone, and anything shaped like a key."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._guard = threading.Lock()
        self._secrets: tuple[str, ...] = ()
        self._marks: tuple[SecretMark, ...] = ()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Hide these values from now on, also escaped; values under 4 characters are too common to hide."""
        spelled = {form for secret in secrets for form in _list_spellings(secret) if len(secret) >= 4}
        with self._guard:
            self._secrets = tuple(sorted({*self._secrets, *spelled}, key=len, reverse=True))

    def know(self, known: Iterable[SecretMark]) -> None:
        """Hide what these marks mean from now on, and what earlier ones meant no more."""
        self._marks = tuple(sorted(known, key=lambda mark: mark.chars, reverse=True))

    def clean(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for mark in self._marks:
            text = mark.hide(text)
        return SHAPES.sub(HIDDEN, text) if len(text) >= SHORTEST else text

    def clean_all(self, value: object) -> object:
        """The value with every text in it cleaned, before quoting could hide a secret or hiding break the quoting."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return {self.clean(str(k)): self.clean_all(v) for k, v in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.clean_all(v) for v in value]
        text = str(value)
        clean = self.clean(text)
        return value if isinstance(value, int | float) and clean == text else clean


def _list_spellings(secret: str) -> set[str]:
    """A secret as it is and as JSON or Python would quote it."""
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}


class JsonLines(logging.Formatter):
    """One record as one line of JSON, redacted."""

    def __init__(self, process: str, redactor: Redactor) -> None:
        super().__init__()
        self._process = process
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": iso(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process,
            "where": record.name.removeprefix(ROOT + "."),
            "correlation": _CORRELATION.get(),
            "message": record.getMessage(),
        }
        line.update({k: v for k, v in vars(record).items() if k not in STANDARD})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(self._redactor.clean_all(line), ensure_ascii=False)


class QuietFile(logging.handlers.RotatingFileHandler):
    """A log file that opens at the first line and swallows a full disk instead of taking the process down."""

    def __init__(self, path: Path, size_bytes: int = FILE_BYTES) -> None:
        self._line: tuple[logging.LogRecord, str] | None = None
        super().__init__(path, maxBytes=size_bytes, backupCount=FILES, encoding="utf-8", errors="backslashreplace", delay=True)
        self.namer = lambda name: f"{name}.gz"
        self.rotator = compress

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; whoever logs has the handler's lock."""
        try:
            super().emit(record)
        finally:
            self._line = None

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, made once: it is asked for to see whether there is room, and then to be written."""
        if self._line is None or self._line[0] is not record:
            self._line = (record, super().format(record))
        return self._line[1]

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing to be done: the log is where we would have said so."""

    def close(self) -> None:
        """Close it; lines that a full disk refused are given up."""
        try:
            super().close()
        except OSError:
            pass  # closing writes what is left, and there is still no room


def compress(source: str, target: str) -> None:
    """Move a file to another that is compressed; as it is, under the name without .gz, where there is no room."""
    part = f"{target}.part"
    try:
        with open(source, "rb") as plain, gzip.open(part, "wb", compresslevel=1) as packed:
            shutil.copyfileobj(plain, packed)
        os.replace(part, target)
        os.unlink(source)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        os.replace(source, target.removesuffix(".gz"))


def start(process: str, folder: Path | None, level: str, redactor: Redactor, *, is_service: bool = False) -> None:
    """Send the package's log to `folder/PROCESS.log`, or under systemd to journald, or to stderr (folder None).

    Without systemd-python a service writes to stderr, which systemd puts into the journal.
    """
    root = logging.getLogger(ROOT)
    stop()
    root.setLevel(LEVELS[level or "info"])
    root.propagate = False
    handler: logging.Handler | None = None
    if is_service:
        handler = _journal_handler(process)
    if handler is None and folder is not None and not is_service:
        folder.mkdir(parents=True, exist_ok=True)
        handler = QuietFile(folder / f"{process}.log")
    if handler is None:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process, redactor))
    root.addHandler(handler)


def stop() -> None:
    """Close the log."""
    root = logging.getLogger(ROOT)
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.addHandler(logging.NullHandler())


def beside(path: Path, names: Sequence[str], redactor: Redactor) -> logging.Handler:
    """Have what goes wrong in some modules also written to a file of its own, from `error` on; `without` ends that."""
    handler = QuietFile(path)
    handler.setLevel(logging.ERROR)
    handler.setFormatter(JsonLines(path.stem, redactor))
    for name in names:
        logging.getLogger(f"{ROOT}.{name}").addHandler(handler)
    return handler


def without(handler: logging.Handler, names: Sequence[str]) -> None:
    """No longer write to a file of its own."""
    for name in names:
        logging.getLogger(f"{ROOT}.{name}").removeHandler(handler)
    handler.close()


def _journal_handler(process: str) -> logging.Handler | None:
    try:
        from systemd import journal  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return None

    def send(message: str, **fields: Any) -> None:
        """Without what the library adds of a record as it was before `redactor`: its arguments and its exception."""
        journal.send(message, **{name: fields[name] for name in FIELDS})

    handler: logging.Handler = journal.JournalHandler(sender_function=send, SYSLOG_IDENTIFIER=f"owlbox-{process}")
    return handler
