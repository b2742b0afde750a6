"""Every error a person, a model or a client can see, as one tree.

An error says what happened (with the offending value), carries the HTTP-like status and the short
outcome label of docs/requirements/overlaps.md section 21, and may carry a hint: the next step.

    OwlError                500 failed
    ├── BadInput            400 bad_input
    │   └── ConfigError     400 bad_config     (key: the offending key or variable)
    ├── Refused             403 permission
    ├── NotFound            404 not_found
    ├── Conflict            409 conflict
    │   ├── AlreadyRunning  409 already_running
    │   └── PathConflict    409 path_conflict  (uid: what is there already)
    ├── TooLarge            413 too_large
    ├── Exhausted           429 resource_exhausted
    ├── Cancelled           499 cancelled
    ├── Unavailable         503 unavailable
    │   ├── Lost            503 connection_lost
    │   ├── Busy            503 busy
    │   ├── HttpError       503 http_error     (stage: how far a request came)
    │   ├── ProviderError   502 upstream_error (or another of PROVIDER_CODES; kind, retry_after_s)
    │   │   └── ContextTooLong  413 context_too_long  (also a TooLarge)
    │   ├── DiskFault       503 disk_fault
    │   │   ├── DiskFull      503 disk_full      (no space, no inodes, or the quota is used up)
    │   │   ├── DiskReadOnly  503 disk_read_only
    │   │   └── DiskFailing   503 disk_failing   (the hardware gives an error for a file)
    │   └── Interrupted     499 interrupted    (what was begun was cut off by the end of a process)
    ├── DeadlineExceeded    504 timeout
    ├── ServerError         500 permanent      (a server of tools; or another of SERVER_CODES)
    └── StoreError          500 store          (database unreadable, damaged or too new)
"""

from typing import Literal, Self


