"""What a provider's complaint means: its own first line, the class it belongs to, and how long it asks us to wait.

Reads bodies of any format, HTML included, and shows nothing of a key. Knows nothing about sockets nor what is
done about an error.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import ContextTooLong, ProviderError, Trouble
from appliance.providers.remote_settings import Remote
from appliance.text.tokens import is_too_long

LINE_CHARS = 240
LONGEST_WAIT_S = 86_400.0
KEYLIKE = re.compile(r"\b(?:sk|gsk|xai|pk|rk|key|AIza|AKIA)[-_A-Za-z0-9*]{8,}|\*{3,}\w{0,8}")
NEVER_PASSING = (501, 505, 506, 508, 510, 511)  # the same request is answered the same way again: it is not repeated
UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)?\s*")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
NO_CREDIT = re.compile(
    r"insufficient.{0,20}(?:quota|balance|credit|funds)|credit balance|billing|payment|exceeded your current quota", re.I
)
NO_MODEL = re.compile(
    r"model.{0,80}(?:not.{0,3}(?:found|exist)|unknown|does not exist|not a valid|no longer)"
    r"|(?:no such|unknown|invalid) model",
    re.I,
)
NO_KEY = re.compile(
    r"api.?key.{0,30}(?:not valid|invalid|expired|missing|incorrect)|(?:invalid|incorrect|missing|no).{0,12}api.?key", re.I
)
NO_TOOLS = re.compile(
    r"(?:not|n't) support.{0,20}(?:tool|function)|found that support tool|unsupported parameter.{0,5}tools"
    r"|(?:tool|function).{0,3}(?:call|use|choice|param).{0,40}(?:not (?:supported|enabled|available)|requires)"
    r"|(?:tools|functions) (?:is|are) not (?:supported|enabled|available)",
    re.I,
)
LOADING = re.compile(r"loading|warming|starting up|is being (?:loaded|deployed)|cold start", re.I)
# Which words of a provider's own type or code mean what, where no HTTP status says it: within a stream.
KINDS: tuple[tuple[str, int], ...] = (
    ("rate_limit", 429), ("resource_exhausted", 429), ("too_many", 429),
    ("overloaded", 529), ("unavailable", 503),
    ("authentication", 401), ("permission", 403), ("unauthenticated", 401), ("billing", 402),
    ("not_found", 404), ("timeout", 504), ("deadline", 504),
    ("invalid", 400), ("too_large", 413), ("exceed_context", 400), ("bad_request", 400),
)  # fmt: skip
WINDOWS = (
    re.compile(r"(?:maximum|max) (?:context|input|model)?[ _]?(?:context )?length (?:is|of) ([0-9]{3,9})", re.I),
    re.compile(r">\s*([0-9]{3,9}) maximum", re.I),
    re.compile(r"context (?:size|window|length)[^0-9]{1,20}([0-9]{3,9})", re.I),
    re.compile(r"maximum number of tokens allowed[^0-9]{0,12}([0-9]{3,9})", re.I),
)


class Heard(Struct, frozen=True):
    """A complaint as it came: HTTP status (0 within a stream), headers, and its text or parsed body."""

    status: int
    headers: Mapping[str, str]
    body: Any


def fault(remote: Remote, heard: Heard, hidden: Iterable[str] = ()) -> ProviderError:
    """The error that a complaint is; `hidden` are the texts that must not be shown: keys."""
    body = _parse_body(heard.body)
    text, label = _complaint_of(body)
    line = clean(text, hidden)
    status = heard.status if heard.status >= 300 else _guess_status(body, label, text)
    outcome, kind = _classify_error(status, label, text)
    said = f": {line}" if line else ""
    message = f"{remote.provider} ({remote.model}): {_name_status(status)}{said}"
    wait_s = wait_of(heard.headers, body)
    if outcome == ContextTooLong.outcome:
        return ContextTooLong(
            message, retry_after_s=wait_s, hint="shorten the conversation, or choose a model with a larger window"
        )
    return ProviderError(message, hint=_hint_for(remote, outcome, status, text), outcome=outcome, kind=kind, retry_after_s=wait_s)


def clean(text: str, hidden: Iterable[str] = ()) -> str:
    """The first line of a text, without keys and control characters, and not too long."""
    for secret in hidden:
        for word in (secret, *secret.split()):
            if len(word) >= 6:
                text = text.replace(word, "[key]")
    if "<html" in text[:500].lower() or text.lstrip()[:9].lower() == "<!doctype":
        title = re.search(r"<title>(.{1,200}?)</title>", text[:20_000], re.I | re.S)
        text = f"a page: {title.group(1)}" if title else "a page instead of an answer"
    line = next((" ".join(part.split()) for part in text.splitlines() if part.strip()), "")
    line = KEYLIKE.sub("[key]", "".join(c if c.isprintable() else " " for c in line))
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"


def wait_of(headers: Mapping[str, str], body: Any = None) -> float | None:
    """Seconds that a provider asks us to wait: by its headers (seconds, HTTP date) or Google's RetryInfo."""
    found = {name.lower(): value for name, value in headers.items()}
    readers: tuple[tuple[str, Callable[[str], float | None]], ...] = (
        ("retry-after-ms", lambda value: _parse_seconds(f"{value}ms")),
        ("retry-after", lambda value: _parse_seconds(value) if _parse_seconds(value) is not None else _parse_date(value)),
    )
    for name, read in readers:
        if name in found and (wait_s := read(found[name])) is not None:
            return min(wait_s, LONGEST_WAIT_S)
    details = _value_at(body, "error", "details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (wait_s := _parse_seconds(delay)) is not None:
            return min(wait_s, LONGEST_WAIT_S)
    return None


def window_in(text: str) -> int:
    """The window that a complaint about its size names, 0 without one."""
    plain = re.sub(r"(?<=\d)[,_](?=\d{3})", "", text[:5000])
    return next((int(found.group(1)) for pattern in WINDOWS if (found := pattern.search(plain))), 0)


# -- parts ----------------------------------------------------------------------------------------------


def _parse_body(body: Any) -> Any:
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return body
    return body[0] if isinstance(body, list) and body else body  # Google wraps errors in a list


def _value_at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _complaint_of(body: Any) -> tuple[str, str]:
    """A complaint's text, and its type and code as one text in small letters."""
    error = _value_at(body, "error") if _value_at(body, "error") is not None else body
    text = error if isinstance(error, str) else ""
    for name in ("message", "detail", "error_description", "msg"):
        value = _value_at(error, name)
        if not text and value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:2000]
    raw = _value_at(error, "metadata", "raw")  # OpenRouter: what the provider behind it said
    if isinstance(raw, str) and raw not in text:
        text = f"{text} ({_complaint_of(_parse_body(raw))[0] or raw})"
    labels = [_value_at(error, name) for name in ("type", "code", "status")]
    return text, " ".join(str(label) for label in labels if isinstance(label, (str, int))).lower()


