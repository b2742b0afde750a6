"""Remote models and what all models took, at the local socket: sums, single requests, providers, a second chance for one.

Whoever may open the socket may look. No model can call any of this. Beside `rpc` because one table would pass 600 lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

By = Literal["day", "person", "session", "model", "provider"]
Who = Annotated[str, "only this person's; empty for everybody's"]


@dataclass(frozen=True)
class Books:
    """What the core does for these methods; `ask` is any short method of the broker, which is started for it."""

    sums: Callable[..., Sequence[Any]]
    records: Callable[..., Sequence[Mapping[str, Any]]]
    ask: Callable[[str, dict[str, Any]], Any]


class Costs:
    """The method table of usage and providers."""

    def __init__(self, books: Books) -> None:
        self._books = books

    @method("usage.sums")
    def sums(
        self,
        call: Call,
        by: By = "day",
        days: Annotated[int, Range(1, 36_500), "how many days back, today included"] = 31,
        person: Who = "",
        session: Annotated[str, "only this session's; empty for all"] = "",
    ) -> list[dict[str, Any]]:
        """Requests, tokens and millionths of a dollar by day, person, session, model or provider; of `unpriced` nobody knows."""
        return [asdict(one) for one in self._books.sums(by, days=days, person=person, session=session)]

    @method("usage.requests")
    def requests(
        self,
        call: Call,
        person: Annotated[str | None, "only this person's; empty for the box's own, null for all"] = None,
        run: Annotated[str, "only this thread's; empty for all"] = "",
        limit: Annotated[int, Range(1, 1000), "how many, newest first"] = 50,
    ) -> list[dict[str, Any]]:
        """Requests to models one by one; of each person the newest thousand are kept."""
        return [dict(one) for one in self._books.records(person=person, run=run, limit=limit)]

    @method("model.providers", access="all")
    def providers(self, call: Call) -> dict[str, Any]:
        """How each configured provider is doing, its limits, and what is spent; asks none of them."""
        return dict(self._books.ask("providers", {}))

    @method("model.remote", access="all", is_long=True)
    def remote(self, call: Call) -> list[dict[str, Any]]:
        """Every model that the configured providers offer, with its window and price; asks all of them."""
        return list(self._books.ask("listing", {}))

    @method("model.reset")
    def reset(self, call: Call, provider: Annotated[str, "its name; empty for all"] = "") -> dict[str, Any]:
        """Ask a provider again at once that is left alone after failures."""
        return dict(self._books.ask("reset", {"provider": provider}))