class OwlError(Exception):
    """Something failed in a way we can explain; `outcome` is a label more exact than the class's own.

    `origin` and `source` say whose words stand in the message, as in a tool's result; "" for ours alone.
    """

    status = 500
    outcome = "failed"
    exit_code = 1
    origin = ""
    source = ""

    def __init__(self, message: str, *, hint: str = "", outcome: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if outcome:
            self.outcome = outcome

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def saying(self, origin: str, source: str) -> Self:
        """A copy of the error for a message that may contain untrusted text."""
        self.origin, self.source = origin, source
        return self


class BadInput(OwlError):
    """The caller sent something that cannot be right."""

    status, outcome, exit_code = 400, "bad_input", 2


class ConfigError(BadInput):
    """The configuration cannot be used; `key` names the offending key or variable."""

    outcome = "bad_config"

    def __init__(self, message: str, *, key: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key


class Refused(OwlError):
    """Policy, ownership or a missing token says no."""

    status, outcome, exit_code = 403, "permission", 4


class NotFound(OwlError):
    """The named thing does not exist."""

    status, outcome, exit_code = 404, "not_found", 3


class Conflict(OwlError):
    """The request contradicts the present state."""

    status, outcome, exit_code = 409, "conflict", 1


class AlreadyRunning(Conflict):
    """Another process holds this home, or this action was already started."""

    outcome, exit_code = "already_running", 5


class PathConflict(Conflict):
    """Something is there already; `uid` names it."""

    outcome = "path_conflict"

    def __init__(self, message: str, *, uid: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.uid = uid


class TooLarge(OwlError):
    """A frame, body, prompt or model does not fit its limit."""

    status, outcome, exit_code = 413, "too_large", 1


class Exhausted(OwlError):
    """The spending limit of a period has been reached."""

    status, outcome, exit_code = 429, "resource_exhausted", 1


class Cancelled(OwlError):
    """Somebody stopped it."""

    status, outcome, exit_code = 499, "cancelled", 1


class Unavailable(OwlError):
    """A part that is needed is not there right now; trying later may work."""

    status, outcome, exit_code = 503, "unavailable", 5


class Lost(Unavailable):
    """Nobody answers at the other end of a socket, or it hung up."""

    outcome = "connection_lost"


class Busy(Unavailable):
    """What is needed is in use, or not there yet: a lock, a queue, a service; `retry_s` says when it may be tried again."""

    outcome = "busy"

    def __init__(self, message: str, *, hint: str = "", outcome: str = "", retry_s: float = 0) -> None:
        super().__init__(message, hint=hint, outcome=outcome)
        self.retry_s = retry_s


HttpStage = Literal["authorities", "connect", "tls", "request", "hang-up", "silence", "answer", "body"]


NOT_SENT = ("authorities", "connect", "tls")  # stages at which nothing of a request can have arrived


class HttpError(Unavailable):
    """A server could not be asked by HTTP, or its answer is not whole; `stage` says how far it came, `why` in few words.

    "authorities": the file of certificates cannot be read. "hang-up": the connection ended before a byte of an answer.
    """

    outcome = "http_error"

    def __init__(self, message: str, *, hint: str = "", outcome: str = "", stage: HttpStage = "answer", why: str = "") -> None:
        super().__init__(message, hint=hint, outcome=outcome)
        self.stage: HttpStage = stage
        self.why = why

    @property
    def may_have_arrived(self) -> bool:
        """Whether some of the request may have reached the server."""
        return self.stage not in NOT_SENT


class DiskFault(Unavailable):
    """The disk does not do what is asked of it."""

    outcome = "disk_fault"


class DiskFull(DiskFault):
    """No space is left where we must write."""

    outcome = "disk_full"


class DiskReadOnly(DiskFault):
    """The disk takes no writes: mounted so, or the kernel stopped writing to it after an error."""

    outcome = "disk_read_only"


class DiskFailing(DiskFault):
    """The disk cannot read or write what was asked for."""

    outcome = "disk_failing"


class Interrupted(Unavailable):
    """What had begun was cut off, because a process that it needs ended: what was said until then is stored.

    Made from its outcome alone, where another process tells of it.
    """

    status, outcome = 499, "interrupted"


class DeadlineExceeded(OwlError):
    """It took longer than the caller allowed."""

    status, outcome, exit_code = 504, "timeout", 5


# What a service that offers models may fail with, and the status that goes with it.
PROVIDER_CODES = {
    "provider_not_available": 503,
    "provider_not_found": 404,
    "model_not_supported": 400,
    "model_not_found": 404,
    "invalid_request": 400,
    "authentication_failed": 401,
    "rate_limited": 429,
    "context_too_long": 413,
    "invalid_response": 502,
    "stream_error": 502,
    "provider_timeout": 504,
    "upstream_error": 502,
}
Trouble = Literal["", "rate", "warm-up", "gateway", "server", "network"]


class ProviderError(Unavailable):
    """A service that offers models failed; its `outcome` is one of PROVIDER_CODES.

    `kind` says whether trying again may help, "" when not: too many requests, a model that is being loaded, something
    between us and the service, the service itself, or no way to it at all. `retry_after_s` is what it asked us to wait.
    """

    status, outcome, exit_code = 502, "upstream_error", 5

    def __init__(
        self, message: str, *, hint: str = "", outcome: str = "", kind: Trouble = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, hint=hint, outcome=outcome)
        self.status = PROVIDER_CODES.get(self.outcome, 502)
        self.kind = kind
        self.retry_after_s = retry_after_s


class ContextTooLong(ProviderError, TooLarge):
    """A provider says that the prompt does not fit its model: handled as every other prompt that is too large."""

    status, outcome = 413, "context_too_long"


# What a call of a server of tools may fail with: what can be done about it (B-139), and the status that goes with it.
SERVER_CODES = {"retryable": 503, "auth_error": 401, "input_error": 400, "permanent": 500}
SERVER_EXITS = {"retryable": 5, "auth_error": 4, "input_error": 2, "permanent": 1}


class ServerError(OwlError):
    """A server of tools could not be asked, or said no; its `outcome` is one of SERVER_CODES."""

    outcome = "permanent"

    def __init__(self, message: str, *, hint: str = "", outcome: str = "") -> None:
        super().__init__(message, hint=hint, outcome=outcome)
        self.status = SERVER_CODES.get(self.outcome, 500)
        self.exit_code = SERVER_EXITS.get(self.outcome, 1)


class StoreError(OwlError):
    """The database cannot be read, is damaged, or was written by a newer version."""

    outcome = "store"


def _tree(root: type[OwlError]) -> dict[str, type[OwlError]]:
    found = {root.outcome: root}
    for child in root.__subclasses__():
        for outcome, kind in _tree(child).items():
            found.setdefault(outcome, kind)  # a class without a label of its own takes none away
    return found


def from_outcome(outcome: str, message: str, hint: str = "") -> OwlError:
    """The error of the tree that has this outcome label; a plain OwlError when no class has it."""
    if outcome in SERVER_CODES:
        return ServerError(message, hint=hint, outcome=outcome)
    if outcome in PROVIDER_CODES:
        return (
            ContextTooLong(message, hint=hint)
            if outcome == ContextTooLong.outcome
            else ProviderError(message, hint=hint, outcome=outcome)
        )
    return _tree(OwlError).get(outcome, OwlError)(message, hint=hint)