def _guess_status(body: Any, label: str, text: str) -> int:
    """An HTTP status for a complaint that came without one."""
    code = _value_at(body, "error", "code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return next((status for word, status in KINDS if word in label), 400 if is_too_long(text) else 500)


def _classify_error(status: int, label: str, text: str) -> tuple[str, Trouble]:
    """The outcome and the kind of trouble of a status and what was said with it."""
    if status == 413 or (
        status in (400, 422, 500) and (is_too_long(text) or "exceed_context" in label or "context_length" in label)
    ):
        return "context_too_long", ""
    if status == 402 or (status in (400, 403, 429) and (NO_CREDIT.search(text) or "insufficient_quota" in label)):
        return "authentication_failed", ""
    if status in (401, 403) or (status == 400 and NO_KEY.search(text)):
        return "authentication_failed", ""
    if status == 429:
        return "rate_limited", "rate"
    if status in (400, 404, 422, 500, 501) and NO_TOOLS.search(text):
        return "model_not_supported", ""
    if status == 404 or (status in (400, 422) and (NO_MODEL.search(text) or "model_not_found" in label)):
        return "model_not_found", ""
    if status in (408, 504, 524):
        return ("provider_timeout", "gateway") if status == 408 else ("upstream_error", "gateway")
    if status == 503 and LOADING.search(text):
        return "provider_not_available", "warm-up"
    if status in (503, 529):
        return "provider_not_available", "server"
    if status == 502 or 520 <= status <= 523:
        return "upstream_error", "gateway"
    if status in NEVER_PASSING:
        return "upstream_error", ""
    return ("upstream_error", "server") if status >= 500 else ("invalid_request", "")


def _name_status(status: int) -> str:
    return f"HTTP {status}"


def _hint_for(remote: Remote, outcome: str, status: int, text: str) -> str:
    if outcome == "authentication_failed":
        if status == 402 or NO_CREDIT.search(text):
            return "the account has no credit left: look at its billing page"
        return f"owlbox secret set llm/{remote.provider} sets the key"
    if outcome == "model_not_found":
        return f"look at the model's name, and whether {remote.place} is the right address"
    if outcome == "model_not_supported":
        return "choose another model for work with tools; for plain answers this one will do"
    if 300 <= status < 400:
        return "redirects are not followed: set base_url to where it leads"
    return {"rate_limited": "wait a little", "upstream_error": "try again later", "provider_not_available": "try again later"}.get(
        outcome, ""
    )


def _parse_seconds(text: str) -> float | None:
    found = UNIT.fullmatch(text)
    return float(found.group(1)) * UNITS[found.group(2)] if found else None


def _parse_date(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # brings sockets along, which nothing else here needs

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_ms() / 1000)
    except (ValueError, TypeError, OverflowError):
        return None
