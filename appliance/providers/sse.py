"""Server-sent events out of bytes, however they were cut into pieces.

Strict about sizes, tolerant about the rest: any line ending, comments, unknown fields, a mark at the beginning, a
last event without an empty line behind it. Knows nothing about what the data means nor where bytes come from.
"""

from msgspec import Struct

from appliance.errors import ProviderError

MAX_LINE_BYTES = 8_000_000
MAX_EVENT_BYTES = 16_000_000
MARK = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True):
    """One server-sent event: its name, "" for a plain message, and its data."""

    name: str
    data: str


class SseEvents:
    """Reads one stream; ProviderError invalid_response when a line or an event is longer than any real one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._waiting = 0  # bytes in _parts, which have no line ending yet
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._is_first = True
        self._had_return = False

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that are whole now."""
        if not data:
            return []
        if self._had_return and data[:1] == b"\n":  # the second half of a line ending
            data = data[1:]
        self._had_return = False
        if b"\n" not in data and b"\r" not in data:
            self._keep_data(data)
            return []
        whole = b"".join([*self._parts, data])
        self._parts, self._waiting = [], 0
        if whole.endswith(b"\r"):
            self._had_return = True
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = whole.split(b"\n")
        if rest:
            self._keep_data(rest)
        found: list[SseEvent] = []
        for line in lines:
            self._take_line(line, found)
        return found

    def close(self) -> list[SseEvent]:
        """The last event, when the stream ended without the empty line behind it."""
        found: list[SseEvent] = []
        last = b"".join(self._parts)
        self._parts, self._waiting = [], 0
        if last:
            self._take_line(last, found)
        self._take_line(b"", found)
        return found

    def _keep_data(self, data: bytes) -> None:
        self._waiting += len(data)
        if self._waiting > MAX_LINE_BYTES:
            raise ProviderError(f"a line of more than {MAX_LINE_BYTES} bytes is no answer", outcome="invalid_response")
        self._parts.append(data)

    def _take_line(self, line: bytes, found: list[SseEvent]) -> None:
        if self._is_first:
            line, self._is_first = line.removeprefix(MARK), False
        if not line:
            if self._data:
                found.append(SseEvent(self._name, b"\n".join(self._data).decode("utf-8", "replace")))
            self._name, self._data, self._size = "", [], 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) + 1
            if self._size > MAX_EVENT_BYTES:
                raise ProviderError(f"an event of more than {MAX_EVENT_BYTES} bytes is no answer", outcome="invalid_response")
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
