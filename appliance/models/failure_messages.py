"""What a person is told when a model at a provider fails, by the class of the failure (S-015).

Short, with the next step where there is one. Pure; the log has the rest.
"""

from appliance.errors import OwlError, ProviderError

MOST_CHARS = 200
UNREACHABLE = ("network", "gateway")


def excuse(error: OwlError) -> str:
    """The failure in words for people: a key, too many requests, no connection, else its kind and first line."""
    if not isinstance(error, ProviderError):
        return str(error)
    line, hint = first_line(error.message), f" ({error.hint})" if error.hint else ""
    if error.outcome == "authentication_failed":
        return f"The model's provider did not accept the key: {line}. Set it anew: {error.hint or 'owlbox secret set llm/NAME'}"
    if error.outcome == "rate_limited" or error.kind == "rate":
        when = f"in {error.retry_after_s:.0f} s" if error.retry_after_s else "in a while"
        return f"The model's provider has had too many requests: {line}. Try again {when}."
    if error.outcome == "provider_timeout":
        return f"The model's provider did not answer in time: {line}. Try again."
    if error.kind in UNREACHABLE:
        return f"The model's provider cannot be reached: {line}. Try again when the network is back{hint}."
    if error.outcome == "provider_not_available":
        return f"No model can be asked just now: {line}{hint}"
    return f"{error.outcome}: {line}{hint}"


def first_line(text: str) -> str:
    """The first line that says something, shortened, without a full stop at its end."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else "it did not say why"
    line = line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1].rstrip()}…"
    return line.rstrip(".")
